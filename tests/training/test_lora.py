"""LoRA: adapters hung on a model from outside are trained, computed with, merged, and taken off without a trace."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from plait.architecture import Architecture, Classification, Experts, SharedLayers
from plait.checkpoint import Adapter, AdapterError, Checkpoint, PlaitNotice, merge, save_adapter
from plait.generation import ModelRunner, Request, Scheduler
from plait.model import Transformer
from plait.training import lora
from tests.models import far, random_model, random_source, random_tokens

DECODER = Architecture(
    vocab_size=20, d_model=24, n_heads=6, n_kv_heads=3, d_ff=20, n_decoder_layers=2, position="rope", gated=True
)
ENCODER = Architecture(
    vocab_size=20, d_model=24, n_heads=6, d_ff=20, n_encoder_layers=4, norm_placement="post", head=None
)
KINDS = {
    "decoder": DECODER,
    "encoder": ENCODER,
    "shared": ENCODER.replace(shared_layers=SharedLayers(groups=2, inner=1)),
    "both": Architecture(vocab_size=20, d_model=24, n_heads=6, d_ff=20, n_encoder_layers=2, n_decoder_layers=2),
    "parallel": DECODER.replace(parallel="shared", gated=False, activation="gelu"),
}


def trained(model: Transformer, **settings: object) -> lora.Attached:
    """As after training: whatever takes a gradient is somewhere else."""
    attached = lora.attach(model, **{"rank": 3, **settings})  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return attached


@pytest.mark.parametrize("kind", KINDS)
def test_merged_is_beside(kind: str) -> None:
    a = KINDS[kind]
    model = random_model(a, dtype=torch.float32)
    tokens, source = random_tokens(2, 7), random_source(a, 2)
    plain = model(tokens, **source)
    fresh = lora.attach(model, rank=2)
    assert torch.equal(model(tokens, **source), plain)  # nothing is added yet
    fresh.detach()
    attached = trained(model)
    beside, adapter = model(tokens, **source), attached.adapter()
    assert far(beside, plain) > 0.01
    attached.detach()
    assert torch.equal(model(tokens, **source), plain)
    merge(Checkpoint(architecture=a, model=model), adapter)
    assert far(model(tokens, **source), beside) < 1e-5


def test_all_projections_of_every_tower_are_adapted_unless_others_are_named() -> None:
    model = random_model(KINDS["both"])
    attached = lora.attach(model, rank=2)
    layer = [f"attention.{p}" for p in ("query", "key", "value", "output")] + ["ffn.up", "ffn.down"]
    expected = {f"encoder.layers.{i}.{p}.weight" for i in range(2) for p in layer}
    layer += [f"cross.{p}" for p in ("query", "key", "value", "output")]
    assert {*attached.names} == expected | {f"decoder.layers.{i}.{p}.weight" for i in range(2) for p in layer}
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    ends = {name.removesuffix(".weight") + end for name in attached.names for end in (".adapter.down", ".adapter.up")}
    assert trainable == ends
    attached.detach()
    assert all(parameter.requires_grad for parameter in model.parameters())
    some = lora.attach(model, rank=2, targets=["cross.value", "decoder.layers.1.ffn.*"]).names
    assert {*some} == {
        "decoder.layers.0.cross.value.weight",
        "decoder.layers.1.cross.value.weight",
        "decoder.layers.1.ffn.up.weight",
        "decoder.layers.1.ffn.down.weight",
    }


def test_lo3_a_pattern_that_matches_nothing_is_an_error() -> None:
    model = random_model(DECODER)
    with pytest.raises(AdapterError, match="'quary': nothing in this model is called so; did you mean 'query'"):
        lora.attach(model, rank=2, targets=["value", "quary"])
    with pytest.raises(AdapterError, match="'uery'"):  # whole words, not ends of them
        lora.attach(model, rank=2, targets=["uery"])
    with pytest.raises(AdapterError, match="is no Linear"):
        lora.attach(model, rank=2, targets=["embedding.tokens"])
    with pytest.raises(AdapterError, match="'head.dense'"):
        lora.attach(model, rank=2, whole=["head.dense"])
    name = "decoder.layers.9.attention.query.weight"
    update = trained(model).adapter().updates["decoder.layers.0.attention.query.weight"]
    with pytest.raises(AdapterError, match="layers.9.attention.query.weight, which this model does not have"):
        lora.put(random_model(DECODER), Adapter(updates={name: update}))
    with pytest.raises(AdapterError, match="it changes nothing"):
        lora.put(random_model(DECODER), Adapter(updates={}))
    assert not any("adapter" in name for name, _ in random_model(DECODER).named_parameters())


def test_experts_are_left_and_said_to_be() -> None:
    sparse = DECODER.replace(experts=Experts(n_experts=3, per_token=2, d_expert=6, d_shared=8))
    with pytest.warns(PlaitNotice, match="the experts' matrices are left"):
        names = lora.attach(random_model(sparse), rank=2).names
    assert any(".ffn.shared.up." in name for name in names) and not any(".experts." in name for name in names)
    with pytest.raises(AdapterError, match="'experts.up': what is called so in this model is no Linear"):
        lora.attach(random_model(sparse), rank=2, targets=["experts.up"])


def test_dropout_is_of_training_alone_and_of_the_update_alone() -> None:
    model = random_model(DECODER, dtype=torch.float32)
    plain = model(random_tokens(1, 6))
    attached = trained(model, dropout=0.5, targets=["query"])
    tokens = random_tokens(1, 6)
    still = model(tokens)
    assert torch.equal(model(tokens), still)
    model.train()
    torch.manual_seed(0)
    noisy = torch.stack([model(tokens) for _ in range(400)])
    assert far(noisy[0], noisy[1]) > 0.01
    linear, x = model.get_submodule("decoder.layers.0.attention.query"), torch.randn(1, 1, 24)
    mean = torch.stack([linear(x) for _ in range(4000)]).mean(0)
    model.eval()
    assert far(mean, linear(x)) < 0.15
    attached.detach()
    assert torch.equal(model.train()(tokens), plain)


def test_only_adapters_learn() -> None:
    model = random_model(DECODER, dtype=torch.float32)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    attached = lora.attach(model, rank=4, whole=["head.output.weight"])
    tokens = random_tokens(4, 8)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.02)
    losses = []
    for _ in range(12):
        loss = torch.nn.functional.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.7 * losses[0]
    changed = {name for name, value in before.items() if not torch.equal(model.get_parameter(name), value)}
    assert changed == {"head.output.weight"}
    assert attached.adapter().whole.keys() == changed
    attached.detach()
    assert all(torch.equal(model.get_parameter(name), value) for name, value in before.items())


def test_kv10_a_runner_is_another_with_every_adapter() -> None:
    """One prompt by adapter A, by B under the same names, by none: what one has read no other goes on from."""
    model = random_model(DECODER, dtype=torch.float32)
    first = trained(model)
    one = first.adapter()
    first.detach()
    other = Adapter(updates={name: replace(update, up=-2 * update.up) for name, update in one.updates.items()})
    scheduler, identities = Scheduler(ModelRunner(model), prefix_tokens=500), set[str]()
    for adapter in (one, other, None, one):
        attached = lora.put(model, adapter) if adapter else None
        identities.add(scheduler.runner.identity)
        request = Request(tokens=[*range(1, 15)], limit=4)
        fresh = written(Scheduler(ModelRunner(model)), request)
        assert written(scheduler, request) == fresh
        if attached:
            attached.detach()
    assert len(identities) == 4


def written(scheduler: Scheduler, request: Request) -> list[tuple[int, float]]:
    """The tokens of a request, and what each was worth."""
    scheduler.submit(request)
    pieces = []
    while not scheduler.idle:
        pieces += [piece for _, piece in scheduler.step()]
    return [(piece.token, round(piece.logprob, 4)) for piece in pieces]


def test_lo6_a_second_adapter_with_other_extras() -> None:
    """A trains the head too, B does not: B is over the head that was there, whatever came before."""
    a = DECODER.replace(head=Classification(labels=3, pooling="last"))
    model, tokens = random_model(a, dtype=torch.float32), random_tokens(2, 7)
    head = model.get_parameter("head.output.weight").detach().clone()
    first = trained(model, whole=["head.output"])
    with_head = first.adapter()
    expected = model(tokens)
    first.detach()
    second = trained(model, targets=["value"])
    without = second.adapter()
    assert torch.equal(model.get_parameter("head.output.weight"), head) and not without.whole
    alone = model(tokens)
    with pytest.raises(AdapterError, match="has adapters already"):
        lora.put(model, with_head)
    second.detach()
    again = lora.put(model, with_head)
    assert torch.equal(model(tokens), expected)
    again.detach()
    lora.put(model, without)
    assert torch.equal(model(tokens), alone)


def test_half_precision_weights_get_float32_adapters(tmp_path) -> None:
    model = random_model(DECODER, dtype=torch.bfloat16)
    attached = trained(model)
    assert attached.adapter().updates["decoder.layers.0.ffn.up.weight"].down.dtype == torch.float32
    assert model(random_tokens(1, 5)).dtype == torch.bfloat16
    save_adapter(attached.adapter(), Checkpoint(architecture=DECODER, model=model), tmp_path / "adapter")
