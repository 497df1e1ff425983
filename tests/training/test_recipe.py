"""Recipe files: what is wrong is named with its place and the nearest; what is right reads back equal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.training.places import SECTIONS, RecipeError, keys
from plait.training.recipe import parse, read_recipe, to_text
from plait.training.resolve import decide
from plait.training.settings import Recipe

MODEL = "[model]\nd_model = 16\nn_heads = 2\nd_ff = 32\nn_decoder_layers = 1\n"
REST = '[data]\ntrain = "a.txt"\nbatch_rows = 2\n[run]\nsteps = 3\n'

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "recipe.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def refusal(path: Path, *options: str) -> str:
    with pytest.raises(RecipeError) as caught:
        read_recipe(path, options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "place", "nearest"),
    [
        ("learning_rate = 1\n", "learning_rate", "optimizer.lr"),  # a top-level key
        ("warmpu = 1\n", "warmpu", "schedule.warmup"),
        ("[optimzer]\nlr = 1\n", "optimzer", "[optimizer]"),
        ("[run]\nnum-epochs = 3\n", "run.num-epochs", "run.epochs"),
        ("[run]\nstep = 3\n", "run.step", "'steps'"),
        ("[model]\nlora_ranl = 8\n", "model.lora_ranl", "'lora_rank'"),
        ("[model]\nd_modle = 8\n", "model.d_modle", "'d_model'"),
        ("[optimizer]\nwarmup = 8\n", "optimizer.warmup", "schedule.warmup"),  # a key of another section
        ("[optimizer]\nflavour = 8\n", "optimizer.flavour", "the settings are kind, lr"),
    ],
)
def test_cf1_unknown_keys_are_refused_with_place_and_nearest(text: str, place: str, nearest: str, write: Write):
    path = write(text)
    said = refusal(path)
    assert said.startswith(f"{path}: {place}: there is no ") and nearest in said


def test_cf1_a_typo_in_a_nested_table_is_refused(write: Write):
    said = refusal(write(MODEL + 'position = "rope"\nrope = {thta = 5e5}\n' + REST))
    assert "thta" in said and "in rope" in said and "'theta'" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[run]\nsteps = 1\nsteps = 2\n", "steps: this key stands twice (line 3)"),
        ("[run]\nsteps = 1\n[data]\n[run]\nseed = 2\n", "[run]: this key stands twice (line 4)"),
        ("[run\n", "not TOML"),
        ("run = 3\n", "run: a section [run] of settings belongs here, not 3"),
    ],
)
def test_cf1_what_stands_twice_or_where_a_section_belongs(text: str, said: str, write: Write):
    assert said in refusal(write(text))


def test_cf1_an_option_that_stands_twice_is_refused(write: Write):
    said = refusal(write(MODEL + REST), "--run.seed", "1", "--run.seed", "2")
    assert said == "--run.seed: this option stands twice; keep one."


@pytest.mark.parametrize("written", ["1e-5", "3e-4", "5e-05", "1.0e5", "1"])
def test_cf2_numbers_are_numbers_in_the_file_and_on_the_command_line(written: str, write: Write):
    for recipe in (
        read_recipe(write(MODEL + REST + f"[optimizer]\nlr = {written}\n")),
        read_recipe(write(MODEL + REST), ["--optimizer.lr", written]),
    ):
        assert type(recipe.optimizer.lr) is float and recipe.optimizer.lr == float(written)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[optimizer]\nlr = '1e-5'\n", "optimizer.lr: '1e-5' is not a number"),
        ("[optimizer]\nlr = true\n", "optimizer.lr: True is not a number"),
        ("[run]\nsteps = 2.5\n", "run.steps: 2.5 is not a whole number"),
        ("[run]\ncompile = 'no'\n", "run.compile: 'no' is not true or false"),
        ("[optimizer]\nkind = 'adam'\n", "optimizer.kind: 'adam' is not one of 'adamw'"),
        ("[optimizer]\nbeta2 = 1.0\n", "optimizer.beta2: 1.0 is out of bounds; it must be at least 0 and less than 1"),
        ("[run]\nsteps = 0\n", "run.steps: 0 is out of bounds; it must be more than 0"),
    ],
)
def test_cf2_values_of_another_type_or_out_of_bounds(text: str, said: str, write: Write):
    assert said in refusal(write(text))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--run.compile", "no"], "run.compile: 'no' is not true or false"),
        (["--optimizer.lr", "fast"], "optimizer.lr: 'fast' is not a number"),
        (["--optimizer.lr"], "--optimizer.lr: a value belongs after it"),
        (["--optimizer.lr", "1", "2"], "one value belongs after it, not 2"),
        (["--optimizer.learning_rate", "1"], "did you mean optimizer.lr?"),
        (["--lr", "1"], "did you mean optimizer.lr?"),
        (["--optimizer.lr.deep", "1"], "optimizer.lr is a single setting"),
        (["--model.d_modle", "8"], "did you mean 'd_model'?"),
        (["--model.rope.thta", "8"], "did you mean 'theta'?"),
        (["seed", "1"], "a setting is given as --section.key value"),
    ],
)
def test_options_are_held_to_the_same(options: list[str], said: str, write: Write):
    assert said in refusal(write(MODEL + 'position = "rope"\n' + REST), *options)


def test_command_line_before_file_before_default(write: Write):
    path = write(MODEL + REST + "[optimizer]\nlr = 0.5\nclip = 3\n")
    recipe = read_recipe(path, ["--optimizer.lr", "0.25", "--model.d-model", "32", "--data.train", "2024", "b.txt"])
    assert (recipe.optimizer.lr, recipe.optimizer.clip, recipe.optimizer.beta1) == (0.25, 3.0, 0.9)
    assert recipe.model.overrides["d_model"] == 32 and recipe.data.train == ("2024", "b.txt")
    assert read_recipe(path, ["--data.lowercase", "--run.out=7"]).data.lowercase
    assert read_recipe(path, ["--run.out=7"]).run.out == "7"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[optimizer]\nmatrix_lr = 1e-2\n", "optimizer.matrix_lr: it counts where optimizer.kind is muon, and that is"),
        ("[schedule]\ndecay = 10\n", "schedule.decay: it counts where schedule.kind is wsd"),
        ("[objective]\nmask_rate = 0.2\n", "objective.mask_rate: it counts where objective.kind is masked or"),
        (
            '[objective]\nkind = "classes"\n[evaluate]\nsamples = 1\n',
            "evaluate.samples: it counts where objective.kind",
        ),
        ("[evaluate]\nbeams = 2\n", "evaluate.beams: it counts where objective.kind is paired, and that is causal"),
        (
            '[objective]\nkind = "values"\nz_loss = 0.1\n',
            "objective.z_loss: it counts where objective.kind is causal or",
        ),
    ],
)
def test_a_setting_that_nothing_reads_is_refused(text: str, said: str, write: Write):
    assert said in refusal(write(MODEL + REST + text))


def test_a_vocabulary_that_is_not_learnt_has_no_size(write: Write):
    sized = REST.replace("[run]", "vocab_size = 300\n[run]")
    assert read_recipe(write(MODEL + sized)).data.vocab_size == 300
    named = sized.replace("[run]", 'tokenizer = "characters"\n[run]')
    assert "data.vocab_size: it counts where data.tokenizer is train, and that is characters" in refusal(
        write(MODEL + named)
    )
    assert "data.vocab_size: it counts where model.from is none" in refusal(write('[model]\nfrom = "x"\n' + sized))


def test_a_chat_is_not_lower_cased(write: Write):
    text = MODEL + REST.replace("[run]", "lowercase = true\n[run]") + '[objective]\nkind = "chat"\n'
    assert "data.lowercase: it counts where objective.kind is causal or" in refusal(write(text))


def test_none_takes_a_list_back_and_a_seed_fits_what_it_is_kept_in(write: Write):
    path = write(MODEL + REST)
    assert read_recipe(path, ["--data.valid", "b.txt", "--evaluate.metrics", "none"]).evaluate.metrics == ()
    assert read_recipe(write(MODEL + REST.replace("[run]", 'valid = "none"\n[run]'))).data.valid == ()
    assert "run.seed: " in refusal(path, "--run.seed", str(2**63))


def test_a_setting_that_an_option_leaves_idle_is_dropped(write: Write):
    path = write(MODEL + REST + '[optimizer]\nkind = "muon"\nmatrix_lr = 0.5\n')
    recipe = read_recipe(path, ["--optimizer.kind", "adamw"])
    assert recipe.optimizer.matrix_lr == Recipe().optimizer.matrix_lr
    assert "matrix_lr" in refusal(path, "--optimizer.kind", "adamw", "--optimizer.matrix_lr", "1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MODEL, "data.train: say it"),
        (MODEL + '[data]\ntrain = "a"\nbatch_rows = 2\n', "run.steps: say it, or run.epochs or run.minutes"),
        (MODEL + REST + "epochs = 1\n", "run.epochs: run.steps says the same otherwise"),
        (REST, "model.d_model: this field has no default"),
        ('[model]\npreset = "gpt-2"\n' + REST, "did you mean 'gpt2'?"),
        ('[model]\nfrom = "x"\nd_model = 3\n' + REST, "model.d_model: the checkpoint's weights have a shape"),
        (MODEL + "lora_rank = 4\n" + REST, "model.lora_rank: LoRA adapts weights that were learnt"),
        (MODEL.replace("= 2", "= 3") + REST, "model.n_heads: 3 does not divide"),
        (MODEL + REST.replace("[run]", 'format = "pairs"\n[run]'), "data.format: the objective 'causal'"),
        (
            MODEL + REST.replace("[run]", 'packing = "windows"\n[run]') + '[objective]\nkind = "spans"\n',
            "data.packing: windows are of causal text; for spans say documents or stream",
        ),
        (
            '[model]\nfrom = "x"\nlora_rank = 4\n' + REST + '[optimizer]\nkind = "muon"\n',
            "optimizer.kind: muon is for whole hidden matrices, and LoRA trains none",
        ),
        (MODEL + REST.replace("steps", "minutes"), "schedule.kind: 'linear' falls towards the last step"),
    ],
)
def test_settings_that_do_not_go_together(text: str, said: str, write: Write):
    assert said in refusal(write(text))


def test_a_recipe_that_is_not_there_or_is_no_text(tmp_path: Path):
    assert "there is no such recipe" in refusal(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refusal(tmp_path / "binary.toml")


@given(data=st.data())
def test_what_is_written_reads_back_equal(data: st.DataObject, tmp_path: Path):
    """Every setting that counts, at its default or elsewhere, survives TOML."""
    text = MODEL + 'position = "rope"\nrope = {theta = 5e5}\nqk_norm = "none"\nlayer_types = [{window = 4}]\n' + REST
    kind = data.draw(st.sampled_from(["causal", "masked"]))
    optimizer = data.draw(st.sampled_from(["adamw", "muon"]))
    seed = data.draw(st.integers(0, 10**9))
    lr = data.draw(st.floats(1e-8, 10))
    name = data.draw(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1))
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    recipe = read_recipe(
        path, ["--objective.kind", kind, "--optimizer.kind", optimizer, f"--run.seed={seed}", f"--optimizer.lr={lr!r}"]
    )
    recipe = dataclasses.replace(recipe, run=dataclasses.replace(recipe.run, out=name if name != "none" else None))
    path.write_text(to_text(recipe), encoding="utf-8")
    assert read_recipe(path) == recipe


def test_every_setting_is_written(write: Write):
    written = parse(to_text(read_recipe(write(MODEL + REST))))
    assert set(written) == set(SECTIONS) == set(get_type_hints(Recipe))
    assert set(keys("evaluate")) - set(written["evaluate"]) == {"tokenize", "beams", "length_penalty"}, "of pairs"


def test_a_decoder_alone_is_sent_to_chats_for_pairs(write: Write):
    path = write(MODEL + REST + '[objective]\nkind = "paired"\n')
    with pytest.raises(RecipeError, match=r"of kind decoder \(.*\); of a decoder alone make chats of the pairs"):
        decide(read_recipe(path))
