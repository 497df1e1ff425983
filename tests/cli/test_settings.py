"""Defaults from TOML: known keys, typed values, the command line first."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.cli.commands import build, main
from plait.cli.settings import read


@pytest.fixture
def settings(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "settings.toml"
        path.write_text(text)
        return path

    return write


def parsed(path: Path, *tokens: str):
    """What `plait generate MODEL PROMPT` would be called with."""
    app = build()
    app.config = (read(path, app),)
    return app.parse_args(["generate", "model", "prompt", *tokens], exit_on_error=False, print_error=False)[1].arguments


@pytest.mark.parametrize(
    ("text", "place", "nearest"),
    [
        ("learning_rate = 1", "learning_rate", "there are"),
        ("[generat]\nseed = 1", "generat", "'generate'"),
        ("[generate]\nmax_new_tokns = 1", "generate.max_new_tokns", "'max_new_tokens'"),
        ("[generate]\nmax-new-tokns = 1", "generate.max-new-tokns", "'max_new_tokens'"),
        ("[tokenizer.encod]\nspecials = true", "tokenizer.encod", "'encode'"),
        ("[tokenizer.encode]\nspecails = true", "tokenizer.encode.specails", "'specials'"),
        ("[embed]\npoolin = 'cls'", "embed.poolin", "'pooling'"),
    ],
)
def test_cf1_unknown_keys_are_refused_with_section_and_nearest(text: str, place: str, nearest: str, settings):
    path = settings(text)
    with pytest.raises(ValueError) as refusal:
        read(path, build())
    assert f"{path}: {place}: " in str(refusal.value) and nearest in str(refusal.value)


def test_cf1_a_key_that_stands_twice_is_refused(settings):
    with pytest.raises(ValueError, match="line 3"):
        read(settings("[generate]\nseed = 1\nseed = 2\n"), build())


def test_cf1_a_mistake_in_another_commands_section_counts(settings, capsys: pytest.CaptureFixture[str]):
    assert main(["--config", str(settings("[generate]\nsede = 1")), "presets"]) == 1
    assert "generate.sede" in capsys.readouterr().err


@pytest.mark.parametrize("written", ["1e-5", "3e-4", "5e-05", "1.0e5", "1"])
def test_cf2_numbers_are_numbers(written: str, settings):
    found = parsed(settings(f"[generate]\ntemperature = {written}"))["sampling"].temperature
    assert type(found) is float and found == float(written)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("temperature = '1e-5'", "generate.temperature: '1e-5' is not a number"),
        ("temperature = true", "generate.temperature: True is not a number"),
        ("max_new_tokens = 2.5", "generate.max_new_tokens: 2.5 is not a whole number"),
        ("chat = 'no'", "generate.chat: 'no' is not true or false"),
        ("dtype = 'fp32'", "generate.dtype: 'fp32' is not one of 'stored'"),
        ("stop = 'x'", "generate.stop: 'x' is not a list"),
        ("generate = 1", "generate.generate"),
    ],
)
def test_cf2_values_of_another_type_are_refused_with_the_key(text: str, said: str, settings):
    with pytest.raises(ValueError) as refusal:
        read(settings(f"[generate]\n{text}"), build())
    assert said in str(refusal.value)


def test_the_command_line_wins_over_the_file(settings):
    path = settings("[generate]\nmax_new_tokens = 5\ntop-k = 7\nstop = ['a', 'b']\nchat = true")
    found = parsed(path, "--max-new-tokens", "9")
    assert (found["sampling"].max_new_tokens, found["sampling"].top_k) == (9, 7)
    assert found["sampling"].stop == ("a", "b") and found["chat"] is True


def test_a_missing_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["--config", str(tmp_path / "none.toml"), "presets"]) == 1
    assert "none.toml" in capsys.readouterr().err
