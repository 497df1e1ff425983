"""Labels: one class, or some numbers, for a whole row: classification and regression of sentences and their pairs.

tokens         [CLS] a query [SEP] a passage [SEP]
token types      0   0   0     0   1    1      1
target         2, of the classes; or .7
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from plait.data.batch import Batch
from plait.data.error import DataError
from plait.data.labelled import Sample
from plait.data.lines import Tally
from plait.data.longest import Longest, fit
from plait.data.rows import Rows, padded
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
        types: the type of each of them; of one text alone no types, and the model's default.
        labels: of each row its class, or its values as ``label_rows`` spells them.
        against: which of the two they are.
        pad: fills rows; no place with it counts, whatever it means elsewhere.

    Raises DataError for another number of labels than of rows, where some rows have types and others none, and where
    some have more values than others.
    """

    rows: Rows
    types: Rows
    labels: Rows
    against: Literal["classes", "values"]
    pad: int = 0
    whole = False

    def __post_init__(self) -> None:
        if not len(self.labels) == len(self.types) == len(self.rows):
            raise DataError(f"labels: there are {len(self.labels)} for {len(self.rows)} rows.")
        if self.typed and not self.types.lengths.all():
            raise DataError("samples: some have a second text, and others none; give all of them one, or none.")
        if len(np.unique(self.labels.lengths)) > 1:
            raise DataError("label: samples have different numbers of values; give each as many.")

    @property
    def typed(self) -> bool:
        """Whether rows are of two texts."""
        return bool(self.types.lengths.any())

    @property
    def sizes(self) -> tuple[Numbers]:
        """Tokens of each row."""
        return (self.rows.lengths,)

    def batch(self, rows: Numbers, epoch: int) -> Batch:
        """Some rows, alike in every epoch."""
        tokens, mask = padded([self.rows[row] for row in rows], self.pad)
        labels = np.stack([self.labels[row] for row in rows])
        targets = labels[:, 0].astype(np.int64) if self.against == "classes" else _read(labels)
        return Batch(
            tokens=tokens,
            targets=torch.from_numpy(targets),
            mask=mask,
            token_types=padded([self.types[row] for row in rows], 0)[0] if self.typed else None,
            against=self.against,
        )


def label_rows(
    samples: Iterable[Sample],
    tally: Tally,
    *,
    tokenizer: Tokenizer,
    length: int,
    classes: Sequence[str] | None,
    longest: Longest = "cut",
) -> Iterator[tuple[Sequence[int], Sequence[int], Sequence[int]]]:
    """Labelled sentences as ids, their types, and labels, which ``Labels`` is made of.

    A class is its number; values, float32, are the whole numbers that have the same bits.

    Args:
        samples: see ``read_labelled``.
        tally: counts what is over-long, and what is cut.
        tokenizer: puts around one text, or two, what it always does; control strings in them are text.
        length: the most tokens of a row, all of them counted.
        classes: their names in the order of the model's outputs, see ``class_names``; None: labels are numbers.
        longest: what becomes of longer rows; a cut one keeps its end, of a pair the second text is cut.

    Raises DataError for a label that is no class, or no number, and where nothing is left.
    """
    numbers = {name: number for number, name in enumerate(classes or ())}
    kept = 0
    for sample in samples:
        if sample.second is None:
            row: list[list[int]] = [tokenizer.encode(sample.text, control=False)]
        else:
            row = list(tokenizer.encode_pair(sample.text, sample.second, control=False))
        label = [_class(sample.label, numbers)] if classes is not None else _spelt(_values(sample.label))
        fitting = fit(row, length, longest, tally, end=len(tokenizer.suffix))
        if fitting is not None:
            kept += 1
            yield fitting[0], fitting[1] if len(fitting) > 1 else (), label
    tally.refuse_nothing("samples", kept)


def _spelt(values: list[float]) -> list[int]:
    return np.array(values, np.float32).view(np.int32).tolist()


def _read(labels: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
    return labels.astype(np.int32).view(np.float32)


def class_names(samples: Iterable[Sample]) -> tuple[str, ...]:
    """All labels that occur, in alphabetical order, numbers by their size; of the training set, for every set.

    Raises DataError for one that is no name and no whole number.
    """
    found: dict[str, str | int] = {}
    for sample in samples:
        if not isinstance(sample.label, str | int) or sample.label == "":
            raise DataError(
                f"label: {sample.label!r:.100} is no class, which is a name or a whole number; for other numbers the "
                "objective is values."
            )
        found[str(sample.label)] = sample.label
    return tuple(sorted(found, key=lambda name: (isinstance(found[name], str), found[name])))


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
