"""Arcee's AFM: Llama with a squared relu and no gate."""

from plait.families.llama import LLAMA
from plait.families.operations import ACTIVATION
from plait.families.rope import rotary
from plait.families.settings import key

ARCEE = LLAMA.relative(
    "arcee",
    classes=("ArceeForCausalLM", "ArceeModel"),
    settings={
        **rotary(4096),
        "d_model": key("hidden_size", 2560),
        "d_ff": key("intermediate_size", 18432),
        "norm_eps": key("rms_norm_eps", 1e-5),
        "activation": key("hidden_act", "relu2", ACTIVATION),
        "gated": False,
    },
    ids={"bos_token_id": 128000, "eos_token_id": 128001},
    tokenizer=None,
)
