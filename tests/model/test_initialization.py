"""Initialisation: each scheme's spread, the same numbers for a seed, a first loss near ln(vocabulary)."""

from __future__ import annotations

import math

import pytest
import torch

from plait.architecture import Architecture, RelativeBias
from plait.model import Transformer, initialize
from plait.model.initialization import SPREADS
from tests.models import random_tokens

WIDE = dict(vocab_size=500, d_model=256, n_heads=4, d_ff=1024, max_length=64)
PRESET = {
    "xavier": Architecture(
        **WIDE, n_encoder_layers=2, n_decoder_layers=2, norm_placement="post", position="sinusoidal",
        embedding_scale=16.0, tied=True,
    ),
    "gpt2": Architecture(**WIDE, n_decoder_layers=4, position="learned", tied=True, activation="gelu_tanh"),
    "t5": Architecture(
        **WIDE, n_encoder_layers=2, n_decoder_layers=2, norm="rmsnorm", relative_bias=RelativeBias(), tied=True,
        attention_scale=1.0, logit_scale=1 / 16, qkv_bias=False, output_bias=False, ffn_bias=False,
    ),
    "deepnorm": Architecture(**WIDE, n_decoder_layers=8, norm_placement="post", skip_scale=2.0, position="learned"),
    "normal": Architecture(**WIDE, n_encoder_layers=2, position="learned", head="masked", tied=True),
}  # fmt: skip


def test_every_scheme_is_tried() -> None:
    assert set(PRESET) == set(SPREADS)


@pytest.mark.parametrize("scheme", PRESET)
def test_the_first_loss_is_that_of_a_guess(scheme: str) -> None:
    model = Transformer(PRESET[scheme])
    initialize(model, scheme, seed=3)  # type: ignore[arg-type]
    tokens = random_tokens(2, 32, vocabulary=500)
    source = {"source": tokens} if model.architecture.kind == "encoder-decoder" else {}
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(
            model(tokens, **source).flatten(0, 1), random_tokens(64, seed=8, vocabulary=500)
        )
    # T5's table is as large as the stream, so that its tied head favours the token just read
    assert float(loss) == pytest.approx(math.log(500), abs=4.0 if scheme == "t5" else 1.0)


def spread(model: Transformer, name: str) -> float:
    return float(model.get_parameter(name).detach().std())


def test_residual_outputs_shrink_with_depth() -> None:
    model = Transformer(PRESET["gpt2"])
    assert spread(model, "decoder.layers.3.ffn.up.weight") == pytest.approx(0.02, rel=0.03)
    for name in ("attention.output", "ffn.down"):
        assert spread(model, f"decoder.layers.3.{name}.weight") == pytest.approx(0.02 / math.sqrt(8), rel=0.03)
    assert not model.get_parameter("decoder.layers.0.ffn.up.bias").any()


def test_xavier_is_uniform_and_deepnorm_scales_what_its_table_says() -> None:
    model = Transformer(PRESET["xavier"])
    initialize(model, "xavier")
    weight, bound = model.get_parameter("encoder.layers.0.ffn.up.weight"), math.sqrt(6 / (256 + 1024))
    assert float(weight.detach().abs().max()) == pytest.approx(bound, rel=0.01)
    assert spread(model, "embedding.tokens.weight") == pytest.approx(256**-0.5, rel=0.03)
    model = Transformer(PRESET["deepnorm"])
    initialize(model, "deepnorm")
    xavier, beta = math.sqrt(2 / 512), (8 * 8) ** -0.25
    assert spread(model, "decoder.layers.0.attention.query.weight") == pytest.approx(xavier, rel=0.03)
    assert spread(model, "decoder.layers.0.attention.value.weight") == pytest.approx(xavier * beta, rel=0.03)


def test_a_seed_gives_the_same_numbers_and_another_others() -> None:
    models = [Transformer(PRESET["normal"]) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        initialize(model, "normal", seed=seed)
    first, same, other = (m.get_parameter("encoder.layers.1.ffn.down.weight") for m in models)
    assert torch.equal(first, same) and not torch.equal(first, other)


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="'kaiming' is not one of 'normal', 'gpt2'"):
        initialize(Transformer(PRESET["normal"]), "kaiming")  # type: ignore[arg-type]
