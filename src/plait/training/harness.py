"""Harness: lm-eval's tasks, asked of any runner.

lm-eval (Gao et al. 2021) wants three answers of a model: how likely a continuation is and whether greedy decoding would
give it, how likely a whole text is, and what is written until a stop. How a pair is cut into tokens is lm-eval's rule,
so that scores compare with published ones.
"""

# b rows, n tokens

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from plait.generation import ModelRunner, Runner, generate
from plait.generation.padding import padded
from plait.generation.row import at_least_float32
from plait.generation.settings import start_id

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint

Row = tuple[list[int], list[int]]  # what stands before, and what is scored
CHUNK = 256  # tokens of each row whose logits are held at once
UNBOUNDED = 2048  # tokens of a row of a model that has no longest one: lm-eval's own
WRITTEN = 256  # tokens that are written where a task does not say how many


class HarnessError(ValueError):
    """A task that cannot be asked, or a model that cannot answer; the message says which."""


def run_harness(
    checkpoint: Checkpoint,
    tasks: Sequence[str],
    *,
    runner: Runner | None = None,
    folder: str | Path | None = None,
    shots: int | None = None,
    limit: int | None = None,
    batch_tokens: int = 2048,
) -> dict[str, dict[str, float]]:
    """The metrics of lm-eval's tasks, by task: ``{"my_task": {"acc": 0.5, "acc_stderr": 0.1}}``.

    Args:
        checkpoint: a decoder, or an encoder-decoder for tasks of continuations, with its tokenizer.
        tasks: names that lm-eval knows.
        runner: who computes; ``None``: the plain model.
        folder: where further tasks are described, in lm-eval's YAML.
        shots: examples before each question; ``None``: what a task says.
        limit: the first so many questions of each task; ``None``: all.
        batch_tokens: of a batch, padding counted.

    Raises ``HarnessError`` where lm-eval is not installed, does not know a task, or the model cannot be asked.
    """
    evaluator, manager = _lm_eval("evaluator"), _lm_eval("tasks")
    known = manager.TaskManager(include_path=None if folder is None else str(folder))
    if unknown := [name for name in tasks if name not in known.all_tasks]:
        raise HarnessError(f"harness: lm-eval knows no task {unknown[0]!r}; its own list says which there are.")
    answering = adapter(checkpoint, runner, batch_tokens=batch_tokens)
    found = evaluator.simple_evaluate(
        model=answering,
        tasks=list(tasks),
        task_manager=known,
        num_fewshot=shots,
        limit=limit,
        log_samples=False,
        bootstrap_iters=0,
    )
    return {
        task: {_metric(key): value for key, value in metrics.items() if isinstance(value, float)}
        for task, metrics in found["results"].items()
    }


def _metric(key: str) -> str:
    """``acc`` of ``acc,none``; a filter that is one stays."""
    return key.removesuffix(",none")


def adapter(checkpoint: Checkpoint, runner: Runner | None = None, *, batch_tokens: int = 2048) -> Any:
    """The checkpoint as lm-eval's ``LM``; ``HarnessError`` where it writes no text, or lm-eval is not there."""
    a, tokenizer = checkpoint.architecture, checkpoint.tokenizer
    if a.head != "language" or tokenizer is None:
        raise HarnessError(
            "harness: lm-eval asks models that write text; give one with a language head and a tokenizer."
        )
    ends = [id for id in (tokenizer.eos, *checkpoint.rules.end) if id is not None]
    if not ends:
        raise HarnessError(
            "harness: neither the tokenizer nor the rules say which token ends a text; lm-eval wants one."
        )
    bos = tokenizer.bos if tokenizer.bos is not None else ends[0]
    used: Runner = ModelRunner(checkpoint.model) if runner is None else runner
    longest = a.max_length or UNBOUNDED
    start = [start_id(checkpoint.rules, a.vocab_size)] if a.kind == "encoder-decoder" else []
    model, rolling = _lm_eval("api.model"), _lm_eval("utils")

    class Answering(model.TemplateLM):
        """What lm-eval asks, answered by a runner."""

        backend = "seq2seq" if start else "causal"
        eot_token_id = ends[0]
        prefix_token_id = bos
        tokenizer_name = "plait"

        def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
            """The ids of a text; one that spells its BOS itself gets no other."""
            if add_special_tokens is None:
                add_special_tokens = not string.startswith(tokenizer.token(bos))
            return tokenizer.encode(string, specials=add_special_tokens)

        def _loglikelihood_tokens(self, requests: Sequence[Any], **_: Any) -> list[tuple[float, bool]]:
            rows = [(list(before), list(after)) for _, before, after in requests]
            return _in_batches(used, rows, start, longest, batch_tokens)

        def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
            """The log-probability of each whole text, every token given as much as fits before it."""
            if start:
                raise HarnessError("harness: a whole text is scored by a decoder alone; this is an encoder-decoder.")
            sums: list[float] = []
            for (text,) in (request.args for request in requests):
                windows = rolling.get_rolling_token_windows(
                    token_list=self.tok_encode(text), prefix_token=bos, max_seq_len=longest, context_len=1
                )
                rows: list[Row] = [rolling.make_disjoint_window(window) for window in windows]
                sums.append(sum(value for value, _ in _in_batches(used, rows, start, longest, batch_tokens)))
            return sums

        def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
            """What is written after each context, up to a stop of its task."""
            return [self._written(*request.args) for request in requests]

        def _written(self, context: str, wishes: dict[str, Any]) -> str:
            until = wishes.get("until") or []
            most = next((wishes[name] for name in ("max_gen_toks", "max_new_tokens") if name in wishes), WRITTEN)
            tokens = self.tok_encode(context)
            tokens = tokens[-(longest if start else max(longest - most, 1)) :]
            drawn = wishes.get("do_sample", False)
            found: Any = generate(
                checkpoint,
                tokens,
                max_new_tokens=min(most, longest - (1 if start else len(tokens))),
                temperature=float(wishes.get("temperature", 1.0)) if drawn else 0.0,
                beams=1,
                stop=[until] if isinstance(until, str) else [stop for stop in until if stop],
                runner=used,
                seed=0,
            )
            return found.text

    return Answering()


def _in_batches(
    runner: Runner, rows: Sequence[Row], start: Sequence[int], longest: int, batch_tokens: int
) -> list[tuple[float, bool]]:
    """``_scored`` of all rows, like lengths together."""
    found: dict[int, tuple[float, bool]] = {}
    order = sorted(range(len(rows)), key=lambda i: -sum(map(len, rows[i])))
    at = 0
    while at < len(order):
        width = max(1, min(sum(map(len, rows[order[at]])), longest))
        places = order[at : at + max(1, batch_tokens // width)]
        scores = _scored(runner, [rows[i] for i in places], start, longest)
        found.update(zip(places, scores, strict=True))
        at += len(places)
    return [found[i] for i in range(len(rows))]


@torch.inference_mode()
def _scored(runner: Runner, rows: Sequence[Row], start: Sequence[int], longest: int) -> list[tuple[float, bool]]:
    """For each row the log-probability of its second part, and whether each token of it is the likeliest there.

    Rows that are too long lose their beginning. With ``start`` the first part is a source.
    """
    whole = [[*start, *after] if start else [*before, *after][-(longest + 1) :] for before, after in rows]
    tokens, mask = padded([row[:-1] for row in whole], runner.device, side="left")  # b n
    sources: dict[str, Any] = {}
    if start:
        sources["source"], sources["source_mask"] = padded(
            [before[-longest:] for before, _ in rows], runner.device, side="left"
        )
    cache = runner.cache(len(rows), total_lengths=[len(row) - 1 for row in whole])
    scored = max(len(after) for _, after in rows)
    sums, likeliest = [0.0] * len(rows), [True] * len(rows)
    for part, wanted in _parts(tokens.shape[1], scored):
        logits = runner.prefill(
            tokens[:, part], cache, mask=None if mask is None else mask[:, part], last_only=not wanted, **sources
        )
        sources = {}
        if not wanted:
            continue
        logits = at_least_float32(logits)
        best, norms = logits.argmax(-1), logits.logsumexp(-1)  # b n
        for i, (row, (_, after)) in enumerate(zip(whole, rows, strict=True)):
            ahead = tokens.shape[1] - (len(row) - 1)  # padding
            first = max(part.start, tokens.shape[1] - len(after))
            places = range(first - part.start, part.stop - part.start)
            said = torch.tensor([row[part.start + place + 1 - ahead] for place in places], dtype=torch.long)
            if len(said):
                own = logits[i, places.start :].gather(1, said.to(logits.device)[:, None])[:, 0]
                sums[i] += float((own - norms[i, places.start :]).double().sum())
                likeliest[i] = likeliest[i] and bool((best[i, places.start :].cpu() == said).all())
    return list(zip(sums, likeliest, strict=True))


def _parts(n: int, scored: int) -> Iterator[tuple[slice, bool]]:
    """Pieces of ``n`` columns, and whether logits are wanted: of the last ``scored``."""
    ahead = max(n - scored, 0)
    if ahead:
        yield slice(0, ahead), False
    for at in range(ahead, n, CHUNK):
        yield slice(at, min(at + CHUNK, n)), True


def _lm_eval(name: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its imports
            return importlib.import_module(f"lm_eval.{name}")
    except ImportError as error:
        raise HarnessError(f"harness: lm-eval cannot be imported ({error}); install plait[harness].") from None
