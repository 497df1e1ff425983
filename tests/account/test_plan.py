"""What is recommended is the cheapest way that fits; what does not fit says the least that would."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plait.account.flops import training_step
from plait.account.memory import Parameter, Spread
from plait.account.passes import Pass
from plait.account.plan import RESERVE, Step, best, spreads, ways
from plait.parameters import parameters
from plait.presets import preset

A = preset("gpt2").replace(n_decoder_layers=4)
STEP = Step(
    architecture=A,
    parameters={name: Parameter(shape=shape) for name, shape in parameters(A).items()},
    rows=16,
    micro_batches=1,
    one=Pass(rows=1, length=512),
)
DATA, FSDP = (Spread(kind=kind, n=1, world=4) for kind in ("data", "fsdp"))
HUGE = 10**13


def total(spread: Spread, micro_batches: int = 1, *, twice: bool = False, **more: Any) -> int:
    return replace(STEP, **more).memory(spread, micro_batches, twice=twice).total


def test_ways_go_by_the_number_of_devices() -> None:
    assert [(spread.kind, spread.n) for spread in spreads(1)] == [("data", 1)]
    assert [(spread.kind, spread.n) for spread in spreads(6)] == [
        ("data", 1), ("fsdp", 1), ("tensor", 2), ("tensor", 3), ("tensor", 6),
    ]  # fmt: skip


def test_where_all_fits_the_least_is_sent() -> None:
    found = best(ways(STEP, spreads(4), HUGE))
    assert found is not None and (found.parallel, found.micro_batches, found.twice) == ("data", 1, False)


def test_micro_batches_come_before_computing_twice() -> None:
    """A byte less than the step needs: rows are halved. Less than one row needs: layers are computed twice."""
    needed = ways(STEP, [DATA], HUGE)[0].said.needs
    found = best(ways(STEP, [DATA], needed - 1))
    assert found is not None and not found.twice and found.micro_batches == 2
    one_row = int(total(DATA, 4) / (1 - RESERVE))
    found = best(ways(STEP, [DATA], one_row - 10))
    assert found is not None and found.twice and found.needs < one_row


def test_what_data_parallel_cannot_hold_fsdp_divides() -> None:
    weights = total(DATA, 4, twice=True)
    assert total(FSDP, 4, twice=True) < 0.7 * weights
    found = best(ways(STEP, [DATA, FSDP], int(0.8 * weights)))
    assert found is not None and found.parallel == "fsdp"


def test_where_nothing_fits_the_least_is_known_and_would_do() -> None:
    found = ways(STEP, spreads(4), 10**6)
    assert best(found) is None
    least = min(way.least.needs for way in found)
    assert best(ways(STEP, spreads(4), least)) is not None and best(ways(STEP, spreads(4), least - 1)) is None


@pytest.mark.parametrize("spread", spreads(4))
def test_memory_falls_with_rows_and_with_checkpointing(spread: Spread) -> None:
    few = [STEP.memory(spread, count, twice=False).activations for count in (1, 2, 4)]
    assert few == sorted(few, reverse=True) and len(set(few)) == len({STEP.rows_of(spread, n) for n in (1, 2, 4)})
    assert STEP.memory(spread, 1, twice=True).activations < few[0] / 3


def test_rows_that_stay_together_are_not_dealt() -> None:
    step = replace(STEP, whole=True, micro_batches=4)
    assert step.rows_of(DATA, 4) == 4 and [way.least.micro_batches for way in ways(step, [DATA], 1)] == [4]


def test_flops_are_the_accounts_and_a_pass_more_where_layers_are_computed_twice() -> None:
    once = training_step(A, 512, batch=16)
    assert STEP.flops() == once.total
    assert STEP.flops(twice=True) == once.total + (once.total - once.head - once.embedding) // 3


def test_an_average_of_many_is_kept_many_times() -> None:
    weights = STEP.memory(DATA, 1, twice=False).weights
    assert total(DATA, averages=10) - total(DATA) == 10 * weights
