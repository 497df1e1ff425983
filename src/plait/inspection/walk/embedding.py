"""The steps from a text to the residual stream: tokens, their rows of the table, positions.

Legend: n tokens, w width of the tables.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.inspection.walk.joining import Read
from plait.inspection.walk.norm import norm_step
from plait.inspection.walk.place import Place, wide
from plait.inspection.walk.step import Filling, Formula, Slot, Step, View
from plait.model.embedding import Embedding
from plait.model.linear import Table
from plait.model.position import sinusoids


def embedding_steps(
    place: Place, embedding: Embedding, table: Table, ids: Tensor, output: Tensor, a: Architecture, *, written: bool
) -> Iterator[Step]:
    """Args:
    ids: of the row, ``(n,)``.
    output: what the embedding gave in the pass.
    written: whether these tokens are what a decoder wrote about a source.
    """
    yield Step(
        name="tokens",
        title="tokens_title",
        says=("written_says", "tokens_says") if written else ("tokens_says",),
        found=("tokens_found",),
        views=(View(kind="tokens"),),
        slots={
            "n": len(ids),
            "vocabulary": table.num_embeddings,
            "token": Slot("token", "p"),
            "p": Slot("index", "p"),
            "id": Slot("text", place.say("ids", [[str(id)] for id in ids.tolist()]) + "[p 0]"),
        },
        lane="stream",
    )
    rows = wide(table(ids).detach())
    rows_name = place.keep("embedding.tokens", rows)
    told, parts = rows * embedding.scale, _added(place, embedding, ids, rows)
    alone = not parts and embedding.norm is None and embedding.projection is None
    yield _looked_up(place, embedding, rows_name, told, output, alone)
    read: Read = (f"{place.spec}.embedding.scaled" if embedding.scale != 1.0 else rows_name, told)
    if parts:
        for value in parts.values():
            told = told + value
        read = (place.keep("embedding.sum", told), told)
    last = embedding.norm is None and embedding.projection is None
    yield _positions(place, a, embedding, rows_name, parts, read, place.check("told", told, output) if last else "")
    if embedding.norm is not None:
        left = output if embedding.projection is None else None
        step, read = norm_step(
            place, embedding.norm, "embedding.norm", read, title="embedding_norm_title", left=left, lane="stream"
        )
        yield step
    if embedding.projection is not None:
        yield _projected(place, embedding, read, output)


def _looked_up(place: Place, embedding: Embedding, rows: str, told: Tensor, output: Tensor, alone: bool) -> Step:
    formulas: tuple[Formula, ...] = ()
    views = [View(kind="vector", label="row", at=f"{rows}[p *]", sets="d")]
    if embedding.scale != 1.0:
        scaled = place.keep("embedding.scaled", told)
        slots: dict[str, Filling] = {
            "x": Slot("number", f"{rows}[p d]"),
            "scale": float(embedding.scale),
            "y": Slot("number", f"{scaled}[p d]"),
        }
        formulas = (Formula(symbols=f"y = x × {embedding.scale:.4g}", filled="{x} × {scale} = {y}", slots=slots),)
        views.append(View(kind="vector", label="scaled", at=f"{scaled}[p *]", sets="d"))
    return Step(
        name="embedding",
        title="embedding_title",
        says=("embedding_says", *(("embedding_scale_says",) if embedding.scale != 1.0 else ())),
        found=("embedding_found",),
        formulas=formulas,
        views=tuple(views),
        slots={
            "width": embedding.width,
            "scale": float(embedding.scale),
            "token": Slot("token", "p"),
            "id": Slot("text", f"{place.spec}.ids[p 0]"),
            "size": Slot("size", f"{rows}[p *]"),
        },
        lane="stream",
        check=place.check("told.rows", told, output) if alone else "",
    )


def _added(place: Place, embedding: Embedding, ids: Tensor, rows: Tensor) -> dict[str, Tensor]:
    """What is added to a token's row: its position's, and its type's."""
    positions = torch.arange(len(ids), device=ids.device) + embedding.offset
    parts: dict[str, Tensor] = {}
    table, sinusoid = embedding.positions, embedding.sinusoid
    if table is not None:
        parts["position"] = wide(table(positions).detach())
    elif sinusoid is not None:
        parts["position"] = sinusoids(positions, embedding.width, sinusoid).to(rows.dtype)
    if embedding.types is not None:
        parts["type"] = embedding.types.weight[0].detach().to(rows.dtype).expand_as(rows)
    for name, value in parts.items():
        place.keep(f"embedding.{name}", value)
    return parts


def _positions(
    place: Place, a: Architecture, embedding: Embedding, rows: str, parts: dict[str, Tensor], read: Read, check: str
) -> Step:
    """Where positions come in: here, or later, or not at all."""
    base = f"{place.spec}.embedding.scaled" if embedding.scale != 1.0 else rows
    slots: dict[str, Filling] = {"x": Slot("number", f"{base}[p d]"), "y": Slot("number", f"{read[0]}[p d]")}
    symbols, filled = "x", "{x}"
    views = [View(kind="vector", label="row", at=f"{base}[p *]", sets="d")]
    for name in parts:
        slots[name] = Slot("number", f"{place.spec}.embedding.{name}[p d]")
        symbols, filled = f"{symbols} + {name[0]}", f"{filled} + {{{name}}}"
        views.append(View(kind="vector", label=name, at=f"{place.spec}.embedding.{name}[p *]", sets="d"))
    formulas = [Formula(symbols=f"y = {symbols}", filled=f"{filled} = {{y}}", slots=slots)] if parts else []
    if a.sinusoid is not None:
        formulas.insert(0, Formula(symbols="sin(p / 10000^(2i/d)), cos(p / 10000^(2i/d))", filled="", slots={}))
    if parts:
        views.append(View(kind="vector", label="sum", at=f"{read[0]}[p *]", sets="d"))
    kinds = [f"{a.position}_says"] if a.position != "none" else []
    kinds += ["relative_says"] if a.relative_bias is not None else []
    return Step(
        name="positions",
        title="positions_title",
        says=(*(kinds or ["no_position_says"]), *(("type_says",) if "type" in parts else ())),
        formulas=tuple(formulas),
        views=tuple(views),
        slots={"token": Slot("token", "p"), "p": Slot("index", "p")},
        lane="stream",
        check=check,
    )


def _projected(place: Place, embedding: Embedding, read: Read, output: Tensor) -> Step:
    projection = embedding.projection
    assert projection is not None
    y_name = place.keep("embedding.projected", output)
    slots: dict[str, Filling] = {
        "sum": place.products("embedding.projection", projection.weight, f"{read[0]}[p *]", "[d {}]"),
        "y": Slot("number", f"{y_name}[p d]"),
        "b": Slot("number", place.keep("embedding.projection.bias", projection.bias) + "[d]"),
    }
    return Step(
        name="embedding_projection",
        title="embedding_projection_title",
        says=("embedding_projection_says",),
        formulas=(Formula(symbols="y = W · x + b", filled="{sum} + {b} = {y}", slots=slots),),
        views=(View(kind="vector", label="after_projection", at=f"{y_name}[p *]", sets="d"),),
        slots={"width": embedding.width, "d_model": output.shape[-1]},
        lane="stream",
        check=place.check("told.projected", place.ask(projection, read[1]), output),
    )
