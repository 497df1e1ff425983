"""Terminal: a walk as lines of text, a chosen layer, head and token with small slices of their numbers.

Nothing is wider than ``WIDE`` columns; a Chinese character takes two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len, chop_cells, set_cell_size

from plait.inspection.walk import Choice, Step, View
from plait.pages.words import Language
from plait.studio.walk.filled import INTERFACE, STEPS, formula, number, percent, sentence, shown

WIDE, LEFT = 100, 4  # columns, and the margin of what stands under a heading
NUMBERS, TOKENS, LAYERS = 6, 8, 12  # of a vector, of a grid's sides, of all layers
PIECES = re.compile(r"(\s*)([\u2e80-\uffef][，。、；：）”…]*|[^\s\u2e80-\uffef]+)")  # with the spaces before them
CELL, NAME, BAR = 9, 11, 24  # columns of a number, of a token's name, of a bar


def in_terminal(choice: Choice, language: Language, *, first: int = 1) -> Iterator[str]:
    """The lines of one tower; ``first`` is the number of its first step."""
    group = ""
    for count, step in enumerate(choice.steps, start=first):
        choice.begin(step)
        if step.group != group and step.group:
            yield ""
            where = INTERFACE.say("layer_of", layer=choice.layer, layers=len(choice.told.layers))
            yield f"── {where.within(language)} · {STEPS[step.group].within(language)} "
        group = step.group
        yield ""
        yield f"{count:>2}  {STEPS[step.title].within(language)}"
        yield from (" " * LEFT + line for line in _under(choice, step, language))


def _under(choice: Choice, step: Step, language: Language) -> Iterator[str]:
    for key in step.says:
        yield from wrapped(sentence(key, step.slots, choice, step, language), WIDE - LEFT)
    for one in step.formulas:
        yield from wrapped(f"  {one.symbols}", WIDE - LEFT)
        if one.filled:
            yield from wrapped(f"  {formula(one.filled, one.slots, choice, step, language)}", WIDE - LEFT)
    for view in step.views:
        yield from VIEWS[view.kind](choice, step, view, language)
    for key in step.found:
        yield from wrapped(f"→ {sentence(key, step.slots, choice, step, language)}", WIDE - LEFT)


def _tokens(choice: Choice, step: Step, view: View, language: Language) -> Iterator[str]:
    ids = choice.text(f"{choice.told.name}.ids[* 0]")
    pieces = [f"{i} “{shown(text)}” {id}" for i, (text, id) in enumerate(zip(choice.told.tokens, ids, strict=True))]
    yield from wrapped("   ".join(pieces), WIDE - LEFT)


def _vector(choice: Choice, step: Step, view: View, language: Language) -> Iterator[str]:
    row = choice.at(view.at).flatten()
    of = INTERFACE.say("of_vector", n=f"{len(row):,}", size=number(float(row.double().norm()))).within(language)
    yield f"{STEPS[view.label].within(language)} ({of})"
    yield "  " + _numbers(row[:NUMBERS].tolist()) + (" …" if len(row) > NUMBERS else "")


def _rows(choice: Choice, step: Step, view: View, language: Language) -> Iterator[str]:
    yield STEPS[view.label].within(language)
    rows, tokens = choice.at(view.at), choice.seen(step)
    shares = choice.at(view.more["shares"]) if "shares" in view.more else None
    chosen = choice.variables[view.sets.split()[0]]
    for i in _window(len(tokens), chosen, TOKENS):
        share = "" if shares is None else f"{percent(float(shares[i])):>8} "
        more = " …" if rows.shape[1] > NUMBERS else ""
        yield f"  {_name(tokens[i])}{share}{_numbers(rows[i, :NUMBERS].tolist())}{more}"


def _grid(choice: Choice, step: Step, view: View, language: Language) -> Iterator[str]:
    yield STEPS[view.label].within(language)
    values, own, other = choice.at(view.at), choice.told.tokens, choice.seen(step)
    rows = _window(len(own), choice.variables["p"], TOKENS)
    columns = _window(len(other), choice.variables["k"], TOKENS)
    cell = percent if view.scale == "share" else number
    yield " " * (NAME + 2) + "".join(f" {_right(shown(other[j]), CELL)}" for j in columns).rstrip()
    for i in rows:
        mark = "▸ " if i == choice.variables["p"] else "  "
        yield f"{mark}{_name(own[i])}" + "".join(f" {cell(float(values[i, j])):>{CELL}}" for j in columns)


def _bars(choice: Choice, step: Step, view: View, language: Language) -> Iterator[str]:
    yield STEPS[view.label].within(language)
    values, names = bars(choice, view)
    most = max((abs(value) for value in values), default=0.0) or 1.0
    for name, value in zip(names, values, strict=True):
        said = percent(value) if view.scale == "share" else number(value)
        yield f"  {_name(name)} {said:>{CELL}}  {'█' * round(BAR * abs(value) / most)}".rstrip()


def bars(choice: Choice, view: View) -> tuple[list[float], list[str]]:
    """The values that are named, the largest first, and their names: words, or numbers."""
    row = choice.at(view.at)
    most = int(view.more.get("most", len(row)))
    order = row.abs().argsort(descending=True, stable=True)[:most].tolist() if most < len(row) else range(len(row))
    if "names" not in view.more:
        return [float(row[i]) for i in order], [str(i) for i in order]
    names = choice.text(view.more["names"])
    return [float(row[i]) for i in order], [names[i] for i in order]


def _layers(choice: Choice, step: Step, view: View, language: Language) -> Iterator[str]:
    parts = [part for part in ("attention", "cross", "ffn") if part in view.more]
    keys = ("behind", "stream_size", *(f"{part}_size" for part in parts))
    heads = [INTERFACE[key].within(language) for key in keys]
    widths = [max(cell_len(head) + 2, CELL + 2) for head in heads]
    would = f"   {INTERFACE['would_say'].within(language)}" if "says" in view.more else ""
    yield "  " + "".join(map(_right, heads, widths)) + would
    sizes = choice.at(view.more["stream"])
    added = [choice.at(view.more[part]) for part in parts]
    for i in _spread(len(sizes), choice.layer + 1):
        name = INTERFACE["embedded"].within(language) if i == 0 else str(i - 1)
        cells = [name, number(float(sizes[i])), *(number(float(one[i - 1])) if i else "" for one in added)]
        line = "".join(map(_right, cells, widths))
        if "says" in view.more:
            said, share = choice.text(view.more["says"])[i], float(choice.at(view.more["share"])[i])
            line += f"   {_name(said)} {percent(share):>{CELL}}"
        yield "  " + line.rstrip()


def _turn(choice: Choice, step: Step, view: View, language: Language) -> Iterator[str]:
    x, y, turned_x, turned_y = (number(float(choice.at(view.more[key]))) for key in ("x", "y", "turned_x", "turned_y"))
    yield f"{STEPS[view.label].within(language)}: ({x}, {y}) → ({turned_x}, {turned_y})"


VIEWS = {
    "tokens": _tokens,
    "vector": _vector,
    "rows": _rows,
    "grid": _grid,
    "bars": _bars,
    "turn": _turn,
    "layers": _layers,
}


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{number(value):>{CELL}}" for value in values)


def _name(token: str) -> str:
    return set_cell_size(shown(token), NAME)


def _right(text: str, width: int) -> str:
    text = set_cell_size(text, width) if cell_len(text) > width else text
    return " " * (width - cell_len(text)) + text


def _window(n: int, around: int, most: int) -> range:
    """At most so many of n places, with the one ``around`` among them."""
    first = max(0, min(around - most // 2, n - most))
    return range(first, min(n, first + most))


def _spread(n: int, with_: int) -> list[int]:
    """Places over all n, the first, the last and one more among them."""
    if n <= LAYERS:
        return list(range(n))
    return sorted({*(round(i * (n - 1) / (LAYERS - 2)) for i in range(LAYERS - 1)), with_})


def wrapped(text: str, width: int) -> Iterator[str]:
    """Lines of at most so many columns, broken at spaces, and behind any Chinese character."""
    indent = " " * (len(text) - len(text.lstrip(" ")))
    line = indent
    for space, piece in PIECES.findall(text):
        for part in chop_cells(piece, width - len(indent)):
            gap = "" if line == indent else " " * len(space)
            if cell_len(line + gap + part) > width:
                yield line
                line, gap = indent, ""
            line += gap + part
    if line.strip():
        yield line
