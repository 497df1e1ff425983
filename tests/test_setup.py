"""What a fresh machine gets: pinned versions, no CUDA where none was asked for, and commands that do what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
import tomllib
from importlib.metadata import distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): Version(release) for name, release in pairs}


def installed() -> dict[str, str]:
    """What is in the environment itself, whatever else is on the path; +cpu and its like are not said."""
    here = distributions(path=[sysconfig.get_path("purelib")])
    return {canonicalize_name(found.metadata["Name"]): Version(found.version).public for found in here}


def requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(line) for line in project["dependencies"] + project["optional-dependencies"]["dev"]]


def made(target: str, folder: Path, **variables: str) -> list[str]:
    """The commands that make would run for a target in a fresh clone; none is run."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        if not (folder / name).exists():
            shutil.copy(ROOT / name, folder / name)
    given = [f"{name}={value}" for name, value in variables.items()]
    clean = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["make", "-n", target, *given], cwd=folder, env=clean, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_every_requirement_is_pinned_within_its_bound():
    for requirement in requirements():
        assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)]), requirement


def test_the_environment_is_the_pinned_one():
    if not (ROOT / ".venv/.installed").exists():
        pytest.skip("this environment was not made by the Makefile")
    from_cuda = re.compile(r"nvidia-|triton|cuda-")  # torch pins its own, and they differ from system to system
    found = {name: release for name, release in installed().items() if name != "plait" and not from_cuda.match(name)}
    assert found == {name: str(pins().get(name)) for name in found}


def test_pk2_a_cpu_build_of_torch_brings_no_cuda():
    if Version(version("torch")).local != "cpu":
        pytest.skip("this torch was built for a GPU")
    assert not [name for name in installed() if name.startswith(("nvidia-", "triton", "cuda-"))]


@pytest.mark.parametrize("target", ["demo", "test"])
def test_pk2_torch_comes_first_from_the_index_that_was_named(target: str, tmp_path: Path):
    commands = made(target, tmp_path, TORCH_INDEX=CPU_INDEX)
    (torch,) = [n for n, command in enumerate(commands) if CPU_INDEX in command]
    assert commands[torch].endswith(" torch") and "--constraint constraints.txt" in commands[torch]
    assert all(n > torch for n, command in enumerate(commands) if "--editable" in command)


def test_pk2_the_readme_says_how():
    assert f"TORCH_INDEX={CPU_INDEX}" in (ROOT / "README.md").read_text()


def test_without_an_index_torch_comes_from_the_usual_one(tmp_path: Path):
    assert not [command for command in made("demo", tmp_path) if "--index-url" in command]


def test_the_reference_library_stays_out_of_the_environment(tmp_path: Path):
    assert [c for c in made("test", tmp_path) if "transformers" in c and "--target .reference" in c]
    assert not [c for c in made("demo", tmp_path) if "transformers" in c]
    assert "transformers" not in installed()


def test_what_is_set_up_once_is_not_set_up_again(tmp_path: Path):
    made("demo", tmp_path)
    for stamp in (".venv/bin/python", ".venv/.installed", ".venv/.models"):
        (tmp_path / stamp).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / stamp).touch()
    runs = (".venv/bin/plait", '"', "test -d runs/quickstart")
    assert all(command.lstrip().startswith(runs) for command in made("demo", tmp_path))


def test_continuous_integration_runs_check_and_tests():
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK) and "make check test" in script.read_text()
