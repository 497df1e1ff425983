"""Wire: bytes that one device sends in a step, all collectives as rings (Patarasuk and Yuan 2009).

all-reduce of s bytes over n devices                 2 (n - 1) / n s
all-gather to, reduce-scatter from, s bytes            (n - 1) / n s
"""

from __future__ import annotations

from collections.abc import Mapping

from plait.account.memory import Parameter, Spread, units
from plait.account.passes import WIDE, Pass, length_of
from plait.architecture import Architecture


def all_reduce(size: int, n: int) -> int:
    """Everyone has the sum of everyone's."""
    return 2 * (n - 1) * size // n


def data(parameters: Mapping[str, Parameter], spread: Spread) -> int:
    """Gradients are summed over all that read other rows, once a step."""
    size = sum(spread.numbers(parameter) for parameter in parameters.values() if parameter.learns) * WIDE
    return all_reduce(size, spread.readers)


def fsdp(parameters: Mapping[str, Parameter], spread: Spread, micro_batches: int) -> int:
    """For each micro-batch every layer's weights are gathered forward and backward, what is in no layer once, and all
    gradients are summed and scattered. Parts are as large as the first one, which may be padded."""
    total = 0
    for unit, members in units(parameters).items():
        weights = sum(spread.numbers(parameter) for parameter in members.values())
        learnt = sum(spread.numbers(parameter) for parameter in members.values() if parameter.learns)
        total += (2 if unit else 1) * weights + learnt
    return micro_batches * total * WIDE * (spread.world - 1)


def tensor(
    a: Architecture,
    parameters: Mapping[str, Parameter],
    spread: Spread,
    p: Pass,
    micro_batches: int,
    *,
    twice: bool = False,
) -> int:
    """For each micro-batch what comes out of every divided pair of matrices is summed, and so are the gradients of what
    goes into each matrix of its first half; once a step gradients are summed over teams."""
    total = 0
    for tower in a.towers:
        own = p.rows * length_of(tower, p) * a.d_model
        source = p.rows * (p.source_length or 0) * a.d_model
        out, into = 2 * own, (3 + 1 + a.gated) * own
        if tower.cross:
            out, into = out + own, into + own + 2 * source
        total += tower.n_layers * (out * p.c * (1 + twice) + into * p.w)
    return micro_batches * all_reduce(total, spread.n) + data(parameters, spread)
