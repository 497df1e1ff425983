"""BART: an encoder-decoder with LayerNorm after every sum, learned positions from 2."""

from plait.families.binding import Either, via
from plait.families.family import Family
from plait.families.operations import ACTIVATION, ROOT_OF_WIDTH, ROW
from plait.families.settings import key, stored
from plait.families.towers import TABLES, norms, shared_table

BART = Family(
    name="bart",
    model_types=("bart",),
    classes=("BartForConditionalGeneration", "BartModel"),
    settings={
        "vocab_size": key("vocab_size", 50265),
        "d_model": key("d_model", 1024),
        "n_encoder_layers": key("encoder_layers", 12),
        "n_decoder_layers": key("decoder_layers", 12),
        "n_heads": key("decoder_attention_heads", 16),
        "d_ff": key("decoder_ffn_dim", 4096),
        "encoder": shared_table(16, 4096),
        "norm_eps": 1e-5,
        "norm_placement": "post",
        "position": "learned",
        "position_offset": 2,
        "max_length": key("max_position_embeddings", 1024),
        "activation": key("activation_function", "gelu", ACTIVATION),
        "embedding_scale": key("scale_embedding", False, ROOT_OF_WIDTH),
        "embedding_norm": True,
        "logit_bias": stored("final_logits_bias"),
    },
    weights={
        "embedding.tokens": Either("shares_embedding", "shared", "decoder.embed_tokens"),
        "source_embedding.tokens": "encoder.embed_tokens",
        "{source_embedding,embedding}.positions": "{encoder,decoder}.embed_positions",
        "{source_embedding,embedding}.norm": "{encoder,decoder}.layernorm_embedding",
        "{tower}.layers.{i}.attention.{query,key,value,output}": "{tower}.layers.{i}.self_attn.{q,k,v,out}_proj",
        "decoder.layers.{i}.cross.{query,key,value,output}": "decoder.layers.{i}.encoder_attn.{q,k,v,out}_proj",
        "{tower}.layers.{i}.ffn.{up,down}": "{tower}.layers.{i}.{fc1,fc2}",
        "head.output.weight": "lm_head.weight",
        "head.output.bias": via("final_logits_bias", ROW),
        **norms("merge"),
    },
    tied=None,  # the key asks for one table on both sides as well
    prefix="model.",
    aliases=dict.fromkeys(TABLES, "embedding.tokens.weight"),
    leftovers=(r"(encoder|decoder)\.version", r"shared\.weight"),  # shared, beside two tables that differ
    synonyms={
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
    },
    ignored=frozenset(
        "normalize_embedding static_position_embeddings extra_pos_embeddings is_decoder is_encoder_decoder".split()
    ),
    ids={
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2,
    },
    tokenizer="BartTokenizer",
)
