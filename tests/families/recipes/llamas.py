"""Decoders in Llama's line, from Phi-3 and OLMo to Cohere and GLM."""

from __future__ import annotations

from typing import Any

from tests.families.recipes.base import LLAMA3, SMALL, Recipe, without

YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 24}
FULL, SLIDING = "full_attention", "sliding_attention"
EIGHT = without(SMALL, "head_dim") | {"head_dim": 8}  # where the class makes hidden_size / heads of it


def rope(theta: float = 500.0, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **more}}


def longrope(pairs: int, **more: Any) -> dict[str, Any]:
    return rope(
        rope_type="longrope",
        short_factor=[1.0 + 0.1 * i for i in range(pairs)],
        long_factor=[2.0 + 0.5 * i for i in range(pairs)],
        **more,
    )


PHI3_SMALL = without(SMALL, "head_dim")
COHERE_SMALL = without(SMALL, "rms_norm_eps", "head_dim") | {"layer_norm_eps": 1e-3}
GRANITE_SCALES = {
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.23,
    "residual_multiplier": 0.37,
    "logits_scaling": 1.7,
}

RECIPES: dict[str, Recipe] = {
    "phi3": Recipe("Phi3Config", "Phi3ForCausalLM", PHI3_SMALL | {"sliding_window": 5, **rope()}),
    "phi3-longrope": Recipe(
        "Phi3Config",
        "Phi3ForCausalLM",
        PHI3_SMALL | {"original_max_position_embeddings": 16, **longrope(4)},
        (13, 29),
    ),
    "phi3-mini-longrope": Recipe(
        "Phi3Config",
        "Phi3ForCausalLM",
        PHI3_SMALL
        | {"original_max_position_embeddings": 16, "tie_word_embeddings": True, "hidden_act": "gelu"}
        | longrope(3, partial_rotary_factor=0.75),
        (13, 29),
    ),
    "vaultgemma": Recipe(
        "VaultGemmaConfig",
        "VaultGemmaForCausalLM",
        SMALL
        | {"sliding_window": 4, "query_pre_attn_scalar": 7, "attn_logit_softcapping": 2.0}
        | {"final_logit_softcapping": 1.5, "attention_bias": True},
    ),
    "vaultgemma-listed": Recipe(
        "VaultGemmaConfig",
        "VaultGemmaForCausalLM",
        SMALL
        | {"sliding_window": 5, "layer_types": [FULL, SLIDING, SLIDING], "hidden_activation": "gelu"}
        | {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    ),
    "ministral": Recipe("MinistralConfig", "MinistralForCausalLM", SMALL | {"sliding_window": 5, **rope()}),
    "ministral-listed": Recipe(
        "MinistralConfig",
        "MinistralForCausalLM",
        SMALL | {"sliding_window": 4, "layer_types": [SLIDING, FULL, SLIDING]},
    ),
    "cwm": Recipe(
        "CwmConfig",
        "CwmForCausalLM",
        SMALL | {"num_hidden_layers": 5, "sliding_window": 4, "mlp_bias": True, **rope(rope_type="llama3", **LLAMA3)},
        (50,),
    ),
    "olmo": Recipe("OlmoConfig", "OlmoForCausalLM", without(SMALL, "rms_norm_eps") | {"attention_bias": True}),
    "olmo-clipped": Recipe(
        "OlmoConfig",
        "OlmoForCausalLM",
        without(SMALL, "rms_norm_eps") | {"clip_qkv": 0.4, "tie_word_embeddings": True},
    ),
    "olmo2": Recipe("Olmo2Config", "Olmo2ForCausalLM", SMALL | {"attention_bias": True, **rope()}),
    "olmo3": Recipe(
        "Olmo3Config",
        "Olmo3ForCausalLM",
        SMALL
        | {
            "num_hidden_layers": 5,
            "sliding_window": 4,
            "rope_parameters": {
                FULL: YARN | {"attention_factor": 1.3, "beta_fast": 4.0},
                SLIDING: {"rope_type": "default", "rope_theta": 500.0},
            },
        },
        (50,),
    ),
    "exaone": Recipe(
        "ExaoneConfig",
        "LlamaForCausalLM",
        SMALL | {"attention_bias": True, **rope(rope_type="llama3", **LLAMA3)},
        (50,),
    ),
    "exaone4": Recipe(
        "Exaone4Config",
        "Exaone4ForCausalLM",
        SMALL | {"num_hidden_layers": 5, "sliding_window": 4, **rope(rope_type="llama3", **LLAMA3)},
        (50,),
    ),
    "exaone4-full": Recipe(
        "Exaone4Config",
        "Exaone4ForCausalLM",
        SMALL | {"sliding_window": None, "layer_types": [FULL] * 3, "tie_word_embeddings": True},
    ),
    "exaone4-nope": Recipe("Exaone4Config", "Exaone4ForCausalLM", SMALL | {"layer_types": [FULL] * 3}),
    "cohere": Recipe(
        "CohereConfig", "CohereForCausalLM", COHERE_SMALL | {"logit_scale": 0.37, "attention_bias": True, **rope()}
    ),
    "cohere-normed": Recipe(
        "CohereConfig", "CohereForCausalLM", COHERE_SMALL | {"use_qk_norm": True, "tie_word_embeddings": False}
    ),
    "cohere2": Recipe(
        "Cohere2Config",
        "Cohere2ForCausalLM",
        COHERE_SMALL | {"num_hidden_layers": 5, "sliding_window": 4, "logit_scale": 0.37, **rope()},
    ),
    "granite": Recipe("GraniteConfig", "GraniteForCausalLM", SMALL | GRANITE_SCALES | {"attention_bias": True}),
    "granite-tied": Recipe(
        "GraniteConfig", "GraniteForCausalLM", SMALL | GRANITE_SCALES | {"tie_word_embeddings": True, "mlp_bias": True}
    ),
    "hyperclovax": Recipe("HyperCLOVAXConfig", "HyperCLOVAXForCausalLM", SMALL | GRANITE_SCALES),
    "hyperclovax-pre": Recipe("HyperCLOVAXConfig", "HyperCLOVAXForCausalLM", SMALL | {"use_post_norm": False}),
    "smollm3": Recipe("SmolLM3Config", "SmolLM3ForCausalLM", SMALL | {"num_hidden_layers": 5, **rope()}),
    "smollm3-window": Recipe(
        "SmolLM3Config",
        "SmolLM3ForCausalLM",
        SMALL
        | {"no_rope_layers": [1, 0, 1], "use_sliding_window": True, "sliding_window": 4, "tie_word_embeddings": False},
    ),
    "glm": Recipe("GlmConfig", "GlmForCausalLM", SMALL | {"head_dim": 12, **rope()}),
    "glm-partial": Recipe(
        "GlmConfig",
        "GlmForCausalLM",
        SMALL | {"attention_bias": False, "tie_word_embeddings": True, **rope(partial_rotary_factor=0.8)},
    ),
    "glm4": Recipe("Glm4Config", "Glm4ForCausalLM", SMALL | {"head_dim": 12, **rope()}),
    "ernie4_5": Recipe("Ernie4_5Config", "Ernie4_5ForCausalLM", SMALL | rope()),
    "ernie4_5-biased": Recipe(
        "Ernie4_5Config", "Ernie4_5ForCausalLM", SMALL | {"use_bias": True, "tie_word_embeddings": False}
    ),
    "hunyuan_v1_dense": Recipe("HunYuanDenseV1Config", "HunYuanDenseV1ForCausalLM", SMALL | rope()),
    "hunyuan_v1_dense-alpha": Recipe(
        "HunYuanDenseV1Config",
        "HunYuanDenseV1ForCausalLM",
        SMALL
        | {"max_position_embeddings": 16, "tie_word_embeddings": True, "attention_bias": True}
        | rope(rope_type="dynamic", alpha=37.0, factor=1.0, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=0.0),
        (13, 29),
    ),
    "hunyuan_v1_dense-dynamic": Recipe(
        "HunYuanDenseV1Config",
        "HunYuanDenseV1ForCausalLM",
        SMALL | {"max_position_embeddings": 16, **rope(rope_type="dynamic", factor=3.0)},
        (13, 29),
    ),
    "seed_oss": Recipe("SeedOssConfig", "SeedOssForCausalLM", SMALL | rope()),
    "seed_oss-biased": Recipe(
        "SeedOssConfig",
        "SeedOssForCausalLM",
        SMALL | {"attention_bias": False, "attention_out_bias": True, "mlp_bias": True},
    ),
    "arcee": Recipe("ArceeConfig", "ArceeForCausalLM", SMALL | {**rope(), "mlp_bias": True}),
    "arcee-yarn": Recipe("ArceeConfig", "ArceeForCausalLM", SMALL | {"rope_parameters": YARN}, (50,)),
    "helium": Recipe("HeliumConfig", "HeliumForCausalLM", EIGHT | {"attention_bias": True, **rope()}),
    "helium-biased": Recipe("HeliumConfig", "HeliumForCausalLM", EIGHT | {"mlp_bias": True}),
    "internlm3": Recipe(
        "InternLM3Config",
        "LlamaForCausalLM",
        SMALL | {"max_position_embeddings": 16, **rope(rope_type="dynamic", factor=6.0)},
        (13, 29),
    ),
    "internlm3-biased": Recipe(
        "InternLM3Config", "LlamaForCausalLM", SMALL | {"attention_bias": True, "mlp_bias": True}
    ),
    "iquestcoder": Recipe("IQuestCoderConfig", "LlamaForCausalLM", SMALL | rope()),
}
