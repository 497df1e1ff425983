"""Masks: the MK rows, and worked numbers P1 and A9."""

from __future__ import annotations

import pytest
import torch

from plait.architecture import Architecture, Classification, LayerType, Rope
from plait.model import Cache, pool, watching
from plait.model.mask import place, visible
from tests.models import far, random_model, random_source, random_tokens

SIZE = dict(vocab_size=32, d_model=16, n_heads=8, n_kv_heads=2, d_head=4, d_ff=20, norm="rmsnorm")
LEARNED = Architecture(**SIZE, n_decoder_layers=2, position="learned", max_length=40)
ROPE = Architecture(**SIZE, n_decoder_layers=2, position="rope", rope=Rope(theta=100.0))
BOTH = Architecture(**SIZE, n_encoder_layers=2, n_decoder_layers=2, position="learned", max_length=40)
ENCODER = Architecture(**SIZE, n_encoder_layers=2, position="none", head="masked")
decoders = pytest.mark.parametrize("architecture", [LEARNED, ROPE], ids=["learned", "rope"])


@decoders
@pytest.mark.parametrize("side", ["left", "right"])
def test_mk1_padding_shifts_no_position(architecture: Architecture, side: str) -> None:
    model = random_model(architecture)
    short = [0, 0, 9] if side == "left" else [9, 0, 0]
    tokens = torch.tensor([[5, 6, 7], short])
    mask = torch.tensor([[True] * 3, [token == 9 for token in short]])
    batched = model(tokens, mask=mask)
    assert far(batched[1][mask[1]], model(torch.tensor([[9]]))[0]) < 1e-9
    assert far(batched[0], model(tokens[:1])[0]) < 1e-9


def test_mk2_source_padding_changes_nothing() -> None:
    model, target = random_model(BOTH), torch.tensor([[1, 2, 3]])
    alone = model(target, source=torch.tensor([[5, 6, 7]]))
    for pads in (1, 3):
        source = torch.tensor([[5, 6, 7] + [4] * pads])
        padded = model(target, source=source, source_mask=torch.arange(3 + pads).unsqueeze(0) < 3)
        assert far(padded, alone) < 1e-9
        assert far(model(target, source=source), alone) > 1e-3, "unmasked padding must show, or this tests nothing"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("by_hand", [False, True], ids=["fused", "watched"])
def test_mk3_a_row_of_padding_stays_finite_by_one_rule(dtype: torch.dtype, by_hand: bool) -> None:
    model, tokens = random_model(ROPE, dtype=dtype), random_tokens(2, 4)
    mask = torch.tensor([[True] * 4, [False] * 4])
    with watching(model, "*.attention.mix" if not by_hand else "*.attention.*") as seen:
        logits = model(tokens, mask=mask)
    assert logits.isfinite().all()
    assert not seen["decoder.layers.0.attention.mix"][1].any(), "what sees nothing gets nothing"
    assert far(logits[0].float(), model(tokens[:1])[0].float()) < (0.1 if dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("by_hand", [False, True], ids=["fused", "watched"])
def test_mk4_a_row_of_padding_leaves_gradients_finite(by_hand: bool) -> None:
    model, tokens = random_model(ROPE), random_tokens(2, 4)
    mask = torch.tensor([[True] * 4, [False] * 4])

    def gradients(*rows: int) -> dict[str, torch.Tensor]:
        model.zero_grad()
        with watching(model, *(["*.pattern"] if by_hand else ["logits"]), gradients=True):
            model(tokens[list(rows)], mask=mask[list(rows)])[0].square().sum().backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    both, alone = gradients(0, 1), gradients(0)
    assert all(far(both[name], alone[name]) < 1e-9 for name in alone)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_mk5_causality_aligns_with_the_end_of_the_cache(n: int) -> None:
    model, tokens = random_model(ROPE), random_tokens(1, 5)
    cache = Cache(ROPE, 1, dtype=torch.float64)
    model(tokens[:, : 5 - n], cache=cache)
    with watching(model, "decoder.layers.1.attention.pattern") as seen:
        model(tokens[:, 5 - n :], cache=cache)
    expected = torch.ones(5, 5).tril()[5 - n :].bool()
    assert torch.equal(seen["decoder.layers.1.attention.pattern"][0, 0] > 0, expected)


@decoders
@pytest.mark.parametrize("first", [1, 2, 3, 5])
def test_mk6_a_chunk_does_not_see_its_future(architecture: Architecture, first: int) -> None:
    model, tokens = random_model(architecture), random_tokens(1, 6)
    cache = Cache(architecture, 1, dtype=torch.float64)
    parts = [model(tokens[:, :first], cache=cache), model(tokens[:, first:], cache=cache)]
    assert far(torch.cat(parts, 1), model(tokens)) < 1e-9


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_mk8_padding_and_causality_are_joined_before_they_become_numbers(dtype: torch.dtype) -> None:
    model, tokens = random_model(ROPE, dtype=dtype), random_tokens(1, 4)
    mask = torch.tensor([[False, False, True, True]])
    with watching(model, "*.attention.*") as seen:
        logits = model(tokens, mask=mask)
    pattern = seen["decoder.layers.0.attention.pattern"][0, 0].float()
    allowed = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]).bool()
    assert logits.isfinite().all() and torch.equal(pattern > 0, allowed)
    assert torch.allclose(pattern[2:].sum(-1), torch.ones(2), atol=1e-2)


def test_mk10_a_mask_of_queries_by_keys_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"mask: shape \(1, 1, 4, 4\) does not fit tokens of shape \(1, 4\)"):
        random_model(ROPE)(random_tokens(1, 4), mask=torch.ones(1, 1, 4, 4, dtype=torch.bool))


@decoders
def test_mk12_one_row_is_masked_like_many(architecture: Architecture) -> None:
    model, tokens = random_model(architecture), random_tokens(1, 5)
    mask = torch.tensor([[False, False, True, True, True]])
    assert far(model(tokens, mask=mask)[:, 2:], model(tokens[:, 2:])) < 1e-9


@pytest.mark.parametrize("architecture", [LEARNED, ROPE, ENCODER], ids=["learned", "rope", "encoder"])
def test_mk14_packed_documents_see_nothing_of_each_other(architecture: Architecture) -> None:
    model = random_model(architecture)
    a, b = random_tokens(1, 3, seed=3), random_tokens(1, 4, seed=4)
    documents = torch.tensor([[1, 1, 1, 2, 2, 2, 2]])
    packed = model(torch.cat((a, b), 1), mask=documents)
    changed = model(torch.cat((random_tokens(1, 3, seed=9), b), 1), mask=documents)
    assert torch.equal(packed[:, 3:], changed[:, 3:])
    assert far(packed[:, 3:], model(b)) < 1e-9 and far(packed[:, :3], model(a)) < 1e-9


@pytest.mark.parametrize("by_hand", [False, True], ids=["fused", "watched"])
@pytest.mark.parametrize("cached", [False, True], ids=["whole", "cached"])
def test_kv4_a_window_is_itself_and_the_w_minus_1_before(by_hand: bool, cached: bool) -> None:
    architecture = ROPE.replace(n_decoder_layers=1, layer_types=(LayerType(window=4),))
    model, tokens, i = random_model(architecture), random_tokens(1, 10), 9

    def last(tokens: torch.Tensor) -> torch.Tensor:
        cache = Cache(architecture, 1, dtype=torch.float64, sliding=True) if cached else None
        with watching(model, "*.pattern" if by_hand else "logits"):
            if cache is not None:
                model(tokens[:, :6], cache=cache)
                return [model(tokens[:, j : j + 1], cache=cache) for j in range(6, 10)][-1][0, -1]
            return model(tokens)[0, i]

    def with_other_token(at: int) -> torch.Tensor:
        other = tokens.clone()
        other[0, at] = (other[0, at] + 1) % 20
        return last(other)

    assert torch.equal(with_other_token(i - 4), last(tokens))
    assert far(with_other_token(i - 3), last(tokens)) > 1e-4


def test_a_bidirectional_window_reaches_w_to_either_side() -> None:
    places = place(None, None, 6, torch.device("cpu"))
    seen = visible(places, places, causal=False, window=2)
    assert seen is not None and seen[0, 0, 3].tolist() == [False, True, True, True, True, True]


def test_a9_who_sees_whom() -> None:
    model, source = random_model(BOTH), random_source(BOTH, 2)
    with watching(model, "*.pattern") as seen:
        model(random_tokens(2, 4), **source)
    encoder, decoder = seen["encoder.layers.0.attention.pattern"], seen["decoder.layers.1.attention.pattern"]
    cross = seen["decoder.layers.0.cross.pattern"]
    assert (encoder[0] > 0).all(), "an encoder sees all"
    assert torch.equal(decoder[0, 0] > 0, torch.ones(4, 4).tril().bool()), "a decoder never sees the future"
    assert (cross[0] > 0).all(), "cross-attention sees all of the source"
    assert (cross[1, ..., :-1] > 0).all() and not cross[1, ..., -1].any(), "and none of its padding"


def test_p1_attention_without_positions_does_not_know_the_order() -> None:
    model, tokens = random_model(ENCODER), torch.tensor([[3, 11, 7]])  # dog bites man
    turned = tokens.flip(1)
    assert far(model(turned), model(tokens).flip(1)) < 1e-12
    with watching(model, "encoder.layers.0.attention.scores") as seen:
        model(tokens)
        first = seen["encoder.layers.0.attention.scores"]
        model(turned)
    assert far(seen["encoder.layers.0.attention.scores"], first.flip(-1).flip(-2)) < 1e-12


def test_a_causal_decoder_without_positions_does_know_the_order() -> None:
    architecture = ROPE.replace(position="none")
    model, tokens = random_model(architecture), torch.tensor([[3, 11, 7]])
    assert far(model(tokens.flip(1)), model(tokens).flip(1)) > 1e-3


@decoders
def test_a_mask_of_integers_is_a_mask_with_a_cache_too(architecture: Architecture) -> None:
    model, tokens = random_model(architecture), random_tokens(2, 6)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]])
    cache = Cache(architecture, 2, dtype=torch.float64)
    parts = [model(tokens[:, :4], mask=mask[:, :4], cache=cache), model(tokens[:, 4:], mask=mask[:, 4:], cache=cache)]
    assert far(torch.cat(parts, 1)[mask.bool()], model(tokens, mask=mask.bool())[mask.bool()]) < 1e-9


def test_padding_inside_a_document_does_not_end_it() -> None:
    model, tokens = random_model(LEARNED), random_tokens(1, 5)
    holes = torch.tensor([[1, 1, 0, 1, 1, 2, 0]])
    spread = torch.cat((tokens[:, :2], tokens[:, :1], tokens[:, 2:], tokens[:, :1]), 1)
    assert far(model(spread, mask=holes)[0, [0, 1, 3, 4]], model(tokens[:, :4])[0]) < 1e-9


@pytest.mark.parametrize(("mask", "words"), [([[2, 2, 1]], "must not fall"), ([[-1, 1, 1]], "is negative")])
def test_documents_out_of_order_are_refused(mask: list[list[int]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        random_model(ROPE)(random_tokens(1, 3), mask=torch.tensor(mask))


def test_what_a_model_cannot_use_is_refused() -> None:
    tokens = random_tokens(1, 3)
    for architecture in (ROPE, ENCODER):
        with pytest.raises(ValueError, match="for an encoder-decoder"):
            random_model(architecture)(tokens, source_mask=torch.ones(1, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="no table of types"):
        random_model(ROPE)(tokens, token_types=torch.zeros_like(tokens))
    typed = ENCODER.replace(token_types=2)
    with pytest.raises(ValueError, match="there are 2 types"):
        random_model(typed)(tokens, token_types=torch.full_like(tokens, 2))


def test_a_pass_that_failed_leaves_an_encoder_decoders_cache_as_it_was() -> None:
    model, cache, target = random_model(BOTH), Cache(BOTH, 1, dtype=torch.float64), torch.tensor([[1, 2]])
    with pytest.raises(ValueError, match="the table has 32 rows"):
        model(torch.tensor([[1, 40]]), source=torch.tensor([[5, 6, 7]]), cache=cache)
    source = torch.tensor([[8, 9, 10, 11]])
    assert far(model(target, source=source, cache=cache), model(target, source=source)) < 1e-9


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_class_is_named_from_the_whole_row_whatever_is_asked_of_the_last(pooling: str) -> None:
    architecture = ENCODER.replace(head=Classification(labels=3, pooling=pooling))  # type: ignore[arg-type]
    model, tokens = random_model(architecture), random_tokens(2, 4)
    assert torch.equal(model(tokens, last_only=True), model(tokens))


def test_a_mean_in_half_precision_does_not_leave_its_range() -> None:
    x, real = torch.full((1, 3000, 2), 30.0, dtype=torch.float16), torch.ones(1, 3000, dtype=torch.bool)
    assert pool(x, real, "mean").tolist() == pool(x, None, "mean").tolist() == [[30.0, 30.0]]
