"""What MODEL may be on the command line: a folder, GGUF file, hub name, preset, recipe, or a package with one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from plait.cli.printing import notice, working
from plait.words import nearest

if TYPE_CHECKING:
    from plait.architecture import Architecture
    from plait.checkpoint import Checkpoint
    from plait.engine import EngineRunner
    from plait.text import Tokenizer

MOST_THREADS = 1024  # as in engine/optimize.py; a test compares them
Dtype = Literal["stored", "float32", "bfloat16", "float16", "float64"]


@dataclass(frozen=True, kw_only=True)
class Loading:
    """How a checkpoint is opened.

    Parameters
    ----------
    dtype
        The type of the weights; "stored" keeps the file's. Blocks of quantised files stay as they are on the engine,
        and become float32 for the plain model (--plain, embed, verify).
    device
        Where the model runs: cpu, cuda, mps.
    revision
        The branch, tag or commit of a hub name.
    offline
        Use only what was fetched from the hub before.
    pickle
        Read .bin files, whose weights are pickles; tensors alone are taken from them.
    random
        Random weights instead of stored ones: for a folder, and, where no text is read, a preset or a recipe.
    adapter
        A folder in PEFT's format, whose updates are added to the weights.
    """

    dtype: Dtype = "stored"
    device: str = "cpu"
    revision: str | None = None
    offline: bool = False
    pickle: bool = False
    random: bool = False
    adapter: Path | None = None

    def open(self, model: str, *, weights: bool = True, lazy: bool = False) -> Checkpoint:
        """The checkpoint that MODEL names, or all but its ``weights``, or with these left in their files (``lazy``); a
        ``ValueError`` or ``OSError`` says no."""
        with working(f"loading {model}"):
            from plait.checkpoint import load

            recipe = is_recipe(model)
            if recipe and not self.random:
                raise ValueError(f"{model}: a recipe has no weights; say --random to draw them.")
            return load(
                read_recipe(model) if recipe else locate(model),
                dtype=self.dtype,
                device=present(self.device) if weights else "meta",
                revision=self.revision,
                offline=self.offline,
                pickle=self.pickle,
                random=self.random,
                lazy=lazy and self.adapter is None,
                adapter=self.adapter if weights else None,
            )


def present(device: str) -> str:
    """The device, if this machine has it; ``ValueError`` names those there are."""
    import torch

    found = ["cpu", *(["mps"] if torch.backends.mps.is_available() else [])]
    if torch.cuda.is_available():
        found += ["cuda", *(f"cuda:{n}" for n in range(torch.cuda.device_count()))]
    if device not in found:
        raise ValueError(f"--device: this machine has no {device!r} that torch can use; there is {', '.join(found)}.")
    return device


def locate(model: str) -> str:
    """MODEL as ``plait.load`` takes it; ``ValueError`` where it can be nothing of the kind."""
    from plait.presets import PRESETS

    if not model.strip():
        raise ValueError(f"MODEL: {model!r} names nothing; give a folder, a .gguf file, a hub name or a preset.")
    if model not in PRESETS and not (":" in model or "/" in model or Path(model).exists()):
        near = nearest(model, PRESETS)
        raise ValueError(
            f"{model}: there is no such file or folder, and it is neither a hub name ('org/name') nor a preset; "
            + (f"did you mean {near!r}?" if near else "plait presets lists those.")
        )
    return model


@dataclass(frozen=True, kw_only=True)
class Running:
    """How a checkpoint computes: on a CPU and on CUDA by the engine, elsewhere by the plain model.

    Parameters
    ----------
    quantize
        Round the weights: int8, int4 (symmetric) or int4_min (with a minimum), in groups of 32.
    threads
        How many threads compute; what is not given is what torch would use.
    plain
        Let the plain model compute, with torch alone.
    """

    quantize: Literal["int8", "int4", "int4_min"] | None = None
    threads: int | None = None
    plain: bool = False

    def check(self) -> None:
        """``ValueError`` for a number of threads that makes no sense; torch is not needed to know."""
        if self.threads is not None and not 1 <= self.threads <= MOST_THREADS:
            raise ValueError(f"--threads: {self.threads} makes no sense; give a whole number from 1 to {MOST_THREADS}.")

    def by_model(self, loading: Loading) -> bool:
        """Whether the plain model computes, and not the engine."""
        place, _, _ = loading.device.partition(":")
        return self.plain or place not in ("cpu", "cuda") or loading.dtype in ("float16", "float64")

    def open(self, model: str, loading: Loading) -> tuple[Checkpoint, EngineRunner | None]:
        """The checkpoint that MODEL names, and the engine where that computes."""
        self.check()
        place, _, _ = loading.device.partition(":")
        plain = self.by_model(loading)
        if self.quantize is not None and (plain or place != "cpu"):
            raise ValueError("--quantize: the engine does that, on a CPU, in float32; leave out what excludes it.")
        if self.threads is not None and place == "cuda" and not plain:
            raise ValueError("--threads: they are of the CPU's kernels, and a GPU has none; leave it out.")
        if plain:
            if self.threads is not None:
                import torch

                from plait.engine.optimize import check_threads

                torch.set_num_threads(check_threads(self.threads))
            return loading.open(model), None
        checkpoint = loading.open(model, lazy=not loading.random)
        with working(f"preparing {model}"):
            from plait.engine import kernels, optimize

            if place == "cpu" and not kernels.available() and os.environ.get("PLAIT_KERNELS") != "off":
                notice(f"{kernels.why_not()} Torch computes instead.")
            return checkpoint, optimize(
                checkpoint,
                dtype=loading.dtype,
                quantization=self.quantize,
                threads=self.threads,
                device=loading.device,
            )


def check_text(model: str) -> None:
    """``ValueError`` for a preset or a recipe, which has no tokenizer, before its weights are drawn."""
    if not has_weights(model):
        if is_recipe(model):
            read_recipe(model)  # one that is not there, or is wrong, is told first
        raise ValueError(
            f"{model}: a preset or a recipe has no tokenizer to read text with; name a folder that has one, or try the "
            "shape with plait bench."
        )


def has_weights(model: str) -> bool:
    """Whether MODEL names a checkpoint, rather than a preset or a recipe."""
    from plait.presets import PRESETS

    return not is_recipe(model) and (model not in PRESETS or Path(model).exists())


def is_recipe(model: str) -> bool:
    """Whether MODEL is meant as an architecture in a TOML file."""
    return model.endswith(".toml") and not Path(model).is_dir()


def read_recipe(model: str) -> Architecture:
    """The architecture in a TOML file; ``ValueError`` names the file."""
    from plait.architecture import Architecture

    try:
        return Architecture.from_toml(Path(model).expanduser().read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{model}: there is no such recipe.") from None
    except UnicodeDecodeError:
        raise ValueError(f"{model}: it is not UTF-8, and so no recipe.") from None
    except ValueError as error:
        raise ValueError(f"{model}: {error}") from None


def architecture_of(model: str) -> Architecture:
    """The architecture that MODEL names, without its weights: a preset's, a recipe's, or a checkpoint's."""
    from plait.presets import PRESETS, preset

    if is_recipe(model):
        return read_recipe(model)
    place = locate(model)
    if place in PRESETS and not Path(place).exists():
        return preset(place)
    return Loading().open(model, weights=False).architecture


def tokenizer_of(model: str) -> Tokenizer:
    """The tokenizer that MODEL's checkpoint carries."""
    folder = Path(model).expanduser()
    if folder.is_dir() and not (folder / "config.json").exists():  # a vocabulary without a model
        from plait.text import load_tokenizer

        tokenizer = load_tokenizer(folder)
    else:
        tokenizer = Loading().open(model, weights=False).tokenizer
    if tokenizer is None:
        raise ValueError(f"{model}: this checkpoint has no tokenizer.")
    return tokenizer
