"""The command line as a whole: help, mistakes, interrupts, pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from plait.cli.commands import COMMANDS, main
from plait.cli.printing import notice

HEAVY = ("torch", "numpy", "tokenizers", "sentencepiece", "huggingface_hub", "gguf", "transformers")


def run_and_list_modules(*arguments: str) -> tuple[str, set[str]]:
    code = f"from plait.cli import main; main({list(arguments)}); import sys; print('modules:', *sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    text, modules = output.split("modules:")
    return text, set(modules.split())


@pytest.mark.parametrize("arguments", [(), ("--help",), ("generate", "--help"), ("presets", "--help"), ("--version",)])
def test_pk1_help_loads_nothing_heavy(arguments: tuple[str, ...]):
    text, modules = run_and_list_modules(*arguments)
    assert text.strip()
    assert not modules.intersection(HEAVY)


@pytest.mark.parametrize(
    ("code", "limit"), [("import plait", 0.1), ("from plait.cli import main; main(['--help'])", 0.8)]
)
def test_pk1_start_up_time(code: str, limit: float):
    """In processor time, the least of five: a clock would measure the tests beside this one."""

    def seconds(program: str) -> float:
        before = os.times()
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    bare = min(seconds("pass") for _ in range(5))
    assert min(seconds(code) for _ in range(5)) - (bare if code == "import plait" else 0) < limit


def test_help_says_how_long_a_text_becomes(capsys: pytest.CaptureFixture[str]):
    from plait.generation.limits import UNBOUNDED

    main(["generate", "--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"all that its context holds, or {UNBOUNDED} where it has no limit" in text


def test_help_lists_every_command_with_its_summary():
    text, _ = run_and_list_modules("--help")
    rows = {line.split()[1]: line for line in text.splitlines() if line.startswith("│ ") and len(line.split()) > 3}
    assert set(COMMANDS) <= set(rows), "a command without a summary"


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (["generat", "x", "y"], "generate"),
        (["tokenizer", "encdoe", "x"], "encode"),
        (["generate", "x", "y", "--temprature", "1"], "--temperature"),
        (["embed", "x", "--pooling", "maen"], "mean"),
        (["presets", "--fromat", "json"], "--format"),
        (["--confg", "x", "presets"], "--config"),
    ],
)
def test_mistakes_are_one_line_with_the_nearest_name(
    arguments: list[str], nearest: str, capsys: pytest.CaptureFixture[str]
):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and "id you mean" in err and nearest in err


def test_a_prompt_without_quotes_is_told_of_them(capsys: pytest.CaptureFixture[str]):
    assert main(["generate", "x", "hi", "there", "-"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("plait: there: ") and "quote the prompt" in err and err.count("\n") == 1


def test_a_file_that_is_not_there_is_named_in_words(capsys: pytest.CaptureFixture[str]):
    assert main(["--config", "nosuch.toml", "presets"]) == 1
    assert capsys.readouterr().err == "plait: nosuch.toml: No such file or directory.\n"


def test_failures_are_one_sentence_on_stderr_and_exit_1(capsys: pytest.CaptureFixture[str]):
    assert main(["account", "no-such-preset-or-folder"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("plait: ") and err.count("\n") == 1 and "Traceback" not in err


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta", ""])
def test_a_device_that_is_not_there_is_answered_with_those_that_are(
    device: str, forced: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["generate", str(forced), "a", "--device", device]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and repr(device) in err and "there is cpu" in err


@pytest.mark.filterwarnings("default")
def test_notices_are_one_plain_line_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Of the beams that the checkpoint asks for, for one; whatever the message, and without Python's own frame."""
    from dataclasses import replace

    import plait
    from tests.cli.forced import write_checkpoint

    known = plait.load(write_checkpoint(tmp_path))
    asking = plait.save(replace(known, rules=replace(known.rules, beams=4, sample=True)), tmp_path / "asking")
    assert main(["generate", str(asking), "a"]) == 0
    out, err = capsys.readouterr()
    assert out == "bcde\n"
    assert err.startswith("plait: rules: the checkpoint asks for 4 beams") and err.count("\n") == 1
    notice("one\n  and two")
    assert capsys.readouterr() == ("", "plait: one and two\n")


def test_plait_debug_raises(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLAIT_DEBUG", "1")
    with pytest.raises(ValueError):
        main(["account", "no-such-preset-or-folder"])


def test_a_closed_pipe_is_quiet():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "plait", "presets"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.stderr == "" and done.returncode == 141


def test_a_closed_output_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """As Python starts under ``plait presets >&-``."""
    monkeypatch.setattr(sys, "stdout", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        assert main(["presets"]) == 0
        sys.stdout.close()
    assert capsys.readouterr().err == ""


def test_an_interrupt_is_quiet():
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # even where nohup ignores it
        "from plait.cli import main; print('up', flush=True); raise SystemExit(main(['tokenizer', 'encode', 'x', '-']))"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    waiting = subprocess.Popen([sys.executable, "-c", program], text=True, **pipes)
    assert waiting.stdout is not None and waiting.stdout.readline() == "up\n"
    time.sleep(1)  # by now it waits for its standard input
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=20)
    assert (waiting.returncode, err) == (130, "")
