"""Embedding: from token numbers to the residual stream, by tables for tokens, positions and types."""

from __future__ import annotations

from torch import Tensor

from plait.architecture import Architecture
from plait.model.linear import Linear, Table
from plait.model.mask import Places
from plait.model.norm import Norm
from plait.model.position import sinusoids
from plait.model.sites import Part


class Embedding(Part):
    """``projection(norm(scale * tokens[t] + positions[p] + types[s]))``: what is not there is skipped.

    ``rows``: of the token table; ``None`` where another embedding lends its own. A type table's row 0 is added even
    when no types are given, as BERT does.
    """

    sites = ("output",)

    def __init__(self, a: Architecture, rows: int | None, *, types: bool) -> None:
        super().__init__()
        width = self.width = a.d_embedding
        self.scale, self.offset, self.max_length = a.embedding_scale, a.position_offset, a.max_length
        self.sinusoid = a.sinusoid
        self.tokens = Table(rows, width) if rows is not None else None
        self.positions = Table((a.max_length or 0) + a.position_offset, width) if a.position == "learned" else None
        self.types = Table(a.token_types, width) if types and a.token_types else None
        self.norm = Norm(a, width) if a.embedding_norm else None
        self.projection = Linear(width, a.d_model) if width != a.d_model else None

    def forward(self, tokens: Tensor, places: Places, types: Tensor | None, table: Table) -> Tensor:
        """``tokens`` ``(b, n)`` -> ``(b, n, d_model)``."""
        try:
            x = table(tokens)
        except IndexError:
            raise ValueError(
                f"tokens: {int(tokens.min())} to {int(tokens.max())}, but the table has {table.num_embeddings} rows."
            ) from None
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = x + self._look_up(self.positions, places.positions)
        elif self.sinusoid is not None:
            x = x + sinusoids(places.positions + self.offset, self.width, self.sinusoid).to(x.dtype)
        if types is not None and self.types is None:
            raise ValueError("token_types: this embedding has no table of types.")
        if self.types is not None:
            x = x + (self.types.weight[0] if types is None else self._look_up_types(self.types, types))
        x = x if self.norm is None else self.norm(x)
        x = x if self.projection is None else self.projection(x)
        return self.site("output", self.drop(x))

    def _look_up(self, table: Table, positions: Tensor) -> Tensor:
        try:
            return table(positions + self.offset)
        except IndexError:
            raise ValueError(
                f"length: a row of {int(positions.max()) + 1} tokens is longer than the {self.max_length} there are "
                "positions for."
            ) from None

    def _look_up_types(self, table: Table, types: Tensor) -> Tensor:
        try:
            return table(types.long())
        except IndexError:
            raise ValueError(
                f"token_types: {int(types.min())} to {int(types.max())}, but there are {table.num_embeddings} types."
            ) from None
