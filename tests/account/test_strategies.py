"""The grid leaves out no knob, and the strategy draws only what can be built."""

import dataclasses
from itertools import combinations
from typing import get_args

import pytest
from hypothesis import Phase, given, settings

from plait import architecture as vocabulary
from plait import organs
from plait.architecture import Alibi, Architecture, Classification, Experts, Pooling, Rope
from tests.strategies import FIELDS, GRID, architectures, values_of


@pytest.mark.parametrize(
    "field", [name for name in FIELDS if name not in ("vocab_size", "d_model", "max_length", "d_ff")]
)
def test_every_knob_is_turned(field):
    assert len(values_of(field)) > 1


@pytest.mark.parametrize(
    ("field", "choices"),
    [
        ("norm", vocabulary.Norm),
        ("norm_weight", vocabulary.NormWeight),
        ("norm_placement", vocabulary.NormPlacement),
        ("parallel", vocabulary.Parallel),
        ("position", vocabulary.PositionKind),
        ("activation", vocabulary.Activation),
        ("qk_norm", vocabulary.QKNorm),
    ],
)
def test_every_choice_occurs(field, choices):
    assert set(get_args(choices)) <= values_of(field)


def test_every_rope_scaling_occurs():
    kinds = {a.rope.scaling.kind for a in GRID if a.rope is not None and a.rope.scaling is not None}
    assert kinds == set(get_args(organs.ScalingKind))


def test_every_pair_of_position_placement_and_kind_occurs():
    def coordinates(a: Architecture) -> dict[str, str]:
        position = a.position if a.relative_bias is None else "buckets"
        return {"position": position, "placement": a.norm_placement, "kind": a.kind}

    rows = [coordinates(a) for a in GRID]
    for x, y in combinations(("position", "placement", "kind"), 2):
        wanted = {(p[x], q[y]) for p in rows for q in rows}
        assert {(row[x], row[y]) for row in rows} == wanted


def test_layer_types_have_windows_no_rotation_and_their_own():
    kinds = [kind for a in GRID for kind in a.layer_types]
    assert any(kind.window for kind in kinds)
    assert any(kind.rope is None for kind in kinds)
    assert any(isinstance(kind.rope, Rope) for kind in kinds)


@given(architectures())
def test_drawn_architectures_survive_their_written_form(architecture):
    assert Architecture.from_dict(architecture.to_dict()) == architecture
    assert dataclasses.replace(architecture) == architecture


def test_the_strategy_draws_what_the_grid_has():
    drawn: list[Architecture] = []

    @settings(max_examples=250, phases=[Phase.generate], derandomize=True, database=None)
    @given(architectures())
    def draw(architecture):
        drawn.append(architecture)

    draw()
    sizes = {"vocab_size", "d_model", "max_length", "d_ff", "n_heads", "d_head", "n_decoder_layers"}
    for field in set(FIELDS) - sizes:
        assert len({getattr(a, field) for a in drawn}) > 1, field
    assert {a.ffn_bias for a in drawn} == {True, False, "down"}
    assert {a.alibi for a in drawn} == {
        None,
        *(Alibi(scaled=s, rounded=r) for s in (True, False) for r in (True, False)),
    }
    heads = {(a.head.pooling, a.head.norm) for a in drawn if isinstance(a.head, Classification)}
    assert heads == {(pooling, norm) for pooling in (None, *get_args(Pooling)) for norm in (True, False)}
    experts = [a.experts for a in drawn if a.experts is not None]
    assert {e.router for e in experts} == {"softmax", "softmax_topk", "sigmoid"}
    for field in (f.name for f in dataclasses.fields(Experts) if f.name != "n_experts"):
        assert len({getattr(e, field) for e in experts}) > 1, field
    assert any(not kind.sparse for a in drawn for kind in a.layer_types)
