"""What a target costs: counted by torch on the same batch."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from plait.architecture import Architecture
from plait.data.batch import UNCOUNTED, Batch
from plait.model import Transformer
from plait.training.arithmetic import flops_per_target, peak

SHAPE = {"vocab_size": 20, "d_model": 16, "n_heads": 2, "d_ff": 32, "max_length": 16}


def counted(architecture: Architecture, batch: Batch) -> int:
    model = Transformer(architecture).to("meta")
    moved = batch.to("meta")
    with FlopCounterMode(display=False) as counter:
        model(moved.tokens, **moved.inputs).sum()
    return counter.get_total_flops()


def test_pairs_with_every_target_real_cost_three_forward_passes():
    architecture = Architecture(**SHAPE, n_encoder_layers=2, n_decoder_layers=1)
    tokens = torch.ones(3, 5, dtype=torch.long)
    batch = Batch(tokens=tokens, targets=tokens, source=torch.ones(3, 7, dtype=torch.long))
    assert flops_per_target(architecture, [batch]) == 3 * counted(architecture, batch) / 15


def test_places_without_target_cost_layers_and_no_head():
    architecture = Architecture(**SHAPE, n_encoder_layers=2, head="masked")
    tokens = torch.ones(2, 8, dtype=torch.long)
    few = torch.full_like(tokens, UNCOUNTED)
    few[:, 0] = 1
    bare = counted(architecture.replace(head=None), Batch(tokens=tokens, targets=few))
    head = 2 * 16 * 20
    assert flops_per_target(architecture, [Batch(tokens=tokens, targets=few)]) == 3 * (bare / 2 + head)


def test_the_machine_does_something():
    assert peak("float32") > 1e8
