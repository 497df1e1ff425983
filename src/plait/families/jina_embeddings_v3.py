"""Jina's third embedding model: RoBERTa with rotations instead of a table of positions (Sturua et al. 2024)."""

from plait.families.binding import via
from plait.families.nomic_bert import LAYER, NO_POSITIONS
from plait.families.operations import CAT
from plait.families.roberta import ROBERTA
from plait.families.rope import rotary
from plait.families.settings import key

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
