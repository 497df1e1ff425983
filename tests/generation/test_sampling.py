"""Sampling: the filters one by one, and draws that depend on nothing but the row's seed."""

from __future__ import annotations

import math
from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plait.generation import GenerationError
from plait.generation.sampling import (
    choose,
    cool,
    draw,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    keep_typical,
    logprob,
    narrow,
)
from plait.generation.settings import Settings

LOGITS = torch.tensor([[0.0, 5.0, 1.0, 4.0, -2.0]])


def kept(logits: torch.Tensor) -> list[int]:
    return logits[0].isfinite().nonzero().flatten().tolist()


def drawn(settings: Settings, logits: torch.Tensor = LOGITS, n: int = 40) -> set[int]:
    generator = torch.Generator().manual_seed(1)
    return {int(choose(logits, settings, [generator])) for _ in range(n)}


def test_ge8_top_p_keeps_at_least_one_and_refuses_what_is_no_share() -> None:
    for p in (0, 0.0, 1e-9):
        assert kept(keep_top_p(LOGITS, p)) == [1]
        assert drawn(Settings(temperature=5.0, top_p=p)) == {1}
    assert kept(keep_top_p(LOGITS, 1)) == [0, 1, 2, 3, 4]
    assert kept(keep_top_p(LOGITS, 0.9)) == [1, 3]
    for bad in (math.nan, -0.1, 2, math.inf, "0.5", True):
        with pytest.raises(GenerationError, match=r"top_p: .* makes no sense; give a number from 0 to 1"):
            Settings(temperature=1.0, top_p=bad)


def test_ge10_top_k_zero_is_off_and_large_ones_are_clamped() -> None:
    logits = torch.tensor([[0.0, 5.0, 0.0]])
    for k, expected in ((0, [0, 1, 2]), (1, [1]), (99, [0, 1, 2])):
        assert kept(keep_top_k(logits, k)) == expected
        assert drawn(Settings(temperature=9.0, top_k=k), logits) == set(expected)
    for bad in (-1, 1.5, "3"):
        with pytest.raises(GenerationError, match="top_k: .* give a whole number from 0"):
            Settings(temperature=1.0, top_k=bad)


def test_ge11_temperature_zero_is_greedy_and_the_smallest_ones_are_fine() -> None:
    assert drawn(Settings(temperature=0)) == {1}
    tie = torch.tensor([[0.0, 3.0, 1.0, 3.0]])
    assert drawn(Settings(temperature=0), tie) == {1}, "greedy draws nothing, not even among equals"
    assert drawn(Settings(temperature=1e-8), tie) == {1, 3}
    for temperature in (1e-8, 1e-38, 5e-324):
        assert bool(narrow(LOGITS * 1e4, Settings(temperature=temperature)).exp().isfinite().all())
        assert drawn(Settings(temperature=temperature)) == {1}
    for bad in (-1, math.nan, math.inf, -1e-9):
        with pytest.raises(GenerationError, match="temperature: .* give a number from 0"):
            Settings(temperature=bad)


def test_min_p_is_a_share_of_the_likeliest() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.14, 0.06]]).log()
    assert kept(keep_min_p(logits, 0.27)) == [0, 1, 2]
    assert kept(keep_min_p(logits, 0.0)) == [0, 1, 2, 3]
    assert kept(keep_min_p(logits, 1.0)) == [0]


def test_the_typical_tokens_are_those_whose_information_is_nearest_to_the_entropy() -> None:
    logits = torch.tensor([[0.5, 0.2, 0.2, 0.05, 0.05]]).log()  # entropy 1.29: -log 0.2 is 1.61, -log 0.5 is 0.69
    assert kept(keep_typical(logits, 0.1)) == [1, 2]
    assert kept(keep_typical(logits, 0.41)) == [0, 1, 2]
    assert kept(keep_typical(logits, 0.95)) == [0, 1, 2, 3, 4]
    assert kept(keep_typical(logits, 1.0)) == [0, 1, 2, 3, 4]
    assert kept(keep_typical(logits, 0.0)) == [1, 2]


def test_filters_without_a_temperature_are_refused_rather_than_ignored() -> None:
    for name, value in (("top_k", 3), ("top_p", 0.5), ("min_p", 0.1), ("typical_p", 0.9)):
        with pytest.raises(GenerationError, match=f"{name}: .* changes nothing in greedy decoding"):
            Settings(**{name: value})


def test_draws_follow_the_distribution_and_never_hit_what_was_dropped() -> None:
    p = torch.tensor([0.0, 0.5, 0.0, 0.2, 0.3, 0.0])
    generators = [torch.Generator().manual_seed(seed) for seed in range(4000)]
    ids = draw(p.log().expand(4000, -1), generators)
    shares = ids.bincount(minlength=6) / 4000
    assert shares.tolist() == pytest.approx(p.tolist(), abs=0.03)
    assert shares[[0, 2, 5]].tolist() == [0, 0, 0]


def test_a_draw_depends_on_its_own_generator_only() -> None:
    logits = torch.randn(5, 50, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    seeds = [3, 1, 4, 1, 5]
    together = draw(logits, [torch.Generator().manual_seed(s) for s in seeds]).tolist()
    alone = [int(draw(logits[i : i + 1], [torch.Generator().manual_seed(s)])) for i, s in enumerate(seeds)]
    order = [4, 2, 0, 3, 1]
    mixed = draw(logits[order], [torch.Generator().manual_seed(seeds[i]) for i in order]).tolist()
    assert together == alone
    assert mixed == [together[i] for i in order]


def test_logprob_is_the_log_softmax_at_the_token() -> None:
    logits = torch.randn(2, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tokens = torch.tensor([[0, 6, 3], [2, 2, 5]])
    expected = logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    assert torch.allclose(logprob(logits, tokens), expected, atol=1e-12)


@given(
    seed=st.integers(0, 999),
    temperature=st.floats(0.1, 3),
    k=st.integers(1, 12),
    p=st.floats(0, 0.999),
    min_p=st.floats(0, 1),
    typical_p=st.floats(0.01, 0.99),
)
def test_the_filters_equal_the_reference_library(
    reference: ModuleType, seed: int, temperature: float, k: int, p: float, min_p: float, typical_p: float
) -> None:
    from transformers.generation import logits_process as theirs

    logits = torch.randn(3, 12, generator=torch.Generator().manual_seed(seed)) * 2
    expected, ids = logits.clone(), torch.zeros(3, 1, dtype=torch.long)
    for warper in (
        theirs.TemperatureLogitsWarper(temperature),
        theirs.TopKLogitsWarper(k),
        theirs.TopPLogitsWarper(p),
        theirs.MinPLogitsWarper(min_p),
        theirs.TypicalLogitsWarper(typical_p),
    ):
        expected = warper(ids, expected)
    got = narrow(logits, Settings(temperature=temperature, top_k=k, top_p=p, min_p=min_p, typical_p=typical_p))
    assert torch.allclose(got.exp(), expected.softmax(-1), atol=1e-6)
    assert torch.allclose(cool(logits, temperature).softmax(-1), (logits / temperature).softmax(-1), atol=1e-6)
