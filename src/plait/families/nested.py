"""A config for each tower, ``encoder`` and ``decoder``, read by one set of rules: those of a decoder alone.

plait's towers are of one width and one kind: what ``EncoderDifferences`` does not have must be the same in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.architecture import EncoderDifferences, LayerType
from plait.families.errors import FamilyError
from plait.families.knobs import KNOWN, refuse
from plait.families.operations import Fields
from plait.families.settings import Reading, Setting, merged

OWN = ("vocab_size", "n_heads", "n_kv_heads", "d_head", "d_ff", "attention_scale")
APART = ("n_heads", "n_kv_heads", "d_head", "attention_scale")  # one follows from another: all are said or none
FREE = {*OWN, "n_decoder_layers", "layer_types", "max_length", "logit_softcap"}  # the last two are the decoder's


def two_configs(family: str, rules: Mapping[str, Any], ignored: frozenset[str]) -> dict[str, Any]:
    """The settings of a ``family`` with a config for each tower, from the ``rules`` of one."""
    spelt = {field: rule for field, rule in rules.items() if isinstance(rule, Setting)}
    keys = {key for rule in spelt.values() for key in rule.keys} | ignored

    def tower(reading: Reading, name: str) -> Reading:
        config = reading.config.get(name) or {}
        refuse(f"the {name} of {family}", config, keys)
        return Reading(config, rules)

    def encoder(reading: Reading) -> EncoderDifferences:
        mine, own = tower(reading, "decoder"), tower(reading, "encoder")
        for field in sorted(rules.keys() - FREE):
            if own[field] != mine[field]:
                raise FamilyError(
                    f"encoder.{field}: {own[field]!r}, and decoder.{field} {mine[field]!r}: plait has one."
                )
        differ = {field for field in OWN if own[field] != mine[field]} | {"vocab_size"}  # always a table of its own
        told = differ | ({*APART} if not differ.isdisjoint(APART) else set())
        return EncoderDifferences(**{field: own[field] for field in told})

    def layer_types(reading: Reading) -> tuple[LayerType, ...]:
        mine, own = (tower(reading, name)["layer_types"] for name in ("decoder", "encoder"))
        if any(a != b for a, b in zip(mine, own, strict=False)):
            raise FamilyError("encoder.layer_types: they are not the decoder's, layer by layer, as plait has them.")
        return max(mine, own, key=len)

    def spell(fields: Fields) -> dict[str, Any]:
        alone = {**fields, "n_encoder_layers": 0}
        return merged({field: rule.save(alone[field], alone) for field, rule in spelt.items()}, family)

    def spell_encoder(own: EncoderDifferences | None, fields: Fields) -> dict[str, Any]:
        if own is None or own.vocab_size is None:
            raise FamilyError(f"encoder.vocab_size: {family} has a table for each tower; give the encoder its own.")
        told = {field: value for field in OWN if (value := getattr(own, field)) is not None}
        return {
            "decoder": spell(fields),
            "encoder": spell({**fields, **told, "n_decoder_layers": fields["n_encoder_layers"]}),
        }

    def unread(config: Mapping[str, Any]) -> list[str]:
        return [f"{n}.{key}" for n in ("encoder", "decoder") for key in (config.get(n) or {}).keys() - keys - KNOWN]

    def inside(field: str) -> Setting:
        return Setting(("decoder",), lambda reading: tower(reading, "decoder")[field], lambda *_: {})

    return {
        **{field: inside(field) if field in spelt else rule for field, rule in rules.items()},
        "n_encoder_layers": Setting(
            ("encoder",), lambda reading: tower(reading, "encoder")["n_decoder_layers"], lambda *_: {}
        ),
        "layer_types": Setting(("encoder", "decoder"), layer_types, lambda *_: {}),
        "encoder": Setting(("encoder", "decoder"), encoder, spell_encoder, unread),
    }
