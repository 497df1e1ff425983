"""Heads, patches, ablations, causal tracing, gradients and probes, each against a computation of its own."""

from __future__ import annotations

import pytest
import torch

from plait.architecture import Architecture
from plait.inspection import (
    InspectionError,
    Reading,
    ablate,
    gradients,
    heads,
    induction,
    lens,
    log_probability,
    logit_difference,
    patch,
    probe,
    trace,
)
from plait.inspection.causal import causal_trace
from plait.inspection.names import ALIASES, site_of
from plait.model import site_names, watching
from tests.inspection.making import made, reading
from tests.models import far, random_model, random_tokens

DECODER = Architecture(vocab_size=32, d_model=16, n_heads=4, d_ff=20, n_decoder_layers=2, position="rope")
BOTH = Architecture(vocab_size=32, d_model=16, n_heads=4, d_ff=20, n_encoder_layers=2, n_decoder_layers=2)


def other(n: int = 7) -> Reading:
    tokens = random_tokens(1, n, seed=9)
    return Reading(tokens=tokens, texts=tuple(map(str, tokens[0].tolist())))


def test_heads_by_hand() -> None:
    seen = trace(made(DECODER), reading(DECODER), "*.pattern")
    lines = list(heads(seen))
    assert len(lines) == 8 and {line.name for line in lines} == {f"decoder.layers.{i}.attention" for i in (0, 1)}
    pattern = seen["decoder.layers.1.attention.pattern"][2]
    line = lines[6]
    assert line.head == 2 and line.previous == pytest.approx(float(pattern.diagonal(-1).mean()))
    assert line.first == pytest.approx(float(pattern[1:, 0].mean()))
    away = sum(float(pattern[q, k]) * (q - k) for q in range(7) for k in range(q + 1)) / 7
    assert line.distance == pytest.approx(away)
    entropy = -sum(float(p) * float(p.log()) for row in pattern for p in row if p > 0) / 7
    assert line.entropy == pytest.approx(entropy)


def test_induction_counts_what_stands_behind_the_same_token() -> None:
    ids = torch.tensor([[5, 7, 9, 5, 7, 5]])
    seen = trace(made(DECODER), Reading(tokens=ids, texts=("",) * 6), "*.pattern")
    pattern = seen["decoder.layers.0.attention.pattern"][0]
    share = (pattern[3, 1] + pattern[4, 2] + pattern[5, 1] + pattern[5, 4]) / 3
    assert next(iter(heads(seen))).induction == pytest.approx(float(share))
    assert all(line.induction is not None for line in induction(made(DECODER), length=5))


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_in1_the_lens_is_the_model_of_the_first_layers(norm: str) -> None:
    architecture = DECODER.replace(norm=norm, n_decoder_layers=3)
    checkpoint, read = made(architecture), reading(architecture)
    weights = checkpoint.model.state_dict()
    first, *rows = lens(trace(checkpoint, read))
    assert len(rows) == 3 and first[0] == "embedding.output"
    for layers, (_, said) in enumerate(rows, 1):
        shorter = random_model(architecture.replace(n_decoder_layers=layers))
        shorter.load_state_dict({name: weights[name] for name in shorter.state_dict()})
        assert far(said, shorter(read.tokens)[0]) < 1e-12


def test_in4_padding_and_causality_are_in_the_pattern() -> None:
    model, tokens = made(DECODER).model, random_tokens(2, 5)
    mask = torch.tensor([[False, False, True, True, True], [True] * 5])
    with watching(model, "*.pattern") as seen:
        model(tokens, mask=mask)
    pattern = seen["decoder.layers.0.attention.pattern"]
    assert float(pattern[0, :, 2:, :2].abs().max()) == 0.0 and not pattern.isnan().any()
    sums = pattern.sum(-1)
    assert bool(((sums - 1).abs().lt(1e-9) | sums.eq(0)).all())


@pytest.mark.parametrize("by", ["place", "head"])
def test_a_patch_is_the_pass_with_that_value(by) -> None:
    checkpoint, clean, corrupted = made(DECODER), reading(DECODER), other()
    measure = logit_difference(3, 5)
    name = "decoder.layers.0.output" if by == "place" else "decoder.layers.0.attention.mix"
    value = trace(checkpoint, clean, name)[name]
    found = list(patch(checkpoint, clean, corrupted, name, measure, by=by, batch_rows=3))
    assert len(found) == (7 if by == "place" else 4)
    for one in found:

        def change(_: str, now: torch.Tensor, at: int = one.place) -> torch.Tensor:
            now = now.clone()
            now[0, at] = value[at]
            return now

        with torch.no_grad(), watching(checkpoint.model, name, change=change):
            assert one.value == pytest.approx(float(measure(checkpoint.model(corrupted.tokens))[0]), abs=1e-9)
    with pytest.raises(InspectionError, match="7 tokens|tokens; values go from place to place"):
        list(patch(checkpoint, clean, other(6), name, measure))


def test_all_of_the_last_layer_brings_all_of_the_answer_back() -> None:
    checkpoint, clean, corrupted = made(DECODER), reading(DECODER), other()
    *_, last = patch(checkpoint, clean, corrupted, "decoder.layers.1.output", log_probability(3))
    assert last.share == pytest.approx(1.0)
    first = next(iter(patch(checkpoint, clean, corrupted, "decoder.layers.1.output", log_probability(3))))
    assert first.share == pytest.approx(0.0, abs=1e-9), "the last token's answer does not read another's last layer"


def test_what_is_left_out_is_zero_or_the_mean() -> None:
    checkpoint, read = made(BOTH), reading(BOTH)
    measure = log_probability(4)
    with torch.no_grad():
        whole = float(measure(checkpoint.model(read.tokens, **read.inputs))[0])
    for to in ("zero", "mean"):
        for one in ablate(checkpoint, read, "decoder.layers.*.cross.mix", measure, heads=True, to=to):

            def change(_: str, now: torch.Tensor, head: int = one.head or 0, to: str = to) -> torch.Tensor:
                now = now.clone()
                now[:, head] = 0.0 if to == "zero" else now[:, head].mean(1, keepdim=True)
                return now

            with torch.no_grad(), watching(checkpoint.model, one.site, change=change):
                value = float(measure(checkpoint.model(read.tokens, **read.inputs))[0])
            assert one.value == pytest.approx(value) and one.change == pytest.approx(value - whole)
    branches = list(ablate(checkpoint, read, "*_branch", measure))
    assert len(branches) == 2 * 2 + 2 * 3 and all(one.head is None for one in branches)


def test_gradients_are_differences() -> None:
    checkpoint, read = made(DECODER), reading(DECODER)
    measure = log_probability(3, position=4)
    (slope,) = gradients(checkpoint, read, measure).values()

    def moved(by: float) -> float:
        def change(_: str, now: torch.Tensor) -> torch.Tensor:
            now = now.clone()
            now[0, 2, 5] += by
            return now

        with torch.no_grad(), watching(checkpoint.model, "embedding.output", change=change):
            return float(measure(checkpoint.model(read.tokens))[0])

    assert float(slope[2, 5]) == pytest.approx((moved(1e-5) - moved(-1e-5)) / 2e-5, rel=1e-3, abs=1e-6)
    assert float(slope[5:].abs().max()) == 0.0, "what comes later is not looked at"
    assert all(parameter.grad is None for parameter in checkpoint.model.parameters())


@pytest.mark.parametrize(("kind", "window"), [("output", 1), ("ffn_branch", 1), ("attention_branch", 2)])
def test_causal_tracing_is_the_pass_with_noise_and_one_value_put_back(kind, window: int) -> None:
    checkpoint, read = made(DECODER), reading(DECODER)
    found = causal_trace(checkpoint, read, [1, 2], kind=kind, window=window, samples=3, batch_rows=4, noise=1.0)
    clean = trace(checkpoint, read)
    assert found.clean == pytest.approx(float(clean.output[-1].softmax(-1).max()))
    table = checkpoint.model.embedding.tokens
    assert table is not None
    drawn = torch.randn(3, 2, 16, generator=torch.Generator().manual_seed(0)) * float(
        table.weight.detach().float().std()
    )
    for layer in (0, 1):
        low = max(0, layer - window // 2)
        names = [f"decoder.layers.{i}.{kind}" for i in range(low, min(2, layer - window // 2 + window))]
        for place in (0, 2, 6):

            def change(
                name: str, now: torch.Tensor, place: int = place, names: list[str] = names
            ) -> torch.Tensor | None:
                now = now.clone()
                if name == "embedding.output":
                    now[:, 1:3] += drawn
                elif name in names:
                    now[:, place] = clean[name][place]
                return now

            with torch.no_grad(), watching(checkpoint.model, "embedding.output", *names, change=change):
                said = checkpoint.model(read.tokens.expand(3, -1))[:, -1].softmax(-1)[:, found.token].mean()
            assert float(found.probabilities[layer, place]) == pytest.approx(float(said), rel=1e-6)
    with pytest.raises(InspectionError, match="subject: places"):
        causal_trace(checkpoint, read, [7])


def test_a_probe_finds_what_is_there_and_nothing_where_nothing_is() -> None:
    generator = torch.Generator().manual_seed(0)
    x, labels = torch.randn(600, 8, generator=generator), torch.randint(0, 3, (600,), generator=generator)
    x[:, 2] = 5 * x[:, 2] + 10.0 * labels
    found = probe(x, labels)
    assert found.accuracy > 0.75 and found.control < 0.45 and found.majority < 0.45
    right = ((x @ found.weight.t() + found.bias).argmax(-1) == labels).double().mean()
    assert float(right) > 0.75, "the weights are for values as they are"
    assert probe(torch.randn(600, 8, generator=generator), labels).accuracy < 0.45
    with pytest.raises(InspectionError, match="all are of one class"):
        probe(x, torch.zeros(600, dtype=torch.long))
    with pytest.raises(InspectionError, match="labels: 3 for 600 samples"):
        probe(x, labels[:3])


def test_the_aliases_are_sites() -> None:
    sites = site_names(made(DECODER).model)
    for hook in ALIASES:
        assert site_of(hook.format(i=1)) in sites or hook == "blocks.{i}.hook_resid_pre"
    assert site_of("blocks.1.hook_resid_pre") == "decoder.layers.0.output"
    assert site_of("blocks.0.hook_resid_pre") == "embedding.output"
    with pytest.raises(InspectionError, match="no site shows that"):
        site_of("blocks.0.ln1.hook_scale")


def test_in7_what_was_kept_does_not_change_later() -> None:
    checkpoint, read = made(DECODER), reading(DECODER)
    seen = trace(checkpoint, read)
    kept = {name: value.clone() for name, value in seen.items()}
    before = checkpoint.model(read.tokens)
    for value in seen.values():
        value.mul_(0.0)
    assert torch.equal(checkpoint.model(read.tokens), before)
    again = trace(checkpoint, read)
    assert all(torch.equal(value, again[name]) for name, value in kept.items())
    assert far(again.output, before[0]) < 1e-12
