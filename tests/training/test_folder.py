"""The folder of a run: who may write there, and what a run that goes on must find as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.data import sources
from plait.data.sources import find, glimpse
from plait.text import train_tokenizer
from plait.training.folder import Folder
from plait.training.places import RecipeError
from plait.training.settings import Data, Model, Recipe, Run


def reading(file: Path) -> Recipe:
    return Recipe(model=Model(preset="gpt2"), data=Data(train=(str(file),), batch_rows=1), run=Run(steps=1))


def test_a_run_whose_files_changed_does_not_go_on(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one two three\n" * 50)
    recipe = reading(tmp_path / "text.txt")
    folder = Folder(tmp_path / "run")
    folder.begin(recipe, None)
    assert folder.check(recipe, resume=True)
    (tmp_path / "moved.txt").write_bytes((tmp_path / "text.txt").read_bytes())
    assert folder.check(reading(tmp_path / "moved.txt"), resume=True)
    (tmp_path / "text.txt").write_text("one two four\n" * 50)
    with pytest.raises(RecipeError, match=r"data.train: the files hold something else than when .*run began"):
        folder.check(recipe, resume=True)


def test_what_a_broken_off_start_left_is_not_taken_for_the_run(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one two three\n" * 50)
    folder, recipe = Folder(tmp_path / "run"), reading(tmp_path / "text.txt")
    first, second = (train_tokenizer(["abc"], kind="characters"), train_tokenizer(["xyzw"], kind="characters"))
    folder.begin(recipe, first)
    folder.recipe.unlink()
    folder.data.write_text('{"train": [["text", "of another"]]}')
    folder.begin(recipe, second)
    own = folder.tokenizer()
    assert own is not None and own.encode("xyzw") == second.encode("xyzw") and folder.check(recipe, resume=True)
    folder.begin(recipe, first)  # of a run that goes on it stays
    own = folder.tokenizer()
    assert own is not None and own.encode("xyzw") == second.encode("xyzw")


def test_one_run_at_a_time_writes_into_a_folder(tmp_path: Path) -> None:
    with Folder(tmp_path / "run").held():
        with pytest.raises(RecipeError, match="another run is writing there"), Folder(tmp_path / "run").held():
            pass
        with Folder(tmp_path / "other").held():
            pass
    with Folder(tmp_path / "run").held():
        pass


def test_a_large_file_is_known_again_by_its_size_and_its_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_GLIMPSE", 1 << 20)
    file = tmp_path / "a.txt"
    (source,) = find(file)[0] if file.write_bytes(b"a" * (3 << 20)) else ()
    before = glimpse(source)
    assert before[1] == str(3 << 20) and glimpse(source) == before
    for place in (0, -1):
        content = bytearray(b"a" * (3 << 20))
        content[place] = ord("b")
        file.write_bytes(content)
        assert glimpse(source) != before
    file.write_bytes(b"a" * ((3 << 20) + 1))
    assert glimpse(source) != before
