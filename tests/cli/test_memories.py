"""memories: numbers by layer, examples, a page; text for one tower, pairs for two; what makes no sense is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import plait
from plait.cli.commands import main
from plait.cli.memories import numbers
from plait.inspection.memory import study
from tests.cli.test_generate import Capture, output
from tests.inspection import corpora


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("memories")
    return {
        name: plait.save(corpora.model(name), folder / name, dialect="plait") for name in ("llama", "marian", "bert")
    }


def test_a_table_by_layer_and_an_example_of_each(saved: dict[str, Path], tmp_path: Path, capsys: Capture) -> None:
    files = corpora.written(tmp_path)
    given = (files["text"], files["other"])
    found = study(plait.load(saved["llama"]), given)
    rows = json.loads(output(capsys, "memories", saved["llama"], "--corpus", *given, "--format", "json"))
    assert [row["layer"] for row in rows] == [0, 1]
    for row, layer in zip(rows, found.layers, strict=True):
        assert row["neurons"] == 20 and row["agreement"] == layer.agreement.share
        assert row["settled"] == layer.composition.settled and row["active"] == layer.composition.active
        (one,) = layer.networks
        neuron = int(row["neuron"])
        assert row["agrees"] == int(one.agrees[neuron].sum()) == int(one.agrees.sum(1).max())
        assert row["coefficient"] == float(one.triggers.strengths[neuron, 0])
        assert row["strongest trigger"].replace("↵", "\n") in corpora.TEXT + corpora.OTHER
    shown = output(capsys, "memories", saved["llama"], "--corpus", *given)
    head, example = shown.split("\n\n")
    assert "zero agreement" in head and "its value says" in example
    assert len(head.splitlines()) == len(example.strip().splitlines()) == 4


def test_a_page_of_some_layers(saved: dict[str, Path], tmp_path: Path, capsys: Capture) -> None:
    files, out = corpora.written(tmp_path), tmp_path / "page.html"
    arguments = ("--corpus", files["text"], "--layers", "1", "--neurons", 5, "--language", "zh", "--out", out)
    assert main(["memories", str(saved["bert"]), *map(str, arguments)]) == 0
    said = capsys.readouterr()
    assert f"{out}: open it in a browser." in said.err and len(said.out.split("\n\n")[0].splitlines()) == 3
    page = out.read_text("utf-8")
    assert '<html lang="zh">' in page and "bert 前馈网络中的记忆" in page and "至多保留 5 个神经元" in page


def test_pairs_for_both_towers_and_text_for_the_encoder(
    saved: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    files = corpora.written(tmp_path)

    def towers(*arguments: object) -> list[tuple[str, int]]:
        rows = json.loads(output(capsys, "memories", saved["marian"], *arguments, "--format", "json"))
        return [(row["tower"], row["layer"]) for row in rows]

    both = [("encoder", 0), ("encoder", 1), ("decoder", 0), ("decoder", 1), ("decoder", 2)]
    assert towers("--corpus", files["pairs"]) == both
    assert towers("--corpus", files["pairs"], "--tower", "decoder", "--layers", "0-1") == both[2:4]
    assert towers("--corpus", files["text"], "--tower", "encoder") == both[:2]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("llama", ("--layers", "3-1"), "--layers: '3-1' are none; give numbers and ranges with commas, 0-3,7."),
        ("llama", ("--layers", "2"), "layers: 2, and there are layers 0 to 1."),
        ("llama", ("--keep", "0"), "--keep: 0 makes no sense; give 1 or more."),
        ("llama", ("--neurons", "0"), "--neurons: 0 makes no sense; give 1 or more."),
        ("llama", ("--out", "no/such/page.html"), "--out: there is no folder"),
        ("llama", ("--tower", "encoder"), "tower: encoder, and this model has only its decoder."),
        ("marian", (), "Text alone is for the encoder: ask for that tower."),
    ],
)
def test_what_makes_no_sense_is_refused(
    name: str, arguments: tuple[str, ...], message: str, saved: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    text = corpora.written(tmp_path)["text"]
    assert main(["memories", str(saved[name]), "--corpus", str(text), *arguments]) == 1
    assert message in capsys.readouterr().err
    assert main(["memories", str(saved[name])]) == 2


def test_a_preset_has_nothing_to_read_with(tmp_path: Path, capsys: Capture) -> None:
    assert main(["memories", "gpt2", "--corpus", str(corpora.written(tmp_path)["text"])]) == 1
    assert "has no tokenizer" in capsys.readouterr().err


def test_layers_are_numbers_and_ranges() -> None:
    assert numbers("0-3, 7") == [0, 1, 2, 3, 7] and numbers("5") == [5]
    for wrong in ("", "a", "1-", "-1", "1,,2", "2-1"):
        with pytest.raises(ValueError, match="--layers"):
            numbers(wrong)
