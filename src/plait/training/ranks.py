"""Ranks: what the loop asks of the processes that it is one of; ``Alone`` is the only one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from plait.data.stream import Stream
from plait.training.states import State, newest_state, read_state, save_state


class Ranks(Protocol):
    """This process among ``world``; every method is called by all of them, at the same step and in the same order."""

    @property
    def rank(self) -> int:
        """Its number among those that read other rows, from 0."""
        ...

    @property
    def world(self) -> int:
        """How many read other rows."""
        ...

    def total(self, values: Tensor) -> Tensor:
        """``values``, float64, summed over those that read other rows."""
        ...

    def anywhere(self, said: Sequence[bool]) -> list[bool]:
        """Whether each was said by some process, of all there are."""
        ...

    def reduce(self, parameters: Mapping[str, Tensor]) -> None:
        """Every parameter's ``grad`` becomes the sum of all ranks', whether this one has a gradient or not."""
        ...

    def norm(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """The norm of all gradients, by their parameters' names, as one vector, with other processes' parts."""
        ...

    def stream(self, stream: Stream) -> Stream:
        """The data as this process reads it."""
        ...

    def save(self, states: Path, state: State, *, keep: int, also: int | None) -> Path:
        """``states.save_state``, once."""
        ...

    def newest(self, states: Path) -> State | None:
        """``states.newest_state``, the same one for all."""
        ...

    def read(self, path: Path) -> State:
        """``states.read_state``."""
        ...

    def whole(self, name: str, value: Tensor) -> Tensor:
        """What belongs to the parameter of that name, put together from all processes."""
        ...


class Alone:
    """One process."""

    rank, world = 0, 1

    def total(self, values: Tensor) -> Tensor:
        """Themselves."""
        return values

    def anywhere(self, said: Sequence[bool]) -> list[bool]:
        """As they are."""
        return list(said)

    def reduce(self, parameters: Mapping[str, Tensor]) -> None:
        """Nothing."""

    def norm(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """The norm of all gradients as one vector."""
        return torch.nn.utils.get_total_norm(list(gradients.values()))

    def stream(self, stream: Stream) -> Stream:
        """The same."""
        return stream

    def save(self, states: Path, state: State, *, keep: int, also: int | None) -> Path:
        """To the disk."""
        return save_state(states, state, keep=keep, also=also)

    def newest(self, states: Path) -> State | None:
        """From the disk."""
        return newest_state(states)

    def read(self, path: Path) -> State:
        """From the disk."""
        return read_state(path)

    def whole(self, name: str, value: Tensor) -> Tensor:
        """It is whole."""
        return value
