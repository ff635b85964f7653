"""What a drawing of a trace is made of: a partition that sums to the window, lanes merged to the pixel, gaps with their causes."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

import paths
from ironlaw.measure import diagnose as module
from ironlaw.measure.lanes import KINDS, MOST_GAPS, PIXELS

MEASURED = paths.DATA / "measured"
NAMES = ("v100_resnet50_nw0", "a100x2_resnet", "h100_owlv2", "mi300x_resnet_step", "hta_mi250_minitoy")
FILES = tuple(f"{name}.json.gz" for name in NAMES)


@pytest.fixture(scope="module", params=FILES)
def file(request):
    return module.diagnose(MEASURED / request.param).data()["files"][0]


def test_the_partition_sums_to_the_window(file):
    parts = file["partition"]
    assert sum(part["us"] for part in parts) == pytest.approx(file["window"]["wall_us"], abs=1e-6)
    assert all(part["us"] >= 0 and part["kind"] in KINDS for part in parts)
    running = {"compute": "compute_us", "hbm": "compute_us", "network": "exposed_comm_us", "copy": "exposed_memcpy_us"}
    for key in set(running.values()):
        of_kind = sum(part["us"] for part in parts if not part["waits"] and running[part["kind"]] == key)
        assert of_kind == pytest.approx(file["window"][key], abs=1e-6)
    assert sum(part["us"] for part in parts if part["waits"]) == pytest.approx(file["window"]["idle_us"], abs=1e-6)


def test_lanes_hold_all_events_in_few_intervals(file):
    lanes, wall = file["lanes"], file["window"]["wall_us"]
    assert sum(lane["events"] for lane in lanes) == file["events"] and file["lanes_left_out"] == 0
    for lane in lanes:
        spans = list(zip(lane["start_us"], lane["end_us"], lane["kind"], strict=True))
        assert spans == sorted(spans, key=lambda span: span[0]) and len(spans) <= len(KINDS) * PIXELS
        assert all(0 <= start <= end <= wall for start, end, _ in spans)
        for kind in KINDS:  # intervals of a kind are apart by a pixel at least
            own = [(start, end) for start, end, one in spans if one == kind]
            assert all(later - end >= wall / PIXELS * 0.999 for (_, end), (later, _) in pairwise(own))
    assert len(json.dumps(lanes)) < 200_000


def test_gaps_are_the_idle_time(file):
    """All gaps together, by length class, are the idle time of the window; those listed are the longest."""
    assert sum(row["us"] for row in file["gap_classes"]) == pytest.approx(file["window"]["idle_us"], abs=1e-6)
    count = sum(row["count"] for row in file["gap_classes"])
    assert len(file["gaps"]) == min(count, MOST_GAPS)
    numbers = {step["number"] for step in file["steps"]}
    for gap in file["gaps"]:
        assert gap["us"] > 0 and gap["start_us"] + gap["us"] <= file["window"]["wall_us"] + 1e-6
        assert gap["step"] is None or gap["step"] in numbers
        assert gap["after"]


def test_causes_of_gaps_agree_with_the_idle_time_by_reason(file):
    """A gap counts for its main cause alone, so causes of gaps and reasons of idle time agree where one reason has most of the time."""
    reasons = {part["what"]: part["us"] for part in file["partition"] if part["waits"]}
    causes = {}
    for row in file["gap_classes"]:
        causes[row["cause"]] = causes.get(row["cause"], 0.0) + row["us"]
    top = max(reasons, key=reasons.get)
    if reasons[top] > 0.5 * file["window"]["idle_us"]:
        assert max(causes, key=causes.get) == top
        assert causes[top] == pytest.approx(reasons[top], rel=0.35)


def test_steps_start_where_the_one_before_ends(file):
    starts = [(step["device_start_us"], step["device_us"]) for step in file["steps"] if step["device_us"] is not None]
    for (start, length), (later, _) in pairwise(starts):
        assert start + length == pytest.approx(later, abs=1e-6)


def test_a_thread_of_the_host_does_one_thing_at_a_time_within_the_window(file):
    """A host that runs ahead may have no launch in the window."""
    wall = file["window"]["wall_us"]
    assert len(file["host_lanes"]) <= 3
    for lane in file["host_lanes"]:
        assert lane["launches"] > 0 and 0.0 <= lane["busy_us"] <= wall + 1e-6
        assert len(lane["start_us"]) == len(lane["end_us"]) == len(lane["what"])
        spans = sorted(zip(lane["start_us"], lane["end_us"], strict=True))
        assert all(-1e-6 <= start <= end <= wall + 1e-6 for start, end in spans)


def test_the_host_loads_data_where_the_device_waits_for_it():
    """Nearly all idle time charged to data loading lies in intervals in which the launching thread loads."""
    file = module.diagnose(MEASURED / "v100_resnet50_nw0.json.gz").data()["files"][0]
    lane = file["host_lanes"][0]
    loads = [(a, b) for a, b, what in zip(lane["start_us"], lane["end_us"], lane["what"], strict=True) if what == "data loading"]
    waits = [gap for gap in file["gaps"] if gap["cause"] == "data loading"]
    inside = sum(max(min(b, gap["start_us"] + gap["us"]) - max(a, gap["start_us"]), 0.0) for gap in waits for a, b in loads)
    assert inside > 0.8 * sum(gap["us"] for gap in waits) > 0.0


def test_a_trace_of_nine_thousand_events_is_small_to_draw():
    file = module.diagnose(MEASURED / "v100_resnet50_nw0.json.gz").data()["files"][0]
    intervals = sum(len(lane["start_us"]) for lane in file["lanes"])
    assert file["events"] == 9096 and intervals < 1500
    assert {gap["cause"] for gap in file["gaps"] if gap["us"] > 1e4} == {"data loading"}
