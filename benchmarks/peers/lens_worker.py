"""Beside TransformerLens, on the same weights: patterns, residuals and lens agree, and what a watched forward costs.

    PYTHONPATH=src PYTHON benchmarks/peers/lens_worker.py [--rounds 9] [--threads 2]

PYTHON is that of an environment with transformer_lens 2.x (HookedTransformer) beside what plait needs. GPT-2- and
Llama-shaped models of random weights are written as the reference library's checkpoints; both sides read the same
weights. Rounds take turns; kept are every residual of every layer, before, between and after, and every pattern.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch
import transformers
from torch import Tensor
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformer_lens.pretrained.weight_conversions import convert_gpt2_weights, convert_llama_weights

import plait
from plait.inspection import lens, read, trace
from plait.model import watching

WIDTH, LAYERS, HEADS, WORDS, LENGTH = 512, 8, 8, 5000, 256
KEPT = ("*.pattern", "embedding.output", "*.after_attention", "*.layers.*.output")
THEIRS = ("hook_pattern", "hook_resid_pre", "hook_resid_mid", "hook_resid_post")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    print(f"transformer_lens {version('transformer_lens')}, transformers {transformers.__version__}")
    for shape in (gpt2, llama):
        with tempfile.TemporaryDirectory() as folder:
            theirs = shape(folder)
            ours = plait.load(folder)
            compare(shape.__name__, ours, theirs)
            tokens = torch.randint(WORDS, (options.batch, LENGTH), generator=torch.Generator().manual_seed(0))
            cost(shape.__name__, ours.model.eval(), theirs, tokens, options.rounds)


def gpt2(folder: str) -> HookedTransformer:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=LENGTH, attn_implementation="eager"
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    model.save_pretrained(folder)
    return hooked(
        convert_gpt2_weights,
        model,
        d_mlp=4 * WIDTH,
        act_fn="gelu_new",
        normalization_type="LN",
        positional_embedding_type="standard",
    )


def llama(folder: str) -> HookedTransformer:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        intermediate_size=1376,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        max_position_embeddings=LENGTH,
        rms_norm_eps=1e-6,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    return hooked(
        convert_llama_weights,
        model,
        d_mlp=1376,
        act_fn="silu",
        normalization_type="RMS",
        positional_embedding_type="rotary",
        rotary_adjacent_pairs=False,
        rotary_dim=WIDTH // HEADS,
        rotary_base=10000,
        n_key_value_heads=HEADS // 2,
        gated_mlp=True,
        final_rms=True,
        eps=1e-6,
    )


def hooked(convert: Callable[..., dict[str, Tensor]], model: Any, **more: Any) -> HookedTransformer:
    config = HookedTransformerConfig(
        d_model=WIDTH,
        n_layers=LAYERS,
        n_heads=HEADS,
        d_head=WIDTH // HEADS,
        d_vocab=WORDS,
        n_ctx=LENGTH,
        device="cpu",
        original_architecture=type(model).__name__,
        **{"eps": 1e-5, **more},
    )
    found = HookedTransformer(config)
    found.load_and_process_state_dict(
        convert(model, config),
        fold_ln=False,
        center_writing_weights=False,
        center_unembed=False,
        fold_value_biases=False,
    )
    return found.eval()


def compare(name: str, ours: Any, theirs: HookedTransformer) -> None:
    ids = torch.randint(WORDS, (40,), generator=torch.Generator().manual_seed(1)).tolist()
    logits, cache = theirs.run_with_cache(torch.tensor([ids]))
    seen = trace(ours, read(ours, ids))
    far: dict[str, float] = {"logits": apart(seen.output, logits[0])}
    for layer in range(LAYERS):
        path = f"decoder.layers.{layer}"
        for kind, mine, their in (
            ("patterns", f"{path}.attention.pattern", cache["pattern", layer][0]),
            ("residuals", f"{path}.after_attention", cache["resid_mid", layer][0]),
            ("residuals", f"{path}.output", cache["resid_post", layer][0]),
        ):
            far[kind] = max(far.get(kind, 0.0), apart(seen[mine], their))
    stream = cache.accumulated_resid(layer=-1, incl_mid=False, apply_ln=False)
    their_lens = [theirs.unembed(theirs.ln_final(states)) for states in stream]
    far["lens"] = max(apart(a, b[0]) for (_, a), b in zip(lens(seen), their_lens, strict=True))
    print(f"{name}: largest difference " + ", ".join(f"{kind} {value:.1e}" for kind, value in far.items()))


def apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def cost(name: str, ours: Any, theirs: HookedTransformer, tokens: Tensor, rounds: int) -> None:
    def kept() -> None:
        with watching(ours, *KEPT) as seen:
            ours(tokens)
            assert len(seen) == 1 + 3 * LAYERS

    ways: dict[str, Callable[[], object]] = {
        "plait": lambda: ours(tokens),
        "plait, kept": kept,
        "theirs": lambda: theirs(tokens),
        "theirs, kept": lambda: theirs.run_with_cache(tokens, names_filter=lambda n: n.endswith(THEIRS)),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(-1, rounds):
        for way in list(ways) if turn % 2 else reversed(list(ways)):
            start = time.perf_counter()
            ways[way]()
            if turn >= 0:
                seconds[way].append(time.perf_counter() - start)
    print(f"{name}: " + ", ".join(f"{way} {1000 * statistics.median(found):.0f} ms" for way, found in seconds.items()))
    for side in ("plait", "theirs"):
        ratios = [b / a for a, b in zip(seconds[side], seconds[f"{side}, kept"], strict=True)]
        spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
        print(
            f"{name}: {side} with every residual and pattern kept {statistics.median(ratios):.2f} {spread} of without"
        )


if __name__ == "__main__":
    main()
