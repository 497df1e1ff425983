"""``plait convert``: write a checkpoint in another dialect, or with its matrices in 4 or 8 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from plait.cli.models import Loading
from plait.cli.printing import Format, as_json, table, working

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint, Rounded


def convert(
    src: str,
    dst: Path,
    /,
    *,
    to: Literal["hf", "plait"] | None = None,
    quantize: Literal["int8", "int4", "int4_min"] | None = None,
    calibrate: Path | None = None,
    overwrite: bool = False,
    format: Format = "text",
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
) -> None:
    """Read a checkpoint and write it in another dialect, or quantised.

    SRC is written to the folder DST whole or not at all.

    Parameters
    ----------
    src
        A folder, a .gguf file, a hub name, package:NAME, or, with --random, a preset or a
        recipe (.toml).
    dst
        The folder to write; its path is printed.
    to
        hf writes the family's own names, for every tool of the ecosystem; plait writes the native dialect.
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
    from plait.checkpoint.saving import check_target

    if to is None and quantize is None:
        raise ValueError("--to: say hf or plait, or --quantize, which writes the native dialect.")
    if calibrate is not None and quantize is None:
        raise ValueError("--calibrate: it serves --quantize; say int8, int4 or int4_min.")
    check_target(dst.expanduser(), overwrite)
    report: list[Rounded] = []
    if quantize is None:
        checkpoint = loading.open(src)
    else:
        if to == "hf":
            raise ValueError("--to: only the native dialect holds quantised matrices; leave hf out.")
        checkpoint, report = rounded(src, quantize, calibrate, loading)
    with working(f"writing {dst}"):
        folder = save(checkpoint, dst, dialect=to or "plait", overwrite=overwrite)
    if format == "json":
        as_json({"folder": str(folder), **({"quantization": quantize, **summary(report)} if report else {})})
        return
    if report:
        table([row(tensor) for tensor in report])
        print(f"{summary(report)['bits']:.2f} bits a weight in {len(report)} matrices\n")
    print(folder)


def rounded(src: str, quantize: str, text: Path | None, loading: Loading) -> tuple[Checkpoint, list[Rounded]]:
    """The quantised checkpoint, on the meta device, and its report; weights are only held where they must be."""
    from plait.checkpoint import calibrate, quantise

    if loading.dtype != "stored":
        raise ValueError("--dtype: --quantize rounds what is stored; leave it out.")
    checkpoint = loading.open(src, weights=loading.random or text is not None)
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
