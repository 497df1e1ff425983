"""DistilBERT: BERT without token types, under names of its own."""

from plait.families.family import Family
from plait.families.heads import SPANS, TOKENS, ClassHead
from plait.families.operations import ACTIVATION
from plait.families.settings import key

DISTILBERT = Family(
    name="distilbert",
    model_types=("distilbert",),
    classes=("DistilBertForMaskedLM", "DistilBertModel"),
    head="masked",
    heads={
        "ForSequenceClassification": ClassHead(
            transform="relu", weights={"head.dense": "pre_classifier", "head.output": "classifier"}
        ),
        "ForTokenClassification": TOKENS,
        "ForQuestionAnswering": SPANS,
    },
    settings={
        "vocab_size": key("vocab_size", 30522),
        "d_model": key("dim", 768),
        "n_encoder_layers": key("n_layers", 6),
        "n_heads": key("n_heads", 12),
        "d_ff": key("hidden_dim", 3072),
        "norm_eps": 1e-12,
        "norm_placement": "post",
        "position": "learned",
        "max_length": key("max_position_embeddings", 512),
        "embedding_norm": True,
        "activation": key("activation", "gelu", ACTIVATION),
        "head_transform": key("activation", "gelu", ACTIVATION),
        "logit_bias": True,
    },
    weights={
        "embedding.{tokens,positions}": "embeddings.{word,position}_embeddings",
        "embedding.norm": "embeddings.LayerNorm",
        "encoder.layers.{i}.attention.{query,key,value,output}": "transformer.layer.{i}.attention.{q,k,v,out}_lin",
        "encoder.layers.{i}.attention_norms.merge": "transformer.layer.{i}.sa_layer_norm",
        "encoder.layers.{i}.ffn.{up,down}": "transformer.layer.{i}.ffn.{lin1,lin2}",
        "encoder.layers.{i}.ffn_norms.merge": "transformer.layer.{i}.output_layer_norm",
        "head.dense": "vocab_transform",
        "head.norm": "vocab_layer_norm",
        "head.output": "vocab_projector",
    },
    tied=True,
    prefix="distilbert.",
    leftovers=(r"embeddings\.position_ids",),
    synonyms={"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
    ignored=frozenset(
        {"sinusoidal_pos_embds", "qa_dropout", "seq_classif_dropout", "tie_weights_"}
    ),  # tables are stored
    ids={"pad_token_id": 0},
    tokenizer="DistilBertTokenizer",
)
