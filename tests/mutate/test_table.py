"""Every known fault has a sabotage that still fits the code, and a test named after it: `make mutate` can run."""

from __future__ import annotations

from pathlib import Path

from tests.mutate.table import Sabotage, complaints, missing, read_table


def test_every_fault_has_a_sabotage_that_fits_the_code_and_a_test() -> None:
    rows = read_table()
    assert missing(rows) + complaints(rows) == []


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("a = 1\nb = 1\n")
    (tmp_path / "test_code.py").write_text("def test_ld10_something(): ...\n")

    def told(find: str, put: str, test: str, file: str = "code.py") -> str:
        row = Sabotage(id="LD1", what="", file=file, find=find, put=put, test=test)
        return " ".join(complaints([row], tmp_path))

    assert "LD1: what is to be found occurs 2 times in code.py: = 1" in told("= 1", "= 2", "test_code.py::test_ld1_x")
    assert "occurs 0 times" in told("c = 1", "c = 2", "test_code.py::test_ld1_x")
    assert "it changes nothing" in told("a = 1", "a = 1", "test_code.py::test_ld1_x")
    assert "is not Python" in told("a = 1", "a = (", "test_code.py::test_ld1_x")
    assert "there is no other.py" in told("a", "b", "test_code.py::test_ld1_x", "other.py")
    assert "there is no test test_code.py::test_ld1_x" in told("a = 1", "a = 2", "test_code.py::test_ld1_x[p]")
    assert "is not named after it" in told("a = 1", "a = 2", "test_code.py::test_ld10_something")
    assert told("a = 1", "a = 2", "test_code.py::test_ld10_something").count("LD1") == 1
    assert "LD1: it has no sabotage" in missing([])
