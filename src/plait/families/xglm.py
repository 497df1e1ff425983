"""XGLM: fairseq's decoder with fixed sinusoids for positions, from 2, under other names of settings."""

from plait.architecture import Sinusoid
from plait.families.biogpt import BIOGPT
from plait.families.errors import FamilyError
from plait.families.operations import ACTIVATION
from plait.families.settings import Reading, Setting, key


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
