"""Display: a run as it happens, one live line on a terminal, and a plain line now and then where nobody watches."""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self, TextIO

REFRESH = 0.1  # seconds from one picture of the live line to the next
RECENT = 50  # steps that the speed is taken over

FORMS: dict[str, Callable[[float], str]] = {
    "accuracy": lambda value: f"{100 * value:.2f} %",
    "bleu": lambda value: f"{value:.2f}",
    "chrf": lambda value: f"{value:.2f}",
    "perplexity": lambda value: f"{value:.4g}",
}


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What is shown of a step.

    ``step`` counts from 1; ``targets`` is the number of real target tokens of the step, ``seconds`` what it took, and
    ``spent`` what the run took up to here.
    """

    step: int
    loss: float
    targets: int
    seconds: float
    spent: float = 0.0


class Display:
    """Where a run's lines go.

    Args:
        steps: optimizer steps in all; ``None`` where time ends the run.
        seconds: the time after which the run ends, where that is said.
        log_every: steps from one plain line to the next.
        work: floating-point operations for each target, and ``peak`` those that the machine does in a second; with both
            the share of the machine's arithmetic is shown.
        file: where to; stderr unless given. It is live if that is a terminal.
        clock: seconds that pass.
    """

    def __init__(
        self,
        *,
        steps: int | None,
        seconds: float | None = None,
        log_every: int = 10,
        work: float = 0.0,
        peak: float = 0.0,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steps, self._limit, self._log_every = steps, seconds, log_every
        self._before: int | None = None  # steps that were done when the first was shown, by a run that goes on
        self._work, self._peak = work, peak
        self._file = file or sys.stderr
        self._live = self._file.isatty()
        self._clock, self._start, self._drawn = clock, clock(), -REFRESH
        self._recent: deque[tuple[int, float]] = deque(maxlen=RECENT)
        self._shown = ""

    def step(self, progress: Progress) -> None:
        """Show a step."""
        self._before = progress.step - 1 if self._before is None else self._before
        self._recent.append((progress.targets, progress.seconds))
        last = progress.step == self._steps
        if self._live:
            now = self._clock()
            if now - self._drawn >= REFRESH or last:
                self._drawn = now
                self._draw(self.line(progress))
        elif progress.step % self._log_every == 0 or last:
            self.say(self.line(progress))

    def line(self, progress: Progress) -> str:
        """A step in words."""
        total = f"/{self._steps:,}" if self._steps else ""
        parts = [f"step {progress.step:,}{total}", f"loss {progress.loss:.4f}"]
        seconds = sum(seconds for _, seconds in self._recent)
        if seconds > 0:
            rate = sum(targets for targets, _ in self._recent) / seconds
            parts.append(f"{rate:,.0f} tokens/s")
            if self._work and self._peak:
                parts.append(f"{rate * self._work / self._peak:.0%} of the arithmetic")
        left = self._left(progress)
        return "  ".join([*parts, f"{clock_time(left)} left"] if left is not None else parts)

    def _left(self, progress: Progress) -> float | None:
        """Seconds to the end, evaluations and everything else in the pace."""
        passed, done = self._clock() - self._start, progress.step - (self._before or 0)
        ends = [self._limit - progress.spent] if self._limit is not None else []
        if self._steps is not None and done > 0:
            ends.append((self._steps - progress.step) * passed / done)
        return max(0.0, min(ends)) if ends else None

    def evaluation(self, step: int, metrics: Mapping[str, float], *, best: bool = False) -> None:
        """Show what an evaluation found; it stays on the screen."""
        words = ", ".join(
            f"{name.replace('_', ' ')} {FORMS.get(name, '{:.4f}'.format)(v)}" for name, v in metrics.items()
        )
        self.say(f"evaluation at step {step:,}: {words}{'  (best)' if best else ''}")

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._draw("")
        print(text, file=self._file, flush=True)

    def _draw(self, text: str) -> None:
        """Put ``text`` in the live line's place."""
        if not self._live or (not text and not self._shown):
            return
        width = shutil.get_terminal_size().columns - 1
        self._shown = text[:width]
        print(f"\r{self._shown}\x1b[K", end="", file=self._file, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._draw("")


def clock_time(seconds: float) -> str:
    """A time as 1:02:03, or 2:03."""
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"
