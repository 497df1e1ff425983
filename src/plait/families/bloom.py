"""BLOOM: no positions but a penalty by distance (ALiBi), a norm on the embeddings, q, k and v of a head together."""

from plait.families.binding import via
from plait.families.family import Family
from plait.families.operations import GROUP
from plait.families.settings import derived, key

BLOOM = Family(
    name="bloom",
    model_types=("bloom",),
    classes=("BloomForCausalLM", "BloomModel"),
    settings={
        "vocab_size": key("vocab_size", 250880),
        "d_model": key("hidden_size", 64),
        "n_decoder_layers": key("n_layer", 2),
        "n_heads": key("n_head", 8),
        "d_ff": derived(lambda fields: 4 * fields["d_model"]),
        "norm_eps": key("layer_norm_epsilon", 1e-5),
        "position": "alibi",
        "activation": "gelu_tanh",
        "embedding_norm": True,
    },
    weights={
        "embedding.tokens": "word_embeddings",
        "embedding.norm": "word_embeddings_layernorm",
        "decoder.layers.{i}.attention_norms.before": "h.{i}.input_layernorm",
        "decoder.layers.{i}.attention.{query,key,value}": via("h.{i}.self_attention.query_key_value", GROUP),
        "decoder.layers.{i}.attention.output": "h.{i}.self_attention.dense",
        "decoder.layers.{i}.ffn_norms.before": "h.{i}.post_attention_layernorm",
        "decoder.layers.{i}.ffn.{up,down}": "h.{i}.mlp.{dense_h_to_4h,dense_4h_to_h}",
        "decoder.norm": "ln_f",
        "head.output": "lm_head",
    },
    tied=True,
    prefix="transformer.",
    synonyms={"n_embed": "hidden_size", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
    ignored=frozenset(
        "hidden_dropout slow_but_exact attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion n_inner "
        "offset_alibi seq_length skip_bias_add skip_bias_add_qkv".split()
    ),
    ids={"bos_token_id": 1, "eos_token_id": 2},
)
