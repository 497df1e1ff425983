"""What ``optimize`` takes and refuses, and how far each type is from the plain model."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import plait
from plait.checkpoint import Checkpoint, CheckpointError, PlaitNotice
from plait.engine import kernels, optimize
from plait.engine.optimize import MOST_THREADS, check_threads
from plait.generation import Read
from tests.models import far, random_model, random_tokens

WIDE = plait.Architecture(
    vocab_size=50, d_model=64, n_heads=4, n_kv_heads=2, d_ff=96, n_decoder_layers=2, norm="rmsnorm", position="rope",
    gated=True, activation="silu", max_length=2000,
)  # fmt: skip


def checkpoint(seed: int = 0) -> Checkpoint:
    model = random_model(WIDE, seed, torch.float32)
    for parameter in model.parameters():  # so mild that rounding is not blown up by one softmax after the other
        parameter.detach().mul_(0.4 if parameter.ndim > 1 else 1.0)
    return Checkpoint(architecture=WIDE, model=model)


@pytest.mark.parametrize(
    "asked, within",
    [
        ({}, 1e-5),
        ({"dtype": "float32", "threads": 3}, 1e-5),
        ({"dtype": "bfloat16"}, 0.02),
        ({"cache_dtype": "bfloat16"}, 0.02),
        ({"quantization": "int8"}, 0.03),
        ({"quantization": "int4_min"}, 0.3),
        ({"quantization": "int4"}, 0.5),
    ],
)
def test_each_type_is_as_near_as_it_says(asked: dict[str, str], within: float) -> None:
    plain = checkpoint()
    engine = optimize(plain, **asked)  # pyright: ignore
    tokens = random_tokens(2, 40)
    logits = engine.prefill(tokens, engine.cache(2), last_only=False)
    assert far(logits, plain.model(tokens)) < within
    if within > 1e-4:
        assert far(logits, plain.model(tokens)) > 1e-5, "something was rounded"


@pytest.mark.parametrize("quantization, near", [("int8", 2e-4), ("int4", 0.03), ("int4_min", 0.03)])
def test_rounded_weights_are_those_that_quantise_gives(quantization: str, near: float) -> None:
    """What is left is the rounding of activations."""
    plain = checkpoint()
    rounded, _ = plait.quantise(plain, quantization)
    engine = optimize(plain, quantization=quantization)
    tokens = random_tokens(2, 40)
    assert far(engine.prefill(tokens, engine.cache(2), last_only=False), rounded.model(tokens)) < near
    stored = optimize(rounded)  # the same blocks, taken as they are
    for a, b in zip(engine.advance(reads(engine)), stored.advance(reads(stored)), strict=True):
        assert torch.equal(a, b)


def reads(runner: plait.EngineRunner) -> list[object]:
    return [Read(tokens=[3, 1, 2], cache=runner.cache(1)), Read(tokens=[7], cache=runner.cache(1))]


def test_long_prompts_go_through_in_chunks_and_rows_stay_apart() -> None:
    plain = checkpoint()
    engine = optimize(plain)
    tokens = random_tokens(2, 1300)
    expected = plain.model(tokens)
    assert far(engine.prefill(tokens, engine.cache(2), last_only=False), expected) < 1e-4
    cache = engine.cache(2, capacity=1301)
    assert far(engine.prefill(tokens, cache)[:, 0], expected[:, -1]) < 1e-4
    engine.step(torch.tensor([1, 2]), cache)
    with pytest.raises(plait.CacheFull, match="1301"):
        engine.step(torch.tensor([1, 2]), cache)
    assert cache.lengths.tolist() == [1301, 1301]


@pytest.mark.parametrize(
    "asked, said",
    [
        ({"dtype": "float46"}, "'float64'"),
        ({"dtype": "float16"}, "float16"),
        ({"quantization": "int5"}, "int8"),
        ({"quantization": "int8", "dtype": "bfloat16"}, "exclude"),
        ({"cache_dtype": "int8"}, "cache_dtype"),
        ({"threads": 0}, "threads"),
    ],
)
def test_what_makes_no_sense_is_refused(asked: dict[str, object], said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        optimize(checkpoint(), **asked)  # pyright: ignore


def test_more_threads_than_processors_are_told() -> None:
    with pytest.warns(PlaitNotice, match=r"threads: 1024 on \d+ processors wait for each other"):
        assert check_threads(MOST_THREADS) == MOST_THREADS


def test_a_cache_of_another_runner_is_refused() -> None:
    one, other = optimize(checkpoint()), optimize(checkpoint(seed=1))
    cache = other.cache(1)
    for call in (
        lambda: one.step(torch.tensor([1]), cache),
        lambda: one.prefill(torch.tensor([[1]]), cache),
        lambda: one.advance([Read(tokens=[1], cache=cache)]),
    ):
        with pytest.raises(ValueError, match="did not make it"):
            call()


@pytest.mark.parametrize("token", [-1, 50])
def test_tokens_outside_the_table_are_refused_and_change_nothing(token: int) -> None:
    engine = optimize(checkpoint())
    cache = engine.cache(1)
    with pytest.raises(ValueError, match="50 rows"):
        engine.step(torch.tensor([token]), cache)
    assert cache.lengths.tolist() == [0]


def test_the_engine_keeps_the_weights_of_its_making_and_says_so_by_its_identity() -> None:
    plain = checkpoint()
    before = optimize(plain)
    with torch.no_grad():
        plain.model.embedding.tokens.weight.mul_(2)  # pyright: ignore
    after = optimize(plain)
    assert before.identity != after.identity
    said = [runner.prefill(random_tokens(1, 5), runner.cache(1)) for runner in (before, after)]
    assert not torch.equal(*said)
    assert far(said[1][:, 0], plain.model(random_tokens(1, 5))[:, -1]) < 1e-5


def test_greedy_text_of_a_real_model_is_the_plain_models(smollm2: Path) -> None:
    plain = plait.load(smollm2)
    runner = optimize(plait.load(smollm2, lazy=True), dtype="float32")
    for prompt in ("The capital of France is", "def fibonacci(n):", "Once upon a time"):
        expected = plait.generate(plain, prompt, max_new_tokens=24)
        assert plait.generate(plain, prompt, max_new_tokens=24, runner=runner).tokens == expected.tokens


def test_blocks_of_a_file_are_taken_as_they_are(smollm2: Path) -> None:
    lazy = plait.load(smollm2, lazy=True)
    runner = optimize(lazy)
    assert runner.weight_bytes < 100e6 or not kernels.available()  # torch computes with the same numbers in float32
    answer = plait.generate(lazy, [{"role": "user", "content": "What is the capital of France?"}], runner=runner)
    assert "Paris" in answer.text


def test_sentences_of_a_real_encoder(minilm: Path) -> None:
    plain = plait.load(minilm)
    texts = ["Plants make food from light.", "The market fell.", "A", ""]
    expected = plait.embed(plain, texts[:3])
    assert far(plait.embed(plain, texts[:3], runner=optimize(plain)), expected) < 1e-4
    rounded = plait.embed(plain, texts[:3], runner=optimize(plain, quantization="int8"))
    assert torch.nn.functional.cosine_similarity(rounded, expected).min() > 0.999


LEARNED = WIDE.replace(position="learned", rope=None, max_length=50)
TYPED = plait.Architecture(
    vocab_size=20, d_model=32, n_heads=4, d_ff=48, n_encoder_layers=2, head="masked", token_types=2
)  # fmt: skip


@pytest.mark.parametrize("architecture", [WIDE, LEARNED], ids=["rope", "learned"])
@pytest.mark.parametrize("positions", [[-1, 0, 1], [-(2**30), 0, 1], [2**32, 1, 2], [0], [0, 1, 2, 3]])
def test_positions_that_lead_nowhere_are_refused(architecture: plait.Architecture, positions: list[int]) -> None:
    model = random_model(architecture, 0, torch.float32)
    engine = optimize(Checkpoint(architecture=architecture, model=model))
    cache = engine.cache(1)
    with pytest.raises(ValueError, match="positions|length"):
        engine.advance([Read(tokens=[1, 2, 3], cache=cache, positions=positions)])
    with pytest.raises(ValueError, match="positions|length"):
        engine.prefill(torch.tensor([[1, 2, 3]]), cache, positions=torch.tensor([positions]))
    assert cache.lengths.tolist() == [0]


@pytest.mark.parametrize("types", [[[0]], [[0, 1, 1]], [[0, 2]], [[0, 2**32]], [], [[0, -1]]])
def test_token_types_that_do_not_fit_are_refused(types: list[list[int]]) -> None:
    engine = optimize(Checkpoint(architecture=TYPED, model=random_model(TYPED, 0, torch.float32)))
    with pytest.raises(ValueError, match="token_types"):
        engine.states([[1, 2]], types)


def test_threads_take_turns() -> None:
    engine, tokens = optimize(checkpoint()), [random_tokens(1, 9), random_tokens(1, 40)]
    alone = [engine.prefill(t, engine.cache(1)) for t in tokens]
    with ThreadPoolExecutor(2) as threads:
        together = list(threads.map(lambda i: engine.prefill(tokens[i % 2], engine.cache(1)), range(60)))
    assert all(torch.equal(said, alone[i % 2]) for i, said in enumerate(together))


def test_a_cache_stands_once_in_a_pass_and_its_rows_count_from_0() -> None:
    engine = optimize(checkpoint())
    cache = engine.cache(1)
    with pytest.raises(ValueError, match="two reads"):
        engine.advance([Read(tokens=[1], cache=cache), Read(tokens=[2], cache=cache)])
    for rows in ([-1], [1], [True]):
        with pytest.raises(ValueError, match="reorder"):
            cache.reorder(torch.tensor(rows))
    with pytest.raises(ValueError, match="50 rows"):
        engine.step(torch.tensor([2**32 + 1]), cache)


def test_what_is_in_blocks_is_not_rounded_again(smollm2: Path) -> None:
    with pytest.raises(CheckpointError, match="already"):
        optimize(plait.load(smollm2, lazy=True), quantization="int4")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_engine_is_a_snapshot(dtype: str) -> None:
    plain = checkpoint()
    engine = optimize(plain, dtype=dtype)
    before = engine.prefill(random_tokens(1, 5), engine.cache(1))
    with torch.no_grad():
        for parameter in plain.model.parameters():
            parameter.zero_()
    assert torch.equal(engine.prefill(random_tokens(1, 5), engine.cache(1)), before)


def test_a_read_refused_for_its_source_leaves_the_others_as_they_were() -> None:
    architecture = plait.Architecture(
        vocab_size=20, d_model=32, n_heads=4, d_ff=48, n_encoder_layers=1, n_decoder_layers=1, position="sinusoidal"
    )
    engine = optimize(Checkpoint(architecture=architecture, model=random_model(architecture, 0, torch.float32)))
    one, other = engine.cache(1), engine.cache(1)
    with pytest.raises(ValueError, match="source"):
        engine.advance([Read(tokens=[1], cache=one, source=[3, 4]), Read(tokens=[1], cache=other)])
    assert len(engine.advance([Read(tokens=[1], cache=one, source=[3, 4])])) == 1


def test_words_in_the_wrong_place_are_told_the_right_one() -> None:
    for word in ("int8", "int4", "int4_min"):
        with pytest.raises(CheckpointError, match=f"dtype: '{word}' is .*; give quantization='{word}' instead"):
            optimize(checkpoint(), dtype=word)
    with pytest.raises(CheckpointError, match="'int3' is not one of int8, int4, int4_min.$"):
        optimize(checkpoint(), quantization="int3")


def test_a_runner_says_in_a_line_what_it_is() -> None:
    runner = optimize(checkpoint(), quantization="int8", threads=1)
    said = repr(runner)
    assert said.startswith("EngineRunner(dtype='stored', quantization='int8', cache_dtype='float32', kernels=")
    assert f"kernels={kernels.backend()!r}, threads=" in said and said.endswith(
        f"weight_bytes={runner.weight_bytes:_})"
    )
    assert "threads=1," in said or not kernels.available()
    assert "\n" not in said
    assert "quantization=None" in repr(optimize(checkpoint()))
    assert "kernels='torch'" in repr(optimize(checkpoint(), dtype="float64"))
