"""llama.cpp as a worker, through llama-cpp-python's low-level interface. Run by the Python that has it installed.

``settings`` chooses among what llama.cpp offers (``SETTINGS``); each choice that was asked for stays open, so that they
can be measured in turn. Times are of ``llama_decode`` alone, with the logits ready to be read.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from array import array
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import llama_cpp.llama_cpp as llama  # noqa: E402
from protocol import packed, serve  # noqa: E402

# name -> its choices, llama.cpp's own default first
SETTINGS: dict[str, tuple[Any, ...]] = {
    "repack": (True, False),  # weights copied into blocks that its kernels prefer (extra buffer types)
    "mmap": (True, False),
    "flash_attn": ("auto", "on", "off"),
    "cache": ("f16", "f32"),
    "ubatch": (512, 128, 256),
    "unified": (False, True),  # one buffer of keys and values for all sequences
}
FLASH = {"auto": -1, "off": 0, "on": 1}
TYPES = {"f32": 0, "f16": 1}
GGML = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 8}
CAPACITY, BATCH = 640, 512  # tokens a sequence, tokens at a time


@llama.llama_log_callback
def _silent(level: int, text: bytes, data: Any) -> None:
    if level == 4:  # an error
        sys.stderr.write(text.decode(errors="replace"))


class Session:
    """One open file, and the contexts that were asked for."""

    def __init__(self) -> None:
        llama.llama_log_set(_silent, ctypes.c_void_p(0))
        llama.llama_backend_init()
        self.path = b""
        self.models: dict[tuple[Any, ...], Any] = {}
        self.contexts: dict[tuple[Any, ...], Any] = {}

    def load(self, path: str) -> dict[str, Any]:
        """Open a file; what it holds."""
        self.path = path.encode()
        model = self._model({})
        return {
            "parameters": llama.llama_model_n_params(model),
            "bytes": llama.llama_model_size(model),
            "vocab": self._vocab(model),
            "settings": SETTINGS,
            "system": llama.llama_print_system_info().decode(),
        }

    def decode(self, prompt: list[list[int]], follow: list[list[int]], threads: int, settings: dict[str, Any]) -> float:
        """Seconds to read ``follow``, a token of every row at a time, behind ``prompt``."""
        context = self._context(settings, len(prompt), threads)
        self._read_prompt(context, prompt)
        batch = _Batch(len(prompt))
        start = time.perf_counter()
        self._steps(context, batch, prompt, follow)
        return time.perf_counter() - start

    def prefill(self, prompt: list[list[int]], threads: int, settings: dict[str, Any]) -> float:
        """Seconds to read ``prompt``."""
        context = self._context(settings, len(prompt), threads)
        start = time.perf_counter()
        self._read_prompt(context, prompt)
        return time.perf_counter() - start

    def logits(self, prompt: list[list[int]], follow: list[list[int]], threads: int, settings: dict[str, Any]) -> str:
        """What it says at the end, a row for each of ``prompt``."""
        context = self._context(settings, len(prompt), threads)
        self._read_prompt(context, prompt)
        batch = _Batch(len(prompt))
        self._steps(context, batch, prompt, follow)
        n = self._vocab(llama.llama_get_model(context))
        rows = array("f")
        for row in range(len(prompt)):
            rows.extend(llama.llama_get_logits_ith(context, row)[:n])
        return packed(rows)

    def surprise(self, tokens: list[int], window: int, threads: int, settings: dict[str, Any]) -> list[float]:
        """Negative log-likelihoods of windows of ``tokens`` that follow each other, all but each one's first."""
        import numpy as np

        context = self._context({**settings}, 1, threads)
        n = self._vocab(llama.llama_get_model(context))
        losses: list[float] = []
        batch = _Batch(window)
        for start in range(0, len(tokens) - 1, window):
            inputs, targets = tokens[start : start + window], tokens[start + 1 : start + window + 1]
            inputs = inputs[: len(targets)]
            llama.llama_memory_clear(llama.llama_get_memory(context), False)
            batch.fill([(token, at, 0, True) for at, token in enumerate(inputs)])
            self._decode(context, batch)
            rows = np.ctypeslib.as_array(llama.llama_get_logits(context), (len(inputs), n)).astype(np.float64)
            top = rows.max(1)
            total = top + np.log(np.exp(rows - top[:, None]).sum(1))
            losses += (total - rows[np.arange(len(inputs)), targets]).tolist()
        return losses

    def greedy(self, prompt: list[int], n: int, settings: dict[str, Any]) -> list[int]:
        """The ``n`` tokens that it thinks likeliest behind ``prompt``, one after the other."""
        context = self._context(settings, 1, 1)
        self._read_prompt(context, [prompt])
        size, batch = self._vocab(llama.llama_get_model(context)), _Batch(1)
        tokens: list[int] = []
        for at in range(len(prompt), len(prompt) + n):
            row = llama.llama_get_logits_ith(context, -1)[:size]
            tokens.append(max(range(size), key=row.__getitem__))
            batch.fill([(tokens[-1], at, 0, True)])
            self._decode(context, batch)
        return tokens

    def rows(self, tokens: list[int], positions: list[int], settings: dict[str, Any]) -> str:
        """What it says after the tokens at ``positions``, all read at once; a row for each."""
        context = self._context(settings, 1, 1)
        llama.llama_memory_clear(llama.llama_get_memory(context), False)
        batch = _Batch(len(tokens))
        batch.fill([(token, at, 0, at in positions) for at, token in enumerate(tokens)])
        self._decode(context, batch)
        rows = array("f")
        for at in positions:
            rows.extend(llama.llama_get_logits_ith(context, at)[: self._vocab(llama.llama_get_model(context))])
        return packed(rows)

    def tokens(self, text: str) -> list[int]:
        """A text's ids, with what goes around it."""
        vocab, data = llama.llama_model_get_vocab(self._model({})), text.encode()
        room = len(data) + 8
        ids = (llama.llama_token * room)()
        n = llama.llama_tokenize(vocab, data, len(data), ids, room, True, True)
        return list(ids[:n])

    def vector(self, tokens: list[int]) -> str:
        """The text's embedding, pooled as the file says, not normalised."""
        options = llama.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = BATCH
        options.embeddings, options.offload_kqv, options.op_offload = True, False, False
        model = self._model({})
        context = llama.llama_init_from_model(model, options)
        batch = _Batch(len(tokens))
        batch.fill([(token, at, 0, True) for at, token in enumerate(tokens)])
        self._decode(context, batch)
        values = array("f", llama.llama_get_embeddings_seq(context, 0)[: llama.llama_model_n_embd(model)])
        llama.llama_free(context)
        return packed(values)

    def quantise(self, source: str, target: str, type: str, vocabulary: str | None = None) -> None:
        """Write ``source`` again with every matrix as ``type``, those of the vocabulary as ``vocabulary``."""
        options = llama.llama_model_quantize_default_params()
        options.ftype = getattr(llama, f"LLAMA_FTYPE_MOSTLY_{type}")
        options.pure, options.quantize_output_tensor = True, True
        options.nthread = 1
        if vocabulary is not None:
            options.token_embedding_type = options.output_tensor_type = GGML[vocabulary]
        if llama.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(options)):
            raise RuntimeError(f"{source}: llama.cpp did not quantise it to {type}.")

    # Within

    def _vocab(self, model: Any) -> int:
        return llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))

    def _model(self, settings: dict[str, Any]) -> Any:
        chosen = {name: settings.get(name, choices[0]) for name, choices in SETTINGS.items()}
        key = (self.path, chosen["repack"], chosen["mmap"])
        if key not in self.models:
            options = llama.llama_model_default_params()
            options.use_extra_bufts = chosen["repack"]
            if hasattr(options, "load_mode"):
                options.load_mode = llama.LLAMA_LOAD_MODE_MMAP if chosen["mmap"] else llama.LLAMA_LOAD_MODE_NONE
            else:
                options.use_mmap = chosen["mmap"]
            model = llama.llama_model_load_from_file(self.path, options)
            if not model:
                raise RuntimeError(f"{self.path.decode()}: llama.cpp does not read it.")
            self.models[key] = model
        return self.models[key]

    def _context(self, settings: dict[str, Any], rows: int, threads: int) -> Any:
        chosen = {name: settings.get(name, choices[0]) for name, choices in SETTINGS.items()}
        key = (self.path, rows, *chosen.values())
        if key not in self.contexts:
            options = llama.llama_context_default_params()
            options.n_ctx = (CAPACITY if rows == 1 else 256) * rows
            options.n_batch, options.n_ubatch = BATCH, chosen["ubatch"]
            options.n_seq_max = rows
            options.flash_attn_type = FLASH[chosen["flash_attn"]]
            options.type_k = options.type_v = TYPES[chosen["cache"]]
            options.kv_unified = chosen["unified"]
            options.offload_kqv = options.op_offload = False
            options.no_perf = True
            context = llama.llama_init_from_model(self._model(settings), options)
            if not context:
                raise RuntimeError(f"llama.cpp refuses {chosen}.")
            self.contexts[key] = context
        llama.llama_set_n_threads(self.contexts[key], threads, threads)
        return self.contexts[key]

    def _read_prompt(self, context: Any, prompt: list[list[int]]) -> None:
        """Every row's tokens; logits of each row's last."""
        llama.llama_memory_clear(llama.llama_get_memory(context), False)
        places = [
            (token, at, row, at + 1 == len(tokens))
            for row, tokens in enumerate(prompt)
            for at, token in enumerate(tokens)
        ]
        batch = _Batch(min(BATCH, len(places)))
        for start in range(0, len(places), BATCH):
            batch.fill(places[start : start + BATCH])
            self._decode(context, batch)

    def _steps(self, context: Any, batch: _Batch, prompt: list[list[int]], follow: list[list[int]]) -> None:
        length = len(prompt[0])
        for at, tokens in enumerate(zip(*follow, strict=True)):
            batch.fill([(token, length + at, row, True) for row, token in enumerate(tokens)])
            self._decode(context, batch)

    def _decode(self, context: Any, batch: _Batch) -> None:
        if status := llama.llama_decode(context, batch.batch):
            raise RuntimeError(f"llama_decode: {status}.")
        llama.llama_synchronize(context)


class _Batch:
    """llama.cpp's record of tokens to read, with room for ``size``."""

    def __init__(self, size: int) -> None:
        self.batch = llama.llama_batch_init(size, 0, 1)

    def fill(self, places: list[tuple[int, int, int, bool]]) -> None:
        """(token, position, sequence, whether its logits are wanted) for each."""
        b = self.batch
        b.n_tokens = len(places)
        for i, (token, position, sequence, wanted) in enumerate(places):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, position, 1, wanted
            b.seq_id[i][0] = sequence

    def __del__(self) -> None:
        llama.llama_batch_free(self.batch)


def versions() -> dict[str, str]:
    """What answers here."""
    import importlib.metadata
    import platform

    return {"llama-cpp-python": importlib.metadata.version("llama-cpp-python"), "python": platform.python_version()}


if __name__ == "__main__":
    session = Session()
    commands = ("load", "decode", "prefill", "logits", "surprise", "greedy", "rows", "tokens", "vector", "quantise")
    serve({name: getattr(session, name) for name in commands} | {"versions": versions})
