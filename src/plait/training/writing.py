"""Writing: what a model in training says of a few samples that were held out, beside what it should say."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from plait.checkpoint.notice import PlaitNotice, notice
from plait.data.held_out import held_out
from plait.data.lines import Tally
from plait.data.pairs import Pair, read_pairs
from plait.generation import ModelRunner, generate, translate
from plait.training.evaluation import evaluating
from plait.training.quality import Quality, QualityError, translation_quality
from plait.training.resolve import Resolved

OPENING, CONTINUED = 64, 200  # tokens of a text that are read, and that are written on


def written(resolved: Resolved) -> Iterator[dict[str, str]]:
    """Samples, as many as the recipe asks for: of pairs the first that were held out, translated; of text its first
    tokens, gone on with by chance. Nothing for other objectives."""
    make = {"paired": _translated, "causal": _continued}.get(resolved.recipe.objective.kind)
    if make is not None and resolved.valid is not None:
        with evaluating(resolved.checkpoint.model):
            yield from make(resolved)


def translated(resolved: Resolved, metrics: Sequence[str]) -> dict[str, Quality]:
    """BLEU or chrF, by name, of all held-out sources translated; none where what a young model writes has no measure,
    which is told. That it writes up to its limit is not."""
    evaluate = resolved.recipe.evaluate
    pairs = list(held_out_pairs(resolved))
    with evaluating(resolved.checkpoint.model), warnings.catch_warnings():
        warnings.simplefilter("ignore", PlaitNotice)
        try:
            found, _ = translation_quality(
                resolved.checkpoint,
                [source for source, _ in pairs],
                [target for _, target in pairs],
                metrics=metrics,
                tokenize=evaluate.tokenize,
                **_translating(resolved),
            )
            return found
        except QualityError as error:
            unmeasured = error
    notice(f"not measured: {unmeasured}")
    return {}


def _translated(resolved: Resolved) -> Iterator[dict[str, str]]:
    recipe = resolved.recipe
    pairs = list(islice(held_out_pairs(resolved), recipe.evaluate.samples))
    if not pairs:
        return
    found: Any = translate(resolved.checkpoint, [source for source, _ in pairs], **_translating(resolved))
    for (source, target), one in zip(pairs, found, strict=True):
        yield {"source": source, "reference": target, "written": one.text}


def _translating(resolved: Resolved) -> dict[str, Any]:
    """How a model in training translates: by itself where adapters hang on it, which the engine does not know."""
    recipe, model = resolved.recipe, resolved.checkpoint.model
    options: dict[str, Any] = {"beams": recipe.evaluate.beams}
    if recipe.evaluate.beams > 1:
        options["length_penalty"] = recipe.evaluate.length_penalty
    return options | ({"runner": ModelRunner(model)} if recipe.model.lora_rank else {})


def held_out_pairs(resolved: Resolved) -> Iterator[Pair]:
    """The pairs that the run is evaluated on, in their order."""
    data = resolved.recipe.data
    share = data.valid_fraction
    paths = data.train if share else data.valid
    for pair in read_pairs(paths, Tally(), lowercase=data.lowercase):
        if not share or held_out(pair[0], share):
            yield pair


def _continued(resolved: Resolved) -> Iterator[dict[str, str]]:
    recipe, checkpoint = resolved.recipe, resolved.checkpoint
    assert resolved.valid is not None and checkpoint.tokenizer is not None, "text is read with it"
    count = recipe.evaluate.samples
    rows = (row for batch in resolved.valid.evaluation() for row in batch.tokens)
    longest = checkpoint.architecture.max_length
    opening = min(OPENING, recipe.data.length // 2)
    new = CONTINUED if longest is None else min(CONTINUED, longest - opening)
    if opening < 1 or new < 1:
        return
    prompts = [row[:opening].tolist() for row in islice(rows, count)]
    found: Any = generate(checkpoint, prompts, max_new_tokens=new, temperature=0.8, seed=recipe.run.seed)
    for prompt, one in zip(prompts, found, strict=True):
        yield {"text": checkpoint.tokenizer.decode(prompt), "written": one.text}
