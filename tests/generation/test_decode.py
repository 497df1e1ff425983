"""The decode loop against an oracle without cache, padding or batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plait.architecture import Architecture, LayerType, Rope, RopeScaling
from plait.checkpoint.rules import DecodeRules
from plait.generation import ModelRunner, generate
from plait.generation.decode import decode
from plait.generation.row import Request
from plait.generation.settings import Settings
from plait.model import Cache, Transformer
from plait.model.cache import CacheFull
from tests.generation.making import (
    DECODERS,
    ROPE,
    SIZE,
    TRANSLATOR,
    checkpoint,
    naive_greedy,
    random_model,
    same,
    saying,
)

GREEDY = Settings()
PROMPTS = [[5, 6, 7], [9], [1, 2, 3, 4, 5, 6, 7, 8]]


def written(
    model: Transformer, requests: Sequence[Request], settings: Settings = GREEDY, **how: object
) -> list[list[int]]:
    tokens: list[list[int]] = [[] for _ in requests]
    asked = [dataclasses.replace(request, settings=settings) for request in requests]
    for row, piece in decode(ModelRunner(model), asked, **how):  # type: ignore[arg-type]
        tokens[row].append(piece.token)
    return tokens


@pytest.mark.parametrize("name", DECODERS)
def test_mk1_rows_of_a_ragged_batch_are_what_they_are_alone(name: str) -> None:
    model = random_model(DECODERS[name])
    alone = [naive_greedy(model, prompt, 5) for prompt in PROMPTS]
    requests = [Request(tokens=prompt, limit=5) for prompt in PROMPTS]
    assert written(model, requests) == alone
    assert written(model, requests[::-1]) == alone[::-1]
    for side in ("left", "right"):  # the model itself, to the last digit that matters
        n = max(map(len, PROMPTS))
        gaps = [[0] * (n - len(prompt)) for prompt in PROMPTS]
        padded = [gap + p if side == "left" else p + gap for p, gap in zip(PROMPTS, gaps, strict=True)]
        real = [[False] * len(g) + [True] * len(p) for p, g in zip(PROMPTS, gaps, strict=True)]
        mask = torch.tensor(real if side == "left" else [row[::-1] for row in real])
        last = model(torch.tensor(padded), mask=mask, last_only=True)[:, -1]
        single = torch.cat([model(torch.tensor([prompt]))[:, -1] for prompt in PROMPTS])
        assert (last - single).abs().max() < 1e-9


def test_mk2_padding_of_the_source_changes_nothing() -> None:
    model = checkpoint(random_model(TRANSLATOR))
    alone = generate(model, [5, 6, 7], max_new_tokens=6)
    assert alone.tokens == naive_greedy(model.model, [3], 6, source=[5, 6, 7])
    for pads in (0, 1, 3):
        longer = [9] * (3 + pads)
        assert same(generate(model, [[5, 6, 7], longer], max_new_tokens=6)[0], alone)


@pytest.mark.parametrize("name", DECODERS)
def test_kv1_growing_and_preallocated_caches_equal_none(name: str) -> None:
    model = random_model(DECODERS[name].replace(max_length=128))
    full = naive_greedy(model, [5, 6, 7], 80)
    assert len(set(full)) > 3, "the oracle repeats one token; nothing would show"
    for n in (5, 10, 20, 80):  # a growing cache has moved house by the last
        for preallocate in (True, False):
            assert written(model, [Request(tokens=[5, 6, 7], limit=n)], preallocate=preallocate) == [full[:n]]


def test_kv2_the_capacity_is_the_longest_row_and_one_more_is_an_error() -> None:
    model = random_model(ROPE)
    runner = ModelRunner(model)
    cache = runner.cache(1, capacity=64)
    runner.prefill(torch.arange(32).repeat(2)[None, :63], cache)
    runner.step(torch.tensor([1]), cache)
    assert cache.capacity == 64
    assert cache.lengths.tolist() == [64]
    with pytest.raises(CacheFull, match="64 tokens and 1 more exceed its capacity of 64"):
        runner.step(torch.tensor([1]), cache)

    asked: list[dict[str, object]] = []

    class Spy(ModelRunner):
        def cache(self, batch: int, **how: object) -> Cache:  # type: ignore[override]
            asked.append(how)
            return super().cache(batch, **how)  # type: ignore[arg-type]

    list(decode(Spy(model), [Request(tokens=[1, 2, 3], limit=4), Request(tokens=[1], limit=2)]))
    assert asked == [{"capacity": 7, "total_lengths": [7, 3]}]


def test_kv4_a_window_of_four_is_the_same_in_both_phases() -> None:
    shape = {**SIZE, "n_decoder_layers": 1}
    model = random_model(Architecture(**shape, position="rope", layer_types=(LayerType(window=4),)))
    runner = ModelRunner(model)

    def after(tokens: list[int], prefilled: int) -> torch.Tensor:
        cache = runner.cache(1)
        logits = runner.prefill(torch.tensor([tokens[:prefilled]]), cache)[:, -1]
        for token in tokens[prefilled:]:
            logits = runner.step(torch.tensor([token]), cache)
        return logits

    row = list(range(1, 11))
    for prefilled in (10, 9, 5, 1):  # all at once, or the rest step by step
        base = after(row, prefilled)
        unseen, seen = [*row[:5], 20, *row[6:]], [*row[:6], 20, *row[7:]]
        assert torch.equal(after(unseen, prefilled), base), "token i - 4 must have no effect on i"
        assert (after(seen, prefilled) - base).abs().max() > 1e-3, "token i - 3 must have one"
        assert (base - after(row, 10)).abs().max() < 1e-9


@pytest.mark.parametrize("source", [[5, 6, 7], [11, 2, 30, 4, 9, 17]])
def test_kv8_step_by_step_equals_teacher_forcing(source: list[int]) -> None:
    model = random_model(TRANSLATOR)
    forced = [3, *naive_greedy(model, [3], 5, source=source)]
    whole = model(torch.tensor([forced]), source=torch.tensor([source]))
    runner = ModelRunner(model)
    cache = runner.cache(1)
    steps = [runner.prefill(torch.tensor([[3]]), cache, source=torch.tensor([source]))[:, -1]]
    steps += [runner.step(torch.tensor([token]), cache) for token in forced[1:]]
    assert (torch.stack(steps, dim=1) - whole).abs().max() < 1e-9
    assert generate(checkpoint(model), source, max_new_tokens=5).tokens == forced[1:]


def test_po7_explicit_positions_go_on_from_the_last() -> None:
    model = random_model(DECODERS["learned"])
    prompt, positions = [5, 6, 7, 8, 9], [0, 0, 1, 2, 2]
    row, places = list(prompt), list(positions)
    for _ in range(4):
        logits = model(torch.tensor([row]), positions=torch.tensor([places]))
        row.append(int(logits[0, -1].argmax()))
        places.append(places[-1] + 1)  # 3, 4, 5
    requests = [Request(tokens=prompt, positions=positions, limit=4), Request(tokens=[1, 2, 3], limit=4)]
    assert written(model, requests) == [row[5:], naive_greedy(model, [1, 2, 3], 4)]
    assert row[5:] != naive_greedy(model, prompt, 4), "the positions change nothing here"


@pytest.mark.parametrize("name", DECODERS)
@given(chunk=st.integers(1, 9))
def test_prefill_in_chunks_equals_one_pass(name: str, chunk: int) -> None:
    model = random_model(DECODERS[name])
    requests = [Request(tokens=prompt, limit=4) for prompt in PROMPTS]
    assert written(model, requests, chunk=chunk) == written(model, requests)


def test_ge15_rows_that_end_early_disturb_nobody() -> None:
    model = random_model(ROPE)
    alone = [naive_greedy(model, prompt, 12) for prompt in PROMPTS]
    ends = tuple({row[at] for row, at in zip(alone, (1, 6), strict=False)})  # row 0 ends soon, others later or never
    settings = Settings(end=ends)

    def cut(row: list[int]) -> list[int]:
        return row[: next((i + 1 for i, token in enumerate(row) if token in ends), len(row))]

    requests = [Request(tokens=prompt, limit=12) for prompt in PROMPTS]
    together = written(model, requests, settings)
    assert together == [cut(row) for row in alone]
    assert len({len(row) for row in together}) > 1, "all rows end together; nothing would show"
    for i, request in enumerate(requests):
        assert written(model, [request], settings) == [together[i]]


def test_ge15_what_was_written_is_remembered_for_the_rows_that_are_left() -> None:
    model = random_model(ROPE)
    penalties = {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "no_repeat_ngram": 3}
    requests = [Request(tokens=prompt, limit=limit) for prompt, limit in zip(PROMPTS, (2, 12, 5), strict=True)]
    alone = [written(model, [request], Settings(**penalties))[0] for request in requests]
    assert written(model, requests, Settings(**penalties)) == alone


def test_ge15_two_sources_alone_and_together() -> None:
    inner = random_model(TRANSLATOR)
    sources = [[5, 6, 7], [9, 1, 30, 4, 8]]
    first = naive_greedy(inner, [3], 12, source=sources[0])
    model = checkpoint(inner, DecodeRules(start=3, end=(first[2],)))
    alone = [generate(model, source, max_new_tokens=12) for source in sources]
    assert same(generate(model, sources, max_new_tokens=12), alone)
    assert alone[0].finish == "end"


def test_a_row_that_ended_costs_no_more_steps() -> None:
    model = saying([4, 4, 1, 4], n_prompt=1)
    generate(checkpoint(model, DecodeRules(end=(1,))), [7], max_new_tokens=20)
    assert model.calls == 3, "prefill and two steps; the end token is not read"


def test_length_dependent_rotations_go_by_the_declared_length() -> None:
    scaling = RopeScaling(kind="dynamic", factor=3.0, original_max_length=8)
    model = random_model(ROPE.replace(rope=Rope(scaling=scaling)))
    runner = ModelRunner(model)
    prompt, n = [5, 6, 7, 8], 12
    tokens = written(model, [Request(tokens=prompt, limit=n), Request(tokens=[1], limit=2)])[0]
    cache = runner.cache(1, total_lengths=[len(prompt) + n])
    teacher = runner.prefill(torch.tensor([prompt + tokens]), cache, last_only=False)
    assert tokens == teacher[0, len(prompt) - 1 : -1].argmax(-1).tolist()


def test_a_seed_belongs_to_its_row() -> None:
    model = checkpoint(random_model(ROPE))
    how = {"temperature": 1.3, "max_new_tokens": 8}
    alone = [generate(model, p, seed=s, **how) for p, s in zip(PROMPTS, (7, 8, 7), strict=True)]
    assert same(generate(model, PROMPTS, seed=[7, 8, 7], **how), alone)
    assert same(generate(model, PROMPTS[::-1], seed=[7, 8, 7], **how), alone[::-1])
    assert same(generate(model, [PROMPTS[0]] * 2, seed=7, **how), [alone[0]] * 2)
    assert generate(model, PROMPTS[0], seed=9, **how).tokens != alone[0].tokens
    assert generate(model, PROMPTS[0], **how).tokens != generate(model, PROMPTS[0], **how).tokens


def test_half_precision_logits_are_chosen_from_in_float32() -> None:
    model = random_model(ROPE).bfloat16()
    generation = generate(checkpoint(model), [1, 2, 3], max_new_tokens=3)
    with torch.inference_mode():
        exact = model(torch.tensor([[1, 2, 3]]))[0, -1].float().log_softmax(-1).max().item()
    assert generation.logprobs[0] == pytest.approx(exact, abs=1e-6)
