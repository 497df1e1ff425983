"""Editing: what a change of weights is on paper, what it leaves alone, and how it is undone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import plait
from plait.architecture import Experts
from plait.checkpoint import Checkpoint
from plait.inspection import InspectionError
from plait.inspection.editing import Edit, Fact, edit, judge, promote, read_facts, undo
from plait.inspection.editing.covariance import Covariance, covariance, key_of
from plait.inspection.editing.finetune import Bounds, fine_tune
from plait.inspection.editing.judging import entropy, says
from plait.inspection.editing.memit import memit
from plait.inspection.editing.places import edited, place
from plait.inspection.editing.prompts import rows_of
from plait.inspection.editing.rome import key, rome
from plait.inspection.editing.values import Descent, wanted
from plait.inspection.reading import token_at
from plait.presets import PRESETS
from tests.inspection.making import SHAPES, TEXT, speaking

DESCENT = Descent(steps=60, lr=0.3, decay=0.0, largest=50.0)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "a.txt"
    path.write_text((TEXT + "\n") * 20)
    return path


FACT = Fact(subject="anna", prompt="the dog of {}", target="is", elsewhere=("the cat of ben",))
OTHER = Fact(subject="ben", prompt="the cat of {}", target="of")


@pytest.mark.parametrize("name", SHAPES)
def test_rome_gives_the_key_the_value_that_was_wanted(name: str, corpus: Path, tmp_path: Path) -> None:
    before = speaking(name)
    where = place(before.model, 2)
    spread = covariance(before, where, str(corpus), cache=tmp_path)
    found = wanted(before, FACT, 2, [""], DESCENT)
    new = rome(before, FACT, where, spread, [""], DESCENT)
    k = key(before, FACT, where, [""])
    weight = where.weight(before.model).double()
    change = new[where.parameter].double() - weight
    assert torch.allclose(change @ k, found.delta.double(), atol=1e-4)
    assert int(torch.linalg.matrix_rank(change, tol=1e-4)) == 1
    after = edited(before, new)
    rows = rows_of(before, FACT, [""])
    losses = torch.nn.functional.cross_entropy(
        after.model(rows.tokens, mask=rows.mask).flatten(0, 1), rows.targets.flatten(), ignore_index=-100
    )
    assert float((-losses).exp()) == pytest.approx(found.probability, abs=1e-4)
    assert found.probability > 0.5 and says(after, FACT.text, FACT.target) and not says(before, FACT.text, FACT.target)


@pytest.mark.parametrize("name", [name for name in PRESETS if plait.preset(name).kind == "decoder"])
def test_every_decoder_preset_is_edited_or_the_part_is_named(name: str, corpus: Path, tmp_path: Path) -> None:
    before = speaking(name)
    experts = before.architecture.experts
    if experts is not None and (not experts.d_shared or experts.shared_gate):
        with pytest.raises(InspectionError, match="each token takes other experts there|changes from token to token"):
            place(before.model, 1)
        return
    where = place(before.model, 1)
    spread = covariance(before, where, str(corpus), cache=tmp_path)
    descent = Descent(steps=4, lr=0.3)
    found = wanted(before, FACT, 1, [""], descent)
    new = rome(before, FACT, where, spread, [""], descent)
    change = new[where.parameter].double() - where.weight(before.model).double()
    assert torch.allclose(change @ key(before, FACT, where, [""]), found.delta.double(), atol=1e-4)
    assert float(found.delta.norm()) > 0 and not torch.equal(
        edited(before, new).model.get_parameter(where.parameter), where.weight(before.model)
    )


def test_memit_of_one_layer_is_least_squares(corpus: Path, tmp_path: Path) -> None:
    before = speaking("gpt2")
    where = place(before.model, 2)
    spread = covariance(before, where, str(corpus), cache=tmp_path)
    new = memit(before, [FACT, OTHER], [where], [spread], [""], weight=1e-6, descent=DESCENT)
    after = edited(before, new)
    assert says(after, FACT.text, FACT.target) and says(after, OTHER.text, OTHER.target)
    sandwich = speaking("gemma2")
    with pytest.raises(InspectionError, match="a norm stands between"):
        memit(sandwich, [FACT], [place(sandwich.model, layer) for layer in (0, 1)], [spread, spread], [""])


def test_memit_over_layers_says_all(corpus: Path, tmp_path: Path) -> None:
    before = speaking("llama")
    places = [place(before.model, layer) for layer in (1, 2)]
    spreads = [covariance(before, where, str(corpus), cache=tmp_path) for where in places]
    new = memit(before, [FACT, OTHER], places, spreads, [""], weight=1e-6, descent=DESCENT)
    after = edited(before, new)
    assert len(new) == 2 and says(after, FACT.text, FACT.target) and says(after, OTHER.text, OTHER.target)


def test_fine_tuning_moves_no_weight_further_than_it_may() -> None:
    before = speaking()
    where = place(before.model, 2)
    new = fine_tune(before, [FACT], where, Bounds(steps=8, lr=1e-2, most=3e-2))
    change = new[where.parameter] - where.weight(before.model).detach()
    assert 0 < float(change.abs().max()) <= 3e-2 + 1e-6
    more = rows_of(before, FACT, [""])

    def nll(one: Checkpoint) -> float:
        logits = one.model(more.tokens, mask=more.mask)
        found = torch.nn.functional.cross_entropy(logits.flatten(0, 1), more.targets.flatten(), ignore_index=-100)
        return float(found.detach())

    assert nll(edited(before, new)) < nll(before)


def test_ed1_the_edited_is_another_and_undo_is_to_the_bit(corpus: Path, tmp_path: Path) -> None:
    before = speaking()
    kept = {name: value.clone() for name, value in before.model.state_dict().items()}
    made = edit(before, FACT, corpus=str(corpus), cache=tmp_path / "cache", layers=[1])
    changed = [n for n, value in made.checkpoint.model.state_dict().items() if not torch.equal(value, kept[n])]
    assert changed == ["decoder.layers.1.ffn.down.weight"]
    assert all(torch.equal(value, kept[name]) for name, value in before.model.state_dict().items())
    for back in (made.undo(), undo(saved(made, tmp_path / "made"), tmp_path / "made")):
        assert all(torch.equal(value, kept[name]) for name, value in back.model.state_dict().items())
    with pytest.raises(InspectionError, match="the record is of other weights"):
        undo(before, tmp_path / "made")
    with pytest.raises(InspectionError, match="there is no record of an edit"):
        undo(before, tmp_path)


def saved(made: Edit, folder: Path) -> Checkpoint:
    made.save(folder)
    return plait.load(folder)


def test_ed3_covariance_is_of_these_weights_this_layer_and_this_text(corpus: Path, tmp_path: Path) -> None:
    from plait.inspection import trace

    one = speaking()
    where = place(one.model, 1)
    found = covariance(one, where, str(corpus), tokens=600, length=50, cache=tmp_path)
    tokenizer = one.tokenizer
    assert tokenizer is not None
    ids = tokenizer.encode(corpus.read_text())[:600]
    rows = [trace(one, ids[i : i + 50], where.key)[where.key].double().numpy() for i in range(0, 600, 50)]
    keys = np.concatenate(rows)
    assert found.count == 600 and np.allclose(found.matrix.numpy(), keys.T @ keys / 600)
    k = torch.randn(20, 2, dtype=torch.float64)
    assert torch.allclose(found.ridged @ found.solve(k), k, atol=1e-6)
    again = covariance(one, where, str(corpus), tokens=600, length=50, cache=tmp_path)
    assert torch.equal(again.matrix, found.matrix) and len(list(tmp_path.iterdir())) == 1
    others = [key_of(speaking("gpt2", d_ff=21), where, "a", 50), key_of(one, place(one.model, 2), "a", 50)]
    assert len({key_of(one, where, "a", 50), key_of(one, where, "b", 50), key_of(one, where, "a", 60), *others}) == 5
    with pytest.raises(InspectionError, match="it is of other weights, another layer or another text"):
        found.check(others[0])
    (file,) = tmp_path.iterdir()
    Covariance(matrix=found.matrix, count=600, key="another").save(file)
    with pytest.raises(InspectionError, match="it is of other weights"):
        covariance(one, where, str(corpus), tokens=600, length=50, cache=tmp_path)
    file.write_bytes(b"no tensor")
    with pytest.raises(InspectionError, match="this is no covariance that plait wrote"):
        covariance(one, where, str(corpus), tokens=600, length=50, cache=tmp_path)
    few = Covariance(matrix=torch.outer(k[:, 0], k[:, 0]), count=1, key="")
    with pytest.raises(InspectionError, match="1 tokens do not spread over 20 neurons"):
        few.solve(k)


def test_ed5_padding_is_no_part_of_an_answer() -> None:
    one = speaking()
    assert one.tokenizer is not None
    long = Fact(subject="anna", prompt="the dog of {} is", target="red")
    rows = rows_of(one, long, ["", "and so it is that "])
    answer = one.tokenizer.encode(" red", specials=False)
    for row in range(2):
        asked = rows.targets[row][rows.targets[row] != -100].tolist()
        assert asked == answer
        n = int(rows.mask[row].sum())
        assert rows.targets[row, n - 1 :].tolist() == [-100] * (rows.tokens.shape[1] - n + 1)
    short = rows_of(one, Fact(subject="anna", prompt="the dog of {} is", target=" r"), [""])
    assert int((short.targets != -100).sum()) == 2, "a space and a letter"


@pytest.mark.parametrize(
    ("prompt", "subject"),
    [
        ("{} is the one", "anna"),
        ("anna and anna and {}", "anna"),
        ("the last is {}", "ben"),
        ("so {} goes", "é中"),
        ("{}", "中"),
    ],
)
def test_ed6_the_subject_ends_at_its_last_token(prompt: str, subject: str) -> None:
    one, fact = speaking(), Fact(subject=subject, prompt=prompt, target="x")
    tokenizer = one.tokenizer
    assert tokenizer is not None
    ids = [*tokenizer.prefix, *tokenizer.encode(fact.text, specials=False)]
    found = token_at(tokenizer, ids, fact.text, fact.ends)
    before, behind = (tokenizer.decode(ids[:end], skip_specials=True) for end in (found, found + 1))
    assert behind == fact.text[: fact.ends] != before
    with pytest.raises(InspectionError, match="the vocabulary spells"):
        token_at(tokenizer, ids[:-1], fact.text, fact.ends)


def test_facts_are_read_or_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text(
        '[{"subject": "a", "prompt": "{} is", "target": "b"}, {"prompt": "Of Ann is", "subject": "Ann", '
        '"target_new": "x", "ground_truth": "y", "rephrase_prompt": "Ann?", "locality_prompt": "Bob?"}]'
    )
    first, second = read_facts(path)
    assert first.text == "a is" and first.answer == " b"
    assert (second.prompt, second.true, second.rephrased, second.elsewhere) == ("Of {} is", "y", ("Ann?",), ("Bob?",))
    for text, said in {
        '{"a": 1}': "a list of facts belongs there",
        '[{"subject": "a", "prompt": "b", "target": "c"}]': "object 1: prompt: 'b' must have one",
        '[{"subject": "a", "prompt": "{}"}]': "object 1: it has no target",
        '[{"subject": "a", "prompt": "{}", "target": "c", "sbj": 1}]': "object 1: sbj: a fact has subject",
        '[{"subject": "a", "prompt": "b", "target_new": "c"}]': "its prompt does not name its subject",
        "[": "it is not JSON",
    }.items():
        path.write_text(text)
        with pytest.raises(InspectionError, match=said):
            read_facts(path)


def test_judgements_by_hand(corpus: Path, tmp_path: Path) -> None:
    before = speaking()
    made = edit(before, FACT, corpus=str(corpus), cache=tmp_path, layers=[1])
    (found,) = judge(made.checkpoint, before, [FACT])
    assert found.efficacy == float(says(made.checkpoint, FACT.text, "is")) and found.locality in (0.0, 1.0)
    assert found.paraphrase is None and found.harmonic is None and found.fluency >= 0
    (same,) = judge(before, before, [FACT])
    assert same.locality == 1.0 and same.efficacy == 0.0
    assert entropy([1, 1, 1, 1], 2) == 0.0 and entropy([1, 2, 3], 2) == pytest.approx(1.0)


def test_a_neuron_is_turned_to_a_token() -> None:
    before = speaking("llama")
    made = promote(before, 2, 7, 65, strength=40.0)
    new, old = (one.model.state_dict()["decoder.layers.2.ffn.down.weight"] for one in (made.checkpoint, before))
    change = new - old
    assert bool((change[:, :7] == 0).all()) and bool((change[:, 8:] == 0).all()) and float(change[:, 7].norm()) > 0
    back = made.undo()
    assert all(torch.equal(a, b) for a, b in zip(back.model.parameters(), before.model.parameters(), strict=True))
    with pytest.raises(InspectionError, match="neuron: 20, and layer 2 has neurons 0 to 19"):
        promote(before, 2, 20, 65)


def test_what_cannot_be_edited_is_refused(corpus: Path) -> None:
    one = speaking()
    with pytest.raises(InspectionError, match="corpus: rome must know how keys are spread"):
        edit(one, FACT)
    with pytest.raises(InspectionError, match="layers: rome changes one"):
        edit(one, FACT, layers=[0, 1], corpus=str(corpus))
    with pytest.raises(InspectionError, match="layer: 3, and there are layers 0 to 2"):
        edit(one, FACT, layers=[3], corpus=str(corpus))
    with pytest.raises(InspectionError, match="each token takes other experts"):
        edit(speaking(experts=Experts(n_experts=4, per_token=2, d_expert=6)), FACT, layers=[1], corpus=str(corpus))
    for name in ("subject", "target"):
        with pytest.raises(InspectionError, match=f"{name}: it is empty"):
            Fact(**{"subject": "a", "prompt": "{}", "target": "b", name: " "})
