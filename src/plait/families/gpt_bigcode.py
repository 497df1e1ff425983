"""GPT-BigCode (SantaCoder, StarCoder): GPT-2 with one key and one value for all heads, matrices stored (out, in)."""

from plait.families.binding import via
from plait.families.gpt2 import GPT2
from plait.families.operations import GROUP, Conversion, preferring
from plait.families.settings import key

ONE_OR_ALL = Conversion(lambda one, fields: 1 if one else fields["n_heads"], lambda heads, _: heads == 1)

GPT_BIGCODE = GPT2.relative(
    "gpt_bigcode",
    classes=("GPTBigCodeForCausalLM", "GPTBigCodeModel"),
    settings={
        "n_kv_heads": key("multi_query", True, ONE_OR_ALL),
        "activation": key("activation_function", "gelu_pytorch_tanh", preferring("gelu_pytorch_tanh")),
    },
    weights={
        "decoder.layers.{i}.attention.{query,key,value}": via("h.{i}.attn.c_attn", GROUP),
        "decoder.layers.{i}.attention.output": "h.{i}.attn.c_proj",
        "decoder.layers.{i}.ffn.{up,down}": "h.{i}.mlp.{c_fc,c_proj}",
    },
    leftovers=(r"(h\.\d+\.attn\.)?(bias|masked_bias)",),
    ignored=frozenset(
        "attention_softmax_in_fp32 scale_attention_softmax_in_fp32 num_key_value_heads inference_runner max_batch_size "
        "max_sequence_length pad_key_length pre_allocate_kv_cache validate_runner_input".split()
    ),
    tokenizer=None,
)
