"""``ironlaw data``: worked cases, relations, refusals, the command."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise

import numpy as np
import pytest

import paths
from ironlaw import data
from ironlaw.cli.main import main
from ironlaw.errors import IronlawError
from ironlaw.law import collectives, dataloading, traffic

CASES = {c["id"]: c for c in json.loads((paths.DATA / "oracle_data.json").read_text(encoding="utf-8"))}
ASK = {"step_time": "10ms", "batch": 1, "sample_size": "1MB", "transfer_rate": "16GB/s"}


def s003_16(i):
    tokens = i["batch"] * i["seq"]
    size = traffic.elementwise(tokens, i["bytes_per_token"], 1)
    return {
        "tokens": tokens,
        "tok_ms": dataloading.tokenise_time(tokens, i["tok_rate"], 1) * 1e3,
        "batch_kib": size / 1024,
        "transfer_ms": collectives.point_to_point(size, i["pcie"], 0.0) * 1e3,
        "parallel_ms": dataloading.tokenise_time(tokens, i["tok_rate"], i["workers"]) * 1e3,
    }


def s003_17(i):
    """Errata E003-9: the factor of access applies to what is sustained; 0.35 takes the datasheet's rate as sustained."""
    return {
        "effective": dataloading.storage_rate(i["nvme"], np.inf, 1.0, i["F"]),
        "practical": dataloading.storage_rate(i["nvme"], np.inf, 0.5, 1.0),
        "practical_random": dataloading.storage_rate(i["nvme"], np.inf, 0.5, i["F"]),
    }


def s003_18(i):
    def share(rate):
        waited = dataloading.waiting(1 / i["pipeline"], 1 / rate, 1)
        return 100 * dataloading.fed(1 / rate, waited)

    return {f"util_{rate}_pct": share(rate) for rate in i["gpu"]}


def s003_19(i):
    return {
        "workers_needed": dataloading.workers_needed(i["t_transform_ms"], i["t_gpu_ms"]),
        "throughput_4": dataloading.workers_rate(4, i["t_transform_ms"] / 1e3),
    }


def s003_22(i):
    return {"mb": dataloading.buffer_memory(i["prefetch"], i["processing"], i["transfer"], i["S_batch_MB"])}


def s003_24(i):
    return {"total": dataloading.supply_time(*i["ms"], 0)}


ANSWERS = {"S003-16": s003_16, "S003-17": s003_17, "S003-18": s003_18, "S003-19": s003_19, "S003-22": s003_22, "S003-24": s003_24}


@pytest.mark.parametrize("name", sorted(CASES))
def test_case(name):
    case = CASES[name]
    answer = ANSWERS[name](case["inputs"])
    assert set(answer) == set(case["expected"])
    for key, value in answer.items():
        assert float(value) == pytest.approx(case["expected"][key], rel=case["rel_tol"], abs=0.0), key


def test_the_question_gives_the_numbers_of_the_worked_cases():
    answer = data(**ASK, transform_time="30ms")
    assert float(answer["workers needed"]) == 3
    starved = data(**{**ASK, "step_time": "1ms"}, transform_time="5ms", workers=1)
    assert float(starved["fed"]) == pytest.approx(0.2)
    assert not starved.feasible
    text = data(step_time="1s", batch=32, seq_len=1024, token_rate="500k", workers=8, transfer_rate="15.75GB/s")
    assert float(text["transfer"]) == pytest.approx(CASES["S003-16"]["expected"]["transfer_ms"] / 1e3)
    stages = {row["stage"]: row for row in text["stages"]}
    assert stages["workers"]["seconds"] == pytest.approx(8.192e-3)
    disk = data(**ASK, disk="3.5GB/s", access_factor=0.1)
    assert float(disk["storage rate of a node"]) == pytest.approx(0.175e9)


def test_every_worker_prefetches_batches():
    """Errata E003-10: 256 images of 1024 x 1024 x 3 bytes, 4 workers of 2 batches: 6.44 GB, not 2; one batch is 0.805 GB."""
    answer = data(step_time="1s", batch=256, sample_size=1024 * 1024 * 3, transfer_rate="64GB/s", workers=4)
    buffers = {row["buffer"]: row for row in answer["buffers"]}
    ahead = [buffers[name] for name in ("prefetched", "in preparation")]
    assert sum(row["batches"] for row in ahead) == 8
    assert sum(row["memory"] for row in ahead) == pytest.approx(6.44e9, rel=1e-3)
    assert buffers["in transfer"]["memory"] == pytest.approx(0.805e9, rel=1e-3)
    assert float(answer["host memory"]) == buffers["together"]["memory"] == 9 * buffers["in transfer"]["memory"]


def test_buffers_of_the_training_chapter():
    """Worked case S003-22: two batches wait, one is prepared, one is copied, 100 MB each: 400 MB. One worker that prefetches three."""
    answer = data(step_time="10ms", batch=1, sample_size="100MB", workers=1, prefetch_factor=3, transfer_rate="16GB/s")
    assert [row["batches"] for row in answer["buffers"]] == [2, 1, 1, 4]
    assert answer["host memory"] == 400e6


def test_times_of_a_batch_are_taken_as_given():
    """t = max(fetch, process, transfer) overlapped, their sum in a row (worked case S003-24); 120 ms to read starve a step of 100 ms."""
    times = {"step_time": "8ms", "fetch_time": "10ms", "transform_time": "15ms", "transfer_time": "5ms", "workers": 1}
    orders = {row["order"]: row for row in data(**times)["orders"]}
    assert (orders["overlapped"]["supply"], orders["serial"]["supply"]) == (pytest.approx(15e-3), pytest.approx(30e-3))
    late = data(step_time="100ms", fetch_time="120ms", transfer_time="5ms")
    assert not late.feasible and late["slowest"] == "storage"
    assert float(late["fed"]) == pytest.approx(100 / 120) and "host memory" not in [term.name for term in late.terms]
    sized = data(step_time="100ms", batch=32, sample_size="1MB", fetch_time="90ms", transfer_time="5ms", workers=2)
    assert sized.feasible and float(sized["host memory"]) == 5 * 32e6


def test_a_time_and_a_rate_of_the_same_stage_are_refused():
    with pytest.raises(IronlawError, match="not both"):
        data(**ASK, fetch_time="5ms", disk="1GB/s")
    with pytest.raises(IronlawError, match="not both"):
        data(**ASK, transfer_time="5ms")
    with pytest.raises(IronlawError, match="transfer_time"):
        data(step_time="1s", batch=8, sample_size="1MB", fetch_time="1s")


def test_prefetching_hides_what_a_serial_loader_waits_for():
    """Errata E003-26: 90 s to 55 s is 38.9 % less time and 1.64 times the speed."""
    found = data(step_time="55s", fetch_time="35s", transfer_time="0s")
    assert [row["seconds"] for row in found["orders"]] == [55.0, 90.0]
    assert any("38.9% less time" in line and "1.64 times the speed" in line for line in found.headline)
    none = data(step_time="55s", fetch_time="35s", transfer_time="0s", prefetch_factor=0)
    assert float(none["waiting"]) == 35.0  # a batch is made when it is asked for


def test_workers_that_keep_up_are_not_promised_where_storage_does_not():
    slow = data(**ASK, transform_time="30ms", disk="10MB/s")
    assert float(slow["fed"]) < 0.06
    line = next(line for line in slow.headline if "worker" in line)
    assert "would keep up, but storage does not" in line
    assert "3 workers keep up for" in " ".join(data(**ASK, transform_time="30ms", disk="10GB/s").headline)
    assert "3 workers keep up for" in " ".join(data(**ASK, transform_time="30ms", workers=1).headline)


def test_rates_of_storage_are_named():
    """3.5 GB/s by datasheet, half of it sustained, a tenth of that at random (errata E003-9)."""
    found = data(**ASK, disk="3.5GB/s", access_factor=0.1)
    assert "storage of a node: 3.5 GB/s by datasheet, 1.75 GB/s sustained, 175 MB/s with access factor 0.1" in found.headline


def test_serial_stages_add_up_and_overlapped_ones_hide():
    slow = {**ASK, "transform_time": "5ms", "workers": 1, "disk": "1GB/s", "sustained": 1}
    beside, after = data(**slow), data(**slow, stages="serial")
    assert float(beside["waiting"]) == 0
    assert float(after["waiting"]) == pytest.approx(0.001 + 0.005 + 1e6 / 16e9)
    assert float(after["fed"]) < float(beside["fed"])
    assert [row["fed"] for row in beside["orders"]] == [float(beside["fed"]), float(after["fed"])]


def test_storage_is_shared():
    """Eight accelerators of a host share its disks; all nodes share a file system."""
    alone = data(**ASK, disk="8GB/s", accelerators_per_node=1)
    eight = data(**ASK, disk="8GB/s", accelerators_per_node=8, gpus=8)
    assert float(eight["fetch"]) == pytest.approx(8 * float(alone["fetch"]))
    few, many = (data(**ASK, shared_storage="100GB/s", accelerators_per_node=8, gpus=n) for n in (64, 512))
    assert float(many["fetch"]) == pytest.approx(8 * float(few["fetch"]))


def test_the_step_of_a_model_is_estimated():
    answer = data("llama-3-8b", on="h100-sxm", gpus=64, token_rate="500k", shared_storage="10GB/s", checkpoint_every=500)
    assert answer.feasible
    stages = {row["stage"]: row for row in answer["stages"]}
    assert stages["checkpoint"]["seconds"] > 0
    assert stages["storage"]["size"] == pytest.approx(4 * 512 * 8192 / 64)
    assert data("llama-3-8b", on="h100-sxm", gpus=8)["stages"][3]["seconds"] is None  # no interval, no share of a step
    coherent = data("llama-3-8b", on="gh200-96gb", gpus=8)
    assert float(coherent["transfer"]) < float(data("llama-3-8b", on="h100-sxm", gpus=8)["transfer"])  # a link faster than PCIe


def test_more_workers_never_feed_less():
    rows = data(**ASK, transform_time="90ms")["by_workers"]
    fed = [row["fed"] for row in rows]
    assert fed == sorted(fed)
    assert fed[-1] == 1
    assert all(a["memory"] < b["memory"] for a, b in pairwise(rows))


def test_cores_limit_workers():
    answer = data(**ASK, transform_time="90ms", cores=4)
    assert answer["workers"] == 4
    assert any("cores" in text for text in data(**ASK, workers=8, cores=4).warnings)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "missing step"),
        ({"step_time": "1s"}, "batch"),
        ({"step_time": "1s", "batch": 8, "transfer_rate": "1GB/s"}, "sample_size"),
        ({"step_time": "1s", "batch": 8, "sample_size": "1MB"}, "transfer_rate"),
        ({**ASK, "step_time": 1}, "no unit"),
        ({**ASK, "token_rate": 1000}, "seq_len"),
        ({**ASK, "sustained": 0.5}, "no effect"),
        ({**ASK, "access_factor": 2, "disk": "1GB/s"}, "at most 1"),
        ({**ASK, "model": "llama-3-8b", "on": "h100-sxm", "gpus": 8}, "not both"),
        ({**ASK, "stages": "sideways"}, "sideways"),
        ({**ASK, "worker": 3}, "workers"),
        ({**ASK, "tp": 8}, "no effect"),
    ],
)
def test_wrong_questions_are_refused_in_one_line(options, words):
    with pytest.raises(IronlawError) as error:
        data(**options)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_the_command_prints_a_page_json_and_an_explanation(capsys):
    ask = ["data", "--step-time", "10ms", "--batch", "1", "--sample-size", "1MB", "--transfer-rate", "16GB/s", "--transform-time", "30ms"]
    assert main(ask) == 0
    assert "3 workers keep up" in capsys.readouterr().out
    assert main([*ask, "--workers", "1"]) == 1  # the answer is no
    assert "33.3%" in capsys.readouterr().out
    assert main([*ask, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"stages", "by_workers", "slowest", "terms"} <= set(found)
    assert main([*ask, "--explain", "workers needed"]) == 0
    assert "ceil(transform_time / step_time)" in capsys.readouterr().out
    assert main(["data", "--help"]) == 0
    assert main(["data"]) == 2


def test_serial_and_overlapped_batches_end_when_the_laws_say():
    from ironlaw.questions.data.timeline import BATCHES, overlapped, serial

    times = {"storage": 20.0, "workers": 10.0, "transfer": 5.0, "step": 55.0}
    one, beside = serial(times), overlapped(times)
    assert one[-1].end == BATCHES * 90.0  # the stages add up to 90 s
    ends = [span[3] for span in beside if span[0] == "step"]
    assert [later - sooner for sooner, later in pairwise(ends)] == [55.0, 55.0]  # and 55 s beside each other
    for spans in (one, beside):
        for stage in times:
            mine = [span for span in spans if span[0] == stage]
            assert all(sooner[3] <= later[2] for sooner, later in pairwise(mine)), "a stage holds one batch at a time"
        for batch in range(1, BATCHES + 1):
            way = [span for span in spans if span[1] == batch]
            assert all(sooner[3] <= later[2] for sooner, later in pairwise(way)), "a batch is in one stage at a time"


def test_the_timeline_is_drawn_on_request():
    asked = {"step_time": "55s", "batch": 1, "sample_size": "1MB", "transform_time": "35s", "workers": 1, "on": "a100-sxm-80gb"}
    assert "timeline" not in [table.name for table in data(**asked).tables]
    found = data(**asked, timeline="on")
    rows = {(row["order"], row["stage"]): row for row in found["timeline"]}
    orders = {row["order"]: row["seconds"] for row in found["orders"]}
    assert rows["serial", "step"]["ends"] == pytest.approx(3 * orders["serial"])
    assert rows["overlapped", "step"]["ends"] - 3 * orders["overlapped"] == pytest.approx(35.0, rel=1e-3)  # filling
    assert set(rows["serial", "step"]["bar"]) == set(".123") and len(rows["serial", "step"]["bar"]) == 72
    assert any("one after the other" in line for line in found.headline)


def test_an_explanation_prints_none_for_a_stage_that_is_not_counted(ask):
    out = ask(
        "data", "--step-time", "100ms", "--batch", "256", "--sample-size", "150KB", "--transform-time", "8ms", "--on", "h100-sxm",
        "--disk", "3.5GB/s", "--explain",
    )[1]  # fmt: skip
    assert "network = none" in out and "nan" not in out


def test_a_storage_that_is_not_given_is_not_explained(capsys):
    assert main(shlex.split("data llama-3-8b --on h100-sxm --gpus 8 --explain")) == 0
    assert "nan" not in capsys.readouterr().out


def test_a_step_of_no_time_is_refused(capsys):
    assert main(shlex.split("data --step-time 0s --batch 1 --on h100-sxm --sample-size 1KB")) == 2
    assert capsys.readouterr().err == "ironlaw: --step-time is 0s, must be more than 0 and at most 1e+15 s\n"


def test_an_assumption_is_listed_once():
    """Of a run with tokens, whose checkpoints the estimate assumes too."""
    names = [note["name"] for note in data("gpt-2", "h100-sxm", gpus=8, tokens="20x").assumptions]
    assert "checkpoint_bandwidth" in names
    assert len(names) == len(set(names))
