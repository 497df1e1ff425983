"""The laws of the model, each tried once on a checkpoint: what must hold whatever the weights are.

Legend: b rows, n tokens.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from plait.account import account
from plait.architecture import Classification
from plait.checkpoint import Checkpoint, PlaitNotice, SafetensorsSource, load, save
from plait.generation.padding import padded
from plait.model import Cache, Transformer, watching

LENGTHS = (3, 9, 5)  # of the rows that are tried
CLOSE = 1e-4  # times the largest value, or times 1
SAMPLE = "One Transformer, twisted together by data: naïve, 各, 👩‍👧."


@dataclass(frozen=True)
class Law:
    """One law, whether it holds, and what was seen."""

    law: str
    holds: bool
    seen: str


def laws(checkpoint: Checkpoint) -> Iterator[Law]:
    """Try every law that concerns the checkpoint. The model is float32 afterwards."""
    yield saved_is_loaded(checkpoint)
    model = checkpoint.model.float().eval()
    with torch.no_grad():
        yield batched_is_single(model)
        if model.architecture.n_decoder_layers and not isinstance(model.architecture.head, Classification):
            yield cached_is_uncached(model)
        yield watched_is_unwatched(model)
        yield from account_is_model(model)
    if checkpoint.tokenizer is not None:
        ids = checkpoint.tokenizer.encode(SAMPLE)
        pieces = checkpoint.tokenizer.stream()
        streamed = "".join([*(pieces.push(id) for id in ids), pieces.flush()])
        yield Law("streamed text = decoded text", streamed == checkpoint.tokenizer.decode(ids), f"{len(ids)} tokens")


def saved_is_loaded(checkpoint: Checkpoint) -> Law:
    """Written and read again: the same parameters; where the source is safetensors, the same bytes under each name."""
    with tempfile.TemporaryDirectory(prefix="plait-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", PlaitNotice)  # what they say of the checkpoint was said when it was loaded
        saved = save(checkpoint, Path(folder) / "saved")
        again = load(saved)
        before, after = checkpoint.model.state_dict(), again.model.state_dict()
        same = again.architecture == checkpoint.architecture and before.keys() == after.keys()
        same = same and all(torch.equal(before[name], after[name]) for name in before)
        stored, written = checkpoint.layout.source, again.layout.source
        if not isinstance(stored, SafetensorsSource) or written is None:
            return Law("saved = loaded", same, f"{len(before)} tensors, read back")
        same = same and set(stored.names) == set(written.names)
        same = same and all(stored.raw(name) == written.raw(name) for name in stored.names)
        return Law("saved = loaded", same, f"{len(stored.names)} tensors, to the byte")


def rows(model: Transformer) -> list[dict[str, Tensor]]:
    """Inputs of one row each, ``(1, n)``, of the lengths above; with a source of another length where there is one."""
    a = model.architecture
    generator = torch.Generator().manual_seed(0)

    def draw(vocab_size: int, length: int) -> Tensor:
        return torch.randint(vocab_size, (1, min(length, a.max_length or length)), generator=generator)

    inputs = [{"tokens": draw(a.vocab_size, n)} for n in LENGTHS]
    if a.kind == "encoder-decoder":
        inputs = [row | {"source": draw(a.source_vocab_size, 12 - n)} for row, n in zip(inputs, LENGTHS, strict=True)]
    return inputs


def compared(law: str, pairs: list[tuple[Tensor, Tensor]], close: float = CLOSE) -> Law:
    """Whether each pair agrees, by the largest difference."""
    worst = max(float((ours - theirs).abs().max()) for ours, theirs in pairs)
    largest = max(1.0, *(float(theirs.abs().max()) for _, theirs in pairs))
    return Law(law, worst <= close * largest, f"differs by {worst:.1e} of {largest:.1e}")


def batched_is_single(model: Transformer) -> Law:
    """Rows of several lengths in a batch, padded left and right, and each alone."""
    inputs = rows(model)
    singles = [model(**row) for row in inputs]
    pairs: list[tuple[Tensor, Tensor]] = []
    for side in ("left", "right"):
        batch: dict[str, Tensor | None] = {}
        for name, mask in (("tokens", "mask"), ("source", "source_mask")):
            if name in inputs[0]:
                ids = [row[name][0].tolist() for row in inputs]
                batch[name], batch[mask] = padded(ids, torch.device("cpu"), side=side)
        together = model(**batch)
        head = model.architecture.head
        real = None if isinstance(head, Classification) and head.pooling else batch["mask"]
        for i, single in enumerate(singles):
            pairs.append((together[i] if real is None else together[i][real[i]], single[0]))
    return compared("batched = single", pairs)


def cached_is_uncached(model: Transformer) -> Law:
    """A row read at once, and in a piece and then token by token with a cache."""
    pairs: list[tuple[Tensor, Tensor]] = []
    for row in rows(model):
        tokens, n = row["tokens"], row["tokens"].shape[1]
        cache = Cache(model.architecture, 1, total_lengths=torch.tensor([n]))
        source = {"source": row["source"]} if "source" in row else {}
        steps = [model(tokens[:, :2], cache=cache, **source)]
        steps += [model(tokens[:, i : i + 1], cache=cache) for i in range(2, n)]
        pairs.append((torch.cat(steps, 1), model(**row)))
    return compared("cached = uncached", pairs)


def watched_is_unwatched(model: Transformer) -> Law:
    """The same with every inner value watched, and bitwise the same again afterwards."""
    row = rows(model)[1]
    before = model(**row)
    with watching(model, "*") as seen:
        watched = model(**row)
    pair = (watched, before)  # pyright: ignore[reportPossiblyUnboundVariable] - nothing stops the block above
    law = compared("watched = unwatched", [pair], close=1e-5)
    return Law(law.law, law.holds and torch.equal(model(**row), before), f"{law.seen}; {len(seen)} values")


def account_is_model(model: Transformer) -> Iterator[Law]:
    """The count on paper, and the live model's parameters, FLOPs and cache."""
    counts, row = account(model.architecture), rows(model)[1]

    def equal(what: str, paper: int, live: int) -> Law:
        return Law(f"account = model: {what}", paper == live, f"{paper:,} and {live:,}")

    yield equal("parameters", counts.parameters, sum(parameter.numel() for parameter in model.parameters()))
    n = row["tokens"].shape[1]
    source_length = row["source"].shape[1] if "source" in row else None
    yield equal("FLOPs", counts.flops(n, source_length=source_length).total, counted(model, row))
    if model.architecture.n_decoder_layers:
        cache = Cache(model.architecture, 1)
        model(**row, cache=cache)
        yield equal("cache bytes", counts.cache_bytes(n, dtype="fp32", source_length=source_length), cache.nbytes)


def counted(model: Transformer, row: dict[str, Tensor]) -> int:
    """FLOPs of a forward pass by torch's counter, on the meta device, where fused attention is counted too."""
    with torch.device("meta"):
        paper = Transformer(model.architecture)
    with FlopCounterMode(display=False) as counter:
        paper(**{name: value.to("meta") for name, value in row.items()})
    return counter.get_total_flops()
