"""Scaled ropes: which number is read from where, checked against the reference library's own frequencies."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import pytest
import torch

from plait.architecture import RopeScaling
from plait.families import FamilyError, family_for
from plait.families.rope import _share

WIDTH = {"model_type": "llama", "hidden_size": 96, "num_attention_heads": 6, "max_position_embeddings": 64}


def scaling(table: dict[str, Any], **settings: Any) -> RopeScaling:
    config = WIDTH | settings | {"rope_parameters": {"rope_theta": 1e4, **table}}
    rope = family_for(config).architecture(config).rope
    assert rope is not None and rope.scaling is not None
    return rope.scaling


def test_po1_declared_scaling_is_applied() -> None:
    """Llama 3: dim 16, base 1e4, factor 8: the frequencies must be those of the formula, not the plain ones."""
    config = WIDTH | {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    }
    rope = family_for(config).architecture(config).rope
    assert rope is not None and rope.theta == 1e4
    assert rope.scaling == RopeScaling(
        kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_length=64
    )


@pytest.mark.parametrize("kind", ["su", "mrope", "proportional", "axial", "ntk", "Linear"])
def test_po1_unknown_scalings_are_refused(kind: str) -> None:
    for key in ("type", "rope_type"):
        with pytest.raises(FamilyError, match=f"rope_type: plait has no '{kind}' scaling; it has default, linear"):
            family_for(WIDTH).architecture(WIDTH | {"rope_scaling": {key: kind, "factor": 2.0}})


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "llama3", "longrope"])
def test_po1_a_number_that_scaling_needs(kind: str) -> None:
    lost = "short_factor" if kind == "longrope" else "factor"
    with pytest.raises(FamilyError, match=f"rope_parameters.{lost}: '{kind}' scaling needs this number"):
        scaling({"rope_type": kind})


@pytest.mark.parametrize("name", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("value", ["linear", ["linear", 2.0]])
def test_po1_what_is_no_table_is_refused(name: str, value: Any) -> None:
    with pytest.raises(FamilyError, match=f"{name}: .* is no table of parameters"):
        family_for(WIDTH).architecture(WIDTH | {name: value})


@pytest.mark.parametrize("kind", [["linear"], {"a": 1}, 7, True])
def test_po1_a_kind_is_a_word(kind: Any) -> None:
    for key in ("type", "rope_type"):
        config = WIDTH | {"rope_scaling": {key: kind, "factor": 2.0}}
        if not isinstance(kind, dict):
            with pytest.raises(FamilyError, match="rope_type: .* is no name of a scaling; plait has default, linear"):
                family_for(config).unread(config)
        with pytest.raises(FamilyError, match="rope_type: .* is no name|turns all layers alike"):
            family_for(config).architecture(config)


def test_original_lengths() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0}
    assert scaling(yarn).original_max_length == 64  # max_position_embeddings
    assert scaling(yarn | {"original_max_position_embeddings": 16}).original_max_length == 16
    above = {"original_max_position_embeddings": 24}
    assert scaling(yarn | {"original_max_position_embeddings": 16}, **above).original_max_length == 24
    assert scaling(yarn | {"factor": None, "original_max_position_embeddings": 16}).factor == 4.0
    dynamic = scaling({"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 16})
    assert dynamic.original_max_length == 64  # what the class looks at
    lists = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "original_max_position_embeddings": 16}
    assert scaling({"rope_type": "longrope", **lists}).factor == 4.0
    assert scaling({"rope_type": "longrope", "factor": 3.0, **lists}).factor == 3.0


def test_a_dynamic_rope_has_no_longest_row() -> None:
    config = WIDTH | {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}
    family = family_for(config)
    a = family.architecture(config)
    assert a.max_length is None
    assert family.config(a)["max_position_embeddings"] == 64


def test_zero_betas_are_taken_for_absent() -> None:
    assert scaling({"rope_type": "yarn", "factor": 4.0, "beta_fast": 0, "beta_slow": None}).beta_fast == 32.0


TABLES: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 3},
    {"rope_type": "dynamic", "factor": 3.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 3.0, "beta_slow": 0.5},
    {"rope_type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 1.3, "truncate": False, "beta_fast": 2.5},
    {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.7, "mscale": 0.7},
    {"rope_type": "longrope", "short_factor": [1.0 + i for i in range(8)], "long_factor": [2.0 + i for i in range(8)],
     "original_max_position_embeddings": 16},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 32},
]  # fmt: skip


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["rope_type"])
def test_frequencies_are_the_reference_ones(table: dict[str, Any], reference: ModuleType) -> None:
    from plait.model.position import attention_factor, inverse_frequencies

    table = {"rope_theta": 777.0, **table}
    config = WIDTH | {"rope_parameters": table}
    rope = family_for(config).architecture(config).rope
    assert rope is not None and rope.scaling is not None
    theirs = reference.LlamaConfig(**{k: v for k, v in config.items() if k != "model_type"})
    compute = reference.modeling_rope_utils.ROPE_INIT_FUNCTIONS[table["rope_type"]]
    for length in (10, 60, 90):
        expected, factor = compute(theirs, torch.device("cpu"), seq_len=length)
        ours = inverse_frequencies(rope, 16, torch.tensor([length]))[0]
        assert torch.allclose(ours, expected, rtol=1e-6, atol=0)
        assert math.isclose(attention_factor(rope.scaling), factor, rel_tol=1e-9)
    family = family_for(config)
    a = family.architecture(config)
    assert family.architecture(family.config(a)) == a


def test_partial_rotation() -> None:
    neox = {"model_type": "gpt_neox", "hidden_size": 96, "num_attention_heads": 6}
    dims = lambda config: family_for(config).architecture(config).rope.dim  # noqa: E731
    assert dims(neox) == 4  # a quarter, where nothing is said
    assert dims(neox | {"rotary_pct": 0.5}) == 8
    assert dims(neox | {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.75}}) == 12
    assert dims(neox | {"rotary_pct": 1.0}) is None
    assert dims(WIDTH | {"partial_rotary_factor": 0.5}) is None  # Llama's class turns whole heads by default
    scaled = {"partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 2.0}}
    assert dims(WIDTH | scaled) == 8  # but not where it scales


def test_a_share_gives_back_its_dimensions() -> None:
    for d_head in range(2, 130):
        for dim in range(2, d_head + 1, 2):
            assert int(d_head * _share(dim, d_head)) == dim


def test_what_a_kind_does_not_use_is_unread() -> None:
    config = WIDTH | {"rope_scaling": {"type": "linear", "factor": 2.0, "alpha": 1000.0, "finetuned": True}}
    assert set(family_for(config).unread(config)) == {"rope_parameters.alpha", "rope_parameters.finetuned"}


def test_a_table_for_each_layer_type_where_layers_are_alike() -> None:
    nested = {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1.0}}}
    with pytest.raises(FamilyError, match="turns all layers alike; full_attention has its own table"):
        family_for(WIDTH).architecture(WIDTH | nested)
