"""GPT-2: learned positions, LayerNorm before each block, queries, keys and values in one matrix stored (in, out)."""

from plait.families.binding import via
from plait.families.family import Family
from plait.families.operations import CAT, ROOT_OF_HEAD, TRANSPOSE, preferring
from plait.families.settings import key

GPT2 = Family(
    name="gpt2",
    model_types=("gpt2",),
    classes=("GPT2LMHeadModel", "GPT2Model"),
    settings={
        "vocab_size": key("vocab_size", 50257),
        "d_model": key("n_embd", 768),
        "n_decoder_layers": key("n_layer", 12),
        "n_heads": key("n_head", 12),
        "d_ff": key("n_inner", lambda fields: 4 * fields["d_model"]),
        "max_length": key("n_positions", 1024),
        "norm_eps": key("layer_norm_epsilon", 1e-5),
        "position": "learned",
        "attention_scale": key("scale_attn_weights", True, ROOT_OF_HEAD),
        "activation": key("activation_function", "gelu_new", preferring("gelu_new")),
    },
    weights={
        "embedding.tokens": "wte",
        "embedding.positions": "wpe",
        "decoder.layers.{i}.attention_norms.before": "h.{i}.ln_1",
        "decoder.layers.{i}.attention.{query,key,value}": via("h.{i}.attn.c_attn", TRANSPOSE, CAT),
        "decoder.layers.{i}.attention.output": via("h.{i}.attn.c_proj", TRANSPOSE),
        "decoder.layers.{i}.ffn_norms.before": "h.{i}.ln_2",
        "decoder.layers.{i}.ffn.{up,down}": via("h.{i}.mlp.{c_fc,c_proj}", TRANSPOSE),
        "decoder.norm": "ln_f",
        "head.output": "lm_head",
    },
    tied=True,
    prefix="transformer.",
    leftovers=(r"h\.\d+\.attn\.(bias|masked_bias)",),
    synonyms={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    ids={"bos_token_id": 50256, "eos_token_id": 50256},
    tokenizer="GPT2Tokenizer",
)
