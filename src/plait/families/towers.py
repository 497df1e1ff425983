"""What the families of BART's line share: the names of their norms, and what an encoder has beside its decoder."""

from __future__ import annotations

from typing import Any

from plait.architecture import EncoderDifferences
from plait.families.errors import FamilyError
from plait.families.heads import has_vocabulary_head
from plait.families.operations import Fields
from plait.families.settings import Reading, Setting

KEYS = ("encoder_attention_heads", "encoder_ffn_dim")
TABLES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
SHARED, HEAD = "model.shared.weight", "lm_head.weight"


def norms(slot: str) -> dict[str, str]:
    """The norms of every layer, in the slot where the family has them: ``"before"`` or ``"merge"``."""
    return {
        f"{{tower}}.layers.{{i}}.attention_norms.{slot}": "{tower}.layers.{i}.self_attn_layer_norm",
        f"decoder.layers.{{i}}.cross_norms.{slot}": "decoder.layers.{i}.encoder_attn_layer_norm",
        f"{{tower}}.layers.{{i}}.ffn_norms.{slot}": "{tower}.layers.{i}.final_layer_norm",
    }


def sizes(reading: Reading, heads: int, d_ff: int) -> dict[str, int]:
    """The encoder's heads and FFN where they are not the decoder's; ``heads``, ``d_ff``: the class's defaults."""
    heads, d_ff = (reading.config.get(name) or usual for name, usual in zip(KEYS, (heads, d_ff), strict=True))
    own = {} if heads == reading["n_heads"] else {"n_heads": heads, "d_head": reading["d_model"] // heads}
    return own if d_ff == reading["d_ff"] else own | {"d_ff": d_ff}


def spell_sizes(own: EncoderDifferences | None, fields: Fields) -> dict[str, Any]:
    """``sizes`` as settings."""
    own = own or EncoderDifferences()
    return dict(zip(KEYS, (own.n_heads or fields["n_heads"], own.d_ff or fields["d_ff"]), strict=True))


def shared_table(heads: int, d_ff: int) -> Setting:
    """``encoder``, where both sides and the head read one table unless the file has several that differ."""

    def load(reading: Reading) -> EncoderDifferences | None:
        own = sizes(reading, heads, d_ff)
        if reading.differ(*TABLES):
            own["vocab_size"] = reading["vocab_size"]
        check_head(reading)
        return EncoderDifferences(**own) if own else None

    def save(own: EncoderDifferences | None, fields: Fields) -> dict[str, Any]:
        if own and own.vocab_size and fields["tied"]:
            raise FamilyError(
                "encoder.vocab_size: bart has one table where its head is tied; untie it, or share the table."
            )
        return spell_sizes(own, fields)

    return Setting(KEYS, load, save)


def check_head(reading: Reading) -> None:
    """A head that is not stored is the shared table; plait has none beside the decoder's own."""
    has_head = has_vocabulary_head(reading.config, True, ()) is not False
    if has_head and not reading.has(HEAD, unknown=True) and reading.differ(SHARED, TABLES[1]):
        raise FamilyError(
            f"{TABLES[1]}: it differs from {SHARED}, which is the head where no {HEAD} is stored; store the head."
        )
