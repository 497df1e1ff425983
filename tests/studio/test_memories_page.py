"""The memories page: what it holds is what the study found, within its limit, in one file and two languages."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plait.inspection.memory import Neurons, Study, study
from plait.pages.page import resource
from plait.studio.memories import memories_page
from plait.studio.memories.packed import packed
from plait.studio.memories.page import BROWSER, WORDS, percent
from tests.inspection.corpora import SHAPES, model, written

SCRIPTS = {name: resource("plait.studio.memories", f"{name}.js") for name in ("unpacked", "neuron", "browser")}


def studied(name: str, folder: Path, **more: Any) -> Study:
    files, checkpoint = written(folder), model(name, around=name in ("bert", "marian"))
    both = checkpoint.architecture.kind == "encoder-decoder"
    given = [files["pairs"]] if both else [files["text"], files["other"]]
    return study(checkpoint, given, length=16, cache=folder / "cache", **{"keep": 6, "tokens": 4, **more})


def data_of(page: str) -> dict[str, Any]:
    """What the page's script finds."""
    found = re.search(r"^const DATA = (.*);$", page, re.MULTILINE)
    assert found is not None
    return json.loads(found[1])


def unpacked(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text[1:]), {"2": "<u2", "4": "<u4", "f": "<f4"}[text[0]])


class Read:
    """The page's data read as its script reads it."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.lanes = {tower: {**lane, "tokens": unpacked(lane["tokens"])} for tower, lane in data["lanes"].items()}
        self.networks = data["networks"]

    def neuron(self, network: int, row: int) -> dict[str, Any]:
        one = self.networks[network]
        lane, t, k = self.lanes[one["tower"]], one["triggers"], one["tokens"]
        vocabulary, tokens = lane["vocabulary"], lane["tokens"]
        triggers = []
        for place, strength in zip(
            unpacked(one["places"])[row * t : (row + 1) * t], unpacked(one["strengths"])[row * t :], strict=False
        ):
            if place:
                before, at = [], int(place) - 1
                while tokens[at] < len(vocabulary):
                    before.append(vocabulary[tokens[at]])
                    at -= 1
                following = int(place) + 1
                following += tokens[following] == len(vocabulary)
                after = tokens[following]
                asked = vocabulary[after] if after < len(vocabulary) else None
                triggers.append(("".join(reversed(before)), vocabulary[tokens[place]], asked, float(strength)))
        said = {
            name: [vocabulary[i] for i in unpacked(one[name])[row * k : (row + 1) * k]]
            for name in ("raised", "lowered")
        }
        return {"triggers": triggers, **said}


def check_neuron(found: Study, one: Neurons, number: int, read: dict[str, Any]) -> None:
    lane = found.corpus.lanes[one.tower]

    def spelt(ids: Any) -> str:
        return lane.tokenizer.decode([int(id) for id in ids], continues=True)

    wanted = []
    for place, strength in zip(
        one.triggers.places[number].tolist(), one.triggers.strengths[number].tolist(), strict=True
    ):
        if place >= 0:
            (token,) = lane.tokens(one.triggers.places[number][one.triggers.places[number] == place])
            wanted.append((spelt(lane.context(place, 24)[:-1]), spelt([token]), strength))
    got = [(before, token, strength) for before, token, _, strength in read["triggers"]]
    assert [(token, strength) for _, token, strength in got] == [(token, strength) for _, token, strength in wanted]
    for (before, _, _), (expected, _, _) in zip(got, wanted, strict=True):
        assert before.endswith(expected), "the row up to the trigger, and perhaps more of it"
    if lane.following:
        asked = [None if id < 0 else spelt([id]) for id in one.asked[number].tolist()][: len(got)]
        assert [next for _, _, next, _ in read["triggers"]] == asked
    assert "".join(read["raised"]) == spelt(one.raised[number])
    assert "".join(read["lowered"]) == spelt(one.lowered[number])


@pytest.mark.parametrize("name", SHAPES)
def test_a_page_holds_every_neuron_as_it_was_found(name: str, tmp_path: Path) -> None:
    found = studied(name, tmp_path)
    page = memories_page(found, model=name)
    read = Read(data_of(page))
    networks = [one for layer in found.layers for one in layer.networks]
    assert len(networks) == len(read.networks)
    for number, one in enumerate(networks):
        data = read.networks[number]
        assert (data["tower"], data["turn"]) == (one.tower, one.turn)
        assert unpacked(data["numbers"]).tolist() == list(range(len(one)))
        assert unpacked(data["agrees"]).tolist() == one.agrees.sum(1).tolist()
        assert unpacked(data["ranks"]).tolist() == one.ranks.tolist()
        assert np.allclose(unpacked(data["added"]), one.added.numpy())
        assert np.allclose(unpacked(data["pushes"]) / 10, one.pushes.flatten().numpy(), atol=0.051)
        for row in range(0, len(one), 7):
            check_neuron(found, one, row, read.neuron(number, row))


def test_what_does_not_fit_is_left_out_and_said(tmp_path: Path) -> None:
    found = studied("llama", tmp_path, keep=10, tokens=10)
    whole = packed(found)
    assert whole.whole and (whole.triggers, whole.tokens, whole.neurons) == (10, 10, 20)
    assert "To keep the file below" not in memories_page(found, model="m")
    sizes = [len(json.dumps(packed(found, limit=limit).data)) for limit in (20_000, 7_000, 3_000)]
    assert sizes[0] > sizes[1] > sizes[2]
    less = packed(found, limit=3_000)
    assert not less.whole and less.triggers == 3 and less.neurons < 20
    (one,) = found.layers[0].networks
    kept = unpacked(less.data["networks"][0]["numbers"])
    assert set(kept) == set(one.added.topk(len(kept)).indices.tolist()), "those that add most stay"
    page = memories_page(found, model="m", limit=3_000)
    assert f"{less.neurons} neurons of each network at most" in page
    some = memories_page(found, model="m", neurons=3)
    assert "3 neurons of each network at most" in some
    assert all(len(unpacked(data["numbers"])) == 3 for data in data_of(some)["networks"])


def test_a_page_is_one_file_in_two_languages(tmp_path: Path) -> None:
    found = studied("marian", tmp_path)
    page = memories_page(found, model="a <b> model", language="zh")
    assert '<html lang="zh">' in page and "a &lt;b&gt; model" in page
    assert not re.search(r"(?:src|href)=|https?://|@import|url\(", page), "it asks nothing of a network"
    for said in (WORDS["by_embedding"].format(tower=WORDS["encoder"]), WORDS["by_head"].format(tower=WORDS["decoder"])):
        assert said.zh in page
    for layer in found.layers:
        assert percent(layer.agreement.share) in page


def test_every_word_is_there_and_used() -> None:
    scripts = "".join(SCRIPTS.values())
    asked = set(re.findall(r'say\("(\w+)"', scripts)) | set(re.findall(r'control\("(\w+)"', scripts))
    asked |= {"every", "one", "find_hint", "number_hint", "says_positive", "says_negative"}
    made = {f"by_{name}" for name in ("number", "agreement", "strength")} | {"decoder", "encoder"}
    made |= {f"in_{name}" for name in ("both", "triggers", "values", "numbers")}
    made |= {f"columns_{name}" for name in ("number", "agrees", "trigger", "first")}
    assert asked | made == set(BROWSER)
    code = resource("plait.studio.memories", "page.py")
    used = set(re.findall(r"""["'](\w+)["']""", code)) | {"by_head", "by_embedding", "encoder", "decoder"}
    assert set(WORDS) <= used, set(WORDS) - used


def test_words_that_explain_fit_the_model(tmp_path: Path) -> None:
    said = {name: memories_page(studied(name, tmp_path), model=name) for name in ("gpt2", "bert", "albert", "minilm")}
    assert "The first token of a row sees nothing" in said["gpt2"] and "special tokens around" not in said["gpt2"]
    assert "may be negative" not in said["gpt2"] and "coefficient is not 0 at a place" in said["gpt2"]
    assert "special tokens around a row do not count" in said["bert"] and "straight line" in said["bert"]
    assert "counts echoes" in said["bert"] and "may be negative" in said["bert"]
    assert "share their weights" in said["albert"] and "no head that says tokens" in said["minilm"]
