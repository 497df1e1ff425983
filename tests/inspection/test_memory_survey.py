"""The survey: what fires neurons over a corpus, for every kind of model and network, against passes row by row."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import torch
from torch import Tensor

from plait.checkpoint import Checkpoint
from plait.inspection import trace
from plait.inspection.memory import Corpus, Triggers, memories, survey
from plait.inspection.reading import Reading
from tests.inspection.corpora import SHAPES, corpus, model, texts


def by_hand(checkpoint: Checkpoint, read: Corpus) -> dict[str, tuple[Tensor, Tensor]]:
    """Of each network the coefficients of all places that count, ``(p, m)``, and the places; one pass for each row."""
    found: dict[str, list[tuple[Tensor, Tensor]]] = defaultdict(list)
    for number in range(len(read)):
        rows = {tower: lane.row(number) for tower, lane in read.lanes.items()}
        ids = {tower: torch.from_numpy(row)[None].long() for tower, (row, _) in rows.items()}
        source = ids["encoder"] if len(ids) == 2 else None
        seen = trace(checkpoint, Reading(tokens=list(ids.values())[-1], texts=(), source=source))
        for tower, (_, places) in rows.items():
            stack = getattr(checkpoint.model, tower)
            for turn, block in enumerate(stack.blocks):
                for network in memories(block.ffn, seen, f"{tower}.layers.{turn}.ffn"):
                    counts = torch.from_numpy(places) >= 0
                    found[network.name].append((network.coefficients[counts], torch.from_numpy(places)[counts]))
    return {name: (torch.cat([c for c, _ in parts]), torch.cat([p for _, p in parts])) for name, parts in found.items()}


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_triggers_are_the_largest_coefficients_of_all(name: str, around: bool, tmp_path: Path) -> None:
    checkpoint = model(name, around=around, dtype=torch.float64)
    read = corpus(name, checkpoint, tmp_path)
    expected = by_hand(checkpoint, read)
    steps = list(survey(checkpoint, read, keep=4))
    assert sum(tokens for tokens, _ in steps) == read.n_tokens
    _, found = steps[-1]
    assert set(found) == set(expected)
    for network, (coefficients, places) in expected.items():
        triggers = found[network]
        best = coefficients.abs().topk(4, 0).values.t()
        assert torch.allclose(triggers.strengths.abs().double(), best, rtol=1e-5, atol=0), network
        number = {int(place): i for i, place in enumerate(places)}
        for neuron, (strengths, where) in enumerate(zip(triggers.strengths, triggers.places, strict=True)):
            for strength, place in zip(strengths.tolist(), where.tolist(), strict=True):
                assert (place == -1) == (strength == 0)
                if place >= 0:
                    assert float(coefficients[number[place], neuron]) == pytest.approx(strength, rel=1e-5)
            kept = where[where >= 0]
            assert len(kept.unique()) == len(kept)


def test_layers_that_are_not_asked_for_are_not_read(tmp_path: Path) -> None:
    checkpoint = model("t5")
    read = corpus("t5", checkpoint, tmp_path)
    *_, (_, every) = survey(checkpoint, read)
    *_, (_, some) = survey(checkpoint, read, layers=["decoder.layers.0"])
    assert set(some) == {"decoder.layers.0.ffn"}
    assert torch.equal(some["decoder.layers.0.ffn"].places, every["decoder.layers.0.ffn"].places)


def test_in4_a_few_batches_are_as_one_and_padding_does_not_count() -> None:
    generator = torch.Generator().manual_seed(0)
    values, places = torch.randn(50, 6, generator=generator), torch.arange(50)
    values[:, 5] = 0.0
    places[10:20] = -1
    whole, parts, alone = (Triggers.none(6, 3) for _ in range(3))
    whole.add(values, places)
    for start in range(0, 50, 7):
        parts.add(values[start : start + 7], places[start : start + 7])
    alone.add(values[places >= 0], places[places >= 0])
    for one in (parts, alone):
        assert torch.equal(whole.strengths, one.strengths) and torch.equal(whole.places, one.places)
    assert not ((whole.places >= 10) & (whole.places < 20)).any()
    assert (whole.places[5] == -1).all() and (whole.strengths[5] == 0).all(), "what never fires has no trigger"
    few = Triggers.none(6, 3)
    few.add(values[:2], torch.tensor([-1, 7]))
    assert few.places[0].tolist() == [7, -1, -1]


def test_in7_what_is_kept_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    checkpoint = model("llama")
    sizes = []
    for length in (8, 32):
        *_, (_, found) = survey(checkpoint, texts(checkpoint, tmp_path, length), keep=5)
        sizes.append(sum(one.places.numel() + one.strengths.numel() for one in found.values()))
    assert sizes[0] == sizes[1] == 2 * 2 * 20 * 5
