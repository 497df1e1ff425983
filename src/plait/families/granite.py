"""Granite: Llama with a factor on embeddings, scores, branches and logits. HyperCLOVA X: norms after blocks too."""

from plait.families.llama import LLAMA
from plait.families.operations import Conversion, chosen
from plait.families.settings import key

INVERSE = Conversion(lambda value, _: 1 / value, lambda scale, _: 1 / scale)

GRANITE = LLAMA.relative(
    "granite",
    classes=("GraniteForCausalLM", "GraniteModel"),
    settings={
        "embedding_scale": key("embedding_multiplier", 1.0),
        "attention_scale": key("attention_multiplier", 1.0),
        "residual_scale": key("residual_multiplier", 1.0),
        "logit_scale": key("logits_scaling", 1.0, INVERSE),
    },
    tokenizer=None,
)

HYPERCLOVAX = GRANITE.relative(
    "hyperclovax",
    classes=("HyperCLOVAXForCausalLM", "HyperCLOVAXModel"),
    settings={
        "norm_placement": key("use_post_norm", True, chosen("sandwich", "pre")),
        "attention_scale": key("attention_multiplier", lambda fields: fields.d_head**-0.5),
        "logit_scale": key("logits_scaling", 1.0),
    },
    weights={
        "decoder.layers.{i}.attention_norms.after": "layers.{i}.post_norm1",
        "decoder.layers.{i}.ffn_norms.after": "layers.{i}.post_norm2",
    },
)
