"""Positions answer three questions: what to add to embeddings, how to rotate queries and keys, what to add to scores.

Legend: b batch, n length, q queries, k keys, h heads, r rotated dimensions of a head. Tables are computed in float32
(float64 for a float64 model) whatever the weights are: neighbours share a position in half precision.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from plait.architecture import Alibi, RelativeBias, Rope, RopeScaling, Sinusoid
from plait.model.sites import Part


def table_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which positions are reckoned for a model of that type."""
    return torch.promote_types(dtype, torch.float32)


def sinusoids(positions: Tensor, width: int, spec: Sinusoid) -> Tensor:
    """The fixed table of Vaswani et al. 2017 (3.5) at ``positions`` ``(...)`` -> ``(..., width)`` float32.

    PE(pos, 2i) = sin(pos / 10000^(i / denominator)), PE(pos, 2i + 1) = cos of the same.
    """
    half = width // 2
    denominator = half if spec.denominator == "half" else half - 1
    wide = torch.float32 if positions.device.type == "mps" else torch.float64  # which that device does not have
    exponent = torch.arange(half, dtype=wide, device=positions.device) / denominator
    angle = positions.to(wide).unsqueeze(-1) * 10000.0**-exponent
    sines, cosines = angle.sin(), angle.cos()
    if spec.layout == "interleaved":
        return torch.stack((sines, cosines), dim=-1).flatten(-2).float()
    return torch.cat((sines, cosines), dim=-1).float()


class Rotation:
    """Rotary embedding (Su et al. 2021, eq. 34) of one layer type, for heads of width ``d_head``."""

    def __init__(self, rope: Rope, d_head: int) -> None:
        self.rope, self.dim = rope, rope.dim or d_head
        self.interleaved, self.scaling = rope.interleaved, rope.scaling

    def table(self, positions: Tensor, totals: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines for ``positions`` ``(b, n)`` in rows of ``totals`` ``(b,)``: each ``(b, 1, n, r / 2)``."""
        wide = table_type(dtype)
        frequencies = inverse_frequencies(self.rope, self.dim, totals).to(wide)  # 1 or b, r / 2
        angle = (positions.to(wide).unsqueeze(-1) * frequencies.unsqueeze(1)).unsqueeze(1)
        cos, sin = angle.cos(), angle.sin()
        factor = attention_factor(self.scaling) if self.scaling else 1.0
        return (cos, sin) if factor == 1.0 else (cos * factor, sin * factor)

    def turn(self, x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate the first r dimensions of ``(b, h, n, d_head)``; the rest stays."""
        cos, sin = table
        turned, rest = (x, None) if self.dim == x.shape[-1] else x.split((self.dim, x.shape[-1] - self.dim), dim=-1)
        if self.interleaved:
            first, second = turned[..., 0::2], turned[..., 1::2]
            pairs = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2)
        else:
            first, second = turned.chunk(2, dim=-1)
            pairs = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        pairs = pairs.to(x.dtype)
        return pairs if rest is None else torch.cat((pairs, rest), dim=-1)


def inverse_frequencies(rope: Rope, dim: int, totals: Tensor) -> Tensor:
    """Radians a position for each pair of dimensions, scaled as the record says: ``(1, dim / 2)`` float32, or
    ``(b, dim / 2)`` where they depend on the rows' lengths ``totals`` ``(b,)``."""
    exponent = torch.arange(0, dim, 2, dtype=torch.int64, device=totals.device).float() / dim
    plain = (1.0 / rope.theta**exponent).unsqueeze(0)
    scaling = rope.scaling
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    original = scaling.original_max_length
    assert original is not None
    if scaling.kind == "dynamic":
        length = totals.clamp(min=original).unsqueeze(-1)
        theta = rope.theta * (scaling.factor * length / original - (scaling.factor - 1)) ** (dim / (dim - 2))
        return 1.0 / theta**exponent
    if scaling.kind == "longrope":
        short, long = (torch.tensor(f, device=totals.device) for f in (scaling.short_factor, scaling.long_factor))
        factors = torch.where(totals.unsqueeze(-1) > original, long, short)
        return 1.0 / (factors * rope.theta**exponent)
    return _llama3(scaling, plain, original) if scaling.kind == "llama3" else _yarn(rope, scaling, plain, dim, original)


def _llama3(scaling: RopeScaling, plain: Tensor, original: int) -> Tensor:
    """Llama 3.1: long waves are slowed by the factor, short ones kept, between them a blend by wavelength."""
    wavelength = 2 * math.pi / plain
    kept = (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = kept.clamp(0, 1)
    return (1 - kept) * plain / scaling.factor + kept * plain


def _yarn(rope: Rope, scaling: RopeScaling, plain: Tensor, dim: int, original: int) -> Tensor:
    """YaRN (Peng et al. 2023, eq. 22 and 23): a ramp over dimensions from kept to slowed frequencies."""

    def dimension(turns: float) -> float:  # where a pair turns that often within the original length
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    slowed = ((torch.arange(dim // 2, dtype=torch.float32, device=plain.device) - low) / (high - low)).clamp(0, 1)
    return plain / scaling.factor * slowed + plain * (1 - slowed)


def attention_factor(scaling: RopeScaling) -> float:
    """What multiplies cosines and sines (YaRN, eq. 25; LongRoPE): the record's own number, or from the factor."""
    factor = scaling.factor
    if scaling.kind not in ("yarn", "longrope"):
        return 1.0
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    if factor <= 1:
        return 1.0
    if scaling.kind == "longrope":
        assert scaling.original_max_length is not None
        return math.sqrt(1 + math.log(factor) / math.log(scaling.original_max_length))
    if scaling.mscale and scaling.mscale_all_dim:
        return (0.1 * scaling.mscale * math.log(factor) + 1) / (0.1 * scaling.mscale_all_dim * math.log(factor) + 1)
    return 0.1 * math.log(factor) + 1


def alibi_slopes(n_heads: int) -> list[float]:
    """Press et al. 2022: 2^(-8i/n) for n heads, a power of two; the heads beyond take the odd powers of 2^(-4/n)."""
    n = 2 ** int(math.log2(n_heads))
    slopes = [2 ** (-8 * i / n) for i in range(1, n + 1)]
    return slopes + [2 ** (-4 * i / n) for i in range(1, 2 * (n_heads - n), 2)]


def alibi(spec: Alibi, queries: Tensor, keys: Tensor, slopes: Tensor, scale: float) -> Tensor:
    """Positions of queries ``(..., q)`` and keys ``(..., k)`` -> what is added to scores ``(..., h, q, k)``: minus the
    distance times the head's slope, in the type of ``slopes`` ``(h,)``; ``scale`` is the scores' own.

    Rounded penalties are of the key's own position, in bfloat16: by softmax they only differ from those of a distance
    by the rounding, which grows with the position.
    """
    if spec.scaled:
        return alibi(replace(spec, scaled=False), queries, keys, slopes, 1.0) * scale
    if spec.rounded:
        rounded = keys.to(torch.bfloat16).unsqueeze(-2) * slopes.to(torch.bfloat16)[:, None]  # ... h k
        return rounded.unsqueeze(-2).to(slopes.dtype).expand(*rounded.shape[:-1], queries.shape[-1], -1)
    distance = keys.unsqueeze(-2) - queries.unsqueeze(-1)  # ... q k
    return -distance.abs().unsqueeze(-3) * slopes[:, None, None]


class RelativeScores(Part):
    """T5's table of biases by bucketed distance, for every head (Raffel et al. 2020, 2.1)."""

    def __init__(self, spec: RelativeBias, n_heads: int, *, causal: bool) -> None:
        super().__init__()
        self.spec, self.causal = spec, causal
        self.weight = nn.Parameter(torch.empty(spec.buckets, n_heads))

    def forward(self, distance: Tensor) -> Tensor:
        """``(b, q, k)``, key minus query -> ``(b, h, q, k)``."""
        buckets = relative_buckets(distance, self.spec, causal=self.causal)
        return nn.functional.embedding(buckets, self.weight).permute(0, 3, 1, 2)


def relative_buckets(distance: Tensor, spec: RelativeBias, *, causal: bool) -> Tensor:
    """Near distances have a bucket each, far ones share buckets that widen with the logarithm; the same shape, int64.

    A causal table looks back only; a bidirectional one keeps half its buckets for keys ahead.
    """
    buckets, ahead = spec.buckets, torch.zeros_like(distance)
    if causal:
        back = (-distance).clamp(min=0)
    else:
        buckets //= 2
        ahead, back = (distance > 0).long() * buckets, distance.abs()
    exact = buckets // 2
    # float32 puts every distance where float64 does; bfloat16 does not
    log = torch.log(back.clamp(min=1).float() / exact) / math.log(spec.max_distance / exact)
    far = (exact + (log * (buckets - exact)).long()).clamp(max=buckets - 1)
    return ahead + torch.where(back < exact, back, far)
