"""Generate and stream: from a checkpoint and prompts to text, with everything that can be refused refused first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from plait.checkpoint.notice import notice
from plait.checkpoint.rules import DecodeRules
from plait.generation.decode import decode
from plait.generation.errors import GenerationError
from plait.generation.limits import check_limits, new_tokens
from plait.generation.prompts import read_prompts
from plait.generation.records import Finish, Generation, Piece
from plait.generation.row import Request
from plait.generation.runner import ModelRunner, Runner, check_runner
from plait.generation.schedule import Scheduler
from plait.generation.settings import check_ids, check_seed, settle
from plait.generation.speculate import drafter
from plait.words import nearest

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint

_NO_RULES = DecodeRules()
_AT_ONCE = 2**31  # tokens of prompts in one pass


class Options(TypedDict, total=False):
    """What ``generate`` and ``stream`` take besides the prompt. ``None``: the checkpoint's decode rules decide."""

    max_new_tokens: int | None  # how many tokens may be written,
    max_length: int | None  # or how many there may be with the prompt; neither: as many as the context holds
    temperature: float | None  # 0 is greedy
    top_k: int | None  # 0 is off
    top_p: float | None  # 1 is off
    min_p: float | None  # 0 is off
    repetition_penalty: float | None  # 1 is off; counts the prompt's tokens too
    frequency_penalty: float  # for each time a token was written
    presence_penalty: float  # once for each token that was written
    banned: Iterable[int | Sequence[int]]  # ids, or sequences of ids, that are never written
    stop: str | Iterable[str]  # text that ends a row and is not shown
    end: int | Iterable[int] | None  # ids that end a row; None: the tokenizer's and the rules', all of them
    ignore_end: bool  # no id ends a row
    seed: int | Sequence[int] | None  # one for all prompts or one for each; None: another one every time
    specials: bool  # whether the tokenizer adds its special tokens to a text; True unless given
    echo: bool  # the prompt's own tokens come first, with their logprobs
    alternatives: int  # how many of the likeliest tokens to report with each token
    prefill_chunk: int | None  # prompts are read this many tokens at a time; None: at once
    runner: Runner | None  # who computes: plait.optimize(checkpoint), say; None: the checkpoint's model itself
    # Who guesses ahead: "lookup" in the text itself; a smaller model of the same vocabulary as a runner, best one of
    # plait.optimize(draft), as a checkpoint, or as (checkpoint, runner), whose tokenizer is compared; None: nobody
    speculate: Any


def generate(checkpoint: Checkpoint, prompt: Any, **options: Unpack[Options]) -> Generation | list[Generation]:
    """Write on from a prompt, or from each of a list of prompts: the same as one at a time.

    ``prompt``: a text, token ids (a list or a tensor), messages ``[{"role": ..., "content": ...}]``, or a list of any
    of these; for an encoder-decoder it is the source. Options are those of ``Options``. Returns a ``Generation`` for a
    single prompt, a list of them for a list: ``[]`` for ``[]``. ``GenerationError`` (a ``ValueError``) names what does
    not fit, before any work.
    """
    single, requests, pieces = _begin(checkpoint, prompt, options)
    drafts = [_Draft() for _ in requests]
    for row, piece in pieces:
        drafts[row].add(piece)
    done = [draft.finished(request) for draft, request in zip(drafts, requests, strict=True)]
    return done[0] if single else done


def stream(checkpoint: Checkpoint, prompt: Any, **options: Unpack[Options]) -> Iterator[Piece]:
    """``generate`` for one prompt, a ``Piece`` as soon as each token is chosen; the texts join to ``Generation.text``.

    What does not fit is refused at the call, as in ``generate``, and not at the first piece; a list of prompts is too.
    One ``GenerationError`` alone can come later, between pieces: where what is banned leaves no token to choose. The
    iterator may be closed at any time.
    """
    single, _, pieces = _begin(checkpoint, prompt, options)
    if not single:
        raise GenerationError("prompt: a list of prompts cannot be streamed as one text; give one prompt.")
    return (piece for _, piece in pieces)


class _Draft:
    """A generation that grows by pieces."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []

    def add(self, piece: Piece) -> None:
        self.pieces.append(piece)

    def finished(self, request: Request) -> Generation:
        text = "".join(piece.text for piece in self.pieces)
        finish: Finish | None = self.pieces[-1].finish
        assert finish is not None
        return Generation(
            text=text,
            tokens=[piece.token for piece in self.pieces],
            logprobs=[piece.logprob for piece in self.pieces],
            alternatives=[piece.alternatives for piece in self.pieces],
            offsets=[min(piece.offset, len(text)) for piece in self.pieces],
            finish=finish,
            prompt_tokens=list(request.tokens if request.source is None else request.source),
        )


def _begin(
    checkpoint: Checkpoint, prompt: Any, options: Options
) -> tuple[bool, list[Request], Iterator[tuple[int, Piece]]]:
    """Check and settle everything; whether the prompt was a single one, the requests, and the pieces to come."""
    wishes: dict[str, Any] = dict(options)
    for name in wishes:
        if name not in Options.__annotations__:
            near = nearest(name, Options.__annotations__)
            raise TypeError(f"{name}: there is no such option" + (f"; did you mean {near!r}?" if near else "."))
    limits = {name: wishes.pop(name, None) for name in ("max_new_tokens", "max_length")}
    seed, specials = wishes.pop("seed", None), wishes.pop("specials", True)
    echo, alternatives, chunk, speculate = (
        wishes.pop(name, off)
        for name, off in (("echo", False), ("alternatives", 0), ("prefill_chunk", None), ("speculate", None))
    )
    given = wishes.pop("runner", None)
    if given is not None:
        check_runner(given, checkpoint.architecture)
    runner: Runner = ModelRunner(checkpoint.model) if given is None else given
    architecture, rules, tokenizer = runner.architecture, checkpoint.rules, checkpoint.tokenizer
    if architecture.head != "language":
        raise GenerationError(
            f"generate: this {architecture.kind} has no language head to write with; see plait.embed."
        )
    check_limits(**limits)
    _check_count("alternatives", alternatives, 0)
    _check_count("prefill_chunk", 1 if chunk is None else chunk, 1)
    writer = tokenizer if tokenizer is None or tokenizer.target is None else tokenizer.target
    settings = settle(rules, writer, architecture.vocab_size, **wishes)
    guesses = drafter(speculate, runner, writer)

    bos = rules.bos if rules.bos is not None or tokenizer is None else tokenizer.bos
    vocab_size = architecture.source_vocab_size if architecture.kind == "encoder-decoder" else architecture.vocab_size
    prompts, single = read_prompts(prompt, tokenizer, specials=specials, vocab_size=vocab_size, bos=bos)
    seeds = _seeds(seed, len(prompts))
    context = architecture.max_length

    def request(tokens: list[int], seed: int | None) -> Request:
        if architecture.kind == "decoder":
            return Request(
                tokens=tokens,
                limit=new_tokens(len(tokens), rules, context, **limits),
                settings=settings,
                seed=seed,
                echo=echo,
                alternatives=alternatives,
            )
        if context is not None and len(tokens) > context:
            raise GenerationError(
                f"prompt: its {len(tokens)} tokens exceed the context of {context}; give at most {context}."
            )
        return Request(
            tokens=[_start(checkpoint)],
            source=tokens,
            limit=new_tokens(1, rules, context, **limits),
            settings=settings,
            seed=seed,
            alternatives=alternatives,
        )

    if echo and architecture.kind == "encoder-decoder":
        raise GenerationError(
            "echo: an encoder-decoder reads its prompt as a source and scores none of it; leave echo out."
        )
    requests = [request(tokens, own) for tokens, own in zip(prompts, seeds, strict=True)]
    if rules.beams > 1:
        asked = {name: getattr(rules, name) for name in ("beams", "length_penalty", "early_stopping")}
        said = ", ".join(f"{name} {value}" for name, value in asked.items() if value != getattr(_NO_RULES, name))
        notice(f"rules: the checkpoint asks for {said}; plait has no beam search, and writes each row as one beam.")
    declared = any(n is not None for n in (*limits.values(), rules.max_new_tokens, rules.max_length))
    if guesses is None:
        pieces = decode(runner, requests, tokenizer=writer, preallocate=declared, chunk=chunk)
    else:
        pieces = _ahead(Scheduler(runner, writer, chunk=chunk or _AT_ONCE, drafter=guesses), requests)
    return single, requests, pieces


def _ahead(scheduler: Scheduler, requests: list[Request]) -> Iterator[tuple[int, Piece]]:
    """All requests on a scheduler of their own."""
    rows = {scheduler.submit(request): row for row, request in enumerate(requests)}
    while not scheduler.idle:
        for id, said in scheduler.step():
            if isinstance(said, Exception):
                raise said
            yield rows[id], said


def _start(checkpoint: Checkpoint) -> int:
    """The token a decoder that reads a source begins with."""
    rules = checkpoint.rules
    start = rules.start if rules.start is not None else rules.bos
    if start is None:
        raise GenerationError("rules.start: the checkpoint does not say which token its decoder begins with; set it.")
    check_ids("rules.start", [start], checkpoint.architecture.vocab_size)
    return start


def _seeds(seed: int | Sequence[int] | None, n: int) -> list[int | None]:
    seeds: list[int | None] = [seed] * n if seed is None or isinstance(seed, int) else list(seed)
    if len(seeds) != n:
        raise GenerationError(f"seed: {len(seeds)} seeds for {n} prompts; give one for all, or one for each.")
    for own in seeds:
        check_seed(own)
    return seeds


def _check_count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise GenerationError(f"{name}: {value!r} makes no sense; give a whole number from {least}.")
