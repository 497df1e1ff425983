"""Patching: a pass with some inner values taken from another pass, from their mean, or left out, and what that changes.

(Vig et al. 2020; Meng et al. 2022, section 2; Wang et al. 2023.)

Legend: b rows, n places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from plait.checkpoint import Checkpoint
from plait.inspection.errors import InspectionError
from plait.inspection.reading import Reading
from plait.inspection.trace import Trace, trace
from plait.model import watching

Measure = Callable[[Tensor], Tensor]  # of outputs (b, n, v), or (b, labels): a number a row


@dataclass(frozen=True, kw_only=True)
class Patched:
    """One site, and one place of it or a head, that was replaced: ``value`` is what was measured then, ``share`` how
    much of the way from the corrupted to the clean pass that is."""

    site: str
    place: int
    value: float
    share: float


def log_probability(token: int, *, position: int = -1) -> Measure:
    """Of one token at one place."""
    return lambda logits: _wide(logits[:, position]).log_softmax(-1)[:, token]


def logit_difference(token: int, against: int, *, position: int = -1) -> Measure:
    """Of two tokens at one place."""
    return lambda logits: _wide(logits[:, position, token]) - _wide(logits[:, position, against])


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


@torch.no_grad()
def patch(
    checkpoint: Checkpoint,
    clean: Reading,
    corrupted: Reading,
    sites: str | Sequence[str],
    measure: Measure,
    *,
    by: Literal["place", "head"] = "place",
    batch_rows: int = 32,
) -> Iterator[Patched]:
    """Run the corrupted text once for each site and place, that one value being the clean text's; each is yielded.

    Args:
        clean, corrupted: of as many tokens, a source too.
        sites: names, ``*`` for any part; for instance ``decoder.layers.*.output``.
        measure: of outputs; see ``log_probability``.
        by: places of the row, or heads, for sites that have them.
        batch_rows: rows that are computed together.

    Raises ``InspectionError`` where the two are of different lengths, or a site has no heads.
    """
    lengths = [
        [len(reading), 0 if reading.source is None else reading.source.shape[1]] for reading in (clean, corrupted)
    ]
    if lengths[0] != lengths[1]:
        raise InspectionError(
            f"clean, corrupted: {lengths[0]} and {lengths[1]} tokens; values go from place to place, so give texts of "
            "as many."
        )
    names = [sites] if isinstance(sites, str) else list(sites)
    kept = trace(checkpoint, clean, *names)
    best = float(measure(kept.output[None])[0])
    worst = float(measure(trace(checkpoint, corrupted, names[0]).output[None])[0])
    for name, value in kept.items():
        if by == "head" and value.ndim != 3:
            raise InspectionError(f"{name}: it has no heads; patch it by place.")
        axis = 0 if by == "head" or value.ndim == 2 else -2  # heads, or places: (n, w), (h, n, w)
        for start in range(0, value.shape[axis], batch_rows):
            places = list(range(start, min(start + batch_rows, value.shape[axis])))
            found = _replaced(checkpoint, corrupted, name, value, axis - value.ndim if axis >= 0 else axis, places)
            for place, one in zip(places, measure(found).tolist(), strict=True):
                share = (one - worst) / (best - worst) if best != worst else float("nan")
                yield Patched(site=name, place=place, value=one, share=share)


def _replaced(
    checkpoint: Checkpoint, reading: Reading, name: str, value: Tensor, axis: int, places: Sequence[int]
) -> Tensor:
    """Outputs of a row for each place, whose value there was replaced."""

    def change(_: str, now: Tensor) -> Tensor:
        now = now.clone()
        for row, place in enumerate(places):
            now[row].select(axis, place).copy_(value.select(axis, place))
        return now

    tokens = reading.tokens.expand(len(places), -1)
    inputs = {key: given.expand(len(places), -1) for key, given in reading.inputs.items()}
    with watching(checkpoint.model, name, change=change):
        return checkpoint.model(tokens, **inputs)
    raise AssertionError("nothing ends the pass early")


@dataclass(frozen=True, kw_only=True)
class Ablated:
    """A site, or one head of it, without which ``value`` was measured; ``change`` is what that is more than with it."""

    site: str
    head: int | None
    value: float
    change: float


@torch.no_grad()
def ablate(
    checkpoint: Checkpoint,
    reading: Reading,
    sites: str | Sequence[str],
    measure: Measure,
    *,
    to: Literal["zero", "mean"] = "zero",
    heads: bool = False,
) -> Iterator[Ablated]:
    """Leave out one site after the other, or each head of it: zeros in its place, or its mean over the row's places.

    Raises ``InspectionError`` for heads of a site that has none.
    """
    names = [sites] if isinstance(sites, str) else list(sites)
    kept: Trace = trace(checkpoint, reading, *names)
    left_out: list[Ablated] = []
    whole = float(measure(kept.output[None])[0])
    for name, value in kept.items():
        if heads and value.ndim != 3:
            raise InspectionError(f"{name}: it has no heads.")
        for head in range(len(value)) if heads else [None]:

            def change(_: str, now: Tensor, head: int | None = head) -> Tensor:
                now = now.clone()
                part = now if head is None else now[:, head]
                part.copy_(part.mean(-2, keepdim=True).expand_as(part) if to == "mean" else torch.zeros_like(part))
                return now

            with watching(checkpoint.model, name, change=change):
                found = float(measure(checkpoint.model(reading.tokens, **reading.inputs))[0])
                left_out.append(Ablated(site=name, head=head, value=found, change=found - whole))
            yield left_out.pop()


def gradients(
    checkpoint: Checkpoint, reading: Reading, measure: Measure, sites: str = "*embedding.output"
) -> dict[str, Tensor]:
    """Of what is measured with respect to values, by site, each as it is in a ``Trace``."""
    model, found = checkpoint.model, dict[str, Tensor]()
    with torch.enable_grad(), watching(model, sites, gradients=True) as seen:
        measure(model(reading.tokens, **reading.inputs))[0].backward()
        found |= {name: seen.gradient(name)[0] for name in seen}
    model.zero_grad(set_to_none=True)
    return found
