"""Streams of text: the next token, hidden tokens, spans, spoilt texts, over documents that are tokenised once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from plait.data.denoising import Denoising, sentence_ends
from plait.data.masked import Masked
from plait.data.packing import CausalStream
from plait.data.rows import Ragged
from plait.data.sources import find
from plait.data.spans import Spans, text_length
from plait.data.store import tokenised
from plait.data.tokens import Tokens
from plait.data.whole_words import continuing, word_marks
from plait.text import Tokenizer
from plait.training.places import RecipeError
from plait.training.split_text import split_text
from plait.training.stream_inputs import Both, Inputs


def _tokens(inputs: Inputs, *, bare: bool = False) -> tuple[Tokens, Tokens | None]:
    """Training and validation text; ``bare``: without anything around a document."""
    data = inputs.recipe.data

    def read(paths: Sequence[str]) -> Tokens:
        around: dict[str, Any] = {"before": (), "after": ()} if bare else {}
        return tokenised(paths, inputs.tokenizer, lowercase=data.lowercase, cache=data.cache, **around)

    train = read(data.train)
    if data.valid_fraction:
        return split_text(train, data.valid_fraction, inputs.tokenizer)
    return train, read(data.valid) if data.valid else None


def causal(inputs: Inputs) -> Both:
    """The next token."""
    recipe = inputs.recipe
    sources = find(recipe.data.train)[0]
    # Windows of one text: it has no end that a row would show, and every one of its characters counts as it is
    one_text = recipe.data.packing == "windows" and len(sources) == 1 and sources[0].kind == "text"
    train, valid = _tokens(inputs, bare=one_text)
    rows = recipe.data.batch_rows or (recipe.data.batch_tokens or 0) // recipe.data.length
    if not rows:
        raise RecipeError(f"data.batch_tokens: {recipe.data.batch_tokens} is less than a row of {recipe.data.length}.")

    if recipe.data.packing == "documents" and "bits_per_byte" in recipe.evaluate.metrics:
        train, valid = (None if text is None else asked(text, inputs.tokenizer) for text in (train, valid))
        assert train is not None, "training text is never left out"

    def stream(tokens: Tokens) -> CausalStream:
        return CausalStream(
            tokens=tokens,
            length=recipe.data.length,
            rows=rows,
            packing=recipe.data.packing,
            micro_batches=recipe.data.micro_batches,
            seed=recipe.run.seed,
        )

    return stream(train), None if valid is None else stream(valid)


def asked(text: Tokens, tokenizer: Tokenizer) -> Tokens:
    """Text whose ``bytes`` are those that targets spell: the first token of each document is none."""
    begins = (text.document(number)[0] for number in range(text.n_documents))
    first = Counter(int(text.read(at, at + 1)[0]) for at in begins)
    free = sum(count * len(tokenizer.decode([id], skip_specials=True).encode()) for id, count in first.items())
    return text.saying(bytes=text.counts["bytes"] - free)


def _of_text(inputs: Inputs, objective: Callable[[Ragged], Any], length: int, least: int = 1) -> Both:
    """An objective over the rows that text is cut into, of ``length`` tokens at most."""
    join = inputs.recipe.data.packing != "documents"
    train, valid = (
        None
        if tokens is None
        else inputs.samples(
            objective(Ragged.documents(tokens).pieces(length, join=join, least=least)), dict(tokens.counts)
        )
        for tokens in _tokens(inputs, bare=True)
    )
    assert train is not None, "training text is never left out"
    return train, valid


def masked(inputs: Inputs) -> Both:
    """Hidden tokens."""
    recipe, tokenizer = inputs.recipe, inputs.tokenizer
    before, after = tokenizer.prefix, tokenizer.suffix

    def objective(rows: Any) -> Masked:
        return Masked(
            rows=rows,
            mask=inputs.role("mask"),
            vocab_size=len(tokenizer),
            before=before,
            after=after,
            specials=tokenizer.special_ids,
            rate=recipe.objective.hidden,
            continues=continuing(tokenizer) if recipe.objective.whole_words else None,
            seed=recipe.run.seed,
            pad=inputs.pad,
        )

    return _of_text(inputs, objective, recipe.data.length - len(before) - len(after))


def spans(inputs: Inputs) -> Both:
    """T5's spans."""
    recipe, tokenizer = inputs.recipe, inputs.tokenizer
    found = [id for n in range(1000) if (id := tokenizer.id(f"<extra_id_{n}>")) is not None]
    if not found:
        raise RecipeError("data.tokenizer: spans need sentinels, <extra_id_0> and on, and this vocabulary has none.")
    rate, mean_span = recipe.objective.hidden, recipe.objective.mean_span

    def objective(rows: Any) -> Spans:
        return Spans(
            rows=rows,
            sentinels=found,
            start=inputs.start,
            end=inputs.rules.end[0],
            rate=rate,
            mean_span=mean_span,
            seed=recipe.run.seed,
            pad=inputs.pad,
        )

    length, _ = text_length(recipe.data.length, rate=rate, mean_span=mean_span)
    return _of_text(inputs, objective, length, least=2)


def denoising(inputs: Inputs) -> Both:
    """BART's whole texts."""
    recipe, tokenizer = inputs.recipe, inputs.tokenizer
    before, after = tokenizer.prefix, tokenizer.suffix or inputs.rules.end[:1]

    def objective(rows: Any) -> Denoising:
        return Denoising(
            rows=rows,
            mask=inputs.role("mask"),
            start=inputs.start,
            before=before,
            after=after,
            rate=recipe.objective.hidden,
            mean_span=recipe.objective.mean_span,
            continues=word_marks(tokenizer),
            sentence_ends=sentence_ends(tokenizer) if recipe.objective.permute else (),
            seed=recipe.run.seed,
            pad=inputs.pad,
        )

    return _of_text(inputs, objective, recipe.data.length - len(before) - len(after))
