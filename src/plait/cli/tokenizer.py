"""``plait tokenizer``: text to token ids and back, as the checkpoint's model sees them."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from plait.cli.models import tokenizer_of
from plait.cli.printing import Format, as_json
from plait.cli.reading import everything

app = App(name="tokenizer", help="Turn text into token ids and back.")


@app.command
def encode(
    model: str,
    text: str,
    /,
    *,
    specials: Annotated[bool, Parameter(negative="--no-specials")] = True,
    format: Format = "text",
) -> None:
    """Print the ids of TEXT.

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub name, or package:NAME.
    text
        The text; - reads it from standard input.
    specials
        Add the special tokens that the model expects around a text.
    format
        json prints each id with its token.
    """
    given = everything() if text == "-" else text
    tokenizer = tokenizer_of(model)
    ids = tokenizer.encode(given, specials=specials)
    if format == "json":
        as_json([{"id": id, "token": tokenizer.token(id)} for id in ids])
    else:
        print(*ids)


@app.command
def decode(model: str, /, *ids: int, specials: Annotated[bool, Parameter(negative="--no-specials")] = True) -> None:
    """Print the text of IDS.

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub name, or package:NAME.
    ids
        Token ids; without any, those on standard input.
    specials
        Show special tokens too.
    """
    given = list(ids) or [number(word) for word in everything().split()]
    print(tokenizer_of(model).decode(given, skip_specials=not specials))


def number(word: str) -> int:
    """A token id on standard input."""
    try:
        return int(word)
    except ValueError:
        raise ValueError(f"standard input: {word!r} is not a token id; ids are whole numbers.") from None
