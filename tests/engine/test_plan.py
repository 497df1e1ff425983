import pytest
import torch

from plait.account import account
from plait.account.flops import encode, forward, next_token
from plait.architecture import Architecture, Classification
from plait.engine.explain import explain
from plait.engine.lower import lower
from plait.engine.plan import Load, costs
from plait.model import Transformer
from plait.parameters import parameters
from plait.presets import PRESETS, preset
from tests.models import shallow
from tests.strategies import over_grid


def check(a: Architecture) -> None:
    with torch.device("meta"):
        programs = lower(Transformer(a))
    shapes = parameters(a)
    used = {name for program in programs.values() for o in program.operations for name in o.weights}
    assert used == set(shapes), "the programs read every parameter, and nothing else"
    pooled = isinstance(a.head, Classification) and a.head.pooling is not None
    work = 0
    if "encoder" in programs:
        wanted = 1 if pooled else 7
        work += sum(c.flops for c in costs(programs["encoder"], shapes, Load(7, wanted, 7)))
    if "decoder" in programs:
        held = costs(programs["decoder"], shapes, Load(9, 1 if pooled else 9, 9, 7))
        work += sum(c.flops for c in held)
        step = sum(c.flops for c in costs(programs["decoder"], shapes, Load(1, 1, 12, 7)))
        source = {"source_length": 7} if a.kind == "encoder-decoder" else {}
        assert step == next_token(a, 11, **source).total
        assert work == forward(a, 9, **source).total
    else:
        assert work == forward(a, 7).total
    if a.kind == "decoder":
        assert sum(c.parameters for c in held) == account(a).parameters
    assert encode(a, 7).total <= work if "encoder" in programs else True


@over_grid
def test_the_programs_work_is_the_accounts(architecture: Architecture) -> None:
    check(architecture)


def test_so_is_that_of_every_preset() -> None:
    for name in PRESETS:
        check(shallow(preset(name)))


@pytest.mark.parametrize(
    "stored, asked", [("fp32", {}), ("int8", {"quantization": "int8"}), ("int4", {"quantization": "int4"})]
)
def test_the_plans_bytes_are_the_accounts(stored: str, asked: dict[str, str]) -> None:
    for name in PRESETS:
        a = shallow(preset(name))
        if a.kind == "decoder":
            lines = explain(a, {"decoder": Load(1, 1, 5)}, **asked)
            assert sum(line.bytes for line in lines) == account(a).bytes(stored), name


@pytest.mark.parametrize("name", PRESETS)
def test_what_towers_share_is_counted_once(name: str) -> None:
    a = shallow(preset(name))
    lines = explain(a, {"encoder": Load(8, 8, 8), "decoder": Load(1, 1, 8, 8)})
    counted = account(a).parameters
    assert (sum(line.parameters for line in lines), sum(line.bytes for line in lines)) == (counted, 4 * counted)
