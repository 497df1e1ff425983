"""Break the code one line at a time, a line for each known fault, and see that the fault's test turns red.

    .venv/bin/python tests/mutate/run.py [ids...]

It works on copies of the project, each with an environment in which no other plait can be imported; the working tree is
read once. First every row's test must be green, then, with the row's sabotage in place, red: by an assertion, or with
the error that the row says. Exits with 1 where a fault survives, or where a row or a test is missing.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from table import ROOT, Sabotage, complaints, missing, read_table

COPIES = 2  # side by side
COPIED = (
    "src",
    "tests",
    "docs",
    "CMakeLists.txt",
    "pyproject.toml",
    "constraints.txt",
    "Makefile",
    "README.md",
    "LICENSE",
)
LINKED = (".reference",)  # large, and only read
SECONDS = 300  # for one run of pytest
ASSERTIONS = ("AssertionError", "Failed")  # pytest.raises that saw nothing raised is "Failed"


@dataclass(frozen=True)
class Verdict:
    """Whether a fault was seen, and how; ``seconds`` with the sabotage in place."""

    row: Sabotage
    red: bool
    how: str
    seconds: float = 0.0


class Copy:
    """A copy of the project that may be broken."""

    def __init__(self, place: Path) -> None:
        self.root = place
        place.mkdir()
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif (ROOT / name).exists():
                shutil.copy2(ROOT / name, place / name)
        for name in LINKED:
            if (ROOT / name).exists():
                (place / name).symlink_to(ROOT / name)
        self.python = self._environment()
        self.stamps = itertools.count(int(time.time()) + 1)  # a new one each time, or Python would take old bytecode

    def _environment(self) -> Path:
        """The packages of this interpreter, and of plait this copy alone, also for processes without any settings."""
        venv.create(self.root / ".venv", symlinks=True)
        paths = {"base": str(self.root / ".venv"), "platbase": str(self.root / ".venv")}
        own = Path(sysconfig.get_path("purelib", vars=paths))
        packages = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        (own / "copy.pth").write_text("\n".join([str(self.root / "src"), *packages]) + "\n")
        python = self.root / ".venv" / "bin" / "python"
        bare = {"PATH": os.environ["PATH"]}
        where = [str(python), "-c", "import plait; print(plait.__file__)"]
        found = subprocess.run(where, env=bare, cwd="/", capture_output=True, text=True, check=True).stdout.strip()
        assert found == str(self.root / "src/plait/__init__.py"), f"{found} would be tested"
        return python

    @contextlib.contextmanager
    def broken(self, row: Sabotage) -> Iterator[None]:
        """The sabotage in place, for as long as the block lasts."""
        path = self.root / row.file
        whole = path.read_text(encoding="utf-8")
        self._write(path, whole.replace(row.find, row.put))
        try:
            yield
        finally:
            self._write(path, whole)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        stamp = next(self.stamps)
        os.utime(path, (stamp, stamp))

    def outcomes(self, tests: Sequence[str], *options: str) -> list[dict[str, Any]]:
        """What became of these tests in one run of pytest; nothing where it could not run them."""
        report = self.root / "outcomes.jsonl"
        report.unlink(missing_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment["PLAIT_MUTATE_OUTCOMES"] = str(report)
        if environment.get("PLAIT_DATA"):
            environment["PLAIT_DATA"] = str(Path(environment["PLAIT_DATA"]).expanduser().resolve())
        plugins = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "tests.mutate.outcomes"]
        command = [str(self.python), "-m", "pytest", "-q", *plugins, *options, *tests]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, cwd=self.root, env=environment, capture_output=True, timeout=SECONDS)
        lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
        records = [json.loads(line) for line in lines]
        for record in records:
            for file in record.get("imported", ()):
                assert Path(file).is_relative_to(self.root), f"{file} was tested"
        return [record for record in records if "test" in record]


def green(copy: Copy, rows: Sequence[Sabotage]) -> list[Verdict]:
    """The rows whose tests are not green in unbroken code: all of theirs must have run, and passed."""
    found = copy.outcomes(list(dict.fromkeys(row.test for row in rows)))
    failed: list[Verdict] = []
    for row in rows:
        own = [record for record in found if _belongs(record["test"], row.test)]
        other = [record for record in own if record["outcome"] != "passed"]
        if other or not own:
            how = f"{other[0]['outcome']}, {other[0]['message']}" if other else "it was not run"
            failed.append(Verdict(row, False, f"not green before: {how}"))
    return failed


def red(copy: Copy, row: Sabotage) -> Verdict:
    """The verdict on one row."""
    start = time.monotonic()
    with copy.broken(row):
        found = copy.outcomes([row.test], "-x")
    seconds = time.monotonic() - start
    for record in found:
        if record["outcome"] == "failed" and record["error"] in (*ASSERTIONS, row.raises):
            return Verdict(row, True, f"{record['error']}: {record['message']}", seconds)
        if record["outcome"] != "passed":
            return Verdict(row, False, f"not by an assertion: {record['error']}: {record['message']}", seconds)
    return Verdict(row, False, "SURVIVED" if found else "no test could be run", seconds)


def _belongs(node: str, test: str) -> bool:
    return node == test or node.startswith(f"{test}[")


def verdicts(rows: Sequence[Sabotage], folder: Path) -> Iterator[Verdict]:
    """Each row's, as soon as it is known."""
    free: queue.SimpleQueue[Copy] = queue.SimpleQueue()

    def on_a_copy(function: Any, argument: Any) -> Any:
        copy = free.get()
        try:
            return function(copy, argument)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(COPIES) as workers:
        for copy in workers.map(Copy, [folder / str(number) for number in range(COPIES)]):
            free.put(copy)
        shares = [share for number in range(COPIES) if (share := rows[number::COPIES])]
        failed = [v for found in workers.map(lambda share: on_a_copy(green, share), shares) for v in found]
        yield from failed
        sound = [row for row in rows if row not in [verdict.row for verdict in failed]]
        yield from workers.map(lambda row: on_a_copy(red, row), sound)


def main(ids: Sequence[str]) -> int:
    """Run the rows of these ids, or all; 1 where anything is wrong."""
    table = read_table()
    rows = [row for row in table if not ids or row.id in ids]
    wrong = [f"{id}: there is no such row" for id in ids if id not in {row.id for row in table}]
    wrong += complaints(rows) if ids else missing(table) + complaints(rows)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    rows = [row for row in rows if not complaints([row])]
    start = time.monotonic()
    seen: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="plait-mutate-") as folder:
        for verdict in verdicts(rows, Path(folder).resolve()):
            seen.append(verdict)
            mark = "red " if verdict.red else "FAIL"
            print(f"{mark} {verdict.row.id:5} {verdict.seconds:5.1f} s  {verdict.how[:140]}", flush=True)
    wide = max((len(verdict.row.what) for verdict in seen), default=0)
    print(f"\n{'id':5} {'sabotage':{wide}} {'seconds':>7}  test")
    for verdict in sorted(seen, key=lambda verdict: rows.index(verdict.row)):
        row = verdict.row
        print(f"{row.id:5} {row.what:{wide}} {verdict.seconds:7.1f}  {row.test}{'' if verdict.red else '  FAILED'}")
    failed = [verdict.row.id for verdict in seen if not verdict.red]
    print(f"\n{len(seen) - len(failed)} of {len(seen)} faults were seen in {time.monotonic() - start:.0f} s.")
    if failed:
        print(f"Not seen: {', '.join(failed)}.")
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
