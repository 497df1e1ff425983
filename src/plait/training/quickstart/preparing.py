"""Preparing: the corpus, its tokenizer and the embedded recipe in a folder, so that a run is like any other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from plait.text import train_tokenizer
from plait.training import quickstart
from plait.training.quickstart.grammar import Pair, corpus
from plait.training.recipe import read_recipe
from plait.training.resolve import decide
from plait.training.settings import Recipe

N_TRAIN, N_TEST = 30_000, 500
SHOWN = (
    "I love you.",
    "My mother bought two books in the shop yesterday.",
    "The girl who is dancing in the park is my younger sister.",
    "This coat is much more expensive than that coat.",
    "What do you want to eat?",
    "There is a cat under the table.",
)
DRAWN = "My mother bought two books in the shop yesterday."


@dataclass(frozen=True)
class Prepared:
    """What the run starts from; ``recipe`` has its files located."""

    recipe: Recipe
    train: list[Pair]
    test: list[Pair]


def prepare(out: Path, *, options: Sequence[str] = (), n_train: int = N_TRAIN, n_test: int = N_TEST) -> Prepared:
    """Write ``out/corpus``: train.tsv, test.tsv and tokenizer; ``options`` are put over the recipe."""
    train, test = corpus(n_train, n_test)
    folder = out / "corpus"
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in (("train", train), ("test", test)):
        lines = "".join(f"{pair.en}\t{pair.zh}\n" for pair in pairs)
        (folder / f"{name}.tsv").write_text(lines, encoding="utf-8")
    train_tokenizer(texts(train), kind="bpe", vocab_size=4000).save(folder / "tokenizer")
    with resources.as_file(resources.files(quickstart).joinpath("recipe.toml")) as path:
        recipe = read_recipe(path, ("--data.tokenizer", str((folder / "tokenizer").resolve()), *options))
    return Prepared(decide(recipe, out.resolve()), train, test)


def texts(pairs: Iterable[Pair]) -> Iterator[str]:
    """What the tokenizer learns from: English whole, so that its words become tokens; Chinese by characters, so that
    none of them are put together."""
    for pair in pairs:
        yield pair.en
        yield from pair.zh
