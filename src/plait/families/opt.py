"""OPT (and Galactica): learned positions from 2, norms before or after, biases and weights of norms by switches."""

from plait.families.errors import FamilyError
from plait.families.family import Family
from plait.families.operations import ACTIVATION
from plait.families.opt_norms import NORMS
from plait.families.settings import Reading, Setting, key


def _embedding_width(reading: Reading) -> int:
    width, d_model = reading.config.get("word_embed_proj_dim") or reading["d_model"], reading["d_model"]
    if width != d_model:
        raise FamilyError(
            f"word_embed_proj_dim: {width} asks for a projection into and out of the table's width, which plait does "
            f"not have for opt; it must be hidden_size, {d_model}."
        )
    return width


OPT = Family(
    name="opt",
    model_types=("opt",),
    classes=("OPTForCausalLM", "OPTModel"),
    settings={
        "vocab_size": key("vocab_size", 50272),
        "d_model": key("hidden_size", 768),
        "d_embedding": Setting(("word_embed_proj_dim",), _embedding_width, lambda v, _: {"word_embed_proj_dim": v}),
        "n_decoder_layers": key("num_hidden_layers", 12),
        "n_heads": key("num_attention_heads", 12),
        "d_ff": key("ffn_dim", 3072),
        **NORMS,
        "position": "learned",
        "position_offset": 2,
        "max_length": key("max_position_embeddings", 2048),
        "qkv_bias": key("enable_bias", True),
        "output_bias": key("enable_bias", True),
        "ffn_bias": key("enable_bias", True),
        "activation": key("activation_function", "relu", ACTIVATION),
    },
    weights={
        "embedding.{tokens,positions}": "decoder.embed_{tokens,positions}",
        "decoder.layers.{i}.attention.{query,key,value,output}": "decoder.layers.{i}.self_attn.{q,k,v,out}_proj",
        "decoder.layers.{i}.attention_norms.before": "decoder.layers.{i}.self_attn_layer_norm",
        "decoder.layers.{i}.attention_norms.merge": "decoder.layers.{i}.self_attn_layer_norm",
        "decoder.layers.{i}.ffn.{up,down}": "decoder.layers.{i}.{fc1,fc2}",
        "decoder.layers.{i}.ffn_norms.before": "decoder.layers.{i}.final_layer_norm",
        "decoder.layers.{i}.ffn_norms.merge": "decoder.layers.{i}.final_layer_norm",
        "decoder.norm": "decoder.final_layer_norm",
        "head.output": "lm_head",
    },
    tied=True,
    prefix="model.",
    leftovers=(r"decoder\.version",),
    ignored=frozenset({"learned_embeddings", "scale_embeddings"}),
    ids={"bos_token_id": 2, "pad_token_id": 1, "eos_token_id": 2},
    tokenizer="GPT2Tokenizer",
)
