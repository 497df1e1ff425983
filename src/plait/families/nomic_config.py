"""How Nomic's own configs on the hub are spelled: GPT-2's words, and switches of which the model has one setting."""

SYNONYMS = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "activation_function": "hidden_act",
    "rotary_emb_base": "rope_theta",
}

ROTATIONS = {
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
}
BLOCKS = {
    "causal": False,
    "parallel_block": False,
    "parallel_block_tied_norm": False,
    "prenorm": False,
    "use_rms_norm": False,
}

IGNORED = frozenset(
    "dense_seq_output fused_bias_fc fused_dropout_add_ln max_trained_positions pad_vocab_size_multiple "
    "scale_attn_weights use_flash_attn use_xentropy".split()
)
