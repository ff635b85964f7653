"""Every finding: a file that shows it, with seconds counted by hand, and a similar file that does not."""

from __future__ import annotations

import json
import pickle
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ironlaw.measure.logs.remarks
import paths
from ironlaw.cli.main import main
from ironlaw.errors import IronlawError, QuestionError
from ironlaw.measure.diagnose import Diagnosis, diagnose
from ironlaw.measure.findings import FINDINGS, OF_LOGS, from_logs
from ironlaw.measure.findings.finding import Finding

DATA = paths.DATA / "measured"
DOCS = paths.ROOT / "docs"
V100, A100, H100 = "Tesla V100-SXM2-32GB", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
SGEMM = "volta_sgemm_128x64_nn"
BF16 = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
US = 1e-6
IDLE = ("starved-loader", "launch-bound", "synchronisation-in-the-loop", "allocator-churn")  # no instant is counted by two of them


class Made:
    """A trace made by hand: times in whole microseconds, one host thread, kernels linked to the calls that launch them."""

    def __init__(self, device: str = "", rank: int | None = None, world: int | None = None, **header: object) -> None:
        self.events: list[dict[str, object]] = []
        self.header = header | ({"deviceProperties": [{"id": 0, "name": device}]} if device else {})
        if rank is not None:
            self.header["distributedInfo"] = {"rank": rank, "world_size": world}
        self.count = 0

    def _add(self, cat: str, name: str, ts: float, dur: float, tid: int = 9, **args: object) -> Made:
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur, "args": args})
        return self

    def call(self, name: str, ts: float, dur: float, tid: int = 9) -> Made:
        return self._add("cuda_runtime", name, ts, dur, tid)

    def mark(self, name: str, ts: float, dur: float) -> Made:
        return self._add("user_annotation", name, ts, dur)

    def steps(self, *walls: float, since: float = 0) -> Made:
        for number, wall in enumerate(walls, 1):
            self.mark(f"ProfilerStep#{number}", since, wall)
            since += wall
        return self

    def kernel(self, name: str, ts: float, dur: float, launched: float | None = None, stream: int = 7, cat: str = "kernel", **args) -> Made:
        """``launched`` is when its call begins, 5 us before the kernel if not said; ``op`` and ``dims`` say which operator launched it."""
        self.count += 1
        when, operator, dims = ts - 5 if launched is None else launched, args.pop("op", None), args.pop("dims", None)
        if operator:
            kinds = {"Input Dims": dims, "Input type": ["float"] * len(dims)}
            self._add("cpu_op", operator, when - 1, 4, **{"External id": self.count}, **kinds)
        self._add("cuda_runtime", "cudaLaunchKernel", when, 2, correlation=self.count, **{"External id": self.count})
        return self._add(cat, name, ts, dur, tid=stream, correlation=self.count, stream=stream, device=0, **args)

    def collective(self, what: str, ts: float, dur: float, elements: int, n: int = 8, stream: int = 20, **more: object) -> Made:
        said = {"Collective name": what, "In msg nelems": elements, "Out msg nelems": elements, "dtype": "Float", "Group size": n}
        return self.kernel("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", ts, dur, stream=stream, **said, **more)

    def save(self, path: Path) -> Path:
        path.write_text(json.dumps(self.header | {"traceEvents": self.events}))
        return path


def found(tmp_path: Path, name: str, *traces: Made, **asked: object) -> list[Finding]:
    """The findings of this name in the diagnosis of hand-made traces, through the readers a user's files go through."""
    paths = [trace.save(tmp_path / f"rank{i}.json") for i, trace in enumerate(traces)]
    return [f for f in diagnose(paths, **asked).findings if f.name == name]


def one(*arguments, **asked) -> Finding:
    finding, *more = found(*arguments, **asked)
    assert not more
    return finding


@cache
def real(name: str, **asked) -> Diagnosis:
    return diagnose(DATA / name, **asked)


def named(diagnosis: Diagnosis, name: str) -> list[Finding]:
    return [f for f in diagnosis.findings if f.name == name]


# the loader


def starving(fetch: float) -> Made:
    return (
        Made()
        .kernel(ADD, 10, 90)
        .mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 50, fetch)
        .kernel(ADD, 1010, 90, 1000)
    )


def test_starved_loader(tmp_path):
    finding = one(tmp_path, "starved-loader", starving(850))  # the device is idle from 100, the fetch lasts until 900
    assert finding.seconds_lost == pytest.approx(800 * US)
    assert (finding.evidence["fetches"], finding.evidence["fetching_us"]) == (1, 850)
    assert finding.ranges == ({"start_us": 90.0, "us": 800.0},)  # the window starts with the first kernel, at 10


def test_a_fetch_hidden_by_a_busy_device_is_not_a_starved_loader(tmp_path):
    assert not found(tmp_path, "starved-loader", starving(49))  # done before the kernel is
    nw0, nw4 = (named(real(f"v100_resnet50_{which}.json.gz"), "starved-loader") for which in ("nw0", "nw4"))
    assert not nw4
    assert nw0[0].seconds_lost < 6 * 0.0698  # six fetches of 69.8 ms, a part of each behind the device's work


# launches and waiting calls


def eager(every: float, lasts: float) -> Made:
    made = Made()
    for i in range(10):
        made.kernel(ADD, every * i + 5, lasts, every * i)
    return made


def test_launch_bound(tmp_path):
    finding = one(tmp_path, "launch-bound", eager(100, 10))
    assert finding.seconds_lost == pytest.approx(9 * 90 * US)  # nine gaps of 90 us, 5 of each a launch on its way
    assert finding.evidence["launch_latency_us"] == 45
    assert (finding.evidence["events"], finding.evidence["median_us"]) == (10, 10)


def test_kernels_longer_than_their_launches_are_not_launch_bound(tmp_path):
    assert not found(tmp_path, "launch-bound", eager(100, 98))
    assert not named(real("mi300x8_resnet.json.gz"), "launch-bound")


def waiting(since: float, until: float = 112) -> Made:
    return Made().kernel(SGEMM, 10, 100).call("cudaStreamSynchronize", since, until - since).kernel(SGEMM, 215, 100, 212)


def test_synchronisation_in_the_loop_is_not_launch_bound_as_well(tmp_path):
    finding = one(tmp_path, "synchronisation-in-the-loop", waiting(20))
    assert finding.seconds_lost == pytest.approx(102 * US)  # idle from 110, launched again at 212; 3 us more is the launch's
    assert finding.evidence["calls"] == {"cudaStreamSynchronize": 1}
    assert finding.evidence["waited_us"] == 92
    assert not found(tmp_path, "launch-bound", waiting(20))


def test_memory_freed_after_a_wait_belongs_to_the_allocator(tmp_path):
    made = waiting(20).call("cudaFree", 130, 50)
    assert one(tmp_path, "synchronisation-in-the-loop", made).seconds_lost == pytest.approx((102 - 50) * US)


def test_a_call_that_waits_for_nothing_is_not_a_synchronisation(tmp_path):
    assert not found(tmp_path, "synchronisation-in-the-loop", waiting(150, 152))  # the device was idle already
    assert one(tmp_path, "launch-bound", waiting(150, 152)).seconds_lost == pytest.approx((105 - 2) * US)  # less the call itself
    other = Made().kernel(SGEMM, 10, 100).call("cudaEventSynchronize", 20, 92, tid=77).kernel(SGEMM, 215, 100, 212)
    assert not found(tmp_path, "synchronisation-in-the-loop", other)  # a thread that launches nothing may wait


# memory


def asking(calls: list[str], steps: tuple[int, ...] = (1, 2, 3)) -> Made:
    """Three steps of 1000 us, or one; in some of them the host calls the driver for 50 us each while the device is idle."""
    made = Made()
    for step in (1, 2, 3) if len(steps) > 1 else steps:
        made.mark(f"ProfilerStep#{step}", 1000 * step, 1000).kernel(SGEMM, 1000 * step + 10, 90)
        for i, call in enumerate(calls if step in steps else []):
            made.call(call, 1000 * step + 200 + 50 * i, 50)
        made.kernel(SGEMM, 1000 * step + 600, 300)
    return made


def test_allocator_churn(tmp_path):
    finding = one(tmp_path, "allocator-churn", asking(["cudaMalloc", "cudaFree"]))
    assert finding.seconds_lost == pytest.approx(2 * 100 * US)  # of the second and third step
    assert finding.evidence == {"calls": 4, "frees": 2, "steps": 2, "host_us": 200, "idle_us": 200}
    assert found(tmp_path, "allocator-churn", asking(["cudaMalloc", "cudaFree"] * 2, (1,)))  # one step that gives back what it asks for


def test_a_growing_cache_is_not_churn(tmp_path):
    assert not found(tmp_path, "allocator-churn", asking(["cudaMalloc"] * 6, (1, 2)))  # most later steps ask for nothing
    assert not found(tmp_path, "allocator-churn", asking(["cudaMalloc"] * 6, (1,)))
    assert not found(tmp_path, "allocator-churn", asking(["cudaMallocAsync", "cudaFreeAsync"]))  # ordered on a stream
    assert not named(real("h100_owlv2.json.gz"), "allocator-churn")


def snapshot(path: Path, *actions: tuple[str, int]) -> Path:
    entries = [{"action": a, "addr": at, "size": 1 << 21, "stream": 0, "time_us": i, "frames": []} for i, (a, at) in enumerate(actions)]
    tree = {"segments": [], "device_traces": [entries], "allocator_settings": {}, "external_annotations": []}
    path.write_bytes(pickle.dumps(tree, 4))
    return path


def test_allocator_churn_of_a_snapshot(tmp_path):
    again = snapshot(tmp_path / "again.pickle", ("segment_alloc", 1 << 30), ("segment_free", 1 << 30), ("segment_alloc", 1 << 31))
    finding = named(diagnose(again), "allocator-churn")[0]
    assert finding.evidence["refills"] == 1
    assert finding.seconds_lost is None
    assert not named(diagnose(snapshot(tmp_path / "once.pickle", ("segment_alloc", 1 << 30))), "allocator-churn")


def test_pageable_copies(tmp_path):
    pageable = "Memcpy HtoD (Pageable -> Device)"
    made = Made().kernel(SGEMM, 10, 100).kernel(pageable, 90, 50, cat="gpu_memcpy", bytes=1000).kernel(SGEMM, 150, 100)
    finding = one(tmp_path, "pageable-copies", made)
    assert finding.seconds_lost == pytest.approx(30 * US)  # 20 of the 50 us are behind the first kernel
    assert finding.evidence["bytes"] == 1000
    assert finding.ranges == ({"start_us": 100.0, "us": 30.0},)
    pinned = Made().kernel(SGEMM, 10, 100).kernel("Memcpy HtoD (Pinned -> Device)", 90, 50, cat="gpu_memcpy").kernel(SGEMM, 150, 100)
    assert not found(tmp_path, "pageable-copies", pinned)
    assert named(real("v100_resnet50_nw4.json.gz"), "pageable-copies")
    assert not named(real("v100_resnet50_nw0.json.gz"), "pageable-copies")  # 1.2 % of a longer window


@pytest.mark.parametrize("name", ["v100_resnet50_nw0.json.gz", "v100_resnet50_nw4.json.gz"])
def test_ranges_are_in_order_inside_the_window_and_no_longer_than_what_is_lost(name):
    diagnosis = real(name)
    (profile,) = diagnosis.profiles
    with_ranges = [finding for finding in diagnosis.findings if finding.ranges]
    assert with_ranges
    for finding in with_ranges:
        ends = [one["start_us"] + one["us"] for one in finding.ranges]
        starts = [one["start_us"] for one in finding.ranges]
        assert starts == sorted(starts) and starts[0] >= 0.0 and max(ends) <= profile.window.wall / 1000
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
        if finding.name in IDLE:
            assert sum(one["us"] for one in finding.ranges) <= finding.seconds_lost / US * (1 + 1e-9)


# steps and the profiler


def stepping(*walls: float) -> Made:
    return Made().kernel(SGEMM, 10, sum(walls)).steps(*walls)


def test_warm_up_steps(tmp_path):
    finding = one(tmp_path, "warm-up-steps", stepping(300, 110, 90, 100))
    assert finding.seconds_lost == pytest.approx(200 * US)
    assert finding.evidence == {"first_us": 300, "median_us": 100, "steps": 4}
    of_log = named(real("megatron_64xv100.log"), "warm-up-steps")[0]
    assert (of_log.evidence["first_seconds"], of_log.evidence["median_seconds"]) == pytest.approx((144.9, 126.64), abs=0.05)


def test_equal_steps_are_not_warm_up(tmp_path):
    assert not found(tmp_path, "warm-up-steps", stepping(140, 110, 90, 100))
    assert not found(tmp_path, "warm-up-steps", stepping(300, 100))  # nothing to compare with


def test_profiler_overhead_against_the_untraced_step(tmp_path):
    finding = one(tmp_path, "profiler-overhead", stepping(900, 120, 120, 120), untraced_step=100 * US)
    assert finding.seconds_lost == pytest.approx(4 * 20 * US)
    assert finding.evidence["ratio"] == pytest.approx(1.2)
    assert not found(tmp_path, "profiler-overhead", stepping(900, 105, 105, 105), untraced_step="100 us")


def test_profiler_overhead_seen_in_the_trace(tmp_path):
    made = eager(100, 10)._add("overhead", "Buffer Flush", 40, 500)
    finding = one(tmp_path, "profiler-overhead", made)
    assert finding.seconds_lost == pytest.approx((65 + 4 * 90 + 25) * US)  # idle between 40 and 540, kernels of 10 us at 105, 205, ...
    assert not found(tmp_path, "profiler-overhead", eager(100, 10))
    hidden = Made().kernel(SGEMM, 5, 1000)._add("overhead", "Buffer Flush", 40, 500)
    assert not found(tmp_path, "profiler-overhead", hidden)
    stacks = eager(100, 10)
    stacks.header["with_stack"] = 1
    assert one(tmp_path, "profiler-overhead", stacks).seconds_lost is None


def test_a_verdict_of_dispatch_is_refused_where_the_profiler_made_it(tmp_path, capsys):
    path = eager(100, 10).steps(500, 500).save(tmp_path / "t.json")
    assert diagnose(path).verdict.roof == "dispatch"
    assert diagnose(path, untraced_step=400 * US).verdict.roof == "dispatch"  # 1.25 times: a warning, no more
    slowed = diagnose(path, untraced_step=250 * US)
    assert slowed.verdict.roof is None and slowed.verdict.gain is None
    assert "2.00 times as long as untraced" in slowed.verdict.says
    assert slowed.data()["files"][0]["verdict"]["roof"] is None
    assert named(slowed, "profiler-overhead")[0].seconds_lost == pytest.approx(2 * 250 * US)
    assert main(["diagnose", str(path), "--untraced-step", "0.25 ms"]) == 4
    assert "profiler-overhead" in capsys.readouterr().out
    assert any("from the same run" in w for w in diagnose(path, untraced_step=1.0).warnings)


@pytest.mark.parametrize("value", [0, -1, "nan", "3 GB", float("inf")])
def test_an_untraced_step_that_is_not_a_time_is_refused(value):
    with pytest.raises(IronlawError, match="untraced-step"):
        diagnose(DATA / "v100_resnet50_nw0.json.gz", untraced_step=value)


def test_an_untraced_step_needs_steps_to_compare_with(tmp_path):
    with pytest.raises(QuestionError, match=r"prof\.step"):
        diagnose(eager(100, 10).save(tmp_path / "t.json"), untraced_step=1.0)
    with pytest.raises(QuestionError, match="trace"):
        diagnose(DATA / "megatron_64xv100.log", untraced_step=1.0)


# ranks


def late(*starts: int) -> list[Made]:
    return [
        Made(rank=r, world=len(starts))
        .kernel(SGEMM, 10, start - 20)
        .collective("allreduce", start, 1000 - start, 1 << 20, n=len(starts), Seq=1)
        for r, start in enumerate(starts)
    ]


def test_straggler_rank(tmp_path):
    finding = one(tmp_path, "straggler-rank", *late(100, 200, 900))
    assert finding.seconds_lost == pytest.approx(700 * US)  # rank 1 came at 200: without rank 2 all would have gone on then
    assert finding.evidence["others_waited_us"] == (800 + 700) / 2
    assert (finding.evidence["rank"], finding.evidence["late"]) == (2, 1)
    assert "computing" in finding.says
    eight = named(real("v100x8_dlrm"), "straggler-rank")[0]
    assert (eight.evidence["rank"], eight.evidence["late"]) == (7, 5)


def test_ranks_that_come_together_have_no_straggler(tmp_path):
    assert not found(tmp_path, "straggler-rank", *late(900, 902, 905))
    assert not named(real("a100x2_resnet.json.gz"), "straggler-rank")  # one rank cannot tell


def pipeline(*work: int, what: str = "send") -> list[Made]:
    made = []
    for rank, ns in enumerate(work):
        trace = Made(rank=rank, world=len(work)).kernel(SGEMM, 10, ns)
        made.append(trace.collective(what, 1000, 20, 100, n=2, **{"Src Rank": 0, "Dst Rank": 1}))
    return made


def test_uneven_stages(tmp_path):
    finding = one(tmp_path, "uneven-stages", *pipeline(100, 300))
    assert finding.seconds_lost == pytest.approx(100 * US)  # 300 against a mean of 200
    assert finding.evidence["compute_us"] == {"0": 100, "1": 300}


def test_stages_alike_and_all_to_alls_are_not_uneven_stages(tmp_path):
    assert not found(tmp_path, "uneven-stages", *pipeline(200, 210))
    assert not found(tmp_path, "uneven-stages", *pipeline(100, 300, what="alltoall"))
    said = [Made(rank=r, world=2).kernel(SGEMM, 10, 100 + 200 * r).kernel("ncclKernel_SendRecv_RING_SIMPLE(int)", 900, 20) for r in (0, 1)]
    assert not found(tmp_path, "uneven-stages", *said)  # NCCL's all-to-all is the same kernel
    assert not named(real("v100x8_dlrm"), "uneven-stages")


# collectives


def reducing(elements: int, device: str = "", lasts: float = 50) -> Made:
    made = Made(device).kernel(SGEMM, 10, 100)
    for i in range(4):
        made.collective("allreduce", 120 + 100 * i, lasts, elements)
    return made


def test_small_all_reduces(tmp_path):
    finding = one(tmp_path, "small-all-reduces", reducing(250))
    assert finding.seconds_lost == pytest.approx(4 * 50 * US)
    assert finding.evidence["calls_by_bytes"] == {"1000": 4}
    # eight A100 in a node: 18.1 us of latency in the catalogue, and no more than it can be saved by joining them
    known = one(tmp_path, "small-all-reduces", reducing(250, A100))
    assert known.seconds_lost == pytest.approx(4 * 18.1 * US)
    assert known.evidence["exposed_us"] == 200


def test_large_few_or_hidden_all_reduces_are_not_small(tmp_path):
    assert not found(tmp_path, "small-all-reduces", reducing(1 << 21))
    assert not found(tmp_path, "small-all-reduces", reducing(1 << 20, A100))  # 4 MiB: 24 us on the wire against 18.1
    assert found(tmp_path, "small-all-reduces", reducing(1 << 19, A100))  # 2 MiB: 12 us
    few = Made().kernel(SGEMM, 10, 100).collective("allreduce", 120, 50, 250)
    assert not found(tmp_path, "small-all-reduces", few)
    assert not found(tmp_path, "small-all-reduces", reducing(250).kernel(SGEMM, 115, 500))
    assert not named(real("a100x2_resnet.json.gz"), "small-all-reduces")  # buckets of 8 to 31 MB


def test_exposed_gather(tmp_path):
    made = Made().kernel(SGEMM, 10, 100).collective("_allgather_base", 90, 60, 1 << 20).collective("_reduce_scatter_base", 200, 70, 1 << 20)
    finding = one(tmp_path, "exposed-gather", made)
    assert finding.seconds_lost == pytest.approx((40 + 70) * US)  # 20 of the gather are behind compute
    assert finding.evidence["reduce_scatter_us"] == 70
    assert not found(tmp_path, "exposed-gather", made.kernel(SGEMM, 95, 200))
    assert not named(real("a100x2_resnet.json.gz"), "exposed-gather")  # all-reduces alone


# kernels


def chain(count: int = 4, every: float = 60, dims: object = None, sizes: tuple[int, ...] = (), device: str = V100) -> Made:
    """Additions of 50 us each, of [1024, 1024] floats where ``dims`` is true."""
    made = Made(device)
    for i in range(count):
        n = sizes[i] if sizes else 1024
        more = {"op": "aten::add", "dims": [[n, 1024], [n, 1024], []]} if dims or sizes else {}
        made.kernel(ADD, 10 + every * i, 50, **more)
    return made


def test_unfused_chains(tmp_path):
    unsized = one(tmp_path, "unfused-chains", chain())
    assert unsized.seconds_lost == pytest.approx(150 * US)  # 4 passes become one
    assert not unsized.evidence["sizes_known"] and "assumed" in unsized.says
    sized = one(tmp_path, "unfused-chains", chain(dims=True))
    assert sized.seconds_lost == pytest.approx(3 * 3 * 4 * 1024**2 / 900e9)  # three passes of three arrays of 4 MiB at 900 GB/s
    assert sized.evidence == {"chains": 1, "kernels": 4, "kernel_us": 200, "sizes_known": True}


def test_kernels_that_only_follow_each_other_are_not_a_chain(tmp_path):
    assert not found(tmp_path, "unfused-chains", chain(2))
    assert not found(tmp_path, "unfused-chains", chain(every=200))  # far apart in time
    assert not found(tmp_path, "unfused-chains", chain(sizes=(1024, 512, 1024, 512)))  # not one tensor
    assert not found(tmp_path, "unfused-chains", chain().mark("Optimizer.step#Adam.step", 0, 400))
    streams = Made()
    for i in range(4):
        streams.kernel(ADD, 10 + 60 * i, 50, stream=7 + i % 2)
    assert not found(tmp_path, "unfused-chains", streams)
    between = chain().kernel(SGEMM, 121, 5)
    assert not found(tmp_path, "unfused-chains", between)


def test_wrong_precision_kernels(tmp_path):
    volta = one(tmp_path, "wrong-precision-kernels", Made(V100).kernel(SGEMM, 10, 100))
    assert volta.seconds_lost == pytest.approx(100 * US * (1 - 15.7 / 125))  # tensor cores in fp16: this device has no bf16
    assert "float16" in volta.advice and "bf" not in volta.advice
    ampere = one(tmp_path, "wrong-precision-kernels", Made(A100).kernel("ampere_sgemm_128x64_nn", 10, 100))
    assert ampere.seconds_lost == pytest.approx(100 * US * (1 - 19.5 / 312))
    assert "bfloat16" in ampere.advice
    nobody = one(tmp_path, "wrong-precision-kernels", Made().kernel(SGEMM, 10, 100))
    assert nobody.seconds_lost is None  # no device, no ratio of peaks
    assert named(real("v100_resnet50_nw0.json.gz"), "wrong-precision-kernels")[0].evidence["narrow"] == "fp16"


def test_narrow_and_doubtful_formats_are_not_wrong(tmp_path):
    assert not found(tmp_path, "wrong-precision-kernels", Made(H100).kernel(BF16, 10, 100))
    # fp32 operands of an operator may be multiplied as TF32 where the device has it: only a kernel's name would tell
    mm = {"op": "aten::mm", "dims": [[1024, 1024], [1024, 1024]]}
    assert not found(tmp_path, "wrong-precision-kernels", Made(A100).kernel("my_gemm", 10, 100, **mm))
    assert found(tmp_path, "wrong-precision-kernels", Made(V100).kernel("my_gemm", 10, 100, **mm))
    assert not found(tmp_path, "wrong-precision-kernels", Made(V100).kernel(ADD, 10, 10_000).kernel(SGEMM, 10_020, 100))
    assert not named(real("mi300x8_resnet.json.gz"), "wrong-precision-kernels")


def repeating(*lasts: float, dims: list[int] | None = None, copies: list[int] | None = None) -> Made:
    made = Made()
    for i, last in enumerate(lasts):
        more = {"op": "aten::mm", "dims": [[dims[i], 64], [64, 64]]} if dims else {}
        made.kernel(SGEMM, 10 + 200 * i, last, **more)
        if copies:
            made.kernel("Memcpy HtoD (Pinned -> Device)", 160 + 200 * i, 5, cat="gpu_memcpy", bytes=copies[i])
    return made


HEAT = [100] * 4 + [110] * 4 + [120] * 4


def test_throttling(tmp_path):
    finding = one(tmp_path, "throttling", repeating(*HEAT))
    assert finding.seconds_lost == pytest.approx(120 * US)  # 1320 us that would have been 1200
    assert finding.evidence["slower"] == pytest.approx(1.2)
    assert not finding.evidence["sizes_known"] and "growing inputs" in finding.says
    assert one(tmp_path, "throttling", repeating(*HEAT, dims=[64] * 12)).evidence["sizes_known"]
    assert one(tmp_path, "throttling", repeating(*HEAT, copies=[1000] * 12)).seconds_lost == pytest.approx(120 * US)


def test_steady_kernels_and_growing_sizes_are_not_throttling(tmp_path):
    assert not found(tmp_path, "throttling", repeating(*[100, 104] * 6))
    assert not found(tmp_path, "throttling", repeating(*HEAT, dims=[64] * 4 + [72] * 4 + [80] * 4))  # other sizes are other kernels
    assert not found(tmp_path, "throttling", repeating(*HEAT, copies=[1000] * 4 + [1100] * 4 + [1200] * 4))  # a growing input
    mostly = repeating(*[100] * 12)
    for i in range(12):  # one kernel of many gets slower: its data, not the clocks
        mostly.kernel(ADD, 120 + 200 * i, 30 if i < 6 else 40)
    assert not found(tmp_path, "throttling", mostly)
    for trace in ("v100_resnet50_nw0", "a100x2_resnet", "mi300x8_resnet", "h100_owlv2"):
        assert not named(real(f"{trace}.json.gz"), "throttling")


# numbers


def product(lasts: float) -> Made:
    sizes = {"op": "aten::mm", "dims": [[4096, 4096], [4096, 4096]]}
    return Made(V100).kernel(SGEMM, 10, lasts, **sizes)


def test_mfu_above_100_percent(tmp_path):
    finding = one(tmp_path, "mfu-above-100-percent", product(1000))
    assert finding.evidence["mfu"] == pytest.approx(2 * 4096**3 / 1e-3 / 15.7e12)  # 875 %
    assert finding.seconds_lost is None
    assert not found(tmp_path, "mfu-above-100-percent", product(10_000))
    wrong = diagnose(DATA / "megatron_64xv100.log", on="v100-sxm-32gb", question={"gpus": 16})
    assert named(wrong, "mfu-above-100-percent")
    assert not named(real("megatron_64xv100.log", on="v100-sxm-32gb"), "mfu-above-100-percent")


def test_sparse_and_wrong_peaks(tmp_path):
    def log(peak: float) -> Diagnosis:
        head = f"| device                | NVIDIA H100 80GB HBM3 |\n| peak TFlops           | {peak} |\n| precision | BF16 |\n"
        (tmp_path / "train.log").write_text(head + (DATA / "llm_c.log").read_text())
        return diagnose(tmp_path / "train.log")

    assert named(log(1979.0), "sparse-peak-used-as-dense")[0].evidence["claimed_peak"] == 1979e12
    assert not named(log(989.0), "sparse-peak-used-as-dense") and not named(log(989.0), "wrong-peak")
    assert named(log(312.0), "wrong-peak") and not named(log(312.0), "sparse-peak-used-as-dense")


def test_claims_and_the_loader_of_logs(tmp_path):
    mixtral = DATA / "megatron_mixtral_16xh100.log"
    asked = {"model": "mixtral-8x7b", "on": "h100-sxm", "gpus": 16, "global_batch_size": 128}
    wrong, right = (diagnose(mixtral, on="h100-sxm", question={**asked, "seq_len": n}) for n in (4096, 2048))
    assert named(wrong, "claim-disagrees") and not named(right, "claim-disagrees")
    line = "[titan] 2025-08-22 07:53:{i:02d},000 - root - INFO - step: {i}  loss: 2.0  tps: 7000  tflops: 1.0  data_loading(%): {d}\n"

    def log(share: float) -> Diagnosis:
        (tmp_path / "titan.log").write_text("".join(line.format(i=i, d=share) for i in range(1, 21)))
        return diagnose(tmp_path / "titan.log")

    steady = log(0.5)
    assert not any(named(steady, name) for name in ("starved-loader", "warm-up-steps"))
    assert named(log(30.0), "starved-loader")[0].evidence["data_share"] == pytest.approx(0.3)


def test_drifting_steps_of_a_log_are_not_throttling(tmp_path):
    def log(*ms: int) -> Diagnosis:
        (tmp_path / "gpt.log").write_text("".join(f"iter {i}: loss 2.0000, time {t}.00ms, mfu 30.00%\n" for i, t in enumerate(ms)))
        return diagnose(tmp_path / "gpt.log")

    for later, drift in ((120, 0.2), (90, -0.1)):
        found = log(*[100] * 10, *[later] * 10)
        assert named(found, "drift")[0].evidence["drift"] == pytest.approx(drift)
        assert not named(found, "throttling")  # or a longer sequence by schedule: a log cannot tell
    assert not named(log(*[100, 101] * 10), "drift")
    assert named(real("modded_nanogpt_8xh100.log"), "drift")  # whose attention window grows by schedule
    assert not named(real("megatron_64xv100.log"), "drift")


# all of them


def test_a_first_launch_that_loads_its_kernel_is_the_host(tmp_path):
    """The call takes 20 ms, its kernel starts when it returns: 20 ms of launch call, none of it a wait of the stream."""
    trace = Made(V100).kernel(ADD, 100, 50)
    trace.call("cudaLaunchKernel", 200, 20_000)
    trace.events[-1]["args"] = {"correlation": 77}
    trace._add("kernel", ADD, 20_200, 50, tid=7, correlation=77, stream=7, device=0)
    (finding,) = found(tmp_path, "slow-launches", trace)
    assert finding.seconds_lost == pytest.approx(20_000 * US)
    assert found(tmp_path, "stream-wait", trace) == []


def test_a_wait_of_a_stream_lists_its_gaps(tmp_path):
    """Launched at 205, returned at 207, begun at 5,000: 4,793 us, between the two kernels."""
    trace = Made(V100).kernel(ADD, 100, 100).kernel(SGEMM, 5_000, 1_000, launched=205)
    (finding,) = found(tmp_path, "stream-wait", trace)
    assert finding.seconds_lost == pytest.approx((5_000 - 207) * US)
    (gap,) = finding.evidence["longest"]
    assert (gap["wait_us"], gap["after"], gap["call"]) == (4_793.0, SGEMM, "cudaLaunchKernel")
    assert "100% of it in one gap" in finding.says


def test_an_event_without_length_ends_a_gap(tmp_path):
    """Whole-microsecond traces have kernels of 0 us: the wait after one is that of its own launch, not of the next."""
    trace = Made(V100).kernel(ADD, 100, 100, launched=90).kernel(ADD, 3_000, 0, launched=150).kernel(SGEMM, 3_004, 1_000, launched=2_999)
    (finding,) = found(tmp_path, "stream-wait", trace)
    assert finding.seconds_lost == pytest.approx((3_000 - 200) * US)


def test_every_finding_is_in_the_page_of_findings():
    anchors = re.findall(r"^## (\S+)$", (DOCS / "findings.md").read_text(encoding="utf-8"), re.M)
    assert len(anchors) == len(set(anchors))
    assert set(anchors) == set(FINDINGS) | set(OF_LOGS)


def test_every_finding_of_a_log_has_a_name():
    source = Path(ironlaw.measure.logs.remarks.__file__).read_text(encoding="utf-8")
    codes = set(re.findall(r'^        "([a-z0-9-]+)"(?: if doubled else "([a-z-]+)")?,$', source, re.M))
    assert {code for pair in codes for code in pair if code} == set(from_logs.NAMES)


@pytest.mark.parametrize("name", ["v100_resnet50_nw0.json.gz", "v100_resnet50_nw4.json.gz", "a100x2_resnet.json.gz", "v100x8_dlrm"])
def test_a_finding_has_evidence(name):
    diagnosis = real(name)
    walls = {p.trace.path: p.window.wall / 1e9 for p in diagnosis.profiles}
    for finding in diagnosis.findings:
        assert re.search(r"\d", finding.says) and "\n" not in finding.says + finding.advice
        assert finding.evidence
        assert finding.seconds_lost is None or 0 <= finding.seconds_lost <= walls.get(finding.path, max(walls.values()))
        json.dumps(finding.data(), allow_nan=False)
    for profile in diagnosis.profiles:
        lost = sum(f.seconds_lost for f in diagnosis.findings if f.name in IDLE and f.path == profile.trace.path)
        assert lost <= profile.window.idle / 1e9


NAMES = (ADD, SGEMM, BF16, "void cub::DeviceScan(int)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)", "")
CALLS = ("cudaStreamSynchronize", "cudaMalloc", "cudaFree", "cudaMallocAsync", "aten::item")
MARKS = ("ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3", "enumerate(DataLoader)#next", "Optimizer.step#SGD.step", "nccl:send 0->1")
times = st.integers(0, 3000)
kernels = st.tuples(st.sampled_from(NAMES), times, st.integers(0, 500), times, st.sampled_from((7, 8)), st.sampled_from((None, 64, 4096)))
spans = st.tuples(st.sampled_from((*CALLS, *MARKS, "Buffer Flush")), times, st.integers(0, 800))


@settings(max_examples=60)
@given(st.lists(kernels, min_size=1, max_size=30), st.lists(spans, max_size=20), st.sampled_from((None, V100, A100, "unheard of")))
def test_seconds_lost_never_exceed_the_window(tmp_path, ran, called, device):
    made = Made(device or "")
    for name, ts, dur, launched, stream, rows in ran:
        more = {"op": "aten::mm", "dims": [[rows, 64], [64, 64]]} if rows else {}
        made.kernel(name, ts, dur, launched, stream, **more)
    for name, ts, dur in called:
        made.call(name, ts, dur) if name in CALLS else made.mark(name, ts, dur)
    try:
        diagnosis = diagnose(made.save(tmp_path / "any.json"))
    except IronlawError:
        return
    profile = diagnosis.profiles[0]
    for finding in diagnosis.findings:
        json.dumps(finding.data(), allow_nan=False)
        if finding.seconds_lost is not None and finding.name != "warm-up-steps":  # which is of the host
            assert 0 <= finding.seconds_lost <= profile.window.wall / 1e9
    assert sum(f.seconds_lost or 0 for f in diagnosis.findings if f.name in IDLE) <= profile.window.idle / 1e9 + 1e-12
