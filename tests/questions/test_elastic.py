"""``ironlaw elastic``: the best plan with less, spare nodes by Erlang's formula and a simulation, spot machines priced as by ``money``."""

from __future__ import annotations

import json
import math
import random

import pytest

import ironlaw
from ironlaw import elastic, money
from ironlaw.cli.main import main
from ironlaw.errors import IronlawError
from ironlaw.questions.elastic.options import loss
from ironlaw.questions.elastic.spares import State, fewer_states, shares_of_time, waiting_states

SMALL = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 64, "global_batch_size": 96}
RUN = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 512, "global_batch_size": 512, "tokens": "1T", "price": 3.0}


@pytest.fixture(scope="module")
def small():
    return elastic(**SMALL, lost="8,3nodes,1/3")


@pytest.fixture(scope="module")
def spared():
    return elastic(**RUN, lost="1node", repair_time="24h", spares="0,1,2,3,4,8")


def rate_of(gpus, batch=96, **more):
    found = ironlaw.estimate(**{**SMALL, "gpus": gpus, "global_batch_size": batch}, **more)
    return float(found.tokens_per_second[0]) if found.fits[0] else 0.0


class TestLess:
    def test_with_nothing_lost_it_is_the_estimate(self, small):
        assert small["tokens_per_second"] == rate_of(64)

    def test_each_plan_is_the_estimate_of_its_count(self, small):
        assert [(row["lost_gpus"], row["left"]) for row in small["losses"]] == [(8.0, 56.0), (24.0, 40.0), (22.0, 42.0)]
        for row in small["losses"]:
            assert row["tokens_per_second"] == rate_of(row["used"])
            assert row["idle"] == row["left"] - row["used"]
            assert row["lost_share"] == pytest.approx(1.0 - row["tokens_per_second"] / rate_of(64), rel=1e-12)

    def test_no_count_of_nodes_is_faster(self, small):
        """Every multiple of a node that is left, asked one by one, and all that are left: 56 shares 8 with a batch of 96, 48 shares 48."""
        rates = {gpus: rate_of(gpus) for gpus in (8, 16, 24, 32, 40, 42, 48, 56)}
        for row in small["losses"]:
            assert row["tokens_per_second"] == max(rate for gpus, rate in rates.items() if gpus <= row["left"])

    def test_kept_sizes_are_those_of_the_full_plan(self):
        """tp 2 and pp 2 make ranks of 4: of 15 whole ones 12 divide the batch of 96, and 15 divide a batch of 90."""
        given = {**SMALL, "tp": 2, "pp": 2, "cp": 1, "micro_batch_size": 1}
        kept = elastic(**given, lost="2")["kept"][0]
        assert (kept["left"], kept["used"], kept["idle"], kept["global_batch_size"]) == (62.0, 48.0, 14.0, 96.0)
        scaled = elastic(**given, lost="2", batch="scale")["kept"][0]
        assert (scaled["used"], scaled["global_batch_size"]) == (60.0, 90.0)

    def test_a_batch_that_shrinks_keeps_the_sequences_of_a_rank(self):
        row = elastic(**{**SMALL, "global_batch_size": 128}, lost="50%", batch="scale")["losses"][0]
        assert (row["left"], row["global_batch_size"]) == (32.0, 64.0)

    def test_keeping_the_sizes_is_never_faster(self, small):
        for row in small["kept"]:
            assert row["used"] == 0.0 or row["behind_best"] >= 0.0

    def test_re_sharding_reads_and_writes_the_checkpoint_once(self):
        """14 bytes for each of 8.03 G parameters, twice, at 0.5 GB/s: 449.7 s."""
        answer = elastic("llama-3-8b", on="h100-sxm", gpus=8, global_batch_size=512, lost="3", checkpoint_bandwidth="0.5GB/s")
        row = answer["kept"][0]
        assert row["reshard_seconds"] == pytest.approx(2 * 14 * 8.0303e9 / 0.5e9, rel=1e-4)
        faster = answer["losses"][0]["tokens_per_second"] / row["tokens_per_second"]
        assert (row["worth_after_seconds"] - row["reshard_seconds"]) * faster == pytest.approx(row["worth_after_seconds"], rel=1e-9)

    def test_a_rack_is_what_the_job_takes_of_it(self):
        rows = elastic("llama-3-8b", on="gb200", gpus=128, global_batch_size=768, lost="1node,1rack", cp=1)["losses"]
        assert [row["lost_gpus"] for row in rows] == [4.0, 64.0]  # two racks of 64 of 72

    def test_a_model_that_no_longer_fits_answers_no(self, capsys):
        assert main(["elastic", "llama-3-70b", "--on", "h100-sxm", "--gpus", "16", "--global-batch-size", "64", "--lost", "12"]) == 1
        assert "no plan fits" in capsys.readouterr().out


def erlang_b(servers, load):
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked


def simulate(machines, mttf, repair, spares, rates, seed, draw):
    """Shares of the time by nodes down, event by event; ``rates(down)``: machines that run and may fail."""
    random_ = random.Random(seed)
    clock, down, until = 0.0, [], {}
    for _ in range(60_000):
        running = rates(len(down))
        fails = random_.expovariate(running / mttf) if running else math.inf
        repaired = min(down, default=math.inf)
        step = min(fails, repaired - clock)
        until[len(down)] = until.get(len(down), 0.0) + step
        clock += step
        if clock >= repaired - 1e-9:
            down.remove(repaired)
        else:
            down.append(clock + draw(random_, repair))
    return {count: time / clock for count, time in until.items()}


class TestSpares:
    def test_without_a_spare_it_is_availability(self, spared):
        """64 nodes of 8; a failure of one of 512 every M hours, 24 h of repair: the job runs M / (M + 24) of the time."""
        mttf = next(item for item in spared.assumptions if item["name"] == "mttf")["value"]
        hours = 50677.0 if "50700" in mttf else None
        assert hours
        waiting = next(row for row in spared["spares"] if (row["spares"], row["policy"]) == (0.0, "wait for repair"))
        assert 1.0 - waiting["lacking"] == pytest.approx(1.0 / (1.0 + 512 * 24.0 / hours), rel=1e-3)

    @pytest.mark.parametrize("spares", [0, 1, 2, 5])
    def test_waiting_is_erlangs_loss_formula(self, spares):
        shares = shares_of_time(waiting_states(64.0, 1.0, spares), 6335.0, 48.0)
        assert shares[-1] == pytest.approx(erlang_b(spares + 1, 64 * 48.0 / 6335.0), rel=1e-12)
        assert math.fsum(shares) == pytest.approx(1.0)

    def test_repairs_of_any_length_have_shares(self):
        """A thousand machines, all nearly always under repair: the weights of the states are larger than any number."""
        states = fewer_states(1000.0, 1.0, 0.0, lambda lacking, down: State(1000.0 - lacking, 1.0))
        shares = shares_of_time(states, 1.0, 1e6)
        assert math.fsum(shares) == pytest.approx(1.0)
        mean = math.fsum(down * share for down, share in enumerate(shares))
        assert mean == pytest.approx(1000 * 1e6 / (1e6 + 1.0), rel=1e-9)  # each is down r / (m + r) of the time

    @pytest.mark.parametrize("draw", [lambda r, mean: r.expovariate(1.0 / mean), lambda r, mean: mean], ids=["random", "constant"])
    @pytest.mark.parametrize("spares", [0, 2])
    def test_a_simulation_of_waiting_agrees(self, spares, draw):
        """The share of waiting depends on the mean repair time alone."""
        states = waiting_states(20.0, 1.0, spares)
        found = simulate(20, 1000.0, 60.0, spares, lambda down: states[down].machines, 7, draw)
        for down, share in enumerate(shares_of_time(states, 1000.0, 60.0)):
            assert found.get(down, 0.0) == pytest.approx(share, abs=0.012)

    def test_a_simulation_of_running_on_fewer_agrees(self):
        """Six machines, one spare; below six the job runs on three, below three it stops."""
        states = fewer_states(6.0, 60.0, 1.0, lambda lacking, down: State(3.0, 25.0) if lacking <= 3 else State(0.0, 0.0))
        found = simulate(6, 100.0, 40.0, 1, lambda down: states[down].machines, 3, lambda r, mean: r.expovariate(1.0 / mean))
        shares = shares_of_time(states, 100.0, 40.0)
        for down, share in enumerate(shares):
            assert found.get(down, 0.0) == pytest.approx(share, abs=0.015)
        rate = math.fsum(share * state.rate for share, state in zip(shares, states, strict=True))
        assert math.fsum(found.get(down, 0.0) * state.rate for down, state in enumerate(states)) == pytest.approx(rate, rel=0.02)

    def test_more_spares_never_lower_the_rate(self, spared):
        for policy in ("wait for repair", "run on fewer"):
            rows = [row for row in spared["spares"] if row["policy"] == policy]
            for key, order in (("tokens_per_second", 1), ("lacking", -1), ("held_gpus", 1)):
                values = [order * row[key] for row in rows]
                assert values == sorted(values), (policy, key)

    def test_running_on_fewer_is_never_slower_than_waiting(self, spared):
        rates = {(row["spares"], row["policy"]): row["tokens_per_second"] for row in spared["spares"]}
        for spares in (0.0, 1.0, 2.0, 4.0):
            assert rates[spares, "run on fewer"] >= rates[spares, "wait for repair"]

    def test_running_on_fewer_is_the_mean_of_the_smaller_runs(self):
        """Without spares, from the estimates: one node down of eight, then two, and so on; a pause where a repair lets the job grow."""
        asked = {**SMALL, "tokens": "1T", "mttf": "2000h", "price": 3.0}
        answer = elastic(**asked, lost="1node", repair_time="24h", spares="0")
        pause = 1000.0 + 14 * 8.0303e9 / (64 * 0.15e9)
        used, states, weight = 64, [], 1.0
        for down in range(8):
            now = max((n for n in range(8, 65 - 8 * down, 8) if rate_of(n)), key=rate_of)
            run = ironlaw.estimate(**{**asked, "gpus": now}).groups[0].run
            between = 1.0 - pause * down / (24 * 3600.0) if down and now != used else 1.0
            states.append((weight, rate_of(now) * float(run.failures.goodput.value[0]) * between))
            weight *= now / 8 * 24.0 / ((2000.0 / 8) * (down + 1))
            used = now
        mean = sum(w * rate for w, rate in states) / (sum(w for w, _ in states) + weight)
        row = next(row for row in answer["spares"] if (row["spares"], row["policy"]) == (0.0, "run on fewer"))
        assert row["tokens_per_second"] == pytest.approx(mean, rel=2e-3)

    def test_with_many_spares_the_goodput_is_that_of_failures_alone(self, spared):
        run = ironlaw.estimate(**RUN).groups[0].run
        last = next(row for row in spared["spares"] if row["spares"] == 8.0)
        assert last["goodput"] == pytest.approx(float(run.failures.goodput.value[0]), rel=1e-6)

    def test_the_cheapest_row_costs_least_and_its_cost_is_a_product(self, spared):
        best = [row for row in spared["spares"] if row["best"]]
        assert len(best) == 1
        assert best[0]["usd_per_million_tokens"] == min(row["usd_per_million_tokens"] for row in spared["spares"])
        for row in spared["spares"]:
            assert row["usd"] == pytest.approx(row["held_gpus"] * 3.0 * 1e12 / row["tokens_per_second"] / 3600.0, rel=1e-9)

    def test_the_best_interval_loses_least(self, spared):
        rows = {row["what"]: row["goodput"] for row in spared["checkpoints"]}
        assert rows["as used"] == max(rows.values())


class TestSpot:
    def test_without_notice_it_costs_what_money_says(self):
        paid = money(**RUN, spot_price=1.2, spot_mttf="5000h")
        spot = next(row for row in paid["ways"] if row["way"] == "spot")
        rows = elastic(**RUN, lost="8", spot_price=1.2, spot_mttf="5000h")["spot"]
        assert rows[1]["usd"] == pytest.approx(spot["usd"], rel=1e-9)
        demand = next(row for row in paid["ways"] if row["way"] == "on demand")
        assert rows[0]["usd"] == pytest.approx(demand["usd"], rel=1e-9)

    def test_a_rate_of_a_node_is_a_time_of_an_accelerator(self):
        """One interruption of a node of 8 in 625 hours: 5,000 accelerator hours for each."""
        one, other = (
            elastic(**RUN, lost="8", spot_price=1.2, **how)["spot"][1] for how in ({"spot_mttf": "5000h"}, {"spot_rate": 1 / 625})
        )
        assert one["usd"] == pytest.approx(other["usd"], rel=1e-12)

    @pytest.mark.parametrize("more", [{}, {"preemption_notice": "2min"}, {"preemption_notice": "2min", "replacement_time": "20min"}])
    def test_at_the_break_even_both_cost_the_same(self, more):
        asked = {**RUN, "lost": "8", "spot_price": 1.2, **more}
        even = elastic(**asked, spot_rate=0.001)["break_even"][0]["spot_rate"]
        demand, spot = elastic(**asked, spot_rate=even)["spot"]
        assert spot["usd"] == pytest.approx(demand["usd"], rel=1e-6)

    def test_notice_saves_work_only_where_a_checkpoint_fits_in_it(self):
        """14 bytes of 8.03 G parameters at 76.8 GB/s take 1.46 s."""
        asked = {**RUN, "lost": "8", "spot_price": 1.2, "spot_rate": 0.01}
        none, short, enough = (
            elastic(**asked, **how)["spot"][1]["goodput"] for how in ({}, {"preemption_notice": "1s"}, {"preemption_notice": "2min"})
        )
        assert none == short < enough

    def test_fewer_interruptions_never_cost_more(self):
        asked = {**RUN, "lost": "8", "spot_price": 1.2}
        costs = [elastic(**asked, spot_rate=rate)["spot"][1]["usd_per_million_tokens"] for rate in (0.02, 0.01, 0.001, 1e-6)]
        assert costs == sorted(costs, reverse=True)

    def test_a_dearer_spot_machine_never_breaks_even(self):
        answer = elastic(**RUN, lost="8", spot_price=3.5, spot_rate=0.001)
        assert answer["break_even"][0] == {}
        assert "never cost less" in " ".join(answer.headline)


def test_a_loss_is_read():
    assert [loss(text, "--lost")[1:] for text in ("8", "2nodes", "1 rack", "1domain", "25%", "1/3")] == [
        (8.0, "accelerator"), (2.0, "node"), (1.0, "rack"), (1.0, "rack"), (0.25, "share"), (1 / 3, "share")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"lost": "64"}, "fewer than the 64"),
        ({"lost": "0"}, "from 1"),
        ({"lost": "100%"}, "below all"),
        ({"lost": "two"}, "2nodes"),
        ({"spares": "1,2"}, "repair_time"),
        ({"spot_rate": 0.1}, "spot_price"),
        ({"spot_price": 1.0}, "spot_mttf or spot_rate"),
        ({"spot_price": 1.0, "spot_rate": 0.1, "spot_mttf": "3h"}, "not both"),
        ({"dp_shard": 8}, "leave dp_shard out"),
        ({"model": "gpt-2", "gpus": 1}, "nothing is left to run on; give gpus 2"),
        ({"gpus": 1}, "nothing is left to run on"),
        ({"tp": 7}, "no such plan"),
        ({"batch": "grow"}, "scale"),
    ],
)
def test_refusals(more, words):
    with pytest.raises(IronlawError, match=words):
        elastic(**{**SMALL, **more})


def test_the_json_has_its_tables(capsys):
    assert main(["elastic", "llama-3-8b", "--on", "h100-sxm", "--gpus", "64", "--lost", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"losses", "kept", "tokens_per_second", "terms"} <= set(found)
