"""``plait classify``: how probable a model finds each label for texts, pairs of texts, or the tokens of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from plait.cli.embed import lines
from plait.cli.models import Loading, check_text
from plait.cli.printing import Format, as_json, table
from plait.cli.reading import everything

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint


def classify(
    model: str,
    /,
    *texts: str,
    pair: tuple[str, ...] = (),
    format: Format = "text",
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
) -> None:
    """Print the probability of each label, the likeliest first; of a head over tokens, each token's likeliest.

    Parameters
    ----------
    model
        A folder or a hub name of a model that classifies.
    texts
        The texts; without any, or with - alone, the lines of standard input.
    pair
        What each text is compared with, as a reranker's query with a passage: once for all texts, once for each, or
        several times for a single text.
    format
        text prints a table; json prints one list, with every label.
    """
    from plait.generation import classify

    check_text(model)
    rows = lines(everything()) if texts in ((), ("-",)) else list(texts)
    asked: list[Any] = list(paired(rows, pair)) if pair else list(rows)
    checkpoint = loading.open(model)
    found: Any = classify(checkpoint, asked) if asked else []
    if found and isinstance(found[0], list):
        told = [in_tokens(checkpoint, text, labels) for text, labels in zip(asked, found, strict=True)]
        if format == "json":
            as_json([{**named(text), "tokens": tokens} for text, tokens in zip(asked, told, strict=True)])
        for tokens in told if format == "text" else []:
            table([{"token": one["token"], **likeliest(one["labels"])[0]} for one in tokens])
    elif format == "json":
        as_json([{**named(text), "labels": labels} for text, labels in zip(asked, found, strict=True)])
    else:
        table([{**one, **named(text)} for text, labels in zip(asked, found, strict=True) for one in likeliest(labels)])


def paired(texts: list[str], others: tuple[str, ...]) -> list[tuple[str, str]]:
    """Texts and what they are compared with; ``ValueError`` where their numbers do not fit."""
    n = max(len(texts), len(others))
    if not {len(texts), len(others)} <= {1, n}:
        raise ValueError(f"--pair: {len(others)} for {len(texts)} texts; give one, or one for each.")
    return list(zip(texts * (n // len(texts)), list(others) * (n // len(others)), strict=True))


def named(text: Any) -> dict[str, str]:
    """A text, or a pair's two, under their names."""
    return {"text": text} if isinstance(text, str) else {"text": text[0], "pair": text[1]}


def likeliest(labels: dict[str, float]) -> list[dict[str, Any]]:
    """Rows of labels, the likeliest first."""
    ranked = sorted(labels.items(), key=lambda item: -item[1])
    return [{"label": label, "probability": probability} for label, probability in ranked]


def in_tokens(checkpoint: Checkpoint, text: Any, labels: list[dict[str, float]]) -> list[dict[str, Any]]:
    """Each token of a text with its labels."""
    from plait.generation.classify import read_rows

    assert checkpoint.tokenizer is not None, "texts were read with it"
    ((ids, _),) = read_rows(checkpoint, [text])
    spelt = map(checkpoint.tokenizer.token, ids)
    return [{"id": id, "token": token, "labels": one} for id, token, one in zip(ids, spelt, labels, strict=True)]
