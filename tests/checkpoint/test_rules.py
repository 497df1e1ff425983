from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from plait.checkpoint import CheckpointError, DecodeRules, PlaitNotice
from plait.checkpoint.opening import describe
from plait.checkpoint.rules import generation_config, read_rules, rules_from_dict, rules_from_gguf
from plait.families import FAMILIES, family_for


@dataclass
class Words:
    eos: int | None = None
    bos: int | None = None
    pad: int | None = None


def rules(config: dict[str, Any], generation: dict[str, Any] | None = None, words: Any = None) -> DecodeRules:
    family = family_for(config)
    return read_rules(config, generation, words, ids=family.ids, starts_with_pad=family.starts_with_pad)


@pytest.mark.parametrize(
    ("config", "generation", "words", "expected"),
    [
        ({"eos_token_id": 1}, None, None, (1,)),
        ({"eos_token_id": [1, 6]}, None, None, (1, 6)),
        ({"eos_token_id": 1}, {"eos_token_id": 6}, None, (6, 1)),
        ({"eos_token_id": 1}, {"eos_token_id": [6, 7]}, Words(eos=8), (6, 7, 1, 8)),
        ({"eos_token_id": [1]}, {"eos_token_id": None}, Words(eos=1), (1,)),
        ({"eos_token_id": None}, {"eos_token_id": None}, None, ()),
        ({}, {}, Words(eos=0), (0,)),
    ],
)
def test_ge1_end_ids_are_the_union_of_all_that_is_written(
    config: Any, generation: Any, words: Any, expected: tuple[int, ...]
) -> None:
    assert rules({"model_type": "qwen2", **config}, generation, words).end == expected


def test_ge1_a_class_default_counts_only_where_nothing_is_written() -> None:
    assert rules({"model_type": "llama"}).end == (2,)
    assert rules({"model_type": "llama"}, {"eos_token_id": [1, 6]}).end == (1, 6)
    assert rules({"model_type": "llama", "eos_token_id": None}).end == ()
    assert rules({"model_type": "llama"}, None, Words(eos=9)).end == (9,)


def test_ge1_ends_of_a_gguf_header() -> None:
    metadata = {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.eot_token_id": 7}
    assert rules_from_gguf(metadata) == DecodeRules(bos=1, end=(2, 7))
    assert rules_from_gguf({**metadata, "tokenizer.ggml.eom_token_id": 2}).end == (2, 7)
    assert rules_from_gguf({}) == DecodeRules()


def test_starts_of_encoder_decoders() -> None:
    assert rules({"model_type": "t5", "pad_token_id": 0, "eos_token_id": 1}).start == 0
    marian = rules({"model_type": "marian", "pad_token_id": 58100, "eos_token_id": 0, "bad_words_ids": [[58100]]})
    assert (marian.start, marian.pad, marian.end, marian.banned) == (58100, 58100, (0,), ((58100,),))
    assert marian.forced_last == 0, "Marian's class forces the end at the limit"
    bart = rules({"model_type": "bart", "forced_bos_token_id": 0})
    assert (bart.start, bart.bos, bart.pad, bart.end, bart.forced_first, bart.forced_last) == (2, 0, 1, (2,), 0, 2)
    assert rules({"model_type": "bart"}, {"decoder_start_token_id": 5}).start == 5
    assert rules({"model_type": "bart", "forced_eos_token_id": None}).forced_last is None
    assert rules({"model_type": "llama"}).start is None


def test_a_family_says_what_its_class_assumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A family is one file: nothing else knows its ids and its tokenizer."""
    from tests.text import making

    bart = family_for({"model_type": "bart"})
    ids = {"pad_token_id": 7, "eos_token_id": 8}
    new = bart.relative("lexis", ids=ids, starts_with_pad=True, tokenizer="T5Tokenizer")
    monkeypatch.setattr("plait.families.FAMILIES", (*FAMILIES, new))
    making.write_json(tmp_path, "config.json", {"model_type": "lexis", "tie_word_embeddings": True})
    assert describe(tmp_path).rules == DecodeRules(start=7, pad=7, end=(8,))
    (tmp_path / "tokenizer.model").write_bytes(making.sentencepiece_model("unigram"))
    tokenizer = describe(tmp_path).tokenizer
    assert tokenizer is not None and tokenizer.id("<extra_id_0>") == len(tokenizer) - 1, "as T5's does"
    native = {"model_type": "plait", "plait_format": 1, "family": "lexis", "architecture": {}}
    making.write_json(tmp_path, "config.json", native)
    tokenizer = describe(tmp_path).tokenizer
    assert tokenizer is not None and tokenizer.id("<extra_id_0>") == len(tokenizer) - 1, "as before it was native"


def test_every_number_is_read_from_the_generation_config() -> None:
    written = {
        "max_length": 512, "max_new_tokens": 20, "min_length": 3, "min_new_tokens": 2, "no_repeat_ngram_size": 3,
        "do_sample": True, "temperature": 0.6, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.1,
        "num_beams": 4, "length_penalty": 2, "early_stopping": True, "suppress_tokens": [5, 6],
        "bad_words_ids": [[3], [4, 5], [5]], "forced_bos_token_id": 8, "forced_eos_token_id": [9],
        "typical_p": 0.8, "renormalize_logits": True, "num_beam_groups": 2, "diversity_penalty": 0.5,
        "encoder_no_repeat_ngram_size": 2, "penalty_alpha": 0.6,
    }  # fmt: skip
    expected = DecodeRules(
        bos=1, forced_first=8, forced_last=9, max_length=512, max_new_tokens=20, min_length=3, min_new_tokens=2,
        no_repeat_ngram=3, sample=True, temperature=0.6, top_k=40, top_p=0.9, min_p=0.05, repetition_penalty=1.1,
        beams=4, length_penalty=2, early_stopping=True, banned=((3,), (4, 5), (5,), (6,)),
        typical_p=0.8, renormalize=True, beam_groups=2, diversity=0.5, no_repeat_source_ngram=2,
        penalty_alpha=0.6,
    )  # fmt: skip
    assert rules({"model_type": "qwen2", "bos_token_id": 1}, written) == expected
    assert rules({"model_type": "qwen2"}, {"early_stopping": "never"}).early_stopping == "never"


def test_a_rule_that_is_not_followed_is_said_and_one_that_is_off_is_not() -> None:
    with pytest.warns(PlaitNotice, match="does not follow the checkpoint's epsilon_cutoff, sequence_bias; its text"):
        rules({"model_type": "qwen2"}, {"epsilon_cutoff": 1e-3, "sequence_bias": [[[1], 2.0]], "eta_cutoff": 0.0})
    rules({"model_type": "qwen2"}, {"epsilon_cutoff": 0.0, "guidance_scale": 1.0, "stop_strings": None})


def test_old_configs_hold_the_rules_themselves_unless_there_is_a_generation_config() -> None:
    config = {"model_type": "bart", "num_beams": 4, "max_length": 142}
    assert (rules(config).beams, rules(config).max_length) == (4, 142)
    assert (rules(config, {}).beams, rules(config, {}).max_length) == (1, None)


def test_a_generation_config_alone_says_what_is_forced() -> None:
    """As the reference library has it: what config.json says, or its class, counts where there is no such file."""
    config = {"model_type": "bart", "forced_bos_token_id": 7, "forced_eos_token_id": 8, "bad_words_ids": [[5]]}
    config |= {"no_repeat_ngram_size": 3, "min_length": 4, "length_penalty": 2.0, "early_stopping": True}
    alone = rules(config)
    assert (alone.forced_first, alone.forced_last, alone.banned, alone.no_repeat_ngram) == (7, 8, ((5,),), 3)
    assert (alone.min_length, alone.length_penalty, alone.early_stopping) == (4, 2.0, True)
    for generation in ({}, dict.fromkeys(config)):
        plain = rules({"model_type": "bart"}, generation)
        assert rules(config, generation) == plain and (plain.forced_first, plain.forced_last) == (None, None)
        assert (plain.start, plain.bos, plain.pad, plain.end) == (2, 0, 1, (2,))
    assert rules(config, {"forced_eos_token_id": 3}).forced_last == 3


def test_barts_oldest_word_for_a_forced_first_token() -> None:
    config = {"model_type": "bart", "force_bos_token_to_be_generated": True, "forced_bos_token_id": 9}
    assert rules(config).forced_first == 0
    assert rules(config, {}).forced_first is None
    assert rules({**config, "force_bos_token_to_be_generated": False}).forced_first == 9


def test_nulls_and_minus_one_are_no_rules() -> None:
    keys = ["temperature", "top_k", "num_beams", "do_sample", "max_length", "eos_token_id", "bad_words_ids"]
    assert rules({"model_type": "qwen2", "pad_token_id": -1}, dict.fromkeys(keys)) == DecodeRules()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("eos_token_id", "2", "eos_token_id: '2' is neither a token id nor a list of them"),
        ("eos_token_id", [1, None], "is neither a token id nor a list"),
        ("bos_token_id", True, "bos_token_id: True is not a whole number"),
        ("temperature", "hot", "temperature: 'hot' is not a number"),
        ("do_sample", 1, "do_sample: 1 is not true or false"),
        ("top_k", 1.5, "top_k: 1.5 is not a whole number"),
        ("bad_words_ids", 5, "bad_words_ids: 5 is not a list of lists of token ids"),
    ],
)
def test_values_of_the_wrong_kind_are_named(key: str, value: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        rules({"model_type": "qwen2"}, {key: value})


@pytest.mark.parametrize("nested", ["llama", ["llama"], 7])
def test_a_nested_config_that_is_none_is_named(nested: Any) -> None:
    with pytest.raises(CheckpointError, match="text_config: .* is not an object of settings"):
        read_rules({"text_config": nested}, None, ids={})


def test_rules_are_plain_data_both_ways() -> None:
    full = DecodeRules(
        start=0, end=(1, 2), banned=((3,), (4, 5)), sample=True, temperature=0.7, early_stopping="never", max_length=9
    )
    assert rules_from_dict(full.to_dict()) == full
    assert DecodeRules().to_dict() == {}
    with pytest.raises(CheckpointError, match=r"decode_rules\.ends: there is no such rule"):
        rules_from_dict({"ends": [1]})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"end": "2"}, "decode_rules.end: '2' is neither a token id nor a list of them"),
        ({"banned": [[1], "2"]}, "decode_rules.banned: '2' is neither a token id nor a list"),
        ({"banned": 3}, "decode_rules.banned: 3 is not a list of lists"),
        ({"temperature": "hot"}, "decode_rules.temperature: 'hot' is not a number"),
        ({"start": 1.0}, "decode_rules.start: 1.0 is not a whole number"),
        ({"top_k": None}, "decode_rules.top_k: null is no value"),
        ({"early_stopping": "soon"}, "decode_rules.early_stopping: 'soon' is not true or false"),
        ([1], r"decode_rules: \[1\] is not an object"),
    ],
)
def test_native_rules_of_the_wrong_kind_are_named(data: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        rules_from_dict(data)


def test_one_end_needs_no_list() -> None:
    assert rules_from_dict({"end": 5}) == DecodeRules(end=(5,))


def test_changed_rules_are_written_over_the_old_file() -> None:
    base = {"eos_token_id": 2, "temperature": 0.6, "do_sample": True, "custom": 1, "suppress_tokens": [9]}
    before = rules({"model_type": "qwen2"}, base)
    assert generation_config(before, base, before) == base
    changed = dataclasses.replace(before, end=(2, 7), temperature=0.3, banned=((4, 5),))
    written = generation_config(changed, base, before)
    assert written == {
        "eos_token_id": [2, 7],
        "temperature": 0.3,
        "do_sample": True,
        "custom": 1,
        "bad_words_ids": [[4, 5]],
    }
    assert rules({"model_type": "qwen2"}, written) == changed
    bare = dataclasses.replace(before, end=(), banned=())
    assert rules({"model_type": "qwen2"}, generation_config(bare, base, before)) == bare
