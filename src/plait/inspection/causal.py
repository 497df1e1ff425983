"""Causal tracing: which inner values carry a fact (Meng et al. 2022, section 2, figure 1).

The subject's embeddings are blurred by noise, so that the answer is lost; then the value of one layer at one place is
put back to what it was, and it is seen how much of the answer's probability returns.

Legend: s samples of noise, n places, w width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from plait.checkpoint import Checkpoint
from plait.inspection.errors import InspectionError
from plait.inspection.passes import onwards, read_out
from plait.inspection.reading import Reading
from plait.inspection.trace import Trace, trace
from plait.model import Transformer, watching

Kind = Literal["output", "attention_branch", "ffn_branch"]


@dataclass(frozen=True, kw_only=True, eq=False)
class CausalTrace:
    """``probabilities`` ``(layers, n)`` of ``token`` once a layer's value at a place was put back; ``clean`` is that
    without noise, ``blurred`` that with all of it. ``subject`` are the places that were blurred."""

    kind: Kind
    token: int
    texts: tuple[str, ...]
    subject: tuple[int, ...]
    clean: float
    blurred: float
    probabilities: Tensor


@torch.no_grad()
def causal_trace(
    checkpoint: Checkpoint,
    reading: Reading,
    subject: Sequence[int],
    *,
    token: int | None = None,
    kind: Kind = "output",
    window: int | None = None,
    samples: int = 10,
    noise: float = 3.0,
    seed: int = 0,
    batch_rows: int = 64,
) -> CausalTrace:
    """Of a decoder's text.

    Args:
        subject: the places of its tokens.
        token: the answer; none: the likeliest.
        kind: of the values that are put back: the residual stream behind a layer, or what attention or the
            feed-forward network adds.
        window: layers around each that are put back together; none: 1 for the stream, else 10.
        samples: of noise, over which probabilities are averaged.
        noise: its deviation, in deviations of the embeddings of all tokens.
        seed: of the noise.

    Raises ``InspectionError`` for another kind of model, and places that there are not.
    """
    model = checkpoint.model.eval()
    if model.decoder is None or checkpoint.architecture.kind != "decoder" or model.head is None:
        raise InspectionError(
            f"causal tracing is of a decoder's language model, and this is an {checkpoint.architecture.kind}."
        )
    n, layers = len(reading), len(model.decoder.blocks)
    places = sorted(set(subject))
    if not places or places[0] < 0 or places[-1] >= n:
        raise InspectionError(f"subject: places {list(subject)}, and the text has {n} tokens.")
    names = [f"decoder.layers.{layer}.{kind}" for layer in range(layers)]
    clean = trace(checkpoint, reading, "embedding.output", *names)
    said = clean.output[-1].float().softmax(-1)
    token = int(said.argmax()) if token is None else token
    states = _blurred(checkpoint, reading, places, noise, samples, seed)
    window = window or (1 if kind == "output" else 10)
    found: list[Tensor] = []
    for layer in range(layers):
        low = max(0, layer - window // 2)
        put_back = names[low : layer - window // 2 + window]
        found.append(_restored(model, clean, states[low], put_back, low, token, batch_rows))
    return CausalTrace(
        kind=kind,
        token=token,
        texts=reading.texts,
        subject=tuple(places),
        clean=float(said[token]),
        blurred=float(_probability(model, states[-1], layers, token).mean()),
        probabilities=torch.stack(found),
    )


def _blurred(
    checkpoint: Checkpoint, reading: Reading, subject: Sequence[int], noise: float, samples: int, seed: int
) -> list[Tensor]:
    """The residual stream ``(s, n, w)`` before each layer, and behind the last, with blurred embeddings."""
    model = checkpoint.model
    assert model.decoder is not None and model.embedding.tokens is not None
    deviation = float(model.embedding.tokens.weight.float().std()) * model.embedding.scale
    drawn = torch.randn(
        samples, len(subject), checkpoint.architecture.d_model, generator=torch.Generator().manual_seed(seed)
    )

    def blur(name: str, value: Tensor) -> Tensor | None:
        if name != "embedding.output":
            return None
        value = value.clone()
        value[:, list(subject)] += noise * deviation * drawn.to(value)
        return value

    tokens = reading.tokens.expand(samples, -1)
    names = ["embedding.output", *(f"decoder.layers.{turn}.output" for turn in range(len(model.decoder.blocks)))]
    with watching(model, *names, change=blur) as seen:
        model(tokens, last_only=True)
    return [seen[name] for name in names]


def _restored(
    model: Transformer, clean: Trace, before: Tensor, names: Sequence[str], first: int, token: int, batch_rows: int
) -> Tensor:
    """The answer's probability ``(n,)``, the mean over samples, where the values of ``names`` were put back at one
    place after the other; ``before`` is the stream before layer ``first``."""
    samples, n = before.shape[:2]
    place, sample = (each.flatten() for each in torch.meshgrid(torch.arange(n), torch.arange(samples), indexing="ij"))
    found: list[Tensor] = []
    for start in range(0, n * samples, batch_rows):
        at = place[start : start + batch_rows]
        row = torch.arange(len(at))

        def put_back(name: str, value: Tensor, at: Tensor = at, row: Tensor = row) -> Tensor:
            value = value.clone()
            value[row, at] = clean[name][at]
            return value

        with watching(model, *names, change=put_back):
            found.append(_probability(model, before[sample[start : start + batch_rows]], first, token))
    return torch.cat(found).view(n, samples).mean(1)


def _probability(model: Transformer, states: Tensor, first: int, token: int) -> Tensor:
    """Of the answer ``(b,)``, from the stream before layer ``first``."""
    logits = read_out(model, onwards(model, states, first)[:, -1])
    return logits.float().softmax(-1)[:, token]
