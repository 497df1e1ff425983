"""GPT, the first: LayerNorm after every sum, learned positions, and GPT-2's matrices stored (in, out)."""

from plait.families.gpt2 import GPT2
from plait.families.operations import words
from plait.families.settings import derived, key

# What the class calls gelu is the form with tanh
WORDS = words(
    {"gelu": "gelu_tanh", "gelu_new": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}, "activation"
)

OPENAI_GPT = GPT2.relative(
    "openai-gpt",
    classes=("OpenAIGPTLMHeadModel", "OpenAIGPTModel"),
    settings={
        "vocab_size": key("vocab_size", 40478),
        "d_ff": derived(lambda fields: 4 * fields["d_model"]),
        "max_length": key("n_positions", 512),
        "norm_placement": "post",
        "attention_scale": None,
        "activation": key("afn", "gelu", WORDS),
    },
    weights={
        "embedding.{tokens,positions}": "{tokens,positions}_embed",
        "embedding.tokens": None,
        "embedding.positions": None,
        "decoder.layers.{i}.{attention_norms,ffn_norms}.before": None,
        "decoder.layers.{i}.attention_norms.merge": "h.{i}.ln_1",
        "decoder.layers.{i}.ffn_norms.merge": "h.{i}.ln_2",
        "decoder.norm": None,
    },
    leftovers=(r"h\.\d+\.attn\.bias", r"position_ids"),
    ids={},
    tokenizer=None,
)
