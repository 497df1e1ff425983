"""Experts against a loop over tokens that picks and multiplies one expert after the other, as the papers say it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from plait.architecture import Architecture
from plait.architecture import Experts as Spec
from plait.model import Transformer, watching
from plait.model.experts import Experts, balance_loss, load_balance
from plait.model.feedforward import ACTIVATIONS
from tests.models import far, random_model, random_tokens

SIZE: dict[str, Any] = {"vocab_size": 32, "d_model": 16, "n_heads": 2, "d_ff": 20, "n_decoder_layers": 2}
SPECS: dict[str, Spec] = {
    "softmax": Spec(n_experts=8, per_token=3, d_expert=5),
    "renormalised": Spec(n_experts=8, per_token=3, d_expert=5, renormalize=True),
    "softmax-topk": Spec(n_experts=8, per_token=3, d_expert=5, router="softmax_topk", router_bias=True),
    "sigmoid": Spec(n_experts=8, per_token=3, d_expert=5, router="sigmoid", routed_scale=2.5, renormalize=True),
    "groups": Spec(
        n_experts=12, per_token=4, d_expert=5, router="sigmoid", groups=4, top_groups=2, selection_bias=True
    ),
    "softmax-bias": Spec(n_experts=8, per_token=2, d_expert=5, selection_bias=True, renormalize=True),
    "shared": Spec(n_experts=8, per_token=2, d_expert=5, d_shared=7),
    "shared-gate": Spec(n_experts=8, per_token=2, d_expert=5, d_shared=7, shared_gate=True),
    "all": Spec(n_experts=4, per_token=4, d_expert=5),
}
over_specs = pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))


def made(spec: Spec, **knobs: Any) -> tuple[Architecture, Experts]:
    a = Architecture(**{**SIZE, "experts": spec, **knobs})
    part = random_model(a).get_submodule("decoder.layers.1.ffn")
    assert isinstance(part, Experts)
    return a, part


def picked(spec: Spec, part: Experts, x: Tensor) -> dict[int, float]:
    """The experts of one token ``(d,)``, by number, and what each counts."""
    logits = part.router.weight @ x + (0 if part.router.bias is None else part.router.bias)
    scores = (1 / (1 + torch.exp(-logits)) if spec.router == "sigmoid" else logits.exp() / logits.exp().sum()).tolist()
    judged = list(scores)
    if part.router.score_bias is not None:
        judged = [s + b for s, b in zip(scores, part.router.score_bias.tolist(), strict=True)]
    size = spec.n_experts // spec.groups
    groups = [list(range(g * size, (g + 1) * size)) for g in range(spec.groups)]
    worth = [sum(sorted(judged[e] for e in group)[-2:]) for group in groups]
    best = sorted(range(spec.groups), key=lambda g: -worth[g])[: spec.top_groups]
    reach = [e for g in best for e in groups[g]]
    chosen = sorted(reach, key=lambda e: -judged[e])[: spec.per_token]
    whole = sum(scores[e] for e in chosen) if spec.renormalize or spec.router == "softmax_topk" else 1.0
    return {e: spec.routed_scale * scores[e] / whole for e in chosen}


def network(a: Architecture, part: Any, x: Tensor, expert: int | None = None) -> Tensor:
    """One feed-forward network for one token, out of a layer's own matrices or of all experts'."""

    def linear(name: str, y: Tensor) -> Tensor:
        weight, bias = getattr(part, name).weight, getattr(part, name).bias
        weight, bias = (weight, bias) if expert is None else (weight[expert], None if bias is None else bias[expert])
        return weight @ y + (0 if bias is None else bias)

    up, act = linear("up", x), ACTIVATIONS[a.activation]
    if not a.gated:
        return linear("down", act(up))
    gate = linear("gate", x)
    if a.glu_limit is not None:
        gate, up = gate.clamp(max=a.glu_limit), up.clamp(-a.glu_limit, a.glu_limit)
    return linear("down", act(gate) * (up + a.glu_offset))


def one_by_one(a: Architecture, spec: Spec, part: Experts, x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    for row in range(len(x)):
        for expert, weight in picked(spec, part, x[row]).items():
            y[row] += weight * network(a, part.experts, x[row], expert)
        if part.shared is not None:
            gate = 1.0 if part.shared_gate is None else torch.sigmoid(part.shared_gate.weight @ x[row])
            y[row] += gate * network(a, part.shared, x[row])
    return y


KNOBS: dict[str, dict[str, Any]] = {
    "plain": {"activation": "gelu"},
    "gated": {"gated": True, "activation": "silu", "ffn_bias": False},
    "limited": {"gated": True, "activation": "quick_gelu", "glu_limit": 0.4, "glu_offset": 1.0},
}


@over_specs
@pytest.mark.parametrize("knobs", KNOBS.values(), ids=list(KNOBS))
def test_experts_are_a_loop_over_tokens(spec: Spec, knobs: dict[str, Any]) -> None:
    a, part = made(spec, **knobs)
    x = torch.randn(3, 50, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    expected = one_by_one(a, spec, part, x.flatten(0, 1)).view_as(x)
    assert far(part(x), expected) < 1e-12
    with torch.no_grad():  # on a CPU one expert after the other
        assert part._in_turn(x, 150 * spec.per_token)
        assert far(part(x), expected) < 1e-12


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 9), st.integers(0, 12))
def test_any_number_of_tokens_and_experts(seed: int, n_experts: int, per_token: int, tokens: int) -> None:
    """Experts without a token too."""
    spec = Spec(n_experts=max(n_experts, per_token), per_token=per_token, d_expert=3)
    a, part = made(spec, gated=bool(seed % 2))
    x = torch.randn(1, tokens, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    assert far(part(x)[0], one_by_one(a, spec, part, x[0])) < 1e-12


@over_specs
def test_gradients_are_those_of_the_loop(spec: Spec) -> None:
    a, part = made(spec, gated=True, activation="silu")
    x = torch.randn(1, 20, 16, dtype=torch.float64).requires_grad_()
    pull = torch.randn(20, 16, dtype=torch.float64)
    inputs = [x, *(p for name, p in part.named_parameters() if name != "router.score_bias")]
    grads = torch.autograd.grad((part(x)[0] * pull).sum(), inputs)
    # the weights of the loop are floats: its gradient reaches the router through the dense formulation alone
    routes = dense_routes(spec, part, x)
    every = torch.stack(
        [torch.stack([network(a, part.experts, row, e) for e in range(spec.n_experts)]) for row in x[0]]
    )
    y = (routes.unsqueeze(-1) * every).sum(1)
    if part.shared is not None:
        gate = 1.0 if part.shared_gate is None else part.shared_gate(x[0]).sigmoid()
        y = y + gate * part.shared(x[0])
    for mine, theirs in zip(grads, torch.autograd.grad((y * pull).sum(), inputs, materialize_grads=True), strict=True):
        assert far(mine, theirs) < 1e-10


def dense_routes(spec: Spec, part: Experts, x: Tensor) -> Tensor:
    """``(n, e)`` from the picks of the loop, differentiable."""
    logits = part.router.weight @ x[0].T + (0 if part.router.bias is None else part.router.bias[:, None])
    scores = (logits.sigmoid() if spec.router == "sigmoid" else logits.softmax(0)).T
    mask = torch.zeros_like(scores)
    for row in range(len(mask)):
        mask[row, list(picked(spec, part, x[0, row].detach()))] = 1
    kept = scores * mask
    whole = kept.sum(-1, keepdim=True) if spec.renormalize or spec.router == "softmax_topk" else 1.0
    return spec.routed_scale * kept / whole


def test_of_equals_the_first_experts_are_picked() -> None:
    _, part = made(Spec(n_experts=64, per_token=3, d_expert=4))
    with torch.no_grad():
        part.router.weight.zero_()
    assert part.router(torch.randn(1, 5, 16, dtype=torch.float64))[1].tolist() == [[[0, 1, 2]] * 5]


def test_routing_is_done_in_float32_at_least() -> None:
    """Two experts that differ by less than bfloat16 can tell."""
    _, part = made(Spec(n_experts=2, per_token=1, d_expert=4))
    part = part.bfloat16()
    with torch.no_grad():
        part.router.weight.fill_(1.0)
        part.router.weight[1, 0] = 1.0078125  # the next number in bfloat16
    x = torch.ones(1, 1, 16, dtype=torch.bfloat16)
    weights, chosen = part.router(x)
    assert weights.dtype == torch.float32 and chosen.item() == 1 and part(x).dtype == torch.bfloat16


def test_routes_and_what_fires_are_seen_and_changed() -> None:
    a, part = made(SPECS["softmax"], gated=True, activation="silu")
    model = random_model(a)
    tokens, at = random_tokens(2, 6), "decoder.layers.1.ffn"
    with watching(model, f"{at}.*") as seen:
        model(tokens)
    routes = seen[f"{at}.routes"]
    assert routes.shape == (2, 6, 8) and ((routes != 0).sum(-1) == 3).all()
    assert seen[f"{at}.hidden"].shape == seen[f"{at}.activation"].shape == (2, 6, 3, 5)
    assert far(seen[f"{at}.router.scores"].sum(-1), torch.ones(2, 6).double()) < 1e-12
    # slot j is the token's j-th expert by number
    x = torch.randn(1, 4, 16, dtype=torch.float64)
    with watching(part, "routes", "hidden") as inner:
        part(x)
    for row in range(4):
        for slot, expert in enumerate(inner["routes"][0, row].nonzero()[:, 0].tolist()):
            gate = part.experts.gate
            assert gate is not None and gate.bias is not None
            assert far(inner["hidden"][0, row, slot], gate.weight[expert] @ x[0, row] + gate.bias[expert]) < 1e-12
    # a token may be sent to other experts, to more, or to none
    everywhere = torch.rand(1, 4, 8, dtype=torch.float64)
    everywhere[0, 1] = 0
    everywhere[0, 2, 3:] = 0
    y = x
    with watching(part, "routes", change=lambda name, value: everywhere):
        y = part(x)[0]
    for row in range(4):
        made_ = [everywhere[0, row, e] * network(a, part.experts, x[0, row], e) for e in range(8)]
        assert far(y[row], torch.stack(made_).sum(0)) < 1e-12


def test_the_spread_of_work_and_its_loss() -> None:
    """By hand: two experts, four tokens, three of which go to the first; Fedus et al. 2022, eq. 4."""
    scores = torch.tensor([[[0.75, 0.25], [0.75, 0.25], [0.5, 0.5], [0.0, 1.0]]])
    routes = torch.tensor([[[0.75, 0.0], [0.75, 0.0], [0.5, 0.0], [0.0, 1.0]]])
    share, score = load_balance(scores, routes)
    assert share.tolist() == [0.75, 0.25] and score.tolist() == [0.5, 0.5]
    assert float(balance_loss(scores, routes)) == 2 * (0.75 * 0.5 + 0.25 * 0.5)
    real = torch.tensor([[True, True, False, False]])
    assert [t.tolist() for t in load_balance(scores, routes, real)] == [[1.0, 0.0], [0.75, 0.25]]
    assert float(balance_loss(scores, routes, real)) == 1.5


def test_the_loss_spreads_the_work() -> None:
    a = Architecture(**{**SIZE, "experts": Spec(n_experts=4, per_token=1, d_expert=8), "n_decoder_layers": 1})
    model, tokens = Transformer(a), random_tokens(4, 16)
    router = model.get_parameter("decoder.layers.0.ffn.router.weight")
    with torch.no_grad():
        router[0] += 3 * torch.randn(16, generator=torch.Generator().manual_seed(0))
    at = "decoder.layers.0.ffn"
    losses = []
    for _ in range(100):
        with watching(model, f"{at}.router.scores", f"{at}.routes", gradients=True) as seen:
            model(tokens)
        loss = balance_loss(seen[f"{at}.router.scores"], seen[f"{at}.routes"])
        losses.append(loss.item())
        (grad,) = torch.autograd.grad(loss, [router])
        with torch.no_grad():
            router -= 1.0 * grad
    assert losses[0] > 1.1 and losses[-1] < 1.05
