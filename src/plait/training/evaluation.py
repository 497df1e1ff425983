"""Evaluation: what a model is worth on samples it was not trained on, each counted once."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from plait.data.batch import Batch
from plait.data.stream import Stream
from plait.training.ranks import Alone, Ranks

Loss = Callable[
    [Any, Batch], tuple[Tensor, Tensor | int]
]  # of a model and a batch: the sum over real targets, their number

MEASURED = ("loss", "perplexity", "bits_per_byte", "accuracy")  # here; what needs generated text is measured above
MORE_IS_BETTER = frozenset({"accuracy", "bleu", "chrf"})


def better(metric: str, value: float, than: float | None) -> bool:
    """Whether ``value`` beats the best so far; nothing but a number does, and any number beats none."""
    if math.isnan(value):
        return False
    return than is None or (value > than if metric in MORE_IS_BETTER else value < than)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside the block the model is in evaluation mode and keeps no graph; then each part is in the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def evaluate(
    model: nn.Module,
    stream: Stream,
    loss: Loss,
    *,
    metrics: Collection[str] = ("loss", "perplexity"),
    batches: int | None = None,
    ranks: Ranks | None = None,
    among: Tensor | None = None,
) -> dict[str, float]:
    """The metrics asked for, over the stream's ``evaluation()``.

    ``loss`` is nats a target, ``perplexity`` its exponential, ``accuracy`` the share of targets that are likeliest, and
    ``bits_per_byte`` the bits of all targets over the bytes of text they spell: the stream's ``facts()`` have ``bytes``
    and ``targets``, so that a part of it is measured by its share of the targets.

    Args:
        model: any mode; it is restored.
        stream: of samples that were held out.
        loss: as ``batch_loss``, without smoothing.
        metrics: of ``MEASURED``.
        batches: at most so many, from the start; ``None``: all.
        ranks: the processes that share the work.
        among: the tokens that can be targets, as of the loss: an answer is the likeliest of these.

    Raises ``ValueError`` for a metric that is not known here, for no targets at all, and for ``bits_per_byte`` of a
    stream that does not say how many bytes there are.
    """
    if strange := [name for name in metrics if name not in MEASURED]:
        raise ValueError(f"metrics: {strange[0]!r} is not one of {', '.join(MEASURED)}.")
    ranks = Alone() if ranks is None else ranks
    sums = torch.zeros(3, dtype=torch.float64)  # nats, targets, right ones
    with evaluating(model):
        for batch in islice(_to(model, stream.evaluation(rank=ranks.rank, world=ranks.world)), batches):
            nats, count = loss(model, batch)
            right = _right(model, batch, among) if "accuracy" in metrics else 0
            sums += torch.tensor([float(nats), float(count), float(right)], dtype=torch.float64)
    nats, targets, right = ranks.total(sums).tolist()
    if not targets:
        raise ValueError("the samples to evaluate on hold no target; give others, or more of them.")
    found: dict[str, Callable[[], float]] = {
        "loss": lambda: nats / targets,
        "perplexity": lambda: _exponential(nats / targets),
        "accuracy": lambda: right / targets,
        "bits_per_byte": lambda: nats / targets / math.log(2) * _targets_a_byte(stream.facts()),
    }
    return {name: found[name]() for name in metrics}


def _to(model: nn.Module, batches: Iterable[Batch]) -> Iterator[Batch]:
    device = next(model.parameters()).device
    return (batch.to(device) for batch in batches)


def _right(model: nn.Module, batch: Batch, among: Tensor | None) -> Tensor:
    """How many targets are the likeliest answer."""
    if batch.against not in ("vocabulary", "classes"):
        raise ValueError(f"metrics: targets that are {batch.against} are neither right nor wrong; leave out accuracy.")
    logits = model(batch.tokens, **batch.inputs)
    answers = logits.argmax(-1) if among is None else among.to(logits.device)[logits[..., among].argmax(-1)]
    return (answers == batch.targets).sum()


def _targets_a_byte(facts: Mapping[str, int | float]) -> float:
    if not facts.get("bytes") or not facts.get("targets"):
        raise ValueError("metrics: the data does not say how many bytes of text it has; leave out bits_per_byte.")
    return facts["targets"] / facts["bytes"]


def _exponential(nats: float) -> float:
    return math.exp(nats) if nats < 700 else math.inf
