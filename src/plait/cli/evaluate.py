"""``plait evaluate``: what a model is worth on data that it has not seen, or on lm-eval's tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from plait.cli.models import Loading, Running, check_text
from plait.cli.printing import Format, as_json, table, working

Objective = Literal["causal", "masked", "spans", "denoising", "paired", "chat", "classes", "values"]


@dataclass(frozen=True, kw_only=True)
class OnFiles:
    """How the files of --data are read and measured.

    Parameters
    ----------
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
    length_penalty
        A translation's score is its log-probability divided by length ** this; what is not given, likewise.
    max_new_tokens
        A translation is cut off after so many tokens; what is not given is twice the source's and 50.
    """

    objective: Objective | None = None
    metrics: Annotated[list[str], Parameter(consume_multiple=True)] | None = None
    length: int | None = None
    batch_rows: int = 16
    lowercase: bool = False
    label_until: str | None = None
    tokenize: str | None = None
    beams: int | None = None
    length_penalty: float | None = None
    max_new_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class OnTasks:
    """How the tasks of --harness are asked.

    Parameters
    ----------
    include_path
        A folder in which further tasks are described, in lm-eval's YAML.
    shots
        Examples before each question; what is not given is what the task says.
    limit
        The first so many questions of each task; what is not given is all.
    batch_tokens
        Tokens computed together, padding counted; the answer is the same.
    """

    include_path: Path | None = None
    shots: int | None = None
    limit: int | None = None
    batch_tokens: int = 2048


ON_FILES, ON_TASKS, BY_ENGINE = OnFiles(), OnTasks(), Running()


def evaluate(
    model: str,
    /,
    *,
    data: Annotated[list[Path], Parameter(consume_multiple=True)] | None = None,
    harness: Annotated[list[str], Parameter(consume_multiple=True)] | None = None,
    on_files: Annotated[OnFiles, Parameter(name="*")] = ON_FILES,
    on_tasks: Annotated[OnTasks, Parameter(name="*")] = ON_TASKS,
    running: Annotated[Running, Parameter(name="*")] = BY_ENGINE,
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
    format: Format = "text",
) -> None:
    """Print loss, perplexity, bits a byte, accuracy, BLEU and chrF: whatever measures what the model is asked. Or, with
    --harness, lm-eval's metrics of its tasks.

    Options from --objective to --max-new-tokens go with --data, those from --include-path to --plain with --harness.

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub name, or package:NAME.
    data
        Files: text, sentence pairs (two files, a .tsv or .jsonl), chats (.jsonl), or labelled sentences.
    harness
        Tasks of lm-eval by name, instead of files: arc_easy lambada_openai. It is an extra: plait[harness].
    format
        text for people, json for programs.
    """
    if bool(data) == bool(harness):
        raise ValueError("evaluate: on what? Give --data FILES or --harness TASKS, one of the two.")
    check_text(model)
    if harness:
        refuse(on_files, ON_FILES, "--data")
        running.check()
        by_tasks(model, harness, on_tasks, running, loading, format)
    else:
        refuse(on_tasks, ON_TASKS, "--harness")
        refuse(running, BY_ENGINE, "--harness")
        by_files(model, [str(path) for path in data or ()], on_files, loading, format)


def refuse(options: Any, unsaid: Any, of: str) -> None:
    """``ValueError`` for the first option that says something where what it belongs to was not asked for."""
    for field in fields(options):
        if getattr(options, field.name) != getattr(unsaid, field.name):
            raise ValueError(f"--{field.name.replace('_', '-')}: that is an option of {of}; leave it out.")


def by_files(model: str, files: Sequence[str], options: OnFiles, loading: Loading, format: Format) -> None:
    """Measure, and print a metric a line; under them how BLEU and chrF were counted."""
    from plait.training.judging import judge

    checkpoint = loading.open(model)
    given = {name: value for name, value in asdict(options).items() if value is not None}
    with working(f"evaluating {model}"):
        found, qualities = judge(checkpoint, files, **given)
    if format == "json":
        as_json({**found, **({"signatures": {n: q.signature for n, q in qualities.items()}} if qualities else {})})
        return
    table([{"metric": name.replace("_", " "), "value": value} for name, value in found.items()])
    for quality in qualities.values():
        print(quality)


def by_tasks(
    model: str, tasks: Sequence[str], options: OnTasks, running: Running, loading: Loading, format: Format
) -> None:
    """Ask, and print a metric a line."""
    from plait.training.harness import check_tasks, run_harness

    asked: dict[str, Any] = asdict(options)
    asked["folder"] = asked.pop("include_path")
    check_tasks(tasks, **asked)
    checkpoint, runner = running.open(model, loading)
    found = run_harness(checkpoint, tasks, runner=runner, **asked)
    if format == "json":
        as_json(found)
    else:
        table([row for task, metrics in found.items() for row in rows_of(task, metrics)])


def rows_of(task: str, metrics: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """A task's rows of the table; a metric's standard error stands beside it."""
    for name, value in metrics.items():
        metric, comma, filter = name.partition(",")
        if not metric.endswith("_stderr"):
            error = metrics.get(f"{metric}_stderr{comma}{filter}")
            yield {"task": task, "metric": name, "value": value, "error": "" if error is None else f"± {error:.2g}"}
