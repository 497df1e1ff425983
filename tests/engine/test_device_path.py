"""The device path against torch's own path: whole models, ragged, forked, and in steps that are captured.

On a CPU a graph is acted out: what a step does is written down once and done again without its Python, as CUDA does it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import plait
from plait.architecture import Architecture, Classification
from plait.checkpoint import Checkpoint, CheckpointError
from plait.engine import EngineRunner, optimize
from plait.engine.device_path import KEPT, Work
from plait.engine.optimize import on_device
from plait.generation import Read
from plait.model import Transformer
from tests.models import far, random_model, random_source, random_tokens
from tests.strategies import over_grid

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here that torch can use")
on_devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
FROM_THE_HOST = ("lift_fresh", "_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "item")

WIDE = plait.Architecture(
    vocab_size=50, d_model=64, n_heads=4, n_kv_heads=2, d_ff=96, n_decoder_layers=2, norm="rmsnorm", position="rope",
    gated=True, activation="silu", max_length=2000,
)  # fmt: skip


class _Written(TorchDispatchMode):
    """Every operation of torch, with what it read and what it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.overloadpacket.__name__ not in FROM_THE_HOST, f"{func}: a graph cannot wait for the host"
        given = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, given))
        return given


def acted_out(work: Work) -> Work:
    """What CUDA's graphs are: the operations of one run, over the same memory, whatever Python would do today."""
    work()  # before it is captured
    with _Written() as written:
        work()
    assert written.calls

    def replay() -> None:
        for func, args, kwargs, then in written.calls:
            now = func(*args, **kwargs)
            for new, old in zip(tree_leaves(now), tree_leaves(then), strict=True):
                if isinstance(new, torch.Tensor) and new.data_ptr() != old.data_ptr():
                    old.copy_(new)

    return replay


class Counting:
    """Captures, and how often it was asked to."""

    def __init__(self, capture: Callable[[Work], Work]) -> None:
        self.capture, self.captured, self.replayed = capture, 0, 0

    def __call__(self, work: Work) -> Work:
        self.captured += 1
        again = self.capture(work)

        def replay() -> None:
            self.replayed += 1
            again()

        return replay


def placed(model: Transformer, device: str, **options: Any) -> EngineRunner:
    """The model on the device path: with CUDA's own graphs, or with acted ones."""
    if device == "cpu":
        options.setdefault("capture", acted_out)
    return on_device(Checkpoint(architecture=model.architecture, model=model), torch.device(device), **options)


def both(architecture: Architecture, device: str) -> tuple[EngineRunner, EngineRunner]:
    """On torch's own path, and on the device path; both in float64."""
    model = random_model(architecture)
    oracle = optimize(Checkpoint(architecture=architecture, model=model), dtype="float64")
    return oracle, placed(model, device, dtype="float64")


def alike(found: torch.Tensor, expected: torch.Tensor, within: float = 1e-9) -> None:
    assert far(found.cpu().to(expected.dtype), expected) < within


@over_grid
@on_devices
def test_an_encoder_reads_ragged_rows(architecture: Architecture, device: str) -> None:
    if architecture.kind == "decoder":
        pytest.skip("a decoder alone")
    oracle, engine = both(architecture, device)
    rows = [random_tokens(n, seed=n).tolist() for n in (1, 9, 17, 5, 8)]
    types = None if not architecture.token_types else [[n % architecture.token_types for n in row] for row in rows]
    for found, expected in zip(engine.states(rows, types), oracle.states(rows, types), strict=True):
        alike(found, expected)
    if architecture.kind == "encoder" and architecture.head is not None:
        for found, expected in zip(engine.classify(rows, types), oracle.classify(rows, types), strict=True):
            alike(found, expected)


@over_grid
@on_devices
def test_a_decoder_reads_chunks_then_tokens_then_forks(architecture: Architecture, device: str) -> None:
    if architecture.kind == "encoder":
        pytest.skip("an encoder alone")
    runners = both(architecture, device)
    tokens = random_tokens(3, 14)
    mask = torch.ones(3, 14, dtype=torch.bool)
    mask[1, :3] = False
    mask[2, :7] = False  # all of a first chunk
    pooled = isinstance(architecture.head, Classification)
    caches = [runner.cache(3, total_lengths=[20, 17, 13]) for runner in runners]
    for part in (slice(0, 6), slice(6, 14)):
        sources = random_source(architecture, 3) if part.start == 0 else {}
        expected, found = (
            runner.prefill(tokens[:, part], cache, mask=mask[:, part], last_only=False, **sources)
            for runner, cache in zip(runners, caches, strict=True)
        )
        alike(found, expected)
    caches = [cache.fork(2) for cache in caches]  # on shared pages, which the sharers write into
    for k in range(0 if pooled else 4):
        chosen = random_tokens(caches[0].batch, seed=5 + k)
        expected, found = (r.step(chosen, cache) for r, cache in zip(runners, caches, strict=True))
        alike(found, expected)
        if k == 1:
            for cache in caches:
                cache.reorder(torch.tensor([2, 0, 0, 5, 3]))
                cache.truncate(cache.lengths - 1)


@over_grid
@on_devices
def test_reads_of_any_mixture(architecture: Architecture, device: str) -> None:
    """New prompts, one token, and a draft's verification in one pass; then a token each."""
    if architecture.kind == "encoder" or isinstance(architecture.head, Classification):
        pytest.skip("nothing is written")
    runners = both(architecture, device)
    source = {"source": [1, 2, 3]} if architecture.kind == "encoder-decoder" else {}
    caches = [[runner.cache(1, total_lengths=[20]) for _ in range(4)] for runner in runners]

    def reads(caches: list[Any], lengths: list[int], **first: Any) -> list[Read]:
        return [
            Read(tokens=random_tokens(n, seed=n + i).tolist(), cache=cache, all_logits=i % 2 == 0, **first)
            for i, (n, cache) in enumerate(zip(lengths, caches, strict=True))
        ]

    for lengths, first in (([1, 9, 3, 2], source), ([4, 1, 1, 5], {}), ([1, 1, 1, 1], {}), ([1, 1, 1, 1], {})):
        expected, found = (r.advance(reads(c, lengths, **first)) for r, c in zip(runners, caches, strict=True))
        for here, there in zip(found, expected, strict=True):
            alike(here, there)


@on_devices
@pytest.mark.parametrize("name, within", [("bfloat16", 0.05), ("float32", 1e-5)])
def test_each_type_is_as_near_as_it_says(name: str, within: float, device: str) -> None:
    model = mild()
    engine = placed(model, device, dtype=name, cache_dtype=name)
    tokens = random_tokens(2, 40, vocabulary=50)
    cache = engine.cache(2)
    found = engine.prefill(tokens[:, :30], cache, last_only=False)
    steps = [engine.step(tokens[:, i], cache).unsqueeze(1) for i in range(30, 40)]
    logits = torch.cat([found, *steps], dim=1)
    assert logits.dtype == torch.float32 and logits.device.type == engine.device.type == device
    alike(logits, model(tokens), within)
    if name == "bfloat16":
        assert far(logits.cpu(), model(tokens)) > 1e-4, "something was rounded"


@on_devices
def test_stored_is_kept_as_it_is_stored_and_blocks_in_bfloat16(device: str) -> None:
    model = mild()
    plain = Checkpoint(architecture=WIDE, model=model)
    whole = sum(p.nbytes for p in model.parameters())
    vectors = sum(p.nbytes for p in model.parameters() if p.ndim == 1)
    place = torch.device(device)
    assert on_device(plain, place).weight_bytes == whole
    rounded, _ = plait.quantise(plain, "int8", device="meta")
    from_blocks = on_device(rounded, place)
    model.bfloat16()
    half = on_device(plain, place)
    assert from_blocks.weight_bytes == half.weight_bytes == vectors + (whole - vectors) // 2
    tokens = random_tokens(1, 20, vocabulary=50)
    alike(half.prefill(tokens, half.cache(1), last_only=False), model.float()(tokens), 0.05)
    alike(
        from_blocks.prefill(tokens, from_blocks.cache(1), last_only=False),
        plait.quantise(plain, "int8")[0].model(tokens),
        0.05,
    )


@on_devices
def test_a_step_is_captured_once_for_each_shape_and_anew_where_pages_moved(device: str) -> None:
    from plait.engine.device_path import Graphs

    capture = Counting(acted_out if device == "cpu" else Graphs(torch.device(device)))
    engine = placed(mild(), device, capture=capture)
    cache = engine.cache(3, capacity=64)  # of 12 pages, which are there from now on
    engine.prefill(random_tokens(3, 4), cache)
    for _ in range(12):
        engine.step(random_tokens(3), cache)
    assert (capture.captured, capture.replayed) == (1, 12)  # 4 rows, a page each
    for _ in range(15):
        engine.step(random_tokens(3), cache)
    assert capture.captured == 2  # two pages
    engine._towers.pages["self"].reserve(64)
    engine.step(random_tokens(3), cache)
    assert capture.captured == 3, "the pages lie elsewhere now"
    for _ in range(30):
        engine.step(random_tokens(3), cache)
    assert capture.captured == 4, "three pages take as many as four"
    four = cache.fork(2)
    four.reorder(torch.tensor([0, 1, 3, 4]))
    four.truncate(20)
    engine.step(random_tokens(4), four)
    assert capture.captured == 4, "three rows take as many as four"


def test_no_more_shapes_are_kept_than_fit() -> None:
    capture = Counting(lambda work: work)
    engine = placed(mild(), "cpu", capture=capture)
    caches = [engine.cache(1, capacity=16) for _ in range(4)]
    path: Any = engine._towers._executors["decoder"][1]
    for n in range(1, 5):
        for cache in caches[:n]:
            cache.truncate(0)
        engine.advance([Read(tokens=[1], cache=cache) for cache in caches[:n]])
    assert capture.captured == len(path._steps) == 3 <= KEPT  # 1, 2 and 4 rows


@on_devices
def test_what_stands_where_a_sequence_has_no_token_reaches_nobody(device: str) -> None:
    """Numbers that are none, in pages that nobody holds and behind the last token of those that somebody does."""
    architecture = Architecture(
        vocab_size=20, d_model=32, n_heads=4, d_ff=48, n_encoder_layers=1, n_decoder_layers=2, position="rope"
    )
    oracle, engine = both(architecture, device)
    for pages in engine._towers.pages.values():
        pages.reserve(64)
        for tensor in (*pages.keys, *pages.values):
            tensor.fill_(float("nan"))
    sources: dict[str, Any] = {"source": random_tokens(2, 20), "source_mask": torch.tensor([[True] * 20, [False] * 20])}
    caches = [runner.cache(2) for runner in (oracle, engine)]
    tokens = random_tokens(2, 21)
    expected, found = (r.prefill(tokens, c, **sources) for r, c in zip((oracle, engine), caches, strict=True))
    alike(found, expected)
    expected, found = (r.step(tokens[:, 0], c) for r, c in zip((oracle, engine), caches, strict=True))
    alike(found, expected)


@pytest.mark.parametrize("bias", [{"position": "alibi"}, {"position": "rope"}, {"attention_softcap": 2.0}])
def test_every_tensor_is_on_the_device(bias: dict[str, Any]) -> None:
    """On the meta device, which has no numbers and waits for none: a tensor that was left on the CPU is found out."""
    architecture = plait.Architecture(
        vocab_size=20, d_model=32, n_heads=4, d_ff=48, n_decoder_layers=2, embedding_norm=True, **bias
    )
    engine = placed(random_model(architecture, 0, torch.bfloat16), "meta", capture=lambda work: work)
    cache = engine.cache(2)
    logits = engine.prefill(random_tokens(2, 20), cache)
    assert logits.device.type == "meta" and logits.shape == (2, 1, 20)
    assert engine.step(torch.tensor([1, 2]), cache).device.type == "meta"


@pytest.mark.parametrize(
    "asked, said",
    [
        ({"quantization": "int8"}, "quantization: on 'cuda'"),
        ({"threads": 2}, "threads"),
        ({"device": "meta"}, "not on 'meta'"),
    ],
)
def test_what_a_gpu_does_not_do_is_refused(asked: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[optimize.__module__]
    monkeypatch.setattr(module, "as_device", torch.device)  # as if there were one
    with pytest.raises(CheckpointError, match=said):
        optimize(Checkpoint(architecture=WIDE, model=mild()), **{"device": "cuda", **asked})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_said_to_be_missing() -> None:
    with pytest.raises(CheckpointError, match="device: 'cuda' is not one of those here, cpu"):
        optimize(Checkpoint(architecture=WIDE, model=mild()), device="cuda")


@on_devices
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 3}, {"speculate": "lookup"}])
def test_generation_is_driven_as_by_any_runner(options: dict[str, Any], device: str) -> None:
    plain = Checkpoint(architecture=WIDE, model=mild())
    engine = placed(plain.model, device, dtype="float64")
    prompts = [random_tokens(n, vocabulary=50).tolist() for n in (5, 17, 1)]
    plain.model.double()
    asked: dict[str, Any] = {"max_new_tokens": 20, **options}
    found, expected = (
        [one.tokens for one in cast(list[plait.Generation], plait.generate(plain, prompts, runner=runner, **asked))]
        for runner in (engine, None)
    )
    assert found == expected


def mild() -> Transformer:
    """So mild that rounding is not blown up by one softmax after the other."""
    model = random_model(WIDE, 0, torch.float32)
    for parameter in model.parameters():
        parameter.detach().mul_(0.4 if parameter.ndim > 1 else 1.0)
    return model.requires_grad_(False)
