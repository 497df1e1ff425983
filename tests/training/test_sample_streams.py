"""Streams of samples: the second start reads what the first made, cuts no text, and tells the same counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from plait.data.samples import Samples
from plait.text import Tokenizer
from plait.training.recipe import build
from plait.training.resolve import decide, resolve
from plait.training.together import check
from tests.training.standing_in import ENGLISH, GERMAN, sentences, write_decoder, write_encoder

TINY = {"d_model": 16, "d_ff": 32, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1}


def samples(folder: Path, kind: str) -> str:
    """A file of twenty samples, and one that is over-long, one that is bad and one that is blank."""
    texts, long = list(zip(sentences(ENGLISH, 20), sentences(GERMAN, 20), strict=True)), " ".join(ENGLISH * 9)
    texts.append((long, long))
    if kind == "chat":
        turns = [[{"role": "user", "content": a}, {"role": "assistant", "content": b}] for a, b in texts]
        lines = [*(json.dumps({"messages": turn}) for turn in turns), "{", ""]
    elif kind in ("classes", "values"):
        lines = [*(f"{n % 2} {text}" for n, (text, _) in enumerate(texts)), "bad", ""]
    else:
        lines = [*(f"{a}\t{b}" for a, b in texts), "bad", ""]
    path = folder / {"chat": "a.jsonl", "classes": "a.txt", "values": "a.txt"}.get(kind, "a.tsv")
    path.write_text("\n".join([*lines, ""]))
    return str(path)


def read(kind: str, model: dict[str, Any], path: str, cache: Path, **more: Any) -> list[Samples]:
    """The streams that training has."""
    data = {
        "train": [path],
        "valid_fraction": 0.3,
        "length": 100 if kind == "chat" else 64,
        "longest": "drop",
        "vocab_size": 300,
    }
    recipe = build(
        {
            "model": model,
            "data": {**data, "batch_rows": 4, "cache": str(cache), **more},
            "objective": {"kind": kind},
            "run": {"steps": 1},
            "evaluate": {"metrics": ["loss"]},
        }
    )
    resolved = resolve(decide(check(recipe)))
    found = [stream for stream in (resolved.train, resolved.valid) if isinstance(stream, Samples)]
    assert len(found) == 2
    return found


def test_labelled_texts_are_lower_cased_where_that_is_asked(tmp_path: Path):
    model = {"from": str(write_encoder(tmp_path / "from"))}
    path, seen = tmp_path / "a.jsonl", []
    for text in ("GOOD", "good"):
        path.write_text("".join(f'{{"text": "{text} {n}", "label": {n % 2}}}\n' for n in range(20)))
        plain = read("classes", model, str(path), tmp_path / "cache")
        lower = read("classes", model, str(path), tmp_path / "cache", lowercase=True)
        seen.append([one.step(0)[0].tokens for one in (plain[0], lower[0])])
    assert seen[0][1].tolist() == seen[1][1].tolist() == seen[1][0].tolist() != seen[0][0].tolist()


@pytest.mark.parametrize("kind", ["paired", "contrastive", "chat", "classes", "values"])
def test_what_was_made_into_ids_once_is_not_again(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if kind == "paired":
        model: dict[str, Any] = {"preset": "vaswani-base", **TINY}
    else:
        model = {"from": str((write_decoder if kind == "chat" else write_encoder)(tmp_path / "from"))}
    path = samples(tmp_path, kind)
    first = read(kind, model, path, tmp_path / "cache")
    assert sum(len(stream.objective.sizes[0]) for stream in first) == 20
    assert [(c["read"], c["blank"], c["bad"]) for c in (stream.counts for stream in first)] == [(23, 1, 1)] * 2
    assert sum(int(stream.counts["over_long"]) for stream in first) == 1

    def cut(*rest: object, **more: object) -> None:
        raise AssertionError("a text is cut again")

    for name in ("encode", "encode_batch", "encode_pair", "chat"):
        monkeypatch.setattr(Tokenizer, name, cut)
    for one, other in zip(first, read(kind, model, path, tmp_path / "cache"), strict=True):
        assert one.facts() == other.facts()
        for left, right in zip(one.step(1), other.step(1), strict=True):
            assert torch.equal(left.tokens, right.tokens) and torch.equal(left.targets, right.targets)
    with pytest.raises(AssertionError, match="cut again"), Path(path).open("a") as file:
        file.write("\n")
        file.flush()
        read(kind, model, path, tmp_path / "cache")
