"""Masks are filled with what the model finds likeliest there, from text that holds the tokenizer's own mask."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import plait
from plait.generation import Candidate, GenerationError, fill
from tests.families.making import build
from tests.generation.making import ENCODER, ROPE, ToyTokenizer, checkpoint, random_model

MASKED = ENCODER.replace(head="masked", vocab_size=32)


class Masking(ToyTokenizer):
    """Letters, and a mask."""

    named = {"mask": 3}

    def __init__(self) -> None:
        super().__init__(["<s>", "</s>", "<pad>", "<mask>", *"abcdefghij"], bos=0, eos=1, specials=(2,))
        self.special_ids |= {3}

    def encode(self, text: str, specials: bool = True) -> list[int]:
        parts = [super(Masking, self).encode(part, specials=False) for part in text.split("<mask>")]
        ids = [id for i, part in enumerate(parts) for id in ([3, *part] if i else part)]
        return [0, *ids, 1] if specials else ids


def test_each_mask_gets_the_likeliest_tokens() -> None:
    model = random_model(MASKED)
    two = fill(checkpoint(model, tokenizer=Masking()), "ab<mask>c<mask>", k=4)
    tokens = torch.tensor([[0, 4, 5, 3, 6, 3, 1]])
    logprobs = model(tokens)[0].log_softmax(-1)
    assert len(two) == 2
    for place, candidates in zip((3, 5), two, strict=True):
        known = logprobs[place, :14]  # the table has more rows than the tokenizer has tokens
        assert [one.token for one in candidates] == known.topk(4).indices.tolist()  # type: ignore[union-attr]
        assert [one.logprob for one in candidates] == pytest.approx(known.topk(4).values.tolist())  # type: ignore[union-attr]
    first = two[0][0]
    assert isinstance(first, Candidate) and first.text == Masking().decode([first.token])
    assert fill(checkpoint(model, tokenizer=Masking()), [0, 4, 5, 3, 6, 3, 1], k=4) == two
    several = fill(checkpoint(model, tokenizer=Masking()), ["ab<mask>c<mask>", "<mask>"], k=4)
    assert several[0] == two and [len(masks) for masks in several] == [2, 1]
    assert fill(checkpoint(model, tokenizer=Masking()), []) == []
    assert len(fill(checkpoint(model, tokenizer=Masking()), "<mask>", k=99)[0]) == 14
    fewer = random_model(MASKED.replace(vocab_size=9))
    assert len(fill(checkpoint(fewer, tokenizer=Masking()), "a<mask>", k=12)[0]) == 9


def test_a_folder_is_filled_as_the_reference_library_would(reference: ModuleType, tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(56))]
    model = build(reference, "bert")
    model.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    found: Any = plait.fill(plait.load(tmp_path), "w3 [MASK] w7 w1 [MASK]", k=3)
    ids = torch.tensor([[2, 8, 4, 12, 6, 4, 3]])
    with torch.no_grad():
        expected = model(ids).logits[0, [2, 5]].softmax(-1).topk(3)
    assert [[one.token for one in masks] for masks in found] == expected.indices.tolist()
    assert [[one.text for one in masks] for masks in found] == [
        [words[i] for i in r] for r in expected.indices.tolist()
    ]
    logprobs = torch.tensor([[one.logprob for one in masks] for masks in found])
    torch.testing.assert_close(logprobs.exp(), expected.values, atol=1e-5, rtol=1e-4)


def test_weights_that_are_no_numbers_are_told() -> None:
    model = random_model(MASKED)
    next(model.parameters()).data[5] = float("nan")
    with pytest.raises(GenerationError, match="logits: the model gave NaN"):
        fill(checkpoint(model, tokenizer=Masking()), "b<mask>")


def test_misuse_is_refused_in_one_sentence() -> None:
    model = checkpoint(random_model(MASKED), tokenizer=Masking())
    with pytest.raises(GenerationError, match="text: it has no mask to fill; write <mask> where a word is wanted"):
        fill(model, "abc")
    with pytest.raises(GenerationError, match="text 1: it has no mask to fill"):
        fill(model, ["<mask>", "abc"])
    with pytest.raises(GenerationError, match="k: 0 makes no sense; give a whole number from 1"):
        fill(model, "<mask>", k=0)
    with pytest.raises(GenerationError, match="text: its 67 tokens exceed the context of 64"):
        fill(model, "a" * 64 + "<mask>")
    with pytest.raises(GenerationError, match="fill: this decoder with head 'language' fills no masks"):
        fill(checkpoint(random_model(ROPE), tokenizer=Masking()), "<mask>")
    for none in (None, ToyTokenizer(["a"])):
        if none is not None:
            none.named = {}  # type: ignore[attr-defined]
        with pytest.raises(GenerationError, match="tokenizer has no mask token"):
            fill(checkpoint(random_model(MASKED), tokenizer=none), "a")
