"""Organs: the records inside an Architecture, for parts that some Transformers have and that take several numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from plait.records import ArchitectureError, check_types

Pooling = Literal["cls", "mean", "last"]
ScalingKind = Literal["linear", "dynamic", "yarn", "longrope", "llama3"]


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the length a model was trained on.

    ``linear`` (Chen et al. 2023), ``dynamic`` (NTK by length), ``yarn`` (Peng et al. 2023), ``longrope`` (Ding et al.
    2024) and ``llama3`` (Llama 3.1) read only the fields that concern them.
    """

    kind: ScalingKind
    factor: float = 1.0
    original_max_length: int | None = None
    attention_factor: float | None = None  # yarn, longrope: what multiplies cos and sin; None: from the factor
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    short_factor: tuple[float, ...] | None = None
    long_factor: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_types(self, "rope.scaling")
        if self.kind != "linear" and self.original_max_length is None:
            raise ArchitectureError(
                f"rope.scaling.original_max_length: {self.kind!r} scaling needs the length that was trained on, a "
                "positive integer."
            )
        if self.original_max_length is not None and self.original_max_length < 2:
            raise ArchitectureError(
                f"rope.scaling.original_max_length: {self.original_max_length} is no length; give 2 or more."
            )
        if self.factor <= 0:
            raise ArchitectureError(f"rope.scaling.factor: {self.factor} is not positive.")
        if self.kind == "longrope" and (self.short_factor is None or self.long_factor is None):
            raise ArchitectureError("rope.scaling: 'longrope' needs short_factor and long_factor, one number per pair.")
        if self.kind == "llama3" and self.high_freq_factor <= self.low_freq_factor:
            raise ArchitectureError(
                f"rope.scaling.high_freq_factor: {self.high_freq_factor} must exceed low_freq_factor, "
                f"{self.low_freq_factor}."
            )

    @property
    def by_length(self) -> bool:
        """Whether the frequencies depend on how long a row is."""
        return self.kind in ("dynamic", "longrope")


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotary position embedding (Su et al. 2021, eq. 34): which dimensions turn, how fast, and how they pair up."""

    theta: float = 10000.0
    dim: int | None = None  # rotated dimensions of a head; None: all of them
    interleaved: bool = False  # pairs (0, 1), (2, 3), ... instead of (0, d/2), (1, d/2 + 1), ...
    scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        check_types(self, "rope")
        if self.theta <= 1:
            raise ArchitectureError(f"rope.theta: {self.theta} must exceed 1, or no pair turns slower than the first.")
        if self.dim is not None and (self.dim < 2 or self.dim % 2):
            raise ArchitectureError(
                f"rope.dim: {self.dim} dimensions cannot be paired; give an even number of at least 2."
            )


@dataclass(frozen=True, kw_only=True)
class LayerType:
    """What may differ from layer to layer: how far attention sees, how it is rotated, what feeds forward.

    ``window`` w: a causal token sees itself and the w - 1 before it; a bidirectional one sees w to either side.
    ``rope``: ``"shared"`` is the architecture's own, ``None`` is no rotation (NoPE), a ``Rope`` is this type's own.
    ``sparse``: whether it has the experts, where the architecture has any, or a plain feed-forward network.
    """

    window: int | None = None
    rope: Rope | Literal["shared"] | None = "shared"
    sparse: bool = True

    def __post_init__(self) -> None:
        check_types(self, "layer_types")
        if self.window is not None and self.window < 1:
            raise ArchitectureError(
                f"layer_types.window: {self.window} lets a token see nothing; give at least 1 or none."
            )


@dataclass(frozen=True, kw_only=True)
class RelativeBias:
    """T5's learned bias by bucketed distance (Raffel et al. 2020, 2.1), added to the scores of self-attention."""

    buckets: int = 32
    max_distance: int = 128
    per_layer: bool = False  # a table in every layer (UMT5) instead of one, in layer 0, for the whole tower

    def __post_init__(self) -> None:
        check_types(self, "relative_bias")
        if self.buckets < 4 or self.buckets % 2:
            raise ArchitectureError(
                f"relative_bias.buckets: {self.buckets} cannot be halved; give an even number from 4."
            )
        if self.max_distance <= self.buckets // 2:
            raise ArchitectureError(
                f"relative_bias.max_distance: {self.max_distance} must exceed half the buckets ({self.buckets // 2})."
            )


@dataclass(frozen=True, kw_only=True)
class Sinusoid:
    """The fixed table of Vaswani et al. 2017 (3.5): ``interleaved`` is the paper's sin, cos, sin, cos; ``halves`` is
    all sines, then all cosines. The exponent's denominator is d/2 in the paper, d/2 - 1 in fairseq."""

    layout: Literal["interleaved", "halves"] = "interleaved"
    denominator: Literal["half", "half_minus_one"] = "half"

    def __post_init__(self) -> None:
        check_types(self, "sinusoid")


@dataclass(frozen=True, kw_only=True)
class Alibi:
    """Penalties that grow with distance, at a slope for each head (Press et al. 2022).

    ``scaled``: they are added before the scores are scaled, so the scale applies to them too; ``rounded``: slopes are
    kept in bfloat16. Falcon does both.
    """

    scaled: bool = False
    rounded: bool = False

    def __post_init__(self) -> None:
        check_types(self, "alibi")


@dataclass(frozen=True, kw_only=True)
class Experts:
    """A feed-forward network in many parts, of which a router picks a few for every token (Shazeer et al. 2017).

    ``router``: the ``softmax`` over all experts, then the best; the best, then their softmax (``softmax_topk``); or a
    ``sigmoid`` for each (DeepSeek-V3), where only experts in the ``top_groups`` best of ``groups`` are picked.
    """

    n_experts: int
    per_token: int  # how many are picked
    d_expert: int  # width of one
    router: Literal["softmax", "softmax_topk", "sigmoid"] = "softmax"
    router_bias: bool = False
    selection_bias: bool = False  # learned, moves who is picked but not how much they count
    renormalize: bool = False  # weights of the picked add up to 1
    routed_scale: float = 1.0
    groups: int = 1
    top_groups: int = 1
    d_shared: int | None = None  # width of one more that every token takes
    shared_gate: bool = False  # which counts by the sigmoid of a number of its own (Qwen)

    def __post_init__(self) -> None:
        check_types(self, "experts")
        for name in ("n_experts", "per_token", "d_expert", "groups", "top_groups"):
            if getattr(self, name) < 1:
                raise ArchitectureError(f"experts.{name}: {getattr(self, name)} does not fit; give at least 1.")
        if self.n_experts % self.groups:
            raise ArchitectureError(
                f"experts.groups: {self.groups} does not divide the {self.n_experts} experts; choose a divisor."
            )
        if self.top_groups > self.groups:
            raise ArchitectureError(
                f"experts.top_groups: {self.top_groups} of {self.groups} groups cannot be kept; give that at most."
            )
        if self.groups > 1 and self.router != "sigmoid":
            raise ArchitectureError(f"experts.groups: a {self.router!r} router has no groups; 'sigmoid' has.")
        reach = self.n_experts // self.groups * self.top_groups
        if self.per_token > reach:
            raise ArchitectureError(
                f"experts.per_token: {self.per_token} cannot be picked among {reach}; give that at most."
            )
        if self.groups > 1 and self.n_experts // self.groups < 2:
            raise ArchitectureError("experts.groups: a group is judged by its two best; give it at least two experts.")
        if self.renormalize and self.router == "softmax_topk":
            raise ArchitectureError("experts.renormalize: the weights of 'softmax_topk' add up to 1 as they are.")
        if self.d_shared is not None and self.d_shared < 1:
            raise ArchitectureError(f"experts.d_shared: {self.d_shared} is no width; give at least 1, or none.")
        if self.shared_gate and self.d_shared is None:
            raise ArchitectureError("experts.shared_gate: there is no shared expert to gate; give experts.d_shared.")


@dataclass(frozen=True, kw_only=True)
class SharedLayers:
    """Layers that run more than once (Dehghani et al. 2019; ALBERT, Lan et al. 2020): ``groups`` of ``inner`` layers
    that differ, each group run as often as its share of all layers asks for."""

    groups: int = 1
    inner: int = 1

    def __post_init__(self) -> None:
        check_types(self, "shared_layers")
        for name in ("groups", "inner"):
            if getattr(self, name) < 1:
                raise ArchitectureError(f"shared_layers.{name}: {getattr(self, name)} does not fit; give at least 1.")

    def schedule(self, n_layers: int) -> tuple[int, ...]:
        """Which layer runs at each of ``n_layers`` turns."""
        runs = n_layers // self.inner
        groups = (int(run / (runs / self.groups)) for run in range(runs))  # in floats, as ALBERT's own code has it
        return tuple(group * self.inner + i for group in groups for i in range(self.inner))


@dataclass(frozen=True, kw_only=True)
class Classification:
    """A head that names one of ``labels`` classes: from a pooled vector, or with ``pooling`` none for every token.

    ``norm``: a norm follows the transform, where there is one.
    """

    labels: int
    pooling: Pooling | None = "cls"
    norm: bool = False

    def __post_init__(self) -> None:
        check_types(self, "head")
        if self.labels < 1:
            raise ArchitectureError(f"head.labels: {self.labels} classes cannot be told apart; give at least 1.")


@dataclass(frozen=True, kw_only=True)
class EncoderDifferences:
    """Where an encoder-decoder's encoder differs from its decoder; ``None`` is 'the same'."""

    vocab_size: int | None = None  # a table of its own, with this many rows
    n_heads: int | None = None
    n_kv_heads: int | None = None
    d_head: int | None = None
    d_ff: int | None = None
    attention_scale: float | None = None

    def __post_init__(self) -> None:
        check_types(self, "encoder")
        for name, value in vars(self).items():
            if value is not None and value <= 0:
                raise ArchitectureError(f"encoder.{name}: {value} is not positive; leave it out to be as the decoder.")
