"""plait lab: what is listed, printed and written, and what is refused; a run that breaks off keeps what it has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from plait.cli.commands import main
from plait.cli.lab import lab
from plait.inspection.lab import experiments, performing
from plait.inspection.lab.experiments import EXPERIMENTS
from tests.inspection.lab.results import FAST

Capture = pytest.CaptureFixture[str]


def said(capsys: Capture, *arguments: object, status: int = 0) -> tuple[str, str]:
    assert main(["lab", *map(str, arguments)]) == status, capsys.readouterr().err
    written = capsys.readouterr()
    return written.out, written.err


def test_without_a_name_all_are_listed(capsys: Capture):
    out, _ = said(capsys)
    assert [line.split()[0] for line in out.splitlines()[2:]] == [one.name for one in EXPERIMENTS]
    assert "预热" in said(capsys, "--language", "zh")[0]


def test_the_names_that_the_help_gives_are_all_there_are():
    words = " ".join((lab.__doc__ or "").split())
    assert f"An experiment: {', '.join(one.name for one in EXPERIMENTS)}. " in words


def test_one_is_told_with_its_numbers_verdicts_and_figure(capsys: Capture):
    out, err = said(capsys, "norm")
    assert out.startswith("Layer normalisation and the residual stream\n")
    assert out.count("verdict:   holds") == 5 and "1.1090, -0.7176, -1.2394, 0.8480" in out
    assert "after LayerNorm  " in out and out.endswith("5 of 5 measurements are as claimed\n")
    assert err == ""  # nothing is written, and a pipe sees no progress


def test_a_wrong_claim_is_refuted_aloud(capsys: Capture):
    out, _ = said(capsys, "permutation")
    assert "W5 A causal decoder without positions" in out and "verdict:   refuted" in out
    assert out.endswith("1 of 1 wrong claims refuted\n")


def test_in_chinese(capsys: Capture):
    out, _ = said(capsys, "rope", "--language", "zh")
    assert out.startswith("旋转位置编码（RoPE）\n") and "结论： 成立" in out and "measured" not in out


def test_a_page_is_written_where_it_was_asked_for(capsys: Capture, tmp_path: Path):
    _, err = said(capsys, "cross", "--out", tmp_path / "new", "--language", "zh")
    assert str(tmp_path / "new" / "cross.html") in err
    assert '<html lang="zh">' in (tmp_path / "new" / "cross.html").read_text(encoding="utf-8")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["cross.html"]


def test_all_are_written_into_docs(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(experiments, "EXPERIMENTS", tuple(one for one in EXPERIMENTS if one.name in FAST))
    out, err = said(capsys, "--all")
    assert [line.split()[0] for line in out.splitlines()] == list(FAST)
    assert "docs/worked-numbers.md" in err and "docs/lab.html" in err
    assert "| N1 | " in (tmp_path / "docs" / "worked-numbers.md").read_text(encoding="utf-8")
    assert (tmp_path / "docs" / "lab.html").exists()


def test_what_is_broken_off_says_that_it_goes_on(capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(performing, "perform", broken)
    _, err = said(capsys, "tying", status=130)
    assert "the same command goes on from there" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nrom"], "'nrom': there is no such experiment; did you mean 'norm'?"),
        (["norm", "--all"], "give a name or --all"),
        (["nothing-like-it-at-all"], "there are norm, permutation,"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(arguments: list[str], words: str, capsys: Capture):
    assert words in said(capsys, *arguments, status=1)[1]


@pytest.mark.slow
def test_what_is_interrupted_ends_at_once_with_its_processes_and_goes_on(tmp_path: Path):
    environment = {**os.environ, "PLAIT_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "plait", "lab", "tying"]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, env=environment, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    running = start()
    while not (kept := list(tmp_path.rglob("*.json"))):
        assert running.poll() is None
        time.sleep(0.2)
    began = time.monotonic()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130 and time.monotonic() - began < 10
    assert err == "plait: what was measured so far is kept; the same command goes on from there.\n"
    assert all(path.exists() for path in kept)
    again = start()
    out, err = again.communicate(timeout=600)
    assert again.returncode == 0 and err == "" and "held-out loss of a small decoder" in out
    assert not list(tmp_path.rglob("*.json"))
