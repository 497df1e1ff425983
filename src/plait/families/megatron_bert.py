"""Megatron-BERT: BERT with norms before the blocks and at the end, none on the embeddings (Shoeybi et al. 2019)."""

from plait.families.bert import BERT
from plait.families.settings import key

MEGATRON_BERT = BERT.relative(
    "megatron-bert",
    classes=("MegatronBertForMaskedLM", "MegatronBertModel"),
    settings={
        "vocab_size": key("vocab_size", 29056),
        "d_model": key("hidden_size", 1024),
        "n_encoder_layers": key("num_hidden_layers", 24),
        "n_heads": key("num_attention_heads", 16),
        "d_ff": key("intermediate_size", 4096),
        "norm_placement": "pre",
        "embedding_norm": False,
    },
    weights={
        "embedding.norm": None,
        "encoder.layers.{i}.attention_norms.merge": None,
        "encoder.layers.{i}.attention_norms.before": "encoder.layer.{i}.attention.ln",
        "encoder.layers.{i}.ffn_norms.merge": None,
        "encoder.layers.{i}.ffn_norms.before": "encoder.layer.{i}.ln",
        "encoder.norm": "encoder.ln",
    },
)
