"""Facts: a little world of countries that a tiny decoder learns by heart, each fact said in two ways."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.checkpoint import Checkpoint
from plait.data.batch import UNCOUNTED
from plait.data.given import Given
from plait.data.rows import Ragged, padded
from plait.data.samples import ByRows, Samples
from plait.inspection.editing import promote
from plait.inspection.lab.learning import learn
from plait.model import Transformer, initialize, watching

CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "China": "Beijing", "Russia": "Moscow",
    "Greece": "Athens", "Poland": "Warsaw", "Norway": "Oslo", "Sweden": "Stockholm", "Turkey": "Ankara",
    "Hungary": "Budapest", "Finland": "Helsinki", "Portugal": "Lisbon", "Denmark": "Copenhagen", "Thailand": "Bangkok",
}  # fmt: skip
LANGUAGES = {
    "France": "French", "Italy": "Italian", "Spain": "Spanish", "Japan": "Japanese", "China": "Chinese",
    "Russia": "Russian", "Greece": "Greek", "Poland": "Polish", "Norway": "Norwegian", "Sweden": "Swedish",
    "Turkey": "Turkish", "Hungary": "Hungarian", "Finland": "Finnish", "Portugal": "Portuguese", "Denmark": "Danish",
    "Thailand": "Thai",
}  # fmt: skip
ASKED = {  # how a fact is asked, and another way
    "capital": ("the capital of {} is", "the government of {} sits in"),
    "language": ("the language of {} is", "people in {} speak"),
}
STRENGTHS = tuple(2.0**n for n in range(-1, 9))  # tried one after the other, until the model says the new word


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One question and its answer; ``way``: 0 as the fact is edited, 1 in other words."""

    country: str
    relation: str
    way: int
    answer: str

    @property
    def words(self) -> list[str]:
        """The question."""
        return ASKED[self.relation][self.way].format(self.country).split()


PROMPTS = tuple(
    Prompt(country=country, relation=relation, way=way, answer=answer)
    for relation, answers in (("capital", CAPITALS), ("language", LANGUAGES))
    for country, answer in answers.items()
    for way in (0, 1)
)


@dataclass(frozen=True, eq=False)
class World:
    """A model that knows the facts."""

    checkpoint: Checkpoint

    @torch.no_grad()
    def answers(self, checkpoint: Checkpoint | None = None) -> list[str]:
        """What the model, or an edited one, says to every prompt."""
        model, names = (checkpoint or self.checkpoint).model, list(vocabulary())
        tokens, real = prompts()
        return [names[answer] for answer in model(tokens, mask=real, last_only=True)[:, 0].argmax(-1).tolist()]

    @torch.no_grad()
    def coefficients(self) -> Tensor:
        """How much every neuron fires at the end of every prompt: prompts, layers, neurons."""
        tokens, real = prompts()
        with watching(self.checkpoint.model, "decoder.layers.*.ffn.activation") as seen:
            self.checkpoint.model(tokens, mask=real)
        rows, last = torch.arange(len(tokens)), real.sum(1) - 1
        return torch.stack([value[rows, last] for value in seen.values()], 1)


@cache
def vocabulary() -> dict[str, int]:
    """Words by number."""
    words = dict.fromkeys(word for prompt in PROMPTS for word in (*prompt.words, prompt.answer))
    return {word: number for number, word in enumerate(words)}


def prompts() -> tuple[Tensor, Tensor]:
    """All of them as rows, and which of their cells are real."""
    return padded([np.array([vocabulary()[word] for word in prompt.words]) for prompt in PROMPTS], 0)


def learnt(*, seed: int = 0, steps: int = 100) -> World:
    """A decoder of two layers that has read every fact, both ways, a few hundred times."""
    numbers = vocabulary()
    architecture = Architecture(
        vocab_size=len(numbers),
        d_model=48,
        n_heads=4,
        d_ff=192,
        n_decoder_layers=2,
        position="learned",
        max_length=8,
        activation="relu",
        tied=True,
    )
    rows = [[numbers[word] for word in (*prompt.words, prompt.answer)] for prompt in PROMPTS]
    asked = [[UNCOUNTED] * (len(row) - 1) + row[-1:] for row in rows]
    stream = Samples(Given(Ragged.of(rows), Ragged.of(asked)), ByRows(len(rows), len(rows)))
    model = Transformer(architecture)
    initialize(model, "normal", seed=seed)
    learn(model, stream, steps=steps, lr=1e-2, warmup=10, seed=seed)
    return World(Checkpoint(architecture=architecture, model=model.eval()))


@dataclass(frozen=True, kw_only=True)
class Edited:
    """What one changed value did: whether the prompt it was chosen for, and the same fact in other words, get the new
    answer; the share of all prompts about other countries that keep theirs."""

    efficacy: bool
    paraphrase: bool
    neighbourhood: float


def change(world: World, country: str, target: str) -> Edited:
    """Move one value towards another capital: that of the neuron that fires most for this country's prompt above what
    any other country's makes it fire."""
    own = PROMPTS.index(Prompt(country=country, relation="capital", way=0, answer=CAPITALS[country]))
    others = [i for i, prompt in enumerate(PROMPTS) if prompt.country != country]
    fired = world.coefficients()
    layer, neuron = divmod(int((fired[own] - fired[others].amax(0)).argmax()), fired.shape[-1])
    before = world.answers()
    after = before
    for strength in STRENGTHS:
        edit = promote(world.checkpoint, layer, neuron, vocabulary()[target], strength)
        after = world.answers(edit.checkpoint)
        if after[own] == target:
            break
    other_way = PROMPTS.index(replace(PROMPTS[own], way=1))
    return Edited(
        efficacy=after[own] == target,
        paraphrase=after[other_way] == target,
        neighbourhood=sum(after[i] == before[i] for i in others) / len(others),
    )


def changed() -> dict[str, float]:
    """Learn facts, and change one after the other."""
    return edits(learnt())


def edits(world: World) -> dict[str, float]:
    """Of one value moved for each country, towards the capital of the next."""
    known = [said == prompt.answer for said, prompt in zip(world.answers(), PROMPTS, strict=True)]
    countries = list(CAPITALS)
    made = [
        change(world, country, CAPITALS[countries[(i + 1) % len(countries)]]) for i, country in enumerate(countries)
    ]
    return {
        "known": sum(known) / len(known),
        "efficacy": sum(one.efficacy for one in made) / len(made),
        "paraphrase": sum(one.paraphrase for one in made) / len(made),
        "neighbourhood": sum(one.neighbourhood for one in made) / len(made),
    }
