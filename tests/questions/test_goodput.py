"""``ironlaw goodput``: sizes, components, rates of other sites, checks against published runs, refusals, the command."""

from __future__ import annotations

import json
import shlex

import pytest

from ironlaw import goodput
from ironlaw.cli.main import main
from ironlaw.errors import IronlawError
from ironlaw.law import goodput as law

ASK = {"on": "h100-sxm", "work": "54days", "parameters": "405B"}
LLAMA = {"on": "h100-sxm", "tp": 8, "pp": 16, "global_batch_size": 2048, "tokens": "15.6T"}


def test_more_accelerators_fail_more_often():
    rows = goodput(**ASK, gpus=[1024, 4096, 16384])["sizes"]
    assert [row["gpus"] for row in rows] == [1024, 4096, 16384]
    every = [row["mttf"] for row in rows]
    assert every[0] == pytest.approx(4 * every[1])
    assert every[1] == pytest.approx(4 * every[2])
    assert rows[0]["goodput"] > rows[1]["goodput"] > rows[2]["goodput"]


@pytest.mark.parametrize("gpus", [64, 16384, 131072])
def test_shares_of_the_run_time_add_up_to_one(gpus):
    (row,) = goodput(**ASK, gpus=gpus)["sizes"]
    parts = [row[name] for name in ("goodput", "checkpoints", "restarts", "again")]
    assert sum(parts) == pytest.approx(1)
    assert all(0 <= part <= 1 for part in parts)


def test_restarts_are_a_part_of_the_expected_time():
    """With free checkpoints at an interval near zero no work is repeated: only restarts take time."""
    wall = law.time_with_failures(1.0, 1e-6, 0.0, 100.0, 1000.0)
    assert 1 - 1 / float(wall) == pytest.approx(float(law.restart_share(100.0, 1000.0)), rel=1e-6)


def test_goodput_equals_that_of_the_estimate():
    from ironlaw.estimate.answer.estimate import estimate

    (row,) = goodput("llama-3.1-405b", gpus=16384, **LLAMA)["sizes"]
    run = estimate("llama-3.1-405b", gpus=16384, **LLAMA).groups[0].run
    assert row["goodput"] == float(run.failures.goodput.value[0])
    assert row["seconds"] == float(run.failures.seconds.value[0])


def test_components_are_those_of_llama_3_and_sum_up():
    answer = goodput(**ASK, gpus=16384)
    seen = {row["component"]: row["seen"] for row in answer["components"]}
    assert (seen["faulty GPU"], seen["HBM3"], seen["switch or cable"]) == (148, 72, 35)
    assert sum(seen.values()) == 419
    assert sum(row["expected"] for row in answer["components"]) == pytest.approx(answer["sizes"][0]["failures"])


def test_the_intervals_of_young_and_daly_agree():
    (row,) = goodput(**ASK, gpus=1024)["checkpoints"]
    assert row["young"] == pytest.approx(row["daly"], rel=0.05)
    assert row["interval"] == row["daly"]


def test_optimistic_rates_and_missing_validation_are_warned_of():
    answer = goodput(**ASK, gpus=1024)
    assert any("7.9 h" in text and "28.8 h" in text for text in answer.warnings)
    assert not any("7.9 h" in text for text in goodput(**ASK, gpus=1024, mttf="8000h").warnings)
    verdicts = {(row["where"].split(",")[0], row["figure"].split(" of ")[0]): row["verdict"] for row in answer["checks"]}
    assert verdicts["Llama 3 405B", "goodput"].startswith("not validated")
    assert verdicts["MegaScale", "goodput"] == "agrees"
    assert verdicts["Meta RSC", "time between failures"].startswith("misses: 3.6 times")
    assert verdicts["OPT-175B", "goodput"].startswith("misses")
    assert verdicts["BLOOM 176B", "time spent on checkpoints"] == "agrees"


def test_the_rate_of_rsc_1_gives_the_published_times():
    found = {row["site"]: row["gpu_hours"] for row in goodput(**ASK, gpus=1024)["sites"]}
    rate = next(hours for site, hours in found.items() if "RSC-1" in site)
    assert [round(rate / n, 2) for n in (1024, 16384, 131072)] == [28.85, 1.8, 0.23]


def test_spares_of_every_size():
    answer = goodput(**ASK, gpus="1024,16384", repair_time="24h")
    assert answer["sizes"][1]["spares"] == 17
    assert answer["sizes"][0]["spares"] < 17


def test_a_run_that_never_finishes_has_no_time():
    answer = goodput(**ASK, gpus=1024, mttf="100h", restart_time="60min")
    assert answer["sizes"][0]["seconds"] != answer["sizes"][0]["seconds"]
    assert "never" in answer.headline[1] and not answer.feasible


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on": "h100-sxm", "gpus": 8}, "missing run"),
        ({**ASK}, "gpus"),
        ({**ASK, "gpus": "8,zero"}, "gpus"),
        ({**ASK, "gpus": ""}, "gpus"),
        ({**ASK, "gpus": 8, "model": "llama-3-8b"}, "not both"),
        ({**ASK, "gpus": 8, "one_in": 100}, "repair_time"),
        ({**ASK, "gpus": 8, "checkpoint_every": 100}, "counts steps"),
        ({**ASK, "gpus": 8, "work": 54}, "no unit"),
        ({**ASK, "gpus": 8, "tp": 8}, "no effect"),
        ({"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8}, "tokens"),
    ],
)
def test_wrong_questions_are_refused_in_one_line(options, words):
    with pytest.raises(IronlawError) as error:
        goodput(**options)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_the_command_prints_a_page_json_and_an_explanation(capsys):
    ask = ["goodput", "--work", "54days", "--parameters", "405B", "--on", "h100-sxm", "--gpus", "1024,16384"]
    assert main(ask) == 0
    page = capsys.readouterr().out
    assert "not validated" in page
    assert "faulty GPU" in page
    assert main([*ask, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {"sizes", "checkpoints", "components", "sites", "checks"} <= set(data)
    assert "llama-3" in data["sources"]
    assert main([*ask, "--explain", "goodput"]) == 0
    assert "useful / wall" in capsys.readouterr().out
    assert main(["goodput", "--help"]) == 0
    assert main(["goodput", "--on", "h100-sxm"]) == 2
    capsys.readouterr()
    assert main(["goodput", *ask[1:-1], "1024", "--mttf", "100h", "--restart-time", "60min", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["sizes"][0]["seconds"] is None


def test_a_run_that_never_finishes_has_exit_status_1(capsys):
    assert main(shlex.split("goodput --work 10days --parameters 7B --on h100-sxm --gpus 131072 --mttf 2000h")) == 1
    assert "the run fails sooner than it restarts" in capsys.readouterr().out
    assert main(shlex.split("goodput --work 10days --parameters 7B --on h100-sxm --gpus 64,131072 --mttf 2000h")) == 0
