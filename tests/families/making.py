"""Make a recipe's checkpoint with the reference library: weights drawn so that a wrong norm or a lost bias shows."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from plait.families import Family, family_for
from tests.families.recipes import RECIPES
from tests.families.recipes.base import Recipe

# Their tables of positions are computed, also where they are stored
COMPUTED = ("MarianConfig", "PegasusConfig", "M2M100Config", "FSMTConfig")


def build(reference: ModuleType, recipe: Recipe | str, seed: int = 0) -> Any:
    """The reference model, in eval mode: norms away from 1, biases (also the buffers of logits) away from 0."""
    recipe = RECIPES[recipe] if isinstance(recipe, str) else recipe
    config = getattr(reference, recipe.config)(**recipe.settings)
    torch.manual_seed(seed)
    model = getattr(reference, recipe.model)(config)
    if recipe.stored_head:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    generator = torch.Generator().manual_seed(seed + 1)
    kept = model.state_dict().keys()  # other buffers are tables that the class computes
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if (
                name not in kept
                or name.endswith(("inv_freq", "embed_scale", "position_ids", "token_type_ids"))
                or "sinusoid" in name
            ):
                continue
            if "embed_positions" in name and recipe.config in COMPUTED:
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            if tensor.ndim == 1 and name.endswith("weight"):
                tensor.copy_(1 + 0.3 * noise)
            elif tensor.ndim == 1 or "final_logits_bias" in name:
                tensor.copy_(0.3 * noise)
            else:
                tensor.copy_(noise * 0.6 / tensor.shape[-1] ** 0.5 if tensor.ndim > 1 else noise)
            if "embed" in name or "wte" in name or "wpe" in name or name.endswith("shared.weight"):
                tensor.copy_(0.7 * noise)
    return model.eval()


def answer(model: Any, names: dict[str, Tensor]) -> Tensor:
    """What a reference model says, as ours does: starts and ends of spans side by side, an axis for a single label."""
    with torch.no_grad():
        said = model(**names)
    if "start_logits" in said:
        return torch.stack((said["start_logits"], said["end_logits"]), -1)
    first = next(said[name] for name in ("logits", "prediction_logits", "last_hidden_state") if name in said)
    return first.unsqueeze(-1) if type(model).__name__ == "ElectraForPreTraining" else first


def checkpoint(
    reference: ModuleType, recipe: Recipe | str, folder: Path, seed: int = 0
) -> tuple[Any, dict, dict[str, Tensor]]:
    """The model, its config.json and its tensors, as ``save_pretrained`` writes them."""
    model = build(reference, recipe, seed)
    model.save_pretrained(folder)
    return model, *read(folder)


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json and tensors of a folder."""
    return json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")


def write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """A folder that plait and the reference library can read."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    save_file(
        {name: t.clone().contiguous() for name, t in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )


def opened(config: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[Family, Any, Any]:
    """Family, architecture and binding of a config with the tensors beside it."""
    family = family_for(config)

    def equal(first: str, second: str) -> bool:
        return torch.equal(tensors[first], tensors[second])

    architecture = family.architecture(config, tensors, equal)
    return family, architecture, family.bind(architecture, tensors, equal)
