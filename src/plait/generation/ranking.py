"""Ranking: of each of many searches the likeliest continuations, found for all of them in a few passes over memory."""

# b hypotheses of all searches, r of one

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Candidate(NamedTuple):
    """One continuation: the hypothesis of its search that it goes on from, its token, the sum of what the rules left
    its tokens, and the token's own log-probability."""

    parent: int
    token: int
    total: float
    own: float


def likeliest(own: Tensor, left: Tensor, totals: Tensor, sizes: Sequence[int], n: int) -> list[list[Candidate]]:
    """For each search its ``n`` continuations of the largest sum, largest first, of equal ones the first; fewer where
    so many are not possible.

    Log-probabilities ``own`` ``(b, vocab)``, what the rules ``left`` of them, the sums so far ``totals`` ``(b,)``, and
    how many rows belong to each search.
    """
    vocab_size = left.shape[1]
    best = _top(left, min(n + 1, vocab_size))  # the n best of a search are among the n best of its rows
    sums = (left.gather(1, best) + totals[:, None]).cpu().numpy()
    tokens, logprobs = best.cpu().numpy(), own.gather(1, best).cpu().numpy()
    # Whether one that is equal to the last in a row may stand before it in the vocabulary, and was not given
    torn = (sums[:, n - 1] == sums[:, n]) & (sums[:, n] > -math.inf) if n < vocab_size else np.zeros(len(sums), bool)
    search = np.repeat(np.arange(len(sizes)), sizes)
    rows = np.broadcast_to(np.arange(len(sums))[:, None], sums.shape)
    order = np.lexsort((tokens.ravel(), rows.ravel(), -sums.ravel(), search[rows].ravel()))
    found: list[list[Candidate]] = []
    width = sums.shape[1]
    for size, end in zip(sizes, accumulate(sizes), strict=True):
        start = end - size
        if torn[start:end].any():
            found.append(_exactly(own[start:end], left[start:end], totals[start:end], n))
            continue
        places = order[start * width : end * width][:n]
        of_row, of_rank = np.divmod(places, width)
        values = sums[of_row, of_rank]
        columns = (of_row - start, tokens[of_row, of_rank], values, logprobs[of_row, of_rank])
        found.append(
            [Candidate(*of) for of in zip(*(column[values > -math.inf].tolist() for column in columns), strict=True)]
        )
    return found


def _top(x: Tensor, k: int) -> Tensor:
    """Which columns of ``(b, n)`` hold the ``k`` largest of each row ``(b, k)``, largest first.

    Of many columns first the largest of each 32 that are equally far apart, in one pass over contiguous memory: the k
    largest of all stand among those of the k best such groups, and among the few columns left over.
    """
    apart = x.shape[1] // 32
    if apart < 16 * k:
        return x.topk(k).indices
    groups = x[:, : 32 * apart].unflatten(1, (32, apart)).amax(1).topk(k).indices  # b k
    columns = (groups[:, :, None] + apart * torch.arange(32, device=x.device)).flatten(1)
    rest = torch.arange(32 * apart, x.shape[1], device=x.device).expand(len(x), -1)
    columns = torch.cat((columns, rest), 1)
    return columns.gather(1, x.gather(1, columns).topk(k).indices)


def _exactly(own: Tensor, left: Tensor, totals: Tensor, n: int) -> list[Candidate]:
    """The same of one search, by all that is there."""
    sums = left + totals[:, None]
    found = (divmod(place, left.shape[1]) for place in largest(sums.flatten(), n))
    return [Candidate(row, token, float(sums[row, token]), float(own[row, token])) for row, token in found]


def largest(values: Tensor, n: int) -> list[int]:
    """The places of the ``n`` largest of ``values`` ``(m,)``, largest first, of equal ones the first; -inf is none."""
    least = values.topk(min(n, len(values))).values[-1]
    places = ((values >= least) & (values > -math.inf)).nonzero()[:, 0]
    return places[values[places].sort(descending=True, stable=True).indices[:n]].tolist()
