"""``plait score``: how likely a model finds texts, in sum, per token and per byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from plait.cli.embed import lines
from plait.cli.models import Loading, Running, check_text
from plait.cli.printing import Format, as_json, table
from plait.cli.reading import everything

if TYPE_CHECKING:
    from plait.generation import Scored
    from plait.text import Tokenizer


def score(
    model: str,
    /,
    *texts: str,
    given: tuple[str, ...] = (),
    by: Literal["text", "token"] = "text",
    format: Format = "text",
    running: Annotated[Running, Parameter(name="*")] = Running(),
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
) -> None:
    """Print the log-probability of texts, which compares texts, and bits a byte, which compares models.

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub name, or package:NAME.
    texts
        The texts; without any, or with - alone, the lines of standard input.
    given
        What stands before the texts and is not scored, the source of an encoder-decoder's: once for all texts, or once
        for each.
    by
        What the lines of the table are.
    format
        text prints a table; json prints one list, with every token.
    """
    from plait.generation import score

    running.check()
    check_text(model)
    rows = lines(everything()) if texts in ((), ("-",)) else list(texts)
    before = list(given) * len(rows) if len(given) == 1 else list(given)
    checkpoint, runner = running.open(model, loading)
    found: Any = score(checkpoint, rows, given=before or None, runner=runner) if rows else []
    tokenizer = checkpoint.tokenizer
    assert tokenizer is not None, "texts were read with it"
    writer = tokenizer if tokenizer.target is None else tokenizer.target
    if format == "json":
        as_json([in_full(text, one, writer) for text, one in zip(rows, found, strict=True)])
    elif by == "token":
        for one in found:
            table([{"token": token, "logprob": logprob} for token, logprob in tokens(one, writer)])
    else:
        table([in_short(text, one) for text, one in zip(rows, found, strict=True)])


def in_short(text: str, one: Scored) -> dict[str, Any]:
    """A text's row of the table."""
    return {
        "logprob": one.logprob,
        "tokens": one.n_scored,
        "per token": one.mean,
        "perplexity": one.perplexity,
        "bits a byte": one.bits_per_byte,
        "text": text,
    }


def in_full(text: str, one: Scored, tokenizer: Tokenizer) -> dict[str, Any]:
    """A text's object of the list."""
    pairs = tokens(one, tokenizer)
    return {
        "text": text,
        "logprob": one.logprob,
        "n_scored": one.n_scored,
        "mean": one.mean,
        "perplexity": one.perplexity,
        "n_bytes": one.n_bytes,
        "bits_per_byte": one.bits_per_byte,
        "tokens": [
            {"id": id, "token": token, "logprob": logprob}
            for id, (token, logprob) in zip(one.tokens, pairs, strict=True)
        ],
    }


def tokens(one: Scored, tokenizer: Tokenizer) -> list[tuple[str, float | None]]:
    """Each token as the vocabulary spells it, and its log-probability."""
    return [(tokenizer.token(id), logprob) for id, logprob in zip(one.tokens, one.logprobs, strict=True)]
