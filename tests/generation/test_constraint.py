"""Text held to a regular expression or a schema: whatever the model would rather say, however it is decoded."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import plait
from plait.checkpoint import Checkpoint, DecodeRules
from plait.generation import GenerationError, Request, Scheduler, Settings, constrain, generate, stream
from plait.generation.row import Row
from plait.model import Transformer
from plait.text import load_tokenizer
from tests.generation.making import ROPE, TRANSLATOR, ModelRunner, random_model, same
from tests.text.making import byte_level, metaspace, tokenizer_folder

pytest.importorskip("llguidance")
END = 1


def small(folder: Path, state: str, architecture: Any = ROPE, seed: int = 0) -> Checkpoint:
    """A random model with a real tokenizer."""
    tokenizer = load_tokenizer(tokenizer_folder(folder, state))
    end = max(tokenizer.special_ids)
    model: Transformer = random_model(architecture.replace(vocab_size=len(tokenizer) + 5), seed)
    rules = DecodeRules(start=end, end=(end,))
    return Checkpoint(architecture=model.architecture, model=model, tokenizer=tokenizer, rules=rules)


@pytest.fixture(scope="module")
def random(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return small(tmp_path_factory.mktemp("byte_level"), byte_level())


PATTERNS = ["[0-9]{3}", "(yes|no)", "a{2,4}b?", "été|naïve", '"[a-z]*"', "[A-Z][a-z]+ [0-9]"]
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"temperature": 1.0, "seed": 3},
    "beams": {"beams": 3, "n_best": 3},
    "penalties": {"repetition_penalty": 1.7, "no_repeat_ngram": 0},
    "lookup": {"speculate": "lookup"},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_whole_text_matches(random: Checkpoint, pattern: str, way: str) -> None:
    found = generate(random, "some text", regex=pattern, max_new_tokens=40, **WAYS[way])
    for one in found if isinstance(found, list) else [found]:
        assert isinstance(one, plait.Generation)
        if one.finish == "end":
            assert re.fullmatch(pattern, one.text), one.text
        else:  # cut at the limit, on its way
            assert pattern == '"[a-z]*"' or "+" in pattern
    plain = generate(random, "some text", max_new_tokens=40)
    assert isinstance(plain, plait.Generation) and not re.fullmatch(pattern, plain.text)


def test_a_batch_is_held_row_by_row_and_streamed_text_is_the_same(random: Checkpoint) -> None:
    options: Any = {"regex": "[a-f]{2}[0-9]{3}", "max_new_tokens": 12}
    alone = [generate(random, text, **options) for text in ("a", "several words")]
    assert same(generate(random, ["a", "several words"], **options), alone)
    for text, one in zip(("a", "several words"), alone, strict=True):
        assert isinstance(one, plait.Generation)
        assert "".join(piece.text for piece in stream(random, text, **options)) == one.text


def test_a_scheduler_holds_each_sequence_to_its_own(random: Checkpoint) -> None:
    scheduler = Scheduler(ModelRunner(random.model), random.tokenizer)
    asked = {"[0-9]{4}": "", "(left|right)": "", "": ""}
    ids = {}
    for pattern in asked:
        constraint = constrain(random, pattern) if pattern else None
        settings = Settings(end=random.rules.end, constraint=constraint)
        ids[scheduler.submit(Request(tokens=[5, 6, 7], limit=20, settings=settings))] = pattern
    while not scheduler.idle:
        for id, said in scheduler.step():
            assert isinstance(said, plait.Piece)
            asked[ids[id]] += said.text
    assert all(re.fullmatch(pattern, text) for pattern, text in asked.items() if pattern)


def test_what_follows_may_end_the_text_only_where_it_is_complete(random: Checkpoint) -> None:
    settings = Settings(end=random.rules.end, constraint=constrain(random, "ab?"))
    row = Row(Request(tokens=[5], limit=9, settings=settings), random.tokenizer)
    logits = torch.zeros(1, random.architecture.vocab_size)

    def allowed() -> set[str]:
        ids = (row.rules(logits, [row.line])[0] == 0).nonzero()[:, 0].tolist()
        assert random.tokenizer is not None
        return {"end" if id in random.rules.end else random.tokenizer.decode([id]) for id in ids}

    assert random.tokenizer is not None
    a, b = (random.tokenizer.encode(letter, specials=False)[0] for letter in "ab")
    assert allowed() <= {"a", "ab"}
    row.line.add(a)
    assert allowed() == {"b", "end"}
    twin = row.line.fork()
    row.line.add(b)
    assert allowed() == {"end"}
    row.line = twin
    assert allowed() == {"b", "end"}, "what a fork reads is its own"


def test_a_text_that_opens_drops_its_first_space(tmp_path: Path) -> None:
    """Where a word is marked with a space in front, the first word of a target has none to show."""
    for seed in range(3):
        model = small(tmp_path, metaspace(), TRANSLATOR, seed)
        for pattern in ("(hello|world)", "[a-z]{4}", "h[a-z]{1,3} [a-z]{2}"):
            one = generate(model, "hello", regex=pattern, max_new_tokens=20)
            assert isinstance(one, plait.Generation) and one.finish == "end"
            assert re.fullmatch(pattern, one.text), one.text


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def test_a_schema_is_kept_to(random: Checkpoint) -> None:
    for seed in range(3):
        drawn: Any = {"temperature": 0.5, "seed": seed, "max_new_tokens": 55, "max_length": None}
        one = generate(random, [5], json_schema={"enum": ["red", "green", 7]}, **drawn)
        assert isinstance(one, plait.Generation) and json.loads(one.text) in ("red", "green", 7)
    assert generate(random, [5], json_schema='{"enum": ["red"]}').text.strip() == '"red"'  # type: ignore[union-attr]


def test_misuse_is_refused_in_one_sentence(random: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GenerationError, match=r"^regex: .*unclosed group"):
        generate(random, "a", regex="(")
    with pytest.raises(GenerationError, match="regex, json_schema: both are given"):
        generate(random, "a", regex="a", json_schema={})
    with pytest.raises(GenerationError, match="json_schema: it is not JSON"):
        generate(random, "a", json_schema="{")
    with pytest.raises(GenerationError, match="json_schema: .*Invalid type: foo"):
        generate(random, "a", json_schema={"type": "foo"})
    for schema in ([], 3, True, {1, 2}):
        with pytest.raises(GenerationError, match="json_schema: .* is no schema; give JSON as a str, or a mapping"):
            generate(random, "a", json_schema=schema)  # type: ignore[arg-type]
    for schema in ("[]", "3", "null"):
        with pytest.raises(GenerationError, match="json_schema: .* is no schema; a schema is an object, true or false"):
            generate(random, "a", json_schema=schema)
    for schema in ({"a": object()}, {"minimum": float("nan")}, "[" * 100_000):
        with pytest.raises(GenerationError, match="json_schema: it is not JSON"):
            generate(random, "a", json_schema=schema)
    for pattern in (3, b"a"):
        with pytest.raises(GenerationError, match="regex: .* is no text; give a regular expression as a str"):
            generate(random, "a", regex=pattern)  # type: ignore[arg-type]
    halves: list[dict[str, Any]] = [
        {"regex": "\ud800"},
        {"json_schema": {"enum": ["\udfff"]}},
        {"json_schema": '{"const": "\\ud800"}'},
    ]
    for asked in halves:
        with pytest.raises(GenerationError, match="it holds half of a surrogate pair"):
            generate(random, "a", **asked)
    with pytest.raises(GenerationError, match="regex: no text can be begun by it") as caught:
        constrain(random, r"[^\s\S]")
    assert "state" not in str(caught.value)
    with pytest.raises(GenerationError, match="constraint: without an end id there is no end"):
        generate(random, "a", regex="a", ignore_end=True)
    bare = Checkpoint(architecture=random.architecture, model=random.model, tokenizer=None, rules=random.rules)
    with pytest.raises(GenerationError, match="the checkpoint has no tokenizer"):
        generate(bare, [5], regex="a")
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(
        GenerationError, match=r"they need llguidance; install it with pip install 'plait\[constrained\]'"
    ):
        generate(random, "a", regex="a")


def test_smollm2_answers_in_the_form_that_is_asked_for(smollm2: Path) -> None:
    model = plait.load(smollm2, lazy=True)
    options: Any = {"runner": plait.optimize(model), "max_new_tokens": 60}
    messages = [{"role": "user", "content": "Invent a person, as JSON with name and age."}]
    one = generate(model, messages, json_schema=SCHEMA, **options)
    assert isinstance(one, plait.Generation) and one.finish == "end"
    person = json.loads(one.text)
    assert set(person) == {"name", "age"} and len(person["name"]) <= 6 and 0 <= person["age"] <= 130
    year = generate(model, "The French revolution began in", regex=" 1[0-9]{3}", **options)
    assert isinstance(year, plait.Generation) and year.text == " 1789"
    for one in generate(model, "The capital of France is", regex=" (Paris|London|Rome)", beams=3, n_best=3, **options):  # type: ignore[union-attr]
        assert isinstance(one, plait.Generation) and one.text in (" Paris", " London", " Rome")
