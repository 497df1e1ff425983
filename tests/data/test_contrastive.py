"""Contrastive rows: each text should be nearest to its partner, among the texts of its own micro-batch."""

from __future__ import annotations

import numpy as np
import pytest

from plait.data.contrastive import Contrastive
from plait.data.error import DataError
from plait.data.rows import Ragged


def test_each_row_names_its_partner():
    first, second = Ragged.of([[10, 1], [11, 5, 6, 1], [12, 1]]), Ragged.of([[20, 7, 1], [21, 1], [22, 1]])
    batch = Contrastive(first, second, pad=9).batch(np.array([2, 0, 1]), 0)
    assert batch.against == "rows"
    assert batch.tokens[:, 0].tolist() == [12, 10, 11, 22, 20, 21]
    assert batch.targets.tolist() == [3, 4, 5, 0, 1, 2]
    assert batch.tokens[0].tolist() == [12, 1, 9, 9]
    assert batch.mask is not None and batch.mask.sum(1).tolist() == [2, 2, 4, 2, 3, 2]
    partners = batch.tokens[batch.targets][:, 0] - batch.tokens[:, 0]
    assert partners.abs().tolist() == [10] * 6


def test_texts_without_partners_are_refused():
    with pytest.raises(DataError, match="2 first texts and 1 second"):
        Contrastive(Ragged.of([[1], [2]]), Ragged.of([[1]]))
