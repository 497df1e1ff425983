"""Hub names against a stand-in for the hub: a real HTTP server on this machine, and the library's real cache."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch

from plait.checkpoint import CheckpointError, PlaitNotice, load
from plait.checkpoint.hub import is_hub_name
from tests.checkpoint.making import llama_tensors, logits, write_llama, write_shards

SHA = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Repositories by name: ``{"org/name": {file: bytes}}``; ``asked`` lists what was fetched."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def publish(self, name: str, folder: Path) -> None:
        self.repositories[name] = {
            path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send(self, data: bytes, **headers: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def do_GET(self) -> None:
        about = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/?]+))?(?:\?.*)?", self.path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path)
        found = about or file
        if found is None or found[1] not in self.server.repositories:
            return self.refuse(404, "RepoNotFound")
        if found[2] not in (None, "main", "v1", SHA):
            return self.refuse(404, "RevisionNotFound")
        files = self.server.repositories[found[1]]
        if about:
            siblings = [{"rfilename": name} for name in files]
            answer = {
                "id": found[1],
                "modelId": found[1],
                "sha": SHA,
                "siblings": siblings,
                "tags": [],
                "private": False,
            }
            return self.send(json.dumps(answer).encode(), Content_Type="application/json")
        if found[1] in self.server.gated:
            return self.refuse(403, "GatedRepo")
        if found[3] not in files:
            return self.refuse(404, "EntryNotFound")
        if self.command == "GET":
            self.server.asked.append(found[3])
        data = files[found[3]]
        return self.send(data, ETag=f'"{hashlib.sha1(data).hexdigest()}"', X_Repo_Commit=SHA)

    do_HEAD = do_GET  # noqa: N815


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import constants
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server
        server.shutdown()
        thread.join()


def test_only_the_needed_files_are_fetched_and_once(hub: Hub, tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "a")
    for name in (
        "README.md",
        "pytorch_model.bin",
        "tf_model.h5",
        "model.fp16.safetensors",
        "onnx/config.json",
        "x.gguf",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("not needed")
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 9]}')
    hub.publish("org/name", folder)
    checkpoint = load("org/name")
    assert sorted(hub.asked) == ["config.json", "generation_config.json", "model.safetensors"]
    assert checkpoint.rules.end == (2, 9)
    assert torch.equal(logits(checkpoint), logits(load(write_llama(tmp_path / "same"))))
    load("hub:org/name")
    load("org/name", revision="v1")
    assert len(hub.asked) == 3, "the second time comes from the cache"


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config says 'awq'"),
        ({"model_type": "deepseek_v3", "kv_lora_rank": 512}, "multi-head latent attention"),
    ],
    ids=["format", "family"],
)
def test_what_cannot_be_read_is_refused_before_its_weights_are_fetched(
    settings: dict[str, Any], match: str, hub: Hub, tmp_path: Path
) -> None:
    folder = write_llama(tmp_path / "a")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))
    hub.publish("org/name", folder)
    with pytest.raises(ValueError, match=match):
        load("org/name")
    assert hub.asked == ["config.json"]


def test_shards_by_index(hub: Hub, tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "a", n=3)
    write_shards(folder, n=2)  # three shards of an older set stay
    hub.publish("org/name", folder)
    load("org/name")
    assert sorted(name for name in hub.asked if name.endswith(".safetensors")) == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]


def test_names_that_lead_out_of_the_cache_are_refused(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/name", write_shards(tmp_path / "a"))
    index = b'{"weight_map": {"a": "../../../../evil.safetensors"}}'
    hub.repositories["org/name"] |= {"model.safetensors.index.json": index, "../../../../evil.safetensors": b"x"}
    with pytest.raises(CheckpointError, match="leads out of the folder"):
        load("org/name")
    hub.repositories["org/name"]["../vocab.txt"] = b"x"
    hub.repositories["org/name"]["modules.json"] = b"[]"
    with pytest.raises(CheckpointError, match=r"'\.\./vocab\.txt' leads out of the folder"):
        load("org/name", revision="v1")
    assert not list(tmp_path.rglob("evil*"))


def test_offline_comes_from_the_cache_or_says_so(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/name", write_llama(tmp_path / "a"))
    with pytest.raises(CheckpointError, match="org/name: it is not in the cache, and offline nothing is fetched"):
        load("org/name", offline=True)
    load("org/name")
    n = len(hub.asked)
    assert load("org/name", offline=True).architecture.d_model == 16
    assert len(hub.asked) == n
    with pytest.raises(CheckpointError, match="is not in the cache at revision 'v1', and offline"):
        load("org/name", offline=True, revision="v1")


def test_without_a_network_the_cache_serves_aloud(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.publish("org/name", write_llama(tmp_path / "a"))
    load("org/name")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.warns(PlaitNotice, match=r"http://127\.0\.0\.1:9 cannot be reached; the copy in the cache is used"):
        assert load("org/name").architecture.d_model == 16
    with pytest.raises(
        CheckpointError, match=r"org/other: http://127\.0\.0\.1:9 cannot be reached, and the cache has no"
    ):
        load("org/other")


def test_what_the_hub_refuses_is_said_in_one_sentence(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/name", write_llama(tmp_path / "a"))
    hub.publish("org/gated", tmp_path / "a")
    hub.gated.add("org/gated")
    hub.repositories["org/empty"] = {"README.md": b"x"}
    hub.repositories["org/pickled"] = {"config.json": b"{}", "pytorch_model.bin": b"x"}
    hub.repositories["org/packed"] = {"a.gguf": b"x", "b.gguf": b"x"}
    for source, revision, message in [
        ("org/nothing", None, "org/nothing: http.* has no such model, or it is private: check the name, or"),
        ("org/name", "v9", "org/name: it has no revision 'v9'"),
        (
            "org/gated",
            None,
            r"org/gated: it is open only to those who asked; do so at http.*/org/gated, then `hf auth login`",
        ),
        ("org/empty", None, "org/empty: there are no weights in it"),
        ("org/pickled", None, "org/pickled: its weights are pickles.*load with pickle=True"),
        ("org/packed", None, r"it holds 2 GGUF files, a\.gguf, b\.gguf; name one, as 'org/packed/a\.gguf'"),
        ("org/packed/c.gguf", None, r"there is no c\.gguf in it; its GGUF files are a\.gguf, b\.gguf"),
    ]:
        with pytest.raises(CheckpointError, match=message) as caught:
            load(source, revision=revision)
        assert "\n" not in str(caught.value)


def test_pickles_from_the_hub_on_request(hub: Hub, tmp_path: Path) -> None:
    from tests.checkpoint.making import write_config

    write_config(tmp_path / "a")
    torch.save(llama_tensors(), tmp_path / "a" / "pytorch_model.bin")
    hub.publish("org/name", tmp_path / "a")
    assert load("org/name", pickle=True).architecture.d_model == 16


def test_a_gguf_file_of_a_repository(hub: Hub, tmp_path: Path) -> None:
    from tests.checkpoint.test_gguf_models import write_gguf

    (tmp_path / "a").mkdir()
    write_gguf(tmp_path / "a" / "x.gguf", llama_tensors())
    hub.publish("org/one", tmp_path / "a")
    write_gguf(tmp_path / "a" / "y.gguf", llama_tensors(seed=1))
    hub.publish("org/two", tmp_path / "a")
    one, two = load("org/one"), load("org/two/y.gguf")
    assert hub.asked == ["x.gguf", "y.gguf"]
    assert not torch.equal(logits(one), logits(two))
    assert torch.equal(logits(load("org/one", offline=True)), logits(one))
    assert torch.equal(logits(load("org/two/y.gguf", offline=True)), logits(two))


def test_a_sentence_transformers_repository(hub: Hub, tmp_path: Path) -> None:
    from tests.checkpoint.test_pooling import write_modules

    kinds = [("Transformer", "0_Transformer"), ("Pooling", "1_Pooling")]
    write_modules(tmp_path / "a", *kinds, pooling_mode_cls_token=True)
    write_llama(tmp_path / "a" / "0_Transformer")
    hub.publish("org/name", tmp_path / "a")
    checkpoint = load("org/name")
    assert checkpoint.pooling is not None
    assert checkpoint.pooling.pooling == "cls"


def test_random_weights_need_no_weights(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/name", write_llama(tmp_path / "a"))
    assert load("org/name", random=True).architecture.d_model == 16
    assert hub.asked == ["config.json"]


def test_the_meta_device_needs_no_weights(hub: Hub, tmp_path: Path) -> None:
    from tests.checkpoint.test_gguf_models import write_gguf

    hub.publish("org/name", write_llama(tmp_path / "a"))
    assert load("org/name", device="meta").architecture.d_model == 16
    assert hub.asked == ["config.json"]
    (tmp_path / "b").mkdir()
    write_gguf(tmp_path / "b" / "x.gguf", llama_tensors())
    hub.publish("org/packed", tmp_path / "b")
    assert load("org/packed", device="meta").architecture.d_model == 16, "its header is the config"
    load("org/name")
    assert hub.asked == ["config.json", "x.gguf", "model.safetensors"]


def test_a_path_that_exists_wins_over_a_hub_name(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/name", write_llama(tmp_path / "a"))
    write_llama(tmp_path / "org" / "name")
    load("org/name")
    assert hub.asked == []
    with pytest.raises(CheckpointError, match="'org/name' is a path here; write 'hub:org/name' to mean the hub's"):
        load("org/name", revision="main")
    load("hub:org/name", revision="main")
    assert hub.asked


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/name", True),
        ("Qwen/Qwen2.5-0.5B", True),
        ("hub:org/name", True),
        ("org/name/sub/x.gguf", True),
        ("org/name/x.bin", False),
        ("name", False),
        ("../name", False),
        ("./a/b", False),
        ("/a/b", False),
        ("~/a", False),
        ("a/b/c", False),
        ("http://a/b", False),
    ],
)
def test_what_is_a_hub_name(text: str, expected: bool) -> None:
    assert is_hub_name(text) is expected


CHILD = """
import sys, torch
torch.set_num_threads(1)
from plait.checkpoint import CheckpointError, load
for name in sys.argv[1:]:
    try:
        print(load(name).architecture.d_model)
    except CheckpointError as error:
        print(error)
"""


def test_the_environment_is_honoured(hub: Hub, tmp_path: Path) -> None:
    """HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE, as a process finds them when it starts."""
    hub.publish("org/name", write_llama(tmp_path / "a"))

    def run(*names: str, **environment: str) -> list[str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        done = subprocess.run(
            [sys.executable, "-c", CHILD, *names],
            env={**clean, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_PROGRESS_BARS": "1", **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    found, missing = run("org/name", "org/nothing", HF_ENDPOINT=hub.url)
    assert found == "16"
    assert "has no such model" in missing
    assert (tmp_path / "home" / "hub" / "models--org--name").is_dir()
    found, missing = run("org/name", "org/nothing", HF_ENDPOINT="http://127.0.0.1:9", HF_HUB_OFFLINE="1")
    assert found == "16"
    assert missing.endswith("is not in the cache, and offline nothing is fetched; load it once online.")
