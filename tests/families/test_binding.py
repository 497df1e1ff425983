"""Stored names and parameters, one to one: missing prefixes, older endings, repeated tensors, what is kept aside."""

import weakref
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.families import FAMILIES, FamilyError, family_for
from plait.families.binding import alternatives
from plait.families.llama import LLAMA
from plait.parameters import parameters
from tests.families.making import checkpoint, opened


def back(config: dict, stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Read everything and write it under the names that were there; tensors kept aside are added, as a saver does."""
    family, architecture, binding = opened(config, stored)
    ours = {name: binding.read(name, stored.__getitem__) for name in binding.entries}
    written = dict(family.export(architecture, ours.__getitem__, binding.layout))
    assert not written.keys() & set(binding.layout.leftovers)
    return written | {name: stored[name] for name in binding.layout.leftovers}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_ld17_renamed_added_and_reshaped_tensors_are_errors(reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, "llama", tmp_path)
    name = "model.layers.1.mlp.up_proj.weight"

    renamed = dict(stored)
    renamed["model.layers.1.mlp.upp_proj.weight"] = renamed.pop(name)
    with pytest.raises(FamilyError, match=r"1 parameters of \d+ have no tensor.*decoder.layers.1.ffn.up.weight"):
        opened(config, renamed)
    with pytest.raises(FamilyError, match=r"llama has no place for 1 tensors.*layers.1.mlp.up_proj.bias"):
        opened(config, {**stored, "model.layers.1.mlp.up_proj.bias": torch.zeros(44)})
    with pytest.raises(FamilyError, match=r"layers.3.mlp"):
        opened(config, {**stored, "model.layers.3.mlp.up_proj.weight": stored[name]})
    _, _, binding = opened(config, stored)
    wrong = {**stored, name: stored[name].T.contiguous()}
    with pytest.raises(FamilyError, match=r"up_proj.weight: its shape is \(48, 44\); .*needs \(44, 48\)"):
        binding.read("decoder.layers.1.ffn.up.weight", wrong.__getitem__)


def test_ld17_shapes_of_fused_tensors_are_checked_too(reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, "gpt2", tmp_path)
    _, _, binding = opened(config, stored)
    name = "transformer.h.0.attn.c_attn.weight"
    with pytest.raises(FamilyError, match=r"c_attn.weight: its shape is \(144, 48\); .*needs \(48, 144\)"):
        binding.read("decoder.layers.0.attention.key.weight", {name: stored[name].T}.__getitem__)


PREFIXES = [("gpt2", "transformer."), ("bert", "bert."), ("llama-tied-biased", "model."), ("bart", "model."),
            ("gpt_neox", "gpt_neox."), ("roberta", "roberta.")]  # fmt: skip


@pytest.mark.parametrize(("recipe", "prefix"), PREFIXES)
def test_a_missing_prefix(recipe: str, prefix: str, reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, recipe, tmp_path)
    bare = {name.removeprefix(prefix): tensor for name, tensor in stored.items()}
    assert bare.keys() != stored.keys()
    _, architecture, binding = opened(config, bare)
    assert architecture == opened(config, stored)[1] and binding.layout.prefix == ""
    assert same(back(config, bare), bare)


def test_without_a_class_in_the_config_the_tensors_tell(reference: ModuleType, tmp_path: Path) -> None:
    for recipe, prefix, head in (
        ("llama", "model.", "language"),
        ("bert", "bert.", "masked"),
        ("gpt2", "transformer.", "language"),
    ):
        _, config, stored = checkpoint(reference, recipe, tmp_path / recipe)
        config = {key: value for key, value in config.items() if key != "architectures"}
        assert opened(config, stored)[1].head == head
        bare = {n.removeprefix(prefix): t for n, t in stored.items() if n.startswith(prefix)}
        expected = "language" if recipe == "gpt2" else None  # its class ties, so no head is missing
        assert opened(config, bare)[1].head == expected
        assert same(back(config, bare), bare)


def test_a_head_beside_a_model_without_one_is_kept_aside(reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, "bert", tmp_path)
    _, architecture, binding = opened(config | {"architectures": ["BertModel"]}, stored)
    assert architecture.head is None
    assert (
        [name for name in binding.layout.leftovers if name.startswith("cls.")] == list(binding.layout.leftovers) != []
    )
    assert same(back(config | {"architectures": ["BertModel"]}, stored), stored)


def test_gamma_and_beta(reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, "bert-pretraining", tmp_path)
    old = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
           for n, t in stored.items()}  # fmt: skip
    assert old.keys() != stored.keys()
    assert same(back(config, old), old)
    bare = {n.removeprefix("bert."): t for n, t in old.items()}
    assert same(back(config, bare), bare)


def test_ld11_repeated_tensors_of_bert(reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, "bert", tmp_path)
    old = stored | {
        "cls.predictions.decoder.weight": stored["bert.embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": stored["cls.predictions.bias"],
    }
    assert opened(config, old)[2].layout.duplicates.keys() == {"cls.predictions.decoder.weight", "cls.predictions.bias"}
    assert same(back(config, old), old)
    only = {n: t for n, t in old.items() if n != "cls.predictions.bias"}
    assert same(back(config, only), only)


def test_of_two_biases_that_differ_the_one_that_is_added_counts(reference: ModuleType, tmp_path: Path) -> None:
    """An untied BERT stores the bias of its class and that of its matrix; only the second is used."""
    model, config, stored = checkpoint(reference, "bert-untied", tmp_path)
    assert not torch.equal(stored["cls.predictions.decoder.bias"], stored["cls.predictions.bias"])
    _, _, binding = opened(config, stored)
    assert binding.stored("head.output.bias") == "cls.predictions.decoder.bias"
    assert binding.layout.leftovers == ("cls.predictions.bias",)
    assert torch.equal(model.cls.predictions.decoder.bias, stored["cls.predictions.decoder.bias"])
    assert same(back(config, stored), stored)


def test_two_towers_that_stored_tables_of_their_own(reference: ModuleType, tmp_path: Path) -> None:
    """An untied BART stores three tables, and uses two."""
    _, config, stored = checkpoint(reference, "bart-untied", tmp_path)
    _, architecture, binding = opened(config, stored)
    assert architecture.encoder is not None and architecture.encoder.vocab_size == 61
    assert binding.stored("source_embedding.tokens.weight") == "model.encoder.embed_tokens.weight"
    assert binding.stored("embedding.tokens.weight") == "model.decoder.embed_tokens.weight"
    assert binding.layout.leftovers == ("model.shared.weight",)
    assert same(back(config, stored), stored)


@pytest.mark.parametrize("recipe", ["t5", "t5-v1.1", "bart", "marian"])
def test_repeated_tables_of_two_towers(recipe: str, reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, recipe, tmp_path)
    prefix = "" if recipe.startswith("t5") else "model."
    table = stored[f"{prefix}shared.weight"]
    names = [f"{prefix}encoder.embed_tokens.weight", f"{prefix}decoder.embed_tokens.weight"]
    old = stored | dict.fromkeys(names, table)
    if recipe == "t5":
        old["lm_head.weight"] = table
    assert same(back(config, old), old)
    assert opened(config, old)[1] == opened(config, stored)[1]
    only = {name: t for name, t in old.items() if name != f"{prefix}shared.weight"}
    assert same(back(config, only), only)
    if recipe.startswith("t5"):
        with pytest.raises(FamilyError, match="encoder.embed_tokens.weight: it differs from shared.weight"):
            opened(config, old | {names[0]: table + 1})
    else:
        assert opened(config, old | {names[0]: table + 1})[1].encoder.vocab_size == 61


LEFTOVERS = {
    "gpt2": ["transformer.h.{i}.attn.bias", "transformer.h.{i}.attn.masked_bias"],
    "gpt_neox": ["gpt_neox.layers.{i}.attention.bias", "gpt_neox.layers.{i}.attention.masked_bias",
                 "gpt_neox.layers.{i}.attention.rotary_emb.inv_freq"],
    "llama": ["model.layers.{i}.self_attn.rotary_emb.inv_freq"],
    "bert": ["bert.embeddings.position_ids", "bert.pooler.dense.weight", "bert.pooler.dense.bias",
             "cls.seq_relationship.weight", "cls.seq_relationship.bias"],
    "roberta": ["roberta.embeddings.position_ids", "roberta.pooler.dense.weight"],
    "marian": ["model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"],
    "t5": ["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"],
    "bart": ["model.encoder.version", "model.decoder.version"],
}  # fmt: skip


@pytest.mark.parametrize("recipe", LEFTOVERS)
def test_leftovers_are_kept_by_name(recipe: str, reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, recipe, tmp_path)
    extra = {name.replace("{i}", str(i)) for name in LEFTOVERS[recipe] for i in range(2)}
    whole = stored | {name: torch.ones(1) for name in extra}
    assert opened(config, whole)[2].layout.leftovers == tuple(sorted(extra))
    assert same(back(config, whole), whole)


def test_leftovers_are_anchored(reference: ModuleType, tmp_path: Path) -> None:
    """`attn.bias` is a buffer, `c_attn.bias` a parameter: a loose pattern once ate both."""
    _, config, stored = checkpoint(reference, "gpt2", tmp_path)
    short = {name: t for name, t in stored.items() if not name.endswith("c_attn.bias")}
    with pytest.raises(FamilyError, match="3 layers|parameters of"):
        opened(config, short)
    with pytest.raises(FamilyError, match="no place for 1 tensors"):
        opened(config, {**stored, "transformer.h.0.attn.bias.extra": torch.ones(1)})


def test_pythia_under_both_names_of_its_head(reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, "gpt_neox", tmp_path)
    other = {("lm_head.weight" if n == "embed_out.weight" else n): t for n, t in stored.items()}
    assert "embed_out.weight" in stored and same(back(config, other), other)


def test_a_bias_of_logits_that_is_not_there(reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, "bart", tmp_path)
    short = {name: t for name, t in stored.items() if name != "final_logits_bias"}
    assert opened(config, stored)[1].logit_bias and not opened(config, short)[1].logit_bias
    assert same(back(config, short), short)


HEADS = LLAMA.relative(
    "heads",
    settings={"qk_norm": "per_head"},
    weights={"decoder.layers.{i}.attention.{query_norm,key_norm}": "layers.{i}.self_attn.{q,k}_layernorm.norms.{e}"},
)
NORMS = "model.layers.0.self_attn.q_layernorm.norms"


def by_head() -> tuple[Architecture, dict[str, Tensor], dict[str, Tensor]]:
    """An architecture with a norm for each head, its parameters, and how a file stores them."""
    config = {"vocab_size": 13, "hidden_size": 8, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 4,
              "num_hidden_layers": 2, "intermediate_size": 7, "model_type": "heads"}  # fmt: skip
    architecture = HEADS.architecture(config)
    ours = {name: torch.randn(shape) for name, shape in parameters(architecture).items()}
    return architecture, ours, dict(HEADS.export(architecture, ours.__getitem__))


def test_many_stored_tensors_are_one_parameter() -> None:
    architecture, ours, stored = by_head()
    assert [name for name in stored if name.startswith(NORMS)] == [f"{NORMS}.{e}.weight" for e in range(3)]
    assert "model.layers.1.self_attn.k_layernorm.norms.0.weight" in stored
    assert stored[f"{NORMS}.2.weight"].equal(ours["decoder.layers.0.attention.query_norm.weight"][2])
    binding = HEADS.bind(architecture, stored)
    assert binding.layout.leftovers == ()
    for name, value in ours.items():
        assert binding.read(name, stored.__getitem__).equal(value), name
    bare = {name.removeprefix("model."): tensor for name, tensor in stored.items()}
    back = dict(HEADS.export(architecture, ours.__getitem__, HEADS.bind(architecture, bare).layout))
    assert same(back, bare)


def test_one_of_many_that_is_missing_too_many_or_of_another_shape_is_named() -> None:
    architecture, _, stored = by_head()
    short = {name: tensor for name, tensor in stored.items() if name != f"{NORMS}.1.weight"}
    with pytest.raises(FamilyError, match=r"1 parameters of \d+ have no tensor.*layers.0.*q_layernorm.norms.1.weight"):
        HEADS.bind(architecture, short)
    with pytest.raises(FamilyError, match=r"no place for 1 tensors in the file: .*q_layernorm.norms.3.weight"):
        HEADS.bind(architecture, stored | {f"{NORMS}.3.weight": torch.zeros(4)})
    wrong = stored | {f"{NORMS}.2.weight": torch.zeros(5)}
    with pytest.raises(FamilyError, match=r"norms.2.weight: its shape is \(5,\); .*needs \(4,\)"):
        HEADS.bind(architecture, wrong).read("decoder.layers.0.attention.query_norm.weight", wrong.__getitem__)


def test_of_many_tensors_one_is_held_beside_the_parameter() -> None:
    """Each is let go before the next is read: dequantised experts would fill the memory twice."""
    architecture, _, stored = by_head()
    held: list[weakref.ref[Tensor]] = []

    def get(name: str) -> Tensor:
        assert sum(ref() is not None for ref in held) <= 1
        held.append(weakref.ref(fresh := stored[name].clone()))
        return fresh

    HEADS.bind(architecture, stored).read("decoder.layers.1.attention.query_norm.weight", get)
    assert len(held) == 3


def test_what_is_gathered_has_no_blocks_and_names_no_rows() -> None:
    architecture, ours, stored = by_head()
    binding = HEADS.bind(architecture, stored)
    assert binding.rows("decoder.layers.0.attention.query_norm.weight") is None
    assert binding.rows("decoder.layers.0.attention.query.weight") is not None


def test_alternatives() -> None:
    assert alternatives("a.{b,c}.{i}.d") == ["a.b.{i}.d", "a.c.{i}.d"]
    assert alternatives("a.{i}.b") == ["a.{i}.b"]


def test_every_family_is_found_by_its_model_types() -> None:
    for family in FAMILIES:
        for name in family.model_types:
            assert family_for({"model_type": name, "architectures": [family.classes[0]]}) is family
