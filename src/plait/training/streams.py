"""Streams: what a recipe's data and objective make together, for training and for evaluation."""

from __future__ import annotations

from collections.abc import Callable

from plait.training import sample_streams, text_streams
from plait.training.stream_inputs import Both, Inputs

STREAMS: dict[str, Callable[[Inputs], Both]] = {
    "causal": text_streams.causal,
    "masked": text_streams.masked,
    "spans": text_streams.spans,
    "denoising": text_streams.denoising,
    "paired": sample_streams.paired,
    "chat": sample_streams.chat,
    "classes": sample_streams.labelled,
    "values": sample_streams.labelled,
    "contrastive": sample_streams.contrastive,
}


def streams(inputs: Inputs) -> Both:
    """The training data as the objective asks for it, and what is held out, if anything is."""
    return STREAMS[inputs.recipe.objective.kind](inputs)
