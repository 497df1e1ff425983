"""Rotations in GGUF: metadata that says how they are stretched, and tensors with a factor for each pair of dimensions.

Llama 3.1's scaling is written as the factors that it comes to (``rope_freqs.weight``), LongRoPE's two lists as two
tensors; the rest is numbers. Facts are llama.cpp's (``convert_hf_to_gguf.py``, ``src/llama-model.cpp``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from plait.architecture import Rope, RopeScaling
from plait.families.errors import FamilyError
from plait.families.operations import float32
from plait.families.rope import SCALINGS

FREQUENCIES = "rope_freqs.weight"  # one list of factors
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
TENSORS = (FREQUENCIES, LONG, SHORT)

# metadata key, behind "{architecture}." -> the name it has in a table of transformers
KEYS = {
    "rope.scaling.type": "rope_type",
    "rope.scaling.factor": "factor",
    "rope.scale_linear": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.attn_factor": "attention_factor",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}


def table(metadata: Mapping[str, Any], own: Mapping[str, Any], theta: float, width: int, longest: int | None) -> Any:
    """How the rotations of heads of ``width`` are stretched, as transformers' ``rope_scaling``; empty for not at all.

    ``own`` are the architecture's keys without its name; ``metadata`` holds the values of tensors of factors too.
    """
    for key, value in own.items():
        if key in (*KEYS, "rope.dimension_count", "rope.freq_base") and key != "rope.scaling.type":
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise FamilyError(f"{key}: {value!r} is no number, which a rotation needs there.")
    said = {KEYS[key]: value for key, value in own.items() if key in KEYS}
    kind, strength = said.setdefault("rope_type", "linear"), said.pop("attention_factor", 1.0)
    if kind == "yarn" and strength != 1.0:  # there it multiplies what the factor gives
        said["attention_factor"] = strength * (0.1 * math.log(said.get("factor", 1.0)) + 1)
    if factors := metadata.get(FREQUENCIES):
        said = recognised(list(factors), theta, said.get("original_max_position_embeddings", 8192))
    elif SHORT in metadata and LONG in metadata:
        lists = {"short_factor": list(metadata[SHORT]), "long_factor": list(metadata[LONG])}
        original = said.get("original_max_position_embeddings") or longest
        lists |= _strength(strength, original, longest)
        said = {"rope_type": "longrope", "original_max_position_embeddings": original, **lists}
    elif kind == "none" or (kind == "linear" and said.get("factor", 1.0) in (0.0, 1.0)):
        said = {}
    if turned := own.get("rope.dimension_count"):
        said["partial_rotary_factor"] = turned / width
    return said


def _strength(written: float, original: int | None, longest: int | None) -> dict[str, float]:
    """What multiplies cosines and sines, unless it is what follows from the two lengths: llama.cpp takes 1 unsaid."""
    usual = _usual_strength(longest / original, original) if longest and original else None
    alike = usual is not None and math.isclose(written, usual, rel_tol=2**-22)
    return {} if alike else {"attention_factor": written}


def _usual_strength(factor: float, original: int) -> float:
    """LongRoPE's, where no number says another (Ding et al. 2024)."""
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))


def recognised(factors: list[float], theta: float, original: int = 8192) -> dict[str, Any]:
    """What slows each pair of dimensions: Llama 3.1's numbers where they give these factors, or the list itself."""
    numbers = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": original}
    scaling = RopeScaling(kind="llama3", factor=max(factors), original_max_length=original)
    expected = llama3_factors(scaling, theta, len(factors))
    if all(math.isclose(f, e, rel_tol=1e-5) for f, e in zip(factors, expected, strict=True)):
        return {"rope_type": "llama3", "factor": scaling.factor, **numbers}
    plain = {"factor": 1.0, "attention_factor": 1.0}
    lists = {"short_factor": factors, "long_factor": factors, "original_max_position_embeddings": original}
    return {"rope_type": "longrope", **lists, **plain}


def llama3_factors(scaling: RopeScaling, theta: float, pairs: int) -> list[float]:
    """How much slower each pair of dimensions turns under Llama 3.1's scaling: the factor, 1, or between."""
    low, high, original = scaling.low_freq_factor, scaling.high_freq_factor, scaling.original_max_length or 0
    turns = [original * theta ** (-i / pairs) / (2 * math.pi) for i in range(pairs)]
    kept = [min(max((t - low) / (high - low), 0.0), 1.0) for t in turns]
    return [1 / ((1 - k) / scaling.factor + k) for k in kept]


def metadata(rope: Rope, d_head: int, longest: int, reads: tuple[str, ...]) -> dict[str, Any]:
    """The keys, and under the names of tensors in ``reads`` their values, that say a rotation; ``as_read`` of it."""
    said: dict[str, Any] = {"rope.dimension_count": rope.dim or d_head, "rope.freq_base": rope.theta}
    scaling = rope.scaling
    if scaling is None:
        return said
    original = {"rope.scaling.original_context_length": scaling.original_max_length}
    pairs = (rope.dim or d_head) // 2
    if scaling.kind == "llama3" and FREQUENCIES in reads:
        return said | original | {FREQUENCIES: llama3_factors(scaling, rope.theta, pairs)}
    if scaling.kind == "longrope" and LONG in reads:
        assert scaling.short_factor is not None and scaling.long_factor is not None
        strength = scaling.attention_factor or _usual_strength(scaling.factor, scaling.original_max_length or 0)
        if scaling.short_factor == scaling.long_factor and strength == 1.0 and FREQUENCIES in reads:
            return said | original | {FREQUENCIES: list(scaling.short_factor)}
        said |= {"rope.scaling.type": "longrope", "rope.scaling.attn_factor": strength, **original}
        return said | {LONG: list(scaling.long_factor), SHORT: list(scaling.short_factor)}
    if scaling.kind not in ("linear", "yarn"):
        raise FamilyError(f"rope.scaling: llama.cpp has no {scaling.kind!r} scaling for this architecture in GGUF.")
    said |= {"rope.scaling.type": scaling.kind, "rope.scaling.factor": scaling.factor}
    if scaling.kind == "linear":
        return said
    betas = {"rope.scaling.yarn_beta_fast": scaling.beta_fast, "rope.scaling.yarn_beta_slow": scaling.beta_slow}
    return said | original | betas


def as_read(rope: Rope, said: Mapping[str, Any], longest: int) -> Rope:
    """The same rotation as ``table`` reads what ``metadata`` wrote: factors may stand for numbers, floats are short."""
    scaling = rope.scaling
    if scaling is None:
        return replace(rope, theta=shortest(rope.theta))
    original = scaling.original_max_length or longest
    read: dict[str, Any] = {}
    if factors := said.get(FREQUENCIES):
        read = recognised(factors, rope.theta, original)
    elif LONG in said:
        read = {
            "rope_type": "longrope",
            "short_factor": said[SHORT],
            "long_factor": said[LONG],
            "factor": longest / original,
        }
        read |= {"original_max_position_embeddings": original}
        read |= _strength(said["rope.scaling.attn_factor"], original, longest)
    if read:
        ours = {foreign: name for name, (foreign, _) in SCALINGS[read["rope_type"]].items()} | {"rope_type": "kind"}
        said_so: dict[str, Any] = {ours[k]: tuple(v) if isinstance(v, list) else v for k, v in read.items()}
        scaling = RopeScaling(**said_so)
    numbers = {f.name: getattr(scaling, f.name) for f in fields(scaling)}
    rounded = {name: shortest(value) for name, value in numbers.items() if isinstance(value, float)}
    return replace(rope, theta=shortest(rope.theta), scaling=replace(scaling, **rounded))


def shortest(number: float) -> float:
    """1e-05, where a float32 says 9.99999975e-06: the shortest decimal number that is stored so."""
    written = (float(f"{number:.{digits}g}") for digits in range(1, 10))
    return next((short for short in written if float32(short) == float32(number)), number)
