"""What reading says aloud: an error where it cannot go on, a notice where it did something worth knowing."""

from __future__ import annotations

import warnings


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or written; the message names the place, what is wrong, what would be right."""


class PlaitNotice(UserWarning):
    """Something was done that the caller did not write, and may want to know; never an error."""


def notice(message: str) -> None:
    """Say ``message`` aloud: a ``PlaitNotice`` through Python's warnings."""
    warnings.warn(message, PlaitNotice, stacklevel=3)
