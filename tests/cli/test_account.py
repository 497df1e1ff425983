"""account, diff and presets: what is printed is what the account says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import plait
from plait.cli.commands import main
from plait.presets import PRESETS

Capture = pytest.CaptureFixture[str]


def output(capsys: Capture, *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_the_account_of_vaswani_base(capsys: Capture):
    text = output(capsys, "account", "vaswani-base")
    assert "63,082,496" in text
    parts = [line.split() for line in text.splitlines()]
    counts = {words[0]: int(words[1].replace(",", "")) for words in parts if len(words) == 5 and words[1][0].isdigit()}
    assert counts["norms"] + counts["biases"] == 98_304
    assert sum(count for part, count in counts.items() if part != "total") == counts["total"]


def test_json_holds_every_number(capsys: Capture):
    found = json.loads(output(capsys, "account", "gpt2", "--length", 10, "--batch", 3, "--format", "json"))
    assert found == json.loads(json.dumps(plait.account(plait.preset("gpt2")).to_dict(10, 3)))


@pytest.mark.parametrize("by", ["layer", "tensor"])
def test_lines_by_layer_and_by_tensor(by: str, capsys: Capture):
    assert "decoder.layers.11" in output(capsys, "account", "gpt2", "--by", by)


def test_a_recipe_and_a_checkpoint_have_accounts(forced: Path, tmp_path: Path, capsys: Capture):
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(plait.load(forced).architecture.to_toml())
    said = [output(capsys, "account", model).split("\n", 1)[1] for model in (recipe, forced)]
    assert said[0] == said[1]


def test_a_recipe_with_an_unknown_knob_is_refused(tmp_path: Path, capsys: Capture):
    recipe = tmp_path / "wrong.toml"
    recipe.write_text("vocab_size = 10\nd_modle = 4\n")
    assert main(["account", str(recipe)]) == 1
    err = capsys.readouterr().err
    assert "d_model" in err and "wrong.toml: " in err


@pytest.mark.parametrize(
    ("model", "words"),
    [("", "names nothing"), (" ", "names nothing"), ("nosuch.toml", "nosuch.toml: there is no such recipe.")],
)
def test_a_model_that_is_not_there_is_refused_in_words(model: str, words: str, capsys: Capture):
    assert main(["account", model]) == main(["generate", model, "a", "--random"]) == 1
    assert capsys.readouterr().err.count(words) == 2


@pytest.mark.parametrize("option", ["--length", "--batch"])
def test_no_tokens_are_refused(option: str, capsys: Capture):
    assert main(["account", "gpt2", option, "0"]) == 1
    assert option in capsys.readouterr().err


@pytest.mark.parametrize("command", [["account", "gpt-2"], ["diff", "gpt2", "lama-7b"], ["verify", "lama-3-8b"]])
def test_a_misspelt_preset_is_answered_with_the_nearest(command: list[str], capsys: Capture):
    assert main(command) == 1
    assert {"account": "'gpt2'", "diff": "'llama-7b'", "verify": "'llama-3-8b'"}[command[0]] in capsys.readouterr().err


def test_diff_names_only_what_differs(capsys: Capture):
    found = json.loads(output(capsys, "diff", "llama-7b", "llama-2-7b", "--format", "json"))
    assert found == {"norm_eps": [1e-6, 1e-5], "max_length": [2048, 4096]}
    assert [line.split()[0] for line in output(capsys, "diff", "llama-7b", "llama-2-7b").splitlines()[2:]] == [*found]


def test_diff_of_one_architecture_is_empty(capsys: Capture):
    assert output(capsys, "diff", "gpt2", "gpt2") == ""
    assert json.loads(output(capsys, "diff", "gpt2", "gpt2", "--format", "json")) == {}


def test_presets_lists_all(capsys: Capture):
    rows = json.loads(output(capsys, "presets", "--format", "json"))
    assert [row["preset"] for row in rows] == list(PRESETS)
    assert {row["preset"]: row["parameters"] for row in rows}["gpt2"] == 124_439_808


def test_a_pipe_gets_lines_without_folds_or_fill(capsys: Capture):
    lines = output(capsys, "diff", "gpt2", "gemma-3-1b").splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert any(line.startswith("layer_types") and "5 x window 512" in line for line in lines)


def test_a_row_too_long_is_said(capsys: Capture):
    assert main(["account", "gpt2", "--length", "100000"]) == 0
    assert "gpt2 takes rows of at most 1,024 tokens" in capsys.readouterr().err
    assert main(["account", "gpt2", "--length", "1024"]) == 0
    assert not capsys.readouterr().err


def test_windows_keep_less_where_they_slide(capsys: Capture):
    counts = plait.account(plait.preset("gemma-3-1b"))
    for options, sliding in (([], False), (["--sliding"], True)):
        bytes = counts.cache_bytes(2048, dtype="fp32", sliding=sliding)
        assert f"{bytes:,}" in output(capsys, "account", "gemma-3-1b", "--length", 2048, *options)
        said = json.loads(output(capsys, "account", "gemma-3-1b", "--length", 2048, "--format", "json", *options))
        assert said["cache_bytes"]["fp32"] == bytes
