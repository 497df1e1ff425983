"""P6: a learned position is a row of a table, and past its last row there is none: an error, and no silent wrap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from plait.architecture import Architecture, RelativeBias
from plait.inspection.lab.experiment import Experiment, Finding, Result
from plait.inspection.lab.figures import Matrix
from plait.inspection.lab.making import drawn
from plait.model import Cache, Transformer
from plait.pages.words import Words

WORDS = Words.of("plait.inspection.lab", "learned")
ROWS = 8  # of the table
LENGTHS = (1, 4, 8, 9, 16, 64)
KINDS: dict[str, dict[str, Any]] = {
    "learned": {"position": "learned", "max_length": ROWS},
    "sinusoidal": {"position": "sinusoidal"},
    "rope": {"position": "rope"},
    "alibi": {"position": "alibi"},
    "buckets": {"relative_bias": RelativeBias(buckets=8, max_distance=16)},
    "none": {},
}


@torch.no_grad()
def run(trials: Mapping[str, Any]) -> Result:
    """Rows up to the table's end and past it, at once and token by token."""
    models = {name: drawn(Architecture(**SIZE, **knobs)) for name, knobs in KINDS.items()}
    learned = models["learned"]
    taken = {name: [said(model, length) is None for length in LENGTHS] for name, model in models.items()}
    at_once, one_more = said(learned, ROWS + 1), step_by_step(learned)
    asked = said(learned, 1, positions=torch.tensor([[ROWS]]))
    findings = tuple(
        Finding(
            id="P6",
            what=WORDS.say(key, rows=ROWS, length=ROWS + 1),
            claimed=WORDS["error"],
            measured=f"ValueError: {message}" if message else WORDS["silent"],
            holds=message is not None and str(ROWS) in message,
            values=(float(message is not None),),
        )
        for key, message in (("at_once", at_once), ("with_cache", one_more), ("own_positions", asked))
    )
    fits = Finding(
        id="P6",
        what=WORDS.say("up_to", rows=ROWS),
        claimed=WORDS["read"],
        measured=WORDS["read" if taken["learned"] == [length <= ROWS for length in LENGTHS] else "silent"],
        holds=taken["learned"] == [length <= ROWS for length in LENGTHS],
        values=tuple(map(float, taken["learned"])),
    )
    figure = Matrix(
        title=WORDS.say("figure", rows=ROWS),
        rows=tuple(WORDS[name] for name in KINDS),
        columns=tuple(map(str, LENGTHS)),
        values=tuple(tuple(map(float, row)) for row in taken.values()),
        digits=0,
    )
    return Result(findings=(fits, *findings), figures=(figure,))


SIZE: dict[str, Any] = {"vocab_size": 4, "d_model": 16, "n_heads": 2, "d_ff": 16, "n_decoder_layers": 1}


def said(model: Transformer, length: int, **inputs: Any) -> str | None:
    """What a row of that length is refused with; nothing where it is read."""
    try:
        model(torch.zeros(1, length, dtype=torch.int64), **inputs)
    except ValueError as error:
        return str(error)
    return None


def step_by_step(model: Transformer) -> str | None:
    """What the first token past the table is refused with, read alone behind a cache of the rest."""
    cache = Cache(model.architecture, 1)
    for _ in range(ROWS):
        assert said(model, 1, cache=cache) is None
    return said(model, 1, cache=cache)


EXPERIMENT = Experiment(name="learned", words=WORDS, run=run)
