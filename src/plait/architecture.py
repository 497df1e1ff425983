"""Architecture: the space of Transformers as one frozen record.

Every part of the model, every family of checkpoints, every preset and every count reads this record and nothing else.
A value that makes no sense is refused where it is written, with the field, the value, and what would be right.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

from plait import records
from plait.organs import (
    Alibi,
    Classification,
    EncoderDifferences,
    Experts,
    LayerType,
    Pooling,
    RelativeBias,
    Rope,
    RopeScaling,
    SharedLayers,
    Sinusoid,
)
from plait.records import ArchitectureError, check_types

__all__ = [
    "Activation",
    "Alibi",
    "Architecture",
    "ArchitectureError",
    "Classification",
    "EncoderDifferences",
    "Experts",
    "Layer",
    "LayerType",
    "Pooling",
    "RelativeBias",
    "Rope",
    "RopeScaling",
    "SharedLayers",
    "Sinusoid",
    "Tower",
]

Norm = Literal["layernorm", "rmsnorm"]
NormWeight = Literal["plain", "offset", "none"]  # y = w x̂, y = (1 + w) x̂, y = x̂
NormPlacement = Literal["pre", "post", "sandwich", "branch"]
Parallel = Literal["none", "shared", "separate"]
PositionKind = Literal["none", "learned", "sinusoidal", "rope", "alibi"]
Activation = Literal["relu", "relu2", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh"]
QKNorm = Literal["head", "per_head", "full"]
TowerName = Literal["encoder", "decoder"]

MOST_LAYERS, MOST_NUMBERS = 100_000, 2**40  # of a tower; in one table: no machine holds more
_SIZES = (
    ("vocab_size", "d_model", "n_heads", "d_ff", "d_head", "n_kv_heads", "d_embedding", "token_types", "head.labels")
    + ("relative_bias.buckets", "experts.n_experts", "experts.d_expert", "experts.d_shared")
    + tuple(f"encoder.{name}" for name in ("vocab_size", "n_heads", "n_kv_heads", "d_head", "d_ff"))
)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What one layer sees, how it turns and what it feeds through: a ``LayerType`` with everything resolved."""

    window: int | None
    rope: Rope | None
    sparse: bool  # whether it has experts


@dataclass(frozen=True, kw_only=True)
class Tower:
    """One stack with every choice resolved: what ``model/stack.py`` and the account build from."""

    name: TowerName
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_ff: int
    causal: bool
    cross: bool  # a decoder that attends to an encoder
    attention_scale: float
    layers: tuple[Layer, ...]  # one per layer
    schedule: tuple[int, ...]  # which layer's weights each of them has: its own, unless layers are shared

    @property
    def distinct(self) -> tuple[Layer, ...]:
        """The layers that have weights of their own."""
        first = {i: turn for turn, i in reversed(list(enumerate(self.schedule)))}
        return tuple(self.layers[first[i]] for i in range(max(self.schedule) + 1))

    @property
    def group(self) -> int:
        """Query heads for each key and value head."""
        return self.n_heads // self.n_kv_heads


def _derived() -> Any:
    """The default of a field that follows from others; see ``DERIVED``."""
    return dataclasses.field(default=None)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A Transformer's shape. Fields left at ``None`` that say 'derived' take the value their comment names."""

    # Size
    vocab_size: int
    d_model: int
    n_heads: int
    d_ff: int
    n_encoder_layers: int = 0
    n_decoder_layers: int = 0
    n_kv_heads: int = _derived()  # derived: n_heads
    d_head: int = _derived()  # derived: d_model / n_heads
    max_length: int | None = None  # longest row there are positions for; None: no limit of its own
    encoder: EncoderDifferences | None = None

    # Normalisation: merge(skip_scale * x + residual_scale * after(f(before(x))))
    norm: Norm = "layernorm"
    norm_eps: float = 1e-5
    norm_bias: bool = _derived()  # derived: True for layernorm
    norm_weight: NormWeight = "plain"
    norm_placement: NormPlacement = "pre"
    parallel: Parallel = "none"  # attention and FFN side by side, with one norm (shared) or two (separate)
    final_norm: bool = _derived()  # derived: every placement but post
    first_norm: bool = True  # False: the first attention reads what the embedding's norm left (ModernBERT)
    skip_scale: float = 1.0  # DeepNorm's alpha (Wang et al. 2022)
    residual_scale: float = 1.0
    shared_layers: SharedLayers | None = None

    # Positions
    position: PositionKind = "none"
    position_offset: int = 0
    sinusoid: Sinusoid | None = None  # derived: the paper's, where position is sinusoidal
    rope: Rope | None = None  # derived: theta 10000, where position is rope
    alibi: Alibi | None = None  # derived: Press et al.'s, where position is alibi
    relative_bias: RelativeBias | None = None
    layer_types: tuple[LayerType, ...] = ()  # tiled over the layers, kept as the shortest tile; empty: all alike

    # Attention
    qkv_bias: bool = True
    output_bias: bool = True
    qk_norm: QKNorm | None = None
    qk_norm_after_rope: bool = False
    attention_scale: float = _derived()  # derived: d_head ** -0.5
    attention_softcap: float | None = None
    qkv_clip: float | None = None
    attention_sinks: bool = False  # a learned score for each head that takes its share of the softmax and adds nothing

    # Feed-forward
    activation: Activation = "relu"
    gated: bool = False
    glu_limit: float | None = None  # gates are cut above it, what they gate to both sides of it (GPT-OSS)
    glu_offset: float = 0.0  # added to what is gated
    ffn_bias: bool | Literal["down"] = True  # "down": of the last projection alone
    experts: Experts | None = None

    # Embedding
    d_embedding: int = _derived()  # derived: d_model; otherwise a projection follows the tables
    embedding_scale: float = 1.0
    embedding_norm: bool = False
    token_types: int = 0

    # Head
    head: Literal["language", "masked"] | Classification | None = "language"
    tied: bool = False
    head_transform: Activation | None = None  # dense, activation, norm before the output (BERT)
    head_bias: bool = True  # of that dense
    logit_bias: bool = False
    logit_scale: float = 1.0
    logit_softcap: float | None = None

    def __post_init__(self) -> None:
        check_types(self, "")
        for name in ("vocab_size", "d_model", "n_heads", "d_ff"):
            self._require(name, getattr(self, name) >= 1, "give at least 1")
        self._require(
            "d_head", self.d_head is None or self.d_head >= 1, "give at least 1, or none for d_model / n_heads"
        )
        if self.n_encoder_layers < 0 or self.n_decoder_layers < 0 or self.n_encoder_layers + self.n_decoder_layers == 0:
            raise ArchitectureError(
                f"n_encoder_layers, n_decoder_layers: {self.n_encoder_layers} and {self.n_decoder_layers} leave no "
                "tower; give at least one of them a positive number."
            )
        for name in ("n_encoder_layers", "n_decoder_layers"):
            check_layers(name, getattr(self, name))
        for path in _SIZES:
            size = self._at(path) or 0
            if size > MOST_NUMBERS:
                raise ArchitectureError(f"{path}: {size} is more than any table holds; give {MOST_NUMBERS} at most.")
        if self.d_head is None and self.d_model % self.n_heads:
            raise ArchitectureError(
                f"n_heads: {self.n_heads} does not divide d_model {self.d_model}; choose a divisor, or set d_head."
            )
        for name, derive in DERIVED.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, derive(self))
        self._check_together()
        self._check_tables()
        object.__setattr__(self, "layer_types", self._shortest_tile())

    def _shortest_tile(self) -> tuple[LayerType, ...]:
        """The same layers, said once: two ways to write one architecture must be equal."""
        types, n_layers = self.layer_types, max(self.n_encoder_layers, self.n_decoder_layers)
        if all(kind == LayerType() for kind in types):
            return ()
        spread = [types[i % len(types)] for i in range(n_layers)]
        return next(
            types[:n] for n in range(1, len(types) + 1) if all(spread[i] == types[i % n] for i in range(n_layers))
        )

    def _require(self, name: str, holds: bool, right: str) -> None:
        if not holds:
            raise ArchitectureError(f"{name}: {getattr(self, name)!r} does not fit; {right}.")

    def _at(self, path: str) -> Any:
        """The field of this record or of one inside it; ``None`` where there is none."""
        return functools.reduce(lambda record, name: getattr(record, name, None), path.split("."), self)

    def _check_tables(self) -> None:
        """Refuse tables that no machine holds, by the fields that say their rows and columns."""
        tables = [("vocab_size", "d_embedding"), ("encoder.vocab_size", "d_embedding"), ("token_types", "d_embedding")]
        tables += [
            ("d_embedding", "d_model"),
            ("head.labels", "d_model"),
            ("d_ff", "d_model"),
            ("encoder.d_ff", "d_model"),
        ]
        tables += [("experts.n_experts", "experts.d_expert", "d_model"), ("experts.d_shared", "d_model")]
        tables += [("n_heads", "d_head", "d_model"), ("n_kv_heads", "d_head", "d_model")]
        if self.position == "learned":
            tables.append(("max_length", "d_embedding"))
            tables.append(("position_offset", "d_embedding"))
        for paths in tables:
            sizes = [self._at(path) or 0 for path in paths]
            if math.prod(sizes) > MOST_NUMBERS:
                raise ArchitectureError(
                    f"{', '.join(paths)}: {' times '.join(map(str, sizes))} is more than any table holds; give sizes "
                    f"whose product is {MOST_NUMBERS} at most."
                )
        for tower in self.towers:
            if tower.n_heads * tower.d_head * self.d_model > MOST_NUMBERS:
                raise ArchitectureError(
                    f"encoder.n_heads, encoder.d_head, d_model: {tower.n_heads} times {tower.d_head} times "
                    f"{self.d_model} is more than any table holds; give sizes whose product is {MOST_NUMBERS} at most."
                )

    def _check_together(self) -> None:
        """Refuse combinations that mean nothing."""
        for name in ("d_embedding", "n_kv_heads"):
            self._require(name, getattr(self, name) >= 1, "give at least 1")
        self._require("max_length", self.max_length is None or self.max_length >= 1, "give at least 1, or none")
        self._require("norm_eps", self.norm_eps >= 0, "give a number from 0")
        self._require("attention_scale", self.attention_scale > 0, "give a positive number, or none for d_head ** -0.5")
        self._require("token_types", self.token_types >= 0, "give a number from 0")
        self._require(
            "token_types", not self.token_types or self.n_encoder_layers > 0, "only an encoder reads token types"
        )
        self._require("position_offset", self.position_offset >= 0, "give a number from 0")
        for name in ("attention_softcap", "qkv_clip", "logit_softcap", "glu_limit"):
            self._require(
                name, getattr(self, name) is None or getattr(self, name) > 0, "give a positive number, or none"
            )
        self._require("norm_bias", not (self.norm_bias and self.norm == "rmsnorm"), "an rmsnorm has no bias")
        self._require(
            "norm_bias", not (self.norm_bias and self.norm_weight == "none"), "a norm without weight has no bias"
        )
        self._require(
            "parallel",
            self.parallel == "none" or self.norm_placement == "pre",
            "parallel blocks take norm_placement 'pre'",
        )
        self._require(
            "parallel", self.parallel == "none" or self.kind == "decoder", "parallel blocks are for decoders alone"
        )
        self._require(
            "first_norm",
            self.first_norm or (self.norm_placement == "pre" and self.parallel == "none"),
            "only norm_placement 'pre' has a norm there to leave out",
        )
        for name in ("glu_limit", "glu_offset"):
            self._require(name, self.gated or getattr(self, name) in (None, 0.0), "it is for gated networks")
        self._require(
            "qk_norm_after_rope", self.qk_norm is not None or not self.qk_norm_after_rope, "there is no qk_norm to move"
        )
        if self.qk_norm_after_rope:
            self._require("qk_norm_after_rope", self.position == "rope", "it goes with position 'rope'")
            self._require(
                "qk_norm_after_rope", self.qk_norm != "full", "a norm over all heads comes before the rotation"
            )
        if self.shared_layers is not None:
            self._require("shared_layers", self.kind == "encoder", "only an encoder can run a layer twice")
            self._require(
                "shared_layers",
                self.n_encoder_layers % self.shared_layers.inner == 0
                and self.n_encoder_layers // self.shared_layers.inner >= self.shared_layers.groups
                and not self.layer_types,
                "inner must divide n_encoder_layers and leave every group a turn, all layers alike",
            )
        if self.position == "learned" and self.max_length is None:
            raise ArchitectureError(
                "max_length: learned positions need a table; give the longest row as a positive integer."
            )
        if self.position == "sinusoidal":
            self._require("d_embedding", self.d_embedding % 2 == 0, "sinusoids need an even width")
            minus_one = self.sinusoid is not None and self.sinusoid.denominator == "half_minus_one"
            self._require("d_embedding", self.d_embedding > 2 or not minus_one, "this denominator needs a width from 4")
        self._require(
            "sinusoid",
            (self.sinusoid is not None) == (self.position == "sinusoidal"),
            "it goes with position 'sinusoidal'",
        )
        self._require("rope", (self.rope is not None) == (self.position == "rope"), "it goes with position 'rope'")
        self._require("alibi", (self.alibi is not None) == (self.position == "alibi"), "it goes with position 'alibi'")
        self._require(
            "position_offset",
            self.position_offset == 0 or self.position in ("learned", "sinusoidal"),
            "only learned and sinusoidal positions can start elsewhere than at 0",
        )
        self._require(
            "encoder",
            self.encoder is None or self.kind == "encoder-decoder",
            "only an encoder-decoder's encoder can differ",
        )
        self._require(
            "head",
            self.head != "language" or self.n_decoder_layers > 0,
            "an encoder takes 'masked', a classification or none",
        )
        self._require("head", self.head != "masked" or self.kind == "encoder", "only an encoder takes a masked head")
        vocabulary_head = self.head in ("language", "masked")
        for name in ("tied", "logit_bias"):
            self._require(name, not getattr(self, name) or vocabulary_head, "it belongs to a head over the vocabulary")
        self._require(
            "head_transform", self.head_transform is None or self.head is not None, "there is no head to put it in"
        )
        self._require("head_bias", self.head_bias or self.head_transform is not None, "there is no head_transform")
        if isinstance(self.head, Classification) and self.head.norm:
            self._require("head", self.head_transform is not None, "its norm follows a head_transform")
        self._require(
            "tied",
            not self.tied or self.d_embedding == self.d_model or self.head_transform is not None,
            "the table is d_embedding wide and the model d_model; a head_transform must bridge them",
        )
        self._require(
            "layer_types",
            self.experts is not None or all(kind.sparse for kind in self.layer_types),
            "a layer that is not sparse goes with experts in the others",
        )
        deepest = max(tower.n_layers for tower in self.towers)
        self._require(
            "layer_types", len(self.layer_types) <= deepest, f"there are {deepest} layers; give at most one for each"
        )
        for tower in self.towers:
            self._check_tower(tower)

    def _check_tower(self, tower: Tower) -> None:
        if tower.n_heads % tower.n_kv_heads:
            raise ArchitectureError(
                f"n_kv_heads: {tower.n_kv_heads} does not divide the {tower.n_heads} heads of the {tower.name}; "
                "choose a divisor."
            )
        for layer in tower.layers:
            rope = layer.rope
            if rope is None:
                continue
            if self.position != "rope":
                raise ArchitectureError("layer_types.rope: a rotation needs position 'rope'.")
            dim = rope.dim or tower.d_head
            if dim > tower.d_head or dim % 2:
                raise ArchitectureError(
                    f"rope.dim: {dim} dimensions cannot turn in a head of {tower.d_head}; give an even number to that."
                )
            scaling = rope.scaling
            if scaling is not None and scaling.kind == "dynamic" and dim == 2:
                raise ArchitectureError(
                    "rope.dim: 'dynamic' scaling needs more than one pair to turn; give at least 4."
                )
            for factors in (scaling.short_factor, scaling.long_factor) if scaling else ():
                if factors is not None and len(factors) != dim // 2:
                    raise ArchitectureError(
                        f"rope.scaling: {len(factors)} factors for {dim // 2} pairs of dimensions; give one for each."
                    )

    # What follows from the fields

    @property
    def kind(self) -> Literal["encoder", "decoder", "encoder-decoder"]:
        """Which of the paper's figures this is: from which towers have layers."""
        if self.n_encoder_layers and self.n_decoder_layers:
            return "encoder-decoder"
        return "encoder" if self.n_encoder_layers else "decoder"

    @cached_property
    def towers(self) -> tuple[Tower, ...]:
        """The stacks there are, encoder first, every choice resolved."""
        names: tuple[TowerName, ...] = ("encoder", "decoder")
        return tuple(self._tower(name) for name in names if getattr(self, f"n_{name}_layers"))

    def tower(self, name: TowerName) -> Tower:
        """The stack of that name; ``KeyError`` where there is none."""
        for tower in self.towers:
            if tower.name == name:
                return tower
        raise KeyError(f"a {self.kind} has no {name}")

    def _tower(self, name: TowerName) -> Tower:
        n_layers = getattr(self, f"n_{name}_layers")
        own = self.encoder if name == "encoder" and self.encoder is not None else EncoderDifferences()
        n_heads = own.n_heads or self.n_heads
        d_head = own.d_head or self.d_head
        kinds = [
            Layer(
                window=kind.window,
                rope=self.rope if kind.rope == "shared" else kind.rope,
                sparse=kind.sparse and self.experts is not None,
            )
            for kind in self.layer_types or (LayerType(),)
        ]
        return Tower(
            name=name,
            n_layers=n_layers,
            n_heads=n_heads,
            n_kv_heads=own.n_kv_heads or (n_heads if self.n_kv_heads == self.n_heads else self.n_kv_heads),
            d_head=d_head,
            d_ff=own.d_ff or self.d_ff,
            causal=name == "decoder",
            cross=name == "decoder" and self.kind == "encoder-decoder",
            attention_scale=own.attention_scale
            or (d_head**-0.5 if self._is_derived("attention_scale") else self.attention_scale),
            layers=tuple(kinds[i % len(kinds)] for i in range(n_layers)),
            schedule=self.shared_layers.schedule(n_layers) if self.shared_layers else tuple(range(n_layers)),
        )

    @property
    def source_vocab_size(self) -> int:
        """Rows of the table that the encoder reads."""
        return (self.encoder.vocab_size if self.encoder else None) or self.vocab_size

    @property
    def shares_embedding(self) -> bool:
        """Whether an encoder-decoder reads source and target tokens from one table."""
        return self.kind == "encoder-decoder" and not (self.encoder and self.encoder.vocab_size)

    # Copies, differences, and the written forms

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; what was derived is derived anew."""
        records.refuse_unknown(changes, type(self), "")
        kept = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if not self._is_derived(f.name)}
        if changes.get("position", self.position) != self.position:  # organs of the old kind go with it
            kept = {name: value for name, value in kept.items() if name not in ("rope", "sinusoid", "alibi")}
        return type(self)(**{**kept, **changes})

    def difference(self, other: Architecture) -> dict[str, tuple[Any, Any]]:
        """The fields in which two architectures differ: ``{name: (mine, theirs)}``."""
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self)}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def _is_derived(self, name: str) -> bool:
        return name in DERIVED and getattr(self, name) == DERIVED[name](self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without what equals its default; ``from_dict`` gives back an equal record."""
        return {name: value for name, value in records.plain_data(self).items() if not self._is_derived(name)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read ``to_dict``'s data; unknown keys are refused with the nearest name."""
        return records.build(cls, data, "")

    def to_json(self) -> str:
        """``to_dict`` as JSON."""
        return records.to_json(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read ``to_json``; a key that stands twice is refused."""
        return cls.from_dict(records.from_json(text))

    def to_toml(self) -> str:
        """``to_dict`` as TOML."""
        return records.to_toml(self.to_dict())

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read ``to_toml``, or a recipe written by hand."""
        return cls.from_dict(records.from_toml(text))


def check_layers(name: str, n_layers: Any) -> None:
    """``ArchitectureError`` for more layers than any Transformer has: what is worked out for each would never end."""
    if isinstance(n_layers, int) and n_layers > MOST_LAYERS:
        raise ArchitectureError(f"{name}: {n_layers} does not fit; give {MOST_LAYERS} at most.")


DERIVED: dict[str, Callable[[Architecture], Any]] = {
    "n_kv_heads": lambda a: a.n_heads,
    "d_head": lambda a: a.d_model // a.n_heads,
    "norm_bias": lambda a: a.norm == "layernorm" and a.norm_weight != "none",
    "final_norm": lambda a: a.norm_placement != "post",
    "attention_scale": lambda a: a.d_head**-0.5,
    "d_embedding": lambda a: a.d_model,
    "sinusoid": lambda a: Sinusoid() if a.position == "sinusoidal" else None,
    "rope": lambda a: Rope() if a.position == "rope" else None,
    "alibi": lambda a: Alibi() if a.position == "alibi" else None,
}
