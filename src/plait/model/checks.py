"""What a forward pass refuses, in words, before anything is computed."""

from __future__ import annotations

import torch
from torch import Tensor

from plait.architecture import Architecture, RopeScaling
from plait.model.cache import Cache
from plait.model.mask import Places
from plait.model.stack import row_lengths


def check_tokens(name: str, tokens: Tensor, **beside: Tensor | None) -> None:
    """Tokens are whole numbers in rows; what stands beside them has one value for each."""
    if tokens.ndim != 2 or tokens.dtype not in (torch.int64, torch.int32) or tokens.shape[1] == 0:
        got = f"{tokens.dtype} of {tuple(tokens.shape)}"
        raise ValueError(f"{name}: expected int64 of shape (batch, length), length at least 1, got {got}.")
    for other, value in beside.items():
        if value is None:
            continue
        if value.shape != tokens.shape:
            raise ValueError(
                f"{other}: shape {tuple(value.shape)} does not fit {name} of shape {tuple(tokens.shape)}; give one "
                "value for each token (a mask of queries by keys is made from it)."
            )
        if value.is_floating_point():
            raise ValueError(f"{other}: {value.dtype} is neither boolean nor whole numbers.")
        if value.dtype != torch.bool and bool((value < 0).any()):
            raise ValueError(f"{other}: {int(value.min())} is negative; it counts from 0.")


def check_source(a: Architecture, source: Tensor | None, source_mask: Tensor | None, cache: Cache | None) -> None:
    """A source is for an encoder-decoder, once for a cache."""
    if a.kind != "encoder-decoder":
        if source is not None or source_mask is not None:
            raise ValueError(f"source, source_mask: they are for an encoder-decoder, and this is {a.kind} only.")
        if a.kind == "encoder" and cache is not None:
            raise ValueError("cache: an encoder reads its whole input at once; it takes none.")
        return
    remembered = cache is not None and cache.memory_places is not None
    if source is None and source_mask is not None:
        raise ValueError("source_mask: there is no source beside it.")
    if source is None and not remembered:
        raise ValueError(
            "source: an encoder-decoder needs the tokens to encode; a cache remembers them after one call."
        )
    if source is not None and remembered:
        raise ValueError("source: this cache already holds an encoded source; pass it once, at the first call.")


def check_cached(tokens: Tensor, mask: Tensor | None, cache: Cache) -> Tensor | None:
    """Rows fit the cache; the mask, boolean: one document goes on from call to call."""
    if len(tokens) != cache.batch:
        raise ValueError(f"tokens: {len(tokens)} rows, but the cache was made for {cache.batch}.")
    if mask is not None and mask.dtype != torch.bool and bool((mask > 1).any()):
        raise ValueError("mask: packed documents are read in one pass, without a cache.")
    return None if mask is None else mask.bool()


def check_documents(a: Architecture, mask: Tensor | None) -> None:
    """Documents are numbered in the order they stand; their lengths are not told to a scaling that goes by length."""
    if mask is None or mask.dtype == torch.bool:
        return
    if bool(((mask != 0) & (mask != mask.cummax(1).values)).any()):
        raise ValueError("mask: document numbers must not fall from left to right.")
    if _by_length(a) and bool((mask > 1).any()):
        raise ValueError("mask: a rotation scaled by length has one length a row; read packed documents one by one.")


def check_totals(a: Architecture, cache: Cache | None, held: Places) -> Tensor:
    """How long each row is declared to become, ``(b or 1,)``; without a declaration, how long it is.

    A row that grows past a scaling's original length needs the declaration: its keys were turned for another length.
    """
    after = row_lengths(held)
    if cache is None:
        return after
    if cache.total_lengths is not None:
        return cache.total_lengths.to(after.device)
    for scaling in _by_length(a) if cache.slots else ():
        limit = scaling.original_max_length or 0
        grew = after > limit
        if scaling.kind != "dynamic":
            grew = grew & (cache.lengths.to(after.device) <= limit)
        if bool(grew.any()):
            raise ValueError(
                f"cache: rows grew to {int(after.max())} tokens, past the original length of {limit} that their "
                "rotations were chosen for; declare how long they will become with Cache(total_lengths=...)."
            )
    return after


def _by_length(a: Architecture) -> list[RopeScaling]:
    scalings = (layer.rope.scaling for tower in a.towers for layer in tower.layers if layer.rope is not None)
    return [scaling for scaling in scalings if scaling is not None and scaling.by_length]
