"""Lengths beyond training: what each kind of position makes of rows longer than it ever saw, and what rescaled
frequencies save of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from plait.architecture import Architecture, RelativeBias, Rope, RopeScaling
from plait.data.batch import UNCOUNTED, Batch
from plait.inspection.lab import corpus
from plait.inspection.lab.experiment import Experiment, Finding, Result, Trial
from plait.inspection.lab.figures import Lines, Series
from plait.inspection.lab.learning import learn
from plait.inspection.lab.seeds import Spread, spread
from plait.model import Transformer, initialize
from plait.pages.words import Words
from plait.training.evaluation import evaluating
from plait.training.loss import batch_loss

WORDS = Words.of("plait.inspection.lab", "extrapolation")
TRAINED, LENGTHS = 32, (32, 64, 128, 256)
ASKED, APART = 16, 32  # places at a row's end that are judged, and tokens from one row's end to the next
SEEDS, STEPS = 2, 150
KINDS: dict[str, dict[str, Any]] = {
    "none": {},
    "learned": {"position": "learned", "max_length": TRAINED},
    "sinusoidal": {"position": "sinusoidal"},
    "rope": {"position": "rope"},
    "alibi": {"position": "alibi"},
    "buckets": {"relative_bias": RelativeBias(buckets=16, max_distance=TRAINED)},
}
SCALINGS = ("linear", "dynamic", "yarn", "llama3")


def train_one(kind: str, seed: int, steps: int = STEPS) -> dict[str, list[float | None]]:
    """Train on short rows and judge on longer ones; of rotary positions also with every scaling of the same weights."""
    architecture = Architecture(
        vocab_size=len(corpus.english()),
        d_model=64,
        n_heads=4,
        d_ff=256,
        n_decoder_layers=3,
        activation="gelu",
        tied=True,
        embedding_scale=8.0,
        **KINDS[kind],
    )
    model = Transformer(architecture)
    initialize(model, "xavier", seed=seed)
    learn(model, corpus.text(TRAINED, 16, seed=seed), steps=steps, lr=1e-2, warmup=steps // 10, seed=seed)
    found: dict[str, list[float | None]] = {kind: [judged(model, length) for length in LENGTHS]}
    if kind == "rope":
        for name in SCALINGS:
            found[name] = [judged(rescaled(model, name, length), length) for length in LENGTHS]
    return found


def rescaled(model: Transformer, scaling: str, length: int) -> Transformer:
    """The same weights with frequencies stretched for rows of a length."""
    factor = max(1.0, length / TRAINED)
    stretched = RopeScaling(kind=scaling, factor=factor, original_max_length=TRAINED)  # type: ignore[arg-type]
    if scaling == "dynamic":  # reckons with the rows' own length
        stretched = RopeScaling(kind="dynamic", factor=1.0, original_max_length=TRAINED)
    twin = Transformer(model.architecture.replace(rope=Rope(scaling=stretched)))
    twin.load_state_dict(model.state_dict())
    return twin


def judged(model: Transformer, length: int) -> float | None:
    """Nats a token over the same tokens at any length, each with nearly ``length`` before it; ``None`` where rows of
    that length are refused."""
    batch = ends(length)
    try:
        with evaluating(model):
            total, count = batch_loss(model, batch)
    except ValueError:
        return None
    return float(total) / count


def ends(length: int) -> Batch:
    """Rows of held-out text that end alike whatever their length, of which the end is asked."""
    tokens = corpus.text(TRAINED, 1, held_out=True).tokens
    ids: Tensor = torch.from_numpy(tokens.read(0, len(tokens)))
    last = torch.arange(max(LENGTHS), len(ids) - 1, APART)
    rows = torch.stack([ids[end - length : end + 1] for end in last.tolist()])
    targets = rows[:, 1:].clone()
    targets[:, :-ASKED] = UNCOUNTED
    return Batch(tokens=rows[:, :-1], targets=targets)


def run(trials: Mapping[str, Any]) -> Result:
    """Loss by length, of each kind and each scaling."""
    losses = {
        name: [_spread([trials[f"{kind}-{seed}"][name][i] for seed in range(SEEDS)]) for i in range(len(LENGTHS))]
        for kind in KINDS
        for name in (kind, *(SCALINGS if kind == "rope" else ()))
    }
    less = partial(_less, losses["rope"])
    verdicts = {
        "learned": ("refused", losses["learned"][-1] is None),
        "sinusoidal": ("lost", _rises(losses["sinusoidal"])),
        "rope": ("lost", _rises(losses["rope"])),
        "alibi": ("kept", not _rises(losses["alibi"])),
        "buckets": ("kept", not _rises(losses["buckets"])),
        "none": ("less_than_sinusoids", _less(losses["sinusoidal"], losses["none"])),
        "linear": ("not_saved", not less(losses["linear"])),
        **{name: ("saved", less(losses[name])) for name in ("dynamic", "yarn", "llama3")},
    }
    findings = tuple(_finding(name, losses[name], holds, claimed) for name, (claimed, holds) in verdicts.items())
    groups = {"figure": tuple(KINDS), "scalings": ("rope", *SCALINGS)}
    pictures = tuple(
        Lines(
            title=WORDS[title],
            across=WORDS["length"],
            series=tuple(
                Series(
                    name=WORDS[name],
                    points=tuple(
                        (float(length), loss.mean)
                        for length, loss in zip(LENGTHS, losses[name], strict=True)
                        if loss is not None
                    ),
                )
                for name in names
            ),
            log=False,
        )
        for title, names in groups.items()
    )
    return Result(findings=findings, figures=pictures)


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return spread(known) if known else None


def _rises(losses: Sequence[Spread | None]) -> bool:
    """Whether the longest row costs more than the length of training, by more than the spread."""
    first, last = losses[0], losses[-1]
    assert first is not None
    return last is None or last.low > first.high


def _less(than: Sequence[Spread | None], losses: Sequence[Spread | None]) -> bool:
    """Whether the longest row adds less to the loss than it does to another's, by more than the spread."""
    (first, last), (other_first, other_last) = ((row[0], row[-1]) for row in (losses, than))
    assert first is not None and other_first is not None
    if last is None or other_last is None:
        return other_last is None and last is not None
    return last.high - first.low < other_last.low - other_first.high


def _finding(name: str, losses: Sequence[Spread | None], holds: bool, claimed: str) -> Finding:
    return Finding(
        id="",
        what=WORDS.say("kind", name=WORDS[name], lengths=", ".join(map(str, LENGTHS)), trained=TRAINED),
        claimed=WORDS[claimed],
        measured=", ".join("–" if loss is None else f"{loss.mean:.2f}" for loss in losses),
        holds=holds,
        values=tuple(float("nan") if loss is None else loss.mean for loss in losses),
    )


EXPERIMENT = Experiment(
    name="extrapolation",
    words=WORDS,
    run=run,
    trials=tuple(
        Trial(name=f"{kind}-{seed}", make=partial(train_one, kind, seed), seconds=9.0)
        for kind in KINDS
        for seed in range(SEEDS)
    ),
)
