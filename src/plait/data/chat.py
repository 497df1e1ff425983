"""Chat: rows of conversations as the template renders them, with a loss on the assistant's answers alone.

    ids      <|user|> hi <|end|> <|assistant|> hello <|end|> \\n <|user|> bye <|end|> <|assistant|> ciao <|end|> \\n
    asked       -     -     -          -       hello <|end|> -      -     -     -          -        ciao <|end|> -

An answer is what its rendering adds to the prompt that generation would be given. It is asked for with its end token,
and nothing behind that: generation never says it. A template that renders earlier turns otherwise once others follow
(one that takes thoughts out of them, say) gets a row for each answer, so that every prompt is the one of generation.

All control ids are the template's. Nothing is added, and control strings in what people said stay text, where the
function that renders sees to it, as ``Tokenizer.chat`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from plait.data.batch import UNCOUNTED
from plait.data.chats import ANSWERS, Messages
from plait.data.error import DataError
from plait.data.given import given
from plait.data.lines import Tally
from plait.data.longest import Longest

Render = Callable[[Messages, bool], Sequence[int]]
Row = tuple[list[int], list[int]]


def chat_rows(
    conversations: Iterable[Messages],
    tally: Tally,
    *,
    render: Render,
    ends: Collection[int],
    length: int,
    longest: Longest = "drop",
) -> Iterator[list[Sequence[int]]]:
    """Conversations as rows for ``Given``: ids, and what is asked.

    Args:
        conversations: lists of messages.
        tally: counts what is over-long, and what is cut.
        render: messages, and whether a prompt for the next answer ends them, to ids:
            ``lambda m, prompt: tokenizer.chat(m, add_generation_prompt=prompt)``.
        ends: the ids that end an answer: ``DecodeRules.end``.
        length: the most tokens of a row.
        longest: ``"drop"`` leaves a longer row out, ``"cut"`` takes its end away.

    Raises DataError for a template that puts no end behind an answer, or whose answer does not go on from its prompt.
    """
    rows = (row for messages in conversations for row in answers(messages, render, ends))
    return given(rows, tally, length=length, longest=longest)


def answers(messages: Messages, render: Render, ends: Collection[int]) -> Iterator[Row]:
    """The rows of one conversation: ids, and what is asked at each; one row, where every turn renders as before."""
    ids: list[int] = []
    asked: list[int] = []
    for number, message in enumerate(messages):
        if message["role"] != ANSWERS:
            continue
        prompt, whole = list(render(messages[:number], True)), list(render(messages[: number + 1], False))
        start = _shared(prompt, whole)
        if start < len(prompt) and start <= _shared(list(render(messages[:number], False)), whole):
            raise DataError(
                f"message {number + 1}: the template renders this answer otherwise than behind the prompt for it, so "
                "where it begins cannot be told; use a template whose answers go on from its generation prompt."
            )
        last = next((at for at in range(start, len(whole)) if whole[at] in ends), None)
        if last is None:
            raise DataError(
                f"message {number + 1}: the template puts no end token behind this answer, so a model would never "
                "learn to stop; name the token that does end it among the decode rules' ends."
            )
        if whole[: len(ids)] != ids:
            yield ids, asked
            ids, asked = [], []
        asked += [UNCOUNTED] * (len(whole) - len(asked))
        asked[start : last + 1] = whole[start : last + 1]
        ids = whole
    if ids:
        yield ids, asked


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two rows begin with alike."""
    for number, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return number
    return min(len(one), len(other))
