"""Sampling: from logits to one token a row, likeliest or drawn.

Every row draws from a generator of its own, so what a row says depends on its seed and never on its batch-mates.
"""

# b rows

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from plait.generation.settings import Settings

_COLDEST = 1e-30  # below this, float32 divides by zero; no two logits are that close


def cool(logits: Tensor, temperature: float) -> Tensor:
    """Divide by the temperature. The largest logit becomes 0 first: no probability changes and nothing overflows."""
    return (logits - logits.amax(-1, keepdim=True)) / max(temperature, _COLDEST)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k likeliest tokens, and any as likely as the last of them; 0, or more than there are, keeps all."""
    if k == 0 or k >= logits.shape[-1]:
        return logits
    return logits.masked_fill(logits < logits.topk(k).values[..., -1:], -math.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Nucleus sampling (Holtzman et al. 2020): the fewest likeliest tokens that together reach ``p``; always one."""
    if p >= 1:
        return logits
    ascending, order = logits.sort(-1)
    drop = ascending.softmax(-1).cumsum(-1) <= 1 - p
    drop[..., -1] = False
    return logits.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), -math.inf)


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """Min-p (Nguyen et al. 2024): drop what is less likely than ``p`` times the likeliest."""
    if p == 0:
        return logits
    probabilities = logits.softmax(-1)
    top = probabilities.amax(-1, keepdim=True)
    return logits.masked_fill(probabilities < p * top, -math.inf)


def narrow(logits: Tensor, settings: Settings) -> Tensor:
    """The log-probabilities that are drawn from: temperature, top-k, top-p, min-p, then log-softmax."""
    logits = cool(logits, settings.temperature)
    logits = keep_min_p(keep_top_p(keep_top_k(logits, settings.top_k), settings.top_p), settings.min_p)
    return logits.log_softmax(-1)


def draw(log_probabilities: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """``(b, vocab)`` -> ``(b,)`` ids: one uniform number a row, looked up in that row's cumulative distribution."""
    uniform = torch.tensor([torch.rand((), generator=g, dtype=torch.float64).item() for g in generators])
    reached = log_probabilities.exp().cumsum(-1, dtype=torch.float64)
    sought = uniform.to(reached.device)[:, None] * reached[:, -1:]
    return torch.searchsorted(reached, sought, right=True)[:, 0]


def choose(logits: Tensor, settings: Settings, generators: Sequence[torch.Generator]) -> Tensor:
    """``(b, vocab)`` -> ``(b,)`` ids: the likeliest where the temperature is 0, else one drawn for each row."""
    return logits.argmax(-1) if settings.greedy else draw(narrow(logits, settings), generators)


def logprob(logits: Tensor, tokens: Tensor) -> Tensor:
    """log p of the chosen: logits ``(..., vocab)``, tokens ``(...)`` -> ``(...)``, without the whole log-softmax."""
    return logits.gather(-1, tokens[..., None])[..., 0] - logits.logsumexp(-1)
