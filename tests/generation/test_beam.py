"""Beam search against greedy decoding, against all there is, and against what its words say of themselves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plait.architecture import Architecture
from plait.checkpoint import DecodeRules
from plait.generation import Generation, GenerationError, ModelRunner, Runner, Search, generate, stream
from plait.generation.beam import Found, beam_search
from plait.generation.decode import decode
from plait.generation.row import Request
from plait.generation.search import EarlyStopping
from plait.generation.settings import Settings
from plait.generation.transcript import Transcript
from tests.generation.making import (
    DECODERS,
    ROPE,
    RUNNERS,
    TRANSLATOR,
    Scripted,
    ToyTokenizer,
    checkpoint,
    random_model,
    same,
    saying,
)

KINDS = {**DECODERS, "translator": TRANSLATOR}
INPUTS: list[list[int]] = [[5, 6, 7], [9], [1, 2, 3, 4, 5, 6, 7, 8]]
EARLY: tuple[EarlyStopping, ...] = (False, True, "never")


def requests(architecture: Architecture, limit: int, settings: Settings, inputs: Any = None) -> list[Request]:
    """One for each of some inputs, which are sources where the model reads one."""
    inputs = INPUTS if inputs is None else inputs
    if architecture.kind == "encoder-decoder":
        return [Request(tokens=[3], source=tokens, limit=limit, settings=settings) for tokens in inputs]
    return [Request(tokens=tokens, limit=limit, settings=settings) for tokens in inputs]


def searched(runner: Runner, asked: Sequence[Request], search: Search, **how: Any) -> list[list[Found]]:
    found: list[list[Found]] = [[] for _ in asked]
    for row, best in beam_search(runner, asked, search, **how):
        found[row] = best
    return found


def tokens(found: Found) -> list[int]:
    return [piece.token for piece in found.pieces]


def close(one: list[list[Found]], other: list[list[Found]], abs: float = 1e-9) -> bool:
    """The same searches, but for rounding."""
    flat, others = ([found for best in each for found in best] for each in (one, other))
    return [tokens(found) for found in flat] == [tokens(found) for found in others] and [
        found.score for found in flat
    ] == pytest.approx([found.score for found in others], abs=abs)


def forced(model: Any, request: Request, continuations: Sequence[Sequence[int]]) -> list[list[float]]:
    """The log-probability of each token of the continuations, all read at once: no cache, no step."""
    start, width = list(request.tokens), max(map(len, continuations))
    rows = torch.tensor([[*start, *new, *[0] * (width - len(new))] for new in continuations])
    source = {} if request.source is None else {"source": torch.tensor([list(request.source)] * len(rows))}
    logprobs = model(rows, **source).log_softmax(-1)
    return [
        [float(logprobs[i, len(start) - 1 + j, token]) for j, token in enumerate(new)]
        for i, new in enumerate(continuations)
    ]


ENDS = tuple(range(2, 32, 4))
SETTINGS = {
    "plain": Settings(),
    "ends": Settings(end=ENDS),
    "rules": Settings(end=ENDS, no_repeat_ngram=2, banned=((5,), (7, 9)), min_length=6),
    "forced": Settings(end=ENDS, forced_first=4, forced_last=3, presence_penalty=0.5),
}


@pytest.mark.parametrize("early", EARLY[:2])
@pytest.mark.parametrize("rule", SETTINGS)
@pytest.mark.parametrize("name", KINDS)
def test_law6_one_beam_is_greedy(name: str, rule: str, early: EarlyStopping) -> None:
    runner = ModelRunner(random_model(KINDS[name]))
    asked = requests(KINDS[name], 12, SETTINGS[rule])
    written: list[list[int]] = [[] for _ in asked]
    for row, piece in decode(runner, asked):
        written[row].append(piece.token)
    for penalty in (-1.0, 0.0, 1.0, 2.0):
        found = searched(runner, asked, Search(beams=1, early_stopping=early, length_penalty=penalty))
        assert [tokens(best[0]) for best in found] == written


def test_law6_of_equal_tokens_one_beam_takes_the_first_as_greedy_does() -> None:
    runner = ModelRunner(Scripted(lambda p: [0.0, 2.0, 1.0, 2.0, 2.0] + [0.0] * 27))
    (best,) = searched(runner, [Request(tokens=[2], limit=3)], Search(beams=1))
    assert tokens(best[0]) == [piece.token for _, piece in decode(runner, [Request(tokens=[2], limit=3)])] == [1, 1, 1]


def everything(model: Any, request: Request, n: int) -> dict[tuple[int, ...], float]:
    """Each way to go on with ``n`` tokens at most, up to an end: the sum of its log-probabilities."""
    ends = request.settings.end
    vocab = model.architecture.vocab_size
    ways = [
        way
        for length in range(1, n + 1)
        for way in itertools.product(range(vocab), repeat=length)
        if not set(way[:-1]) & set(ends) and (way[-1] in ends or length == n)
    ]
    return dict(zip(ways, map(sum, forced(model, request, ways)), strict=True))


SMALL = {"decoder": ROPE.replace(vocab_size=4), "translator": TRANSLATOR.replace(vocab_size=4, max_length=8)}


@pytest.mark.parametrize("penalty", [0.0, 1.0, -1.0])
@pytest.mark.parametrize("name", SMALL)
def test_law6_ge14_beams_as_wide_as_the_space_are_exhaustive_search(name: str, penalty: float) -> None:
    for seed in range(4):
        model = random_model(SMALL[name], seed)
        (request,) = requests(SMALL[name], 4, Settings(end=(1,)), [[2, 0, 3]])
        all_of_them = everything(model, request, 4)
        ranked = sorted(((total / len(way) ** penalty, way) for way, total in all_of_them.items()), reverse=True)
        for early in EARLY:
            search = Search(beams=64, n_best=5, length_penalty=penalty, early_stopping=early)
            (found,) = searched(ModelRunner(model), [request], search)
            assert [tuple(tokens(one)) for one in found] == [way for _, way in ranked[:5]]
            assert [one.score for one in found] == pytest.approx([score for score, _ in ranked[:5]], abs=1e-9)


@pytest.mark.parametrize("penalty", [0.0, 1.0, -1.0, 2.0])
def test_ge14_a_search_is_over_when_no_better_hypothesis_can_come(penalty: float) -> None:
    """ "never" misses nothing that its beams reach; the first of them to end is not always the best."""
    missed = 0
    for seed in (2, 10, 14, 21):
        model = random_model(ROPE.replace(vocab_size=6), seed)
        (request,) = requests(model.architecture, 7, Settings(end=(1, 4)), [[2, 0, 3]])

        def best(early: EarlyStopping, limit: float = math.inf) -> Found:
            search = Search(beams=3, length_penalty=penalty, early_stopping=early)
            ((found,),) = searched(ModelRunner(model), [request], search)  # noqa: B023
            return found

        def reachable() -> float:
            """The best of what three beams reach when they are never told to stop."""
            total = {(): 0.0}
            ended: dict[tuple[int, ...], float] = {}
            for step in range(7):
                ways = [(*way, token) for way in total for token in range(6)]
                sums = dict(zip(ways, map(sum, forced(model, request, ways)), strict=True))  # noqa: B023
                ordered = sorted(sums, key=lambda way: -sums[way])
                ended |= {way: sums[way] for way in ordered[:3] if way[-1] in (1, 4) or step == 6}
                total = {way: sums[way] for way in [way for way in ordered if way[-1] not in (1, 4)][:3]}
            return max(value / len(way) ** penalty for way, value in ended.items())

        assert best("never").score == pytest.approx(reachable(), abs=1e-9)
        missed += best(True).score < reachable() - 1e-9
    assert missed or penalty <= 0, "stopping at once misses nothing either; nothing would show"


@pytest.mark.parametrize("name", KINDS)
@given(seed=st.integers(0, 99), beams=st.integers(2, 5), penalty=st.sampled_from([-0.5, 0.0, 0.7, 1.0, 2.0]))
def test_law6_a_score_is_the_teacher_forced_one(name: str, seed: int, beams: int, penalty: float) -> None:
    model = random_model(KINDS[name], seed)
    asked = requests(KINDS[name], 9, SETTINGS["ends"])
    found = searched(ModelRunner(model), asked, Search(beams=beams, n_best=beams, length_penalty=penalty))
    for request, best in zip(asked, found, strict=True):
        assert len({tuple(tokens(one)) for one in best}) == len(best) == beams
        assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)  # type: ignore[type-var]
        for one, exact in zip(best, forced(model, request, [tokens(one) for one in best]), strict=True):
            assert one.score == pytest.approx(sum(exact) / len(exact) ** penalty, abs=1e-9)
            assert [piece.logprob for piece in one.pieces] == pytest.approx(exact, abs=1e-9)


def test_ge12_the_length_of_a_score_is_that_of_the_output() -> None:
    rest = (1 - math.exp(-1)) / 31
    model = Scripted(lambda p: [-1.0] + [math.log(rest)] * 31)  # token 0 has log-probability -1, whatever stood before
    for n in (2, 5, 10):
        done = generate(checkpoint(model), [7] * 20, beams=2, max_new_tokens=n)
        assert isinstance(done, Generation)
        assert done.tokens == [0] * n
        assert done.score == pytest.approx(-1.0, abs=1e-5)


@pytest.mark.parametrize("early", EARLY)
@pytest.mark.parametrize("name", KINDS)
def test_ge15_rows_are_searched_as_if_alone(name: str, early: EarlyStopping) -> None:
    model = random_model(KINDS[name])
    search = Search(beams=3, n_best=3, early_stopping=early, length_penalty=0.6)
    for rule in ("ends", "rules"):
        asked = requests(KINDS[name], 12, SETTINGS[rule])
        alone = [searched(ModelRunner(model), [request], search)[0] for request in asked]
        assert close(searched(ModelRunner(model), asked, search), alone)
        assert close(searched(ModelRunner(model), asked[::-1], search), alone[::-1])
    lengths = {max(len(one.pieces) for one in best) for best in alone}
    assert len(lengths) > 1, "all rows are done together; nothing would show"


@pytest.mark.parametrize("make", RUNNERS.values(), ids=RUNNERS)
@pytest.mark.parametrize("name", KINDS)
def test_any_runner_finds_the_same(name: str, make: Callable[[Any], Runner]) -> None:
    model = random_model(KINDS[name])
    search = Search(beams=4, n_best=2)
    asked = requests(KINDS[name], 12, SETTINGS["ends"])
    plain = searched(ModelRunner(model), asked, search)
    assert close(searched(make(model), asked, search), plain, abs=1e-4)
    assert close(searched(make(model), asked, search, preallocate=False, chunk=2), plain, abs=1e-4)


def test_ge16_there_are_always_n_best_and_each_is_frozen_at_its_end() -> None:
    model = Scripted(lambda p: [0.0, -50.0, *range(30)])
    never = generate(checkpoint(model, DecodeRules(end=(1,))), [2], beams=4, n_best=3, max_new_tokens=5)
    assert isinstance(never, list)
    assert [len(one.tokens) for one in never] == [5, 5, 5]
    assert [one.finish for one in never] == ["length"] * 3
    assert all(1 not in one.tokens for one in never)
    for seed in range(6):
        model = random_model(ROPE, seed)
        for early in EARLY:
            search = Search(beams=4, n_best=4, early_stopping=early)
            (best,) = searched(ModelRunner(model), [Request(tokens=[5], limit=8, settings=SETTINGS["ends"])], search)
            assert len(best) == 4
            for one in best:
                inside = tokens(one)[:-1]
                assert not set(inside) & set(SETTINGS["ends"].end)
                assert len(inside) == 7 or tokens(one)[-1] in SETTINGS["ends"].end
                assert one.pieces[-1].finish and not any(piece.finish for piece in one.pieces[:-1])


def test_ge23_what_the_bans_leave_is_a_distribution_where_the_checkpoint_says_so() -> None:
    logits = [7.0, 1.0, 0.5, -1.0]  # the banned pad has the top logit
    model = Scripted(lambda p: logits, ROPE.replace(vocab_size=4))
    kept = torch.tensor(logits[1:]).log_softmax(-1).tolist()
    rules = {"banned": ((0,),), "beams": 4, "end": (1,)}
    for renormalize, expected in ((True, kept), (False, torch.tensor(logits).log_softmax(-1).tolist()[1:])):
        asking = checkpoint(model, DecodeRules(**rules, renormalize=renormalize))
        best = generate(asking, [2], max_new_tokens=1, n_best=3)
        assert isinstance(best, list)
        assert [one.tokens for one in best] == [[1], [2], [3]]
        assert [one.score for one in best] == pytest.approx(expected, abs=1e-5)
        assert (sum(math.exp(one.score) for one in best) == pytest.approx(1.0)) is renormalize
        (first, *_) = generate(asking, [2], max_new_tokens=3, n_best=2, renormalize=True, length_penalty=0.0)
        assert first.score == pytest.approx(max(kept), abs=1e-5)


def test_ge1_ge2_any_end_id_ends_a_beam_and_ignored_ones_end_none() -> None:
    for said in (1, 6):
        model = checkpoint(saying([4, 5, said, 7]), DecodeRules(end=(1, 6), beams=3))
        done = generate(model, [2], max_new_tokens=9)
        assert (done.tokens, done.finish) == ([4, 5, said], "end")
        done = generate(model, [2], max_new_tokens=4, ignore_end=True)
        assert (done.tokens, done.finish) == ([4, 5, said, 7], "length")


def test_ge6_padding_is_no_part_of_what_the_rules_count() -> None:
    model = checkpoint(random_model(ROPE), DecodeRules(end=(0, 9, 17)))  # 0 fills the batch up
    options: dict[str, Any] = {"beams": 3, "max_new_tokens": 8, "repetition_penalty": 1.5, "no_repeat_ngram": 2}
    alone = [generate(model, prompt, **options) for prompt in INPUTS]
    assert all(map(same, generate(model, INPUTS, **options), alone))
    scores = [one.score for one in generate(model, INPUTS, **options)]
    assert scores == pytest.approx([one.score for one in alone])


WORDS = ToyTokenizer(["<s>", "</s>", "DEF", "G", "HI", "J", "a", "b", "c", "x"], bos=0, eos=1)


def test_ge19_a_stop_string_ends_a_beam() -> None:
    model = checkpoint(saying([9, 2, 3, 4, 5, 6]), tokenizer=WORDS)
    done = generate(model, [0], beams=3, stop="DEFGHIJ", max_new_tokens=6)
    assert (done.text, done.tokens, done.finish) == ("x", [9, 2, 3, 4, 5], "stop")
    pieces = list(stream(model, [0], beams=3, stop="DEFGHIJ", max_new_tokens=6))
    assert [piece.token for piece in pieces] == done.tokens
    assert "".join(piece.text for piece in pieces) == "x"


def test_ge19_beams_share_what_they_read_and_go_on_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each token is read once for each way that it continues; what one beam reads, the others do not."""
    pushed: list[int] = []
    read = Transcript.push
    monkeypatch.setattr(Transcript, "push", lambda self, token: (pushed.append(token), read(self, token))[1])
    letters = ToyTokenizer(["<s>", "</s>", *"abcdefghijklmnopqrst", *(bytes([b]) for b in "é".encode())], bos=0, eos=1)
    model = checkpoint(random_model(ROPE.replace(vocab_size=24)), tokenizer=letters)
    options: Any = {"beams": 3, "n_best": 3, "max_new_tokens": 30}
    several = generate(model, [0, 5], stop=["é!", "zz"], **options)
    assert len(pushed) < 30 * 7 + 3 * 31
    assert [one.tokens for one in several] == [one.tokens for one in generate(model, [0, 5], **options)]  # type: ignore[union-attr]
    for stop in "abcdefgh":
        for one in generate(model, [0, 5], stop=stop, **options):  # type: ignore[union-attr]
            new = letters.decode(one.tokens, skip_specials=True)
            assert (new.find(stop) == len(new) - 1) == (one.finish == "stop") and stop not in new[:-1], new


def test_ge17_beams_end_at_the_limit_of_their_row() -> None:
    model = random_model(ROPE)
    asked = [Request(tokens=prompt, limit=n) for prompt, n in zip(INPUTS, (2, 7, 4), strict=True)]
    for best, request in zip(searched(ModelRunner(model), asked, Search(beams=3, n_best=3)), asked, strict=True):
        assert [len(one.pieces) for one in best] == [request.limit] * 3


def test_ge22_an_echoed_prompt_is_scored_once_and_is_no_part_of_the_score() -> None:
    inner = random_model(ROPE)
    model = checkpoint(inner, tokenizer=ToyTokenizer([f"{i:02d}" for i in range(32)]))
    plain = generate(model, [5, 6, 7, 8], beams=3, max_new_tokens=3, alternatives=2)
    done = generate(model, [5, 6, 7, 8], beams=3, max_new_tokens=3, alternatives=2, echo=True)
    assert done.tokens == [5, 6, 7, 8, *plain.tokens] and done.text == "05060708" + plain.text
    assert done.logprobs[0] is None
    exact = inner(torch.tensor([done.tokens])).log_softmax(-1)[0]
    assert done.logprobs[1:] == pytest.approx([float(exact[i, done.tokens[i + 1]]) for i in range(6)], abs=1e-9)
    assert done.score == pytest.approx(plain.score) == pytest.approx(sum(plain.logprobs) / 3)
    assert [[id for id, _ in of_token] for of_token in plain.alternatives] == exact[3:6].topk(2).indices.tolist()


@pytest.mark.parametrize("name", KINDS)
def test_groups_shun_one_anothers_tokens_and_score_as_any_beam(name: str) -> None:
    model = random_model(KINDS[name])
    asked = requests(KINDS[name], 6, Settings())
    diverse = Search(beams=6, n_best=6, beam_groups=3, diversity=1e6, length_penalty=0.0)
    plain = Search(beams=2, n_best=2, length_penalty=0.0)
    found = searched(ModelRunner(model), asked, diverse)
    for request, best, first in zip(asked, found, searched(ModelRunner(model), asked, plain), strict=True):
        ways = [tokens(one) for one in best]
        assert all(tokens(one) in ways for one in first), "the first group is a search of its own"
        assert [one.score for one in best] == pytest.approx([sum(each) for each in forced(model, request, ways)])
        groups = [way for way in ways if way not in [tokens(one) for one in first]]
        assert all(
            mine != theirs for one in first for way in groups for mine, theirs in zip(tokens(one), way, strict=True)
        )
    alone = [searched(ModelRunner(model), [request], diverse)[0] for request in asked]
    assert close(found, alone)


def diverse(model: Any, request: Request, search: Search) -> list[tuple[list[int], float]]:
    """Diverse beam search (Vijayakumar et al. 2016, algorithm 1) where nothing ends before the limit, every row read as
    a whole: what all groups came to, with the sums of their log-probabilities."""
    groups: list[list[tuple[list[int], float]]] = [[([], 0.0)] for _ in range(search.beam_groups)]
    for _ in range(request.limit):
        chosen: list[int] = []
        for index, group in enumerate(groups):
            ways = [[*way, token] for way, _ in group for token in range(model.architecture.vocab_size)]
            totals = [(way, sum(logprobs)) for way, logprobs in zip(ways, forced(model, request, ways), strict=True)]
            totals.sort(key=lambda pair: pair[1] - search.diversity * chosen.count(pair[0][-1]), reverse=True)
            groups[index] = totals[: search.width]
            chosen += [way[-1] for way, _ in groups[index]]
    return sorted((pair for group in groups for pair in group), key=lambda pair: pair[1], reverse=True)


@pytest.mark.parametrize("diversity", [0.5, 2.0])
@pytest.mark.parametrize("name", KINDS)
def test_groups_are_those_of_the_algorithm(name: str, diversity: float) -> None:
    model = random_model(KINDS[name])
    asked = requests(KINDS[name], 5, Settings())
    search = Search(beams=6, n_best=6, beam_groups=3, diversity=diversity, length_penalty=0.0)
    for request, best in zip(asked, searched(ModelRunner(model), asked, search), strict=True):
        ways, totals = zip(*diverse(model, request, search), strict=True)
        assert [tokens(one) for one in best] == list(ways)
        assert [one.score for one in best] == pytest.approx(list(totals), abs=1e-9)


def test_where_fewer_ways_exist_there_are_fewer_and_where_none_does_it_is_an_error() -> None:
    model = Scripted(lambda p: [0.0, 1.0, 2.0], ROPE.replace(vocab_size=3))
    best = generate(checkpoint(model), [0], beams=8, n_best=8, max_new_tokens=1, banned=[2])
    assert [one.tokens for one in best] == [[1], [0]]
    with pytest.raises(GenerationError, match="every token of the vocabulary is banned"):
        generate(checkpoint(model), [0], beams=2, max_new_tokens=1, banned=[0, 1, 2])
    dead = generate(checkpoint(model), [0], beams=2, max_new_tokens=9, banned=[(2, 0), (2, 1), (2, 2)])
    assert dead.finish == "length" and 2 not in dead.tokens[:-1], "a beam with no way on is dropped, and no other"
    broken = Scripted(lambda p: [math.nan, 1.0, 2.0], ROPE.replace(vocab_size=3))
    with pytest.raises(GenerationError, match="the model gave NaN"):
        generate(checkpoint(broken), [0], beams=2, max_new_tokens=1)


def test_the_checkpoints_rules_decide_what_is_left_open() -> None:
    inner = random_model(TRANSLATOR, 1)
    rules = DecodeRules(start=3, end=ENDS, beams=4, length_penalty=2.0, early_stopping=True)
    own = generate(checkpoint(inner, rules), [5, 6, 7], max_new_tokens=12)
    given = {"beams": 4, "length_penalty": 2.0, "early_stopping": True, "max_new_tokens": 12}
    bare = checkpoint(inner, DecodeRules(start=3, end=ENDS))
    assert same(own, generate(bare, [5, 6, 7], **given)) and own.score is not None
    greedy = generate(bare, [5, 6, 7], max_new_tokens=12)
    assert greedy.score is None and greedy.tokens != own.tokens
    assert generate(bare, [5, 6, 7], beams=4, max_new_tokens=12).tokens != own.tokens
    assert same(generate(checkpoint(inner, rules), [5, 6, 7], beams=1, max_new_tokens=12), greedy)
    drawn = {"temperature": 1.5, "seed": 4, "max_new_tokens": 12}
    assert same(generate(checkpoint(inner, rules), [5, 6, 7], **drawn), generate(bare, [5, 6, 7], **drawn))
    assert generate(bare, [], beams=2) == [] and generate(bare, [[5]], beams=2, n_best=1, max_new_tokens=2)[0][0].tokens


@pytest.mark.filterwarnings("default::plait.PlaitNotice")
def test_beams_that_a_checkpoint_wants_drawn_are_searched_and_that_is_said() -> None:
    asking = checkpoint(saying([4, 5]), DecodeRules(sample=True, beams=3))
    with pytest.warns(match="the checkpoint asks for 3 beams and for drawn tokens"):
        assert generate(asking, [2], max_new_tokens=2).tokens == [4, 5]
    assert generate(asking, [2], max_new_tokens=2, temperature=0.0).tokens == [4, 5]


MISUSE: dict[str, dict[str, Any]] = {
    "beams: 0 makes no sense; give a whole number from 1": {"beams": 0},
    "beams: True makes no sense": {"beams": True},
    "n_best: 5 is more than 4 beams": {"beams": 4, "n_best": 5},
    "n_best: 2 is more than 1 beam": {"n_best": 2},
    "length_penalty: nan makes no sense; give a number from -30 to 30": {"beams": 2, "length_penalty": math.nan},
    "length_penalty: it changes nothing without a beam search": {"length_penalty": 2.0},
    "early_stopping: it changes nothing without a beam search": {"early_stopping": "never", "beams": 1},
    "early_stopping: 'soon' is neither True, False nor 'never'": {"beams": 2, "early_stopping": "soon"},
    "early_stopping: 1 is neither True, False nor 'never'": {"beams": 2, "early_stopping": 1},
    "beam_groups: 4 beams are not 3 groups of one size": {"beams": 4, "beam_groups": 3, "diversity": 1.0},
    "beam_groups, diversity: 2 and 0 do not go together": {"beams": 4, "beam_groups": 2},
    "beam_groups, diversity: 1 and 0.5 do not go together": {"beams": 4, "diversity": 0.5},
    "beams: 2 are searched for the likeliest, not drawn": {"beams": 2, "temperature": 0.7},
    "speculate: a beam search reads all its beams in one pass": {"beams": 2, "speculate": "lookup"},
}


@pytest.mark.parametrize(("said", "options"), MISUSE.items(), ids=MISUSE)
def test_misuse_is_refused_in_one_sentence(said: str, options: dict[str, Any]) -> None:
    model = saying([4])
    with pytest.raises(GenerationError, match=said):
        generate(checkpoint(model), [2], **options)
    assert model.calls == 0
    with pytest.raises(GenerationError, match="n_best: one text is streamed"):
        stream(checkpoint(model), [2], beams=2, n_best=1)
