"""Random weights in the shapes that are compared, as files that both sides read.

    python benchmarks/peers/make_models.py FOLDER --peer-python PYTHON

writes for each shape a folder as transformers has it, and GGUF files: F32 and BF16 by the ``gguf`` package, Q8_0, Q4_0
and Q4_1 by llama.cpp's own quantiser, every matrix in that type. A file that is there is kept.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import gguf
import torch
from protocol import Worker
from shapes import PAIRS, SHAPES

import plait
from plait.families.gguf import gguf_family

HERE = Path(__file__).parent
QUANTISED = ("Q8_0", "Q4_0", "Q4_1")  # llama.cpp writes these


def write_gguf(checkpoint: plait.Checkpoint, path: Path, arch: str, *, type: str = "F32", words: bool = True) -> None:
    """A llama or gpt2 checkpoint as llama.cpp reads it; matrices as ``type``, vectors always as F32.

    ``words``: with a made-up byte-level vocabulary, which both sides accept; without, there is none, and llama.cpp
    takes token ids alone.
    """
    a = checkpoint.architecture
    writer = gguf.GGUFWriter(path.with_suffix(".part"), arch)
    writer.add_context_length(a.max_length or 2048)
    writer.add_embedding_length(a.d_model)
    writer.add_block_count(a.n_decoder_layers)
    writer.add_feed_forward_length(a.d_ff)
    writer.add_head_count(a.n_heads)
    if a.n_kv_heads != a.n_heads:
        writer.add_head_count_kv(a.n_kv_heads)
    writer.add_vocab_size(a.vocab_size)
    writer.add_file_type({"F32": gguf.LlamaFileType.ALL_F32, "BF16": gguf.LlamaFileType.MOSTLY_BF16}[type])
    if a.norm == "rmsnorm":
        writer.add_layer_norm_rms_eps(a.norm_eps)
    else:
        writer.add_layer_norm_eps(a.norm_eps)
    if a.rope is not None:
        writer.add_rope_dimension_count(a.d_head)
        writer.add_rope_freq_base(a.rope.theta)
    if words:
        _add_vocabulary(writer, a.vocab_size)
    else:
        writer.add_tokenizer_model("none")
    weights = checkpoint.model.state_dict()
    for name, tensor in gguf_family(arch).export(a, weights.__getitem__):
        if type == "BF16" and tensor.ndim == 2 and "position" not in name:
            bits = tensor.to(torch.bfloat16).view(torch.uint16).numpy()
            writer.add_tensor(name, bits.view("uint8"), raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(name, tensor.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(path.with_suffix(".part"), path)


def _add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    """The 256 bytes, one merge, an end of text, and words that nothing is cut into."""
    letters = [*range(33, 127), *range(161, 173), *range(174, 256)]  # a byte that can be printed is its own letter
    letters += range(256, 256 + 256 - len(letters))
    tokens = [*map(chr, letters), "\u0120t", "<|endoftext|>"]
    tokens += [f"<unused{i}>" for i in range(size - len(tokens))]
    kinds = [gguf.TokenType.NORMAL] * size
    kinds[257] = gguf.TokenType.CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["\u0120 t"])
    writer.add_bos_token_id(257)
    writer.add_eos_token_id(257)


def quantise(peer_python: str | Path, source: Path, target: Path, type: str) -> None:
    """llama.cpp's quantiser, every matrix to one type."""
    with Worker(peer_python, HERE / "llama_worker.py") as llama:
        llama.ask("quantise", source=str(source), target=str(target.with_suffix(".part")), type=type)
    os.replace(target.with_suffix(".part"), target)


def make(folder: Path, peer_python: str | Path, shapes: tuple[str, ...] = tuple(SHAPES)) -> None:
    """Write what is not there yet; ``hf/SHAPE`` and ``SHAPE-TYPE.gguf``."""
    folder.mkdir(parents=True, exist_ok=True)
    for shape in shapes:
        arch = shape.partition("-")[0]
        types = [pair.type for pair in PAIRS if pair.shape == shape]
        floats = ["F32", *(t for t in types if t == "BF16")]
        wanted = {type: folder / f"{shape}-{type}.gguf" for type in dict.fromkeys([*floats, *types])}
        hf = folder / "hf" / shape
        if all(path.exists() for path in (hf, *wanted.values())):
            continue
        checkpoint = plait.load(SHAPES[shape], random=True)
        if not hf.exists():
            hf.parent.mkdir(exist_ok=True)
            plait.save(checkpoint, hf, arch)
        for type, path in wanted.items():
            if path.exists():
                continue
            if type in QUANTISED:
                quantise(peer_python, wanted["F32"], path, type)
            else:
                write_gguf(checkpoint, path, arch, type=type)
            print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer-python", default=os.environ.get("PEER_PYTHON"), help="one that has llama-cpp-python")
    options = parser.parse_args()
    if not options.peer_python:
        parser.error("--peer-python: name the Python that has llama-cpp-python (or set PEER_PYTHON).")
    make(options.folder, options.peer_python)


if __name__ == "__main__":
    main()
