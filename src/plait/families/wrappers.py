"""Wrappers: a text model with towers for images or sounds around it, which plait reads as the text model alone.

For text alone their rotations by several axes (mrope) are plain ones, and what joins an image to a text is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

MROPE = {"mrope_section", "mrope_interleaved"}
PLAIN_HEAD = {"logit_scale": 1.0, "logits_scaling": 1.0, "final_logit_softcapping": None}


@dataclass(frozen=True, kw_only=True)
class Wrapper:
    """Where a wrapper keeps its text model.

    ``text``: the model type, where the text config names none, or one of its own; ``renamed``: such names, and whose
    settings and weights these are. ``tower``: the module's name in files, ``model.{tower}.`` or ``{tower}.model.``
    (older ones may have neither). ``defaults``: where its text class differs from the plain one, by the text config.
    ``fixed``: text settings that hold here whatever is said, ``None`` for those without a meaning; a wrapper's head is
    a plain one as a rule. ``remark``: what else to say.
    """

    text: str = "llama"
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    tower: str = "language_model"
    defaults: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _: {}
    fixed: Mapping[str, Any] = field(default_factory=lambda: PLAIN_HEAD)
    remark: str = ""


def _qwen_vl(_: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "vocab_size": 152064,
        "hidden_size": 8192,
        "intermediate_size": 29568,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "max_window_layers": 80,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
    }


def _qwen3_vl(_: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"max_position_embeddings": 128000, "rope_theta": 5e5}


def _glm4v(told: Mapping[str, Any]) -> Mapping[str, Any]:
    width = (told.get("hidden_size") or 4096) // (told.get("num_attention_heads") or 32)
    return {
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-5,
        "attention_bias": True,
        "partial_rotary_factor": 1.0,
        "head_dim": width,
    }


BOTH_WAYS = "it was trained to read its prompt in both directions, and reads it in one here"

WRAPPERS: dict[str, Wrapper] = {
    "aya_vision": Wrapper(text="cohere2"),
    "audioflamingo3": Wrapper(text="qwen2"),
    "cohere2_vision": Wrapper(text="cohere2"),
    "fast_vlm": Wrapper(text="qwen2"),
    "gemma3": Wrapper(text="gemma3_text"),
    "glm4v": Wrapper(text="glm4v_text", renamed={"glm4v_text": "glm4"}, defaults=_glm4v),
    "got_ocr2": Wrapper(text="qwen2"),
    "granite_speech": Wrapper(text="granite"),
    "idefics2": Wrapper(text="mistral", tower="text_model"),
    "idefics3": Wrapper(tower="text_model"),
    "internvl": Wrapper(text="qwen2"),
    "llava": Wrapper(),
    "llava_next": Wrapper(),
    "llava_next_video": Wrapper(),
    "llava_onevision": Wrapper(text="qwen2"),
    "mistral3": Wrapper(text="mistral"),
    "ovis2": Wrapper(text="qwen2"),
    "paligemma": Wrapper(
        text="gemma", fixed={"use_bidirectional_attention": None, "num_image_tokens": None}, remark=BOTH_WAYS
    ),
    "perception_lm": Wrapper(),
    "qwen2_5_vl": Wrapper(text="qwen2_5_vl_text", renamed={"qwen2_5_vl_text": "qwen2"}, defaults=_qwen_vl),
    "qwen2_audio": Wrapper(text="qwen2"),
    "qwen2_vl": Wrapper(text="qwen2_vl_text", renamed={"qwen2_vl_text": "qwen2"}, defaults=_qwen_vl),
    "qwen3_vl": Wrapper(text="qwen3_vl_text", renamed={"qwen3_vl_text": "qwen3"}, defaults=_qwen3_vl),
    "smolvlm": Wrapper(tower="text_model"),
    "video_llava": Wrapper(),
    "vipllava": Wrapper(),
    "voxtral": Wrapper(),
}
