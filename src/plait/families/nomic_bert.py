"""Nomic's BERT: rotations instead of a table of positions, a gated feed-forward, no biases (Nussbaum et al. 2024)."""

from plait.families.bert import BERT
from plait.families.binding import via
from plait.families.heads import TOKENS, pooled
from plait.families.nomic_config import BLOCKS, IGNORED, ROTATIONS, SYNONYMS
from plait.families.operations import CAT, preferring
from plait.families.rope import rotary
from plait.families.settings import insisting, key

NO_POSITIONS = {
    "embedding.{tokens,positions,types}": None,
    "embedding.{tokens,types}": "embeddings.{word,token_type}_embeddings",
}
LAYER = "encoder.layers.{i}"
GATES = preferring(swiglu="silu", geglu="gelu")
ROTARY = rotary(2048, theta=1000.0)

NOMIC_BERT = BERT.relative(
    "nomic_bert",
    classes=("NomicBertForMaskedLM", "NomicBertModel"),
    heads={"ForSequenceClassification": pooled("nomic_bert.pooler.dense"), "ForTokenClassification": TOKENS},
    settings={
        **ROTARY,
        "rope": insisting(ROTARY["rope"], **ROTATIONS),
        "norm_placement": insisting("post", **BLOCKS),
        "vocab_size": key("vocab_size", 30528),
        "d_head": key("head_dim", None),
        "qkv_bias": insisting(False, qkv_proj_bias=False),
        "output_bias": False,
        "activation": key("hidden_act", "silu", GATES),
        "head_transform": key("hidden_act", "silu", GATES),
        "gated": True,
        "ffn_bias": insisting(False, mlp_fc1_bias=False, mlp_fc2_bias=False),
    },
    weights={
        **NO_POSITIONS,
        "embedding.norm": "emb_ln",
        f"{LAYER}.attention.{{query,key,value}}": via(f"{LAYER}.attn.Wqkv", CAT),
        f"{LAYER}.attention.output": f"{LAYER}.attn.out_proj",
        f"{LAYER}.attention_norms.merge": f"{LAYER}.norm1",
        f"{LAYER}.ffn.{{up,down}}": None,
        f"{LAYER}.ffn.{{up,gate,down}}": f"{LAYER}.mlp.{{fc11,fc12,fc2}}",
        f"{LAYER}.ffn_norms.merge": f"{LAYER}.norm2",
        "head.norm": "cls.predictions.transform.layer_norm",
    },
    prefix="nomic_bert.",
    prefixes=("bert.",),
    synonyms=SYNONYMS,
    ignored=IGNORED,
)
