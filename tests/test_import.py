"""``import plait`` and ``plait --help`` cost nothing, and every public name is there and documented."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import plait

HEAVY = ("torch", "numpy", "tokenizers", "sentencepiece", "huggingface_hub", "gguf", "jinja2", "transformers")


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_pk1_import_loads_nothing_heavy():
    assert not loaded_after("import plait").intersection(HEAVY)


@pytest.mark.parametrize("name", plait.__all__)
def test_public_names_resolve_and_are_documented(name: str):
    value = getattr(plait, name)
    assert name == "__version__" or (value.__doc__ or "").strip(), f"plait.{name} has no docstring"


def test_type_checkers_are_told_where_every_public_name_is_from():
    block = next(node for node in ast.parse(Path(plait.__file__).read_text()).body if isinstance(node, ast.If))
    told = {name.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert sorted([*told, "__version__"]) == plait.__all__
    for name, module in told.items():
        assert getattr(plait, name) is getattr(importlib.import_module(str(module)), name), name


def test_every_error_and_warning_that_a_caller_may_catch_is_public():
    for home in ("architecture", "checkpoint", "families", "generation", "model", "presets", "text"):
        module = importlib.import_module(f"plait.{home}")
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, Exception):
                assert getattr(plait, name) is value


@pytest.mark.parametrize("name", ["account", "preset", "FamilyError"])
def test_a_light_name_does_not_load_torch(name: str):
    assert "torch" not in loaded_after(f"import plait; plait.{name}")


def test_unknown_names_are_refused_with_what_there_is():
    with pytest.raises(AttributeError, match="generate"):
        plait.generat  # noqa: B018


def test_the_account_is_a_function_whatever_was_imported_before():
    loaded = (
        "import plait.account, plait; from plait.account import Account; assert plait.account.__name__ == 'account'"
    )
    assert "plait.account" in loaded_after(loaded)
    assert callable(plait.account)
