"""Small checkpoint folders, made by hand: Llama's names, random numbers, norm weights that are not 1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

torch.set_num_threads(1)

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}
EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def llama_tensors(*, head: bool = True, seed: int = 0, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    shapes: dict[str, tuple[int, ...]] = {EMBED: (40, 16), "model.norm.weight": (16,)}
    for i in range(2):
        layer = f"model.layers.{i}"
        shapes |= {
            f"{layer}.self_attn.q_proj.weight": (16, 16),
            f"{layer}.self_attn.k_proj.weight": (4, 16),
            f"{layer}.self_attn.v_proj.weight": (4, 16),
            f"{layer}.self_attn.o_proj.weight": (16, 16),
            f"{layer}.mlp.gate_proj.weight": (24, 16),
            f"{layer}.mlp.up_proj.weight": (24, 16),
            f"{layer}.mlp.down_proj.weight": (16, 24),
            f"{layer}.input_layernorm.weight": (16,),
            f"{layer}.post_attention_layernorm.weight": (16,),
        }
    if head:
        shapes[HEAD] = (40, 16)
    generator = torch.Generator().manual_seed(seed)
    return {
        name: (torch.randn(shape, generator=generator) * 0.4 + ("norm" in name)).to(dtype)
        for name, shape in shapes.items()
    }


def write_config(folder: Path, **changes: Any) -> dict[str, Any]:
    """A change to ``...`` leaves the key out."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {key: value for key, value in {**CONFIG, **changes}.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(config))
    return config


def write_llama(
    folder: Path, tensors: Mapping[str, Tensor] | None = None, *, metadata: dict[str, str] | None = None, **changes: Any
) -> Path:
    write_config(folder, **changes)
    save_file(dict(tensors or llama_tensors()), folder / "model.safetensors", metadata=metadata or {"format": "pt"})
    return folder


def write_shards(folder: Path, tensors: Mapping[str, Tensor] | None = None, n: int = 3, prefix: str = "model") -> Path:
    write_config(folder)
    tensors = dict(tensors or llama_tensors())
    files = [f"{prefix}-{i:05}-of-{n:05}.safetensors" for i in range(1, n + 1)]
    places = {name: files[i % n] for i, name in enumerate(tensors)}
    for file in files:
        part = {name: tensor for name, tensor in tensors.items() if places[name] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": places}
    (folder / f"{prefix}.safetensors.index.json").write_text(json.dumps(index))
    return folder


def read_folder(folder: Path) -> dict[str, Tensor]:
    """Every safetensors tensor in a folder, by the library's own reader."""
    from safetensors.torch import load_file

    return {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}


def same_tensors(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    """The same names, and under each the same type, shape and bytes."""
    return first.keys() == second.keys() and all(
        a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.view(torch.uint8), b.view(torch.uint8))
        for a, b in ((first[name], second[name]) for name in first)
    )


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, with its bytes."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def logits(checkpoint: Any, tokens: tuple[int, ...] = (3, 7, 1, 19, 30)) -> Tensor:
    with torch.no_grad():
        return checkpoint.model(torch.tensor([tokens]))
