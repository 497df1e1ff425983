"""One side of the training benchmark: a model, its batches of real tokens and its optimizer step, in one process."""

from __future__ import annotations

import functools
import gzip
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from protocol import serve
from torch import Tensor
from torch.nn import functional as F

import plait
from plait.architecture import Architecture
from plait.data.batch import Batch
from plait.model import Transformer
from plait.model.dropout import set_dropout
from plait.training.loss import batch_loss
from plait.training.native import put_in
from plait.training.plain import Plain
from plait.training.precision import precision_of
from plait.training.ranks import Alone
from plait.training.settings import Optimizer, Recipe, Schedule
from plait.training.stepping import Stepping
from plait.training.work import Work

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("PLAIT_DATA", ROOT / "shared" / "data"))
SIZES = {"vocab_size": 8192, "d_model": 256, "n_heads": 4, "n_decoder_layers": 10, "max_length": 256}
UNBIASED = {"qkv_bias": False, "output_bias": False, "ffn_bias": False, "norm_bias": False}
NANO = {**UNBIASED, "vocab_size": 65, "activation": "gelu"}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {  # a preset, and how it differs
    "gpt2": ("gpt2", {**SIZES, "d_ff": 1024}),
    "llama": ("llama-2-7b", {**SIZES, "d_ff": 688, "tied": True}),
    "marian": (
        "marian-en-de",
        {
            "vocab_size": 10000,
            "d_model": 128,
            "n_heads": 4,
            "d_ff": 256,
            "n_encoder_layers": 4,
            "n_decoder_layers": 4,
            "embedding_scale": 128**0.5,
        },
    ),
    "nanogpt-small": (
        "gpt2",
        {
            **NANO,
            "d_model": 128,
            "n_heads": 4,
            "d_ff": 512,
            "n_decoder_layers": 4,
            "max_length": 64,
        },
    ),
    "nanogpt": (
        "gpt2",
        {
            **NANO,
            "d_model": 384,
            "n_heads": 6,
            "d_ff": 1536,
            "n_decoder_layers": 6,
            "max_length": 256,
        },
    ),
}
ROWS = {"gpt2": 8, "llama": 8, "nanogpt-small": 12, "nanogpt": 64}
DROPOUT = {"marian": 0.3, "nanogpt": 0.2}
TOKENS_A_BATCH = 2048  # of the longer side, marian's
SMOOTHING = {"marian": 0.1}
BATCHES = 1000  # more than marian's are; later ones are the first again


def architecture(shape: str) -> Architecture:
    """Of the model that is trained."""
    preset, differs = SHAPES[shape]
    a = plait.preset(preset)
    return a.replace(**{"d_head": differs["d_model"] // differs["n_heads"], **differs}, **_derived(a, differs))


def _derived(a: Architecture, differs: dict[str, Any]) -> dict[str, Any]:
    return {"n_kv_heads": differs["n_heads"], "d_embedding": differs["d_model"], "attention_scale": None}


# Batches


def batches(shape: str) -> Callable[[int], Batch]:
    """The batch of a step."""
    if shape == "marian":
        return _pairs()
    text = (DATA / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    size, rows, length = SHAPES[shape][1]["vocab_size"], ROWS[shape], SHAPES[shape][1]["max_length"]
    units: Sequence[str] = text if shape.startswith("nanogpt") else re.findall(r"\w+|[^\w ]", text)
    ids = torch.tensor(_numbers(units, size, 0), dtype=torch.int64)

    def batch(index: int) -> Batch:
        starts = torch.randint(len(ids) - length - 1, (rows,), generator=torch.Generator().manual_seed(index))
        windows = torch.stack([ids[start : start + length + 1] for start in starts.tolist()])
        return Batch(tokens=windows[:, :-1].contiguous(), targets=windows[:, 1:].contiguous())

    return batch


def _numbers(units: Sequence[str], size: int, first: int) -> list[int]:
    """Each unit's place among the most frequent, from ``first``; the rarest share the last."""
    known = {unit: i + first for i, (unit, _) in enumerate(Counter(units).most_common(size - first - 1))}
    return [known.get(unit, size - 1) for unit in units]


def _pairs() -> Callable[[int], Batch]:
    """Sentences of like length together, in the order of a shuffle; 0 pads, 1 begins, 2 ends."""
    sides: list[list[list[str]]] = []
    for language in ("en", "de"):
        with gzip.open(DATA / "multi30k" / "tok" / f"train.lc.norm.tok.{language}.gz", "rt", encoding="utf-8") as lines:
            sides.append([line.split() for line in lines])
    flat = iter(_numbers([word for side in sides for line in side for word in line], 10000, 3))
    english, german = ([[next(flat) for _ in line] + [2] for line in side] for side in sides)
    pairs = sorted(zip(english, german, strict=True), key=lambda pair: (len(pair[1]), len(pair[0])))
    groups: list[list[tuple[list[int], list[int]]]] = [[]]
    for pair in pairs:
        longest = max(max(len(a), len(b)) for a, b in [*groups[-1], pair])
        if longest * (len(groups[-1]) + 1) > TOKENS_A_BATCH:
            groups.append([])
        groups[-1].append(pair)
    random.Random(0).shuffle(groups)

    def batch(index: int) -> Batch:
        source, target = zip(*groups[index % len(groups)], strict=True)
        read, said = _padded(source), _padded(target)
        tokens = torch.cat((torch.ones(len(said), 1, dtype=torch.int64), said[:, :-1]), 1)
        return Batch(
            tokens=tokens,
            targets=said.masked_fill(said == 0, -100),
            mask=said != 0,  # as many as there are targets: the beginning stands for the end
            source=read,
            source_mask=read != 0,
        )

    return batch


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


# Steps: forward, backward, clip at 1, AdamW


class Step:
    """What a side does with a batch."""

    parameters: list[Tensor]

    def prepare(self) -> None:
        """Everything has been built: make the optimizer."""
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3, weight_decay=0.1, fused=True)

    def loss(self, batch: Batch) -> Tensor:
        """The mean over real targets, its gradients made."""
        raise NotImplementedError

    def __call__(self, batch: Batch) -> float:
        """One step."""
        loss = self.loss(batch)
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.after()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    def after(self) -> None:
        """The parameters have moved."""


def model_of(shape: str) -> Transformer:
    """The same weights on both sides."""
    torch.manual_seed(0)
    return Transformer(architecture(shape))


class Given:
    """A stream of the one batch that is given next."""

    batch: Batch

    def step(self, index: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """It."""
        return [self.batch]


class Ours(Step):
    """The step that ``plait train`` makes, with the kernels that it puts in."""

    def __init__(self, shape: str, way: str, precision: str, dropout: float) -> None:
        model, among = model_of(shape).train(), None
        if way.endswith("among"):  # no other word can be a target: another softmax than the peer's, and said so
            batch = batches(shape)
            targets = torch.cat([(b := batch(index)).targets[b.real] for index in range(BATCHES)])
            among = targets.unique()
        set_dropout(model, residual=dropout, attention=dropout if shape.startswith("nanogpt") else 0.0)
        if not way.startswith("torch"):
            put_in(model)
        kind = precision_of(precision, model)
        self.parameters = list(kind.masters().values())
        if way.startswith("compiled"):
            for tower in filter(None, (model.encoder, model.decoder)):
                for block in tower.layers:
                    block.compile(dynamic=shape == "marian")
        recipe = Recipe(
            optimizer=Optimizer(lr=1e-3, weight_decay=0.1, beta2=0.999),
            schedule=Schedule(kind="constant", warmup=0),
        )
        loss = functools.partial(batch_loss, smoothing=SMOOTHING.get(shape, 0.0), among=among)
        self.stream, self.index = Given(), 0
        self.stepping = Stepping(self.stream, recipe, Work(model, recipe, kind, 1), loss, Alone(), None)  # pyright: ignore

    def __call__(self, batch: Batch) -> float:
        self.stream.batch, self.index = batch, self.index + 1
        return self.stepping.make(self.index).loss


class Reference(Step):
    def __init__(self, shape: str, way: str, precision: str, dropout: float) -> None:
        sys.path.append(str(ROOT / ".reference"))
        from transformers import AutoModelForCausalLM, MarianMTModel  # pyright: ignore

        kind = MarianMTModel if shape == "marian" else AutoModelForCausalLM
        rates = {"dropout": dropout, "attention_dropout": 0.0} if shape == "marian" else {}
        rates = rates or ({"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": 0.0} if shape == "gpt2" else {})
        with tempfile.TemporaryDirectory() as folder:
            model = model_of(shape)
            plait.save(plait.Checkpoint(architecture=model.architecture, model=model), folder, dialect=shape)
            attention = "eager" if way.startswith("plain") else "sdpa"
            self.model = kind.from_pretrained(folder, attn_implementation=attention, **rates).train()
        self.shape = shape
        self.precision = precision_of(precision, self.model)
        self.parameters = list(self.precision.masters().values())
        self.smoothing = SMOOTHING.get(shape, 0.0)
        self.run = torch.compile(self.model, dynamic=shape == "marian") if way.endswith("compiled") else self.model
        self.prepare()

    def loss(self, batch: Batch) -> Tensor:
        inputs: dict[str, Any] = {"input_ids": batch.tokens}
        if batch.source is not None and batch.source_mask is not None and batch.mask is not None:
            inputs = {"input_ids": batch.source, "attention_mask": batch.source_mask.long()}
            inputs |= {"decoder_input_ids": batch.tokens, "decoder_attention_mask": batch.mask.long()}
        with self.precision.computing():
            logits = self.run(**inputs, use_cache=False).logits
            loss = F.cross_entropy(
                logits.flatten(0, 1).float(), batch.targets.flatten(), label_smoothing=self.smoothing
            )
        loss.backward()
        self.precision.collect()
        return loss

    def after(self) -> None:
        self.precision.spread()


class NanoGPT(Step):
    def __init__(self, shape: str, way: str, precision: str, dropout: float, folder: str) -> None:
        sys.path.append(folder)
        from model import GPT, GPTConfig  # pyright: ignore

        a = architecture(shape)
        torch.manual_seed(0)
        sizes = {"n_layer": a.n_decoder_layers, "n_head": a.n_heads, "n_embd": a.d_model, "block_size": a.max_length}
        self.model = GPT(GPTConfig(vocab_size=a.vocab_size, bias=False, dropout=dropout, **sizes)).train()
        self.precision = precision_of(precision, self.model) if precision != "pure_bfloat16" else Plain(self.model)
        self.parameters = list(self.model.parameters())
        self.run = torch.compile(self.model) if way == "compiled" else self.model
        self.prepare()

    def loss(self, batch: Batch) -> Tensor:
        with self.precision.computing():
            _, loss = self.run(batch.tokens, batch.targets)
        loss.backward()
        return loss


# Commands


STATE: dict[str, Any] = {}


def build(library: str, shape: str, way: str, precision: str, dropout: float | None, nanogpt: str) -> dict[str, float]:
    """Make a side; its parameters."""
    dropout = DROPOUT.get(shape, 0.0) if dropout is None else dropout
    sides = {"plait": Ours, "reference": Reference}
    given = (shape, way, precision, dropout)
    STATE["step"] = NanoGPT(*given, nanogpt) if library == "nanogpt" else sides[library](*given)
    STATE["batch"] = batches(shape)
    STATE["before"] = _memory("VmRSS")
    return {"parameters": sum(p.numel() for p in STATE["step"].parameters)}


def run(first: int, count: int) -> dict[str, float]:
    """Steps, with their seconds by the wall and of this process, real targets and mean loss."""
    given = [STATE["batch"](index) for index in range(first, first + count)]
    torch.manual_seed(first)
    began, busy = time.perf_counter(), time.process_time()
    losses = [STATE["step"](batch) for batch in given]
    seconds, cpu = time.perf_counter() - began, time.process_time() - busy
    return {
        "wall": seconds,
        "cpu": cpu,
        "targets": int(sum(batch.real.sum() for batch in given)),
        "loss": sum(losses) / count,
    }


def forget() -> None:
    """Memory's highest is from here on."""
    Path("/proc/self/clear_refs").write_text("5")


def highest() -> float:
    """MiB at the highest, less what was there before the first step."""
    return _memory("VmHWM") - STATE["before"]


def _memory(name: str) -> float:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    serve({"build": build, "run": run, "forget": forget, "highest": highest})
