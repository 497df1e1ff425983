"""Prompts: every form there is, and what is no prompt."""

from __future__ import annotations

import pytest
import torch

from plait.checkpoint.rules import DecodeRules
from plait.generation import GenerationError, embed, generate
from tests.generation.making import ROPE, TRANSLATOR, ToyTokenizer, checkpoint, random_model, same

PIECES = ["<s>", "</s>", "a", "b", " ", "ab"]
TOKENIZER = ToyTokenizer(PIECES, bos=0, eos=1)
WITHOUT_BOS = ToyTokenizer(PIECES, specials=(0, 1))
MODEL = random_model(ROPE)


def test_forms_of_one_prompt_agree() -> None:
    model = checkpoint(MODEL, tokenizer=TOKENIZER)
    ids = [0, 5, 2]
    expected = generate(model, ids, max_new_tokens=4)
    assert expected.prompt_tokens == ids
    for prompt in ("aba", torch.tensor(ids), ids, tuple(ids)):
        assert same(generate(model, prompt, max_new_tokens=4), expected)
    for prompts in (["aba"], [ids], torch.tensor([ids]), [torch.tensor(ids)]):
        assert same(generate(model, prompts, max_new_tokens=4), [expected])
    assert same(generate(model, ["aba", ids], max_new_tokens=4), [expected, expected])
    assert generate(model, "aba", max_new_tokens=4, specials=False).prompt_tokens == [5, 2]


def test_tk15_an_empty_prompt_starts_at_bos() -> None:
    model = checkpoint(MODEL, tokenizer=TOKENIZER)
    start = generate(model, [0], max_new_tokens=3)
    for empty in ("", torch.tensor([])):
        assert same(generate(model, empty, max_new_tokens=3), start)
    for empties in ([[], ""], torch.zeros(2, 0), [torch.tensor([])] * 2):
        assert same(generate(model, empties, max_new_tokens=3), [start, start])
    assert same(generate(model, ["", "a"], max_new_tokens=3), [start, generate(model, "a", max_new_tokens=3)])
    assert generate(model, " ", max_new_tokens=3).prompt_tokens == [0, 4]
    ruled = checkpoint(MODEL, DecodeRules(bos=2), WITHOUT_BOS)
    assert generate(ruled, "", max_new_tokens=3).prompt_tokens == [2], (
        "the rules know a BOS that the tokenizer does not"
    )


def test_tk15_without_bos_an_empty_prompt_is_a_clear_error() -> None:
    for model in (checkpoint(MODEL, tokenizer=WITHOUT_BOS), checkpoint(MODEL)):
        for empty in ([[]], [[1], []], torch.zeros(1, 0, dtype=torch.long)):
            with pytest.raises(GenerationError, match="it is empty, and the checkpoint has no BOS token"):
                generate(model, empty)
    with pytest.raises(GenerationError, match="it is empty"):
        generate(checkpoint(MODEL, tokenizer=WITHOUT_BOS), ["a", ""])


@pytest.mark.parametrize("empty", [[], (), torch.zeros(0, 3, dtype=torch.long), torch.zeros(0, 0)], ids=str)
def test_an_empty_batch_has_no_answers(empty: object) -> None:
    for model in (checkpoint(MODEL, tokenizer=TOKENIZER), checkpoint(MODEL)):
        assert generate(model, empty, max_new_tokens=3) == []
        assert embed(model, empty).shape == (0, 16)
    with pytest.raises(GenerationError, match="top_p"):
        generate(checkpoint(MODEL), empty, top_p=2)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (b"\x01\x02", "prompt: bytes is no prompt; give text"),
        (bytearray(2), "bytearray is no prompt"),
        ([b"\x01"], "is no prompt; give text, token ids, or messages"),
        ([1, 32], "prompt: 32 is no token id; give whole numbers from 0 to 31"),
        ([[1], [-1]], "prompt 1: -1 is no token id"),
        ([1, 2.5], "prompt: 2.5 is no token id"),
        (torch.tensor([1.0, 2.0]), "a tensor of torch.float32 holds no token ids"),
        (torch.zeros(1, 1, 1, dtype=torch.long), r"a tensor of shape \(1, 1, 1\) is no prompt"),
        (7, "int is no prompt"),
        (None, "NoneType is no prompt"),
        (["a", 3], "3 is no prompt"),
        ("a", "no tokenizer to read text with"),
        ([{"role": "user", "content": "a"}], "no tokenizer to read text with"),
    ],
)
def test_what_is_no_prompt_is_refused_in_one_sentence(prompt: object, message: str) -> None:
    with_text = message.startswith("3 is")
    with pytest.raises(GenerationError, match=message):
        generate(checkpoint(MODEL, tokenizer=TOKENIZER if with_text else None), prompt)


def test_messages_need_a_chat_template() -> None:
    with pytest.raises(GenerationError, match="no chat template"):
        generate(checkpoint(MODEL, tokenizer=TOKENIZER), [{"role": "user", "content": "a"}])


def test_messages_go_through_the_tokenizers_chat() -> None:
    class Chatty(ToyTokenizer):
        chat_template = object()

        def chat(self, messages: list[dict[str, str]]) -> list[int]:
            return [0, *(token for m in messages for token in self.encode(m["content"], specials=False))]

    model = checkpoint(MODEL, tokenizer=Chatty(PIECES, bos=0, eos=1))
    talk = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "b"}]
    one = generate(model, talk, max_new_tokens=2)
    assert one.prompt_tokens == [0, 5, 3]
    together = generate(model, [talk, talk[:1]], max_new_tokens=2)
    assert same(together, [one, generate(model, talk[:1], max_new_tokens=2)])


def test_an_encoder_decoder_without_a_start_token_says_so() -> None:
    with pytest.raises(GenerationError, match="rules.start"):
        generate(checkpoint(random_model(TRANSLATOR), DecodeRules()), [1, 2])
