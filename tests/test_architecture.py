"""Architecture: what is refused and in which words, exact written forms, copies that derive anew."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given

from plait.architecture import (
    Architecture,
    ArchitectureError,
    Classification,
    EncoderDifferences,
    LayerType,
    RelativeBias,
    Rope,
    RopeScaling,
    Sinusoid,
)
from tests.strategies import architectures, over_grid

PLAIN: dict[str, Any] = dict(vocab_size=32, d_model=16, n_heads=4, d_ff=32, n_decoder_layers=4)
LENGTH = {"original_max_length": 8}

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"norm": "layernrm"}, r"norm: 'layernrm' is not one of .* \(did you mean 'layernorm'\?\)"),
    ({"d_ff": 0}, "d_ff: 0 does not fit; give at least 1"),
    (
        {"attention_scale": 0.0},
        r"attention_scale: 0.0 does not fit; give a positive number, or none for d_head \*\* -0.5",
    ),
    ({"attention_scale": -1.0}, "attention_scale: -1.0 does not fit"),
    ({"gated": 1}, "gated: 1 is not true or false"),
    ({"vocab_size": 3.5}, "vocab_size: 3.5 is not a whole number"),
    ({"norm_eps": float("nan")}, "norm_eps: nan is not a number"),
    ({"n_heads": 5}, "n_heads: 5 does not divide d_model 16"),
    ({"n_kv_heads": 3}, "n_kv_heads: 3 does not divide the 4 heads of the decoder"),
    ({"n_decoder_layers": 0}, "leave no tower"),
    ({"position": "learned"}, "max_length: learned positions need a table"),
    ({"rope": Rope()}, "rope: .* goes with position 'rope'"),
    ({"position": "rope", "rope": {"dim": 3}}, "rope.dim: 3 dimensions cannot be paired"),
    ({"position": "rope", "rope": {"dim": 6}}, "rope.dim: 6 dimensions cannot turn in a head of 4"),
    ({"position": "rope", "rope": {"theta": 1.0}}, "rope.theta: 1.0 must exceed 1"),
    (
        {"position": "rope", "rope": {"scaling": {"kind": "yarn"}}},
        "'yarn' scaling needs the length",
    ),
    ({"position": "rope", "rope": {"scaling": {"kind": "dynamic", "original_max_length": -5}}}, "-5 is no length"),
    ({"position": "rope", "rope": {"scaling": {"kind": "longrope", **LENGTH}}}, "needs short_factor and long_factor"),
    (
        {"position": "rope", "rope": {"scaling": {"kind": "llama3", "low_freq_factor": 5.0, **LENGTH}}},
        "high_freq_factor: 4.0 must exceed low_freq_factor, 5.0",
    ),
    ({"position": "rope", "rope": {"dim": 2, "scaling": {"kind": "dynamic", **LENGTH}}}, "more than one pair"),
    ({"n_decoder_layers": 2**40}, "n_decoder_layers: 1099511627776 does not fit; give 100000 at most"),
    ({"n_encoder_layers": 100_001}, "n_encoder_layers: 100001 does not fit; give 100000 at most"),
    *(
        ({name: size}, f"^{name}: {size} is more than any table holds; give 1099511627776 at most")
        for name in ("vocab_size", "d_model", "d_ff", "n_heads", "d_head", "n_kv_heads", "d_embedding")
        for size in (10**30, 2**63)
    ),
    ({"n_encoder_layers": 1, "encoder": {"d_ff": 2**63}}, f"^encoder.d_ff: {2**63} is more than"),
    ({"experts": {"n_experts": 2**63, "per_token": 1, "d_expert": 1}}, f"^experts.n_experts: {2**63} is more than"),
    ({"head": {"labels": 2**63}}, f"^head.labels: {2**63} is more than"),
    ({"vocab_size": 2**37}, "^vocab_size, d_embedding: 137438953472 times 16 is more than any table holds"),
    ({"position": "learned", "max_length": 10**30}, "^max_length, d_embedding: 10* times 16 is more than"),
    (
        {"experts": {"n_experts": 2**20, "per_token": 1, "d_expert": 2**20}},
        "^experts.n_experts, experts.d_expert, d_model: 1048576 times 1048576 times 16 is more than",
    ),
    ({"n_encoder_layers": 1, "encoder": {"d_head": 2**38}}, "^encoder.n_heads, encoder.d_head, d_model: 4 times"),
    ({"norm_eps": 10**400}, "norm_eps: 10* is not a number"),
    ({"layer_types": [{"window": 0}]}, "lets a token see nothing"),
    ({"layer_types": [{"window": 2}] * 3 + [{}] * 2}, "there are 4 layers"),
    ({"layer_types": [{"rope": {}}]}, "a rotation needs position 'rope'"),
    ({"relative_bias": {"buckets": 7}}, "relative_bias.buckets: 7 cannot be halved"),
    ({"head": "masked"}, "only an encoder takes a masked head"),
    ({"head": None, "tied": True}, "it belongs to a head over the vocabulary"),
    ({"d_embedding": 8, "tied": True}, "a head_transform must bridge them"),
    ({"norm": "rmsnorm", "norm_bias": True}, "an rmsnorm has no bias"),
    ({"parallel": "shared", "norm_placement": "post"}, "parallel blocks take norm_placement 'pre'"),
    ({"token_types": 2}, "only an encoder reads token types"),
    ({"encoder": {"d_ff": 8}}, "only an encoder-decoder's encoder can differ"),
    ({"n_encoder_layers": 2, "encoder": {"n_heads": 0}}, "encoder.n_heads: 0 is not positive"),
    ({"position": "sinusoidal", "d_embedding": 2, "sinusoid": {"denominator": "half_minus_one"}}, "a width from 4"),
]


@pytest.mark.parametrize(("knobs", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_a_mistake_is_refused_where_it_is_written(knobs: dict[str, Any], words: str) -> None:
    with pytest.raises(ArchitectureError, match=words):
        Architecture.from_dict({**PLAIN, **{k: v if isinstance(v, Rope) else v for k, v in knobs.items()}})


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"vocab_sizes": 3}, "vocab_sizes: there is no such field; did you mean 'vocab_size'"),
        ({"rope": {"thetta": 3}}, "thetta: there is no such field in rope; did you mean 'theta'"),
        ({"rope": {"scaling": {"kind": "linear", "facter": 2.0}}}, "facter: .* in rope.scaling; did you mean 'factor'"),
        ({"rope": 7}, "rope: 7 is not"),
    ],
)
def test_cf1_an_unknown_key_is_refused_at_every_level(knobs: dict[str, Any], words: str) -> None:
    with pytest.raises(ArchitectureError, match=words):
        Architecture.from_dict({**PLAIN, "position": "rope", **knobs})


def test_cf1_a_key_that_stands_twice_is_refused() -> None:
    with pytest.raises(ArchitectureError, match="d_ff: this key stands twice"):
        Architecture.from_json('{"vocab_size": 3, "d_model": 4, "d_ff": 5, "d_ff": 6, "n_heads": 1}')
    with pytest.raises(ArchitectureError, match="not TOML"):
        Architecture.from_toml("d_ff = 5\nd_ff = 6\n")
    for text in ("{", "[1]"):
        with pytest.raises(ArchitectureError, match="not JSON|not a table"):
            Architecture.from_json(text)


def check_written(architecture: Architecture) -> None:
    assert Architecture.from_toml(architecture.to_toml()) == architecture
    assert Architecture.from_json(architecture.to_json()) == architecture
    assert Architecture.from_dict(architecture.to_dict()) == architecture
    assert architecture.replace() == architecture and hash(architecture.replace()) == hash(architecture)


@over_grid
def test_written_and_read_back_it_is_the_same(architecture: Architecture) -> None:
    check_written(architecture)


@given(architecture=architectures())
def test_written_and_read_back_it_is_the_same_anywhere(architecture: Architecture) -> None:
    check_written(architecture)


def test_what_follows_from_a_changed_field_follows_anew() -> None:
    plain = Architecture(**PLAIN)
    wider = plain.replace(d_model=32, n_heads=8, norm="rmsnorm")
    assert (wider.n_kv_heads, wider.d_head, wider.d_embedding, wider.norm_bias) == (8, 4, 32, False)
    chosen = Architecture(**PLAIN, n_kv_heads=2, attention_scale=1.0).replace(n_heads=8)
    assert (chosen.n_kv_heads, chosen.attention_scale, chosen.d_head) == (2, 1.0, 2)
    turned = plain.replace(position="rope")
    assert turned.rope == Rope() and turned.replace(position="none").rope is None


def test_the_difference_names_only_what_differs() -> None:
    plain = Architecture(**PLAIN)
    assert plain.difference(plain.replace(tied=True)) == {"tied": (False, True)}
    assert plain.difference(plain) == {}


def test_layer_types_are_one_however_they_are_written() -> None:
    local, full = LayerType(window=3), LayerType()
    short = Architecture(**PLAIN, layer_types=(local, full))
    assert short == Architecture(**PLAIN, layer_types=(local, full, local, full)) and short.layer_types == (local, full)
    assert Architecture(**PLAIN, layer_types=(full, full)) == Architecture(**PLAIN)
    assert [layer.window for layer in short.towers[0].layers] == [3, None, 3, None]
    uneven = Architecture(**PLAIN, layer_types=(local, local, full, local))
    assert len(uneven.layer_types) == 3, "the fourth is the first again"


def test_an_encoder_may_differ_from_its_decoder() -> None:
    both = Architecture(**PLAIN, n_encoder_layers=2, encoder=EncoderDifferences(n_heads=2, d_head=8, vocab_size=9))
    encoder, decoder = both.towers
    assert (encoder.n_heads, encoder.n_kv_heads, encoder.d_head, encoder.attention_scale) == (2, 2, 8, 8**-0.5)
    assert (decoder.n_heads, decoder.d_head, decoder.cross, encoder.causal) == (4, 4, True, False)
    assert both.source_vocab_size == 9 and not both.shares_embedding


def test_records_cannot_be_changed_in_place() -> None:
    for record in (Architecture(**PLAIN), Rope(), Sinusoid(), RelativeBias(), Classification(labels=2), LayerType()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, dataclasses.fields(record)[0].name, 1)
    with pytest.raises(ArchitectureError, match="0 classes"):
        Classification(labels=0)
    assert RopeScaling(kind="linear", factor=2).factor == 2.0
