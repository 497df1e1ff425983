"""A1 to A3, A5 and A6: where the parameters of a Transformer are, counted in live models that hold no numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from plait.account import account
from plait.account.tensors import multiplies, part_of
from plait.architecture import Architecture
from plait.inspection.lab.experiment import Experiment, Finding, Result, compared, number, numbers
from plait.inspection.lab.figures import Bar, Bars, Table
from plait.model import Transformer
from plait.pages.words import Words
from plait.presets import preset

WORDS = Words.of("plait.inspection.lab", "share")
BASE = preset("vaswani-base")
WIDE = Architecture(vocab_size=32000, d_model=4096, n_heads=32, d_ff=4 * 4096, n_decoder_layers=32)
PAPER = 65_000_000  # what Vaswani et al. 2017 print for the base model, table 3
SQUARE = ("gpt2", "gpt3-175b", "bert-base")  # published blocks of d_ff = 4 d


def run(trials: Mapping[str, Any]) -> Result:
    """Blocks, layers, towers, tables, and what is left over."""
    base, wide = live(BASE), live(WIDE)
    blocks = [live(preset(name).replace(**one_layer(name))) for name in SQUARE]
    shares = [projections(block, ".ffn.") / projections(block, ".layers.0.") for block in blocks]
    layers = [
        projections(base, "encoder.layers.0.attention."),
        projections(base, "encoder.layers.0.ffn."),
        projections(base, "encoder.layers.0."),
        projections(base, "decoder.layers.0."),
        projections(base, "decoder.layers.0.cross."),
    ]
    table = base["embedding.tokens.weight"]
    small = itemised(base)
    rest = sum(base.values()) - projections(base) - table
    findings = (
        compared("A1", WORDS.say("block", names=", ".join(SQUARE)), [2 / 3] * 3, shares),
        compared("A2", WORDS["layers"], [1_048_576, 2_097_152, 3_145_728, 4_194_304, 1_048_576], layers),
        compared("A3", WORDS["towers"], [44_040_192, 6_291_456], [projections(base), projections(base, ".cross.")]),
        compared("A5", WORDS["whole"], [account(BASE).parameters], [sum(base.values())]),
        compared("A5", WORDS["rest"], [98_304], [rest]),
        compared("A5", WORDS["items"], [30_720, 36_864, 30_720], list(small.values())),
        compared(
            "A6", WORDS["wide"], [201_326_592, 6_442_450_944], [projections(wide, ".layers.0."), projections(wide)]
        ),
        Finding(
            id="W4",
            what=WORDS["circulates"],
            claimed=number(PAPER - projections(base) - table),
            measured=number(rest),
            holds=2 * rest > PAPER - projections(base) - table,
            values=(rest, PAPER - projections(base) - table),
        ),
    )
    return Result(findings=findings, figures=(parts(base), tensors(base)))


def live(architecture: Architecture) -> dict[str, int]:
    """How many numbers each parameter of a built model has; on the meta device they take no room."""
    with torch.device("meta"):
        return {name: parameter.numel() for name, parameter in Transformer(architecture).named_parameters()}


def one_layer(name: str) -> dict[str, int]:
    """The knob that leaves one layer of a preset."""
    return {"n_encoder_layers" if preset(name).kind == "encoder" else "n_decoder_layers": 1}


def projections(counts: Mapping[str, int], within: str = ".layers.") -> int:
    """Numbers of the matrices of products whose names contain ``within``."""
    return sum(n for name, n in counts.items() if within in name and multiplies(name))


def itemised(counts: Mapping[str, int]) -> dict[str, int]:
    """Numbers in norms, in attention's biases and in the feed-forward networks' biases."""
    found = {"norms": 0, "attention": 0, "ffn": 0}
    for name, n in counts.items():
        if part_of(name) == "norms":
            found["norms"] += n
        elif part_of(name) == "biases":
            found["ffn" if ".ffn." in name else "attention"] += n
    return found


def parts(counts: Mapping[str, int]) -> Bars:
    """The base model by part."""
    sums: dict[str, int] = {}
    for name, n in counts.items():
        sums[part_of(name)] = sums.get(part_of(name), 0) + n
    bars = tuple(Bar(name=WORDS[part], value=float(n)) for part, n in sums.items())
    return Bars(title=WORDS["figure"], bars=bars)


def tensors(counts: Mapping[str, int]) -> Table:
    """Every vector of the base model, which is a norm's or a bias, by what it is called in its layer."""
    rows: dict[str, list[int]] = {}
    for name, n in counts.items():
        if part_of(name) in ("norms", "biases"):
            tower, _, _, *own = name.split(".")
            rows.setdefault(f"{tower}.layers.*.{'.'.join(own)}", []).append(n)
    return Table(
        title=WORDS["vectors"],
        columns=(WORDS["tensor"], WORDS["each"], WORDS["how_many"], WORDS["together"]),
        rows=tuple((name, number(n[0]), str(len(n)), numbers([sum(n)])) for name, n in rows.items()),
    )


EXPERIMENT = Experiment(name="share", words=WORDS, run=run)
