"""OLMo: Llama with norms that have no weights. OLMo 2 and 3 norm what a block gives, and queries and keys as wholes.

OLMo 3 lets most layers see only a window; their rotation is a table of its own, which no scaling touches.
"""

from plait.families.llama import LLAMA
from plait.families.rope import RopeSettings, rotary
from plait.families.settings import key
from plait.families.windows import listed_windows

NORMS = "decoder.layers.{i}.%s_norms.%s"

OLMO = LLAMA.relative(
    "olmo",
    classes=("OlmoForCausalLM", "OlmoModel"),
    settings={
        "vocab_size": key("vocab_size", 50304),
        "norm": "layernorm",
        "norm_weight": "none",
        "norm_eps": 1e-5,
        "qkv_clip": key("clip_qkv", None),
        "ffn_bias": False,
    },
    weights={NORMS % ("attention", "before"): None, NORMS % ("ffn", "before"): None, "decoder.norm": None},
    ids={"pad_token_id": 1, "eos_token_id": 50279},
    tokenizer="GPTNeoXTokenizer",
)

OLMO2 = LLAMA.relative(
    "olmo2",
    classes=("Olmo2ForCausalLM", "Olmo2Model"),
    settings={
        "vocab_size": key("vocab_size", 50304),
        "norm_eps": key("rms_norm_eps", 1e-5),
        "norm_placement": "branch",
        "qk_norm": "full",
        "ffn_bias": False,
    },
    weights={
        NORMS % ("attention", "before"): None,
        NORMS % ("attention", "after"): "layers.{i}.post_attention_layernorm",
        NORMS % ("ffn", "before"): None,
        NORMS % ("ffn", "after"): "layers.{i}.post_feedforward_layernorm",
        "decoder.layers.{i}.attention.{query_norm,key_norm}": "layers.{i}.self_attn.{q,k}_norm",
    },
    ids={"pad_token_id": 1, "eos_token_id": 50279},
    tokenizer=None,
)

LOCAL = RopeSettings(theta=5e5, layer_type="sliding_attention", scaled=False)

OLMO3 = OLMO2.relative(
    "olmo3",
    classes=("Olmo3ForCausalLM", "Olmo3Model"),
    settings={
        **rotary(2048, theta=5e5, layer_type="full_attention"),
        "layer_types": listed_windows(4096, lambda layer, _: (layer + 1) % 4 != 0, local=LOCAL),
    },
)
