"""The display: a live line on a terminal, plain lines in a pipe, numbers that add up."""

from __future__ import annotations

import io

import pytest

from plait.training.display import Display, Progress, clock_time


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(file: io.StringIO, steps: int = 6, **settings: float) -> str:
    clock = Clock()
    with Display(steps=steps, log_every=2, file=file, clock=clock, **settings) as display:
        for step in range(1, steps + 1):
            clock.now += 0.5
            display.step(Progress(step=step, loss=3.0 / step, targets=100, seconds=0.25))
            if step == 3:
                display.evaluation(3, {"loss": 1.25, "accuracy": 0.5}, best=True)
    return file.getvalue()


def test_a_pipe_gets_a_plain_line_now_and_then():
    lines = shown(io.StringIO(), work=1e6, peak=1e9).splitlines()
    assert lines == [
        "step 2/6  loss 1.5000  400 tokens/s  40% of the arithmetic  0:02 left",
        "evaluation at step 3: loss 1.2500, accuracy 50.00 %  (best)",
        "step 4/6  loss 0.7500  400 tokens/s  40% of the arithmetic  0:01 left",
        "step 6/6  loss 0.5000  400 tokens/s  40% of the arithmetic  0:00 left",
    ]


def test_a_terminal_gets_one_line_that_changes_and_is_gone_at_the_end():
    text = shown(Terminal())
    assert text.count("\n") == 1  # the evaluation's alone
    assert text.count("\rstep ") == 6 and text.endswith("\r\x1b[K")
    assert "\r\x1b[Kevaluation at step 3: loss 1.2500" in text  # it does not stand in the live line's remains


def test_a_terminal_is_not_drawn_faster_than_eyes_see():
    file, clock = Terminal(), Clock()
    display = Display(steps=1000, file=file, clock=clock)
    for step in range(1, 1000):
        clock.now += 0.001
        display.step(Progress(step=step, loss=1.0, targets=1, seconds=0.001))
    assert file.getvalue().count("\r") <= 11


def test_a_run_that_goes_on_counts_its_own_steps():
    clock = Clock()
    display = Display(steps=100, log_every=5, file=(file := io.StringIO()), clock=clock)
    for step in range(91, 96):
        clock.now += 2.0
        display.step(Progress(step=step, loss=1.0, targets=1, seconds=2.0))
    assert file.getvalue().endswith("0:10 left\n")


def test_the_earlier_of_two_ends_counts():
    clock = Clock()
    display = Display(steps=100, seconds=30.0, file=io.StringIO(), clock=clock)
    clock.now = 10.0
    assert display.line(Progress(step=10, loss=1.0, targets=1, seconds=1.0, spent=10.0)).endswith("0:20 left")


def test_a_limit_in_time_counts_what_earlier_processes_took():
    display = Display(steps=None, seconds=3600.0, file=io.StringIO(), clock=Clock())
    line = display.line(Progress(step=900, loss=1.0, targets=1, seconds=1.0, spent=3000.0))
    assert line.endswith("10:00 left")


@pytest.mark.parametrize(("seconds", "said"), [(0, "0:00"), (61.4, "1:01"), (3599.6, "1:00:00"), (7384, "2:03:04")])
def test_times(seconds: float, said: str):
    assert clock_time(seconds) == said
