"""Texts, pairs and tokens get the reference library's probabilities, under the labels that the files name."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import plait
from plait.architecture import Classification
from plait.cli.commands import main
from plait.generation import GenerationError
from tests.generation.making import ENCODER, ROPE, checkpoint, random_model
from tests.text.test_folder import byte_level_folder
from tests.text.test_pairs import ROBERTA, bert_folder

TEXTS = ["the lazy dog", "a small town in the heart of a valley", ("what did she say?", "hello, world!"), ("a", "b c")]
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}


def saved(reference: ModuleType, folder: Path, kind: str, ending: str, labels: list[str], **settings: Any) -> Any:
    """A random classifier of the reference's with its tokenizer; the model."""
    names = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    torch.manual_seed(1)
    config = getattr(reference, f"{kind}Config")(vocab_size=420, **SIZE, **names, **settings)
    model = getattr(reference, f"{kind}For{ending}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    if kind == "Bert":
        bert_folder(folder)
    else:
        byte_level_folder(folder, ROBERTA)
    return model


def logits(reference: ModuleType, model: Any, folder: Path, kind: str, text: Any) -> torch.Tensor:
    tokenizer = getattr(reference, f"{kind}Tokenizer").from_pretrained(folder)
    both = text if isinstance(text, tuple) else (text,)
    with torch.no_grad():
        return model(**tokenizer(*both, return_tensors="pt", return_token_type_ids=kind == "Bert")).logits[0]


def close(found: dict[str, float], labels: list[str], expected: torch.Tensor) -> None:
    assert list(found) == labels
    assert list(found.values()) == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.parametrize("kind", ["Bert", "Roberta"])
def test_texts_and_pairs_in_a_batch(kind: str, reference: ModuleType, tmp_path: Path) -> None:
    own = {"type_vocab_size": 1, "pad_token_id": 1} if kind == "Roberta" else {}
    model = saved(reference, tmp_path, kind, "SequenceClassification", ["bad", "fair", "good"], **own)
    loaded = plait.load(tmp_path)
    found: Any = plait.classify(loaded, TEXTS, batch_size=3)
    for text, one in zip(TEXTS, found, strict=True):
        close(one, ["bad", "fair", "good"], logits(reference, model, tmp_path, kind, text).softmax(-1))
        assert plait.classify(loaded, text)[0] == pytest.approx(one, abs=1e-6)
    assert plait.classify(loaded, []) == []
    with pytest.raises(GenerationError, match=r"a head that classifies \(plait.classify runs it\) fills no masks"):
        plait.fill(loaded, "a")
    with pytest.raises(GenerationError, match=r"a head that classifies \(plait.classify runs it\) gives no text"):
        plait.score(loaded, "a")
    with pytest.raises(GenerationError, match="see plait.classify"):
        plait.generate(loaded, "a")


@pytest.mark.parametrize(("labels", "problem"), [(["relevant"], None), (["a", "b"], "multi_label_classification")])
def test_labels_that_do_not_exclude_each_other(
    labels: list[str], problem: str | None, reference: ModuleType, tmp_path: Path
) -> None:
    model = saved(reference, tmp_path, "Bert", "SequenceClassification", labels, problem_type=problem)
    loaded = plait.load(tmp_path)
    found: Any = plait.classify(loaded, TEXTS)
    for text, one in zip(TEXTS, found, strict=True):
        close(one, labels, logits(reference, model, tmp_path, "Bert", text).sigmoid())
    for dialect in ("plait", "hf"):
        loaded = plait.load(plait.save(loaded, tmp_path / dialect, dialect=dialect))
        assert plait.classify(loaded, TEXTS) == found


def test_every_token_has_its_labels(reference: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = saved(reference, tmp_path, "Bert", "TokenClassification", ["O", "NAME"])
    found: Any = plait.classify(plait.load(tmp_path), TEXTS[:2])
    for text, tokens in zip(TEXTS, found, strict=False):
        expected = logits(reference, model, tmp_path, "Bert", text).softmax(-1)
        assert len(tokens) == len(expected)
        for one, share in zip(tokens, expected, strict=True):
            close(one, ["O", "NAME"], share)
    assert main(["classify", str(tmp_path), str(TEXTS[0]), "--format", "json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert [one["labels"] for one in told["tokens"]] == [pytest.approx(one, abs=1e-6) for one in found[0]]
    assert [told["tokens"][i]["token"] for i in (0, -1)] == ["[CLS]", "[SEP]"]
    assert main(["classify", str(tmp_path), str(TEXTS[0])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["token", "label", "probability"] and len(lines) == 2 + len(found[0])


def test_the_command_ranks_labels_and_pairs(
    reference: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(reference, tmp_path, "Bert", "SequenceClassification", ["bad", "good"])
    pairs = [("a dog", "the fox"), ("a dog", "the town")]
    expected: Any = plait.classify(plait.load(tmp_path), pairs)
    command = ["classify", str(tmp_path), "a dog", "--pair", "the fox", "--pair", "the town"]
    assert main([*command, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["text"], one["pair"]) for one in told] == pairs
    assert [one["labels"] for one in told] == [pytest.approx(one) for one in expected]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["label", "probability", "text", "pair"]
    best = [max(one, key=one.__getitem__) for one in expected]
    assert [lines[i].split()[0] for i in (2, 4)] == best and len(lines) == 6
    assert main(["classify", str(tmp_path), "a", "b", "--pair", "c", "--pair", "d", "--pair", "e"]) == 1
    assert "--pair: 3 for 2 texts; give one, or one for each" in capsys.readouterr().err


def test_misuse_is_refused_in_one_sentence(reference: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(GenerationError, match="classify: this decoder has no head that classifies"):
        plait.classify(checkpoint(random_model(ROPE)), [[4]])
    judge = plait.Checkpoint(architecture=(a := ENCODER.replace(head=Classification(labels=2))), model=random_model(a))
    with pytest.raises(GenerationError, match="text 1: its 65 tokens exceed the context of 64; cut it"):
        plait.classify(judge, [[4], [4] * 65])
    with pytest.raises(GenerationError, match="texts: the checkpoint has no tokenizer"):
        plait.classify(judge, ("a", "b"))
    with pytest.raises(GenerationError, match="batch_size: 0 makes no sense"):
        plait.classify(judge, [[4]], batch_size=0)
    saved(reference, tmp_path, "Bert", "QuestionAnswering", ["x", "y"])
    with pytest.raises(GenerationError, match="marks where an answer starts and ends"):
        plait.classify(plait.load(tmp_path), "a")
