"""Hunyuan: Llama with norms on queries and keys after they have been turned, and a slower theta said as ``alpha``."""

from plait.families.llama import LLAMA
from plait.families.rope import rotary
from plait.families.settings import key

HUNYUAN_DENSE = LLAMA.relative(
    "hunyuan_v1_dense",
    classes=("HunYuanDenseV1ForCausalLM", "HunYuanDenseV1Model"),
    settings={
        **rotary(2048, alpha=True),
        "vocab_size": key("vocab_size", 290943),
        "norm_eps": key("rms_norm_eps", 1e-5),
        "ffn_bias": False,
        "qk_norm": "head",
        "qk_norm_after_rope": True,
    },
    weights={"decoder.layers.{i}.attention.{query_norm,key_norm}": "layers.{i}.self_attn.{query,key}_layernorm"},
    ignored=frozenset({"attention_head_dim", "eod_token_id"}),
    ids={"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    tokenizer=None,
)
