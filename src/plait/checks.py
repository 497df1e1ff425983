"""What an Architecture is refused for: sizes that nothing can have, and fields that do not go together."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from plait.organs import Classification
from plait.records import ArchitectureError

if TYPE_CHECKING:
    from plait.architecture import Architecture, Tower

MOST_LAYERS, MOST_NUMBERS = 100_000, 2**40  # of a tower; in one table: no machine holds more
_SIZES = (
    ("vocab_size", "d_model", "n_heads", "d_ff", "d_head", "n_kv_heads", "d_embedding", "token_types", "head.labels")
    + ("relative_bias.buckets", "experts.n_experts", "experts.d_expert", "experts.d_shared")
    + tuple(f"encoder.{name}" for name in ("vocab_size", "n_heads", "n_kv_heads", "d_head", "d_ff"))
)


def check_sizes(a: Architecture) -> None:
    """Refuse sizes that no Transformer has, before other fields are derived from them."""
    for name in ("vocab_size", "d_model", "n_heads", "d_ff"):
        _require(a, name, getattr(a, name) >= 1, "give at least 1")
    _require(a, "d_head", a.d_head is None or a.d_head >= 1, "give at least 1, or none for d_model / n_heads")
    if a.n_encoder_layers < 0 or a.n_decoder_layers < 0 or a.n_encoder_layers + a.n_decoder_layers == 0:
        raise ArchitectureError(
            f"n_encoder_layers, n_decoder_layers: {a.n_encoder_layers} and {a.n_decoder_layers} leave no "
            "tower; give at least one of them a positive number."
        )
    for name in ("n_encoder_layers", "n_decoder_layers"):
        check_layers(name, getattr(a, name))
    for path in _SIZES:
        size = _at(a, path) or 0
        if size > MOST_NUMBERS:
            raise ArchitectureError(f"{path}: {size} is more than any table holds; give {MOST_NUMBERS} at most.")
    if a.d_head is None and a.d_model % a.n_heads:
        raise ArchitectureError(
            f"n_heads: {a.n_heads} does not divide d_model {a.d_model}; choose a divisor, or set d_head."
        )


def check_layers(name: str, n_layers: Any) -> None:
    """``ArchitectureError`` for more layers than any Transformer has: what is worked out for each would never end."""
    if isinstance(n_layers, int) and n_layers > MOST_LAYERS:
        raise ArchitectureError(f"{name}: {n_layers} does not fit; give {MOST_LAYERS} at most.")


def check_together(a: Architecture) -> None:
    """Refuse numbers that mean nothing, and fields that do not go together; every field has its value here."""
    for name in ("d_embedding", "n_kv_heads"):
        _require(a, name, getattr(a, name) >= 1, "give at least 1")
    _require(a, "max_length", a.max_length is None or a.max_length >= 1, "give at least 1, or none")
    _require(a, "norm_eps", a.norm_eps >= 0, "give a number from 0")
    _require(a, "attention_scale", a.attention_scale > 0, "give a positive number, or none for d_head ** -0.5")
    _require(a, "token_types", a.token_types >= 0, "give a number from 0")
    _require(a, "token_types", not a.token_types or a.n_encoder_layers > 0, "only an encoder reads token types")
    _require(a, "position_offset", a.position_offset >= 0, "give a number from 0")
    for name in ("attention_softcap", "qkv_clip", "logit_softcap", "glu_limit"):
        _require(a, name, getattr(a, name) is None or getattr(a, name) > 0, "give a positive number, or none")

    # Norms and branches
    _require(a, "norm_bias", not (a.norm_bias and a.norm == "rmsnorm"), "an rmsnorm has no bias")
    _require(a, "norm_bias", not (a.norm_bias and a.norm_weight == "none"), "a norm without weight has no bias")
    _require(
        a, "parallel", a.parallel == "none" or a.norm_placement == "pre", "parallel blocks take norm_placement 'pre'"
    )
    _require(a, "parallel", a.parallel == "none" or a.kind == "decoder", "parallel blocks are for decoders alone")
    _require(
        a,
        "first_norm",
        a.first_norm or (a.norm_placement == "pre" and a.parallel == "none"),
        "only norm_placement 'pre' has a norm there to leave out",
    )

    # Layers
    for name in ("glu_limit", "glu_offset"):
        _require(a, name, a.gated or getattr(a, name) in (None, 0.0), "it is for gated networks")
    _require(a, "qk_norm_after_rope", a.qk_norm is not None or not a.qk_norm_after_rope, "there is no qk_norm to move")
    if a.qk_norm_after_rope:
        _require(a, "qk_norm_after_rope", a.position == "rope", "it goes with position 'rope'")
        _require(a, "qk_norm_after_rope", a.qk_norm != "full", "a norm over all heads comes before the rotation")
    if a.shared_layers is not None:
        _require(a, "shared_layers", a.kind == "encoder", "only an encoder can run a layer twice")
        _require(
            a,
            "shared_layers",
            a.n_encoder_layers % a.shared_layers.inner == 0
            and a.n_encoder_layers // a.shared_layers.inner >= a.shared_layers.groups
            and not a.layer_types,
            "inner must divide n_encoder_layers and leave every group a turn, all layers alike",
        )

    # Positions
    if a.position == "learned" and a.max_length is None:
        raise ArchitectureError(
            "max_length: learned positions need a table; give the longest row as a positive integer."
        )
    if a.position == "sinusoidal":
        _require(a, "d_embedding", a.d_embedding % 2 == 0, "sinusoids need an even width")
        minus_one = a.sinusoid is not None and a.sinusoid.denominator == "half_minus_one"
        _require(a, "d_embedding", a.d_embedding > 2 or not minus_one, "this denominator needs a width from 4")
    _require(
        a, "sinusoid", (a.sinusoid is not None) == (a.position == "sinusoidal"), "it goes with position 'sinusoidal'"
    )
    _require(a, "rope", (a.rope is not None) == (a.position == "rope"), "it goes with position 'rope'")
    _require(a, "alibi", (a.alibi is not None) == (a.position == "alibi"), "it goes with position 'alibi'")
    _require(
        a,
        "position_offset",
        a.position_offset == 0 or a.position in ("learned", "sinusoidal"),
        "only learned and sinusoidal positions can start elsewhere than at 0",
    )

    # Towers and head
    _require(
        a, "encoder", a.encoder is None or a.kind == "encoder-decoder", "only an encoder-decoder's encoder can differ"
    )
    _require(
        a, "head", a.head != "language" or a.n_decoder_layers > 0, "an encoder takes 'masked', a classification or none"
    )
    _require(a, "head", a.head != "masked" or a.kind == "encoder", "only an encoder takes a masked head")
    vocabulary_head = a.head in ("language", "masked")
    for name in ("tied", "logit_bias"):
        _require(a, name, not getattr(a, name) or vocabulary_head, "it belongs to a head over the vocabulary")
    _require(a, "head_transform", a.head_transform is None or a.head is not None, "there is no head to put it in")
    _require(a, "head_bias", a.head_bias or a.head_transform is not None, "there is no head_transform")
    if isinstance(a.head, Classification) and a.head.norm:
        _require(a, "head", a.head_transform is not None, "its norm follows a head_transform")
    _require(
        a,
        "tied",
        not a.tied or a.d_embedding == a.d_model or a.head_transform is not None,
        "the table is d_embedding wide and the model d_model; a head_transform must bridge them",
    )

    # Layer by layer
    _require(
        a,
        "layer_types",
        a.experts is not None or all(kind.sparse for kind in a.layer_types),
        "a layer that is not sparse goes with experts in the others",
    )
    deepest = max(tower.n_layers for tower in a.towers)
    _require(a, "layer_types", len(a.layer_types) <= deepest, f"there are {deepest} layers; give at most one for each")
    for tower in a.towers:
        _check_tower(a, tower)


def _check_tower(a: Architecture, tower: Tower) -> None:
    if tower.n_heads % tower.n_kv_heads:
        raise ArchitectureError(
            f"n_kv_heads: {tower.n_kv_heads} does not divide the {tower.n_heads} heads of the {tower.name}; "
            "choose a divisor."
        )
    for layer in tower.layers:
        rope = layer.rope
        if rope is None:
            continue
        if a.position != "rope":
            raise ArchitectureError("layer_types.rope: a rotation needs position 'rope'.")
        dim = rope.dim or tower.d_head
        if dim > tower.d_head or dim % 2:
            raise ArchitectureError(
                f"rope.dim: {dim} dimensions cannot turn in a head of {tower.d_head}; give an even number to that."
            )
        scaling = rope.scaling
        if scaling is not None and scaling.kind == "dynamic" and dim == 2:
            raise ArchitectureError("rope.dim: 'dynamic' scaling needs more than one pair to turn; give at least 4.")
        for factors in (scaling.short_factor, scaling.long_factor) if scaling else ():
            if factors is not None and len(factors) != dim // 2:
                raise ArchitectureError(
                    f"rope.scaling: {len(factors)} factors for {dim // 2} pairs of dimensions; give one for each."
                )


def check_tables(a: Architecture) -> None:
    """Refuse tables that no machine holds, by the fields that say their rows and columns."""
    tables = [
        ("vocab_size", "d_embedding"),
        ("encoder.vocab_size", "d_embedding"),
        ("token_types", "d_embedding"),
        ("d_embedding", "d_model"),
        ("head.labels", "d_model"),
        ("d_ff", "d_model"),
        ("encoder.d_ff", "d_model"),
        ("experts.n_experts", "experts.d_expert", "d_model"),
        ("experts.d_shared", "d_model"),
        ("n_heads", "d_head", "d_model"),
        ("n_kv_heads", "d_head", "d_model"),
    ]
    if a.position == "learned":
        tables += [("max_length", "d_embedding"), ("position_offset", "d_embedding")]
    for paths in tables:
        sizes = [_at(a, path) or 0 for path in paths]
        if math.prod(sizes) > MOST_NUMBERS:
            raise ArchitectureError(
                f"{', '.join(paths)}: {' times '.join(map(str, sizes))} is more than any table holds; give sizes "
                f"whose product is {MOST_NUMBERS} at most."
            )
    for tower in a.towers:
        if tower.n_heads * tower.d_head * a.d_model > MOST_NUMBERS:
            raise ArchitectureError(
                f"encoder.n_heads, encoder.d_head, d_model: {tower.n_heads} times {tower.d_head} times "
                f"{a.d_model} is more than any table holds; give sizes whose product is {MOST_NUMBERS} at most."
            )


def _require(a: Architecture, name: str, holds: bool, right: str) -> None:
    if not holds:
        raise ArchitectureError(f"{name}: {getattr(a, name)!r} does not fit; {right}.")


def _at(a: Architecture, path: str) -> Any:
    """The field of this record or of one inside it; ``None`` where there is none."""
    return functools.reduce(lambda record, name: getattr(record, name, None), path.split("."), a)
