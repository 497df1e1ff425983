"""The engine as a runner: what comes in is checked and said plainly where it is wrong, what goes out has its shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.engine.cache import EngineCache, Row
from plait.engine.lock import RunnerLock
from plait.engine.pages import CPU, Pages
from plait.engine.program import Program
from plait.engine.towers import Encoded, Executor, Reading, Towers

_ONLY = np.zeros(1, np.int64)  # the one token read gives logits
FARTHEST = 1 << 24  # positions; tables of rotations have a line for each up to the farthest that was met

P = ParamSpec("P")
T = TypeVar("T")


def _in_turn(work: Callable[Concatenate[EngineRunner, P], T]) -> Callable[Concatenate[EngineRunner, P], T]:
    """A call that waits until no other thread is in one."""

    @wraps(work)
    def alone(self: EngineRunner, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            return work(self, *args, **kwargs)

    return alone


class EngineRunner:
    """Programs with their weights, as what generation drives. Made by ``optimize``.

    ``dtype`` is the type that is computed in, ``cache_dtype`` that of keys and values, ``device`` where both are, and
    what is given back.
    """

    def __init__(
        self,
        architecture: Architecture,
        executors: Mapping[str, tuple[Program, Executor]],
        identity: str,
        *,
        weight_bytes: int = 0,
        dtype: torch.dtype = torch.float32,
        cache_dtype: torch.dtype = torch.float32,
        device: torch.device = CPU,
        pages: type[Pages] = Pages,
        made: Mapping[str, object] | None = None,
    ) -> None:
        self._made = made or {}  # what it was asked for and what computes, as ``repr`` says it
        self.architecture, self.identity, self.weight_bytes = architecture, identity, weight_bytes
        self.device, self.dtype = device, dtype
        self._vocabulary = {"decoder": architecture.vocab_size, "encoder": architecture.source_vocab_size}
        self._lock = RunnerLock()  # registers and pages are the runner's own: two threads take turns
        cached = torch.float64 if dtype == torch.float64 else cache_dtype
        self._towers = Towers(architecture, executors, dtype=dtype, cache_dtype=cached, device=device, pages=pages)
        scalings = (layer.rope.scaling for tower in architecture.towers for layer in tower.layers if layer.rope)
        self._by_length = {scaling for scaling in scalings if scaling is not None and scaling.by_length}

    def __repr__(self) -> str:
        made = "".join(f"{name}={value!r}, " for name, value in self._made.items())
        return f"EngineRunner({made}weight_bytes={self.weight_bytes:_})"

    # As a runner

    def cache(
        self, batch: int, *, capacity: int | None = None, total_lengths: Sequence[int] | None = None
    ) -> EngineCache:
        """See ``plait.generation.Runner``. ``ValueError`` for an encoder, which takes none."""
        if "self" not in self._towers.pages:
            raise ValueError("an encoder reads its whole input at once; only a decoder takes a cache.")
        return EngineCache(self._towers.pages["self"], self._lock, batch, capacity, total_lengths)

    @torch.inference_mode()
    @_in_turn
    def prefill(
        self,
        tokens: Tensor,
        cache: EngineCache,
        *,
        mask: Tensor | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        positions: Tensor | None = None,
        last_only: bool = True,
    ) -> Tensor:
        """See ``plait.generation.Runner``. Logits of padding are 0."""
        if tokens.ndim != 2:
            raise ValueError(f"tokens: expected int64 of shape (batch, length), got {tuple(tokens.shape)}.")
        batch, n = tokens.shape
        self._check_cache(cache)
        if batch != cache.batch:
            raise ValueError(f"tokens: {batch} rows, but the cache was made for {cache.batch}.")
        real = np.ones((batch, n), bool) if mask is None else _whole("mask", mask, (batch, n)).astype(bool)
        ids = _ids("tokens", tokens, self._vocabulary["decoder"], real)
        given = None if positions is None else _whole("positions", positions, (batch, n))
        sources = None
        if source is not None:
            if source.ndim != 2 or len(source) != batch:
                raise ValueError(f"source: shape {tuple(source.shape)} does not fit {batch} rows of tokens.")
            shape = (batch, source.shape[1])
            there = np.ones(shape, bool)
            if source_mask is not None:
                there = _whole("source_mask", source_mask, shape).astype(bool)
            sources = [
                r[m] for r, m in zip(_ids("source", source, self._vocabulary["encoder"], there), there, strict=True)
            ]
        readings = []
        for i, row in enumerate(cache.rows):
            cache.check_room(i, int(real[i].sum()))
            readings.append(
                self._reading(row, ids[i][real[i]], None if given is None else given[i][real[i]], not last_only)
            )
        with self._encoded(cache.rows, sources or [None] * batch):
            logits = self._towers.read(readings)
        if last_only or self._towers.pools("decoder"):
            out = logits.new_zeros(batch, 1, logits.shape[1])
            out[[i for i, reading in enumerate(readings) if len(reading.tokens)], 0] = logits
            return out[:, 0] if self._towers.pools("decoder") else out
        if real.all():
            return logits.view(batch, n, -1)
        out = logits.new_zeros(batch, n, logits.shape[1])
        out[torch.from_numpy(real)] = logits
        return out

    @torch.inference_mode()
    @_in_turn
    def step(self, tokens: Tensor, cache: EngineCache) -> Tensor:
        """See ``plait.generation.Runner``."""
        self._check_cache(cache)
        ids = _ids("tokens", tokens.unsqueeze(1), self._vocabulary["decoder"])
        if len(ids) != cache.batch:
            raise ValueError(f"tokens: {len(ids)} rows, but the cache was made for {cache.batch}.")
        for i in range(cache.batch) if cache.capacity is not None else ():
            cache.check_room(i, 1)
        positions = np.array([row.own.next_position for row in cache.rows], np.int32)[:, None]  # b 1
        self._check_positions(positions)
        with self._encoded(cache.rows, [None] * cache.batch):
            readings = [
                Reading(row, of_row, place, _ONLY, self._total(row, 1))
                for row, of_row, place in zip(cache.rows, ids, positions, strict=True)
            ]
            return self._towers.read(readings)

    @torch.inference_mode()
    @_in_turn
    def advance(self, reads: Sequence[Any]) -> list[Tensor]:
        """See ``plait.generation.Runner``: all reads in one flat pass."""
        readings: list[Reading] = []
        for read in reads:
            self._check_cache(read.cache)
            (row,) = read.cache.rows
            n = len(read.tokens)
            read.cache.check_room(0, n)
            if not n:
                raise ValueError("tokens: a read of no tokens; give at least one.")
            ids = _ids("tokens", torch.tensor([list(read.tokens)]), self._vocabulary["decoder"])[0]
            given = getattr(read, "positions", None)
            readings.append(
                self._reading(row, ids, None if given is None else np.array(given, np.int64), read.all_logits)
            )
        if len({id(read.cache) for read in reads}) < len(reads):
            raise ValueError("advance: one cache stands in two reads of a pass; read what belongs together in one.")
        given = [getattr(read, "source", None) for read in reads]
        sources = [
            None if source is None else _ids("source", torch.tensor([list(source)]), self._vocabulary["encoder"])[0]
            for source in given
        ]
        with self._encoded([reading.row for reading in readings], sources):
            return list(self._towers.read(readings).split([len(reading.wanted) for reading in readings]))

    @torch.inference_mode()
    @_in_turn
    def states(self, rows: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None) -> list[Tensor]:
        """The last hidden states, of the encoder where there is one: for each sequence of tokens ``(n, d_model)``."""
        tower = "encoder" if "encoder" in self._towers else "decoder"
        ids = [_ids("tokens", torch.tensor([list(r)]), self._vocabulary[tower])[0] for r in rows]
        if tower == "encoder":
            return self._encode(ids, types).states
        if types is not None:
            raise ValueError("token_types: only an encoder reads them.")
        empty = self.cache(len(ids)).rows
        return self._towers.states([self._reading(row, i, None, False) for row, i in zip(empty, ids, strict=True)])

    @torch.inference_mode()
    @_in_turn
    def classify(self, rows: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None) -> list[Tensor]:
        """An encoder's logits: ``(n, vocab_size)`` for each sequence, or ``(1, labels)`` where the head pools."""
        ids = [_ids("tokens", torch.tensor([list(r)]), self._vocabulary["encoder"])[0] for r in rows]
        return self._encode(ids, types).logits

    # What comes in

    def _reading(self, row: Row, ids: np.ndarray, positions: np.ndarray | None, all_logits: bool) -> Reading:
        n = len(ids)
        if positions is None:
            start = row.own.next_position
            positions = np.arange(start, start + n, dtype=np.int32)
        if len(positions) != n:
            raise ValueError(f"positions: {len(positions)} of them do not fit {n} tokens; give one for each.")
        self._check_positions(positions)
        positions = positions.astype(np.int32)
        wanted = np.arange(0 if all_logits else max(n - 1, 0), n)
        return Reading(row, ids, positions, wanted, self._total(row, n))

    def _total(self, row: Row, n: int) -> int:
        """What a scaling by length goes by. A row that grows past a scaling's original length needs the declaration:
        its keys were turned for another length."""
        before, after = row.own.length, row.own.length + n
        if row.total is not None:
            return row.total
        for scaling in self._by_length if before else ():
            limit = scaling.original_max_length or 0
            if after > limit and (scaling.kind == "dynamic" or before <= limit):
                raise ValueError(
                    f"cache: rows grew to {after} tokens, past the original length of {limit} that their rotations "
                    "were chosen for; declare how long they will become with cache(total_lengths=...)."
                )
        return after

    def _check_cache(self, cache: EngineCache) -> None:
        if "self" not in self._towers.pages or getattr(cache, "pages", None) is not self._towers.pages["self"]:
            raise ValueError("cache: this runner did not make it; make one with its own cache().")

    def _check_positions(self, positions: np.ndarray) -> None:
        a = self.architecture
        if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < FARTHEST:
            found = f"{int(positions.min())} to {int(positions.max())}"
            raise ValueError(f"positions: {found}; they count from 0, to {FARTHEST - 1} at most.")
        if a.position == "learned" and len(positions) and int(positions.max()) >= (a.max_length or 0):
            raise ValueError(
                f"length: a row of {int(positions.max()) + 1} tokens is longer than the {a.max_length} there are "
                "positions for."
            )

    @contextmanager
    def _encoded(self, rows: Sequence[Row], sources: Sequence[np.ndarray | None]) -> Iterator[None]:
        """Rows with a source hold its keys and values from here on, unless what follows fails."""
        new = [(row, source) for row, source in zip(rows, sources, strict=True) if source is not None]
        if "memory" not in self._towers.pages:
            if new:
                kind = self.architecture.kind
                raise ValueError(f"source, source_mask: they are for an encoder-decoder, and this is {kind} only.")
        elif any(row.memory is None and source is None for row, source in zip(rows, sources, strict=True)):
            raise ValueError(
                "source: an encoder-decoder needs the tokens to encode; a cache remembers them after one call."
            )
        elif any(row.memory is not None for row, _ in new):
            raise ValueError("source: this cache already holds an encoded source; pass it once, at the first call.")
        try:
            for (row, _), run in zip(new, self._encode([s for _, s in new]).memory if new else (), strict=True):
                row.memory = run
            yield
        except BaseException:
            for row, _ in new:
                row.memory = None
            raise

    def _encode(self, sources: Sequence[np.ndarray], types: Sequence[Sequence[int]] | None = None) -> Encoded:
        """The sources read by the encoder, if they are right and there is one."""
        if "encoder" not in self._towers:
            raise ValueError("source: a decoder alone has no encoder to read it.")
        if types is not None and len(types) != len(sources):
            raise ValueError(f"token_types: {len(types)} rows of them do not fit {len(sources)} rows of tokens.")
        for source in sources:
            self._check_positions(np.arange(len(source)))
        given = None if types is None else [self._types(t, len(s)) for t, s in zip(types, sources, strict=True)]
        return self._towers.encode(sources, given)

    def _types(self, types: Sequence[int], n: int) -> np.ndarray:
        """The types of one row's tokens, int32; ``ValueError`` where they do not fit."""
        known, given = self.architecture.token_types, np.array(types, np.int64)
        if not known:
            raise ValueError("token_types: this embedding has no table of types.")
        if given.shape != (n,):
            raise ValueError(f"token_types: {len(given)} of them do not fit a row of {n} tokens.")
        if n and not 0 <= int(given.min()) <= int(given.max()) < known:
            raise ValueError(f"token_types: {int(given.min())} to {int(given.max())}, but there are {known} types.")
        return given.astype(np.int32)


def _ids(name: str, tokens: Tensor, rows: int, real: np.ndarray | None = None) -> np.ndarray:
    """Token numbers ``(b, n)`` int32, all of them in the table; ``ValueError`` says which are not."""
    if tokens.ndim != 2 or tokens.dtype not in (torch.int64, torch.int32) or tokens.shape[1] == 0:
        got = f"{tokens.dtype} of {tuple(tokens.shape)}"
        raise ValueError(f"{name}: expected int64 of shape (batch, length), length at least 1, got {got}.")
    ids = tokens.cpu().numpy()
    looked = ids if real is None else ids[real]
    if looked.size and not 0 <= int(looked.min()) <= int(looked.max()) < rows:
        raise ValueError(f"{name}: {int(looked.min())} to {int(looked.max())}, but the table has {rows} rows.")
    return ids.astype(np.int32)


def _whole(name: str, value: Tensor, shape: tuple[int, ...]) -> np.ndarray:
    if tuple(value.shape) != shape:
        raise ValueError(f"{name}: shape {tuple(value.shape)} does not fit tokens of shape {shape}.")
    if value.is_floating_point():
        raise ValueError(f"{name}: {value.dtype} is neither boolean nor whole numbers.")
    if name == "mask" and value.dtype != torch.bool and bool((value > 1).any()):
        raise ValueError("mask: packed documents are read in one pass, without a cache.")
    if value.dtype != torch.bool and bool((value < 0).any()):
        raise ValueError(f"{name}: {int(value.min())} is negative; it counts from 0.")
    return value.cpu().numpy()
