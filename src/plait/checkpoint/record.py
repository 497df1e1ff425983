"""Checkpoint: a model with everything that came with it, and the record from which it is written back exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from plait.architecture import Architecture
from plait.checkpoint.notice import CheckpointError
from plait.checkpoint.pooling import SentenceFolder, SentencePooling
from plait.checkpoint.rules import DecodeRules
from plait.checkpoint.source import TensorSource
from plait.checkpoint.weights import Weights

if TYPE_CHECKING:
    from plait.model import Transformer
    from plait.text import Tokenizer

ADAPTED = ".adapter."  # in the names of what training hangs beside a matrix (training/lora.py)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a checkpoint lay in its files; all empty for one that was drawn at random.

    ``family``: who spelt it (``"llama"``, ``"plait"``); ``binding``: that family's own record of prefixes, duplicates
    and leftovers; ``bound``: the way from canonical names to the tensors in ``source``; ``types``: canonical name ->
    (type it was loaded in, type it was stored in); ``keeps_types``: whether saving goes back to the stored ones, rather
    than to one that was asked for; ``keeps_blocks``: so for matrices in blocks; ``rules``: as read.
    """

    family: str | None = None
    gguf: bool = False
    binding: Any = None
    bound: Any = None
    source: TensorSource | None = None
    types: Mapping[str, tuple[torch.dtype, torch.dtype]] = field(default_factory=dict)
    keeps_types: bool = True
    keeps_blocks: bool = False
    config: Mapping[str, Any] | None = None
    generation_config: Mapping[str, Any] | None = None
    rules: DecodeRules = DecodeRules()
    sentence: SentenceFolder | None = None

    def kept(self, name: str, dtype: torch.dtype) -> torch.dtype:
        """The type to write a parameter of ``dtype`` in: the stored one, unless it was moved to another since."""
        loaded, stored = self.types.get(name, (dtype, dtype))
        return stored if self.keeps_types and dtype == loaded else dtype


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What ``load`` gives: ``model`` computes, ``tokenizer`` reads and writes text, ``rules`` say how to decode.

    ``tokenizer`` is ``None`` where the files have none; ``pooling`` is a sentence-transformers folder's, else ``None``.
    """

    architecture: Architecture
    model: Transformer
    tokenizer: Tokenizer | None = None
    rules: DecodeRules = DecodeRules()
    layout: Layout = Layout()
    pooling: SentencePooling | None = None

    @property
    def labels(self) -> tuple[str, ...] | None:
        """What a classification head's classes are called, in their order; ``None`` where the files do not say."""
        named = (self.layout.config or {}).get("id2label")
        return tuple(named[key] for key in sorted(named, key=int)) if named else None

    def weights(self) -> Weights:
        """What ``model`` computes with, under canonical names: its parameters, or the files of one on the meta device.

        ``identity()`` and blocks are those of the moment they are asked for.
        """
        state = {name: parameter.detach() for name, parameter in self.model.state_dict().items()}
        if beside := [name for name in state if ADAPTED in name]:
            raise CheckpointError(
                f"{beside[0]}: adapters hang on this model; merge them into its weights, or detach them."
            )
        return Weights(self.architecture, state, self.layout.source, self.layout.bound)
