"""A softmax over the tokens that targets have: learnt, judged and decoded without the others."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch

import plait
from plait.training.evaluation import evaluate
from plait.training.folder import Folder
from plait.training.judging import judge
from plait.training.loss import batch_loss
from plait.training.recipe import RecipeError, read_recipe
from plait.training.resolve import Resolved, decide, resolve
from plait.training.running import ready

RECIPE = """
[model]
preset = "vaswani-base"
n_encoder_layers = 1
n_decoder_layers = 1
d_model = 16
d_ff = 32
n_heads = 2
[data]
train = "pairs.tsv"
valid = "held.tsv"
vocab_size = 400
batch_rows = 8
[objective]
kind = "paired"
softmax = "targets"
[run]
steps = 3
[evaluate]
every = 3
beams = 2
metrics = ["loss", "chrf"]
"""
SOURCES = [f"the dog number {n} sees a cat" for n in range(20)]
TARGETS = [f"hund {n} sieht katze" for n in range(20)]


@pytest.fixture
def resolved(tmp_path: Path) -> Resolved:
    lines = [f"{source}\t{target}" for source, target in zip(SOURCES, TARGETS, strict=True)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines[:16]) + "\n")
    (tmp_path / "held.tsv").write_text("\n".join(lines[16:]) + "\n")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return resolve(decide(read_recipe(tmp_path / "recipe.toml"), tmp_path))


@pytest.mark.filterwarnings("ignore::plait.checkpoint.PlaitNotice")  # what is hardly trained does not end
def test_the_finished_model_writes_no_other_token(resolved: Resolved, tmp_path: Path) -> None:
    tokenizer, among = resolved.checkpoint.tokenizer, resolved.among
    assert tokenizer is not None and among is not None
    ids = {token for text in TARGETS for token in tokenizer.encode(text, False)}
    assert set(among.tolist()) == ids | {*resolved.checkpoint.rules.end}
    running = ready(resolved, Folder(tmp_path / "run"))
    steps = list(running.steps())
    running.finish()
    assert steps[-1].evaluation is not None
    trained = plait.load(tmp_path / "run/model")
    assert {sequence[0] for sequence in trained.rules.banned} == {*range(len(tokenizer))} - set(among.tolist())
    for beams in (1, 3):
        (written,) = plait.generate(trained, [SOURCES[0]], max_new_tokens=20, beams=beams)
        assert set(written.tokens) <= set(among.tolist())
    with torch.inference_mode():  # judged as it was learnt: the same from the folder as in the run, by the same beams
        found = judge(trained, [str(tmp_path / "held.tsv")], metrics=["loss", "chrf"])
    assert found[0] == pytest.approx({name: steps[-1].evaluation[name] for name in ("loss", "chrf")}, rel=1e-5)
    assert trained.rules.renormalize
    loss, held = 0.0, 0
    for source, target in zip(SOURCES[16:], TARGETS[16:], strict=True):  # likelihoods are among those tokens too
        alone = plait.score(trained, [*tokenizer.encode(target, False), *trained.rules.end], given=source)
        loss, held = loss - alone.logprob, held + alone.n_scored
    assert loss / held == pytest.approx(steps[-1].evaluation["loss"], rel=1e-5)
    assert trained.rules.beams == 2 and "nc:6" in found[1]["chrf"].signature


@pytest.mark.filterwarnings("ignore::plait.checkpoint.PlaitNotice")
def test_adapters_are_judged_by_what_is_translated_with_them(resolved: Resolved, tmp_path: Path) -> None:
    running = ready(resolved, Folder(tmp_path / "run"))
    list(running.steps())
    running.finish()
    lines = RECIPE.split("[data]")[1].replace("vocab_size = 400", "longest = 'cut'\nlength = 16")
    lines = lines.replace("metrics", "samples = 3\nmetrics").replace('softmax = "targets"', "")
    base = tmp_path / "run/model"
    (tmp_path / "lora.toml").write_text(f"[model]\nfrom = '{base}'\nlora_rank = 2\n[data]{lines}")
    (tmp_path / "held.tsv").write_text(f"{'the dog ' * 40}\thund\n{SOURCES[0]}\t{TARGETS[0]}\n")
    for beams in ("2", "1"):
        options = ["--evaluate.beams", beams, "--run.steps", "3"]
        again = resolve(decide(read_recipe(tmp_path / "lora.toml", options), tmp_path))
        running = ready(again, Folder(tmp_path / f"lora{beams}"))
        *_, last = running.steps()
        running.finish()
        assert last.evaluation is not None and last.evaluation["chrf"] >= 0
        assert len(running.samples) == 2, "a source that is longer than a row too"


def test_it_counts_for_pairs_alone(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE.replace('"paired"', '"denoising"'))
    with pytest.raises(RecipeError, match="objective.softmax: it counts where objective.kind is paired"):
        read_recipe(tmp_path / "recipe.toml")


def test_answers_are_the_likeliest_of_the_tokens_that_can_be(resolved: Resolved) -> None:
    model, among, valid = resolved.checkpoint.model, resolved.among, resolved.valid
    assert among is not None and valid is not None
    loss = functools.partial(batch_loss, among=among)
    found = evaluate(model, valid, loss, metrics=["accuracy"], among=among)["accuracy"]
    right = total = 0
    with torch.no_grad():
        for batch in valid.evaluation():
            logits = model.eval()(batch.tokens, **batch.inputs)
            banned = torch.ones(logits.shape[-1], dtype=torch.bool).index_fill(0, among, False)
            answers = logits.masked_fill(banned, float("-inf")).argmax(-1)
            right += int((answers == batch.targets).sum())
            total += int(batch.real.sum())
    assert found == right / total
