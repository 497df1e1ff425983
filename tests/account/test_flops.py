"""Law 8, FLOPs: the account on paper is what torch's counter sees the live model do.

On the meta device, where whole presets have room; drawn architectures on the CPU, where a small pass is quicker.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from plait.account import Flops, account
from plait.architecture import Architecture
from plait.model import Cache, Transformer
from plait.presets import preset
from tests.strategies import architectures, over_grid

BATCH, LENGTH, SOURCE = 2, 7, 5


def build(architecture, device="cpu"):
    with torch.device(device):
        return Transformer(architecture)


def words(batch, length, device="cpu"):
    return torch.zeros(batch, length, dtype=torch.long, device=device)


def source(architecture, batch=BATCH, length=SOURCE, device="cpu"):
    return {"source": words(batch, length, device)} if architecture.kind == "encoder-decoder" else {}


def lengths(architecture, length=SOURCE):
    return {"source_length": length} if architecture.kind == "encoder-decoder" else {}


def counted(run) -> int:
    # the counter knows the products of attention, and the CPU's fused kernel not
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        run()
    return counter.get_total_flops()


@over_grid
def test_law_8_forward(architecture):
    model = build(architecture)
    expected = account(architecture).flops(LENGTH, batch=BATCH, **lengths(architecture))
    assert counted(lambda: model(words(BATCH, LENGTH), **source(architecture))) == expected.total


@given(architectures(), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9))
def test_law_8_forward_of_any_architecture(architecture, batch, length, source_length):
    model = build(architecture)
    expected = account(architecture).flops(length, batch=batch, **lengths(architecture, source_length))
    run = lambda: model(words(batch, length), **source(architecture, batch, source_length))  # noqa: E731
    assert counted(run) == expected.total


@given(architectures())
def test_law_8_training_step(architecture):
    model = build(architecture)
    expected = account(architecture).training_flops(LENGTH, batch=BATCH, **lengths(architecture))
    run = lambda: model(words(BATCH, LENGTH), **source(architecture)).sum().backward()  # noqa: E731
    assert counted(run) == expected.total


generating = architectures(kinds=("decoder", "encoder-decoder"))


@given(generating)
def test_law_8_a_token_with_a_cache(architecture):
    model, cache = build(architecture), Cache(architecture, BATCH, total_lengths=torch.full((BATCH,), LENGTH + 2))
    counts = account(architecture)
    prompt = counts.flops(LENGTH, batch=BATCH, last_only=True, **lengths(architecture))
    read = lambda: model(words(BATCH, LENGTH), cache=cache, last_only=True, **source(architecture))  # noqa: E731
    assert counted(read) == prompt.total
    for position in (LENGTH, LENGTH + 1):
        expected = counts.token_flops(position, batch=BATCH, **lengths(architecture))
        assert counted(lambda: model(words(BATCH, 1), cache=cache)) == expected.total


@given(generating)
def test_law_8_a_token_without_a_cache(architecture):
    """The model encodes the source again with each pass; the account leaves that out, and says so."""
    model = build(architecture)
    run = lambda: model(words(BATCH, LENGTH), last_only=True, **source(architecture))  # noqa: E731
    encoder = (lambda: model.encode(words(BATCH, SOURCE))) if model.encoder is not None else (lambda: None)
    expected = account(architecture).token_flops(LENGTH - 1, batch=BATCH, cached=False, **lengths(architecture))
    assert counted(run) - counted(encoder) == expected.total


@pytest.mark.parametrize("name", ["vaswani-base", "bert-base", "llama-3.2-1b", "gemma-2-2b", "t5-v1.1-small"])
def test_law_8_presets_at_their_own_size(name):
    architecture = preset(name)
    expected = account(architecture).flops(33, batch=3, **lengths(architecture, 21))
    model = build(architecture, "meta")
    run = lambda: model(words(3, 33, "meta"), **source(architecture, 3, 21, "meta"))  # noqa: E731
    assert counted(run) == expected.total


def test_a_linear_layer_costs_two_operations_a_weight():
    """By hand: one layer of width 8, one head, FFN of 16, 3 tokens, vocabulary 10."""
    a = Architecture(vocab_size=10, d_model=8, n_heads=1, d_ff=16, n_decoder_layers=1)
    assert account(a).flops(3) == Flops(
        attention=3 * 2 * 4 * 64,
        scores=2 * (3 * 3 * 8) * 2,  # in full, the causal half too
        ffn=3 * 2 * 2 * 128,
        head=3 * 2 * 80,
    )


def test_the_cache_saves_all_but_the_new_token():
    """Tokens read one by one with a cache do the linear work of one pass, and only the causal half of its scores."""
    counts = account(preset("gpt2"))
    one_by_one, at_once = Flops(), counts.flops(16)
    for position in range(16):
        one_by_one += counts.token_flops(position)
    assert (one_by_one.attention, one_by_one.ffn, one_by_one.head) == (at_once.attention, at_once.ffn, at_once.head)
    assert one_by_one.scores * 2 * 16 == at_once.scores * 17
    assert counts.token_flops(15, cached=False).ffn == 16 * counts.token_flops(15).ffn


def test_two_operations_for_every_matmul_parameter():
    """The rule of thumb, 2N a token, holds for the linear work of a decoder exactly."""
    for name in ("gpt2", "llama-2-7b", "gemma-2b"):
        counts = account(preset(name))
        work = counts.flops(1)
        assert work.total - work.scores == 2 * counts.matmul_parameters


def test_questions_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="reads no source"):
        account(preset("gpt2")).flops(4, source_length=4)
    with pytest.raises(ValueError, match="says no next token"):
        account(preset("bert-base")).token_flops(4)
