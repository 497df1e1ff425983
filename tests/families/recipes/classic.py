"""Decoders with absolute positions, ALiBi or early rotations, from GPT-1 to Falcon and Phi."""

from __future__ import annotations

from typing import Any

from tests.families.recipes.base import ENCODER, Recipe, without

IDS = {"bos_token_id": 1, "eos_token_id": 2}
GPT = {"vocab_size": 61, "n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 40, "layer_norm_epsilon": 1e-3} | IDS
ROPE = ENCODER | IDS
GROUPED = ROPE | {"num_key_value_heads": 3}
OPT = without(ROPE, "intermediate_size", "layer_norm_eps") | {"ffn_dim": 44}
MPT = {
    "vocab_size": 61,
    "d_model": 48,
    "n_heads": 6,
    "n_layers": 3,
    "max_seq_len": 64,
    "layer_norm_epsilon": 1e-3,
} | IDS
NEO = {"vocab_size": 61, "hidden_size": 48, "num_heads": 6, "max_position_embeddings": 40, "layer_norm_epsilon": 1e-3}
BLOOM = {"vocab_size": 61, "hidden_size": 48, "n_layer": 3, "n_head": 6, "layer_norm_epsilon": 1e-3} | IDS
FALCON = without(ROPE, "intermediate_size", "layer_norm_eps") | {"layer_norm_epsilon": 1e-3}


def turned(theta: float, share: float, **scaling: Any) -> dict[str, Any]:
    """A rotation of a share of each head."""
    table = {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": share, **scaling}
    return {"rope_parameters": table}


LINEAR = {"rope_type": "linear", "factor": 2.0}

RECIPES: dict[str, Recipe] = {
    "openai-gpt": Recipe("OpenAIGPTConfig", "OpenAIGPTLMHeadModel", GPT),
    "openai-gpt-untied": Recipe(
        "OpenAIGPTConfig", "OpenAIGPTLMHeadModel", GPT | {"afn": "silu", "tie_word_embeddings": False}
    ),
    "gpt_neo": Recipe(
        "GPTNeoConfig",
        "GPTNeoForCausalLM",
        NEO | IDS | {"num_layers": 4, "attention_types": [[["global", "local"], 2]], "window_size": 4},
    ),
    "gpt_neo-uneven": Recipe(
        "GPTNeoConfig",
        "GPTNeoForCausalLM",
        NEO
        | IDS
        | {"num_layers": 3, "attention_types": [[["local"], 2], [["global"], 1]], "window_size": 5}
        | {"intermediate_size": 44, "activation_function": "relu"},
    ),
    "gpt_bigcode": Recipe("GPTBigCodeConfig", "GPTBigCodeForCausalLM", GPT),
    "gpt_bigcode-all-heads": Recipe(
        "GPTBigCodeConfig",
        "GPTBigCodeForCausalLM",
        GPT | {"multi_query": False, "n_inner": 44, "scale_attn_weights": False, "activation_function": "gelu"},
    ),
    "opt": Recipe("OPTConfig", "OPTForCausalLM", OPT | {"pad_token_id": 1}),
    "opt-post": Recipe(
        "OPTConfig", "OPTForCausalLM", OPT | {"do_layer_norm_before": False, "tie_word_embeddings": False}
    ),
    "opt-no-final-norm": Recipe("OPTConfig", "OPTForCausalLM", OPT | {"_remove_final_layer_norm": True}),
    "opt-galactica": Recipe(
        "OPTConfig",
        "OPTForCausalLM",
        OPT | {"enable_bias": False, "layer_norm_elementwise_affine": False, "activation_function": "gelu"},
    ),
    "opt-bare": Recipe("OPTConfig", "OPTModel", OPT),
    "biogpt": Recipe("BioGptConfig", "BioGptForCausalLM", ROPE),
    "biogpt-unscaled": Recipe("BioGptConfig", "BioGptForCausalLM", ROPE | {"scale_embedding": False}),
    "xglm": Recipe(
        "XGLMConfig",
        "XGLMForCausalLM",
        {"vocab_size": 61, "d_model": 48, "ffn_dim": 44, "num_layers": 3, "attention_heads": 6}
        | {"max_position_embeddings": 40, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    ),
    "bloom": Recipe("BloomConfig", "BloomForCausalLM", BLOOM),
    "bloom-eight-heads": Recipe("BloomConfig", "BloomForCausalLM", BLOOM | {"n_head": 8, "tie_word_embeddings": False}),
    "mpt": Recipe("MptConfig", "MptForCausalLM", MPT),
    "mpt-clipped": Recipe(
        "MptConfig", "MptForCausalLM", MPT | {"attn_config": {"clip_qkv": 0.4, "softmax_scale": 0.7}, "n_heads": 8}
    ),
    "falcon-7b": Recipe("FalconConfig", "FalconForCausalLM", FALCON),
    "falcon-40b": Recipe(
        "FalconConfig", "FalconForCausalLM", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}
    ),
    "falcon-11b": Recipe(
        "FalconConfig",
        "FalconForCausalLM",
        FALCON
        | {"new_decoder_architecture": True, "num_kv_heads": 3, "num_ln_in_parallel_attn": 1, "ffn_hidden_size": 44}
        | {"tie_word_embeddings": False}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ),
    "falcon-sequential": Recipe(
        "FalconConfig", "FalconForCausalLM", FALCON | {"parallel_attn": False, "bias": True, "activation": "relu"}
    ),
    "falcon-rw": Recipe(
        "FalconConfig",
        "FalconForCausalLM",
        FALCON
        | {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True}
        | {"num_attention_heads": 16, "max_position_embeddings": 400},  # slopes and positions that bfloat16 rounds
        (13, 300),
    ),
    "falcon-rw-parallel": Recipe("FalconConfig", "FalconForCausalLM", FALCON | {"alibi": True}),
    "gptj": Recipe("GPTJConfig", "GPTJForCausalLM", GPT | {"rotary_dim": 4}),
    "gptj-whole": Recipe(
        "GPTJConfig", "GPTJForCausalLM", GPT | {"rotary_dim": 8, "n_inner": 44, "activation_function": "relu"}
    ),
    "phi": Recipe("PhiConfig", "PhiForCausalLM", GROUPED | turned(300.0, 0.5)),
    "phi-normed": Recipe(
        "PhiConfig", "PhiForCausalLM", GROUPED | {"qk_layernorm": True} | turned(300.0, 0.75, **LINEAR)
    ),
    "stablelm": Recipe("StableLmConfig", "StableLmForCausalLM", GROUPED | {"use_qkv_bias": True} | turned(300.0, 0.25)),
    "stablelm-parallel": Recipe(
        "StableLmConfig", "StableLmForCausalLM", GROUPED | {"use_parallel_residual": True} | turned(300.0, 0.5)
    ),
    "stablelm-normed": Recipe(
        "StableLmConfig",
        "StableLmForCausalLM",
        GROUPED | {"use_parallel_residual": True, "qk_layernorm": True} | turned(300.0, 0.5, **LINEAR),
    ),
    "persimmon": Recipe("PersimmonConfig", "PersimmonForCausalLM", ROPE | turned(300.0, 0.5)),
    "persimmon-plain": Recipe(
        "PersimmonConfig", "PersimmonForCausalLM", ROPE | {"qk_layernorm": False} | turned(300.0, 0.75)
    ),
    "nemotron": Recipe(
        "NemotronConfig",
        "NemotronForCausalLM",
        without(GROUPED, "layer_norm_eps") | {"norm_eps": 1e-3, "head_dim": 10} | turned(300.0, 0.4),
    ),
    "nemotron-biased": Recipe(
        "NemotronConfig",
        "NemotronForCausalLM",
        without(GROUPED, "layer_norm_eps") | {"attention_bias": True, "mlp_bias": True} | turned(300.0, 0.5),
    ),
    "jais2": Recipe(
        "Jais2Config",
        "Jais2ForCausalLM",
        GROUPED | {"head_dim": 10} | {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}},
    ),
    "jais2-unbiased": Recipe("Jais2Config", "Jais2ForCausalLM", GROUPED | {"attention_bias": False, "mlp_bias": False}),
    "starcoder2": Recipe(
        "Starcoder2Config",
        "Starcoder2ForCausalLM",
        without(GROUPED, "layer_norm_eps") | {"norm_epsilon": 1e-3, "sliding_window": 5},
    ),
    "starcoder2-unbiased": Recipe(
        "Starcoder2Config", "Starcoder2ForCausalLM", without(GROUPED, "layer_norm_eps") | {"use_bias": False}
    ),
}
