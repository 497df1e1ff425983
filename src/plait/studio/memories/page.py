"""The page: what a study found, by layer, and its neurons to browse; one file that needs nothing else."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from plait.inspection.memory import Layer, Study
from plait.inspection.memory.agreement import never_negative
from plait.pages import Language, Line, Said, Words, chart, in_html, page, part
from plait.pages.page import resource
from plait.studio.memories.packed import LIMIT, Packed, packed

WORDS = Words.of("plait.studio.memories", "memories")
BROWSER = Words.of("plait.studio.memories", "browser")


def memories_page(
    study: Study, *, model: str, language: Language = "en", neurons: int | None = None, limit: int = LIMIT
) -> str:
    """The file's text.

    Args:
        model: its name.
        neurons: of each network, at most; none: as many as there is room for.
        limit: bytes of the neurons' data.
    """
    held = packed(study, neurons=neurons, limit=limit)
    words = {key: {"en": said.en, "zh": said.zh} for key, said in BROWSER.items()}
    body = [
        f"<header><h1>{in_html(WORDS.say('title', model=model))}</h1><p>{in_html(WORDS['lead'])}</p></header>",
        _tiles(study),
        part(WORDS["reading"], _reading(study, held, limit)),
        *(_by_layer(study, tower) for tower in study.readers),
        part(WORDS["browse"], _browser()),
    ]
    return page(
        WORDS.say("title", model=model),
        body,
        styles=[resource("plait.studio.memories", "memories.css")],
        scripts=[resource("plait.studio.memories", name) for name in ("unpacked.js", "neuron.js", "browser.js")],
        data={**held.data, "words": words},
        language=language,
    )


def _tiles(study: Study) -> str:
    facts = {
        "layers": len(study.layers),
        "neurons": sum(layer.n_neurons for layer in study.layers),
        "tokens": sum(int(study.corpus.lanes[tower].rows.lengths.sum()) for tower in study.readers),
        "triggers": study.keep,
    }
    tiles = "".join(f"<div><dt>{in_html(WORDS[key])}</dt><dd>{value:,}</dd></div>" for key, value in facts.items())
    return f'<dl class="tiles">{tiles}</dl>'


def _reading(study: Study, held: Packed, limit: int) -> str:
    architecture = next(iter(study.readers.values())).model.architecture
    first = study.layers[0].composition
    trigger = "trigger_positive" if never_negative(architecture) else "trigger"
    said = [
        WORDS.say("memory", n=f"{first.n:,}", off=f"{max(one.composition.off for one in study.layers):.1g}"),
        WORDS.say(trigger, keep=study.keep),
        *(said for tower in study.readers for said in _of_tower(study, tower)),
        WORDS["chance"],
        Said(*(" ".join(said.within(language) for said in _rows(study)) for language in ("en", "zh"))),
        *([WORDS["shared"]] if architecture.shared_layers else []),
    ]
    if not held.whole:
        left = {"triggers": held.triggers, "tokens": held.tokens, "neurons": f"{held.neurons:,}"}
        said.append(WORDS.say("left_out", limit=f"{limit / 1e6:g}", **left))
    said.append(WORDS["paper"])
    return f'<div class="prose">{"".join(f"<p>{in_html(one)}</p>" for one in said)}</div>'


def _of_tower(study: Study, tower: str) -> Iterator[Said]:
    reader, lane = study.readers[tower], study.corpus.lanes[tower]
    yield WORDS.say(f"by_{reader.by}", tower=WORDS[tower])
    if reader.by == "head" and reader.model.head is not None and reader.model.head.act is not None:
        yield WORDS["by_line"]
    yield WORDS.say("agreement_next" if lane.following else "agreement_own", tower=WORDS[tower])


def _rows(study: Study) -> Iterator[Said]:
    lanes = [study.corpus.lanes[tower] for tower in study.readers]
    yield WORDS.say("rows", length=max(int(lane.lengths.max()) for lane in lanes))
    if any(lane.alone and not lane.before for lane in lanes):
        yield WORDS["first"]
    if any(lane.before or lane.after for lane in lanes):
        yield WORDS["around"]


def _by_layer(study: Study, tower: str) -> str:
    layers = [layer for layer in study.layers if layer.tower == tower]
    title = WORDS["by_layer"] if len(study.readers) == 1 else WORDS.say("tower_by_layer", tower=WORDS[tower])
    relu = never_negative(study.readers[tower].model.architecture)
    return part(title, f'<div class="charts">{"".join(_charts(layers))}</div>{_table(layers)}{_what(layers, relu)}')


def _charts(layers: Sequence[Layer]) -> Iterator[str]:
    def line(key: str, values: Sequence[float], colour: str) -> Line:
        points = [(float(layer.turn), value) for layer, value in zip(layers, values, strict=True)]
        return Line(name=WORDS[key], points=points, colour=colour, marked=True)  # type: ignore[arg-type]

    shares, agreements = [layer.composition for layer in layers], [layer.agreement for layer in layers]
    yield chart(
        WORDS["chart_agreement"],
        [
            line("agreement", [one.share for one in agreements], "one"),
            line("by_chance", [one.chance for one in agreements], "two"),
        ],
        unit="ℓ",
        from_zero=True,
    )
    yield chart(WORDS["chart_rank"], [line("rank", [one.rank for one in agreements], "one")], unit="ℓ", log=True)
    yield chart(
        WORDS["chart_active"], [line("active", [one.active for one in shares], "one")], unit="ℓ", from_zero=True
    )
    yield chart(
        WORDS["chart_composed"],
        [
            line("zero", [one.zero for one in shares], "three"),
            line("composed", [one.composed for one in shares], "two"),
            line("settled", [one.settled for one in shares], "one"),
        ],
        unit="ℓ",
        from_zero=True,
    )


def _table(layers: Sequence[Layer]) -> str:
    keys = ("layer", "neurons", "agreement", "by_chance", "rank", "active", "zero", "composed", "settled")
    head = "".join(f'<th scope="col" class="number">{in_html(WORDS[key])}</th>' for key in keys)
    rows = "".join(
        f'<tr><th scope="row" class="number">{layer.turn}</th>'
        + "".join(f'<td class="number">{html.escape(cell)}</td>' for cell in _cells(layer))
        + "</tr>"
        for layer in layers
    )
    return f'<div class="card" tabindex="0"><table class="layers"><tr>{head}</tr>{rows}</table></div>'


def _cells(layer: Layer) -> Iterator[str]:
    yield f"{layer.n_neurons:,}"
    yield percent(layer.agreement.share)
    yield percent(layer.agreement.chance)
    yield f"{layer.agreement.rank:,.0f}"
    one = layer.composition
    yield from map(percent, (one.active, one.zero, one.composed, one.settled))


def percent(share: float) -> str:
    """A share as a person reads it."""
    return f"{100 * share:.1f} %" if share >= 0.001 or not share else f"{100 * share:.2g} %"


def _what(layers: Sequence[Layer], relu: bool) -> str:
    meanings = {
        "agreement": WORDS["what_agreement"],
        "rank": WORDS["what_rank"],
        "active": WORDS["what_active_relu" if relu else "what_active"],
        "zero": WORDS["what_zero"],
        "composed": WORDS["what_composed"],
        "settled": WORDS["what_settled"],
    }
    rows = "".join(f"<dt>{in_html(WORDS[key])}</dt><dd>{in_html(said)}</dd>" for key, said in meanings.items())
    n = in_html(WORDS.say("places", n=f"{layers[0].composition.n:,}"))
    return f"<details><summary>{in_html(WORDS['what'])}</summary><dl class=meanings>{rows}</dl><p>{n}</p></details>"


def _browser() -> str:
    return f'<noscript><p>{in_html(WORDS["no_script"])}</p></noscript><div id="browser"></div>'
