"""RoBERTa: BERT with positions counted from the pad id. XLM-R and CamemBERT are the same."""

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
    tokenizer="XLMRobertaTokenizer",
)
CAMEMBERT = XLM_ROBERTA.relative("camembert", classes=("CamembertForMaskedLM", "CamembertModel"), tokenizer=None)
