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
    from plait.checkpoint import (
        AdapterError,
        Checkpoint,
        CheckpointError,
        DecodeRules,
        PlaitNotice,
        calibrate,
        load,
        quantise,
        resize,
        save,
    )
    from plait.engine import EngineRunner, optimize
    from plait.families import FamilyError
    from plait.generation import (
        Candidate,
        Constraint,
        Generation,
        GenerationError,
        Piece,
        Request,
        Scheduler,
        Scored,
        Search,
        Settings,
        Translation,
        classify,
        constrain,
        drafter,
        embed,
        fill,
        generate,
        score,
        stream,
        translate,
        translate_lines,
    )
    from plait.model import Cache, CacheFull, Transformer, initialize, watching
    from plait.presets import PresetError, preset
    from plait.text import Tokenizer, TokenizerError, train_tokenizer

__version__ = "0.1.0"

__all__ = [
    "Account",
    "AdapterError",
    "Architecture",
    "ArchitectureError",
    "Cache",
    "CacheFull",
    "Candidate",
    "Checkpoint",
    "CheckpointError",
    "Constraint",
    "DecodeRules",
    "EngineRunner",
    "FamilyError",
    "Generation",
    "GenerationError",
    "Piece",
    "PlaitNotice",
    "PresetError",
    "Request",
    "Scheduler",
    "Scored",
    "Search",
    "Settings",
    "Tokenizer",
    "TokenizerError",
    "Transformer",
    "Translation",
    "__version__",
    "account",
    "calibrate",
    "classify",
    "constrain",
    "drafter",
    "embed",
    "fill",
    "generate",
    "initialize",
    "load",
    "optimize",
    "preset",
    "quantise",
    "resize",
    "save",
    "score",
    "stream",
    "train_tokenizer",
    "translate",
    "translate_lines",
    "watching",
]

# Where a name is looked for, the lightest first: none of these imports one that stands behind it.
_HOMES = ("architecture", "presets", "account", "families", "text", "model", "checkpoint", "engine", "generation")


class _Front(ModuleType):
    """``plait.account`` is the function even after the package of that name was imported below it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "account" and isinstance(value, ModuleType):
            value = value.account
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Front


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"plait has no {name!r}; it has {', '.join(__all__)}.")
    homes = (importlib.import_module(f"plait.{home}") for home in _HOMES)
    value = next(getattr(home, name) for home in homes if hasattr(home, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
