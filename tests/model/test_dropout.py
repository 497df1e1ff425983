"""Dropout: where it acts, how much it leaves out, that its draws come again, and that without it nothing is changed."""

from __future__ import annotations

import pytest
import torch

from plait.architecture import Experts
from plait.model import watching
from plait.model.dropout import POOL, Dropout, set_dropout
from plait.model.sites import Part
from tests.laws.test_law4_watching import DECODER, graph_of
from tests.models import far, random_model, random_source, random_tokens

BOTH = DECODER.replace(n_encoder_layers=1, position="none", norm="layernorm", activation="gelu")


def zeros(x: torch.Tensor) -> float:
    return float((x == 0).float().mean())


@pytest.mark.parametrize("kind", ["residual", "attention", "activation"])
def test_each_kind_acts_where_it_should_and_nowhere_else(kind: str) -> None:
    model = random_model(BOTH.replace(d_model=48, vocab_size=64)).train()
    tokens, source = random_tokens(8, 12), random_source(BOTH, 8, 12)
    del source["source_mask"]
    set_dropout(model, **{kind: 0.4})
    with watching(model, "*") as seen:
        model(tokens, **source)
    of = {"residual": ("embedding.output", "_branch"), "attention": ("pattern",), "activation": ("ffn.activation",)}
    whole = {"decoder.layers.0.attention.pattern", "decoder.layers.1.attention.pattern"}  # causal: zeros of its own
    for name in set(seen) - whole:
        left_out = zeros(seen[name])
        if not name.endswith(of[kind]):
            assert left_out < 0.2, f"{name} should be whole"
        elif not name.endswith("pattern"):
            assert abs(left_out - 0.4) < 0.06, name
    assert zeros(seen["decoder.layers.0.cross.pattern"]) == pytest.approx(0.4 if kind == "attention" else 0, abs=0.06)


def test_what_stays_is_scaled_up_and_attention_without_sites_drops_as_watched() -> None:
    model = random_model(DECODER).train()
    tokens = random_tokens(2, 9)
    set_dropout(model, attention=0.5)
    torch.manual_seed(3)
    plain = model(tokens)
    torch.manual_seed(3)
    with watching(model, "*.pattern", "logits") as seen:
        model(tokens)
    assert far(seen["logits"], plain) < 1e-12
    model.eval()
    with watching(model, "*.pattern") as whole:
        model(tokens)
    name = "decoder.layers.0.attention.pattern"
    kept = seen[name] != 0
    assert far(seen[name][kept], 2 * whole[name][kept]) < 1e-12 and 0.3 < kept.float().mean() / 0.556 < 0.7


def test_experts_drop_their_activations() -> None:
    model = random_model(
        DECODER.replace(activation="gelu", experts=Experts(n_experts=4, per_token=2, d_expert=64))
    ).train()
    set_dropout(model, activation=0.4)
    with watching(model, "*.ffn.activation") as seen:
        model(random_tokens(4, 9))
    assert all(abs(zeros(value) - 0.4) < 0.06 for value in seen.values())


@pytest.mark.parametrize("size", [7, 100_000, POOL + 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_share_is_left_out_the_mean_stays_and_every_call_draws_anew(size: int, dtype: torch.dtype) -> None:
    x, drop = torch.ones(size, dtype=dtype), Dropout(0.25)
    once, twice = drop(x), drop(x)
    assert set(once.unique().tolist()) <= {0.0, float(torch.tensor(1 / 0.75, dtype=dtype))}
    if size > 7:
        assert float(once.double().mean()) == pytest.approx(1.0, abs=0.01)
        both = float(((once == 0) & (twice == 0)).float().mean())
        assert both == pytest.approx(0.0625, abs=0.01), "two masks have nothing to do with each other"


def test_gradients_go_where_values_went() -> None:
    x = torch.randn(1000, requires_grad=True)
    y = Dropout(0.3)(x)
    y.sum().backward()
    assert x.grad is not None and torch.equal(x.grad != 0, y != 0)


def test_the_generators_state_put_back_repeats_every_draw() -> None:
    model = random_model(BOTH, dtype=torch.float32).train()
    tokens, source = random_tokens(2, 9), random_source(BOTH, 2)
    set_dropout(model, residual=0.2, attention=0.2, activation=0.2)
    state = torch.get_rng_state()
    first, other = model(tokens, **source), model(tokens, **source)
    torch.set_rng_state(state)
    assert torch.equal(model(tokens, **source), first) and not torch.equal(first, other)


def test_tr22_nothing_is_dropped_in_evaluation() -> None:
    model = random_model(BOTH, dtype=torch.float32)
    tokens, source = random_tokens(2, 9), random_source(BOTH, 2)
    before = model(tokens, **source)
    set_dropout(model, residual=0.5, attention=0.5, activation=0.5)
    state = torch.get_rng_state()
    assert torch.equal(model(tokens, **source), before) and torch.equal(model(tokens, **source), before)
    assert torch.equal(torch.get_rng_state(), state), "evaluation draws nothing"
    assert not torch.equal(model.train()(tokens, **source), before)
    set_dropout(model)
    assert torch.equal(model(tokens, **source), before), "taken off again"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's compiler, about itself
def test_without_dropout_the_compiled_graph_is_as_if_there_were_none(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = random_model(DECODER.replace(n_decoder_layers=1)).train(), random_tokens(1, 5)
    set_dropout(model)
    off = graph_of(model, tokens)
    set_dropout(model, residual=0.5, attention=0.5, activation=0.5)
    on, evaluated = graph_of(model, tokens), graph_of(model.eval(), tokens)
    set_dropout(model.train())
    monkeypatch.setattr(Part, "drop", lambda self, value: value)
    assert off == evaluated == graph_of(model, tokens) and len(on) > len(off)


def test_attention_in_the_open_is_the_fused_one() -> None:
    """On a CPU training in bfloat16 multiplies matrices instead of asking the fused kernel."""
    a = BOTH.replace(attention_scale=0.3)
    model = random_model(a, dtype=torch.bfloat16)
    tokens, source = random_tokens(3, 9), random_source(a, 3)
    fused = model(tokens, **source)
    opened = model.train()(tokens, **source)
    assert not torch.equal(opened, fused) and far(opened.float(), fused.float()) < 0.06


def test_a_share_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"attention dropout: 1.0 is no share"):
        set_dropout(random_model(DECODER), attention=1.0)
