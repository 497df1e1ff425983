"""One runner and many threads, a process that forks or ends amid a pass, and passes that do not come to their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import plait
from plait.architecture import Architecture, Classification
from plait.checkpoint import Checkpoint
from plait.engine import kernels
from plait.engine.pages import Pages
from plait.engine.runner import EngineRunner
from plait.generation import Read
from plait.generation.sampling import draw, likeliest

SHAPE = Architecture(
    vocab_size=50, d_model=64, n_heads=4, d_ff=96, n_decoder_layers=3, norm="rmsnorm", position="rope", max_length=2000
)


def made() -> Checkpoint:
    torch.manual_seed(0)
    return plait.load(SHAPE, random=True)


def tokens(n: int) -> Tensor:
    return torch.randint(0, 50, (1, n), generator=torch.Generator().manual_seed(n))


def test_threads_that_make_caches_do_not_disturb_each_other() -> None:
    checkpoint = made()
    runner = plait.optimize(checkpoint, threads=1)

    def said(n: int) -> list[int]:
        answer = plait.generate(checkpoint, tokens(n)[0].tolist(), runner=runner, max_new_tokens=24)
        assert isinstance(answer, plait.Generation)
        return answer.tokens

    lengths = (5, 100, 300, 700)
    alone = {n: said(n) for n in lengths}
    wrong: list[object] = []

    def work(n: int) -> None:
        try:
            wrong.extend(n for _ in range(8) if said(n) != alone[n])
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in lengths for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_of_a_process_amid_a_pass_can_use_the_runner() -> None:
    runner = plait.optimize(made(), threads=2)
    read = tokens(100)
    expected = runner.prefill(read, runner.cache(1))
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            runner.prefill(read, runner.cache(1))

    busy = threading.Thread(target=work)
    busy.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                os._exit(0 if torch.equal(runner.prefill(read, runner.cache(1)), expected) else 3)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        over.set()
        busy.join()


def test_a_process_may_end_amid_a_pass() -> None:
    script = f"""
import threading, time, torch, plait
from plait.architecture import Architecture, Classification
runner = plait.optimize(plait.load(Architecture.from_dict({SHAPE.to_dict()!r}), random=True), threads=2)
# Torch itself may not be amid something when a process ends, and a tensor that is released is something: all are kept.
read, kept = torch.ones(1, 400, dtype=torch.int64), []
def work():
    while True: kept.append(runner.prefill(read, runner.cache(1)))
threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
"""
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=100).returncode == 0


def test_where_memory_does_not_suffice_all_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = made()
    runner, plain = plait.optimize(checkpoint), checkpoint.model
    read, cache = tokens(40), runner.cache(1)
    expected = runner.prefill(read, cache)
    zeros, calls = Pages._zeros, 0

    def scarce(self: Pages, pages: int, shape: tuple[int, ...]) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise MemoryError
        return zeros(self, pages, shape)

    with monkeypatch.context() as patch:
        patch.setattr(Pages, "_zeros", scarce)
        with pytest.raises(MemoryError):
            runner.cache(1, capacity=4000)
    twin = cache.fork(1)  # its last page is copied when it is written
    with torch.no_grad():
        after = plain(torch.cat([read, torch.tensor([[3]])], 1))[:, -1]
    assert torch.allclose(runner.step(torch.tensor([3]), twin), after, atol=1e-4)
    assert torch.equal(runner.prefill(read, runner.cache(1)), expected)
    assert runner.cache(1, capacity=4000).capacity == 4000
    assert torch.allclose(runner.step(torch.tensor([3]), cache), after, atol=1e-4)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_pass_that_fails_was_not_read(monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    runner = plait.optimize(made())
    read, cache = tokens(40), runner.cache(1)
    expected = runner.prefill(read, runner.cache(1), last_only=False)[0]
    runner.prefill(read[:, :20], cache)
    run = type(runner._towers)._run

    def broken(*args: object, **kwargs: object) -> None:
        run(*args, **kwargs)  # type: ignore[arg-type]
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(type(runner._towers), "_run", broken)
        for fails in (
            lambda: runner.step(read[:, 20], cache),
            lambda: runner.prefill(read[:, 20:], cache),
        ):
            with pytest.raises(error):
                fails()
    assert cache.lengths.tolist() == [20]
    assert torch.allclose(runner.prefill(read[:, 20:], cache, last_only=False)[0], expected[20:], atol=1e-4)


def test_a_call_of_many_passes_that_fails_was_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = plait.optimize(made())
    cache, run, calls = runner.cache(1), type(runner._towers)._run, 0

    def second_fails(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise MemoryError
        return run(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(type(runner._towers), "_run", second_fails)
    with pytest.raises(MemoryError):
        runner.prefill(tokens(600), cache)
    assert cache.lengths.tolist() == [0]


def test_a_source_of_a_refused_call_is_not_remembered() -> None:
    a = Architecture(vocab_size=50, d_model=32, n_heads=4, d_ff=48, n_encoder_layers=1, n_decoder_layers=1)
    runner = plait.optimize(plait.load(a, random=True))
    first, second = runner.cache(1), runner.cache(1)

    def reads(last: int) -> list[Read]:
        return [Read(tokens=[1], cache=first, source=[2, 3]), Read(tokens=[1], cache=second, source=[4, last])]

    with pytest.raises(ValueError, match="source: 4 to 99"):
        runner.advance(reads(99))
    assert [logits.shape for logits in runner.advance(reads(5))] == [(1, 50), (1, 50)]


def test_a_row_that_is_all_padding_keeps_its_place_before_a_pooled_head() -> None:
    a = SHAPE.replace(head=Classification(labels=3, pooling="last"))
    runner = plait.optimize(plait.load(a, random=True))
    read, mask = tokens(5).expand(3, 5), torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    out = runner.prefill(read, runner.cache(3), mask=mask)
    assert torch.equal(out[0], out[2]) and not out[1].any() and out[0].any()


def test_types_are_not_dropped_by_a_decoder() -> None:
    with pytest.raises(ValueError, match="token_types: only an encoder reads them"):
        plait.optimize(made()).states([[1, 2]], types=[[7, 9, 9]])


# Numbers that are none


def spoiled(place: Callable[[plait.Transformer], Tensor]) -> EngineRunner:
    checkpoint = made()
    with torch.no_grad():
        place(checkpoint.model).fill_(float("nan"))
    return plait.optimize(checkpoint)


@pytest.mark.parametrize("ours", ["auto", "off"])
@pytest.mark.parametrize("n", [1, 8, 9, 17, 128, 129, 199])
def test_nan_in_attention_is_seen_by_every_row(n: int, ours: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if ours == "off":
        monkeypatch.setattr(kernels, "available", lambda: False)
    runner = spoiled(lambda model: model.get_parameter("decoder.layers.1.attention.key.weight"))
    assert runner.prefill(tokens(n), runner.cache(1), last_only=False).isnan().all()
    cache = runner.cache(1)
    runner.prefill(tokens(n), cache)
    assert runner.step(torch.tensor([1]), cache).isnan().all()


@pytest.mark.parametrize("wish", [{}, {"temperature": 0.7}, {"speculate": "lookup"}, {"temperature": 1.0, "top_k": 5}])
def test_no_token_is_chosen_from_nan(wish: dict[str, object]) -> None:
    checkpoint = made()
    with torch.no_grad():
        checkpoint.model.get_parameter("decoder.layers.1.ffn.down.weight")[0, 0] = float("nan")
    for runner in (None, plait.optimize(checkpoint)):
        with pytest.raises(plait.GenerationError, match="logits: the model gave NaN"):
            plait.generate(checkpoint, [[1, 2, 3]], runner=runner, max_new_tokens=4, **wish)  # type: ignore[arg-type]


def test_one_row_of_nan_is_found_beside_others() -> None:
    logits = torch.zeros(3, 7)
    logits[1, 5] = float("nan")
    with pytest.raises(plait.GenerationError):
        likeliest(logits)
    with pytest.raises(plait.GenerationError):
        draw(logits.log_softmax(-1), [torch.Generator().manual_seed(0) for _ in range(3)])
