"""GGUF's dialects: llama.cpp's names of tensors and metadata, each as a relative of the family it was converted from.

A metadata key is first spelled as that family's setting, so its rules read it. Facts are llama.cpp's
(``convert_hf_to_gguf.py``, ``src/llama-model.cpp``, and the names in ``gguf.constants``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from plait.architecture import Architecture
from plait.families.binding import Rule, via
from plait.families.errors import FamilyError
from plait.families.family import Family
from plait.families.gemma import GEMMA2, GEMMA3
from plait.families.gpt2 import GPT2
from plait.families.layout import Equal
from plait.families.llama import LLAMA
from plait.families.operations import CAT, INTERLEAVE, float32
from plait.families.qwen import QWEN2, QWEN3
from plait.families.rope import RopeSettings, rotary
from plait.families.settings import derived, key, stored
from plait.families.windows import listed_windows, uniform_window

# metadata key, behind "{architecture}." -> the setting it is in transformers
KEYS = {
    "vocab_size": "vocab_size",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
    "attention.sliding_window": "sliding_window",
    "attention.sliding_window_pattern": "sliding_window_pattern",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base": "rope_theta",
    "rope.freq_base_swa": "rope_local_base_freq",
    "expert_count": "num_experts",
}
SYNONYMS = {"gpt2": {"intermediate_size": "n_inner"}}
ROPE_KEYS = {
    "rope.scaling.type": "rope_type",
    "rope.scaling.factor": "factor",
    "rope.scale_linear": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}
# Read together with another key, or of no effect on a logit
BESIDE = ("attention.value_length", "rope.dimension_count", "rope.scaling.finetuned", "tensor_data_layout")
FREQUENCIES = "rope_freqs.weight"


@dataclass(frozen=True, kw_only=True, eq=False)
class GGUFFamily(Family):
    """A family that is spelled in GGUF's metadata and read from there; it is not written."""

    arch: str = ""
    reads: tuple[str, ...] = field(default=(FREQUENCIES,))

    def architecture(
        self, config: Mapping[str, Any], names: Collection[str] | None = None, equal: Equal | None = None
    ) -> Architecture:
        """As in ``Family``, from metadata; under the name of a tensor in ``reads`` it holds the values of that one."""
        if names and FREQUENCIES in names and FREQUENCIES not in config:
            raise FamilyError(f"{FREQUENCIES}: the file scales its rotations by this tensor; pass its values along.")
        return super().architecture(self.spelled(config), names, equal)

    def unread(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Metadata of the model that nothing reads."""
        return super().unread(self.spelled(config))

    def config(self, architecture: Architecture, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Not written: save in the family's own dialect instead."""
        raise FamilyError(f"GGUF is read here, not written; save as {self.name} instead.")

    def spelled(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Metadata as the settings that the family itself would have written."""
        start = f"{self.arch}."
        own = {k.removeprefix(start): _alike(k, v) for k, v in metadata.items() if k.startswith(start)}
        config: dict[str, Any] = {"architectures": [self.classes[0]]}
        config |= {"vocab_size": len(metadata.get("tokenizer.ggml.tokens", ())) or None}
        config |= {KEYS.get(k, k): v for k, v in own.items() if k not in ROPE_KEYS and k not in BESIDE}
        width = own.get("attention.key_length") or own["embedding_length"] // own["attention.head_count"]
        if own.get("attention.value_length", width) != width:
            raise FamilyError(f"{start}attention.value_length: values are as wide as keys here, {width}.")
        table = {ROPE_KEYS[k]: v for k, v in own.items() if k in ROPE_KEYS}
        kind = table.setdefault("rope_type", "linear")
        if kind == "none" or (kind == "linear" and table.get("factor", 1.0) in (0.0, 1.0)):
            table = {}
        if factors := metadata.get(FREQUENCIES):
            table = recognised(list(factors), config.get("rope_theta") or 10000.0)
        if turned := own.get("rope.dimension_count"):
            table["partial_rotary_factor"] = turned / width
        if table and "rope" in self.settings:
            config["rope_scaling"] = table
        return config


def _alike(name: str, value: Any) -> Any:
    """One number for all layers, where llama.cpp allows one for each; 1e-05, where a float32 says 9.99999975e-06."""
    if isinstance(value, float):
        written = (float(f"{value:.{digits}g}") for digits in range(1, 10))
        return next((short for short in written if float32(short) == float32(value)), value)
    if not isinstance(value, list) or name.endswith("sliding_window_pattern"):
        return value
    if len(set(value)) != 1:
        raise FamilyError(f"{name}: it differs from layer to layer; plait has one value for all.")
    return value[0]


def recognised(factors: list[float], theta: float) -> dict[str, Any]:
    """What slows each pair of dimensions: Llama 3.1's numbers where they give these factors, or the list itself."""
    low, high, original = 1.0, 4.0, 8192
    slowest = max(factors)
    n = len(factors)
    turns = [original * theta ** (-i / n) / (2 * math.pi) for i in range(n)]
    kept = [min(max((t - low) / (high - low), 0.0), 1.0) for t in turns]
    if all(math.isclose(f, 1 / ((1 - k) / slowest + k), rel_tol=1e-4) for f, k in zip(factors, kept, strict=True)):
        numbers = {"low_freq_factor": low, "high_freq_factor": high, "original_max_position_embeddings": original}
        return {"rope_type": "llama3", "factor": slowest, **numbers}
    plain = {"factor": 1.0, "attention_factor": 1.0}
    return {"rope_type": "longrope", "short_factor": factors, "long_factor": factors, **plain}


BLOCKS: dict[str, Rule] = {
    "embedding.tokens": "token_embd",
    "decoder.layers.{i}.attention_norms.before": "blk.{i}.attn_norm",
    "decoder.layers.{i}.attention.{query,key,value,output}": "blk.{i}.attn_{q,k,v,output}",
    "decoder.layers.{i}.attention.{query_norm,key_norm}": "blk.{i}.attn_{q,k}_norm",
    "decoder.layers.{i}.ffn_norms.before": "blk.{i}.ffn_norm",
    "decoder.layers.{i}.ffn.{gate,up,down}": "blk.{i}.ffn_{gate,up,down}",
    "decoder.norm": "output_norm",
    "head.output": "output",
}
BOTH_NORMS: dict[str, Rule] = {
    **BLOCKS,
    "decoder.layers.{i}.attention_norms.after": "blk.{i}.post_attention_norm",
    "decoder.layers.{i}.ffn_norms.after": "blk.{i}.post_ffw_norm",
}


def dialect(family: Family, arch: str, weights: Mapping[str, Rule], **settings: Any) -> GGUFFamily:
    """``family`` in the spelling of GGUF; ``settings`` are the fields that llama.cpp knows otherwise."""
    own = {f.name: getattr(family, f.name) for f in dataclasses.fields(family)}
    own |= {"settings": {**family.settings, **settings}, "weights": weights, "prefix": "", "aliases": {}, "tied": False}
    own |= {"leftovers": (r"rope_freqs\.weight",), "synonyms": {**family.synonyms, **SYNONYMS.get(arch, {})}}
    return GGUFFamily(arch=arch, **own)


def _rope(**options: Any) -> dict[str, Any]:
    return rotary(4096, partial_by_default=True, **options)


# The scale of Gemma's scores is not in the file: llama.cpp takes it from the size of the model
def _gemma_scale(largest: int) -> Any:
    def scale(fields: Mapping[str, Any]) -> float:
        is_27b = fields["n_decoder_layers"] == largest
        return (fields["d_model"] // fields["n_heads"] if is_27b else fields["d_head"]) ** -0.5

    return derived(scale)


# Their norms hold 1 + w: plain here, and no bit is lost
GEMMA_FIELDS = {"norm_weight": "plain", "activation": "gelu_tanh"}

DIALECTS = (
    dialect(
        LLAMA,
        "llama",
        {
            **BLOCKS,
            "decoder.layers.{i}.attention.{query,key}": via("blk.{i}.attn_{q,k}", INTERLEAVE),
            "decoder.layers.{i}.attention.{value,output}": "blk.{i}.attn_{v,output}",
            "decoder.layers.{i}.attention.{query,key,value,output}": None,
        },
        **_rope(),
        qkv_bias=stored("blk.0.attn_q.bias", unknown=False),
        output_bias=stored("blk.0.attn_output.bias", unknown=False),
        ffn_bias=stored("blk.0.ffn_up.bias", unknown=False),
        activation="silu",
        layer_types=uniform_window(None),
    ),
    dialect(QWEN2, "qwen2", BLOCKS, **_rope(), layer_types=(), activation="silu", d_head=key("head_dim", None)),
    dialect(QWEN3, "qwen3", BLOCKS, **_rope(), layer_types=(), activation="silu", qkv_bias=False, output_bias=False),
    dialect(
        GEMMA2,
        "gemma2",
        BOTH_NORMS,
        **_rope(),
        **GEMMA_FIELDS,
        attention_scale=_gemma_scale(46),
        qkv_bias=False,
        output_bias=False,
    ),
    dialect(
        GEMMA3,
        "gemma3",
        BOTH_NORMS,
        **_rope(theta=1e6),
        **GEMMA_FIELDS,
        attention_scale=_gemma_scale(62),
        qkv_bias=False,
        output_bias=False,
        layer_types=listed_windows(
            None,
            lambda layer, config: (layer + 1) % config.get("sliding_window_pattern", 6) != 0,
            reads=("sliding_window_pattern",),
            local=RopeSettings(theta_key="rope_local_base_freq", layer_type="sliding_attention", scaled=False),
        ),
    ),
    dialect(
        GPT2,
        "gpt2",
        {
            "embedding.tokens": "token_embd",
            "embedding.positions": "position_embd",
            "decoder.layers.{i}.attention_norms.before": "blk.{i}.attn_norm",
            "decoder.layers.{i}.attention.{query,key,value}": via("blk.{i}.attn_qkv", CAT),
            "decoder.layers.{i}.attention.output": "blk.{i}.attn_output",
            "decoder.layers.{i}.ffn_norms.before": "blk.{i}.ffn_norm",
            "decoder.layers.{i}.ffn.{up,down}": "blk.{i}.ffn_{up,down}",
            "decoder.norm": "output_norm",
            "head.output": "output",
        },
        activation="gelu_tanh",
    ),
)


def gguf_family(arch: str) -> GGUFFamily:
    """The dialect of a GGUF file's ``general.architecture``; ``FamilyError`` where there is none."""
    for family in DIALECTS:
        if family.arch == arch:
            return family
    raise FamilyError(
        f"general.architecture: plait reads no {arch!r} from GGUF; it reads {', '.join(f.arch for f in DIALECTS)}."
    )
