"""Law 4: watching nothing is bitwise the same; watched = unwatched; a value patched with itself changes nothing."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given

from plait.architecture import Architecture, Experts
from plait.model import Part, Transformer, site_names, watching
from tests.models import far, random_model, random_source, random_tokens
from tests.strategies import architectures, over_grid


def check_watching(architecture: Architecture) -> None:
    model = random_model(architecture)
    tokens, source = random_tokens(2, 7), random_source(architecture, 2)
    before = model(tokens, **source)
    with watching(model, "*") as seen:
        watched = model(tokens, **source)
    assert far(watched, before) < 1e-9
    assert set(seen) == set(site_names(model)), "a site that never fires"
    with watching(model, "*", change=lambda name, value: seen[name]):
        assert far(model(tokens, **source), watched) < 1e-12
    assert torch.equal(model(tokens, **source), before)
    assert not any(hasattr(part, "_watchers") and part._watchers for part in model.modules())


@over_grid
def test_law4_watched_is_unwatched(architecture: Architecture) -> None:
    check_watching(architecture)


@given(architecture=architectures())
def test_law4_watched_is_unwatched_anywhere(architecture: Architecture) -> None:
    check_watching(architecture)


DECODER = Architecture(
    vocab_size=32,
    d_model=16,
    n_heads=6,
    n_kv_heads=3,
    d_head=4,
    d_ff=20,
    n_decoder_layers=2,
    position="rope",
    norm="rmsnorm",
)


def graph_of(model: Transformer, tokens: torch.Tensor) -> list[tuple[str, str]]:
    """The operations that torch's compiler sees, in order."""
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    torch.compile(model, backend=keep)(tokens)
    assert len(graphs) == 1, "the model must compile as one graph"
    return [(node.op, str(node.target)) for node in graphs[0].graph.nodes]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's compiler, about itself
@pytest.mark.parametrize("experts", [None, Experts(n_experts=4, per_token=2, d_expert=8)], ids=["dense", "experts"])
def test_law4_the_compiled_graph_is_as_without_sites(monkeypatch: pytest.MonkeyPatch, experts: Experts | None) -> None:
    model, tokens = random_model(DECODER.replace(experts=experts)), random_tokens(1, 5)
    with_sites = graph_of(model, tokens)
    monkeypatch.setattr(Part, "site", lambda self, name, value: value)
    monkeypatch.setattr(Part, "watched", lambda self, *names: False)
    without = graph_of(model, tokens)
    assert with_sites == without and len(without) > 30


def test_a_changed_value_is_what_the_forward_goes_on_with() -> None:
    model, tokens = random_model(DECODER), random_tokens(1, 5)
    site = "decoder.layers.0.ffn_branch"
    with watching(model, site, change=lambda name, value: torch.zeros_like(value)) as seen:
        changed = model(tokens)
    assert not seen[site].any() and far(changed, model(tokens)) > 1e-3


def test_gradients_reach_inner_values() -> None:
    model, tokens = random_model(DECODER), random_tokens(1, 5)
    with watching(model, "decoder.layers.*.output", gradients=True) as seen:
        model(tokens)[0, -1].max().backward()
        deep = seen.gradient("decoder.layers.0.output")
    assert deep.shape == (1, 5, 16) and deep.abs().sum() > 0
    step = 1e-6
    with watching(model, "decoder.layers.0.output", change=lambda name, value: value + step * deep):
        moved = model(tokens)[0, -1].max()
    gained = (moved - model(tokens)[0, -1].max()).detach()
    assert float(gained) / step == pytest.approx(float(deep.square().sum()), rel=1e-3)


def test_stopping_early_computes_nothing_behind() -> None:
    model, tokens = random_model(DECODER), random_tokens(1, 5)
    ran: list[str] = []
    model.decoder.layers[1].register_forward_hook(lambda *_: ran.append("layer 1"))
    with watching(model, "decoder.layers.0.output", stop_after="decoder.layers.0.output") as seen:
        model(tokens)
    assert list(seen) == ["decoder.layers.0.output"] and not ran


def test_an_unknown_site_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"decoder.layers.0.atention.pattern.*decoder.layers.0.attention.pattern"):
        watching(random_model(DECODER), "decoder.layers.0.atention.pattern")


def test_in6_watchers_go_after_an_exception_and_leave_others_alone() -> None:
    model, tokens = random_model(DECODER), random_tokens(1, 5)
    before = model(tokens)
    with watching(model, "decoder.output") as outer:
        with pytest.raises(RuntimeError, match="inside"):
            with watching(model, "*", change=lambda name, value: (_ for _ in ()).throw(RuntimeError("inside"))):
                model(tokens)
        model(tokens)
        assert list(outer) == ["decoder.output"]
    assert torch.equal(model(tokens), before)


def test_in7_what_was_seen_does_not_change_later() -> None:
    model, tokens = random_model(DECODER), random_tokens(1, 5)
    with watching(model, "embedding.output") as seen, torch.no_grad():
        model(tokens)
        kept = seen["embedding.output"].clone()
        model.embedding.tokens.weight.mul_(2)
    assert torch.equal(seen["embedding.output"], kept)


def test_an_inner_stop_does_not_end_the_outer_block_nor_the_other_way_round() -> None:
    model, tokens, reached = random_model(DECODER), random_tokens(1, 5), []
    with watching(model, "decoder.layers.1.output", stop_after="decoder.layers.0.output"):
        with watching(model, "embedding.output", stop_after="decoder.output"):
            model(tokens)
        reached.append("the outer block went on")
    assert not reached
    with watching(model, "decoder.output") as outer:
        with watching(model, stop_after="embedding.output"):
            model(tokens)
        reached.append("the inner stop ended the inner block")
        model(tokens)
    assert reached and "decoder.output" in outer


def test_a_pass_in_another_thread_is_neither_seen_nor_stopped() -> None:
    model, tokens = random_model(DECODER), random_tokens(1, 5)
    expected, got = model(tokens), []
    with watching(model, "*", stop_after="embedding.output", change=lambda name, value: value * 0) as seen:
        other = threading.Thread(target=lambda: got.append(model(tokens)))
        other.start()
        other.join()
    assert len(got) == 1 and torch.equal(got[0], expected) and not seen


def test_a_change_of_another_shape_and_a_watch_of_nothing_are_refused() -> None:
    model, tokens = random_model(DECODER), random_tokens(1, 5)
    with pytest.raises(ValueError, match=r"attention.pattern: .* \(1, 6, 5, 5\), and was changed to \(1, 1, 5, 5\)"):
        with watching(model, "decoder.layers.0.attention.pattern", change=lambda name, value: value[:, :1]):
            model(tokens)
    with pytest.raises(ValueError, match="needs the names of sites"):
        watching(model)
