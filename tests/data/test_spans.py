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


def test_t5_batches_equal_worked_examples(monkeypatch: pytest.MonkeyPatch):
    """The figure's text and a shorter one, cut out by hand, as T5's encoder and decoder get them: </s> is 1, <pad> is 0
    and begins what the decoder reads, and the sentinels go down from the highest id, <extra_id_0>."""
    cut = {10: "--XX----X-", 5: "-XX--"}

    def spans(length: int, *_: object, **options: object) -> np.ndarray:
        return np.array([sign == "X" for sign in cut[length]])

    monkeypatch.setattr("plait.data.spans.noise_spans", spans)
    rows = Ragged.of([range(10, 20), range(30, 35)])
    batch = Spans(rows=rows, sentinels=range(32099, 31999, -1), start=0, end=1).batch(np.array([0, 1]), 0)
    assert batch.source is not None and batch.source_mask is not None and batch.mask is not None
    X, Y, Z, no = 32099, 32098, 32097, -100  # the last sentinel stands for the end that was kept, as in the figure
    assert batch.source.tolist() == [[10, 11, X, 14, 15, 16, 17, Y, 19, 1], [30, X, 33, 34, 1, 0, 0, 0, 0, 0]]
    assert batch.source_mask.sum(1).tolist() == [10, 5]
    assert batch.tokens.tolist() == [[0, X, 12, 13, Y, 18, Z], [0, X, 31, 32, Y, 0, 0]]
    assert batch.targets.tolist() == [[X, 12, 13, Y, 18, Z, 1], [X, 31, 32, Y, 1, no, no]]
    assert batch.mask.tolist() == [[True] * 7, [True] * 5 + [False] * 2]


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
