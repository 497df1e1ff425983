"""Experts: what a sparse layer costs beside a dense one of as many FLOPs, and a small sparse decoder on the engine.

    python benchmarks/experts.py [--rounds 15] [--threads 2] [--tokens 256] [--d-model 1024] [--d-expert 512]

Layer: 64 experts of which a token takes 8, beside a dense gated network of width 8 x d_expert, both on the plain
model's path in float32, without gradients. Decode: tokens at batch 1 of a decoder with such layers, the engine beside
the plain model. Rounds in turn, medians, ratios round by round.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
from timing import seconds

from plait.architecture import Architecture, Experts
from plait.checkpoint import Checkpoint
from plait.engine import optimize
from plait.generation import ModelRunner
from plait.model import Transformer
from plait.model.experts import Experts as SparseLayer
from plait.model.feedforward import FeedForward

N_EXPERTS, PER_TOKEN = 64, 8


def architecture(d_model: int, d_expert: int, n_layers: int = 1) -> Architecture:
    """A decoder as OLMoE and Qwen3-MoE are."""
    return Architecture(
        vocab_size=1024,
        d_model=d_model,
        n_heads=16,
        d_ff=PER_TOKEN * d_expert,
        norm="rmsnorm",
        position="rope",
        qkv_bias=False,
        output_bias=False,
        gated=True,
        activation="silu",
        ffn_bias=False,
        experts=Experts(n_experts=N_EXPERTS, per_token=PER_TOKEN, d_expert=d_expert),
        n_decoder_layers=n_layers,
    )


def drawn(layer: torch.nn.Module) -> torch.nn.Module:
    """The layer with weights of an ordinary size."""
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, 0, 0.02)
    return layer


def layers(tokens: int, d_model: int, d_expert: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """A sparse layer and its dense equal, each over the same tokens."""
    a = architecture(d_model, d_expert)
    assert a.experts is not None
    sparse, dense = drawn(SparseLayer(a, a.experts)), drawn(FeedForward(a, a.d_ff))
    x = torch.randn(tokens, 1, d_model)
    return lambda: sparse(x), lambda: dense(x)


def decoders(new: int, d_model: int, d_expert: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Greedy tokens on the engine and on the plain model."""
    a = architecture(d_model, d_expert, n_layers=2)
    model = Transformer(a).eval()
    engine = optimize(Checkpoint(architecture=a, model=model))

    def decode(runner: ModelRunner) -> list[int]:
        cache = runner.cache(1)
        token = runner.prefill(torch.arange(16).unsqueeze(0), cache)[:, -1].argmax(-1)
        said: list[int] = []
        for _ in range(new):
            token = runner.step(token, cache).argmax(-1)
            said.append(int(token))
        return said

    runners: list = [engine, ModelRunner(model)]
    assert decode(runners[0]) == decode(runners[1]), "the two do not say the same"
    return lambda: decode(runners[0]), lambda: decode(runners[1])


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rounds", 15), ("threads", 2), ("tokens", 256), ("d-model", 1024), ("d-expert", 512)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--new", type=int, default=24, help="tokens to decode; 0: the layer alone")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sizes = (options.d_model, options.d_expert)
    work = {f"layer, {options.tokens} tokens: sparse, dense": layers(options.tokens, *sizes)}
    if options.new:
        work[f"decode, {options.new} tokens: engine, plain"] = decoders(options.new, *sizes)
    for name, (first, second) in work.items():
        one, other = [], []
        for warm in (first, second):
            warm()
        for turn in range(options.rounds):
            both = ((first, one), (second, other))
            for thing, times in both if turn % 2 == 0 else reversed(both):
                times.append(seconds(thing))
        ratios = sorted(a / b for a, b in zip(one, other, strict=True))
        print(
            f"{name:44}{1e3 * statistics.median(one):9.1f} ms{1e3 * statistics.median(other):9.1f} ms"
            f"{statistics.median(ratios):7.2f}   ({ratios[0]:.2f} to {ratios[-1]:.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
