"""MPT: a penalty by distance (ALiBi), no biases, not even of norms; queries, keys and values perhaps clipped."""

from typing import Any

from plait.families.binding import via
from plait.families.family import Family
from plait.families.operations import CAT, Fields
from plait.families.settings import Reading, Setting, derived, key


def _inside(name: str, default: Any) -> Setting:
    """A setting in the table ``attn_config``; null and 0 mean the default, a function of the other fields."""

    def load(reading: Reading) -> Any:
        return (reading.config.get("attn_config") or {}).get(name) or default(reading)

    def save(value: Any, fields: Fields) -> dict[str, Any]:
        return {"attn_config": {name: None if value == default(fields) else value}}

    return Setting(("attn_config",), load, save)


MPT = Family(
    name="mpt",
    model_types=("mpt",),
    classes=("MptForCausalLM", "MptModel"),
    settings={
        "vocab_size": key("vocab_size", 50368),
        "d_model": key("d_model", 2048),
        "n_decoder_layers": key("n_layers", 24),
        "n_heads": key("n_heads", 16),
        "d_ff": derived(lambda fields: 4 * fields["d_model"]),
        "max_length": key("max_seq_len", 2048),
        "norm_eps": key("layer_norm_epsilon", 1e-5),
        "norm_bias": False,
        "position": "alibi",
        "qkv_bias": False,
        "output_bias": False,
        "ffn_bias": False,
        "qkv_clip": _inside("clip_qkv", lambda _: None),
        "attention_scale": _inside("softmax_scale", lambda fields: (fields["d_model"] // fields["n_heads"]) ** -0.5),
        "activation": "gelu",
    },
    weights={
        "embedding.tokens": "wte",
        "decoder.layers.{i}.attention_norms.before": "blocks.{i}.norm_1",
        "decoder.layers.{i}.attention.{query,key,value}": via("blocks.{i}.attn.Wqkv", CAT),
        "decoder.layers.{i}.attention.output": "blocks.{i}.attn.out_proj",
        "decoder.layers.{i}.ffn_norms.before": "blocks.{i}.norm_2",
        "decoder.layers.{i}.ffn.{up,down}": "blocks.{i}.ffn.{up,down}_proj",
        "decoder.norm": "norm_f",
        "head.output": "lm_head",
    },
    tied=True,
    prefix="transformer.",
    synonyms={"num_attention_heads": "n_heads", "hidden_size": "d_model", "num_hidden_layers": "n_layers"},
    # The class has ALiBi, a fourfold width and no biases, whatever these say; what they would add shows in the weights
    ignored=frozenset(
        "emb_pdrop embedding_fraction expansion_ratio init_config init_device learned_pos_emb logit_scale no_bias "
        "norm_type tokenizer_name verbose emb_prob_drop resid_prob_drop".split()
    ),
    ids={},
    tokenizer="GPTNeoXTokenizer",
)
