"""Tiny random checkpoints of the reference library: what class, with which odd settings, and how long a text to try.

Odd on purpose: 6 heads and 3 for keys, heads whose width is not d / H, large eps, windows shorter than the text, ramps
of scaled ropes inside the spectrum, texts on both sides of a length-dependent scaling's original length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """``config``, ``model``: class names; ``lengths``: of texts to try.

    ``stored_head``: the head differs from the table of tokens, though the class would tie them.
    """

    config: str
    model: str
    settings: dict[str, Any]
    lengths: tuple[int, ...] = (13,)
    stored_head: bool = False


SMALL = {
    "vocab_size": 61,
    "hidden_size": 48,
    "intermediate_size": 44,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 10,
    "rms_norm_eps": 1e-3,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ENCODER = {
    "vocab_size": 61,
    "hidden_size": 48,
    "intermediate_size": 44,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "layer_norm_eps": 1e-3,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}
BOTH = {
    "vocab_size": 61,
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 44,
    "decoder_ffn_dim": 52,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 6,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "forced_eos_token_id": None,
    "decoder_start_token_id": 3,
}
T5_SMALL = {
    "vocab_size": 61,
    "d_model": 48,
    "d_kv": 10,
    "d_ff": 44,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 6,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "layer_norm_epsilon": 1e-3,
    "pad_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 0,
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
PAIRS = 5  # in a head of 10


def without(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    """``settings`` but for those that a class does not have: a foreign name would count as unread."""
    return {name: value for name, value in settings.items() if name not in names}
