"""Bytes of weights, gradients, optimizer, masters and averages are those of a real model and its real optimizer; bytes
on the wire are worked by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from plait.account import wire
from plait.account.memory import Parameter, Spread, gathered, held
from plait.account.passes import Pass
from plait.architecture import Architecture, Experts
from plait.model import Transformer
from plait.training import lora
from plait.training.planned import parameters_of, step_of
from plait.training.precision import precision_of
from plait.training.work import Work
from tests.training.making import SHAPE, recipe

ALONE = Spread(kind="data", n=1, world=1)
SHAPES = {
    "tied": SHAPE,
    "untied": SHAPE.replace(tied=False),
    "experts": SHAPE.replace(experts=Experts(n_experts=4, per_token=2, d_expert=6), gated=True),
    "both": Architecture(vocab_size=11, d_model=12, n_encoder_layers=1, n_decoder_layers=2, n_heads=3, d_ff=16),
}


def size(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.filterwarnings("default::plait.checkpoint.PlaitNotice")  # of experts, which have no adapters
@pytest.mark.parametrize(
    ("rank", "targets"), [(0, ()), (2, ()), (2, ("attention.query",))], ids=["full", "lora", "lora on queries"]
)
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "pure_bfloat16"])
@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("name", SHAPES)
def test_what_is_held_is_what_a_run_holds(name: str, kind: str, precision: str, rank: int, targets: Any) -> None:
    a = SHAPES[name]
    said = recipe(
        optimizer={"kind": kind},
        model={"lora_rank": rank, "lora_targets": targets},
        run={"precision": precision, "average": "last", "average_last": 3, "average_every": 1},
    )
    model = Transformer(a)
    if rank:
        lora.attach(model, rank=rank, targets=targets or None)
    work = Work(model, said, precision_of(precision, model), world=1)
    for _ in range(2):
        for parameter in work.optimizer.parameters.values():
            parameter.grad = torch.zeros_like(parameter)
        work.optimizer.step(1.0)
    for step in range(4):
        work.average.add(work.masters, step)
    found = held(parameters_of(said, a), ALONE, precision=precision, averages=3)  # type: ignore[arg-type]
    assert found["weights"] == size(model.parameters())
    assert found["gradients"] == size(p.grad for p in work.optimizer.parameters.values() if p.grad is not None)
    assert found["optimizer"] == size(work.optimizer.state().values())
    assert found["averages"] == size(work.average.state().values())
    assert found["masters"] == (size(work.masters.values()) if precision == "pure_bfloat16" else 0)


PARAMETERS = {  # 7 x 4 in no layer, 6 x 4 and 4 in one, 6 x 4 frozen in another
    "embedding.tokens.weight": Parameter(shape=(7, 4)),
    "decoder.layers.0.ffn.up.weight": Parameter(shape=(6, 4), cut=0),
    "decoder.layers.0.ffn_norms.before.weight": Parameter(shape=(4,)),
    "decoder.layers.1.ffn.up.weight": Parameter(shape=(6, 4), moments=0, cut=0),
}


def test_fsdp_holds_the_first_part_and_gathers_two_layers() -> None:
    spread = Spread(kind="fsdp", n=1, world=4)
    found = held(PARAMETERS, spread, precision="float32")
    # Rows a device, rounded up: 2 of 7, 2 of 6, 1 of 4, 2 of 6
    assert found["weights"] == 4 * (2 * 4 + 2 * 4 + 1 + 2 * 4)
    assert found["gradients"] == 4 * (2 * 4 + 2 * 4 + 1)
    assert found["optimizer"] == 2 * found["gradients"] + 3 * 4
    assert found["gathered"] == gathered(PARAMETERS) == 4 * (28 + 28 + 24 + 28)


def test_tensor_parallel_cuts_what_is_cut() -> None:
    found = held(PARAMETERS, Spread(kind="tensor", n=2, world=4), precision="float32")
    assert found["weights"] == 4 * (28 + 12 + 4 + 12) and found["gathered"] == 0


def test_the_wire_by_hand() -> None:
    # All-reduce of 28 + 24 + 4 gradients of 4 bytes over 4: 2 * 3/4
    assert wire.data(PARAMETERS, Spread(kind="data", n=1, world=4)) == 336
    # A device sends its part 3 times in each collective. Parts: embedding 8; layer 0 9; layer 1 8, frozen.
    # Embedding gathered once and scattered; layer 0 gathered twice and scattered; layer 1 gathered twice.
    assert wire.fsdp(PARAMETERS, Spread(kind="fsdp", n=1, world=4), 1) == 3 * 4 * (2 * 8 + 3 * 9 + 2 * 8)
    assert wire.fsdp(PARAMETERS, Spread(kind="fsdp", n=1, world=4), 5) == 5 * 3 * 4 * (2 * 8 + 3 * 9 + 2 * 8)


def test_the_wire_of_slices_by_hand() -> None:
    a = SHAPE.replace(n_heads=4, gated=True)  # 2 layers, 12 wide
    spread = Spread(kind="tensor", n=2, world=2)
    p = Pass(rows=3, length=5, precision="bfloat16")
    # A layer sums what attention and feed-forward give, 15 x 12 of 2 bytes, and going back the gradients of what query,
    # key, value, gate and up read, of 4; an all-reduce over 2 sends as much as there is.
    layer = 15 * 12 * (2 * 2 + 5 * 4)
    assert wire.tensor(a, {}, spread, p, 1) == 2 * layer
    assert wire.tensor(a, {}, spread, p, 3, twice=True) == 3 * 2 * (layer + 15 * 12 * 2 * 2)
    # Two teams of two: each sums its slices' gradients with the other team, 28 + 12 + 4 of 4 bytes.
    teams = Spread(kind="tensor", n=2, world=4)
    assert wire.tensor(a, PARAMETERS, teams, p, 1) == 2 * layer + 4 * (28 + 12 + 4)


def test_a_recipe_says_which_step() -> None:
    model = {"preset": "gpt2", "overrides": {"n_decoder_layers": 2, "d_model": 48, "n_heads": 4, "d_ff": 64}}
    said = recipe(
        model=model,
        data={"batch_tokens": 1000, "length": 64, "packing": "windows", "micro_batches": 3, "vocab_size": 300},
        run={"average": "ema", "activation_checkpointing": True, "precision": "bfloat16"},
    )
    step = step_of(said)
    assert step.architecture.vocab_size == 300 and step.rows == 15 and step.twice and step.averages == 1
    assert not step.one.masked and step.one.length == 64 and step.rows_of(Spread(kind="data", n=1, world=2), 3) == 3
