"""BioGPT: fairseq's decoder, norms before, embeddings times the root of their width, learned positions from 2."""

from plait.families.family import Family
from plait.families.operations import ACTIVATION, ROOT_OF_WIDTH
from plait.families.settings import key

BIOGPT = Family(
    name="biogpt",
    model_types=("biogpt",),
    classes=("BioGptForCausalLM", "BioGptModel"),
    settings={
        "vocab_size": key("vocab_size", 42384),
        "d_model": key("hidden_size", 1024),
        "n_decoder_layers": key("num_hidden_layers", 24),
        "n_heads": key("num_attention_heads", 16),
        "d_ff": key("intermediate_size", 4096),
        "norm_eps": 1e-5,  # whatever layer_norm_eps
        "position": "learned",
        "position_offset": 2,
        "max_length": key("max_position_embeddings", 1024),
        "activation": key("hidden_act", "gelu", ACTIVATION),
        "embedding_scale": key("scale_embedding", True, ROOT_OF_WIDTH),
    },
    weights={
        "embedding.{tokens,positions}": "embed_{tokens,positions}",
        "decoder.layers.{i}.attention.{query,key,value,output}": "layers.{i}.self_attn.{q,k,v,out}_proj",
        "decoder.layers.{i}.attention_norms.before": "layers.{i}.self_attn_layer_norm",
        "decoder.layers.{i}.ffn.{up,down}": "layers.{i}.{fc1,fc2}",
        "decoder.layers.{i}.ffn_norms.before": "layers.{i}.final_layer_norm",
        "decoder.norm": "layer_norm",
        "head.output": "output_projection",
    },
    tied=True,
    prefix="biogpt.",
    ignored=frozenset({"layer_norm_eps"}),
    ids={"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2},
)
