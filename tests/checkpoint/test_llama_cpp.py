"""GGUF files that plait writes, read by llama.cpp itself: the same ids, the same continuations, the same embeddings.

It runs where PEER_PYTHON names a Python that has llama-cpp-python, which is no dependency.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import plait
from plait.checkpoint import GGUFSource
from tests.checkpoint.gguf_models import ARCHITECTURES, PROMPT, made

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "peers"))

EXACT = {"cache": "f32", "flash_attn": "off"}
AT = [0, 1, 32, 63]
# ggml looks GELU up in a table of float16 numbers, those of the tanh form for BERT's other one too
NEAR, NEAR_BY_TABLE, NEAR_VECTOR = 1e-4, 5e-3, 1e-3


@pytest.fixture(scope="module")
def llama() -> Iterator[Any]:
    """llama.cpp in a process of its own."""
    python = os.environ.get("PEER_PYTHON")
    if not python:
        pytest.skip("PEER_PYTHON is not set: it names a Python that has llama-cpp-python")
    protocol = pytest.importorskip("protocol")
    with protocol.Worker(python, Path(protocol.__file__).with_name("llama_worker.py")) as worker:
        yield worker
        worker._process.stdout.close()


def numbers(text: str) -> Tensor:
    from protocol import unpacked

    return torch.tensor(unpacked(text))


def far(theirs: Tensor, ours: Tensor) -> float:
    """The largest difference, as a share of the spread."""
    return float((theirs - ours).abs().max() / (ours - ours.mean()).square().mean().sqrt())


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_llama_cpp_says_the_same(name: str, llama: Any, reference: ModuleType, tmp_path: Path) -> None:
    checkpoint = made(name, reference, tmp_path / "hf")
    path = plait.save(checkpoint, tmp_path / "x.gguf", dialect="gguf")
    assert GGUFSource(path).metadata["general.architecture"] == ARCHITECTURES[name].arch
    llama.ask("load", path=str(path))
    back = plait.load(path)
    assert back.tokenizer is not None and checkpoint.tokenizer is not None

    ids = checkpoint.tokenizer.encode(PROMPT)
    assert llama.ask("tokens", text=PROMPT) == ids == back.tokenizer.encode(PROMPT)
    tokens = (ids * 64)[:64]
    ours = checkpoint.model(torch.tensor([tokens]))[0].detach()
    assert torch.equal(back.model(torch.tensor([tokens]))[0], ours)
    theirs = numbers(llama.ask("rows", tokens=tokens, positions=AT, settings=EXACT)).view(len(AT), -1)
    near = NEAR if checkpoint.architecture.activation == "silu" else NEAR_BY_TABLE
    for row, at in enumerate(AT):
        assert far(theirs[row], ours[at]) < near, at
    said = plait.generate(checkpoint, tokens[:40], max_new_tokens=32, temperature=0, ignore_end=True).tokens
    assert llama.ask("greedy", prompt=tokens[:40], n=32, settings=EXACT) == said
    assert len(set(said)) > 8, "a model that repeats itself shows nothing"


def test_a_bert_gives_llama_cpp_its_embeddings(llama: Any, minilm: Path, tmp_path: Path) -> None:
    checkpoint = plait.load(minilm)
    with pytest.warns(plait.PlaitNotice, match="pooler"):  # which sentence-transformers leave unused
        path = plait.save(checkpoint, tmp_path / "minilm.gguf", dialect="gguf")
    llama.ask("load", path=str(path))
    back = plait.load(path)
    assert back.pooling == checkpoint.pooling and back.tokenizer is not None and checkpoint.tokenizer is not None
    texts = ["A man is eating pasta.", "Der Löwe schläft, 獅子 sleeps!", "I'm unaffable: 3.14% of naïve cafés"]
    for text in texts:
        ids = checkpoint.tokenizer.encode(text)
        assert llama.ask("tokens", text=text) == ids == back.tokenizer.encode(text)
        ours = plait.embed(checkpoint, [text])
        assert torch.equal(plait.embed(back, [text]), ours)
        theirs = numbers(llama.ask("vector", tokens=ids))
        assert (theirs / theirs.norm() - ours[0]).abs().max() < NEAR_VECTOR


def test_the_real_model_through_its_family_and_back(llama: Any, smollm2: Path, tmp_path: Path) -> None:
    """GGUF, the family's own folder, GGUF in float32: for some while llama.cpp continues as with the blocks there were,
    by which it multiplies in 8 bits, and as long as one likes as plait does."""
    hf = plait.save(plait.load(smollm2), tmp_path / "hf", dialect="hf")
    checkpoint = plait.load(hf)
    path = plait.save(checkpoint, tmp_path / "again.gguf", dialect="gguf")
    text = "The quick brown fox\n\tjumps over 1969 lazy dogs; they'd <|im_start|>say"
    said: list[list[int]] = []
    for file in (smollm2, path):
        llama.ask("load", path=str(file))
        ids = llama.ask("tokens", text=text)
        assert checkpoint.tokenizer is not None and checkpoint.tokenizer.encode(text) == ids
        said.append(llama.ask("greedy", prompt=ids, n=32, settings=EXACT))
    assert said[0][:16] == said[1][:16]
    assert said[1] == plait.generate(checkpoint, ids, max_new_tokens=32, temperature=0, ignore_end=True).tokens
    assert len(set(said[1])) > 8


def test_the_real_model_without_a_tokenizer(llama: Any, data: Path, tmp_path: Path) -> None:
    checkpoint = plait.load(data / "stories260K" / "hf")
    path = plait.save(checkpoint, tmp_path / "stories.gguf", dialect="gguf")
    llama.ask("load", path=str(path))
    said = plait.generate(checkpoint, [1], max_new_tokens=64, temperature=0, ignore_end=True).tokens
    assert llama.ask("greedy", prompt=[1], n=64, settings=EXACT) == said
