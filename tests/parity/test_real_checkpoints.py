"""Real checkpoints against what the reference library said of them once: ids, likelihoods, vectors."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import torch

import plait


@cache
def smollm2_checkpoint(path: Path) -> plait.Checkpoint:
    return plait.load(path)


def test_smollm2_says_the_same_ids(smollm2: Path, data: Path) -> None:
    checkpoint = smollm2_checkpoint(smollm2)
    oracle = json.loads((data / "oracles" / "smollm2-135m-instruct.json").read_text())
    cases = oracle["greedy"]
    assert checkpoint.tokenizer is not None
    for case in cases:
        assert checkpoint.tokenizer.encode(case["prompt"], specials=False) == case["input_ids"]
    longest = max(len(case["output_ids"]) for case in cases)
    prompts = [case["input_ids"] for case in cases]
    results = plait.generate(checkpoint, prompts, max_new_tokens=longest, temperature=0, ignore_end=True)
    for case, result in zip(cases, results, strict=True):
        assert result.tokens[: len(case["output_ids"])] == case["output_ids"]


def test_smollm2_gives_a_text_the_same_likelihood(smollm2: Path, data: Path) -> None:
    oracle = json.loads((data / "oracles" / "smollm2-135m-instruct.json").read_text())["nll"]
    tokens = torch.tensor([oracle["input_ids"]])
    with torch.no_grad():
        logits = smollm2_checkpoint(smollm2).model(tokens)
    loss = torch.nn.functional.cross_entropy(logits[0, :-1], tokens[0, 1:])
    assert abs(float(loss) - oracle["mean_nll"]) < 1e-4


def test_stories260k_tells_its_story_to_the_id(data: Path) -> None:
    folder = data / "stories260K"
    expected = json.loads((folder / "oracle.json").read_text())["greedy_ids_from_bos"]
    checkpoint = plait.load(folder / "hf")
    result = plait.generate(checkpoint, [1], max_new_tokens=len(expected) - 1, temperature=0, ignore_end=True)
    assert len(expected) == 201 and [1, *result.tokens] == expected


def test_minilm_gives_the_same_vectors(minilm: Path, data: Path) -> None:
    oracle = json.loads((data / "oracles" / "minilm-l6-v2.json").read_text())
    checkpoint = plait.load(minilm)
    assert checkpoint.tokenizer is not None
    assert [checkpoint.tokenizer.encode(text) for text in oracle["sentences"]] == oracle["ids"]
    vectors = plait.embed(checkpoint, oracle["sentences"])
    assert (vectors[:, :6] - torch.tensor(oracle["first6"])).abs().max() < 1e-4
    assert (vectors @ vectors.T - torch.tensor(oracle["cos"])).abs().max() < 1e-4
