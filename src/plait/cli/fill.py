"""``plait fill``: what a masked model would write in place of each mask of a text."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

from cyclopts import Parameter

from plait.cli.models import Loading, check_text
from plait.cli.printing import Format, as_json, table
from plait.cli.reading import everything


def fill(
    model: str,
    text: str,
    /,
    *,
    k: int = 5,
    format: Format = "text",
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
) -> None:
    """Print the likeliest words for each mask of a text.

    Parameters
    ----------
    model
        A folder or a hub name of a masked language model.
    text
        The text, with the tokenizer's mask token ([MASK] or <mask>, say) where words are wanted; - reads it from
        standard input.
    k
        How many candidates for each mask.
    format
        json prints a list for each mask.
    """
    from plait.generation import fill

    check_text(model)
    found: Any = fill(loading.open(model), everything() if text == "-" else text, k=k)
    if format == "json":
        as_json([[dataclasses.asdict(candidate) for candidate in candidates] for candidates in found])
    else:
        table(
            [
                {"mask": number, "probability": math.exp(candidate.logprob), "text": candidate.text}
                for number, candidates in enumerate(found, start=1)
                for candidate in candidates
            ]
        )
