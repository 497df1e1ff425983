"""Statistics of memories: what Geva et al. 2021 measured of a decoder, layer by layer.

agreement    how often a value's first token is the token that followed its neuron's strongest trigger (section 4.2)
chance       the same with neurons' triggers dealt out anew: what frequent tokens alone give
active       the share of neurons that count: not 0 under ReLU, else a tenth of the largest there, or more (5.1)
zero         how often a layer says a token that none of its active memories says: it composes (5.1, "zero agreement")
settled      how often the stream behind a layer says what the model says in the end (5.2)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from plait.checkpoint import Checkpoint
from plait.data.tokens import Tokens
from plait.inspection.lens import stack_of, unembed
from plait.inspection.memory.networks import memories
from plait.inspection.memory.reading import read_values, table_of
from plait.inspection.memory.survey import Triggers
from plait.model import watching

RELUS = ("relu", "relu2")
ACTIVE = 0.1  # of the largest coefficient of a place


def first_tokens(
    checkpoint: Checkpoint, found: Mapping[str, Triggers], values: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Of each network, the token ``(m,)`` that each value says, in the direction in which its strongest trigger adds
    it."""
    model = checkpoint.model
    said: dict[str, Tensor] = {}
    for name, triggers in found.items():
        table = table_of(model, name.partition(".")[0])
        signs = torch.where(triggers.strengths[:, :1] < 0, -1.0, 1.0).to(values[name])
        said[name] = torch.cat([ids[:, 0] for ids, _ in read_values(table, values[name] * signs, 1)])
    return said


def agreement(triggers: Triggers, said: Tensor, corpus: Tokens, seed: int = 0) -> tuple[float, float]:
    """How often a value says what followed its strongest trigger, and the same by chance."""
    places = triggers.places[:, 0]
    known = (places >= 0) & (places + 1 < len(corpus))
    if not bool(known.any()):
        return 0.0, 0.0
    following = torch.tensor([int(corpus.read(place + 1, place + 2)[0]) for place in places[known].tolist()])
    dealt = following[torch.randperm(len(following), generator=torch.Generator().manual_seed(seed))]
    mine = said[known].cpu()
    return float((mine == following).double().mean()), float((mine == dealt).double().mean())


@torch.no_grad()
def composition(checkpoint: Checkpoint, ids: Tensor) -> Iterator[tuple[float, float, float]]:
    """Of each layer of a decoder over rows of ``ids`` ``(b, n)``: active, zero and settled."""
    model, a = checkpoint.model.eval(), checkpoint.architecture
    tower = "decoder" if model.decoder is not None else "encoder"
    final: list[Tensor] = []
    with watching(model, "*.ffn.*", "*.ffn_branch", f"{tower}.layers.*.output") as seen:
        final.append(model(ids).argmax(-1).flatten())
    values = {name: value.flatten(0, 1) for name, value in seen.items()}
    table = table_of(model, tower)
    for turn, block in enumerate(stack_of(model).blocks):
        layer = f"{tower}.layers.{turn}"
        says = torch.cat([found[:, 0] for found, _ in read_values(table, values[f"{layer}.ffn_branch"], 1)])
        active: list[Tensor] = []
        agrees = torch.zeros(len(says), dtype=torch.bool, device=says.device)
        for network in memories(block.ffn, values, f"{layer}.ffn"):
            sizes = network.coefficients.abs()
            fires = sizes > (0 if a.activation in RELUS else ACTIVE * sizes.amax(-1, keepdim=True))
            active.append(fires)
            for sign in (1, -1):
                first = torch.cat([found[:, 0] for found, _ in read_values(table, sign * network.values, 1)])
                mine = fires & (network.coefficients * sign > 0)
                agrees |= (mine & (says[:, None] == first)).any(-1)
        stream = unembed(model, seen[f"{layer}.output"]).argmax(-1).flatten()
        yield (
            float(torch.cat(active, -1).double().mean()),
            1 - float(agrees.double().mean()),
            float((stream == final[0]).double().mean()),
        )
