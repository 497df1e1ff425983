"""Generate and stream: from a checkpoint and prompts to text, with everything that can be refused refused first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from plait.architecture import Classification
from plait.generation.beam import Found, beam_search
from plait.generation.constraint import constrain
from plait.generation.contrastive import contrastive_search, settle_contrast, shows_states
from plait.generation.decode import decode
from plait.generation.errors import GenerationError
from plait.generation.limits import check_limits, new_tokens
from plait.generation.options import Options
from plait.generation.prompts import read_prompts
from plait.generation.records import Generation, Piece
from plait.generation.row import Request
from plait.generation.runner import ModelRunner, Runner, check_runner
from plait.generation.schedule import Scheduler
from plait.generation.search import settle_search
from plait.generation.settings import check_seed, settle, start_id
from plait.generation.speculate import drafter
from plait.words import nearest

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint

_AT_ONCE = 2**31  # tokens of prompts in one pass


def generate(
    checkpoint: Checkpoint, prompt: Any, **options: Unpack[Options]
) -> Generation | list[Generation] | list[list[Generation]]:
    """Write on from a prompt, or from each of a list of prompts: the same as one at a time.

    ``prompt``: a text, token ids (a list or a tensor), messages ``[{"role": ..., "content": ...}]``, or a list of any
    of these; for an encoder-decoder it is the source. Options are those of ``Options``. Returns a ``Generation`` for a
    single prompt, a list of them for a list: ``[]`` for ``[]``; with ``n_best``, for each prompt the list of its best.
    ``GenerationError`` (a ``ValueError``) names what does not fit, before any work.
    """
    job = _begin(checkpoint, prompt, options)
    found: list[list[Found]] = [[] for _ in job.requests]
    for row, best in job.outcomes():
        found[row] = best
    done = [[_generation(one, request) for one in best] for best, request in zip(found, job.requests, strict=True)]
    rows: list[Any] = done if options.get("n_best") is not None else [best[0] for best in done]
    return rows[0] if job.single else rows


def stream(checkpoint: Checkpoint, prompt: Any, **options: Unpack[Options]) -> Iterator[Piece]:
    """``generate`` for one prompt, a ``Piece`` as soon as each token is chosen; the texts join to ``Generation.text``.

    What does not fit is refused at the call, as in ``generate``, and not at the first piece; a list of prompts is too.
    One ``GenerationError`` alone can come later, between pieces: where what is banned leaves no token to choose. The
    iterator may be closed at any time. Of a beam search the pieces come at its end: no sooner is it known what is best.
    """
    job = _begin(checkpoint, prompt, options)
    if not job.single:
        raise GenerationError("prompt: a list of prompts cannot be streamed as one text; give one prompt.")
    if options.get("n_best") is not None:
        raise GenerationError("n_best: one text is streamed; leave n_best out, or call generate.")
    return job.pieces()


class _Job(NamedTuple):
    """What was asked for, settled; nothing is read before the first piece is taken."""

    single: bool  # a prompt that was not in a list
    requests: list[Request]
    written: Iterator[tuple[int, Piece]] | None  # by one beam for each request,
    searched: Iterator[tuple[int, list[Found]]] | None  # or by several

    def outcomes(self) -> Iterator[tuple[int, list[Found]]]:
        """What each request came to, best first."""
        if self.searched is not None:
            yield from self.searched
        elif self.written is not None:
            rows: list[list[Piece]] = [[] for _ in self.requests]
            for row, piece in self.written:
                rows[row].append(piece)
            yield from ((row, [Found(None, pieces)]) for row, pieces in enumerate(rows))

    def pieces(self) -> Iterator[Piece]:
        """Those of a single request, as soon as they are known."""
        if self.written is not None:
            return (piece for _, piece in self.written)
        return (piece for _, best in self.outcomes() for piece in best[0].pieces)


def _generation(found: Found, request: Request) -> Generation:
    score, pieces = found
    text = "".join(piece.text for piece in pieces)
    finish = pieces[-1].finish
    assert finish is not None
    return Generation(
        text=text,
        tokens=[piece.token for piece in pieces],
        logprobs=[piece.logprob for piece in pieces],
        alternatives=[piece.alternatives for piece in pieces],
        offsets=[min(piece.offset, len(text)) for piece in pieces],
        finish=finish,
        prompt_tokens=list(request.tokens if request.source is None else request.source),
        score=score,
    )


def _begin(checkpoint: Checkpoint, prompt: Any, options: Options) -> _Job:
    """Check and settle everything."""
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
        other = "classify" if isinstance(architecture.head, Classification) else "embed"
        raise GenerationError(
            f"generate: this {architecture.kind} has no language head to write with; see plait.{other}."
        )
    check_limits(**limits)
    _check_count("alternatives", alternatives, 0)
    _check_count("prefill_chunk", 1 if chunk is None else chunk, 1)
    writer = tokenizer if tokenizer is None or tokenizer.target is None else tokenizer.target
    search = settle_search(rules, wishes)
    contrast = settle_contrast(rules, wishes, searched=search is not None)
    if speculate is not None and search is not None:
        raise GenerationError(
            "speculate: a beam search reads all its beams in one pass, and guesses nothing; give beams=1."
        )
    if speculate is not None and contrast is not None:
        raise GenerationError(
            "speculate: a contrastive search reads all its candidates in one pass, and guesses nothing; give "
            "penalty_alpha=0."
        )
    shown = None if contrast is None else shows_states(runner)
    wishes["constraint"] = constrain(checkpoint, wishes.pop("regex", None), wishes.pop("json_schema", None))
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
            tokens=[start_id(rules, architecture.vocab_size)],
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
    declared = any(n is not None for n in (*limits.values(), rules.max_new_tokens, rules.max_length))
    how: dict[str, Any] = {"tokenizer": writer, "preallocate": declared, "chunk": chunk}
    written = searched = None
    if search is not None:
        searched = beam_search(runner, requests, search, **how)
    elif contrast is not None and shown is not None:
        written = contrastive_search(shown, requests, contrast, **how)
    elif guesses is None:
        written = decode(runner, requests, **how)
    else:
        written = _ahead(Scheduler(runner, writer, chunk=chunk or _AT_ONCE, drafter=guesses), requests)
    return _Job(single, requests, written, searched)


def _ahead(scheduler: Scheduler, requests: list[Request]) -> Iterator[tuple[int, Piece]]:
    """All requests on a scheduler of their own."""
    rows = {scheduler.submit(request): row for row, request in enumerate(requests)}
    while not scheduler.idle:
        for id, said in scheduler.step():
            if isinstance(said, Exception):
                raise said
            yield rows[id], said


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
