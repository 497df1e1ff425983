"""Values read through what the model applies: norms of every placement, narrow tables, transforms of heads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from plait.architecture import Architecture, Classification, EncoderDifferences
from plait.inspection import InspectionError, attribute, lens, trace
from plait.inspection.memory import Reader
from plait.inspection.memory.reading import slope, table_of
from plait.model import Transformer
from tests.inspection.making import made, reading, traced
from tests.models import far, random_model

SIZE = {"vocab_size": 32, "d_model": 16, "n_heads": 4, "d_ff": 20}
KINDS = {
    "decoder": {"n_decoder_layers": 3},
    "encoder": {"n_encoder_layers": 3, "head": "masked"},
    "encoder-decoder": {"n_encoder_layers": 2, "n_decoder_layers": 3},
}
VARIANTS = {
    "rms": {"norm": "rmsnorm"},
    "offset": {"norm_weight": "offset"},
    "bare": {"norm_weight": "none"},
    "tied": {"tied": True, "logit_bias": True},
    "narrow": {"d_embedding": 8},
    "deep": {"skip_scale": 1.7, "residual_scale": 0.4},
}


def every_score(reader: Reader, turn: int, vectors: Tensor, **how: bool) -> Tensor:
    return torch.cat(list(reader.scores(turn, vectors, **how)))


def check_direction(architecture: Architecture) -> None:
    """What attribution finds that a neuron adds to each logit is in the ratio of its value's scores."""
    seen = traced(architecture)
    reader = Reader.of(seen.model, seen.tower)
    assert reader.by == "head"
    for turn, block in enumerate(reader.stack.blocks):
        name = f"{seen.tower}.layers.{turn}.ffn"
        scores = every_score(reader, turn, block.ffn.down.weight.t())  # type: ignore[union-attr]
        adds: list[Tensor] = []
        for token in range(32):
            found = attribute(seen, token, position=4, by="neurons")
            numbers = [i for i, part in enumerate(found.names) if part.startswith(f"{name}.neurons.")]
            adds.append(found.values[numbers])
        written = torch.stack(adds, 1)  # m v
        fired = seen[f"{name}.activation"][4][:, None]
        there = fired[:, 0] != 0
        ratio = written[there] / (fired * scores)[there]
        assert far(ratio, ratio[:1, :1].expand_as(ratio)) < 1e-6 and float(ratio.min()) > 0, turn


@pytest.mark.parametrize("placement", ["pre", "post", "sandwich", "branch"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_value_is_read_through_all_that_stands_between_it_and_the_head(kind: str, placement: str) -> None:
    check_direction(Architecture(**{**SIZE, **KINDS[kind], "norm_placement": placement}))


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_so_it_is_with_norms_and_heads_of_any_kind(variant: str, placement: str) -> None:
    check_direction(Architecture(**{**SIZE, **KINDS["decoder"], "norm_placement": placement, **VARIANTS[variant]}))


def test_so_it_is_in_parallel_blocks() -> None:
    check_direction(Architecture(**{**SIZE, **KINDS["decoder"], "parallel": "shared"}))


@pytest.mark.parametrize("narrow", [None, 8])
def test_a_heads_activation_is_a_line_with_its_mean_slope(narrow: int | None) -> None:
    architecture = Architecture(
        **{**SIZE, **KINDS["encoder"], "norm_placement": "post"}, head_transform="gelu", tied=True, d_embedding=narrow
    )
    model, states = random_model(architecture), torch.randn(9, 16, dtype=torch.float64)
    head, table = model.head, model.embedding.tokens
    assert head is not None and head.act is not None and head.norm is not None and table is not None
    assert head.norm.weight is not None
    found = slope(head, states)
    assert found is not None
    vector, step = torch.randn(16, dtype=torch.float64), 1e-6
    moved = (head.act(head.dense(states + step * vector)) - head.act(head.dense(states - step * vector))) / (2 * step)
    by_place = moved / (vector @ head.dense.weight.t())  # the slope at each place
    assert far(found, by_place.mean(0)) < 1e-6
    bent = (vector @ head.dense.weight.t()) * found
    wanted = ((bent - bent.mean()) * head.norm.weight) @ table.weight.t()
    reader = Reader.of(model, "encoder", found)
    assert far(every_score(reader, 2, vector[None], branch=True)[0], _merged(model, vector) @ reader.table.t()) < 1e-9
    assert far(vector @ reader.table.t(), wanted) < 1e-9
    with pytest.raises(InspectionError, match="slope: this head bends"):
        table_of(model, "encoder")
    assert slope(Transformer(Architecture(**SIZE, n_decoder_layers=1)).head, states.float()) is None  # type: ignore[arg-type]


def _merged(model: Transformer, vector: Tensor) -> Tensor:
    assert model.encoder is not None
    norm = model.encoder.blocks[-1].ffn_norms.merge
    assert norm is not None and norm.weight is not None
    return (vector - vector.mean()) * norm.weight


@pytest.mark.parametrize(
    ("architecture", "tower"),
    [
        (Architecture(**SIZE, n_encoder_layers=2, head=None, embedding_norm=True), "encoder"),
        (Architecture(**SIZE, n_encoder_layers=2, head=Classification(labels=3), d_embedding=8), "encoder"),
        (Architecture(**SIZE, n_encoder_layers=2, n_decoder_layers=1), "encoder"),
        (
            Architecture(**SIZE, n_encoder_layers=2, n_decoder_layers=1, encoder=EncoderDifferences(vocab_size=20)),
            "encoder",
        ),
        (Architecture(**SIZE, n_decoder_layers=2, head=None), "decoder"),
    ],
)
def test_where_no_head_says_tokens_values_are_likened_to_embeddings(architecture: Architecture, tower: str) -> None:
    model = random_model(architecture)
    reader = Reader.of(model, tower)
    assert reader.by == "embedding"
    rows = 20 if architecture.encoder else 32
    own = model.source_embedding or model.embedding
    tokens = own.tokens or model.embedding.tokens
    assert tokens is not None and reader.table.shape == (rows, 16)
    table = tokens.weight
    if own.norm is not None and own.norm.weight is not None:
        table = (table - table.mean(-1, keepdim=True)) * own.norm.weight
    if own.projection is not None:
        table = own.projection(table) - own.projection.bias
    assert far(reader.table, table / table.norm(dim=-1, keepdim=True)) < 1e-12
    assert torch.equal(every_score(reader, 1, table).argmax(-1), torch.arange(rows)), "each is most like itself"


@pytest.mark.parametrize("placement", ["pre", "post", "sandwich", "branch"])
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_the_models_where_nothing_more_is_added(kind: str, placement: str) -> None:
    architecture = Architecture(**{**SIZE, **KINDS[kind], "norm_placement": placement})
    checkpoint, read = made(architecture), reading(architecture)
    seen = trace(checkpoint, read)
    reader = Reader.of(seen.model, seen.tower)
    last = len(reader.stack.blocks) - 1
    assert torch.equal(reader.answers(last, seen[f"{seen.tower}.layers.{last}.output"]), seen.output.argmax(-1))
    rows = dict(lens(seen))
    for turn in range(last if placement == "post" else last + 1):
        name = f"{seen.tower}.layers.{turn}.output"
        if placement != "post":
            assert torch.equal(reader.answers(turn, seen[name]), rows[name].argmax(-1))
    stream = "after_cross" if kind == "encoder-decoder" else "after_attention"
    for turn in range(last + 1):

        def change(name: str, value: Tensor, turn: int = turn) -> Tensor | None:
            _, _, layer, own = name.split(".")
            later = int(layer) > turn or (int(layer) == turn and own == "ffn_branch")
            return torch.zeros_like(value) if later else None

        without = trace(checkpoint, read, f"{seen.tower}.layers.*_branch", change=change)
        said = reader.answers(turn, seen[f"{seen.tower}.layers.{turn}.{stream}"], before=True)
        assert torch.equal(said, without.output.argmax(-1)), turn
