"""Judging an edit: whether the target is said (efficacy), also where it is asked otherwise (paraphrase), whether other
subjects keep their answers (locality), and whether the model still writes (fluency).

(Meng et al. 2022, section 3.4; here the target must be what is said, token by token, not only likelier than before.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from plait.checkpoint import Checkpoint
from plait.generation import generate
from plait.inspection.editing.facts import Fact, following, tokenizer_of
from plait.inspection.editing.prompts import following_ids

WRITTEN = 60  # tokens that fluency is taken over


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Shares, from 0 to 1, of the prompts of each kind; ``None`` where there is none. ``fluency`` is the entropy, in
    bits, of pairs and triples of tokens in what is written on from the prompts (Zhang et al. 2018): less where the
    model repeats itself."""

    efficacy: float
    paraphrase: float | None
    locality: float | None
    fluency: float | None

    @property
    def harmonic(self) -> float | None:
        """The harmonic mean of the three shares, 0 where one is."""
        shares = [self.efficacy, self.paraphrase, self.locality]
        if None in shares:
            return None
        return 0.0 if 0.0 in shares else len(shares) / sum(1 / share for share in shares if share)

    @classmethod
    def mean(cls, judgements: Sequence[Judgement]) -> Judgement:
        """Of several, each share over those that have it."""
        found: dict[str, Any] = {}
        for field in fields(cls):
            values = [value for one in judgements if (value := getattr(one, field.name)) is not None]
            found[field.name] = sum(values) / len(values) if values else None
        return cls(**found)


@torch.no_grad()
def judge(
    checkpoint: Checkpoint, before: Checkpoint, facts: Sequence[Fact], *, write: bool = True
) -> Iterator[Judgement]:
    """Of each fact in an edited checkpoint, beside what the one ``before`` answers elsewhere; without ``write`` no
    fluency, which takes longest."""
    for fact in facts:
        target = [*(says(checkpoint, text, fact.target) for text in (fact.text, *fact.rephrased))]
        kept = [greedy(checkpoint, text) == greedy(before, text) for text in fact.elsewhere]
        yield Judgement(
            efficacy=float(target[0]),
            paraphrase=sum(target[1:]) / len(target[1:]) if fact.rephrased else None,
            locality=sum(kept) / len(kept) if kept else None,
            fluency=fluency(checkpoint, fact) if write else None,
        )


def says(checkpoint: Checkpoint, text: str, target: str) -> bool:
    """Whether each token of the target is the likeliest behind the text and those before it."""
    return answer(checkpoint, text, target)[1]


@torch.no_grad()
def answer(checkpoint: Checkpoint, text: str, target: str) -> tuple[float, bool]:
    """The target's probability behind a text, and whether it is what the model says."""
    tokenizer = tokenizer_of(checkpoint)
    ids = [*tokenizer.prefix, *tokenizer.encode(text, specials=False)]
    more = torch.tensor(following_ids(checkpoint, text, following(text, target)))
    device = next(checkpoint.model.parameters()).device
    tokens = torch.tensor([[*ids, *more.tolist()]], device=device)
    logits = checkpoint.model.eval()(tokens)[0, len(ids) - 1 : -1].float().cpu()
    nll = torch.nn.functional.cross_entropy(logits, more, reduction="sum")
    return float((-nll).exp()), bool((logits.argmax(-1) == more).all())


def greedy(checkpoint: Checkpoint, text: str) -> int:
    """The likeliest next token."""
    tokenizer = tokenizer_of(checkpoint)
    ids = [*tokenizer.prefix, *tokenizer.encode(text, specials=False)]
    tokens = torch.tensor([ids], device=next(checkpoint.model.parameters()).device)
    return int(checkpoint.model.eval()(tokens, last_only=True)[0, -1].argmax())


def fluency(checkpoint: Checkpoint, fact: Fact) -> float:
    """The entropy of pairs and triples in what is written behind the prompt, weighed 2 to 1 as by Meng et al."""
    longest = checkpoint.architecture.max_length
    room = WRITTEN if longest is None else min(WRITTEN, longest - len(tokenizer_of(checkpoint).encode(fact.text)))
    written: Any = generate(checkpoint, fact.text, max_new_tokens=max(1, room), temperature=0.0)
    return sum(weight * entropy(written.tokens, n) for n, weight in ((2, 2 / 3), (3, 4 / 3))) / 2


def entropy(tokens: Sequence[int], n: int) -> float:
    """In bits, of a row's n-grams."""
    counts = Counter(zip(*(tokens[i:] for i in range(n)), strict=False))
    total = sum(counts.values())
    return -sum(count / total * math.log2(count / total) for count in counts.values()) if total else 0.0
