"""Work: how many steps of one model cost what so many of another do, by the account."""

from __future__ import annotations

from plait.architecture import Architecture
from plait.data.stream import Stream
from plait.training.arithmetic import flops_per_target

COUNTED = 8  # steps of a stream whose batches are looked at


def steps_for(architecture: Architecture, stream: Stream, *, like: Architecture, steps: int) -> int:
    """The steps of ``architecture`` on a stream that take as many FLOPs as ``steps`` of ``like`` do on it."""
    batches = [batch for index in range(COUNTED) for batch in stream.step(index)]
    return round(steps * flops_per_target(like, batches) / flops_per_target(architecture, batches))
