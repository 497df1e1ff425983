"""inspect: each kind prints what the library finds, and what is asked wrongly is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import plait
from plait.cli.commands import main
from plait.cli.inspect import KINDS
from plait.inspection import lens, trace
from tests.cli.test_generate import Capture, output
from tests.inspection.making import speaking

TEXT = "the dog of anna is"
MORE = {"patching": ("--corrupted", "the anna of dog is"), "tracing": ("--subject", "anna")}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plait.save(speaking(), tmp_path_factory.mktemp("inspect") / "model")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_prints_rows(kind: str, model: Path, capsys: Capture) -> None:
    rows = json.loads(output(capsys, "inspect", kind, model, TEXT, *MORE.get(kind, ()), "--format", "json"))
    printed = output(capsys, "inspect", kind, model, TEXT, *MORE.get(kind, ())).splitlines()
    assert len(rows) > 1 and len(printed) == len(rows) + 2


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_makes_a_page(kind: str, model: Path, tmp_path: Path, capsys: Capture) -> None:
    page = tmp_path / "page.html"
    assert main(["inspect", kind, str(model), TEXT, *MORE.get(kind, ()), "--out", str(page)]) == 0
    assert str(page) in capsys.readouterr().err
    written = page.read_text(encoding="utf-8")
    assert written.startswith("<!doctype html>") and "http" not in written and "<table" in written
    assert ("shades" in written.partition("</style>")[2]) == (kind in ("attention", "lens", "patching", "tracing"))


def test_the_lens_is_the_librarys(model: Path, capsys: Capture) -> None:
    rows = json.loads(output(capsys, "inspect", "lens", model, TEXT, "--token", "x", "--format", "json"))
    checkpoint = plait.load(model)
    assert checkpoint.tokenizer is not None
    (token,), seen = checkpoint.tokenizer.encode("x"), trace(checkpoint, TEXT)
    expected = [float(logits[-1].softmax(-1)[token]) for _, logits in lens(seen, between=True)]
    (name,) = [name for name in rows[0] if name.startswith("of ")]
    assert [row[name] for row in rows] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("lens", TEXT, "--position", "99"), "--position: 99, and the text has"),
        (("lens", TEXT, "--token", "xy"), "--token: 'xy' is 2 tokens"),
        (("patching", TEXT), "--corrupted: patching needs a second text"),
        (("patching", TEXT, "--corrupted", "a"), "values go from place to place, so give texts of as many"),
        (("tracing", TEXT), "--subject: tracing needs words of the text"),
        (("tracing", TEXT, "--subject", "bob"), "--subject: tracing needs words of the text"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(
    arguments: tuple[str, ...], said: str, model: Path, capsys: Capture
) -> None:
    kind, *rest = arguments
    assert main(["inspect", kind, str(model), *rest]) == 1
    assert said in capsys.readouterr().err
