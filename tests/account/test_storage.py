"""Law 8, bytes: of the weights by type, and of a cache as the live one counts itself."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plait.account import account
from plait.architecture import Architecture, LayerType
from plait.model import Cache, Transformer
from plait.presets import preset
from tests.strategies import architectures, over_grid

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def filled(architecture, length, source_length, batch=2, dtype=torch.float32, sliding=False, step=None):
    """A cache after ``length`` tokens, read at once or ``step`` by step."""
    model = Transformer(architecture).to(dtype)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    cache = Cache(architecture, batch, dtype=dtype, sliding=sliding, total_lengths=torch.full((batch,), length))
    source = {"source": torch.zeros(batch, source_length, dtype=torch.long)} if architecture.kind != "decoder" else {}
    with torch.no_grad():
        for start in range(0, length, step or length):
            n = min(step or length, length - start)
            model(torch.zeros(batch, n, dtype=torch.long), cache=cache, **(source if start == 0 else {}))
    return cache


@over_grid
def test_law_8_cache_bytes_over_the_grid(architecture):
    if architecture.kind == "encoder":
        assert account(architecture).cache_bytes(9) == 0
        return
    source = {"source_length": 5} if architecture.kind == "encoder-decoder" else {}
    for sliding in (False, True):
        expected = account(architecture).cache_bytes(9, batch=2, dtype="fp32", sliding=sliding, **source)
        assert filled(architecture, 9, 5, sliding=sliding).nbytes == expected


@given(
    architectures(kinds=("decoder", "encoder-decoder")),
    st.integers(1, 12),
    st.sampled_from(list(TYPES)),
    st.booleans(),
    st.sampled_from([None, 1, 2]),
)
def test_law_8_cache_bytes_of_any_architecture(architecture, length, dtype, sliding, step):
    cache = filled(architecture, length, 5, dtype=TYPES[dtype], sliding=sliding, step=step)
    expected = account(architecture).cache_bytes(length, batch=2, dtype=dtype, source_length=5, sliding=sliding)
    assert cache.nbytes == expected


def test_law_8_weight_bytes_are_the_live_parameters():
    for name, dtype in TYPES.items():
        with torch.device("meta"):
            model = Transformer(preset("gemma-2-2b")).to(dtype)
        live = sum(p.numel() * p.element_size() for p in model.parameters())
        assert account(preset("gemma-2-2b")).bytes(name) == live


def test_quantised_weights_carry_their_scales():
    """By hand: rows of 40 are two groups of 32; the vocabulary keeps 8 bits, the norms' vectors stay in fp32."""
    a = Architecture(
        vocab_size=10, d_model=40, n_heads=5, d_ff=64, n_decoder_layers=1, tied=True, norm="rmsnorm", ffn_bias=False,
        qkv_bias=False, output_bias=False,
    )  # fmt: skip
    vocabulary, layers = 10 * 2, 4 * 40 * 2 + 64 * 2 + 40 * 2
    norms = 3 * 40 * 4
    assert account(a).bytes("int8") == (vocabulary + layers) * 34 + norms
    assert account(a).bytes("int4") == vocabulary * 34 + layers * 18 + norms


def test_a_window_bounds_a_sliding_cache():
    a = preset("mistral-7b")
    slot = 2 * 32 * 8 * 128 * 2  # keys and values, layers, heads, width, bytes
    assert account(a).cache_bytes(10_000) == 10_000 * slot
    assert account(a).cache_bytes(10_000, sliding=True) == 4095 * slot
    assert account(a.replace(layer_types=(LayerType(),))).cache_bytes(10_000, sliding=True) == 10_000 * slot


def test_unknown_types_are_refused():
    with pytest.raises(ValueError, match="'int3' is none of fp32, bf16, fp16, int8, int4"):
        account(preset("gpt2")).bytes("int3")
    with pytest.raises(ValueError, match="'int8' is none of fp32, bf16, fp16"):
        account(preset("gpt2")).cache_bytes(1, dtype="int8")
