from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.model import Transformer
from plait.training.optimizers import Optimizer, group_of
from plait.training.settings import Optimizer as Settings
from tests.strategies import GRID
from tests.training.making import model, weights


def with_gradients(m: torch.nn.Module, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in m.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)


@pytest.mark.parametrize(
    ("name", "shape", "adamw", "muon"),
    [
        ("decoder.layers.0.attention.query.weight", (4, 4), "decayed", "muon"),
        ("encoder.layers.0.cross.output.weight", (4, 4), "decayed", "muon"),
        ("decoder.layers.0.ffn.gate.weight", (4, 4), "decayed", "muon"),
        ("decoder.layers.0.ffn.shared.down.weight", (4, 4), "decayed", "muon"),
        ("decoder.layers.0.ffn.experts.up.weight", (2, 4, 4), "decayed", "decayed"),
        ("decoder.layers.0.ffn.router.weight", (2, 4), "decayed", "decayed"),
        ("embedding.tokens.weight", (9, 4), "decayed", "decayed"),
        ("embedding.projection.weight", (4, 2), "decayed", "decayed"),
        ("head.output.weight", (9, 4), "decayed", "decayed"),
        ("head.dense.weight", (4, 4), "decayed", "decayed"),
        ("decoder.layers.0.attention.query.lora_a", (2, 4), "decayed", "decayed"),
        ("decoder.layers.0.attention.query.bias", (4,), "plain", "plain"),
        ("decoder.layers.0.ffn.experts.up.bias", (2, 4), "plain", "plain"),
        ("decoder.layers.0.attention.relative_bias.weight", (8, 3), "plain", "plain"),
        ("decoder.layers.0.attention.query_norm.weight", (2, 4), "plain", "plain"),
        ("decoder.layers.0.attention_norms.before.weight", (4,), "plain", "plain"),
        ("decoder.layers.0.attention.sinks", (3,), "plain", "plain"),
    ],
)
def test_groups_by_name(name: str, shape: tuple[int, ...], adamw: str, muon: str) -> None:
    assert (group_of(name, torch.empty(shape)), group_of(name, torch.empty(shape), "muon")) == (adamw, muon)


@pytest.mark.parametrize("architecture", GRID[::7])
def test_every_architecture_moves_and_only_matrices_decay(architecture: Architecture) -> None:
    m = Transformer(architecture).float()
    with_gradients(m)
    before = weights(m)
    Optimizer(m.named_parameters(), Settings(kind="muon")).step(1.0)
    assert all(not torch.equal(value, before[name]) for name, value in weights(m).items())
    for parameter in m.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = weights(m)
    still = Optimizer(m.named_parameters(), Settings(weight_decay=0.5, lr=0.1))
    still.step(1.0)
    for name, parameter in m.named_parameters():
        matrix = (
            parameter.ndim >= 2 and not name.endswith("bias") and "norm" not in name and "relative_bias" not in name
        )
        torch.testing.assert_close(parameter, before[name] * (0.95 if matrix else 1.0))


def test_adamw_by_hand() -> None:
    """Loshchilov and Hutter 2019, algorithm 2, twice."""
    s = Settings(lr=0.1, beta1=0.8, beta2=0.9, eps=1e-3, weight_decay=0.3)
    w = torch.tensor([[1.0, -2.0]], dtype=torch.float64, requires_grad=True)
    mean = square = torch.zeros(1, 2, dtype=torch.float64)
    expected, optimizer = w.detach().clone(), Optimizer([("a.up.weight", w)], s)
    for t, (gradient, share) in enumerate([([0.5, 3.0], 1.0), ([-1.0, 2.0], 0.5)], 1):
        g = w.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step(share)
        mean, square = 0.8 * mean + 0.2 * g, 0.9 * square + 0.1 * g * g
        expected = expected * (1 - 0.1 * share * 0.3)
        expected -= 0.1 * share * (mean / (1 - 0.8**t)) / ((square / (1 - 0.9**t)).sqrt() + 1e-3)
        torch.testing.assert_close(w.detach(), expected, rtol=1e-12, atol=0)


def test_muon_moves_along_all_directions_alike() -> None:
    w = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    before, w.grad = w.detach().clone(), torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    settings = Settings(kind="muon", matrix_lr=0.1, matrix_weight_decay=0.5, lr=100.0)
    Optimizer([("decoder.layers.0.ffn.up.weight", w)], settings).step(0.5)
    moved = before * (1 - 0.05 * 0.5) - w.detach()
    singular = torch.linalg.svdvals(moved) / (0.05 * (6 / 4) ** 0.5)
    assert 0.6 < float(singular.min()) and float(singular.max()) < 1.3


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_tr11_what_it_remembers_comes_back(kind: Any) -> None:
    m, other = model(), model()
    first, second = (Optimizer(x.named_parameters(), Settings(kind=kind)) for x in (m, other))
    with_gradients(m)
    first.step(1.0)
    saved = {name: value.clone() for name, value in first.state().items()}
    assert saved and any(name.endswith(":exp_avg") and value.any() for name, value in saved.items())
    second.restore(saved)
    assert saved.keys() == second.state().keys()
    assert all(torch.equal(saved[name], value) for name, value in second.state().items())
    other.load_state_dict(m.state_dict())
    for x, optimizer in ((m, first), (other, second)):
        with_gradients(x, seed=1)
        optimizer.step(0.5)
    assert all(torch.equal(a, b) for a, b in zip(m.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda s: {k: v for k, v in s.items() if k != "embedding.tokens.weight:exp_avg"},
            "embedding.tokens.weight: another optimizer wrote",
        ),
        (lambda s: {k: v for k, v in s.items() if "ffn.up.w" not in k}, r"ffn.up.weight: .* does not know .*2 such"),
        (lambda s: s | {"spare:step": torch.tensor(1.0)}, "spare: the saved optimizer moved it, and it is not trained"),
        (
            lambda s: s | {"embedding.tokens.weight:exp_avg": torch.zeros(3, 12)},
            r"embedding.tokens.weight: its saved exp_avg is \[3, 12\], and the parameter is \[11, 12\]",
        ),
    ],
)
def test_a_memory_that_does_not_fit_is_refused(change: Any, words: str) -> None:
    m = model()
    optimizer = Optimizer(m.named_parameters(), Settings())
    with_gradients(m)
    optimizer.step(1.0)
    with pytest.raises(ValueError, match=words):
        Optimizer(m.named_parameters(), Settings()).restore(change(optimizer.state()))


def test_muons_memory_is_not_adamws() -> None:
    m = model()
    optimizer = Optimizer(m.named_parameters(), Settings(kind="muon"))
    with_gradients(m)
    optimizer.step(1.0)
    with pytest.raises(ValueError, match=r"another optimizer wrote its state \(momentum_buffer\)"):
        Optimizer(m.named_parameters(), Settings()).restore(optimizer.state())


def test_what_is_frozen_stays_and_nothing_to_train_is_refused() -> None:
    m = model()
    for parameter in m.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(ValueError, match="nothing to train"):
        Optimizer(m.named_parameters(), Settings())
    m.embedding.tokens.weight.requires_grad_(True)
    assert list(Optimizer(m.named_parameters(), Settings()).parameters) == ["embedding.tokens.weight"]


def test_one_tensor_under_two_names_moves_once() -> None:
    table: Tensor = torch.nn.Parameter(torch.ones(3, 2))
    optimizer = Optimizer([("embedding.tokens.weight", table), ("head.output.weight", table)], Settings())
    assert list(optimizer.parameters) == ["embedding.tokens.weight"]
