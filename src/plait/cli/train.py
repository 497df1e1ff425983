"""``plait train``: a recipe, and what the command line puts over it, into a model; it is seen as it happens."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from plait.cli.printing import notice, working

if TYPE_CHECKING:
    from plait.training.running import Running
    from plait.training.settings import Recipe


def train(
    recipe: Path,
    /,
    *options: Annotated[str, Parameter(allow_leading_hyphen=True)],
    out: Annotated[Path | None, Parameter(name=("--out", "-o"))] = None,
    data: Path | None = None,
    resume: bool = False,
    dry_run: bool = False,
) -> int:
    """Train the model that a recipe describes; its folder is printed.

    The folder gets recipe.toml, metrics.jsonl, report.html, states to go on from, and model, an ordinary checkpoint.
    Ctrl-C saves after the step under way, and says how to go on.

    Parameters
    ----------
    recipe
        A TOML file with the sections model, data, objective, optimizer, schedule, run and evaluate; docs/training.md
        lists every setting.
    options
        Settings over the file's, as --section.key value: --optimizer.lr 3e-4 --run.steps 500.
    out
        The folder of the run; what is not given is the recipe's run.out, else the recipe's name below runs.
    data
        The folder that the recipe's files are in; what is not given is the one that PLAIT_DATA names, else here.
    resume
        Go on with the run in that folder, from its newest whole state; begin one if there is none.
    dry_run
        Print the resolved recipe as TOML, and train nothing.
    """
    with working(f"reading {recipe}"):
        from plait.training.folder import Folder
        from plait.training.processes import by_first, first_before_others, is_first, join
        from plait.training.recipe import read_recipe, to_text
        from plait.training.resolve import decide, resolve
        from plait.training.running import ready

        settings = decide(read_recipe(recipe, options), data)
    if dry_run:
        print(to_text(settings), end="")
        return 0
    device = join()
    folder = Folder((out or Path(settings.run.out or f"runs/{recipe.stem}")).expanduser())
    with folder.held() if is_first() else contextlib.nullcontext():
        goes_on = by_first(lambda: folder.check(settings, resume=resume))
        if resume and not goes_on and is_first():
            notice(f"{folder.path}: there is no run to go on with; one is begun.")
        if is_first():
            tell(settings)
        with first_before_others():
            resolved = resolve(settings, tokenizer=folder.tokenizer() if goes_on else None)
        resolved.checkpoint.model.to(device)
        stop = follow(ready(resolved, folder, resume=goes_on))
    if not is_first():
        return {"SIGINT": 130, "SIGTERM": 143}.get(stop or "", 0)
    if stop in ("SIGINT", "SIGTERM"):
        where = [] if data is None else ["--data", str(data)]
        again = ["plait", "train", str(recipe), "--out", str(folder.path), *where, "--resume", *options]
        notice(f"go on with: {shlex.join(again)}")
        return 130 if stop == "SIGINT" else 143
    print(folder.path)
    return 0


def settings(section: str | None = None, /, *, format: Literal["text", "markdown", "json"] = "text") -> None:
    """List what a recipe can say, with meaning, default and bounds.

    Parameters
    ----------
    section
        One of model, data, objective, optimizer, schedule, run, evaluate; what is not given is all of them.
    format
        text for people, markdown for the manual, json for programs.
    """
    from plait.cli.printing import as_json, table
    from plait.training.places import SECTIONS, RecipeError
    from plait.training.tables import markdown, rows

    if section is not None and section not in SECTIONS:
        raise RecipeError(f"{section}: there is no section of that name; there are {', '.join(SECTIONS)}.")
    wanted = [section] if section else list(SECTIONS)
    if format == "markdown":
        print(markdown(), end="")
    elif format == "json":
        as_json({name: [vars(row) for row in rows(name)] for name in wanted})
    else:
        for name in wanted:
            table(
                [
                    {name: row.key, "default": row.default, "may be": row.kind, "meaning": row.meaning}
                    for row in rows(name)
                ]
            )
            print()


def silent(running: Running) -> str | None:
    """Make the steps beside the process that shows them."""
    stop = None
    for step in running.steps():
        stop = step.stop
    if stop not in ("SIGINT", "SIGTERM"):
        running.finish()
    return stop


def follow(running: Running) -> str | None:
    """Make the steps and show them; why the last was the last."""
    from plait.training.arithmetic import flops_per_target, peak
    from plait.training.display import Display, Progress
    from plait.training.processes import is_first

    resolved = running.resolved
    recipe = resolved.recipe
    if not is_first():
        return silent(running)
    tell_data(running)
    batches = [batch for index in range(min(3, resolved.train.steps_per_epoch)) for batch in resolved.train.step(index)]
    stop = None
    with Display(
        steps=running.total,
        seconds=None if recipe.run.minutes is None else 60 * recipe.run.minutes,
        log_every=recipe.run.log_every,
        work=flops_per_target(resolved.architecture, batches),
        peak=peak(recipe.run.precision, str(next(resolved.checkpoint.model.parameters()).device)),
    ) as display:
        for step in running.steps():
            shown = Progress(
                step=step.index, loss=step.loss, targets=step.targets, seconds=step.seconds, spent=step.spent
            )
            display.step(shown)
            if step.evaluation is not None:
                display.evaluation(step.index, step.evaluation, best=step.best)
                for sample in running.samples:
                    display.say("\n".join(f"  {name}: {' '.join(text.split())}" for name, text in sample.items()))
            stop = step.stop
        if stop not in ("SIGINT", "SIGTERM"):
            running.finish()
            for detail in running.details.values():
                display.say(detail)
            display.say(f"{running.folder.model}: the model; {running.folder.report}: how it came about.")
    return stop


def tell(recipe: Recipe) -> None:
    """The resolved recipe on stderr, a section a line or some."""
    import sys
    import textwrap

    from plait.training.recipe import plain

    for section, table in plain(recipe).items():
        words = "  ".join(f"{key} = {said(value)}" for key, value in table.items())
        print(
            textwrap.fill(
                f"[{section}]  {words}",
                width=110,
                subsequent_indent=" " * 4,
                break_long_words=False,
                break_on_hyphens=False,
            ),
            file=sys.stderr,
        )


def said(value: object) -> str:
    """A setting's value as TOML has it, in short."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(said, value))}]"
    return "none" if value is None else f'"{value}"' if isinstance(value, str) else str(value)


def tell_data(running: Running) -> None:
    """What the training data holds, and the model's size, on stderr."""
    from plait.account import account
    from plait.cli.account import in_words
    from plait.cli.printing import cell

    resolved = running.resolved
    for side, stream in {"data": resolved.train, "held out": resolved.valid}.items():
        if stream is not None:
            facts = ", ".join(f"{name.replace('_', ' ')} {cell(value)}" for name, value in stream.facts().items())
            steps = f"; an epoch is {stream.steps_per_epoch:,} steps" if stream is resolved.train else ""
            notice(f"{side}: {facts}{steps}.")
    a = resolved.architecture
    learnt = sum(weights.numel() for weights in resolved.checkpoint.model.parameters() if weights.requires_grad)
    adapters = "" if running.attached is None else f", and LoRA trains {learnt:,}"
    notice(f"model: {in_words(a)}: {account(a).parameters:,} parameters{adapters}.")
