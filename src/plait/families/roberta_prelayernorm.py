"""RoBERTa with norms before the blocks and at the end, and XLM-R XL, which has none on the embeddings."""

from plait.families.operations import less
from plait.families.roberta import ROBERTA
from plait.families.settings import key

ROBERTA_PRELAYERNORM = ROBERTA.relative(
    "roberta-prelayernorm",
    classes=("RobertaPreLayerNormForMaskedLM", "RobertaPreLayerNormModel"),
    settings={"norm_placement": "pre"},
    weights={
        "encoder.layers.{i}.attention_norms.merge": None,
        "encoder.layers.{i}.attention_norms.before": "encoder.layer.{i}.attention.LayerNorm",
        "encoder.layers.{i}.ffn_norms.merge": None,
        "encoder.layers.{i}.ffn_norms.before": "encoder.layer.{i}.intermediate.LayerNorm",
        "encoder.norm": "LayerNorm",
    },
    prefix="roberta_prelayernorm.",
)
XLM_ROBERTA_XL = ROBERTA_PRELAYERNORM.relative(
    "xlm-roberta-xl",
    classes=("XLMRobertaXLForMaskedLM", "XLMRobertaXLModel"),
    settings={
        "vocab_size": key("vocab_size", 250880),
        "d_model": key("hidden_size", 2560),
        "n_encoder_layers": key("num_hidden_layers", 36),
        "n_heads": key("num_attention_heads", 32),
        "d_ff": key("intermediate_size", 10240),
        "norm_eps": key("layer_norm_eps", 1e-5),
        "max_length": key("max_position_embeddings", 514, less("position_offset")),
        "token_types": key("type_vocab_size", 1),
        "embedding_norm": False,
    },
    weights={
        "embedding.norm": None,
        "encoder.layers.{i}.attention_norms.before": "encoder.layer.{i}.attention.self_attn_layer_norm",
        "encoder.layers.{i}.ffn_norms.before": "encoder.layer.{i}.LayerNorm",
        "encoder.norm": "encoder.LayerNorm",
    },
    prefix="roberta.",
    tokenizer=None,
)
