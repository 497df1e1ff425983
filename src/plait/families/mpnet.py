"""MPNet: RoBERTa without token types, and with T5's bias by distance beside its learned positions."""

from plait.architecture import RelativeBias
from plait.families.operations import less, words
from plait.families.roberta import ROBERTA
from plait.families.settings import key, record

BUCKETS = words({32: 32}, "relative_bias.buckets")  # the class counts in 32 whatever its table's size

MPNET = ROBERTA.relative(
    "mpnet",
    classes=("MPNetForMaskedLM", "MPNetModel"),
    settings={
        "vocab_size": key("vocab_size", 30527),
        "position_offset": 2,  # whatever pad_token_id
        "max_length": key("max_position_embeddings", 512, less("position_offset")),
        "relative_bias": record(RelativeBias, buckets=key("relative_attention_num_buckets", 32, BUCKETS)),
        "token_types": 0,
    },
    weights={
        "embedding.{tokens,positions,types}": None,
        "embedding.{tokens,positions}": "embeddings.{word,position}_embeddings",
        "encoder.layers.{i}.attention.{query,key,value}": None,
        "encoder.layers.{i}.attention.output": None,
        "encoder.layers.{i}.attention.{query,key,value,output}": "encoder.layer.{i}.attention.attn.{q,k,v,o}",
        "encoder.layers.{i}.attention_norms.merge": "encoder.layer.{i}.attention.LayerNorm",
        "encoder.layers.0.attention.relative_bias": "encoder.relative_attention_bias",
    },
    prefix="mpnet.",
    limits={},
    tokenizer=None,
)
