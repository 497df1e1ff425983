"""VaultGemma: Gemma 2 without the norms behind its blocks."""

from plait.families.gemma import GEMMA2

VAULTGEMMA = GEMMA2.relative(
    "vaultgemma",
    classes=("VaultGemmaForCausalLM", "VaultGemmaModel"),
    settings={"norm_placement": "pre"},
    weights={
        "decoder.layers.{i}.attention_norms.after": None,
        "decoder.layers.{i}.ffn_norms.after": None,
    },
)
