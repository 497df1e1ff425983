"""RoBERTa: BERT with positions counted from the pad id; XLM-R and CamemBERT are it, two more norm before the blocks."""

from plait.families.bert import BERT
from plait.families.binding import Either
from plait.families.heads import TEXT
from plait.families.operations import less, plus
from plait.families.settings import key

ROBERTA = BERT.relative(
    "roberta",
    classes=("RobertaForMaskedLM", "RobertaModel"),
    heads={**BERT.heads, "ForSequenceClassification": TEXT},
    settings={
        "vocab_size": key("vocab_size", 50265),
        "position_offset": key("pad_token_id", 1, plus(1)),
        "max_length": key("max_position_embeddings", 512, less("position_offset")),
        "head_transform": "gelu",  # whatever hidden_act
    },
    weights={
        "head.dense": "lm_head.dense",
        "head.norm": "lm_head.layer_norm",
        "head.output.weight": "lm_head.decoder.weight",
        "head.output.bias": Either("tied", "lm_head.bias", "lm_head.decoder.bias"),
    },
    prefix="roberta.",
    aliases=dict.fromkeys(("lm_head.bias", "lm_head.decoder.bias"), "head.output.bias"),
    live=frozenset({"lm_head.decoder.bias"}),
    ids={"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2},
    tokenizer="RobertaTokenizer",
)

XLM_ROBERTA = ROBERTA.relative(
    "xlm-roberta",
    classes=("XLMRobertaForMaskedLM", "XLMRobertaModel"),
    settings={"vocab_size": key("vocab_size", 30522)},
    tokenizer=None,
)
CAMEMBERT = XLM_ROBERTA.relative("camembert", classes=("CamembertForMaskedLM", "CamembertModel"))

PRENORM = ROBERTA.relative(
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
XLM_ROBERTA_XL = PRENORM.relative(
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
