"""``plait chat``: a conversation in the terminal, over the checkpoint's own chat template."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from plait.cli.generate import FREE, NO_GUESSING, Constraining, Guessing, Sampling, messages
from plait.cli.models import Loading, Running, check_text
from plait.cli.printing import error, notice
from plait.cli.reading import line


def chat(
    model: str,
    /,
    *,
    system: str | None = None,
    sampling: Annotated[Sampling, Parameter(name="*")] = Sampling(),
    constraining: Annotated[Constraining, Parameter(name="*")] = FREE,
    guessing: Annotated[Guessing, Parameter(name="*")] = NO_GUESSING,
    running: Annotated[Running, Parameter(name="*")] = Running(),
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
) -> None:
    """Talk with a model.

    /clear starts over, /exit or Ctrl-D leaves, Ctrl-C cuts an answer short.

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub name, or package:NAME, with a chat template.
    system
        The system's message.
    """
    from plait.generation import stream

    running.check()
    options = {**sampling.options(plain=running.by_model(loading)), **constraining.options()}
    guessing.check(loading)
    check_text(model)
    checkpoint, runner = running.open(model, loading)
    if checkpoint.tokenizer is None or checkpoint.tokenizer.chat_template is None:
        raise ValueError(f"{model}: this checkpoint has no chat template; use plait generate.")
    options = {**options, **guessing.options(loading, running), "runner": runner}
    opening = messages("system", system)
    conversation = list(opening)
    while (said := ask()) is not None:
        if said in ("/exit", "/clear"):
            if said == "/exit":
                return
            conversation = list(opening)
            continue
        if not said.strip():
            continue
        asked = [*conversation, *messages("user", said)]
        answer = ""
        try:
            for piece in stream(checkpoint, asked, **options):
                answer += piece.text
                print(piece.text, end="", flush=True)
        except KeyboardInterrupt:
            pass  # the answer ends here, the conversation goes on
        except ValueError as mistake:  # too long a conversation, for one: as if it had not been said
            if answer:
                print(flush=True)
            error(str(mistake))
            continue
        print(flush=True)
        conversation = [*asked, *messages("assistant", answer)]


def ask() -> str | None:
    """One line from the user; ``None`` at the end of input."""
    try:
        if sys.stdin and sys.stdin.isatty() and sys.stdout.isatty():
            import readline  # noqa: F401  (line editing and history for input)

            return input("> ")
        said = line()
        return said.rstrip("\n") if said else None
    except EOFError:
        print(file=sys.stderr)
        return None
    except KeyboardInterrupt:
        print(file=sys.stderr)
        notice("/exit or Ctrl-D leaves")
        return ""
