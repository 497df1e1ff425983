"""InternLM 2: Llama with queries, keys and values of a group of heads together. InternLM 3: two switches for biases."""

from plait.families.binding import via
from plait.families.llama import LLAMA
from plait.families.operations import GROUP
from plait.families.rope import rotary
from plait.families.settings import key

INTERNLM2 = LLAMA.relative(
    "internlm2",
    classes=("InternLM2ForCausalLM", "InternLM2Model"),  # of its own code
    settings={
        "vocab_size": key("vocab_size", 103168),
        "d_head": None,
        "qkv_bias": key("bias", True),
        "output_bias": key("bias", True),
        "ffn_bias": False,
    },
    weights={
        "embedding.tokens": "tok_embeddings",
        "decoder.layers.{i}.attention_norms.before": "layers.{i}.attention_norm",
        "decoder.layers.{i}.attention.{query,key,value,output}": None,
        "decoder.layers.{i}.attention.{query,key,value}": via("layers.{i}.attention.wqkv", GROUP),
        "decoder.layers.{i}.attention.output": "layers.{i}.attention.wo",
        "decoder.layers.{i}.ffn_norms.before": "layers.{i}.ffn_norm",
        "decoder.layers.{i}.ffn.{gate,up,down}": "layers.{i}.feed_forward.{w1,w3,w2}",
        "head.output": "output",
    },
    leftovers=(r"layers\.\d+\.attention\.rotary_emb\.inv_freq",),
    ids={"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    tokenizer=None,
)

INTERNLM3 = LLAMA.relative(
    "internlm3",
    classes=("LlamaForCausalLM", "LlamaModel"),  # with this config
    settings={
        **rotary(32768),
        "vocab_size": key("vocab_size", 128512),
        "n_decoder_layers": key("num_hidden_layers", 48),
        "n_kv_heads": key("num_key_value_heads", 2, nullable=True),
        "d_head": key("head_dim", 128, nullable=True),
        "d_ff": key("intermediate_size", 10240),
        "norm_eps": key("rms_norm_eps", 1e-5),
        "output_bias": key("mlp_bias", False),
    },
    synonyms={"qkv_bias": "attention_bias", "bias": "mlp_bias"},
    ids={"pad_token_id": 2, "bos_token_id": 1, "eos_token_id": 2},
    tokenizer=None,
)
