"""Layout: the operations of a program as structs, filled once, and everything that the structs point to."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from plait.architecture import RelativeBias, Sinusoid
from plait.engine import kernels, structs
from plait.engine import program as p
from plait.engine.interpret import Dense
from plait.engine.packed import Packed
from plait.engine.program import Operation, Program, View
from plait.engine.structs import SPACES
from plait.model.position import alibi_slopes, relative_buckets, sinusoids


class Weights(Dense, Protocol):
    """Parameters as the kernels read them: matrices packed, the rest ``dense``, float32."""

    def matrix(self, names: tuple[str, ...]) -> Packed:
        """Matrices on top of each other."""
        ...


class Layout:
    """Structs of operations, and all that they point to."""

    def __init__(self, program: Program, weights: Weights) -> None:
        self._weights = weights
        self._numbers = {register: number for number, register in enumerate(program.registers)}
        self.ropes = list(dict.fromkeys(o.rope for o in program.operations if isinstance(o, p.Rotate)))
        self.sinusoids: list[Sinusoids] = []
        self._held: dict[object, Any] = {}  # what structs point to

    def struct(self, operation: Operation) -> ctypes.Structure:
        """Its struct, filled."""
        kind = structs.OPERATIONS[type(operation)]
        values = {name: getattr(operation, name, None) for name, _ in kind._fields_}  # pyright: ignore
        values |= getattr(self, f"_{type(operation).__name__.lower()}", lambda _: {})(operation)
        if "activation" in values:
            values["activation"] = kernels.ACTIVATIONS.index(values["activation"] or "none")
        if "space" in values:
            values["space"] = SPACES.index(values["space"])
        filled = kind(
            **{name: self._view(v) if isinstance(v, View) else v for name, v in values.items() if v is not None}
        )
        if isinstance(operation, p.Embed) and operation.sinusoid is not None:
            self.sinusoids.append(Sinusoids(operation.sinusoid, operation.target.width, operation.offset, filled))
        return filled

    def _view(self, view: View) -> ctypes.Structure:
        return structs.View(self._numbers[view.register], view.start, view.width)

    def _tensor(self, key: object, make: Any) -> int:
        """The address of a tensor that is made once and kept."""
        if key not in self._held:
            self._held[key] = make().float().contiguous()
        return self._held[key].data_ptr()

    def _vector(self, name: str | None, plus: float = 0.0) -> int | None:
        if name is None:
            return None
        return self._tensor((name, plus), lambda: self._weights.dense(name).flatten() + plus)

    def _matrix(self, names: tuple[str, ...]) -> int:
        if names not in self._held:
            packed = self._weights.matrix(names)
            self._held[names] = (packed, kernels.matrix(packed))
        return ctypes.addressof(self._held[names][1])

    def _of_experts(self, name: str | None, count: int) -> int | None:
        """The matrices of all experts, one record after the other."""
        if name is None:
            return None
        if name not in self._held:
            packed = [self._weights.matrix((p.expert(name, number),)) for number in range(count)]
            self._held[name] = (packed, (kernels.Matrix * count)(*map(kernels.matrix, packed)))
        return ctypes.addressof(self._held[name][1])

    def _table(self, name: str | None) -> int | None:
        return None if name is None else self._tensor((name, "table"), lambda: self._weights.dense(name))

    def _embed(self, o: p.Embed) -> dict[str, Any]:
        return {
            "table": self._matrix((o.table,)),
            "positions": self._table(o.positions),
            "types": self._table(o.types),
        }

    def _norm(self, o: p.Norm) -> dict[str, Any]:
        names = [name for name in (o.weight, o.bias) if name is not None]
        lines = self._weights.dense(names[0]).numel() // o.width if names else 1
        return {"weight": self._vector(o.weight, float(o.offset)), "bias": self._vector(o.bias), "lines": lines}

    def _linear(self, o: p.Linear) -> dict[str, Any]:
        return {"matrix": self._matrix(o.weight), "bias": self._biases(o.bias, o)}

    def _biases(self, names: tuple[str | None, ...], o: p.Linear) -> int | None:
        if all(name is None for name in names):
            return None

        def stacked() -> Tensor:
            parts = [None if name is None else self._weights.dense(name) for name in names]
            rest = o.target.width - sum(part.numel() for part in parts if part is not None)
            return torch.cat([torch.zeros(rest) if part is None else part.flatten() for part in parts])

        return self._tensor((names, "bias"), stacked)

    def _gate(self, o: p.Gate) -> dict[str, Any]:
        return {"limit": math.inf if o.limit is None else o.limit}

    def _route(self, o: p.Route) -> dict[str, Any]:
        return {
            "score_bias": self._vector(o.score_bias),
            "sigmoid": o.spec.router == "sigmoid",
            "per_token": o.spec.per_token,
            "groups": o.spec.groups,
            "top_groups": o.spec.top_groups,
            "renormalize": o.spec.renormalize or o.spec.router == "softmax_topk",
            "scale": o.spec.routed_scale,
        }

    def _experts(self, o: p.Experts) -> dict[str, Any]:
        nowhere = structs.View(-1, 0, 0)
        return {
            **{name: self._of_experts(getattr(o, name), o.n_experts) for name in ("gate", "up", "down")},
            **{name: self._vector(getattr(o, name)) for name in ("gate_bias", "up_bias", "down_bias")},
            **{name: nowhere for name in ("shared", "shared_gate") if getattr(o, name) is None},
            "limit": math.inf if o.limit is None else o.limit,
        }

    def _rotate(self, o: p.Rotate) -> dict[str, Any]:
        return {"turns": self.ropes.index(o.rope), "interleaved": o.rope.interleaved}

    def _store(self, o: p.Store) -> dict[str, Any]:
        return {"keys": o.target}

    def _attend(self, o: p.Attend) -> dict[str, Any]:
        values: dict[str, Any] = {"heads": o.n_heads, "kv_heads": o.n_kv_heads, "relative": None, "sinks": None}
        if o.alibi is not None:
            scale = o.scale if o.alibi.scaled else 1.0
            slopes = ("slopes", o.n_heads, scale)
            values["slopes"] = self._tensor(slopes, lambda: torch.tensor(alibi_slopes(o.n_heads)) * scale)
        if o.sinks is not None:
            name = o.sinks
            values["sinks"] = self._tensor((name,), lambda: self._weights.dense(name))
        if o.relative is not None and o.relative_weight is not None:
            spec, name, reach = o.relative, o.relative_weight, o.relative.max_distance + 1
            key = (name, spec, o.causal)
            values["relative"] = self._tensor(key, lambda: _relative(self._weights.dense(name), spec, o.causal, reach))
            values["reach"] = reach
        return values


def _relative(weight: Tensor, spec: RelativeBias, causal: bool, reach: int) -> Tensor:
    """Biases ``(h, 2 * reach + 1)`` by distance, from those ``(buckets, h)`` by bucket; all beyond reach share one."""
    return weight[relative_buckets(torch.arange(-reach, reach + 1), spec, causal=causal)].T


class Sinusoids:
    """A table of sinusoids that grows with the positions asked for."""

    def __init__(self, spec: Sinusoid, width: int, offset: int, struct: ctypes.Structure) -> None:
        self._spec, self._width, self._offset, self._struct = spec, width, offset, struct
        self._table = torch.zeros(0, width)

    def cover(self, positions: np.ndarray) -> None:
        """Have a line for each of these."""
        needed = int(positions.max(initial=0)) + self._offset + 1
        if needed > len(self._table):
            lines = torch.arange(max(256, 1 << (needed - 1).bit_length()))
            self._table = sinusoids(lines, self._width, self._spec).contiguous()
            self._struct.positions = self._table.data_ptr()
