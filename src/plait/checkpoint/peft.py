"""PEFT's format for adapters: adapter_config.json, and adapter_model.safetensors under a foreign family's names."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from plait.architecture import Architecture
from plait.checkpoint.adapter import Adapter, AdapterError, LowRank
from plait.checkpoint.native import NATIVE
from plait.checkpoint.peft_modules import Table, apart, entries_of, joined, table_of, turned
from plait.checkpoint.record import Checkpoint
from plait.checkpoint.replacing import whole_folder
from plait.checkpoint.restating import restated
from plait.checkpoint.safetensors import SafetensorsSource
from plait.checkpoint.saving import choose_dialect
from plait.checkpoint.shards import write_tensors
from plait.families.binding import few
from plait.parameters import parameters

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
OUTER = "base_model.model."  # what PEFT puts in front of the class's own names
DOWN, UP, WEIGHT = ".lora_A.weight", ".lora_B.weight", ".weight"
HARMLESS = """
    peft_type task_type base_model_name_or_path revision peft_version auto_mapping inference_mode r lora_alpha
    lora_dropout target_modules exclude_modules rank_pattern alpha_pattern layers_to_transform layers_pattern bias
    modules_to_save fan_in_fan_out use_rslora init_lora_weights eva_config megatron_core qalora_group_size
    ensure_weight_tying runtime_config
""".split()
INITIAL = ("gaussian", "orthogonal", "eva")  # beginnings that leave the weights beside the adapter as they were
TASKS = {"decoder": "CAUSAL_LM", "encoder-decoder": "SEQ_2_SEQ_LM"}


def read_adapter(folder: str | os.PathLike[str], checkpoint: Checkpoint) -> Adapter:
    """The adapter in ``folder`` for ``checkpoint``, under canonical names.

    Raises ``AdapterError`` for files that are not there, a kind of adapter that plait does not have, tensors that have
    no place in the model, and modules that are to be adapted and have no tensors.
    """
    path = Path(folder).expanduser()
    config = _read_config(path)
    source = SafetensorsSource([_present(path / WEIGHTS)])
    stored = {name.removeprefix(OUTER): name for name in source.names}
    table, prefix = _table_for(checkpoint, stored)
    modules = {_bare(entry.stored[0], prefix): entry for entry, _ in table.values()}
    updates: dict[str, LowRank] = {}
    whole: dict[str, Tensor] = {}
    adapted: list[str] = []
    strange: list[str] = []
    for name in stored:
        module = name.removesuffix(DOWN)
        entry = modules.get(_bare(module + WEIGHT if name.endswith(DOWN) else name, prefix))
        if name.endswith(UP) and name.removesuffix(UP) + DOWN in stored:
            continue
        if entry is None or entry.gathers or (name.endswith(DOWN) and module + UP not in stored):
            strange.append(name)
        elif name.endswith(DOWN):
            adapted.append(module)
            down, up = source.read(stored[name]), source.read(stored[module + UP])
            updates |= apart(entry, module, down, up, _scale(config, module, len(down)))
        else:
            whole |= zip(entry.parts, entry.load([source.read(stored[name])]), strict=True)
    if strange:
        raise AdapterError(f"{path}: this model has no place for {few(sorted(strange))}.")
    _check_targets(path, config, adapted)
    adapter = Adapter(updates=updates, whole=whole, dropout=float(config.get("lora_dropout") or 0.0))
    adapter.check(parameters(checkpoint.architecture))
    return adapter


def save_adapter(
    adapter: Adapter,
    checkpoint: Checkpoint,
    folder: str | os.PathLike[str],
    dialect: str | None = None,
    overwrite: bool = False,
    *,
    base: str | None = None,
) -> Path:
    """Write an adapter of ``checkpoint`` to ``folder``, whole or not at all; returns the folder.

    Args:
        adapter: what to write.
        checkpoint: what it was trained on; its weights are not looked at.
        folder: must not exist or be empty, unless ``overwrite``, which replaces an adapter there.
        dialect: whose names the modules have, as for ``plait.save``.
        base: where others find the checkpoint, for the file to say.

    Raises ``AdapterError`` for what the format cannot say, ``FamilyError`` where a dialect cannot say the architecture.
    """
    target = Path(folder).expanduser()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        if not overwrite or not (target / CONFIG).is_file():
            raise AdapterError(
                f"{target}: it exists and is no empty folder, nor an adapter to overwrite; choose another."
            )
    adapter.check(parameters(checkpoint.architecture))
    family, _, same = choose_dialect(checkpoint, dialect)
    said = restated(checkpoint.architecture, family)
    table, prefix = table_of(family, said.architecture, checkpoint.layout.binding if same else None)
    bare = prefix if checkpoint.architecture.head is None else ""
    tensors: dict[str, Tensor] = {}
    ranks: dict[str, tuple[int, float]] = {}
    for entry in entries_of(table, adapter.updates):
        down, up, scale = joined(entry, adapter.updates)
        module = entry.stored[0].removesuffix(WEIGHT).removeprefix(bare)
        tensors |= {OUTER + module + DOWN: down, OUTER + module + UP: up}
        ranks[module] = len(down), scale * len(down)
    saved: list[str] = []
    for entry in entries_of(table, adapter.whole):
        if lost := [part for part in entry.parts if part not in adapter.whole]:
            raise AdapterError(f"{entry.stored[0]}: it also holds {few(lost)}, and those were not trained with it.")
        values = [said.apply(part, adapter.whole[part]) for part in entry.parts]
        tensors |= {
            OUTER + name.removeprefix(bare): t for name, t in zip(entry.stored, entry.save(values), strict=True)
        }
        saved += [name.removeprefix(bare).rpartition(".")[0] for name in entry.stored]
    config = _config(checkpoint.architecture, adapter, ranks, saved, base)
    config["fan_in_fan_out"] = any(turned(entry) for entry in entries_of(table, adapter.updates))
    with whole_folder(target, replaces={CONFIG, WEIGHTS} if overwrite else ()) as new:
        write_tensors(new / WEIGHTS, tensors, {"format": "pt"})
        (new / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return target


# Names


def _table_for(checkpoint: Checkpoint, stored: Mapping[str, str]) -> tuple[Table, str]:
    """In the spelling of a file: canonical names, or those of the checkpoint's family."""
    own = parameters(checkpoint.architecture)
    if all(re.sub(r"\.lora_[AB]\.weight$", WEIGHT, name) in own for name in stored):
        return table_of(NATIVE, checkpoint.architecture, None)
    family, _, same = choose_dialect(checkpoint, "hf")
    return table_of(
        family, restated(checkpoint.architecture, family).architecture, checkpoint.layout.binding if same else None
    )


def _bare(name: str, prefix: str) -> str:
    return name.removeprefix(prefix)


# adapter_config.json


def _config(
    architecture: Architecture,
    adapter: Adapter,
    ranks: Mapping[str, tuple[int, float]],
    saved: list[str],
    base: str | None,
) -> dict[str, Any]:
    (rank, alpha), _ = Counter(ranks.values()).most_common(1)[0] if ranks else ((1, 1.0), 0)
    return {
        "peft_type": "LORA",
        "task_type": TASKS.get(architecture.kind) if architecture.head == "language" else None,
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": adapter.dropout,
        "target_modules": sorted(ranks),
        "rank_pattern": {module: r for module, (r, _) in sorted(ranks.items()) if r != rank},
        "alpha_pattern": {module: a for module, (_, a) in sorted(ranks.items()) if a != alpha},
        "modules_to_save": sorted(dict.fromkeys(saved)) or None,
        "bias": "none",
        "init_lora_weights": True,
        "inference_mode": True,
    }


def _read_config(folder: Path) -> dict[str, Any]:
    path = _present(folder / CONFIG)
    try:
        config = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError):
        raise AdapterError(f"{path}: this is no JSON object.") from None
    if config.get("peft_type") != "LORA":
        raise AdapterError(f"{path}: peft_type is {config.get('peft_type')!r}; plait reads 'LORA'.")
    begun = config.get("init_lora_weights", True)
    if isinstance(begun, str) and begun not in INITIAL:
        raise AdapterError(
            f"{path}: init_lora_weights {begun!r} changed the weights beside the adapter; they are needed."
        )
    for key, value in config.items():
        if value and key not in HARMLESS:
            raise AdapterError(f"{path}: {key} is {value!r}; plait reads adapters without it.")
    return config


def _present(path: Path) -> Path:
    if not path.is_file():
        pickled = path.with_suffix(".bin").is_file()
        hint = (
            "it has a pickle instead, which plait does not open" if pickled else "an adapter in PEFT's format has one"
        )
        raise AdapterError(f"{path}: there is no such file; {hint}.")
    return path


def _scale(config: Mapping[str, Any], module: str, rank: int) -> float:
    """What the module's update is multiplied by: alpha / r, or by ``use_rslora`` alpha / sqrt(r)."""

    def of(key: str, patterns: str) -> float:
        found = (v for p, v in (config.get(patterns) or {}).items() if re.match(rf"(.*\.)?({p})$", module))
        return next(found, config.get(key))  # type: ignore[return-value]

    said, alpha = of("r", "rank_pattern"), of("lora_alpha", "alpha_pattern")
    if said != rank or not isinstance(alpha, int | float):
        raise AdapterError(f"{CONFIG}: {module} has r {said!r} and lora_alpha {alpha!r}; its tensors have r {rank}.")
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _check_targets(path: Path, config: Mapping[str, Any], adapted: list[str]) -> None:
    """``AdapterError`` for a target that nothing was saved for."""
    targets = config.get("target_modules")
    for target in targets if isinstance(targets, list) else []:
        if not any(name == target or name.endswith(f".{target}") for name in adapted):
            raise AdapterError(f"{path}: target_modules names {target!r}, and no tensor is of such a module.")
