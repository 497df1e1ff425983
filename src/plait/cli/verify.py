"""``plait verify``: the laws of the model on one checkpoint, as a report."""

from __future__ import annotations

from dataclasses import asdict

from plait.cli.models import Loading
from plait.cli.printing import Format, as_json, table, working


def verify(
    model: str,
    /,
    *,
    format: Format = "text",
    revision: str | None = None,
    offline: bool = False,
    pickle: bool = False,
) -> int:
    """Check that the laws hold on a checkpoint; exit 1 where one does not.

    The weights are computed in float32 for this. A law that does not concern the checkpoint is left out.

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub name, or package:NAME.
    format
        json prints one list.
    revision
        The branch, tag or commit of a hub name.
    offline
        Use only what was fetched from the hub before.
    pickle
        Read .bin files, whose weights are pickles; tensors alone are taken from them.
    """
    from plait.cli.laws import laws

    checkpoint = Loading(revision=revision, offline=offline, pickle=pickle).open(model)
    with working("checking"):
        found = list(laws(checkpoint))
    if format == "json":
        as_json([asdict(law) for law in found])
    else:
        table([asdict(law) for law in found])
    return 0 if all(law.holds for law in found) else 1
