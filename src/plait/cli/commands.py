"""``plait``: the table of commands, and what becomes of errors, interrupts and closed pipes."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

import plait
from plait.cli import dash
from plait.cli.printing import error, notice
from plait.words import nearest

COMMANDS = {  # imported when called; a module of commands imports torch only inside its functions
    "quickstart": "plait.cli.quickstart:quickstart",
    "account": "plait.cli.account:account",
    "diff": "plait.cli.account:diff",
    "presets": "plait.cli.account:presets",
    "bench": "plait.cli.bench:bench",
    "explain-plan": "plait.cli.explain_plan:explain_plan",
    "convert": "plait.cli.convert:convert",
    "generate": "plait.cli.generate:generate",
    "translate": "plait.cli.translate:translate",
    "chat": "plait.cli.chat:chat",
    "embed": "plait.cli.embed:embed",
    "score": "plait.cli.score:score",
    "classify": "plait.cli.classify:classify",
    "fill": "plait.cli.fill:fill",
    "tokenizer": "plait.cli.tokenizer:app",
    "train": "plait.cli.train:train",
    "plan": "plait.cli.plan:plan",
    "evaluate": "plait.cli.evaluate:evaluate",
    "settings": "plait.cli.train:settings",
    "inspect": "plait.cli.inspect:inspect",
    "memories": "plait.cli.memories:memories",
    "walk": "plait.cli.walk:walk",
    "edit": "plait.cli.edit:edit",
    "lab": "plait.cli.lab:lab",
    "verify": "plait.cli.verify:verify",
}

SUCCESS, FAILURE, USAGE, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 130, 141


def build() -> App:
    """The application: a command for each row of the table, and ``--config`` before them all."""
    app = App(
        name="plait",
        help="One Transformer: run, count, convert and check any checkpoint it can read.",
        version=plait.__version__,
        help_format="plaintext",
        suppress_keyboard_interrupt=False,
        default_parameter=Parameter(negative=(), show_default=lambda value: value or None),
    )
    for name, place in COMMANDS.items():
        app.command(place, name=name)

    @app.meta.default
    def run(
        *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
        config: Annotated[Path | None, Parameter(help="A TOML file of defaults, a section for each command.")] = None,
    ) -> Any:
        if tokens and tokens[0].startswith("--"):  # cyclopts would call it an unknown command
            near = nearest(tokens[0], ("--config", "--help", "--version"))
            raise CycloptsError(f"Unknown option: {tokens[0]}." + (f" Did you mean {near}?" if near else ""))
        if config is not None:
            from plait.cli.settings import read

            app.config = (read(config, app),)
        command, bound, _ = app.parse_args(dash.hidden(tokens), exit_on_error=False, print_error=False)
        return command(*dash.shown(bound.args), **dash.shown(bound.kwargs))

    return app


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 for a failure, 2 for a mistake in the command itself.

    With ``PLAIT_DEBUG`` set, errors are raised with their traceback.
    """
    debug = bool(os.environ.get("PLAIT_DEBUG"))
    if arguments is None:  # the process is the command's alone
        gc.set_threshold(
            50_000
        )  # importing torch makes hundreds of thousands of objects, and no garbage: a tenth faster
    tokens = sys.argv[1:] if arguments is None else arguments
    sys.stdout = sys.stdout or open(os.devnull, "w")  # closed by the caller, who wants no text: the work is still done
    sys.stderr = sys.stderr or open(os.devnull, "w")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: notice(str(message))
            app = build()
            if tokens[:1] in ([], ["-h"], ["--help"]):
                for name in COMMANDS:
                    app[name]  # imported, for its summary in the list
            status = app.meta(tokens, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return status if isinstance(status, int) else SUCCESS
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at exit
        return CLOSED_PIPE
    except CycloptsError as mistake:
        if debug:
            raise
        mistake.verbose = False
        sentence = str(mistake)
        if isinstance(mistake, UnusedCliTokensError) and mistake.unused_tokens:
            sentence = (
                f"{mistake.unused_tokens[0]}: that is an argument too many; quote the prompt, or any text of words."
            )
        error(f"{dash.named(sentence)} See {' '.join(['plait', *(mistake.command_chain or ())])} --help.")
        return USAGE
    except (ValueError, OSError) as mistake:  # what plait, the files and the network say about what they were given
        if debug:
            raise
        error(in_words(mistake))
        return FAILURE
    except Exception as fault:
        if debug:
            raise
        error(f"{type(fault).__name__}: {fault} (a fault in plait; PLAIT_DEBUG=1 shows where)")
        return FAILURE


def in_words(mistake: ValueError | OSError) -> str:
    """Its sentence; of a file that the system refuses, the file and why."""
    if isinstance(mistake, OSError) and mistake.filename is not None and mistake.strerror:
        return f"{mistake.filename}: {mistake.strerror}."
    return str(mistake) or type(mistake).__name__
