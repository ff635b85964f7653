"""``ironlaw sites``: places of the catalogue, values of each site, which sites to take, DiLoCo's memory, hours of the day."""

from __future__ import annotations

import json
import re

import pytest

import ironlaw
from ironlaw import sites
from ironlaw.catalog import load
from ironlaw.cli.main import main
from ironlaw.errors import IronlawError
from ironlaw.law import collectives, wide_area
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.questions.sites.choose import ALL
from ironlaw.questions.sites.hours import count_windows, describe_hours, read_profile
from ironlaw.questions.sites.options import OPTIONS, hours_of_day

ASK = {
    "model": "llama-3-8b", "sites": "ashburn,dallas,lulea", "on": "h100-sxm", "gpus": 192, "wan_bandwidth": "10GB/s",
    "tokens": "1T", "global_batch_size": 768, "seq_len": 8192, "price": "2,2.5,1.5",
}  # fmt: skip
SIMPLE = {
    "parameters": 70e9, "mfu": 0.4, "on": "h100-sxm", "gpus": 1024, "tokens": 1e12, "global_batch_tokens": 4e6, "wan_bandwidth": "10GB/s",
    "price": 2,
}  # fmt: skip


def answer(**options):
    return sites(**{**ASK, **options})


def simple(**options):
    return sites(**{**SIMPLE, **options})


@pytest.fixture(scope="module")
def three():
    return answer()


def by(found, table, key="site"):
    return {row[key]: row for row in found[table]}


# Places


def test_a_region_of_a_cloud_is_the_city_of_its_data_centres():
    for region, city in {
        "us-east-1": "ashburn",
        "us-east1": "moncks-corner",
        "westeurope": "amsterdam",
        "eu-frankfurt-1": "frankfurt",
    }.items():
        assert load.resolve("sites", region) == city


def test_every_other_name_of_a_site_is_a_site():
    other = load.aliases()["sites"]
    assert len(other) > 120
    assert set(other.values()) <= set(load.names("sites"))


def test_cities_are_where_they_are():
    """Distances over the ground, as tables of air routes have them."""
    for a, b, km in (
        ("london", "new-york", 5570),
        ("frankfurt", "singapore", 10270),
        ("sydney", "tokyo", 7820),
        ("ashburn", "dallas", 1870),
    ):
        one, other = load.record("sites", a), load.record("sites", b)
        metres = wide_area.great_circle(one.latitude, one.longitude, other.latitude, other.longitude)
        assert metres == pytest.approx(km * 1e3, rel=0.01), (a, b)


def test_a_state_has_the_rate_of_egrid():
    """eGRID2023: Arizona 689.104 lb/MWh; a pound is 453.59237 g."""
    assert load.record("grids", "us-arizona").intensity.value * 3.6e9 == pytest.approx(689.104 * 0.45359237, rel=1e-3)


def test_the_list_of_sites_prints_regions(capsys):
    assert main(["catalog", "list", "sites"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^  ashburn +Ashburn, Virginia, United States \(us-east-1, .*eastus", out, re.MULTILINE)
    assert "johannesburg" in out


@pytest.mark.parametrize(("asked", "near"), [("us-est-1", "us-east-1"), ("frankfrt", "frankfurt"), ("singapor", "singapore")])
def test_an_unknown_place_names_the_nearest(asked, near):
    with pytest.raises(IronlawError, match=near):
        answer(sites=f"{asked},lulea")


# Values of each site


def test_prices_go_by_order_by_name_and_by_region():
    in_order, by_name = (by(answer(price=price), "costs") for price in ("2,2.5,1.5", {"us-east-1": 2, "dallas": 2.5, "lulea": 1.5}))
    in_text = by(answer(sites="us-east-1,dallas,lulea", price="us-east-1=2,2=2.5,lulea=1.5"), "costs")
    for name, price in {"ashburn": 2.0, "dallas": 2.5, "lulea": 1.5}.items():
        assert in_order[name]["price"] == by_name[name]["price"] == in_text[name]["price"] == pytest.approx(price)


def test_rent_goes_by_the_price_of_each_site(three):
    seconds = float(three["seconds"][0])
    rows = by(three, "costs")
    assert rows["dallas"]["rent"] == pytest.approx(64 * seconds * 2.5 / 3600)
    assert float(three["cost"]) == pytest.approx(64 * seconds * (2 + 2.5 + 1.5) / 3600)


def test_electricity_is_paid_on_top_only_where_it_is_asked_for(three):
    paid = answer(electricity_price="0.05,place,0.12")
    free, rows = by(three, "costs"), by(paid, "costs")
    power = by(paid, "by_site")
    assert free["dallas"]["usd"] == pytest.approx(free["dallas"]["rent"])
    for name, price in {"ashburn": 0.05, "dallas": 0.066, "lulea": 0.12}.items():
        bill = power[name]["energy"] / 3.6e6 * price
        assert rows[name]["electricity"] == pytest.approx(bill)
        assert rows[name]["usd"] == pytest.approx(rows[name]["rent"] + bill)
    assert float(paid["cost"]) > float(three["cost"])


def test_a_place_without_a_price_of_electricity_is_asked_for_by_name():
    with pytest.raises(IronlawError, match="electricity_price london=USD_PER_KWH"):
        answer(sites="ashburn,dallas,london", electricity_price="place")
    assert any("london" in line for line in answer(sites="ashburn,dallas,london").warnings)


def test_pue_and_grid_of_each_site():
    plain, found = by(answer(pue=1.0), "by_site"), by(answer(pue="1.1,1.2,1.3", grid="lulea=100"), "by_site")
    for name, pue in {"ashburn": 1.1, "dallas": 1.2, "lulea": 1.3}.items():
        assert found[name]["power"] == pytest.approx(pue * plain[name]["power"])
    assert found["lulea"]["intensity"] == pytest.approx(100.0)
    assert found["ashburn"]["intensity"] == pytest.approx(322.0)


def test_coordinates_name_their_place_however_they_are_written():
    found = by(simple(sites="45.90,9.0,oslo", grid="45.9,9.00=switzerland"), "by_site")
    assert found["45.9,9"]["intensity"] == pytest.approx(load.record("grids", "switzerland").intensity.value * 3.6e9)


def test_a_place_by_coordinates_has_an_assumed_grid_and_says_so():
    found = answer(sites="ashburn,dallas,65.6,22.2")
    assert any("cannot be compared" in line and "lulea" in line and "sweden" in line for line in found.warnings)
    assert not any("least carbon" in line for line in found.headline)
    known = answer(sites="ashburn,dallas,65.6,22.2", grid="65.6,22.2=sweden")
    assert not any("cannot be compared" in line for line in known.warnings)
    assert any("least carbon: 65.6,22.2" in line for line in known.headline)


# The network


def test_headers_take_a_part_of_the_line():
    """1,448 of 1,538 bytes on the wire are data."""
    slow, full = (answer(wan_efficiency=share, latency="40ms") for share in (None, 1))
    size = float(full["gradients"])
    assert float(full["exchange"]) == pytest.approx(float(collectives.ring_all_reduce(3, size, 10e9, 0.04)))
    assert float(slow["exchange"]) == pytest.approx(float(collectives.ring_all_reduce(3, size, 10e9 * 1448 / 1538, 0.04)), rel=1e-4)


def test_traffic_is_paid_by_the_terabyte():
    """Each of three sites sends 4/3 of the gradients in each of the exchanges of the run."""
    for more, per_step in (({}, 1.0), ({"inner_steps": 100}, 0.01), ({"inner_steps": 100, "outer_fragments": 10}, 0.01)):
        found = answer(wan_price="20,20,50", **more)
        pieces = more.get("outer_fragments", 1.0)
        sent = 4 / 3 * float(found["gradients"]) * pieces * float(found["steps"]) * per_step
        rows = by(found, "costs")
        assert rows["ashburn"]["sent"] == pytest.approx(sent)
        assert rows["ashburn"]["traffic"] == pytest.approx(sent * 20e-12)
        assert rows["lulea"]["usd"] == pytest.approx(rows["lulea"]["rent"] + sent * 50e-12)


def test_one_slow_line_slows_the_ring():
    fast, slow = (float(answer(wan_bandwidth=rate)["exchange"]) for rate in ("10GB/s", "dallas=1GB/s,ashburn=10GB/s,lulea=10GB/s"))
    assert slow > 8 * fast


def test_light_once_an_exchange_is_the_least_of_each_pair(three):
    row = by(three, "least_latency", "pair")["ashburn - dallas"]
    assert row["light"] == pytest.approx(row["metres"] / 299792458)
    assert row["waiting"] == pytest.approx(float(three["steps"]) * row["light"])
    assert row["gpu_seconds"] == pytest.approx(192 * row["waiting"])
    assert row["usd"] == pytest.approx(row["waiting"] / 3600 * 64 * (2 + 2.5 + 1.5))


# Sites that differ


@pytest.fixture(scope="module")
def unlike():
    return answer(sites="ashburn,lulea", on="h100-sxm,a100-sxm-80gb", gpus="64,64", price=None, batch_split="gpus")


def test_the_faster_site_waits_for_the_slower(unlike):
    rows = by(unlike, "waiting_by_site")
    fast, slow = rows["ashburn"], rows["lulea"]
    assert (fast["waits_for"], slow["waits_for"]) == ("lulea", "")
    assert fast["others"] == pytest.approx(slow["step"] - fast["step"])
    assert fast["share"] == pytest.approx(1 - fast["step"] / (slow["step"] + slow["exchange"]))
    assert unlike["compute_seconds"] == slow["step"]
    assert any("--batch-split balanced" in line for line in unlike.warnings)


def test_a_balanced_split_lets_the_sites_finish_together(unlike):
    found = answer(sites="ashburn,lulea", on="h100-sxm,a100-sxm-80gb", gpus="64,64", price=None)
    rows = by(found, "waiting_by_site")
    assert rows["ashburn"]["sequences"] + rows["lulea"]["sequences"] == 768
    assert rows["ashburn"]["sequences"] > rows["lulea"]["sequences"]
    assert found["compute_seconds"] < 0.85 * unlike["compute_seconds"]
    splits = by(found, "splits", "split")
    assert splits["balanced"]["step"] == found["compute_seconds"]
    assert splits["gpus"]["step"] == pytest.approx(unlike["compute_seconds"])


def test_the_simplified_split_is_by_the_peak():
    found = simple(sites="ashburn,lulea", on="h100-sxm,a100-sxm-80gb", gpus="512,512", batch_split="balanced")
    one, other = (row["step"] for row in found["waiting_by_site"])
    assert one == pytest.approx(other)
    assert found["compute_seconds"] == pytest.approx(6 * 70e9 * 4e6 / (0.4 * 512 * (989.4e12 + 312e12)), rel=1e-3)


# Which sites to take


def test_every_subset_is_a_row_and_the_whole_is_the_answer(three):
    rows = by(three, "choices", "sites")
    assert len(rows) == 7
    whole = rows["ashburn + dallas + lulea"]
    assert whole["seconds"] == pytest.approx(float(three["seconds"][0]))
    assert whole["usd"] == pytest.approx(float(three["cost"]))
    assert whole["carbon"] == pytest.approx(float(three["carbon"]))


def test_a_site_alone_waits_for_nobody_and_takes_longer(three):
    row = by(three, "choices", "sites")["lulea"]
    steps, whole = float(three["steps"]), ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=64, global_batch_size=768, seq_len=8192)
    assert row["seconds"] == pytest.approx(steps * float(whole.groups[0].step.tree.value[0]))
    assert row["seconds"] == pytest.approx(3 * steps * three["compute_seconds"], rel=0.03)
    assert row["share"] == 0.0
    assert row["usd"] == pytest.approx(64 * row["seconds"] * 1.5 / 3600)


def test_a_site_alone_does_not_depend_on_how_others_shared_the_batch():
    found = [answer(sites="ashburn,lulea", gpus="64,128", price="2,2", batch_split=split) for split in ("even", "gpus", "balanced")]
    alone = [{name: row["seconds"] for name, row in by(one, "choices", "sites").items() if "+" not in name} for one in found]
    assert alone[0] == alone[1] == alone[2] and len(alone[0]) == 2
    assert alone[0]["ashburn"] > 1.9 * alone[0]["lulea"]
    together = [by(one, "choices", "sites")["ashburn + lulea"]["seconds"] for one in found]
    assert together[0] > 1.3 * together[1]  # an even split lets the larger site wait


def test_a_site_takes_every_option_of_an_estimate_that_changes_its_step():
    """What is exchanged is what is trained: of adapters of rank 16 beside attention 13.6 million parameters of 8.03 billion."""
    assert set(ESTIMATE) - set(OPTIONS) == {name for name, option in ESTIMATE.items() if "sites" in option.left_out}
    one = {"model": "llama-3-8b", "sites": "ashburn,dallas", "gpus": 16, "price": 2, "global_batch_size": 64, "tokens": "1B"}
    plain, host, tuned = (answer(**one, **more) for more in ({}, {"offload": "optimizer"}, {"lora_rank": 16}))
    assert host["compute_seconds"] > plain["compute_seconds"]
    step = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, global_batch_size=32, seq_len=8192, offload="optimizer", tokens=1e9)
    assert host["compute_seconds"] == pytest.approx(float(step.groups[0].step.tree.value[0]))
    adapters = 32 * 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024))  # queries and output, keys and values
    assert float(tuned["gradients"]) == 2 * adapters and float(plain["gradients"]) == 2 * 8030261248


def test_the_best_are_the_least_of_their_columns(three):
    rows = three["choices"]
    for goal, column in {"time": "seconds", "money": "usd", "carbon": "carbon"}.items():
        best = next(row for row in rows if goal in row["best"])
        assert best[column] == min(row[column] for row in rows)


def test_a_deadline_leaves_the_choices_that_meet_it(three):
    rows = sorted(three["choices"], key=lambda row: row["seconds"])
    found = answer(deadline=rows[3]["seconds"] / 86400 * 1.0001)
    able = [row for row in found["choices"] if not row["why_not"]]
    assert len(able) == 4
    assert found.feasible
    assert next(row for row in found["choices"] if "money" in row["best"])["usd"] == min(row["usd"] for row in able)
    never = answer(deadline=0.001)
    assert not never.feasible
    assert any("no choice of these sites meets" in line for line in never.headline)


def test_many_sites_have_each_alone_pairs_and_all_but_one():
    names = ["ashburn", "dallas", "lulea", "oslo", "paris", "madrid", "tokyo", "sydney"]
    found = simple(sites=names)
    assert len(names) > ALL
    assert len(found["choices"]) == 8 + 28 + 8 + 1
    assert next(iter(simple(sites=10)["choices"]))["sites"] == "10 sites"


def test_sites_that_cannot_run_are_no_choice():
    found = answer(power_limit="dallas=1kW")
    assert not found.feasible
    for row in found["choices"]:
        assert ("too little power" in row["why_not"]) == ("dallas" in row["sites"])


# DiLoCo's outer state


def test_the_outer_state_is_eight_bytes_of_each_parameter_that_an_accelerator_updates():
    """Sharded like AdamW's states over all 64 accelerators of a site: 8 x 8.03e9 / 64 bytes."""
    given = {
        "sites": "ashburn,dallas",
        "gpus": 128,
        "price": 2,
        "every": 100,
        "tp": 1,
        "pp": 1,
        "zero": 3,
        "dp_shard": 64,
        "global_batch_size": 512,
    }
    host, device = (answer(**given, outer_state=where) for where in ("host", "device"))
    expected = 8 * 8030261248 / 64
    for found in (host, device):
        assert by(found, "outer_state")["ashburn"]["outer"] == pytest.approx(expected, rel=1e-6)
    one, other = by(host, "outer_state")["ashburn"], by(device, "outer_state")["ashburn"]
    assert other["device"] == pytest.approx(one["device"] + expected, rel=1e-6)
    assert one["host"] == pytest.approx(expected, rel=1e-6)
    assert host.feasible and device.feasible


def test_a_plan_leaves_room_for_an_outer_state_on_the_device():
    """On eight accelerators a site the best plan has no room; the plan that has is slower."""
    given = {"model": "llama-3-8b", "sites": "ashburn,dallas", "gpus": 16, "price": 2, "inner_steps": 100, "global_batch_size": 64}
    host, device = (answer(**given, outer_state=where) for where in ("host", "device"))
    row, roomy = by(host, "outer_state")["ashburn"], by(device, "outer_state")["ashburn"]
    assert host.feasible and device.feasible
    assert roomy["device"] <= roomy["capacity"]
    if row["device"] + row["outer"] > row["capacity"]:
        assert device["compute_seconds"] >= host["compute_seconds"]


def test_an_outer_state_without_room_is_a_no():
    """Two accelerators a site update half of 8B parameters each: 32 GB. A margin that is given is kept, and leaves no room for them."""
    given = {"model": "llama-3-8b", "sites": "ashburn,dallas", "gpus": 4, "price": 2, "inner_steps": 100, "global_batch_size": 64,
             "margin": 0.2, "optimizer": "adamw-8bit"}  # fmt: skip
    host, device = (answer(**given, outer_state=where) for where in ("host", "device"))
    row = by(device, "outer_state")["ashburn"]
    assert row["outer"] == pytest.approx(8 * 8030261248 / 2, rel=0.01)
    assert row["device"] > 0.8 * row["capacity"]
    assert host.feasible
    assert not device.feasible
    assert "the outer state of DiLoCo does not fit ashburn" in device.headline[0]


def test_a_choice_is_near_the_run_that_it_stands_for(three):
    """A site keeps its tokens/s in the table; asked alone, the two sites have larger shares and the plans of these."""
    row = by(three, "choices", "sites")["ashburn + dallas"]
    alone = answer(sites="ashburn,dallas", gpus=128, price="2,2.5")
    assert row["seconds"] == pytest.approx(float(alone["seconds"][0]), rel=0.05)
    assert row["usd"] == pytest.approx(float(alone["cost"]), rel=0.05)


# Hours of the day


def test_hours_are_read_as_windows():
    assert hours_of_day("22-6", "--hours") == (0, 1, 2, 3, 4, 5, 22, 23)
    assert count_windows(hours_of_day("22-6", "--hours")) == 1
    assert count_windows(hours_of_day("0-4,20-24", "--hours")) == 1
    assert count_windows(hours_of_day("2-4,20-22", "--hours")) == 2
    assert describe_hours(hours_of_day("22-6", "--hours")) == "22-6"
    assert describe_hours(hours_of_day("2-4,20-22", "--hours")) == "2-4, 20-22"
    for wrong in ("8-8", "25-3", "night"):
        with pytest.raises(IronlawError):
            hours_of_day(wrong, "--hours")


def test_a_run_in_a_third_of_the_hours_takes_three_times_as_long(three):
    found = answer(hours="0-8", restart_time="1e-9s", carbon_profile={"lulea": [10.0] * 8 + [100.0] * 16})
    always, asked = found["hours"][:2]
    assert always["seconds"] == pytest.approx(float(three["seconds"][0]))
    assert asked["seconds"] == pytest.approx(3 * always["seconds"])
    assert asked["usd"] == pytest.approx(always["usd"])
    assert asked["held"] == pytest.approx(3 * always["usd"])
    energy = by(found, "by_site")["lulea"]["energy"] / 3.6e6
    assert always["carbon"] - asked["carbon"] == pytest.approx(energy * (70 - 10) / 1e3)


def test_a_restart_after_each_pause_costs_time_and_energy():
    free, paid = (answer(hours="0-8", restart_time=time)["hours"][1] for time in ("1e-9s", "1h"))
    assert paid["seconds"] == pytest.approx(free["seconds"] * 8 / 7)
    assert paid["carbon"] == pytest.approx(free["carbon"] * 8 / 7)


def test_the_cleanest_window_is_found():
    profile = [300.0] * 24
    profile[10:18] = [50.0] * 8
    found = simple(sites="ashburn,dallas", hours="0-8", carbon_profile={"ashburn": profile, "dallas": profile})
    rows = by(found, "hours", "hours")
    assert {"0-8", "10-18", "all"} <= set(rows)
    assert rows["10-18"]["carbon"] < rows["0-8"]["carbon"]
    assert rows["10-18"]["intensity"] == pytest.approx(50.0)


def test_a_profile_is_read_from_a_file_of_a_day_or_of_a_year(tmp_path):
    day, year = tmp_path / "day.csv", tmp_path / "year.csv"
    day.write_text("hour,g\n" + "\n".join(f"{hour},{100 + hour}" for hour in range(24)), encoding="utf-8")
    year.write_text(
        "\n".join(f"2025-01-01T{hour % 24:02d}:00Z,{(100 if hour < 24 else 200) + hour % 24}" for hour in range(48)), encoding="utf-8"
    )
    assert read_profile(day) == tuple(100.0 + hour for hour in range(24))
    assert read_profile(year) == tuple(150.0 + hour for hour in range(24))
    day.write_text("1\n2\n3\n", encoding="utf-8")
    with pytest.raises(IronlawError, match="must be 24"):
        read_profile(day)
    day.write_text("1\nmany\n", encoding="utf-8")
    with pytest.raises(IronlawError, match="line 2"):
        read_profile(day)


def test_a_grid_of_the_catalogue_may_have_hours(tmp_path):
    folder = tmp_path / "grids"
    folder.mkdir()
    hours = ", ".join(f'"{hour}" = {{ value = "{10 + hour} g/kWh", source = "own" }}' for hour in range(24))
    text = f'title = "Ours"\nyear = 2026\nintensity = {{ value = "21.5 g/kWh", source = "own" }}\nhourly = {{ {hours} }}\n'
    text += '[sources.own]\ntitle = "Meter"\nurl = "https://a.example"\nread = 2026-11-23\ngrade = "measured"\n'
    (folder / "ours.toml").write_text(text, encoding="utf-8")
    found = simple(sites="ashburn,dallas", hours="0-1", restart_time="1e-9s", carbon_profile={"ashburn": "ours"}, catalog=(str(tmp_path),))
    assert found["hours"][0]["carbon"] > found["hours"][1]["carbon"]
    with pytest.raises(IronlawError, match="no hourly values"):
        simple(sites="ashburn,dallas", hours="0-1", carbon_profile={"ashburn": "sweden"})


# Refusals


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"price": "ashburn=2,2.5"}, "has no name"),
        ({"on": "ashburn=h100-sxm"}, "no accelerator for dallas"),
        ({"gpus": "ashburn=64,dallas=64"}, "no count for lulea"),
        ({"outer_state": "host"}, "no effect with an exchange every step"),
        ({"parameters": "7B"}, "not both"),
        ({"hours": "0-8", "deadline": 3}, "deadline"),
        ({"restart_time": "1h"}, "hours"),
        ({"carbon_profile": [[1.0] * 24]}, "different grids"),
        ({"carbon_profile": {"ashburn": [1.0] * 23}}, "24 numbers"),
        ({"carbon_profile": {"ashburn": "nowhere.csv"}}, "nowhere.csv"),
        ({"hours": "0-1", "restart_time": "2h"}, "give more hours in a row"),
        ({"on": "h100-sxm,a100-sxm-80gb,h100-sxm", "node": "dgx-h100"}, "different accelerators"),
        ({"electricity_price": "-1"}, "from 0"),
        ({"wan_efficiency": 1.2}, "at most 1"),
        ({"batch_split": "fair"}, "balanced"),
    ],
)
def test_wrong_questions_are_refused_in_one_line(more, said):
    with pytest.raises(IronlawError, match=said.replace("(", r"\(")) as error:
        answer(**more)
    assert "\n" not in str(error.value)


def test_the_json_of_a_choice_is_in_si_units(capsys):
    words = ["sites", "--parameters", "70B", "--mfu", "0.4", "--sites", "ashburn,lulea", "--on", "h100-sxm", "--gpus", "1024"]
    words += ["--tokens", "1T", "--global-batch-tokens", "4M", "--wan-bandwidth", "100Gb/s", "--price", "ashburn=2,lulea=1.5", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"sites", "gpus", "tokens_per_second", "seconds", "share", "power", "usd", "carbon", "best"} <= set(found["choices"][0])
    assert found["asked"]["given"]["price"] == "ashburn=2,lulea=1.5"
