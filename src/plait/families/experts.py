"""Settings of mixtures of experts: how a router picks, and which layers have experts at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from plait.architecture import Experts, LayerType
from plait.families.binding import Rule, via
from plait.families.errors import FamilyError
from plait.families.operations import CAT_EACH, Conversion, Fields
from plait.families.settings import Reading, Setting, derived, key, record

Config = Mapping[str, Any]

# One tensor for each matrix of each expert, as most families publish them
EACH_ALONE: dict[str, Rule] = {
    "decoder.layers.{i}.ffn.router": "layers.{i}.mlp.gate",
    "decoder.layers.{i}.ffn.experts.{gate,up,down}": "layers.{i}.mlp.experts.{e}.{gate,up,down}_proj",
}

# All of them in one, as classes of transformers 5 hold them, and write them where they are told to
_EXPERTS = "decoder.layers.{i}.ffn.experts."
TOGETHER: dict[str, Rule] = {
    _EXPERTS + "{gate,up,down}": None,
    _EXPERTS + "{gate,up}.weight": via("layers.{i}.mlp.experts.gate_up_proj", CAT_EACH),
    _EXPERTS + "down.weight": "layers.{i}.mlp.experts.down_proj",
}


def mixture(n_experts: Setting, per_token: Setting, d_expert: Setting, **others: Any) -> Setting:
    """The record of experts, each member by a rule or a plain value; ``None`` where their number is null or 0."""
    rule = record(Experts, n_experts=n_experts, per_token=per_token, d_expert=d_expert, **others)

    def save(experts: Experts | None, fields: Fields) -> dict[str, Any]:
        if experts is None:
            raise FamilyError("experts: this family has some in its layers; here there are none.")
        return rule.save(experts, fields)

    return replace(rule, load=lambda reading: rule.load(reading) if n_experts.load(reading) else None, save=save)


def times(field: str, unit: Setting, default: int | None = None) -> Setting:
    """A width said as a number of units: so many shared experts, each as wide as a routed one; none is no width."""

    def load(reading: Reading) -> int | None:
        count = reading.config.get(field, default)
        return count * unit.load(reading) if count else None

    def save(width: int | None, fields: Fields) -> dict[str, Any]:
        wide = fields["experts"].d_expert
        if width and width % wide:
            raise FamilyError(
                f"experts.d_shared: {width} is no multiple of experts.d_expert, {wide}, as {field} says it."
            )
        return {field: width // wide if width else 0}

    return Setting((field, *unit.keys), load, save)


# A number, or a list of it for every layer, which must then be one number
ALIKE = Conversion(lambda value, _: _one(value), lambda value, _: value)


def _one(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if len(set(value)) != 1:
        raise FamilyError(f"experts: {value} differs from layer to layer; plait has one value for all.")
    return value[0]


def some_dense(
    reads: tuple[str, ...],
    has_experts: Callable[[int, Config, int], bool],
    spell: Callable[[list[bool]], dict[str, Any]],
    windows: Setting | None = None,
) -> Setting:
    """``layer_types`` of a family where some layers have no experts: ``has_experts(layer, config, layers)`` says which.

    ``spell`` turns that back into the settings it ``reads``; ``windows`` is the rule for the rest of a layer's type.
    """
    rest = windows or derived(lambda _: ())

    def load(reading: Reading) -> tuple[LayerType, ...]:
        types, n_layers = rest.load(reading), reading["n_decoder_layers"]
        sparse = [has_experts(i, reading.config, n_layers) for i in range(n_layers)]
        if all(sparse) or reading["experts"] is None:
            return types
        return tuple(replace(kind, sparse=s) for kind, s in zip(_spread(types, n_layers), sparse, strict=True))

    def save(types: tuple[LayerType, ...], fields: Fields) -> dict[str, Any]:
        spread = _spread(types, fields["n_decoder_layers"])
        others = tuple(replace(kind, sparse=True) for kind in spread)
        alike = () if set(others) == {LayerType()} else others[:1] if len(set(others)) == 1 else others
        return rest.save(alike, fields) | spell([kind.sparse for kind in spread])

    return Setting((*rest.keys, *reads), load, save, rest.unread)


def _spread(types: tuple[LayerType, ...], n_layers: int) -> tuple[LayerType, ...]:
    return tuple(types[i % len(types)] if types else LayerType() for i in range(n_layers))


def by_step(windows: Setting | None = None) -> Setting:
    """Experts in every so manyeth layer, but for those listed (Qwen)."""

    def has_experts(layer: int, config: Config, _: int) -> bool:
        step = config.get("decoder_sparse_step") or 1
        return layer not in (config.get("mlp_only_layers") or ()) and (layer + 1) % step == 0

    def spell(sparse: list[bool]) -> dict[str, Any]:
        return {"decoder_sparse_step": 1, "mlp_only_layers": [i for i, is_sparse in enumerate(sparse) if not is_sparse]}

    return some_dense(("decoder_sparse_step", "mlp_only_layers"), has_experts, spell, windows)


def after_first(default: int, windows: Setting | None = None) -> Setting:
    """No experts in the first so many layers (DeepSeek's line)."""
    name = "first_k_dense_replace"

    def first(config: Config) -> int:
        said = config.get(name)
        return default if said is None else said

    def spell(sparse: list[bool]) -> dict[str, Any]:
        if sparse != sorted(sparse):
            raise FamilyError(
                f"layer_types.sparse: with {name} the layers without experts come first; here they do not."
            )
        return {name: len(sparse) - sum(sparse)}

    return some_dense((name,), lambda layer, config, _: layer >= first(config), spell, windows)


def within(default_first: int) -> Setting:
    """Experts in every so manyeth layer from one to another (ERNIE)."""
    start, end, interval = "moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval"

    def chosen(layer: int, first: int, last: int, step: int) -> bool:
        return (layer + 1) % step == 0 and first <= layer <= last

    def has_experts(layer: int, config: Config, n_layers: int) -> bool:
        said = {name: value for name in (start, end, interval) if (value := config.get(name)) is not None}
        last = said.get(end, -1)
        return chosen(
            layer, said.get(start, default_first), n_layers - 1 if last == -1 else last, said.get(interval, 1)
        )

    def spell(sparse: list[bool]) -> dict[str, Any]:
        those = [i for i, is_sparse in enumerate(sparse) if is_sparse] or [len(sparse)]
        for step in range(1, len(sparse) + 1):
            if [chosen(i, those[0], those[-1], step) for i in range(len(sparse))] == sparse:
                return {start: those[0], end: those[-1], interval: step}
        raise FamilyError(f"layer_types.sparse: layers with experts are evenly spaced here; they are {those}.")

    return some_dense((start, end, interval), has_experts, spell)


def listed(default_first: int, windows: Setting | None = None) -> Setting:
    """Experts in the layers that a list calls sparse; without it, in all but the first so many (EXAONE)."""
    name, first, shown = "mlp_layer_types", "first_k_dense_replace", "is_moe_layer"

    def has_experts(layer: int, config: Config, n_layers: int) -> bool:
        kinds, count = config.get(name), config.get(first)
        dense = default_first if count is None else count
        kinds = ["dense" if i < dense else "sparse" for i in range(n_layers)] if kinds is None else kinds
        if len(kinds) != n_layers or not {*kinds} <= {"dense", "sparse"}:
            raise FamilyError(f"{name}: {kinds} is not one of 'dense' and 'sparse' for each of {n_layers} layers.")
        told = config.get(shown)  # of the code it was published with
        if told is not None and [*map(bool, told)] != [kind == "sparse" for kind in kinds]:
            raise FamilyError(f"{shown}: {told} is not what {name} and {first} say, {kinds}; leave it out.")
        return kinds[layer] == "sparse"

    def spell(sparse: list[bool]) -> dict[str, Any]:
        return {name: ["sparse" if is_sparse else "dense" for is_sparse in sparse]}

    return some_dense((name, first, shown), has_experts, spell, windows)


def grouped(width: Setting, routed_scale: Setting | None = None, **others: Any) -> Setting:
    """The router of DeepSeek-V3, as GLM-4.5 and its like have it; ``width`` is an expert's."""
    return mixture(
        d_expert=width,
        router="sigmoid",
        selection_bias=True,
        routed_scale=routed_scale or key("routed_scaling_factor", 1.0),
        groups=key("n_group", 1),
        top_groups=key("topk_group", 1),
        **others,
    )
