"""Every operation's kernel against the same operation in torch, in float64, over random shapes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from plait.architecture import Activation, Alibi, Experts, RelativeBias, Rope, Sinusoid
from plait.engine import kernels
from plait.engine import program as p
from plait.engine.compiled import Compiled
from plait.engine.interpret import execute
from plait.engine.packed import pack
from plait.engine.pages import Pages, Run
from plait.engine.passes import Held, Pass, Turns
from plait.engine.program import Operation, Program, Register, Space
from plait.engine.waits import waits
from plait.engine.weights import read_matrix

pytestmark = pytest.mark.skipif(not kernels.available(), reason=kernels.why_not())

CASES = 40  # of each operation, for each team
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)


@pytest.fixture(scope="module", params=[1, 2, 3])
def team(request: pytest.FixtureRequest) -> Iterator[kernels.Team]:
    """Torch's own threads, which would wait busily between tiny operations, are out of its way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    path = os.environ.get("PLAIT_TESTED_KERNELS")  # make check-kernels: AVX-512, acted out
    yield kernels.Team(request.param, kernels.load(Path(path)) if path else None)
    torch.set_num_threads(before)


class Parameters:
    """Random weights by name, as the kernels and as torch read them."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        self.tensors = {name: torch.randn(shape) for name, shape in shapes.items()}

    def dense(self, name: str) -> torch.Tensor:
        return self.tensors[name].double()

    def matrix(self, names: tuple[str, ...]) -> Any:
        return pack(torch.cat([read_matrix(self.tensors.__getitem__, name) for name in names]), "F32")


def a_pass(rng: np.random.Generator, counts: Sequence[int], held: Sequence[int] | None = None, **changes: Any) -> Pass:
    """``counts``: rows of each sequence, the last of the ``held`` tokens that it has then."""
    held = counts if held is None else held
    n = sum(counts)
    orders = [np.arange(max(h - c, 0), max(h - c, 0) + c) for c, h in zip(counts, held, strict=True)]
    joined = np.concatenate([*orders, np.zeros(0)]).astype(np.int32)
    made = Pass(
        tokens=rng.integers(0, 10, n, dtype=np.int32),
        positions=joined + np.int32(rng.integers(0, 9)),
        orders=joined,
        sequences=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
        begins=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        taken=np.sort(rng.choice(n, int(rng.integers(0, n + 1)), replace=False)).astype(np.int32),
        spaces={},
    )
    return dataclasses.replace(made, **changes)


def counts(rng: np.random.Generator) -> list[int]:
    return [int(n) for n in rng.choice([0, 1, 1, 2, 3, 17], int(rng.integers(1, 4)))]


def agree(
    team: kernels.Team,
    operations: Sequence[Operation],
    weights: Any,
    pass_: Pass,
    *,
    atol: float = 1e-5,
    case: object = "",
) -> None:
    """Kernels in float32 leave in every register what torch leaves there in float64."""
    output = operations[-1].target.register
    program = Program("test", tuple(operations), output, causal=True)
    rows = {r: len(pass_.taken) if r.taken else pass_.rows for r in program.registers}
    mine = {r: torch.randn(n, r.width) for r, n in rows.items()}
    theirs = {r: tensor.double() for r, tensor in mine.items()}
    Compiled(program, weights, team).run(pass_, mine)
    for operation in operations:
        execute(operation, pass_, theirs, weights)
    for register in rows:
        try:
            torch.testing.assert_close(mine[register].double(), theirs[register], atol=atol, rtol=1e-5)
        except AssertionError as error:
            raise AssertionError(f"{case} {register}") from error


def every(
    team: kernels.Team, make: Callable[[np.random.Generator], tuple[Operation, Parameters]], **options: Any
) -> None:
    for seed in range(CASES):
        torch.manual_seed(seed)
        rng = np.random.default_rng(seed)
        operation, weights = make(rng)
        agree(team, [operation], weights, a_pass(rng, counts(rng)), case=(seed, operation), **options)


def view(rng: np.random.Generator, name: str, width: int, *, taken: bool = False) -> p.View:
    """Some columns of a register that may be wider."""
    before, after = (int(n) for n in rng.choice([0, 0, 3, 16], 2))
    return Register(name, before + width + after, taken).columns(before, width)


def size(rng: np.random.Generator) -> int:
    return int(rng.choice([1, 2, 7, 15, 16, 17, 31, 32, 40, 64, 100, 257]))


def test_norm(team: kernels.Team) -> None:
    def make(rng: np.random.Generator) -> tuple[Operation, Parameters]:
        width, runs = max(2, size(rng)), int(rng.integers(1, 5))
        source = view(rng, "x", width * runs)
        target = view(rng, "y", width * runs) if rng.random() < 0.5 else source
        lines = int(rng.choice([1, runs]))
        names = {name: (width * lines,) for name in ("weight", "bias") if rng.random() < 0.7}
        kind = {"centred": bool(rng.random() < 0.5), "offset": bool(rng.random() < 0.5)}
        norm = p.Norm(source=source, target=target, width=width, eps=1e-5, **kind, **{name: name for name in names})
        return norm, Parameters(**names)

    every(team, make, atol=5e-5)


def test_embed(team: kernels.Team) -> None:
    def make(rng: np.random.Generator) -> tuple[Operation, Parameters]:
        width = 2 * size(rng)
        options: dict[str, Any] = {"positions": "positions", "offset": 2} if rng.random() < 0.4 else {}
        if not options and rng.random() < 0.5:
            layouts = ("interleaved", "halves")
            options = {"sinusoid": Sinusoid(layout=layouts[int(rng.integers(2))]), "offset": int(rng.integers(3))}
        if rng.random() < 0.5:
            options["types"] = "types"
        weights = Parameters(table=(10, width), positions=(40, width), types=(2, width))
        return p.Embed(
            target=view(rng, "x", width), table="table", scale=float(rng.choice([1.0, 3.0])), **options
        ), weights

    every(team, make)
    rng = np.random.default_rng(0)
    embed = p.Embed(target=Register("x", 20).whole, table="table", types="types")
    pass_ = a_pass(rng, [3, 4], types=np.array([0, 1, 1, 0, 1, 0, 1], np.int32))
    agree(team, [embed], Parameters(table=(10, 20), types=(2, 20)), pass_)


def test_linear(team: kernels.Team) -> None:
    def make(rng: np.random.Generator) -> tuple[Operation, Parameters]:
        columns, rows = size(rng), [size(rng) for _ in range(int(rng.integers(1, 4)))]
        names = [f"weight{i}" for i in range(len(rows))]
        biases = [f"bias{i}" for i in range(len(rows))]
        shapes = {n: (r, columns) for n, r in zip(names, rows, strict=True)}
        shapes |= {n: (r,) for n, r in zip(biases, rows, strict=True)}
        add = bool(rng.random() < 0.5)
        linear = p.Linear(
            source=view(rng, "x", columns),
            target=view(rng, "y", sum(rows)),
            weight=tuple(names),
            bias=tuple(biases) if rng.random() < 0.5 else (None,) * len(rows),
            activation=None if rng.random() < 0.5 else ACTIVATIONS[int(rng.integers(len(ACTIVATIONS)))],
            add=add,
            skip=float(rng.choice([1.0, 0.5])) if add else 1.0,
            scale=float(rng.choice([1.0, 0.3])) if add else 1.0,
        )
        weights: Any = Parameters(**shapes)
        for name in names:
            weights.tensors[name] /= columns**0.5
        return linear, weights

    every(team, make)


def test_route(team: kernels.Team) -> None:
    def make(rng: np.random.Generator) -> tuple[Operation, Parameters]:
        groups, size = int(rng.choice([1, 1, 2, 4])), int(rng.integers(2, 9))
        top = int(rng.integers(1, groups + 1))
        router = "sigmoid" if groups > 1 else ("softmax", "softmax_topk", "sigmoid")[int(rng.integers(3))]
        spec = Experts(
            n_experts=groups * size,
            per_token=int(rng.integers(1, top * size + 1)),
            d_expert=1,
            router=router,
            selection_bias=bool(rng.random() < 0.5),
            renormalize=router != "softmax_topk" and bool(rng.random() < 0.5),
            routed_scale=float(rng.choice([1.0, 2.5])),
            groups=groups,
            top_groups=top,
        )
        target = view(rng, "routes", spec.n_experts)
        return p.Route(target=target, spec=spec, score_bias="bias" if spec.selection_bias else None), Parameters(
            bias=(spec.n_experts,)
        )

    every(team, make)


def test_experts(team: kernels.Team) -> None:
    for seed in range(CASES):
        torch.manual_seed(seed)
        rng = np.random.default_rng(seed)
        experts, width, d_expert = int(rng.integers(1, 9)), size(rng), size(rng)
        per_token, gated, biased = int(rng.integers(1, experts + 1)), rng.random() < 0.6, rng.random() < 0.5
        into, out = (experts, d_expert, width), (experts, width, d_expert)
        weights = Parameters(gate=into, up=into, down=out, gate_b=into[:2], up_b=into[:2], down_b=out[:2])
        for name, columns in (("gate", width), ("up", width), ("down", d_expert)):
            weights.tensors[name] /= columns**0.5
        routes = view(rng, "routes", experts)
        shared = {name: view(rng, name, w) for name, w in (("shared", width), ("shared_gate", 1)) if rng.random() < 0.6}
        operation = p.Experts(
            target=view(rng, "y", width),
            source=view(rng, "x", width),
            routes=routes,
            **(shared if "shared" in shared else {}),
            n_experts=experts,
            per_token=per_token,
            activation=ACTIVATIONS[int(rng.integers(len(ACTIVATIONS)))],
            limit=0.6 if gated and rng.random() < 0.5 else None,
            offset=float(rng.choice([0.0, 1.0])),
            gate="gate" if gated else None,
            up="up",
            down="down",
            **({"gate_bias": "gate_b" if gated else None, "up_bias": "up_b", "down_bias": "down_b"} if biased else {}),
        )
        route = p.Route(target=routes, spec=Experts(n_experts=experts, per_token=per_token, d_expert=1))
        agree(team, [route, operation], weights, a_pass(rng, counts(rng)), case=(seed, operation), atol=5e-5)


def test_elementwise(team: kernels.Team) -> None:
    def make(rng: np.random.Generator) -> tuple[Operation, Parameters]:
        width = size(rng)
        target = view(rng, "x", width)
        activation = ACTIVATIONS[int(rng.integers(len(ACTIVATIONS)))]
        wide = view(rng, "logits", int(rng.choice([5, 4096, 9000])), taken=True)
        return [
            p.Clamp(target=target, limit=0.7),
            p.Activate(target=target, activation=activation),
            p.Gate(
                target=target,
                up=view(rng, "up", width),
                activation=activation,
                limit=None if rng.random() < 0.5 else 0.6,
                offset=float(rng.choice([0.0, 1.0])),
            ),
            p.Add(target=target, source=view(rng, "y", width), skip=float(rng.choice([1.0, 0.7])), scale=0.3),
            p.Cap(target=wide, scale=0.5, softcap=None if rng.random() < 0.5 else 0.9),
            p.Take(target=view(rng, "taken", width, taken=True), source=target),
        ][int(rng.integers(6))], Parameters()

    for _ in range(3):
        every(team, make)


def test_rotate(team: kernels.Team) -> None:
    for seed in range(CASES):
        torch.manual_seed(seed)
        rng = np.random.default_rng(seed)
        d_head = int(rng.choice([4, 10, 64, 80, 128]))
        rope = Rope(dim=2 * int(rng.integers(1, d_head // 2 + 1)), interleaved=bool(rng.random() < 0.5))
        pass_ = a_pass(rng, counts(rng))
        lines = rng.integers(0, 12, pass_.rows, dtype=np.int32)
        table = rng.standard_normal((12, rope.dim or d_head)).astype(np.float32)
        target = view(rng, "heads", d_head * int(rng.integers(1, 5)))
        pass_ = dataclasses.replace(pass_, turns={rope: Turns(table, lines)})
        agree(team, [p.Rotate(target=target, d_head=d_head, rope=rope)], Parameters(), pass_, case=(seed, rope))


def fill(rng: np.random.Generator, pages: Pages) -> None:
    """Random keys and values in every place, also where there is no token."""
    for tensors in (pages.keys, pages.values):
        for tensor in tensors:
            tensor.copy_(torch.from_numpy(rng.standard_normal(tuple(tensor.shape)).astype(np.float32)))


def runs(rng: np.random.Generator, pages: Pages, lengths: Sequence[int]) -> list[Run]:
    """Sequences of these lengths, their pages in no order, some of them shared."""
    made: list[Run] = []
    gaps = [pages.take() for _ in range(int(rng.integers(0, 3)))]
    for length in lengths:
        longer = [run for run in made if run.length >= length]
        if longer and rng.random() < 0.3:
            run = longer[0].fork()
            run.truncate(length)
        else:
            run, start = Run(pages), int(rng.integers(0, 5))
            run.extend(np.arange(start, start + length, dtype=np.int32))
            for gap in gaps[:1]:
                pages.release(gap)
            gaps = gaps[1:]
        made.append(run)
    return made


def held(pages: Pages, sequences: Sequence[Run]) -> Held:
    return Held(pages, tuple(r.table for r in sequences), np.array([r.length for r in sequences], np.int32))


def hide(pages: Pages, sequences: Sequence[Run]) -> None:
    """No number where no sequence has a token: who reads there is found out."""
    used = np.zeros(pages.positions.shape, bool)
    for run in sequences:
        for order in range(run.length):
            used[run.table[order // 16], order % 16] = True
    unused = torch.from_numpy(~used)
    for keys, values in zip(pages.keys, pages.values, strict=True):
        keys.masked_fill_(unused[:, None, None, :], float("nan"))
        values.masked_fill_(unused[:, None, :, None], float("nan"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_store(team: kernels.Team, dtype: torch.dtype) -> None:
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        heads, d_head = int(rng.integers(1, 5)), int(rng.choice([4, 10, 64, 80, 128]))
        lengths = [int(n) for n in rng.choice([0, 1, 15, 16, 17, 60], int(rng.integers(1, 4)))]
        new = [int(rng.integers(0, n + 1)) for n in lengths]
        mine, theirs = (Pages(2, heads, d_head, dtype) for _ in range(2))
        both = [[Run(pages) for _ in lengths] for pages in (mine, theirs)]
        for group in both:
            for run, length in zip(group, lengths, strict=True):
                run.extend(np.arange(length, dtype=np.int32))
        width = heads * d_head
        store = p.Store(
            target=view(rng, "heads", width), values=view(rng, "values", width), space="self", layer=1, d_head=d_head
        )
        program = Program("test", (store,), store.target.register, causal=True)
        pass_ = a_pass(rng, new, lengths, spaces={"self": held(mine, both[0])})
        registers = {r: torch.randn(pass_.rows, r.width) for r in program.registers}
        Compiled(program, Parameters(), team).run(pass_, registers)
        execute(store, dataclasses.replace(pass_, spaces={"self": held(theirs, both[1])}), registers, Parameters())
        for a, b in zip((*mine.keys, *mine.values), (*theirs.keys, *theirs.values), strict=True):
            assert torch.equal(a, b), (seed, lengths, new)


def attention(rng: np.random.Generator, space: Space) -> p.Attend:
    kv_heads, group, d_head = int(rng.integers(1, 4)), int(rng.integers(1, 9)), int(rng.choice([4, 10, 64, 80, 128]))
    n_heads = kv_heads * group
    causal = space == "self"
    return p.Attend(
        target=view(rng, "mix", n_heads * d_head),
        queries=view(rng, "heads", n_heads * d_head),
        space=space,
        layer=1,
        n_heads=n_heads,
        n_kv_heads=kv_heads,
        d_head=d_head,
        scale=d_head**-0.5,
        causal=causal,
        window=int(rng.choice([1, 3, 16, 100])) if space != "memory" and rng.random() < 0.4 else None,
        softcap=1.5 if rng.random() < 0.3 else None,
        alibi=Alibi(scaled=bool(rng.random() < 0.5)) if space != "memory" and rng.random() < 0.3 else None,
        relative=RelativeBias(buckets=8, max_distance=20) if space != "memory" and rng.random() < 0.3 else None,
        relative_weight="relative",
        sinks="sinks" if rng.random() < 0.3 else None,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("space", ["self", "memory", "pass"])
def test_attend(team: kernels.Team, space: Space, dtype: torch.dtype) -> None:
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        attend = attention(rng, space)
        lengths = [int(n) for n in rng.choice([0, 1, 15, 16, 17, 150, 300], int(rng.integers(1, 5)))]
        if space == "self":  # one row each, or a chunk of any length
            new = [min(n, 1) if rng.random() < 0.5 else int(rng.integers(0, n + 1)) for n in lengths]
        else:
            new = lengths if space == "pass" else [int(n) for n in rng.choice([0, 1, 30], len(lengths))]
        pages = Pages(2, attend.n_kv_heads, attend.d_head, dtype, pages=1)
        sequences = runs(rng, pages, lengths)
        fill(rng, pages)
        hide(pages, sequences)
        pass_ = a_pass(rng, new, lengths, spaces={space: held(pages, sequences)})
        weights = Parameters(relative=(8, attend.n_heads), sinks=(attend.n_heads,))
        agree(team, [attend], weights, pass_, atol=2e-5, case=(seed, new, lengths, attend))


def test_a_row_attends_alike_alone_and_among_others(team: kernels.Team) -> None:
    """Bit for bit, in passes of one row, of a chunk, and of several sequences, whose tiles are divided differently."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    pages = Pages(1, 3, 20, torch.float32)
    run = Run(pages)
    run.extend(np.arange(700, dtype=np.int32))
    fill(rng, pages)
    width = 9 * 20
    attend = p.Attend(
        target=Register("mix", width).whole,
        queries=Register("heads", width).whole,
        space="self",
        layer=0,
        n_heads=9,
        n_kv_heads=3,
        d_head=20,
        scale=0.2,
        causal=True,
        window=500,
    )
    compiled = Compiled(Program("test", (attend,), attend.target.register, causal=True), Parameters(), team)
    queries = torch.randn(700, width)

    def mixed(first: int, last: int, sequences: int = 1) -> torch.Tensor:
        one = Held(pages, (run.table,) * sequences, np.array([last] * sequences, np.int32))
        pass_ = a_pass(rng, [last - first] * sequences, [last] * sequences, spaces={"self": one})
        registers = {attend.queries.register: queries[first:last].repeat(sequences, 1)}
        registers[attend.target.register] = torch.zeros(pass_.rows, width)
        compiled.run(pass_, registers)
        return registers[attend.target.register]

    whole = mixed(0, 700)
    assert torch.equal(mixed(300, 700), whole[300:])
    assert torch.equal(mixed(690, 695, sequences=2)[5:], whole[690:695])
    for row in (0, 1, 127, 128, 300, 699):
        assert torch.equal(mixed(row, row + 1)[0], whole[row]), row
        assert torch.equal(mixed(row, row + 1, sequences=5)[4], whole[row]), row


def test_pages_that_moved_are_found_again(team: kernels.Team) -> None:
    """Storage that grows has new addresses; so has a table that does."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    pages = Pages(2, 2, 8, torch.float32, pages=1)
    run = Run(pages)
    attend = dataclasses.replace(attention(np.random.default_rng(1), "self"), n_heads=4, n_kv_heads=2, d_head=8)
    attend = dataclasses.replace(
        attend,
        queries=Register("heads", 32).whole,
        target=Register("mix", 32).whole,
        relative=None,
        relative_weight=None,
        sinks=None,
    )
    compiled = Compiled(Program("test", (attend,), attend.target.register, causal=True), Parameters(), team)
    for _ in range(40):
        run.extend(np.arange(run.length, run.length + 7, dtype=np.int32))
        fill(rng, pages)
        pass_ = a_pass(rng, [7], [run.length], spaces={"self": held(pages, [run])})
        mine = {r: torch.randn(7, 32) for r in (attend.queries.register, attend.target.register)}
        theirs = {r: tensor.double() for r, tensor in mine.items()}
        compiled.run(pass_, mine)
        execute(attend, pass_, theirs, Parameters())
        torch.testing.assert_close(
            mine[attend.target.register].double(), theirs[attend.target.register], atol=1e-5, rtol=1e-5
        )


def test_members_wait_where_results_meet() -> None:
    x, y, z = (Register(name, 8).whole for name in "xyz")
    norm = p.Norm(source=x, target=y, width=8, eps=1e-5, centred=False, offset=False)
    into_z = p.Linear(source=y, target=z, weight=("w",), bias=(None,))
    gate = p.Gate(target=z, up=y, activation="silu")
    back = p.Linear(source=z, target=x, weight=("w",), bias=(None,), add=True)
    assert waits([norm, into_z, gate, back, norm], ()) == [False, True, True, True, True]
    assert waits([norm, into_z, gate, back, norm], (y.register,)) == [False, False, True, True, True]
    assert waits([norm, p.Add(target=x, source=x)], ()) == [False, False]  # members have the same rows
    assert waits([norm, p.Add(target=x, source=x)], (y.register,)) == [False, True]  # others still read them
    heads = Register("heads", 24)
    q, k, v = (heads.columns(8 * i, 8) for i in range(3))
    rotations = [p.Rotate(target=part, d_head=8, rope=Rope()) for part in (q, k)]
    store = p.Store(target=k, values=v, space="self", layer=0, d_head=8)
    attend = p.Attend(
        target=x, queries=q, space="self", layer=0, n_heads=1, n_kv_heads=1, d_head=8, scale=1.0, causal=True
    )
    assert waits([*rotations, store, attend, store], ()) == [False, False, False, True, True]
