"""embed: one vector a text, whatever stands beside it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from plait.checkpoint import PlaitNotice
from plait.generation import GenerationError, embed
from plait.model import pool
from tests.generation.making import ENCODER, ROPE, TRANSLATOR, ToyTokenizer, checkpoint, random_model

KINDS = {"encoder": ENCODER, "masked": ENCODER.replace(head="masked"), "decoder": ROPE, "encoder-decoder": TRANSLATOR}
TEXTS = [[5, 6, 7], [9], [1, 2, 3, 4, 5, 6, 7, 8], [11, 12, 13]]


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
@pytest.mark.parametrize("kind", KINDS)
def test_en1_batch_and_padding_change_no_vector(kind: str, pooling: str) -> None:
    model = checkpoint(random_model(KINDS[kind]))
    alone = torch.cat([embed(model, text, pooling=pooling) for text in TEXTS])  # type: ignore[arg-type]
    assert alone.shape == (4, 16)
    assert alone.dtype == torch.float32
    for batch_size in (1, 2, 3, 32):
        together = embed(model, TEXTS, pooling=pooling, batch_size=batch_size)  # type: ignore[arg-type]
        assert (together - alone).abs().max() < 1e-6
    backwards = embed(model, TEXTS[::-1], pooling=pooling, batch_size=3)  # type: ignore[arg-type]
    assert (backwards.flip(0) - alone).abs().max() < 1e-6


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_en1_the_poolings_are_what_they_say(pooling: str) -> None:
    inner = random_model(ENCODER)
    hidden = inner(torch.tensor([TEXTS[0]]))[0]
    expected = {"mean": hidden.mean(0), "cls": hidden[0], "last": hidden[-1]}[pooling]
    got = embed(checkpoint(inner), [TEXTS[0], TEXTS[2]], pooling=pooling)[0]  # type: ignore[arg-type]
    assert torch.allclose(got, expected.float(), atol=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_en1_padding_on_either_side_is_outside_the_pooling(pooling: str) -> None:
    inner = random_model(ENCODER)
    alone = pool(inner(torch.tensor([TEXTS[0]])), None, pooling)
    for left in range(4):  # of three fillers
        row = [0] * left + TEXTS[0] + [0] * (3 - left)
        mask = torch.tensor([[left <= i < left + 3 for i in range(6)]])
        assert (pool(inner(torch.tensor([row]), mask=mask), mask, pooling) - alone).abs().max() < 1e-9


def test_the_head_is_left_out_and_the_final_norm_is_not() -> None:
    inner = random_model(ROPE)
    got = embed(checkpoint(inner), [TEXTS[0]], pooling="last")[0]
    table = inner.head.output.weight
    assert torch.allclose(got.double() @ table.T, inner(torch.tensor([TEXTS[0]]))[0, -1], atol=1e-5)


def test_the_folders_record_is_honoured_and_the_caller_overrides_it() -> None:
    inner = random_model(ENCODER)
    plain = embed(checkpoint(inner), TEXTS, pooling="cls")
    record = SimpleNamespace(pooling="cls", normalize=True, max_length=None)
    model = checkpoint(inner, pooling=record)
    assert torch.allclose(embed(model, TEXTS), torch.nn.functional.normalize(plain), atol=1e-6)
    assert torch.equal(embed(model, TEXTS, normalize=False), plain)
    assert not torch.allclose(embed(model, TEXTS, pooling="mean", normalize=False), plain)


def test_long_texts_are_cut_and_keep_the_special_token_at_their_end() -> None:
    tokenizer = ToyTokenizer(["[C]", "[S]", *"abcdefgh"], bos=0, eos=1)
    inner = random_model(ENCODER)
    model = checkpoint(
        inner, tokenizer=tokenizer, pooling=SimpleNamespace(pooling="mean", normalize=False, max_length=4)
    )
    with pytest.warns(PlaitNotice, match="2 of 3 were cut at the limit of 4 tokens"):
        cut = embed(model, [[0, 2, 3, 4, 5, 1], [0, 2, 3, 4, 5, 6], [0, 2]])
    assert torch.allclose(cut, embed(model, [[0, 2, 3, 1], [0, 2, 3, 4], [0, 2]]), atol=1e-6)
    short = checkpoint(random_model(ENCODER.replace(max_length=5)))
    with pytest.warns(PlaitNotice, match="1 of 1 was cut at the limit of 5 tokens"):
        cut = embed(short, [list(range(9))])
    assert torch.equal(cut, embed(short, [list(range(5))]))


def test_forms_and_refusals() -> None:
    tokenizer = ToyTokenizer(["[C]", "[S]", *"abcdefgh"], bos=0, eos=1)
    model = checkpoint(random_model(ENCODER), tokenizer=tokenizer)
    assert torch.equal(embed(model, "abc"), embed(model, ["abc"]))
    assert embed(model, []).shape == (0, 16)
    with pytest.raises(GenerationError, match="pooling: 'max' is none of mean, cls, last"):
        embed(model, ["a"], pooling="max")  # type: ignore[arg-type]
    with pytest.raises(GenerationError, match="batch_size: 0 makes no sense"):
        embed(model, ["a"], batch_size=0)
