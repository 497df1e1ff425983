"""BERT: an encoder, LayerNorm after every sum, learned positions, token types."""

from plait.families.binding import Either
from plait.families.family import Family
from plait.families.heads import SPANS, TOKENS, pooled
from plait.families.operations import ACTIVATION
from plait.families.settings import key

BERT = Family(
    name="bert",
    model_types=("bert",),
    classes=("BertForMaskedLM", "BertModel"),
    head="masked",
    heads={
        "ForSequenceClassification": pooled("bert.pooler.dense"),
        "ForTokenClassification": TOKENS,
        "ForQuestionAnswering": SPANS,
    },
    settings={
        "vocab_size": key("vocab_size", 30522),
        "d_model": key("hidden_size", 768),
        "n_encoder_layers": key("num_hidden_layers", 12),
        "n_heads": key("num_attention_heads", 12),
        "d_ff": key("intermediate_size", 3072),
        "norm_eps": key("layer_norm_eps", 1e-12),
        "norm_placement": "post",
        "position": "learned",
        "max_length": key("max_position_embeddings", 512),
        "token_types": key("type_vocab_size", 2),
        "embedding_norm": True,
        "activation": key("hidden_act", "gelu", ACTIVATION),
        "head_transform": key("hidden_act", "gelu", ACTIVATION),
        "logit_bias": True,
    },
    weights={
        "embedding.{tokens,positions,types}": "embeddings.{word,position,token_type}_embeddings",
        "embedding.norm": "embeddings.LayerNorm",
        "encoder.layers.{i}.attention.{query,key,value}": "encoder.layer.{i}.attention.self.{query,key,value}",
        "encoder.layers.{i}.attention.output": "encoder.layer.{i}.attention.output.dense",
        "encoder.layers.{i}.attention_norms.merge": "encoder.layer.{i}.attention.output.LayerNorm",
        "encoder.layers.{i}.ffn.{up,down}": "encoder.layer.{i}.{intermediate,output}.dense",
        "encoder.layers.{i}.ffn_norms.merge": "encoder.layer.{i}.output.LayerNorm",
        "head.dense": "cls.predictions.transform.dense",
        "head.norm": "cls.predictions.transform.LayerNorm",
        "head.output.weight": "cls.predictions.decoder.weight",
        "head.output.bias": Either("tied", "cls.predictions.bias", "cls.predictions.decoder.bias"),
    },
    limits={"token_types": (lambda a: a.token_types > 0, "at least 1")},
    tied=True,
    prefix="bert.",
    aliases=dict.fromkeys(("cls.predictions.bias", "cls.predictions.decoder.bias"), "head.output.bias"),
    live=frozenset({"cls.predictions.decoder.bias"}),  # the bias that is added, should an untied file have two
    older={"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"},
    leftovers=(r"embeddings\.position_ids", r"pooler\.dense\.(weight|bias)", r"cls\.seq_relationship\.(weight|bias)"),
    ids={"pad_token_id": 0},
    tokenizer="BertTokenizer",
)
