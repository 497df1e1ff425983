"""StarCoder 2: Mistral with LayerNorm, an ungated FFN, and biases everywhere."""

from plait.families.llama import MISTRAL
from plait.families.operations import preferring
from plait.families.rope import rotary
from plait.families.settings import key
from plait.families.windows import uniform_window

STARCODER2 = MISTRAL.relative(
    "starcoder2",
    classes=("Starcoder2ForCausalLM", "Starcoder2Model"),
    settings={
        **rotary(4096),
        "vocab_size": key("vocab_size", 49152),
        "d_model": key("hidden_size", 3072),
        "n_decoder_layers": key("num_hidden_layers", 30),
        "n_heads": key("num_attention_heads", 24),
        "n_kv_heads": key("num_key_value_heads", 2),
        "d_ff": key("intermediate_size", 12288),
        "norm": "layernorm",
        "norm_eps": key("norm_epsilon", 1e-5),
        "layer_types": uniform_window(None),
        "qkv_bias": key("use_bias", True),
        "output_bias": key("use_bias", True),
        "ffn_bias": key("use_bias", True),
        "activation": key("hidden_act", "gelu_pytorch_tanh", preferring("gelu_pytorch_tanh")),
        "gated": False,
    },
    weights={
        "decoder.layers.{i}.ffn.{gate,up,down}": None,
        "decoder.layers.{i}.ffn.{up,down}": "layers.{i}.mlp.{c_fc,c_proj}",
    },
    tied=True,
    ignored=frozenset(
        "residual_dropout embedding_dropout norm_type mlp_type activation_function layer_norm_epsilon "
        "scale_attn_weights attention_softmax_in_fp32 scale_attention_softmax_in_fp32".split()
    ),
    ids={"bos_token_id": 50256, "eos_token_id": 50256},
    tokenizer="GPT2Tokenizer",
)
