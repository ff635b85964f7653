"""What a second reader of `ironlaw diagnose` found: shares that sum, ranks that say little of themselves, files that look like traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import paths
from ironlaw.cli.main import main
from ironlaw.errors import InputError
from ironlaw.measure.diagnose import diagnose
from ironlaw.measure.idle import explain_idle
from ironlaw.measure.profile import profile
from ironlaw.measure.read.chrome import read_chrome
from ironlaw.measure.read.sniff import files_of, kind_of
from ironlaw.measure.window import Policy

DATA = paths.DATA / "measured"
DLRM = DATA / "v100x8_dlrm"
ONE_RANK = ("a100x2_resnet", "mi300x8_resnet", "v100_resnet50_nw0", "v100_resnet50_nw4", "h100_owlv2", "hta_mi250_minitoy")


def kernel(ts: float, dur: float, correlation: int | None = None, name: str = "gemm") -> dict[str, Any]:
    args = {"device": 0, "stream": 7} | ({} if correlation is None else {"correlation": correlation})
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}


def launch(ts: float, correlation: int, dur: float = 5) -> dict[str, Any]:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": ts, "dur": dur, "args": args}


def step(number: int, ts: float, dur: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 9, "tid": 9, "ts": ts, "dur": dur}


def written(folder: Path, events: list[dict[str, Any]], name: str = "trace.json", **header: object) -> Path:
    path = folder / name
    path.write_text(json.dumps({"traceEvents": events, **header}))
    return path


def warned(path: Path) -> str:
    return "\n".join(diagnose(path).warnings)


# shares


@pytest.mark.parametrize("name", ONE_RANK)
def test_the_roofs_and_what_nobody_is_charged_with_are_the_whole_window(name):
    found = diagnose(DATA / f"{name}.json.gz")
    wall = found.profiles[0].window.wall / 1000
    charged = sum(roof["charged_us"] for roof in found.verdict.ranking)
    assert charged / wall + found.verdict.unattributed == pytest.approx(1, abs=1e-4)


def test_time_in_which_launched_work_waits_is_a_roof_that_promises_nothing():
    found = diagnose(DATA / "hta_mi250_minitoy.json.gz")  # one launch lasts 6.5 ms of 8.9: the runtime loads code in it
    waits = next(r for r in found.verdict.ranking if r["roof"] == "stream wait")
    assert waits["charged_us"] == pytest.approx(6743.549)
    assert waits["gain"][0] == 1.0
    assert found.verdict.roof == "stream wait"
    assert found.verdict.next_roof == "dispatch"


@pytest.mark.parametrize("events", [[(0, 0), (50, 10)], [(0, 10), (50, 0)], [(0, 0), (20, 0), (50, 0)]])
def test_idle_time_beside_events_without_length_has_its_reasons(tmp_path, events):
    rows = [e for i, (ts, dur) in enumerate(events) for e in (launch(ts + 95, i), kernel(ts + 100, dur, i))]
    trace = read_chrome(str(written(tmp_path, rows)))[0]
    window = profile(trace, Policy()).window
    assert window.idle > 0
    assert explain_idle(trace, trace.events).total == window.idle


def test_the_last_step_is_the_last_one_marked_though_it_launched_nothing():
    path = DATA / "hta_mi250_minitoy.json.gz"  # two steps, the second of which does nothing
    kept, dropped = (diagnose(path, last_step=choice).profiles[0] for choice in ("keep", "drop"))
    assert dropped.window == kept.window
    assert [s.number for s in dropped.steps] == [1]


# ranks


def ranks_in(folder: Path, change: Any = None, ranks: range = range(8)) -> Path:
    for rank in ranks:
        trace = json.loads(gzip.decompress((DLRM / f"worker{rank}.json.gz").read_bytes()))
        if change is not None:
            change(rank, trace)
        (folder / f"w{rank}.json").write_text(json.dumps(trace))
    return folder


def test_ranks_without_their_numbers_are_joined_by_what_they_met_in(tmp_path):
    found = diagnose(ranks_in(tmp_path, lambda _, trace: trace.pop("distributedInfo")))
    assert found.ranks is not None
    assert sum(m.transfer for m in found.ranks.meetings) == 225_000
    assert found.verdict.gain == diagnose(DLRM).verdict.gain
    assert sum("no rank number" in w for w in found.warnings) == 8


def test_runs_at_different_times_are_not_joined():
    found = diagnose([DATA / "a100x2_resnet.json.gz", DATA / "mi300x8_resnet.json.gz"])
    assert found.ranks is None
    assert "of 2 and 8 ranks" in found.verdict.says


def test_one_rank_that_does_not_say_how_many_there_are_is_still_of_the_job(tmp_path):
    def change(rank: int, trace: dict[str, Any]) -> None:
        if rank == 3:
            del trace["distributedInfo"]["world_size"]

    assert diagnose(ranks_in(tmp_path, change)).ranks is not None


def test_a_rank_that_comes_twice_is_named(tmp_path):
    def change(rank: int, trace: dict[str, Any]) -> None:
        trace["distributedInfo"]["rank"] = rank % 2

    found = diagnose(ranks_in(tmp_path, change, range(4)))
    assert found.ranks is None
    assert "rank 0 occurs 2 times" in found.verdict.says


def test_all_ranks_in_one_file_get_the_verdict_of_the_ranks(tmp_path):
    events: list[dict[str, Any]] = []
    for rank in range(8):
        for event in json.loads(gzip.decompress((DLRM / f"worker{rank}.json.gz").read_bytes()))["traceEvents"]:
            if event.get("cat") in ("Kernel", "kernel", "gpu_memcpy", "gpu_memset", "Memcpy", "Memset"):
                event["pid"] = rank
            if isinstance(event.get("args", {}).get("correlation"), int):
                event["args"]["correlation"] += 10_000_000 * rank
            events.append(event)
    events = events[::2] + events[1::2]  # interleaved
    found = diagnose(written(tmp_path, events))
    apart = diagnose(DLRM)
    assert found.ranks is not None
    assert sum(m.transfer for m in found.ranks.meetings) == 225_000
    assert [m.late for m in found.ranks.meetings] == [7, 7, 7, 7, 7, 5, 5, 4]
    assert (found.verdict.roof, found.verdict.next_roof) == (apart.verdict.roof, apart.verdict.next_roof)
    assert found.verdict.gain == pytest.approx(apart.verdict.gain, rel=0.05)


def test_with_ranks_missing_what_looks_like_transfer_is_no_certain_gain(tmp_path):
    found = diagnose(ranks_in(tmp_path, ranks=range(3)))
    network = next(r for r in found.verdict.ranking if r["roof"] == "network")
    assert network["gain"][0] == 1.0
    assert network["gain"][1] > 1.0
    assert "traces of some ranks are missing" in network["says"]


def test_ranks_that_never_met_have_a_page(tmp_path, capsys):
    for rank in range(2):
        work = [launch(10, 1), kernel(20, 100, 1), launch(300, 2), kernel(310, 100, 2)]
        written(tmp_path, work, f"{rank}.json", distributedInfo={"rank": rank, "world_size": 2})
    assert main(["diagnose", str(tmp_path)]) == 0
    assert "no collective is shared by the 2 ranks" in capsys.readouterr().out


def test_a_file_given_by_two_names_is_one_file(tmp_path):
    (tmp_path / "again.json.gz").symlink_to(DLRM / "worker0.json.gz")
    assert len(diagnose([DLRM / "worker0.json.gz", tmp_path / "again.json.gz"]).profiles) == 1


# cautions


def test_steps_that_are_missing_or_overlap_are_told(tmp_path):
    work = [launch(10, 1), kernel(20, 100, 1), launch(300, 2), kernel(310, 100, 2)]
    assert "no ProfilerStep" in warned(written(tmp_path, work))
    assert "#2 begins before #1 ends" in warned(written(tmp_path, [*work, step(1, 0, 200), step(2, 100, 300)]))
    assert "2 of the steps between ProfilerStep#1 and #4" in warned(written(tmp_path, [*work, step(1, 0, 200), step(4, 200, 300)]))
    assert "#1 is marked twice" in warned(written(tmp_path, [*work, step(1, 0, 200), step(1, 200, 300)]))
    whole = warned(written(tmp_path, [*work, step(1, 0, 200), step(2, 200, 300)]))
    assert not any(word in whole for word in ("ProfilerStep", "clocks"))


def test_steps_without_length_have_no_noise(tmp_path):
    work = [launch(10, 1), kernel(20, 100, 1), launch(300, 2), kernel(310, 100, 2), step(1, 5, 0), step(2, 6, 0), step(3, 7, 0)]
    assert [s.number for s in diagnose(written(tmp_path, work)).profiles[0].steps] == [1, 2, 3]


def test_kernels_before_their_launches_are_told(tmp_path):
    work = [step(1, 0, 900), launch(500, 1), kernel(20, 100, 1), launch(300, 2), kernel(310, 100, 2)]
    assert "1 device events begin up to 480 us before the call that launched them" in warned(written(tmp_path, work))


@pytest.mark.parametrize("name", ONE_RANK)
def test_real_traces_give_no_false_caution_of_clocks(name):
    assert "before the call" not in warned(DATA / f"{name}.json.gz")


def test_a_rank_outside_its_job_is_told(tmp_path):
    path = written(tmp_path, [launch(10, 1), kernel(20, 100, 1)], distributedInfo={"rank": 3, "world_size": 2})
    assert "rank 3 of 2" in warned(path)


# files


def test_json_beside_traces_is_passed_over_and_read_only_where_it_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 8}))
    trace = written(tmp_path, [launch(10, 1), kernel(20, 100, 1)])
    files, passed = files_of([tmp_path])
    assert files == [trace]
    assert any("config.json" in line for line in passed)
    with pytest.raises(InputError, match="no traceEvents"):
        diagnose(tmp_path / "config.json")


def test_an_estimate_given_as_a_trace_is_named(tmp_path):
    path = tmp_path / "estimate.json"
    path.write_text(json.dumps({"schema_version": 1, "step": {}}))
    with pytest.raises(InputError, match=r"estimate\.json: an estimate, not a measurement"):
        kind_of(path)


def test_every_entry_of_the_json_has_the_same_keys(capsys):
    keys = {"path", "device", "rank", "policy", "window", "steps", "collectives", "kernels", "idle"}
    files = [DATA / "v100_resnet50_nw0.json.gz", DATA / "megatron_64xv100.log", DATA / "memory_timeline.raw.gz"]
    assert main(["diagnose", *map(str, files), "--json"]) == 0
    data = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert len(data["files"]) == 3
    for entry in data["files"]:
        assert keys <= entry.keys()
    assert main(["diagnose", *map(str, files)]) == 0  # and as a page
    assert "memory_timeline" in capsys.readouterr().out


def test_a_log_takes_dimensions_as_an_estimate_does():
    found = diagnose(
        DATA / "megatron_64xv100.log",
        on="v100-sxm-32gb",
        question={
            "on": "v100-sxm-32gb",
            "gpus": 64,
            "seq_len": 1024,
            "global_batch_size": 1024,
            "tp": 4,
            "pp": 16,
            "precision": "fp16",
            "recompute": "full",
            "micro_batch_size": 4,
            "model": "hidden_size=8192,num_hidden_layers=64,num_attention_heads=32,vocab_size=50688,max_position_embeddings=1024",
        },
    )
    rates = found.logs[0].rates
    assert rates is not None
    assert rates.hardware_flops > rates.model_flops > 30e12
