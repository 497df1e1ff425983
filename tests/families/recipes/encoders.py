"""Encoders in BERT's line and their heads."""

from __future__ import annotations

from typing import Any

from tests.families.recipes.base import ENCODER, SMALL, Recipe, without

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
MODERN = without(ENCODER, "layer_norm_eps") | {
    "num_hidden_layers": 4,
    "norm_eps": 1e-3,
    "local_attention": 6,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 500.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 30.0},
    },
}
SETTINGS: dict[str, dict[str, Any]] = {
    "Bert": ENCODER,
    "Ernie": ENCODER | {"type_vocab_size": 3},
    "MegatronBert": ENCODER,
    "Roberta": PAD1,
    "XLMRoberta": PAD1 | {"type_vocab_size": 1},
    "Camembert": PAD1 | {"type_vocab_size": 1},
    "RobertaPreLayerNorm": PAD1,
    "XLMRobertaXL": PAD1,
    "DistilBert": {
        "vocab_size": 61,
        "dim": 48,
        "hidden_dim": 44,
        "n_layers": 3,
        "n_heads": 6,
        "max_position_embeddings": 40,
        "pad_token_id": 0,
    },
    "Electra": ENCODER | {"embedding_size": 20, "type_vocab_size": 3},
    "Albert": ENCODER | {"embedding_size": 20, "bos_token_id": 1, "eos_token_id": 2},
    "MPNet": PAD1,
    "ModernBert": MODERN,
    "ModernBertDecoder": MODERN,
    "NomicBert": ENCODER,
    "Gte": PAD1 | {"type_vocab_size": 2},
    "JinaEmbeddingsV3": PAD1 | {"type_vocab_size": 2},
    "EuroBert": SMALL | {"mask_token_id": 3},
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
    "distilbert": head("DistilBert", "ForMaskedLM", activation="relu"),
    "distilbert-sinusoids": head("DistilBert", "ForMaskedLM", sinusoidal_pos_embds=True),
    **heads("distilbert", "DistilBert"),
    "electra": head("Electra", "ForMaskedLM", hidden_act="relu"),
    "electra-wide": head("Electra", "ForMaskedLM", embedding_size=48),
    "electra-untied": head("Electra", "ForMaskedLM", tie_word_embeddings=False),
    "electra-bare": head("Electra", "Model"),
    "electra-discriminator": head("Electra", "ForPreTraining", hidden_act="relu"),
    **heads("electra", "Electra"),
    "albert": head("Albert", "ForMaskedLM"),
    "albert-groups": head("Albert", "ForMaskedLM", num_hidden_layers=5, num_hidden_groups=3, inner_group_num=2),
    "albert-pretraining": head("Albert", "ForPreTraining", hidden_act="gelu"),
    "albert-untied": head("Albert", "ForMaskedLM", tie_word_embeddings=False),
    **heads("albert", "Albert"),
    "mpnet": Recipe("MPNetConfig", "MPNetForMaskedLM", SETTINGS["MPNet"] | {"hidden_act": "relu"}, (37,)),
    "mpnet-pad3": head("MPNet", "ForMaskedLM", pad_token_id=3),
    **heads("mpnet", "MPNet"),
    "modernbert": head("ModernBert", "ForMaskedLM", classifier_activation="silu"),
    "modernbert-biased": head(
        "ModernBert",
        "ForMaskedLM",
        norm_bias=True,
        attention_bias=True,
        mlp_bias=True,
        classifier_bias=True,
        decoder_bias=False,
        hidden_activation="relu",
    ),
    "modernbert-listed": head(
        "ModernBert",
        "ForMaskedLM",
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
    ),
    "modernbert-untied": head("ModernBert", "ForMaskedLM", tie_word_embeddings=False),
    "modernbert-bare": head("ModernBert", "Model"),
    "modernbert-mean": head("ModernBert", "ForSequenceClassification", classifier_pooling="mean", **THREE),
    "modernbert-biased-text": head("ModernBert", "ForSequenceClassification", classifier_bias=True, norm_bias=True),
    **heads("modernbert", "ModernBert"),
    "modernbert-decoder": head("ModernBertDecoder", "ForCausalLM", classifier_activation="silu"),
    "modernbert-decoder-biased": head(
        "ModernBertDecoder",
        "ForCausalLM",
        norm_bias=True,
        attention_bias=True,
        mlp_bias=True,
        classifier_bias=True,
        decoder_bias=False,
        tie_word_embeddings=False,
    ),
    "nomic_bert": head("NomicBert", "ForMaskedLM"),
    "nomic_bert-bare": head("NomicBert", "Model", head_dim=10, hidden_act="gelu"),
    **heads("nomic_bert", "NomicBert", spans=False),
    "gte": head("Gte", "ForMaskedLM"),
    "gte-typeless": head("Gte", "ForMaskedLM", type_vocab_size=0),
    "gte-untied": head("Gte", "ForMaskedLM", tie_word_embeddings=False),
    "gte-bare": head("Gte", "Model"),
    **heads("gte", "Gte", spans=False),
    "jina_embeddings_v3": head("JinaEmbeddingsV3", "ForMaskedLM", hidden_act="relu"),
    "jina_embeddings_v3-bare": head("JinaEmbeddingsV3", "Model"),
    **heads("jina_embeddings_v3", "JinaEmbeddingsV3"),
    "eurobert": head("EuroBert", "ForMaskedLM", tie_word_embeddings=True),
    "eurobert-biased": head("EuroBert", "ForMaskedLM", attention_bias=True, mlp_bias=True),
    "eurobert-bare": head("EuroBert", "Model"),
    "eurobert-mean": head("EuroBert", "ForSequenceClassification", classifier_pooling="mean", **THREE),
    "eurobert-bos": head("EuroBert", "ForSequenceClassification", classifier_pooling="bos", **THREE),
    "eurobert-tokens": head("EuroBert", "ForTokenClassification", **THREE),
}
