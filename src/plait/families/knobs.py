"""Settings outside a family's own rules: those that must be neutral, and those that change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.families.errors import FamilyError

OFF = (None, False, 0)

# key -> (the part it asks for, the values that ask for nothing)
PARTS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "kv_lora_rank": ("multi-head latent attention", OFF),
    "q_lora_rank": ("multi-head latent attention", OFF),
    "use_mla": ("multi-head latent attention", OFF),
    "use_cla": ("keys and values shared by layers", OFF),
    "attention_chunk_size": ("attention in chunks", OFF),
    "vision_config": ("an image tower", (None,)),
    "audio_config": ("an audio tower", (None,)),
    "text_config": ("a multimodal wrapper", (None,)),
    "quantization_config": ("weights quantised in this format", (None, {})),
    "compression_config": ("weights quantised in this format", (None, {})),
    "is_decoder": ("a decoder built out of this encoder", (None, False)),
    "is_encoder_decoder": ("a second tower", (None, False)),
    "add_cross_attention": ("cross-attention in a single tower", (None, False)),
    "position_embedding_type": ("these positions", (None, "absolute")),
    "scale_attn_by_inverse_layer_idx": ("scores divided by the layer's number", (None, False)),
    "apply_residual_connection_post_layernorm": ("a residual taken from behind the norm", (None, False)),
    "pos_att_type": ("disentangled attention", (None, [], "")),
    "use_task_id": ("types of tasks", OFF),
    "use_bidirectional_attention": ("a decoder without a causal mask", (None, False)),
    "is_causal": ("a decoder without a causal mask", (None, True)),
    "per_layer_config": ("layers of different sizes", (None, {})),
    "attention_sinks": ("attention sinks", OFF),
    "swiglu_limit": ("a limit inside the gated FFN", OFF),
    "linear_num_key_heads": ("linear attention", OFF),
    "mamba_d_state": ("state-space layers", OFF),
    "ssm_cfg": ("state-space layers", (None, {})),
    "state_size": ("state-space layers", OFF),
    "normalize_before": ("norms before the blocks", (None, False)),
    "add_final_layer_norm": ("a final norm", (None, False)),
    "add_bias_logits": ("a bias of its own on the logits", (None, False)),
    "use_prompt": ("learned prompts in front of keys and values", (None, False)),
    "activation_sparsity_pattern": ("sparse activations", OFF),
    "rope_interleaved": ("rotations of neighbouring dimensions", OFF),
    "num_experts": ("experts in this form", (None, 0, 1)),
    "num_local_experts": ("experts in this form", (None, 0, 1)),
    "n_routed_experts": ("experts in this form", (None, 0, 1)),
    "moe_num_experts": ("experts in this form", (None, 0, 1)),
    "moe_intermediate_size": ("experts in this form", OFF),
    "num_experts_per_tok": ("experts in this form", OFF),
}

# Model types whose own name is what says that they ask for a part
TYPES = {
    "apertus": "the activation xIELU",
    "big_bird": "attention in blocks with random and global ones",
    "bigbird_pegasus": "attention in blocks with random and global ones",
    "blenderbot-small": "a norm on the decoder's embeddings before positions are added",
    "convbert": "convolutions inside attention",
    "deberta": "disentangled attention",
    "deberta-v2": "disentangled attention",
    "diffllama": "differential attention",
    "fnet": "Fourier transforms in place of attention",
    "gemma3n": "layers with inputs of their own",
    "gemma3n_text": "layers with inputs of their own",
    "gemma4": "layers of different sizes",
    "gemma4_text": "layers of different sizes",
    "idefics": "cross-attention to images inside the decoder",
    "led": "attention in windows with global tokens",
    "lfm2": "convolutions in place of attention",
    "lfm2_moe": "convolutions in place of attention",
    "longformer": "attention in windows with global tokens",
    "longt5": "attention in windows with global tokens",
    "ministral3": "queries scaled by their positions",
    "mllama": "cross-attention to images inside the decoder",
    "nanochat": "rotations the other way round",
    "nemotron_h": "state-space layers",
    "nllb-moe": "experts behind an encoder",
    "pegasus_x": "attention in windows with global tokens",
    "prophetnet": "several next tokens predicted at once",
    "recurrent_gemma": "recurrent layers",
    "rwkv": "recurrent layers",
    "switch_transformers": "experts behind an encoder",
    "whisper": "an audio tower",
    "xlm-prophetnet": "several next tokens predicted at once",
    "codegen": "queries, values and keys in four blocks",
    "phimoe": "the router that Phi calls sparsemixer",
    "jetmoe": "a mixture of attention heads",
}

# Knobs of some family here; in another, anything but these values would change what the model computes
FOREIGN: dict[str, tuple[Any, ...]] = {
    "attention_bias": (None, False),
    "mlp_bias": (None, False),
    "sliding_window": (None, 0),
    "use_sliding_window": (None, False),
    "partial_rotary_factor": (None, 1, 1.0),
    "rotary_pct": (None, 1, 1.0),
    "rope_scaling": (None, {}),
    "rope_parameters": (None, {}),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "query_pre_attn_scalar": (None,),
    "scale_embedding": (None, False),
    "use_parallel_residual": (None, False),
    "embedding_multiplier": (None, 1, 1.0),
    "residual_multiplier": (None, 1, 1.0),
    "attention_multiplier": (None,),
    "logits_scaling": (None, 1, 1.0),
    "logit_scale": (None, 1, 1.0),
    "clip_qkv": (None,),
    "use_qk_norm": (None, False),
    "qk_layernorm": (None, False),
    "embedding_size": (None,),
    "word_embed_proj_dim": (None,),
    "num_hidden_groups": (None, 1),
}

# Training, bookkeeping, and how to generate (DecodeRules reads that): nothing here changes a logit
INERT = frozenset(
    """
    _name_or_path name_or_path transformers_version _commit_hash model_type architectures auto_map
    custom_pipelines torch_dtype dtype use_cache cache_implementation initializer_range init_std
    initializer_factor initializer_cutoff_factor use_bfloat16 torchscript pruned_heads chunk_size_feed_forward
    return_dict return_dict_in_generate output_hidden_states output_attentions output_scores output_past
    use_return_dict _attn_implementation attn_implementation _attn_implementation_autoset
    _attn_implementation_internal _experts_implementation _output_attentions tie_encoder_decoder
    cross_attention_hidden_size finetuning_task task_specific_params problem_type id2label
    label2id num_labels _num_labels tokenizer_class prefix language mask_token_id sep_token_id cls_token_id
    unk_token_id attention_dropout hidden_dropout hidden_dropout_prob attention_probs_dropout_prob
    classifier_dropout classif_dropout resid_pdrop embd_pdrop attn_pdrop summary_first_dropout dropout
    dropout_rate activation_dropout encoder_layerdrop decoder_layerdrop layerdrop pooler_dropout rope_dropout
    summary_type summary_use_proj summary_activation summary_proj_to_labels pooler_fc_size
    pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type gradient_checkpointing
    pretraining_tp tensor_parallel_degree reorder_and_upcast_attn fused_attention unsloth_version
    unsloth_fixed quantization_status n_ctx n_positions n_special predict_special_tokens directionality
    bos_token_id eos_token_id pad_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id
    bad_words_ids suppress_tokens begin_suppress_tokens max_length max_new_tokens min_length min_new_tokens
    sentence_transformers sbert_ce_default_activation_function
    do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p min_p
    typical_p epsilon_cutoff eta_cutoff repetition_penalty length_penalty no_repeat_ngram_size
    encoder_no_repeat_ngram_size num_return_sequences exponential_decay_length_penalty remove_invalid_values
    penalty_alpha guidance_scale renormalize_logits encoder_repetition_penalty sequence_bias
    num_assistant_tokens stop_strings tie_word_embeddings tie_last_hidden_states _flash_attn_2_enabled
    use_flash_attention force_bos_token_to_be_generated is_llama_config output_router_logits router_aux_loss_coef
    router_jitter_noise
    """.split()
)


KNOWN = INERT | PARTS.keys() | FOREIGN.keys() | {"head_dim"}
# Parts that some family here has: a family that is not known asks for nothing that plait lacks by them
COMMON = frozenset(
    "is_encoder_decoder normalize_before add_final_layer_norm attention_sinks swiglu_limit rope_interleaved".split()
)


def refuse(family: str, config: Mapping[str, Any], known: set[str]) -> None:
    """Raise over the first setting that asks for a part which plait, or this family, does not have."""
    for name in config.keys() - known:
        value = config[name]
        part, neutral = PARTS.get(name, ("", ()))
        if part and value not in neutral:
            shown = value.get("quant_method", value) if isinstance(value, Mapping) else value
            shown = f"of {len(shown)} settings" if isinstance(shown, Mapping) else repr(shown)
            raise FamilyError(f"{name} ({shown}) asks for {part}, which plait does not have for {family}.")
        if name in FOREIGN and value not in FOREIGN[name]:
            raise FamilyError(f"{name}: {value!r} means nothing in {family}, and would change the model where it does.")


def missing_part(config: Mapping[str, Any]) -> str | None:
    """The part which a config of an unknown family asks for and plait does not have."""
    if config.get("model_type") in TYPES:
        return TYPES[config["model_type"]]
    for name, (part, neutral) in PARTS.items():
        if name not in COMMON and name in config and config[name] not in neutral:
            return f"{part} ({name})"
    return None
