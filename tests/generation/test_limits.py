"""Limits: one rule for how far a row goes, and refusals before any work."""

from __future__ import annotations

import pytest

from plait.checkpoint.rules import DecodeRules
from plait.generation import GenerationError, generate, stream
from plait.generation.limits import UNBOUNDED, new_tokens
from tests.generation.making import ROPE, TRANSLATOR, checkpoint, random_model, saying

NONE = DecodeRules()


def test_ge17_one_rule_for_both_limits() -> None:
    assert new_tokens(6, NONE, 64, max_length=8) == 2
    assert new_tokens(6, NONE, 64, max_new_tokens=2) == 2
    with pytest.raises(GenerationError, match=r"both are given \(2 and 8\); give one"):
        new_tokens(6, NONE, 64, max_length=8, max_new_tokens=2)
    for short in (5, 6):
        with pytest.raises(GenerationError, match=f"max_length: {short} tokens in all, and the prompt has 6"):
            new_tokens(6, NONE, 64, max_length=short)
    for bad in (0, -1, 1.5, True):
        with pytest.raises(GenerationError, match="max_new_tokens: .* give a whole number from 1"):
            new_tokens(6, NONE, 64, max_new_tokens=bad)


def test_ge17_the_caller_overrides_the_rules_whichever_limit_they_use() -> None:
    assert new_tokens(6, DecodeRules(max_length=20), 64, max_new_tokens=3) == 3
    assert new_tokens(6, DecodeRules(max_new_tokens=20), 64, max_length=9) == 3
    assert new_tokens(6, DecodeRules(max_new_tokens=4, max_length=20), 64) == 4
    assert new_tokens(6, DecodeRules(max_length=20), 64) == 14
    assert new_tokens(6, DecodeRules(max_length=200), 64) == 58, "the rules' own limit bends to the context"
    with pytest.raises(GenerationError, match="the checkpoint's max_length: 5 tokens in all, and the prompt has 6"):
        new_tokens(6, DecodeRules(max_length=5), 64)


def test_ge17_unset_is_unset() -> None:
    assert new_tokens(6, NONE, 64) == 58
    assert new_tokens(6, NONE, None) == UNBOUNDED
    model = checkpoint(random_model(ROPE))
    assert len(generate(model, [1, 2, 3], ignore_end=True).tokens) == 61
    assert len(generate(model, [1, 2, 3], ignore_end=True, max_length=5).tokens) == 2


def test_ge17_in_an_encoder_decoder_max_length_counts_the_start_token() -> None:
    model = checkpoint(random_model(TRANSLATOR))
    assert len(generate(model, [5, 6, 7], max_length=5, ignore_end=True).tokens) == 4
    assert len(generate(model, [5, 6, 7], max_new_tokens=5, ignore_end=True).tokens) == 5


def test_ge17_in_a_ragged_batch_each_row_has_its_own_room() -> None:
    model = checkpoint(random_model(ROPE))
    prompts = [[1, 2, 3, 4, 5], [6], [7, 8, 9]]
    together = generate(model, prompts, max_length=8, ignore_end=True)
    assert [len(g.tokens) for g in together] == [3, 7, 5]
    assert [g.tokens for g in together] == [generate(model, p, max_length=8, ignore_end=True).tokens for p in prompts]


def test_po5_a_row_too_long_for_the_context_is_refused_before_any_work() -> None:
    short = ROPE.replace(max_length=8)
    scripted = saying([1] * 9, architecture=short)
    model = checkpoint(scripted)
    with pytest.raises(GenerationError, match="9 tokens leave no room in a context of 8"):
        generate(model, list(range(9)))
    with pytest.raises(GenerationError, match="6 tokens and 4 new ones exceed the context of 8"):
        generate(model, [1, 2, 3, 4, 5, 6], max_new_tokens=4)
    with pytest.raises(GenerationError, match="exceed the context of 8"):
        stream(model, [1, 2, 3, 4, 5, 6], max_new_tokens=4)  # at the call, not at the first piece
    assert scripted.calls == 0
    assert len(generate(model, [1, 2, 3, 4, 5, 6], max_new_tokens=2).tokens) == 2
    translator = checkpoint(random_model(TRANSLATOR.replace(max_length=8)))
    with pytest.raises(GenerationError, match="its 9 tokens exceed the context of 8"):
        generate(translator, list(range(9)), max_new_tokens=1)
