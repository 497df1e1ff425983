"""``plait translate`` as a user runs it: bytes in, bytes out, one line for each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import plait
from tests.generation.test_translate import translator


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plait.save(translator(), tmp_path_factory.mktemp("translator") / "model", dialect="plait")


def run(model: Path, text: bytes, *options: str) -> tuple[int, list[bytes], str]:
    done = subprocess.run(
        [sys.executable, "-m", "plait", "translate", str(model), *options], input=text, capture_output=True, timeout=120
    )
    return done.returncode, done.stdout.split(b"\n"), done.stderr.decode()


def test_tl1_lines_end_at_newlines_and_nowhere_else(model: Path) -> None:
    """A carriage return, a form feed, a line separator within a line end none; nor is the last newline needed."""
    text = "a dog\r\n\nthe\rcat\x0cis\u2028here\u0085now\n  \nmice\n".encode()
    (status, lines, said), (_, unended, _) = (run(model, given, "--beams", "2") for given in (text, text[:-1]))
    assert status == 0 and len(lines) == 6 and lines[-1] == b"" and unended == lines
    assert [bool(line) for line in lines[:-1]] == [True, False, True, False, True]
    checkpoint = plait.load(model)
    with pytest.warns(plait.PlaitNotice):
        expected: Any = plait.translate(checkpoint, ["a dog", "the\rcat\x0cis\u2028here\u0085now", "mice"], beams=2)
    assert [line.decode() for line in lines[:-1] if line] == [one.text for one in expected]
    assert "\x1b" not in said and said.startswith("plait: lines 1, 3, 5: the translation reached its limit")


def test_n_best_and_alignments_are_printed_on_request(model: Path) -> None:
    status, lines, _ = run(model, b"a dog\n\n", "--beams", "3", "--n-best", "2", "--alignments")
    assert status == 0 and len(lines) == 4 and lines[2].rstrip() == b"1 |||  ||| 0.0000"
    number, text, rest = lines[0].split(b" ||| ")
    score, pairs = rest.split(b"\t")
    assert number == b"0" and text and float(score) < 0 and all(len(p.split(b"-")) == 2 for p in pairs.split())
    assert lines[1].startswith(b"0 ||| ") and b"\t" not in lines[1]


def test_a_line_that_is_not_utf8_is_named(model: Path) -> None:
    status, lines, said = run(model, b"a\n\xff\n")
    assert (status, lines) == (1, [b""]) and "line 2 is not UTF-8" in said
    assert run(model, b"")[:2] == (0, [b""])
