"""convert --quantize: blocks in the native dialect, and what each matrix lost as the answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import plait
from plait.checkpoint import Checkpoint, calibrate, quantise
from plait.cli.commands import main
from tests.cli.forced import write_checkpoint

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def floats(tmp_path: Path) -> Path:
    """A checkpoint with a tokenizer whose matrices are whole groups of 32."""
    small = plait.load(write_checkpoint(tmp_path / "small"))
    architecture = small.architecture.replace(d_model=64, d_head=16, n_heads=4, n_kv_heads=4, d_ff=96)
    drawn = plait.load(architecture, random=True)
    checkpoint = Checkpoint(architecture=architecture, model=drawn.model, tokenizer=small.tokenizer)
    return plait.save(checkpoint, tmp_path / "floats", dialect="hf")


def test_the_table_says_what_was_lost_and_the_folder_holds_blocks(floats: Path, tmp_path: Path, capsys: Capture):
    assert main(["convert", str(floats), str(tmp_path / "q"), "--quantize", "int4"]) == 0
    *table, bits, empty, folder = capsys.readouterr().out.splitlines()
    assert folder == str(tmp_path / "q")
    assert empty == ""
    weights = plait.load(folder, device="meta").weights()
    blocks = [name for name in weights.names if weights.blocks(name) is not None]
    assert bits.endswith(f" bits a weight in {len(blocks)} matrices")
    assert [line.split()[0] for line in table[2:]] == blocks
    assert table[0].split() == ["matrix", "shape", "type", "bits", "error", "%"]


def test_json_is_the_report_and_calibration_is_the_functions(floats: Path, tmp_path: Path, capsys: Capture):
    text = tmp_path / "text.txt"
    text.write_text("abababab ba\n", encoding="utf-8")
    command = ["convert", str(floats), str(tmp_path / "q"), "--quantize", "int4_min", "--calibrate", str(text)]
    assert main([*command, "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["folder"] == str(tmp_path / "q")
    assert said["quantization"] == "int4_min"
    checkpoint = plait.load(floats)
    _, report = quantise(checkpoint, "int4_min", moments=calibrate(checkpoint, [text.read_text()]))
    assert [(t["name"], t["type"], t["error"], t["outputs"]) for t in said["tensors"]] == [
        (t.name, t.type, t.error, t.outputs) for t in report
    ]
    sizes = [t.shape[0] * t.shape[1] for t in report]
    assert said["bits"] == pytest.approx(sum(t.bits * n for t, n in zip(report, sizes, strict=True)) / sum(sizes))


def test_without_quantize_json_is_the_folder(floats: Path, tmp_path: Path, capsys: Capture):
    assert main(["convert", str(floats), str(tmp_path / "a"), "--to", "plait", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"folder": str(tmp_path / "a")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--to: say hf, plait, gguf or a family's name, or --quantize"),
        (["--to", "lama"], "dialect: 'lama' is not one of hf, gguf, plait, "),
        (["--to", "t5"], "t5 cannot say n_encoder_layers 0"),
        (["--to", "gguf"], "a GGUF file's name ends in .gguf"),
        (["--to", "hf", "--type", "F16"], "--type: it is of the matrices in a GGUF file; say --to gguf"),
        (["--to", "gguf", "--type", "F8"], '"F8" for --type. Choose from: "F32", "F16", "BF16", "Q8_0"'),
        (["--quantize", "int4", "--to", "gguf"], "only the native dialect holds quantised matrices; leave gguf out"),
        (["--quantize", "int4", "--to", "hf"], "only the native dialect holds quantised matrices"),
        (["--to", "hf", "--calibrate", "x"], "--calibrate: it serves --quantize"),
        (["--quantize", "int4", "--dtype", "bfloat16"], "--dtype: --quantize rounds what is stored"),
        (["--quantize", "int4", "--calibrate", "none.txt"], "none.txt: No such file"),
        (["--quantize", "int5"], '"int5" for --quantize. Choose from: "int8", "int4", "int4_min"'),
    ],
)
def test_what_does_not_go_together_is_refused(
    floats: Path, tmp_path: Path, capsys: Capture, options: list[str], message: str
):
    assert main(["convert", str(floats), str(tmp_path / "q"), *options]) in (1, 2)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "q").exists()


def test_a_gguf_file_and_another_family_are_dialects(floats: Path, tmp_path: Path, capsys: Capture):
    file = tmp_path / "x.gguf"
    assert main(["convert", str(floats), str(file), "--to", "gguf", "--type", "Q8_0"]) == 0
    assert capsys.readouterr().out == f"{file}\n"
    source = plait.load(file, device="meta").layout.source
    assert source is not None and source.stored_type("blk.0.ffn_up.weight") == "Q8_0"
    assert main(["convert", str(floats), str(file), "--to", "gguf"]) == 1
    assert "it exists; choose another name" in capsys.readouterr().err
    assert main(["convert", str(floats), str(file), "--to", "gguf", "--overwrite", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(file)}
    assert main(["convert", str(file), str(tmp_path / "m"), "--to", "mistral"]) == 0
    assert json.loads((tmp_path / "m" / "config.json").read_text())["model_type"] == "mistral"
    ours, theirs = plait.load(floats).model.state_dict(), plait.load(tmp_path / "m").model.state_dict()
    assert all(theirs[name].equal(values) for name, values in ours.items())


def test_twice_another_encoding_and_a_full_folder_are_refused(floats: Path, tmp_path: Path, capsys: Capture):
    once, twice = str(tmp_path / "once"), str(tmp_path / "twice")
    assert main(["convert", str(floats), once, "--quantize", "int8"]) == 0
    assert main(["convert", once, twice, "--quantize", "int4"]) == 1
    assert "in blocks of Q8_0 already" in capsys.readouterr().err
    assert main(["convert", str(floats), once, "--quantize", "int8"]) == 1
    assert "say --overwrite" in capsys.readouterr().err
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    assert main(["convert", str(floats), twice, "--quantize", "int4", "--calibrate", str(tmp_path / "latin.txt")]) == 1
    assert "latin.txt: this text is not UTF-8" in capsys.readouterr().err
    assert not Path(twice).exists()


def test_blocks_that_become_floats_or_other_blocks_are_told(floats: Path, tmp_path: Path, capsys: Capture):
    folder, file = str(tmp_path / "q"), str(tmp_path / "q.gguf")
    assert main(["convert", str(floats), folder, "--quantize", "int4_min"]) == 0
    assert (
        main(["convert", folder, file, "--to", "gguf"]) == main(["convert", folder, folder + "2", "--to", "plait"]) == 0
    )
    assert "--" not in capsys.readouterr().err
    assert main(["convert", file, str(tmp_path / "hf"), "--to", "hf"]) == 0
    assert "--to: hf holds no blocks; matrices in Q4_1 and Q8_0 are written in float32" in capsys.readouterr().err
    assert main(["convert", file, str(tmp_path / "x.gguf"), "--to", "gguf", "--type", "Q8_0"]) == 0
    assert "--type: matrices in Q4_1 are rounded a second time, to Q8_0" in capsys.readouterr().err
