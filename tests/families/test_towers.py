"""Encoder-decoders as they are published: what older files leave out or over, and a language to translate into."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import plait
from plait.architecture import Sinusoid
from plait.families import FamilyError, family_for
from plait.model.position import sinusoids
from tests.families.making import answer, build, opened, read, write
from tests.families.recipes import RECIPES
from tests.models import far

TOKENS = torch.tensor([[4, 9, 31, 7, 22, 50, 13, 8, 44, 5]])
FLIPPED: dict[str, Any] = {"input_ids": TOKENS.flip(1), "decoder_input_ids": TOKENS, "use_cache": False}
HEAD, TABLE = "model.decoder.output_projection.weight", "model.decoder.embed_tokens.weight"


def test_fsmts_head_may_be_left_out_whatever_the_flag_says(reference: ModuleType, tmp_path: Path) -> None:
    """Version 4 always shared it with the decoder's table, beside a flag that says false, and wrote one of them."""
    theirs = build(reference, "fsmt")
    theirs.model.decoder.output_projection.weight = torch.nn.Parameter(theirs.model.decoder.embed_tokens.weight.clone())
    theirs.save_pretrained(tmp_path / "whole")
    config, tensors = read(tmp_path / "whole")
    assert config["tie_word_embeddings"] is False
    decoder = {"decoder": {"bos_token_id": 2, "model_type": "fsmt_decoder", "vocab_size": 53}}
    short = {name: tensor for name, tensor in tensors.items() if name != HEAD}
    write(tmp_path / "old", config | decoder, short)
    checkpoint = plait.load(tmp_path / "old")
    assert checkpoint.architecture.tied and checkpoint.architecture.source_vocab_size == 61
    with torch.no_grad():
        assert far(checkpoint.model(TOKENS, source=TOKENS.flip(1)), answer(theirs, FLIPPED)) < 1e-4
    plait.save(checkpoint, tmp_path / "back")
    assert read(tmp_path / "back")[0] == config | decoder and read(tmp_path / "back")[1].keys() == short.keys()

    # A new file is one that version 5 reads, which draws a head that it does not find
    family, architecture, binding = opened(config, short)
    ours = {name: binding.read(name, short.__getitem__) for name in binding.entries}
    new = dict(family.export(architecture, ours.__getitem__))
    assert torch.equal(new[HEAD], new[TABLE])
    write(tmp_path / "new", family.config(architecture, {"pad_token_id": 0}), new)
    again = reference.FSMTForConditionalGeneration.from_pretrained(tmp_path / "new").eval()
    with torch.no_grad():
        assert torch.equal(answer(again, FLIPPED), answer(theirs, FLIPPED))


LEFTOVERS = {
    "m2m_100": ["model.encoder.embed_positions.weights", "model.decoder.embed_positions.weights"],
    "pegasus": ["model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"],
    "mbart": ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"],
    "umt5": ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"],
    "t5-encoder": ["decoder.block.0.layer.0.SelfAttention.q.weight", "lm_head.weight", "encoder.embed_tokens.weight"],
    "t5gemma": ["lm_head.out_proj.weight"],
}


def fixed(rows: int, width: int) -> Tensor:
    """Marian's table."""
    return sinusoids(torch.arange(rows), width, Sinusoid(layout="halves"))


TABLES = {  # a stored table of positions of each family whose class looks at it, in the float32 angles of its own code
    "marian": "model.decoder.embed_positions.weight",
    "pegasus": "model.encoder.embed_positions.weight",
    "fsmt": "model.decoder.embed_positions.weight",
}


@pytest.mark.parametrize("recipe", TABLES)
def test_stored_sinusoids_are_compared(recipe: str, reference: ModuleType, tmp_path: Path) -> None:
    """The class adds what is stored, and plait what it computes: they must be the same, to the rounding of the file."""
    theirs, name = build(reference, recipe), TABLES[recipe]
    theirs.save_pretrained(tmp_path / "saved")
    config, tensors = read(tmp_path / "saved")
    own = theirs.get_parameter(name).detach()
    assert recipe != "fsmt" or not own[config["pad_token_id"]].any()  # padding's row, which is no sinusoid
    for kind in (torch.float32, torch.bfloat16, torch.float16):
        same = {stored: tensor.to(kind) for stored, tensor in (tensors | {name: own}).items()}
        write(tmp_path / "same", config, same)
        checkpoint = plait.load(tmp_path / "same", dtype="float32")
        plait.save(checkpoint, tmp_path / "back", overwrite=True)
        assert torch.equal(read(tmp_path / "back")[1][name], same[name])
    for row in (3, len(own) - 1):
        other = own.clone()
        other[row] += 0.02
        write(tmp_path / "other", config, tensors | {name: other})
        for lazy in (False, True):
            with pytest.raises(plait.CheckpointError, match=f"{name}: it differs from the sinusoids .* by 0.02"):
                plait.load(tmp_path / "other", lazy=lazy)
        assert plait.load(tmp_path / "other", device="meta").architecture.position == "sinusoidal"
        again = type(theirs).from_pretrained(tmp_path / "other")
        assert torch.equal(again.get_parameter(name), other), "the class takes what is stored"
    write(tmp_path / "narrow", config, tensors | {name: own[:, :6].clone()})
    with pytest.raises(plait.CheckpointError, match=rf"{name}: it is F32 of shape .*; .* has rows of 48 numbers"):
        plait.load(tmp_path / "narrow")


def test_a_long_table_of_sinusoids_is_compared_here_and_there(reference: ModuleType, tmp_path: Path) -> None:
    marian = RECIPES["marian"]
    theirs = build(reference, replace(marian, settings=marian.settings | {"max_position_embeddings": 5000}))
    theirs.save_pretrained(tmp_path / "saved")
    config, tensors = read(tmp_path / "saved")
    name = TABLES["marian"]
    write(tmp_path / "same", config, tensors | {name: theirs.get_parameter(name).detach()})
    assert plait.load(tmp_path / "same").architecture.max_length == 5000
    write(tmp_path / "trained", config, tensors | {name: torch.randn(5000, 48)})
    with pytest.raises(plait.CheckpointError, match=f"{name}: it differs from the sinusoids"):
        plait.load(tmp_path / "trained")


def test_m2m_100s_class_looks_at_no_stored_table(reference: ModuleType, tmp_path: Path) -> None:
    theirs, name = build(reference, "m2m_100"), "model.encoder.embed_positions.weights"
    theirs.save_pretrained(tmp_path / "saved")
    config, tensors = read(tmp_path / "saved")
    write(tmp_path / "more", config, tensors | {name: torch.ones(42, 48)})
    again = type(theirs).from_pretrained(tmp_path / "more").eval()
    with torch.no_grad():
        assert torch.equal(answer(again, FLIPPED), answer(theirs, FLIPPED))
        assert far(plait.load(tmp_path / "more").model(TOKENS, source=TOKENS.flip(1)), answer(theirs, FLIPPED)) < 1e-4


@pytest.mark.parametrize("recipe", LEFTOVERS)
def test_what_published_files_have_besides(recipe: str, reference: ModuleType, tmp_path: Path) -> None:
    build(reference, recipe).save_pretrained(tmp_path / "saved")
    config, tensors = read(tmp_path / "saved")
    table = next(t for name, t in tensors.items() if name.endswith(("shared.weight", "decoder.embed_tokens.weight")))
    repeats = ("embed_tokens.weight", "lm_head.weight", "out_proj.weight")
    more = {n: table if n.endswith(repeats) else torch.ones(3, 48) for n in LEFTOVERS[recipe] if n not in tensors}
    more |= {name: fixed(3, 48) for name in more if name.endswith("embed_positions.weight")}
    write(tmp_path / "more", config, tensors | more)
    checkpoint = plait.load(tmp_path / "more")
    assert checkpoint.architecture == plait.load(tmp_path / "saved").architecture
    plait.save(checkpoint, tmp_path / "back")
    back = read(tmp_path / "back")[1]
    assert back.keys() == tensors.keys() | more.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in (tensors | more).items())


def test_an_mt5_of_version_4(reference: ModuleType) -> None:
    """Its flag is false, its head is stored, its logits are not scaled; a stored head wins over version 5's true."""
    old = {"model_type": "mt5", "architectures": ["MT5ForConditionalGeneration"], "d_model": 48, "d_ff": 44}
    old |= {"num_heads": 6, "d_kv": 8, "num_layers": 2, "vocab_size": 61, "tie_word_embeddings": False}
    old |= {"tokenizer_class": "T5Tokenizer", "output_past": True, "relative_attention_num_buckets": 32}
    family = family_for(old)
    for flag in (True, False):
        said = old | {"tie_word_embeddings": flag}
        a = family.architecture(said, ["shared.weight", "lm_head.weight"], lambda one, other: False)
        assert (a.tied, a.logit_scale, a.activation, a.gated) == (False, 1.0, "gelu_tanh", True)
        assert family.unread(said) == ()
    assert family_for(old | {"model_type": "umt5"}).architecture(old | {"model_type": "umt5"}).logit_scale == 1.0
    with pytest.raises(FamilyError, match="tie_word_embeddings: it is false, but the file has no lm_head.weight"):
        family.architecture(old, ["shared.weight"], lambda one, other: False)


PUBLISHED = {
    # settings that published configs of these families carry, beside those that the class of today writes
    "mbart": {"normalize_before": True, "add_final_layer_norm": True, "add_bias_logits": False, "output_past": True},
    "pegasus": {"normalize_before": True, "normalize_embedding": False, "static_position_embeddings": True}
    | {"extra_pos_embeddings": 1, "add_final_layer_norm": True, "force_bos_token_to_be_generated": False},
    "blenderbot": {"do_blenderbot_90_layernorm": True, "extra_layer_norm": False, "layernorm_variant": "prelayernorm"}
    | {"normalize_before": True, "static_position_embeddings": False, "encoder_no_repeat_ngram_size": 3},
    "fsmt": {"langs": ["en", "de"], "decoder": {"vocab_size": 42024}, "num_hidden_layers": 12},
    "m2m_100": {"early_stopping": True, "num_beams": 5, "max_length": 200, "tokenizer_class": "NllbTokenizer"},
    "plbart": {"normalize_before": False, "add_final_layer_norm": False, "extra_pos_embeddings": 2},
    "umt5": {"output_past": True, "scalable_attention": True, "classifier_dropout": 0.0},
}


@pytest.mark.parametrize("kind", PUBLISHED)
def test_settings_of_published_configs_are_known(kind: str) -> None:
    config = {"model_type": kind, **PUBLISHED[kind]}
    family = family_for(config)
    assert family.architecture(config) == family.architecture({"model_type": kind})
    assert family.unread(config) == ()


def test_a_language_to_translate_into(reference: ModuleType, tmp_path: Path) -> None:
    """M2M-100 and mBART-50 are told it as the first token that the decoder writes."""
    theirs = build(reference, "m2m_100")
    theirs.generation_config.eos_token_id = theirs.config.eos_token_id = None
    theirs.save_pretrained(tmp_path)
    checkpoint = plait.load(tmp_path)
    source = TOKENS[0].tolist()
    settings = {"do_sample": False, "num_beams": 1, "max_new_tokens": 6}
    expected = theirs.generate(TOKENS, attention_mask=torch.ones_like(TOKENS), forced_bos_token_id=17, **settings)[0]
    told = replace(checkpoint, rules=replace(checkpoint.rules, forced_first=17))
    ours = plait.generate(told, source, max_new_tokens=6, temperature=0, ignore_end=True, beams=1)
    assert ours.tokens == expected[1:].tolist() and ours.tokens[0] == 17
