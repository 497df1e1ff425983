"""Law 8, parameters: the names and shapes on paper are the live model's."""

import torch
from hypothesis import given

from plait.account import account
from plait.account.tensors import multiplies, part_of
from plait.model import Transformer
from plait.parameters import parameters
from plait.presets import PRESETS
from tests.strategies import architectures, over_grid


def live(architecture):
    with torch.device("meta"):
        model = Transformer(architecture)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


@over_grid
def test_law_8_tensors_are_the_state_dict_over_the_grid(architecture):
    assert parameters(architecture) == live(architecture)


@given(architectures())
def test_law_8_tensors_are_the_state_dict_of_any_architecture(architecture):
    assert parameters(architecture) == live(architecture)


def test_law_8_every_preset_is_counted_as_built():
    for name, architecture in PRESETS.items():
        with torch.device("meta"):
            model = Transformer(architecture)
        assert account(architecture).parameters == sum(p.numel() for p in model.parameters()), name


@given(architectures())
def test_parts_and_layers_add_up(architecture):
    counted = account(architecture)
    assert sum(counted.by_part.values()) == sum(counted.by_layer.values()) == counted.parameters


def test_every_tensor_is_in_one_part():
    cases = {
        "source_embedding.tokens.weight": "embedding",
        "embedding.norm.bias": "norms",
        "embedding.projection.weight": "embedding",
        "encoder.layers.0.attention.query_norm.weight": "norms",
        "encoder.layers.0.attention.query.bias": "biases",
        "encoder.layers.0.attention.relative_bias.weight": "attention",
        "decoder.layers.1.cross.key.weight": "cross",
        "decoder.layers.1.cross_norms.before.bias": "norms",
        "decoder.layers.1.ffn.gate.weight": "ffn",
        "decoder.norm.weight": "norms",
        "head.norm.weight": "norms",
        "head.output.bias": "biases",
    }
    assert {name: part_of(name) for name in cases} == cases


def test_tables_that_are_looked_up_multiply_nothing():
    named = ("embedding.tokens", "embedding.positions", "embedding.types", "encoder.layers.0.attention.relative_bias")
    assert not any(multiplies(f"{name}.weight") for name in named)
    assert multiplies("embedding.projection.weight") and multiplies("head.output.weight")
