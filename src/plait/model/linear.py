"""Torch's linear layer and table, but empty when built: ``initialize`` draws, or a file fills, every number once."""

from torch import nn


class Linear(nn.Linear):
    """``x W^T + b``, with ``W`` ``(out, in)``."""

    def reset_parameters(self) -> None:
        """Nothing: on the meta device torch's own would load its compiler, elsewhere it would draw in vain."""


class Table(nn.Embedding):
    """Rows picked by number, ``(rows, width)``."""

    def reset_parameters(self) -> None:
        """Nothing, as above."""
