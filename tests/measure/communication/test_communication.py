"""Communication: kernel names, collectives, and the waiting of ranks, in real traces and in made ones."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paths
from ironlaw.errors import InputError
from ironlaw.measure.communication.classify import classify
from ironlaw.measure.communication.collectives import (
    LOWER_BOUND,
    Link,
    by_size,
    collectives,
    interval,
    item_bytes,
    link_of,
    operation_of,
    traffic_factor,
)
from ironlaw.measure.communication.patterns import OWN, Pattern, function_of, read_patterns
from ironlaw.measure.communication.ranks import align
from ironlaw.measure.events import KERNEL, MEMCPY, NONE, DeviceEvents, Message, Shape, Spans, Trace
from ironlaw.measure.read.chrome import read_chrome
from ironlaw.measure.window import split_window

MEASURED = paths.DATA / "measured"
KERNELS, OPERATORS = read_patterns(OWN)
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "ampere_sgemm_128x64_nn"
MS = 1_000_000


def column(*values):
    return np.array(values, np.int64)


def spans(rows=()):
    """Rows of (start, end, name, thread, correlation, external, shapes)."""
    return Spans(*np.array(sorted(rows), np.int64).reshape(-1, 7).T)


def made(kernels, names, **more):
    """A trace of kernels (start, end, name index[, external, launch, kind]), sorted by start."""
    rows = sorted((*k, *(NONE, NONE, KERNEL)[len(k) - 3 :]) for k in kernels)
    start, end, name, external, launch, kind = np.array(rows, np.int64).reshape(-1, 6).T
    none = np.full(len(rows), NONE, np.int64)
    zero = np.zeros(len(rows), np.int64)
    events = DeviceEvents(start, end, kind, name, zero, zero, np.arange(len(rows)), external, none, launch)
    plain = {"path": "made", "reader": "chrome", "device_name": "", "rank": 0, "world_size": None, "base": 0, "shapes": ()}
    empty = {"launches": spans(), "operators": spans(), "marks": spans()}
    return Trace(**(plain | empty | {"names": tuple(names), "events": events} | more))


def kernel_names(*names):
    """A trace in which every name ran once for 1 us."""
    return made([(1000 * i, 1000 * i + 1000, i) for i in range(len(names))], names)


def call(start, end, *, op="allreduce", elements=1000, group="0", ranks=(), n=None, **more):
    """One call: its times, and what the kernel says of it."""
    n = n or len(ranks) or None
    said = Message(op, elements, elements, "Float", n, group, tuple(ranks), said_by="kernel arguments", **more)
    return start, end, said


def rank_trace(rank, calls, *, world=None, gemms=(), shift=0, **more):
    """The trace of one rank: its calls and its compute, ``shift`` ns ahead of the job's clock."""
    names = (ALL_REDUCE, SEND, GEMM)
    kernels = [(a + shift, b + shift, 1 if said.collective in ("send", "recv") else 0) for a, b, said in calls]
    kernels += [(a + shift, b + shift, 2) for a, b in gemms]
    trace = made(kernels, names, rank=rank, world_size=world, path=f"rank{rank}.json", **more)
    communicates = np.flatnonzero(trace.events.name != 2).tolist()
    ordered = sorted(calls, key=lambda c: (c[0], c[1]))
    return replace(trace, messages=dict(zip(communicates, (said for _, _, said in ordered), strict=True)))


def dlrm():
    return [read_chrome(str(MEASURED / "v100x8_dlrm" / f"worker{i}.json.gz"))[0] for i in range(8)]


# ------------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize("pattern", KERNELS, ids=lambda p: p.name)
def test_every_shipped_pattern_matches_its_sample_and_has_a_source(pattern):
    assert next(p for p in KERNELS if p.fits(function_of(pattern.sample))) is pattern
    assert pattern.source and pattern.reason


@pytest.mark.parametrize(
    ("name", "family", "waits"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "nccl", False),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "nccl", False),
        ("_Z40ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE", "nccl", False),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "rccl", False),
        ("mscclKernel_Sum_hip_bfloat16_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)", "rccl", False),
        ("ncclSymkDevKernel_AllGather_STMC(ncclSymkDevWorkArgs4K)", "nccl-symmetric", False),
        ("void deep_ep::internode::notify_dispatch<false, 4>(int const*, int*, int, int const*)", "deepep", True),
        ("void primus_turbo::deep_ep::intranode::cached_notify_dispatch<8>(int const*, int)", "deepep", True),
        ("void deep_ep::internode_ll::dispatch_opt1_hidden6144<1, false, 1>(void*, void*, float*)", "deepep", False),
        ("void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(__nv_bfloat16*, float*)", "deepep", False),
        ("void <unnamed>::multimem_all_reduce_kernel<c10::BFloat16, (int)16>(c10::BFloat16*)", "symmetric-memory", False),
        ("void aiter::cross_device_reduce_1stage<bf16, 8, false>(aiter::RankData*)", "custom-all-reduce", False),
        ("void sglang::cross_device_reduce_2stage<__half, 8>(sglang::RankData*)", "custom-all-reduce", False),
        ("void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<8, float>(int)", "custom-all-reduce", False),
        ("oneccl_allgatherv_pcie<half, Rt64_128_PCIE, RingTransmit>", "oneccl", False),
        ("hcom_allReduce__503_0_1", "hccl", False),
        ("void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)", "nvshmem", True),
        ("EpDispatchInterNodeKernel_bf16", "mori", False),
    ],
)
def test_kernels_of_real_libraries_are_known_by_name(name, family, waits):
    found = classify(kernel_names(name))
    assert found.mask.tolist() == [True] and found.waits.tolist() == [waits]
    assert found.family == {0: family} and found.reason[0].startswith("pattern '")


@pytest.mark.parametrize(
    "name",
    [
        "void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*, long*, int*>::Policy, long*>(long*)",
        "void cub::CUB_101702_800_NS::DeviceScanKernel<cub::DispatchScan<deep_ep::intranode::combine> >(int)",
        "triton_poi_fused_all_to_all_single_clone_permute_view_0",
        "triton_red_fused__to_copy_all_reduce_add_1",
        "void at::native::elementwise_kernel<128, 2, at::native::all_to_all_copy>(int)",
        "void at::native::vectorized_elementwise_kernel<4, ncclDevKernel_AllReduce>(int)",
        "void moe::dispatch_tokens<float>(float*)",
        "combine_kernel(float*)",
        "void deep_ep::layout::get_dispatch_layout<256, 4, 2>(long const*)",
        "myncclDevKernel_AllReduce(int)",
        "void rmsNorm(vllm::cross_device_reduce_1stage)",
        "void f<(nccl::ncclDevKernel_X)1>(int)",
    ],
)
def test_a_word_of_communication_in_a_name_is_not_communication(name):
    assert not classify(kernel_names(name)).mask.any()


@given(st.text(alphabet="ab:<>(_* ", max_size=40), st.text(alphabet="ab_*:", min_size=1, max_size=8))
def test_a_pattern_matches_from_any_namespace_on(function, name):
    expression = re.compile(".*".join(map(re.escape, name.split("*"))), re.DOTALL)
    starts = [0, *(i + 2 for i in range(len(function)) if function.startswith("::", i))]
    assert Pattern(name, "").fits(function) == any(expression.fullmatch(function, at) for at in starts)


@given(st.text(max_size=200))
def test_any_text_has_a_function(name):
    assert isinstance(function_of(name), str) and isinstance(function_of("_ZN" + name), str)


def test_the_worst_pattern_on_the_worst_name_takes_no_time(budget):
    with budget(0.5):
        assert not Pattern("a*" * 100 + "b", "").fits("a" * 4096)
        function_of("_ZN" + "9" * 100_000)
        function_of("<" * 1_000_000)


def test_each_name_is_classified_once(budget):
    kernels = [(i, i + 1, i % 2) for i in range(400_000)]
    trace = made(kernels, (ALL_REDUCE, GEMM))
    with budget(1.0):
        found = classify(trace)
    assert found.mask.sum() == 200_000


def test_only_kernels_communicate():
    trace = made([(0, 10, 0, NONE, NONE, MEMCPY), (10, 20, 0)], (ALL_REDUCE,))
    assert classify(trace).mask.tolist() == [False, True]


# ------------------------------------------------------------------------------------------------ operators


def test_a_kernel_no_pattern_knows_is_known_by_its_operator():
    names = ("secret_kernel(int)", "void at::native::copy<4>(int)", "c10d::allreduce_", "aten::mul")
    operators = spans([(0, 9, 2, 1, NONE, 7, NONE), (10, 19, 3, 1, NONE, 8, NONE)])
    trace = made([(20, 30, 0, 7), (30, 40, 1, 7), (40, 50, 0, 8)], names, operators=operators)
    found = classify(trace)
    assert found.mask.tolist() == [True, False, False]  # a copy of PyTorch inside the operator stays a copy
    assert found.reason == {0: "its operator is c10d::allreduce_"} and found.family == {0: "operator"}
    assert [(u.name, u.count, u.time) for u in found.unclassified] == [("secret_kernel(int)", 1, 10)]


def test_a_kernel_without_an_external_id_is_known_by_the_thread_that_launched_it():
    names = ("secret_kernel(int)", "cudaLaunchKernel", "symm_mem::fused")
    launches = spans([(5, 6, 1, 1, 0, NONE, NONE), (5, 6, 1, 2, 1, NONE, NONE), (25, 26, 1, 1, 2, NONE, NONE)])
    operators = spans([(0, 20, 2, 1, NONE, 7, NONE)])
    rows = [(30, 40, 0, NONE, 0), (40, 50, 0, NONE, 1), (50, 60, 0, NONE, 2)]
    assert classify(made(rows, names, launches=launches, operators=operators)).mask.tolist() == [True, False, False]


def test_an_external_id_that_repeats_the_correlation_is_no_operator():
    names = ("secret_kernel(int)", "c10d::allreduce_")
    operators = spans([(0, 9, 1, 1, NONE, 0, NONE), (0, 9, 1, 1, NONE, 1, NONE)])
    trace = made([(20, 30, 0, 0), (30, 40, 0, 1)], names, operators=operators)  # correlations are 0 and 1 as well
    assert not classify(trace).mask.any()


def test_a_kernel_whose_arguments_name_a_collective_communicates():
    trace = replace(kernel_names("vendor_generated_kernel_42"), messages={0: Message(collective="send")})
    assert classify(trace).reason == {0: "its arguments name a collective: send"}


def test_unclassified_kernels_are_listed_longest_first_and_suspects_marked():
    names = ("odd_kernel", "my_p2p_all_gather", GEMM, ALL_REDUCE)
    found = classify(made([(0, 10, 0), (10, 15, 0), (20, 50, 1), (60, 90, 2), (90, 99, 3)], names))
    assert [(u.name, u.count, u.time, u.suspect) for u in found.unclassified] == [
        ("my_p2p_all_gather", 1, 30, "allgather"),
        ("odd_kernel", 2, 15, ""),
    ]


def test_an_empty_trace_has_no_communication():
    found = classify(made([], ()))
    assert not len(found.mask) and not found.unclassified
    assert collectives(made([], ()), found) == [] and align([]).meetings == ()


# ------------------------------------------------------------------------------------------------ files of the user


def patterns_file(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_of_the_user_adds_patterns_and_overrides_ours(tmp_path):
    path = patterns_file(
        tmp_path,
        '[[pattern]]\nname = "secret_*"\nreason = "ours"\nfamily = "inhouse"\nwaits = true\n'
        '[[pattern]]\nname = "nccl*Kernel*"\nreason = "a test double"\ncommunicates = false\n'
        '[[operator]]\nname = "inhouse::*"\nreason = "ours"\n',
    )
    names = ("secret_kernel(int)", ALL_REDUCE, "other", "inhouse::send")
    operators = spans([(0, 9, 3, 1, NONE, 50, NONE)])
    trace = made([(0, 10, 0), (10, 20, 1), (20, 30, 2, 50)], names, operators=operators)
    found = classify(trace, (path,))
    assert found.mask.tolist() == [True, False, True] and found.waits.tolist() == [True, False, False]
    assert found.family == {0: "inhouse", 2: "operator"}
    assert classify(trace).mask.tolist() == [False, True, False]


def test_a_file_that_changed_is_read_again(tmp_path):
    path = patterns_file(tmp_path, '[[pattern]]\nname = "one_*"\nreason = "a"\n')
    assert classify(kernel_names("one_x", "three_x"), (path,)).mask.tolist() == [True, False]
    patterns_file(tmp_path, '[[pattern]]\nname = "three_*"\nreason = "a"\n')
    assert classify(kernel_names("one_x", "three_x"), (path,)).mask.tolist() == [False, True]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[pattern]]\nname = "(a+)+$"\nreason = "r"', "not a regular expression"),
        ('[[pattern]]\nname = "nccl[A-Z"\nreason = "r"', "not a regular expression"),
        ('[[pattern]]\nname = "nccl|rccl"\nreason = "r"', "not a regular expression"),
        (f'[[pattern]]\nname = "{"a*" * 150}"\nreason = "r"', "at most 200"),
        ('[[pattern]]\nname = "*"\nreason = "r"', "matches nearly everything"),
        ('[[pattern]]\nname = ""\nreason = "r"', "matches nearly everything"),
        ('[[pattern]]\nname = "*:_*"\nreason = "r"', "matches nearly everything"),
        ('[[pattern]]\nname = 3\nreason = "r"', "must be text"),
        ('[[pattern]]\nname = "abc"\nreason = "r"\nwaits = "yes"', "true or false"),
        ('[[pattern]]\nname = "abc"', "reason is missing"),
        ('[[pattern]]\nreason = "abc"', "name is missing"),
        ('[[pattern]]\nname = "abc"\nreason = "r"\nregex = "x"', "unknown key 'regex'"),
        ('[[pattern]]\nname = "abc"\nreason = "r"\noperation = "gossip"', "one of all_reduce"),
        ('pattern = "abc"', "must be up to"),
        ("pattern = [1]", "must be a table"),
        ('[[kernel]]\nname = "abc"', "unknown table 'kernel'"),
        ('[[pattern]]\nname = "abc"\nreason = "r"\n' * 2001, "up to 2000"),
        ("= 3", "not valid TOML"),
        (b"\xff\xfe\x00", "UTF-16"),
        ("x = " + "[" * 100_000, "not valid TOML"),
        ("# nothing", "no [[pattern]]"),
        ("", "empty"),
        ("#" * (1 << 21), "at most"),
    ],
)
def test_a_hostile_file_of_patterns_is_one_clear_error(tmp_path, text, says):
    path = patterns_file(tmp_path, text)
    with pytest.raises(InputError) as error:
        classify(kernel_names("x"), (path,))
    assert says in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)
    assert len(str(error.value)) < 400 + len(str(path))


def test_a_missing_file_of_patterns_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"absent\.toml"):
        classify(kernel_names("x"), (tmp_path / "absent.toml",))


# ------------------------------------------------------------------------------------------------ one rank


def test_collectives_of_two_a100_are_those_read_from_the_trace_by_hand():
    trace = read_chrome(str(MEASURED / "a100x2_resnet_collectives.json.gz"))[0]
    calls = collectives(trace, classify(trace))
    assert len(calls) == 21 and {c.said_by for c in calls} == {"kernel arguments"}
    found = {round(s.bytes / 1e6, 2): s for s in by_size(calls) if s.operation == "all_reduce"}
    for size, best, middle in [(31.50, 12.99, 11.78), (26.55, 12.29, 10.98), (26.26, 11.09, 10.02), (9.72, 5.76, 4.79), (8.20, 3.25, 2.48)]:
        data = found[size].data()
        assert data["algbw"] == data["busbw"]  # two ranks: the factor is 1
        assert data["busbw"]["best"] / 1e9 == pytest.approx(best, abs=0.006)
        assert data["busbw"]["median"] / 1e9 == pytest.approx(middle, abs=0.006)
        assert (data["algorithm"], data["protocol"], data["label"]) == ("RING", "LL", LOWER_BOUND)
    assert found[31.50].best // 1000 == 2424


def test_collectives_of_eight_mi300x_are_a_lower_bound_of_bandwidth():
    trace = read_chrome(str(MEASURED / "mi300x8_resnet_collectives.json.gz"))[0]
    calls = collectives(trace, classify(trace))
    assert len(calls) == 17 and sum(c.bytes is not None for c in calls) == 12
    found = {round(s.bytes / 1e6, 2): s for s in by_size(calls) if s.operation == "all_reduce"}
    data = found[17.63].data()
    assert found[17.63].best // 1000 == 8656 and data["busbw"]["best"] / 1e9 == pytest.approx(3.56, abs=0.006)
    assert data["algbw"]["best"] / 1e9 == pytest.approx(3.56 / 1.75, abs=0.006)
    assert found[5.75].data()["busbw"]["best"] / 1e9 == pytest.approx(1.51, abs=0.006)
    link = link_of("mi300x")
    one = next(c for c in calls if c.bytes and c.bytes > 17e6)
    low, high = interval(one, link)
    assert 0 < low < high == one.duration  # an interval, never a point
    assert interval(one, None) == (0, one.duration)


def test_the_ideal_is_the_factor_times_the_bytes_over_the_link():
    link = Link("a test", 150e9, {})
    assert link.ideal("all_reduce", 15_000_000_000, 8) == pytest.approx(0.175)
    assert link.ideal("all_gather", 15_000_000_000, 4) == pytest.approx(0.075)
    assert link.ideal("barrier", 8, 8) is None
    trace = rank_trace(0, [call(0, 1000, elements=2**30, n=8)])
    assert interval(collectives(trace, classify(trace))[0], link) == (1000, 1000)  # never more than it took


def test_traffic_factors_are_those_of_nccl_tests():
    assert [traffic_factor("all_reduce", n) for n in (1, 2, 4)] == [0.0, 1.0, 1.5]
    assert [traffic_factor(op, 4) for op in ("all_gather", "reduce_scatter", "all_to_all")] == [0.75] * 3
    assert [traffic_factor(op, None) for op in ("broadcast", "send_recv")] == [1.0, 1.0]
    assert traffic_factor("all_reduce", None) is None and traffic_factor("unknown", 8) is None


@pytest.mark.parametrize(
    ("text", "operation"),
    [
        ("allreduce", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("allgather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("nccl:recv 1<-0", "send_recv"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduce_scatter"),
        ("hcom_allGather_", "all_gather"),
        ("reduce", "reduce"),
        ("wait", None),
    ],
)
def test_operations_by_the_names_frameworks_give_them(text, operation):
    assert operation_of(text) == operation


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("Float", 4), ("BFloat16", 2), ("Long", 8), ("c10::Half", 2), ("long int", 8), ("unsigned char", 1), ("Float8_e5m2", 1), ("bf16", 2)],
)
def test_bytes_of_element_types(dtype, size):
    assert item_bytes(dtype) == size


def test_gathered_bytes_are_those_of_the_larger_buffer():
    said = Message("_allgather_base", 1000, 8000, "BFloat16", 8, "0", said_by="kernel arguments")
    trace = replace(kernel_names("ncclDevKernel_AllGather_RING_LL(int)"), messages={0: said})
    one = collectives(trace, classify(trace))[0]
    assert (one.operation, one.bytes, one.n, one.factor) == ("all_gather", 16000, 8, 0.875)


def asking_trace(shape=None):
    """A kernel that says nothing, launched inside record_param_comms (external id 7) and an annotation on thread 1."""
    names = (ALL_REDUCE, "record_param_comms", "nccl:all_reduce", "cudaLaunchKernel")
    launches = spans([(30, 35, 3, 1, 0, NONE, NONE), (130, 135, 3, 2, 1, NONE, NONE)])
    operators = spans([(10, 50, 1, 1, NONE, 7, NONE), (110, 150, 1, 1, NONE, 8, NONE)])
    marks = spans([(20, 40, 2, 1, NONE, NONE, 0 if shape else NONE)])
    more = {"launches": launches, "operators": operators, "marks": marks, "shapes": (shape,) if shape else ()}
    return made([(100, 200, 0, NONE, 0), (200, 300, 0, NONE, 1)], names, **more)


def test_bytes_are_joined_through_the_thread_where_the_kernel_has_no_identifier():
    said = Message("allreduce", 500, 500, "Float", 4, "0", said_by="record_param_comms")
    trace = replace(asking_trace(), call_messages={7: said, 8: said})
    first, second = collectives(trace, classify(trace))
    assert (first.bytes, first.n, first.said_by) == (2000, 4, "record_param_comms")
    assert second.bytes is None and second.said_by == "the kernel's name"  # launched on a thread that asked for nothing


def test_bytes_are_the_shapes_of_the_annotation_where_the_operator_is_silent():
    trace = asking_trace(Shape(([394241],), ("float",)))
    one = collectives(trace, classify(trace))[0]
    assert (one.bytes, one.operation, one.said_by) == (1576964, "all_reduce", "shapes of nccl:all_reduce")


@pytest.mark.parametrize("dims", [[], ["x"], [-1], [2**62], [2**39, 2**39], [[3]], 7, None])
def test_wrong_shapes_give_no_bytes(dims):
    trace = asking_trace(Shape((dims,), ("float",)))
    assert collectives(trace, classify(trace))[0].bytes is None


def test_kernels_that_only_wait_are_not_collectives():
    trace = kernel_names("void deep_ep::intranode::cached_notify_combine<8>(int)", "void deep_ep::intranode::combine<8>(int)")
    assert [c.operation for c in collectives(trace, classify(trace))] == ["all_to_all"]


# ------------------------------------------------------------------------------------------------ all ranks


def test_eight_ranks_of_dlrm_are_split_into_transfer_and_waiting():
    found = align(dlrm())
    assert [m.transfer // 1000 for m in found.meetings] == [11, 8, 8, 8, 87, 11, 23, 69]
    assert [m.late for m in found.meetings] == [7, 7, 7, 7, 7, 5, 5, 4]
    assert [m.operation for m in found.meetings] == ["all_to_all"] * 4 + ["all_reduce", "all_to_all", "all_reduce", "all_reduce"]
    assert found.meetings[0].waits == tuple(1000 * w for w in (2135, 7624, 508, 6122, 4872, 4669, 505, 0))
    assert [m.spread <= 7000 for m in found.meetings] == [True] * 8 and found.meetings[0].spread == 2000
    one = found.meetings[4].data()
    assert one["bytes"] == 1576964
    assert (round(one["algbw"] / 1e9, 1), round(one["busbw"] / 1e9, 1)) == (18.1, 31.7)
    assert set(found.offsets.values()) == {0} and not found.warnings and not found.missing
    assert [t.rank for t in found.late_ranking] == [7, 5, 4]


def test_transfers_of_one_size_are_grouped_and_compared_with_the_link():
    found = align(dlrm()).data(Link("a test", 150e9, {}))["by_size"]
    assert [(r["operation"], r["bytes"], r["count"], r["transfer_ns"]["total"]) for r in found] == [
        ("all_reduce", 1576964, 1, 87_000),
        ("all_reduce", 907840, 1, 69_000),
        ("all_reduce", 448, 1, 23_000),
        ("all_to_all", 24576, 2, 22_000),
        ("all_to_all", 192, 1, 8_000),
        ("all_to_all", 1536, 1, 8_000),
        ("all_to_all", 13568, 1, 8_000),
    ]
    assert found[0]["ideal_ns"] == 18_397  # 1.75 x 1576964 / 150e9
    assert found[0]["busbw"]["best"] / 1e9 == pytest.approx(31.7, abs=0.05)


def test_ranks_of_dlrm_have_the_spans_and_the_exposed_communication_found_by_hand():
    rows = align(dlrm()).totals
    assert [r.span // 1000 for r in rows] == [13009, 18749, 11350, 18853, 16589, 16392, 11410, 10967]
    assert [r.communication // 1000 for r in rows] == [5798, 11336, 3492, 9774, 6587, 6251, 3558, 1746]
    exposed = [r.exposed_transfer + r.exposed_wait + r.exposed_unmatched for r in rows]
    assert [e // 1000 for e in exposed] == [5537, 11056, 3217, 9450, 6550, 6211, 3289, 1580]
    assert [r.idle // 1000 for r in rows] == [6419, 6428, 7046, 8145, 8887, 9121, 7051, 8308]
    assert all(r.transfer == 225_000 for r in rows)
    shares = [round(r.wait / (r.wait + r.transfer), 2) for r in rows]
    assert (min(shares), max(shares)) == (0.87, 0.98)


def test_the_order_in_which_traces_are_given_does_not_matter():
    traces = dlrm()
    assert align(traces[::-1]).data() == align(traces).data()
    assert json.loads(json.dumps(align(traces).data()))["transfer_ns"] == 225_000


def test_a_missing_rank_is_named_and_its_collectives_are_incomplete():
    traces = dlrm()
    found = align(traces[:3] + traces[4:])
    assert found.missing == (3,) and "1 of 8 ranks are missing (3)" in " ".join(found.warnings)
    assert len(found.meetings) == 8 and not any(m.complete for m in found.meetings)
    assert [m.transfer // 1000 for m in found.meetings][4] == 87


def iterations(count, ranks, *, late=0, seed=1, world=None, shift=None, gap=10 * MS):
    """``count`` steps of two all-reduces; rank ``late`` comes last by 1 to 2 ms, all leave together."""
    rng = np.random.default_rng(seed)
    calls = {rank: [] for rank in ranks}
    gemms = {rank: [] for rank in ranks}
    for step in range(count):
        for elements, offset in ((1000, 0), (5000, 4 * MS)):
            came = {rank: step * gap + offset + int(rng.integers(0, MS)) for rank in ranks}
            came[late] = step * gap + offset + MS + int(rng.integers(0, MS))
            end = max(came.values()) + 50_000 + int(rng.integers(0, 1000))
            for rank in ranks:
                calls[rank].append(call(came[rank], end, elements=elements, ranks=ranks))
            gemms[late].append((came[late] - 300_000, came[late]))
    shift = shift or {}
    return [rank_trace(rank, calls[rank], gemms=gemms[rank], world=world or len(ranks), shift=shift.get(rank, 0)) for rank in ranks]


@settings(max_examples=20)
@given(st.lists(st.integers(-(10**15), 10**15).filter(lambda d: abs(d) > 10**5), min_size=3, max_size=3), st.integers(0, 3))
def test_clocks_of_several_hosts_are_recovered_to_the_nanosecond(shifts, late):
    ranks = (0, 1, 2, 3)
    straight = align(iterations(5, ranks, late=late))
    crooked = align(iterations(5, ranks, late=late, shift=dict(zip(ranks, (0, *shifts), strict=True))))
    assert crooked.offsets == dict(zip(ranks, (0, *shifts), strict=True))
    assert crooked.residual_max == straight.residual_max == 0
    assert [m.waits for m in crooked.meetings] == [m.waits for m in straight.meetings]
    assert crooked.totals == straight.totals


def test_clocks_are_recovered_through_ranks_that_both_sides_know():
    ends = (100_000, 300_000)
    a, b = (0, 1), (1, 2)
    traces = [
        rank_trace(0, [call(0, ends[0], ranks=a, group="a")], world=3),
        rank_trace(1, [call(5, ends[0], ranks=a, group="a"), call(200_000, ends[1], ranks=b, group="b")], world=3, shift=7_000_001),
        rank_trace(2, [call(250_000, ends[1], ranks=b, group="b")], world=3, shift=-99_000_003),
    ]
    found = align(traces)
    ahead = found.offsets
    assert ahead[1] - ahead[0] == 7_000_001 and ahead[2] - ahead[0] == -99_000_003
    assert [m.transfer for m in found.meetings] == [99_995, 50_000]


def test_a_base_that_differs_between_files_is_part_of_the_clock():
    traces = iterations(3, (0, 1))
    moved = replace(traces[1], base=5 * 10**17)
    found = align([traces[0], moved])
    assert found.offsets in ({0: 0, 1: 5 * 10**17}, {0: -5 * 10**17, 1: 0})
    assert [m.waits for m in found.meetings] == [m.waits for m in align(traces).meetings]


def test_ranks_of_one_host_share_its_clock():
    traces = iterations(4, (0, 1, 2, 3), shift={2: 5 * MS, 3: 5 * MS})
    named = [replace(t, properties={"HOSTNAME": "ab"[i // 2]}) for i, t in enumerate(traces)]
    assert align(named).offsets == {0: 0, 1: 0, 2: 5 * MS, 3: 5 * MS}


def test_a_late_rank_is_charged_with_what_it_did_meanwhile():
    calls = [[call(100, 1100, ranks=(0, 1, 2))], [call(300, 1100, ranks=(0, 1, 2))], [call(1000, 1100, ranks=(0, 1, 2))]]
    traces = [rank_trace(0, calls[0]), rank_trace(1, calls[1]), rank_trace(2, calls[2], gemms=[(0, 600)])]
    found = align(traces)
    late = found.late_ranking[0]
    assert (late.rank, late.late, late.made_others_wait, late.ahead) == (2, 1, 900 + 700, 700)
    assert late.while_late == {"compute": 500, "communication": 0, "copy": 0, "idle": 400, "before_its_trace": 0}
    assert found.meetings[0].transfer == 100 and found.totals[0].wait == 900


def test_time_before_a_late_ranks_trace_is_not_called_idle():
    found = align([rank_trace(0, [call(0, 1000, ranks=(0, 1))]), rank_trace(1, [call(800, 1000, ranks=(0, 1))])])
    assert found.late_ranking[0].while_late == {"compute": 0, "communication": 0, "copy": 0, "idle": 0, "before_its_trace": 800}


def test_a_rank_whose_trace_begins_a_step_later_still_meets_the_others():
    whole = iterations(8, (0, 1, 2), seed=3)
    rows = np.arange(len(whole[1].events)) >= 2
    cut = replace(whole[1], events=whole[1].events.rows(rows), messages={r - 2: m for r, m in whole[1].messages.items() if r >= 2})
    for shift in (0, 10**9):
        moved = replace(cut, events=replace(cut.events, start=cut.events.start + shift, end=cut.events.end + shift))
        found = align([whole[0], moved, whole[2]])
        assert len(found.meetings) == 16 and [len(m.ranks) for m in found.meetings] == [2, 2] + [3] * 14
        assert "different numbers of calls" in " ".join(found.warnings)
        assert found.offsets[1] - found.offsets[0] == shift
        assert [m.waits for m in found.meetings[2:]] == [m.waits for m in align(whole).meetings[2:]]


def test_sequence_numbers_decide_where_files_have_them():
    ranks = (0, 1)
    a = rank_trace(0, [call(100 * i, 100 * i + 50, ranks=ranks, sequence=i) for i in range(5)])
    b = rank_trace(1, [call(100 * i + 10, 100 * i + 50, ranks=ranks, sequence=i) for i in (1, 2, 4)])
    found = align([a, b])
    assert [m.waits for m in found.meetings] == [(10, 0)] * 3 and [m.start for m in found.meetings] == [100, 200, 400]
    assert "rank 0: 2 of 5 collectives have no matching call on another rank" in found.warnings


def test_groups_that_are_subsets_of_the_ranks_are_kept_apart():
    def calls(rank):
        mine = (0, 1) if rank < 2 else (2, 3)
        data = (0, 2) if rank % 2 == 0 else (1, 3)
        return [
            call(1000 + 10 * rank, 2000, ranks=mine, group="tensor"),  # one name for two groups
            call(3000 + 10 * rank, 4000, ranks=data, group=f"data{rank % 2}"),
            call(5000 + 10 * rank, 6000, ranks=(0, 1, 2, 3), group="world"),
        ]

    found = align([rank_trace(rank, calls(rank), world=4) for rank in range(4)])
    assert sorted((m.group, m.ranks) for m in found.meetings) == [
        ("data0", (0, 2)),
        ("data1", (1, 3)),
        ("tensor", (0, 1)),
        ("tensor", (2, 3)),
        ("world", (0, 1, 2, 3)),
    ]
    assert all(m.complete for m in found.meetings) and not found.warnings


def test_groups_with_one_name_and_without_ranks_are_not_matched():
    traces = [rank_trace(rank, [call(0, 100, n=2, group="tensor")], world=4) for rank in range(4)]
    found = align(traces)
    assert not found.meetings and "several groups have this name" in " ".join(found.warnings)


def test_pipeline_messages_with_named_ends_meet():
    def message(start, end, source, target, op):
        return call(start, end, op=op, group="pipe", ranks=(0, 1, 2), source=source, target=target)

    traces = [
        rank_trace(0, [message(0, 100, 0, 1, "send"), message(200, 300, 0, 1, "send")]),
        rank_trace(1, [message(50, 100, 0, 1, "recv"), message(110, 190, 1, 2, "send"), message(250, 300, 0, 1, "recv")]),
        rank_trace(2, [message(20, 190, 1, 2, "recv")]),
    ]
    found = align(traces)
    assert [(m.ranks, m.waits, m.transfer) for m in found.meetings] == [((0, 1), (50, 0), 50), ((1, 2), (0, 90), 80), ((0, 1), (50, 0), 50)]
    assert all(m.complete and m.data()["busbw"] == m.data()["algbw"] for m in found.meetings) and not found.warnings


def test_pipeline_messages_without_named_ends_meet_by_their_ends():
    def stage(*messages):
        together = [call(5000, 6000, ranks=(0, 1, 2), group="pipe")]
        return [call(a, b, op=op, group="pipe", ranks=(0, 1, 2)) for a, b, op in messages] + together

    traces = [
        rank_trace(0, stage((0, 100, "send"), (200, 300, "send"))),
        rank_trace(1, stage((50, 101, "recv"), (110, 190, "send"), (250, 301, "recv")), shift=77 * MS),
        rank_trace(2, stage((20, 191, "recv"))),
    ]
    found = align(traces)
    messages = [m for m in found.meetings if m.operation == "send_recv"]
    assert [m.ranks for m in messages] == [(0, 1), (1, 2), (0, 1)] and [m.late for m in messages] == [1, 1, 1]
    assert found.offsets[1] - found.offsets[0] == 77 * MS


def test_the_arrow_of_an_annotation_names_the_ends_of_a_message():
    def trace(rank, note, start, end):
        names = (SEND, note, "cudaLaunchKernel")
        launches, marks = spans([(30, 35, 2, 1, 0, NONE, NONE)]), spans([(20, 40, 1, 1, NONE, NONE, 0)])
        shapes = (Shape(([1000],), ("float",)),)
        return made([(start, end, 0, NONE, 0)], names, rank=rank, world_size=4, launches=launches, marks=marks, shapes=shapes)

    traces = [trace(2, "nccl:send 2->3", 100, 500), trace(3, "nccl:recv 3<-2", 400, 500)]
    found = align(traces).meetings
    assert [(m.operation, m.bytes, m.ranks, m.late, m.transfer) for m in found] == [("send_recv", 4000, (2, 3), 3, 100)]


def test_a_rank_given_twice_counts_once():
    traces = iterations(2, (0, 1))
    again = replace(traces[1], path="copy.json")
    assert any("copy.json: a second trace of rank 1, after rank1.json" in w for w in align([*traces, again]).warnings)
    assert any("given twice" in w for w in align([*traces, traces[1]]).warnings)
    assert align([*traces, again]).meetings == align(traces).meetings


def test_a_trace_without_a_rank_gets_a_free_one_with_a_warning():
    traces = iterations(2, (0, 1))
    found = align([traces[0], replace(traces[1], rank=None)])
    assert found.ranks == (0, 1) and any("no rank number; taken as rank 1" in w for w in found.warnings)


def test_ranks_that_share_no_collective_cannot_be_compared():
    found = align([rank_trace(0, [], gemms=[(0, 10)]), rank_trace(1, [], gemms=[(5, 15)])])
    assert not found.meetings and any("nothing can be compared" in w for w in found.warnings)
    assert [t.compute for t in found.totals] == [10, 10]


def test_other_operations_in_the_same_place_are_not_matched():
    a = rank_trace(0, [call(0, 100, ranks=(0, 1)), call(200, 300, op="broadcast", ranks=(0, 1)), call(400, 500, ranks=(0, 1))])
    b = rank_trace(1, [call(10, 100, ranks=(0, 1)), call(210, 300, ranks=(0, 1)), call(410, 500, ranks=(0, 1))])
    found = align([a, b])
    assert len(found.meetings) == 2 and any("differ in operation" in w for w in found.warnings)


def test_kernels_that_spin_count_as_waiting():
    names = ("void deep_ep::intranode::notify_dispatch<8>(int)", "void deep_ep::intranode::dispatch<8>(int)")
    traces = [made([(0, 60, 0), (60, 100, 1)], names, rank=0, world_size=2), made([(50, 60, 0), (60, 100, 1)], names, rank=1, world_size=2)]
    found = align(traces)
    assert [(t.spin, t.exposed_wait, t.exposed_transfer, t.exposed_unmatched) for t in found.totals] == [(60, 60, 40, 0), (10, 10, 40, 0)]


@pytest.mark.parametrize("elements", [-1, 2**62, 0])
def test_impossible_sizes_give_no_rate(elements):
    traces = [rank_trace(rank, [call(0, 100, elements=elements, ranks=(0, 1))]) for rank in (0, 1)]
    assert align(traces).meetings[0].data()["busbw"] is None


def test_groups_of_less_than_one_rank_are_ignored():
    traces = [rank_trace(rank, [call(0, 100, n=-4)], world=2) for rank in (0, 1)]
    assert align(traces).meetings[0].n is None


def test_impossible_clocks_are_ignored_and_impossible_times_refused():
    traces = iterations(2, (0, 1))
    found = align([traces[0], replace(traces[1], base=2**62)])
    assert found.meetings == align(traces).meetings
    with pytest.raises(InputError, match=r"rank0\.json: its events are at"):
        align([rank_trace(0, [call(2**61, 2**61 + 5)]), rank_trace(1, [call(0, 5)])])
    with pytest.raises(InputError, match="which is out of range"):
        align([rank_trace(0, [call(-(2**61), 5)]), rank_trace(1, [call(0, 5)])])


def test_traces_of_jobs_of_different_size_give_a_warning():
    traces = iterations(2, (0, 1))
    found = align([traces[0], replace(traces[1], world_size=4)])
    assert found.missing == (2, 3) and any("are they from one job?" in w for w in found.warnings)


def test_a_root_that_leaves_early_waits_only_while_it_runs():
    a = rank_trace(0, [call(0, 50, op="broadcast", ranks=(0, 1))])
    b = rank_trace(1, [call(80, 130, op="broadcast", ranks=(0, 1))])
    assert align([a, b]).meetings[0].waits == (50, 0)


def test_ranks_interleaved_in_one_file_are_separated(tmp_path):
    events = []
    for step in range(3):
        for rank in range(2):
            start = 1000 * step + 100 * rank
            arguments = {
                "device": rank,
                "stream": 7,
                "correlation": 10 * step + rank,
                "Collective name": "_allgather_base",
                "In msg nelems": 1000,
                "Out msg nelems": 2000,
                "dtype": "BFloat16",
                "Group size": 2,
                "Process Group Name": "0",
                "Process Group Ranks": [0, 1],
                "Seq": step,
            }
            name = "ncclDevKernel_AllGather_RING_LL(int)"
            events.append(
                {"ph": "X", "cat": "kernel", "name": name, "pid": rank, "tid": 7, "ts": start, "dur": 500 - 100 * rank, "args": arguments}
            )
    path = tmp_path / "merged.json"
    path.write_text(json.dumps({"traceEvents": events}))
    found = align(read_chrome(str(path)))
    assert found.ranks == (0, 1) and [m.waits for m in found.meetings] == [(100_000, 0)] * 3
    assert found.meetings[0].bytes == 4000 and found.meetings[0].complete
    assert any("2 devices in one file" in w for w in found.warnings)


intervals = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 60), st.integers(0, 2)), min_size=1, max_size=25)


@given(st.lists(intervals, min_size=2, max_size=4), st.booleans())
def test_exposed_parts_sum_to_the_exposed_communication_of_every_rank(jobs, counted):
    traces = []
    for rank, rows in enumerate(jobs):
        calls = [call(a, a + d, ranks=range(len(jobs))) for a, d, k in rows if k]
        traces.append(rank_trace(rank, calls, gemms=[(a, a + d) for a, d, k in rows if not k], world=len(jobs)))
    masks = [np.arange(len(t.events)) % 3 != 0 for t in traces] if counted else None
    found = align(traces, None, masks)
    for i, total in enumerate(found.totals):
        keep = masks[i] if masks else np.ones(len(traces[i].events), bool)
        window = split_window(traces[i].events.rows(keep), classify(traces[i]).mask[keep])
        assert total.exposed_transfer + total.exposed_wait + total.exposed_unmatched == window.exposed_comm
        assert min(total.exposed_transfer, total.exposed_wait, total.exposed_unmatched) >= 0
    assert all(m.transfer >= 0 and min(m.waits) >= 0 for m in found.meetings)


def test_many_ranks_and_many_calls_are_aligned_in_seconds(budget):
    traces = iterations(500, tuple(range(16)), late=5)
    with budget(8):
        found = align(traces)
    assert len(found.meetings) == 1000
    assert found.late_ranking[0].rank == 5 and found.late_ranking[0].late == 1000
