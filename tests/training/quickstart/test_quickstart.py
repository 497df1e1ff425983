"""The quickstart as a run: it learns, it says what it learnt, and it draws where it looked."""

from __future__ import annotations

import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from plait.cli import main
from plait.training.folder import Folder
from plait.training.quickstart.picture import Pattern, in_terminal, page, pattern_of
from plait.training.quickstart.preparing import prepare
from plait.training.resolve import resolve
from plait.training.running import ready

SMALL = ("--data.batch_tokens", "256", "--run.steps", "20", "--schedule.warmup", "5")


def test_twenty_steps_learn_and_leave_a_model(tmp_path: Path):
    prepared = prepare(tmp_path, options=SMALL, n_train=600, n_test=40)
    resolved = resolve(prepared.recipe)
    tokenizer = resolved.checkpoint.tokenizer
    assert tokenizer is not None
    for pair in prepared.train[:50]:  # characters for Chinese, and nothing is lost
        assert len(tokenizer.encode(pair.zh)) == len(pair.zh) and tokenizer.decode(tokenizer.encode(pair.en)) == pair.en
    running = ready(resolved, Folder(tmp_path))
    losses = [step.loss for step in running.steps()]
    running.finish()
    assert len(losses) == 20 and sum(losses[-3:]) < 0.8 * sum(losses[:3])
    assert (tmp_path / "model" / "config.json").exists()
    pattern = pattern_of(resolved.checkpoint, prepared.test[0].en)
    assert all(abs(sum(row) - 1) < 1e-4 for row in pattern.weights)
    assert len(pattern.weights) == len(pattern.target)


PATTERN = Pattern(("I", "love", "<you>"), ("我", "爱", "你"), ((1.0, 0.0, 0.0), (0.0, 0.6, 0.4), (0.1, 0.1, 0.8)))


def test_the_picture_in_a_terminal():
    assert in_terminal(PATTERN).splitlines() == [
        "    I   love <you>",
        "我  ███",
        "爱      ▒▒▒▒ ░░░░░",
        "你           ▓▓▓▓▓",
    ]


def test_the_page_needs_nothing_else_and_escapes_words():
    text = page([PATTERN])
    assert "<you>" not in text and "&lt;you&gt;" in text and "http" not in text.replace("http://www.w3.org", "")
    svg = text[text.index("<svg") : text.index("</svg>") + 6]
    cells = [element for element in ElementTree.fromstring(svg) if element.tag == "rect"]
    assert [float(cell.attrib["fill-opacity"]) for cell in cells] == [w for row in PATTERN.weights for w in row]


def test_a_run_that_is_there_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "recipe.toml").write_text("")
    assert main(["quickstart", "--out", str(tmp_path)]) == 1
    assert "a run is there already" in capsys.readouterr().err
    assert not (tmp_path / "corpus").exists()


@pytest.mark.slow
def test_it_translates_what_it_never_saw(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    threads, began = torch.get_num_threads(), time.process_time()
    assert main(["quickstart", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    shares = [float(line.split("%")[0]) for line in said.splitlines() if line.lstrip()[:1].isdigit() and "%" in line]
    assert shares[0] >= 97 and max(shares[1:]) < 30
    assert "I love you.  ->  我爱你。" in said
    assert time.process_time() - began < 240 or threads > 2  # two minutes of two cores
