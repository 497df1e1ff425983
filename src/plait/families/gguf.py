"""GGUF's dialects: llama.cpp's names of tensors and metadata, each as a relative of the family it was converted from.

What llama.cpp takes for granted is fixed here, so that an architecture that differs is refused by its name. Facts are
llama.cpp's (``convert_hf_to_gguf.py``, ``src/llama-model.cpp``, ``src/models``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from plait.architecture import Architecture, LayerType, Rope
from plait.families import gguf_rope
from plait.families.bert import BERT
from plait.families.binding import Rule, via
from plait.families.errors import FamilyError
from plait.families.family import Family
from plait.families.gemma import GEMMA, GEMMA2
from plait.families.gemma3 import GEMMA3
from plait.families.gguf_family import GGUFFamily
from plait.families.gpt2 import GPT2
from plait.families.llama import LLAMA
from plait.families.operations import CAT, INTERLEAVE, Fields
from plait.families.phi3 import PHI3
from plait.families.qwen import QWEN2, QWEN3
from plait.families.rope import RopeSettings, rotary
from plait.families.settings import Setting, derived, key, stored
from plait.families.starcoder2 import STARCODER2
from plait.families.windows import listed_windows, uniform_window

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
TOGETHER: dict[str, Rule] = {
    "decoder.layers.{i}.attention.{query,key,value,output}": None,
    "decoder.layers.{i}.attention.{query,key,value}": via("blk.{i}.attn_qkv", CAT),
    "decoder.layers.{i}.attention.output": "blk.{i}.attn_output",
}


def dialect(family: Family, arch: str, weights: Mapping[str, Rule], **differences: Any) -> GGUFFamily:
    """``family`` in the spelling of GGUF; ``differences`` are fields of the record, and settings known otherwise."""
    usual = {f.name: getattr(family, f.name) for f in dataclasses.fields(family)}
    fields = {f.name for f in dataclasses.fields(GGUFFamily)}
    members = {name: value for name, value in differences.items() if name in fields}
    settings = {name: rule for name, rule in differences.items() if name not in fields}
    own = {"arch": arch, "settings": {**family.settings, **settings}, "weights": weights, "tied": False, "heads": {}}
    own |= {"prefix": "", "prefixes": (), "aliases": {}, "live": frozenset(), "older": {}}  # all files are named alike
    own |= {"leftovers": (r"rope_(freqs|factors_(long|short))\.weight",)}
    return GGUFFamily(**usual | own | members)


def _rope(**options: Any) -> dict[str, Any]:
    return rotary(4096, partial_by_default=True, **options)


def _patterned(default: int | None, period: int, local: RopeSettings | None = None) -> Setting:
    """Of every ``period`` layers all but the last see only a window; ``local`` is the rotation of those that do."""

    def slides(layer: int, config: Mapping[str, Any]) -> bool:
        said = config.get("sliding_window_pattern", period)
        return bool(said[layer]) if isinstance(said, list) else (layer + 1) % said != 0

    read = listed_windows(default, slides, reads=("sliding_window_pattern",), local=local)

    def save(types: tuple[LayerType, ...], fields: Fields) -> dict[str, Any]:
        n_layers = fields["n_decoder_layers"]
        spread = [types[i % len(types)] if types else LayerType() for i in range(n_layers)]
        windows = {kind.window for kind in spread if kind.window is not None}
        if not windows:
            return {}
        whole = [i + 1 for i, kind in enumerate(spread) if kind.window is None]
        said = period if not whole and period > n_layers else min(whole, default=n_layers + 1)
        ropes = [kind.rope for kind in spread if kind.window is not None and isinstance(kind.rope, Rope)]
        theta = {"rope_local_base_freq": (ropes[0] if ropes else fields["rope"]).theta} if local else {}
        return {"sliding_window": max(windows), "sliding_window_pattern": said, **theta}

    return dataclasses.replace(read, save=save)


def _gemma_scale(largest: int) -> Setting:
    """The scale of Gemma's scores is not in the file: llama.cpp takes it from the number of layers, ``largest`` in the
    model of 27B."""

    def scale(fields: Mapping[str, Any]) -> float:
        is_27b = fields["n_decoder_layers"] == largest
        return (fields["d_model"] // fields["n_heads"] if is_27b else fields["d_head"]) ** -0.5

    return derived(scale)


# Their norms hold 1 + w: plain here, and no bit is lost
GEMMA_FIELDS = {"norm_weight": "plain", "activation": "gelu_tanh", "qkv_bias": False, "output_bias": False}

Limits = dict[str, tuple[Callable[[Architecture], bool], str]]
WHOLE_HEAD: Limits = {"rope.dim": (lambda a: a.rope is None or a.rope.dim is None, "the whole head")}
EVEN_HEADS: Limits = {"d_head": (lambda a: a.d_head * a.n_heads == a.d_model, "d_model / n_heads")}
TIED: Limits = {"tied": (lambda a: a.tied, "always so")}
WINDOW = ("attention.sliding_window",)

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
        reads=gguf_rope.TENSORS,
        limits=WHOLE_HEAD,
        unheeded=WINDOW,
        qkv_bias=stored("blk.0.attn_q.bias", unknown=False),
        output_bias=stored("blk.0.attn_output.bias", unknown=False),
        ffn_bias=stored("blk.0.ffn_up.bias", unknown=False),
        activation="silu",
        layer_types=uniform_window(None),
    ),
    dialect(
        QWEN2,
        "qwen2",
        BLOCKS,
        **_rope(),
        limits=EVEN_HEADS,
        layer_types=(),
        activation="silu",
        d_head=key("head_dim", None),
    ),
    dialect(QWEN3, "qwen3", BLOCKS, **_rope(), layer_types=(), activation="silu", qkv_bias=False, output_bias=False),
    dialect(GEMMA, "gemma", BLOCKS, **_rope(), **GEMMA_FIELDS, limits=TIED),
    dialect(
        GEMMA2,
        "gemma2",
        BOTH_NORMS,
        **_rope(),
        **GEMMA_FIELDS,
        limits=TIED,
        attention_scale=_gemma_scale(46),
        layer_types=_patterned(4096, 2),
    ),
    dialect(
        GEMMA3,
        "gemma3",
        BOTH_NORMS,
        **_rope(theta=1e6),
        **GEMMA_FIELDS,
        attention_scale=_gemma_scale(62),
        layer_types=_patterned(
            None, 6, RopeSettings(theta_key="rope_local_base_freq", layer_type="sliding_attention", scaled=False)
        ),
    ),
    dialect(
        GPT2,
        "gpt2",
        {**BLOCKS, **TOGETHER, "embedding.positions": "position_embd"},
        synonyms={**GPT2.synonyms, "intermediate_size": "n_inner"},
        activation="gelu_tanh",
    ),
    dialect(
        PHI3,
        "phi3",
        {
            **BLOCKS,
            **TOGETHER,
            "decoder.layers.{i}.ffn.{gate,up,down}": None,
            "decoder.layers.{i}.ffn.{gate,up}": via("blk.{i}.ffn_up", CAT),
            "decoder.layers.{i}.ffn.down": "blk.{i}.ffn_down",
        },
        **_rope(),
        reads=(gguf_rope.LONG, gguf_rope.SHORT),
        limits=EVEN_HEADS,
        unheeded=WINDOW,
        activation="silu",
    ),
    dialect(
        STARCODER2,
        "starcoder2",
        BLOCKS,
        **_rope(),
        limits=EVEN_HEADS | WHOLE_HEAD,
        unheeded=WINDOW,
        synonyms={"layer_norm_epsilon": "norm_epsilon"},
        qkv_bias=True,
        output_bias=True,
        ffn_bias=True,
        activation="gelu_tanh",
    ),
    dialect(
        BERT,
        "bert",
        {
            "embedding.{tokens,positions,types}": "{token_embd,position_embd,token_types}",
            "embedding.norm": "token_embd_norm",
            "encoder.layers.{i}.attention.{query,key,value,output}": "blk.{i}.attn_{q,k,v,output}",
            "encoder.layers.{i}.attention_norms.merge": "blk.{i}.attn_output_norm",
            "encoder.layers.{i}.ffn.{up,down}": "blk.{i}.ffn_{up,down}",
            "encoder.layers.{i}.ffn_norms.merge": "blk.{i}.layer_output_norm",
        },
        synonyms={"layer_norm_epsilon": "layer_norm_eps"},
        bare=True,
        token_types=key("type_vocab_size", 0),
        activation="gelu",
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


def gguf_families(origin: str | None) -> tuple[GGUFFamily, ...]:
    """All dialects, that of the family called ``origin`` first: each may be able to say an architecture."""
    near = {"mistral": "llama"}.get(origin or "", origin)
    return tuple(sorted(DIALECTS, key=lambda family: near not in (family.name, family.arch)))
