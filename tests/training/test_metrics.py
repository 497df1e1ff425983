"""metrics.jsonl: whole lines, cut back to the step a run goes on from."""

from __future__ import annotations

import json
from pathlib import Path

from plait.training.metrics import Metrics, read_metrics


def written(path: Path, *steps: int) -> Path:
    with Metrics(path) as metrics:
        for step in steps:
            metrics.write("step", step, {"loss": step / 2})
    return path


def steps(path: Path) -> list[int]:
    return [line["step"] for line in read_metrics(path)]


def test_a_line_for_each_thing(tmp_path: Path):
    path = written(tmp_path / "metrics.jsonl", 1, 2)
    assert path.read_text() == '{"kind": "step", "step": 1, "loss": 0.5}\n{"kind": "step", "step": 2, "loss": 1.0}\n'


def test_every_line_is_on_the_disk_when_write_returns(tmp_path: Path):
    metrics = Metrics(tmp_path / "metrics.jsonl")
    metrics.write("step", 1, {"loss": 1.0})
    assert steps(metrics.path) == [1]  # not closed: a killed process closes nothing
    metrics.close()


def test_going_on_cuts_what_was_after(tmp_path: Path):
    path = written(tmp_path / "metrics.jsonl", 1, 2, 3, 4)
    with Metrics(path, after=2) as metrics:
        metrics.write("step", 3, {"loss": 9.0})
    assert [(line["step"], line["loss"]) for line in read_metrics(path)] == [(1, 0.5), (2, 1.0), (3, 9.0)]


def test_half_a_line_is_no_line_wherever_it_ends(tmp_path: Path):
    whole = written(tmp_path / "metrics.jsonl", 1, 2).read_bytes()
    path = tmp_path / "cut.jsonl"
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole)):
        path.write_bytes(whole[:end])
        assert steps(path) == [1]
        with Metrics(path, after=2) as metrics:
            metrics.write("step", 2, {})
        assert steps(path) == [1, 2]


def test_a_new_run_begins_a_new_file(tmp_path: Path):
    assert steps(written(written(tmp_path / "metrics.jsonl", 1, 2), 7)) == [7]


def test_numbers_json_has_no_word_for_are_null(tmp_path: Path):
    with Metrics(tmp_path / "metrics.jsonl") as metrics:
        metrics.write("evaluation", 1, {"loss": float("nan"), "deep": {"list": [float("inf"), 1.0]}})
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert line == {"kind": "evaluation", "step": 1, "loss": None, "deep": {"list": [None, 1.0]}}
