"""StableLM: Llama with LayerNorm, a quarter of each head turned; perhaps parallel, perhaps a norm for every head."""

from plait.families.llama import LLAMA
from plait.families.operations import chosen
from plait.families.rope import rotary
from plait.families.settings import key

STABLELM = LLAMA.relative(
    "stablelm",
    classes=("StableLmForCausalLM", "StableLmModel"),
    settings={
        "vocab_size": key("vocab_size", 50304),
        "d_model": key("hidden_size", 2560),
        "n_kv_heads": key("num_key_value_heads", 32),
        "d_head": None,
        "d_ff": key("intermediate_size", 6912),
        "norm": "layernorm",
        "norm_eps": key("layer_norm_eps", 1e-5),
        "parallel": key("use_parallel_residual", False, chosen("shared", "none")),
        **rotary(4096, partial=0.25, partial_by_default=True),
        "qkv_bias": key("use_qkv_bias", False),
        "output_bias": False,
        "qk_norm": key("qk_layernorm", False, chosen("per_head", None)),
        "ffn_bias": False,
    },
    weights={
        "decoder.layers.{i}.attention.{query,key}_norm.weight": "layers.{i}.self_attn.{q,k}_layernorm.norms.{e}.weight"
    },
    ignored=frozenset({"hidden_dropout"}),
    ids={"bos_token_id": 0, "eos_token_id": 0},
    tokenizer=None,
)
