from __future__ import annotations

import json
import math
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from plait.data.batch import Batch
from plait.data.store import tokenised
from plait.model.dropout import set_dropout
from plait.text import train_tokenizer
from plait.training.evaluation import MEASURED, better, evaluate, evaluating
from plait.training.ranks import Alone
from plait.training.text_streams import asked
from tests.training.making import Samples, batch_of, loss, model


def test_metrics_by_hand() -> None:
    m, samples = model(torch.float64), Samples(n=5)
    found = evaluate(m, samples, loss, metrics=MEASURED)
    nats, right, count = 0.0, 0, 0
    for sample in samples.samples:  # one by one, so that no padding is there
        logits = m.eval()(sample[None, :-1])[0].detach()
        nats -= float(logits.log_softmax(-1).gather(1, sample[1:, None]).sum())
        right += int((logits.argmax(-1) == sample[1:]).sum())
        count += len(sample) - 1
    assert found["loss"] == pytest.approx(nats / count, rel=1e-9)
    assert found["perplexity"] == pytest.approx(math.exp(nats / count), rel=1e-9)
    assert found["accuracy"] == right / count and right
    assert found["bits_per_byte"] == pytest.approx(nats / math.log(2) / (3 * count), rel=1e-9)


class OneOf(Alone):
    """A rank whose sums are added to those of others, one after the other."""

    def __init__(self, rank: int, world: int, sums: list[torch.Tensor]) -> None:
        self.rank, self.world, self.sums = rank, world, sums

    def total(self, values: torch.Tensor) -> torch.Tensor:
        self.sums.append(values)
        return torch.stack(self.sums).sum(0)


def test_tr20_each_sample_counts_once() -> None:
    m, samples, sums = model(torch.float64), Samples(n=10), []
    whole = evaluate(m, samples, loss)
    for rank in range(3):
        found = evaluate(m, samples, loss, ranks=OneOf(rank, 3, sums))
    assert sum(int(s[1]) for s in sums) == samples.facts()["targets"]
    assert found == pytest.approx(whole, rel=1e-12)


def test_tr22_no_dropout_and_the_mode_comes_back() -> None:
    m = model().train()
    set_dropout(m, residual=0.5, attention=0.5, activation=0.5)
    m.decoder.layers[1].eval()
    modes = [part.training for part in m.modules()]
    first = evaluate(m, Samples(), loss)
    assert first == evaluate(m, Samples(), loss)
    assert modes == [part.training for part in m.modules()] and len(set(modes)) == 2
    set_dropout(m)
    assert first == evaluate(m, Samples(), loss)
    with pytest.raises(RuntimeError, match="inside"), evaluating(m):
        assert not m.training and not torch.is_grad_enabled()
        raise RuntimeError("inside")
    assert m.training and torch.is_grad_enabled()


def test_tr23_no_logits_are_kept() -> None:
    class Rows(Samples):
        def evaluation(self, *, rank: int = 0, world: int = 1) -> Any:
            return (Batch(tokens=torch.ones(2, 5).long(), targets=torch.ones(2, 5).long()) for _ in range(100))

    kept: list[weakref.ref[torch.Tensor]] = []

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            logits = torch.zeros(*tokens.shape, 100) + self.weight
            assert sum(ref() is not None for ref in kept) <= 1  # the one before, which its caller may still name
            kept.append(weakref.ref(logits))
            return logits

    evaluate(Logits(), Rows(), loss, metrics=("loss", "accuracy"))
    assert len(kept) == 200 and not any(ref() is not None for ref in kept)


def test_a_part_of_the_samples() -> None:
    m, samples = model(torch.float64), Samples(n=10)
    first = evaluate(m, samples, loss, batches=1)
    nats, count = loss(m.eval(), batch_of(samples.samples[:3]))
    assert first["loss"] == pytest.approx(float(nats.detach()) / int(count), rel=1e-12)


@pytest.mark.parametrize(
    ("metrics", "samples", "words"),
    [
        (("loss", "blue"), Samples(), "metrics: 'blue' is not one of loss, perplexity, bits_per_byte, accuracy"),
        (("loss",), Samples(n=0), "the samples to evaluate on hold no target"),
    ],
)
def test_what_cannot_be_measured_is_refused(metrics: tuple[str, ...], samples: Samples, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        evaluate(model(), samples, loss, metrics=metrics)


def test_bits_of_data_without_bytes_are_refused() -> None:
    samples = Samples()
    samples.facts = dict  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="does not say how many bytes of text it has"):
        evaluate(model(), samples, loss, metrics=("bits_per_byte",))


def test_bits_a_byte_are_those_of_the_bytes_that_are_asked_for(tmp_path: Path) -> None:
    """The first token of a document without a token before it is never asked for, so its bytes are no part."""
    tokenizer = train_tokenizer(["abc"], kind="bytes")
    texts = ["abcd", "ab", "abcdefgh"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    text = tokenised(tmp_path / "a.jsonl", tokenizer, before=(), after=(), cache=tmp_path / "cache")
    assert text.counts["bytes"] == 14 and asked(text, tokenizer).counts["bytes"] == 14 - len(texts)
    ended = tokenised(tmp_path / "a.jsonl", tokenizer, before=(tokenizer.eos or 0,), cache=tmp_path / "cache")
    assert asked(ended, tokenizer).counts["bytes"] == 14, "a token before a document spells nothing"


def test_better_is_less_or_more() -> None:
    assert better("loss", 2.0, 3.0) and not better("loss", 3.0, 3.0) and better("bleu", 3.0, 2.0)
    assert better("loss", 9.0, None) and not better("loss", math.nan, None) and not better("bleu", math.nan, 2.0)
