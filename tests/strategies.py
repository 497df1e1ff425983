"""Tiny architectures over every knob: ``GRID``, a fixed list to walk, and ``architectures()``, for hypothesis.

All have vocabulary 32, d_model 16, two or three layers, and six heads of width 4 (so heads x width is not d_model, and
6/3 grouped heads do not hide a wrong grouping). They hold for rows of up to 40 tokens.

Use ``@over_grid`` on a test that takes ``architecture``, or ``@given(architectures())``.
"""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import Any, get_args

import pytest
from hypothesis import strategies as st

from plait.architecture import (
    Activation,
    Alibi,
    Architecture,
    Classification,
    EncoderDifferences,
    Experts,
    LayerType,
    RelativeBias,
    Rope,
    RopeScaling,
    SharedLayers,
    Sinusoid,
)

SIZE: dict[str, Any] = {
    "vocab_size": 32,
    "d_model": 16,
    "n_heads": 6,
    "n_kv_heads": 3,
    "d_head": 4,
    "d_ff": 20,
    "max_length": 40,
}
KINDS: dict[str, dict[str, Any]] = {
    "encoder": {"n_encoder_layers": 2, "head": "masked"},
    "decoder": {"n_decoder_layers": 3},
    "encoder-decoder": {"n_encoder_layers": 2, "n_decoder_layers": 3},
}
POSITIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "learned": {"position": "learned"},
    "sinusoidal": {"position": "sinusoidal"},
    "rope": {"position": "rope", "rope": Rope(theta=100.0)},
    "alibi": {"position": "alibi"},
    "buckets": {"relative_bias": RelativeBias(buckets=8, max_distance=12)},
}
PLACEMENTS = ("pre", "post", "sandwich", "branch")

# Ramps and cut-offs fall inside the spectrum of a head of 4; rows may be shorter or longer than the original length.
SCALINGS: dict[str, RopeScaling] = {
    "linear": RopeScaling(kind="linear", factor=2.5),
    "dynamic": RopeScaling(kind="dynamic", factor=3.0, original_max_length=8),
    "yarn": RopeScaling(kind="yarn", factor=4.0, original_max_length=8, beta_fast=1.0, beta_slow=0.25),
    "yarn-factor": RopeScaling(
        kind="yarn",
        factor=4.0,
        original_max_length=8,
        beta_fast=1.0,
        beta_slow=0.25,
        attention_factor=1.3,
        truncate=False,
    ),
    "yarn-mscale": RopeScaling(
        kind="yarn", factor=4.0, original_max_length=8, beta_fast=1.0, beta_slow=0.25, mscale=0.7, mscale_all_dim=1.2
    ),
    "longrope": RopeScaling(
        kind="longrope", factor=5.0, original_max_length=8, short_factor=(1.0, 1.5), long_factor=(2.0, 4.0)
    ),
    "llama3": RopeScaling(kind="llama3", factor=8.0, original_max_length=16),
}

# Each row of the grid that is a pair takes one value of each of these, in turn.
ROTATING: tuple[tuple[dict[str, Any], ...], ...] = (
    ({"norm": "layernorm"}, {"norm": "rmsnorm"}),
    ({}, {"n_kv_heads": 6}, {"n_kv_heads": 1}),
    tuple({"activation": name} for name in get_args(Activation)),
    ({"gated": False}, {"gated": True}, {"gated": True, "ffn_bias": False}),
    ({}, {"qkv_bias": False}, {"qkv_bias": False, "output_bias": False}, {"output_bias": False}, {"ffn_bias": False}),
    ({}, {"tied": True}, {"tied": True, "logit_bias": True}),
)

# Of 6 experts of width 10, of which a token takes 2, unless said otherwise; and what goes with them.
EXPERTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "softmax": ("decoder", {}, {"gated": True, "activation": "silu", "ffn_bias": False, **POSITIONS["rope"]}),
    "renormalized": ("encoder-decoder", {"renormalize": True, "per_token": 3}, {"activation": "gelu"}),
    "softmax-bias": ("decoder", {"renormalize": True, "selection_bias": True}, {"gated": True, "ffn_bias": False}),
    "topk-limit": (
        "decoder",
        {"router": "softmax_topk", "router_bias": True, "d_expert": 16},
        {"gated": True, "activation": "quick_gelu", "glu_limit": 0.5, "glu_offset": 1.0, "attention_sinks": True},
    ),
    "sigmoid": ("decoder", {"router": "sigmoid"}, {"gated": True, "norm_placement": "sandwich"}),
    "groups": (
        "decoder",
        {
            "n_experts": 12, "per_token": 3, "router": "sigmoid", "selection_bias": True, "renormalize": True,
            "routed_scale": 2.5, "groups": 4, "top_groups": 2, "d_shared": 14,
        },
        {"gated": True, "activation": "silu", "layer_types": (LayerType(sparse=False), LayerType(), LayerType())},
    ),
    "shared": ("encoder", {"d_shared": 7}, {"gated": True, "residual_scale": 0.5, "norm_placement": "post"}),
    "shared-gate": ("decoder", {"d_shared": 16, "shared_gate": True}, {"ffn_bias": "down", "parallel": "separate"}),
    "parallel": ("decoder", {"d_shared": 8}, {"gated": True, "parallel": "shared"}),
    "all-of-one": ("decoder", {"n_experts": 1, "per_token": 1}, {"tied": True}),
    "alternate": (
        "encoder-decoder",
        {"renormalize": True},
        {"gated": True, "layer_types": (LayerType(), LayerType(sparse=False)), "position": "learned"},
    ),
}  # fmt: skip

# What the pairs leave out, one or a few knobs a row.
TWISTS: dict[str, tuple[str, dict[str, Any]]] = {
    "layernorm-without-bias": ("decoder", {"norm_bias": False}),
    "layernorm-offset": ("decoder", {"norm_weight": "offset", "position": "rope"}),
    "layernorm-bare": ("decoder", {"norm_weight": "none", "qk_norm": "head"}),
    "rmsnorm-offset": ("decoder", {"norm": "rmsnorm", "norm_weight": "offset", "qk_norm": "head", "norm_eps": 0.1}),
    "rmsnorm-bare": ("encoder", {"norm": "rmsnorm", "norm_weight": "none"}),
    "pre-without-final-norm": ("decoder", {"final_norm": False}),
    "post-with-final-norm": ("encoder-decoder", {"norm_placement": "post", "final_norm": True}),
    "deepnorm": ("encoder-decoder", {"norm_placement": "post", "skip_scale": 1.7}),
    "residual-scale": ("decoder", {"residual_scale": 0.4, "position": "rope"}),
    "parallel-shared": ("decoder", {"parallel": "shared", **POSITIONS["rope"]}),
    "parallel-separate": ("decoder", {"parallel": "separate", "position": "learned"}),
    "learned-offset": ("encoder", {"position": "learned", "position_offset": 2}),
    "sinusoid-halves": ("encoder-decoder", {"position": "sinusoidal", "sinusoid": Sinusoid(layout="halves")}),
    "sinusoid-fairseq": (
        "decoder",
        {
            "position": "sinusoidal",
            "sinusoid": Sinusoid(layout="halves", denominator="half_minus_one"),
            "position_offset": 2,
        },
    ),
    "rope-interleaved": ("decoder", {"position": "rope", "rope": Rope(theta=100.0, interleaved=True)}),
    "rope-partial": ("encoder", {"position": "rope", "rope": Rope(theta=100.0, dim=2)}),
    **{
        f"rope-{name}": ("decoder", {"position": "rope", "rope": Rope(theta=100.0, scaling=scaling)})
        for name, scaling in SCALINGS.items()
    },
    "rope-wide-heads": (
        "decoder",
        {"n_heads": 3, "n_kv_heads": 1, "d_head": 10, "position": "rope", "rope": Rope(theta=100.0, dim=6)},
    ),
    "alibi-falcon": ("decoder", {"position": "alibi", "alibi": Alibi(scaled=True, rounded=True)}),
    "alibi-scaled": ("decoder", {"position": "alibi", "alibi": Alibi(scaled=True), "attention_scale": 0.3}),
    "alibi-eight-heads": ("decoder", {"position": "alibi", "n_heads": 8, "n_kv_heads": 2}),
    "buckets-per-layer": (
        "encoder-decoder",
        {"relative_bias": RelativeBias(buckets=6, max_distance=7, per_layer=True), "attention_scale": 1.0},
    ),
    "buckets-and-learned": ("encoder", {**POSITIONS["buckets"], "position": "learned"}),
    "buckets-and-alibi": ("decoder", {**POSITIONS["buckets"], **POSITIONS["alibi"]}),
    "window": ("decoder", {"layer_types": (LayerType(window=3),), "position": "rope"}),
    "window-local-and-global": (
        "decoder",
        {
            "layer_types": (LayerType(window=3, rope=Rope(theta=10.0)), LayerType()),
            "position": "rope",
            "rope": Rope(theta=1000.0, scaling=SCALINGS["linear"]),
        },
    ),
    "window-nope": (
        "decoder",
        {"layer_types": (LayerType(window=4), LayerType(), LayerType(rope=None)), "position": "rope"},
    ),
    "window-of-one": ("encoder", {"layer_types": (LayerType(), LayerType(window=1)), "position": "alibi"}),
    "window-encoder-decoder": (
        "encoder-decoder",
        {"layer_types": (LayerType(window=2), LayerType()), "position": "rope"},
    ),
    "qk-norm-head": ("decoder", {"qk_norm": "head", "norm": "rmsnorm", **POSITIONS["rope"]}),
    "qk-norm-per-head": ("decoder", {"qk_norm": "per_head", **POSITIONS["rope"]}),
    "qk-norm-full": ("encoder-decoder", {"qk_norm": "full", "norm": "rmsnorm", "norm_placement": "branch"}),
    "qk-norm-after-rope": ("decoder", {"qk_norm": "head", "qk_norm_after_rope": True, **POSITIONS["rope"]}),
    "qk-norm-per-head-after-rope": (
        "decoder",
        {"qk_norm": "per_head", "qk_norm_after_rope": True, "norm": "rmsnorm", **POSITIONS["rope"]},
    ),
    "sinks": (
        "decoder",
        {"attention_sinks": True, **POSITIONS["rope"], "layer_types": (LayerType(window=3), LayerType())},
    ),
    "sinks-capped": ("encoder-decoder", {"attention_sinks": True, "attention_softcap": 0.8, **POSITIONS["alibi"]}),
    "first-norm": ("encoder", {"first_norm": False, "embedding_norm": True, "norm_bias": False, **POSITIONS["rope"]}),
    "shared-layers": ("encoder", {"shared_layers": SharedLayers(), "norm_placement": "post", "position": "learned"}),
    "shared-layers-groups": (
        "encoder",
        {"n_encoder_layers": 6, "shared_layers": SharedLayers(groups=2, inner=1), **POSITIONS["buckets"]},
    ),
    "shared-layers-inner": ("encoder", {"n_encoder_layers": 6, "shared_layers": SharedLayers(groups=2, inner=2)}),
    "ffn-bias-down": ("encoder", {"ffn_bias": "down", "gated": True, "activation": "gelu"}),
    "glu-limit": (
        "decoder",
        {"gated": True, "activation": "quick_gelu", "glu_limit": 0.5, "glu_offset": 1.0, "norm": "rmsnorm"},
    ),
    **{
        f"experts-{name}": (
            kind,
            {"experts": Experts(**{"n_experts": 6, "per_token": 2, "d_expert": 10, **spec}), **knobs},
        )
        for name, (kind, spec, knobs) in EXPERTS.items()
    },
    "scale": ("decoder", {"attention_scale": 0.9, "position": "learned"}),
    "softcap": ("encoder-decoder", {"attention_softcap": 0.8, "logit_softcap": 1.5, "norm_placement": "sandwich"}),
    "clip": ("decoder", {"qkv_clip": 0.3, "position": "alibi"}),
    "embedding-scale-norm": ("decoder", {"embedding_scale": 4.0, "embedding_norm": True, "position": "learned"}),
    "embedding-norm-twice": (
        "encoder-decoder",
        {"embedding_norm": True, "position": "learned", "norm_placement": "post"},
    ),
    "token-types": ("encoder", {"token_types": 2, "embedding_norm": True, "position": "learned"}),
    "token-types-source": ("encoder-decoder", {"token_types": 1}),
    "factorised": (
        "encoder",
        {
            "d_embedding": 8,
            "tied": True,
            "head_transform": "gelu",
            "logit_bias": True,
            "token_types": 2,
            "position": "learned",
        },
    ),
    "factorised-untied": ("decoder", {"d_embedding": 8, "embedding_norm": True, "position": "sinusoidal"}),
    "factorised-twice": ("encoder-decoder", {"d_embedding": 8, "head_transform": "silu", "position": "learned"}),
    "head-transform": ("encoder", {"head_transform": "gelu_tanh", "norm_placement": "post"}),
    "head-scale": ("decoder", {"logit_scale": 0.25, "logit_bias": True}),
    "head-none": ("encoder", {"head": None, "position": "learned"}),
    "head-none-decoder": ("decoder", {"head": None, **POSITIONS["rope"]}),
    "classes-cls": ("encoder", {"head": Classification(labels=3), "head_transform": "tanh"}),
    "classes-mean": ("encoder", {"head": Classification(labels=3, pooling="mean"), "position": "rope"}),
    "classes-norm": (
        "encoder",
        {"head": Classification(labels=3, pooling="mean", norm=True), "head_transform": "gelu", "head_bias": False},
    ),
    "tokens": ("encoder", {"head": Classification(labels=3, pooling=None), "position": "learned"}),
    "tokens-transform": ("encoder", {"head": Classification(labels=1, pooling=None), "head_transform": "gelu"}),
    "classes-last": ("decoder", {"head": Classification(labels=2, pooling="last"), "position": "learned"}),
    "own-source-table": ("encoder-decoder", {"encoder": EncoderDifferences(vocab_size=20), "position": "sinusoidal"}),
    "own-encoder": (
        "encoder-decoder",
        {"encoder": EncoderDifferences(n_heads=4, n_kv_heads=2, d_head=6, d_ff=24), "position": "rope"},
    ),
}


def pairs() -> dict[str, Architecture]:
    """Every pair of position, norm placement and kind, the other knobs turning with them."""
    rows = {}
    for turn, (i, j) in enumerate(product(range(len(POSITIONS)), range(len(PLACEMENTS)))):
        position, placement, kind = list(POSITIONS)[i], PLACEMENTS[j], list(KINDS)[(i + j) % len(KINDS)]
        knobs = {**SIZE, **KINDS[kind], **POSITIONS[position], "norm_placement": placement}
        for values in ROTATING:
            knobs.update(values[turn % len(values)])
        rows[f"{kind}-{position}-{placement}"] = Architecture(**knobs)
    return rows


def twists() -> dict[str, Architecture]:
    """The knob values that no pair has."""
    return {name: Architecture(**{**SIZE, **KINDS[kind], **knobs}) for name, (kind, knobs) in TWISTS.items()}


NAMED_GRID: dict[str, Architecture] = {**pairs(), **twists()}
GRID: list[Architecture] = list(NAMED_GRID.values())
over_grid = pytest.mark.parametrize("architecture", GRID, ids=list(NAMED_GRID))


@st.composite
def architectures(draw: st.DrawFn, kinds: tuple[str, ...] = tuple(KINDS)) -> Architecture:
    """Any valid tiny architecture of one of the ``kinds``, over every knob; shrinks towards a plain one."""

    def one_of(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    kind = one_of(*kinds)
    knobs: dict[str, Any] = {**SIZE, **KINDS[kind]}
    knobs["n_kv_heads"] = one_of(6, 3, 2, 1)
    knobs["norm"] = norm = one_of("layernorm", "rmsnorm")
    knobs["norm_eps"] = one_of(1e-5, 1e-2)
    knobs["norm_weight"] = weight = one_of("plain", "offset", "none")
    knobs["norm_bias"] = norm == "layernorm" and weight != "none" and one_of(True, False)
    knobs["norm_placement"] = placement = one_of(*PLACEMENTS)
    knobs["parallel"] = one_of("none", "shared", "separate") if (kind, placement) == ("decoder", "pre") else "none"
    knobs["final_norm"] = one_of(None, True, False)
    knobs["skip_scale"], knobs["residual_scale"] = one_of(1.0, 1.5), one_of(1.0, 0.5)
    knobs["first_norm"] = placement != "pre" or knobs["parallel"] != "none" or one_of(True, False)
    knobs["qkv_bias"], knobs["output_bias"] = draw(st.tuples(st.booleans(), st.booleans()))
    knobs["ffn_bias"] = one_of(False, True, "down")
    knobs["qk_norm"] = one_of(None, "head", "per_head", "full")
    knobs["attention_sinks"] = one_of(False, True)
    knobs["attention_scale"] = one_of(None, 1.0, 0.3)
    knobs["attention_softcap"], knobs["qkv_clip"] = one_of(None, 1.0), one_of(None, 0.5)
    knobs["activation"], knobs["gated"] = one_of(*get_args(Activation)), one_of(False, True)
    if knobs["gated"]:
        knobs["glu_limit"], knobs["glu_offset"] = one_of(None, 0.5), one_of(0.0, 1.0)
    knobs["experts"] = draw(st.none() | _experts())
    knobs["embedding_scale"], knobs["embedding_norm"] = one_of(1.0, 4.0), one_of(False, True)
    knobs["token_types"] = 0 if kind == "decoder" else one_of(0, 1, 2)
    knobs["d_embedding"] = one_of(None, 8)
    if kind == "encoder-decoder":
        heads: dict[str, Any] = one_of({}, {"n_heads": 4, "n_kv_heads": 2})
        knobs["encoder"] = one_of(None, EncoderDifferences(d_ff=one_of(None, 24), vocab_size=one_of(None, 20), **heads))
    if kind == "encoder" and one_of(False, True):
        knobs["n_encoder_layers"] = one_of(2, 4, 6)
        knobs["shared_layers"] = one_of(SharedLayers(), SharedLayers(groups=2), SharedLayers(inner=2))
    _draw_positions(knobs, one_of)
    _draw_head(knobs, kind, one_of)
    return Architecture(**knobs)


def _draw_positions(knobs: dict[str, Any], one_of: Any) -> None:
    knobs["position"] = position = one_of("none", "learned", "sinusoidal", "rope", "alibi")
    if position in ("learned", "sinusoidal"):
        knobs["position_offset"] = one_of(0, 2)
    if position == "sinusoidal":
        knobs["sinusoid"] = one_of(
            None,
            *(Sinusoid(layout=a, denominator=b) for a in ("interleaved", "halves") for b in ("half", "half_minus_one")),
        )
    own: tuple[Any, ...] = ("shared",)
    if position == "rope":
        dim = one_of(None, 2)
        scaling = one_of(None, *SCALINGS.values())
        if scaling is not None and scaling.kind in ("longrope", "dynamic"):
            dim = None
        knobs["rope"] = Rope(theta=one_of(100.0, 1000.0), dim=dim, interleaved=one_of(False, True), scaling=scaling)
        own = ("shared", None, Rope(theta=10.0))
        knobs["qk_norm_after_rope"] = knobs["qk_norm"] in ("head", "per_head") and one_of(False, True)
    if position == "alibi":
        knobs["alibi"] = Alibi(scaled=one_of(False, True), rounded=one_of(False, True))
    knobs["relative_bias"] = one_of(
        None, *(RelativeBias(buckets=8, max_distance=12, per_layer=per_layer) for per_layer in (False, True))
    )
    n_types = 0 if knobs.get("shared_layers") else one_of(0, 1, 2)
    dense = (True, False) if knobs["experts"] else (True,)
    knobs["layer_types"] = tuple(
        LayerType(window=one_of(None, 1, 3), rope=one_of(*own), sparse=one_of(*dense)) for _ in range(n_types)
    )


@st.composite
def _experts(draw: st.DrawFn) -> Experts:
    def one_of(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    router = one_of("softmax", "softmax_topk", "sigmoid")
    groups, top_groups = one_of((1, 1), (3, 2), (2, 1)) if router == "sigmoid" else (1, 1)
    d_shared = one_of(None, 7)
    return Experts(
        n_experts=6,
        per_token=one_of(1, 2, 3),
        d_expert=one_of(10, 16),
        router=router,
        router_bias=one_of(False, True),
        selection_bias=one_of(False, True),
        renormalize=router != "softmax_topk" and one_of(False, True),
        routed_scale=one_of(1.0, 2.5),
        groups=groups,
        top_groups=top_groups,
        d_shared=d_shared,
        shared_gate=d_shared is not None and one_of(False, True),
    )


def _draw_head(knobs: dict[str, Any], kind: str, one_of: Any) -> None:
    vocabulary = "masked" if kind == "encoder" else "language"
    knobs["head"] = head = one_of(
        vocabulary, None, *(Classification(labels=3, pooling=p) for p in ("cls", "mean", "last", None))
    )
    if head is None:
        return
    knobs["head_transform"] = transform = one_of(None, "tanh", "gelu")
    knobs["head_bias"] = transform is None or one_of(True, False)
    if head != vocabulary and transform is not None:
        knobs["head"] = dataclasses.replace(head, norm=one_of(False, True))
    knobs["logit_scale"], knobs["logit_softcap"] = one_of(1.0, 0.5), one_of(None, 2.0)
    if head == vocabulary:
        knobs["logit_bias"] = one_of(False, True)
        knobs["tied"] = (knobs["d_embedding"] is None or knobs["head_transform"] is not None) and one_of(False, True)


def values_of(field: str) -> set[Any]:
    """The values a field takes over the grid; tests ask it whether a knob was left out."""
    return {getattr(architecture, field) for architecture in GRID}


FIELDS = tuple(f.name for f in dataclasses.fields(Architecture))
