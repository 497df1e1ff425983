"""EuroBERT: Llama without the causal mask."""

from plait.families.family import Family
from plait.families.heads import TOKENS, ClassHead
from plait.families.llama import LLAMA
from plait.families.operations import words
from plait.families.rope import rotary
from plait.families.settings import key

POOLING = key("classifier_pooling", "late", words({"bos": "cls", "mean": "mean"}, "classifier_pooling"))

EUROBERT = Family(
    name="eurobert",
    model_types=("eurobert",),
    classes=("EuroBertForMaskedLM", "EuroBertModel"),
    head="masked",
    heads={
        "ForSequenceClassification": ClassHead(
            pooling=POOLING, transform="gelu", weights={"head.{dense,output}": "{dense,classifier}"}
        ),
        "ForTokenClassification": TOKENS,
    },
    settings={
        **{name: rule for name, rule in LLAMA.settings.items() if name != "n_decoder_layers"},
        **rotary(8192),
        "vocab_size": key("vocab_size", 128256),
        "d_model": key("hidden_size", 768),
        "n_encoder_layers": key("num_hidden_layers", 12),
        "n_heads": key("num_attention_heads", 12),
        "d_ff": key("intermediate_size", 3072),
        "norm_eps": key("rms_norm_eps", 1e-5),
        "logit_bias": key("mlp_bias", False),
    },
    weights={name.replace("decoder.", "encoder."): rule for name, rule in LLAMA.weights.items()},
    prefix="model.",
    leftovers=LLAMA.leftovers,
    ids={"bos_token_id": 128000, "eos_token_id": 128001, "pad_token_id": 128001},
)
