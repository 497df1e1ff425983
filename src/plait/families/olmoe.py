"""OLMoE: Llama with experts, norms on whole queries and keys, and a bound on queries, keys and values."""

from plait.families.experts import EACH_ALONE, TOGETHER, mixture
from plait.families.llama import LLAMA
from plait.families.rope import rotary
from plait.families.settings import key

OLMOE = LLAMA.relative(
    "olmoe",
    classes=("OlmoeForCausalLM", "OlmoeModel"),
    settings={
        **rotary(4096),
        "vocab_size": key("vocab_size", 50304),
        "d_model": key("hidden_size", 2048),
        "n_decoder_layers": key("num_hidden_layers", 16),
        "n_heads": key("num_attention_heads", 16),
        "d_ff": key("intermediate_size", 2048),
        "norm_eps": key("rms_norm_eps", 1e-5),
        "ffn_bias": False,
        "qk_norm": "full",
        "qkv_clip": key("clip_qkv", None),
        "experts": mixture(
            key("num_experts", 64),
            key("num_experts_per_tok", 8),
            key("intermediate_size", 2048),
            renormalize=key("norm_topk_prob", False),
        ),
    },
    weights={
        **EACH_ALONE,
        "decoder.layers.{i}.attention.{query_norm,key_norm}": "layers.{i}.self_attn.{q,k}_norm",
    },
    together=TOGETHER,
    synonyms={"num_local_experts": "num_experts"},
    ids={"pad_token_id": 1, "eos_token_id": 50279},
    tokenizer="GPTNeoXTokenizer",
)
