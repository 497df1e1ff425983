"""BioGPT and XGLM, decoders of fairseq: norms before, embeddings times the root of their width, positions from 2."""

from plait.architecture import Sinusoid
from plait.families.errors import FamilyError
from plait.families.family import Family
from plait.families.operations import ACTIVATION, ROOT_OF_WIDTH
from plait.families.settings import Reading, Setting, key

BIOGPT = Family(
    name="biogpt",
    model_types=("biogpt",),
    classes=("BioGptForCausalLM", "BioGptModel"),
    settings={
        "vocab_size": key("vocab_size", 42384),
        "d_model": key("hidden_size", 1024),
        "n_decoder_layers": key("num_hidden_layers", 24),
        "n_heads": key("num_attention_heads", 16),
        "d_ff": key("intermediate_size", 4096),
        "norm_eps": 1e-5,  # whatever layer_norm_eps
        "position": "learned",
        "position_offset": 2,
        "max_length": key("max_position_embeddings", 1024),
        "activation": key("hidden_act", "gelu", ACTIVATION),
        "embedding_scale": key("scale_embedding", True, ROOT_OF_WIDTH),
    },
    weights={
        "embedding.{tokens,positions}": "embed_{tokens,positions}",
        "decoder.layers.{i}.attention.{query,key,value,output}": "layers.{i}.self_attn.{q,k,v,out}_proj",
        "decoder.layers.{i}.attention_norms.before": "layers.{i}.self_attn_layer_norm",
        "decoder.layers.{i}.ffn.{up,down}": "layers.{i}.{fc1,fc2}",
        "decoder.layers.{i}.ffn_norms.before": "layers.{i}.final_layer_norm",
        "decoder.norm": "layer_norm",
        "head.output": "output_projection",
    },
    tied=True,
    prefix="biogpt.",
    ignored=frozenset({"layer_norm_eps"}),
    ids={"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2},
)


def _offset(reading: Reading) -> int:
    pad = reading.config.get("pad_token_id", 1)
    if pad is not None and pad > 1:
        raise FamilyError(
            f"pad_token_id: xglm zeroes the sinusoids in row {pad}, which are those of a position; give 0 or 1."
        )
    return 2


XGLM = BIOGPT.relative(
    "xglm",
    classes=("XGLMForCausalLM", "XGLMModel"),
    settings={
        "vocab_size": key("vocab_size", 256008),
        "d_model": key("d_model", 1024),
        "n_decoder_layers": key("num_layers", 24),
        "n_heads": key("attention_heads", 16),
        "d_ff": key("ffn_dim", 4096),
        "position": "sinusoidal",
        "position_offset": Setting((), _offset, lambda _, __: {}),
        "sinusoid": Sinusoid(layout="halves", denominator="half_minus_one"),
        "max_length": key("max_position_embeddings", 2048),
        "activation": key("activation_function", "gelu", ACTIVATION),
    },
    weights={"embedding.{tokens,positions}": None, "embedding.tokens": "embed_tokens", "head.output": "lm_head"},
    prefix="model.",
    leftovers=(r"embed_positions\.weights",),
    synonyms={"num_attention_heads": "attention_heads", "hidden_size": "d_model", "num_hidden_layers": "num_layers"},
    ignored=frozenset(),
    ids={"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2},
)
