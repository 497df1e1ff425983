"""Account: what an architecture holds, computes and occupies, known without building it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, Protocol

from plait.account import flops, storage
from plait.account.flops import Flops
from plait.account.tensors import PARTS, Part, multiplies, part_of
from plait.architecture import Architecture
from plait.parameters import Shape, parameters


class Described(Protocol):
    """Whatever has an architecture: a checkpoint, a model."""

    @property
    def architecture(self) -> Architecture:
        """Its architecture."""
        ...


class Row(NamedTuple):
    """One line of the table of an account."""

    part: str
    parameters: int
    share: float  # of all parameters, 0 to 1
    flops_per_token: int
    bytes: int


@dataclass(frozen=True)
class Account:
    """Parameters, FLOPs and bytes of one architecture. All numbers are exact; nothing is built to get them."""

    architecture: Architecture

    # Parameters

    @cached_property
    def tensors(self) -> dict[str, Shape]:
        """Every parameter's shape by its name, as in the model's state dict."""
        return parameters(self.architecture)

    @cached_property
    def parameters(self) -> int:
        """How many numbers are learnt; a tied table counts once."""
        return sum(map(prod, self.tensors.values()))

    @cached_property
    def by_part(self) -> dict[Part, int]:
        """Parameters of every part: the parts add up to ``parameters``."""
        return {part: sum(prod(s) for name, s in self.tensors.items() if part_of(name) == part) for part in PARTS}

    @cached_property
    def by_layer(self) -> dict[str, int]:
        """Parameters by place: ``embedding``, ``encoder.layers.0``, ..., ``decoder.norm``, ``head``; adds up too."""
        places: dict[str, int] = {}
        for name, shape in self.tensors.items():
            words = name.split(".")
            place = ".".join(
                words[:3] if words[1] == "layers" else words[:2] if words[0] in ("encoder", "decoder") else words[:1]
            )
            places[place] = places.get(place, 0) + prod(shape)
        return places

    @cached_property
    def matmul_parameters(self) -> int:
        """Parameters that tokens are multiplied by; a tied table counts, because it is the head's matrix too."""
        table = prod(self.tensors["embedding.tokens.weight"]) if self.architecture.tied else 0
        return table + sum(prod(shape) for name, shape in self.tensors.items() if multiplies(name))

    @cached_property
    def active_parameters(self) -> int:
        """Parameters that one token meets: of every layer's experts only as many as it takes. Without experts, all."""
        e = self.architecture.experts
        routed = sum(prod(shape) for name, shape in self.tensors.items() if ".ffn.experts." in name)
        return self.parameters - (routed // e.n_experts * (e.n_experts - e.per_token) if e else 0)

    # Work

    def flops(self, length: int, *, batch: int = 1, source_length: int | None = None, last_only: bool = False) -> Flops:
        """One forward pass over rows of ``length`` tokens; see ``flops.forward``."""
        return flops.forward(self.architecture, length, batch=batch, source_length=source_length, last_only=last_only)

    def training_flops(self, length: int, *, batch: int = 1, source_length: int | None = None) -> Flops:
        """Forward and backward, three forward passes; see ``flops.training_step``."""
        return flops.training_step(self.architecture, length, batch=batch, source_length=source_length)

    def token_flops(
        self, position: int, *, batch: int = 1, source_length: int | None = None, cached: bool = True
    ) -> Flops:
        """One generated token after reading the token at ``position``; see ``flops.next_token``."""
        return flops.next_token(self.architecture, position, batch=batch, source_length=source_length, cached=cached)

    def layer_passes(self, tokens: int) -> dict[str, int]:
        """How often a layer runs to generate ``tokens``: the encoder's once each, the decoder's once for every token.

        A cache makes a pass cheaper; it does not change how many there are.
        """
        a = self.architecture
        return {"encoder": a.n_encoder_layers, "decoder": a.n_decoder_layers * tokens}

    # Space

    def bytes(self, dtype: str = "fp32") -> int:
        """Bytes of the weights as fp32, bf16, fp16, int8 or int4; see ``storage.weight_bytes``."""
        return storage.weight_bytes(self.architecture, dtype)

    def cache_bytes(
        self,
        length: int,
        *,
        batch: int = 1,
        dtype: str = "bf16",
        source_length: int | None = None,
        sliding: bool = False,
    ) -> int:
        """Bytes of a cache of rows of ``length`` tokens; see ``storage.cache_bytes``."""
        return storage.cache_bytes(
            self.architecture, length, batch=batch, dtype=dtype, source_length=source_length, sliding=sliding
        )

    # The written form

    def usual_length(self) -> int:
        """The length that tables are made for unless one is given: 512, or the longest row there is."""
        return min(512, self.architecture.max_length or 512)

    def rows(self, length: int | None = None, dtype: str = "fp32") -> list[Row]:
        """A table: parameters, share, FLOPs for each token of a forward pass of ``length``, and bytes of every part.

        A source is as long. Scores are work without parameters, norms and biases parameters without counted work. The
        last row is the total.
        """
        length = length or self.usual_length()
        work = self.flops(length).to_dict()
        size: dict[str, int] = dict.fromkeys(PARTS, 0)
        for name, shape in self.tensors.items():
            size[part_of(name)] += storage.tensor_bytes(name, shape, dtype)
        names = [*dict.fromkeys([*work, *PARTS])]
        counts: dict[str, int] = {**self.by_part}
        rows = [
            Row(
                name.replace("_", " "),
                counts.get(name, 0),
                counts.get(name, 0) / self.parameters,
                work.get(name, 0) // length,
                size.get(name, 0),
            )
            for name in names
            if counts.get(name, 0) or work.get(name, 0)
        ]
        return [*rows, Row("total", self.parameters, 1.0, sum(work.values()) // length, sum(size.values()))]

    def to_dict(self, length: int | None = None, batch: int = 1, *, sliding: bool = False) -> dict[str, Any]:
        """Everything as plain data, for rows of ``length`` tokens (``usual_length`` unless given).

        ``sliding``: see ``cache_bytes``.
        """
        a = self.architecture
        length = length or self.usual_length()
        generates = a.kind != "encoder"
        return {
            "kind": a.kind,
            "parameters": self.parameters,
            "active_parameters": self.active_parameters,
            "matmul_parameters": self.matmul_parameters,
            "by_part": self.by_part,
            "by_layer": self.by_layer,
            "tensors": {name: list(shape) for name, shape in self.tensors.items()},
            "length": length,
            "batch": batch,
            "flops": {
                "forward": _work(self.flops(length, batch=batch)),
                "training_step": _work(self.training_flops(length, batch=batch)),
                **(
                    {
                        "token_cached": _work(self.token_flops(length - 1, batch=batch)),
                        "token_uncached": _work(self.token_flops(length - 1, batch=batch, cached=False)),
                    }
                    if generates
                    else {}
                ),
            },
            "weight_bytes": {dtype: self.bytes(dtype) for dtype in storage.DTYPES},
            "cache_bytes": {
                dtype: self.cache_bytes(length, batch=batch, dtype=dtype, sliding=sliding) for dtype in storage.WIDTHS
            },
        }


def _work(work: Flops) -> dict[str, int]:
    return {**work.to_dict(), "total": work.total}


def account(described: Architecture | Described) -> Account:
    """The account of an architecture, or of a checkpoint's or a model's."""
    return Account(described if isinstance(described, Architecture) else described.architecture)
