"""ELECTRA: BERT whose tables are narrower than its layers; a generator fills masks, a discriminator judges tokens."""

from plait.families.bert import BERT
from plait.families.heads import SPANS, TOKENS, ClassHead
from plait.families.operations import ACTIVATION
from plait.families.settings import key

ELECTRA = BERT.relative(
    "electra",
    classes=("ElectraForMaskedLM", "ElectraModel"),
    heads={
        "ForPreTraining": ClassHead(  # was this token replaced?
            pooling=None,
            labels=1,
            transform=key("hidden_act", "gelu", ACTIVATION),
            weights={"head.{dense,output}": "discriminator_predictions.{dense,dense_prediction}"},
        ),
        "ForSequenceClassification": ClassHead(
            transform="gelu", weights={"head.{dense,output}": "classifier.{dense,out_proj}"}
        ),
        "ForTokenClassification": TOKENS,
        "ForQuestionAnswering": SPANS,
    },
    settings={
        "d_embedding": key("embedding_size", 128),
        "d_model": key("hidden_size", 256),
        "n_heads": key("num_attention_heads", 4),
        "d_ff": key("intermediate_size", 1024),
        "head_transform": "gelu",  # whatever hidden_act
    },
    weights={
        "embedding.projection": "embeddings_project",
        "head.dense": "generator_predictions.dense",
        "head.norm": "generator_predictions.LayerNorm",
        "head.output.weight": "generator_lm_head.weight",
        "head.output.bias": "generator_lm_head.bias",
    },
    prefix="electra.",
    aliases={},
    live=frozenset(),
    leftovers=(r"embeddings\.position_ids",),
    ignored=frozenset({"summary_last_dropout"}),
    tokenizer="ElectraTokenizer",
)
