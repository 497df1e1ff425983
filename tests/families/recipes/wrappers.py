"""Wrappers: the odd text models of ``base.py`` with tiny towers for images or sounds around them."""

from __future__ import annotations

from typing import Any

from tests.families.recipes.base import SMALL, Recipe, without

TINY = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
IMAGES = {**TINY, "image_size": 8, "patch_size": 4}
CLIP = IMAGES | {"model_type": "clip_vision_model", "num_hidden_layers": 2, "projection_dim": 8}
SIGLIP = IMAGES | {"model_type": "siglip_vision_model"}
SOUNDS = {**TINY, "num_mel_bins": 4, "max_source_positions": 8}
GRID = {"depth": 1, "hidden_size": 8, "out_hidden_size": 48, "num_heads": 2, "intermediate_size": 8}
QWEN_IDS = {"image_token_id": 60, "video_token_id": 59, "vision_start_token_id": 58, "vision_end_token_id": 57}
AXES = {"rope_type": "default", "rope_theta": 300.0, "mrope_section": [2, 1, 1]}
GLM_IDS = {"image_token_id": 60, "video_token_id": 59, "image_start_token_id": 58, "image_end_token_id": 57}
GLM_AXES = AXES | {"mrope_section": [1, 1, 0], "partial_rotary_factor": 0.5}
HEADS_FIT = without(SMALL, "head_dim")  # of a class whose heads are d_model / n_heads wide
COHERE = without(HEADS_FIT, "rms_norm_eps") | {"sliding_window": 4, "num_hidden_layers": 4, "logit_scale": 0.3}


def text(model_type: str, settings: dict[str, Any] = SMALL, **more: Any) -> dict[str, Any]:
    return {"text_config": {**settings, "model_type": model_type, **more}}


def generates(name: str, settings: dict[str, Any], **more: Any) -> Recipe:
    return Recipe(f"{name}Config", f"{name}ForConditionalGeneration", {**settings, **more})


GEMMA3 = text("gemma3_text", num_hidden_layers=7, sliding_window=4) | {"vision_config": SIGLIP}
GEMMA3 |= {"mm_tokens_per_image": 4}
RESAMPLER = {"resampler_n_latents": 2, "resampler_depth": 1, "resampler_n_heads": 2, "resampler_head_dim": 4}
CONFORMER = {"input_dim": 4, "num_layers": 1, "hidden_dim": 8, "feedforward_mult": 1, "num_heads": 2, "dim_head": 4}
QFORMER = TINY | {"model_type": "blip_2_qformer", "encoder_hidden_size": 8, "vocab_size": 8}

RECIPES: dict[str, Recipe] = {
    "aya_vision": generates("AyaVision", text("cohere2", COHERE), vision_config=SIGLIP, image_token_index=60),
    "audioflamingo3": generates("AudioFlamingo3", text("qwen2", HEADS_FIT), audio_config=SOUNDS),
    "cohere2_vision": generates("Cohere2Vision", text("cohere2", COHERE), vision_config=SIGLIP, image_token_id=60),
    "gemma3": generates("Gemma3", GEMMA3),
    "gemma3-bare": Recipe("Gemma3Config", "Gemma3Model", GEMMA3),
    "glm4v": generates(
        "Glm4v",
        text("glm4v_text", HEADS_FIT, rope_parameters=GLM_AXES),
        vision_config=GRID,
        **GLM_IDS,
        video_start_token_id=56,
        video_end_token_id=55,
    ),
    "got_ocr2": generates(
        "GotOcr2",
        text("qwen2", HEADS_FIT),
        vision_config=IMAGES | {"image_size": 16, "output_channels": 4, "window_size": 2, "global_attn_indexes": [0]},
        image_token_index=60,
    ),
    "granite_speech": generates(
        "GraniteSpeech",
        text("granite", HEADS_FIT, logits_scaling=3.0, residual_multiplier=0.5),
        encoder_config=CONFORMER | {"output_dim": 4, "context_size": 4},
        projector_config=QFORMER,
        audio_token_index=60,
    ),
    "idefics2": generates(
        "Idefics2",
        text("mistral", sliding_window=5),
        vision_config=IMAGES,
        perceiver_config=RESAMPLER | {"num_key_value_heads": 1},
        image_token_id=60,
    ),
    "idefics3": generates("Idefics3", text("llama"), vision_config=IMAGES, image_token_id=60, scale_factor=1),
    "internvl": generates(
        "InternVL",
        text("qwen2", HEADS_FIT),
        vision_config=IMAGES | {"image_size": [8, 8], "patch_size": [4, 4]},
        image_token_id=60,
    ),
    "llava": generates("Llava", text("llama"), vision_config=CLIP, image_token_index=60),
    "llava-tied": generates(
        "Llava",
        text("qwen2", HEADS_FIT, tie_word_embeddings=True) | {"tie_word_embeddings": True},
        vision_config=CLIP,
        image_token_index=60,
    ),
    "llava-gpt_neox": generates(
        "Llava",
        text("gpt_neox", without(HEADS_FIT, "num_key_value_heads", "rms_norm_eps")),
        vision_config=CLIP,
        image_token_index=60,
    ),
    "llava_next": generates("LlavaNext", text("mistral"), vision_config=CLIP, image_token_index=60),
    "llava_next_video": generates(
        "LlavaNextVideo", text("llama"), vision_config=CLIP, image_token_index=60, video_token_index=59
    ),
    "llava_onevision": generates(
        "LlavaOnevision",
        text("qwen2", HEADS_FIT),
        vision_config=SIGLIP,
        image_token_index=60,
        video_token_index=59,
    ),
    "mistral3": generates(
        "Mistral3",
        text("mistral", sliding_window=5),
        vision_config=IMAGES | {"model_type": "pixtral", "head_dim": 4},
        image_token_index=60,
    ),
    "ovis2": generates(
        "Ovis2",
        text("qwen2", HEADS_FIT),
        vision_config=IMAGES | {"vocab_size": 10},
        image_token_id=60,
        visual_indicator_token_ids=[50, 51, 52, 53, 54],
    ),
    "paligemma": generates("PaliGemma", text("gemma"), vision_config=SIGLIP, image_token_index=60),
    "paligemma-gemma2": generates(
        "PaliGemma",
        text("gemma2", sliding_window=4, query_pre_attn_scalar=7, final_logit_softcapping=20.0),
        vision_config=SIGLIP,
        image_token_index=60,
    ),
    "qwen2_5_vl": generates(
        "Qwen2_5_VL",
        text(
            "qwen2_5_vl_text",
            HEADS_FIT,
            rope_parameters=AXES,
            use_sliding_window=True,
            sliding_window=4,
            max_window_layers=1,
        ),
        vision_config=GRID,
        **QWEN_IDS,
    ),
    "qwen2_audio": generates(
        "Qwen2Audio",
        text("qwen2", HEADS_FIT),
        audio_config={
            "num_mel_bins": 4,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 8,
            "d_model": 8,
            "max_source_positions": 8,
        },
        audio_token_index=60,
    ),
    "qwen2_vl": generates(
        "Qwen2VL",
        text("qwen2_vl_text", HEADS_FIT, rope_parameters=AXES),
        vision_config={"depth": 1, "embed_dim": 8, "hidden_size": 48, "num_heads": 2, "mlp_ratio": 1},
        **QWEN_IDS,
    ),
    "qwen3_vl": generates(
        "Qwen3VL",
        text("qwen3_vl_text", rope_parameters=AXES | {"mrope_section": [2, 2, 1], "mrope_interleaved": True}),
        vision_config=GRID | {"deepstack_visual_indexes": [0], "num_position_embeddings": 16},
        **QWEN_IDS,
    ),
    "smolvlm": generates("SmolVLM", text("llama"), vision_config=IMAGES, image_token_id=60, scale_factor=1),
    "video_llava": generates(
        "VideoLlava", text("llama"), vision_config=CLIP, image_token_index=60, video_token_index=59
    ),
    "vipllava": generates(
        "VipLlava", text("llama"), vision_config=CLIP, image_token_index=60, vision_feature_layers=[-1, -2]
    ),
    "voxtral": generates("Voxtral", text("llama"), audio_config=SOUNDS, audio_token_id=60),
}
