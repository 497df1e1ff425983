"""Labels: one class, or some numbers, for a whole row: classification and regression of sentences and their pairs.

tokens         [CLS] a query [SEP] a passage [SEP]
token types      0   0   0     0   1    1      1
target         2, of the classes; or .7
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from plait.data.batch import Batch
from plait.data.error import DataError
from plait.data.labelled import Sample
from plait.data.lines import Tally
from plait.data.longest import Longest, fit
from plait.data.rows import Growing, Rows, padded
from plait.data.samples import Numbers
from plait.words import nearest


class Tokenizer(Protocol):
    """What labels ask of a tokenizer: ``plait.Tokenizer`` is one."""

    @property
    def suffix(self) -> tuple[int, ...]:
        """The ids after a text."""
        ...

    def encode(self, text: str, specials: bool = True, *, control: bool = True) -> list[int]:
        """The ids of a text."""
        ...

    def encode_pair(self, first: str, second: str, *, control: bool = True) -> tuple[list[int], list[int]]:
        """The ids of two texts in one row, and their types."""
        ...


@dataclass(frozen=True, eq=False)
class Labels:
    """An objective for a model with a head for classes or numbers.

    Args:
        rows: ids with all that goes around them.
        types: the type of each of them; None: the model's default.
        labels: ``(samples,)`` int64, classes; or ``(samples, numbers)`` float32, values.
        pad: fills rows; no place with it counts, whatever it means elsewhere.

    Raises DataError for a label that is no class, and another number of labels than of rows.
    """

    rows: Rows
    types: Rows | None
    labels: NDArray[np.integer[Any]] | NDArray[np.float32]
    pad: int = 0
    whole = False

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.rows):
            raise DataError(f"labels: there are {len(self.labels)} for {len(self.rows)} rows.")

    @property
    def sizes(self) -> tuple[Numbers]:
        """Tokens of each row."""
        return (self.rows.lengths,)

    def batch(self, rows: Numbers, epoch: int) -> Batch:
        """Some rows, alike in every epoch."""
        tokens, mask = padded([self.rows[row] for row in rows], self.pad)
        return Batch(
            tokens=tokens,
            targets=torch.from_numpy(self.labels[rows]),
            mask=mask,
            token_types=None if self.types is None else padded([self.types[row] for row in rows], 0)[0],
            against="classes" if self.labels.ndim == 1 else "values",
        )


def label_rows(
    samples: Iterable[Sample],
    tally: Tally,
    *,
    tokenizer: Tokenizer,
    length: int,
    classes: Sequence[str] | None,
    longest: Longest = "cut",
    pad: int = 0,
) -> Labels:
    """Labelled sentences as an objective.

    Args:
        samples: see ``read_labelled``.
        tally: counts what is over-long, and what is cut.
        tokenizer: puts around one text, or two, what it always does; control strings in them are text.
        length: the most tokens of a row, all of them counted.
        classes: their names in the order of the model's outputs, see ``class_names``; None: labels are numbers.
        longest: what becomes of longer rows; a cut one keeps its end, of a pair the second text is cut.
        pad: fills rows.

    Raises DataError for a label that is no class, or no number; where some samples have a second text and others none;
    and where nothing is left.
    """
    numbers = {name: number for number, name in enumerate(classes or ())}
    kept, types = Growing(), Growing()
    labels: list[Any] = []
    pairs: set[bool] = set()
    for sample in samples:
        if sample.second is None:
            ids = tokenizer.encode(sample.text, control=False)
            row = [ids, [0] * len(ids)]
        else:
            row = list(tokenizer.encode_pair(sample.text, sample.second, control=False))
        pairs.add(sample.second is not None)
        label = _class(sample.label, numbers) if classes is not None else _values(sample.label)
        fitting = fit(row, length, longest, tally, end=len(tokenizer.suffix))
        if fitting is not None:
            kept.append(fitting[0])
            types.append(fitting[1])
            labels.append(label)
    tally.refuse_nothing("samples", len(labels))
    if len(pairs) > 1:
        raise DataError("samples: some have a second text, and others none; give all of them one, or none.")
    if classes is None and len({len(label) for label in labels}) > 1:
        raise DataError("label: samples have different numbers of values; give each as many.")
    found = np.array(labels, np.float32) if classes is None else np.array(labels, np.int64)
    return Labels(kept.rows(), types.rows() if True in pairs else None, found, pad)


def class_names(samples: Iterable[Sample]) -> tuple[str, ...]:
    """All labels that occur, in alphabetical order, numbers by their size; of the training set, for every set."""
    found = {sample.label for sample in samples if isinstance(sample.label, str | int)}
    return tuple(str(label) for label in sorted(found, key=lambda label: (isinstance(label, str), label)))


def _class(label: Any, numbers: dict[str, int]) -> int:
    found = numbers.get(str(label)) if isinstance(label, str | int) else None
    if found is None:
        near = nearest(str(label), numbers)
        hint = f"did you mean {near!r}?" if near else f"the classes are {', '.join(numbers)}."
        raise DataError(f"label: {label!r} is no class; {hint:.500}")
    return found


def _values(label: Any) -> list[float]:
    try:
        values = [float(value) for value in (label if isinstance(label, list) else [label])]
    except (TypeError, ValueError):
        raise DataError(f"label: {label!r} is no number; for names of classes the objective is classes.") from None
    if not values or not np.isfinite(values).all():
        raise DataError(f"label: {label!r} is no finite number.")
    return values
