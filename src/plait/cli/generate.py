"""``plait generate``: continue a prompt, translate a source, or answer a question, streamed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from plait.cli.models import Loading, Running, check_text, is_recipe, locate
from plait.cli.printing import Format, as_json
from plait.cli.reading import everything

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plait.generation import Piece


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is chosen. What is not given is what the checkpoint's own rules say.

    Parameters
    ----------
    max_new_tokens
        Stop after this many tokens; what is not given is what the checkpoint says, or all that its context holds, or
        512 where it has no limit.
    temperature
        0 is greedy; 1 is the model's own distribution.
    top_k
        Choose among the k likeliest tokens; 0 is all.
    penalty_alpha
        Of top-k tokens take the best in a contrastive search, in which likeness to the text counts this much, up to 1;
        0 is off. Needs --plain.
    top_p
        Choose among the likeliest tokens that hold this share of the probability.
    min_p
        Choose among tokens at least this fraction as likely as the likeliest.
    typical_p
        Choose among the most typical tokens that hold this share of the probability.
    repetition_penalty
        Above 1 makes tokens that stand in the text already less likely.
    frequency_penalty
        Taken from a token's logit for each time it was written.
    presence_penalty
        Taken from a token's logit once it was written.
    seed
        The same seed gives the same text.
    stop
        End before this text; may be given several times.
    """

    max_new_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    penalty_alpha: float | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()

    def options(self, *, plain: bool) -> dict[str, Any]:
        """The keyword arguments of ``plait.generate`` and ``plait.stream``; ``ValueError`` for a value that would be
        refused whatever the checkpoint says, so that none is loaded for it. ``plain``: the plain model computes."""
        from plait.checkpoint import DecodeRules
        from plait.generation.contrastive import settle_contrast
        from plait.generation.limits import check_limits
        from plait.generation.settings import Settings, check_seed

        options = dataclasses.asdict(self)
        given = {name: value for name, value in options.items() if value is not None}
        check_limits(given.pop("max_new_tokens", None), None)
        check_seed(given.pop("seed", None))
        if settle_contrast(DecodeRules(top_k=2), given) is not None and not plain:
            raise ValueError(
                "--penalty-alpha: contrastive search reads hidden states, which the engine does not give; add --plain."
            )
        Settings(**{"temperature": 1.0, **given})  # whether it is greedy unless asked, the checkpoint says
        return options


@dataclass(frozen=True, kw_only=True)
class Guessing:
    """Tokens guessed ahead and checked several in a pass: quicker where guesses are right, the text is the same.

    Parameters
    ----------
    speculate
        lookup guesses what followed when the last few tokens last stood in the text; for text that repeats itself.
    draft
        A smaller model with the same tokenizer, which guesses; named as MODEL is.
    """

    speculate: Literal["lookup"] | None = None
    draft: str | None = None

    def check(self, loading: Loading) -> None:
        """``ValueError`` where both are given, or the draft is nothing that could guess."""
        if self.draft is None:
            return
        if self.speculate is not None:
            raise ValueError("--speculate, --draft: one of the two guesses; leave the other out.")
        check_text(self.draft)
        if not is_recipe(self.draft):
            locate(self.draft)

    def options(self, loading: Loading, running: Running) -> dict[str, Any]:
        """The keyword arguments of ``plait.generate`` and ``plait.stream``; the draft is opened."""
        if self.draft is None:
            return {"speculate": self.speculate}
        draft, runner = running.open(self.draft, loading)
        return {"speculate": draft if runner is None else (draft, runner)}


@dataclass(frozen=True, kw_only=True)
class Searching:
    """Several texts written side by side, the best of which is kept. What is not given, the checkpoint's rules say.

    Parameters
    ----------
    beams
        How many; 1 is no search.
    n_best
        Print so many texts, best first, each after its score.
    length_penalty
        A score is the log-probability divided by length ** this: the larger, the longer the texts.
    early_stopping
        When a search is done that has as many ended texts as beams: at once (yes), when none would be better at its
        length (no), or when none could at any length (never).
    """

    beams: int | None = None
    n_best: int | None = None
    length_penalty: float | None = None
    early_stopping: Literal["yes", "no", "never"] | None = None

    def options(self) -> dict[str, Any]:
        """The keyword arguments of ``plait.generate``; ``ValueError`` as of ``Sampling``."""
        options = dataclasses.asdict(self)
        if self.early_stopping != "never":
            options["early_stopping"] = None if self.early_stopping is None else self.early_stopping == "yes"
        given = {name: value for name, value in options.items() if value is not None}
        if self.beams is not None:
            from plait.generation.search import Search

            Search(**given)
        return given


@dataclass(frozen=True, kw_only=True)
class Constraining:
    """What the whole text must be; needs plait[constrained].

    Parameters
    ----------
    regex
        A regular expression that it matches.
    json_schema
        A file with the JSON schema of what it is.
    """

    regex: str | None = None
    json_schema: Path | None = None

    def options(self) -> dict[str, Any]:
        """The keyword arguments of ``plait.generate`` and ``plait.stream``."""
        schema = None if self.json_schema is None else self.json_schema.expanduser().read_text(encoding="utf-8")
        return {name: value for name, value in (("regex", self.regex), ("json_schema", schema)) if value is not None}


NO_GUESSING, NO_SEARCHING, FREE = Guessing(), Searching(), Constraining()


def generate(
    model: str,
    prompt: str,
    /,
    *,
    chat: bool = False,
    system: str | None = None,
    format: Format = "text",
    sampling: Annotated[Sampling, Parameter(name="*")] = Sampling(),
    searching: Annotated[Searching, Parameter(name="*")] = NO_SEARCHING,
    constraining: Annotated[Constraining, Parameter(name="*")] = FREE,
    guessing: Annotated[Guessing, Parameter(name="*")] = NO_GUESSING,
    running: Annotated[Running, Parameter(name="*")] = Running(),
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
) -> None:
    """Continue a prompt, translate a source, or answer a question.

    An encoder-decoder reads PROMPT as its source and writes the target. Text is printed as it comes.

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub name, or package:NAME.
    prompt
        The text to go on from; - reads it from standard input.
    chat
        Put the prompt into the checkpoint's chat template, as a user's message.
    system
        The system's message; goes with --chat.
    format
        json prints text, tokens, log-probabilities and why it ended, at the end.
    """
    if system is not None and not chat:
        raise ValueError("--system: a system message needs the chat template; add --chat.")
    running.check()
    options = {**sampling.options(plain=running.by_model(loading)), **searching.options(), **constraining.options()}
    guessing.check(loading)
    check_text(model)
    text = everything() if prompt == "-" else prompt
    checkpoint, runner = running.open(model, loading)
    request = [*messages("system", system), *messages("user", text)] if chat else text
    options = {**options, **guessing.options(loading, running), "runner": runner}
    if format == "text" and searching.n_best is None:
        from plait.generation import stream

        write(stream(checkpoint, request, **options))
        return
    from plait.generation import generate

    found: Any = generate(checkpoint, request, **options)
    if format == "json":
        as_json([dataclasses.asdict(one) for one in found] if isinstance(found, list) else dataclasses.asdict(found))
        return
    for one in found:
        escaped = one.text.replace("\n", "\\n")  # a line for each
        print(escaped if one.score is None else f"{one.score:.4f}  {escaped}")


def messages(role: str, content: str | None) -> list[dict[str, str]]:
    """One message, or none where there is no content."""
    return [] if content is None else [{"role": role, "content": content}]


def write(pieces: Iterable[Piece]) -> str:
    """Print text as it comes, end the line, and return the whole."""
    text = ""
    try:
        for piece in pieces:
            text += piece.text
            print(piece.text, end="", flush=True)
    finally:
        if not text.endswith("\n"):
            print(flush=True)
    return text
