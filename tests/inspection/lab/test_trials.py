"""What trials are made of: corpora, a training, ladders, stretched rotations; small, and a few steps at most."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch

from plait.account import account
from plait.data.batch import UNCOUNTED
from plait.inspection.lab import corpus, depth, extrapolation, ladder, ladders, learning, one_tower, tying
from plait.inspection.lab.work import steps_for
from plait.model import Transformer
from plait.presets import preset
from plait.training.progress import Step

pytestmark = pytest.mark.slow  # experiments are run

# Corpora


def test_no_combination_that_is_judged_was_learnt():
    train, test = corpus.sentences()
    assert len(train) == corpus.N_TRAIN and len(test) == corpus.N_TEST
    assert not {pair.en for pair in train} & {pair.en for pair in test}


def test_text_is_sentences_one_behind_the_other():
    stream = corpus.text(16, 4, held_out=True)
    (batch,) = stream.step(0)
    assert batch.tokens.shape == (4, 16)
    assert torch.equal(batch.tokens[:, 1:], batch.targets[:, :-1])
    first = corpus.english().decode(stream.tokens.read(0, 40).tolist(), skip_specials=True)
    assert first.startswith(corpus.sentences()[1][0].en)


def test_one_word_in_seven_is_hidden():
    batch = next(iter(corpus.hidden(64, held_out=True).evaluation()))
    asked = batch.targets != UNCOUNTED
    assert 0.08 < float(asked.sum() / batch.mask.sum()) < 0.2  # type: ignore[union-attr]
    assert (batch.tokens[asked] == corpus.english().named["mask"]).double().mean() > 0.6


def test_a_decoder_alone_is_asked_for_the_target_of_the_same_pairs():
    two = next(iter(corpus.pairs(8, held_out=True).evaluation()))
    one = next(iter(corpus.rows_of_pairs(8, held_out=True).evaluation()))
    for row in range(8):
        asked = [target for target in one.targets[row].tolist() if target != UNCOUNTED]
        assert asked == [target for target in two.targets[row].tolist() if target != UNCOUNTED]
        assert two.source is not None and two.source_mask is not None
        source = two.source[row][two.source_mask[row]].tolist()
        assert one.tokens[row, : len(source)].tolist() == source
        assert one.targets[row, len(source) - 1].item() == asked[0]


# A training


def small() -> Transformer:
    return Transformer(tying.architecture("tied").replace(d_model=16, n_heads=2, d_ff=16, n_decoder_layers=1))


def test_a_training_learns():
    model, before = small(), None
    before = learning.judged(model, corpus.text(32, 16, held_out=True))
    learnt = learning.learn(model, corpus.text(32, 16), steps=15, lr=1e-2, warmup=2)
    assert len(learnt.losses) == 15 and not learnt.broke
    assert learnt.last(5) == pytest.approx(sum(learnt.losses[-5:]) / 5)
    assert learning.judged(model, corpus.text(32, 16, held_out=True)) < before - 0.3


def test_a_training_that_breaks_says_so():
    learnt = learning.learn(small(), corpus.text(32, 4), steps=20, lr=1e12)
    assert learnt.broke and math.isinf(learnt.last(5))


def test_who_is_asked_to_stop_finds_nothing(monkeypatch: pytest.MonkeyPatch):
    def steps(*_: object) -> Iterator[Step]:
        yield Step(index=1, loss=1.0, targets=1, lr=1.0, gradient_norm=1.0, seconds=0.0, stop="SIGINT")

    monkeypatch.setattr(learning, "train", steps)
    with pytest.raises(KeyboardInterrupt):
        learning.learn(small(), corpus.text(32, 4), steps=20, lr=1e-2)


# Ladders


@pytest.mark.parametrize("one", ladders.LADDERS, ids=lambda one: one.name)
def test_a_ladder_ends_at_the_published_architecture_and_every_rung_changes_something(one: ladders.Ladder):
    steps = [architecture for _, architecture, _ in one.steps()]
    sizes = {*one.sizes, "n_kv_heads", "d_head", "d_embedding", "attention_scale", "vocab_size"}  # the latter follow
    assert set(steps[0].difference(preset(one.bottom))) <= sizes
    assert set(steps[-1].difference(one.target)) <= {"vocab_size"}
    assert set(one.target.difference(preset(one.top))) <= {*sizes, *one.top_sizes}  # small, and otherwise as published
    for before, after in zip(steps, steps[1:], strict=False):
        assert before.difference(after)


def test_rungs_are_climbed_at_equal_compute():
    llama, _, _ = ladders.LADDERS
    first, *_, last = (a.replace(vocab_size=ladder.vocabulary(a)) for _, a, _ in llama.steps())
    stream = ladder.stream_of(last)
    steps = steps_for(last, stream, like=first, steps=150)
    assert steps > 150  # grouped keys are cheaper
    work = [account(a).training_flops(ladders.LENGTH).total * n for a, n in ((first, 150), (last, steps))]
    assert work[1] == pytest.approx(work[0], rel=0.01)


def test_a_rung_is_climbed():
    _, t5, bert = ladders.LADDERS
    for one, name in ((t5, "t5-scales"), (bert, "bert-head")):
        found = ladder.climb(one, name, seed=1, steps=2)
        assert 1 <= found["steps"] <= 4 and 4 < found["loss"] < 12


# The others


def test_one_tower_has_as_many_parameters_as_two():
    one, two = (account(one_tower.architecture(towers)).parameters for towers in one_tower.TOWERS)
    assert abs(one - two) < 0.01 * two
    assert one_tower.architecture("one").kind == "decoder"
    found = one_tower.train_one("one", 0, steps=2)
    assert len(found["losses"]) == 2 and 0 <= found["accuracy"] < 0.5


def test_rows_of_any_length_end_in_the_same_words():
    rows = [extrapolation.ends(length) for length in extrapolation.LENGTHS]
    for length, batch in zip(extrapolation.LENGTHS, rows, strict=True):
        assert batch.tokens.shape[1] == length
        assert torch.equal(batch.tokens[:, -32:], rows[0].tokens)
        assert torch.equal(batch.targets[batch.targets != UNCOUNTED], rows[0].targets[rows[0].targets != UNCOUNTED])


def test_rescaling_changes_no_weight_and_nothing_at_the_length_of_training():
    architecture = tying.architecture("tied").replace(n_decoder_layers=1)
    model = Transformer(architecture).eval()
    tokens = extrapolation.ends(128).tokens[:2]
    with torch.no_grad():
        plain = {length: model(tokens[:, -length:]) for length in (32, 128)}
        for scaling in extrapolation.SCALINGS:
            twin = extrapolation.rescaled(model, scaling, 32).eval()
            assert torch.allclose(twin(tokens[:, -32:]), plain[32], atol=1e-5), scaling
            longer = extrapolation.rescaled(model, scaling, 128).eval()
            assert not torch.allclose(longer(tokens), plain[128], atol=1e-4), scaling
            assert all(torch.equal(a, b) for a, b in zip(model.parameters(), longer.parameters(), strict=True))


def test_learned_positions_have_no_loss_past_their_table():
    learned = {"position": "learned", "max_length": 32, "embedding_scale": 1.0, "n_decoder_layers": 1}
    model = Transformer(tying.architecture("tied").replace(**learned))
    assert extrapolation.judged(model, 32) == pytest.approx(math.log(1257), abs=0.5)
    assert extrapolation.judged(model, 64) is None


def test_depth_is_judged_against_the_frequencies_of_words():
    assert 4 < depth.frequencies() < 6
    assert depth.knobs("deepnorm", 8) == {"norm_placement": "post", "skip_scale": 2.0}
    assert depth.train_one("post", "calm", 6, 0, steps=2)["loss"] > depth.frequencies()
