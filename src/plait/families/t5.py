"""T5: no positions but a learned bias by distance, RMSNorm, scores without scale; ByT5 is its shape over bytes.

Version 1.0 divides its logits by the square root of the width; 1.1 (and Flan) gates its FFN and has a head of its own.
"""

from plait.families.family import Family
from plait.families.settings import key
from plait.families.t5_bias import distance_bias
from plait.families.t5_ffn import feed_forward, ffn
from plait.families.t5_logits import LOGIT_SCALE

T5 = Family(
    name="t5",
    model_types=("t5",),
    classes=("T5ForConditionalGeneration", "T5Model"),
    settings={
        "vocab_size": key("vocab_size", 32128),
        "d_model": key("d_model", 512),
        "d_head": key("d_kv", 64),
        "d_ff": key("d_ff", 2048),
        "n_encoder_layers": key("num_layers", 6),
        "n_decoder_layers": key("num_decoder_layers", lambda fields: fields["n_encoder_layers"]),
        "n_heads": key("num_heads", 8),
        "norm": "rmsnorm",
        "norm_eps": key("layer_norm_epsilon", 1e-6),
        "relative_bias": distance_bias(),
        "qkv_bias": False,
        "output_bias": False,
        "ffn_bias": False,
        "attention_scale": 1.0,
        **feed_forward("relu"),
        "logit_scale": LOGIT_SCALE,
    },
    weights={
        "embedding.tokens": "shared",
        "{tower}.layers.{i}.attention.{query,key,value,output}": "{tower}.block.{i}.layer.0.SelfAttention.{q,k,v,o}",
        "{tower}.layers.{i}.attention.relative_bias": "{tower}.block.{i}.layer.0.SelfAttention.relative_attention_bias",
        "{tower}.layers.{i}.attention_norms.before": "{tower}.block.{i}.layer.0.layer_norm",
        "decoder.layers.{i}.cross.{query,key,value,output}": "decoder.block.{i}.layer.1.EncDecAttention.{q,k,v,o}",
        "decoder.layers.{i}.cross_norms.before": "decoder.block.{i}.layer.1.layer_norm",
        **ffn("encoder", 1),
        **ffn("decoder", 2),
        "{tower}.norm": "{tower}.final_layer_norm",
        "head.output": "lm_head",
    },
    tied=None,  # the key is about the scale of the logits
    aliases={f"{tower}.embed_tokens.weight": "embedding.tokens.weight" for tower in ("encoder", "decoder")},
    leftovers=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
    synonyms={
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    },
    ignored=frozenset({"is_encoder_decoder"}),
    ids={"pad_token_id": 0, "eos_token_id": 1},
    starts_with_pad=True,
    tokenizer="T5Tokenizer",
)
