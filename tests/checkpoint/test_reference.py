"""Law 2 against the reference library: what it saved is loaded and saved back, and it reads the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from plait.checkpoint import load, save
from tests.checkpoint.making import read_folder, same_tensors

SIZE = {"vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 20}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {**SIZE, "num_key_value_heads": 3, "head_dim": 6, "tie_word_embeddings": True}),
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 40, "n_embd": 24, "n_layer": 2, "n_head": 6, "n_positions": 16}),
    "bert": ("BertForMaskedLM", {**SIZE, "max_position_embeddings": 16}),
    "t5": (
        "T5ForConditionalGeneration",
        {"vocab_size": 40, "d_model": 24, "d_kv": 5, "num_heads": 3, "num_layers": 2, "d_ff": 20},
    ),
}


def build(reference: Any, kind: str, folder: Path) -> Any:
    """A random model of the reference library, with norms and biases away from their start, saved in ``folder``."""
    name, settings = MODELS[kind]
    torch.manual_seed(1)
    config = reference.AutoConfig.for_model(kind, **settings)
    model = getattr(reference, name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", MODELS)
def test_law2_tensors_byte_for_byte_and_the_reference_reads_them(tmp_path: Path, reference: Any, kind: str) -> None:
    model = build(reference, kind, tmp_path / "a")
    checkpoint = load(tmp_path / "a")
    folder = save(checkpoint, tmp_path / "b")
    assert same_tensors(read_folder(folder), read_folder(tmp_path / "a"))
    for name in ("config.json", "generation_config.json"):
        if (tmp_path / "a" / name).exists():
            assert json.loads((folder / name).read_text()) == json.loads((tmp_path / "a" / name).read_text())
    again, report = type(model).from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    state = model.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in again.state_dict().items())


@pytest.mark.parametrize("kind", MODELS)
def test_law2_through_the_native_dialect_and_back(tmp_path: Path, reference: Any, kind: str) -> None:
    model = build(reference, kind, tmp_path / "a")
    native = load(save(load(tmp_path / "a"), tmp_path / "b", dialect="plait"))
    folder = save(native, tmp_path / "c", dialect="hf")
    assert load(folder).architecture == load(tmp_path / "a").architecture
    assert load(folder).rules == load(tmp_path / "a").rules
    again, report = type(model).from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    state = model.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in again.state_dict().items())
