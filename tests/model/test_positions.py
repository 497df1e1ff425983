"""Positions: the PO rows, and worked numbers P2 to P6."""

from __future__ import annotations

import math

import pytest
import torch

from plait.architecture import Architecture, ArchitectureError, Rope, RopeScaling, Sinusoid
from plait.model import Cache
from plait.model.position import Rotation, alibi_slopes, inverse_frequencies, sinusoids
from tests.models import far, random_model, random_tokens

SIZE = dict(vocab_size=32, d_model=16, n_heads=8, n_kv_heads=2, d_head=4, d_ff=20, n_decoder_layers=2)
LEARNED = Architecture(**SIZE, position="learned", max_length=8)
ONE = torch.tensor([1])


def test_p2_sinusoids_of_width_4() -> None:
    table = sinusoids(torch.tensor([1, 2, 3]), 4, Sinusoid())
    expected = [[0.8415, 0.5403, 0.0100, 1.0000], [0.9093, -0.4161, 0.0200, 0.9998], [0.1411, -0.9900, 0.0300, 0.9996]]
    assert torch.allclose(table, torch.tensor(expected), atol=5e-5)
    halves = sinusoids(torch.tensor([1, 2, 3]), 4, Sinusoid(layout="halves"))
    assert torch.equal(halves, table[:, [0, 2, 1, 3]])


def test_p3_a_shift_is_one_fixed_rotation_of_every_pair() -> None:
    width, k = 16, 5
    table = sinusoids(torch.arange(60), width, Sinusoid()).double().unflatten(-1, (-1, 2))  # pos, pair, (sin, cos)
    angle = k * 10000.0 ** -(torch.arange(width // 2).double() / (width // 2))
    cos, sin = angle.cos(), angle.sin()
    sines, cosines = table[:-k].unbind(-1)
    shifted = torch.stack((sines * cos + cosines * sin, cosines * cos - sines * sin), dim=-1)
    assert far(shifted, table[k:]) < 1e-6


def test_the_lowest_pair_of_sinusoids_is_the_fast_one() -> None:
    d = 512
    period = 2 * math.pi * 10000 ** ((d - 2) / d)
    assert period == pytest.approx(60611, abs=1)
    start, later = (sinusoids(torch.tensor([p]), d, Sinusoid())[0] for p in (0, round(period)))
    assert torch.allclose(start[-2:], later[-2:], atol=1e-4)
    full = torch.tensor([0.0, 2 * math.pi])
    assert torch.allclose(*(sinusoids(full, d, Sinusoid())[:, :2]), atol=1e-6)


@pytest.mark.parametrize("interleaved", [False, True])
def test_p4_rotation_by_30_degrees_a_position(interleaved: bool) -> None:
    slowed = RopeScaling(kind="linear", factor=6 / math.pi)  # the first pair turns by 1 radian a position, over this
    rotation = Rotation(Rope(interleaved=interleaved, scaling=slowed), 2)
    x = torch.tensor([1.0, 0.0]).double().expand(1, 1, 4, 2)
    turned = rotation.turn(x, rotation.table(torch.tensor([[2, 5, 10, 13]]), ONE, torch.float64))[0, 0]
    degrees = torch.atan2(turned[:, 1], turned[:, 0]).rad2deg() % 360
    assert torch.allclose(degrees, torch.tensor([60.0, 150.0, 300.0, 390.0 - 360.0]).double(), atol=1e-4)
    scores = turned @ turned.T
    assert float(scores[0, 1]) == pytest.approx(float(scores[2, 3]), abs=1e-6) and abs(float(scores[0, 1])) < 1e-6


@pytest.mark.parametrize(
    "rope", [Rope(theta=100.0), Rope(theta=100.0, interleaved=True), Rope(theta=100.0, dim=4)], ids=str
)
def test_p5_scores_depend_on_the_distance_alone(rope: Rope) -> None:
    rotation, n = Rotation(rope, 8), 12
    q, k = torch.randn(2, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    table = rotation.table(torch.arange(n).unsqueeze(0), ONE, torch.float64)
    queries, keys = (rotation.turn(v.expand(1, 1, n, 8), table)[0, 0] for v in (q, k))
    scores = queries @ keys.T
    for distance in range(-n + 1, n):
        same = scores.diagonal(distance)
        assert far(same, same[:1].expand_as(same)) < 1e-9
    assert far(scores.diagonal(1)[:1], scores.diagonal(2)[:1]) > 1e-4


def test_p6_a_position_past_the_table_is_an_error() -> None:
    model = random_model(LEARNED)
    model(random_tokens(1, 8))
    with pytest.raises(ValueError, match="a row of 9 tokens is longer than the 8"):
        model(random_tokens(1, 9))


def test_po5_a_row_grown_too_long_names_limit_and_length() -> None:
    model, cache = random_model(LEARNED), Cache(LEARNED, 1, dtype=torch.float64)
    model(random_tokens(1, 6), cache=cache)
    with pytest.raises(ValueError, match="a row of 10 tokens is longer than the 8"):
        model(random_tokens(1, 4), cache=cache)
    assert cache.lengths.tolist() == [6], "a refused step leaves the cache as it was"


def test_po1_a_declared_scaling_is_applied() -> None:
    scaling = RopeScaling(kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_length=64)
    plain, scaled = (inverse_frequencies(rope, 16, ONE)[0] for rope in (Rope(), Rope(scaling=scaling)))
    ratio = scaled / plain
    assert torch.allclose(ratio, torch.tensor([1.0, 0.7728, 0.1304] + [0.125] * 5), atol=5e-5)
    a, b = (
        Architecture(**{**SIZE, "d_head": 16}, position="rope", rope=rope) for rope in (Rope(), Rope(scaling=scaling))
    )
    tokens = random_tokens(1, 64)
    gap = (random_model(a)(tokens) - random_model(b)(tokens)).abs().amax(-1)[0]
    assert gap[0] == 0 and gap[8] > 1e-4 and gap[63] > 1e-4


def test_po1_an_unknown_scaling_is_refused() -> None:
    with pytest.raises(ArchitectureError, match=r"kind: 'ntk' is not one of 'linear', 'dynamic'"):
        RopeScaling(kind="ntk")  # type: ignore[arg-type]


def test_po3_a_scaling_cannot_be_set_without_effect() -> None:
    architecture = Architecture(**SIZE, position="rope")
    with pytest.raises(AttributeError):
        architecture.rope.theta = 5.0  # type: ignore[misc]
    changed = architecture.replace(rope=Rope(theta=5.0))
    tokens = random_tokens(1, 6)
    assert far(random_model(changed)(tokens), random_model(architecture)(tokens)) > 1e-3


@pytest.mark.parametrize("kind", ["rope", "sinusoidal"])
def test_po4_neighbours_do_not_share_a_position_in_half_precision(kind: str) -> None:
    positions = torch.arange(2048)
    if kind == "rope":
        rotation = Rotation(Rope(), 32)
        for dtype in (torch.bfloat16, torch.float16):
            cos, sin = rotation.table(positions.unsqueeze(0), ONE, dtype)
            assert cos.dtype == torch.float32
            exact = rotation.table(positions.unsqueeze(0), ONE, torch.float64)[0]
            assert (cos.double() - exact).abs().max() < 1e-3
            angles = torch.stack((cos, sin), -1)[0, 0].flatten(1)
            assert (angles[1:] - angles[:-1]).abs().amax(1).min() > 0.1
        model = random_model(Architecture(**{**SIZE, "d_head": 32}, position="rope"), dtype=torch.float32)
        tokens = random_tokens(1, 300)
        with torch.no_grad():
            full, half = model(tokens), model.to(torch.bfloat16)(tokens)
        assert float((half.float() - full).abs().mean() / full.abs().mean()) < 0.1
    else:
        table = sinusoids(positions, 32, Sinusoid())
        assert table.dtype == torch.float32 and (table[1:] - table[:-1]).abs().amax(1).min() > 0.1


def test_po7_the_callers_positions_are_gone_on_with() -> None:
    model, cache = random_model(LEARNED), Cache(LEARNED, 1, dtype=torch.float64)
    tokens = random_tokens(1, 8)
    model(tokens[:, :5], positions=torch.tensor([[0, 0, 1, 2, 2]]), cache=cache)
    steps = [model(tokens[:, i : i + 1], cache=cache) for i in range(5, 8)]
    whole = model(tokens, positions=torch.tensor([[0, 0, 1, 2, 2, 3, 4, 5]]))
    assert far(torch.cat(steps, 1), whole[:, 5:]) < 1e-9
    assert far(whole[:, 5:], model(tokens)[:, 5:]) > 1e-3


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_scaling_by_length_is_chosen_once_for_a_row(kind: str) -> None:
    scaling = RopeScaling(
        kind=kind,  # type: ignore[arg-type]
        factor=4.0,
        original_max_length=8,
        **({"short_factor": (1.0, 1.0), "long_factor": (1.0, 3.0)} if kind == "longrope" else {}),
    )
    architecture = Architecture(**SIZE, position="rope", rope=Rope(theta=100.0, scaling=scaling))
    model, tokens = random_model(architecture), random_tokens(1, 12)
    declared = Cache(architecture, 1, dtype=torch.float64, total_lengths=torch.tensor([12]))
    parts = [model(tokens[:, :3], cache=declared), model(tokens[:, 3:], cache=declared)]
    assert far(torch.cat(parts, 1), model(tokens)) < 1e-9
    undeclared = Cache(architecture, 1, dtype=torch.float64)
    model(tokens[:, :3], cache=undeclared)
    with pytest.raises(ValueError, match="declare how long they will become"):
        model(tokens[:, 3:], cache=undeclared)
    beyond = Cache(architecture, 1, dtype=torch.float64)
    model(tokens[:, :9], cache=beyond)
    if kind == "longrope":  # which stays with the long factors once past the length
        assert far(model(tokens[:, 9:], cache=beyond), model(tokens)[:, 9:]) < 1e-9
    else:
        with pytest.raises(ValueError, match="past the original length of 8"):
            model(tokens[:, 9:], cache=beyond)
    with pytest.raises(ValueError, match="read packed documents one by one"):
        model(tokens, mask=torch.tensor([[1] * 5 + [2] * 7]))


def test_alibi_slopes_for_heads_that_are_no_power_of_two() -> None:
    assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(6) == [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
