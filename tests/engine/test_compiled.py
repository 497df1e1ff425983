"""Whole programs on the kernels agree with torch, for every architecture of the grid."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from plait.architecture import Architecture, Classification
from plait.engine import kernels
from plait.engine import program as p
from plait.engine.compiled import Compiled, implementations
from plait.engine.lower import lower
from plait.engine.packed import pack
from plait.engine.runner import EngineRunner
from plait.engine.structs import sizes
from plait.engine.torch_path import TorchPath
from plait.engine.weights import DenseWeights, PackedWeights, matrices, read_matrix
from plait.model import Transformer
from tests.models import random_model
from tests.strategies import over_grid

pytestmark = pytest.mark.skipif(not kernels.available(), reason=kernels.why_not())


@pytest.fixture(scope="module", params=[1, 2])
def team(request: pytest.FixtureRequest) -> Iterator[kernels.Team]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield kernels.Team(request.param)
    torch.set_num_threads(before)


def runners(
    model: Transformer, team: kernels.Team, cache: torch.dtype = torch.float32
) -> tuple[EngineRunner, EngineRunner]:
    """The same model on the kernels and on torch."""
    a, programs, parameters = model.architecture, lower(model), dict(model.named_parameters())

    def read(name: str, dtype: torch.dtype) -> torch.Tensor:
        return parameters[name].detach().to(dtype)

    stacks = matrices(programs.values())
    packed = {
        names: pack(torch.cat([read_matrix(lambda name: read(name, torch.float32), n) for n in names]), "F32")
        for names in stacks
    }
    held, dense = PackedWeights(read, packed), DenseWeights(read, torch.float32)
    mine = {name: (program, Compiled(program, held, team)) for name, program in programs.items()}
    theirs = {name: (program, TorchPath(program, dense)) for name, program in programs.items()}
    return (
        EngineRunner(a, mine, "", cache_dtype=cache),
        EngineRunner(a, theirs, "", cache_dtype=cache),
    )


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(0, 20, shape)


@over_grid
def test_programs_agree_with_torch(architecture: Architecture, team: kernels.Team) -> None:
    a = architecture
    both = runners(random_model(a), team)
    generator = torch.Generator().manual_seed(0)

    def same(results: list[torch.Tensor]) -> None:
        torch.testing.assert_close(results[0], results[1], atol=1e-4, rtol=1e-4)

    torch.manual_seed(0)
    if a.kind == "encoder":
        rows = [ids(n).tolist() for n in (1, 5, 23)]
        types = [[i % 2 for i in range(len(row))] for row in rows] if a.token_types == 2 else None
        for i in range(3):
            same([runner.states(rows, types)[i] for runner in both])
            if a.head is not None:
                same([runner.classify(rows, types)[i] for runner in both])
        return
    totals = [40, 40, 40]
    caches = [runner.cache(3, total_lengths=totals) for runner in both]
    source = {"source": ids(3, 19), "source_mask": torch.arange(19) < torch.tensor([[19], [1], [7]])}
    given = source if a.kind == "encoder-decoder" else {}
    tokens, mask = ids(3, 18), torch.rand(3, 18, generator=generator) < 0.7
    if isinstance(a.head, Classification):
        return
    same([r.prefill(tokens, c, mask=mask, **given, last_only=False) for r, c in zip(both, caches, strict=True)])
    for _ in range(3):
        step = ids(3)
        same([r.step(step, c) for r, c in zip(both, caches, strict=True)])
    order = torch.tensor([2, 2, 0])
    for cache in caches:
        cache.reorder(order)
    chunk = ids(3, 5)
    same([r.prefill(chunk, c, last_only=False) for r, c in zip(both, caches, strict=True)])
    step = ids(3)
    same([r.step(step, c) for r, c in zip(both, caches, strict=True)])


def test_bfloat16_pages(team: kernels.Team) -> None:
    from tests.strategies import NAMED_GRID

    both = runners(random_model(NAMED_GRID["rope-wide-heads"]), team, torch.bfloat16)
    torch.manual_seed(0)
    tokens = ids(2, 30)
    results = [runner.prefill(tokens, runner.cache(2), last_only=False) for runner in both]
    torch.testing.assert_close(*results, atol=2e-3, rtol=2e-3)  # a key on the edge may be rounded to either side


def test_structs_are_those_of_the_library() -> None:
    mine, theirs = sizes(kernels.library())
    assert mine == theirs


def test_what_does_each_operation() -> None:
    from tests.strategies import NAMED_GRID

    for name, torchs in (("classes-mean", {p.Pool}), ("rope-linear", set())):
        (program,) = lower(random_model(NAMED_GRID[name])).values()
        by = {type(operation): what for operation, what in implementations(program)}
        assert {kind for kind, what in by.items() if what == "torch"} == torchs
        assert by[p.Linear] == f"kernel {kernels.backend()}"
