"""Guessing ahead changes the number of passes and nothing else: not a greedy token, not a distribution."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from plait.checkpoint.rules import DecodeRules
from plait.generation import GenerationError, ModelRunner, Runner, generate, stream
from plait.generation.row import Request, Row
from plait.generation.rules import Line, LogitRules
from plait.generation.sampling import narrow
from plait.generation.schedule import Scheduler
from plait.generation.settings import Settings
from plait.generation.speculate import (
    LONGEST,
    Draft,
    Lookup,
    ModelDrafter,
    Pace,
    accept_or_redraw,
    drafter,
    residual,
)
from plait.model import Transformer
from tests.generation.making import (
    DECODERS,
    ROPE,
    RUNNERS,
    TRANSLATOR,
    WINDOWED,
    Bigrams,
    Counting,
    Scripted,
    ToyTokenizer,
    alone,
    checkpoint,
    equal,
    random_model,
    same,
    saying,
    with_runners,
)
from tests.generation.test_schedule import LETTERS, WRITERS, Failing, Sliding, requests, run

over_runners = pytest.mark.parametrize("make", RUNNERS.values(), ids=RUNNERS)


class Oracle:
    """Knows what each row will say; is right at most ``right`` times in a row, then wrong."""

    def __init__(self, answers: dict[tuple[int, ...], list[int]], right: int) -> None:
        self.answers, self.right = answers, right

    def draft(self, rows: Any, lengths: Any) -> list[Draft]:
        drafts = []
        for row, length in zip(rows, lengths, strict=True):
            coming = self.answers[tuple(row.request.tokens)][row.line.n_new :][:length]
            wrong = [(token + 1) % 32 for token in coming[self.right :]]
            drafts.append(Draft([*coming[: self.right], *wrong]))
        return drafts


@with_runners([*WRITERS][::2])
def test_the_text_is_the_one_without_speculation(name: str, make: Callable[..., Runner]) -> None:
    """Greedy or drawn: what is only looked up is right where it is what the row's own draw says."""
    architecture = WRITERS[name]
    model = random_model(architecture)
    runner = make(model)
    asked = requests(architecture, limits=(12, 8, 8, 6, 12))
    expected = [alone(model, request, LETTERS) for request in asked]
    together = run(Scheduler(runner, LETTERS, rows=3, chunk=4, drafter=Lookup()), asked, joins=[0, 1, 0, 2, 0])
    assert all(equal(pieces, others) for pieces, others in zip(together, expected, strict=True))
    greedy = [replace(request, settings=replace(request.settings, **GREEDY)) for request in asked[2:4]]
    expected = [alone(model, request, LETTERS) for request in greedy]
    for draft in (random_model(architecture, seed=1), model):
        guessing = drafter(make(draft), runner, None)
        together = run(Scheduler(runner, LETTERS, chunk=4, drafter=guessing), greedy, joins=[0, 2])
        assert all(equal(pieces, others) for pieces, others in zip(together, expected, strict=True))


GREEDY: dict[str, Any] = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


@over_runners
@given(right=st.integers(0, 7), seed=st.integers(0, 99), data=st.data())
def test_rules_ends_stops_and_limits_fall_anywhere_in_a_draft(
    make: Callable[..., Runner], right: int, seed: int, data: st.DataObject
) -> None:
    model = random_model(ROPE)
    asked = [replace(request, seed=seed) for request in requests(ROPE, limits=data.draw(LIMITS))]
    ends = data.draw(st.sets(st.integers(0, 31), max_size=4))
    asked = [replace(r, settings=replace(r.settings, end=tuple(ends), min_length=8)) for r in asked]
    expected = [alone(model, request, LETTERS) for request in asked]
    answers = {tuple(r.tokens): [p.token for p in row] for r, row in zip(asked, expected, strict=True)}
    beyond = {prompt: [*answer, *[0] * LONGEST] for prompt, answer in answers.items()}  # guesses go on past the end
    together = run(Scheduler(make(model), LETTERS, drafter=Oracle(beyond, right)), asked)
    assert all(equal(pieces, others) for pieces, others in zip(together, expected, strict=True))


LIMITS = st.lists(st.integers(1, 20), min_size=5, max_size=5)


def test_guesses_that_are_right_save_passes() -> None:
    expected = alone(saying([*range(4, 30)]), Request(tokens=[1], limit=26))
    answer = {(1,): [piece.token for piece in expected]}
    runner = Counting(saying([*range(4, 30)]))
    assert equal(run(Scheduler(runner, drafter=Oracle(answer, 99)), [Request(tokens=[1], limit=26)])[0], expected)
    assert runner.read == [1, 5, 9, 11], "the prompt; 4 guesses, 8, and the 10 there is room for"
    runner.read.clear()
    assert equal(run(Scheduler(runner, drafter=Oracle(answer, 1)), [Request(tokens=[1], limit=26)])[0], expected)
    assert set(runner.read[2:-1]) == {3}, "one was right: two are tried"
    runner.read.clear()
    assert equal(run(Scheduler(runner, drafter=Oracle(answer, 0)), [Request(tokens=[1], limit=26)])[0], expected)
    assert sum(runner.read) - 26 <= 8, "after a while nearly nothing is tried"


def test_a_pace_rests_longer_each_time_that_nothing_was_right() -> None:
    pace, tried = Pace(), []
    for _ in range(60):
        length = pace.next()
        tried.append(length)
        if length:
            pace.saw(length, 0)
    assert tried[:11] == [4, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1]
    assert sum(map(bool, tried)) == 7
    while not pace.next():
        pass
    pace.saw(1, 1)
    assert pace.next() == 2
    for _ in range(9):
        pace.saw(pace.next(), pace.length)
    assert pace.next() == LONGEST
    pace.saw(LONGEST, 5)
    assert pace.next() == 6


def test_repeating_text_takes_far_fewer_passes() -> None:
    said = [7, 3, 9, 4, 11] * 12
    for prompt, passes in (([1], 12), ([1, *said[-7:]], 6)):
        model = saying([*said], n_prompt=len(prompt))
        done = generate(checkpoint(model), prompt, max_new_tokens=56, speculate="lookup")
        assert done.tokens == said[:56]  # type: ignore[union-attr]
        assert model.calls <= passes
    model = saying([*range(2, 31), *range(2, 31)])
    assert generate(checkpoint(model), [1], max_new_tokens=58, speculate="lookup").tokens == [*range(2, 31)] * 2  # type: ignore[union-attr]
    assert model.calls < 40


def row_of(tokens: list[int]) -> Row:
    return Row(Request(tokens=tokens, limit=9), None)


def test_what_is_looked_up() -> None:
    def drafted(tokens: list[int], length: int = 4) -> list[int]:
        return Lookup().draft([row_of(tokens)], [length])[0].tokens

    assert drafted([1, 2, 3, 4, 5, 1, 2]) == [3, 4, 5, 1]
    assert drafted([1, 2, 8, 5, 1, 2, 9, 5, 1, 2]) == [9, 5, 1, 2], "the last time counts"
    assert drafted([4, 1, 2, 8, 3, 1, 2, 9, 4, 1, 2]) == [8, 3, 1, 2], "but more tokens count more"
    assert drafted([1, 2, 1, 2], 7) == [1, 2, 1, 2, 1, 2, 1]
    assert drafted([5, 5, 5]) == [5, 5, 5, 5]
    assert drafted([1, 2, 3, 2, 1]) == drafted([1]) == []
    lookup, row = Lookup(), row_of([1, 2, 3])
    for token, expected in ((1, []), (2, [3, 1, 2]), (3, [1, 2, 3]), (9, []), (1, []), (2, [3, 9, 1])):
        row.line.add(token)
        assert lookup.draft([row], [3])[0].tokens == expected
    del row
    assert len(lookup._indexes) == 0


# Sampling


@given(seed=st.integers(0, 999), zeros=st.integers(0, 3))
def test_acceptance_and_residual_add_up_to_the_target_exactly(seed: int, zeros: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    p, q = torch.rand(2, 6, generator=generator, dtype=torch.float64) ** 3
    p[:zeros] = 0
    q[torch.randint(6, (zeros,), generator=generator)] = 0
    p, q = p / p.sum(), q / q.sum()
    accepted = torch.minimum(p, q)  # q(x) min(1, p(x) / q(x))
    assert torch.allclose(accepted + (1 - accepted.sum()) * residual(p, q), p, atol=1e-12)
    assert torch.equal(residual(p, p), p)


def chi_square(counts: Counter[Any], exact: dict[Any, float]) -> float:
    """Standard deviations by which the statistic lies above what it should be."""
    n = sum(counts.values())
    assert set(counts) <= set(exact), "something that cannot be was drawn"
    likely = {outcome: p for outcome, p in exact.items() if p * n >= 5}
    rest = 1 - sum(likely.values())
    cells = [(counts[outcome], p * n) for outcome, p in likely.items()]
    if rest * n >= 5:
        cells.append((n - sum(counts[outcome] for outcome in likely), rest * n))
    freedom = len(cells) - 1
    return (sum((seen - due) ** 2 / due for seen, due in cells) - freedom) / math.sqrt(2 * freedom)


def test_a_drawn_guess_is_accepted_or_redrawn_by_the_targets_distribution() -> None:
    p, q = torch.tensor([0.5, 0.0, 0.1, 0.4]), torch.tensor([0.2, 0.3, 0.4, 0.1])
    generator = torch.Generator().manual_seed(0)
    guesses = torch.multinomial(q, 6000, replacement=True, generator=generator).tolist()
    counts = Counter(accept_or_redraw(p, q, guess, generator) for guess in guesses)
    exact = {token: float(share) for token, share in enumerate(p) if share > 0}
    assert chi_square(counts, exact) < 5
    assert chi_square(Counter(guesses), {**exact, 1: 1e-9}) > 100, "what was guessed is no such sample"


def outcomes(table: Tensor, line: Line, settings: Settings) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every text that a row of bigrams can become, with its exact probability."""
    p = narrow(LogitRules(settings)(table[line.tokens[-1:]], [line]), settings)[0].exp().double()
    for token in p.nonzero().flatten().tolist():
        longer = Line([*line.tokens, token], line.n_prompt, line.limit)
        if token in settings.end or longer.n_new == line.limit:
            yield tuple(longer.tokens[line.n_prompt :]), float(p[token])
        else:
            for text, rest in outcomes(table, longer, settings):
                yield text, float(p[token]) * rest


SAMPLED = {
    "plain": Settings(temperature=1.0),
    "filtered": Settings(temperature=1.4, top_k=3, min_p=0.05),
    "nucleus": Settings(temperature=0.7, top_p=0.8),
    "penalties": Settings(temperature=1.0, repetition_penalty=1.6, frequency_penalty=0.5),
    "rules": Settings(temperature=1.2, banned=((2,), (1, 3)), no_repeat_ngram=2, end=(0,), min_new_tokens=2),
    "forced": Settings(temperature=1.2, forced_first=3, forced_last=1, end=(0,)),
}


@pytest.mark.parametrize(
    ("name", "who"),
    [*((name, "near") for name in SAMPLED), ("plain", "far"), ("rules", "far"), ("penalties", "lookup")],
)
def test_the_distribution_of_whole_texts_is_unchanged(name: str, who: str) -> None:
    generator = torch.Generator().manual_seed(5)
    table = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    noise = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    guessing = {
        "lookup": Lookup(),
        "near": ModelDrafter(Bigrams(table + 0.3 * noise), 5),  # type: ignore[arg-type]
        "far": ModelDrafter(Bigrams(4 * noise[:, :4]), 5),  # type: ignore[arg-type]
    }[who]
    prompt = [4, 2, 4, 2, 4] if who == "lookup" else [4]
    runner, n = Bigrams(table), 1000
    scheduler = Scheduler(runner, rows=500, drafter=guessing)  # type: ignore[arg-type]
    asked = [Request(tokens=prompt, limit=4, seed=seed, settings=SAMPLED[name]) for seed in range(n)]
    counts = Counter(tuple(piece.token for piece in pieces) for pieces in run(scheduler, asked))  # type: ignore[union-attr]
    exact = dict(outcomes(table, Line(prompt, len(prompt), 4), SAMPLED[name]))
    assert sum(exact.values()) == pytest.approx(1)
    assert chi_square(counts, exact) < 3.5
    cold = dict(outcomes(table, Line(prompt, len(prompt), 4), replace(SAMPLED[name], temperature=0.6)))
    assert name == "nucleus" or chi_square(counts, {**dict.fromkeys(counts, 1e-12), **cold}) > 5


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_drafting_model_that_is_nearly_right_saves_passes_when_sampling_too(noise: float) -> None:
    generator = torch.Generator().manual_seed(1)
    table = torch.randn(32, 32, generator=generator)
    near = table + noise * torch.randn(32, 32, generator=generator)
    runner = Bigrams(table)
    scheduler = Scheduler(runner, drafter=ModelDrafter(Bigrams(near), 32))  # type: ignore[arg-type]
    run(scheduler, [Request(tokens=[1], limit=60, seed=1, settings=Settings(temperature=1.0))])
    assert runner.passes <= (10 if noise == 0 else 30)


# Through generate, and what is refused


@pytest.mark.parametrize("name", [*DECODERS, "translator"])
def test_generate_and_stream_take_it_as_an_option(name: str) -> None:
    architecture = TRANSLATOR if name == "translator" else DECODERS[name]
    model = checkpoint(random_model(architecture), tokenizer=LETTERS)
    small = checkpoint(random_model(architecture.replace(n_decoder_layers=1, layer_types=())), tokenizer=LETTERS)
    prompts = [[5, 6, 7, 5, 6, 7, 5, 6], [9], [1, 2, 3, 1, 2]]
    how: dict[str, Any] = {"max_new_tokens": 14, "repetition_penalty": 1.1, "alternatives": 2}
    how |= {} if name == "translator" else {"echo": True}
    expected = generate(model, prompts, **how)
    for who in ("lookup", small, ModelRunner(small.model), model):
        assert same(generate(model, prompts, speculate=who, **how), expected)
        assert same(generate(model, prompts, speculate=who, prefill_chunk=2, **how), expected)
        pieces = [*stream(model, prompts[0], speculate=who, **how)]
        assert [piece.token for piece in pieces] == expected[0].tokens  # type: ignore[index]
    sampled = generate(model, prompts, max_new_tokens=14, temperature=1.1, seed=4)
    assert same(generate(model, prompts, max_new_tokens=14, temperature=1.1, seed=4, speculate="lookup"), sampled)


def test_a_draft_that_runs_out_of_positions_falls_silent() -> None:
    model = random_model(DECODERS["learned"])
    short = random_model(DECODERS["learned"].replace(max_length=16), seed=0)
    done = generate(checkpoint(model), [1, 2, 3], max_new_tokens=40, speculate=ModelRunner(short))
    assert same(done, generate(checkpoint(model), [1, 2, 3], max_new_tokens=40))


def test_a_draft_reads_a_long_prompt_in_chunks_and_drafts_when_it_has() -> None:
    model = random_model(ROPE.replace(max_length=256))
    runner, draft = Counting(model), Counting(model)
    guessing = ModelDrafter(draft, 32)
    guessing.chunk = 20
    asked = Request(tokens=[*range(32)] * 2, limit=40)
    assert equal(run(Scheduler(runner, drafter=guessing), [asked])[0], alone(model, asked))
    assert draft.read[:3] == [20, 20, 20]
    assert max(draft.read[3:5]) < 20
    assert len(runner.read) < 15


def test_caches_that_slide_are_read_again_and_drafted_for_no_more() -> None:
    model = random_model(WINDOWED)
    asked = [Request(tokens=[*range(1, 12), *range(1, 9)], limit=20), Request(tokens=[4] * 9, limit=9)]
    for guessing in (Lookup(), ModelDrafter(Sliding(random_model(WINDOWED, seed=2)), 32)):
        runner = Sliding(model)
        together = run(Scheduler(runner, prefix_tokens=99, drafter=guessing), asked)
        assert all(equal(pieces, alone(model, request)) for pieces, request in zip(together, asked, strict=True))
        assert sum(runner.read) > sum(len(request.tokens) + request.limit for request in asked)


def test_a_draft_that_fails_for_one_fails_for_one() -> None:
    model = random_model(ROPE)
    asked = [Request(tokens=p, limit=5) for p in ([1, 2], [13, 13, 2], [3])]
    together = run(Scheduler(ModelRunner(model), drafter=ModelDrafter(Failing(model), 32)), asked)
    assert isinstance(together[1][-1], RuntimeError)
    assert all(equal(together[i], alone(model, asked[i])) for i in (0, 2))


def test_what_cannot_draft_is_refused_in_words() -> None:
    model = checkpoint(random_model(ROPE), tokenizer=LETTERS)
    other = ToyTokenizer([f"{i:x}" for i in range(20)] + ["other"] * 12)
    wide = random_model(ROPE.replace(vocab_size=40))
    with torch.device("meta"):
        lazy = checkpoint(Transformer(ROPE))
    for who, said in (
        ("draft", "speculate: 'draft' is no way to draft"),
        (7, r"speculate: int cannot draft; give .*, a smaller checkpoint, or a runner of one, plait.optimize\(draft\)"),
        ((model, 7), "speculate: int cannot draft"),
        ((model, model, model), "speculate: tuple cannot draft"),
        (lazy, r"speculate: the weights are not in memory .*; give speculate=plait.optimize\(draft\)"),
        (checkpoint(model.model, tokenizer=other), "vocabulary is another one .* first difference is at id 20"),
        (ModelRunner(wide), "speculate: the draft has 40 tokens and the model 32"),
        (checkpoint(random_model(TRANSLATOR)), "speculate: the draft is encoder-decoder"),
    ):
        with pytest.raises(GenerationError, match=said):
            generate(model, [1, 2], speculate=who)
    padded = checkpoint(wide, tokenizer=LETTERS)  # the same words, a larger table
    for temperature in (0.0, 1.0):
        how: dict[str, Any] = {"max_new_tokens": 9, "temperature": temperature, "seed": 1}
        assert len(generate(model, [1, 2], speculate=padded, **how).tokens) == 9  # type: ignore[union-attr]
        assert len(generate(padded, [1, 2], speculate=model, **how).tokens) == 9  # type: ignore[union-attr]


def test_a_row_left_without_any_token_says_so_in_the_middle_of_a_draft() -> None:
    four = ROPE.replace(vocab_size=4)
    model = checkpoint(Scripted(lambda p: p % 2, four), DecodeRules(no_repeat_ngram=1))
    pieces: list[Any] = []
    with pytest.raises(GenerationError, match="every token of the vocabulary is banned"):
        for piece in stream(model, [0], max_new_tokens=9, speculate=ModelRunner(Scripted(lambda p: p % 2, four))):  # type: ignore[arg-type]
            pieces.append(piece)
    assert sorted(piece.token for piece in pieces) == [1, 2, 3]
