"""``plait walk``: one forward pass told step by step with its real numbers, in the terminal or as a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from plait.cli.models import Loading, check_text
from plait.cli.printing import Format, as_json, working, write_page

if TYPE_CHECKING:
    from plait.inspection.walk import Choice, Walk

Language = Literal["en", "zh"]


def walk(
    model: str,
    text: str,
    /,
    *,
    target: str | None = None,
    layer: int = 0,
    head: int = 0,
    position: int | None = None,
    out: Path | None = None,
    megabytes: float = 48,
    language: Language = "en",
    format: Format = "text",
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
) -> None:
    """Tell step by step what happens while a model reads one text, every formula with its numbers.

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub name, or package:NAME.
    text
        What it reads; of an encoder-decoder the source.
    target
        Of an encoder-decoder, what its decoder reads; what is not given is what it would write.
    layer
        Whose steps are told, from 0.
    head
        Of its attention, from 0.
    position
        Which token of the output's tower is looked at, from 0; negative ones count from the end. Left out: the mask, if
        one waits to be filled, or the last.
    out
        An HTML file to write instead, in which every layer, head and token can be chosen; it opens without a network.
    megabytes
        Of numbers in that file, at most; a longer text has more of them.
    language
        That the steps are told in; a page has both, and opens in this.
    format
        text for people, json for programs.
    """
    check_text(model)
    if megabytes <= 0:
        raise ValueError(f"--megabytes: {megabytes:g} leaves no room; give a positive number.")
    checkpoint = loading.open(model)
    with working("reading"):
        from plait.inspection.walk import walk as tell

        walked = tell(checkpoint, text, target=target)
        choices = list(chosen(walked, layer, head, position))
    if out is not None:
        from plait.studio.walk import walk_page

        asked = {"model": title(model), "text": text, "language": language, "megabytes": megabytes}
        write_page(out, walk_page(walked, choices[-1], **asked))
    elif format == "json":
        as_json([row for choice in choices for row in told(choice, language)])
    else:
        print("\n".join(lines(choices, language)))


def chosen(walked: Walk, layer: int, head: int, position: int | None) -> Iterator[Choice]:
    """What is looked at in each tower. The last tower has the output; another that has not so many layers or heads
    shows its last one."""
    from plait.inspection.walk import Choice

    for turn, tower in enumerate(walked.towers):
        last = turn == len(walked.towers) - 1
        places = (layer, head) if last else (min(layer, len(tower.layers) - 1), min(head, tower.n_heads - 1))
        yield Choice(walked, tower, layer=places[0], head=places[1], position=position if last else None)


def lines(choices: list[Choice], language: Language) -> Iterator[str]:
    """The steps of every tower, numbered through."""
    from plait.studio.walk import in_terminal

    first = 1
    for choice in choices:
        yield from in_terminal(choice, language, first=first)
        first += len(choice.steps)


def told(choice: Choice, language: Language) -> Iterator[dict[str, Any]]:
    """A row for each step of a tower."""
    from plait.studio.walk.filled import STEPS, formula, sentence

    for step in choice.steps:
        choice.begin(step)
        yield {
            "tower": choice.told.name,
            "step": step.name,
            "layer": choice.layer if step.group else None,
            "title": STEPS[step.title].within(language),
            "says": [sentence(key, step.slots, choice, step, language) for key in (*step.says, *step.found)],
            "formulas": [
                {"symbols": one.symbols, "filled": formula(one.filled, one.slots, choice, step, language)}
                for one in step.formulas
            ],
            "off": float(choice.at(f"{step.check}[]")) if step.check else None,
        }


def title(model: str) -> str:
    """What a page calls the model: the last part of its name, of a folder called "model" the one around it."""
    parts = [part for part in Path(model.removeprefix("package:")).parts if part != "model"]
    return parts[-1] if parts else model
