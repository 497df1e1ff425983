"""Learn: the kernels' attention and activations with their gradients, as operations that torch can differentiate.

They are for float32 on a CPU, and torch.compile calls them as they are. Sums are made in one order, whatever the number
of threads.

Legend: b batch, h query heads, g key and value heads, q queries, k keys, d head width.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

from plait.engine.kernels import ACTIVATIONS, Team, library
from plait.engine.structs import integer, number, pointer, struct

Heads = struct("Heads", ("data", pointer), ("batch head row", integer))
Learn = struct(
    "Learn",  # of csrc/learn.h, field for field
    ("batch heads kv_heads rows keys d", integer),
    ("scale", number),
    ("causal", integer),
    ("allowed", pointer),
    ("allowed_batch allowed_row", integer),
    ("kept starts", pointer),
    ("query key value out", Heads),
    ("sums", pointer),
    ("d_out d_query d_key d_value", Heads),
)
Slope = struct(
    "Slope",  # of csrc/learn.h as well
    ("logits", pointer),
    ("outputs columns row", integer),
    ("targets", pointer),
    ("smoothing z_loss", number),
    ("keep", integer),
    ("losses", pointer),
)
Orthogonal = struct(
    "Orthogonal",
    ("x", pointer),
    ("matrices rows columns steps", integer),
    ("a b c eps", number),  # and this one
)
SLOPED = ("gelu", "gelu_tanh", "silu")  # activations that have a kernel for their slope


@torch.library.custom_op("plait::attend", mutates_args=())
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | None,
    kept: Tensor | None,
    starts: Tensor | None,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """``softmax(scale * Q K^T) V``, ``(b, h, q, d)`` of ``(b, g, k, d)``, and what its gradient needs besides.

    ``allowed`` ``(b or 1, 1, q, k)`` boolean; a query that sees nothing gets zeros. ``causal``: query i sees keys 0 to
    i. ``kept``: numbers that the pattern is multiplied by, those of a head from ``starts`` ``(b, h)`` on.
    """
    out, sums = _like(query), query.new_empty(query.shape[:3])
    _run(_record(query, key, value, out, sums, allowed, kept, starts, causal, scale), backward=False)
    return out, sums


@torch.library.custom_op("plait::attend_backward", mutates_args=())
def attend_backward(
    d_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    sums: Tensor,
    allowed: Tensor | None,
    kept: Tensor | None,
    starts: Tensor | None,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value."""
    record = _record(query, key, value, out, sums, allowed, kept, starts, causal, scale)
    found = _like(query), _like(key), _like(value)
    d_out = _rows(d_out)
    record.d_out = _heads(d_out)
    record.d_query, record.d_key, record.d_value = (_heads(x) for x in found)
    _run(record, backward=True)
    return found


@attend.register_fake
def _(query: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    return _like(query), query.new_empty(query.shape[:3])


@attend_backward.register_fake
def _(d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _like(query), _like(key), _like(value)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, allowed, kept, starts, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, *output, allowed, kept, starts)
    ctx.set_materialize_grads(False)


def _go_back(ctx: Any, d_out: Tensor | None, d_sums: Tensor | None) -> tuple[Tensor | None, ...]:
    if d_out is None:
        return (None,) * 8
    return (*attend_backward(d_out, *ctx.saved_tensors, ctx.causal, ctx.scale), None, None, None, None, None)


attend.register_autograd(_go_back, setup_context=_keep)


@torch.library.custom_op("plait::activate", mutates_args=())
def activate(x: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """An activation of ``SLOPED``, and its slope, which is all that its gradient needs."""
    x = x.contiguous()
    y, slope = torch.empty_like(x), torch.empty_like(x)
    called = library().plait_activate_learn
    called(_team().handle, ACTIVATIONS.index(kind), x.data_ptr(), x.numel(), y.data_ptr(), slope.data_ptr())
    return y, slope


@activate.register_fake
def _(x: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape)


activate.register_autograd(
    lambda ctx, d_y, d_slope: (d_y * ctx.saved_tensors[0], None),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output[1]),
)


def slope(logits: Tensor, targets: Tensor, *, smoothing: float, z_loss: float, keep: bool = False) -> Tensor:
    """Losses ``(c,)`` of logits ``(v, c)`` against ``(c,)`` targets; the logits become the losses' slopes by them, or
    where ``keep`` stay. Raises ``ValueError`` for a target that is no output."""
    targets = targets.to(torch.int64).contiguous()
    if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < len(logits):
        raise ValueError(f"targets: {int(targets.min())} to {int(targets.max())}, and there are {len(logits)} outputs.")
    assert logits.stride(1) == 1 or logits.shape[1] < 2, "places lie side by side"
    losses = logits.new_empty(len(targets))
    record = Slope(logits.data_ptr(), *logits.shape, logits.stride(0), targets.data_ptr(), smoothing, z_loss, keep)
    record.losses = losses.data_ptr()
    library().plait_slope_learn(_team().handle, ctypes.byref(record))
    return losses


def orthogonalise(x: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> None:
    """Bring the singular values of contiguous matrices ``(k, a, b)``, a <= b, near 1, in place."""
    record = Orthogonal(x.data_ptr(), *x.shape, steps, *coefficients, eps)
    library().plait_orthogonal_learn(_team().handle, ctypes.byref(record))


def _team() -> Team:
    return _teams(torch.get_num_threads())


@cache
def _teams(threads: int) -> Team:
    return Team(threads, borrowed=True)


def _run(record: Any, *, backward: bool) -> None:
    library().plait_attend_learn(_team().handle, ctypes.byref(record), backward)


def _like(x: Tensor) -> Tensor:
    """Empty ``(b, h, n, d)`` that lies as ``(b, n, h, d)``: what comes before and after needs no copy."""
    b, h, n, d = x.shape
    return x.new_empty(b, n, h, d).transpose(1, 2)


def _rows(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _heads(x: Tensor) -> Any:
    return Heads(x.data_ptr(), x.stride(0), x.stride(1), x.stride(2))


def _record(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    sums: Tensor,
    allowed: Tensor | None,
    kept: Tensor | None,
    starts: Tensor | None,
    causal: bool,
    scale: float,
) -> Any:
    (b, h, q, d), g, k = query.shape, key.shape[1], key.shape[2]
    record = Learn(b, h, g, q, k, d, scale, causal)
    record.query, record.key, record.value, record.out = (_heads(x) for x in (query, key, value, out))
    record.sums = sums.data_ptr()
    if allowed is not None:
        record.allowed, record.allowed_row = allowed.data_ptr(), allowed.stride(2)
        record.allowed_batch = allowed.stride(0) if len(allowed) > 1 else 0
    if kept is not None and starts is not None:
        record.kept, record.starts = kept.data_ptr(), starts.data_ptr()
    return record
