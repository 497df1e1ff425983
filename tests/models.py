"""Tiny models on which broken code shows: float64, norms away from 1, biases away from 0, keys that matter."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

import plait
from plait.architecture import Architecture
from plait.model import Transformer


def random_model(architecture: Architecture, seed: int = 0, dtype: torch.dtype = torch.float64) -> Transformer:
    """Weights drawn so that every knob moves the logits by more than rounding does."""
    model = Transformer(architecture).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            around = 1.0 if "norm" in name and name.endswith("weight") and architecture.norm_weight == "plain" else 0.0
            parameter.copy_(around + 0.3 * drawn)
    return model.eval()


def shallow(a: Architecture) -> Architecture:
    """The same with two layers a tower, or one of each type: what holds for those holds for a hundred."""
    layers = max(2, len(a.layer_types))
    cut = {name: min(layers, getattr(a, name)) for name in ("n_encoder_layers", "n_decoder_layers")}
    return a if len(a.layer_types) > 12 or a.shared_layers else a.replace(**cut)


def random_tokens(*shape: int, seed: int = 1, vocabulary: int = 20) -> Tensor:
    """Tokens that every table of the grid has rows for."""
    return torch.randint(0, vocabulary, shape, generator=torch.Generator().manual_seed(seed))


def random_source(architecture: Architecture, batch: int, length: int = 5) -> dict[str, Any]:
    """What an encoder-decoder needs besides tokens; the last row is one token shorter. Nothing for other kinds."""
    if architecture.kind != "encoder-decoder":
        return {}
    mask = torch.ones(batch, length, dtype=torch.bool)
    mask[-1, -1] = False
    return {"source": random_tokens(batch, length, seed=2), "source_mask": mask}


def far(a: Tensor, b: Tensor) -> float:
    """The largest difference, as a share of what is large: max |a - b| / max(1, max |b|)."""
    assert a.shape == b.shape
    a, b = a.detach(), b.detach()
    return float((a - b).abs().max() / b.abs().max().clamp(min=1)) if a.numel() else 0.0


def tiny(preset: str) -> Architecture:
    """A preset with every choice kept and every size small."""
    a = plait.preset(preset)
    layers = max(2, len(a.layer_types))
    rope = None if a.rope is None else dataclasses.replace(a.rope, dim=None if a.rope.dim is None else 2)
    experts = a.experts and dataclasses.replace(
        a.experts, n_experts=8, per_token=2, d_expert=12, d_shared=a.experts.d_shared and 16
    )
    return a.replace(
        vocab_size=32,
        d_model=24,
        n_heads=6,
        n_kv_heads=6 if a.n_kv_heads == a.n_heads else 3,
        d_head=4,
        d_ff=20,
        n_encoder_layers=layers if a.n_encoder_layers else 0,
        n_decoder_layers=layers if a.n_decoder_layers else 0,
        max_length=None if a.max_length is None else 40,
        rope=rope,
        experts=experts,
    )
