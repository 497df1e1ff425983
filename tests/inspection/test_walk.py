"""The walk: every formula it tells gives the pass's own numbers, for every kind of Transformer."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from plait.architecture import Architecture, Experts, LayerType, SharedLayers
from plait.checkpoint import Checkpoint
from plait.checkpoint.pooling import SentencePooling
from plait.generation.embed import embed
from plait.inspection import InspectionError
from plait.inspection.walk import Choice, Slot, Step, Sum, Walk, walk
from plait.model import watching
from tests.inspection.making import made, reading
from tests.models import random_model
from tests.strategies import NAMED_GRID, over_grid

SIZE: dict[str, Any] = {"vocab_size": 32, "d_model": 16, "n_heads": 6, "n_kv_heads": 3, "d_head": 4, "d_ff": 20}
DECODER = Architecture(**SIZE, n_decoder_layers=3, position="rope")


def told(architecture: Architecture) -> Walk:
    return walk(made(architecture), reading(architecture))


def step_of(choice: Choice, name: str) -> Step:
    (step,) = [step for step in choice.steps if step.name == name]
    choice.begin(step)
    return step


def places(step: Step) -> list[str]:
    """Every place that a step speaks of."""
    slots = [*step.slots.values(), *(slot for one in step.formulas for slot in one.slots.values())]
    found = [slot.at for slot in slots if isinstance(slot, Slot) and "[" in slot.at and slot.form != "text"]
    found += [place for slot in slots if isinstance(slot, Sum) for place in (slot.left, slot.right)]
    found += [view.at for view in step.views if view.at] + [place for place in step.starts.values()]
    return [*found, *([f"{step.check}[]"] if step.check else [])]


@over_grid
def test_what_formulas_give_is_what_the_pass_has(architecture: Architecture) -> None:
    walked = told(architecture)
    checks = {name: float(value) for name, value in walked.arrays.items() if name.endswith(".off")}
    assert checks and max(checks.values()) < 1e-9, {name: off for name, off in checks.items() if not off < 1e-9}
    for tower in walked.towers:
        steps = tower.steps(0)
        checked = {step.name.rpartition(".")[2] for step in steps if step.check}
        assert checked >= {"pattern", "mix", "activation"}
        assert any(step.check for step in tower.before)
        assert any(step.check for step in steps if step.title in ("join_title", "merge_title"))


@pytest.mark.parametrize("site", ["pattern", "mix", "scores", "queries"])
def test_a_pass_that_does_otherwise_than_is_told_is_found_out(site: str) -> None:
    checkpoint = made(DECODER)
    with watching(checkpoint.model, f"decoder.layers.1.attention.{site}", change=lambda _, value: 2 * value + 1):
        walked = walk(checkpoint, reading(DECODER))
    off = {name for name, value in walked.arrays.items() if name.endswith(".off") and float(value) > 0.01}
    told_of = {"queries": "rotation"}.get(site, site)
    assert off == {f"decoder.layers.1.attention.told.{told_of}.off"}


@over_grid
def test_every_place_that_a_step_speaks_of_is_there(architecture: Architecture) -> None:
    walked = told(architecture)
    for tower in walked.towers:
        for layer in range(len(tower.layers)):
            choice = Choice(walked, tower, layer=layer, head=tower.n_heads - 1)
            assert len({step.name for step in choice.steps}) == len(choice.steps)
            for step in choice.steps:
                choice.begin(step)
                for place in places(step):
                    assert torch.isfinite(choice.at(place)).all() or "masked" in place, place


@pytest.mark.parametrize("name", ["encoder-decoder-buckets-pre", "qk-norm-head", "experts-shared", "parallel-separate"])
def test_projections_are_of_the_rows_that_are_shown(name: str) -> None:
    """Products of whole rows add up to the number that a formula ends with, and what is shown of a row is its own."""
    architecture = NAMED_GRID[name]
    walked = told(architecture)
    model = walked.trace.model
    for tower in walked.towers:
        stack = model.decoder if tower.name == "decoder" else model.encoder
        assert stack is not None
        attention = stack.blocks[0].attention
        choice = Choice(walked, tower, layer=0, head=4)
        step = step_of(choice, "attention.projections")
        choice.variables["e"] = 2
        for letter, linear, head in (("q", attention.query, 4), ("k", attention.key, 4 // tower.group)):
            (formula,) = [one for one in step.formulas if one.symbols.startswith(letter)]
            total, y = formula.slots["sum"], formula.slots["y"]
            assert isinstance(total, Sum) and isinstance(y, Slot)
            row = linear.weight.detach()[head * attention.d_head + 2]
            assert torch.equal(choice.at(total.right), row[[0, 1, -1]]) and total.of == len(row)
            bias = 0.0 if linear.bias is None else float(linear.bias.detach()[head * attention.d_head + 2])
            whole = float(choice.at(total.left) @ row) + bias
            assert whole == pytest.approx(float(choice.at(y.at)), abs=1e-9)


def test_a_score_is_the_sum_that_is_shown() -> None:
    walked = told(DECODER)
    choice = Choice(walked, walked.towers[0], layer=2, head=5, position=3)
    step = step_of(choice, "attention.scores")
    total, scale, y = (step.formulas[0].slots[name] for name in ("sum", "scale", "y"))
    assert isinstance(total, Sum) and isinstance(y, Slot) and isinstance(scale, float)
    queries, keys = walked.trace["decoder.layers.2.attention.queries"], walked.trace["decoder.layers.2.attention.keys"]
    k = choice.variables["k"]
    assert torch.equal(choice.at(total.left), queries[5, 3]) and torch.equal(choice.at(total.right), keys[2, k])
    assert scale == 0.5 and float(queries[5, 3] @ keys[2, k] * scale) == pytest.approx(float(choice.at(y.at)))
    assert k == int(walked.trace["decoder.layers.2.attention.pattern"][5, 3].argmax())


@pytest.mark.parametrize(
    ("layer_types", "layer", "hidden"),
    [
        ((), 0, [3, 4, 5, 6]),
        ((LayerType(window=2), LayerType()), 0, [0, 3, 4, 5, 6]),
        ((LayerType(window=2), LayerType()), 1, [3, 4, 5, 6]),
    ],
)
def test_the_mask_hides_what_the_model_does_not_see(layer_types: Any, layer: int, hidden: list[int]) -> None:
    walked = told(DECODER.replace(layer_types=layer_types))
    choice = Choice(walked, walked.towers[0], layer=layer, position=2)
    step = step_of(choice, "attention.mask")
    unseen = step.slots["unseen"]
    assert isinstance(unseen, Slot)
    assert [i for i, seen in enumerate(choice.at(unseen.at).tolist()) if not seen] == hidden
    assert (walked.trace[f"decoder.layers.{layer}.attention.pattern"][:, 2, hidden] == 0).all()


def test_the_likeliest_answers_are_the_models() -> None:
    walked = told(DECODER)
    choice = Choice(walked, walked.towers[0], position=-1)
    step_of(choice, "probabilities")
    shares = walked.trace.output.softmax(-1)[-1]
    best = shares.topk(10)
    assert torch.allclose(choice.at("decoder.probabilities[p *]"), best.values)
    assert choice.text("decoder.answers[p *]") == [str(id) for id in best.indices.tolist()]


def test_sizes_of_the_stream_are_the_traces() -> None:
    walked = told(DECODER)
    choice = Choice(walked, walked.towers[0], position=4)
    view = step_of(choice, "layers").views[0]
    layers = [f"decoder.layers.{layer}" for layer in range(3)]
    stream = ["embedding.output", *(f"{layer}.output" for layer in layers)]
    assert torch.equal(choice.at(view.more["stream"]), torch.stack([walked.trace[name][4].norm() for name in stream]))
    added = [walked.trace[f"{layer}.ffn_branch"][4].norm() for layer in layers]
    assert torch.equal(choice.at(view.more["ffn"]), torch.stack(added))
    says = choice.text(view.more["says"])
    assert says[-1] == str(int(walked.trace.output[4].argmax())) and len(says) == 4


def test_cross_attention_looks_at_the_sources_tokens() -> None:
    walked = told(Architecture(**SIZE, n_encoder_layers=2, n_decoder_layers=2, position="learned", max_length=20))
    encoder, decoder = walked.towers
    assert encoder.tokens == walked.trace.reading.source_texts and decoder.tokens == walked.trace.reading.texts
    choice = Choice(walked, decoder, layer=1, head=2)
    step = step_of(choice, "cross.pattern")
    assert choice.seen(step) == encoder.tokens
    assert torch.equal(choice.at(step.views[0].at), walked.trace["decoder.layers.1.cross.pattern"][2])
    assert encoder.after[-1].name == "memory" and decoder.after[-1].name == "probabilities"
    assert decoder.before[0].says[0] == "written_says"


@pytest.mark.parametrize("normalize", [True, False])
def test_without_a_head_the_text_becomes_the_vector_that_embed_gives(normalize: bool) -> None:
    architecture = Architecture(**SIZE, n_encoder_layers=2, position="learned", max_length=20, head=None)
    pooling = SentencePooling(pooling="mean", normalize=normalize)
    checkpoint = Checkpoint(architecture=architecture, model=random_model(architecture), pooling=pooling)
    asked = reading(architecture)
    walked = walk(checkpoint, asked)
    last = walked.arrays["encoder.head.unit" if normalize else "encoder.head.pooled"]
    assert torch.allclose(last.float(), embed(checkpoint, asked.tokens[0].tolist())[0])


def test_layers_that_share_weights_are_told_apart() -> None:
    shared = Architecture(**SIZE, n_encoder_layers=4, head="masked", shared_layers=SharedLayers())
    walked = told(shared)
    patterns = [walked.arrays[f"encoder.layers.{turn}.attention.pattern"] for turn in range(4)]
    assert len(walked.towers[0].layers) == 4 and not torch.equal(patterns[0], patterns[3])


def test_a_token_shows_the_experts_it_takes() -> None:
    experts = Experts(n_experts=6, per_token=2, d_expert=10, renormalize=True)
    walked = told(DECODER.replace(experts=experts))
    choice = Choice(walked, walked.towers[0], layer=1, position=3)
    step = step_of(choice, "ffn.routes")
    routes = walked.trace["decoder.layers.1.ffn.routes"][3]
    names = [int(name) for name in choice.text("decoder.layers.1.ffn.numbers[p *]")]
    assert names == routes.nonzero()[:, 0].tolist()
    assert torch.equal(choice.at(step.views[1].at), routes[names])
    assert choice.variables["s"] == int(routes[names].argmax())


@pytest.mark.parametrize(
    "name", ["encoder-decoder-buckets-pre", "decoder-rope-pre", "experts-shared-gate", "classes-norm"]
)
def test_a_single_token_and_half_precision_are_told_too(name: str) -> None:
    architecture = NAMED_GRID.get(name, DECODER)
    single = walk(made(architecture), reading(architecture, n=1, m=1))
    assert all(len(tower.tokens) == 1 for tower in single.towers)
    model = random_model(architecture, dtype=torch.bfloat16)
    halved = walk(Checkpoint(architecture=architecture, model=model), reading(architecture))
    checks = [float(value) for key, value in halved.arrays.items() if key.endswith(".off")]
    assert max(checks) < 0.05 and {value.dtype for value in halved.arrays.values()} == {torch.float32}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"layer": 3}, "layer: 3, and the decoder has layers 0 to 2"),
        ({"layer": -1}, "layer: -1"),
        ({"head": 6}, "head: 6, and the decoder has heads 0 to 5"),
        ({"position": 7}, "position: 7, and the decoder reads 7 tokens"),
    ],
)
def test_what_there_is_not_cannot_be_chosen(asked: dict[str, int], said: str) -> None:
    walked = told(DECODER)
    with pytest.raises(InspectionError, match=said):
        Choice(walked, walked.towers[0], **asked)
