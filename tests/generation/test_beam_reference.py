"""Beams against the reference library's generate: the same tokens, and scores to 1e-5, under its own settings."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import plait
from plait.engine import optimize
from tests.families.making import build
from tests.families.recipes.base import T5_SMALL, Recipe

SHAPES: dict[str, Recipe | str] = {
    "bart": "bart",
    # As many layers in both towers: the reference's own cache counts those of the first for the second
    "t5": Recipe("T5Config", "T5ForConditionalGeneration", T5_SMALL | {"num_decoder_layers": T5_SMALL["num_layers"]}),
    "marian": "marian",
    "llama": "llama",
    "gpt2": "gpt2",
}
# What the shapes' own published files ask for, and what is likely to be got wrong. Ends are several, so that some beams
# end early; the model is random, and would hardly ever say one.
ENDS = [2, *range(20, 28)]
RULES: dict[str, dict[str, Any]] = {
    "plain": {"num_beams": 4},
    "ends": {"num_beams": 3, "eos_token_id": ENDS},
    "summary": {
        "num_beams": 4,
        "length_penalty": 2.0,
        "early_stopping": True,
        "min_length": 8,
        "no_repeat_ngram_size": 3,
        "forced_bos_token_id": 9,
        "forced_eos_token_id": 2,
        "eos_token_id": ENDS,
    },
    "translation": {
        "num_beams": 6,
        "bad_words_ids": [[0], [5, 9]],
        "forced_eos_token_id": 2,
        "renormalize_logits": True,
        "eos_token_id": ENDS,
    },
    "bans": {"num_beams": 4, "bad_words_ids": [[7], [5, 9], [11]], "min_new_tokens": 4, "eos_token_id": ENDS},
    "copies": {"num_beams": 3, "encoder_no_repeat_ngram_size": 1, "eos_token_id": ENDS},
    "short": {"num_beams": 4, "length_penalty": -1.0, "eos_token_id": ENDS},
    "sum": {"num_beams": 2, "length_penalty": 0.0, "early_stopping": "never", "eos_token_id": ENDS},
    "never": {"num_beams": 4, "length_penalty": 1.5, "early_stopping": "never", "eos_token_id": ENDS},
    "never-short": {"num_beams": 4, "length_penalty": -0.5, "early_stopping": "never", "eos_token_id": ENDS},
    "at-once": {"num_beams": 5, "length_penalty": 0.6, "early_stopping": True, "eos_token_id": ENDS},
    "penalty": {"num_beams": 4, "repetition_penalty": 1.4, "eos_token_id": ENDS},
    "penalty-renormalized": {
        "num_beams": 4,
        "repetition_penalty": 1.4,
        "renormalize_logits": True,
        "eos_token_id": ENDS,
    },
}
PROMPTS = ([5, 6, 7, 8], [9, 30, 4], [3, 3, 10, 12, 40, 17, 8])


# The towers of the gate with one seed; more, and the decoders, take a minute
QUICK = [(shape, 0) for shape in ("bart", "t5", "marian")]
ALL = [
    pytest.param(case, marks=() if case in QUICK else pytest.mark.slow) for case in itertools.product(SHAPES, (0, 1))
]


@pytest.fixture(scope="module", params=ALL, ids=lambda case: f"{case[0]}-{case[1]}")
def saved(request: pytest.FixtureRequest, reference: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    shape, seed = request.param
    return build(reference, SHAPES[shape], seed), tmp_path_factory.mktemp("saved")


def theirs(model: Any, prompts: Any, n: int, limit: int, together: bool) -> list[tuple[list[int], float]]:
    """The reference's n best for each prompt, cut behind their ends."""
    if not together and len(prompts) > 1:
        return [found for prompt in prompts for found in theirs(model, [prompt], n, limit, together)]
    width = max(map(len, prompts))
    read = 1 if model.config.is_encoder_decoder else width
    rows = [[*prompt, *[0] * (width - len(prompt))] for prompt in prompts]
    masks = [[1] * len(prompt) + [0] * (width - len(prompt)) for prompt in prompts]
    out = model.generate(
        torch.tensor(rows),
        attention_mask=torch.tensor(masks),
        num_return_sequences=n,
        max_new_tokens=limit,
        return_dict_in_generate=True,
        output_scores=True,
    )
    ends = model.generation_config.eos_token_id
    ends = {ends} if isinstance(ends, int) else set(ends)
    found = []
    for row, score in zip(out.sequences.tolist(), out.sequences_scores.tolist(), strict=True):
        new = row[read:]
        found.append((new[: next((i + 1 for i, token in enumerate(new) if token in ends), limit)], score))
    return found


@pytest.mark.parametrize("rule", RULES)
def test_the_references_tokens_and_scores(saved: Any, rule: str) -> None:
    model, folder = saved
    kept = {k: v for k, v in model.generation_config.to_dict().items() if k.endswith("token_id")}
    model.generation_config = type(model.generation_config)(**{**kept, "pad_token_id": 0, **RULES[rule]})
    place: Path = folder / rule
    model.save_pretrained(place)
    checkpoint = plait.load(place)
    n = min(3, RULES[rule]["num_beams"])
    # Sources are padded together; but what the rules count, with the reference's padding among it, is read apart
    together = model.config.is_encoder_decoder and rule != "copies"
    multiplied = 14 ** max(
        0.0, -RULES[rule].get("length_penalty", 1.0)
    )  # sums of log-probabilities, and their rounding
    for limit in (1, 7, 14) if rule == "plain" else (7, 14):
        expected = theirs(model, PROMPTS, n, limit, together)
        for runner in (None, optimize(checkpoint, dtype="float32")) if limit == 14 else (None,):
            ours = plait.generate(checkpoint, list(PROMPTS), n_best=n, max_new_tokens=limit, runner=runner)
            found = [one for best in ours for one in best]  # type: ignore[union-attr]
            assert [one.tokens for one in found] == [tokens for tokens, _ in expected]
            scores = [score for _, score in expected]
            assert [one.score for one in found] == pytest.approx(scores, rel=1e-6, abs=1e-5 * multiplied)
