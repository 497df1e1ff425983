"""What the documents tell a reader to type is run, and what they say it prints is what it prints."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
REAL = re.compile(r"package:|\bsmollm2\b|\bcheckpoint\b")  # what needs the small real models
LANGUAGES = {"sh", "python", "text", "toml", "json"}


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    name = str(page.relative_to(ROOT))
    return [Block(name, text[: f.start()].count("\n") + 1, f.group(1), f.group(2)) for f in FENCE.finditer(text)]


ALL = [block for page in PAGES for block in blocks(page)]
SHELL = [block for block in ALL if block.language == "sh"]
PYTHON = {page.name: [b for b in blocks(page) if b.language == "python"] for page in PAGES}


def commands(block: Block) -> list[str]:
    """The lines of a shell block, continued ones joined."""
    return [line for line in block.text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command as typed in an activated environment, which knows nothing of the tests'."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    clean = {"PATH": path, "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(["bash", "-c", command], cwd=folder, env=clean, capture_output=True, text=True, timeout=600)


def readme_demo() -> list[str]:
    """The plait commands of `make demo`."""
    done = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.replace("\\\n", " ").splitlines()
    return [line.replace(".venv/bin/", "") for line in lines if line.startswith(".venv/bin/plait")]


def test_blocks_are_of_known_languages():
    assert {block.language for block in ALL} <= LANGUAGES
    for page in PAGES:
        assert page.read_text().count("```") == 2 * len(blocks(page)), f"{page.name} has a fence without a language"


def test_every_command_in_a_shell_block_is_one_that_is_checked():
    for block in SHELL:
        for command in commands(block):
            assert re.search(r"\bplait |\bmake |\bgit |\bpython |\bpytest ", command), f"{block.page}: {command}"


@pytest.mark.parametrize("block", SHELL, ids=lambda block: f"{block.page}:{block.line}")
def test_make_targets_exist(block: Block):
    for command in commands(block):
        words = shlex.split(command)
        if words[0] == "make":
            subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, check=True)


LIGHT = list({c: (b, c) for b in SHELL for c in commands(b) if "plait " in c and not REAL.search(c)}.values())


@pytest.mark.parametrize(
    ("block", "command"), LIGHT, ids=lambda value: str(value)[:40] if isinstance(value, str) else ""
)
def test_commands_without_a_real_model(block: Block, command: str, tmp_path: Path):
    done = run(command, tmp_path)
    assert done.returncode == 0 and done.stderr == "", f"{block.page}:{block.line}: {command}: {done.stderr}"


def test_the_demo_prints_what_the_readme_says(smollm2: Path, minilm: Path, tmp_path: Path):
    assert len(readme_demo()) == 3
    printed = ""
    for command in readme_demo():
        done = run(command, tmp_path)
        assert done.returncode == 0 and done.stderr == "", command
        printed += done.stdout
    promised = next(block.text for block in blocks(ROOT / "README.md") if block.language == "text")
    assert printed.startswith(promised)
    assert "63,082,496" in printed


def execute(found: list[Block], folder: Path) -> dict[str, object]:
    """Python blocks of one page, one after the other, in one namespace, which is given back."""
    names: dict[str, object] = {}
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        for block in found:
            exec(compile("\n" * block.line + block.text, block.page, "exec"), names)
    return names


@pytest.mark.parametrize("page", [p for p, found in PYTHON.items() if any(not REAL.search(b.text) for b in found)])
def test_python_without_a_real_model(page: str, tmp_path: Path):
    execute([block for block in PYTHON[page] if not REAL.search(block.text)], tmp_path)


def test_the_scheduler_of_the_example_writes_what_each_prompt_gets_alone(smollm2: Path, tmp_path: Path):
    import plait

    names: dict[str, Any] = execute(PYTHON["engine.md"], tmp_path)
    checkpoint, runner = names["checkpoint"], names["runner"]
    for (prompt, wishes), text in zip(names["asked"].items(), names["texts"].values(), strict=True):
        chosen = wishes.get("settings", plait.Settings())
        alone = plait.generate(
            checkpoint,
            prompt,
            runner=runner,
            max_new_tokens=wishes["limit"],
            seed=wishes.get("seed"),
            temperature=chosen.temperature,
            top_p=chosen.top_p,
            end=chosen.end,
            repetition_penalty=1.0,
        )
        assert isinstance(alone, plait.Generation) and text == alone.text != ""


@pytest.mark.slow
def test_the_tour_with_the_real_model(smollm2: Path, minilm: Path, tmp_path: Path):
    """Every shell command that names a real model, in order, then every Python block."""
    for block in SHELL:
        for command in commands(block):
            if "plait " in command and REAL.search(command):
                done = run(command, tmp_path)
                assert done.returncode == 0, f"{block.page}:{block.line}: {command}: {done.stderr}"
    for found in PYTHON.values():
        execute(found, tmp_path)


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"


def test_paths_in_trees_and_text_exist():
    """`src/plait/...`, `tests/...`, `docs/...` named in code spans are there."""
    for page in PAGES:
        for path in re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[\w./-]*)`", page.read_text()):
            assert (ROOT / path).exists(), f"{page.name}: {path}"


def test_the_tree_in_the_readme_names_every_place():
    """What stands in the tree is there; each file and folder of src/plait is in it, and what tests have besides."""
    (tree,) = [block.text for block in blocks(ROOT / "README.md") if block.text.startswith("src/plait/\n")]
    folder, named = ROOT, set[Path]()
    for line in tree.splitlines():
        inner, name = re.findall(r"^( *)(\S+)", line)[0]
        place = (folder if inner else ROOT) / name
        assert place.exists(), name
        folder = folder if inner else place
        named.add(place)
    source = {p for p in (ROOT / "src/plait").iterdir() if p.suffix in ("", ".py") and not p.name.startswith("__")}
    mirrored = {ROOT / "tests" / p.name for p in source}
    other = {p for p in (ROOT / "tests").iterdir() if p.is_dir() and not p.name.startswith("__")} - mirrored
    assert named == source | other | {ROOT / name for name in ("src/plait", "tests", "benchmarks", "docs")}


def test_the_page_of_families_lists_them_all():
    from plait.families import FAMILIES
    from plait.families.gguf import DIALECTS

    page = (ROOT / "docs/families.md").read_text()
    rows = re.findall(
        r"^\| (.+) \| (`.*`.*) \|$", page[page.index("## What there is") : page.index("**Heads.**")], re.M
    )
    names = [name for line, cell in rows if not line.startswith("GGUF") for name in re.findall(r"`([\w-]+)`", cell)]
    assert len(names) == len(set(names))
    assert set(names) == {kind for family in FAMILIES for kind in family.model_types}
    written = next(cell for line, cell in rows if line.startswith("GGUF"))
    assert re.findall(r"`(\w+)`", written) == [family.arch for family in DIALECTS]
