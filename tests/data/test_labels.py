"""Labels: classes and numbers of texts and of pairs of texts, from files of three kinds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from plait.data.error import DataError
from plait.data.labelled import Sample, read_labelled
from plait.data.labels import Labels, class_names, label_rows
from plait.data.lines import Tally
from plait.data.samples import ByRows, Samples
from plait.text import Tokenizer, train_tokenizer
from plait.text.pairs import bert_pair
from tests.data.making import in_memory


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    from dataclasses import replace

    made = train_tokenizer(["good bad text of a kind [SEP]"] * 3, kind="wordpiece", vocab_size=350)
    return replace(made, pair=bert_pair(made.named["cls"], made.named["sep"]))


def read(path: Path, text: str, **options) -> tuple[list[Sample], Tally]:
    path.write_text(text)
    tally = Tally()
    return list(read_labelled(path, tally, **options)), tally


def labels(samples: list[Sample], tally: Tally, *, classes: Sequence[str] | None, **options) -> Labels:
    lanes = in_memory(label_rows(samples, tally, classes=classes, **options))
    return Labels(*lanes, against="values" if classes is None else "classes")


def test_files_of_three_kinds(tmp_path: Path):
    expected = [Sample("a b", None, "x"), Sample("c", None, "y")]
    lines = "x a b\n\n__label__y c\nz\n"
    assert read(tmp_path / "a.txt", lines)[0] == expected
    tally = read(tmp_path / "a.txt", lines)[1]
    assert (tally.read, tally.blank, tally.bad) == (4, 1, 1)
    assert read(tmp_path / "a.tsv", "id\tlabel\ttext\n1\tx\ta b\n2\ty\tc\n3\ty\n4\tz\t \n")[0] == expected
    objects = [{"text": "a b", "label": "x"}, {"text": "c", "label": "y"}, {"text": "d"}, {"label": "x"}, {"text": 1}]
    samples, tally = read(tmp_path / "a.jsonl", "\n".join(map(json.dumps, objects)))
    assert samples == expected and (tally.read, tally.bad) == (5, 3)
    pairs = [{"premise": "a", "hypothesis": "b", "label": 0.5}, {"premise": "c", "hypothesis": " ", "label": 1}]
    samples, tally = read(tmp_path / "b.jsonl", "\n".join(map(json.dumps, pairs)))
    assert samples == [Sample("a", "b", 0.5)] and tally.blank == 1
    with pytest.raises(DataError, match="its first line must name the columns"):
        read(tmp_path / "b.tsv", "x\ta b\n")


def test_trec_has_six_classes(data: Path):
    tally = Tally()
    for file, count in (("train.txt", 5452), ("test.txt", 500)):
        samples = list(read_labelled(data / "trec" / file, tally, until=":"))
        assert len(samples) == count
        assert class_names(samples) == ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
    assert tally.bad == tally.blank == 0
    assert samples[0] == Sample("How far is it from Denver to Aspen ?", None, "NUM")
    assert Counter(sample.label for sample in samples)["NUM"] == 113


def test_classes_of_texts(tokenizer: Tokenizer):
    samples = [Sample("good text", None, "yes"), Sample("bad [SEP]", None, "no"), Sample("a kind of text", None, "yes")]
    names = class_names(samples)
    assert names == ("no", "yes")
    tally = Tally()
    rows = labels(samples, tally, tokenizer=tokenizer, length=5, classes=names)
    batch = rows.batch(np.array([2, 0, 1]), 0)
    assert batch.against == "classes" and batch.targets.dtype == torch.int64 and batch.targets.tolist() == [1, 1, 0]
    assert batch.token_types is None and batch.real.all()
    assert (tally.over_long, tally.cut) == (2, 2)  # [SEP] in a text is text, of several pieces
    assert (batch.tokens == tokenizer.named["sep"]).sum() == 3 and batch.tokens[0, -1] == tokenizer.named["sep"]
    assert batch.mask is not None and batch.mask.sum(1).tolist() == [5, 4, 5]


def test_pairs_have_types(tokenizer: Tokenizer):
    samples = [Sample("good text", "bad", 1), Sample("a", "kind of text", 0)]
    rows = labels(samples, Tally(), tokenizer=tokenizer, length=20, classes=class_names(samples))
    batch = rows.batch(np.array([0, 1]), 0)
    for row, sample in enumerate(samples):
        assert sample.second is not None and batch.token_types is not None
        ids, types = tokenizer.encode_pair(sample.text, sample.second)
        assert batch.tokens[row, : len(ids)].tolist() == ids
        assert batch.token_types[row, : len(ids)].tolist() == types and 0 < sum(types) < len(types)
    assert batch.targets.tolist() == [1, 0]


def test_values_are_numbers(tokenizer: Tokenizer):
    samples = [Sample("good", None, "0.5"), Sample("bad", None, -1), Sample("text", None, 2)]
    rows = labels(samples, Tally(), tokenizer=tokenizer, length=9, classes=None)
    batch = rows.batch(np.arange(3), 0)
    assert batch.against == "values" and batch.targets.dtype == torch.float32
    assert batch.targets.tolist() == [[0.5], [-1.0], [2.0]] and batch.real.all()
    several = labels([Sample("a", None, [1, 2])], Tally(), tokenizer=tokenizer, length=9, classes=None)
    assert several.batch(np.arange(1), 0).targets.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("samples", "classes", "message"),
    [
        ([Sample("a", None, "yess")], ("no", "yes"), "'yess' is no class; did you mean 'yes'"),
        ([Sample("a", None, "yes")], None, "'yes' is no number"),
        ([Sample("a", None, "nan")], None, "no finite number"),
        ([Sample("a", None, [1]), Sample("a", None, [1, 2])], None, "different numbers of values"),
        ([Sample("a", None, "no"), Sample("a", "text", "no")], ("no",), "some have a second text"),
        ([], ("no",), "nothing is left"),
    ],
)
def test_labels_that_mean_nothing_are_refused(tokenizer: Tokenizer, samples, classes, message: str):
    with pytest.raises(DataError, match=message):
        labels(samples, Tally(), tokenizer=tokenizer, length=20, classes=classes)


def test_classes_of_numbers_are_in_their_order():
    assert class_names([Sample("", None, label) for label in (10, 2, 1, 2)]) == ("1", "2", "10")


@pytest.mark.parametrize("label", [1.5, "", ["a"], None])
def test_what_is_no_name_of_a_class_is_refused(label: object):
    with pytest.raises(DataError, match="is no class, which is a name or a whole number"):
        class_names([Sample("a", None, "b"), Sample("a", None, label)])


def test_tr20_accuracy_over_three_ranks_counts_each_sample_once(tokenizer: Tokenizer):
    samples = [Sample("good text", None, row % 2) for row in range(10)]
    rows = labels(samples, Tally(), tokenizer=tokenizer, length=9, classes=("0", "1"))
    stream = Samples(rows, ByRows(10, 4))
    seen = [len(batch.targets) for rank in range(3) for batch in stream.evaluation(rank=rank, world=3)]
    assert sum(seen) == 10


def test_a_number_and_its_name_are_one_class():
    assert class_names([Sample("a", None, label) for label in (2, 1, "1", 10, "b")]) == ("2", "10", "1", "b")
