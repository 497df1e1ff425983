"""What inspection takes apart adds up again in real models: SmolLM2, MiniLM, and a translation model trained here."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch

import plait
from plait.inspection import Trace, attribute, lens, memories, trace
from plait.inspection.attribution import By
from plait.inspection.memory import Reader, agreement, neurons, pair_corpus, survey, text_corpus
from plait.inspection.memory.networks import values
from plait.inspection.memory.visits import stacks

BYS: tuple[By, ...] = ("branches", "heads", "neurons")
QUICKSTART = Path(__file__).parents[2] / "runs" / "quickstart" / "model"  # what `make demo` leaves


@cache
def seen(path: Path, text: str) -> Trace:
    return trace(plait.load(path), text)


@pytest.fixture(params=["smollm2", "minilm", "translation"])
def traced(request: pytest.FixtureRequest) -> Trace:
    """A whole pass of each."""
    if request.param == "translation":
        if not QUICKSTART.is_dir():
            pytest.skip("no translation model is there: `make demo` trains one")
        return seen(QUICKSTART, "the old dog is near the house .")
    path: Path = request.getfixturevalue(request.param)
    return seen(path, "The capital of France is Paris, and the sea is far.")


def test_memories_add_up_to_what_the_network_gives(traced: Trace) -> None:
    for tower, stack in stacks(traced.model).items():
        for turn, block in enumerate(stack.blocks):
            layer = f"{tower}.layers.{turn}"
            made = torch.stack([one.output() for one in memories(block.ffn, traced, f"{layer}.ffn")]).sum(0)
            given = traced[f"{layer}.ffn_branch"]
            off = (block.ffn_norms.branch(made) - given).abs().max() / given.abs().max().clamp(min=1)
            assert float(off.detach()) < 1e-5, layer


@pytest.mark.parametrize("by", BYS)
def test_attribution_adds_up_to_the_logit(traced: Trace, by: By) -> None:
    token = int(traced.output[-1].argmax())
    found = attribute(traced, token, by=by)
    assert found.total == pytest.approx(found.output, abs=1e-4, rel=0)
    against = attribute(traced, token, against=1, by=by, position=1)
    assert against.total == pytest.approx(against.output, abs=1e-4, rel=0)


def test_in2_the_last_row_of_the_lens_is_the_answer(traced: Trace) -> None:
    *_, (_, last) = lens(traced)
    assert torch.allclose(last, traced.output, atol=1e-4, rtol=1e-5)


def test_values_of_a_real_network_agree_with_triggers_more_than_chance(minilm: Path, tmp_path: Path) -> None:
    checkpoint = plait.load(minilm)
    (tmp_path / "a.txt").write_text(
        "The cat of the king sat on the mat, and the dog of the queen slept in the sun. " * 6
    )
    corpus = text_corpus(checkpoint, [tmp_path / "a.txt"], length=64, cache=tmp_path / "cache")
    *_, (_, found) = survey(checkpoint, corpus, layers=["encoder.layers.0"])
    ((name, matrix),) = values(stacks(checkpoint.model)["encoder"].blocks[0].ffn, "encoder.layers.0.ffn")
    reader = Reader.of(checkpoint.model, "encoder")
    result = agreement([neurons(reader, corpus.lanes["encoder"], 0, name, matrix, found[name])])
    assert result.share > 3 * result.chance > 0


def test_a_real_translation_model_is_surveyed_over_pairs(tmp_path: Path) -> None:
    if not QUICKSTART.is_dir():
        pytest.skip("no translation model is there: `make demo` trains one")
    checkpoint = plait.load(QUICKSTART)
    (tmp_path / "a.tsv").write_text("the dog sleeps .\t狗睡觉 。\nthe cat eats .\t猫吃东西 。\n", encoding="utf-8")
    corpus = pair_corpus(checkpoint, [tmp_path / "a.tsv"], cache=tmp_path / "cache")
    *_, (_, found) = survey(checkpoint, corpus, keep=2)
    a = checkpoint.architecture
    assert len(found) == a.n_encoder_layers + a.n_decoder_layers
    assert all((one.places[:, 0] >= 0).any() for one in found.values())
