"""The reference library as a worker, for prefill; it lies in ``REFERENCE``, a folder of packages, or is installed."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import time
from typing import Any

import torch
from protocol import packed, serve

sys.path.append(os.environ.get("REFERENCE", ""))


class Session:
    """One open folder."""

    def __init__(self) -> None:
        self.models: dict[str, Any] = {}

    def load(self, path: str, dtypes: list[str]) -> dict[str, Any]:
        """Open a folder in each of these types."""
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        for dtype in dtypes:
            model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype))
            self.models[dtype] = model.eval()
        return {"vocab": next(iter(self.models.values())).config.vocab_size}

    @torch.inference_mode()
    def prefill(self, prompt: list[list[int]], threads: int, settings: dict[str, Any]) -> float:
        """Seconds to read ``prompt``, with a cache, and the logits of its last token."""
        torch.set_num_threads(threads)
        tokens = torch.tensor(prompt)
        start = time.perf_counter()
        self.models[settings["dtype"]](tokens, use_cache=True, logits_to_keep=1)
        return time.perf_counter() - start

    @torch.inference_mode()
    def logits(self, prompt: list[list[int]], threads: int, settings: dict[str, Any]) -> str:
        """What it says at the end of every row."""
        torch.set_num_threads(threads)
        output = self.models[settings["dtype"]](torch.tensor(prompt), logits_to_keep=1)
        return packed(output.logits[:, -1].float().contiguous().numpy())


def versions() -> dict[str, str]:
    """What answers here."""
    import transformers

    return {"transformers": transformers.__version__, "torch": importlib.metadata.version("torch")}


if __name__ == "__main__":
    session = Session()
    serve({name: getattr(session, name) for name in ("load", "prefill", "logits")} | {"versions": versions})
