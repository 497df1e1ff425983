"""A file imports only from lower floors; the model knows no family; nothing but tests knows the reference library."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "plait"

FLOORS = (
    ("architecture", "checks", "organs", "records", "pages", "parameters", "presets", "words"),
    ("account", "model", "families", "text", "data"),
    ("checkpoint",),
    ("engine",),
    ("generation",),
    ("training",),
    ("inspection",),  # its lab trains
    ("serving", "studio"),
    ("cli",),
)
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}
ABOVE_ALL = ("__init__", "__main__")  # the front imports lazily from every floor, the other is the command line
FILES = sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    """The first name below plait: model/attention.py is in model, words.py is words."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(source: str, package: tuple[str, ...]) -> Iterator[str]:
    """Every module that a file imports, inside functions and under TYPE_CHECKING too, in full."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *(node.module or "").split("."))).strip(".")
            yield from (f"{base}.{alias.name}" for alias in node.names)


def faults(source: str, name: str, package: tuple[str, ...]) -> list[str]:
    """What a file in the room ``name`` imports and should not."""
    found = []
    for module in imported(source, package):
        top, *rest = module.split(".")
        if top == "transformers":
            found.append(f"imports {module}")
        if top != "plait":
            continue
        target = rest[0] if rest else "__init__"
        if target not in FLOOR:  # `import plait` and `from plait import load`: the front leads to every floor
            allowed = FLOOR[name] == FLOOR["cli"]
        else:
            allowed = target == name or FLOOR[target] < FLOOR[name] or (FLOOR[target], FLOOR[name]) == (0, 0)
        if not allowed:
            found.append(f"{name} imports {module}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_import_from_lower_floors_only(path: Path):
    name = room(path)
    if name in ABOVE_ALL:
        return
    assert name in FLOOR, f"{name} is on no floor: say in tests/test_floors.py where it belongs"
    package = ("plait", *path.relative_to(SOURCE).parts[:-1])
    assert faults(path.read_text(), name, package) == []


@pytest.mark.parametrize(
    ("source", "name", "package"),
    [
        ("from plait.checkpoint import load", "model", ("plait", "model")),
        ("import plait.families.llama", "model", ("plait", "model")),
        ("def f():\n    from plait.model import Transformer", "families", ("plait", "families")),
        ("from ..text import Tokenizer", "account", ("plait", "account")),
        ("import transformers", "cli", ("plait", "cli")),
        ("from transformers import AutoModel", "checkpoint", ("plait", "checkpoint")),
        ("from plait import load", "generation", ("plait", "generation")),
    ],
)
def test_upward_imports_are_seen(source: str, name: str, package: tuple[str, ...]):
    assert faults(source, name, package)


@pytest.mark.parametrize(
    ("source", "name", "package"),
    [
        ("from plait.model.cache import Cache", "model", ("plait", "model")),
        ("from .cache import Cache", "model", ("plait", "model")),
        ("from plait.presets import preset", "account", ("plait", "account")),
        ("import plait", "cli", ("plait", "cli")),
        ("import torch.nn.functional as F", "model", ("plait", "model")),
    ],
)
def test_downward_imports_pass(source: str, name: str, package: tuple[str, ...]):
    assert not faults(source, name, package)


def words(source: str) -> set[str]:
    """The names and the words in strings of a file; comments are free to say where a thing is from."""
    found: set[str] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            found.add(token.string.lower())
    tree = ast.parse(source)
    docstrings = {id(part) for part in docstring_nodes(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            found.update(node.value.lower().replace("-", "_").split())
    return found


def docstring_nodes(tree: ast.AST) -> Iterator[ast.Constant]:
    """The strings that document a module, class or function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first.value


def code_lines(source: str) -> int:
    """Lines that hold code: no comments, docstrings or blank lines."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines = {n for token in tokens if token.type not in layout for n in range(token.start[0], token.end[0] + 1)}
    for node in docstring_nodes(ast.parse(source)):
        lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_code_lines_counts_code_alone():
    assert (
        code_lines(
            '"""Doc\nstring."""\n\n# comment\nx = (1,\n     2)  # two lines\n\ndef f():\n    """Doc."""\n    return x\n'
        )
        == 4
    )


ENGLISH = {"new"}  # a model type that is also a word


def test_the_model_names_no_family():
    from plait.families import FAMILIES

    # "t5", "gpt2" and "deepnorm" also name initialisation schemes, which are tables from papers, not families
    schemes = {"gpt2", "t5"}
    names = {
        name.lower().replace("-", "_") for family in FAMILIES for name in (family.name, *family.model_types)
    } - ENGLISH
    for path in sorted((SOURCE / "model").glob("*.py")):
        free = schemes if path.name == "initialization.py" else set()
        assert not words(path.read_text()) & (names - free), f"{path.name} names a family"


def test_checkpoints_name_no_family():
    from plait.families import FAMILIES

    names = {name for family in FAMILIES for name in family.model_types} - ENGLISH
    for path in sorted((SOURCE / "checkpoint").glob("*.py")):
        free = {"gpt2"} if path.name == "loading.py" else set()  # the scheme that random weights are drawn by
        assert not words(path.read_text()) & (names - free), f"{path.name} names a family, which has a file of its own"


def test_the_model_can_be_read_in_an_afternoon():
    lines = {path.name: code_lines(path.read_text()) for path in sorted((SOURCE / "model").glob("*.py"))}
    experts = lines["experts.py"] + lines["grouped.py"]  # a part that most models do not have, read by itself
    assert sum(lines.values()) - experts <= 1200 and experts <= 200, lines
