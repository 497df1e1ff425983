"""Sampling: from logits to one token a row, likeliest or drawn.

Every row draws from a generator of its own, so what a row says depends on its seed and never on its batch-mates. On the
CPU numpy sorts and finds the largest: for 50,000 tokens some fifteen times faster than torch, which counts beside a
step of a small model.
"""

# b rows

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from plait.generation.errors import GenerationError
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
    """Nucleus sampling (Holtzman et al. 2020): the fewest likeliest tokens that together reach ``p``, and any as likely
    as the last of them; always one."""
    if p >= 1:
        return logits
    ascending = _ascending(logits)
    dropped = (ascending.softmax(-1).cumsum(-1) <= 1 - p).sum(-1, keepdim=True)
    least = ascending.gather(-1, dropped.clamp(max=logits.shape[-1] - 1))
    return logits.masked_fill(logits < least, -math.inf)


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """Min-p (Nguyen et al. 2024): drop what is less likely than ``p`` times the likeliest."""
    if p == 0:
        return logits
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + math.log(p), -math.inf)


def keep_typical(logits: Tensor, p: float) -> Tensor:
    """Typical sampling (Meister et al. 2022): the fewest tokens that together reach ``p``, those first whose -log p
    is nearest to the distribution's entropy, and any as near as the last of them; always one."""
    if p >= 1:
        return logits
    logprobs = logits.log_softmax(-1)
    entropy = -(logprobs.exp() * logprobs).nansum(-1, keepdim=True)  # 0 times -inf is nothing
    distance = (logprobs + entropy).abs()
    ascending, order = distance.sort(-1)
    before = logprobs.exp().gather(-1, order).cumsum(-1) < p
    last = before.sum(-1, keepdim=True).clamp(max=logits.shape[-1] - 1)
    return logits.masked_fill(distance > ascending.gather(-1, last), -math.inf)


def narrow(logits: Tensor, settings: Settings) -> Tensor:
    """The log-probabilities that are drawn from: temperature, top-k, top-p, min-p, typical-p, then log-softmax."""
    logits = cool(logits, settings.temperature)
    logits = keep_min_p(keep_top_p(keep_top_k(logits, settings.top_k), settings.top_p), settings.min_p)
    return keep_typical(logits, settings.typical_p).log_softmax(-1)


def draw(log_probabilities: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """``(b, vocab)`` -> ``(b,)`` ids: one uniform number a row, looked up in that row's cumulative distribution."""
    uniform = torch.tensor([torch.rand((), generator=g, dtype=torch.float64).item() for g in generators])
    reached = log_probabilities.exp().cumsum(-1, dtype=torch.float64)
    sought = uniform.to(reached.device)[:, None] * reached[:, -1:]
    check_numbers(reached[:, -1])
    return torch.searchsorted(reached, sought, right=True)[:, 0]


def choose(logits: Tensor, settings: Settings, generators: Sequence[torch.Generator]) -> Tensor:
    """``(b, vocab)`` -> ``(b,)`` ids: the likeliest where the temperature is 0, else one drawn for each row."""
    return likeliest(logits) if settings.greedy else draw(narrow(logits, settings), generators)


def likeliest(logits: Tensor) -> Tensor:
    """``(b, vocab)`` -> ``(b,)``: the id with the largest logit, of equal ones the first."""
    chosen = torch.from_numpy(np.argmax(logits.numpy(), axis=-1)) if logits.device.type == "cpu" else logits.argmax(-1)
    check_numbers(logits.gather(-1, chosen.unsqueeze(-1)))  # of NaN and others the largest is NaN
    return chosen


def check_numbers(found: Tensor) -> None:
    """``GenerationError`` where what was found among logits is NaN."""
    if bool(found.isnan().any()):
        raise GenerationError("logits: the model gave NaN; its weights hold some, or its values grew beyond its type.")


def logprob(logits: Tensor, tokens: Tensor) -> Tensor:
    """log p of the chosen: logits ``(..., vocab)``, tokens ``(...)`` -> ``(...)``."""
    return logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]


def _ascending(logits: Tensor) -> Tensor:
    """Each row's values, sorted."""
    if logits.device.type == "cpu":
        return torch.from_numpy(np.sort(logits.numpy(), axis=-1))
    return logits.sort(-1).values
