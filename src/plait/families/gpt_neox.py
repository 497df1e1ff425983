"""GPT-NeoX and Pythia: attention and FFN side by side, a quarter of each head turned, q, k and v of a head together."""

from plait.families.binding import via
from plait.families.family import Family
from plait.families.operations import ACTIVATION, GROUP, chosen
from plait.families.rope import rotary
from plait.families.settings import key

GPT_NEOX = Family(
    name="gpt_neox",
    model_types=("gpt_neox",),
    classes=("GPTNeoXForCausalLM", "GPTNeoXModel"),
    settings={
        "vocab_size": key("vocab_size", 50432),
        "d_model": key("hidden_size", 6144),
        "n_decoder_layers": key("num_hidden_layers", 44),
        "n_heads": key("num_attention_heads", 64),
        "d_ff": key("intermediate_size", 24576),
        "norm_eps": key("layer_norm_eps", 1e-5),
        "parallel": key("use_parallel_residual", True, chosen("separate", "none")),
        "qkv_bias": key("attention_bias", True),
        "output_bias": key("attention_bias", True),
        "activation": key("hidden_act", "gelu", ACTIVATION),
        **rotary(2048, theta_key="rotary_emb_base", partial=0.25, partial_key="rotary_pct", partial_by_default=True),
    },
    weights={
        "embedding.tokens": "embed_in",
        "decoder.layers.{i}.attention_norms.before": "layers.{i}.input_layernorm",
        "decoder.layers.{i}.attention.{query,key,value}": via("layers.{i}.attention.query_key_value", GROUP),
        "decoder.layers.{i}.attention.output": "layers.{i}.attention.dense",
        "decoder.layers.{i}.ffn_norms.before": "layers.{i}.post_attention_layernorm",
        "decoder.layers.{i}.ffn.{up,down}": "layers.{i}.mlp.{dense_h_to_4h,dense_4h_to_h}",
        "decoder.norm": "final_layer_norm",
        "head.output": "embed_out",
    },
    prefix="gpt_neox.",
    aliases={"lm_head.weight": "head.output.weight"},
    leftovers=(r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",),
    ignored=frozenset({"is_decoder", "rope_theta"}),
    ids={"bos_token_id": 0, "eos_token_id": 2},
    tokenizer="GPTNeoXTokenizer",
)
