"""``plait convert``: write a checkpoint in another dialect, as a GGUF file, or with its matrices in 4 or 8 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from plait.cli.models import Loading
from plait.cli.printing import Format, as_json, notice, table, working

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint, Rounded


def convert(
    src: str,
    dst: Path,
    /,
    *,
    to: str | None = None,
    type: Literal["F32", "F16", "BF16", "Q8_0"] | None = None,
    quantize: Literal["int8", "int4", "int4_min"] | None = None,
    calibrate: Path | None = None,
    overwrite: bool = False,
    format: Format = "text",
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
) -> None:
    """Read a checkpoint and write it in another dialect, quantised, or with an adapter merged into it.

    SRC is written to DST, a folder or with --to gguf a file, whole or not at all.

    Parameters
    ----------
    src
        A folder, a .gguf file, a hub name, package:NAME, or, with --random, a preset or a
        recipe (.toml).
    dst
        The folder to write, or with --to gguf the .gguf file; its path is printed.
    to
        hf writes the family's own names, for every tool of the ecosystem; plait writes the native dialect; gguf one
        file for llama.cpp; a family's name (mistral) its names, if it can say the architecture. With --adapter it may
        be left out: the names stay as they are.
    type
        What the matrices of a GGUF file are in; left out, what they are in now. Norms and biases are always F32.
    quantize
        Round the matrices to blocks of 32 weights with a scale: int8 (8.5 bits a weight), int4 (4.5),
        int4_min (5, with a minimum); printed is what each of them lost. It is written in the native dialect.
    calibrate
        A UTF-8 text for --quantize: matrices are rounded so that their outputs on it stay near. Some thousand words
        of the kind that the model is for will do, and take the error down several times.
    overwrite
        Replace a checkpoint that is there already.
    format
        text for people, json for programs.
    """
    from plait.checkpoint import save
    from plait.checkpoint.saving import check_dialect, check_target
    from plait.checkpoint.to_gguf import GGUF, check_file

    if to is None and quantize is None and loading.adapter is None:
        raise ValueError(
            "--to: say hf, plait, gguf or a family's name, or --quantize, which writes plait's own, or --adapter."
        )
    if type is not None and to != GGUF:
        raise ValueError("--type: it is of the matrices in a GGUF file; say --to gguf.")
    if calibrate is not None and quantize is None:
        raise ValueError("--calibrate: it serves --quantize; say int8, int4 or int4_min.")
    if to is not None:
        check_dialect(to)
    (check_file if to == GGUF else check_target)(dst.expanduser(), overwrite)
    report: list[Rounded] = []
    if quantize is None:
        in_files = to == GGUF and loading.dtype == "stored" and not loading.random  # then tensors are read one by one
        checkpoint = loading.open(src, lazy=in_files)
    else:
        if to not in (None, "plait"):
            raise ValueError(f"--to: only the native dialect holds quantised matrices; leave {to} out.")
        checkpoint, report = rounded(src, quantize, calibrate, loading)
    if quantize is None and loading.dtype == "stored":
        tell_floats(checkpoint, to, type)
    with working(f"writing {dst}"):
        dialect = to or ("plait" if quantize else None)
        written = save(checkpoint, dst, dialect=dialect, overwrite=overwrite, type=type)
    if format == "json":
        as_json(
            {
                "file" if to == GGUF else "folder": str(written),
                **({"quantization": quantize, **summary(report)} if report else {}),
            }
        )
        return
    if report:
        table([row(tensor) for tensor in report])
        print(f"{summary(report)['bits']:.2f} bits a weight in {len(report)} matrices\n")
    print(written)


def tell_floats(checkpoint: Checkpoint, to: str | None, type: str | None) -> None:
    """A notice where matrices in blocks are written otherwise than in those blocks."""
    from plait.checkpoint.dequantise import BLOCK_FORMATS

    source = checkpoint.layout.source
    kinds = {source.stored_type(name) for name in source.names} & BLOCK_FORMATS.keys() if source else set[str]()
    blocks = " and ".join(sorted(kinds - {type}))
    if not blocks or to == "plait" or (to == "gguf" and type is None):
        return
    if type in BLOCK_FORMATS:
        notice(f"--type: matrices in {blocks} are rounded a second time, to {type}; without it they stay as they are.")
    elif to != "gguf":
        notice(f"--to: {to} holds no blocks; matrices in {blocks} are written in float32. plait and gguf keep them.")


def rounded(src: str, quantize: str, text: Path | None, loading: Loading) -> tuple[Checkpoint, list[Rounded]]:
    """The quantised checkpoint, on the meta device, and its report; weights are only held where they must be."""
    from plait.checkpoint import calibrate, quantise

    if loading.dtype != "stored":
        raise ValueError("--dtype: --quantize rounds what is stored; leave it out.")
    checkpoint = loading.open(src, weights=loading.random or text is not None or loading.adapter is not None)
    moments = None
    if text is not None:
        with working(f"reading {text}"):
            moments = calibrate(checkpoint, [read_text(text)])
    with working(f"rounding to {quantize}"):
        return quantise(checkpoint, quantize, moments=moments, device="meta")


def read_text(path: Path) -> str:
    """A UTF-8 file's text; ``ValueError`` where it is something else."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: this text is not UTF-8; convert it first, as with iconv.") from None


def row(tensor: Rounded) -> dict[str, Any]:
    """A line of the table; errors in per cent."""
    outputs = {} if tensor.outputs is None else {"of outputs %": 100 * tensor.outputs}
    return {
        "matrix": tensor.name,
        "shape": "x".join(map(str, tensor.shape)),
        "type": tensor.type,
        "bits": tensor.bits,
        "error %": 100 * tensor.error,
        **outputs,
    }


def summary(report: Sequence[Rounded]) -> dict[str, Any]:
    """What they take on the average, and each of them."""
    sizes = [tensor.shape[0] * tensor.shape[1] for tensor in report]
    bits = sum(tensor.bits * size for tensor, size in zip(report, sizes, strict=True)) / sum(sizes)
    return {"bits": bits, "tensors": [asdict(tensor) for tensor in report]}
