"""plait's engine beside llama.cpp and the reference library: same files, answers compared first, rounds in turn.

    python benchmarks/peers/compare.py --work FOLDER --peer-python PYTHON [--only Q8_0] [--cases decode1] [--rounds 11]

FOLDER keeps the files that make_models.py writes (they are written if they are missing) and the peer's best settings,
which are searched for once for every file and case. Every round measures the memory bandwidth and then every case, the
two sides one after the other, the first one changing from round to round; the side that waits sleeps, and what
processor time it or anything else used meanwhile is reported. Printed are medians, ranges over the rounds, the median
and range of each round's own ratio, and the table of the README; --json keeps all of it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from make_models import make
from protocol import Worker, unpacked
from shapes import PAIRS, SHAPES, Pair

import plait
from plait.checkpoint.gguf import GGUFSource
from plait.checkpoint.package import PREFIX, inside_package
from plait.generation.machine import Reading

HERE = Path(__file__).parent
PROMPT = 16  # tokens before those that are timed
SIDES = ("plait", "llama.cpp")


@dataclass(frozen=True)
class Case:
    """What is timed: ``steps`` tokens of ``batch`` rows, or with none a prompt of ``length``."""

    name: str
    batch: int
    threads: int
    length: int = PROMPT
    steps: int = 0

    @property
    def tokens(self) -> int:
        """Tokens read in one measurement."""
        return self.batch * (self.steps or self.length)


def cases(threads: int, steps: int) -> dict[str, Case]:
    """The cases by name."""
    named = (
        Case("decode1", 1, threads, steps=steps),
        Case("decode8", 8, threads, steps=max(4, steps // 2)),
        Case("decode1-1thread", 1, 1, steps=max(4, steps // 2)),
        Case("prefill512", 1, threads, length=512),
    )
    return {case.name: case for case in named}


Tokens = list[list[int]]


def tokens_for(case: Case, text: list[int]) -> tuple[Tokens, Tokens]:
    """A row's prompt is a piece of the text, and what follows is what follows there: no answer decides what is read."""
    n = case.length + case.steps
    rows = [text[i * n : (i + 1) * n] for i in range(case.batch)]
    if len(rows[-1]) < n:
        raise SystemExit(f"--text: {len(text)} tokens are too few for {case.batch} rows of {n}.")
    return [row[: case.length] for row in rows], [row[case.length :] for row in rows]


def text_for(pair: Pair, path: Path, vocab: int, file: Path) -> list[int]:
    """Real text for real weights; for weights that are drawn, drawn tokens."""
    if pair.shape in SHAPES:
        return torch.randint(300, vocab, (8192,), generator=torch.Generator().manual_seed(0)).tolist()
    tokenizer = plait.load(path, device="meta").tokenizer
    assert tokenizer is not None
    return tokenizer.encode(file.read_text(encoding="utf-8"))


# What a token reads


def bytes_a_token(path: Path) -> int:
    """Bytes of the weights that every token is multiplied by: not a table that is only looked into."""
    source = GGUFSource(path)
    looked_into = {"position_embd.weight"} | ({"token_embd.weight"} if "output.weight" in source.names else set())
    return sum(len(source.raw(name)) for name in source.names if name not in looked_into)


# Whether the two compute the same


def gap(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """How far apart, as root mean squares: the difference's share of the spread."""
    a, b = torch.tensor(ours, dtype=torch.float64), torch.tensor(theirs, dtype=torch.float64)
    return float((a - b).square().mean().sqrt() / (b - b.mean()).square().mean().sqrt())


# The peer's best settings


def best_settings(
    llama: Worker, case: Case, text: list[int], choices: dict[str, list[Any]], repeats: int
) -> dict[str, Any]:
    """One setting after the other, each choice against the best so far in turn; changed where it is 2 % faster."""
    prompt, follow = tokens_for(case, text)

    def measure(settings: dict[str, Any]) -> float:
        if case.steps:
            return llama.ask("decode", prompt=prompt, follow=follow, threads=case.threads, settings=settings)
        return llama.ask("prefill", prompt=prompt, threads=case.threads, settings=settings)

    best: dict[str, Any] = {name: options[0] for name, options in choices.items()}
    for name, options in choices.items() if repeats else ():
        if (name == "unified" and case.batch == 1) or (name == "ubatch" and case.steps):
            continue
        for other in [option for option in options if option != best[name]]:
            trial = {**best, name: other}
            try:
                measure(best), measure(trial)
            except RuntimeError as error:
                print(f"    {name}={other}: {error}", file=sys.stderr)
                continue
            times = [(measure(best), measure(trial)) for _ in range(repeats)]
            before, after = (min(column) for column in zip(*times, strict=True))
            print(f"    {case.name}: {name}={other}: {before / after:.3f} of the best so far", file=sys.stderr)
            if before / after > 1.02:
                best = trial
    return best


# Rounds


class Load:
    """How much of the processors others than the one that is timed used."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers

    def _busy(self) -> tuple[float, list[float]]:
        fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        user, nice, system, _, _, irq, softirq, steal = fields[:8]
        total = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return total, [worker.cpu_seconds() for worker in self._workers]

    def around(self, worker: Worker, work: Callable[[], float]) -> tuple[float, float, float]:
        """What ``work`` returns; processors' worth of time that the waiting workers used, and that others used."""
        (total, own), start = self._busy(), time.perf_counter()
        result = work()
        elapsed = time.perf_counter() - start
        total_after, own_after = self._busy()
        used = [b - a for a, b in zip(own, own_after, strict=True)]
        waiting = sum(u for u, w in zip(used, self._workers, strict=True) if w is not worker)
        return result, waiting / elapsed, max(0.0, (total_after - total - sum(used)) / elapsed)


def measure(
    pair: Pair,
    path: Path,
    chosen: Sequence[Case],
    options: argparse.Namespace,
    remembered: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """A result for each case of one pair."""
    reference_folder = options.work / "hf" / pair.name.split()[0]
    with (
        Worker(sys.executable, HERE / "plait_worker.py") as ours,
        Worker(options.peer_python, HERE / "llama_worker.py") as llama,
        Worker(sys.executable, HERE / "reference_worker.py", {"REFERENCE": str(options.reference)}) as reference,
    ):
        held = ours.ask("load", path=str(path), kind=options.kind)
        opened = llama.ask("load", path=str(path))
        vocab = held["vocab"]
        if opened["vocab"] != vocab:
            raise SystemExit(f"{pair.name}: {vocab} tokens here, {opened['vocab']} there.")
        print(f"{pair.name}: {path}, {opened['system'].strip()}", file=sys.stderr)
        sides: dict[str, Worker] = {"plait": ours, "llama.cpp": llama}
        if any(not case.steps for case in chosen) and not options.no_reference:
            dtypes = ["float32", "bfloat16"] if pair.type == "BF16" else ["float32"]
            reference.ask("load", path=str(reference_folder), dtypes=dtypes)
            sides["reference"] = reference

        text = text_for(pair, path, vocab, options.text)
        works: dict[str, dict[str, Callable[[], float]]] = {}
        settings: dict[str, dict[str, Any]] = {}
        gaps: dict[str, dict[str, float]] = {}
        for case in chosen:
            prompt, follow = tokens_for(case, text)
            key = f"{pair.name}, {case.name}"
            if key not in remembered:
                remembered[key] = best_settings(llama, case, text, opened["settings"], options.tune)
            settings[case.name] = remembered[key]
            works[case.name], gaps[case.name] = _works(case, sides, prompt, follow, remembered[key], pair)

        reading, load = Reading(), Load(list(sides.values()))
        found: dict[str, list[dict[str, Any]]] = {case.name: [] for case in chosen}
        for turn in range(-1, options.rounds):  # the first warms up
            bandwidth = reading.bandwidth(options.threads)
            for case in chosen:
                order = list(works[case.name])
                shift = turn % len(order)
                line: dict[str, Any] = {"bandwidth": bandwidth}
                for side in order[shift:] + order[:shift]:
                    seconds, waiting, others = load.around(sides[side], works[case.name][side])
                    line[side] = case.tokens / seconds
                    line[f"{side}: waiting"], line[f"{side}: others"] = waiting, others
                if turn >= 0:
                    found[case.name].append(line)
        asked = {side: worker.ask("versions") for side, worker in sides.items()}
        for case in chosen:
            result = summary(case, found[case.name], bytes_a_token(path) / case.batch if case.steps else None)
            yield {
                "pair": pair.name,
                "case": case.name,
                "threads": case.threads,
                "batch": case.batch,
                "tokens": case.tokens,
                **result,
                "gaps": gaps[case.name],
                "peer_settings": settings[case.name],
                "versions": asked,
                "system": opened["system"].strip(),
            }


def _works(
    case: Case,
    sides: dict[str, Worker],
    prompt: Tokens,
    follow: Tokens,
    settings: dict[str, Any],
    pair: Pair,
) -> tuple[dict[str, Callable[[], float]], dict[str, float]]:
    """What to time on each side, once they were seen to say the same."""
    ours, llama = sides["plait"], sides["llama.cpp"]
    both = {"prompt": prompt, "threads": case.threads}
    last = follow if case.steps else [[7] for _ in prompt]  # behind a prompt, one token more
    mine = unpacked(ours.ask("logits", follow=last, **both))
    theirs = unpacked(llama.ask("logits", follow=last, settings=settings, **both))
    gaps = {"llama.cpp": gap(mine, theirs)}
    if gaps["llama.cpp"] > pair.gap:
        raise SystemExit(f"{pair.name}, {case.name}: the logits lie {gaps['llama.cpp']:.4f} apart, over {pair.gap}.")
    if case.steps:
        step = {"follow": follow, **both}
        works: dict[str, Callable[[], float]] = {
            "plait": lambda: ours.ask("decode", **step),
            "llama.cpp": lambda: llama.ask("decode", settings=settings, **step),
        }
        return works, gaps
    works = {
        "plait": lambda: ours.ask("prefill", **both),
        "llama.cpp": lambda: llama.ask("prefill", settings=settings, **both),
    }
    if "reference" in sides:
        reference = sides["reference"]
        longer = [[*row, 7] for row in prompt]
        said = reference.ask("logits", prompt=longer, threads=case.threads, settings={"dtype": "float32"})
        gaps["reference"] = gap(mine, unpacked(said))
        # The reference reads the weights before they were rounded to blocks: other numbers, the same work.
        if pair.type in ("F32", "own file") and gaps["reference"] > pair.gap:
            raise SystemExit(f"{pair.name}: the reference's logits lie {gaps['reference']:.4f} apart, over {pair.gap}.")
        times = {}
        for dtype in ["float32", "bfloat16"] if pair.type == "BF16" else ["float32"]:
            tries = [reference.ask("prefill", settings={"dtype": dtype}, **both) for _ in range(2)]
            times[dtype] = min(tries)
        quickest = min(times, key=times.__getitem__)
        works["reference"] = lambda: reference.ask("prefill", settings={"dtype": quickest}, **both)
    return works, gaps


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and range."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def summary(case: Case, rounds: Sequence[dict[str, Any]], weight_bytes: float | None) -> dict[str, Any]:
    """Medians and ranges of one case over the rounds; ``weight_bytes``: what a token's share of the weights takes."""
    sides = [side for side in (*SIDES, "reference") if side in rounds[0]]
    result: dict[str, Any] = {side: spread([line[side] for line in rounds]) for side in sides}
    for peer in sides[1:]:
        result[f"ratio to {peer}"] = spread([line["plait"] / line[peer] for line in rounds])
    result["bandwidth"] = spread([line["bandwidth"] for line in rounds])
    if weight_bytes is not None and case.threads > 1:
        for side in SIDES:
            shares = [line[side] * weight_bytes / line["bandwidth"] for line in rounds]
            result[f"{side}: share of bandwidth"] = spread(shares)
    result["waiting"] = max(line[f"{side}: waiting"] for line in rounds for side in sides)
    result["others"] = spread([line[f"{side}: others"] for line in rounds for side in sides])
    result["rounds"] = list(rounds)
    return result


# What is printed


def lines(result: dict[str, Any]) -> Iterator[str]:
    """One case, for a person."""

    def say(values: dict[str, float], digits: int) -> str:
        return f"{values['median']:.{digits}f} ({values['low']:.{digits}f} to {values['high']:.{digits}f})"

    yield f"{result['pair']}, {result['case']}: {result['threads']} threads, {len(result['rounds'])} rounds"
    for side in (*SIDES, "reference"):
        if side in result:
            share = result.get(f"{side}: share of bandwidth")
            tail = f", {100 * share['median']:.0f} % of the bandwidth" if share else ""
            yield f"  {side:10} {say(result[side], 1)} tokens/s{tail}"
        if f"ratio to {side}" in result:
            yield f"  {'':10} plait is {say(result[f'ratio to {side}'], 2)} times {side}"
    gaps = ", ".join(f"{name} {value:.5f}" for name, value in result["gaps"].items())
    chosen = ", ".join(f"{name}={value}" for name, value in result["peer_settings"].items())
    yield f"  reads {result['bandwidth']['median'] / 1e9:.1f} GB/s; logits apart: {gaps}"
    yield f"  llama.cpp with {chosen}"
    yield (
        f"  processors used meanwhile by the side that waits: {result['waiting']:.2f} at most; by others: "
        f"{result['others']['median']:.2f} ({result['others']['low']:.2f} to {result['others']['high']:.2f})"
    )


TITLES = {
    "decode1": "batch 1",
    "decode8": "batch 8",
    "decode1-1thread": "batch 1, one thread",
    "prefill512": "prompt of 512",
}


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """The README's table: plait's tokens a second, and how many times the peer's in the same rounds."""
    names = [name for name in TITLES if any(r["case"] == name for r in results)]
    rows = [["same file, tokens/s (times llama.cpp)", *(TITLES[name] for name in names)]]
    rows.append([":--", *["--:"] * len(names)])
    for pair in dict.fromkeys(r["pair"] for r in results):
        cells = []
        for name in names:
            found = next((r for r in results if r["pair"] == pair and r["case"] == name), None)
            if found is None:
                cells.append("")
                continue
            cell = f"{found['plait']['median']:.0f} ({found['ratio to llama.cpp']['median']:.2f})"
            if "ratio to reference" in found:
                cell += f", {found['ratio to reference']['median']:.2f} times the reference"
            cells.append(cell)
        rows.append([pair, *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def processor() -> str:
    """Its name, and how many of it there are."""
    names = [line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return f"{len(names)} x {names[0] if names else platform.machine()}"


def file_of(pair: Pair, work: Path) -> Path:
    """The GGUF file of a pair."""
    if pair.shape in SHAPES:
        return work / f"{pair.shape}-{pair.type}.gguf"
    return inside_package(pair.shape.removeprefix(PREFIX)) if pair.shape.startswith(PREFIX) else Path(pair.shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="a folder for the files, 2 GB")
    parser.add_argument("--peer-python", default=os.environ.get("PEER_PYTHON"), help="one that has llama-cpp-python")
    parser.add_argument("--reference", type=Path, default=HERE.parents[1] / ".reference", help="where transformers is")
    parser.add_argument("--no-reference", action="store_true")
    parser.add_argument("--kind", choices=("engine", "plain"), default="engine", help="what stands for plait")
    parser.add_argument("--only", nargs="*", default=[""], help="pairs whose name has one of these in it")
    parser.add_argument("--cases", nargs="*", help="of decode1, decode8, decode1-1thread, prefill512; all unless given")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=24, help="tokens in one measurement")
    parser.add_argument("--tune", type=int, default=3, help="measurements for each setting; 0: its defaults")
    parser.add_argument("--retune", action="store_true", help="search for the peer's settings again")
    parser.add_argument("--text", type=Path, default=HERE.parents[1] / "docs" / "architecture.md", help="what is read")
    parser.add_argument("--json", type=Path, help="a file for the results")
    parser.add_argument("--table", type=Path, nargs="+", help="print the table of such files, and measure nothing")
    options = parser.parse_args()
    if options.table:
        print_table([result for path in options.table for result in json.loads(path.read_text())["results"]])
        return
    if not options.work:
        parser.error("--work: name a folder for the files.")
    if not options.peer_python:
        parser.error("--peer-python: name the Python that has llama-cpp-python (or set PEER_PYTHON).")
    known = cases(options.threads, options.steps)
    if wrong := [name for name in options.cases or () if name not in known]:
        parser.error(f"--cases: there is no {wrong[0]!r}; there are {', '.join(known)}.")
    chosen = [known[name] for name in options.cases or known]
    pairs = [pair for pair in PAIRS if any(word in pair.name for word in options.only)]
    make(options.work, options.peer_python, tuple(s for s in SHAPES if any(pair.shape == s for pair in pairs)))
    for pair in pairs:
        folder = options.work / "hf" / pair.name.split()[0]
        if pair.shape not in SHAPES and not folder.exists():
            plait.save(plait.load(file_of(pair, options.work)), folder, "hf")
    store = options.work / "llama.cpp-settings.json"
    remembered = json.loads(store.read_text()) if store.exists() and not options.retune else {}
    print(f"{processor()}, {platform.platform()}", file=sys.stderr)
    results: list[dict[str, Any]] = []
    for pair in pairs:
        for result in measure(pair, file_of(pair, options.work), chosen, options, remembered):
            results.append(result)
            print("\n".join(lines(result)), flush=True)
            store.write_text(json.dumps(remembered, indent=1) + "\n")
            if options.json:
                kept = {"command": sys.argv, "processor": processor(), "results": results}
                options.json.write_text(json.dumps(kept, indent=1) + "\n")
    print_table(results)
    print(f"versions: {json.dumps(results[0]['versions']) if results else ''}; {' '.join(sys.argv)}")


def print_table(results: Sequence[dict[str, Any]]) -> None:
    """What the README shows, and the least and the mean of all ratios."""
    print(f"\n{markdown(results)}\n")
    for peer in ("llama.cpp", "reference"):
        ratios = [r[f"ratio to {peer}"]["median"] for r in results if f"ratio to {peer}" in r]
        if ratios:
            mean = math.exp(statistics.mean(map(math.log, ratios)))
            print(f"times {peer}: {min(ratios):.2f} at least, {mean:.2f} on geometric average, {len(ratios)} pairs")


if __name__ == "__main__":
    main()
