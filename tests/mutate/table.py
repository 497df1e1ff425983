"""The table of sabotages: one row for each known fault that this code has a test against, and what keeps it true.

The ids are those of the project's list of faults; a row puts that fault, and no other, into the code.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("sabotages.toml")

IDS = """
    LD1 LD2 LD4 LD5 LD6 LD8 LD9 LD10 LD11 LD14 LD15 LD17 LD19 LD20
    TK1 TK2 TK4 TK5 TK6 TK7 TK9 TK10 TK12 TK13 TK14 TK15 TK16
    MK1 MK2 MK3 MK4 MK5 MK6 MK8 MK10 MK12 MK14
    PO1 PO3 PO4 PO5 PO7
    KV1 KV2 KV4 KV6 KV8 KV9 KV10
    GE1 GE2 GE3 GE5 GE6 GE7 GE8 GE10 GE11 GE12 GE14 GE15 GE16 GE17 GE19 GE21 GE22 GE23
    TR4 TR5 TR8 TR20 TL3
    LD18 TR1 TR2 TR9 TR11 TR12 TR13 TR14 TR16 TR17 TR18 TR21 TR22 TR23
    LO1 LO3 LO5 LO6
    TR6 NU4
    TL1 TL4 TL5 TL7 TL8 TL10 TL11
    IN1 IN2 IN4 IN6 IN7 ED1 ED3 ED5 ED6
    NU1 NU2 EN1 EX1 EX3 CF1 CF2 PK1 PK2 SV7 SV8 SV10
""".split()


@dataclass(frozen=True, kw_only=True)
class Sabotage:
    """In ``file``, ``find`` becomes ``put``: then ``test`` must fail, by an assertion or with the error ``raises``."""

    id: str
    what: str
    file: str
    find: str
    put: str
    test: str  # file::function or file::function[parameters]
    raises: str | None = None  # the error by which the fault itself shows, where no assertion comes first

    @property
    def function(self) -> str:
        """The test's name alone."""
        return self.test.partition("::")[2].partition("[")[0]


def read_table(path: Path = TABLE) -> list[Sabotage]:
    """Every row, in the order of the file."""
    return [Sabotage(id=id, **row) for id, row in tomllib.loads(path.read_text(encoding="utf-8")).items()]


def complaints(rows: Sequence[Sabotage], root: Path = ROOT) -> list[str]:
    """What is wrong with rows: text to find that is not there exactly once, tests that are not there, broken code."""
    return [f"{row.id}: {complaint}" for row in rows for complaint in _complaints(row, root)]


def missing(rows: Sequence[Sabotage]) -> list[str]:
    """Ids without a row, and rows without an id."""
    there = {row.id for row in rows}
    return [f"{id}: it has no sabotage" for id in IDS if id not in there] + [
        f"{id}: it is not in the list of ids" for id in sorted(there - set(IDS))
    ]


def _complaints(row: Sabotage, root: Path) -> Iterator[str]:
    path = root / row.file
    if not path.is_file():
        yield f"there is no {row.file}"
        return
    text = path.read_text(encoding="utf-8")
    if (count := text.count(row.find)) != 1:
        yield f"what is to be found occurs {count} times in {row.file}: {row.find.strip().splitlines()[0]}"
    elif row.find == row.put:
        yield "it changes nothing"
    elif path.suffix == ".py":
        try:
            ast.parse(text.replace(row.find, row.put))
        except SyntaxError as error:
            yield f"the sabotaged {row.file} is not Python: {error}"
    if not re.search(rf"_{row.id.lower()}(_|$)", row.function):
        yield f"the test {row.function} is not named after it"
    file = root / row.test.partition("::")[0]
    if not file.is_file() or not re.search(rf"^def {row.function}\(", file.read_text(encoding="utf-8"), re.MULTILINE):
        yield f"there is no test {row.test}"
