"""Operations undo each other, on settings and on tensors of odd shapes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from plait.families.errors import FamilyError
from plait.families.operations import (
    ACTIVATION,
    ACTIVATIONS,
    CAT,
    CAT_EACH,
    GROUP,
    INTERLEAVE,
    INVERSE_ROOT,
    ROOT_OF_WIDTH,
    ROW,
    STRIPES,
    TRANSPOSE,
    TRANSPOSE_EACH,
    Operation,
    chosen,
    float32,
    less,
    plus,
    preferring,
    stack,
)


@dataclass(frozen=True)
class Target:
    shapes: tuple[tuple[int, ...], ...]
    d_head: int = 10


# 6 query heads and 3 for keys, 10 wide
QKV = Target(((60, 7), (30, 7), (30, 7)))
BIASES = Target(((60,), (30,), (30,)))
TENSORS: list[tuple[Operation, Target, tuple[int, ...]]] = [
    (TRANSPOSE, Target(((6, 4),)), (4, 6)),
    (TRANSPOSE, Target(((6,),)), (6,)),
    (CAT, QKV, (120, 7)),
    (CAT, BIASES, (120,)),
    (GROUP, QKV, (120, 7)),
    (GROUP, BIASES, (120,)),
    (ROW, Target(((9,),)), (1, 9)),
    (CAT_EACH, Target(((3, 4, 7), (3, 4, 7))), (3, 8, 7)),
    (STRIPES, Target(((3, 4, 7), (3, 4, 7))), (3, 8, 7)),
    (STRIPES, Target(((3, 4), (3, 4))), (3, 8)),
    (TRANSPOSE_EACH, Target(((3, 4, 7),)), (3, 7, 4)),
    (TRANSPOSE_EACH, Target(((3, 4),)), (3, 4)),
    (INTERLEAVE, Target(((60, 7),)), (60, 7)),
    (INTERLEAVE, Target(((30,),)), (30,)),
]


@pytest.mark.parametrize(("operation", "target", "shape"), TENSORS)
def test_tensors_come_back(operation: Operation, target: Target, shape: tuple[int, ...]) -> None:
    stored = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    ours = operation.load([stored], target)
    assert [tuple(t.shape) for t in ours] == list(target.shapes)
    (again,) = operation.save(ours, target)
    assert torch.equal(again, stored)
    assert torch.cat([t.flatten() for t in ours]).sort().values.equal(stored.flatten().sort().values)  # nothing twice


def test_group_is_by_key_head() -> None:
    """(K, H/K + 2, h): two query heads, their key, their value, three times."""
    stored = torch.arange(120.0)
    query, key, value = GROUP.load([stored], BIASES)
    rows = stored.view(3, 4, 10)
    assert query[:20].equal(rows[0, :2].flatten()) and query[20:40].equal(rows[1, :2].flatten())
    assert key[10:20].equal(rows[1, 2]) and value[20:].equal(rows[2, 3])


def test_experts_gate_and_up_together_and_by_turns() -> None:
    """Granite's (E, 2I, d) is [gate; up]; gpt-oss's (E, d, 2I) has the gate in even columns and up in odd ones."""
    target = Target(((2, 3, 5), (2, 3, 5)))
    stored = torch.arange(60.0).view(2, 6, 5)
    gate, up = CAT_EACH.load([stored], target)
    assert gate.equal(stored[:, :3]) and up.equal(stored[:, 3:])
    stored = torch.arange(60.0).view(2, 5, 6)
    gate, up = STRIPES.load(TRANSPOSE_EACH.load([stored], target), target)
    assert gate[1, 2].equal(stored[1, :, 4]) and up[1, 2].equal(stored[1, :, 5])


def test_tensors_of_two_types_are_stacked_in_the_wider_one() -> None:
    both = [torch.ones(3, dtype=torch.bfloat16), torch.full((3,), 0.1)]
    assert stack(both, 2).equal(torch.stack([both[0].float(), both[1]]))


def test_group_of_one_key_head_is_cat() -> None:
    target = Target(((40, 7), (10, 7), (10, 7)))
    stored = torch.randn(60, 7)
    assert all(a.equal(b) for a, b in zip(GROUP.load([stored], target), CAT.load([stored], target), strict=True))


@pytest.mark.parametrize("heads", [6, 3])
def test_ex1_rows_are_permuted_by_a_tensors_own_heads(heads: int) -> None:
    """llama.cpp's permutation of Llama's q and k, in its own words; 4 and 2 heads would hide a wrong one."""
    ours = torch.randn(heads * 10, 7)
    written = ours.numpy().reshape(heads, 2, 5, 7).swapaxes(1, 2).reshape(heads * 10, 7)
    assert torch.equal(INTERLEAVE.save([ours], Target(((heads * 10, 7),)))[0], torch.from_numpy(written))
    assert torch.equal(INTERLEAVE.load([torch.from_numpy(written)], Target(((heads * 10, 7),)))[0], ours)


def test_words_come_back() -> None:
    for word, ours in ACTIVATIONS.items():
        assert ACTIVATION.load(word, {}) == ours
        assert ACTIVATION.load(ACTIVATION.save(ours, {}), {}) == ours
    assert preferring("gelu_new").save("gelu_tanh", {}) == "gelu_new"
    assert preferring("swish").save("silu", {}) == "swish"
    with pytest.raises(FamilyError, match="no word for the activation 'xielu'"):
        ACTIVATION.save("xielu", {})


def test_numbers_come_back() -> None:
    for scalar in (7, 144, 256):
        assert INVERSE_ROOT.save(INVERSE_ROOT.load(scalar, {}), {}) == scalar
    for switch in (True, False):
        fields = {"d_model": 48}
        assert ROOT_OF_WIDTH.save(ROOT_OF_WIDTH.load(switch, fields), fields) is switch
        assert chosen("a", "b").save(chosen("a", "b").load(switch, {}), {}) is switch
    assert plus(1).load(3, {}) == 4 and plus(1).save(4, {}) == 3
    assert (
        less("position_offset").save(less("position_offset").load(514, {"position_offset": 2}), {"position_offset": 2})
        == 514
    )
    assert float32(0.1) == torch.tensor(0.1).item() and float32(0.5) == 0.5
