"""Heads that classify: their labels keep their names, their class keeps its name, and files have them as published."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import plait
from plait.architecture import Architecture, Classification
from plait.families import FAMILIES, FamilyError, family_for
from plait.parameters import parameters
from tests.families.making import answer, checkpoint, opened, write
from tests.models import far

BERT: dict[str, Any] = {"model_type": "bert", "hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2}
NAMES = {"id2label": {"0": "no", "1": "so so", "2": "yes"}, "label2id": {"no": 0, "so so": 1, "yes": 2}}


def read(ending: str, **settings: Any) -> Architecture:
    config = BERT | settings | {"architectures": [f"Bert{ending}"]}
    return family_for(config).architecture(config)


def drawn(config: dict[str, Any]) -> dict[str, Tensor]:
    """Tensors for a config, under the family's usual names."""
    family = family_for(config)
    architecture = family.architecture(config)
    generator = torch.Generator().manual_seed(0)
    ours = {name: torch.randn(shape, generator=generator) for name, shape in parameters(architecture).items()}
    return dict(family.export(architecture, ours.__getitem__))


def test_labels_are_counted_as_the_class_counts_them() -> None:
    text = "ForSequenceClassification"
    assert read(text).head == Classification(labels=2, pooling="cls")  # where nothing is said
    assert read(text, num_labels=5).head == Classification(labels=5, pooling="cls")
    assert read(text, num_labels=5, **NAMES).head == Classification(labels=3, pooling="cls")  # names are believed
    assert read("ForTokenClassification", **NAMES).head == Classification(labels=3, pooling=None)
    assert read("ForQuestionAnswering").head == Classification(labels=2, pooling=None)


@pytest.mark.parametrize("names", [5, "ab", True])
def test_names_of_labels_that_are_none_are_named(names: Any) -> None:
    config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "id2label": names}
    with pytest.raises(FamilyError, match="id2label: .* is no table of the classes' names"):
        family_for(config).architecture(config)
    config |= {"id2label": None, "num_labels": "many"}
    with pytest.raises(FamilyError, match="num_labels: 'many' is no number of classes"):
        family_for(config).architecture(config)


def test_names_of_labels_survive_and_are_renewed_where_their_number_changed() -> None:
    config = BERT | NAMES | {"architectures": ["BertForSequenceClassification"], "some_setting": 3}
    family = family_for(config)
    architecture = family.architecture(config)
    assert family.config(architecture, config) == config
    deeper = family.config(architecture.replace(n_encoder_layers=4), config)
    assert deeper["id2label"] == NAMES["id2label"] and deeper["num_hidden_layers"] == 4
    more = family.config(architecture.replace(head=Classification(labels=4)), config)
    assert more["id2label"] == {str(i): f"LABEL_{i}" for i in range(4)} and more["label2id"]["LABEL_3"] == 3
    assert family.architecture(more).head == Classification(labels=4)


def test_a_class_is_written_by_its_head() -> None:
    family = family_for(BERT)
    base = BERT | {"architectures": ["BertForMaskedLM"]}
    tokens = read("ForTokenClassification")
    assert family.config(tokens, base)["architectures"] == ["BertForTokenClassification"]
    spans = BERT | {"architectures": ["BertForQuestionAnswering"]}
    assert family.config(tokens, spans) == spans  # as good as the other, and it was there
    masked = family.architecture(base)
    assert family.config(masked, spans)["architectures"] == ["BertForMaskedLM"]
    roberta = next(family for family in FAMILIES if family.name == "xlm-roberta")
    moved = read("ForSequenceClassification", **NAMES).replace(position_offset=2)
    assert roberta.config(moved)["architectures"] == ["XLMRobertaForSequenceClassification"]


def test_names_of_labels_go_along_to_another_family(reference: ModuleType, tmp_path: Path) -> None:
    model, config, _ = checkpoint(reference, "roberta-text", tmp_path / "roberta")
    moved = plait.save(plait.load(tmp_path / "roberta"), tmp_path / "xlm", dialect="xlm-roberta")
    written = json.loads((moved / "config.json").read_text())
    assert written["architectures"] == ["XLMRobertaForSequenceClassification"]
    assert written["id2label"] == config["id2label"] and written["label2id"] == config["label2id"]
    again = reference.XLMRobertaForSequenceClassification.from_pretrained(moved).eval()
    inputs = {"input_ids": torch.arange(4, 20)[None]}
    assert far(answer(again, inputs), answer(model, inputs)) < 1e-6


def test_heads_that_no_class_of_the_family_has() -> None:
    mean = read("ForSequenceClassification").replace(head=Classification(labels=2, pooling="mean"))
    with pytest.raises(FamilyError, match="bert cannot say head .*'mean'.*; it has those of BertForMaskedLM and"):
        family_for(BERT).config(mean)
    with pytest.raises(FamilyError, match="plait has no classifier_pooling 'late'; it has bos, mean"):
        config = {"model_type": "eurobert", "architectures": ["EuroBertForSequenceClassification"]}
        family_for(config).architecture(config)
    for name in ("BertForNextSentencePrediction", "BertForMultipleChoice"):
        with pytest.raises(FamilyError, match=f"no head for {name}; it has those of .* and BertForQuestionAnswering"):
            family_for(BERT).architecture(BERT | {"architectures": [name]})


def test_spans_and_tokens_differ_by_their_names() -> None:
    for ending, name in (
        ("ForQuestionAnswering", "qa_outputs.weight"),
        ("ForTokenClassification", "classifier.weight"),
    ):
        config = BERT | {"architectures": [f"Bert{ending}"]}
        stored = drawn(BERT | {"architectures": ["BertForTokenClassification"]})
        renamed = {n.replace("classifier", name.split(".")[0]): tensor for n, tensor in stored.items()}
        family, architecture, binding = opened(config, renamed)
        ours = {n: binding.read(n, renamed.__getitem__) for n in binding.entries}
        written = dict(family.export(architecture, ours.__getitem__, binding.layout))
        assert name in written and written.keys() == renamed.keys()


def test_tensors_of_other_heads_come_along() -> None:
    """A classifier that was tuned from a masked model may still carry its head, and a bare model any."""
    config = BERT | {"architectures": ["BertForTokenClassification"]}
    stored = drawn(config)
    head = {f"cls.predictions.transform.dense.{leaf}": torch.zeros(48) for leaf in ("weight", "bias")}
    _, _, binding = opened(config, stored | head)
    assert set(binding.layout.leftovers) == head.keys()
    _, architecture, binding = opened(config | {"architectures": ["BertModel"]}, stored)
    assert architecture.head is None and set(binding.layout.leftovers) == {"classifier.weight", "classifier.bias"}
    with pytest.raises(FamilyError, match="no place for 1 tensors in the file: classifier.extra"):
        opened(config, stored | {"classifier.extra": torch.zeros(3)})
    with pytest.raises(FamilyError, match="2 parameters of .* have no tensor in the file: head.output.weight"):
        opened(config, {name: tensor for name, tensor in stored.items() if "classifier" not in name})


def test_a_file_without_head_beside_a_config_with_one_is_bare(reference: ModuleType, tmp_path: Path) -> None:
    """As sentence-transformers saves it."""
    model, config, stored = checkpoint(reference, "mpnet", tmp_path / "whole")
    bare = {name.removeprefix("mpnet."): t for name, t in stored.items() if name.startswith("mpnet.")}
    write(tmp_path / "bare", config, bare)
    loaded = plait.load(tmp_path / "bare")
    assert loaded.architecture.head is None
    tokens = torch.arange(4, 20)[None]
    with torch.no_grad():
        assert far(loaded.model(tokens), model.mpnet(tokens).last_hidden_state) < 1e-5
    plait.save(loaded, tmp_path / "again")
    assert (tmp_path / "again/config.json").read_text() == (tmp_path / "bare/config.json").read_text() + "\n"
    with_prefix = {name: t for name, t in stored.items() if name.startswith("mpnet.")}
    with pytest.raises(FamilyError, match="have no tensor in the file: head.dense.weight"):
        opened(config, with_prefix)  # here something is lost


# What files on the hub have beside or instead: (recipe, names as published, settings as published)
PUBLISHED: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "gte": ("gte", {"gte.": "new."}, {"position_embedding_type": "rope", "layer_norm_type": "layer_norm"}),
    "gte-text": ("gte-text", {"gte.": "new."}, {"pack_qkv": True, "logn_attention_scale": False}),
    "gte-type": (
        "gte-tokens",
        {"gte.": "new."},
        {"model_type": "new", "auto_map": {"AutoModel": "m.NewModel"}, "architectures": ["NewForTokenClassification"]},
    ),
    "nomic": ("nomic_bert", {"nomic_bert.": "bert."}, {"qkv_proj_bias": False, "causal": False, "prenorm": False}),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_names_as_published(name: str, reference: ModuleType, tmp_path: Path) -> None:
    recipe, names, settings = PUBLISHED[name]
    model, config, stored = checkpoint(reference, recipe, tmp_path / "theirs")
    for new, old in names.items():
        stored = {n.replace(new, old, 1) if n.startswith(new) else n: t for n, t in stored.items()}
    write(tmp_path / "published", config | settings, stored)
    loaded = plait.load(tmp_path / "published")
    tokens = torch.arange(4, 20)[None]
    with torch.no_grad():
        assert far(loaded.model(tokens), answer(model, {"input_ids": tokens})) < 1e-5
    plait.save(loaded, tmp_path / "again")
    again = plait.load(tmp_path / "again")
    assert again.layout.source is not None and set(again.layout.source.names) == stored.keys()
    assert again.layout.config == config | settings


def test_nomics_own_config() -> None:
    """The configs on the hub are spelled as GPT-2's."""
    old = {"n_embd": 48, "n_layer": 2, "n_head": 6, "n_inner": 44, "n_positions": 40, "layer_norm_epsilon": 1e-3,
           "activation_function": "swiglu", "rotary_emb_base": 500, "rotary_emb_fraction": 1.0,
           "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "rotary_scaling_factor": None,
           "mlp_fc1_bias": False, "mlp_fc2_bias": False, "qkv_proj_bias": False, "use_rms_norm": False,
           "parallel_block": False, "parallel_block_tied_norm": False, "prenorm": False, "causal": False,
           "max_trained_positions": 20, "pad_vocab_size_multiple": 64, "dense_seq_output": True,
           "fused_bias_fc": True, "fused_dropout_add_ln": True, "use_flash_attn": True, "use_xentropy": True,
           "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "type_vocab_size": 2}  # fmt: skip
    new = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 44,
           "max_position_embeddings": 40, "layer_norm_eps": 1e-3, "hidden_act": "silu", "rope_theta": 500}  # fmt: skip
    family = family_for({"model_type": "nomic_bert"})
    assert family.architecture(old) == family.architecture(new) and not family.unread(old)
    for setting, value in (("qkv_proj_bias", True), ("rotary_scaling_factor", 2), ("prenorm", True), ("causal", True)):
        with pytest.raises(FamilyError, match=f"{setting}: {value} asks for what plait does not have"):
            family.architecture(old | {setting: value})
