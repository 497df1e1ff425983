"""A model that trains by plait's own kernels on a CPU: the same loss and gradients, with masks, groups and dropout."""

from __future__ import annotations

import copy
import ctypes
import os
import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from plait.data.batch import Batch
from plait.engine import kernels, learn
from plait.engine.learn import Learn, activate, attend
from plait.model import Transformer, dropout, watching
from plait.model.attention import Attention, Sight
from plait.model.dropout import set_dropout
from plait.training import muon
from plait.training.loss import batch_loss
from plait.training.native import put_in
from tests.models import random_model
from tests.training.making import SHAPE

pytestmark = pytest.mark.skipif(not kernels.available(), reason=kernels.why_not() or "there are kernels")

TOKENS = torch.randint(0, 11, (3, 9), generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=[name for name in kernels.BACKENDS if kernels.available() and kernels.find(name).library])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each set of instructions that the machine has; ``make check-kernels`` acts out another."""
    library = kernels.find(request.param).library
    if path := os.environ.get("PLAIT_TESTED_KERNELS"):
        library = kernels.load(Path(path).resolve())
    team = kernels.Team(2, library)
    monkeypatch.setattr("plait.engine.learn.library", lambda: library)
    monkeypatch.setattr("plait.engine.learn._team", lambda: team)


def in_the_open(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, kept: Tensor | None, causal: bool) -> Tensor:
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    seen = seen.tril() if causal else seen
    seen = seen.expand(len(q), 1, -1, -1) if allowed is None else seen & allowed
    blind = ~seen.any(-1, keepdim=True)
    pattern = (q @ k.transpose(-1, -2) * 0.3).masked_fill(~(seen | blind), float("-inf")).softmax(-1)
    pattern = pattern.masked_fill(blind, 0.0)
    return (pattern if kept is None else pattern * kept) @ v


def far(x: Tensor, y: Tensor) -> float:
    return float((x.detach().double() - y.detach()).abs().max())


CASES = [  # b h g q k d causal mask dropout
    (2, 4, 4, 64, 64, 32, True, None, False),
    (3, 4, 2, 37, 37, 20, True, None, False),
    (2, 3, 3, 13, 29, 16, False, None, False),
    (2, 2, 1, 50, 70, 24, False, "rows", False),
    (2, 2, 2, 100, 100, 64, True, None, True),
    (2, 2, 2, 9, 33, 8, False, "one", True),
    (1, 1, 1, 2, 2, 4, True, None, False),
]


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("b", "h", "g", "q", "k", "d", "causal", "mask", "drops"), CASES)
def test_attention_and_its_gradients_against_float64(
    b: int, h: int, g: int, q: int, k: int, d: int, causal: bool, mask: str | None, drops: bool
):
    torch.manual_seed(q)
    given = [torch.randn(b, n, heads, d).transpose(1, 2).requires_grad_() for heads, n in ((h, q), (g, k), (g, k))]
    allowed = None if mask is None else torch.rand(b if mask == "rows" else 1, 1, q, k) > 0.4
    if allowed is not None:
        allowed[0, :, 3] = False  # who sees nothing gets zeros
    kept = starts = whole = None
    if drops:
        kept, starts = (torch.rand(50_000) > 0.3) / 0.7, torch.randint(0, 50_000 - q * k, (b, h))
        whole = torch.stack([torch.stack([kept[s : s + q * k].view(q, k) for s in row]) for row in starts.tolist()])
    exact = [x.detach().double().requires_grad_() for x in given]
    wanted = in_the_open(exact[0], exact[1], exact[2], allowed, whole if whole is None else whole.double(), causal)
    slope = torch.randn(b, h, q, d)
    found = attend(given[0], given[1], given[2], allowed, kept, starts, causal, 0.3)[0]
    (wanted * slope.double()).sum().backward()
    (found * slope).sum().backward()
    for mine, right in ((found, wanted), *((x.grad, y.grad) for x, y in zip(given, exact, strict=True))):
        assert mine is not None and right is not None
        assert far(mine, right) < 4e-6 * float(right.detach().abs().max().clamp(min=1e-3))


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    ("kind", "right"),
    [("gelu", F.gelu), ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")), ("silu", F.silu)],
    ids=["gelu", "gelu_tanh", "silu"],
)
def test_activations_and_their_slopes_against_float64(kind: str, right):
    x = torch.cat((torch.linspace(-12, 12, 9001), torch.tensor([0.0, -1e-20, 60.0, -60.0])))
    exact, mine = x.double().requires_grad_(), x.clone().requires_grad_()
    wanted, found = right(exact), activate(mine, kind)[0]
    wanted.sum().backward()
    found.sum().backward()
    assert mine.grad is not None and exact.grad is not None
    assert far(found / x.abs().clamp(min=1), wanted / x.abs().clamp(min=1)) < 1e-6
    assert far(mine.grad, exact.grad) < 5e-6


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("smoothing", "z_loss"), [(0.0, 0.0), (0.1, 0.0), (0.3, 1e-3)])
@pytest.mark.parametrize(("v", "c"), [(3, 1), (500, 37), (7047, 16)])
def test_losses_of_logits_and_their_slopes_against_float64(v: int, c: int, smoothing: float, z_loss: float):
    generator = torch.Generator().manual_seed(v)
    logits = torch.randn(v, c + 5, generator=generator)[:, 2 : c + 2] * 4  # c columns of more
    targets = torch.randint(v, (c,), generator=generator)
    exact = logits.double().T.requires_grad_()
    wanted = F.cross_entropy(exact, targets, label_smoothing=smoothing, reduction="none")
    wanted = wanted + z_loss * exact.logsumexp(-1).square()
    wanted.sum().backward()
    assert exact.grad is not None
    before = logits.clone()
    kept = learn.slope(logits, targets, smoothing=smoothing, z_loss=z_loss, keep=True)
    assert torch.equal(logits, before)
    found = learn.slope(logits, targets, smoothing=smoothing, z_loss=z_loss)
    assert torch.equal(found, kept) and far(found, wanted) < 2e-5
    assert far(logits.T, exact.grad) < 1e-6


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("shape", [(3, 64, 64), (2, 33, 70), (2, 70, 33), (1, 20, 300), (1, 1, 5)])
def test_matrices_made_orthogonal_against_the_iteration_in_float64(shape: tuple[int, int, int]):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    x[0, 0] = 0.0
    coefficients = (3.4445, -4.775, 2.0315)
    exact, found = muon.orthogonal(x.double(), coefficients, 5), muon.orthogonal(x, coefficients, 5)
    assert found.shape == x.shape and far(found, exact) < 2e-6
    assert torch.equal(muon.orthogonal(torch.zeros(shape), coefficients, 5), torch.zeros(shape))


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nu1_a_logit_that_is_no_number_is_in_the_loss(bad: float):
    logits = torch.zeros(40, 20)
    logits[7, 3] = bad
    losses = learn.slope(logits, torch.zeros(20, dtype=torch.long), smoothing=0.1, z_loss=0.0)
    assert not losses[3].isfinite() and losses[torch.arange(20) != 3].isfinite().all()


@pytest.mark.usefixtures("backend")
def test_a_place_that_may_not_say_a_token_has_a_loss():
    logits = torch.zeros(20, 3)
    logits[7] = float("-inf")
    expected = F.cross_entropy(logits.T.double(), torch.tensor([1, 2, 3]), reduction="none")
    assert far(learn.slope(logits, torch.tensor([1, 2, 3]), smoothing=0.0, z_loss=0.0), expected) < 1e-6


@pytest.mark.usefixtures("backend")
def test_targets_are_read_as_they_are_and_those_that_are_no_output_refused():
    logits, targets = torch.randn(20, 3), torch.tensor([[1, 9], [2, 9], [3, 9]])
    plain = learn.slope(logits.clone(), targets[:, 0].clone(), smoothing=0.0, z_loss=0.0)
    assert torch.equal(learn.slope(logits.clone(), targets[:, 0], smoothing=0.0, z_loss=0.0), plain)
    assert torch.equal(learn.slope(logits.clone(), targets[:, 0].int(), smoothing=0.0, z_loss=0.0), plain)
    for bad in (20, -1, 10**9):
        with pytest.raises(ValueError, match="there are 20 outputs"):
            learn.slope(logits, torch.tensor([0, bad, 0]), smoothing=0.0, z_loss=0.0)


@pytest.mark.usefixtures("backend")
def test_nu1_a_query_that_is_no_number_stays_none():
    q, k, v = (torch.randn(1, 1, 150, 16) for _ in range(3))
    q[0, 0, 5, 3] = float("nan")
    out = attend(q, k, v, None, None, None, False, 0.25)[0]
    assert out[0, 0, 5].isnan().all() and out[0, 0, torch.arange(150) != 5].isfinite().all()


@pytest.mark.skipif(kernels.available() and kernels.OpenMP.of_torch() is None, reason="torch shows no OpenMP")
def test_the_threads_are_torchs_own_and_share_the_work(monkeypatch: pytest.MonkeyPatch):
    before = threading.active_count(), len(os.listdir("/proc/self/task"))
    team = kernels.Team(3, borrowed=True)
    assert (threading.active_count(), len(os.listdir("/proc/self/task"))) == before
    monkeypatch.setattr("plait.engine.learn._team", lambda: team)
    for columns in (1, 40, 1000):
        logits = torch.randn(50, columns)
        right = logits.softmax(0)
        right[0] -= 1.0
        learn.slope(logits, torch.zeros(columns, dtype=torch.long), smoothing=0.0, z_loss=0.0)
        torch.testing.assert_close(logits, right, rtol=1e-5, atol=1e-6)


def gradients(model: Transformer) -> dict[str, Tensor]:
    torch.manual_seed(5)
    model.zero_grad()
    batch_loss(model, Batch(tokens=TOKENS, targets=TOKENS))[0].backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.fixture(autouse=True)
def _short_rows_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.training.native.SHORT", 0)


def made() -> tuple[Transformer, Transformer]:
    plain = random_model(SHAPE, dtype=torch.float32).train()
    native = copy.deepcopy(plain)
    assert put_in(native)
    return plain, native


def test_a_model_has_the_same_gradients_and_is_seen_as_before():
    plain, native = made()
    before, after = gradients(plain), gradients(native)
    assert list(native.state_dict()) == list(plain.state_dict()) and before.keys() == after.keys()
    for name in before:
        torch.testing.assert_close(after[name], before[name], rtol=1e-4, atol=1e-5)
    with torch.no_grad(), watching(native, "decoder.layers.1.attention.pattern", "decoder.layers.0.output") as seen:
        torch.testing.assert_close(native(TOKENS), plain(TOKENS), rtol=1e-4, atol=1e-5)
    assert len(seen) == 2


def test_attention_is_the_same_to_the_bit_however_many_threads_there_are(monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    q, k, v, slope = (torch.randn(3, 60, 2, 16).transpose(1, 2) for _ in range(4))
    found = []
    for threads in (1, 3):
        team = kernels.Team(threads)
        monkeypatch.setattr("plait.engine.learn._team", lambda team=team: team)
        given = [x.clone().requires_grad_() for x in (q, k, v)]
        out = attend(given[0], given[1], given[2], None, None, None, True, 0.25)[0]
        found.append((out.detach(), *torch.autograd.grad(out, given, slope)))
    assert all(torch.equal(one, three) for one, three in zip(*found, strict=True))


@pytest.mark.parametrize("pool", [1 << 16, 1 << 10], ids=["cut out of the pool", "longer than the pool"])
def test_dropped_attention_keeps_its_mean(pool: int, monkeypatch: pytest.MonkeyPatch):
    _, native = made()
    set_dropout(native, attention=0.3)
    part = next(part for part in native.modules() if isinstance(part, Attention))
    assert part.kernel is not None
    for module in ("plait.model.dropout", "plait.training.native"):
        monkeypatch.setattr(f"{module}.POOL", pool)
    monkeypatch.setattr("plait.training.native.mask_pool", dropout.mask_pool.__wrapped__)
    q = torch.ones(64, 2, 32, 4)
    torch.manual_seed(0)
    mix = part.kernel(q, q, q, Sight(), 1.0, 0.3)
    assert abs(float(mix.mean()) - 1.0) < 0.01 and float(mix.std()) > 0.05


@pytest.mark.usefixtures("backend")
def test_the_kernels_know_the_record_as_python_does():
    assert learn.library().plait_learn_bytes() == ctypes.sizeof(Learn)
