from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from plait.checkpoint import PlaitNotice
from plait.training import states as module
from plait.training.loop import train
from plait.training.states import (
    RECORD,
    State,
    StateError,
    fill,
    newest_state,
    read_state,
    save_state,
    saved_states,
    tensors_of,
)
from tests.training.making import Samples, loss, model, recipe


def state(step: int, size: int = 40) -> State:
    """Of files that are a few hundred bytes long."""
    here = {"w": torch.full((size,), float(step)), "step": torch.tensor(step)}
    return State(step=step, model=here, optimizer=here, averages=here, counts={"seconds": 0.1 * step})


def equal(a: State, b: State) -> bool:
    return a.counts == b.counts and all(
        getattr(a, part).keys() == getattr(b, part).keys()
        and all(torch.equal(value, getattr(b, part)[name]) for name, value in getattr(a, part).items())
        for part in ("model", "optimizer", "averages")
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_saved_is_read(tmp_path: Path) -> None:
    path = save_state(tmp_path, state(7), keep=2)
    assert path.name == "step-000007" and equal(read_state(path), state(7)) and read_state(path).step == 7
    assert names(path) == ["averages.safetensors", "model.safetensors", "optimizer.safetensors", "state.json"]
    assert (path / "model.safetensors").stat().st_mode & 0o444 == (path / RECORD).stat().st_mode & 0o444


def test_some_stay_and_the_best(tmp_path: Path) -> None:
    for step in (2, 4, 6, 8, 10, 1_000_000):
        save_state(tmp_path, state(step), keep=2, also=4 if step > 2 else None)
    assert [path.name for path in saved_states(tmp_path)] == ["step-1000000", "step-000010", "step-000004"]
    assert len(names(tmp_path)) == 3


def test_tr17_the_newest_that_is_whole_is_taken_aloud(tmp_path: Path) -> None:
    for step in (9, 10, 20, 30):
        save_state(tmp_path, state(step), keep=9)
    (tmp_path / "step-000020" / RECORD).unlink()
    weights = tmp_path / "step-000030" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.warns(PlaitNotice) as said:
        found = newest_state(tmp_path)
    assert found is not None and equal(found, state(10))
    assert [str(item.message).partition(": ")[2] for item in said] == [
        "model.safetensors is not what was written; its SHA-256 differs. It is not taken.",
        "this state was never finished, for it has no state.json. It is not taken.",
        "going on after step 10.",
    ]


def test_tr17_steps_are_numbers_and_not_words(tmp_path: Path) -> None:
    for step in (999_999, 1_000_000):
        save_state(tmp_path, state(step), keep=9)
    with pytest.warns(PlaitNotice, match="going on after step 1000000"):
        assert newest_state(tmp_path)


def test_a_broken_one_that_is_newer_never_costs_the_whole_one(tmp_path: Path) -> None:
    save_state(tmp_path, state(10), keep=1)
    (tmp_path / "step-000020").mkdir()
    save_state(tmp_path, state(15), keep=1)
    assert names(tmp_path) == ["step-000015"]


def test_a_step_is_saved_over_its_own_broken_state(tmp_path: Path) -> None:
    broken = tmp_path / "step-000005"
    broken.mkdir()
    (broken / "model.safetensors").write_bytes(b"half")
    assert equal(read_state(save_state(tmp_path, state(5), keep=1)), state(5))


def damage(path: Path, how: str) -> None:
    record = json.loads((path / RECORD).read_text())
    if how == "not json":
        (path / RECORD).write_text("{")
    elif how == "not a table":
        (path / RECORD).write_text("[1]")
    elif how == "format":
        (path / RECORD).write_text(json.dumps(record | {"format": 2}))
    elif how == "step":
        (path / RECORD).write_text(json.dumps(record | {"step": 6}))
    elif how == "lost":
        (path / "optimizer.safetensors").unlink()
    elif how == "no model":
        (path / RECORD).write_text(json.dumps(record | {"sha256": {}}))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("not json", "state.json cannot be read"),
        ("not a table", "state.json cannot be read"),
        ("format", "its format is 2, and this plait reads 1"),
        ("step", "state.json is of step 6"),
        ("lost", "optimizer.safetensors cannot be read"),
        ("no model", "names no model.safetensors"),
    ],
)
def test_what_is_not_whole_is_told(tmp_path: Path, how: str, words: str) -> None:
    path = save_state(tmp_path, state(5), keep=1)
    damage(path, how)
    with pytest.raises(StateError, match=f"step-000005: .*{words}"):
        read_state(path)


def test_ld20_a_pickle_is_not_opened(tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(marker),))

    path = save_state(tmp_path, state(5), keep=1)
    for name in ("optimizer.safetensors", "model.safetensors"):
        (path / name).write_bytes(pickle.dumps(Evil()))
        record = json.loads((path / RECORD).read_text())
        record["sha256"][name] = hashlib.sha256(
            (path / name).read_bytes()
        ).hexdigest()  # as one who may write here would
        (path / RECORD).write_text(json.dumps(record))
    with pytest.raises(StateError, match="cannot be read"):
        read_state(path)
    assert not marker.exists()


# Faults while saving


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A write beyond so many bytes of a file fails, as on a disk that is full (here EFBIG)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_tr16_a_fault_after_any_byte_leaves_the_last_state(tmp_path: Path) -> None:
    save_state(tmp_path, state(1), keep=1)
    largest = max(path.stat().st_size for path in (tmp_path / "step-000001").iterdir())
    for size in [*range(0, largest, 23), largest - 1]:
        with pytest.raises(OSError), files_of_at_most(size):
            save_state(tmp_path, state(2), keep=1)
        assert names(tmp_path) == ["step-000001"]
        assert equal(read_state(tmp_path / "step-000001"), state(1))
    save_state(tmp_path, state(2), keep=1)  # there is room again
    assert equal(read_state(tmp_path / "step-000002"), state(2))


@pytest.mark.parametrize("call", range(12))
def test_tr16_a_full_disk_at_any_call_leaves_the_last_state(
    tmp_path: Path, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file and folder is flushed before the folder gets its name: a disk may say only then that it is full."""
    save_state(tmp_path, state(1), keep=1)
    calls: list[str] = []

    def counted(name: str, real):
        def call_or_fail(*arguments, **named):
            calls.append(name)
            if len(calls) == call + 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments, **named)

        return call_or_fail

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_tensors", counted("write", module.write_tensors))
        patch.setattr(os, "fsync", counted("fsync", os.fsync))
        patch.setattr(os, "replace", counted("replace", os.replace))
        try:
            save_state(tmp_path, state(2), keep=1)
        except OSError as error:
            assert error.errno == errno.ENOSPC
    # Three files written; four and their folder flushed; renamed; the folder above flushed; the old one put aside
    assert calls[: call + 1] == (["write"] * 3 + ["fsync"] * 5 + ["replace", "fsync", "replace"])[: call + 1]
    whole = [step for step in (1, 2) if (tmp_path / f"step-{step:06}").exists()]
    assert whole and all(equal(read_state(tmp_path / f"step-{step:06}"), state(step)) for step in whole)
    with pytest.warns(PlaitNotice, match="going on"):
        assert newest_state(tmp_path)


def test_what_a_killed_run_left_goes_at_resume(tmp_path: Path) -> None:
    save_state(tmp_path, state(1), keep=1)
    shutil.copytree(tmp_path / "step-000001", tmp_path / ".step-000002.writing-1234abcd")
    shutil.copytree(tmp_path / "step-000001", tmp_path / ".step-000000.removed-1234abcd")
    with pytest.warns(PlaitNotice, match="going on after step 1"):
        newest_state(tmp_path)
    assert names(tmp_path) == ["step-000001"]


def test_a_run_goes_on_from_before_a_full_disk(tmp_path: Path) -> None:
    settings = recipe(run={"steps": 6, "save_every": 2, "keep": 1})
    with pytest.raises(OSError, match="could not be written|File too large"):
        for step in train(model(), Samples(), settings, loss=loss, out=tmp_path):
            if step.index == 3:
                limit = files_of_at_most(2000)
                limit.__enter__()
    limit.__exit__(None, None, None)
    with pytest.warns(PlaitNotice, match="step-000002: going on after step 2"):
        steps = list(train(model(), Samples(), settings, loss=loss, out=tmp_path, resume=True))
    assert [step.index for step in steps] == [3, 4, 5, 6]


# What a state holds of a model


def test_ld18_a_tied_table_is_kept_once_and_comes_back() -> None:
    class Tied(nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            torch.manual_seed(seed)
            self.table, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.head.weight = self.table.weight
            self.register_buffer("seen", torch.tensor(seed))
            self.register_buffer("scratch", torch.tensor(seed), persistent=False)

    a, b = Tied(0), Tied(1)
    assert list(tensors_of(a)) == ["table.weight", "seen"]
    fill(tensors_of(b), {name: value.clone() for name, value in tensors_of(a).items()})
    assert torch.equal(a.head.weight, b.head.weight) and b.head.weight is b.table.weight
    assert (int(b.seen), int(b.scratch)) == (0, 1)


def test_a_state_of_another_model_is_refused_before_it_is_filled_in() -> None:
    own = {"a": torch.zeros(2), "b": torch.zeros(3)}
    with pytest.raises(StateError, match="b: the saved state lacks it"):
        fill(own, {"a": torch.ones(2)})
    with pytest.raises(StateError, match="c: the model has none of that name"):
        fill(own, {"a": torch.ones(2), "b": torch.ones(3), "c": torch.ones(1)})
    with pytest.raises(StateError, match=r"b: its shape is \[4\] in the saved state and \[3\] in the model"):
        fill(own, {"a": torch.ones(2), "b": torch.ones(4)})
    assert not own["a"].any()
