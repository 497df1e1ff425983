from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import plait
from plait.checkpoint import CheckpointError, SentencePooling, load, save
from plait.checkpoint.pooling import pooling_from_gguf, read_sentence_folder, sentence_files
from tests.checkpoint.making import logits, snapshot, write_llama
from tests.families.making import build
from tests.families.recipes import RECIPES
from tests.models import far

KIND = "sentence_transformers.models."


def write_modules(folder: Path, *kinds: tuple[str, str], **pooling: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    modules = [{"idx": i, "name": str(i), "path": path, "type": KIND + kind} for i, (kind, path) in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16, **pooling}))


def test_the_real_folder(minilm: Path) -> None:
    checkpoint = load(minilm)
    assert checkpoint.pooling == SentencePooling(pooling="mean", normalize=True, max_length=256)
    assert checkpoint.architecture.kind == "encoder"
    assert checkpoint.tokenizer is not None


def test_the_real_folder_saved_back_is_the_same_to_the_byte(tmp_path: Path, minilm: Path) -> None:
    before, after = snapshot(minilm), snapshot(save(load(minilm), tmp_path / "a"))
    assert before.keys() - after.keys() == {".gitattributes", "README.md", "data_config.json"}
    assert after == {name: before[name] for name in after}


@pytest.mark.parametrize("number", [[1], "mean", 1.0, {}])
def test_a_pooling_of_gguf_is_a_number(number: Any) -> None:
    with pytest.raises(CheckpointError, match="bert.pooling_type: .* is no kind of pooling; give a number from 0 to 4"):
        pooling_from_gguf({"bert.pooling_type": number}, "bert")


ENCODERS = ("albert", "camembert", "distilbert", "electra-bare", "eurobert-bare", "gte-bare", "jina_embeddings_v3-bare",
            "modernbert-bare", "mpnet", "nomic_bert-bare", "xlm-roberta")  # fmt: skip


@pytest.mark.parametrize("recipe", ENCODERS)
def test_a_folder_of_every_encoder(recipe: str, reference: ModuleType, tmp_path: Path) -> None:
    """The bare model, beside a config that may still name the class with a head, as sentence-transformers saves it."""
    model = build(reference, recipe).base_model
    model.save_pretrained(tmp_path / "a")
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    (tmp_path / "a" / "config.json").write_text(
        json.dumps(config | {"architectures": [RECIPES[recipe].model]}, indent=2)
    )
    kinds = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
    write_modules(tmp_path / "a", *kinds, pooling_mode_mean_tokens=True)
    checkpoint = load(tmp_path / "a")
    texts = [[4, 9, 31, 7], [22, 50, 13, 8, 44, 5, 17]]
    with torch.no_grad():
        pooled = [model(torch.tensor([text])).last_hidden_state.mean(1) for text in texts]
    expected = torch.nn.functional.normalize(torch.cat(pooled))
    assert far(plait.embed(checkpoint, texts), expected) < 1e-5
    assert far(plait.embed(checkpoint, texts, runner=plait.optimize(checkpoint)), expected) < 1e-5
    save(checkpoint, tmp_path / "b")
    before, after = ({**snapshot(tmp_path / name)} for name in ("a", "b"))
    assert json.loads(after.pop("config.json")) == json.loads(before.pop("config.json"))
    assert after == before


@pytest.mark.parametrize(
    ("flag", "mode"),
    [("pooling_mode_cls_token", "cls"), ("pooling_mode_mean_tokens", "mean"), ("pooling_mode_lasttoken", "last")],
)
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("inner", ["", "0_Transformer"])
def test_pooling_is_read_and_saved_where_it_lay(
    tmp_path: Path, flag: str, mode: Any, normalize: bool, inner: str
) -> None:
    folder = tmp_path / "a"
    kinds = [("Transformer", inner), ("Pooling", "1_Pooling"), *([("Normalize", "2_Normalize")] if normalize else [])]
    write_modules(folder, *kinds, **{flag: True, "pooling_mode_max_tokens": False})
    write_llama(folder / inner)
    (folder / inner / "sentence_bert_config.json").write_text('{"max_seq_length": 12}')
    checkpoint = load(folder)
    assert checkpoint.pooling == SentencePooling(pooling=mode, normalize=normalize, max_length=12)
    again = save(checkpoint, tmp_path / "b")
    assert snapshot(again).keys() == snapshot(folder).keys()
    read = load(again)
    assert read.pooling == checkpoint.pooling
    assert torch.equal(logits(read), logits(checkpoint))


@pytest.mark.parametrize("changed", [None, SentencePooling(pooling="cls", max_length=9)])
@pytest.mark.parametrize("over_itself", [False, True])
def test_another_pooling_takes_the_transformer_out_of_its_folder(
    tmp_path: Path, changed: SentencePooling | None, over_itself: bool
) -> None:
    folder = tmp_path / "a"
    write_modules(folder, ("Transformer", "0_Transformer"), ("Pooling", "1_Pooling"), pooling_mode_mean_tokens=True)
    write_llama(folder / "0_Transformer")
    checkpoint = load(folder)
    target = folder if over_itself else tmp_path / "b"
    again = load(save(dataclasses.replace(checkpoint, pooling=changed), target, overwrite=True))
    assert again.pooling == changed
    assert torch.equal(logits(again), logits(checkpoint))
    assert (target / "model.safetensors").exists() and not (target / "0_Transformer" / "model.safetensors").exists()


def test_random_weights_for_an_inner_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    write_modules(folder, ("Transformer", "0_Transformer"), ("Pooling", "1_Pooling"), pooling_mode_mean_tokens=True)
    write_llama(folder / "0_Transformer")
    drawn = load(folder, random=True)
    assert drawn.pooling == SentencePooling(pooling="mean")
    again = save(drawn, tmp_path / "b")
    assert snapshot(again).keys() == snapshot(folder).keys()
    assert torch.equal(logits(load(again)), logits(drawn))


def test_the_newer_spelling(tmp_path: Path) -> None:
    write_modules(tmp_path, ("Transformer", ""), ("Pooling", "1_Pooling"), pooling_mode="cls")
    found = read_sentence_folder(tmp_path)
    assert found is not None
    assert found.pooling == SentencePooling(pooling="cls")


@pytest.mark.parametrize(
    "pooling", [SentencePooling(pooling="last", normalize=True, max_length=9), SentencePooling(pooling="cls")]
)
def test_pooling_that_came_from_nowhere_is_written(tmp_path: Path, pooling: SentencePooling) -> None:
    for name, data in sentence_files(pooling).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    found = read_sentence_folder(tmp_path)
    assert found is not None
    assert found.pooling == pooling


@pytest.mark.parametrize(
    ("kinds", "pooling", "message"),
    [
        ([("Transformer", ""), ("Pooling", "1_Pooling")], {"pooling_mode_max_tokens": True}, "not by pooling_mode_max"),
        (
            [("Transformer", ""), ("Pooling", "1_Pooling")],
            {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
            "not by pooling_mode_cls_token and pooling_mode_mean_tokens",
        ),
        ([("Transformer", ""), ("Pooling", "1_Pooling")], {}, "not by nothing"),
        ([("Transformer", ""), ("Dense", "2_Dense")], {}, "plait has no module 'Dense'"),
        ([("Transformer", "")], {}, "lists no Pooling"),
        ([("Transformer", "../other"), ("Pooling", "1_Pooling")], {"pooling_mode": "cls"}, "leads out of the folder"),
    ],
)
def test_what_is_not_there_is_named(tmp_path: Path, kinds: Any, pooling: Any, message: str) -> None:
    write_modules(tmp_path, *kinds, **pooling)
    with pytest.raises(CheckpointError, match=message):
        read_sentence_folder(tmp_path)
