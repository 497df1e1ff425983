"""T5Gemma: Gemma 2 in two towers, each with a config of its own."""

from math import sqrt

from plait.families.family import Family
from plait.families.gemma import GEMMA2
from plait.families.nested import two_configs
from plait.families.settings import derived

T5GEMMA = Family(
    name="t5gemma",
    model_types=("t5gemma",),
    classes=("T5GemmaForConditionalGeneration", "T5GemmaModel"),
    settings=two_configs(
        "t5gemma",
        {**GEMMA2.settings, "embedding_scale": derived(lambda fields: sqrt(fields["d_model"]))},
        GEMMA2.ignored | {"is_decoder"},
    ),
    weights={
        "{source_embedding,embedding}.tokens": "{encoder,decoder}.embed_tokens",
        "{tower}.layers.{i}.attention.{query,key,value,output}": "{tower}.layers.{i}.self_attn.{q,k,v,o}_proj",
        "{tower}.layers.{i}.attention_norms.{before,after}": "{tower}.layers.{i}.{pre,post}_self_attn_layernorm",
        "decoder.layers.{i}.cross.{query,key,value,output}": "decoder.layers.{i}.cross_attn.{q,k,v,o}_proj",
        "decoder.layers.{i}.cross_norms.{before,after}": "decoder.layers.{i}.{pre,post}_cross_attn_layernorm",
        "{tower}.layers.{i}.ffn.{gate,up,down}": "{tower}.layers.{i}.mlp.{gate,up,down}_proj",
        "{tower}.layers.{i}.ffn_norms.{before,after}": "{tower}.layers.{i}.{pre,post}_feedforward_layernorm",
        "{tower}.norm": "{tower}.norm",
        "head.output": "lm_head.out_proj",
    },
    tied=True,
    prefix="model.",
    leftovers=(r"(encoder|decoder)\.rotary_emb\.inv_freq",),
    ignored=frozenset({"vocab_size", "classifier_dropout_rate", "is_encoder_decoder"}),
    extra=lambda a: {"vocab_size": a.vocab_size},
    ids={"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2},
    tokenizer="GemmaTokenizer",
)
