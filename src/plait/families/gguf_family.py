"""GGUF's spelling of a family, read and written: metadata as the settings that the family itself would have written.

Facts are llama.cpp's (``convert_hf_to_gguf.py``, ``src/llama-model.cpp``, and the names in ``gguf.constants``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from plait.architecture import Architecture, Rope
from plait.families import gguf_rope
from plait.families.binding import Entry
from plait.families.errors import FamilyError
from plait.families.family import Family
from plait.families.heads import HEAD_FIELDS
from plait.families.layout import Equal
from plait.families.operations import float32
from plait.families.settings import merged

# metadata key, behind "{architecture}." -> the setting it is in transformers
KEYS = {
    "vocab_size": "vocab_size",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
    "attention.sliding_window": "sliding_window",
    "attention.sliding_window_pattern": "sliding_window_pattern",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base": "rope_theta",
    "rope.freq_base_swa": "rope_local_base_freq",
    "expert_count": "num_experts",
}
TYPES = "tokenizer.ggml.token_type_count"  # of token types, though it stands among the tokenizer's keys
# Read together with another key, or of no effect on a logit
BESIDE = (
    "attention.value_length",
    "attention.causal",
    "pooling_type",
    "rope.dimension_count",
    "rope.scaling.finetuned",
    "tensor_data_layout",
)
UNSAID_LENGTH = 4096  # llama.cpp wants a length from every model


@dataclass(frozen=True, kw_only=True, eq=False)
class GGUFFamily(Family):
    """A family that is spelled in GGUF's metadata.

    ``arch``: ``general.architecture``. ``reads``: tensors whose values are settings. ``bare``: files have no head.
    ``unheeded``: keys that are written, and that llama.cpp does not look at; ``limits`` are llama.cpp's too.
    """

    arch: str = ""
    reads: tuple[str, ...] = ()
    bare: bool = False
    unheeded: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """As in ``Family``."""
        return f"GGUF's {self.arch}"

    def architecture(
        self, config: Mapping[str, Any], names: Collection[str] | None = None, equal: Equal | None = None
    ) -> Architecture:
        """As in ``Family``, from metadata; under the name of a tensor in ``reads`` it holds the values of that one."""
        for name in gguf_rope.TENSORS:
            if names and name in names and name not in config:
                raise FamilyError(f"{name}: the file scales its rotations by this tensor; pass its values along.")
        return super().architecture(self.spelled(config), names, equal)

    def unread(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Metadata of the model that nothing reads."""
        return super().unread(self.spelled(config))

    def config(self, architecture: Architecture, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The metadata that says this architecture, with the values of tensors in ``reads`` under their names.

        Raises ``FamilyError`` naming the field that GGUF, or llama.cpp where it reads no key, cannot say.
        """
        a = architecture
        self._refuse_beyond_limits(a)
        fields = {f.name: getattr(a, f.name) for f in dataclasses.fields(a)}
        rules = {
            name: rule for name, rule in self.rules.items() if name != "rope" and (a.head or name not in HEAD_FIELDS)
        }
        said = merged({name: rule.save(fields[name], fields) for name, rule in rules.items()}, f"gguf's {self.arch}")
        longest = a.max_length or UNSAID_LENGTH
        own = self._own(said) | {"context_length": longest}
        tensors: dict[str, Any] = {}
        if a.rope is not None:
            turned = gguf_rope.metadata(a.rope, a.d_head, longest, self.reads)
            tensors = {name: turned.pop(name) for name in gguf_rope.TENSORS if name in turned}
            own |= turned
        if "d_head" in rules:
            own |= {"attention.key_length": a.d_head, "attention.value_length": a.d_head}
        if a.kind == "encoder":
            own["attention.causal"] = False
        types = {TYPES: said["type_vocab_size"]} if "type_vocab_size" in said else {}
        numbers = {f"{self.arch}.{key}": _single(value) for key, value in own.items()}
        lists = {name: [float32(number) for number in values] for name, values in tensors.items()}
        written = {"general.architecture": self.arch, **numbers, **types, **lists}
        self._refuse_what_is_lost(self._read_back(written, a), _as_read(a, {**own, **lists}, longest))
        return written

    def entries(self, architecture: Architecture) -> tuple[Entry, ...]:
        """The tensors to store, in order, each with the parameters it is made of."""
        return tuple(dict.fromkeys(entry for entry, _ in self._entries(architecture).values()))

    def _own(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """The architecture's keys for settings; a setting without a key is left for ``architecture`` to miss."""
        usual = {theirs: ours for ours, theirs in self.synonyms.items()}
        keys = {setting: key for key, setting in KEYS.items()}
        found = {keys.get(usual.get(name, name)): value for name, value in said.items() if value is not None}
        return {key: value for key, value in found.items() if key is not None}

    def spelled(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Metadata as the settings that the family itself would have written."""
        start = f"{self.arch}."
        own = {k.removeprefix(start): _alike(k, v) for k, v in metadata.items() if k.startswith(start)}
        config: dict[str, Any] = {"architectures": [self.classes[self.bare]]}
        config |= {"vocab_size": len(metadata.get("tokenizer.ggml.tokens", ())) or None}
        config |= {KEYS.get(k, k): v for k, v in own.items() if k not in gguf_rope.KEYS and k not in BESIDE}
        width = own.get("attention.key_length") or own["embedding_length"] // own["attention.head_count"]
        if own.get("attention.value_length", width) != width:
            raise FamilyError(f"{start}attention.value_length: values are as wide as keys here, {width}.")
        if config.get("sliding_window") == 0:  # llama.cpp's way to say none
            del config["sliding_window"]
        causal = "n_decoder_layers" in self.settings
        if own.get("attention.causal", causal) != causal:
            raise FamilyError(f"{start}attention.causal: {not causal} is not what plait knows of {self.arch}.")
        if TYPES in metadata:
            config["type_vocab_size"] = metadata[TYPES]
        if "rope" in self.settings:
            theta, longest = config.get("rope_theta") or 10000.0, config.get("max_position_embeddings")
            if table := gguf_rope.table(metadata, own, theta, width, longest):
                config["rope_scaling"] = table
        return config


def _as_read(a: Architecture, said: Mapping[str, Any], longest: int) -> Architecture:
    """The architecture with its rotations in the words that reading finds for them."""
    if a.rope is None:
        return a
    own = (
        kind.rope if not isinstance(kind.rope, Rope) else gguf_rope.as_read(kind.rope, {}, longest)
        for kind in a.layer_types
    )
    types = tuple(dataclasses.replace(kind, rope=rope) for kind, rope in zip(a.layer_types, own, strict=True))
    return a.replace(rope=gguf_rope.as_read(a.rope, said, longest), layer_types=types)


def _single(value: Any) -> Any:
    """A number as GGUF holds it: floats are of 32 bits."""
    return float32(value) if isinstance(value, float) else value


def _alike(name: str, value: Any) -> Any:
    """One number for all layers, where llama.cpp allows one for each; floats as a person would write them."""
    if isinstance(value, float):
        return gguf_rope.shortest(value)
    if not isinstance(value, list) or name.endswith("sliding_window_pattern"):
        return value
    if len(set(value)) != 1:
        raise FamilyError(f"{name}: it differs from layer to layer; plait has one value for all.")
    return value[0]
