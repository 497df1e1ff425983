"""The steps of a model's end: logits and probabilities over the vocabulary or over classes, or a text's one vector.

Legend: n tokens, w width, t of what is likeliest.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from plait.architecture import Classification
from plait.checkpoint import Checkpoint
from plait.inspection.walk.joining import Read
from plait.inspection.walk.norm import norm_step
from plait.inspection.walk.place import Place, named, wide
from plait.inspection.walk.step import Filling, Formula, Slot, Step, View
from plait.model.head import Head, pool
from plait.text import Tokenizer

MOST = 10  # outputs that are named


def ending_steps(place: Place, checkpoint: Checkpoint, states: Read, writer: Tokenizer | None) -> Iterator[Step]:
    """From the last states of the tower that the output is read from."""
    head = checkpoint.model.head
    if head is None:
        yield from _vector(place, checkpoint, states)
        return
    pooled = head.pooling is not None
    if head.pooling is not None:
        step, states = _pooled(place, head.pooling, states)
        yield step
    read = states
    if head.act is not None:
        step, read = _dense(place, head, read, pooled)
        yield step
        if head.norm is not None and not pooled:
            step, read = norm_step(place, head.norm, "head.norm", read, title="head_norm_title", lane="stream")
            yield step
        elif head.norm is not None:
            read = (place.keep("head.normed", place.ask(head.norm, read[1])), place.ask(head.norm, read[1]))
    yield from _answers(place, checkpoint, head, read, writer)


def _pooled(place: Place, pooling: str, states: Read) -> tuple[Step, Read]:
    value = wide(pool(states[1][None], None, pooling)[0])
    name = place.keep("head.pooled", value)
    step = Step(
        name="pooling",
        title="pooling_title",
        says=(f"pooling_{pooling}_says",),
        found=("pooling_found",),
        views=(
            View(kind="rows", label="states", at=f"{states[0]}[* *]", sets="p d"),
            View(kind="vector", label="pooled", at=f"{name}[*]", sets="d"),
        ),
        slots={"n": len(states[1]), "size": Slot("size", f"{name}[*]")},
        lane="stream",
    )
    return step, (name, value)


def _vector(place: Place, checkpoint: Checkpoint, states: Read) -> Iterator[Step]:
    """Without a head: the states, and the one vector that they become (see ``plait.embed``)."""
    record, kind = checkpoint.pooling, checkpoint.architecture.kind
    pooling = record.pooling if record is not None else "last" if kind == "decoder" else "mean"
    step, (name, value) = _pooled(place, pooling, states)
    yield step
    if record is None or not record.normalize:
        return
    unit = F.normalize(value, dim=-1)
    unit_name = place.keep("head.unit", unit)
    yield Step(
        name="unit",
        title="unit_title",
        says=("unit_says",),
        formulas=(
            Formula(
                symbols="y = x / |x|",
                filled="{x} / {size} = {y}",
                slots={
                    "x": Slot("number", f"{name}[d]"),
                    "size": Slot("size", f"{name}[*]"),
                    "y": Slot("number", f"{unit_name}[d]"),
                },
            ),
        ),
        views=(View(kind="vector", label="unit", at=f"{unit_name}[*]", sets="d"),),
        slots={"size": Slot("size", f"{name}[*]")},
        lane="stream",
        check=place.check("told.unit", value / value.norm(), unit),
    )


def _dense(place: Place, head: Head, read: Read, pooled: bool) -> tuple[Step, Read]:
    assert head.act is not None
    value = place.ask(head.act, place.ask(head.dense, read[1]))
    name = place.keep("head.dense", value)
    at = "" if pooled else "p "
    step = Step(
        name="dense",
        title="dense_title",
        says=("dense_says",),
        views=(
            View(kind="vector", label="read", at=f"{read[0]}[{at}*]", sets="d"),
            View(kind="vector", label="transformed", at=f"{name}[{at}*]", sets="d"),
        ),
        slots={"activation": place.trace.model.architecture.head_transform or ""},
        lane="stream",
    )
    return step, (name, value)


def _answers(place: Place, checkpoint: Checkpoint, head: Head, read: Read, writer: Tokenizer | None) -> Iterator[Step]:
    a, logits = checkpoint.architecture, wide(place.trace.output)
    at, kind = ("p " if logits.ndim == 2 else ""), a.head if isinstance(a.head, str) else "classes"
    best = logits.topk(min(MOST, logits.shape[-1]))
    ids = best.indices
    names = place.say("answers", _names(checkpoint, ids if ids.ndim == 2 else ids[None], writer))
    word = Slot("text", f"{names}[{at or '0 '}t]")
    top_name = place.keep("logits", best.values)
    table = head.output.weight
    if table is None:
        assert checkpoint.model.embedding.tokens is not None, "the table of a tied head"
        table = checkpoint.model.embedding.tokens.weight
    weight = wide(table[ids].detach())  # n t w
    told = torch.einsum("...w,...tw->...t", read[1], weight)
    slots: dict[str, Filling] = {
        "sum": place.products("head.weight", weight, f"{read[0]}[{at}*]", f"[{at}t {{}}]"),
        "y": Slot("number", f"{top_name}[{at}t]"),
    }
    symbols, filled = "h · w", "{sum}"
    if head.output.bias is not None:
        bias = wide(head.output.bias[ids].detach())
        told = told + bias
        slots["b"] = Slot("number", place.keep("head.bias", bias) + f"[{at}t]")
        symbols, filled = f"{symbols} + b", f"{filled} + {{b}}"
    if head.scale != 1.0:
        told, slots["scale"] = told * head.scale, float(head.scale)
        symbols, filled = f"({symbols}) × {head.scale:g}", f"({filled}) × {{scale}}"
    if (cap := head.softcap) is not None:
        told, slots["cap"] = cap * torch.tanh(told / cap), float(cap)
        symbols, filled = f"c × tanh(({symbols}) / c)", f"{{cap}} × tanh(({filled}) / {{cap}})"
    yield Step(
        name="logits",
        title="logits_title",
        says=(f"logits_{kind}_says",),
        found=("logits_found",),
        formulas=(Formula(symbols=f"logit = {symbols}", filled=f"{filled} = {{y}}", slots=slots),),
        views=(
            View(kind="vector", label="compared", at=f"{read[0]}[{at}*]", sets="d"),
            View(
                kind="bars",
                label="logits",
                at=f"{top_name}[{at}*]",
                sets="t",
                more={"names": f"{names}[{at or '0 '}*]"},
            ),
        ),
        slots={"answer": word, "y": slots["y"], "outputs": logits.shape[-1], "token": Slot("token", "p")},
        lane="stream",
        check=place.check("told.logits", told, best.values),
    )
    yield _probabilities(place, checkpoint, logits, best.values, word, names, at, kind)


def _probabilities(
    place: Place, checkpoint: Checkpoint, logits: Tensor, top: Tensor, word: Slot, names: str, at: str, kind: str
) -> Step:
    alone = _alone(checkpoint)
    shares = top.sigmoid() if alone else logits.softmax(-1).gather(-1, logits.topk(top.shape[-1]).indices)
    name = place.keep("probabilities", shares)
    slots: dict[str, Filling] = {
        "logit": Slot("number", f"{place.spec}.logits[{at}t]"),
        "share": Slot("number", f"{name}[{at}t]"),
        "percent": Slot("percent", f"{name}[{at}t]"),
    }
    symbols, filled = "p = 1 / (1 + e^−logit)", "1 / (1 + e^(−{logit})) = {share} = {percent}"
    told = 1 / (1 + (-top).exp())
    if not alone:
        total = logits.logsumexp(-1)
        slots["total"] = Slot("number", place.keep("logsumexp", total) + f"[{at.strip()}]")
        symbols, filled = "p = e^(logit − L), L = log Σ e^logit", "e^({logit} − {total}) = {share} = {percent}"
        told = (top - total[..., None]).exp()
    return Step(
        name="probabilities",
        title="probabilities_title",
        says=("sigmoid_says" if alone else "softmax_says", f"probabilities_{kind}_says"),
        found=(f"{kind}_found",),
        formulas=(Formula(symbols=symbols, filled=f"{filled}", slots=slots),),
        views=(
            View(
                kind="bars",
                label="probabilities",
                at=f"{name}[{at}*]",
                sets="t",
                scale="share",
                more={"names": f"{names}[{at or '0 '}*]"},
            ),
        ),
        slots={
            "token": Slot("token", "p"),
            "answer": Slot("text", f"{names}[{at or '0 '}0]"),
            "share": Slot("percent", f"{name}[{at}0]"),
            "outputs": logits.shape[-1],
            "shown": top.shape[-1],
        },
        lane="stream",
        check=place.check("told.probabilities", told, shares),
    )


def _alone(checkpoint: Checkpoint) -> bool:
    """Whether each class has a probability of its own, as ``plait.classify`` has it."""
    head = checkpoint.architecture.head
    several = (checkpoint.layout.config or {}).get("problem_type") == "multi_label_classification"
    return isinstance(head, Classification) and (head.labels == 1 or several)


def _names(checkpoint: Checkpoint, ids: Tensor, writer: Tokenizer | None) -> list[list[str]]:
    head = checkpoint.architecture.head
    if isinstance(head, Classification):
        labels = list(checkpoint.labels or [])
        if len(labels) != head.labels:
            labels = [f"LABEL_{i}" for i in range(head.labels)]
        return [[labels[id] for id in row] for row in ids.tolist()]
    return [named(row, writer) for row in ids.tolist()]
