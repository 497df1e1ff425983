"""What an objective needs of a model and its evaluation, refused before anything is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plait.checkpoint import PlaitNotice
from plait.training.fitting import check_fit, check_metrics, metrics_of
from plait.training.parallel import ParallelError, wrap
from plait.training.places import RecipeError
from plait.training.recipe import build
from plait.training.resolve import decide, usual_precision
from plait.training.settings import Model, Recipe, Run
from plait.training.shape import architecture_of
from tests.models import random_model
from tests.training.making import SHAPE


def asking(kind: str, **sections: dict[str, Any]) -> Recipe:
    data = {"train": ["a.txt"], "batch_rows": 1} | sections.pop("data", {})
    model = {"preset": "bert-base"} | sections.pop("model", {})
    return build({"model": model, "data": data, "objective": {"kind": kind}, "run": {"steps": 1}} | sections)


def test_vectors_are_of_a_model_without_a_head():
    recipe = asking("contrastive")
    with pytest.raises(RecipeError, match=r"model.head: the objective 'contrastive' needs 'none', and it is 'masked'"):
        check_fit(recipe, architecture_of(recipe.model))
    recipe = asking("contrastive", model={"head": None})
    architecture = architecture_of(recipe.model)
    assert architecture.head is None and not architecture.tied and not architecture.logit_bias
    check_fit(recipe, architecture)
    for name in ("gpt2", "llama-3.2-1b", "gemma-2-2b"):
        assert architecture_of(Model(preset=name, overrides={"head": None})).head is None


@pytest.mark.parametrize(
    ("kind", "metrics"),
    [
        ("masked", ("loss", "perplexity")),
        ("paired", ("loss", "perplexity")),
        ("classes", ("loss", "accuracy")),
        ("values", ("loss",)),
        ("contrastive", ("loss",)),
    ],
)
def test_where_no_metric_is_named_there_are_those_that_fit(kind: str, metrics: tuple[str, ...]):
    recipe = asking(kind)
    assert metrics_of(recipe) == metrics
    check_metrics(asking(kind, evaluate={"metrics": [*metrics]}))
    assert metrics_of(asking(kind, evaluate={"metrics": ["loss"]})) == ("loss",)


@pytest.mark.parametrize("name", ["every", "batches", "patience", "samples", "beams"])
def test_nothing_is_evaluated_on_nothing(name: str):
    with pytest.raises(RecipeError, match=f"evaluate.{name}: there is nothing to evaluate on"):
        check_metrics(asking("masked", evaluate={name: 2}))


def test_a_search_that_nothing_asks_for_is_refused():
    held_out = {"train": ["a", "b"], "valid_fraction": 0.1}
    with pytest.raises(RecipeError, match="evaluate.beams: it counts for bleu and chrf and samples, and none is asked"):
        check_metrics(asking("paired", data=held_out, evaluate={"metrics": ["loss"], "beams": 5}))
    check_metrics(asking("paired", data=held_out, evaluate={"metrics": ["loss"], "beams": 5, "samples": 1}))
    with pytest.raises(RecipeError, match="evaluate.tokenize: it counts for bleu, and none"):
        check_metrics(asking("paired", data=held_out, evaluate={"metrics": ["chrf"], "tokenize": "zh"}))


def test_a_way_to_divide_that_there_is_not_is_refused_before_anything_is_read():
    with pytest.raises(ParallelError, match="run.parallel: 'dpp' is not 'data'"):
        decide(asking("masked", run={"steps": 1, "parallel": "dpp"}))


def test_lora_leaves_the_frozen_weights_as_they_are():
    recipe = asking(
        "masked", model={"preset": None, "from": "x", "lora_rank": 2}, run={"steps": 1, "precision": "auto"}
    )
    assert usual_precision(recipe, fast=True) == "bfloat16" and usual_precision(recipe, fast=False) == "float32"
    said = replace(recipe, run=Run(steps=1, precision="pure_bfloat16"))
    with pytest.raises(RecipeError, match="run.precision: pure_bfloat16 would round the weights that LoRA leaves"):
        decide(replace(said, data=replace(said.data, train=())))


def test_one_process_says_that_it_divides_nothing():
    with pytest.warns(PlaitNotice, match="run.parallel: fsdp divides nothing in one process"):
        wrap(random_model(SHAPE), Run(parallel="fsdp"))
