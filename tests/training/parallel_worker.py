"""One of several processes of a test: computes the jobs that it is told, and the first of them writes down what it got.

RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... LOCAL_RANK=0 python -m tests.training.parallel_worker FOLDER JOB...
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode

from plait.architecture import Architecture, Experts
from plait.data.batch import Batch
from plait.training import lora
from plait.training.evaluation import evaluate
from plait.training.loop import train
from plait.training.loss import batch_loss
from plait.training.parallel import wrap
from plait.training.processes import ParallelError, join
from plait.training.ranks import Ranks
from plait.training.settings import Run
from tests.models import random_model, random_source, random_tokens
from tests.training.making import Samples, batch_of, recipe

SHAPE = Architecture(
    vocab_size=11, d_model=24, n_decoder_layers=2, n_heads=6, n_kv_heads=2, d_ff=16, position="rope", tied=True,
    qk_norm="head", gated=True,
)  # fmt: skip
OTHERS = {  # what each of them shows when it is divided wrongly
    "both": Architecture(
        vocab_size=20, d_model=24, n_encoder_layers=2, n_decoder_layers=2, n_heads=4, d_ff=20, max_length=16,
        position="learned", tied=True,
    ),
    "t5": Architecture.from_dict(
        {"vocab_size": 20, "d_model": 24, "n_encoder_layers": 2, "n_decoder_layers": 2, "n_heads": 4, "d_ff": 20,
         "relative_bias": {"buckets": 8, "max_distance": 12}, "norm": "rmsnorm", "ffn_bias": False}
    ),
    "sinks": SHAPE.replace(attention_sinks=True, qk_norm="per_head"),
    "parallel": SHAPE.replace(parallel="shared", qk_norm=None, gated=False),
}  # fmt: skip
SAID = dict(optimizer={"lr": 0.02, "clip": 0.1}, schedule={"warmup": 2, "kind": "linear"})


def settings(parallel: str = "data", **run: Any) -> Any:
    return recipe(run={"steps": 6, "parallel": parallel, "average": "ema", **run}, **SAID)


def whole(ranks: Any, model: nn.Module) -> dict[str, Tensor]:
    """The weights, put together from all processes."""
    return {name: ranks.whole(name, parameter.detach()).clone() for name, parameter in model.named_parameters()}


def run(parallel: str, folder: Path | None = None, *, resume: bool = False, stream: Any = None, **said: Any) -> dict:
    """A run with six steps of few rows, in two micro-batches where there are enough of them."""
    model = random_model(SHAPE)
    ranks = wrap(model, Run(parallel=parallel))
    data = ranks.stream(stream or Samples(rows=5, micro=2))
    steps = list(train(model, data, settings(parallel, **said), out=folder, resume=resume, ranks=ranks))
    found = {"weights": whole(ranks, model), "steps": [(s.loss, s.gradient_norm, s.targets) for s in steps]}
    with torch.no_grad():
        found["loss"] = evaluate(model, data, batch_loss, metrics=["loss"], ranks=ranks)["loss"]
    return found


class Few(Samples):
    """One row a step: none for all others."""

    def __init__(self) -> None:
        super().__init__(rows=1)

    def step(self, index: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        return super().step(index) if rank == 0 else []


class Uneven(Samples):
    """One row with a single target, and one with nine."""

    def step(self, index: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        rows = [torch.tensor([3, 1]), torch.arange(10)]
        return [batch_of(rows[rank::world])]


class Branches(nn.Module):
    """Two ways through, taken by turns."""

    def __init__(self) -> None:
        super().__init__()
        self.ways = nn.ModuleList([nn.Linear(3, 1), nn.Linear(3, 1)]).double()


class Turns(Samples):
    """Rank r's micro-batches go the ways r, then 0: way 1 has no gradient in the last of them, and on rank 0 none."""

    def step(self, index: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        pairs = [(0, 0), (1, 0)][rank::world]
        return [Batch(tokens=torch.tensor([[way]]), targets=torch.tensor([[1]])) for pair in pairs for way in pair]


def branching() -> dict:
    """Weights of a model whose branches take turns, and how far those of the processes are apart."""
    torch.manual_seed(0)
    model = Branches()
    ranks = wrap(model, Run(parallel="data"))

    def loss(model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        x = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
        return model.ways[int(batch.tokens)](x).square().sum(), batch.real.sum()

    list(train(model, Turns(), settings(average="none"), loss=loss, ranks=ranks))
    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    apart = ranks.total(mine) / ranks.world - mine
    return {"weights": whole(ranks, model), "apart": float(apart.abs().max())}


def divided(a: Architecture) -> dict:
    """Logits and gradients of a model of this shape, whole and divided, or the words of the refusal."""
    alone, model = random_model(a), random_model(a)
    tokens, source = random_tokens(2, 7, vocabulary=min(20, a.vocab_size)), random_source(a, 2)
    if source:
        source["source"] = source["source"] % a.source_vocab_size
    try:
        ranks = wrap(model, Run(parallel="tensor:2"))
    except ParallelError as error:
        return {"refused": str(error)}
    answers = []
    for one in (alone, model):
        answer = one(tokens, **source)
        (answer - answer.detach().roll(1, 0)).square().sum().backward()
        answers.append(answer.detach())
    furthest = float((answers[0] - answers[1]).abs().max() / answers[0].abs().max().clamp(min=1))
    gradients = dict(alone.named_parameters())
    most = 0.0
    for name, parameter in model.named_parameters():
        expected = gradients[name].grad
        if expected is None or parameter.grad is None:
            assert expected is None and parameter.grad is None, name
            continue
        mine = ranks.whole(name, parameter.grad)
        most = max(most, float((mine - expected).abs().max() / expected.abs().max().clamp(min=1)))
    return {"logits": furthest, "gradients": most, "cut": len(ranks.cut)}  # type: ignore[attr-defined]


def families(folder: Path) -> dict:
    said = json.loads((folder / "architectures.json").read_text())
    return {name: divided(Architecture.from_dict(a)) for name, a in said.items()}


def refusals() -> dict:
    found = {}
    model = random_model(SHAPE)
    lora.attach(model, rank=2)
    shapes = {
        "experts": SHAPE.replace(experts=Experts(n_experts=4, per_token=2, d_expert=6)),
        "n_kv_heads": SHAPE.replace(n_kv_heads=3),
        "qk_norm": SHAPE.replace(qk_norm="full"),
        "alibi": SHAPE.replace(position="alibi"),
        "d_ff": SHAPE.replace(d_ff=15),
    }
    cases: dict[str, tuple[Callable[[], nn.Module], Run]] = {
        **{name: (lambda a=a: random_model(a), Run(parallel="tensor:2")) for name, a in shapes.items()},
        "adapter": (lambda: model, Run(parallel="tensor:2")),
        "teams": (lambda: random_model(SHAPE), Run(parallel="tensor:3")),
        "precision": (lambda: random_model(SHAPE), Run(parallel="fsdp", precision="pure_bfloat16")),
        "parallel": (lambda: random_model(SHAPE), Run(parallel="pipeline")),
    }
    for name, (make, said) in cases.items():
        try:
            wrap(make(), said)
        except ParallelError as error:
            found[name] = str(error)
    return found


def adapted() -> dict:
    """LoRA under FSDP2: frozen and trained tensors in one group."""
    model = random_model(SHAPE)
    attached = lora.attach(model, rank=2)
    ranks = wrap(model, Run(parallel="fsdp"))
    list(train(model, ranks.stream(Samples(rows=5)), settings("fsdp", average="none"), ranks=ranks))
    assert attached.names
    return {"weights": whole(ranks, model)}


def halves(ranks: Ranks | None = None) -> dict:
    """Losses with masters beside bfloat16, where the second process has no rows."""
    model = random_model(SHAPE)
    ranks = ranks or wrap(model, Run())
    steps = train(model, ranks.stream(Few()), settings(precision="pure_bfloat16", average="none"), ranks=ranks)
    return {"losses": [step.loss for step in steps]}


def stops() -> list[bool]:
    """What one process of a team of two says, as all of them hear it."""
    return wrap(random_model(SHAPE), Run(parallel="tensor:2")).anywhere([dist.get_rank() == 1, False])


def parts() -> dict:
    """How many numbers this process holds of each parameter, and the collectives of a pass there and back, by kind."""
    found: dict[str, Any] = {}
    for kind in ("fsdp", "tensor:2"):
        model = random_model(SHAPE)
        wrap(model, Run(parallel=kind))
        held = {
            name: value.to_local() if isinstance(value, DTensor) else value for name, value in model.named_parameters()
        }
        found[kind] = {name: value.numel() for name, value in held.items()}
        with CommDebugMode() as seen:
            batch_loss(model.train(), Samples(rows=5).step(0)[0])[0].backward()
        found[f"{kind} calls"] = {str(name): count for name, count in seen.get_comm_counts().items()}
    return found


def jobs(folder: Path) -> dict[str, Callable[[], Any]]:
    def kept(kind: str, steps: int = 3) -> Callable[[], Any]:
        return lambda: run(kind, folder / kind.replace(":", ""), steps=steps, save_every=2)

    return {
        **{kind: (lambda kind=kind: run(kind)) for kind in ("data", "fsdp", "tensor:2")},
        **{f"{kind} few": (lambda kind=kind: run(kind, stream=Few())) for kind in ("data", "fsdp")},
        **{f"{kind} uneven": (lambda kind=kind: run(kind, stream=Uneven())) for kind in ("data", "fsdp")},
        **{f"{kind} saved": kept(kind) for kind in ("data", "fsdp", "tensor:2")},
        **{
            f"{kind} from {other}": (lambda kind=kind, other=other: run(kind, folder / other, resume=True, steps=6))
            for kind in ("data", "fsdp", "tensor:2", "tensor:4")
            for other in ("data", "fsdp", "tensor2", "alone")
        },
        "branching": branching,
        "families": lambda: families(folder),
        "others": lambda: {name: divided(a) for name, a in OTHERS.items()},
        "refusals": refusals,
        "adapted": adapted,
        "halves": halves,
        "stops": stops,
        "parts": parts,
    }


def main(folder: Path, names: list[str]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    join()
    known = jobs(folder)
    found = {}
    for name in names:
        found[name] = known[name]()
        dist.barrier()
    if dist.get_rank() == 0:
        torch.save(found, folder / "found.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
