"""plait: one Transformer, twisted together by data.

The names a user needs; each module is imported when one of its names is first asked for, so that ``import plait`` costs
nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.account import Account, account
    from plait.architecture import Architecture, ArchitectureError
    from plait.checkpoint import Checkpoint, CheckpointError, DecodeRules, load, save
    from plait.generation import Generation, Piece, embed, generate, stream
    from plait.model import Cache, Transformer, initialize, watching
    from plait.presets import preset
    from plait.text import Tokenizer, TokenizerError

__version__ = "0.1.0"

__all__ = [
    "Account",
    "Architecture",
    "ArchitectureError",
    "Cache",
    "Checkpoint",
    "CheckpointError",
    "DecodeRules",
    "Generation",
    "Piece",
    "Tokenizer",
    "TokenizerError",
    "Transformer",
    "__version__",
    "account",
    "embed",
    "generate",
    "initialize",
    "load",
    "preset",
    "save",
    "stream",
    "watching",
]

_HOME = {
    "Account": "account",
    "Architecture": "architecture",
    "ArchitectureError": "architecture",
    "Cache": "model",
    "Checkpoint": "checkpoint",
    "CheckpointError": "checkpoint",
    "DecodeRules": "checkpoint",
    "Generation": "generation",
    "Piece": "generation",
    "Tokenizer": "text",
    "TokenizerError": "text",
    "Transformer": "model",
    "account": "account",
    "embed": "generation",
    "generate": "generation",
    "initialize": "model",
    "load": "checkpoint",
    "preset": "presets",
    "save": "checkpoint",
    "stream": "generation",
    "watching": "model",
}


class _Front(ModuleType):
    """``plait.account`` is the function even after the package of that name was imported below it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "account" and isinstance(value, ModuleType):
            value = value.account
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Front


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"plait has no {name!r}; it has {', '.join(__all__)}.")
    value = getattr(importlib.import_module(f"plait.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
