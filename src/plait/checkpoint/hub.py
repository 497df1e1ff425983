"""Checkpoints by hub name: the few files that loading needs, fetched once into huggingface_hub's own cache.

The endpoint (``HF_ENDPOINT``), the cache (``HF_HOME``), the login and ``HF_HUB_OFFLINE`` are that library's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from plait.checkpoint.folder import CONFIG, INDEX, PICKLE, PICKLE_INDEX, WEIGHTS, inside, is_small_file, read_index
from plait.checkpoint.notice import CheckpointError, notice
from plait.checkpoint.opening import check_config
from plait.checkpoint.pooling import MODULES

PREFIX = "hub:"
_NAME = re.compile(r"(?:hub:)?(?P<repo>\w[\w.-]*/\w[\w.-]*)(?:/(?P<file>.+\.gguf))?")


def is_hub_name(text: str) -> bool:
    """Whether it looks like ``org/name`` or ``org/name/file.gguf``, with or without ``hub:`` in front."""
    return _NAME.fullmatch(text) is not None


def fetch(name: str, *, revision: str | None, offline: bool, pickle: bool, weights: bool = True) -> Path:
    """The local folder (or .gguf file) of a hub name, fetched if it is not in the cache yet.

    Without ``weights``, only the small files, unless a GGUF file is all that describes it. Raises ``CheckpointError``:
    not found, closed to you, no such revision, offline and not cached, no network.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise CheckpointError(f"{name}: not a hub name; these are 'org/name'.")
    repo, file = match["repo"], match["file"]
    if offline or _is_offline():
        return _cached(repo, file, revision)
    try:
        return _fetched(repo, file, revision, pickle, weights)
    except CheckpointError:
        raise
    except Exception as error:  # the library's errors derive from several others' (requests, httpx, OSError)
        if not _is_disconnection(error):
            raise _explained(error, repo, revision) from None
    try:
        found = _cached(repo, file, revision)
    except CheckpointError:
        raise CheckpointError(
            f"{repo}: {_endpoint()} cannot be reached, and the cache has no copy; check the network, or load a folder."
        ) from None
    notice(f"{repo}: {_endpoint()} cannot be reached; the copy in the cache is used.")
    return found


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _is_offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _fetched(repo: str, file: str | None, revision: str | None, pickle: bool, weights: bool) -> Path:
    from huggingface_hub import HfApi, hf_hub_download

    endpoint = _endpoint()
    info = HfApi(endpoint=endpoint).model_info(repo, revision=revision)
    names = [sibling.rfilename for sibling in info.siblings or ()]

    def get(wanted: str, at: str | None = info.sha) -> Path:
        inside(Path(repo), wanted)  # the names are the hub's, and an index's
        return Path(hf_hub_download(repo, wanted, revision=at, endpoint=endpoint))

    if file is not None:
        if file not in names:
            raise CheckpointError(f"{repo}: there is no {file} in it; its GGUF files are {_listed(names, '.gguf')}.")
        get(file, revision)  # by its own name, so that the cache remembers where that revision points
        return get(file)
    small = [wanted for wanted in names if is_small_file(wanted, nested=MODULES in names)]
    described = any(PurePosixPath(wanted).name == CONFIG for wanted in small)
    packed = not described and any(wanted.endswith(".gguf") for wanted in names)
    if weights and CONFIG in small:
        check_config(get(CONFIG))  # before anything large is fetched in vain
    large = _weight_files(repo, names, pickle, get) if weights or packed else []
    if not small + large:
        raise CheckpointError(f"{repo}: there is no config.json in it, so it is no checkpoint.")
    get((small + large)[0], revision)
    paths = [_root(get(wanted), wanted) for wanted in small + large]
    return paths[0] / large[0] if large and large[0].endswith(".gguf") else paths[0]


def _root(path: Path, name: str) -> Path:
    return path.parents[len(PurePosixPath(name).parts) - 1]


def _weight_files(repo: str, names: Iterable[str], pickle: bool, get: Any) -> list[str]:
    """The files that hold the weights, in the order in which a folder is searched."""
    nested = sorted({f"{PurePosixPath(name).parent}/" for name in names if "/" in name}) if MODULES in names else []
    for base in ("", *nested):
        for single, index in ((WEIGHTS, INDEX), (PICKLE, PICKLE_INDEX)):
            if single == PICKLE and not pickle:
                continue
            if base + single in names:
                return [base + single]
            if base + index in names:
                shards = read_index(get(base + index)).values()
                return [base + index, *sorted({base + shard for shard in shards})]
    packed = [name for name in names if name.endswith(".gguf")]
    if len(packed) == 1:
        return packed
    if packed:
        raise CheckpointError(
            f"{repo}: it holds {len(packed)} GGUF files, {_listed(names, '.gguf')}; name one, as '{repo}/{packed[0]}'."
        )
    if any(name.endswith(".bin") for name in names):
        raise CheckpointError(
            f"{repo}: its weights are pickles, which can run code when read; if you trust it, load with pickle=True."
        )
    raise CheckpointError(f"{repo}: there are no weights in it; safetensors or a .gguf file are looked for.")


def _listed(names: Iterable[str], ending: str) -> str:
    return ", ".join(name for name in names if name.endswith(ending)) or "none"


def _cached(repo: str, file: str | None, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(repo, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError as error:
        # some files of the repository were never fetched, and need not have been
        folder = Path(getattr(error, "snapshot_path", ""))
    path = folder / file if file else folder
    if folder == Path() or not path.exists():
        at = f" at revision {revision!r}" if revision else ""
        raise CheckpointError(
            f"{repo}: {file or 'it'} is not in the cache{at}, and offline nothing is fetched; load it once online."
        )
    packed = sorted(folder.glob("*.gguf"))
    return packed[0] if len(packed) == 1 and not file and not (folder / "config.json").exists() else path


def _is_disconnection(error: Exception) -> bool:
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if isinstance(error, HfHubHTTPError):
        return False
    library = type(error).__module__.partition(".")[0]
    return isinstance(error, (ConnectionError, TimeoutError, LocalEntryNotFoundError)) or library in (
        "requests",
        "urllib3",
        "httpx",
        "httpx2",
        "httpcore",
        "httpcore2",
    )


def _explained(error: Exception, repo: str, revision: str | None) -> Exception:
    from huggingface_hub import errors

    reasons: list[tuple[type[Exception], str]] = [
        (
            errors.GatedRepoError,
            f"it is open only to those who asked; do so at {_endpoint()}/{repo}, then `hf auth login`",
        ),
        (errors.RevisionNotFoundError, f"it has no revision {revision!r}"),
        (
            errors.RepositoryNotFoundError,
            f"{_endpoint()} has no such model, or it is private: check the name, or `hf auth login`",
        ),
        (errors.EntryNotFoundError, "a file that it lists is not there"),
        (errors.HFValidationError, "this cannot be a hub name"),
        (
            errors.HfHubHTTPError,
            f"{_endpoint()} refused ({str(error).splitlines()[0] if str(error) else 'without a reason'})",
        ),
    ]
    for kind, reason in reasons:
        if isinstance(error, kind):
            return CheckpointError(f"{repo}: {reason}.")
    return error
