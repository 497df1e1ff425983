"""What rounding costs: perplexity of a decoder, or the cosine of an encoder's embeddings, under each quantisation.

    python benchmarks/quality.py MODEL TEXT [--from 0.9] [--tokens 32768] [--calibrate 0.1] [--peer-python PYTHON]

MODEL has weights in floats; TEXT is a file, of which the share from --from on is read (what comes before it was trained
on). "Engine" is what ``optimize`` makes of the weights, "converted" what ``plait convert --quantize`` stores, "weights
alone" the plain model in float32 with the rounded weights; "llama.cpp's rounding" is of the same matrices to the same
blocks by the ``gguf`` package, which gives its bytes: with --peer-python that is checked, and llama.cpp itself is run.
Every model reads the same windows, so that differences are paired: the standard error is the mean difference's. The
divergence is Kullback and Leibler's from float32's distributions, in nats: it tells roundings apart where a perplexity
is lucky.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import torch
from torch import Tensor
from torch.nn import functional as F

import plait
from plait.checkpoint import quantise
from plait.checkpoint.calibration import calibrate
from plait.checkpoint.gguf import GGUFSource
from plait.checkpoint.quantise import QUANTIZATIONS, block_types
from plait.cli.models import locate
from plait.engine import optimize

sys.path.append(str(Path(__file__).parent / "peers"))
from make_models import write_gguf  # noqa: E402
from protocol import Worker  # noqa: E402

WINDOW = 256
WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bf16", {"dtype": "bfloat16"}),
    *((name, {"quantization": name}) for name in QUANTIZATIONS),
)


# What llama.cpp's quantiser makes of the weights


def rounded_by_peer(checkpoint: plait.Checkpoint, kinds: dict[str, str]) -> plait.Checkpoint:
    """The checkpoint with its matrices in the same blocks, as llama.cpp's quantiser rounds them, read back."""
    other = copy.deepcopy(checkpoint.model)
    state = other.state_dict()
    for name, kind in kinds.items():
        type = gguf.GGMLQuantizationType[kind]
        blocks = gguf.quants.quantize(state[name].float().numpy(), type)
        state[name].copy_(torch.from_numpy(gguf.quants.dequantize(blocks, type)))
    return plait.Checkpoint(architecture=checkpoint.architecture, model=other, tokenizer=checkpoint.tokenizer)


# Decoders: perplexity


Logits = Callable[[Tensor], Tensor]  # tokens (1, n) -> logits (1, n, vocab)


def windows(tokens: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Pieces that are read, (1, n), and the tokens that follow in them, (n,)."""
    for start in range(0, len(tokens) - 1, WINDOW):
        piece = tokens[start : start + WINDOW + 1]
        yield piece[None, :-1], piece[1:]


class Measured:
    """The float32 model's answers to a text, and how others differ from them."""

    def __init__(self, plain: Logits, tokens: Tensor) -> None:
        self.tokens = tokens
        self._said = [F.log_softmax(plain(read)[0], -1) for read, _ in windows(tokens)]
        self.losses = self.surprises(self._said)

    def surprises(self, said: Sequence[Tensor]) -> Tensor:
        """Negative log-likelihoods of what follows, float64."""
        targets = (target for _, target in windows(self.tokens))
        return torch.cat([F.nll_loss(s.double(), t, reduction="none") for s, t in zip(said, targets, strict=True)])

    def line(self, name: str, logits: Logits) -> list[str]:
        """A row of the table: perplexity, its change, the standard error of that, and the divergence from float32."""
        said = [F.log_softmax(logits(read)[0], -1) for read, _ in windows(self.tokens)]
        apart = [
            F.kl_div(s.double(), plain.double(), reduction="none", log_target=True).sum(-1)
            for s, plain in zip(said, self._said, strict=True)
        ]
        return [*self.change(name, self.surprises(said)), f"{torch.cat(apart).mean():.3e}"]

    def change(self, name: str, losses: Tensor) -> list[str]:
        """The same from losses alone, without the divergence."""
        apart = losses - self.losses
        return [
            name,
            f"{losses.mean().exp():.5f}",
            f"{100 * math.expm1(apart.mean()):+.4f} %",
            f"{100 * apart.std() / math.sqrt(len(apart)):.4f} %",
        ]


def on_engine(runner: Any) -> Logits:
    """All logits of a runner."""
    return lambda tokens: runner.prefill(tokens, runner.cache(1, capacity=tokens.shape[1]), last_only=False)


def perplexities(checkpoint: plait.Checkpoint, tokens: Tensor, options: argparse.Namespace) -> Iterator[list[str]]:
    """Rows of the table."""
    measured = Measured(checkpoint.model, tokens)
    yield ["weights, and where", "perplexity", "to fp32", "standard error", "divergence"]
    yield measured.line("fp32, plain model", checkpoint.model)
    yield measured.line("fp32, engine", on_engine(optimize(checkpoint, dtype="float32")))
    for name, wish in WAYS:
        yield measured.line(f"{name}, engine", on_engine(optimize(checkpoint, **wish)))
        if "quantization" not in wish:
            continue
        ours, _ = quantise(checkpoint, name)
        yield measured.line(f"{name}, converted, engine", on_engine(optimize(ours)))
        yield measured.line(f"{name}, converted, weights alone", ours.model)
        if options.calibrate:
            ours, _ = quantise(checkpoint, name, moments=calibrate(checkpoint, [options.seen]))
            yield measured.line(f"{name}, calibrated, weights alone", ours.model)
        theirs = rounded_by_peer(checkpoint, block_types(checkpoint.architecture, name))
        yield measured.line(f"{name}, llama.cpp's rounding, weights alone", theirs.model)
    if options.peer_python:
        for name, losses in peer_surprises(checkpoint, tokens, options.peer_python):
            yield measured.change(f"{name}, llama.cpp itself", losses)


def peer_surprises(checkpoint: plait.Checkpoint, tokens: Tensor, python: str) -> Iterator[tuple[str, Tensor]]:
    """llama.cpp's own losses on its own files; the blocks in them are those that were compared above."""
    a = checkpoint.architecture
    arch = "llama" if a.position == "rope" else "gpt2"
    settings = {"cache": "f32", "ubatch": 512}
    here = Path(__file__).parent / "peers"
    with tempfile.TemporaryDirectory() as folder, Worker(python, here / "llama_worker.py") as llama:
        floats = Path(folder) / "F32.gguf"
        write_gguf(checkpoint, floats, arch, words=False)
        for name, kind in (("fp32", "F32"), *QUANTIZATIONS.items()):
            path = Path(folder) / f"{kind}.gguf"
            if name != "fp32":
                llama.ask("quantise", source=str(floats), target=str(path), type=kind, vocabulary="Q8_0")
                check_same_blocks(floats, path)
            llama.ask("load", path=str(path))
            losses = llama.ask("surprise", tokens=tokens.tolist(), window=WINDOW, threads=1, settings=settings)
            yield name, torch.tensor(losses, dtype=torch.float64)


def check_same_blocks(floats: Path, path: Path) -> None:
    """llama.cpp's file holds the bytes that the ``gguf`` package gives."""
    whole, rounded = GGUFSource(floats), GGUFSource(path)
    for name in rounded.names:
        kind = rounded.stored_type(name)
        if kind != "F32":
            ours = gguf.quants.quantize(whole.read(name).numpy(), gguf.GGMLQuantizationType[kind])
            if bytes(rounded.raw(name)) != ours.tobytes():
                sys.exit(f"{name}: llama.cpp's {kind} blocks are not those of the gguf package.")


# Encoders: cosine of embeddings


def cosines(checkpoint: plait.Checkpoint, texts: Sequence[str], options: argparse.Namespace) -> Iterator[list[str]]:
    """Rows of the table: how near to fp32's the vectors of the texts are."""
    assert checkpoint.tokenizer is not None
    record = checkpoint.pooling
    limit = min(n for n in (record and record.max_length, checkpoint.architecture.max_length, 512) if n)
    rows = [checkpoint.tokenizer.encode(text)[:limit] for text in texts]
    first = record is not None and record.pooling == "cls"

    def vectors(states: Callable[[list[int]], Tensor]) -> Tensor:
        return F.normalize(torch.stack([s[0] if first else s.mean(0) for s in map(states, rows)]).double(), dim=-1)

    def plain(model: plait.Transformer) -> Tensor:
        return vectors(lambda row: model.states(torch.tensor([row]))[0])

    def engine(**wish: Any) -> Tensor:
        runner = optimize(checkpoint, **wish)
        return vectors(lambda row: runner.states([row])[0])

    fp32 = plain(checkpoint.model)

    def line(name: str, found: Tensor) -> list[str]:
        apart = 1 - (found * fp32).sum(1)
        return [name, f"{apart.mean():.3e}", f"{apart.max():.3e}"]

    moments = calibrate(checkpoint, [options.seen]) if options.calibrate else None
    yield ["weights, and where", "1 - cosine, mean", "largest"]
    yield line("fp32, engine", engine(dtype="float32"))
    for name, wish in WAYS:
        yield line(f"{name}, engine", engine(**wish))
        if "quantization" in wish:
            yield line(f"{name}, weights alone", plain(quantise(checkpoint, name)[0].model))
            if moments:
                ours, _ = quantise(checkpoint, name, moments=moments)
                yield line(f"{name}, calibrated, weights alone", plain(ours.model))
            theirs = rounded_by_peer(checkpoint, block_types(checkpoint.architecture, name))
            yield line(f"{name}, llama.cpp's rounding, weights alone", plain(theirs.model))


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a decoder with a tokenizer, or an encoder: as plait's commands take it")
    parser.add_argument("text", type=Path, help="held-out text; for an encoder, every line is one")
    parser.add_argument("--from", dest="start", type=float, default=0.0, help="the share of TEXT that is left out")
    parser.add_argument("--tokens", type=int, default=32768, help="read at most; for an encoder, lines")
    parser.add_argument("--calibrate", type=float, default=0.0, help="also round by the inputs on this share of TEXT")
    parser.add_argument("--peer-python", default=os.environ.get("PEER_PYTHON"), help="one that has llama-cpp-python")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    checkpoint = plait.load(locate(options.model), dtype="float32")
    checkpoint.model.eval()
    text = options.text.read_text(encoding="utf-8")
    options.seen, held = text[: int(options.calibrate * len(text))], text[int(options.start * len(text)) :]
    parameters = plait.account(checkpoint).parameters
    if checkpoint.architecture.kind == "encoder":
        lines = [line for line in held.splitlines() if len(line.split()) > 3][: options.tokens]
        rows, what = cosines(checkpoint, lines, options), f"{len(lines)} lines"
    else:
        if checkpoint.tokenizer is None:
            parser.error(f"{options.model}: it has no tokenizer to read {options.text} with.")
        tokens = torch.tensor(checkpoint.tokenizer.encode(held))[: options.tokens + 1]
        rows, what = perplexities(checkpoint, tokens, options), f"{len(tokens) - 1} tokens in windows of {WINDOW}"
    print(f"{options.model}: {parameters:,} parameters; {what} of {options.text}; {' '.join(sys.argv)}")
    for row in rows:
        print(f"{row[0]:44}" + "".join(f"{cell:>18}" for cell in row[1:]), flush=True)


if __name__ == "__main__":
    main()
