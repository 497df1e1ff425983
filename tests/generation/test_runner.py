"""What every runner keeps to: sequences read on in any mixture as they would alone, and weights have an identity."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator

import pytest
import torch

from plait.generation import ModelRunner, Read, Runner
from plait.model import Transformer
from plait.model.sites import watching
from tests.generation.making import DECODERS, ROPE, RUNNERS, TRANSLATOR, random_model

ALL = {**DECODERS, "translator": TRANSLATOR}
ROWS = [[5, 6, 7, 1, 2], [9], [3, 4], [1, 2, 3, 4, 5, 6, 7, 8]]


def near(said: torch.Tensor, expected: torch.Tensor) -> bool:
    """Equal but for rounding in the type of what is said."""
    return bool((said - expected).abs().max() < (1e-9 if said.dtype == torch.float64 else 1e-4))


@pytest.mark.parametrize("make", RUNNERS.values(), ids=RUNNERS)
@pytest.mark.parametrize("name", ALL)
def test_reads_of_any_mixture_are_what_they_are_alone(name: str, make: Callable[..., Runner]) -> None:
    model = random_model(ALL[name])
    runner, sources = make(model), [[7, 8, 9], [4], [1, 1], [30, 2, 3, 5]]
    caches = [runner.cache(1) for _ in ROWS]
    read = [0] * len(ROWS)
    for sizes in ([3, 1, 0, 2], [1, 0, 2, 5], [1, 0, 0, 1]):
        reads, places = [], []
        for i, size in enumerate(sizes):
            if size:
                new = ROWS[i][read[i] : read[i] + size]
                source = sources[i] if name == "translator" and read[i] == 0 else None
                reads.append(Read(tokens=new, cache=caches[i], all_logits=size == 2, source=source))
                places.append(i)
                read[i] += size
        for i, one, said in zip(places, reads, runner.advance(reads), strict=True):
            source = {"source": torch.tensor([sources[i]])} if name == "translator" else {}
            whole = model(torch.tensor([ROWS[i][: read[i]]]), **source)[0]
            expected = whole[-len(one.tokens) :] if one.all_logits else whole[-1:]
            assert said.shape == expected.shape
            assert near(said, expected)
            assert caches[i].lengths.tolist() == [read[i]]
    assert read == [5, 1, 2, 8]


@pytest.mark.parametrize("make", RUNNERS.values(), ids=RUNNERS)
@pytest.mark.parametrize("name", ALL)
def test_what_was_truncated_was_never_read_and_a_fork_goes_its_own_way(name: str, make: Callable[..., Runner]) -> None:
    model = random_model(ALL[name])
    runner = make(model)
    cache = runner.cache(1)
    source = [7, 8, 9] if name == "translator" else None
    given = {} if source is None else {"source": torch.tensor([source])}
    runner.advance([Read(tokens=[5, 6, 7, 8], cache=cache, source=source)])
    twin = cache.fork(1)
    twin.truncate(2)
    mine, other = runner.advance([Read(tokens=[1, 2], cache=cache), Read(tokens=[3], cache=twin)])
    assert near(mine, model(torch.tensor([[5, 6, 7, 8, 1, 2]]), **given)[0, -1:])
    assert near(other, model(torch.tensor([[5, 6, 3]]), **given)[0, -1:])


@pytest.mark.parametrize("make", RUNNERS.values(), ids=RUNNERS)
def test_positions_of_ones_own_go_on_from_the_last(make: Callable[..., Runner]) -> None:
    model = random_model(DECODERS["learned"])
    runner = make(model)
    cache = runner.cache(1)
    runner.advance([Read(tokens=[5, 6, 7], cache=cache, positions=[0, 0, 1])])
    (said,) = runner.advance([Read(tokens=[8, 9], cache=cache)])
    expected = model(torch.tensor([[5, 6, 7, 8, 9]]), positions=torch.tensor([[0, 0, 1, 2, 3]]))[0, -1:]
    assert near(said, expected)
    assert (said - model(torch.tensor([[5, 6, 7, 8, 9]]))[0, -1:]).abs().max() > 1e-3


def changes(model: Transformer) -> Iterator[str]:
    """Every way in which weights become others, one after the other."""
    assert model.decoder is not None
    first = next(model.parameters())
    first.add_(1)
    yield "in place"
    with torch.inference_mode():
        first.add_(1)
    yield "in place, in inference mode"
    first.data = first.data + 1
    yield "data replaced"
    gc.collect()
    first.data = first.data + 1  # where the allocator may give the first address again
    yield "data replaced again"
    model.load_state_dict({name: tensor + 1 for name, tensor in model.state_dict().items()})
    yield "loaded"
    model.load_state_dict({name: tensor + 1 for name, tensor in model.state_dict().items()}, assign=True)
    yield "loaded and assigned"
    model.decoder.norm = copy.deepcopy(model.decoder.norm)
    yield "a module replaced"


def test_kv10_the_identity_changes_whenever_weights_do_and_never_otherwise() -> None:
    model = random_model(ROPE)
    runner = ModelRunner(model)
    seen = [runner.identity]
    for how in changes(model):
        assert runner.identity not in seen, how
        seen.append(runner.identity)
        assert runner.identity == seen[-1], how
    assert ModelRunner(random_model(ROPE)).identity not in seen


def test_kv10_a_model_that_is_watched_is_never_the_same() -> None:
    model = random_model(ROPE)
    runner = ModelRunner(model)
    seen = [runner.identity]
    with watching(model, "decoder.layers.0.*", change=lambda name, value: value * 2):
        seen += [runner.identity, runner.identity]
    seen.append(runner.identity)
    assert len(set(seen)) == 4
    assert runner.identity == seen[-1]
