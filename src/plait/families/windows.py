"""Which layers see only a window: ``sliding_window``, ``layer_types``, and what there was before that list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from plait.architecture import LayerType, Rope
from plait.families.errors import FamilyError
from plait.families.operations import SAME, Conversion, Fields
from plait.families.rope import RopeSettings
from plait.families.settings import Reading, Setting

SLIDING, FULL = "sliding_attention", "full_attention"


def uniform_window(default: int | None, switch: str | None = None) -> Setting:
    """One width for every layer, null for none (Mistral); ``switch``: a key that must be true for it to count."""

    def load(reading: Reading) -> tuple[LayerType, ...]:
        width = reading.config.get("sliding_window", default)
        if switch and not reading.config.get(switch):
            width = None
        return () if width is None else (LayerType(window=width),)

    def save(types: tuple[LayerType, ...], _: Fields) -> dict[str, Any]:
        if len(types) > 1:
            raise FamilyError("layer_types: this family has one window for all layers; here they differ.")
        width = types[0].window if types else None
        return {"sliding_window": width, **({switch: width is not None} if switch else {})}

    return Setting(("sliding_window", *((switch,) if switch else ())), load, save)


def listed_windows(
    default: int | None,
    slides: Callable[[int, Mapping[str, Any]], bool],
    *,
    reads: tuple[str, ...] = (),
    switch: str | None = None,
    local: RopeSettings | None = None,
    turns: Callable[[int, bool, Mapping[str, Any]], bool] | None = None,
    name: str = "sliding_window",
    tokens: Conversion = SAME,
) -> Setting:
    """One width for the layers that ``layer_types`` calls sliding.

    ``slides(layer, config)`` decides where there is no list, ``reads`` are the keys it looks at. ``switch`` is a key
    that must be true for any window to count. ``local`` is the rotation of the sliding layers, where it is their own.
    ``turns(layer, sliding, config)``: whether a layer has a rotation at all, in families where some have none (NoPE).
    ``name`` is the setting of the width, ``tokens`` what makes a window of it; ``default`` is in the setting's terms.
    """

    def load(reading: Reading) -> tuple[LayerType, ...]:
        config, n_layers = reading.config, reading.get("n_encoder_layers") or reading["n_decoder_layers"]
        width = config.get(name, default)
        if switch and not config.get(switch):
            width = None
        names = config.get("layer_types")
        if names is None:
            names = [SLIDING if slides(i, config) and width is not None else FULL for i in range(n_layers)]
        for kind in names:
            if kind not in (SLIDING, FULL):
                raise FamilyError(f"layer_types: plait has no {kind!r}; it has {SLIDING!r} and {FULL!r}.")
        if len(names) != n_layers:
            raise FamilyError(f"layer_types: {len(names)} types for {n_layers} layers; there must be one for each.")
        kinds = {FULL: LayerType()}
        if SLIDING in names:
            if width is None:
                raise FamilyError(f"{name}: some of the layer_types slide; give the number of tokens they see.")
            rope = local.load(reading) if local else "shared"
            kinds[SLIDING] = LayerType(
                window=tokens.load(width, reading), rope="shared" if rope == reading["rope"] else rope
            )
        return tuple(
            kinds[kind] if turns is None or turns(i, kind == SLIDING, config) else replace(kinds[kind], rope=None)
            for i, kind in enumerate(names)
        )

    def save(types: tuple[LayerType, ...], fields: Fields) -> dict[str, Any]:
        n_layers = fields["n_encoder_layers"] or fields["n_decoder_layers"]
        spread = [types[i % len(types)] if types else LayerType() for i in range(n_layers)]
        widths = {kind.window for kind in spread if kind.window is not None}
        if len(widths) > 1:
            raise FamilyError(f"layer_types.window: this family has one width; here there are {sorted(widths)}.")
        config: dict[str, Any] = {"layer_types": [FULL if kind.window is None else SLIDING for kind in spread]}
        plain = switch or (turns and not types)  # the class asks for no window where none slides
        config[name] = tokens.save(next(iter(widths)), fields) if widths else None if plain else default
        if switch:
            config[switch] = bool(widths)
        if local:
            own = next((kind.rope for kind in spread if kind.window is not None), "shared")
            config |= local.save(own if isinstance(own, Rope) else fields["rope"], fields)
        return config

    keys = (name, "layer_types", *reads, *((switch,) if switch else ()), *(local.keys if local else ()))
    return Setting(keys, load, save)
