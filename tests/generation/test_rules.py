"""Logit rules: each on its own, in the order they have, and against the reference library's."""

from __future__ import annotations

import math
from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plait.generation import GenerationError, generate
from plait.generation.rules import (
    Line,
    LogitRules,
    ban,
    completed,
    counts,
    force,
    penalise_counts,
    penalise_repetition,
    repeated_ngrams,
    seen,
)
from plait.generation.sampling import narrow
from plait.generation.settings import Settings
from tests.generation.making import DECODERS, checkpoint, random_model

INF = math.inf


def apply(settings: Settings, logits: list[float], tokens: list[int], n_prompt: int, limit: int = 9) -> list[float]:
    line = Line(tokens[:n_prompt], n_prompt, limit)
    seen([line], torch.tensor([logits]))  # what is remembered grows with the row from here
    counts([line], torch.tensor([logits]))
    for token in tokens[n_prompt:]:
        line.add(token)
    return LogitRules(settings)(torch.tensor([logits]), [line])[0].tolist()


def test_ge5_the_repetition_penalty_lowers_negative_logits_too() -> None:
    logits = torch.tensor([[2.0, -1.0, -3.0]])
    punished = penalise_repetition(logits, torch.tensor([[False, True, False]]), 2.0)
    assert punished.tolist() == [[2.0, -2.0, -3.0]]
    assert punished.softmax(-1)[0, 1] < logits.softmax(-1)[0, 1]
    assert apply(Settings(repetition_penalty=2.0), [2.0, -1.0, -3.0], [1], 1) == [2.0, -2.0, -3.0]


def test_ge7_the_repetition_penalty_counts_a_token_once() -> None:
    logits = [1.0, 1.0, 1.0, 1.0, 8.0]
    assert apply(Settings(repetition_penalty=2.0), logits, [4, 4, 4], 1)[4] == 4.0


@pytest.mark.parametrize("name", DECODERS)
def test_ge6_penalties_count_real_tokens_only(name: str) -> None:
    model = checkpoint(random_model(DECODERS[name]))
    penalties = {"repetition_penalty": 1.5, "frequency_penalty": 0.4, "presence_penalty": 0.3, "max_new_tokens": 8}
    prompts = [[5, 6, 7, 8, 9, 10, 11], [9, 4], [0, 30, 2]]  # the filler's id is 0
    alone = [generate(model, prompt, **penalties) for prompt in prompts]
    assert [g.tokens for g in generate(model, prompts, **penalties)] == [g.tokens for g in alone]
    assert alone[1].tokens != generate(model, prompts[1], max_new_tokens=8).tokens, "the penalties change nothing here"


def test_ge6_the_fillers_id_is_not_seen_when_a_short_row_stands_beside_a_long_one() -> None:
    lines = [Line([5, 6], 2, 4), Line([7], 1, 4)]
    assert [row.nonzero().flatten().tolist() for row in seen(lines, torch.zeros(2, 8))] == [[5, 6], [7]]
    lines[1].add(3)
    assert [row.nonzero().flatten().tolist() for row in seen(lines, torch.zeros(2, 8))] == [[5, 6], [3, 7]]


def test_what_is_remembered_from_the_start_is_what_is_counted_later() -> None:
    early, late = Line([5, 6], 2, 9), Line([5, 6, 6, 1, 6], 2, 9)
    seen([early], torch.zeros(1, 8))
    counts([early], torch.zeros(1, 8))
    for token in (6, 1, 6):
        early.add(token)
    both = [early, late]
    assert seen(both, torch.zeros(2, 8)).int().tolist() == [[0, 1, 0, 0, 0, 1, 1, 0]] * 2
    assert counts(both, torch.zeros(2, 8)).tolist() == [[0, 1, 0, 0, 0, 0, 2, 0]] * 2


def test_frequency_counts_and_presence_does_not() -> None:
    logits, written = torch.zeros(1, 3), torch.tensor([[0.0, 1.0, 3.0]])
    assert penalise_counts(logits, written, 0.5, 0.0).tolist() == [[0.0, -0.5, -1.5]]
    assert penalise_counts(logits, written, 0.0, 0.5).tolist() == [[0.0, -0.5, -0.5]]
    both = Settings(frequency_penalty=1.0, presence_penalty=0.25)
    assert apply(both, [0.0, 0.0, 0.0], [0, 0, 1, 1, 2], n_prompt=2) == [0.0, -2.25, -1.25], (
        "prompt tokens do not count"
    )


def test_ge23_bans_come_before_the_log_softmax() -> None:
    logits = [1.0, 0.5, 7.0, -1.0]  # the banned pad has the top logit
    banned = torch.tensor([apply(Settings(banned=((2,),)), logits, [0], 1)])
    kept = narrow(banned, Settings(temperature=1.0)).exp()[0]
    assert kept[2] == 0
    assert float(kept.sum()) == pytest.approx(1.0)
    assert kept[[0, 1, 3]].tolist() == pytest.approx(torch.tensor([1.0, 0.5, -1.0]).softmax(-1).tolist())


def test_a_banned_sequence_bans_its_last_token_after_the_others() -> None:
    sequences = [(1, 2, 3), (2, 5), (9, 9)]
    assert completed([1, 2], sequences) == {3, 5}
    assert completed([2], sequences) == {5}
    assert completed([], [(4,)]) == {4}
    assert completed([2, 1], sequences) == set()


def test_repeated_ngrams() -> None:
    assert repeated_ngrams([1, 2, 3, 1, 2], 3) == {3}
    assert repeated_ngrams([1, 2, 1, 3, 1], 2) == {2, 3}
    assert repeated_ngrams([4, 5], 1) == {4, 5}
    assert repeated_ngrams([1, 2], 4) == set()
    assert repeated_ngrams([9, 1], 2, read=[1, 2, 1, 3, 9]) == {2, 3}
    assert repeated_ngrams([9, 1], 1, read=[4, 5]) == {4, 5}
    assert repeated_ngrams([1], 3, read=[1, 2, 3]) == set()


def test_rows_are_banned_and_forced_apart() -> None:
    logits = torch.arange(6.0).reshape(2, 3)
    assert ban(logits, [{0, 2}, set()]).tolist() == [[-INF, 1.0, -INF], [3.0, 4.0, 5.0]]
    assert force(logits, [None, 1]).tolist() == [[0.0, 1.0, 2.0], [-INF, 0.0, -INF]]
    assert logits.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], "the logits given are not written to"


def test_ends_wait_for_both_minima() -> None:
    logits = [0.0, 0.0, 0.0]
    early = Settings(end=(1, 2), min_length=4)
    assert apply(early, logits, [0, 0, 0], 2) == [0.0, -INF, -INF]
    assert apply(early, logits, [0, 0, 0, 0], 2) == logits
    assert apply(Settings(end=(2,), min_new_tokens=2), logits, [0, 0, 0], 2) == [0.0, 0.0, -INF]
    assert apply(Settings(end=(2,), min_new_tokens=2), logits, [0, 0, 0, 0], 2) == logits


def test_forced_tokens_win_over_bans() -> None:
    forced = Settings(forced_first=1, forced_last=2, banned=((1,), (2,)))
    assert apply(forced, [5.0, 0.0, 0.0], [0], 1, limit=3) == [-INF, 0.0, -INF]
    assert apply(forced, [5.0, 0.0, 0.0], [0, 1], 1, limit=3) == [5.0, -INF, -INF]
    assert apply(forced, [5.0, 0.0, 0.0], [0, 1, 0], 1, limit=3) == [-INF, -INF, 0.0]


def test_a_row_without_any_token_left_is_an_error() -> None:
    with pytest.raises(GenerationError, match="every token of the vocabulary is banned"):
        apply(Settings(banned=((0,), (1,))), [1.0, 2.0], [0], 1)


@given(
    tokens=st.lists(st.integers(0, 7), min_size=6, max_size=14),
    seed=st.integers(0, 99),
    n_prompt=st.integers(1, 5),
    ngram=st.integers(0, 3),
)
def test_the_rules_equal_the_reference_library(
    reference: ModuleType, tokens: list[int], seed: int, n_prompt: int, ngram: int
) -> None:
    logits = torch.randn(1, 8, generator=torch.Generator().manual_seed(seed)) * 3
    settings = Settings(
        repetition_penalty=1.7,
        no_repeat_ngram=ngram,
        banned=((6,), (2, 3), (1, 2, 0)),
        end=(7, 5),
        min_length=9,
        min_new_tokens=6,
        forced_last=4,
    )
    limit = 14 - n_prompt
    from transformers.generation import logits_process as theirs

    processors = [
        theirs.RepetitionPenaltyLogitsProcessor(1.7),
        *([theirs.NoRepeatNGramLogitsProcessor(ngram)] if ngram else []),
        theirs.NoBadWordsLogitsProcessor([[6], [2, 3], [1, 2, 0]], eos_token_id=[7, 5]),
        theirs.MinLengthLogitsProcessor(9, [7, 5]),
        theirs.MinNewTokensLengthLogitsProcessor(n_prompt, 6, [7, 5]),
        theirs.ForcedEOSTokenLogitsProcessor(14, 4),
    ]
    expected, ids = logits.clone(), torch.tensor([tokens])
    for processor in processors:
        expected = processor(ids, expected)
    if bool((expected == -INF).all()):
        return
    assert apply(settings, logits[0].tolist(), tokens, n_prompt, limit) == pytest.approx(expected[0].tolist())
