"""GGUF's names and metadata: a checkpoint of the reference library, converted as llama.cpp converts it, read back."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from plait.families import FamilyError
from plait.families.gguf import DIALECTS, gguf_family
from plait.families.gguf_rope import recognised
from plait.model import Transformer
from plait.parameters import parameters
from tests.families.making import checkpoint, opened

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
TWO_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def converted(arch: str, config: dict[str, Any], stored: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Metadata and tensors as convert_hf_to_gguf.py makes them, written here independently of plait's rules."""
    names = NAMES | (TWO_NORMS if arch.startswith("gemma") else {"post_attention_layernorm": "ffn_norm"})
    out: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        path, leaf = name.rsplit(".", 1)
        for start in ("model.layers.", "transformer.h."):
            if path.startswith(start):
                i, _, part = path.removeprefix(start).partition(".")
                path = f"blk.{i}.{names[part]}"
        tensor = tensor.float()
        if arch == "llama" and names.get(part := name.split(".", 3)[-1].rsplit(".", 1)[0]) in ("attn_q", "attn_k"):
            heads = config["num_attention_heads" if "q_proj" in part else "num_key_value_heads"]
            shape = tensor.shape
            tensor = tensor.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).transpose(1, 2).reshape(shape)
        if arch.startswith("gemma") and "norm" in name:
            tensor = tensor + 1
        if arch == "gpt2" and leaf == "weight" and (".c_" in name):
            tensor = tensor.T
        out[f"{names.get(path, path)}.{leaf}"] = tensor.contiguous()
    get = config.get
    metadata = {
        "vocab_size": get("vocab_size"),
        "context_length": get("max_position_embeddings") or get("n_positions"),
        "embedding_length": get("hidden_size") or get("n_embd"),
        "block_count": get("num_hidden_layers") or get("n_layer"),
        "feed_forward_length": get("intermediate_size") or get("n_inner") or 4 * get("n_embd", 0),
        "attention.head_count": get("num_attention_heads") or get("n_head"),
        "attention.head_count_kv": get("num_key_value_heads"),
        "attention.key_length": get("head_dim"),
        "attention.value_length": get("head_dim"),
        "attention.layer_norm_rms_epsilon": get("rms_norm_eps") and torch.tensor(get("rms_norm_eps")).item(),
        "attention.layer_norm_epsilon": get("layer_norm_epsilon") and torch.tensor(get("layer_norm_epsilon")).item(),
        "attention.sliding_window": get("sliding_window"),
        "attn_logit_softcapping": get("attn_logit_softcapping"),
        "final_logit_softcapping": get("final_logit_softcapping"),
        "rope.dimension_count": get("head_dim"),
    }
    rope = get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    if rope:
        metadata["rope.freq_base"] = rope["rope_theta"]
    if rope.get("rope_type") in ("linear", "yarn"):
        metadata |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": float(rope["factor"])}
        metadata["rope.scaling.original_context_length"] = rope.get("original_max_position_embeddings")
        metadata["rope.scaling.yarn_beta_fast"] = rope.get("beta_fast")
        metadata["rope.scaling.yarn_beta_slow"] = rope.get("beta_slow")
    metadata = {f"{arch}.{k}": v for k, v in metadata.items() if v is not None}
    return {"general.architecture": arch, "general.name": "tiny", "tokenizer.ggml.model": "gpt2", **metadata}, out


def gguf_opened(arch: str, metadata: dict[str, Any], stored: dict[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
    family = gguf_family(arch)
    architecture = family.architecture(metadata, stored, lambda a, b: torch.equal(stored[a], stored[b]))
    assert not family.unread(metadata)
    binding = family.bind(architecture, stored)
    return architecture, {name: binding.read(name, stored.__getitem__) for name in binding.entries}


def logits(architecture: Any, parameters: dict[str, Tensor], tokens: Tensor) -> Tensor:
    with torch.device("meta"):
        model = Transformer(architecture)
    model.load_state_dict(parameters, assign=True)
    with torch.no_grad():
        return model.eval()(tokens)


SCALED = ["llama", "llama-tied-biased", "llama-linear", "llama-yarn"]
RECIPES = [
    *(("llama", name) for name in SCALED),
    *((name, name) for name in ("qwen2", "qwen3", "gpt2", "gemma2", "gemma3")),
]


@pytest.mark.parametrize(("arch", "recipe"), RECIPES)
def test_a_converted_checkpoint_computes_the_same(
    arch: str, recipe: str, reference: ModuleType, tmp_path: Path
) -> None:
    import dataclasses

    from tests.families.recipes import RECIPES as MADE

    changes: dict[str, Any] = {}
    if arch.startswith("gemma"):
        changes = {"query_pre_attn_scalar": 10}  # the head's width: all that llama.cpp knows
    if arch == "gemma3":
        table = {"rope_type": "default", "rope_theta": 10000.0}
        changes |= {"rope_parameters": MADE[recipe].settings["rope_parameters"] | {"sliding_attention": table}}
    if recipe == "qwen3":
        changes = {"attention_bias": False}
    if recipe == "llama-tied-biased":
        changes = {"hidden_act": "silu"}
    made = dataclasses.replace(MADE[recipe], settings=MADE[recipe].settings | changes)
    model, config, stored = checkpoint(reference, made, tmp_path)
    metadata, tensors = converted(arch, config, stored)
    architecture, ours = gguf_opened(arch, metadata, tensors)

    assert {name: tuple(t.shape) for name, t in ours.items()} == parameters(architecture)
    _, plain, _ = opened(config, stored)
    apart = set(architecture.difference(plain))
    assert apart == ({"norm_weight"} if arch.startswith("gemma") else set())
    tokens = torch.randint(4, 60, (2, made.lengths[-1]), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(tokens).logits
    assert (logits(architecture, ours, tokens) - expected).abs().max() <= 2e-5 * max(1, expected.abs().max().item())


def test_ex1_queries_and_keys_come_back_by_their_own_heads(reference: ModuleType, tmp_path: Path) -> None:
    """6 heads and 3: permuting keys by the queries' heads would show."""
    _, config, stored = checkpoint(reference, "llama", tmp_path)
    _, ours = gguf_opened("llama", *converted("llama", config, stored))
    for name, part in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
        assert torch.equal(
            ours[f"decoder.layers.1.attention.{name}.weight"], stored[f"model.layers.1.self_attn.{part}.weight"]
        )


def test_ex1_and_are_written_as_they_were_stored(reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, "llama-tied-biased", tmp_path)
    metadata, tensors = converted("llama", config, stored)
    architecture, ours = gguf_opened("llama", metadata, tensors)
    written = dict(gguf_family("llama").export(architecture, ours.__getitem__))
    assert written.keys() == tensors.keys() and all(torch.equal(written[n], tensors[n]) for n in written)


def llama3_factors(theta: float, width: int, factor: float, low: float, high: float, original: int) -> list[float]:
    """As convert_hf_to_gguf.py writes rope_freqs.weight."""
    out = []
    for frequency in 1.0 / theta ** (torch.arange(0, width, 2, dtype=torch.float32) / width):
        wavelength = 2 * torch.pi / frequency.item()
        if wavelength < original / high:
            out.append(1.0)
        elif wavelength > original / low:
            out.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return torch.tensor(out).tolist()


@pytest.mark.parametrize("original", [8192, 32])
def test_rope_frequencies_as_a_tensor(original: int, reference: ModuleType, tmp_path: Path) -> None:
    """Llama 3.1's own numbers are recognised; any other list is kept as it is. Both compute what the reference does."""
    import dataclasses

    from tests.families.recipes import RECIPES as MADE

    made = MADE["llama-3.1"]
    table = made.settings["rope_parameters"] | {"original_max_position_embeddings": original, "rope_theta": 5e5}
    made = dataclasses.replace(made, settings=made.settings | {"rope_parameters": table})
    model, config, stored = checkpoint(reference, made, tmp_path)
    metadata, tensors = converted("llama", config, stored)
    factors = llama3_factors(5e5, 10, 8.0, 1.0, 4.0, original)
    tensors["rope_freqs.weight"] = torch.tensor(factors)
    with pytest.raises(FamilyError, match="rope_freqs.weight: the file scales its rotations by this tensor"):
        gguf_family("llama").architecture(metadata, tensors, lambda a, b: False)
    architecture, ours = gguf_opened("llama", metadata | {"rope_freqs.weight": factors}, tensors)
    assert architecture.rope.scaling.kind == ("llama3" if original == 8192 else "longrope")
    tokens = torch.randint(4, 60, (1, 60), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(tokens).logits
    assert (logits(architecture, ours, tokens) - expected).abs().max() < 1e-4


def test_recognised() -> None:
    for width, theta, factor in ((128, 5e5, 8.0), (64, 5e5, 32.0)):
        found = recognised(llama3_factors(theta, width, factor, 1.0, 4.0, 8192), theta)
        assert (found["rope_type"], found["factor"]) == ("llama3", factor)


def test_metadata() -> None:
    llama = {
        "general.architecture": "llama",
        "llama.embedding_length": 64,
        "llama.attention.head_count": 4,
        "llama.block_count": 2,
        "llama.feed_forward_length": [96, 96],
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.tokens": ["a"] * 77,
    }
    a = gguf_family("llama").architecture(llama)
    assert (a.vocab_size, a.d_ff, a.head, a.n_kv_heads) == (77, 96, "language", 4)
    single = torch.tensor(1e-5).item()
    assert single != 1e-5
    assert (
        gguf_family("llama").architecture(llama | {"llama.attention.layer_norm_rms_epsilon": single}).norm_eps == 1e-5
    )
    for wrong, message in (
        ({"llama.feed_forward_length": [96, 64]}, "feed_forward_length: it differs from layer to layer"),
        ({"llama.attention.value_length": 8}, "value_length: values are as wide as keys here, 16"),
        ({"llama.expert_count": 8}, "experts"),
        ({"llama.rope.scaling.type": "longrope"}, "short_factor"),
    ):
        with pytest.raises(FamilyError, match=message):
            gguf_family("llama").architecture(llama | wrong)
    for key in ("scaling.factor", "scaling.original_context_length", "dimension_count", "freq_base"):
        for value in ("8", True):
            with pytest.raises(FamilyError, match=f"rope.{key}: .* is no number"):
                gguf_family("llama").architecture(llama | {f"llama.rope.{key}": value})
    for table in ({"type": "none", "factor": 4.0}, {"factor": 1.0}, {"type": "linear"}):
        scaling = {f"llama.rope.scaling.{name}": value for name, value in table.items()}
        assert gguf_family("llama").architecture(llama | scaling).rope.scaling is None
    assert gguf_family("llama").architecture(llama | {"llama.rope.scaling.factor": 4.0}).rope.scaling.kind == "linear"
    assert gguf_family("llama").unread(llama | {"llama.frobnicate": 1}) == ("frobnicate",)
    assert gguf_family("llama").architecture(llama | {"llama.attention.sliding_window": 9}).layer_types[0].window == 9


def test_gemma_scores_are_scaled_by_the_size_of_the_model() -> None:
    base = {"gemma2.embedding_length": 4608, "gemma2.attention.head_count": 32, "gemma2.attention.head_count_kv": 16,
            "gemma2.attention.key_length": 128, "gemma2.feed_forward_length": 96, "gemma2.vocab_size": 77}  # fmt: skip
    scales = {n: gguf_family("gemma2").architecture(base | {"gemma2.block_count": n}).attention_scale for n in (26, 46)}
    assert scales == {26: 128**-0.5, 46: 144**-0.5}


def test_unknown_architectures_are_named() -> None:
    with pytest.raises(FamilyError, match="plait reads no 'mamba' from GGUF; it reads llama, qwen2"):
        gguf_family("mamba")
    decoders = {"llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gpt2", "phi3", "starcoder2"}
    assert {family.arch for family in DIALECTS} == decoders | {"bert"}


def test_smollm2(smollm2: Path) -> None:
    from plait.checkpoint.gguf import GGUFSource
    from plait.presets import preset

    source = GGUFSource(smollm2)
    family = gguf_family(source.metadata["general.architecture"])
    architecture = family.architecture(source.metadata, source.names, lambda a, b: False)
    assert architecture == preset("smollm2-135m")
    assert not family.unread(source.metadata)
    assert len(family.bind(architecture, source.names).entries) == len(source.names)
