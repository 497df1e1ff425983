"""``plait tokenizer``: text to token ids and back, what that costs, and new vocabularies from text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from plait.cli.models import tokenizer_of
from plait.cli.printing import Format, as_json, notice, reading, table
from plait.cli.reading import everything

if TYPE_CHECKING:
    from plait.text import Cost

app = App(name="tokenizer", help="Turn text into token ids and back; learn a vocabulary from text.")
Kind = Literal["byte-bpe", "bpe", "unigram", "wordpiece", "bytes", "characters", "alphabet"]


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


@app.command
def train(
    *files: Path,
    out: Annotated[Path, Parameter(name=("--out", "-o"))],
    kind: Kind = "byte-bpe",
    vocab_size: int = 8000,
    min_frequency: int = 2,
    special: list[str] | None = None,
    before: list[str] | None = None,
    after: list[str] | None = None,
    lowercase: bool = False,
    overwrite: bool = False,
    format: Format = "text",
) -> None:
    """Learn a vocabulary from the text in FILES, read line by line, and print what it costs on them.

    Parameters
    ----------
    files
        Text in UTF-8.
    out
        The folder to write: tokenizer.json and tokenizer_config.json, which every tool of the ecosystem reads.
    kind
        byte-bpe, GPT-2's; bpe and unigram, over characters, the rarer ones spelled by bytes; wordpiece, BERT's, which
        forgets how words were spaced; bytes; characters, others spelled by bytes; alphabet, others one unknown token.
    vocab_size
        How many ids there may be, special ones included.
    min_frequency
        How often a pair, or a character, must occur to be learnt.
    special
        ROLE=TOKEN, such as eos=<|end|>, instead of or beside the kind's own; once for each. Roles: bos, eos, pad, unk,
        cls, sep, mask.
    before
        A role whose token goes before a text, such as bos.
    after
        A role whose token goes after a text, such as eos.
    lowercase
        wordpiece: words in lower case, accents dropped.
    overwrite
        Replace a tokenizer that is there already.
    format
        text for people, json for programs.
    """
    from plait.text import train_tokenizer
    from plait.text.folder import FILES

    if not files:
        raise ValueError("FILES: say at least one file of text to learn from.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())) and not overwrite:
        raise ValueError(f"{out}: it exists and is not empty; choose another folder, or say --overwrite.")
    with reading(files) as (texts, terminal):
        tokenizer = train_tokenizer(
            texts,
            kind=kind,
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            specials=dict(map(role, special or ())),
            before=before,
            after=after,
            lowercase=lowercase,
            progress=terminal,
        )
    from plait.checkpoint.replacing import whole_folder

    with whole_folder(out.expanduser(), replaces=FILES) as new:
        tokenizer.save(new)
    if len(tokenizer) < vocab_size and kind != "bytes":
        notice(f"--vocab-size: {len(tokenizer)} of {vocab_size} ids; the text has no more to learn from.")
    if format == "json":
        as_json({"folder": str(out), "kind": kind, "ids": len(tokenizer)})
    else:
        print(f"{len(tokenizer):,} ids ({kind})\n{out}")


@app.command
def cost(model: str, /, *files: Path, format: Format = "text") -> None:
    """Print how many tokens the text in FILES takes: for each byte, word and line.

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub name, or package:NAME.
    files
        Text in UTF-8.
    format
        text for people, json for programs.
    """
    if not files:
        raise ValueError("FILES: say at least one file of text to count.")
    from plait.text import cost as count

    tokenizer = tokenizer_of(model)
    rows = []
    for file in files:
        with reading([file]) as (texts, _):
            rows.append(count_row(str(file), count(tokenizer, texts)))
    if format == "json":
        as_json(rows)
    else:
        table(rows)


def count_row(name: str, cost: Cost) -> dict[str, object]:
    """A line of the table."""
    ratios = {"tokens/byte": cost.per_byte, "tokens/word": cost.per_word, "tokens/line": cost.per_line}
    return {"file": name, **vars(cost), **ratios}


def role(said: str) -> tuple[str, str]:
    """ROLE=TOKEN, apart."""
    name, equals, token = said.partition("=")
    if not equals or not token:
        raise ValueError(f"--special {said}: say a role and its token, such as eos=<|end|>.")
    return name, token


def number(word: str) -> int:
    """A token id on standard input."""
    try:
        return int(word)
    except ValueError:
        raise ValueError(f"standard input: {word!r} is not a token id; ids are whole numbers.") from None
