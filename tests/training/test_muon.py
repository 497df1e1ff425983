from __future__ import annotations

import pytest
import torch
from torch import Tensor

from plait.training import muon
from plait.training.muon import Muon, orthogonal

KNOBS = {"lr": 0.1, "weight_decay": 0.5, "momentum": 0.9}


def matrices(count: int = 5) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(8, 8), (12, 8), (8, 12), (8, 8), (12, 8)][:count]
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("half", [True, False])
def test_it_is_torchs_muon_in_either_type(half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muon, "multiplies_bfloat16", lambda device: half)
    if not half:  # torch's iteration in float32 too
        monkeypatch.setattr(torch.Tensor, "bfloat16", lambda x: x.clone())
    ours, theirs = matrices(), matrices()
    first, second = Muon(ours, **KNOBS), torch.optim.Muon(theirs, **KNOBS)
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=generator)
            b.grad = a.grad.clone()
        first.step()
        second.step()
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=2e-3 * (step + 1) if half else 1e-5)
            momenta = first.state[a]["momentum_buffer"], second.state[b]["momentum_buffer"]
            torch.testing.assert_close(*momenta, rtol=1e-6, atol=1e-7)


def test_a_matrix_moves_alike_alone_and_beside_others_of_its_shape() -> None:
    x = torch.randn(7, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    together = orthogonal(x, (3.4445, -4.7750, 2.0315), 5)
    for alone, one in zip(x, together, strict=True):
        torch.testing.assert_close(orthogonal(alone[None], (3.4445, -4.7750, 2.0315), 5)[0], one, rtol=1e-12, atol=0)
    assert bool(((torch.linalg.svdvals(together) - 1).abs() < 0.5).all())
