"""A head that shares the table of tokens: what the config says, and what the file holds, decide together."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from plait.families import FamilyError, family_for
from plait.parameters import parameters
from tests.families.making import opened

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}
TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@functools.cache
def _stored() -> dict[str, Tensor]:
    family = family_for(CONFIG)
    architecture = family.architecture(CONFIG | {"tie_word_embeddings": True})
    torch.manual_seed(0)
    ours = {name: torch.randn(shape) for name, shape in parameters(architecture).items()}
    return dict(family.export(architecture, ours.__getitem__))


def tensors(head: str) -> dict[str, Tensor]:
    """Of a file whose head is absent, equal to the table, or different."""
    stored = dict(_stored())
    if head != "absent":
        stored[HEAD] = stored[TABLE].clone() + (head == "different")
    return stored


def config(key: bool | None) -> dict[str, Any]:
    return CONFIG | ({} if key is None else {"tie_word_embeddings": key})


def back(config: dict[str, Any], stored: dict[str, Tensor]) -> dict[str, Tensor]:
    family, architecture, binding = opened(config, stored)
    ours = {name: binding.read(name, stored.__getitem__) for name in binding.entries}
    return dict(family.export(architecture, ours.__getitem__, binding.layout))


def test_ld4_a_different_stored_head_wins() -> None:
    stored = tensors("different")
    family, architecture, binding = opened(config(True), stored)
    assert not architecture.tied
    assert torch.equal(binding.read("head.output.weight", stored.__getitem__), stored[TABLE] + 1)
    assert torch.equal(binding.read("embedding.tokens.weight", stored.__getitem__), stored[TABLE])
    assert torch.equal(back(config(True), stored)[HEAD], stored[HEAD])
    # What is saved says so, or a library that believes the flag would put the table over the head
    assert family.config(architecture, config(True)) == config(False)


CASES = {
    (None, "absent"): True,
    (None, "equal"): False,  # Llama's class default
    (None, "different"): False,
    (True, "absent"): True,
    (True, "equal"): True,
    (True, "different"): False,
    (False, "absent"): FamilyError,
    (False, "equal"): False,
    (False, "different"): False,
}


@pytest.mark.parametrize(("key", "head"), CASES)
def test_ld5_key_and_tensors_decide_together(key: bool | None, head: str) -> None:
    stored, expected = tensors(head), CASES[key, head]
    if expected is FamilyError:
        with pytest.raises(FamilyError, match="tie_word_embeddings: it is false, but the file has no lm_head.weight"):
            opened(config(key), stored)
        return
    _, architecture, binding = opened(config(key), stored)
    assert architecture.tied is expected
    assert ("head.output.weight" in binding.entries) is not expected
    written = back(config(key), stored)
    assert written.keys() == stored.keys() and all(torch.equal(written[name], stored[name]) for name in stored)


@pytest.mark.parametrize("family", ["gemma", "gpt2"])
def test_ld5_a_class_that_ties_by_default(family: str) -> None:
    """Where the key is absent, an equal head is the same tensor in a family whose class ties."""
    found = family_for({"model_type": family})
    small = {"num_attention_heads": 16, "num_hidden_layers": 1}
    stored = [found.places["embedding.tokens.weight"][0], HEAD]
    for equal in (True, False):
        a = found.architecture({"model_type": family, **small}, stored, lambda first, second, equal=equal: equal)
        assert a.tied is equal


def test_ld6_the_flag_of_a_nested_config_counts() -> None:
    nested = {**CONFIG, "text_config": {"tie_word_embeddings": True}}
    _, architecture, binding = opened(nested, tensors("absent"))
    assert architecture.tied and "head.output.weight" not in binding.entries
    contradicted = {**CONFIG, "text_config": {"tie_word_embeddings": False}}
    with pytest.raises(FamilyError, match="tie_word_embeddings: it is false, but the file has no"):
        opened(contradicted, tensors("absent"))
    assert opened({**contradicted, "tie_word_embeddings": True}, tensors("absent"))[1].tied  # the nearer one counts


def test_ld6_a_parameter_that_no_tensor_fills_is_an_error() -> None:
    family = family_for(CONFIG)
    untied = family.architecture(config(False))
    with pytest.raises(FamilyError, match=r"1 parameters? of \d+ .*head.output.weight \(lm_head.weight\)"):
        family.bind(untied, tensors("absent"))


def test_ld8_either_name_may_be_the_stored_one() -> None:
    stored = tensors("absent")
    stored[HEAD] = stored.pop(TABLE)
    _, architecture, binding = opened(config(True), stored)
    assert architecture.tied
    assert binding.stored("embedding.tokens.weight") == HEAD
    written = back(config(True), stored)
    assert written.keys() == stored.keys() and torch.equal(written[HEAD], stored[HEAD])
    with pytest.raises(FamilyError, match="it is false, but the file has no model.embed_tokens.weight"):
        opened(config(False), stored)


def test_ld9_what_is_written_says_tied() -> None:
    """The class's default is not to tie: without the key other tools would look for a head."""
    family, architecture, _ = opened(config(None), tensors("absent"))
    assert architecture.tied
    assert family.config(architecture, config(None)) == config(True)
    assert family.config(architecture)["tie_word_embeddings"] is True
    assert HEAD not in back(config(None), tensors("absent"))


def test_ld10_an_untied_equal_head_is_written_as_its_own_tensor() -> None:
    stored = tensors("equal")
    family, architecture, binding = opened(config(False), stored)
    ours = {name: binding.read(name, stored.__getitem__).clone() for name in binding.entries}
    ours["head.output.weight"] += 1
    written = dict(family.export(architecture, ours.__getitem__, binding.layout))
    assert torch.equal(written[HEAD], stored[HEAD] + 1) and torch.equal(written[TABLE], stored[TABLE])


def test_ld11_an_equal_head_is_kept_as_a_duplicate() -> None:
    stored = tensors("equal")
    _, architecture, binding = opened(config(True), stored)
    assert architecture.tied
    assert binding.layout.duplicates == {HEAD: "embedding.tokens.weight"}
    assert torch.equal(back(config(True), stored)[HEAD], stored[HEAD])


@pytest.mark.parametrize("kind", ["bart", "marian"])
def test_ld4_a_key_that_is_about_three_tables_stays(kind: str) -> None:
    """Said to be false, the reference library would look for a table of each side, and draw those at random."""
    said = {"model_type": kind, "architectures": [family_for({"model_type": kind}).classes[0]]}
    said |= {"tie_word_embeddings": True}
    family = family_for(said)
    names = {n for entry, _ in family._entries(family.architecture(said)).values() for n in entry.stored} | {HEAD}
    architecture = family.architecture(said, names, lambda first, second: False)
    assert not architecture.tied
    assert family.config(architecture, said) == said


@pytest.mark.parametrize("kind", ["bart", "marian"])
def test_ld8_a_head_that_would_be_a_third_table_is_refused(kind: str) -> None:
    """Without a head of its own the reference library takes ``shared``, also beside a decoder's table that differs."""
    shared, encoder, decoder = (
        f"model.{name}.weight" for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
    )
    family = family_for({"model_type": kind})

    def read(
        *apart: str, names: tuple[str, ...] = (shared, encoder, decoder), name: str = family.classes[0], **more: Any
    ) -> Any:
        def equal(first: str, second: str) -> bool:
            return first == second or (first not in apart and second not in apart)

        return family.architecture({"model_type": kind, "architectures": [name], **more}, names, equal)

    message = f"{decoder}: it differs from {shared}, which is the head where no {HEAD} is stored"
    for apart in ((decoder,), (encoder, decoder)):
        with pytest.raises(FamilyError, match=message):
            read(*apart)
    assert read(encoder).encoder.vocab_size, "the decoder's table is the shared one, and the head"
    assert not read(decoder, names=(shared, encoder, decoder, HEAD)).tied
    assert read(decoder, name=family.classes[1]).head is None, "no head to mistake"
    assert read().tied
    if kind == "marian":
        assert read(decoder, share_encoder_decoder_embeddings=False).tied, "then the head is the decoder's table"


REPEATED = {
    "bart": {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"},
    "marian": {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"},
    "t5": {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"},
    "bert": {"cls.predictions.bias"},
    "roberta": {"lm_head.bias"},
    "gpt_neox": set[str](),  # whose class never shares
}


@pytest.mark.parametrize("kind", REPEATED)
def test_ld10_an_untied_file_that_is_new_has_every_tensor_by_its_own_name(kind: str) -> None:
    family = family_for({"model_type": kind})
    for tied in (True, False):
        architecture = family.architecture({"model_type": kind, "tie_word_embeddings": tied})
        own = {n for entry, _ in family._entries(architecture).values() for n in entry.stored}
        shapes = parameters(architecture)
        written = {
            name for name, _ in family.export(architecture, lambda n, s=shapes: torch.empty(s[n], device="meta"))
        }
        assert written - own == (set() if tied else REPEATED[kind])
