"""Quick: the same numbers by the engine's kernels, inside the block alone."""

from __future__ import annotations

import pytest
import torch

from plait.architecture import Architecture
from plait.engine import kernels
from plait.inspection.quick import Product, quick
from plait.model.attention import Attention
from plait.model.linear import Linear
from tests.models import far, random_model, random_source, random_tokens
from tests.strategies import GRID

CASES = [(GRID[i], n) for i, n in ((0, 9), (7, 9), (13, 9), (20, 9))]
LONG = Architecture(vocab_size=32, d_model=16, n_heads=4, n_kv_heads=2, d_ff=20, n_decoder_layers=2, position="rope")


@pytest.mark.parametrize(("architecture", "n"), [*CASES, (LONG, 140)])
@pytest.mark.parametrize("padded", [False, True])
def test_the_numbers_are_the_same_and_afterwards_to_the_bit(architecture: Architecture, n: int, padded: bool) -> None:
    model = random_model(architecture, dtype=torch.float32)
    inputs = {"tokens": random_tokens(2, n), **random_source(architecture, 2)}
    if padded:
        inputs["mask"] = torch.arange(n) < torch.tensor([[n], [n - 3]])
    with torch.no_grad():
        before = model(**inputs)
        with quick(model):
            assert far(model(**inputs), before) < 1e-5
            if kernels.available():
                assert all("forward" in part.__dict__ for part in model.modules() if type(part) is Linear)
        after = model(**inputs)
    assert torch.equal(after, before)
    assert not any("forward" in part.__dict__ for part in model.modules())
    assert all(part.kernel is None for part in model.modules() if isinstance(part, Attention))


def test_an_error_inside_leaves_nothing_behind() -> None:
    model = random_model(LONG, dtype=torch.float32)
    with pytest.raises(KeyError), quick(model):
        raise KeyError
    assert not any("forward" in part.__dict__ for part in model.modules())


def test_other_types_are_left_as_they_are() -> None:
    model = random_model(LONG)
    with quick(model):
        assert not any("forward" in part.__dict__ for part in model.modules())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_product_is_a_linear_layer(dtype: torch.dtype) -> None:
    weight, bias, x = (torch.randn(*shape, dtype=dtype) for shape in ((33, 20), (33,), (2, 3, 20)))
    for one in (bias, None):
        wanted = torch.nn.functional.linear(x, weight, one)
        found = Product(weight, one)(x)
        assert found.dtype == dtype and far(found, wanted) < 1e-5
        assert far(Product(weight, one)(x.transpose(0, 1)), wanted.transpose(0, 1)) < 1e-5
