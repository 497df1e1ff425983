"""GTE: RoBERTa with rotations instead of a table of positions, and a gated feed-forward (Zhang et al. 2024)."""

from plait.families.binding import via
from plait.families.heads import TOKENS, pooled
from plait.families.nomic_bert import LAYER, NO_POSITIONS
from plait.families.operations import CAT
from plait.families.roberta import ROBERTA
from plait.families.rope import rotary
from plait.families.settings import insisting, key

GTE = ROBERTA.relative(
    "gte",
    model_types=("gte", "new"),
    classes=("GteForMaskedLM", "GteModel"),
    heads={"ForSequenceClassification": pooled("gte.pooler.dense"), "ForTokenClassification": TOKENS},
    settings={
        **rotary(8192, theta=160000.0),
        "position": insisting("rope", position_embedding_type="rope", logn_attention_scale=False),
        "norm": insisting("layernorm", layer_norm_type="layer_norm"),
        "vocab_size": key("vocab_size", 250048),
        "position_offset": 0,
        "token_types": key("type_vocab_size", 1),
        "gated": True,
        "ffn_bias": "down",
    },
    weights={
        **NO_POSITIONS,
        f"{LAYER}.attention.{{query,key,value}}": via("encoder.layer.{i}.attention.qkv_proj", CAT),
        f"{LAYER}.attention.output": "encoder.layer.{i}.attention.o_proj",
        f"{LAYER}.attention_norms.merge": "encoder.layer.{i}.attn_ln",
        f"{LAYER}.ffn.{{up,down}}": None,
        f"{LAYER}.ffn.{{up,gate}}": via("encoder.layer.{i}.mlp.up_gate_proj", CAT),
        f"{LAYER}.ffn.down": "encoder.layer.{i}.mlp.down_proj",
        f"{LAYER}.ffn_norms.merge": "encoder.layer.{i}.mlp_ln",
        "head.norm": "lm_head.norm",
        "head.output.bias": "lm_head.decoder.bias",
    },
    prefix="gte.",
    prefixes=("new.",),
    limits={},
    ignored=frozenset({"logn_attention_clip1", "pack_qkv", "unpad_inputs", "use_memory_efficient_attention"}),
    aliases={},
    live=frozenset(),
    ids={"pad_token_id": 1},
    tokenizer=None,
)
