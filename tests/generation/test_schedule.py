"""Sequences that join and leave: whatever happens beside it, each is what it is alone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from plait.architecture import Architecture, Rope, RopeScaling
from plait.generation import GenerationError, ModelRunner, Piece, Read, Runner
from plait.generation.row import Request
from plait.generation.schedule import Scheduler
from plait.generation.settings import Settings
from plait.model import Cache
from tests.generation.making import (
    DECODERS,
    ROPE,
    RUNNERS,
    TRANSLATOR,
    WINDOWED,
    Counting,
    Scripted,
    ToyTokenizer,
    alone,
    checkpoint,
    equal,
    random_model,
    saying,
    with_runners,
)
from tests.strategies import NAMED_GRID

over_runners = pytest.mark.parametrize("make", RUNNERS.values(), ids=RUNNERS)
WRITERS = {name: a for name, a in NAMED_GRID.items() if a.head == "language"}
LETTERS = ToyTokenizer([f"{i:x}" for i in range(32)])
PROMPTS = [[5, 6, 7], [9], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], [5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 30]]
ALL_SETTINGS = [
    Settings(),
    Settings(temperature=1.2, top_k=9, repetition_penalty=1.4),
    Settings(frequency_penalty=0.6, presence_penalty=0.2, no_repeat_ngram=2),
    Settings(temperature=0.8, top_p=0.8, banned=((3,), (4, 5)), end=(1, 17), min_new_tokens=3),
    Settings(temperature=2.0, min_p=0.02, forced_last=6, stop=("1f", "a")),
]


def requests(architecture: Architecture, limits: Sequence[int] = (6, 9, 3, 5, 8)) -> list[Request]:
    """Five that have nothing in common but the model; two begin like others."""
    made = []
    for i, (prompt, limit) in enumerate(zip(PROMPTS, limits, strict=True)):
        asked = Request(tokens=prompt, limit=limit, settings=ALL_SETTINGS[i], seed=i, alternatives=i % 3)
        if architecture.kind == "encoder-decoder":
            source = [token % architecture.source_vocab_size for token in prompt]
            asked = replace(asked, tokens=[3], source=source)
        made.append(asked)
    return made


def run(
    scheduler: Scheduler, asked: Sequence[Request], joins: Sequence[int] | None = None
) -> list[list[Piece | Exception]]:
    """All requests, each submitted before the step that ``joins`` names."""
    joins = joins or [0] * len(asked)
    rows: dict[int, int] = {}
    said: list[list[Piece | Exception]] = [[] for _ in asked]
    step = 0
    while step <= max(joins) or not scheduler.idle:
        for i, request in enumerate(asked):
            if joins[i] == step:
                rows[scheduler.submit(request)] = i
        for id, piece in scheduler.step():
            said[rows[id]].append(piece)
        step += 1
    assert scheduler.step() == [] and scheduler.idle
    return said


@with_runners(WRITERS)
def test_law3_a_sequence_is_what_it_is_alone_whoever_joins_and_leaves(name: str, make: Callable[..., Runner]) -> None:
    model = random_model(WRITERS[name])
    asked = requests(WRITERS[name])
    scheduler = Scheduler(make(model), LETTERS, rows=3, chunk=4, prefix_tokens=64)
    together = run(scheduler, asked, joins=[0, 2, 1, 5, 0])
    for request, pieces in zip(asked, together, strict=True):
        assert equal(pieces, alone(model, request, LETTERS))


@over_runners
@given(data=st.data())
def test_law3_any_order_budget_and_store(make: Callable[..., Runner], data: st.DataObject) -> None:
    model = random_model(data.draw(st.sampled_from([*DECODERS.values(), TRANSLATOR])))
    asked = data.draw(st.permutations(requests(model.architecture)))
    scheduler = Scheduler(
        make(model),
        rows=data.draw(st.integers(1, 5)),
        chunk=data.draw(st.integers(1, 12)),
        prefix_tokens=data.draw(st.sampled_from([0, 9, 100])),
    )
    asked = [replace(request, settings=replace(request.settings, stop=())) for request in asked]
    together = run(scheduler, asked, joins=data.draw(st.lists(st.integers(0, 8), min_size=5, max_size=5)))
    assert all(equal(pieces, alone(model, request)) for request, pieces in zip(asked, together, strict=True))


@over_runners
def test_ge6_ge15_what_others_wrote_and_when_they_end_is_nobodys_business(make: Callable[..., Runner]) -> None:
    model = random_model(ROPE)
    punished = Settings(repetition_penalty=1.5, frequency_penalty=0.5, end=(0, 2, 4))
    asked = [Request(tokens=p, limit=12, settings=punished) for p in [*PROMPTS, [0], [0, 0, 0]]]
    together = run(Scheduler(make(model)), asked)
    assert all(equal(pieces, alone(model, request)) for request, pieces in zip(asked, together, strict=True))
    assert len({len(pieces) for pieces in together}) > 1, "all end together; nothing would show"


def test_ge1_ge2_ge3_ends_are_those_of_each_sequence() -> None:
    asked = [
        Request(tokens=[2], limit=5, settings=Settings(end=end)) for end in ((1, 6), (6,), (), (5,))
    ]  # the model says 4 5 6 1
    together = run(Scheduler(ModelRunner(saying([4, 5, 6, 1])), chunk=1), asked)
    assert [[piece.token for piece in pieces] for pieces in together] == [  # type: ignore[union-attr]
        [4, 5, 6],
        [4, 5, 6],
        [4, 5, 6, 1, 0],
        [4, 5],
    ]
    assert [pieces[-1].finish for pieces in together] == ["end", "end", "length", "end"]  # type: ignore[union-attr]


def test_ge19_stop_strings_are_those_of_each_sequence() -> None:
    words = ToyTokenizer(["<s>", "DEF", "G", "HI", "J", "x"])
    asked = [Request(tokens=[0], limit=5, settings=Settings(stop=stop)) for stop in (("DEFGHIJ",), ("GH", "J"), ())]
    together = run(Scheduler(ModelRunner(saying([5, 1, 2, 3, 4])), words), asked)
    texts = ["".join(piece.text for piece in pieces) for pieces in together]  # type: ignore[union-attr]
    assert texts == ["x", "xDEF", "xDEFGHIJ"]
    for pieces, request in zip(together, asked, strict=True):
        assert equal(pieces, alone(saying([5, 1, 2, 3, 4]), request, words))


@over_runners
@pytest.mark.parametrize("chunk", [1, 3, 50])
def test_ge22_an_echoed_prompt_is_scored_in_any_chunks(chunk: int, make: Callable[..., Runner]) -> None:
    model = random_model(ROPE)
    asked = [Request(tokens=p, limit=3, echo=i != 1, alternatives=i) for i, p in enumerate(PROMPTS)]
    scheduler = Scheduler(make(model), LETTERS, chunk=chunk, prefix_tokens=99)
    for _ in range(2):  # the second time all beginnings are known
        together = run(scheduler, asked)
        assert all(equal(got, alone(model, r, LETTERS)) for r, got in zip(asked, together, strict=True))
    assert [len(pieces) for pieces in together] == [6, 3, 14, 7, 10]


@over_runners
def test_po7_positions_of_ones_own(make: Callable[..., Runner]) -> None:
    model = random_model(DECODERS["learned"])
    own = Request(tokens=[5, 6, 7, 8, 9], positions=[0, 0, 1, 2, 2], limit=4)
    scheduler = Scheduler(make(model), chunk=2, prefix_tokens=99)
    plain = replace(own, positions=None)
    together = run(scheduler, [plain, own, own, plain], joins=[0, 9, 20, 30])
    assert all(equal(pieces, alone(model, r)) for pieces, r in zip(together, [plain, own, own, plain], strict=True))
    assert [p.token for p in together[0]] != [p.token for p in together[1]]  # type: ignore[union-attr]


def test_a_long_prompt_delays_nobody_who_is_writing() -> None:
    runner = Counting(random_model(ROPE.replace(max_length=256)))
    scheduler = Scheduler(runner, chunk=8)
    first, second = (scheduler.submit(Request(tokens=[i], limit=40)) for i in (1, 2))
    scheduler.step()
    long = scheduler.submit(Request(tokens=[3] * 100, limit=2))
    short = scheduler.submit(Request(tokens=[4] * 5, limit=2))
    runner.read.clear()
    steps = [[id for id, _ in scheduler.step()] for _ in range(14)]
    assert all({first, second} <= set(step) for step in steps)
    assert all(n <= 8 + 4 for n in runner.read), runner.read
    assert [i for i, step in enumerate(steps) if long in step] == [12, 13], "100 tokens, 8 at a time"
    assert [i for i, step in enumerate(steps) if short in step] == [13], "with what the last chunk left, and the next"


def test_no_more_rows_than_allowed_and_those_that_wait_come_in_order() -> None:
    scheduler = Scheduler(ModelRunner(random_model(ROPE)), rows=2)
    ids = [scheduler.submit(Request(tokens=[i], limit=i + 1)) for i in range(5)]
    assert (scheduler.waiting, scheduler.running) == (5, 0)
    begun: list[int] = []
    while not scheduler.idle:
        said = [id for id, _ in scheduler.step()]
        assert len(said) <= 2
        begun += [id for id in said if id not in begun]
    assert begun == ids


# Prefixes


@over_runners
def test_a_known_beginning_is_not_read_again(make: Callable[..., Runner]) -> None:
    model = random_model(ROPE)
    counting = Counting(model)
    for runner in (counting, make(model)):
        scheduler = Scheduler(runner, prefix_tokens=100)
        asked = [Request(tokens=[*range(1, 21), *tail], limit=3) for tail in ([], [30], [30, 31], [])]
        together = run(scheduler, asked, joins=[0, 10, 20, 30])
        assert all(equal(pieces, alone(model, request)) for pieces, request in zip(together, asked, strict=True))
    assert [n for n in counting.read if n] == [20, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    read = sum(counting.read)
    follow = replace(asked[2], tokens=[*asked[2].tokens, *[p.token for p in together[2]], 7])  # type: ignore[union-attr]
    scheduler = Scheduler(counting, prefix_tokens=100)
    run(scheduler, [asked[2], follow], joins=[0, 10])
    assert sum(counting.read) - read == 22 + 2 + (2 + 2), "what was written is known too, but for its last token"


def test_the_store_is_bounded_and_the_longest_unused_goes_first() -> None:
    runner = Counting(random_model(ROPE))
    scheduler = Scheduler(runner, prefix_tokens=25)
    a, b, c = ([i] * 10 for i in (1, 2, 3))

    def cost(tokens: list[int]) -> int:
        runner.read.clear()
        run(scheduler, [Request(tokens=tokens, limit=1)])
        assert scheduler.prefixes.n_tokens <= 25
        return sum(runner.read)

    assert [cost(a), cost(b)] == [10, 10]
    assert cost(a) == 1
    assert cost(c) == 10  # b goes
    assert [cost(a), cost(c), cost(b)] == [1, 1, 10]
    assert cost([*range(30)]) == 30
    assert cost([*range(30)]) == 30, "longer than the store"


@over_runners
def test_kv10_a_prefix_is_never_used_with_other_weights(make: Callable[..., Runner]) -> None:
    model, other = random_model(ROPE), random_model(ROPE, seed=1)
    runner = make(model)
    scheduler = Scheduler(runner, prefix_tokens=500)
    request = Request(tokens=[*range(1, 20)], limit=4)
    before = run(scheduler, [request])[0]
    assert equal(before, alone(model, request))
    if not isinstance(runner, ModelRunner):
        runner = make(other)
        scheduler.runner = runner
    model.load_state_dict(other.state_dict())  # another model under the same name
    after = run(scheduler, [request])[0]
    assert equal(after, alone(other, request))
    assert [p.token for p in before] != [p.token for p in after]  # type: ignore[union-attr]


def test_kv10_what_was_begun_with_other_weights_is_not_held() -> None:
    model, other = random_model(ROPE), random_model(ROPE, seed=1)
    runner = Counting(model)
    scheduler = Scheduler(runner, prefix_tokens=500)
    request = Request(tokens=[*range(1, 20)], limit=4)
    scheduler.submit(request)
    scheduler.step()
    model.load_state_dict(other.state_dict())
    while not scheduler.idle:
        scheduler.step()
    runner.read.clear()
    assert equal(run(scheduler, [request])[0], alone(other, request))
    assert runner.read[0] == 19
    runner.read.clear()
    run(scheduler, [request])
    assert runner.read[0] == 1


def test_rotations_that_go_by_the_declared_length_share_nothing() -> None:
    scaling = RopeScaling(kind="dynamic", factor=3.0, original_max_length=8)
    model = random_model(ROPE.replace(rope=Rope(scaling=scaling)))
    scheduler = Scheduler(ModelRunner(model), prefix_tokens=500)
    asked = [Request(tokens=[*range(1, 8)], limit=limit) for limit in (2, 30, 3, 30)]
    together = run(scheduler, asked, joins=[0, 40, 80, 120])
    assert all(equal(pieces, alone(model, request)) for pieces, request in zip(together, asked, strict=True))
    assert scheduler.prefixes.n_tokens == 0


class Sliding(Counting):
    """Windowed layers drop what no window sees: caches that cannot go back."""

    def cache(self, batch: int, *, capacity: int | None = None, total_lengths: Sequence[int] | None = None) -> Cache:
        return Cache(self.architecture, batch, dtype=self.dtype, capacity=capacity, sliding=True)


def test_a_cache_that_slides_is_shared_where_all_of_it_is_wanted() -> None:
    model = random_model(WINDOWED)
    runner = Sliding(model)
    scheduler = Scheduler(runner, prefix_tokens=500, chunk=6)
    first = Request(tokens=[*range(1, 20)], limit=3)
    pieces = run(scheduler, [first])[0]
    follow = Request(tokens=[*first.tokens, *[p.token for p in pieces][:2], 8], limit=3)  # type: ignore[union-attr]
    for request, cost in ((replace(first, tokens=[*range(1, 15), 30]), 15 + 2), (follow, 1 + 2)):
        runner.read.clear()
        assert equal(run(scheduler, [request])[0], alone(model, request))
        assert sum(runner.read) == cost


# Ends that are no ends


@over_runners
def test_sv1_a_cancelled_sequence_stops_at_once_and_touches_nobody(make: Callable[..., Runner]) -> None:
    model = random_model(ROPE)
    scheduler = Scheduler(make(model), rows=2, chunk=4, prefix_tokens=50)
    asked = [Request(tokens=p, limit=8) for p in PROMPTS]
    ids = [scheduler.submit(request) for request in asked]
    said: dict[int, list[Any]] = {id: [] for id in ids}
    for step in range(100):
        if step == 2:
            assert scheduler.cancel(ids[0])  # while written
            assert scheduler.cancel(ids[2])  # while waiting, or read
            assert not scheduler.cancel(ids[0])
            counts = len(said[ids[0]]), len(said[ids[2]])
        for id, piece in scheduler.step():
            said[id].append(piece)
    assert scheduler.idle
    assert (len(said[ids[0]]), len(said[ids[2]])) == counts
    assert not scheduler.cancel(ids[1]) and not scheduler.cancel(999)
    for i in (1, 3, 4):
        assert equal(said[ids[i]], alone(model, asked[i]))


@over_runners
def test_an_error_belongs_to_its_sequence(make: Callable[..., Runner]) -> None:
    model = random_model(ROPE)
    asked = requests(ROPE)
    nothing_left = Settings(banned=tuple((i,) for i in range(32)), temperature=1.0)
    asked[2] = replace(asked[2], settings=nothing_left)
    together = run(Scheduler(make(model), LETTERS, chunk=5), asked)
    for i in (0, 1, 3, 4):
        assert equal(together[i], alone(model, asked[i], LETTERS))
    (mistake,) = together[2]
    assert isinstance(mistake, GenerationError) and "every token of the vocabulary is banned" in str(mistake)


class Failing(Counting):
    """Reads everything but one token, and comes to that late."""

    def _advance(self, read: Read) -> Tensor:
        if 13 in read.tokens:
            raise RuntimeError("13 is unlucky")
        return super()._advance(read)


@pytest.mark.parametrize("kind", [Failing, type("FailingAndSliding", (Failing, Sliding), {})])
def test_a_pass_that_fails_for_one_is_made_for_the_others(kind: type[Failing]) -> None:
    model = random_model(WINDOWED)
    asked = [Request(tokens=p, limit=6, seed=3, settings=Settings(temperature=1.0)) for p in PROMPTS]
    asked.insert(3, Request(tokens=[7, 8, 9, 10, 11, 12, 1, 2, 13, 4], limit=6))
    together = run(Scheduler(kind(model), chunk=3, prefix_tokens=30), asked, joins=[0, 0, 1, 1, 2, 5])
    (mistake,) = together.pop(3)
    assert isinstance(mistake, RuntimeError)
    del asked[3]
    kept = [request for request in asked if all(p.token != 13 for p in alone(model, request)[:-1])]
    assert len(kept) >= 3
    for request in kept:
        assert equal(together[asked.index(request)], alone(model, request))


def test_sv6_nothing_is_held_of_what_has_ended() -> None:
    model = random_model(ROPE)
    caches: list[weakref.ref[Cache]] = []

    class Weak(ModelRunner):
        def cache(self, batch: int, **how: Any) -> Cache:
            made = super().cache(batch, **how)
            caches.append(weakref.ref(made))
            return made

    scheduler = Scheduler(Weak(model), prefix_tokens=40, chunk=4)
    for turn in range(50):
        ids = [scheduler.submit(Request(tokens=[turn % 32, 2, 3, 4], limit=3)) for _ in range(2)]
        scheduler.submit(Request(tokens=[5], limit=3, settings=Settings(banned=tuple((i,) for i in range(32)))))
        scheduler.step()
        scheduler.cancel(ids[0])
        while not scheduler.idle:
            scheduler.step()
    gc.collect()
    assert len(caches) > 50
    assert scheduler.prefixes.n_tokens <= 40
    assert sum(cache() is not None for cache in caches) <= 10


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokens": []}, "request.tokens: there are none"),
        ({"tokens": [1, 32]}, "request.tokens: 32 is no token id"),
        ({"limit": 0}, "request.limit: 0 makes no sense"),
        ({"limit": 10**9}, "exceed the context of 64; ask for at most 61"),
        ({"tokens": [1] * 63}, "63 tokens and 2 new ones exceed the context of 64; ask for at most 1 new ones"),
        ({"tokens": [1] * 64}, "request.tokens: 64 leave no room in a context of 64; give at most 63"),
        ({"tokens": 7}, "request.tokens: int is no list of token ids"),
        ({"tokens": "text"}, "request.tokens: 't' is no token id"),
        ({"settings": {"temperature": 1.0}}, r"request.settings: dict is none; give plait.Settings\("),
        ({"seed": -1}, "seed: -1 makes no sense"),
        ({"source": [1]}, "request.source: an encoder-decoder reads one"),
        ({"positions": [1]}, "request.positions: 1 of them for 3 tokens"),
    ],
)
def test_sv3_a_request_that_cannot_be_written_is_refused_at_once(change: dict[str, Any], said: str) -> None:
    scheduler = Scheduler(ModelRunner(saying([4])))
    with pytest.raises(GenerationError, match=said):
        scheduler.submit(replace(Request(tokens=[1, 2, 3], limit=2), **change))
    assert scheduler.idle


def test_misuse_is_refused_in_one_sentence() -> None:
    runner = ModelRunner(Scripted(lambda p: 1, TRANSLATOR))
    with pytest.raises(GenerationError, match=r"request: str is no request; give plait.Request\(tokens="):
        Scheduler(runner).submit("Once upon a time")  # type: ignore[arg-type]
    for arguments, said in (
        ((checkpoint(runner.model), LETTERS), "runner: SimpleNamespace is no runner; give plait.optimize"),
        ((runner, checkpoint(runner.model)), "tokenizer: SimpleNamespace is no tokenizer"),
    ):
        with pytest.raises(GenerationError, match=said):
            Scheduler(*arguments)
    with pytest.raises(GenerationError, match=r"drafter: str is no drafter; make one with plait.drafter\("):
        Scheduler(runner, drafter="lookup")  # type: ignore[arg-type]
    for name, value in (("rows", 0), ("chunk", 0), ("prefix_tokens", -1), ("chunk", 2.5)):
        with pytest.raises(GenerationError, match=f"{name}: {value} makes no sense"):
            Scheduler(runner, **{name: value})  # type: ignore[arg-type]
    for source in ([], [1] * 65, [99], None):
        with pytest.raises(GenerationError, match=r"request\.source: "):
            Scheduler(runner).submit(Request(tokens=[3], limit=2, source=source))
    assert torch.is_grad_enabled()
