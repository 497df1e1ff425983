"""A tiny checkpoint of the reference library for each architecture that GGUF is written for, with a real tokenizer.

Weights are drawn so that texts do not repeat themselves, and sizes so that heads, windows and scalings show.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from tokenizers import Regex, decoders, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

import plait
from tests.text import making

PROMPT = "Once upon a time, in 1969, the town's people said: hello world! They didn't know it."
SIZES = {
    "vocab_size": 448,
    "hidden_size": 96,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
GEMMA = {"head_dim": 24, "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh"}
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)


def pieces(folder: Path) -> None:
    """A sentencepiece model, Llama's way."""
    (folder / "tokenizer.model").write_bytes(making.sentencepiece_model("bpe"))


def scored_merges(folder: Path) -> None:
    """A tokenizer.json that was made of a sentencepiece model."""
    making.tokenizer_folder(folder, making.scored_metaspace(), bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def gemma_pieces(folder: Path) -> None:
    """A sentencepiece model without a space before a text."""
    (folder / "tokenizer.model").write_bytes(making.sentencepiece_model("bpe", add_dummy_prefix=False))
    roles = {"tokenizer_class": "GemmaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "pad_token": None}
    making.write_json(folder, "tokenizer_config.json", roles)


def cut(*steps: Any, normalizer: Any = None) -> Callable[[Path], None]:
    """A byte-level BPE that cuts text in these steps."""

    def write(folder: Path) -> None:
        library = Library.from_str(making.byte_level())
        library.pre_tokenizer = pre_tokenizers.Sequence(list(steps)) if len(steps) > 1 else steps[0]
        library.decoder = decoders.ByteLevel()
        if normalizer is not None:
            library.normalizer = normalizer
        roles = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "chat_template": making.CHATML}
        making.tokenizer_folder(folder, library.to_str(), **roles)

    return write


def bytes_(regex: bool = True) -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)


qwen = cut(pre_tokenizers.Split(Regex(QWEN), "isolated"), bytes_(False), normalizer=normalizers.NFC())


@dataclass(frozen=True)
class Made:
    """``arch``: GGUF's word for it; ``config``, ``model``: classes; ``settings``: beside ``SIZES``."""

    arch: str
    config: str
    model: str
    tokenizer: Callable[[Path], None]
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    without: tuple[str, ...] = ()


def rope(kind: str, **numbers: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **numbers}}


LONG = {
    "original_max_position_embeddings": 32,
    "short_factor": [1.0 + 0.1 * i for i in range(8)],
    "long_factor": [2.0 + 0.5 * i for i in range(8)],
}
ARCHITECTURES: dict[str, Made] = {
    "llama": Made("llama", "LlamaConfig", "LlamaForCausalLM", pieces, {"head_dim": 24}),
    "llama-biased": Made(
        "llama", "LlamaConfig", "LlamaForCausalLM", pieces, {"attention_bias": True, "mlp_bias": True}
    ),
    "llama-3.1": Made("llama", "LlamaConfig", "LlamaForCausalLM", cut(bytes_()), rope("llama3", **LLAMA3)),
    "llama-linear": Made("llama", "LlamaConfig", "LlamaForCausalLM", pieces, rope("linear", factor=3.0)),
    "llama-yarn": Made(
        "llama",
        "LlamaConfig",
        "LlamaForCausalLM",
        pieces,
        rope("yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=4.0, beta_slow=0.5),
    ),
    "llama-longrope": Made("llama", "LlamaConfig", "LlamaForCausalLM", pieces, rope("longrope", **LONG)),
    "mistral": Made("llama", "MistralConfig", "MistralForCausalLM", scored_merges, {"sliding_window": None}),
    "qwen2": Made("qwen2", "Qwen2Config", "Qwen2ForCausalLM", qwen),
    "qwen3": Made("qwen3", "Qwen3Config", "Qwen3ForCausalLM", qwen, {"head_dim": 24, "tie_word_embeddings": True}),
    "gemma": Made("gemma", "GemmaConfig", "GemmaForCausalLM", gemma_pieces, GEMMA | {"num_key_value_heads": 1}),
    "gemma2": Made(
        "gemma2",
        "Gemma2Config",
        "Gemma2ForCausalLM",
        gemma_pieces,
        GEMMA | {"query_pre_attn_scalar": 24, "sliding_window": 8, "num_hidden_layers": 4},
    ),
    "gemma3": Made(
        "gemma3",
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        gemma_pieces,
        GEMMA
        | {"query_pre_attn_scalar": 24, "sliding_window": 8, "num_hidden_layers": 7}
        | {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 1e5, "factor": 4.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            }
        },
    ),
    "gpt2": Made(
        "gpt2",
        "GPT2Config",
        "GPT2LMHeadModel",
        cut(bytes_()),
        {"n_embd": 96, "n_layer": 3, "n_head": 6, "n_positions": 128, "n_inner": 128, "tie_word_embeddings": True},
        without=("hidden_size", "intermediate_size", "max_position_embeddings", "num_hidden_layers")
        + ("num_attention_heads", "num_key_value_heads"),
    ),
    "phi3": Made("phi3", "Phi3Config", "Phi3ForCausalLM", pieces),
    "phi3-longrope": Made(
        "phi3",
        "Phi3Config",
        "Phi3ForCausalLM",
        pieces,
        {**rope("longrope", **LONG), "original_max_position_embeddings": 32},
    ),
    "starcoder2": Made(
        "starcoder2",
        "Starcoder2Config",
        "Starcoder2ForCausalLM",
        cut(pre_tokenizers.Digits(individual_digits=True), bytes_()),
        {"use_bias": True, "hidden_act": "gelu_pytorch_tanh", "sliding_window": None},
    ),
}


def made(name: str, reference: ModuleType, folder: Path, seed: int = 0) -> plait.Checkpoint:
    """The checkpoint in ``folder``, loaded: norms away from 1, biases away from 0."""
    recipe = ARCHITECTURES[name]
    settings = {key: value for key, value in SIZES.items() if key not in recipe.without} | recipe.settings
    torch.manual_seed(seed)
    model = getattr(reference, recipe.model)(getattr(reference, recipe.config)(**settings))
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 1:
                parameter.copy_((0.0 if key.endswith("bias") or "gemma" in name else 1.0) + 0.2 * noise)
            else:
                tied = 0.05 if settings["tie_word_embeddings"] else 1.0  # or each token would call for itself
                table = "embed" in key or "wte" in key or "wpe" in key
                parameter.copy_(noise * (tied if table else 1.5 / parameter.shape[-1] ** 0.5))
    model.save_pretrained(folder)
    recipe.tokenizer(folder)
    return plait.load(folder)


def config_of(folder: Path) -> dict[str, Any]:
    """Its config.json."""
    return json.loads((folder / "config.json").read_text())
