"""``plait convert``: write a checkpoint in another dialect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from plait.cli.models import Loading
from plait.cli.printing import working


def convert(
    src: str,
    dst: Path,
    /,
    *,
    to: Literal["hf", "plait"],
    overwrite: bool = False,
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
) -> None:
    """Read a checkpoint and write it in another dialect.

    SRC is written to the folder DST whole or not at all.

    Parameters
    ----------
    src
        A folder, a .gguf file, a hub name, package:NAME, or, with --random, a preset or a
        recipe (.toml).
    dst
        The folder to write; its path is printed.
    to
        hf writes the family's own names, for every tool of the ecosystem; plait writes the native dialect.
    overwrite
        Replace a checkpoint that is there already.
    """
    from plait.checkpoint import save

    checkpoint = loading.open(src)
    with working(f"writing {dst}"):
        folder = save(checkpoint, dst, dialect=to, overwrite=overwrite)
    print(folder)
