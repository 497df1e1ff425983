"""Sentences: what the memories of a small decoder are that was trained on them: triggers, and what values say."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from torch import Tensor

from plait.architecture import Architecture
from plait.checkpoint import Checkpoint
from plait.data.packing import CausalStream
from plait.data.store import tokenised
from plait.inspection.lab import corpus
from plait.inspection.lab.learning import learn
from plait.inspection.memory import study
from plait.inspection.memory.study import Layer
from plait.model import Transformer, initialize

LAYERS, STEPS, SENTENCES, LENGTH = 4, 250, 4000, 32
TRIGGERS = 10


def studied(steps: int = STEPS) -> dict[str, Any]:
    """Train a decoder on sentences, and study its memories over them."""
    tokenizer = corpus.english()
    architecture = Architecture(
        vocab_size=len(tokenizer),
        d_model=64,
        n_heads=4,
        d_ff=128,
        n_decoder_layers=LAYERS,
        position="learned",
        max_length=LENGTH,
        activation="relu",
        tied=True,
    )
    model = Transformer(architecture)
    initialize(model, "gpt2")
    checkpoint = Checkpoint(architecture=architecture, model=model, tokenizer=tokenizer)
    with tempfile.TemporaryDirectory(prefix="plait-lab-") as folder:
        file = Path(folder) / "sentences.txt"
        file.write_text("\n".join(pair.en for pair in corpus.sentences()[0][:SENTENCES]), encoding="utf-8")
        tokens = tokenised(file, tokenizer, before=(), after=(), cache=folder)
        stream = CausalStream(tokens=tokens, length=LENGTH, rows=16, packing="stream")
        learn(model, stream, steps=steps, lr=5e-3, warmup=steps // 10)
        model.eval()
        found = study(checkpoint, [file], keep=TRIGGERS, length=LENGTH, cache=folder)
        lane = found.corpus.lanes["decoder"]
        words = [lane.tokens(layer.networks[0].triggers.places) for layer in found.layers]
        return {
            "neurons": sum(layer.n_neurons for layer in found.layers),
            "off": max(_off(found.readers["decoder"].table, model, layer) for layer in found.layers),
            "surface": [_common(each) for each in words],
            "agreement": [layer.agreement.share for layer in found.layers],
            "chance": [layer.agreement.chance for layer in found.layers],
        }


def _off(table: Tensor, model: Transformer, layer: Layer) -> float:
    """How far the values of a layer, read as distributions over the vocabulary, are from summing to 1."""
    values = model.get_parameter(f"decoder.layers.{layer.turn}.ffn.down.weight").detach().t()
    return float(((values @ table.t()).softmax(-1).sum(-1) - 1).abs().max())


def _common(words: Tensor) -> float:
    """Of a neuron's triggers the share that end in the most frequent word among them, the mean over neurons that fired
    as often as that: ``(m, t)``, -1 where there is none."""
    words = words[(words >= 0).all(1)]
    same = (words[:, :, None] == words[:, None]).sum(-1).amax(-1)
    return float(same.double().mean() / words.shape[1])
