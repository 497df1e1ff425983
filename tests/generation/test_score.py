"""Scores of texts against one pass of the plain model over each, whatever the batch; and what is made of them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import plait
from plait.checkpoint import DecodeRules
from plait.generation import GenerationError, Runner, Scored, generate, score
from tests.generation.making import (
    DECODERS,
    ENCODER,
    ROPE,
    RUNNERS,
    TRANSLATOR,
    Scripted,
    ToyTokenizer,
    checkpoint,
    random_model,
    saying,
)

TEXTS = [[5, 6, 7], [9], [1, 2, 3, 4, 5, 6, 7, 8], [31, 0, 31]]


def exact(model: Any, tokens: list[int], **inputs: Any) -> list[float]:
    """The log-probability of each token but the first: no cache, no padding, no batch."""
    logprobs = model(torch.tensor([tokens]), **inputs)[0].log_softmax(-1)
    return [float(logprobs[i, token]) for i, token in enumerate(tokens[1:])]


@pytest.mark.parametrize("make", RUNNERS.values(), ids=RUNNERS)
@pytest.mark.parametrize("name", DECODERS)
def test_a_decoders_texts_are_scored_as_if_alone(name: str, make: Callable[[Any], Runner]) -> None:
    model = random_model(DECODERS[name])
    for size in (1, 3, 8):
        found = score(checkpoint(model), TEXTS, batch_size=size, runner=make(model))
        assert isinstance(found, list) and [one.tokens for one in found] == TEXTS
        for one in found:
            assert one.logprobs[0] is None
            assert one.logprobs[1:] == pytest.approx(exact(model, one.tokens), abs=1e-4)
            assert one.logprob == pytest.approx(sum(exact(model, one.tokens)), abs=1e-4)


@given(seed=st.integers(0, 50), lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), chunk=st.integers(1, 9))
def test_chunks_change_nothing(seed: int, lengths: list[int], chunk: int) -> None:
    model = random_model(ROPE, seed)
    texts = [torch.randint(32, (n,), generator=torch.Generator().manual_seed(seed + n)).tolist() for n in lengths]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["plait.generation.score"], "CHUNK", chunk)
        found = score(checkpoint(model), texts)
    assert isinstance(found, list)
    for text, one in zip(texts, found, strict=True):
        assert one.logprobs[1:] == pytest.approx(exact(model, text), abs=1e-9)


def test_what_is_given_is_read_and_not_scored() -> None:
    model = random_model(ROPE)
    one = score(checkpoint(model), [7, 8], given=[5, 6])
    assert isinstance(one, Scored)
    assert (one.tokens, one.n_scored) == ([7, 8], 2)
    assert one.logprobs == pytest.approx(exact(model, [5, 6, 7, 8])[1:], abs=1e-9)
    words = ToyTokenizer(["<s>", "a", "b", "ab", "c"], bos=0)  # "a" + "b" is one token
    seam = score(checkpoint(model, tokenizer=words), ["bc", "c"], given=["a", "ab"])
    assert isinstance(seam, list)
    assert [one.tokens for one in seam] == [[3, 4], [4]]
    assert seam[1].logprobs == pytest.approx(exact(model, [0, 3, 4])[1:], abs=1e-9)


@pytest.mark.parametrize("make", RUNNERS.values(), ids=RUNNERS)
def test_targets_are_scored_given_their_sources(make: Callable[[Any], Runner]) -> None:
    model = random_model(TRANSLATOR)
    sources = [[4, 5], [9, 1, 30, 4, 8], [7], [2, 2, 2]]
    found = score(checkpoint(model), TEXTS, given=sources, runner=make(model))
    assert isinstance(found, list)
    for target, source, one in zip(TEXTS, sources, found, strict=True):
        assert one.tokens == target
        expected = exact(model, [3, *target], source=torch.tensor([source]))
        assert one.logprobs == pytest.approx(expected, abs=1e-4), "the first is scored, behind the start token"


@pytest.mark.parametrize("name", ["rope", "translator"])
def test_law6_a_beam_scores_what_its_tokens_score(name: str) -> None:
    architecture = {"rope": ROPE, "translator": TRANSLATOR}[name]
    model = checkpoint(random_model(architecture), DecodeRules(start=3, end=(1, 8, 20)))
    for penalty in (0.0, 1.0, 1.7):
        options: Any = {"beams": 4, "n_best": 4, "length_penalty": penalty, "max_new_tokens": 9}
        best = generate(model, [5, 6, 7], **options)
        found = score(model, [one.tokens for one in best], given=[[5, 6, 7]] * 4)  # type: ignore[union-attr]
        assert isinstance(found, list)
        for one, theirs in zip(best, found, strict=True):  # type: ignore[arg-type]
            assert one.score == pytest.approx(theirs.logprob / len(theirs.tokens) ** penalty, abs=1e-9)


def test_sums_and_means() -> None:
    half = Scripted(lambda p: [0.0, 0.0], ROPE.replace(vocab_size=2))
    letters = ToyTokenizer(["é", "a"])
    one = score(checkpoint(half, tokenizer=letters), "aéaé")
    assert isinstance(one, Scored)
    assert one.logprob == pytest.approx(-3 * math.log(2), abs=1e-6)
    assert (one.n_scored, one.n_bytes) == (3, 5), "the first letter is part of nothing"
    assert one.mean == pytest.approx(-math.log(2), abs=1e-6)
    assert one.perplexity == pytest.approx(2.0, abs=1e-5)
    assert one.bits_per_byte == pytest.approx(3 / 5, abs=1e-6)
    begun = ToyTokenizer(["é", "<s>"], bos=1)
    whole = score(checkpoint(half, tokenizer=begun), "ééé")
    assert isinstance(whole, Scored)
    assert (whole.n_scored, whole.n_bytes, whole.bits_per_byte) == (3, 6, pytest.approx(0.5))
    ids = score(checkpoint(half, tokenizer=letters), [1, 0, 1])
    assert isinstance(ids, Scored) and ids.n_bytes == 3
    bare = score(checkpoint(half), [1])
    assert bare == Scored(tokens=[1], logprobs=[None])
    assert (bare.logprob, bare.mean, bare.perplexity, bare.bits_per_byte) == (0.0, None, None, None)  # type: ignore[union-attr]
    sure = Scored(tokens=[1], logprobs=[-1e9])
    assert sure.perplexity is not None and math.isfinite(sure.perplexity)
    assert score(checkpoint(half), []) == []


@pytest.mark.parametrize("architecture", [ROPE, TRANSLATOR])
def test_weights_that_are_no_numbers_are_told(architecture: Any) -> None:
    model = random_model(architecture)
    model.state_dict()["decoder.layers.0.ffn.up.weight"][0] = math.nan
    given = [4, 5] if architecture is TRANSLATOR else None
    with pytest.raises(GenerationError, match="logits: the model gave NaN"):
        score(checkpoint(model, DecodeRules(start=0)), [1, 2, 3], given=given)


def test_misuse_is_refused_in_one_sentence() -> None:
    decoder, translator = checkpoint(random_model(ROPE)), checkpoint(random_model(TRANSLATOR))
    with pytest.raises(GenerationError, match="score: this encoder without a head gives no text a probability"):
        score(checkpoint(SimpleNamespace(architecture=ENCODER, parameters=lambda: iter([torch.zeros(1)]))), [1])  # type: ignore[arg-type]
    with pytest.raises(GenerationError, match="given: an encoder-decoder scores targets of sources"):
        score(translator, [1, 2])
    with pytest.raises(GenerationError, match="given: 1 for 2 texts; give one for each"):
        score(translator, [[1], [2]], given=[[1]])
    with pytest.raises(GenerationError, match="given: 1 for 1 text; give one for each"):
        score(decoder, [1], given=[[1]])
    with pytest.raises(GenerationError, match="text 1: its 65 tokens exceed the context of 64; cut it"):
        score(decoder, [[1], [2] * 65])
    with pytest.raises(GenerationError, match="source 0: its 65 tokens exceed the context of 64; cut it"):
        score(translator, [1], given=[2] * 65)
    with pytest.raises(GenerationError, match="batch_size: 0 makes no sense"):
        score(decoder, [1], batch_size=0)
    with pytest.raises(GenerationError, match="runner: int is no runner"):
        score(decoder, [1], runner=3)  # type: ignore[arg-type]
    with pytest.raises(GenerationError, match="rules.start: the checkpoint does not say"):
        score(checkpoint(saying([4], architecture=TRANSLATOR), DecodeRules()), [1], given=[2])


@pytest.mark.slow
def test_smollm2_knows_its_capitals(smollm2: Path) -> None:
    model = plait.load(smollm2, lazy=True)
    runner = plait.optimize(model)
    right, wrong = plait.score(model, [" Paris.", " Madrid."], given=["The capital of France is"] * 2, runner=runner)  # type: ignore[misc]
    assert right.logprob > wrong.logprob + 2
    assert right.n_bytes == len(" Paris.")
