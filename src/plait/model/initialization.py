"""Initialisation as a table: for each scheme, the spread of each kind of weight; norms are the identity, biases 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from plait.architecture import Architecture

Scheme = Literal["xavier", "gpt2", "t5", "deepnorm", "normal"]
Role = Literal["embedding", "query", "key", "value", "output", "up", "down", "relative_bias", "router", "head"]

ROLES: dict[str, Role] = {  # the last word but one of a parameter's name -> what it is
    "tokens": "embedding", "positions": "embedding", "types": "embedding", "projection": "up",
    "query": "query", "key": "key", "value": "value", "gate": "up", "up": "up", "down": "down",
    "relative_bias": "relative_bias", "dense": "up", "router": "router", "shared_gate": "router",
}  # fmt: skip


def _branches(a: Architecture) -> int:
    """Sublayers that add to the residual stream, in the deeper tower."""
    return max(2 * a.n_encoder_layers, (3 if a.kind == "encoder-decoder" else 2) * a.n_decoder_layers)


def _xavier(a: Architecture, name: str, rows: int, columns: int) -> float:
    return math.sqrt(2 / (rows + columns))


def _fan_in(a: Architecture, name: str, rows: int, columns: int) -> float:
    return columns**-0.5


def _deepnorm(a: Architecture, name: str, rows: int, columns: int) -> float:
    """Xavier by Wang et al. 2022's beta (table 1), by kind and tower; skip_scale is their alpha."""
    n, m = a.n_encoder_layers, a.n_decoder_layers
    if a.kind != "encoder-decoder":
        beta = (8 * (n or m)) ** -0.25
    else:
        beta = 0.87 * (n**4 * m) ** (-1 / 16) if name.startswith("encoder") else (12 * m) ** -0.25
    return beta * _xavier(a, name, rows, columns)


def _shrinking(a: Architecture, name: str, rows: int, columns: int) -> float:
    return 0.02 / math.sqrt(_branches(a))


def _t5_table(a: Architecture, name: str, rows: int, columns: int) -> float:
    return 1.0 if a.logit_scale != 1.0 or not a.tied else columns**-0.5


# scheme -> roles and their standard deviation, from (architecture, name, rows, columns); what is not named is 0.02
Spread = Callable[[Architecture, str, int, int], float]
SPREADS: dict[Scheme, tuple[tuple[str, Spread], ...]] = {
    "normal": (),  # BERT
    "gpt2": (("output down", _shrinking),),  # Radford et al. 2019, 2.3: outputs shrink with depth
    # Glorot and Bengio 2010; the table is scaled by sqrt(d) where it is read (Vaswani et al. 2017, 3.4)
    "xavier": (("query key value output up down", _xavier), ("embedding head", _fan_in)),
    # Raffel et al. 2020 and mesh-tensorflow: by fan-in, with the attention's missing scale inside the queries
    "t5": (
        ("key value output up down head", _fan_in),
        ("embedding", _t5_table),
        ("query", lambda a, name, rows, columns: (columns * a.d_head) ** -0.5),
        ("relative_bias", lambda a, name, rows, columns: a.d_model**-0.5),
    ),
    "deepnorm": (("query key", _xavier), ("value output up down", _deepnorm), ("embedding head", _fan_in)),
}
UNIFORM: frozenset[Scheme] = frozenset({"xavier"})  # the 2017 paper's code draws its matrices evenly


def role_of(name: str) -> Role | None:
    """What a weight is, from its name; ``None`` for norms and biases."""
    parts = name.split(".")
    if parts[-1] != "weight" or "norm" in parts[-2] or "norms" in name:
        return None
    if parts[-2] == "output":
        return "head" if parts[0] == "head" else "output"
    return ROLES.get(parts[-2])


@torch.no_grad()
def initialize(model: nn.Module, scheme: Scheme = "gpt2", *, seed: int = 0, zero_residual: bool = False) -> None:
    """Fill every parameter of a ``Transformer`` in place, the same numbers for the same seed on any device.

    ``zero_residual``: the outputs of all sublayers start at 0, so that a pre-norm block is the identity (worked number
    D3). Raises ``ValueError`` for an unknown scheme.
    """
    if scheme not in SPREADS:
        raise ValueError(f"scheme: {scheme!r} is not one of {', '.join(map(repr, SPREADS))}.")
    a: Architecture = model.architecture  # type: ignore[assignment]
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        role = role_of(name)
        if role is None:
            parameter.fill_(1.0 if name.endswith("weight") and a.norm_weight == "plain" else 0.0)
        elif zero_residual and role in ("output", "down"):
            parameter.zero_()
        else:
            parameter.copy_(_draw(a, name, role, scheme, parameter, generator))


def _draw(a: Architecture, name: str, role: Role, scheme: Scheme, like: Tensor, generator: torch.Generator) -> Tensor:
    rows, columns = like.shape[-2:]  # an expert's matrix is drawn as if it were alone
    spread = next((f(a, name, rows, columns) for roles, f in SPREADS[scheme] if role in roles.split()), 0.02)
    drawn = torch.empty(like.shape, dtype=torch.float32)
    if scheme in UNIFORM and role not in ("embedding", "head", "relative_bias"):
        return drawn.uniform_(-math.sqrt(3) * spread, math.sqrt(3) * spread, generator=generator)
    return drawn.normal_(0.0, spread, generator=generator)
