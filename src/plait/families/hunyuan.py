"""Hunyuan: Llama with norms on queries and keys after they have been turned, and a slower theta said as ``alpha``."""

from plait.families.llama import LLAMA
from plait.families.rope import rotary
from plait.families.settings import insisting, key

HUNYUAN_DENSE = LLAMA.relative(
    "hunyuan_v1_dense",
    classes=("HunYuanDenseV1ForCausalLM", "HunYuanDenseV1Model"),
    settings={
        **rotary(2048, alpha=True),
        "vocab_size": key("vocab_size", 290943),
        "norm_eps": key("rms_norm_eps", 1e-5),
        "ffn_bias": False,
        "qk_norm": insisting("head", use_qk_norm=True, use_cla=False, position_embedding_xdrope=False),
        "qk_norm_after_rope": True,
    },
    weights={"decoder.layers.{i}.attention.{query_norm,key_norm}": "layers.{i}.self_attn.{query,key}_layernorm"},
    # Of its own code, where each has one value
    ignored=frozenset(
        "attention_head_dim eod_token_id cla_share_factor norm_type use_rotary_pos_emb add_classification_head "
        "class_num pool_type dense_list org_vocab_size".split()
    ),
    ids={"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    tokenizer=None,
)
