"""Tiny models with a vocabulary, and little texts for them to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from plait.architecture import Architecture, Experts, SharedLayers
from plait.checkpoint import Checkpoint, DecodeRules
from plait.inspection.memory import Corpus, pair_corpus, text_corpus
from plait.text import Tokenizer, train_tokenizer
from tests.models import random_model

TEXT = "the dog of anna is old. the cat of ben is new. dora says that the sun is far, and the moon is near. " * 4
OTHER = "a sea is wide\n\nno bird is here\n"
PAIRS = "the dog\tder hund\nthe old cat is near\tdie alte katze\na moon\tein mond ist da\n" * 3
SIZE: dict[str, Any] = {"d_model": 16, "n_heads": 4, "d_ff": 20}
SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_decoder_layers": 2, "position": "learned", "max_length": 64},
    "llama": {"n_decoder_layers": 2, "gated": True, "activation": "silu", "norm": "rmsnorm", "tied": True},
    "experts": {"n_decoder_layers": 2, "experts": Experts(n_experts=4, per_token=2, d_expert=6, d_shared=5)},
    "parallel": {"n_decoder_layers": 2, "parallel": "separate"},
    "sandwich": {"n_decoder_layers": 2, "norm_placement": "sandwich", "activation": "gelu"},
    "bert": {
        "n_encoder_layers": 2,
        "activation": "gelu",
        "head": "masked",
        "norm_placement": "post",
        "head_transform": "gelu",
        "tied": True,
    },
    "albert": {
        "n_encoder_layers": 3,
        "activation": "gelu",
        "head": "masked",
        "norm_placement": "post",
        "shared_layers": SharedLayers(),
        "d_embedding": 8,
        "head_transform": "gelu",
        "tied": True,
    },
    "minilm": {
        "n_encoder_layers": 2,
        "activation": "gelu",
        "head": None,
        "norm_placement": "post",
        "embedding_norm": True,
    },
    "marian": {"n_encoder_layers": 2, "n_decoder_layers": 3, "norm_placement": "post", "activation": "silu"},
    "t5": {"n_encoder_layers": 3, "n_decoder_layers": 2, "norm": "rmsnorm", "gated": True, "activation": "gelu"},
}


def tokenizer(*, around: bool = False) -> Tokenizer:
    """Characters; with ``around`` a special token stands before each text and one behind."""
    before, after = (("bos",), ("eos",)) if around else ((), ())
    return train_tokenizer([TEXT, OTHER, PAIRS], kind="alphabet", before=before, after=after)


def model(name: str, *, around: bool = False, dtype: torch.dtype = torch.float32, **more: Any) -> Checkpoint:
    """One of ``SHAPES``, with random weights."""
    words = tokenizer(around=around)
    architecture = Architecture(vocab_size=len(words), **{**SIZE, **SHAPES[name], **more})
    return Checkpoint(
        architecture=architecture,
        model=random_model(architecture, dtype=dtype),
        tokenizer=words,
        rules=DecodeRules(start=words.bos, end=(words.eos or 0,)),
    )


def written(folder: Path) -> dict[str, Path]:
    """The texts as files."""
    files = {"text": "a.txt", "other": "b.txt", "pairs": "c.tsv"}
    for name, text in (("text", TEXT), ("other", OTHER), ("pairs", PAIRS)):
        (folder / files[name]).write_text(text)
    return {name: folder / file for name, file in files.items()}


def texts(checkpoint: Checkpoint, folder: Path, length: int = 16) -> Corpus:
    """Two documents."""
    files = written(folder)
    return text_corpus(checkpoint, [files["text"], files["other"]], length=length, cache=folder / "cache")


def pairs(checkpoint: Checkpoint, folder: Path, length: int = 16) -> Corpus:
    """Nine pairs."""
    return pair_corpus(checkpoint, [written(folder)["pairs"]], length=length, cache=folder / "cache")


def corpus(name: str, checkpoint: Checkpoint, folder: Path, length: int = 16) -> Corpus:
    """What fits the shape."""
    both = checkpoint.architecture.kind == "encoder-decoder"
    return (pairs if both else texts)(checkpoint, folder, length)
