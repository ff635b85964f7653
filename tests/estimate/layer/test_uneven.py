"""Uneven experts: closed forms by hand, routing by chance against simulation, placements, drops, and relations of whole answers."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import ironlaw
from ironlaw.errors import InputError, QuestionError, UnknownNameError, ValueRangeError
from ironlaw.estimate.bind.expert_loads import SHAPES, table_of
from ironlaw.estimate.layer import uneven
from ironlaw.estimate.layer.expert_places import PLACEMENTS, place_balanced, place_in_order, place_redundant
from ironlaw.estimate.layer.uneven import Loads

MIXTURE = {"model": "mixtral-8x7b", "on": "h100-sxm", "gpus": 128, "tp": 2, "pp": 2, "vpp": 1, "ep": 8, "cp": 1, "dp_shard": 32,
           "zero": 1, "micro_batch_size": 1, "recompute": "none", "global_batch_size": 512}  # fmt: skip
EVEN = {"expert_load": "uniform", "routing_noise": "off"}


def loads(shares, chosen=1.0, noise=True, **others) -> Loads:
    table = np.atleast_2d(np.asarray(shares, dtype=float))
    table = table / table.sum(axis=1, keepdims=True)
    return Loads(table, float(table.shape[1]), chosen, float(table.shape[0]), noise, **others)


# --- closed forms


def test_two_ranks_two_loads_by_hand():
    """Loads 3 and 1: the busier of two ranks has 3/4 of the rows, 1.5 times the mean."""
    mean, chance, drift = uneven.busiest(loads([3.0, 1.0], noise=False), 2.0, 1000.0)
    assert (float(mean), float(chance), float(drift)) == (1.5, 0.0, 0.0)


def test_two_even_ranks_by_chance_by_hand():
    """N tokens toss a coin: the larger of n and N - n is N / 2 + E|n - N / 2|, and E|n - N / 2| is sqrt(N / 4) sqrt(2 / pi)."""
    tokens = 2000.0
    mean, chance, _ = uneven.busiest(loads([1.0, 1.0]), 2.0, tokens / 2.0)
    assert float(mean) == pytest.approx(1.0 + math.sqrt(tokens / 4.0) * math.sqrt(2.0 / math.pi) / (tokens / 2.0), rel=1e-4)
    assert float(chance) == pytest.approx(tokens / 4.0 * (1.0 - 2.0 / math.pi) / (tokens / 2.0) ** 2, rel=1e-2)


def test_a_rank_with_all_experts_has_no_imbalance():
    mean, chance, _ = uneven.busiest(loads([5.0, 1.0, 1.0, 1.0], chosen=2.0), 1.0, 500.0)
    assert float(mean) == pytest.approx(1.0, abs=0.02) and float(chance) < 1e-3


# --- routing by chance against simulation


def route(shares, chosen, tokens, draws, random):
    """Rows of every expert where each token visits ``chosen`` different experts, drawn one after the other by their shares."""
    keys = random.gumbel(size=(draws, tokens, len(shares))) + np.log(shares)
    best = np.argpartition(-keys, chosen - 1, axis=2)[:, :, :chosen]
    return np.stack([np.bincount(row.ravel(), minlength=len(shares)) for row in best])


@pytest.mark.parametrize(("experts", "chosen", "ep", "tokens"), [(8, 1, 8, 512), (8, 2, 4, 512), (32, 4, 8, 256), (16, 8, 16, 400)])
def test_the_expected_maximum_is_that_of_simulated_routing(experts, chosen, ep, tokens):
    random = np.random.default_rng(7)
    rows = route(np.full(experts, 1.0 / experts), chosen, tokens, 400, random).reshape(400, ep, -1).sum(axis=2)
    largest = rows.max(axis=1) / (tokens * chosen / ep)
    mean, chance, _ = uneven.busiest(loads(np.ones(experts), float(chosen)), float(ep), tokens * chosen / ep)
    assert float(mean) - 1.0 == pytest.approx(largest.mean() - 1.0, rel=0.08)
    assert math.sqrt(chance) == pytest.approx(largest.std(), rel=0.15)


def test_uneven_loads_with_chance_are_those_of_simulated_routing():
    """One expert a token, so the draws are exactly multinomial: loads from 2 down to 0.3 on 8 ranks."""
    shares = np.array([2.0, 1.9, 1.0, 1.0, 0.8, 0.6, 0.4, 0.3]) / 8.0
    rows = np.random.default_rng(3).multinomial(800, shares, size=4000).max(axis=1) / 100.0
    mean, chance, _ = uneven.busiest(loads(shares), 8.0, 100.0)
    assert float(mean) == pytest.approx(rows.mean(), rel=0.01)
    assert math.sqrt(chance) == pytest.approx(rows.std(), rel=0.15)


def test_the_time_of_the_slowest_group_is_that_of_simulated_groups():
    """8 groups that each add up 10 layers: the median and the 95th percentile of the largest sum."""
    of_layer = loads(np.ones(8), 2.0)
    mean, variance, _ = uneven.busiest(of_layer, 8.0, 64.0)
    random = np.random.default_rng(1)
    rows = random.multivariate_hypergeometric([1] * 8, 2, size=(200, 8, 10, 256)).sum(axis=3).max(axis=3) / 64.0
    sums = rows.mean(axis=2).max(axis=1)  # the slowest of 8 groups of 10 layers
    for quantile in (0.5, 0.95):
        predicted = float(mean) + float(uneven.experts.slowest_of(8.0, quantile)) * math.sqrt(float(variance) / 10.0)
        assert predicted == pytest.approx(np.quantile(sums, quantile), rel=0.01)


# --- placements


@pytest.mark.parametrize("how", PLACEMENTS)
def test_rows_are_conserved(how):
    shares = np.random.default_rng(0).dirichlet(np.full(16, 0.5), size=3)
    slots = 5 if how == "redundant" else 4
    placed = PLACEMENTS[how](shares, 4, slots)
    assert placed.shape == (3, 4, slots)
    assert placed.sum(axis=(1, 2)) == pytest.approx(np.ones(3))


def test_a_balanced_placement_does_not_depend_on_the_order_of_experts():
    random = np.random.default_rng(0)
    shares = random.dirichlet(np.full(32, 0.5))[None]
    first = place_balanced(shares, 8, 4).sum(axis=2)
    for _ in range(5):
        again = place_balanced(random.permuted(shares, axis=1), 8, 4).sum(axis=2)
        assert np.sort(again) == pytest.approx(np.sort(first))


def test_balancing_and_copies_lower_the_busiest_rank():
    shares = np.random.default_rng(5).dirichlet(np.full(32, 0.3), size=8)
    in_order, balanced = (place(shares, 8, 4).sum(axis=2).max(axis=1) for place in (place_in_order, place_balanced))
    copied = place_redundant(shares, 8, 5).sum(axis=2).max(axis=1)
    assert np.all(balanced <= in_order + 1e-12)
    assert np.all(copied <= balanced + 1e-12)


def test_the_table_of_eplb_is_balanced_as_its_algorithm_does():
    """First layer of the example in EPLB's README, 12 experts and 4 redundant ones on 8 ranks, without groups of nodes: 992 tokens.

    By the rule by hand: copies of 183, 165, 132, 104 (the most loaded in turn) make 91.5 twice, 82.5 twice, 66 twice, 52 twice.
    """
    row = np.array([[90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86]], dtype=float)
    placed = place_redundant(row, 8, 2)[0]
    copies = sorted(placed.ravel().tolist(), reverse=True)
    assert copies == [91.5, 91.5, 90, 86, 82.5, 82.5, 73, 66, 66, 61, 56, 52, 52, 40, 39, 4]
    # packed in falling order onto ranks of two slots: 91.5 + 4, 91.5 + 39, 90 + 40, 86 + 52, 82.5 + 52, 82.5 + 56, 73 + 61, 66 + 66
    assert sorted(placed.sum(axis=1).tolist()) == [95.5, 130, 130.5, 132, 134, 134.5, 138, 138.5]


# --- drops


def test_the_dropped_share_is_a_share_and_none_of_a_large_capacity():
    spread = loads(np.random.default_rng(0).dirichlet(np.full(64, 0.5), size=4))
    shares = [uneven.dropped_share(spread, 32.0, factor, 2048.0) for factor in (0.1, 0.5, 1.0, 1.25, 2.0, 64.0)]
    assert all(0.0 <= share <= 1.0 for share in shares)
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0.0


def test_drops_by_hand_and_by_simulation():
    """Without chance, loads 3 and 1 at capacity 1 drop 1 of 4 rows; even loads by chance drop what binomial rows have above it."""
    assert uneven.dropped_share(loads([3.0, 1.0], noise=False), 100.0, 1.0, 200.0) == pytest.approx(0.25)
    rows = np.random.default_rng(2).multinomial(1024, np.full(16, 1.0 / 16.0), size=3000)
    dropped = np.maximum(rows - 1.1 * 64.0, 0.0).sum(axis=1).mean() / 1024.0
    assert uneven.dropped_share(loads(np.ones(16)), 64.0, 1.1, 1024.0) == pytest.approx(dropped, rel=0.05)


# --- whole answers


def test_even_loads_without_chance_are_the_answer_without_loads():
    plain, even = ironlaw.estimate(**MIXTURE), ironlaw.estimate(**MIXTURE, **EVEN)
    assert float(even.step_seconds[0]) == float(plain.step_seconds[0])
    assert float(even.device_bytes[0]) == float(plain.device_bytes[0])


def test_more_uneven_loads_take_longer_and_hold_more():
    answers = [ironlaw.estimate(**MIXTURE, expert_load=f"maxvio:{most}", routing_noise="off") for most in (0.0, 0.1, 0.3, 0.72, 1.5)]
    times, held = [float(a.step_seconds[0]) for a in answers], [float(a.device_bytes[0]) for a in answers]
    assert times == sorted(times) and held == sorted(held)
    assert len(set(times)) == len(set(held)) == len(answers)


def test_one_expert_a_rank_takes_as_long_as_the_imbalance_of_its_largest_load():
    """A rank with one expert has no groups of unequal rows: loads with maximum 1.5 x the mean are the number 1.5."""
    loads_given = ironlaw.estimate(**MIXTURE, expert_load=[1.5, 1.1, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7], routing_noise="off")
    number = ironlaw.estimate(**MIXTURE, expert_imbalance=1.5)
    assert float(loads_given.step_seconds[0]) == pytest.approx(float(number.step_seconds[0]), rel=1e-12)


def test_late_steps_are_later_and_drift_makes_them_later_still():
    def times(**options):
        return ironlaw.estimate(**MIXTURE, expert_load="uniform", **options).to_dict()["routing"]["step_seconds"]

    still, drifting = times(), times(load_spread=0.1)
    for late in (still, drifting):
        assert late["p50"] < late["p95"] < late["p99"]
    assert drifting["p99"] / drifting["p50"] > still["p99"] / still["p50"]


def test_the_headline_is_the_median_and_drops_stand_beside_the_dropless_time():
    data = ironlaw.estimate(**MIXTURE, expert_load="maxvio:0.72", capacity_factor=1.25).to_dict()
    routing = data["routing"]
    assert routing["step_seconds"]["p50"] == data["step"]["seconds"]
    assert 0.0 < routing["dropped_share"] < 0.2
    assert routing["dropless_seconds"]["p50"] > data["step"]["seconds"]  # 1.72 x the mean on the busiest rank against 1.25


def test_the_best_plan_is_no_slower_than_a_plan_that_is_given():
    """A bound that was too high would have left the better plan out."""
    open_question = {name: MIXTURE[name] for name in ("model", "on", "gpus", "global_batch_size")}
    for shape in ("uniform", "zipf:0.5"):
        best = ironlaw.estimate(**open_question, expert_load=shape)
        for given in ({"tp": 2, "pp": 2, "ep": 8}, {"tp": 1, "pp": 4, "ep": 4}):
            assert float(best.step_seconds[0]) <= float(ironlaw.estimate(**open_question, **given, expert_load=shape).step_seconds[0])


def test_redundant_experts_cost_memory_and_save_time():
    uneven_loads = {"expert_load": "zipf:0.8", "routing_noise": "off"}
    plain, copied = (ironlaw.estimate(**MIXTURE, **uneven_loads, expert_placement=how) for how in ("balanced", "redundant:8"))
    assert float(copied.step_seconds[0]) < float(plain.step_seconds[0])
    assert copied.to_dict()["routing"]["experts_held"] == 2.0
    weights = [answer.groups[0].memory.tree["allocated"]["weights"].value[0] for answer in (plain, copied)]
    assert weights[1] > 1.5 * weights[0]


# --- files and errors


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.json", "[4, 2, 1, 1]"),
        ("named.json", '{"loads": [[4, 2, 1, 1]]}'),
        ("rows.csv", "4,2,1,1\n"),
        ("column.csv", "4\n2\n1\n1\n"),
        ("headed.csv", "load\n4\n2\n1\n1\n"),
        ("long.csv", "layer,expert,tokens\n3,0,400\n3,1,200\n3,2,100\n3,3,100\n"),
    ],
)
def test_files_of_loads(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    shares, _ = table_of(str(tmp_path / name), 4, 2, "a model")
    assert shares.tolist() == [[0.5, 0.25, 0.125, 0.125]]


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("[1, 2, 3]", ValueRangeError, "has 3 loads, a model has 4 experts"),
        ("[[1,2,3,4],[1,2,3,4],[1,2,3,4]]", ValueRangeError, "has 2 routed layers"),
        ("[1, 2, -3, 4]", ValueRangeError, "a load is -3"),
        ("[0, 0, 0, 0]", ValueRangeError, "no load at all"),
        ('[1, "x", 3, 4]', ValueRangeError, "a load is"),
        ('{"load": [1]}', InputError, "no list of loads"),
        ("[[[1]]]", ValueRangeError, "has 1 loads"),
        ("[1, NaN, 1, 1]", InputError, "NaN"),
        ("[]", ValueRangeError, "one number for each expert"),
    ],
)
def test_wrong_files_are_errors_of_one_line(tmp_path, text, error, says):
    path = tmp_path / "loads.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(error, match=says) as raised:
        table_of(str(path), 4, 2, "a model")
    assert "loads.json" in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"expert_load": "zipfy"}, UnknownNameError, "zipf"),
        ({"expert_load": "zipf:x"}, QuestionError, "zipf"),
        ({"expert_load": "zipf:99"}, ValueRangeError, "from 0 to 20"),
        ({"expert_load": "uniform", "expert_imbalance": 1.2}, QuestionError, "not both"),
        ({"expert_placement": "balanced"}, QuestionError, "no effect without"),
        ({"expert_load": "uniform", "expert_placement": "sideways"}, UnknownNameError, "in-order"),
        ({"model": "llama-3-8b", "ep": 1, "expert_load": "uniform"}, QuestionError, "has no experts"),
        ({"expert_load": [1.0, 2.0]}, ValueRangeError, "has 2 loads, mixtral-8x7b has 8 experts"),
    ],
)
def test_wrong_options_are_errors(options, error, says):
    with pytest.raises(error, match=says):
        ironlaw.estimate(**{**MIXTURE, **options})


def test_an_answer_says_what_asks_for_it_again():
    options = {"expert_load": [4.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], "expert_placement": "redundant:8", "load_spread": 0.05}
    first = ironlaw.estimate(**MIXTURE, **options)
    asked = json.loads(json.dumps(first.to_dict()["asked"]))
    again = ironlaw.estimate(**{**asked["given"], **asked["plan"]})
    assert float(again.step_seconds[0]) == float(first.step_seconds[0])


# --- published loads


@pytest.mark.parametrize(("deviation", "busiest"), [(0.17, 1.47), (0.04, 1.15), (0.05, 1.14), (0.11, 1.37), (0.02, 1.07)])
def test_log_normal_loads_have_the_published_maximum_for_their_deviation(deviation, busiest):
    """Shazeer et al. 2017, table 6: CV(Load) and max(Load) / mean(Load) of 256 experts, balanced in five ways. Within a tenth."""
    loads_of = SHAPES["cv"](256, deviation)
    assert loads_of.std() / loads_of.mean() == pytest.approx(deviation, rel=0.05)
    assert loads_of.max() / loads_of.mean() == pytest.approx(busiest, rel=0.1)


def test_a_published_record_is_found_and_its_name_is_known():
    shares, described = table_of("aux-free", 64, 3, "a model")
    assert described == "aux-free" and shares.shape == (3, 64)
    assert shares.max(axis=1) * 64 == pytest.approx(np.full(3, 1.04))  # the model of the paper has 64 experts
    wider, _ = table_of("aux-free", 256, 1, "a model")
    assert wider.max() * 256 > 1.04  # the largest of more experts that vary alike
    with pytest.raises(UnknownNameError, match="aux-loss"):
        table_of("aux-los", 64, 3, "a model")


def test_a_capacity_of_a_quarter_more_drops_less_than_a_hundredth_of_balanced_tokens():
    """Switch Transformers, section 2.2: with the auxiliary loss less than 1 % of tokens are dropped at usual capacities."""
    balanced, _ = table_of("aux-loss", 128, 1, "a model")
    assert uneven.dropped_share(loads(balanced), 4096.0 / 128.0, 1.25, 4096.0) < 0.01
    assert uneven.dropped_share(loads(balanced), 4096.0 / 128.0, 1.0, 4096.0) > 0.05


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"expert_load": "maxvio:7"}, r"maxvio:7, must be from 0 to 3: an expert that every token visits has 4 times the mean"),
        (
            {"expert_load": [9, 1, 1, 1, 1, 1, 1, 1]},
            r"expert 0 has 0.5625 of the rows, .* one gets at most 0.5 of them \(4.5 times the mean",
        ),
        ({"expert_imbalance": 5}, "must be from 1 to 4"),
    ],
)
def test_an_expert_has_at_most_a_row_a_token(options, says):
    """Mixtral routes to 2 of 8: an expert that every token visits has half of the rows, 4 times the mean."""
    with pytest.raises(ValueRangeError, match=says):
        ironlaw.estimate("mixtral-8x7b", on="h100-sxm", gpus=8, tp=1, pp=1, ep=8, zero=1, **options)


@pytest.mark.parametrize("shape", ["zipf:2", "cv:3", "dirichlet:0.01", "none", "maxvio:3"])
def test_a_shape_is_cut_where_every_token_visits_an_expert(shape):
    shares, described = table_of(shape, 8, 3, "a model", visited_experts=2.0)
    free, _ = table_of(shape, 8, 3, "a model", visited_experts=1.0)
    assert shares.max() <= 0.5 * (1 + 1e-9)
    assert shares.sum(axis=1) == pytest.approx(np.ones(len(shares)))
    assert ("cut at 4 times" in described) == (free.max() > 0.5 * (1 + 1e-9))
    for row, whole in zip(shares, free, strict=True):  # the order of the experts stays, and so do ratios below the cut
        order = np.argsort(-whole)
        assert np.all(np.diff(row[order]) <= 1e-12)
