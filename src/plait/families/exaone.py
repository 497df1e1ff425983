"""EXAONE 3: Llama under GPT-2's names; some files have Llama's own."""

from plait.families.llama import LLAMA
from plait.families.rope import rotary
from plait.families.settings import key

NAMES = {
    "embedding.tokens": "wte",
    "decoder.layers.{i}.attention_norms.before": "h.{i}.ln_1",
    "decoder.layers.{i}.attention.{query,key,value,output}": "h.{i}.attn.attention.{q_proj,k_proj,v_proj,out_proj}",
    "decoder.layers.{i}.ffn_norms.before": "h.{i}.ln_2",
    "decoder.layers.{i}.ffn.{gate,up,down}": "h.{i}.mlp.{c_fc_0,c_fc_1,c_proj}",
    "decoder.norm": "ln_f",
}
EXAONE = LLAMA.relative(
    "exaone",
    classes=("LlamaForCausalLM", "LlamaModel"),  # with this config
    settings={
        **rotary(4096, theta=5e5),
        "vocab_size": key("vocab_size", 102400),
        "n_kv_heads": key("num_key_value_heads", 8, nullable=True),
        "d_ff": key("intermediate_size", 14336),
        "norm_eps": key("rms_norm_eps", 1e-5),
    },
    weights=NAMES,
    prefix="transformer.",
    prefixes=(LLAMA.prefix,),
    others={stored: str(LLAMA.weights[name]) for name, stored in NAMES.items()},
    leftovers=(r"(.*\.)?rotary(_emb)?\.inv_freq",),
    synonyms={
        "num_layers": "num_hidden_layers",
        "layer_norm_epsilon": "rms_norm_eps",
        "activation_function": "hidden_act",
    },
    ignored=frozenset({"embed_dropout"}),
    ids={"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 361},
    tokenizer=None,
)
