"""``import plait`` and ``plait --help`` cost nothing, and every public name is there and documented."""

from __future__ import annotations

import subprocess
import sys

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


def test_unknown_names_are_refused_with_what_there_is():
    with pytest.raises(AttributeError, match="generate"):
        plait.generat  # noqa: B018


def test_the_account_is_a_function_whatever_was_imported_before():
    loaded = (
        "import plait.account, plait; from plait.account import Account; assert plait.account.__name__ == 'account'"
    )
    assert "plait.account" in loaded_after(loaded)
    assert callable(plait.account)
