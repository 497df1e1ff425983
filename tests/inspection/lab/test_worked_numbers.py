"""Every worked number and every wrong claim, by id, out of the lab's experiments; the right values stand here."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from plait.inspection.lab import Finding, depth, facts, memory, sentences, tying
from tests.inspection.lab.results import result


def values(name: str, id: str, place: int = 0) -> tuple[float, ...]:
    """What an experiment measured for a number that it says holds."""
    finding = result(name).all(id)[place]
    assert finding.holds, finding
    return finding.values


def refuted(findings: Iterable[Finding], id: str) -> tuple[float, ...]:
    """What was measured against a wrong claim."""
    (finding,) = (one for one in findings if one.id == id)
    assert finding.circulates and not finding.holds, finding
    return finding.values


# Normalisation


def test_n1_layer_norm_of_three():
    assert values("norm", "N1") == pytest.approx((4, 8 / 3, -1.2247, 0, 1.2247), abs=5e-5)


def test_n2_layer_norm_of_four():
    assert values("norm", "N2") == pytest.approx((5, 5, -1.3416, 0.4472, -0.4472, 1.3416), abs=5e-5)


def test_n3_residual_then_layer_norm():
    assert values("norm", "N3", 0) == pytest.approx((1.3, 0.6, 0.4, 1.2))
    assert values("norm", "N3", 1) == pytest.approx((1.1090, -0.7176, -1.2394, 0.8480), abs=5e-5)


def test_n4_residual_alone():
    assert values("norm", "N4") == pytest.approx((1.1, 1.7))


# Residual and depth


def test_d1_a_product_of_factors_vanishes():
    assert values("residual", "D1") == pytest.approx((0.85**12, 0.85**24, 0.85**48))
    assert values("residual", "D1") == pytest.approx((0.1422, 0.0202, 0.0004), abs=5e-5)


def test_d2_the_residual_adds_one_and_carries_the_gradient():
    assert values("residual", "D2", 0) == pytest.approx((0,), abs=1e-12)
    none, pre, post = (values("residual", "D2", place) for place in (1, 2, 3))
    assert none[-1] < 0.1 and none[0] > 5 * none[-1]  # it falls with depth
    assert min(pre) > 0.5 and min(post) > 0.1
    assert post[-1] < pre[-1]


def test_d3_a_block_that_begins_as_the_identity():
    pre, post, sandwich, branch = (values("identity", "D3", place)[0] for place in range(4))
    assert pre == sandwich == branch == 0.0 and post > 0.1


# Positions


def test_p1_attention_without_positions_is_permutation_equivariant():
    whole, scores, masked = (values("permutation", "P1", place)[0] for place in range(3))
    assert whole < 1e-12 and scores < 1e-12 and masked > 1e-3


def test_p2_the_sinusoids_of_2017():
    table = [values("sinusoid", "P2", place) for place in range(3)]
    for position, row in enumerate(table, 1):
        by_hand = [f(position / 100**i) for i in (0, 1) for f in (math.sin, math.cos)]
        assert row == pytest.approx(by_hand, abs=1e-6)
    assert table[2] == pytest.approx((0.1411, -0.9900, 0.0300, 0.9996), abs=5e-5)


def test_p3_a_step_is_a_rotation_wherever_it_starts():
    assert values("sinusoid", "P3")[0] < 1e-5


def test_p4_thirty_degrees_a_position():
    assert values("rope", "P4", 0) == pytest.approx((60, 150, 300, 390), abs=0.01)
    assert values("rope", "P4", 1) == pytest.approx((90, 90), abs=0.01)
    assert values("rope", "P4", 2)[0] < 1e-6


def test_p5_scores_depend_on_relative_distance_alone():
    rope, sinusoids = values("rope", "P5", 0)
    assert rope < 1e-5 and sinusoids > 1e-3
    assert values("rope", "P5", 1)[0] < 1e-5  # frequencies divided by a factor stretch the distance


def test_p6_a_position_past_the_table_is_an_error():
    assert values("learned", "P6", 0) == (1, 1, 1, 0, 0, 0)  # of 1, 4, 8, 9, 16 and 64 tokens, read or refused
    assert [values("learned", "P6", place) for place in (1, 2, 3)] == [(1,)] * 3


# Shape of the thing


def test_a1_the_ffn_is_two_thirds_of_a_block():
    assert values("share", "A1") == pytest.approx((2 / 3,) * 3)


def test_a2_the_layers_of_the_base_model():
    assert values("share", "A2") == (1_048_576, 2_097_152, 3_145_728, 4_194_304, 1_048_576)


def test_a3_the_towers_of_the_base_model():
    assert values("share", "A3") == (44_040_192, 6_291_456)


def test_a4_the_tables_of_the_base_model():
    table, both = (one for one in tying.counts() if one.id == "A4")
    assert table.holds and table.values == (18_944_000,)
    assert both.holds and both.values == (62_984_192, 81_928_192)


def test_a5_biases_and_norms_by_name():
    assert values("share", "A5", 1) == (98_304,)
    assert values("share", "A5", 2) == (30_720, 36_864, 30_720)
    (named,) = (figure for figure in result("share").figures if hasattr(figure, "columns"))
    assert sum(int(row[-1].replace(",", "")) for row in named.rows) == 98_304  # every tensor, by name


def test_a6_blocks_of_width_4096():
    assert values("share", "A6") == (201_326_592, 6_442_450_944)


def test_a7_llama_2_7b():
    whole, percent, head = (one for one in tying.counts() if one.id == "A7")
    assert whole.holds and whole.values == (6_738_415_616, 131_072_000)
    assert percent.holds and percent.values == pytest.approx((1.945,), abs=5e-4)
    assert head.holds and head.values == (131_072_000,)  # untied


def test_a8_layer_passes_while_three_words_are_written():
    assert [values("towers", "A8", place) for place in range(3)] == [(6, 18)] * 3
    assert values("towers", "A8", 3) == (18, 36)  # the work in a pass


def test_a9_who_sees_whom():
    assert values("towers", "A9", 0) == (1,) * 9
    assert values("towers", "A9", 1) == (1, 0, 0, 1, 1, 0, 1, 1, 1)
    assert values("towers", "A9", 2) == (1, 1, 1, 0, 0) * 3


# Memories


@pytest.mark.parametrize("network", memory.NETWORKS)
def test_f1_a_network_is_the_sum_of_its_neurons(network: str):
    assert memory.apart(memory.NETWORKS[network]) < 1e-12


@pytest.mark.slow
def test_f2_values_are_distributions_and_shallow_layers_see_the_surface():
    found = sentences.studied()
    assert found["off"] < 1e-5
    assert found["surface"][0] > found["surface"][-1] + 0.03
    assert all(share > 1.5 * chance for share, chance in zip(found["agreement"], found["chance"], strict=True))


def test_f3_a_changed_value_changes_its_fact_and_nearly_nothing_else():
    world = facts.learnt()
    found = facts.edits(world)
    assert found["known"] == 1.0
    assert found["efficacy"] > 0.9 and found["paraphrase"] > 0.5 and found["neighbourhood"] > 0.95
    assert world.answers() == [prompt.answer for prompt in facts.PROMPTS]  # the model that was given is as it was


# Claims in circulation that are wrong


def test_w1_the_lowest_pair_turns_fastest():
    first, last = refuted(result("sinusoid").findings, "W1")
    assert first == pytest.approx(2 * math.pi, abs=1e-4) and last == pytest.approx(60_611, abs=1)


def test_w2_tying_saves_little_of_llama():
    saved, share = refuted(tying.counts(), "W2")
    assert saved == 131_072_000 and share == pytest.approx(0.01945, abs=1e-5)


def test_w3_llama_and_mistral_do_not_tie():
    assert refuted(tying.counts(), "W3") == (2, 0)


def test_w4_biases_and_norms_are_a_twentieth_of_the_gap():
    rest, gap = refuted(result("share").findings, "W4")
    assert (rest, gap) == (98_304, 2_015_808)


def test_w5_the_causal_mask_brings_order():
    moved = refuted(result("permutation").findings, "W5")
    assert moved[0] < 1e-12 and min(moved[1:]) > 1e-3  # from the second layer on


def test_w6_the_gradient_can_shrink_along_a_residual():
    least, share = refuted(result("residual").findings, "W6")
    assert least < 0.5 and 0.2 < share < 0.8


@pytest.mark.slow
def test_w7_warm_up_helps_pre_norm_too():
    cold, warm = (depth.train_one("pre", "bold", 24, warmup)["loss"] for warmup in depth.WARMUPS)
    assert warm < cold - 0.1


def test_w7_is_refuted_where_warm_up_helped():
    trials = {trial.name: {"loss": 4.0} for trial in depth.EXPERIMENT.trials}
    assert next(one for one in depth.run(trials).findings if one.id == "W7").holds
    trials[depth.name("pre", "bold", 24, depth.WARMUPS[0])] = {"loss": 4.6}
    refuted(depth.run(trials).findings, "W7")


def test_w8_a_cache_leaves_the_number_of_passes():
    assert refuted(result("towers").findings, "W8") == (18, 18)
