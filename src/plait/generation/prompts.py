"""Prompts: every form in which one may be given, read into lists of token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plait.generation.errors import GenerationError
from plait.generation.settings import check_ids

if TYPE_CHECKING:
    from plait.text import Tokenizer

_BYTES = (bytes, bytearray, memoryview)  # sequences of numbers, but text that nobody decoded


def read_prompts(
    prompt: Any, tokenizer: Tokenizer | None, *, specials: bool, vocab_size: int, bos: int | None
) -> tuple[list[list[int]], bool]:
    """The ids of every prompt, and whether it was a single one that was not in a list.

    A prompt is text, token ids (a list, or a row of a tensor), or messages ``{"role", "content"}``; an empty one
    becomes the BOS token. An empty list, and a tensor ``(0, n)``, hold no prompt. ``GenerationError`` where a prompt is
    none of these, or there is no tokenizer or no BOS to read it with.
    """
    single = _is_single(prompt)
    prompt = _plain(prompt)
    prompts = [prompt] if single else list(prompt)
    ids = [_read_one(item, tokenizer, specials) for item in prompts]
    for row, tokens in enumerate(ids):
        check_ids("prompt" if single else f"prompt {row}", tokens, vocab_size)
        if not tokens:
            if bos is None:
                raise GenerationError(
                    "prompt: it is empty, and the checkpoint has no BOS token to start from; give some text."
                )
            check_ids("rules.bos", [bos], vocab_size)
            tokens.append(bos)
    return ids, single


def _plain(prompt: Any) -> Any:
    """Tensors and arrays as lists."""
    if not _is_tensor(prompt):
        return prompt
    plain = prompt.tolist()
    shape = tuple(prompt.shape)
    if len(shape) not in (1, 2):
        raise GenerationError(f"prompt: a tensor of shape {shape} is no prompt; give (length,) or (batch, length).")
    if 0 not in shape and "int" not in str(prompt.dtype):  # an empty tensor is a float one unless one says otherwise
        raise GenerationError(f"prompt: a tensor of {prompt.dtype} holds no token ids; give integers.")
    return plain


def _is_tensor(prompt: Any) -> bool:
    return hasattr(prompt, "tolist") and hasattr(prompt, "dtype")


def _is_single(prompt: Any) -> bool:
    if _is_tensor(prompt):
        return prompt.ndim == 1
    if isinstance(prompt, str):
        return True
    if not isinstance(prompt, Sequence) or isinstance(prompt, _BYTES):
        raise GenerationError(
            f"prompt: {type(prompt).__name__} is no prompt; give text, token ids, messages, or a list of those."
        )
    return len(prompt) > 0 and isinstance(prompt[0], int | Mapping)


def _read_one(prompt: Any, tokenizer: Tokenizer | None, specials: bool) -> list[int]:
    prompt = _plain(prompt)
    if not isinstance(prompt, Sequence) or isinstance(prompt, _BYTES):
        raise GenerationError(f"prompt: {prompt!r} is no prompt; give text, token ids, or messages.")
    if not isinstance(prompt, str) and not (prompt and isinstance(prompt[0], Mapping)):
        return list(prompt)
    if tokenizer is None:
        raise GenerationError("prompt: the checkpoint has no tokenizer to read text with; give token ids.")
    if isinstance(prompt, str):
        return tokenizer.encode(prompt, specials=specials)
    if tokenizer.chat_template is None:
        raise GenerationError("prompt: the checkpoint has no chat template to write messages with; give text.")
    return tokenizer.chat(prompt)
