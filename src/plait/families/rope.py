"""Rotary settings in the spellings of transformers 4 and 5, with scaled ropes resolved into explicit numbers.

v4: ``rope_theta``, ``rope_scaling {type | rope_type, ...}``, ``partial_rotary_factor`` (or a family's own names).
v5: ``rope_parameters {rope_type, rope_theta, partial_rotary_factor, ...}``, or one such table for each layer type.
What is read from where follows transformers 5.24, ``modeling_rope_utils.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plait.architecture import Rope, RopeScaling
from plait.families.errors import FamilyError
from plait.families.operations import Fields
from plait.families.settings import Reading, Setting, key

# kind -> {RopeScaling's field: (foreign key, must be there)}
SCALINGS: dict[str, dict[str, tuple[str, bool]]] = {
    "linear": {"factor": ("factor", True)},
    "dynamic": {"factor": ("factor", True)},
    "yarn": {
        "factor": ("factor", True),
        "original_max_length": ("original_max_position_embeddings", False),
        "attention_factor": ("attention_factor", False),
        "beta_fast": ("beta_fast", False),
        "beta_slow": ("beta_slow", False),
        "mscale": ("mscale", False),
        "mscale_all_dim": ("mscale_all_dim", False),
        "truncate": ("truncate", False),
    },
    "longrope": {
        "factor": ("factor", False),
        "original_max_length": ("original_max_position_embeddings", False),
        "attention_factor": ("attention_factor", False),
        "short_factor": ("short_factor", True),
        "long_factor": ("long_factor", True),
    },
    "llama3": {
        "factor": ("factor", True),
        "original_max_length": ("original_max_position_embeddings", False),
        "low_freq_factor": ("low_freq_factor", True),
        "high_freq_factor": ("high_freq_factor", True),
    },
}
COMMON = ("rope_type", "type", "rope_theta", "partial_rotary_factor")


@dataclass(frozen=True, kw_only=True)
class RopeSettings:
    """Where a family keeps its rotation, and what its class takes where the config says nothing.

    ``partial``: the share of a head that turns. ``partial_by_default``: whether the class honours that share also where
    nothing is scaled (Llama's does not). ``layer_type``: the table's name where there is one for each layer type.
    ``original``: the class's own ``original_max_position_embeddings``, which stands above the table's. ``assumed``: the
    table of a class that scales unless told otherwise. ``kinds``: other words for a kind of scaling. ``alpha``: whether
    a dynamic rope with a number of that name is a slower theta for rows of any length (Hunyuan). ``dim_key``: a key
    that says the share as a number of dimensions.
    """

    theta: float = 10000.0
    theta_key: str = "rope_theta"
    partial: float = 1.0
    partial_key: str = "partial_rotary_factor"
    partial_by_default: bool = False
    interleaved: bool = False  # neighbouring dimensions turn together
    max_length: int = 2048
    layer_type: str | None = None
    scaled: bool = True  # whether v4's rope_scaling is about this rotation
    original: int | None = None
    assumed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    alpha: bool = False
    dim_key: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """All that is read."""
        own = ("rope_parameters", "rope_scaling", "original_max_position_embeddings")
        return (*own, self.theta_key, self.partial_key, *((self.dim_key,) if self.dim_key else ()))

    def table(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of this rotation, wherever the config has them."""
        new, old = (config.get(name) or {} for name in ("rope_parameters", "rope_scaling"))
        for name, value in (("rope_parameters", new), ("rope_scaling", old)):
            if not isinstance(value, Mapping):
                raise FamilyError(f"{name}: {value!r} is no table of parameters.")
        if self.layer_type:
            return {**(new.get(self.layer_type) or {}), **(old if self.scaled else {})}
        table = old or (self.assumed if config.get("rope_parameters") is None else new)
        nested = [name for name, value in table.items() if isinstance(value, Mapping)]
        if nested:
            raise FamilyError(
                f"rope_parameters: this family turns all layers alike; {', '.join(nested)} has its own table."
            )
        return dict(table)

    def unread(self, config: Mapping[str, Any]) -> list[str]:
        """Parameters in the table that its kind of rotation does not use."""
        table = self.table(config)
        if self._alpha(table):  # its other numbers are a relic
            return []
        known = {foreign for foreign, _ in SCALINGS.get(self._kind(table), {}).values()} | set(COMMON)
        return [f"rope_parameters.{name}" for name, value in table.items() if name not in known and value is not None]

    def load(self, reading: Reading) -> Rope:
        """The rotation that a config says."""
        config, table = reading.config, self.table(reading.config)
        kind = self._kind(table)
        theta = table.get("rope_theta") or config.get(self.theta_key) or self.theta
        if alpha := self._alpha(table):
            kind, theta = "default", theta * alpha ** (reading.d_head / (reading.d_head - 2))
        share = table.get("partial_rotary_factor") or config.get(self.partial_key) or self._share(reading)
        dim = int(reading.d_head * share) if kind != "default" or self.partial_by_default else reading.d_head
        scaling = None if kind == "default" else self._scaling(kind, table, config)
        own = None if dim == reading.d_head else dim
        return Rope(theta=float(theta), dim=own, interleaved=self.interleaved, scaling=scaling)

    def is_dynamic(self, config: Mapping[str, Any]) -> bool:
        """Whether a config says that rows may be longer than those that were trained on."""
        return self._kind(self.table(config)) == "dynamic"

    def _kind(self, table: Mapping[str, Any]) -> str:
        kind = table.get("rope_type") or table.get("type") or "default"
        if not isinstance(kind, str):
            raise FamilyError(f"rope_type: {kind!r} is no name of a scaling; plait has default, {', '.join(SCALINGS)}.")
        return self.kinds.get(kind, kind)

    def _alpha(self, table: Mapping[str, Any]) -> float | None:
        return table.get("alpha") if self.alpha and self._kind(table) == "dynamic" else None

    def _share(self, reading: Reading) -> float:
        turned = reading.config.get(self.dim_key) if self.dim_key else None
        return turned / reading.d_head if turned else self.partial

    def _scaling(self, kind: str, table: Mapping[str, Any], config: Mapping[str, Any]) -> RopeScaling:
        if kind not in SCALINGS:
            raise FamilyError(f"rope_type: plait has no {kind!r} scaling; it has default, {', '.join(SCALINGS)}.")
        values: dict[str, Any] = {}
        for name, (foreign, needed) in SCALINGS[kind].items():
            if table.get(foreign) is not None:
                values[name] = table[foreign]
            elif needed and foreign not in table:
                raise FamilyError(f"rope_parameters.{foreign}: {kind!r} scaling needs this number.")
        longest = config.get("max_position_embeddings") or self.max_length
        if kind == "dynamic":
            values["original_max_length"] = longest
        elif kind != "linear":
            above = None if self.layer_type else config.get("original_max_position_embeddings") or self.original
            values["original_max_length"] = above or values.get("original_max_length") or longest
            values.setdefault("factor", longest / values["original_max_length"])
        for zero in ("beta_fast", "beta_slow"):  # 0 is taken for 'not given'
            if values.get(zero) == 0:
                del values[zero]
        return RopeScaling(kind=kind, **values)  # type: ignore[arg-type]

    def save(self, rope: Rope | None, fields: Fields) -> dict[str, Any]:
        """The config that says a rotation, in the spelling of transformers 5."""
        if rope is None:
            return {}
        table: dict[str, Any] = {"rope_type": "default", "rope_theta": rope.theta}
        share = _share(rope.dim or fields["d_head"], fields["d_head"])
        if share != self.partial or self.partial != 1.0:
            table["partial_rotary_factor"] = share
        beside: dict[str, Any] = {}
        if rope.scaling:
            table["rope_type"] = rope.scaling.kind
            for name, (foreign, needed) in SCALINGS[rope.scaling.kind].items():
                value = getattr(rope.scaling, name)
                if needed or value != getattr(RopeScaling, name, None) or name == "original_max_length":
                    table[foreign] = list(value) if isinstance(value, tuple) else value
            if rope.scaling.kind == "longrope":
                table["factor"] = rope.scaling.factor
            if self.original:
                beside["original_max_position_embeddings"] = rope.scaling.original_max_length
            if rope.scaling.kind == "dynamic":
                beside["max_position_embeddings"] = rope.scaling.original_max_length
        elif self.alpha and fields["max_length"] is None:  # theta is slow already, for rows of any length
            table |= {"rope_type": "dynamic", "factor": 1.0, "alpha": 1.0}
        return {"rope_parameters": {self.layer_type: table} if self.layer_type else table, **beside}


def _share(dim: int, d_head: int) -> float:
    """The factor f for which int(d_head * f) is dim."""
    share = dim / d_head
    return share if int(d_head * share) == dim else (dim + 0.5) / d_head


def rotary(max_length: int, **options: Any) -> dict[str, Any]:
    """The rules of a family whose positions are rotations; options as in ``RopeSettings``."""
    settings = RopeSettings(max_length=max_length, **options)
    return {"position": "rope", "rope": rope_setting(settings), "max_length": _longest(settings)}


def _longest(settings: RopeSettings) -> Setting:
    """A dynamic rope is made for rows longer than max_position_embeddings, which is its original length."""
    said = key("max_position_embeddings", settings.max_length)
    return Setting(
        said.keys, lambda reading: None if settings.is_dynamic(reading.config) else said.load(reading), said.save
    )


def rope_setting(settings: RopeSettings) -> Setting:
    """``RopeSettings`` as a rule."""
    return Setting(settings.keys, settings.load, settings.save, settings.unread)
