"""Encoders in BERT's line and their heads."""

from __future__ import annotations

from typing import Any

from tests.families.recipes.base import ENCODER, Recipe

# Odd names, so that one that is lost shows
THREE = {"id2label": {"0": "no", "1": "so so", "2": "yes"}, "label2id": {"no": 0, "so so": 1, "yes": 2}}
ONE = {"id2label": {"0": "score"}, "label2id": {"score": 0}}


def head(stem: str, ending: str, **settings: Any) -> Recipe:
    """A class of ``stem``, with its small settings."""
    return Recipe(f"{stem}Config", f"{stem}{ending}", SETTINGS[stem] | settings)


def heads(name: str, stem: str, spans: bool = True) -> dict[str, Recipe]:
    """What a family's classes answer: about a text (named, or as a score), about its tokens, about a span in it."""
    found = {
        f"{name}-text": head(stem, "ForSequenceClassification", **THREE),
        f"{name}-reranker": head(stem, "ForSequenceClassification", **ONE),
        f"{name}-tokens": head(stem, "ForTokenClassification", **THREE),
    }
    return found | ({f"{name}-spans": head(stem, "ForQuestionAnswering")} if spans else {})


PAD1 = ENCODER | {"pad_token_id": 1}
SETTINGS: dict[str, dict[str, Any]] = {
    "Bert": ENCODER,
    "Ernie": ENCODER | {"type_vocab_size": 3},
    "MegatronBert": ENCODER,
    "Roberta": PAD1,
    "XLMRoberta": PAD1 | {"type_vocab_size": 1},
    "Camembert": PAD1 | {"type_vocab_size": 1},
    "RobertaPreLayerNorm": PAD1,
    "XLMRobertaXL": PAD1,
}

RECIPES: dict[str, Recipe] = {
    **heads("bert", "Bert"),
    "ernie": head("Ernie", "ForMaskedLM"),
    **heads("ernie", "Ernie"),
    "megatron-bert": head("MegatronBert", "ForMaskedLM", hidden_act="relu"),
    "megatron-bert-pretraining": head("MegatronBert", "ForPreTraining"),
    **heads("megatron-bert", "MegatronBert"),
    **heads("roberta", "Roberta"),
    "xlm-roberta": head("XLMRoberta", "ForMaskedLM", hidden_act="relu"),
    "xlm-roberta-untied": head("XLMRoberta", "ForMaskedLM", tie_word_embeddings=False),
    **heads("xlm-roberta", "XLMRoberta"),
    "camembert": head("Camembert", "ForMaskedLM"),
    **heads("camembert", "Camembert"),
    "roberta-prelayernorm": head("RobertaPreLayerNorm", "ForMaskedLM", hidden_act="relu"),
    **heads("roberta-prelayernorm", "RobertaPreLayerNorm"),
    "xlm-roberta-xl": head("XLMRobertaXL", "ForMaskedLM", hidden_act="relu"),
    **heads("xlm-roberta-xl", "XLMRobertaXL"),
}
