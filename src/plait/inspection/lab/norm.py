"""N1 to N4: layer normalisation and the residual stream, by hand and by the model's own slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.inspection.lab.experiment import Experiment, Result, compared
from plait.inspection.lab.figures import Matrix
from plait.model import Transformer
from plait.model.norm import Norm, Slots
from plait.pages.words import Words

WORDS = Words.of("plait.inspection.lab", "norm")
STREAM, ADDED = (1.0, 0.5, 0.2, 0.8), (0.3, 0.1, 0.2, 0.4)


def run(trials: Mapping[str, Any]) -> Result:
    """Four small sums."""
    summed = slots(4, "pre").leave(row(*STREAM), row(*ADDED))
    merged = slots(4, "post").leave(row(*STREAM), row(*ADDED))
    short = slots(2, "pre").leave(row(1.0, 2.0), row(0.1, -0.3))
    findings = (
        compared("N1", WORDS.say("normed", row="2, 4, 6"), [4, 8 / 3, -1.2247, 0, 1.2247], normed(2, 4, 6)),
        compared(
            "N2",
            WORDS.say("normed", row="2, 6, 4, 8"),
            [5, 5, -1.3416, 0.4472, -0.4472, 1.3416],
            normed(2, 6, 4, 8),
        ),
        compared("N3", WORDS["sum"], [1.3, 0.6, 0.4, 1.2], summed.tolist()),
        compared("N3", WORDS["post"], [1.1090, -0.7176, -1.2394, 0.8480], merged.tolist()),
        compared("N4", WORDS["short"], [1.1, 1.7], short.tolist()),
    )
    rows = (WORDS["stream"], WORDS["added"], WORDS["sum_row"], WORDS["norm_row"])
    values = (STREAM, ADDED, tuple(summed.tolist()), tuple(merged.tolist()))
    columns = tuple(map(str, range(4)))
    return Result(
        findings=findings,
        figures=(Matrix(title=WORDS["figure"], rows=rows, columns=columns, values=values, digits=4),),
    )


def slots(width: int, placement: str) -> Slots:
    """The norms around a sublayer of a real model, eps 0, as it is before it learns."""
    a = Architecture(
        vocab_size=1,
        d_model=width,
        n_heads=1,
        d_ff=1,
        n_decoder_layers=1,
        norm_eps=0.0,
        norm_placement=placement,  # type: ignore[arg-type]
    )
    decoder = Transformer(a).double().requires_grad_(False).decoder
    assert decoder is not None
    return decoder.blocks[0].attention_norms


def normed(*values: float) -> list[float]:
    """Mean, variance and output of a layer norm; the first two as its output tells them: y = (x - mean) / deviation."""
    norm = slots(len(values), "post").merge
    assert isinstance(norm, Norm)
    x = row(*values)
    y = norm(x)
    deviation = (x[1] - x[0]) / (y[1] - y[0])
    return [float(x[0] - deviation * y[0]), float(deviation**2), *y.tolist()]


def row(*values: float) -> Tensor:
    """Numbers of a residual stream."""
    return torch.tensor(values, dtype=torch.float64)


EXPERIMENT = Experiment(name="norm", words=WORDS, run=run)
