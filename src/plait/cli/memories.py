"""``plait memories``: the feed-forward networks of a model as memories, over a corpus: a table by layer, and a page."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from plait.cli.models import Loading, check_text
from plait.cli.printing import Format, as_json, table, write_page

if TYPE_CHECKING:
    from plait.inspection.memory import Layer, Study

Row = dict[str, Any]
SHOWN, SAID = 8, 4  # tokens before a trigger, and of a value


def memories(
    model: str,
    /,
    *,
    corpus: Annotated[list[str], Parameter(consume_multiple=True)],
    tower: Literal["encoder", "decoder"] | None = None,
    layers: str | None = None,
    keep: int = 10,
    out: Path | None = None,
    neurons: int | None = None,
    language: Literal["en", "zh"] = "en",
    format: Format = "text",
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
) -> None:
    """Find what fires every neuron over a corpus, and what its value says (Geva et al. 2021).

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub name, or package:NAME.
    corpus
        Files or folders of text; for an encoder-decoder pairs: two files that go line by line, .tsv or .jsonl.
    tower
        Of an encoder-decoder the encoder alone, which reads text, or the decoder; left out, both.
    layers
        Some of them, from 0: 0-3,7.
    keep
        Triggers of each neuron.
    out
        An HTML file to write, with all neurons to browse; it opens without a network.
    neurons
        Of each network in that file, at most, those that add most; left out, as many as there is room for.
    language
        That the file opens in; it has both.
    format
        text prints numbers by layer, and of each the neuron that agrees most; json the same for programs.
    """
    check_text(model)
    chosen = None if layers is None else numbers(layers)
    if neurons is not None and neurons < 1:
        raise ValueError(f"--neurons: {neurons} makes no sense; give 1 or more.")
    if keep < 1:
        raise ValueError(f"--keep: {keep} makes no sense; give 1 or more.")
    if out is not None and not out.expanduser().absolute().parent.is_dir():  # said before long work
        raise ValueError(f"--out: there is no folder {out.expanduser().absolute().parent}; make it first.")
    checkpoint = loading.open(model)
    from plait.inspection.memory import study

    found = study(checkpoint, corpus, tower=tower, layers=chosen, keep=keep)
    if out is not None:
        from plait.studio.memories import memories_page

        name = model.removeprefix("package:").rstrip("/").rpartition("/")[2]
        write_page(out, memories_page(found, model=name, language=language, neurons=neurons))
    several = len(found.readers) > 1
    if format == "json":
        as_json([{"tower": layer.tower, **by_layer(layer), **example(found, layer)} for layer in found.layers])
        return
    table([{**({"tower": layer.tower} if several else {}), **by_layer(layer)} for layer in found.layers])
    print()
    table([{**({"tower": layer.tower} if several else {}), **example(found, layer)} for layer in found.layers])


def numbers(said: str) -> list[int]:
    """Layers out of 0-3,7; ``ValueError`` for anything else."""
    found: list[int] = []
    for part in said.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or (dash and int(first) > int(last)):
            raise ValueError(f"--layers: {said!r} are none; give numbers and ranges with commas, 0-3,7.")
        found += range(int(first), int(last or first) + 1)
    return found


def by_layer(layer: Layer) -> Row:
    """A layer's line of the table."""
    agreement, composition = layer.agreement, layer.composition
    return {
        "layer": layer.turn,
        "neurons": layer.n_neurons,
        "agreement": agreement.share,
        "chance": agreement.chance,
        "median rank": round(agreement.rank),
        "active": composition.active,
        "zero agreement": composition.zero,
        "composed": composition.composed,
        "settled": composition.settled,
    }


def example(study: Study, layer: Layer) -> Row:
    """The neuron of a layer whose value agrees with most of its triggers, and of those the one that adds most."""
    from plait.inspection.reading import spell

    counts = [one.agrees.sum(1) for one in layer.networks]
    most = max(int(count.max()) for count in counts)
    added = [one.added.masked_fill(count < most, -1) for one, count in zip(layer.networks, counts, strict=True)]
    one, fitting = max(zip(layer.networks, added, strict=True), key=lambda pair: float(pair[1].max()))
    neuron, lane = int(fitting.argmax()), study.corpus.lanes[layer.tower]

    def spelt(ids: Iterable[int], between: str = "") -> str:
        return between.join(spell(int(id), lane.tokenizer) for id in ids if id >= 0).replace("\n", "↵")

    strength, place = float(one.triggers.strengths[neuron, 0]), int(one.triggers.places[neuron, 0])
    said = (one.lowered if strength < 0 else one.raised)[neuron, :SAID]
    return {
        "layer": layer.turn,
        "neuron": f"{one.name.partition('.ffn')[2].removeprefix('.')} {neuron}".strip(),
        "agrees": most,
        "coefficient": strength,
        "strongest trigger": spelt(lane.context(place, SHOWN)),
        "asked": spelt([int(one.asked[neuron, 0])]),
        "its value says": spelt(said.tolist(), " |"),
    }
