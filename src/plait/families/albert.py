"""ALBERT: BERT with narrow tables and layers that run more than once (Lan et al. 2020)."""

from plait.architecture import SharedLayers
from plait.families.bert import BERT
from plait.families.binding import Either
from plait.families.errors import FamilyError
from plait.families.heads import pooled
from plait.families.operations import Conversion, Fields, preferring
from plait.families.settings import key, record

LAYER = "encoder.albert_layer_groups.{g}.albert_layers.{j}"


def _another_width(width: int, fields: Fields) -> int:
    if width == fields["d_model"]:
        raise FamilyError(
            f"embedding_size: {width} is hidden_size too (d_embedding, d_model); ALBERT has a projection between equal "
            "widths as well, and plait has none there."
        )
    return width


# num_hidden_layers counts how often a group runs
BY_GROUP = Conversion(
    lambda value, fields: value * fields["shared_layers"].inner,
    lambda value, fields: value // fields["shared_layers"].inner if fields["shared_layers"] else value,
)

ALBERT = BERT.relative(
    "albert",
    classes=("AlbertForMaskedLM", "AlbertModel"),
    heads={**BERT.heads, "ForSequenceClassification": pooled("albert.pooler")},
    settings={
        "vocab_size": key("vocab_size", 30000),
        "d_embedding": key("embedding_size", 128, Conversion(_another_width, _another_width)),
        "d_model": key("hidden_size", 4096),
        "n_encoder_layers": key("num_hidden_layers", 12, BY_GROUP),
        "shared_layers": record(SharedLayers, groups=key("num_hidden_groups", 1), inner=key("inner_group_num", 1)),
        "n_heads": key("num_attention_heads", 64),
        "d_ff": key("intermediate_size", 16384),
        "activation": key("hidden_act", "gelu_new", preferring("gelu_new")),
        "head_transform": key("hidden_act", "gelu_new", preferring("gelu_new")),
    },
    weights={
        "embedding.projection": "encoder.embedding_hidden_mapping_in",
        "encoder.layers.{i}.attention.{query,key,value}": f"{LAYER}.attention.{{query,key,value}}",
        "encoder.layers.{i}.attention.output": f"{LAYER}.attention.dense",
        "encoder.layers.{i}.attention_norms.merge": f"{LAYER}.attention.LayerNorm",
        "encoder.layers.{i}.ffn.{up,down}": f"{LAYER}.{{ffn,ffn_output}}",
        "encoder.layers.{i}.ffn_norms.merge": f"{LAYER}.full_layer_layer_norm",
        "head.dense": "predictions.dense",
        "head.norm": "predictions.LayerNorm",
        "head.output.weight": "predictions.decoder.weight",
        "head.output.bias": Either("tied", "predictions.bias", "predictions.decoder.bias"),
    },
    prefix="albert.",
    aliases=dict.fromkeys(("predictions.bias", "predictions.decoder.bias"), "head.output.bias"),
    live=frozenset({"predictions.decoder.bias"}),
    leftovers=(r"embeddings\.position_ids", r"pooler\.(weight|bias)", r"sop_classifier\.classifier\.(weight|bias)"),
    ignored=frozenset(
        "classifier_dropout_prob down_scale_factor gap_size layers_to_keep net_structure_type num_memory_blocks".split()
    ),
    ids={"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3},
    tokenizer=None,
)
