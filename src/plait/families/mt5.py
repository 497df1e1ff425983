"""mT5 and UMT5: T5 1.1 over many languages; UMT5 has a bias by distance in every layer."""

from plait.families.settings import key
from plait.families.t5 import T5
from plait.families.t5_bias import distance_bias
from plait.families.t5_ffn import feed_forward
from plait.families.t5_logits import LOGIT_SCALE

MT5 = T5.relative(
    "mt5",
    classes=("MT5ForConditionalGeneration", "MT5Model"),
    settings={
        **feed_forward("gated-gelu"),
        "vocab_size": key("vocab_size", 250112),
        "d_ff": key("d_ff", 1024),
        "n_encoder_layers": key("num_layers", 8),
        "n_heads": key("num_heads", 6),
        "logit_scale": 1.0,
    },
    tokenizer="T5Tokenizer",
)

UMT5 = MT5.relative(
    "umt5",
    classes=("UMT5ForConditionalGeneration", "UMT5Model"),
    settings={
        "relative_bias": distance_bias(per_layer=True),
        "logit_scale": LOGIT_SCALE,
    },
    ignored=MT5.ignored | {"scalable_attention"},
)
