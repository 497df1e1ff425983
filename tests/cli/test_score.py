"""score: a line for each text or token, the numbers of plait.score."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

import plait
from plait.cli.commands import main
from tests.cli.test_generate import Capture, output


def test_a_line_for_each_text(forced: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    likely, unlikely = plait.score(plait.load(forced), ["abc", "axc"])  # type: ignore[misc]
    assert likely.logprob > unlikely.logprob
    rows = output(capsys, "score", forced, "abc", "axc").splitlines()
    assert rows[0].split()[0] == "logprob" and len(rows) == 4
    assert [row.split()[-1] for row in rows[2:]] == ["abc", "axc"]
    assert float(rows[2].split()[0]) == pytest.approx(likely.logprob, abs=1e-3)
    monkeypatch.setattr(sys, "stdin", io.StringIO("abc\naxc\n"))
    assert output(capsys, "score", forced).splitlines() == rows
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert output(capsys, "score", forced) == ""


def test_json_has_every_token(forced: Path, capsys: Capture):
    (found,) = json.loads(output(capsys, "score", forced, "abc", "--format", "json"))
    one = plait.score(plait.load(forced), "abc")
    assert isinstance(one, plait.Scored)
    assert found["logprob"] == pytest.approx(one.logprob, abs=1e-5)
    assert (found["n_scored"], found["n_bytes"], found["text"]) == (2, 2, "abc")
    assert found["bits_per_byte"] == pytest.approx(one.bits_per_byte, abs=1e-5)
    assert found["perplexity"] == pytest.approx(one.perplexity, abs=1e-4)
    assert [token["token"] for token in found["tokens"]] == ["a", "b", "c"]
    assert [token["logprob"] for token in found["tokens"]] == [
        None,
        *pytest.approx(one.logprobs[1:], abs=1e-5).expected,
    ]


def test_what_is_given_counts_once_or_for_each(forced: Path, capsys: Capture):
    both = output(capsys, "score", forced, "bc", "xy", "--given", "a", "--format", "json")
    assert [one["n_scored"] for one in json.loads(both)] == [2, 2]
    each = json.loads(output(capsys, "score", forced, "bc", "xy", "--given", "a", "--given", "w", "--format", "json"))
    assert each[1]["logprob"] > json.loads(both)[1]["logprob"]
    tokens = output(capsys, "score", forced, "bc", "--given", "a", "--by", "token").splitlines()
    assert [line.split()[0] for line in tokens[2:]] == ["b", "c"]
    assert main(["score", str(forced), "a", "b", "c", "--given", "a", "--given", "b"]) == 1
    assert "given: 2 for 3 texts" in capsys.readouterr().err
