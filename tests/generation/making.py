"""What these tests are made of: tiny random models, models that say what they are told, a toy tokenizer, an oracle."""

from __future__ import annotations

import codecs
import copy
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plait.architecture import Architecture, LayerType
from plait.checkpoint import Checkpoint
from plait.checkpoint.rules import DecodeRules
from plait.engine import optimize
from plait.generation import ModelRunner, Piece, Read, Runner
from plait.generation.decode import decode
from plait.generation.row import Request
from plait.model import Cache, Transformer

SIZE: dict[str, Any] = {
    "vocab_size": 32,
    "d_model": 16,
    "n_heads": 8,
    "n_kv_heads": 2,
    "d_head": 4,
    "d_ff": 24,
    "norm": "rmsnorm",
}
LEARNED = Architecture(**SIZE, n_decoder_layers=2, position="learned", max_length=64)
ROPE = Architecture(**SIZE, n_decoder_layers=2, position="rope", max_length=64)
WINDOWED = Architecture(**SIZE, n_decoder_layers=2, position="rope", layer_types=(LayerType(window=4), LayerType()))
TRANSLATOR = Architecture(**SIZE, n_encoder_layers=2, n_decoder_layers=2, position="sinusoidal", max_length=64)
ENCODER = Architecture(**SIZE, n_encoder_layers=2, position="learned", max_length=64, head=None)
# What tests of generation run over: each makes a runner of a model.
RUNNERS: dict[str, Callable[[Any], Runner]] = {
    "plain": ModelRunner,
    "torch": lambda model: engine(model, "float64"),
    "kernels": lambda model: engine(model, "float32"),
}


def with_runners(names: Iterable[str]) -> pytest.MarkDecorator:
    """``name`` and ``make``: every name with one runner, in turn; with the others among the slow tests."""
    cases = [
        pytest.param(name, make, id=f"{name}-{runner}", marks=[] if (i + j) % len(RUNNERS) == 0 else pytest.mark.slow)
        for i, name in enumerate(names)
        for j, (runner, make) in enumerate(RUNNERS.items())
    ]
    return pytest.mark.parametrize(("name", "make"), cases)


def engine(model: Any, dtype: str) -> Runner:
    """The engine over a model: in float64 on its torch path, in float32 on its kernels where there are some."""
    return optimize(Checkpoint(architecture=model.architecture, model=model, tokenizer=None), dtype=dtype, threads=2)


DECODERS = {"learned": LEARNED, "rope": ROPE, "windowed": WINDOWED}


def random_model(architecture: Architecture, seed: int = 0) -> Transformer:
    """fp64, every weight drawn, norms around 1 but never 1; attention sharp enough for a wrong mask to show."""
    torch.set_num_threads(1)
    model = Transformer(architecture).double()
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        is_norm = parameter.ndim == 1 and name.endswith("weight")
        parameter.data = 1 + 0.3 * drawn if is_norm else 0.5 * drawn
    return model.requires_grad_(False)


def checkpoint(model: nn.Module, rules: DecodeRules | None = None, tokenizer: Any = None, pooling: Any = None) -> Any:
    """A checkpoint as far as generation looks at one."""
    return SimpleNamespace(
        architecture=model.architecture,
        model=model,
        tokenizer=tokenizer,
        rules=rules or DecodeRules(start=3),
        pooling=pooling,
    )


def alone(model: Any, request: Request, tokenizer: Any = None) -> list[Piece]:
    """The pieces of one request that has the plain model to itself."""
    return [piece for _, piece in decode(ModelRunner(model), [request], tokenizer=tokenizer)]


def equal(pieces: Sequence[Any], others: Sequence[Piece]) -> bool:
    """The same pieces, but for rounding in the logprobs and for how text that was held back falls on them."""
    mistakes = [piece for piece in pieces if isinstance(piece, Exception)]
    if mistakes:
        raise mistakes[0]
    exact = all(
        (one.token, one.offset, one.finish, one.text) == (other.token, other.offset, other.finish, other.text)
        and [id for id, _ in one.alternatives] == [id for id, _ in other.alternatives]
        for one, other in zip(pieces, others, strict=True)
    )
    first, second = ([piece.logprob for piece in row] for row in (pieces, others))
    return exact and first == pytest.approx(second, abs=1e-4)  # float32 on the kernels; logits have tests of their own


class Counting(ModelRunner):
    """The plain model, and how many tokens it was given to read in each pass."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.read: list[int] = []

    def advance(self, reads: Sequence[Read]) -> list[Tensor]:
        self.read.append(sum(len(read.tokens) for read in reads))
        return super().advance(reads)


class BigramCache:
    """The tokens themselves."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens = list(tokens)

    @property
    def lengths(self) -> Tensor:
        return torch.tensor([len(self.tokens)])

    def truncate(self, lengths: int) -> None:
        self.tokens = self.tokens[:lengths]

    def fork(self, n: int) -> BigramCache:
        return BigramCache(self.tokens)


class Bigrams:
    """A runner whose logits are a table's row for the last token: quick, and its distribution is no secret."""

    identity, device = "bigrams", torch.device("cpu")

    def __init__(self, table: Tensor) -> None:
        self.table, self.passes = table, 0
        self.architecture = ROPE.replace(vocab_size=len(table))

    def cache(self, batch: int, **_: Any) -> BigramCache:
        return BigramCache()

    def advance(self, reads: Sequence[Read]) -> list[Tensor]:
        self.passes += 1
        for read in reads:
            read.cache.tokens += read.tokens
        return [self.table[list(read.tokens if read.all_logits else read.tokens[-1:])] for read in reads]


def naive_greedy(model: Transformer, tokens: Sequence[int], n: int, source: Sequence[int] | None = None) -> list[int]:
    """The oracle: no cache, no padding, no batch; the whole row is read again for every token."""
    row = list(tokens)
    inputs = {} if source is None else {"source": torch.tensor([source])}
    for _ in range(n):
        row.append(int(model(torch.tensor([row]), **inputs)[0, -1].argmax()))
    return row[len(tokens) :]


def same(one: Any, other: Any) -> bool:
    """Two generations, or lists of them, that differ by rounding at most."""
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    exact = all(getattr(one, f) == getattr(other, f) for f in ("text", "tokens", "finish", "prompt_tokens", "offsets"))
    return exact and one.logprobs == pytest.approx(other.logprobs, abs=1e-9)


class Scripted(nn.Module):
    """A model whose logits are ``script(p)`` after it has read p tokens: a list, or an id that gets the top logit."""

    def __init__(self, script: Callable[[int], Any], architecture: Architecture = ROPE) -> None:
        super().__init__()
        self.architecture, self.script = architecture, script
        self.weight = nn.Parameter(torch.zeros(1))
        self.calls = 0

    def forward(self, tokens: Tensor, *, cache: Cache, last_only: bool = False, **_: Any) -> Tensor:
        self.calls += 1
        rows = [self._row(cache.slots + i + 1) for i in range(tokens.shape[1])]
        cache.slots += tokens.shape[1]
        logits = torch.stack(rows).expand(len(tokens), -1, -1)
        return logits[:, -1:] if last_only else logits

    def _row(self, p: int) -> Tensor:
        said = self.script(p)
        if isinstance(said, int):
            return torch.zeros(self.architecture.vocab_size).index_fill(0, torch.tensor(said), 9.0)
        return torch.tensor(said, dtype=torch.float32)


def saying(tokens: Sequence[int], n_prompt: int = 1, architecture: Architecture = ROPE) -> Scripted:
    """A model that answers a prompt of ``n_prompt`` tokens with these, then with 0."""
    return Scripted(lambda p: tokens[p - n_prompt] if n_prompt <= p < n_prompt + len(tokens) else 0, architecture)


class ToyTokenizer:
    """Pieces of bytes; "▁" opens a word and shows as a space, except at the very start of a text."""

    chat_template = target = None

    def __init__(
        self,
        pieces: Sequence[str | bytes],
        *,
        bos: int | None = None,
        eos: int | None = None,
        specials: Sequence[int] = (),
    ) -> None:
        self.pieces = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
        self.bos, self.eos, self.pad, self.unk = bos, eos, None, None
        self.special_ids = frozenset(specials) | {i for i in (bos, eos) if i is not None}

    def token(self, id: int) -> str:
        return self.pieces[id].decode(errors="replace")

    def encode(self, text: str, specials: bool = True) -> list[int]:
        ids, rest = [self.bos] if specials and self.bos is not None else [], text.encode()
        while rest:
            fits = [i for i, piece in enumerate(self.pieces) if i not in self.special_ids and rest.startswith(piece)]
            best = max(fits, key=lambda i: len(self.pieces[i]))
            ids.append(best)
            rest = rest[len(self.pieces[best]) :]
        return ids

    def decode(self, ids: Sequence[int], skip_specials: bool = True, *, continues: bool = False) -> str:
        text = b"".join(self.pieces[i] for i in ids if i not in self.special_ids).decode(errors="replace")
        return text.replace("▁", " ").removeprefix(" " if text.startswith("▁") and not continues else "")

    def __len__(self) -> int:
        return len(self.pieces)

    def stream(self, skip_specials: bool = False, *, continues: bool = False) -> Any:
        return _Detokenizer(self, skip_specials, continues)


class _Detokenizer:
    def __init__(self, tokenizer: ToyTokenizer, skip_specials: bool, continues: bool) -> None:
        self.tokenizer, self.started = tokenizer, continues
        self.hidden = tokenizer.special_ids if skip_specials else ()
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        return "" if token in self.hidden else self._show(self.decoder.decode(self.tokenizer.pieces[token]))

    def fork(self) -> Any:
        twin = copy.copy(self)
        twin.decoder = copy.copy(self.decoder)
        return twin

    def flush(self) -> str:
        return self._show(self.decoder.decode(b"", final=True))

    def _show(self, text: str) -> str:
        if not self.started and text:
            text, self.started = text.removeprefix("▁"), True
        return text.replace("▁", " ")
