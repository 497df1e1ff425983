"""The loss of a batch, against the plain formula over whole logits: values, gradients, and what must leave no trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from plait.architecture import Architecture, Classification, Experts
from plait.data.batch import Batch
from plait.model import Transformer, watching
from plait.model.experts import balance_loss
from plait.training import output_loss as fused
from plait.training.loss import batch_loss
from plait.training.output_loss import Output, output_loss
from tests.models import far, random_model, random_source, random_tokens

DECODER = Architecture(
    vocab_size=32, d_model=16, n_heads=4, n_kv_heads=2, d_ff=20, n_decoder_layers=2, position="rope", norm="rmsnorm"
)
HEADS: dict[str, dict[str, Any]] = {
    "tied": {"tied": True},
    "own": {"tied": False},
    "biased": {"tied": False, "logit_bias": True},
    "scaled": {"tied": True, "logit_scale": 0.3},
    "capped": {"tied": True, "logit_softcap": 2.0, "logit_scale": 1.7},
    "transformed": {"tied": True, "head_transform": "gelu", "logit_bias": True},
}


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows of logits at a time, so that the edges of chunks are met."""
    monkeypatch.setattr(fused, "CHUNK", 1)
    monkeypatch.setattr(fused, "LEAST", 3)


def a_batch(rows: int = 3, n: int = 7, seed: int = 4) -> Batch:
    """Padded on the right; a third of the places ask for nothing."""
    tokens, targets = random_tokens(rows, n, seed=seed), random_tokens(rows, n, seed=seed + 1)
    mask = torch.ones(rows, n, dtype=torch.bool)
    mask[-1, -3:] = False
    targets[~mask | (random_tokens(rows, n, seed=seed + 2) % 3 == 0)] = -100
    return Batch(tokens=tokens, targets=targets, mask=mask)


def plainly(y: Tensor, targets: Tensor, smoothing: float = 0.0, z_loss: float = 0.0) -> Tensor:
    """The sum of losses by the formula, from logits ``(r, v)``."""
    lse = y.logsumexp(-1)
    own = y.gather(1, targets[:, None])[:, 0]
    return (lse - (1 - smoothing) * own - smoothing * y.mean(-1) + z_loss * lse.square()).sum()


def gradients(model: Transformer, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("smoothing, z_loss", [(0.0, 0.0), (0.2, 0.0), (0.1, 0.01)])
@pytest.mark.parametrize("head", HEADS)
def test_loss_and_gradients_are_the_plain_formulas(head: str, smoothing: float, z_loss: float) -> None:
    model, batch = random_model(DECODER.replace(**HEADS[head])), a_batch()
    loss, count = batch_loss(model, batch, smoothing=smoothing, z_loss=z_loss)
    logits = model(batch.tokens, mask=batch.mask)[batch.real]
    expected = plainly(logits, batch.targets[batch.real], smoothing, z_loss)
    assert count == int((batch.targets != -100).sum()) > 5 and far(loss, expected) < 1e-12
    mine, theirs = gradients(model, loss), gradients(model, expected)
    assert mine.keys() == theirs.keys()
    for name in mine:
        assert far(mine[name], theirs[name]) < 1e-10, name
    with torch.no_grad():
        assert far(batch_loss(model, batch, smoothing=smoothing, z_loss=z_loss)[0], expected) < 1e-12


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("output", [Output(), Output(0.7, 3.0, 0.1, 0.02)], ids=["plain", "all"])
def test_gradients_are_those_of_finite_differences(output: Output) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = ((5, 4), (9, 4), (9,))
    x, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes
    )
    targets = torch.tensor([0, 8, 3, 3, 5])
    assert torch.autograd.gradcheck(lambda x, w, b: 3 * output_loss(x, w, b, targets, output), (x, weight, bias))
    assert torch.autograd.gradcheck(lambda w: output_loss(x.detach(), w, None, targets, output), (weight,))


def test_a_target_of_no_probability_costs_what_it_should() -> None:
    x = torch.tensor([[300.0]], requires_grad=True)
    loss = output_loss(x, torch.tensor([[1.0], [-1.0]]), None, torch.tensor([1]), Output())
    loss.backward()
    assert loss.item() == pytest.approx(600.0) and x.grad is not None and float(x.grad) == pytest.approx(2.0)


def test_tr1_a_sum_over_targets_is_the_same_however_rows_are_dealt() -> None:
    model, batch = random_model(DECODER), a_batch(rows=4)
    mask = batch.mask
    assert mask is not None
    targets = batch.targets.clone()
    targets[0, 1:] = -100
    targets[0, 0] = 5  # one target against many
    batch = replace(batch, targets=targets)
    whole, count = batch_loss(model, batch)
    expected = gradients(model, whole / count)
    parts = [Batch(tokens=batch.tokens[i], targets=targets[i], mask=mask[i]) for i in (slice(0, 1), slice(1, 4))]
    losses = [batch_loss(model, part) for part in parts]
    assert [number for _, number in losses] == [1, count - 1]
    summed = sum(loss for loss, _ in losses) / sum(number for _, number in losses)
    assert isinstance(summed, Tensor) and far(summed, whole / count) < 1e-12
    got = gradients(model, summed)
    assert all(far(got[name], expected[name]) < 1e-12 for name in expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_tr6_places_without_a_target_leave_no_trace(smoothing: float) -> None:
    model, tokens = random_model(DECODER), random_tokens(1, 4)
    targets = torch.tensor([[1, 2, -100, 3]])
    loss, count = batch_loss(model, Batch(tokens=tokens, targets=targets), smoothing=smoothing)
    logits = model(tokens)[0, [0, 1, 3]]
    expected = F.cross_entropy(logits, torch.tensor([1, 2, 3]), label_smoothing=smoothing, reduction="sum")
    assert count == 3 and far(loss, expected) < 1e-12


def test_a_batch_without_targets_costs_nothing() -> None:
    model, tokens = random_model(DECODER), random_tokens(2, 4)
    loss, count = batch_loss(model, Batch(tokens=tokens, targets=torch.full_like(tokens, -100)))
    found = gradients(model, loss)
    assert loss.item() == 0.0 and count == 0 and not any(grad.any() for grad in found.values())


@pytest.mark.parametrize("head", ["tied", "biased"])
def test_among_is_a_softmax_in_which_all_others_are_banned(head: str) -> None:
    """Exact: loss and gradient of logits with -inf at the others, whose rows of the output get no gradient. Not exact,
    nor meant to be: the softmax over the whole vocabulary."""
    model, batch = random_model(DECODER.replace(**HEADS[head])), a_batch()
    among = torch.cat((batch.targets[batch.real], torch.tensor([25]))).unique()
    loss, _ = batch_loss(model, batch, smoothing=0.1, among=among)
    logits = model(batch.tokens, mask=batch.mask)[batch.real]
    expected = plainly(logits[:, among], torch.searchsorted(among, batch.targets[batch.real]), 0.1)
    assert far(loss, expected) < 1e-12 and far(loss, batch_loss(model, batch, smoothing=0.1)[0]) > 1e-3
    mine, theirs = gradients(model, loss), gradients(model, expected)
    assert all(far(mine[name], theirs[name]) < 1e-10 for name in theirs)
    if head == "biased":
        others = torch.ones(32, dtype=torch.bool).index_fill(0, among, False)
        assert (
            others.any() and not mine["head.output.weight"][others].any() and not mine["head.output.bias"][others].any()
        )
    with pytest.raises(ValueError, match="among: a target of this batch"):
        batch_loss(model, batch, among=among[1:])


def test_an_encoder_decoder_reads_its_source() -> None:
    a = DECODER.replace(n_encoder_layers=1)
    model, batch, source = random_model(a), a_batch(), random_source(a, 3)
    loss, _ = batch_loss(model, replace(batch, **source))
    logits = model(batch.tokens, mask=batch.mask, **source)[batch.real]
    assert far(loss, plainly(logits, batch.targets[batch.real])) < 1e-12


ENCODER = DECODER.replace(n_decoder_layers=0, n_encoder_layers=2, head=None)


@pytest.mark.parametrize("pooling", ["cls", "mean", None])
def test_classes_of_rows_or_of_tokens(pooling: Any) -> None:
    model, batch = random_model(ENCODER.replace(head=Classification(labels=5, pooling=pooling))), a_batch()
    targets = torch.tensor([4, -100, 2]) if pooling else torch.where(batch.real, batch.targets % 5, -100)
    batch = replace(batch, targets=targets, against="classes")
    loss, count = batch_loss(model, batch, smoothing=0.1)
    logits = model(batch.tokens, mask=batch.mask)
    expected = F.cross_entropy(logits[batch.real], targets[batch.real], label_smoothing=0.1, reduction="sum")
    assert count == int(batch.real.sum()) and far(loss, expected) < 1e-12
    mine, theirs = gradients(model, loss), gradients(model, expected)
    assert all(far(mine[name], theirs[name]) < 1e-10 for name in theirs)


def test_values_by_squared_error() -> None:
    model, batch = random_model(ENCODER.replace(head=Classification(labels=2, pooling="mean"))), a_batch()
    values = torch.tensor([[0.5, 1.0], [-1.0, 0.0], [2.0, 3.0]])
    loss, count = batch_loss(model, replace(batch, targets=values, against="values"))
    expected = (model(batch.tokens, mask=batch.mask) - values).square().sum()
    assert count == 6 and far(loss, expected) < 1e-12


def test_rows_against_all_other_rows() -> None:
    model, batch = random_model(ENCODER), a_batch(rows=4)
    assert batch.mask is not None
    targets = torch.tensor([2, 3, -100, 1])
    loss, count = batch_loss(model, replace(batch, targets=targets, against="rows"), temperature=0.5)
    states = model(batch.tokens, mask=batch.mask)
    vectors = [state[real].mean(0) for state, real in zip(states, batch.mask, strict=True)]
    expected = torch.zeros((), dtype=torch.float64)
    for i, j in ((0, 2), (1, 3), (3, 1)):
        cosines = {k: F.cosine_similarity(vectors[i], vectors[k], dim=0) / 0.5 for k in range(4) if k != i}
        expected = expected + torch.stack(list(cosines.values())).logsumexp(0) - cosines[j]
    assert count == 3 and far(loss, expected) < 1e-10


def test_the_experts_balance_is_added_for_every_target() -> None:
    model, batch = random_model(DECODER.replace(experts=Experts(n_experts=4, per_token=2, d_expert=8))), a_batch()
    plain, count = batch_loss(model, batch)
    loss, _ = batch_loss(model, batch, balance=0.5)
    with watching(model, "*.routes", "*.router.scores") as seen:
        model(batch.tokens, mask=batch.mask)
    layers = [f"decoder.layers.{i}.ffn" for i in range(2)]
    each = [balance_loss(seen[f"{at}.router.scores"], seen[f"{at}.routes"], batch.mask) for at in layers]
    assert far(loss, plain + 0.5 * count * torch.stack(each).mean()) < 1e-10
    name = "decoder.layers.1.ffn.router.weight"
    assert far(gradients(model, loss)[name], gradients(model, batch_loss(model, batch)[0])[name]) > 1e-3
    with pytest.raises(ValueError, match="balance: the model has no experts"):
        batch_loss(random_model(DECODER), batch, balance=0.1)


@pytest.mark.parametrize("wrong", [(ENCODER, "vocabulary"), (DECODER, "classes"), (DECODER, "rows")])
def test_a_head_that_does_not_answer_is_refused(wrong: tuple[Architecture, Any]) -> None:
    with pytest.raises(ValueError, match=f"does not answer a batch with targets of {wrong[1]}"):
        batch_loss(random_model(wrong[0]), replace(a_batch(), against=wrong[1]))


class Sizes(TorchDispatchMode):
    """Of all that is made while it is on."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for x in made if isinstance(made, tuple | list) else (made,):
            self.largest = max(self.largest, x.numel() if isinstance(x, Tensor) else 0)
        return made


def test_logits_are_never_there_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "CHUNK", 1 << 14)
    model = random_model(DECODER.replace(vocab_size=4096), dtype=torch.float32)
    tokens = random_tokens(4, 200)
    with Sizes() as sizes:
        batch_loss(model, Batch(tokens=tokens, targets=tokens))[0].backward()
    assert sizes.largest == fused.LEAST * 4096 < 800 * 4096
