"""Compensation: what rounding takes from a weight is made up for by those that are not rounded yet.

A matrix is as good as its outputs. With ``H = E[x x^T]`` of its inputs on a text, those of a row miss by ``(w - w') H
(w - w')^T``: inputs go together, so that others can take back the error of one. Columns are rounded one after the
other, and each error is spread over the columns to come as the inverse of H says (GPTQ, Frantar et al. 2022, equations
2 and 3), the scales being searched with what an error costs there. Then some sweeps set each integer to what is best
beside all the others (QuantEase, Behdin et al. 2023), and each group's line to the least-squares one.
"""

# r rows. A slab is (width, r): a column's weights lie side by side, and a group is (32, r)

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from plait.checkpoint.blocks import Blocks
from plait.checkpoint.rounding import GRIDS, GROUP, Grid, Line, checked, inverse, stored, values

WIDEST = 4096  # inputs whose moments are held together, and between which errors are made up for
_SWEEPS = 3
_DAMPING = 0.01  # of the mean square input: keeps to the text's directions without trusting it for all others
_ROWS = 1024  # at a time


def slab_width(columns: int) -> int:
    """How many inputs of a matrix are taken together: the most that divide it, whole groups, not above ``WIDEST``."""
    return next((n for n in range(min(columns, WIDEST), 0, -1) if columns % n == 0 and n % GROUP == 0), columns)


def compensate(weight: Tensor, kind: str, moments: Tensor) -> Blocks:
    """``weight`` ``(rows, columns)`` in blocks of ``kind``, its outputs as near as was found to what they were.

    ``moments`` ``(slabs, width, width)``: ``E[x x^T]`` of each slab of inputs. Raises ``CheckpointError`` for what
    cannot be rounded, as ``round_to_blocks`` does.
    """
    weight = checked(weight, kind)
    with torch.inference_mode(False):
        slabs = weight.split(moments.shape[1], 1)
        rounded = [_round_slab(slab, h, GRIDS[kind]) for slab, h in zip(slabs, moments, strict=True)]
    rows, columns = weight.shape
    return Blocks(kind, rows, columns, torch.cat(rounded, 1))


def output_error(weight: Tensor, rounded: Blocks, moments: Tensor) -> float:
    """``sqrt(E |(w - w') x|^2 / E |w x|^2)`` over the inputs that were seen; 0 where there are no outputs."""

    def power(w: Tensor) -> float:
        return sum(
            float(((part @ h) * part).sum()) for part, h in zip(w.split(moments.shape[1], 1), moments, strict=True)
        )

    weight = weight.detach().cpu().float()
    whole = power(weight)
    return math.sqrt(max(0.0, power(weight - rounded.dequantised())) / whole) if whole > 0 else 0.0


def _round_slab(weight: Tensor, h: Tensor, grid: Grid) -> Tensor:
    """Bytes ``(rows, bytes)`` of some columns, whole groups."""
    h, spread = _prepared(h)

    def round_rows(rows: Tensor) -> Tensor:
        x = rows.float().t().contiguous()
        q, lines = _spread_errors(x, spread, grid)
        for _ in range(_SWEEPS):
            _sweep(x, h, grid, q, lines)
        blocks = [grid.blocks(q[g : g + GROUP], line) for g, line in zip(_groups(x), lines, strict=True)]
        return torch.stack(blocks, 1).flatten(1)

    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as threads:
        return torch.cat(list(threads.map(round_rows, weight.split(_ROWS))))


def _prepared(h: Tensor) -> tuple[Tensor, Tensor]:
    """Damped moments, and the upper triangle ``u`` of their inverse ``u^T u``."""
    mean = float(h.diagonal().mean())
    exact = h.double() / mean if mean > 0 else torch.eye(len(h), dtype=torch.float64)
    exact.diagonal().add_(_DAMPING)
    u = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(exact)), upper=True)
    return exact.float(), u.float()


def _groups(x: Tensor) -> range:
    return range(0, len(x), GROUP)


def _spread_errors(x: Tensor, u: Tensor, grid: Grid) -> tuple[Tensor, list[Line]]:
    """Integers ``(width, r)`` and the groups' lines; what a column misses is spread over those after it."""
    rest, q, lines = x.clone(), torch.empty_like(x), list[Line]()
    for g in _groups(x):
        group, own = rest[g : g + GROUP], u[g : g + GROUP, g : g + GROUP]
        line = stored(*grid.best(group, own.diagonal().square().reciprocal().unsqueeze(1)))
        missed = torch.empty_like(group)
        for j in range(GROUP):
            q[g + j] = grid.nearest(group[j], line)
            missed[j] = (group[j] - values(q[g + j], line)) / own[j, j]
            group[j + 1 :] -= own[j, j + 1 :, None] * missed[j]
        rest[g + GROUP :] -= u[g : g + GROUP, g + GROUP :].t() @ missed
        lines.append(line)
    return q, lines


def _sweep(x: Tensor, h: Tensor, grid: Grid, q: Tensor, lines: list[Line]) -> None:
    """Make every integer, then its group's line, the best beside all the others, in place."""
    slope = h @ (x - torch.cat([values(q[g : g + GROUP], line) for g, line in zip(_groups(x), lines, strict=True)]))
    for i, g in enumerate(_groups(x)):
        here, own = slice(g, g + GROUP), h[g : g + GROUP, g : g + GROUP]
        group, pull = q[here], slope[here].clone()  # what half the error would fall by, for each weight
        before = values(group, lines[i])
        for j in range(GROUP):
            was = values(group[j], lines[i])
            group[j] = grid.nearest(was + pull[j] / own[j, j], lines[i])
            pull[j + 1 :] -= own[j, j + 1 :, None] * (values(group[j], lines[i]) - was)
        pull = slope[here] - own @ (values(group, lines[i]) - before)
        lines[i] = _refitted(group, own, pull, lines[i], grid)
        slope -= h[:, here] @ (values(group, lines[i]) - before)


def _refitted(q: Tensor, h: Tensor, pull: Tensor, line: Line, grid: Grid) -> Line:
    """The line that least squares has for integers ``(32, r)``, where the error's slope is ``pull``."""
    along = h @ q
    of_q, qq = (q * pull).sum(0), (q * along).sum(0)
    if not grid.has_minimum:
        return stored(line[0] + of_q * inverse(qq), line[1])
    of_one, q1, one = pull.sum(0), along.sum(0), h.sum()
    share = inverse(qq * one - q1 * q1)
    return stored(line[0] + (of_q * one - of_one * q1) * share, line[1] + (of_one * qq - of_q * q1) * share)
