"""Architecture: the space of Transformers as one frozen record.

Every part of the model, every family of checkpoints, every preset and every count reads this record and nothing else.
A value that makes no sense is refused where it is written, with the field, the value, and what would be right.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

from plait import checks, records
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
        checks.check_sizes(self)
        for name, derive in DERIVED.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, derive(self))
        checks.check_together(self)
        checks.check_tables(self)
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
