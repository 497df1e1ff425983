"""``plait evaluate`` as a user runs it: what is printed of translations, and options that do not go together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import plait
from plait.cli.commands import main
from tests.generation.test_translate import translator

Capture = pytest.CaptureFixture[str]


@pytest.mark.filterwarnings("default::plait.checkpoint.PlaitNotice")  # a random model rarely ends
def test_translations_are_measured_and_how_is_printed(tmp_path: Path, capsys: Capture):
    """BLEU and chrF never stand without sacrebleu's signature, for people and for programs."""
    pytest.importorskip("sacrebleu", reason="sacrebleu is not installed: plait[evaluate] brings it")
    model = plait.save(translator(), tmp_path / "model", dialect="plait")
    (tmp_path / "test.en").write_text("a dog\nthe cat sat\nmice\n")
    (tmp_path / "test.de").write_text("ein hund\ndie katze\nfnord\n")
    asked = ["evaluate", str(model), "--data", str(tmp_path / "test.en"), str(tmp_path / "test.de"), "--beams", "1"]
    assert main([*asked, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["loss", "perplexity", "accuracy", "bleu", "chrf", "signatures"]
    assert "tok:13a" in found["signatures"]["bleu"] and "nc:6" in found["signatures"]["chrf"]
    (tmp_path / "test.en").write_text("a dog\n\nthe cat sat\nmice\n")
    (tmp_path / "test.de").write_text("ein hund\n\ndie katze\nfnord\n")
    assert main([*asked, "--metrics", "chrf", "bleu", "--tokenize", "char", "--max-new-tokens", "7"]) == 0
    said = capsys.readouterr()
    assert "plait: data: not all of it is measured as it stands: blank 1." in said.err
    lines = said.out.splitlines()
    assert [line.split()[0] for line in lines] == ["metric", lines[1].split()[0], "chrf", "bleu", "chrF2", "BLEU"]
    assert float(lines[2].split()[1]) == pytest.approx(found["chrf"], rel=1e-3)
    assert "tok:char" in lines[5] and lines[5].startswith("BLEU = ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "Give --data FILES or --harness TASKS, one of the two."),
        (["--data", "a.txt", "--harness", "arc_easy"], "one of the two."),
        (["--harness", "arc_easy", "--batch-rows", "4"], "--batch-rows: that is an option of --data; leave it out."),
        (["--data", "a.txt", "--limit", "4"], "--limit: that is an option of --harness; leave it out."),
        (["--data", "a.txt", "--quantize", "int8"], "--quantize: that is an option of --harness; leave it out."),
        (["--data", "none.txt"], "data: there is no "),
        (["--data", "none.txt", "--metrics", "blue"], "'blue' is not one of loss"),
    ],
)
def test_what_does_not_go_together_is_refused(options: list[str], said: str, forced: Path, capsys: Capture):
    assert main(["evaluate", str(forced), *options]) == 1
    shown = capsys.readouterr()
    assert said in shown.err and shown.err.count("\n") == 1 and not shown.out
