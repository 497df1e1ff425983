"""Products of every format on every set of instructions that the machine has, against float64; teams of threads."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from plait.checkpoint import PlaitNotice
from plait.engine import kernels
from plait.engine.kernels import ACTIVATIONS, BACKENDS, Team, find, product, unpack_rows
from plait.engine.packed import FORMATS, Packed, pack, unpack
from tests.engine.packing import drawn, expected

pytestmark = pytest.mark.skipif(not kernels.available(), reason=kernels.why_not() or "there are kernels")

LIBRARIES = {name: found.library for name in BACKENDS if (found := find(name)).library} if kernels.available() else {}
if path := os.environ.get("PLAIT_TESTED_KERNELS"):  # make check-kernels: AVX-512, acted out
    LIBRARIES["tested"] = kernels.load(Path(path).resolve())


@pytest.fixture(scope="module", params=LIBRARIES)
def team(request: pytest.FixtureRequest) -> Team:
    return Team(2, LIBRARIES[request.param])


def draw(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def error(y: Tensor, x: Tensor, packed: Packed) -> float:
    """The largest error, in units of float32's precision times the sum of the magnitudes that were added."""
    right, magnitude = expected(x, packed)
    return float(((y - right).abs() / (magnitude * 2**-24 + 1e-30)).max()) if y.numel() else 0.0


def test_products_of_ten_thousand_random_shapes(team: Team):
    """Rows not of 16, inputs not of 32, no row at all: 8 numbers of rows of X for each of 1250 matrices."""
    torch.manual_seed(0)
    generator = draw()

    def number(most: int) -> int:
        return int(torch.randint(1, most + 1, (1,), generator=generator))

    worst: dict[str, float] = dict.fromkeys(FORMATS, 0.0)
    formats = list(FORMATS)
    for case in range(1250 if team.library is LIBRARIES[kernels.backend()] else 100):
        format = formats[case % len(formats)]
        packed = drawn(format, number(70), number(140), generator)
        x = torch.randn(80, packed.columns, generator=generator)
        y = product(team, packed, x)
        worst[format] = max(worst[format], error(y, x, packed))
        for n in (0, 1, 7, 64, 65, number(80), number(16)):
            assert torch.equal(product(team, packed, x[:n]), y[:n]), (format, packed.rows, packed.columns, n)
    assert max(worst.values()) < 40, worst  # sums of up to 140 terms, one after the other


@pytest.mark.parametrize("format", FORMATS)
def test_long_and_wide(team: Team, format: str):
    packed = drawn(format, 40, 5000, draw())
    x = torch.randn(101, 5000, generator=draw())
    y = product(team, packed, x)
    assert error(y, x, packed) < 100
    assert torch.equal(product(team, packed, x[77:78]), y[77:78]), "a row is the same alone"


@pytest.mark.parametrize("format", FORMATS)
def test_the_number_of_threads_changes_nothing(team: Team, format: str):
    packed, x = drawn(format, 333, 200, draw()), torch.randn(9, 200, generator=draw())
    y = product(team, packed, x)
    for threads in (1, 2, 3):
        assert torch.equal(product(Team(threads, team.library), packed, x), y)


@pytest.mark.parametrize("format", FORMATS)
def test_rows_may_lie_apart(team: Team, format: str):
    packed = drawn(format, 21, 50, draw())
    x, y = torch.randn(5, 60, generator=draw()), torch.full((5, 30), 7.0)
    product(team, packed, x[:, 3:53], add_to=y[:, 4:25], skip=0.0)
    assert torch.equal(y[:, 4:25], product(team, packed, x[:, 3:53].contiguous()))
    assert (y[:, :4] == 7).all() and (y[:, 25:] == 7).all()


EXACT = {
    "none": lambda x: x,
    "relu": F.relu,
    "relu2": lambda x: F.relu(x) ** 2,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "tanh": torch.tanh,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(team: Team, activation: str):
    x = torch.cat([torch.linspace(-30, 30, 2001), torch.randn(500, generator=draw()) / 100])[:, None]
    one = pack(torch.ones(1, 1), "F32")
    y, right = product(team, one, x, activation=activation), EXACT[activation](x.double())
    assert ((y - right).abs() <= 1e-6 * x.abs().clamp(max=1) + 5e-7 * right.abs()).all()
    worst = torch.tensor([[math.inf], [math.nan], [200.0], [-200.0]])
    y, right = product(team, one, worst, activation=activation), EXACT[activation](worst)
    assert torch.equal(y.isnan(), right.isnan())
    assert torch.allclose(y, right, atol=1e-30, equal_nan=True)


def test_bias_scale_and_skip(team: Team):
    weight, bias = torch.randn(37, 20, generator=draw()), torch.randn(37, generator=draw())
    x, old = torch.randn(7, 20, generator=draw()), torch.randn(7, 37, generator=draw())
    packed, right = pack(weight, "F32"), x.double() @ weight.double().T + bias
    assert torch.allclose(product(team, packed, x, bias=bias).double(), right, atol=1e-5)
    y = old.clone()
    assert product(team, packed, x, bias=bias, activation="silu", scale=0.5, skip=2.0, add_to=y) is y
    assert torch.allclose(y.double(), 2 * old.double() + 0.5 * F.silu(right), atol=1e-5)


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_no_number_stays_none(team: Team, format: str):
    packed, x = drawn(format, 20, 70, draw()), torch.randn(3, 70, generator=draw())
    for value in (math.nan, math.inf):
        x[1, 33] = value
        y = product(team, packed, x)
        assert y[[0, 2]].isfinite().all() and not y[1].isfinite().any()
    x[1] = 0
    assert not product(team, packed, x)[1].any()
    x[1] = 1e-44
    assert product(team, packed, x).isfinite().all()


@pytest.mark.parametrize("format", FORMATS)
def test_rows_unpack_to_the_same_numbers(team: Team, format: str):
    packed = drawn(format, 37, 75, draw())
    rows = torch.tensor([36, 0, 5, 5, 16])
    assert torch.equal(unpack_rows(team, packed, rows), unpack(packed)[rows])
    assert torch.equal(unpack_rows(team, packed, rows, 0.5), unpack(packed)[rows] * 0.5)


def test_sizes_are_those_of_the_library(team: Team):
    for layout in FORMATS.values():
        for columns in (0, 1, 31, 32, 33, 1000):
            assert team.library.plait_panel_bytes(layout.number, columns) == -(-columns // layout.inputs) * layout.bytes


def test_sets_of_instructions_agree():
    """Integer sums are identical; of floats, only what is fused differs."""
    packed, x = drawn("I8", 64, 256, draw()), torch.randn(6, 256, generator=draw())
    results = [product(Team(1, library), packed, x) for library in LIBRARIES.values()]
    assert all(torch.allclose(y, results[0], rtol=1e-6, atol=1e-4) for y in results)


def test_two_teams_at_once():
    packed, x = drawn("I4M", 200, 300, draw()), torch.randn(4, 300, generator=draw())
    teams = [Team(2), Team(2)]
    y = product(teams[0], packed, x)

    def many(team: Team) -> bool:
        return all(torch.equal(product(team, packed, x), y) for _ in range(300))

    with ThreadPoolExecutor(4) as threads:  # two of them share a team, and take turns
        assert all(threads.map(many, [teams[0], teams[1], teams[0], teams[1]]))


def test_a_forked_child_has_a_team_of_its_own():
    script = """
import os, torch
from plait.engine.kernels import Team, product
from plait.engine.packed import pack
team, packed, x = Team(3), pack(torch.ones(100, 40), "F32"), torch.ones(2, 40)
assert (product(team, packed, x) == 40).all()
child = os.fork()
assert (product(team, packed, x) == 40).all()
del team
if child == 0:
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_what_does_not_fit_is_refused(team: Team):
    packed, x = pack(torch.ones(3, 4), "F32"), torch.ones(2, 4)
    for wrong in (torch.ones(2, 5), torch.ones(4), x.double(), torch.ones(4, 2).T, x.to("meta")):
        with pytest.raises(ValueError, match=r"x has to be float32 \(n, 4\)"):
            product(team, packed, wrong)
    with pytest.raises(ValueError, match="bias"):
        product(team, packed, x, bias=torch.ones(4))
    with pytest.raises(ValueError, match="gelu_tanh"):
        product(team, packed, x, activation="swish")
    with pytest.raises(ValueError, match="add_to"):
        product(team, packed, x, add_to=torch.ones(2, 4))
    with pytest.raises(ValueError, match="3 rows and x 2"):
        product(team, packed, x, add_to=torch.ones(3, 3))
    with pytest.raises(ValueError, match="from 0 to 2"):
        unpack_rows(team, packed, torch.tensor([3]))
    with pytest.raises(ValueError, match="at least one"):
        Team(0)


def test_instructions_that_are_not_there_are_replaced_by_the_best_with_a_notice(monkeypatch: pytest.MonkeyPatch):
    best, real = find(""), kernels._path
    monkeypatch.setattr(kernels, "_path", lambda name: None if name == "avx512" else real(name))  # as if not built
    assert find("avx512").library is None
    left = [name for name in LIBRARIES if name in BACKENDS and name != "avx512"]
    with pytest.warns(
        PlaitNotice, match=f"PLAIT_KERNELS=avx512, but .* have .*{left[-1]}. {left[-1]} is taken instead"
    ):
        found = kernels.find_or_best("avx512")
    assert found.library is not None and found.library.plait_backend().decode() == left[-1]
    assert kernels.find_or_best("portable").library.plait_backend() == b"portable"  # no notice, or it would be raised
    assert kernels.find_or_best("off").library is None and best.library is not None


def test_without_kernels_the_notice_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernels, "_path", lambda _: None)
    for wanted in ("", "avx2"):
        assert "install one, and then plait again" in kernels.find_or_best(wanted).why_not
