"""Presets have the sizes that were published, and a name that is nearly right finds the right one."""

import subprocess
import sys

import pytest

from plait import presets
from plait.account import account
from plait.presets import PRESETS, PresetError, preset

# As the model cards, papers and the reference library's own classes count them.
PUBLISHED = {
    "vaswani-base": 63_082_496,
    "bert-base": 109_514_298,  # with its masked-language head, tied
    "bert-large": 335_174_458,
    "roberta-base": 124_697_433,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-v1.1-small": 76_961_152,
    "t5-v1.1-base": 247_577_856,
    "t5-v1.1-large": 783_150_080,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "pythia-70m": 70_426_624,
    "llama-7b": 6_738_415_616,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "smollm2-135m": 134_515_008,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "gemma-2b": 2_506_172_416,
    "gemma-2-2b": 2_614_341_888,
    "gemma-3-270m": 268_098_176,
    "gemma-3-1b": 999_885_952,
}

# What other counts leave out or add, named: (their count, what ours has besides).
OTHERWISE = {
    # BART and Marian store a bias over the vocabulary, final_logits_bias, and add it to the logits. The reference
    # library keeps it as a buffer and does not count it. It is in the file, it was learnt in Marian, and changing it
    # changes the answer: we count it as the parameter it is.
    "bart-base": (139_420_416, 50_265),
    "bart-large": (406_291_456, 50_265),
    # The reference also counts Marian's two tables of sinusoids, 512 x 512 each, which nothing learns.
    "marian-en-de": (74_410_496, 58_101 - 2 * 512 * 512),
}

# Published only rounded: (the figure, how far off rounding may leave it).
ROUNDED = {"gpt3-175b": (175e9, 0.5e9), "vaswani-big": (213e6, 1.5e6)}


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_are_the_published(name):
    assert account(preset(name)).parameters == PUBLISHED[name]


@pytest.mark.parametrize("name", OTHERWISE)
def test_counts_differ_from_the_reference_by_what_is_named(name):
    theirs, besides = OTHERWISE[name]
    assert account(preset(name)).parameters == theirs + besides


@pytest.mark.parametrize("name", ROUNDED)
def test_counts_round_to_the_published(name):
    figure, slack = ROUNDED[name]
    assert abs(account(preset(name)).parameters - figure) < slack


def test_every_preset_is_counted():
    assert {*PUBLISHED, *OTHERWISE, *ROUNDED} == set(PRESETS)


def sizes(
    d, layers, heads, ff, prefix=("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
):
    return dict(zip(prefix, (d, layers, heads, ff), strict=True))


def twin(d, layers, heads, ff):
    """Both stacks of a BART alike."""
    stacks = {
        f"{s}_{k}": v
        for s in ("encoder", "decoder")
        for k, v in zip(("layers", "attention_heads", "ffn_dim"), (layers, heads, ff), strict=True)
    }
    return {"d_model": d, **stacks}


REFERENCE = {
    "bert-large": ("BertConfig", "BertForMaskedLM", sizes(1024, 24, 16, 4096)),
    "roberta-base": (
        "RobertaConfig",
        "RobertaForMaskedLM",
        {"max_position_embeddings": 514, "type_vocab_size": 1},
    ),
    "bart-base": ("BartConfig", "BartForConditionalGeneration", twin(768, 6, 12, 3072)),
    "bart-large": ("BartConfig", "BartForConditionalGeneration", twin(1024, 12, 16, 4096)),
    "marian-en-de": ("MarianConfig", "MarianMTModel", {**twin(512, 6, 8, 2048), "max_position_embeddings": 512}),
    "gemma-3-270m": (
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {"vocab_size": 262144, **sizes(640, 18, 4, 2048), "num_key_value_heads": 1},
    ),
}


@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_library_counts_the_same(name, reference):
    """Counts that were not published as a number, from the reference's own classes."""
    import torch

    config, model, settings = REFERENCE[name]
    with torch.device("meta"):
        built = getattr(reference, model)(getattr(reference, config)(**settings))
    expected = OTHERWISE[name][0] if name in OTHERWISE else PUBLISHED[name]
    assert built.num_parameters() == expected


def test_biases_and_norms_of_the_first_transformer():
    parts = account(preset("vaswani-base")).by_part
    assert parts["norms"] + parts["biases"] == 98_304


def test_an_unknown_name_finds_the_nearest():
    with pytest.raises(PresetError, match="did you mean 'llama-2-7b'"):
        preset("Llama2-7B")
    with pytest.raises(PresetError, match="the presets are vaswani-base"):
        preset("xyzzy")
    with pytest.raises(KeyError):
        PRESETS["xyzzy"]
    assert "xyzzy" not in PRESETS


def test_every_preset_says_only_what_differs_from_its_relative():
    for name, (relative, differences) in presets.RECIPES.items():
        if relative:
            inherited = presets.knobs(relative)
            repeated = {knob for knob, value in differences.items() if inherited.get(knob, "unsaid") == value}
            assert not repeated, f"{name} repeats {repeated}"


def test_presets_are_built_when_asked_for():
    code = "import sys, plait.presets as p; assert p.preset.cache_info().currsize == 0 and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_presets_survive_their_written_form():
    for architecture in PRESETS.values():
        assert type(architecture).from_toml(architecture.to_toml()) == architecture
