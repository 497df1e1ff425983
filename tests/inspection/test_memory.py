"""Memories: what fires neurons over a corpus, what their values say, and the numbers of Geva et al."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from plait.architecture import Architecture, Experts
from plait.checkpoint import Checkpoint
from plait.data.store import tokenised
from plait.data.tokens import Tokens
from plait.inspection.memory.reading import read_values, table_of
from plait.inspection.memory.statistics import agreement, composition, first_tokens
from plait.inspection.memory.survey import Triggers, survey
from plait.model import watching
from plait.text import train_tokenizer
from tests.models import far, random_model

TEXT = "the dog of anna is old. the cat of ben is new. dora says that the sun is far, and the moon is near. " * 8
SIZE = {"d_model": 16, "n_heads": 4, "d_ff": 20}
SHAPES = {
    "gpt2": {"n_decoder_layers": 2},
    "llama": {"n_decoder_layers": 2, "gated": True, "activation": "silu", "norm": "rmsnorm", "tied": True},
    "experts": {"n_decoder_layers": 2, "experts": Experts(n_experts=4, per_token=2, d_expert=6, d_shared=5)},
    "encoder": {"n_encoder_layers": 2, "head": "masked", "norm_placement": "post"},
    "both": {"n_encoder_layers": 2, "n_decoder_layers": 1},
}


def given(name: str, folder: Path, **more) -> tuple[Checkpoint, Tokens, str]:
    tokenizer = train_tokenizer([TEXT], kind="characters")
    architecture = Architecture(vocab_size=len(tokenizer), **{**SIZE, **SHAPES[name], **more})
    (folder / "a.txt").write_text(TEXT)
    corpus = tokenised(folder / "a.txt", tokenizer, cache=folder / "cache")
    model = random_model(architecture, dtype=torch.float32)
    tower = "decoder" if architecture.kind == "decoder" else "encoder"
    return Checkpoint(architecture=architecture, model=model, tokenizer=tokenizer), corpus, tower


@pytest.mark.parametrize("name", ["gpt2", "llama", "encoder", "both"])
def test_triggers_are_the_largest_coefficients_of_all(name: str, tmp_path: Path) -> None:
    checkpoint, corpus, tower = given(name, tmp_path)
    *_, (read, found) = survey(checkpoint, corpus, tower=tower, keep=4, length=16)
    assert len(corpus) - 16 < read <= len(corpus)
    ids = torch.from_numpy(corpus.read(0, read))
    whole = ids[: read // 16 * 16].view(-1, 16)
    site = f"{tower}.layers.1.ffn.activation"
    model = checkpoint.model
    with torch.no_grad(), watching(model, site, stop_after=site) as seen:
        (model.encode if name == "both" else model)(whole)
    coefficients = seen[site].flatten(0, 1)
    triggers = found[f"{tower}.layers.1.ffn"]
    best = coefficients.abs().topk(4, 0)
    assert torch.allclose(triggers.strengths.abs(), best.values.t(), rtol=1e-4)
    for neuron in range(20):
        for strength, place in zip(triggers.strengths[neuron], triggers.places[neuron], strict=True):
            assert float(coefficients[place, neuron]) == pytest.approx(float(strength), rel=1e-4)


def test_experts_have_triggers_among_the_tokens_they_get(tmp_path: Path) -> None:
    checkpoint, corpus, _ = given("experts", tmp_path)
    *_, (_, found) = survey(checkpoint, corpus, keep=3, length=16)
    assert {name for name in found if ".layers.0." in name} == {
        *(f"decoder.layers.0.ffn.experts.{i}" for i in range(4)),
        "decoder.layers.0.ffn.shared",
    }
    assert found["decoder.layers.0.ffn.shared"].strengths.shape == (5, 3)


def test_a_few_batches_are_as_one() -> None:
    generator = torch.Generator().manual_seed(0)
    values, places = torch.randn(50, 6, generator=generator), torch.arange(50)
    whole, parts = Triggers.empty("a", 6, 3), Triggers.empty("a", 6, 3)
    whole.add(values, places)
    for start in range(0, 50, 7):
        parts.add(values[start : start + 7], places[start : start + 7])
    assert torch.equal(whole.strengths, parts.strengths) and torch.equal(whole.places, parts.places)


def test_values_are_read_as_the_head_reads_the_stream(tmp_path: Path) -> None:
    checkpoint, _, _ = given("llama", tmp_path)
    model = checkpoint.model
    assert model.decoder is not None and model.decoder.norm is not None and model.embedding.tokens is not None
    table = table_of(model, "decoder")
    x = torch.randn(5, 16)
    rms = x.square().mean(-1, keepdim=True).sqrt()
    assert far(x @ table.t() / rms, model.decoder.norm(x) @ model.embedding.tokens.weight.t()) < 1e-4
    ids = torch.cat([found for found, _ in read_values(table, x, 3)])
    assert torch.equal(ids, (x @ table.t()).topk(3).indices)


def test_the_numbers_of_geva_by_hand(tmp_path: Path) -> None:
    checkpoint, corpus, _ = given("gpt2", tmp_path, activation="relu")
    model = checkpoint.model
    *_, (_, found) = survey(checkpoint, corpus, keep=2, length=16)
    name = "decoder.layers.1.ffn"
    values = {name: model.get_parameter(f"{name}.down.weight").t()}
    said = first_tokens(checkpoint, {name: found[name]}, values)[name]
    table = table_of(model, "decoder")
    right = 0
    for neuron in range(20):
        sign = 1.0 if float(found[name].strengths[neuron, 0]) >= 0 else -1.0
        token = int((sign * values[name][neuron] @ table.t()).argmax())
        assert token == int(said[neuron])
        right += token == int(
            corpus.read(int(found[name].places[neuron, 0]) + 1, int(found[name].places[neuron, 0]) + 2)[0]
        )
    share, chance = agreement(found[name], said, corpus)
    assert share == pytest.approx(right / 20) and 0 <= chance <= 1
    ids = torch.from_numpy(corpus.read(0, 24)).view(2, 12)
    (_, _, _), (active, zero, settled) = composition(checkpoint, ids)
    with torch.no_grad(), watching(model, f"{name}.activation", f"{name}_branch") as seen:
        model(ids)
    fired = seen[f"{name}.activation"].flatten(0, 1)
    assert active == pytest.approx(float((fired > 0).double().mean()))
    branch = seen[f"{name}_branch"].flatten(0, 1)
    first = (values[name] @ table.t()).argmax(-1)
    alone = sum(
        not any(int(first[i]) == int((branch[n] @ table.t()).argmax()) for i in range(20) if float(fired[n, i]) > 0)
        for n in range(24)
    )
    assert zero == pytest.approx(alone / 24) and settled == 1.0
