"""The study: every neuron and layer of a model over a corpus, and the numbers of Geva et al. 2021 by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from plait.inspection import InspectionError, trace
from plait.inspection.memory import Reader, Study, agreement, composition, memories, study, survey
from plait.inspection.memory.agreement import neurons
from plait.inspection.memory.composition import sampled
from plait.inspection.reading import Reading
from tests.inspection.corpora import SHAPES, corpus, model, texts, written


def studied(name: str, folder: Path, dtype: torch.dtype = torch.float32, **more) -> Study:
    files = written(folder)
    checkpoint = model(name, dtype=dtype)
    both = checkpoint.architecture.kind == "encoder-decoder"
    given = [files["pairs"]] if both and more.get("tower") != "encoder" else [files["text"], files["other"]]
    return study(checkpoint, given, length=16, cache=folder / "cache", **more)


@pytest.mark.parametrize("name", SHAPES)
def test_every_neuron_of_every_layer_is_there(name: str, tmp_path: Path) -> None:
    found = studied(name, tmp_path, keep=3, tokens=4)
    a = SHAPES[name]
    turns = [("encoder", i) for i in range(a.get("n_encoder_layers", 0))]
    turns += [("decoder", i) for i in range(a.get("n_decoder_layers", 0))]
    assert [(layer.tower, layer.turn) for layer in found.layers] == turns
    for layer in found.layers:
        assert layer.n_neurons == (4 * 6 + 5 if name == "experts" else 20)
        for one in layer.networks:
            assert one.name.startswith(f"{layer.tower}.layers.{layer.turn}.ffn")
            assert one.raised.shape == one.pushes.shape == (len(one), 4)
            assert one.lowered.shape[1] == (0 if name in ("gpt2", "experts", "parallel") else 4)
            assert (one.pushes[:, :-1] >= one.pushes[:, 1:]).all() and (one.pushes[:, 0] > 0).all()
        shares = layer.composition
        assert shares.off < 1e-5 and 0 < shares.active <= 1
        assert all(0 <= share <= 1 for share in (shares.zero, shares.composed, shares.settled))
        assert layer.agreement.n > 0 and 1 <= layer.agreement.rank
    for tower in found.readers:
        *_, last = (layer for layer in found.layers if layer.tower == tower)
        assert last.composition.settled == 1.0
        head = SHAPES[name].get("head", "language") is not None and (tower == "decoder" or len(found.readers) == 1)
        assert found.readers[tower].by == ("head" if head else "embedding")


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "marian"])
def test_values_beside_what_was_asked_by_hand(name: str, tmp_path: Path) -> None:
    found = studied(name, tmp_path, keep=3, tokens=4)
    for layer in found.layers:
        reader, lane = found.readers[layer.tower], found.corpus.lanes[layer.tower]
        (one,) = layer.networks
        ffn = reader.stack.blocks[layer.turn].ffn
        (scores,) = reader.scores(layer.turn, ffn.down.weight.t())  # type: ignore[union-attr]
        right = known = chance = 0
        firsts, asked = [], []
        for neuron in range(20):
            for t in range(3):
                strength, place = float(one.triggers.strengths[neuron, t]), int(one.triggers.places[neuron, t])
                if place < 0:
                    assert int(one.asked[neuron, t]) == -1 and not one.agrees[neuron, t]
                    continue
                token = int(lane.targets(torch.tensor([place]))[0])
                first = int((scores[neuron] * (-1 if strength < 0 else 1)).argmax())
                assert int(one.asked[neuron, t]) == token
                assert bool(one.agrees[neuron, t]) == (first == token)
                if t == 0 and token >= 0:
                    firsts.append(first)
                    asked.append(token)
                    ranked = (scores[neuron] * (-1 if strength < 0 else 1)).argsort(descending=True).tolist()
                    assert int(one.ranks[neuron]) == ranked.index(token) + 1
        known = len(asked)
        right = sum(first == token for first, token in zip(firsts, asked, strict=True))
        chance = sum(first == token for first in firsts for token in asked)
        assert layer.agreement.n == known and layer.agreement.share == pytest.approx(right / known)
        assert layer.agreement.chance == pytest.approx(chance / known**2)
        assert torch.equal(one.raised, scores.topk(4).indices)
        z = (scores - scores.mean(-1, keepdim=True)) / scores.std(-1, correction=0, keepdim=True)
        assert torch.allclose(one.pushes, z.topk(4).values, atol=1e-4)
        if one.lowered.shape[1]:
            assert torch.equal(one.lowered, (-scores).topk(4).indices)
            assert torch.allclose(one.pulls, (-z).topk(4).values, atol=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama", "experts", "bert", "albert", "marian", "parallel"])
def test_the_shares_of_a_layer_by_hand(name: str, tmp_path: Path) -> None:
    checkpoint = model(name, dtype=torch.float64)
    read = corpus(name, checkpoint, tmp_path)
    everything = studied(name, tmp_path, torch.float64)
    readers = everything.readers
    known = {f"{layer.tower}.layers.{layer.turn}": layer.networks for layer in everything.layers}
    *_, (_, shares) = composition(checkpoint, read, readers, known, rows=5, each=1000)
    tower = list(readers)[-1]
    reader, counts = readers[tower], {name: [0, 0.0, 0, 0, 0] for name in known if name.startswith(tower)}
    for number in sampled(read, 5):
        rows = {side: lane.row(number) for side, lane in read.lanes.items()}
        ids = {side: torch.from_numpy(row)[None].long() for side, (row, _) in rows.items()}
        source = ids["encoder"] if len(ids) == 2 else None
        seen = trace(checkpoint, Reading(tokens=ids[tower], texts=(), source=source))
        for turn, block in enumerate(reader.stack.blocks):
            layer = f"{tower}.layers.{turn}"
            after = reader.answers(turn, seen[f"{layer}.output"])
            stream = "after_cross" if name == "marian" else "after_attention"
            if name == "parallel":
                before = reader.answers(turn, seen[f"{layer}.output"] - seen[f"{layer}.ffn_branch"], before=True)
            else:
                before = reader.answers(turn, seen[f"{layer}.{stream}"], before=True)
            (branch,) = reader.scores(turn, seen[f"{layer}.ffn_branch"], branch=True)
            networks = list(memories(block.ffn, seen, f"{layer}.ffn"))
            most = torch.cat([one.coefficients.abs() for one in networks], -1).amax(-1)
            relu = checkpoint.architecture.activation == "relu"
            for place in (rows[tower][1] >= 0).nonzero()[0].tolist():
                says, active, agrees = int(branch[place].argmax()), 0, False
                for network in networks:
                    (scores,) = reader.scores(turn, network.values)
                    for neuron, c in enumerate(network.coefficients[place].tolist()):
                        if abs(c) > (0 if relu else 0.1 * float(most[place])):
                            active += 1
                            agrees |= int((scores[neuron] * (1 if c > 0 else -1)).argmax()) == says
                count = counts[layer]
                count[0] += 1
                count[1] += active / sum(len(one) for one in known[layer])
                count[2] += not agrees
                count[3] += int(after[place]) not in (int(before[place]), says)
                count[4] += int(after[place]) == int(seen.output[place].argmax())
    for layer, (n, *sums) in counts.items():
        one = shares[layer]
        assert one.n == n
        for value, total in zip((one.active, one.zero, one.composed, one.settled), sums, strict=True):
            assert value == pytest.approx(total / n), layer


def test_some_layers_and_one_tower(tmp_path: Path) -> None:
    whole = studied("t5", tmp_path)
    for more, turns in (
        ({"tower": "decoder"}, [("decoder", 0), ("decoder", 1)]),
        ({"tower": "encoder", "layers": [1, 2]}, [("encoder", 1), ("encoder", 2)]),
        ({"layers": [2]}, [("encoder", 2)]),
    ):
        part = studied("t5", tmp_path, **more)
        assert [(layer.tower, layer.turn) for layer in part.layers] == turns
        if more.get("tower") != "encoder":  # which reads other text
            for layer in part.layers:
                (same,) = (one for one in whole.layers if (one.tower, one.turn) == (layer.tower, layer.turn))
                assert same.agreement == layer.agreement and same.composition == layer.composition


def test_layers_that_share_weights_are_told_apart_by_their_turns(tmp_path: Path) -> None:
    found = studied("albert", tmp_path)
    first, second, third = (layer.networks[0] for layer in found.layers)
    assert not torch.equal(first.triggers.strengths, third.triggers.strengths)
    assert torch.equal(first.sizes, second.sizes), "the same values"
    assert not torch.equal(first.pushes, third.pushes), "on another way to the head"


def test_a_neuron_that_never_fires_says_nothing(tmp_path: Path) -> None:
    checkpoint = model("gpt2")
    with torch.no_grad():
        ffn = checkpoint.model.decoder.blocks[0].ffn  # type: ignore[union-attr]
        ffn.up.bias[3] = -1e6  # type: ignore[union-attr, index]
    read = texts(checkpoint, tmp_path)
    *_, (_, found) = survey(checkpoint, read)
    lane, name = read.lanes["decoder"], "decoder.layers.0.ffn"
    one = neurons(Reader.of(checkpoint.model, "decoder"), lane, 0, name, ffn.down.weight.t(), found[name])  # type: ignore[union-attr]
    assert (one.triggers.places[3] == -1).all() and int(one.ranks[3]) == 0 and not one.agrees[3].any()
    assert agreement([one]).n == int((one.asked[:, 0] >= 0).sum()) < 20


def test_texts_of_one_token_do_not_count_and_do_not_disturb(tmp_path: Path) -> None:
    (tmp_path / "short.jsonl").write_text('{"text": "a"}\n' * 40 + '{"text": "the dog"}\n')
    found = study(model("gpt2"), [tmp_path / "short.jsonl"], cache=tmp_path / "cache")
    assert all(0 < layer.composition.n <= 6 for layer in found.layers)
    (tmp_path / "short.jsonl").write_text('{"text": "a"}\n' * 3)
    with pytest.raises(InspectionError, match="it has no text of more than one token"):
        study(model("gpt2"), [tmp_path / "short.jsonl"], cache=tmp_path / "cache")


@pytest.mark.parametrize(
    ("name", "file", "more", "message"),
    [
        ("marian", "text", {}, "it has no tab.* A decoder beside an encoder reads pairs.* ask for that tower"),
        ("gpt2", "text", {"tower": "encoder"}, "tower: encoder, and this model has only its decoder"),
        ("gpt2", "text", {"layers": [0, 7]}, "layers: 7, and there are layers 0 to 1"),
        ("gpt2", "text", {"keep": 0}, "keep: 0 makes no sense"),
    ],
)
def test_refusals(name: str, file: str, more: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(InspectionError, match=message):
        study(model(name), [written(tmp_path)[file]], cache=tmp_path / "cache", **more)
