"""The families that were here first: llama's, gpt's, bert's, t5's and bart's."""

from __future__ import annotations

from typing import Any

from tests.families.recipes.base import BOTH, ENCODER, LLAMA3, PAIRS, SMALL, T5_SMALL, Recipe


def llama(*lengths: int, rope: dict[str, Any] | None = None, **settings: Any) -> Recipe:
    if rope:
        settings["rope_parameters"] = rope
    return Recipe("LlamaConfig", "LlamaForCausalLM", SMALL | settings, lengths or (13,))


RECIPES: dict[str, Recipe] = {
    "llama": llama(tie_word_embeddings=False),
    "llama-tied-biased": llama(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, hidden_act="gelu"),
    "llama-linear": llama(40, rope={"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}),
    "llama-dynamic": llama(
        13, 29, rope={"rope_type": "dynamic", "rope_theta": 500.0, "factor": 3.0}, max_position_embeddings=16
    ),
    "llama-yarn": llama(
        50,
        rope={
            "rope_type": "yarn",
            "rope_theta": 500.0,
            "factor": 4.0,
            "original_max_position_embeddings": 24,
            "beta_fast": 4.0,
            "beta_slow": 0.5,
        },
    ),
    "llama-yarn-mscale": llama(
        50,
        rope={
            "rope_type": "yarn",
            "rope_theta": 500.0,
            "factor": 4.0,
            "original_max_position_embeddings": 24,
            "beta_fast": 4.0,
            "mscale": 0.7,
            "mscale_all_dim": 1.3,
            "truncate": False,
        },
    ),
    "llama-longrope": llama(
        13,
        29,
        rope={
            "rope_type": "longrope",
            "rope_theta": 500.0,
            "original_max_position_embeddings": 16,
            "short_factor": [1.0 + 0.1 * i for i in range(PAIRS)],
            "long_factor": [2.0 + 0.5 * i for i in range(PAIRS)],
        },
    ),
    "llama-3.1": llama(50, rope={"rope_type": "llama3", "rope_theta": 500.0, **LLAMA3}),
    "mistral": Recipe("MistralConfig", "MistralForCausalLM", SMALL | {"sliding_window": 5}),
    "mistral-nowindow": Recipe("MistralConfig", "MistralForCausalLM", SMALL | {"sliding_window": None}),
    "qwen2": Recipe("Qwen2Config", "Qwen2ForCausalLM", SMALL | {"tie_word_embeddings": True}),
    "qwen2-window": Recipe(
        "Qwen2Config",
        "Qwen2ForCausalLM",
        SMALL | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    "qwen3": Recipe("Qwen3Config", "Qwen3ForCausalLM", SMALL | {"attention_bias": True}),
    "qwen3-window": Recipe(
        "Qwen3Config",
        "Qwen3ForCausalLM",
        SMALL | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2},
    ),
    "gemma": Recipe("GemmaConfig", "GemmaForCausalLM", SMALL | {"hidden_act": "gelu"}),
    "gemma-untied": Recipe("GemmaConfig", "GemmaForCausalLM", SMALL, stored_head=True),
    "gemma2": Recipe(
        "Gemma2Config",
        "Gemma2ForCausalLM",
        SMALL
        | {
            "sliding_window": 4,
            "query_pre_attn_scalar": 7,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 1.5,
        },
    ),
    "gemma2-uncapped": Recipe(
        "Gemma2Config",
        "Gemma2ForCausalLM",
        SMALL | {"sliding_window": 4, "attn_logit_softcapping": None, "final_logit_softcapping": None},
    ),
    "gemma3": Recipe(
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        SMALL
        | {
            "num_hidden_layers": 7,
            "sliding_window": 4,
            "query_pre_attn_scalar": 7,
            "final_logit_softcapping": 1.5,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
            },
        },
    ),
    "gpt2": Recipe(
        "GPT2Config",
        "GPT2LMHeadModel",
        {
            "vocab_size": 61,
            "n_embd": 48,
            "n_layer": 3,
            "n_head": 6,
            "n_positions": 40,
            "layer_norm_epsilon": 1e-3,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "gpt2-inner": Recipe(
        "GPT2Config",
        "GPT2LMHeadModel",
        {
            "vocab_size": 61,
            "n_embd": 48,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 40,
            "n_inner": 44,
            "activation_function": "relu",
            "scale_attn_weights": False,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "gpt2-untied": Recipe(
        "GPT2Config",
        "GPT2LMHeadModel",
        {"vocab_size": 61, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 40, "bos_token_id": 1}
        | {"eos_token_id": 2, "tie_word_embeddings": False},
    ),
    "gpt_neox": Recipe(
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        ENCODER | {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 0.5}},
    ),
    "gpt_neox-sequential": Recipe(
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        ENCODER
        | {
            "use_parallel_residual": False,
            "attention_bias": False,
            "rope_parameters": {
                "rope_type": "linear",
                "factor": 2.0,
                "rope_theta": 300.0,
                "partial_rotary_factor": 0.3,
            },
        },
    ),
    "bert": Recipe("BertConfig", "BertForMaskedLM", ENCODER | {"type_vocab_size": 3}),
    "bert-pretraining": Recipe("BertConfig", "BertForPreTraining", ENCODER | {"hidden_act": "relu"}),
    "bert-untied": Recipe("BertConfig", "BertForMaskedLM", ENCODER | {"tie_word_embeddings": False}),
    "bert-bare": Recipe("BertConfig", "BertModel", ENCODER),
    "roberta": Recipe("RobertaConfig", "RobertaForMaskedLM", ENCODER | {"pad_token_id": 1, "hidden_act": "relu"}),
    "roberta-pad3": Recipe("RobertaConfig", "RobertaForMaskedLM", ENCODER | {"pad_token_id": 3, "type_vocab_size": 1}),
    "roberta-untied": Recipe(
        "RobertaConfig", "RobertaForMaskedLM", ENCODER | {"pad_token_id": 1, "tie_word_embeddings": False}
    ),
    "t5": Recipe("T5Config", "T5ForConditionalGeneration", T5_SMALL, (23,)),
    "t5-v1.1": Recipe(
        "T5Config",
        "T5ForConditionalGeneration",
        T5_SMALL | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        (23,),
        stored_head=True,
    ),
    "t5-gated-silu": Recipe(
        "T5Config", "T5ForConditionalGeneration", T5_SMALL | {"feed_forward_proj": "gated-silu"}, (23,)
    ),
    "bart": Recipe("BartConfig", "BartForConditionalGeneration", BOTH | {"scale_embedding": True}),
    "bart-untied": Recipe("BartConfig", "BartForConditionalGeneration", BOTH | {"tie_word_embeddings": False}),
    "bart-bare": Recipe("BartConfig", "BartModel", BOTH | {"activation_function": "relu"}),
    "marian": Recipe(
        "MarianConfig",
        "MarianMTModel",
        BOTH | {"scale_embedding": True, "activation_function": "swish", "decoder_vocab_size": 61},
    ),
    "marian-untied": Recipe(
        "MarianConfig", "MarianMTModel", BOTH | {"decoder_vocab_size": 61, "tie_word_embeddings": False}
    ),
    "marian-two-tables": Recipe(
        "MarianConfig",
        "MarianMTModel",
        BOTH | {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 53},
    ),
}
