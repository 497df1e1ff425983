"""``plait evaluate``: what a model is worth on data that it has not seen, every target counted once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from plait.cli.models import Loading, check_text
from plait.cli.printing import Format, as_json, table, working

Objective = Literal["causal", "masked", "spans", "denoising", "paired", "chat", "classes", "values"]


def evaluate(
    model: str,
    /,
    *,
    data: Annotated[list[Path], Parameter(consume_multiple=True)],
    objective: Objective | None = None,
    metrics: Annotated[list[str], Parameter(consume_multiple=True)] | None = None,
    length: int | None = None,
    batch_rows: int = 16,
    lowercase: bool = False,
    label_until: str | None = None,
    tokenize: str | None = None,
    beams: int | None = None,
    format: Format = "text",
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
) -> None:
    """Print loss, perplexity, bits a byte, accuracy, BLEU and chrF: whatever measures what the model is asked.

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub name, or package:NAME.
    data
        Files: text, sentence pairs (two files, a .tsv or .jsonl), chats (.jsonl), or labelled sentences.
    objective
        What the model is asked; what is not given follows from what it is: the next token of a decoder, hidden tokens
        of a masked encoder, the translation of an encoder-decoder, the label of a classifier.
    metrics
        Those to print; what is not given is all that measure the objective.
    length
        Tokens in a row; what is not given is 512, or the longest row the model takes.
    batch_rows
        Rows computed together; the answer is the same.
    lowercase
        Lower-case the text first.
    label_until
        A label ends before this: ":" makes DESC of DESC:manner.
    tokenize
        sacrebleu's, for bleu: zh for Chinese; what is not given is found by the text.
    beams
        Of the search that translates; what is not given is what the checkpoint says.
    format
        text for people, json for programs.
    """
    from plait.training.judging import judge

    check_text(model)
    checkpoint = loading.open(model)
    with working(f"evaluating {model}"):
        found = judge(
            checkpoint,
            [str(path) for path in data],
            objective=objective,
            metrics=metrics,
            length=length,
            batch_rows=batch_rows,
            lowercase=lowercase,
            label_until=label_until,
            **{name: value for name, value in (("tokenize", tokenize), ("beams", beams)) if value is not None},
        )
    if format == "json":
        as_json(found)
    else:
        rows: list[dict[str, Any]] = [
            {"metric": name.replace("_", " "), "value": value} for name, value in found.items()
        ]
        table(rows)
