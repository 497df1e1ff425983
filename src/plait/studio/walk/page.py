"""The page of a walk: one file that needs nothing else, in which a person goes from step to step."""

from __future__ import annotations

from plait.inspection.walk import Choice, Walk
from plait.pages import Language, Said, Words, in_html, page
from plait.pages.page import resource
from plait.studio.walk.filled import INTERFACE, STEPS
from plait.studio.walk.packed import LIMIT, packed

SCRIPTS = ("values", "filled", "drawn", "chosen", "figure", "steps")


def walk_page(
    walk: Walk, choice: Choice, *, model: str, text: str, language: Language = "en", megabytes: float = LIMIT
) -> str:
    """The file's text.

    Args:
        choice: what is looked at first.
        model: its name, and ``text`` what it reads.
        megabytes: of numbers, at most.
    """
    title = INTERFACE.say("title", model=model)
    body = [
        f"<header><h1>{in_html(title)}</h1><p>{in_html(INTERFACE.say('lead', text=text))}</p>",
        f"<p>{in_html(_facts(walk))}</p></header>",
        f"<noscript><p>{in_html(INTERFACE['no_script'])}</p></noscript>",
        '<div id="walk"></div>',
    ]
    data = packed(walk, megabytes=megabytes)
    first = {
        "tower": walk.towers.index(choice.told),
        "layer": choice.layer,
        "h": choice.variables["h"],
        "p": choice.variables["p"],
    }
    return page(
        title,
        body,
        styles=[resource("plait.studio.walk", "walk.css")],
        scripts=[resource("plait.studio.walk", f"{name}.js") for name in SCRIPTS],
        data={**data, "first": first, "words": _words(STEPS) | _words(INTERFACE)},
        language=language,
    )


def _words(words: Words) -> dict[str, dict[str, str]]:
    return {key: {"en": said.en, "zh": said.zh} for key, said in words.items()}


def _facts(walk: Walk) -> Said:
    a, model = walk.trace.model.architecture, walk.trace.model
    return INTERFACE.say(
        "facts",
        kind=INTERFACE[f"{a.kind}_kind"],
        layers=" + ".join(str(tower.n_layers) for tower in a.towers),
        heads=a.towers[-1].n_heads,
        d_model=f"{a.d_model:,}",
        vocabulary=f"{a.vocab_size:,}",
        parameters=f"{sum(parameter.numel() for parameter in model.parameters()):,}",
    )
