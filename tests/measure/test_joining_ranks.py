"""The traces of several ranks are joined to one job, or not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import paths
from ironlaw.cli.main import main
from ironlaw.measure.diagnose import diagnose
from small_traces import kernel, launch, write_trace

DATA = paths.DATA / "measured"
DLRM = DATA / "v100x8_dlrm"


def ranks_in(folder: Path, change: Any = None, ranks: range = range(8)) -> Path:
    for rank in ranks:
        trace = json.loads(gzip.decompress((DLRM / f"worker{rank}.json.gz").read_bytes()))
        if change is not None:
            change(rank, trace)
        (folder / f"w{rank}.json").write_text(json.dumps(trace))
    return folder


def test_ranks_without_numbers_are_joined_by_their_collectives(tmp_path):
    found = diagnose(ranks_in(tmp_path, lambda _, trace: trace.pop("distributedInfo")))
    assert found.ranks is not None
    assert sum(m.transfer for m in found.ranks.meetings) == 225_000
    assert found.verdict.gain == diagnose(DLRM).verdict.gain
    assert sum("no rank number" in w for w in found.warnings) == 8


def test_runs_at_different_times_are_not_joined():
    found = diagnose([DATA / "a100x2_resnet.json.gz", DATA / "mi300x8_resnet.json.gz"])
    assert found.ranks is None
    assert "of 2 and 8 ranks" in found.verdict.says


def test_a_rank_without_the_number_of_ranks_is_joined(tmp_path):
    def change(rank: int, trace: dict[str, Any]) -> None:
        if rank == 3:
            del trace["distributedInfo"]["world_size"]

    assert diagnose(ranks_in(tmp_path, change)).ranks is not None


def test_a_rank_that_occurs_twice_is_named(tmp_path):
    def change(rank: int, trace: dict[str, Any]) -> None:
        trace["distributedInfo"]["rank"] = rank % 2

    found = diagnose(ranks_in(tmp_path, change, range(4)))
    assert found.ranks is None
    assert "rank 0 occurs 2 times" in found.verdict.says


def test_all_ranks_in_one_file_give_the_verdict_of_the_job(tmp_path):
    events: list[dict[str, Any]] = []
    for rank in range(8):
        for event in json.loads(gzip.decompress((DLRM / f"worker{rank}.json.gz").read_bytes()))["traceEvents"]:
            if event.get("cat") in ("Kernel", "kernel", "gpu_memcpy", "gpu_memset", "Memcpy", "Memset"):
                event["pid"] = rank
            if isinstance(event.get("args", {}).get("correlation"), int):
                event["args"]["correlation"] += 10_000_000 * rank
            events.append(event)
    events = events[::2] + events[1::2]  # interleaved
    found = diagnose(write_trace(tmp_path, events))
    apart = diagnose(DLRM)
    assert found.ranks is not None
    assert sum(m.transfer for m in found.ranks.meetings) == 225_000
    assert [m.late for m in found.ranks.meetings] == [7, 7, 7, 7, 7, 5, 5, 4]
    assert (found.verdict.roof, found.verdict.next_roof) == (apart.verdict.roof, apart.verdict.next_roof)
    assert found.verdict.gain == pytest.approx(apart.verdict.gain, rel=0.05)


def test_with_missing_ranks_the_gain_of_the_network_may_be_nothing(tmp_path):
    found = diagnose(ranks_in(tmp_path, ranks=range(3)))
    network = next(r for r in found.verdict.ranking if r["roof"] == "network")
    assert network["gain"][0] == 1.0
    assert network["gain"][1] > 1.0
    assert "traces of some ranks are missing" in network["says"]


def test_ranks_without_a_common_collective_have_a_page(tmp_path, capsys):
    for rank in range(2):
        work = [launch(10, 1), kernel(20, 100, 1), launch(300, 2), kernel(310, 100, 2)]
        write_trace(tmp_path, work, f"{rank}.json", distributedInfo={"rank": rank, "world_size": 2})
    assert main(["diagnose", str(tmp_path)]) == 0
    assert "no collective is shared by the 2 ranks" in capsys.readouterr().out


def test_a_rank_outside_its_job_is_reported(tmp_path):
    path = write_trace(tmp_path, [launch(10, 1), kernel(20, 100, 1)], distributedInfo={"rank": 3, "world_size": 2})
    assert any("rank 3 of 2" in warning for warning in diagnose(path).warnings)
