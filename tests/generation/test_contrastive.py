"""Contrastive search against its equation, slowly: no cache, no batch, each candidate read with its whole row."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from plait.checkpoint import DecodeRules
from plait.generation import GenerationError, generate, stream
from plait.model import Transformer
from plait.presets import PRESETS
from tests.generation.making import RUNNERS, WINDOWED, ToyTokenizer, checkpoint, naive_greedy, random_model, same

TINY: dict[str, Any] = {"vocab_size": 32, "d_model": 16, "n_heads": 4, "d_ff": 24, "n_decoder_layers": 2}
SHAPES = {
    "gpt2": PRESETS["gpt2"].replace(**TINY, max_length=64),
    "llama": PRESETS["llama-3.2-1b"].replace(**TINY, n_kv_heads=2, d_head=4, max_length=64),
    "t5": PRESETS["t5-small"].replace(**TINY, d_head=4, n_encoder_layers=2),
    "windowed": WINDOWED,
}
PROMPTS = [[5, 6, 7], [9], [1, 2, 3, 4, 5, 6, 7, 8]]
RULES = DecodeRules(start=3)
CHOICES = [(0.4, 6), (1.0, 2)]
ENDS = (2, 3, 6, 10, 14, 25)


def slow(
    model: Transformer, prompt: list[int], alpha: float, k: int, limit: int, ends: tuple[int, ...] = ()
) -> list[int]:
    """Equation 5 of Su et al. 2022, as it stands."""
    translates = model.architecture.kind == "encoder-decoder"
    row, source = ([3], {"source": torch.tensor([prompt])}) if translates else (list(prompt), {})
    begun = len(row)

    def worth(token: int, probabilities: Tensor) -> float:
        *past, own = model.states(torch.tensor([[*row, token]]), **source)[0]
        likeness = max(float(F.cosine_similarity(own, one, dim=0)) for one in past)
        return (1 - alpha) * float(probabilities[token]) - alpha * likeness

    while len(row) - begun < limit and row[-1] not in (ends if len(row) > begun else ()):
        probabilities = model(torch.tensor([row]), **source)[0, -1].softmax(-1)
        row.append(max(probabilities.topk(k).indices.tolist(), key=lambda token: worth(token, probabilities)))
    return row[begun:]


@pytest.mark.parametrize(("alpha", "k"), CHOICES)
@pytest.mark.parametrize("name", SHAPES)
def test_it_is_the_equation_for_every_row_of_a_batch(name: str, alpha: float, k: int) -> None:
    model = random_model(SHAPES[name])
    options: Any = {"penalty_alpha": alpha, "top_k": k, "max_new_tokens": 9, "end": ENDS}
    found = generate(checkpoint(model, RULES), PROMPTS, **options)
    assert [one.tokens for one in found] == [slow(model, prompt, alpha, k, 9, ENDS) for prompt in PROMPTS]
    assert len({len(one.tokens) for one in found}) > 1, "rows end apart"
    greedy = generate(checkpoint(model, RULES), PROMPTS, max_new_tokens=9, end=ENDS)
    assert [one.tokens for one in found] != [one.tokens for one in greedy]
    assert same(found, [generate(checkpoint(model, RULES), prompt, **options) for prompt in PROMPTS])
    assert same(found, generate(checkpoint(model, RULES), PROMPTS, prefill_chunk=2, **options))


def test_what_the_rules_forbid_is_no_candidate_and_what_they_leave_is_the_confidence() -> None:
    model = random_model(SHAPES["llama"])
    banned = sorted({*range(32)} - {4, 9, 20})
    found = generate(
        checkpoint(model), PROMPTS, penalty_alpha=1.0, top_k=8, max_new_tokens=12, banned=banned, no_repeat_ngram=3
    )
    assert {token for one in found for token in one.tokens} == {4, 9, 20}
    alone = generate(checkpoint(model), [5], penalty_alpha=0.5, top_k=4, max_new_tokens=1, banned=banned)
    left = [4, 9, 20]
    logits = model(torch.tensor([[5]]))[0, -1]
    probabilities = logits[left].softmax(-1)
    worth: list[float] = []
    for place, token in enumerate(left):
        past, own = model.states(torch.tensor([[5, token]]))[0]
        worth.append(0.5 * float(probabilities[place]) - 0.5 * float(F.cosine_similarity(own, past, dim=0)))
    (token,) = alone.tokens
    assert token == left[worth.index(max(worth))]
    exact = float(logits.log_softmax(-1)[token])
    assert alone.logprobs == pytest.approx([exact], abs=1e-9), "the model's own, before any rule"


def test_pieces_are_those_of_any_generation() -> None:
    model = random_model(SHAPES["gpt2"])
    tokenizer = ToyTokenizer([chr(97 + i) for i in range(32)])
    options: Any = {"penalty_alpha": 0.6, "top_k": 4, "max_new_tokens": 12, "alternatives": 2, "echo": True}
    prompt = [5, 6, 7]
    done = generate(checkpoint(model, tokenizer=tokenizer), prompt, **options)
    row = slow(model, prompt, 0.6, 4, 12)
    assert done.tokens == [*prompt, *row] and done.text == tokenizer.decode(done.tokens) and done.finish == "length"
    exact = model(torch.tensor([done.tokens]))[0].log_softmax(-1)
    assert done.logprobs[1:] == pytest.approx([float(exact[i, t]) for i, t in enumerate(done.tokens[1:])], abs=1e-9)
    assert [id for id, _ in done.alternatives[5]] == exact[4].topk(2).indices.tolist()
    pieces = list(stream(checkpoint(model, tokenizer=tokenizer), prompt, **options))
    assert [piece.token for piece in pieces] == done.tokens and "".join(piece.text for piece in pieces) == done.text
    stopped = generate(checkpoint(model, tokenizer=tokenizer), prompt, stop=tokenizer.decode(row[4:6]), **options)
    first = tokenizer.decode(row).index(tokenizer.decode(row[4:6]))
    assert (stopped.text, stopped.finish) == (tokenizer.decode([*prompt, *row[:first]]), "stop")


def test_the_model_is_as_before_and_more_candidates_than_tokens_are_all_of_them() -> None:
    model = random_model(SHAPES["gpt2"].replace(vocab_size=6))
    before = model(torch.tensor([[1, 2]]))
    pieces = stream(checkpoint(model), [1, 2], penalty_alpha=0.6, top_k=50, max_new_tokens=9)
    first = next(pieces)
    assert not any(getattr(part, "_watchers", None) for part in model.modules()), "nobody watches between pieces"
    assert [first.token, *(piece.token for piece in pieces)] == slow(model, [1, 2], 0.6, 6, 9)
    assert model(torch.tensor([[1, 2]])).equal(before)
    assert generate(checkpoint(model), [], penalty_alpha=0.6, top_k=4) == []


@pytest.mark.filterwarnings("default::plait.PlaitNotice")
def test_the_checkpoints_rules_decide_what_is_left_open() -> None:
    model = random_model(SHAPES["llama"])

    def tokens(rules: DecodeRules, **options: Any) -> list[int]:
        return generate(checkpoint(model, rules), [5, 6], max_new_tokens=8, **options).tokens

    greedy = naive_greedy(model, [5, 6], 8)
    asking = DecodeRules(penalty_alpha=0.6, top_k=4)
    assert tokens(asking) == tokens(asking, temperature=0.0) == slow(model, [5, 6], 0.6, 4, 8) != greedy
    assert tokens(asking, top_k=8) == slow(model, [5, 6], 0.6, 8, 8) != tokens(asking)
    assert tokens(asking, penalty_alpha=0.2) == slow(model, [5, 6], 0.2, 4, 8) != tokens(asking)
    assert tokens(asking, penalty_alpha=0) == greedy
    drawn = tokens(DecodeRules(), temperature=1.0, seed=3, top_k=4)
    assert tokens(asking, temperature=1.0, seed=3) == drawn
    assert tokens(DecodeRules(penalty_alpha=0.6, top_k=4, sample=True), seed=3) == drawn
    assert tokens(DecodeRules(top_k=4, sample=True), penalty_alpha=0.6) == tokens(asking)
    searched = tokens(DecodeRules(), beams=3)
    assert tokens(asking, beams=3) == tokens(DecodeRules(penalty_alpha=0.6, top_k=4, beams=3)) == searched
    with pytest.warns(match="penalty_alpha says nothing without a top_k from 2; the likeliest is taken"):
        assert tokens(DecodeRules(penalty_alpha=0.6)) == greedy
    assert tokens(DecodeRules(penalty_alpha=0.6), top_k=4) == tokens(asking)


MISUSE: dict[str, dict[str, Any]] = {
    "penalty_alpha: 1.5 makes no sense; give a number from 0 to 1": {"penalty_alpha": 1.5, "top_k": 4},
    "penalty_alpha: nan makes no sense": {"penalty_alpha": math.nan, "top_k": 4},
    "penalty_alpha: True makes no sense": {"penalty_alpha": True, "top_k": 4},
    "top_k: 0 leaves contrastive search .* give a whole number from 2": {"penalty_alpha": 0.6},
    "top_k: 1 leaves contrastive search": {"penalty_alpha": 0.6, "top_k": 1},
    "penalty_alpha: it chooses for one beam; give beams=1": {"penalty_alpha": 0.6, "top_k": 4, "beams": 2},
    "penalty_alpha: the best of the candidates is taken": {"penalty_alpha": 0.6, "top_k": 4, "temperature": 1.0},
    "top_p: 0.9 changes nothing in greedy decoding": {"penalty_alpha": 0.6, "top_k": 4, "top_p": 0.9},
    "speculate: a contrastive search reads all": {"penalty_alpha": 0.6, "top_k": 4, "speculate": "lookup"},
}


@pytest.mark.parametrize(("said", "options"), MISUSE.items(), ids=MISUSE)
def test_misuse_is_refused_in_one_sentence(said: str, options: dict[str, Any]) -> None:
    with pytest.raises(GenerationError, match=said):
        stream(checkpoint(random_model(SHAPES["gpt2"])), [5, 6], **options)


def test_an_engine_is_refused_and_weights_that_are_no_numbers_too() -> None:
    model = random_model(SHAPES["gpt2"])
    runner = RUNNERS["torch"](model)
    for rules, options in ((None, {"penalty_alpha": 0.6, "top_k": 4}), (DecodeRules(penalty_alpha=0.6, top_k=4), {})):
        with pytest.raises(GenerationError, match=r"EngineRunner gives logits alone; leave runner out \(--plain"):
            generate(checkpoint(model, rules), [5], runner=runner, **options)
    model.embedding.tokens.weight.fill_(math.nan)  # type: ignore[union-attr]
    with pytest.raises(GenerationError, match="the model gave NaN"):
        generate(checkpoint(model), [5], penalty_alpha=0.6, top_k=4, max_new_tokens=2)
