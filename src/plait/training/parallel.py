"""Parallel: a run spread over processes, put around the model from outside; torchrun starts them.

    data       every process has the model and other rows; gradients are summed
    fsdp       every process has other rows and a part of every tensor, gathered for its use (FSDP2; Zhao et al. 2023)
    tensor:N   N processes have the same rows and a slice of every layer; such teams have other rows

``wrap`` gives the loop its ``Ranks``. A loss is a sum divided once by all targets, so nothing here takes a mean.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor import zeros as distributed_zeros

from plait.checkpoint.notice import notice
from plait.checkpoint.replacing import whole_folder
from plait.data.stream import Stream
from plait.training.even import Even
from plait.training.processes import ParallelError, by_first, world_size
from plait.training.ranks import Alone, Ranks
from plait.training.settings import Run
from plait.training.shards import PARTS, read_shards, write_record, write_shards
from plait.training.states import State, folder_name, newest_folder, prune, read_state, record_of, save_state
from plait.training.tensor_parallel import check_divides, divide

BUCKET = 1 << 24  # numbers that are summed over processes at once


def kind_of(parallel: str) -> tuple[Literal["data", "fsdp", "tensor"], int]:
    """What ``run.parallel`` says: the kind, and how many processes hold one model."""
    word, _, number = parallel.partition(":")
    if word == "tensor" and number.isdecimal() and int(number) > 0:
        return "tensor", int(number)
    if parallel == "data" or parallel == "fsdp":
        return parallel, 1
    raise ParallelError(f"run.parallel: {parallel!r} is not 'data', 'fsdp' or 'tensor:N', as in 'tensor:2'.")


def wrap(model: nn.Module, run: Run) -> Ranks:
    """Spread a model over the processes that were joined, as ``run.parallel`` says; ``Alone`` where there is one.

    Call it before anything looks at the parameters: they are others afterwards. Every process must have the same
    weights. Raises ``ParallelError`` for what cannot be spread so, naming the part.
    """
    kind, n = kind_of(run.parallel)
    world = world_size()
    if kind == "tensor" and world % n:
        raise ParallelError(f"run.parallel: {world} processes are no whole number of teams of {n}.")
    if world == 1:
        if kind != "data":
            notice(f"run.parallel: {run.parallel} divides nothing in one process; torchrun starts more.")
        return Alone()
    check_precision(run)
    return {"data": Data, "fsdp": Sharded, "tensor": Teams}[kind](model, n)


def check_precision(run: Run) -> None:
    """``ParallelError`` for a precision in which the model cannot be divided as ``run.parallel`` says."""
    if kind_of(run.parallel)[0] != "data" and run.precision == "pure_bfloat16":
        raise ParallelError(f"run.precision: pure_bfloat16 keeps whole masters; with {run.parallel!r} say bfloat16.")


class Data:
    """Every process has the whole model."""

    def __init__(self, model: nn.Module, n: int = 1) -> None:
        self.model, self.readers = model, dist.group.WORLD  # those that read other rows
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = next(model.parameters()).device
        _in_buckets([value.data for value in model.parameters()], lambda whole: dist.broadcast(whole, 0))

    def stream(self, stream: Stream) -> Stream:
        """The same: no process waits for another inside a pass."""
        return stream

    def total(self, values: Tensor) -> Tensor:
        """See ``Ranks``."""
        total = values.to(self.device, copy=True)
        dist.all_reduce(total, group=self.readers)
        return total.to(values.device)

    def anywhere(self, said: Sequence[bool]) -> list[bool]:
        """See ``Ranks``."""
        flags = torch.tensor(said, dtype=torch.uint8, device=self.device)
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        return [bool(flag) for flag in flags.tolist()]

    def reduce(self, parameters: Mapping[str, Tensor]) -> None:
        """See ``Ranks``. What took no part here counts as 0, so that no process drifts from the others."""
        trained = [value for value in parameters.values() if value.requires_grad]
        for value in trained:
            if value.grad is None:
                value.grad = torch.zeros_like(value, dtype=value.grad_dtype)
        gradients = [value.grad for value in trained if value.grad is not None]
        _in_buckets(gradients, lambda whole: dist.all_reduce(whole, group=self.readers))

    def norm(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """See ``Ranks``."""
        return torch.nn.utils.get_total_norm(list(gradients.values()))

    def save(self, states: Path, state: State, *, keep: int, also: int | None) -> Path:
        """One process writes for all."""
        by_first(lambda: save_state(states, state, keep=keep, also=also))
        return states / folder_name(state.step)

    def newest(self, states: Path) -> State | None:
        """One process finds it, all read it."""
        found = by_first(lambda: newest_folder(states))
        return None if found is None else self.read(Path(found))

    def read(self, path: Path) -> State:
        """See ``Ranks``."""
        return read_state(path)

    def whole(self, name: str, value: Tensor) -> Tensor:
        """See ``Ranks``."""
        return value


class Parts(Data):
    """Every process has a part of the tensors; states are written and read by all of them (``shards.py``).

    ``places``: by a parameter's name the mesh and placements of it and all that belongs to it, and its whole shape.
    """

    places: Mapping[str, tuple[DeviceMesh, tuple[Placement, ...], torch.Size]]
    plain = False  # whether a process keeps its part as a plain tensor

    def save(self, states: Path, state: State, *, keep: int, also: int | None) -> Path:
        """See ``Ranks``."""
        target = states / folder_name(state.step)
        parts = {part: {k: self._told(_owner(part, k), v) for k, v in getattr(state, part).items()} for part in PARTS}
        told = State(step=state.step, counts=state.counts, **parts)
        with ExitStack() as stack:
            old = {path.name for path in target.iterdir()} if target.exists() else set[str]()
            new = Path(by_first(lambda: str(stack.enter_context(whole_folder(target, replaces=old)))))
            write_shards(new, told)

            def finish() -> None:
                write_record(new, told)
                stack.close()
                prune(states, state.step, keep=keep, also=also)

            by_first(finish)
        return target

    def read(self, path: Path) -> State:
        """See ``Ranks``; of a state that was saved whole each process takes its part."""
        record = record_of(path)
        if record.get("sharded"):
            state, mine = read_shards(path, record, self._empty), self._held
        else:
            state, mine = read_state(path), self._part
        parts = {part: {k: mine(_owner(part, k), v) for k, v in getattr(state, part).items()} for part in PARTS}
        return State(step=state.step, counts=state.counts, **parts)

    def whole(self, name: str, value: Tensor) -> Tensor:
        """See ``Ranks``."""
        told = self._told(name, value)
        return told.full_tensor() if isinstance(told, DTensor) else told

    def _told(self, name: str, value: Tensor) -> Tensor:
        if not self.plain or name not in self.places or value.ndim != len(self.places[name][2]):
            return value
        mesh, placements, _ = self.places[name]
        return DTensor.from_local(value, mesh, placements, run_check=False)

    def _held(self, name: str, value: Tensor) -> Tensor:
        return value.to_local() if self.plain and isinstance(value, DTensor) else value

    def _empty(self, key: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        part, _, rest = key.partition("/")
        mesh, placements, whole = self.places.get(_owner(part, rest), (None, (), None))
        if mesh is None or shape != whole:
            return torch.empty(shape, dtype=dtype)
        return distributed_zeros(shape, dtype=dtype, device_mesh=mesh, placements=placements)

    def _part(self, name: str, value: Tensor) -> Tensor:
        mesh, placements, whole = self.places.get(name, (None, (), None))
        if mesh is None or value.shape != whole:
            return value
        return self._held(name, distribute_tensor(value.to(self.device), mesh, placements))


class Sharded(Parts):
    """FSDP2: a group for each block, and one for the rest, in which embedding and tied head lie."""

    def __init__(self, model: nn.Module, n: int = 1) -> None:
        super().__init__(model)
        mesh = init_device_mesh(self.device.type, (self.world,))
        for tower in (
            model.get_submodule(name) for name, _ in model.named_children() if name in ("encoder", "decoder")
        ):
            for block in tower.get_submodule("layers").children():
                fully_shard(block, mesh=mesh)
        self.root = fully_shard(model, mesh=mesh)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)  # a sum: the loss was divided by all targets
                module.set_force_sum_reduction_for_comms(True)
        for method in ("states", "encode"):
            register_fsdp_forward_method(model, method)
        found = {name: value for name, value in model.named_parameters() if isinstance(value, DTensor)}
        self.places = {name: (value.device_mesh, value.placements, value.shape) for name, value in found.items()}

    def stream(self, stream: Stream) -> Stream:
        """As many micro-batches in every process: all gather weights together."""
        return Even(stream, self.device)

    def total(self, values: Tensor) -> Tensor:
        """See ``Ranks``. Called between passes: what a pass without gradients left gathered is let go."""
        self.root.reshard()
        return super().total(values)

    def reduce(self, parameters: Mapping[str, Tensor]) -> None:
        """Nothing: it was done on the way back."""

    def norm(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """See ``Ranks``."""
        norm = super().norm(gradients)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm


class Teams(Parts):
    """Tensor parallel: ``n`` processes hold one model."""

    plain = True

    def __init__(self, model: nn.Module, n: int) -> None:
        check_divides(model, n)
        super().__init__(model)
        mesh = _teams(self.device.type, self.world, n)
        whole = {name: value.shape for name, value in model.named_parameters()}
        self.team, self.readers = mesh.get_group("slices"), mesh.get_group("rows")
        self.rank, self.world = mesh.get_local_rank("rows"), self.world // n
        self.cut = divide(model, self.team)
        self.places = {name: (mesh, (Replicate(), Shard(dim)), whole[name]) for name, dim in self.cut.items()}

    def norm(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """See ``Ranks``."""
        squares = torch.zeros(2, dtype=torch.float64, device=self.device)  # of slices, of what is whole everywhere
        for name, value in gradients.items():
            squares[0 if name in self.cut else 1] += value.double().square().sum()
        slices = squares[:1].clone()
        dist.all_reduce(slices, group=self.team)
        return (slices[0] + squares[1]).sqrt()


@functools.cache
def _teams(device: str, world: int, n: int) -> DeviceMesh:
    return init_device_mesh(device, (world // n, n), mesh_dim_names=("rows", "slices"))


def _owner(part: str, key: str) -> str:
    """The parameter that a state's tensor belongs to: optimizers say ``name:what``, averages ``steps:name``."""
    return key.rpartition(":")[0 if part == "optimizer" else 2]


def _in_buckets(tensors: list[Tensor], send: Callable[[Tensor], object]) -> None:
    """Change tensors in place by what ``send`` makes of many of them, one after the other in one vector."""
    bucket: list[Tensor] = []
    for i, tensor in enumerate(tensors):
        bucket.append(tensor)
        after = tensors[i + 1] if i + 1 < len(tensors) else None
        if after is None or after.dtype != tensor.dtype or sum(t.numel() for t in bucket) + after.numel() > BUCKET:
            whole = torch.cat([tensor.flatten() for tensor in bucket])
            send(whole)
            for tensor, new in zip(bucket, whole.split([tensor.numel() for tensor in bucket]), strict=True):
                tensor.copy_(new.view_as(tensor))
            bucket = []
