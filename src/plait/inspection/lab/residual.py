"""D1 and D2: what a residual connection does to the gradient on its way down."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.inspection.lab.experiment import Experiment, Finding, Result, compared, number, numbers
from plait.inspection.lab.figures import Lines, Series
from plait.inspection.lab.making import drawn
from plait.inspection.passes import onwards
from plait.model import Transformer, watching
from plait.model.initialization import Scheme
from plait.model.norm import Slots
from plait.pages.words import Words

WORDS = Words.of("plait.inspection.lab", "residual")
FACTOR, CHAIN = 0.85, (12, 24, 48)
DEPTHS, SEEDS = (6, 12, 24, 48), 3
WIDTH, TOKENS = 32, 8
VARIANTS: dict[str, dict[str, Any]] = {
    "none": {"skip_scale": 0.0},
    "pre": {},
    "post": {"norm_placement": "post"},
}
SIZE: dict[str, Any] = {
    "vocab_size": 16,
    "d_model": WIDTH,
    "n_heads": 4,
    "d_ff": 2 * WIDTH,
    "head": None,
    "embedding_scale": WIDTH**0.5,  # the stream begins at a deviation of 1
}


def run(trials: Mapping[str, Any]) -> Result:
    """Chains, real stacks, and the Jacobian of a real block."""
    shares = {name: [share(knobs, depth) for depth in DEPTHS] for name, knobs in VARIANTS.items()}
    whole, branch = jacobians()
    off = float((whole - branch - torch.eye(WIDTH)).abs().max())
    stretches = torch.linalg.svdvals(whole)
    least, below = float(stretches.min()), float((stretches < 1).double().mean())
    findings = (
        compared("D1", WORDS.say("chain", layers=numbers(CHAIN)), [0.1422, 0.0202, 0.0004], [*map(bare, CHAIN)]),
        Finding(
            id="D2",
            what=WORDS["formula"],
            claimed="dL/dx = dL/dy (dF/dx + 1)",
            measured=WORDS.say("off", distance=number(off)),
            holds=off < 1e-10,
            values=(off,),
        ),
        *(
            Finding(
                id="D2",
                what=WORDS.say("share", variant=WORDS[name], depths=numbers(DEPTHS)),
                claimed=WORDS["lost" if name == "none" else "arrives"],
                measured=", ".join(f"{value:.2g}" for value in values),
                holds=values[-1] < 0.1 if name == "none" else values[-1] > 10 * shares["none"][-1],
                values=tuple(values),
            )
            for name, values in shares.items()
        ),
        Finding(
            id="W6",
            what=WORDS["circulates"],
            claimed=WORDS["never"],
            measured=WORDS.say("shrinks", least=number(least), share=f"{100 * below:.0f} %"),
            holds=least >= 1,
            values=(least, below),
        ),
    )
    return Result(findings=findings, figures=(*drawings(shares), stretched(stretches)))


def bare(layers: int) -> float:
    """The gradient through that many slots that pass nothing by, each of which multiplies by 0.85."""
    slots = Slots(Architecture(**SIZE, n_decoder_layers=1, skip_scale=0.0, residual_scale=FACTOR), ())
    x = torch.ones(1, dtype=torch.float64, requires_grad=True)
    y = x
    for _ in range(layers):
        y = slots.leave(y, slots.branch(y))
    (slope,) = torch.autograd.grad(y.sum(), x)
    return float(slope)


def by_layer(knobs: dict[str, Any], depth: int, *, seed: int = 0, scheme: Scheme = "xavier") -> list[float]:
    """The gradient's norm behind each layer of a fresh stack, the first to the last, for an arbitrary loss."""
    model = drawn(Architecture(**SIZE, n_decoder_layers=depth, **knobs), scheme, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 16, (1, TOKENS), generator=generator)
    wish = torch.randn(1, TOKENS, WIDTH, generator=generator, dtype=torch.float64)
    with watching(model, "decoder.layers.*.output", gradients=True) as seen:
        (model(tokens) * wish).sum().backward()
    return [float(seen.gradient(name).norm()) for name in seen]


def share(knobs: dict[str, Any], depth: int) -> float:
    """Of the gradient behind the last layer, what is left behind the first: the geometric mean over some seeds."""
    norms = [by_layer(knobs, depth, seed=seed) for seed in range(SEEDS)]
    return math.exp(sum(math.log(one[0] / one[-1]) for one in norms) / SEEDS)


def jacobians() -> tuple[Tensor, Tensor]:
    """Of a real block y = x + F(x): dy/dx and dF/dx, ``(w, w)`` each, at one token."""
    model = drawn(Architecture(**SIZE, n_decoder_layers=1, parallel="shared", final_norm=False))
    x = torch.randn(1, 1, WIDTH, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return slopes(lambda x: onwards(model, x, 0), x), slopes(lambda x: added(model, x), x)


def added(model: Transformer, x: Tensor) -> Tensor:
    """F(x): what attention and the feed-forward network add."""
    branches: list[Tensor] = []
    with watching(model, "*_branch", change=lambda _, value: branches.append(value)):
        onwards(model, x, 0)
    return branches[0] + branches[1]


def slopes(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The Jacobian of a function of ``(1, 1, w)``."""
    found = torch.autograd.functional.jacobian(f, x)
    assert isinstance(found, Tensor)
    return found.view(WIDTH, WIDTH)


def drawings(shares: Mapping[str, list[float]]) -> tuple[Lines, Lines]:
    """The share by depth, and of 24 layers the gradient at each."""
    deep = {name: by_layer(knobs, 24) for name, knobs in VARIANTS.items()}
    return (
        Lines(
            title=WORDS["figure"],
            across=WORDS["depth"],
            series=tuple(
                Series(name=WORDS[name], points=tuple(zip(map(float, DEPTHS), values, strict=True)))
                for name, values in shares.items()
            ),
            log=True,
        ),
        Lines(
            title=WORDS["layers"],
            across=WORDS["layer"],
            series=tuple(
                Series(name=WORDS[name], points=tuple((float(i), v / norms[-1]) for i, v in enumerate(norms, 1)))
                for name, norms in deep.items()
            ),
            log=True,
        ),
    )


def stretched(stretches: Tensor) -> Lines:
    """The singular values of a block's Jacobian."""
    points = tuple((float(i), value) for i, value in enumerate(stretches.tolist()))
    return Lines(
        title=WORDS["singular"],
        across=WORDS["direction"],
        series=(Series(name="dy/dx", points=points), Series(name="1", points=((0.0, 1.0), (WIDTH - 1.0, 1.0)))),
        log=False,
    )


EXPERIMENT = Experiment(name="residual", words=WORDS, run=run)
