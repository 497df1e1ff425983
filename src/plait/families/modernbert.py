"""ModernBERT: norms before, gated feed-forward, rotations, and windows in two of three layers (Warner et al. 2024)."""

from plait.families.binding import via
from plait.families.family import Family
from plait.families.heads import ClassHead
from plait.families.modernbert_stack import SETTINGS, TRANSFORM, WEIGHTS
from plait.families.operations import CAT, words
from plait.families.settings import key

CLASSES = {"head.{dense,norm}": "head.{dense,norm}", "head.output": "classifier"}
POOLING = key("classifier_pooling", "cls", words({"cls": "cls", "mean": "mean"}, "pooling"))

MODERNBERT = Family(
    name="modernbert",
    model_types=("modernbert",),
    classes=("ModernBertForMaskedLM", "ModernBertModel"),
    head="masked",
    heads={
        "ForSequenceClassification": ClassHead(pooling=POOLING, transform=TRANSFORM, norm=True, weights=CLASSES),
        "ForTokenClassification": ClassHead(pooling=None, transform=TRANSFORM, norm=True, weights=CLASSES),
        "ForQuestionAnswering": ClassHead(pooling=None, labels=2, transform=TRANSFORM, norm=True, weights=CLASSES),
    },
    settings={**SETTINGS, "n_encoder_layers": key("num_hidden_layers", 22)},
    weights={
        **WEIGHTS,
        "encoder.layers.{i}.attention.{query,key,value}": via("layers.{i}.attn.Wqkv", CAT),
        "head.{dense,norm,output}": "{head.dense,head.norm,decoder}",
    },
    tied=True,
    prefix="model.",
    ignored=frozenset(
        "deterministic_flash_attn embedding_dropout layer_norm_eps mlp_dropout reference_compile "
        "repad_logits_with_grad sparse_pred_ignore_index sparse_prediction".split()
    ),
    ids={"pad_token_id": 50283, "eos_token_id": 50282, "bos_token_id": 50281},
    tokenizer=None,
)
