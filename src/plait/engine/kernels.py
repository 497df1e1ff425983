"""The kernels: finds the library that suits the machine, loads it, and calls it; without one, says why in plain words.

``PLAIT_KERNELS`` is ``off`` or the set of instructions to use: ``portable``, ``avx2``, ``avx512``; unset, or where the
machine does not have it, the best that it has.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

import plait.engine
from plait.checkpoint.notice import notice
from plait.engine.packed import FORMATS, Packed

ABI = 2  # of csrc/library.cpp
BACKENDS = ("portable", "avx2", "avx512")
ACTIVATIONS = ("none", "relu", "relu2", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh")


class Matrix(ctypes.Structure):
    """csrc/formats.h"""

    _fields_ = (
        ("format", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("data", ctypes.c_void_p),
    )


class Epilogue(ctypes.Structure):
    """csrc/product.h"""

    _fields_ = (
        ("bias", ctypes.c_void_p),
        ("activation", ctypes.c_int64),
        ("add", ctypes.c_int64),
        ("skip", ctypes.c_float),
        ("scale", ctypes.c_float),
    )


@dataclass(frozen=True)
class Found:
    """The library, or why there is none."""

    library: ctypes.CDLL | None
    why_not: str = ""


def available() -> bool:
    """Whether there are kernels for this machine."""
    return _found().library is not None


def why_not() -> str:
    """Why there are none, in a sentence; empty where there are."""
    return _found().why_not


def backend() -> str:
    """The set of instructions in use; ``"torch"`` where there are no kernels."""
    return library().plait_backend().decode() if available() else "torch"


def library() -> ctypes.CDLL:
    """The library, loaded once. Raises ``RuntimeError`` where there is none."""
    found = _found().library
    if found is None:
        raise RuntimeError(why_not())
    return found


@cache
def _found() -> Found:
    return find_or_best(os.environ.get("PLAIT_KERNELS", ""))


def find_or_best(wanted: str) -> Found:
    """``find``, or where the machine does not have what is wanted, the best that it has: a ``PlaitNotice`` says so."""
    found = find(wanted)
    if found.library is None and wanted in BACKENDS and (best := find("")).library is not None:
        notice(f"{found.why_not} {best.library.plait_backend().decode()} is taken instead.")
        return best
    return found


def find(wanted: str) -> Found:
    """The library for ``wanted``, a value of PLAIT_KERNELS. Raises ``ValueError`` for what is none."""
    if wanted == "off":
        return Found(None, "The kernels are switched off: PLAIT_KERNELS=off.")
    if wanted and wanted not in BACKENDS:
        raise ValueError(f"PLAIT_KERNELS={wanted}: it is off, {', '.join(BACKENDS)}, or unset for the machine's best.")
    first = _path("portable")
    if first is None:
        return Found(
            None,
            "plait was installed without its kernels: there was no C++ compiler (gcc or clang), or it failed. For the "
            "kernels, install one, and then plait again.",
        )
    try:
        portable = load(first)
        has = [name for level, name in enumerate(BACKENDS) if portable.plait_machine_has(level) and _path(name)]
        if wanted and wanted not in has:
            return Found(None, f"PLAIT_KERNELS={wanted}, but this machine and installation have {', '.join(has)}.")
        path = _path(wanted or has[-1])
        return Found(load(path)) if path else Found(None)
    except OSError as error:
        return Found(None, f"The kernels do not load: {error}.")


def load(path: Path) -> ctypes.CDLL:
    """A library of kernels. Raises ``OSError`` where it does not load or is of another version."""
    loaded = ctypes.CDLL(str(path))
    pointer, integer, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
    signatures = {
        "plait_abi": (integer,),
        "plait_backend": (ctypes.c_char_p,),
        "plait_machine_has": (integer, integer),
        "plait_panel_bytes": (integer, integer, integer),
        "plait_scratch_bytes": (integer, integer, integer, integer),
        "plait_team": (pointer, integer),
        "plait_team_borrowed": (pointer, integer, pointer),
        "plait_team_end": (None, pointer),
        "plait_team_members": (integer, pointer),
        "plait_product": (None, pointer, pointer, pointer, integer, integer, pointer, integer, pointer, pointer),
        "plait_unpack_rows": (None, pointer, pointer, pointer, integer, pointer, integer, number),
        "plait_executor": (pointer, pointer, pointer),
        "plait_executor_run": (integer, pointer, pointer),
        "plait_executor_end": (None, pointer),
        "plait_learn_bytes": (integer,),
        "plait_attend_learn": (None, pointer, pointer, integer),
        "plait_activate_learn": (None, pointer, integer, pointer, integer, pointer, pointer),
        "plait_slope_learn": (None, pointer, pointer),
        "plait_orthogonal_learn": (None, pointer, pointer),
    }
    known = all(hasattr(loaded, name) for name in signatures)
    for name, (result, *arguments) in signatures.items() if known else ():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    if not known or loaded.plait_abi() != ABI:
        raise OSError(f"{path.name} is of another version of plait (make kernels builds it anew)")
    return loaded


def _path(name: str) -> Path | None:
    # Of an editable installation the package has two folders: the sources, and what was built.
    places = (Path(folder) / f"kernels_{name}.so" for folder in plait.engine.__path__)
    return next((place for place in places if place.exists()), None)


class OpenMP(ctypes.Structure):
    """csrc/team.h"""

    _fields_ = (("parallel", ctypes.c_void_p), ("number", ctypes.c_void_p), ("count", ctypes.c_void_p))

    @classmethod
    def of_torch(cls) -> OpenMP | None:
        """The one that torch has loaded; ``None`` where it shows none."""
        names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
        everything = ctypes.CDLL(None)
        if not all(hasattr(everything, name) for name in names):
            return None
        return cls(*(ctypes.cast(everything[name], ctypes.c_void_p).value for name in names))


class Team:
    """A team of ``threads``, the caller one of them. It ends with the object, or with the process.

    ``borrowed``: the threads are torch's own, where it lends them, and not beside them on the same cores.
    """

    def __init__(self, threads: int, library_: ctypes.CDLL | None = None, *, borrowed: bool = False) -> None:
        if threads < 1:
            raise ValueError(f"A team has at least one thread, not {threads}.")
        self.library = library_ or library()
        openmp = OpenMP.of_torch() if borrowed else None
        self.handle: int = (
            self.library.plait_team(threads)
            if openmp is None
            else self.library.plait_team_borrowed(threads, ctypes.byref(openmp))
        )
        weakref.finalize(self, self.library.plait_team_end, self.handle).atexit = False  # then the system ends it

    @property
    def threads(self) -> int:
        """How many there are: fewer than were asked for where the system gave no more."""
        return self.library.plait_team_members(self.handle)


def matrix(packed: Packed) -> Matrix:
    """The kernels' record of a matrix; whoever keeps it keeps ``packed`` too."""
    return Matrix(FORMATS[packed.format].number, packed.rows, packed.columns, packed.data.data_ptr())


def product(
    team: Team,
    packed: Packed,
    x: Tensor,
    *,
    bias: Tensor | None = None,
    activation: str = "none",
    scale: float = 1.0,
    add_to: Tensor | None = None,
    skip: float = 1.0,
) -> Tensor:
    """``scale * activation(x W^T + bias)``, ``x (n, columns)`` -> ``(n, rows)``; with ``add_to`` that tensor becomes
    ``skip`` times itself plus the product. All float32. Raises ``ValueError`` for tensors that do not fit.
    """
    _expect("x", x, packed.columns)
    if bias is not None and (bias.shape != (packed.rows,) or bias.dtype != torch.float32 or not bias.is_contiguous()):
        raise ValueError(f"The bias has to be float32 ({packed.rows},), contiguous; it is {_shown(bias)}.")
    if activation not in ACTIVATIONS:
        raise ValueError(f"{activation} is no activation of the kernels: {', '.join(ACTIVATIONS)}.")
    y = torch.empty(len(x), packed.rows) if add_to is None else add_to
    _expect("add_to", y, packed.rows)
    if len(y) != len(x):
        raise ValueError(f"add_to has {len(y)} rows and x {len(x)}.")
    end = Epilogue(
        bias.data_ptr() if bias is not None else None,
        ACTIVATIONS.index(activation),
        add_to is not None,
        skip,
        scale,
    )
    w = matrix(packed)
    scratch = torch.empty(team.library.plait_scratch_bytes(w.format, len(x), w.columns), dtype=torch.uint8)
    team.library.plait_product(
        team.handle,
        ctypes.byref(w),
        x.data_ptr(),
        x.stride(0),
        len(x),
        y.data_ptr(),
        y.stride(0),
        ctypes.byref(end),
        scratch.data_ptr(),
    )
    return y


def unpack_rows(team: Team, packed: Packed, rows: Tensor, scale: float = 1.0) -> Tensor:
    """Rows of W, float32 ``(n, columns)``, times ``scale``; ``rows (n,)`` int64. Raises ``ValueError`` for others."""
    if rows.dim() != 1 or rows.dtype != torch.int64 or not rows.is_contiguous():
        raise ValueError(f"Rows are int64 (n,), contiguous; these are {_shown(rows)}.")
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < packed.rows:
        raise ValueError(f"Rows are from 0 to {packed.rows - 1}; there are {int(rows.min())} to {int(rows.max())}.")
    out, w = torch.empty(len(rows), packed.columns), matrix(packed)
    team.library.plait_unpack_rows(
        team.handle, ctypes.byref(w), rows.data_ptr(), len(rows), out.data_ptr(), out.stride(0), scale
    )
    return out


def _expect(name: str, x: Tensor, columns: int) -> None:
    fits = x.dim() == 2 and x.shape[1] == columns and x.dtype == torch.float32 and x.device.type == "cpu"
    if not fits or (x.numel() and x.stride(1) != 1 and columns > 1):
        raise ValueError(f"{name} has to be float32 (n, {columns}) on the CPU, rows contiguous; it is {_shown(x)}.")


def _shown(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)} on {x.device}, strides {x.stride()}"
