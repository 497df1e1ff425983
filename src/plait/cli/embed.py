"""``plait embed``: a vector for each text, or texts ranked by how near they are to a query."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from plait.cli.models import Loading, check_text
from plait.cli.printing import Format, as_json
from plait.cli.reading import everything


def embed(
    model: str,
    /,
    *texts: str,
    query: str | None = None,
    pooling: Literal["mean", "cls", "last"] | None = None,
    format: Format = "text",
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
) -> None:
    """Turn texts into vectors, or rank them by how near they are to a query.

    With --query, each text is printed after its cosine with the query, nearest first.

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub name, or package:NAME.
    texts
        The texts; without any, or with - alone, the lines of standard input.
    query
        The text that the others are compared with.
    pooling
        How a text's vectors become one; what is not given is what the checkpoint says.
    format
        text prints a line for each text; json prints one list.
    """
    from plait.generation import embed

    check_text(model)
    given = lines(everything()) if texts in ((), ("-",)) else list(texts)
    checkpoint = loading.open(model)
    if query is None:
        vectors = embed(checkpoint, given, pooling=pooling).tolist() if given else []
        if format == "json":
            as_json([{"text": text, "embedding": vector} for text, vector in zip(given, vectors, strict=True)])
        else:
            for vector in vectors:
                print(*(f"{value:.6f}" for value in vector))
        return
    vectors = embed(checkpoint, [query, *given], pooling=pooling, normalize=True)  # 1 + texts, d
    cosines = (vectors[1:] @ vectors[0]).tolist()
    ranked = sorted(zip(cosines, given, strict=True), key=lambda pair: -pair[0])
    if format == "json":
        as_json([{"text": text, "cosine": cosine} for cosine, text in ranked])
    else:
        for cosine, text in ranked:
            print(f"{cosine:.4f}  {text}")


def lines(text: str) -> list[str]:
    """The lines of a file as every tool counts them: a newline ends one, and no other character does."""
    return text.removesuffix("\n").split("\n") if text else []
