"""BERT with rotations instead of a table of positions: Nomic's, Alibaba's GTE, and Jina's third embedding model."""

from plait.families.bert import BERT
from plait.families.binding import via
from plait.families.heads import TOKENS, pooled
from plait.families.operations import CAT, preferring
from plait.families.roberta import ROBERTA
from plait.families.rope import rotary
from plait.families.settings import insisting, key

NO_POSITIONS = {
    "embedding.{tokens,positions,types}": None,
    "embedding.{tokens,types}": "embeddings.{word,token_type}_embeddings",
}
LAYER = "encoder.layers.{i}"

ROTARY = rotary(2048, theta=1000.0)

NOMIC_BERT = BERT.relative(
    "nomic_bert",
    classes=("NomicBertForMaskedLM", "NomicBertModel"),
    heads={"ForSequenceClassification": pooled("nomic_bert.pooler.dense"), "ForTokenClassification": TOKENS},
    settings={
        **ROTARY,
        "rope": insisting(
            ROTARY["rope"],
            rotary_emb_fraction=1.0,
            rotary_emb_interleaved=False,
            rotary_emb_scale_base=None,
            rotary_scaling_factor=None,
        ),
        "norm_placement": insisting(
            "post",
            causal=False,
            parallel_block=False,
            parallel_block_tied_norm=False,
            prenorm=False,
            use_rms_norm=False,
        ),
        "vocab_size": key("vocab_size", 30528),
        "d_head": key("head_dim", None),
        "qkv_bias": insisting(False, qkv_proj_bias=False),
        "output_bias": False,
        "activation": key("hidden_act", "silu", preferring(swiglu="silu")),
        "head_transform": key("hidden_act", "silu", preferring(swiglu="silu")),
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
    synonyms={  # as configs on the hub say it
        "n_embd": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_inner": "intermediate_size",
        "n_positions": "max_position_embeddings",
        "layer_norm_epsilon": "layer_norm_eps",
        "activation_function": "hidden_act",
        "rotary_emb_base": "rope_theta",
    },
    ignored=frozenset(
        "dense_seq_output fused_bias_fc fused_dropout_add_ln max_trained_positions pad_vocab_size_multiple "
        "scale_attn_weights use_flash_attn use_xentropy".split()
    ),
)

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

JINA_EMBEDDINGS_V3 = ROBERTA.relative(
    "jina_embeddings_v3",
    classes=("JinaEmbeddingsV3ForMaskedLM", "JinaEmbeddingsV3Model"),
    settings={
        **rotary(8194, theta=20000.0),
        "vocab_size": key("vocab_size", 250002),
        "d_model": key("hidden_size", 1024),
        "n_encoder_layers": key("num_hidden_layers", 24),
        "n_heads": key("num_attention_heads", 16),
        "d_ff": key("intermediate_size", 4096),
        "norm_eps": key("layer_norm_eps", 1e-5),
        "position_offset": 0,
        "token_types": key("type_vocab_size", 1),
    },
    weights={
        **NO_POSITIONS,
        "embedding.norm": "emb_ln",
        f"{LAYER}.attention.{{query,key,value}}": via(f"{LAYER}.mixer.Wqkv", CAT),
        f"{LAYER}.attention.output": f"{LAYER}.mixer.out_proj",
        f"{LAYER}.attention_norms.merge": f"{LAYER}.norm1",
        f"{LAYER}.ffn.{{up,down}}": f"{LAYER}.mlp.{{fc1,fc2}}",
        f"{LAYER}.ffn_norms.merge": f"{LAYER}.norm2",
    },
    tokenizer=None,
)
