"""The slide of a comparison: every row as ``estimate`` and ``plan`` answer it, the run, limits, power, prices, network and storage."""

from __future__ import annotations

import json
import math

import pytest

import ironlaw
from ironlaw import compare
from ironlaw.catalog import load
from ironlaw.earlier import MOVED
from ironlaw.errors import QuestionError, UnsupportedError
from ironlaw.progress import watched
from ironlaw.report.answer import answer_csv, answer_data, answer_markdown

RUN = {"tokens": "1T", "grid": 100, "pue": 1.2}
ON = "h100-sxm,gb200"


@pytest.fixture(scope="module")
def slide():
    return compare("llama-3-8b", on=ON, gpus="64,128", **RUN)


def test_every_row_is_the_answer_of_estimate_and_plan(slide, ask):
    assert [(row["gpus"], row["accelerator"]) for row in slide["estimate"]] == [
        (64, "gb200"), (64, "h100-sxm"), (128, "gb200"), (128, "h100-sxm"),
    ]  # fmt: skip
    for row in (row for row in slide["estimate"] if row["gpus"] == 64):
        words = ("llama-3-8b", "--on", row["accelerator"], "--gpus", int(row["gpus"]), "--tokens", "1T", "--grid", 100, "--pue", 1.2)
        alone = ironlaw.estimate("llama-3-8b", on=row["accelerator"], gpus=row["gpus"], **RUN).row(0)
        best = json.loads(ask("plan", *words, "--json")[1])["plans"][0]
        assert best["run"] == alone["run"]
        run = alone["run"]
        assert row["tokens_per_second"] == alone["throughput"]["tokens_per_second"] == best["throughput"]["tokens_per_second"]
        assert (row["mfu"], row["bound"]) == (alone["throughput"]["mfu"], alone["bound"]["by"])
        assert [row[key] for key in ("days", "usd", "days_with_failures", "usd_with_failures")] == [
            run[key] for key in ("days", "usd", "days_with_failures", "usd_with_failures")
        ]
        assert row["energy_with_failures"] / 3.6e6 == run["kwh_with_failures"]
        assert row["carbon_with_failures"] * 1e3 == pytest.approx(run["kg_co2e_with_failures"], rel=1e-15)
        low, high, _ = alone["step"]["band"]
        tokens = row["batch_tokens"]
        assert (row["tokens_per_second_low"], row["tokens_per_second_high"]) == pytest.approx((tokens / high, tokens / low), rel=1e-12)
        assert row["fits_probability"] == alone["memory"]["fits_probability"]
        assert row["memory_free"] == alone["memory"]["capacity_bytes"] - alone["memory"]["device"]


def test_energy_is_power_times_time_and_carbon_follows_the_grid(slide):
    """By hand: an H100 has 700 W and an eighth of 4,600 W of its host; times PUE 1.2; 100 g/kWh."""
    row = next(row for row in slide["estimate"] if row["accelerator"] == "h100-sxm" and row["gpus"] == 64)
    watts = 64 * (700 + 4600 / 8) * 1.2
    assert row["power"] == pytest.approx(watts, rel=1e-12)
    mwh = watts * row["days_with_failures"] * 24 / 1e6
    assert row["mwh_with_failures"] == pytest.approx(mwh, rel=1e-12)
    assert row["carbon_with_failures"] == pytest.approx(mwh * 0.1, rel=1e-12)
    assert row["gpu_hours_with_failures"] == pytest.approx(64 * 24 * row["days_with_failures"], rel=1e-12)


def test_the_answer_comes_first_and_the_order_is_that_of_the_objective(slide):
    assert slide.tables[0].name == "estimate"
    for count in (64, 128):
        rows = [row for row in slide["estimate"] if row["gpus"] == count]
        assert [row["usd_with_failures"] for row in rows] == sorted(row["usd_with_failures"] for row in rows)
    fastest = compare("llama-3-8b", on="gb200,h100-sxm", gpus="64,128", minimize="time", **RUN)
    assert fastest.headline[0].startswith("fastest: 64 x gb200")
    again = compare("llama-3-8b", on="gb200,h100-sxm", gpus="64,128", **RUN)
    assert [dict(row) for row in again["estimate"]] == [dict(row) for row in slide["estimate"]]


def test_overlapping_bands_make_the_order_uncertain():
    both = compare("llama-3-8b", on="h100-sxm,h200-sxm", gpus=64, price=2.0)
    best, other = both["estimate"]
    assert other["tokens_per_second_high"] > best["tokens_per_second_low"]
    assert any("too close to call" in line and other["accelerator"] in line for line in both.headline)
    apart = compare("llama-3-8b", on="a100-sxm-80gb,gb200", gpus=64, price=2.0)
    assert apart["estimate"][1]["tokens_per_second_high"] < apart["estimate"][0]["tokens_per_second_low"]
    assert not any("too close to call" in line for line in apart.headline)


def test_the_fewest_accelerators_that_meet_a_deadline():
    """24 and 32 H100 are neighbours of the list 1, 3, 5, 7 times powers of two of nodes."""
    row = compare("llama-3-8b", on="h100-sxm", deadline=40, **RUN)["estimate"][0]
    assert row["answer"] and row["days_with_failures"] <= 40
    fewer = max(n for n in (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128) if n < row["gpus"])
    refused = compare("llama-3-8b", on="h100-sxm", deadline=40, gpus=fewer, **RUN)
    assert not refused["estimate"][0]["answer"] and refused.exit_status == 1
    assert "too slow" in refused["refused"][0]["why_not"]
    assert refused["refused"][0]["nearest_gpus"] == [row["gpus"]]


def test_the_fastest_run_within_a_budget():
    flat = {**RUN, "on": "h100-sxm", "budget": "250k", "tp": 1, "pp": 1, "micro_batch_size": 1}
    answer = compare("llama-3-8b", **flat)
    row = answer["estimate"][0]
    assert row["usd_with_failures"] <= 250e3
    assert answer.headline[0].startswith("fastest")
    assert row["gpus"] <= 1024  # with tp 1 and pp 1 every accelerator has a sequence, and the limit is 8 Mi tokens
    dear = compare("llama-3-8b", **{**flat, "budget": 0.9 * row["usd_with_failures"]}, gpus=row["gpus"])
    assert "over the budget" in dear["refused"][0]["why_not"]
    assert all(count < row["gpus"] for count in dear["refused"][0].get("nearest_gpus", []))


def test_a_budget_that_pays_for_no_run():
    """By hand: 6 x 8.03e9 x 1e12 FLOP at 1,979 TFLOP/s in fp8 take 6,762.9 hours, which cost 25,563.7 USD at 3.78 USD/h."""
    why = compare("llama-3-8b", on="h100-sxm", budget="20k", **RUN)["refused"][0]["why_not"]
    assert why == "over the budget: at the peak the run costs 25,564 USD"
    few = compare("llama-3-8b", on="h100-sxm", budget="30k", tp=1, pp=1, micro_batch_size=1, **RUN)["refused"][0]["why_not"]
    assert "no round count of h100-sxm is within the limits; the cheapest run is" in few


def test_a_power_limit_is_of_the_facility():
    """By hand: 1 MW over (700 + 575) W times 1.2 is 653.6 H100; 648 are 81 nodes."""
    answer = compare("llama-3-8b", on="h100-sxm", power_limit="1MW", pue=1.2)
    row = answer["estimate"][0]
    assert row["gpus_under_power_limit"] == 653
    assert row["gpus"] <= 653 and row["gpus"] % 8 == 0 and row["power"] <= 1e6
    over = compare("llama-3-8b", on="h100-sxm", power_limit="1MW", pue=1.2, gpus=1024)
    refused = over["refused"][0]
    assert "over the power limit: 1.567 MW of 1 MW" in refused["why_not"]
    assert 600 <= refused["nearest_gpus"][0] <= 653


def test_switches_draw_power_where_they_are_counted():
    """By hand: 64 H100 on 64-port switches take one, of 1,720 W; times PUE 1.2."""
    plain, counted = (
        compare("llama-3-8b", on="h100-sxm", gpus=64, **RUN, **more)["estimate"][0] for more in ({}, {"network_power": "switches"})
    )
    assert counted["power"] - plain["power"] == pytest.approx(1720 * 1.2, rel=1e-9)
    assert counted["mwh_with_failures"] / plain["mwh_with_failures"] == pytest.approx(counted["power"] / plain["power"], rel=1e-12)
    given = compare("llama-3-8b", on="h100-sxm", gpus=64, network_power="100W", **RUN)["estimate"][0]
    assert given["power"] - plain["power"] == pytest.approx(6400 * 1.2, rel=1e-9)


def test_a_row_that_does_not_fit_says_what_the_smallest_plan_needs():
    answer = compare("llama-3-70b", on="h100-sxm", gpus=4)
    row = answer["refused"][0]
    smallest = ironlaw.estimate("llama-3-70b", on="h100-sxm", gpus=4).device_bytes[0] / 2**30
    assert f"needs {smallest:,.1f} GiB, an accelerator has 79.6 GiB" in row["why_not"]
    assert ironlaw.estimate("llama-3-70b", on="h100-sxm", gpus=row["nearest_gpus"][0]).fits[0]
    assert answer.exit_status == 1


def test_a_count_that_divides_badly_says_which_rule_and_the_counts_that_work():
    answer = compare("llama-3-8b", on="h100-sxm", gpus=1999, global_batch_size=512)
    assert answer["refused"][0]["why_not"].startswith("the count divides badly: micro_batch_size 1 * dp 1999 does not divide")
    assert answer["refused"][0]["nearest_gpus"] == [1984.0, 2048.0]
    assert answer.exit_status == 2


@pytest.mark.slow
def test_many_l4_answer_as_plan_does(ask):
    """8,192 L4 at batch 512, which no shallow choice of plans could hold."""
    row = compare("llama-3-70b", on="l4", gpus=8192, global_batch_size=512)["estimate"][0]
    words = ("llama-3-70b", "--on", "l4", "--gpus", 8192, "--global-batch-size", 512, "--json")
    best = json.loads(ask("plan", *words)[1])["plans"][0]
    assert row["tokens_per_second"] == best["throughput"]["tokens_per_second"]
    found = compare("llama-3-70b", on="l4", target_tokens_per_second=200e3)["estimate"][0]
    assert found["answer"] and found["gpus"] <= 14336


def test_a_count_that_divides_badly_is_warned_of_with_how_many_to_leave_idle():
    """124 are 4 x 31, so that only four ranks can share eight experts."""
    answer = compare("mixtral-8x7b", on="h100-sxm", gpus=124)
    line = next(line for line in answer.warnings if "of your 124 process" in line)
    count = int(line.split(" of your")[0])
    rates = [ironlaw.estimate("mixtral-8x7b", on="h100-sxm", gpus=n).tokens_per_second[0] for n in (124, count)]
    assert f"process {rates[1] / rates[0] - 1:.0%} more" in line
    assert not [line for line in compare("llama-3-8b", on="h100-sxm", gpus=64).warnings if "of your" in line]


def test_what_one_accelerator_cannot_do_is_a_row_that_answers_no():
    answer = compare("llama-3-8b", on="h100-sxm,a100-sxm-80gb", gpus=64, precision="fp8")
    assert [(row["accelerator"], row["answer"]) for row in answer["estimate"]] == [("h100-sxm", True), ("a100-sxm-80gb", False)]
    assert "a100-sxm-80gb has no such matrix rate" in answer["refused"][0]["why_not"]
    with pytest.raises(UnsupportedError, match="no such matrix rate"):
        compare("llama-3-8b", on="a100-sxm-80gb", gpus=64, precision="fp8")


def test_no_count_is_said_only_where_none_works():
    answer = compare("llama-3-8b", on="h100-sxm", target_tokens_per_second=2e6, tp=8, pp=4, dp_replicate=1, dp_shard=1)
    row = answer["refused"][0]
    assert "no plan of h100-sxm on a round count up to 131,072 fits and reaches 2,000,000 tokens/s" in row["why_not"]
    assert "gpus" not in row


def test_several_targets_have_rows_of_their_own():
    rows = compare("llama-3-8b", on="h100-sxm", target_tokens_per_second="200k,500k")["estimate"]
    assert [row["target_tokens_per_second"] for row in rows] == [200e3, 500e3]
    assert all(row["tokens_per_second"] >= row["target_tokens_per_second"] for row in rows)
    assert rows[0]["gpus"] < rows[1]["gpus"]


def test_prices_that_cannot_be_compared_are_warned_of():
    def warnings(**options):
        return [line for line in compare("llama-3-8b", gpus=64, **options).warnings if "not comparable" in line]

    mixed = warnings(on="h100-sxm,h200-sxm", price="h100-sxm=Google Cloud/reserved-3y")
    assert len(mixed) == 1
    assert "terms differ" in mixed[0] and "reserved-3y for h100-sxm" in mixed[0] and "dates are" in mixed[0]
    assert "providers differ" in warnings(on="h100-sxm,mi300x")[0]
    assert "given" in warnings(on="h100-sxm,h200-sxm", price="h100-sxm=2.5")[0]
    assert not warnings(on="h100-sxm,h200-sxm", price=2.5)
    assert not warnings(on="h100-sxm")


def test_an_accelerator_without_a_price_is_answered_all_the_same():
    answer = compare("llama-3-8b", on=f"{unpriced()},h100-sxm", gpus=64, tp=1, pp=1)
    row = next(row for row in answer["estimate"] if row["accelerator"] != "h100-sxm")
    assert row["tokens_per_second"] > 0 and math.isnan(row["usd_per_hour"])
    assert any("no price of" in line for line in answer.warnings)


def unpriced():
    return next(name for name in sorted(load.names("accelerators", ())) if name not in load.names("prices", ()))


def test_checkpoints_take_14_bytes_a_parameter():
    """By hand: 8.03 B parameters times 14 B; the rate at which a write takes 1 % of the time between writes is S / (2 0.01^2 M)."""
    answer = compare("llama-3-8b", on="h100-sxm", gpus=64, mttf="64000h", checkpoints_kept=3)
    row = answer["storage"][0]
    parameters = answer["parameters"]["total"]
    assert row["checkpoint_bytes"] == 14 * parameters
    assert row["checkpoints_bytes"] == 3 * 14 * parameters
    assert row["write_rate_needed"] == pytest.approx(14 * parameters / (2 * 1e-4 * 1000 * 3600), rel=1e-9)
    assert row["write_rate"] == 64 * 0.15e9


@pytest.mark.parametrize("name", [moved.option for moved in MOVED if moved.verb == "compare" and moved.option != "three_roof"])
def test_an_earlier_option_of_the_three_roof_model_asks_for_its_chapter(name):
    given = {"task": "training", "peak": "900TFLOP/s", "bandwidth": "3TB/s", "nic": "25GB/s", "parameters": "8B", "roofs": "serial",
             "gpus_per_replica": 2}.get(name, 2 if name in ("dp", "gradient_bytes", "kappa", "c_act", "gamma") else 1)  # fmt: skip
    answer = compare("llama-3-8b", on="h100-sxm", gpus=64, **{name: given})
    assert answer.verb == "textbook" and answer["three_roofs"]
    printed = compare("llama-3-8b", on="h100-sxm", gpus=64, three_roof="as-printed", **{name: given})
    assert printed.given["formulas"] == "as-printed" and "bound_at_given_ranks" in printed["three_roofs"][0]


def test_the_three_roof_model_switched_off_as_earlier_is_a_comparison():
    assert compare("llama-3-8b", on="h100-sxm", gpus=64, three_roof="off").verb == "compare"


def test_a_newcomer_sees_no_three_roof_model(slide):
    assert not {"three_roofs", "crossovers", "knobs"} & {table.name for table in slide.tables if table.rows}
    assert not any("three-roof" in line for line in (*slide.headline, *slide.warnings))


def test_every_table_has_every_form(slide):
    data, markdown, csv = answer_data(slide), answer_markdown(slide), answer_csv(slide)
    tables = [table for table in slide.tables if table.rows]
    assert [table.name for table in tables][:3] == ["estimate", "run", "plans"]
    for table in tables:
        assert len(data[table.name]) == len(table.rows)
        assert f"## {table.title}" in markdown
        assert f"# {table.name}: {table.title}" in csv
        assert answer_csv(slide, table.name).count("\n") == len(table.rows)
    for row in slide["estimate"]:
        assert f"{row['tokens_per_second']:,.0f}" in markdown and repr(row["tokens_per_second"]) in csv


def test_frameworks_are_compared_with_flags_and_the_parameters_of_the_model(ask):
    words = ("compare", "llama-3-8b", "--on", "h100-sxm", "--gpus", 64, "--framework", "megatron,torchtitan-compile")
    _, out, _ = ask(*words)
    assert out.splitlines()[0].startswith("Llama 3 8B (8.03 B parameters)")
    assert "--use-distributed-optimizer" in out and "--parallelism.data_parallel_shard_degree" in out
    data = json.loads(ask(*words, "--flags", "off", "--json")[1])
    assert data["flags"] == []
    assert data["parameters"]["total"] == 8030261248


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"deadline": 30}, "tokens"),
        ({"budget": 1e6}, "tokens"),
        ({"gpus": "8,16", "target_tokens_per_second": "1k,2k"}, "not both"),
        ({"gpus": 8, "on": "h100-sxm,h200-sxm", "node": "dgx-h100"}, "node"),
    ],
)
def test_refusals(options, words):
    with pytest.raises(QuestionError, match=words):
        compare("llama-3-8b", **{"on": "h100-sxm", **options})


def test_cells_are_counted_for_whoever_watches_and_python_prints_none(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    seen = []
    with watched(seen.append):
        compare("llama-3-8b", on="h100-sxm", gpus="8,16", tp=1, pp=1)
    told = [one for one in seen if one is not None]
    assert told[-1].done == told[-1].of == 2 and [one.done for one in told] == sorted(one.done for one in told)
    assert capsys.readouterr().err == ""


def test_the_headline_says_why_no_row_answers_yes_and_rows_are_told_once():
    asked = {"model": "llama-3-8b", "on": "h100-sxm,b200-sxm", "gpus": 64, "tokens": "1T", "power_limit": "50kW"}
    refused = compare(**asked)
    assert not refused.feasible
    for row in refused["refused"]:
        assert any(row["why_not"] in line for line in refused.headline) and row["nearest_gpus"]
    for table in refused.tables[1:]:
        if table.name in ("refused", "run", "plans", "memory", "network", "storage"):
            assert all(set(row) <= {"nearest_gpus", *(column.key for column in table.columns)} for row in table.rows)
