"""T5's spans: the paper's worked example, its lengths, and that source and target together are the text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.data.error import DataError
from plait.data.order import draws
from plait.data.rows import Ragged
from plait.data.samples import FIXED
from plait.data.spans import Spans, noise_spans, replaced, text_length

WORDS = "Thank you for inviting me to your party last week".split()
SENTINELS = list(range(199, 49, -1))  # as T5's: the first has the highest id


def test_the_papers_figure():
    # Raffel et al. 2020, figure 2: "for inviting" and "last" are cut out
    gone = np.array([word in ("for", "inviting", "last") for word in WORDS])
    spelt = {**dict(enumerate(WORDS)), 199: "<X>", 198: "<Y>", 197: "<Z>"}
    source, target = (replaced(np.arange(len(WORDS)), what, SENTINELS) for what in (gone, ~gone))
    assert " ".join(spelt[id] for id in source.tolist()) == "Thank you <X> me to your party <Y> week"
    assert " ".join(spelt[id] for id in target.tolist()) == "<X> for inviting <Y> last <Z>"


def test_the_papers_lengths():
    # T5's own code: 512 tokens of source, its end among them, hold 568 of text and ask for 114, the end among them
    assert text_length(512) == (568, 114)
    objective = Spans(rows=Ragged.of([range(568)]), sentinels=range(999, 899, -1), start=0, end=1)
    batch = objective.batch(np.array([0]), 0)
    assert batch.source is not None
    assert batch.source.shape == (1, 512) and batch.targets.shape == batch.tokens.shape == (1, 114)
    assert [size.tolist() for size in objective.sizes] == [[114], [512]]
    assert batch.tokens[0, 0] == 0 and batch.targets[0, -1] == 1 and batch.source[0, -1] == 1
    assert batch.tokens[0, 1:].tolist() == batch.targets[0, :-1].tolist()
    gone = noise_spans(568, draws(0, 0, 0), rate=0.15, mean_span=3.0)
    assert gone.sum() == 85 and np.sum(np.diff(gone.astype(int)) == 1) == 28  # 15 % in spans of 3


@given(
    length=st.integers(2, 120),
    rate=st.sampled_from([0.15, 0.5, 0.9]),
    mean_span=st.sampled_from([1.0, 3.0, 10.0]),
    epoch=st.integers(0, 3),
)
def test_source_and_target_together_are_the_text(length: int, rate: float, mean_span: float, epoch: int):
    text = list(range(200, 200 + length))
    objective = Spans(rows=Ragged.of([text]), sentinels=SENTINELS, start=2, end=1, rate=rate, mean_span=mean_span)
    batch = objective.batch(np.array([0]), epoch)
    assert batch.source is not None
    source, target = batch.source[0].tolist()[:-1], batch.targets[0].tolist()[:-1]
    assert [size[0] for size in objective.sizes] == [len(target) + 1, len(source) + 1]
    spans: dict[int, list[int]] = {}
    for id in target:
        if id in SENTINELS:
            spans[id] = []
        else:
            spans[list(spans)[-1]].append(id)
    assert list(spans) == SENTINELS[: len(spans)] == [id for id in source if id in SENTINELS]
    assert all(spans.values()) and source[0] == 200  # no span is empty, and a text begins as it is
    assert [part for id in source for part in spans.get(id, [id])] == text


def test_spans_stand_everywhere_and_are_new_each_epoch():
    objective = Spans(rows=Ragged.of([range(40)]), sentinels=SENTINELS, start=41, end=42)

    def source(epoch: int) -> list[int]:
        batch = objective.batch(np.array([0]), epoch)
        assert batch.source is not None
        return batch.source[0].tolist()

    assert source(4) == source(4) and source(FIXED) == source(FIXED)
    sources = [source(epoch) for epoch in range(200)]
    kept = [sum(id in source for source in sources) for id in range(40)]
    assert kept[0] == 200 and kept[-1] == 0  # as in T5's code: a text begins kept and ends in a span
    assert max(kept[3:]) < 195 and min(kept[:-1]) > 20


def test_what_cannot_be_cut_is_refused():
    with pytest.raises(DataError, match="one has 1 tokens"):
        Spans(rows=Ragged.of([[1, 2], [3]]), sentinels=SENTINELS, start=0, end=1)
    with pytest.raises(DataError, match="a row of 568 tokens has 28 spans, and there are 10"):
        Spans(rows=Ragged.of([range(568)]), sentinels=SENTINELS[:10], start=0, end=1)
    with pytest.raises(DataError, match="mean_span"):
        Spans(rows=Ragged.of([[1, 2]]), sentinels=SENTINELS, start=0, end=1, mean_span=0.5)
    with pytest.raises(DataError, match="holds no text"):
        text_length(2)
