"""Record: what an edit did to a checkpoint, beside it in its folder, so that it can be undone to the bit.

edit.json          method, layers, facts, and the identity of the weights before and after
edit.safetensors   the changed parameters as they were
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from plait.checkpoint import Checkpoint, save
from plait.inspection.editing.facts import Fact
from plait.inspection.editing.places import edited
from plait.inspection.errors import InspectionError

WORDS, WEIGHTS = "edit.json", "edit.safetensors"


@dataclass(frozen=True, kw_only=True, eq=False)
class Edit:
    """``checkpoint`` is the edited one, ``before`` what its changed parameters were, by name; ``said`` is plain data:
    how it was made."""

    checkpoint: Checkpoint
    before: Mapping[str, Tensor]
    said: Mapping[str, Any]

    def undo(self) -> Checkpoint:
        """The checkpoint as it was, bit for bit."""
        return edited(self.checkpoint, self.before)

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        """An ordinary checkpoint with the record beside it, whole or not at all."""
        from safetensors.torch import save as packed

        words = {**self.said, "after": self.checkpoint.weights().identity()}
        record = {
            WORDS: (json.dumps(words, indent=2, ensure_ascii=False) + "\n").encode(),
            WEIGHTS: packed({name: value.cpu().contiguous() for name, value in self.before.items()}),
        }
        save(self.checkpoint, folder, overwrite=overwrite, beside=record)


def described(method: str, facts: list[Fact], layers: list[int], **more: Any) -> dict[str, Any]:
    """What a record says of how an edit was made."""
    return {"method": method, "layers": layers, **more, "facts": [asdict(fact) for fact in facts]}


def undo(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    """An edited checkpoint, loaded from ``folder``, as it was before.

    Raises ``InspectionError`` where there is no record, or one of other weights.
    """
    from safetensors.torch import load_file

    try:
        said = json.loads((folder / WORDS).read_text(encoding="utf-8"))
        before = load_file(folder / WEIGHTS)
    except FileNotFoundError:
        raise InspectionError(f"{folder}: there is no record of an edit in it ({WORDS} and {WEIGHTS}).") from None
    except ValueError as error:
        raise InspectionError(f"{folder}: the record of its edit cannot be read ({error}).") from None
    if said.get("after") != checkpoint.weights().identity():
        raise InspectionError(f"{folder}: the record is of other weights than these; it cannot undo them.")
    return edited(checkpoint, before)
