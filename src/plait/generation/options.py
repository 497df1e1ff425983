"""Options: what ``generate`` and ``stream`` take besides the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from plait.generation.runner import Runner

if TYPE_CHECKING:
    from plait.generation.search import EarlyStopping


class Options(TypedDict, total=False):
    """``None``, or left out: the checkpoint's decode rules decide."""

    max_new_tokens: int | None  # how many tokens may be written,
    max_length: int | None  # or how many there may be with the prompt; neither: as many as the context holds
    temperature: float | None  # 0 is greedy
    top_k: int | None  # 0 is off; with penalty_alpha, how many candidates there are
    top_p: float | None  # 1 is off
    min_p: float | None  # 0 is off
    typical_p: float | None  # 1 is off
    penalty_alpha: float | None  # contrastive search: how much likeness to the text counts, to 1; 0 is off
    repetition_penalty: float | None  # 1 is off; counts the prompt's tokens too
    frequency_penalty: float  # for each time a token was written
    presence_penalty: float  # once for each token that was written
    no_repeat_ngram: int | None  # so many tokens in a row are not written twice; 0 is off
    banned: Iterable[int | Sequence[int]]  # ids, or sequences of ids, that are never written
    stop: str | Iterable[str]  # text that ends a row and is not shown
    end: int | Iterable[int] | None  # ids that end a row; None: the tokenizer's and the rules', all of them
    ignore_end: bool  # no id ends a row
    min_new_tokens: int | None  # no end before so many were written
    regex: str  # the whole text matches it; needs plait[constrained], as the next one does
    json_schema: str | Mapping[str, Any]  # the whole text is JSON that it allows
    beams: int | None  # continuations that a beam search keeps; 1 is none. Of the others of it: plait.Search
    n_best: int | None  # a list of so many, best first, for each prompt; None: the best alone
    length_penalty: float | None  # log-probability / length ** this ranks beams
    early_stopping: EarlyStopping | None  # when a search is done: True, False or "never"
    renormalize: bool | None  # whether beams count by what the rules leave, as a distribution
    beam_groups: int  # so many groups of beams,
    diversity: float  # which shun one another's tokens by this much
    seed: int | Sequence[int] | None  # one for all prompts or one for each; None: another one every time
    specials: bool  # whether the tokenizer adds its special tokens to a text; True unless given
    echo: bool  # the prompt's own tokens come first, with their logprobs
    alternatives: int  # how many of the likeliest tokens to report with each token
    prefill_chunk: int | None  # prompts are read this many tokens at a time; None: at once
    runner: Runner | None  # who computes: plait.optimize(checkpoint), say; None: the checkpoint's model itself
    # Who guesses ahead: "lookup" in the text itself; a smaller model of the same vocabulary as a runner, best one of
    # plait.optimize(draft), as a checkpoint, or as (checkpoint, runner), whose tokenizer is compared; None: nobody
    speculate: Any
