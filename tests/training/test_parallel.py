"""Law 5 across processes: two, and four, compute what one does; states move between any number of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from plait.account.memory import Parameter, Spread
from plait.families import family_for
from plait.parameters import parameters
from plait.training.evaluation import evaluate
from plait.training.loop import train
from plait.training.loss import batch_loss
from plait.training.ranks import Alone
from plait.training.states import StateError, read_state, saved_states
from plait.training.tensor_parallel import plan
from tests.families.recipes import RECIPES
from tests.models import random_model, shallow
from tests.training import parallel_worker as worker
from tests.training.making import Samples, furthest

ROOT = Path(__file__).parents[2]


def processes(n: int, folder: Path, *jobs: str, timeout: float = 240) -> dict[str, Any]:
    """What ``n`` processes got, by job."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {"WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.training.parallel_worker", str(folder), *jobs]
    started = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **told, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(n)
    ]
    errors = []
    for process in started:
        try:
            errors.append(process.communicate(timeout=timeout)[1])
        finally:
            process.kill()
    assert all(process.returncode == 0 for process in started), "\n".join(errors)[-4000:]
    return torch.load(folder / "found.pt")


def alone(stream: Any = None, folder: Path | None = None, **said: Any) -> dict[str, Any]:
    """The same run in this process."""
    model, data = random_model(worker.SHAPE), stream or Samples(rows=5, micro=2)
    steps = list(train(model, data, worker.settings(**said), out=folder))
    found = {"weights": dict(model.named_parameters()), "steps": [(s.loss, s.gradient_norm, s.targets) for s in steps]}
    return found | {"loss": evaluate(model, data, batch_loss, metrics=["loss"])["loss"]}


def assert_equal(many: dict[str, Any], one: dict[str, Any]) -> None:
    with torch.no_grad():
        assert furthest(many["weights"], one["weights"]) < 1e-9
    for mine, theirs in zip(many["steps"], one["steps"], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-9)
    assert many["loss"] == pytest.approx(one["loss"], rel=1e-9)


KINDS = ("data", "fsdp", "tensor:2")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One pair of processes for all that two are needed for."""
    folder = tmp_path_factory.mktemp("two")
    alone(folder=folder / "alone", steps=3)
    jobs = [
        *KINDS,
        "data few",
        "fsdp few",
        "data uneven",
        "fsdp uneven",
        "branching",
        "others",
        "refusals",
        "adapted",
        "halves",
        "stops",
        "parts",
    ]
    resumed = [
        "data saved",
        "fsdp saved",
        "tensor:2 saved",
        "data from fsdp",
        "fsdp from tensor2",
        "tensor:2 from alone",
    ]
    return processes(2, folder, *jobs, *resumed) | {"folder": folder}


@pytest.fixture(scope="module")
def one() -> dict[str, Any]:
    return alone()


@pytest.mark.parametrize("kind", KINDS)
def test_law_5_two_processes_are_one(kind: str, two: dict[str, Any], one: dict[str, Any]) -> None:
    assert_equal(two[kind], one)


@pytest.mark.parametrize("kind", KINDS)
def test_tr18_the_norm_that_is_clipped_is_of_all_parts_together(
    kind: str, two: dict[str, Any], one: dict[str, Any]
) -> None:
    norms = [norm for _, norm, _ in two[kind]["steps"]]
    assert norms == pytest.approx([norm for _, norm, _ in one["steps"]], rel=1e-9)
    assert (
        min(norms) > 2 * worker.SAID["optimizer"]["clip"]
    )  # all were clipped, or nothing would be told by the weights


@pytest.mark.parametrize("kind", ["data", "fsdp"])
def test_tr1_processes_count_by_their_targets(kind: str, two: dict[str, Any]) -> None:
    """One has a single target and the other nine: together they are one batch of ten."""
    assert [targets for *_, targets in two[f"{kind} uneven"]["steps"]] == [10] * 6
    assert_equal(two[f"{kind} uneven"], alone(worker.Uneven()))


@pytest.mark.parametrize("kind", ["data", "fsdp"])
def test_a_process_without_rows_takes_part(kind: str, two: dict[str, Any]) -> None:
    assert_equal(two[f"{kind} few"], alone(worker.Few()))


def test_a_process_without_rows_takes_part_in_half_precision(two: dict[str, Any]) -> None:
    assert two["halves"]["losses"] == pytest.approx(worker.halves(Alone())["losses"], rel=1e-6)


def test_a_team_stops_where_one_of_it_is_told_to(two: dict[str, Any]) -> None:
    assert two["stops"] == [True, False]


def test_tr20_every_sample_is_counted_once_whoever_reads_it(two: dict[str, Any], one: dict[str, Any]) -> None:
    """20 samples of unequal length, in batches of three: the last of each process is cut short."""
    assert len(Samples().samples) // 2 % 3
    assert two["data"]["loss"] == pytest.approx(one["loss"], rel=1e-12)


def test_tr21_what_took_no_part_on_one_process_is_the_same_on_all(two: dict[str, Any]) -> None:
    assert two["branching"]["apart"] == 0.0
    alone = worker.branching()
    assert furthest(two["branching"]["weights"], alone["weights"]) < 1e-12


def test_lora_under_fsdp_is_lora(two: dict[str, Any]) -> None:
    model = random_model(worker.SHAPE)
    worker.lora.attach(model, rank=2)
    list(train(model, Samples(rows=5), worker.settings(average="none")))
    assert furthest(two["adapted"]["weights"], {name: p.detach() for name, p in model.named_parameters()}) < 1e-9


@pytest.mark.parametrize("name", worker.OTHERS)
def test_slices_of_every_kind_of_layer_are_the_layer(name: str, two: dict[str, Any]) -> None:
    found = two["others"][name]
    assert found["logits"] < 1e-12 and found["gradients"] < 1e-9 and found["cut"] > 10


def test_what_cannot_be_divided_is_refused_by_name(two: dict[str, Any]) -> None:
    found = two["refusals"]
    for name in ("experts", "n_kv_heads", "qk_norm", "alibi", "d_ff"):
        assert found[name].startswith(f"{name}: ")
    assert "adapter.down: adapters are not divided" in found["adapter"]
    assert "no whole number of teams of 3" in found["teams"]
    assert "pure_bfloat16" in found["precision"] and "'pipeline' is not" in found["parallel"]


def test_the_plan_on_paper_is_what_two_processes_hold_and_send(two: dict[str, Any]) -> None:
    """Of each parameter as many numbers; with FSDP two layers gathered twice, the rest once, three groups scattered;
    with slices four sums forward and ten back."""
    a, found = worker.SHAPE, two["parts"]
    cut = plan(a, list(parameters(a)))
    for name, spread in {"fsdp": ("fsdp", 1), "tensor:2": ("tensor", 2)}.items():
        on_paper = Spread(kind=spread[0], n=spread[1], world=2)  # type: ignore[arg-type]
        shapes = {name: Parameter(shape=shape, cut=cut.get(name)) for name, shape in parameters(a).items()}
        assert found[name] == {name: on_paper.numbers(parameter) for name, parameter in shapes.items()}
    fsdp = found["fsdp calls"]
    assert sum(n for name, n in fsdp.items() if "gather" in name) == 2 * 2 + 1
    assert sum(n for name, n in fsdp.items() if "reduce_scatter" in name) == 3
    reduced = sum(n for name, n in found["tensor:2 calls"].items() if "all" in name and "reduce" in name)
    assert reduced == 2 * 2 + 2 * 5 + 2 * 4  # the last: norms of queries and keys, too small to count on paper


def test_states_move_between_any_kinds_of_processes(two: dict[str, Any], one: dict[str, Any]) -> None:
    """Saved after three steps by one kind, gone on with by another, or by a single process: as if never stopped."""
    last = {**one, "steps": one["steps"][3:]}
    for resumed in ("data from fsdp", "fsdp from tensor2", "tensor:2 from alone"):
        assert_equal(two[resumed], last)
    (newest, *_) = saved_states(two["folder"] / "tensor2" / "states")
    whole = read_state(newest)  # of six steps, written by two processes, each its part
    assert furthest(dict(whole.averages), {name: p.detach() for name, p in one["weights"].items()}) < 1e-9
    assert whole.counts["world"] == 2


def test_a_state_of_many_is_whole_or_not_taken(two: dict[str, Any], tmp_path: Path) -> None:
    states = tmp_path / "states"
    shutil.copytree(two["folder"] / "fsdp" / "states", states)
    newest = next(path for path in saved_states(states) if any(path.glob("*.distcp")))
    shard = min(newest.glob("*.distcp"))
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(StateError, match=r"__0_0.distcp is not what was written"):
        read_state(newest)


def architectures(reference: ModuleType, *, all: bool) -> dict[str, Any]:
    """Tiny models of every family, one of each or ``all``; where key heads are three, which no two share, with two."""
    found: dict[str, Any] = {}
    families = set[str]()
    for name, recipe in RECIPES.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = getattr(reference, recipe.config)(**recipe.settings).to_dict()
        config["architectures"] = [recipe.model]
        family = family_for(config)
        a = shallow(family.architecture(config))
        odd = a.n_heads % 2 == 0 and a.n_kv_heads % 2 != 0
        if all and odd:
            found[f"{name}, 3"] = a.to_dict()
        if all or family.name not in families:
            found[name] = (a.replace(n_kv_heads=2) if odd else a).to_dict()
        families.add(family.name)
    return found


def assert_divided(folder: Path, said: dict[str, Any]) -> None:
    (folder / "architectures.json").write_text(json.dumps(said))
    found = processes(2, folder, "families")["families"]
    assert found.keys() == said.keys()
    refused = {name: told["refused"] for name, told in found.items() if "refused" in told}
    for name, words in refused.items():
        assert re.match("(experts|alibi|qk_norm|n_heads|n_kv_heads|d_ff): ", words), (name, words)
    divided = {name: told for name, told in found.items() if name not in refused}
    assert {name: told for name, told in divided.items() if max(told["logits"], told["gradients"]) > 1e-9} == {}
    assert len(divided) > len(found) / 2


@pytest.mark.slow
def test_every_family_is_divided_or_refused_by_its_part(reference: ModuleType, tmp_path: Path) -> None:
    assert_divided(tmp_path, architectures(reference, all=False))


@pytest.mark.slow
def test_every_recipe_of_every_family_is_divided_or_refused(reference: ModuleType, tmp_path: Path) -> None:
    assert_divided(tmp_path, architectures(reference, all=True))


@pytest.mark.slow
def test_law_5_four_processes_are_one_and_their_state_is_read_by_two(tmp_path: Path, one: dict[str, Any]) -> None:
    four = processes(4, tmp_path, *KINDS, "fsdp saved", "tensor:2 saved", "others")
    for kind in KINDS:
        assert_equal(four[kind], one)
    for told in four["others"].values():
        assert told["logits"] < 1e-12 and told["gradients"] < 1e-9
    two = processes(2, tmp_path, "tensor:2 from fsdp", "fsdp from tensor2")
    for found in two.values():
        assert_equal(found, {**one, "steps": one["steps"][3:]})


RECIPE = """
[model]
preset = "gpt2"
n_decoder_layers = 2
n_heads = 4
d_model = 32
d_ff = 64
max_length = 32
[data]
train = "text.txt"
valid_fraction = 0.2
tokenizer = "bytes"
length = 16
batch_rows = 6
[run]
steps = 4
save_every = 2
[evaluate]
every = 2
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_torchrun_trains_what_one_process_trains(kind: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Every good boy does fine, and some do better.\n" * 200)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for name, start in {"one": [], "two": torchrun}.items():
        spread = ["--run.parallel", kind] if start else []
        command = [sys.executable, *start, "-m", "plait", "train", "recipe.toml", "--out", name, "--data", ".", *spread]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr[-3000:]
    one, two = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys() and furthest(one, two) < 1e-4
    lines = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("one", "two")]
    losses = [[json.loads(line)["loss"] for line in told if '"kind": "step"' in line] for told in lines]
    assert len(losses[0]) == 4 and losses[0] == pytest.approx(losses[1], rel=1e-4)
