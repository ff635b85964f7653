"""Training logs: published figures, difficulties of real files, and hostile files."""

from __future__ import annotations

import gzip
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paths
from ironlaw.errors import InputError, IronlawError, QuestionError, UnknownNameError
from ironlaw.measure.diagnose import diagnose
from ironlaw.measure.logs import FORMATS, HEAD, read_log, recognise
from ironlaw.measure.logs.collective_rates import fit
from ironlaw.measure.logs.formats import table
from ironlaw.measure.logs.reading import NOT_IDENTIFIABLE, log_reading, parallel_efficiency

DATA = paths.DATA / "measured"
EXPECTED = {  # the name of a file never decides; this is what its content must be taken for
    "megatron": ("megatron_64xv100.log", "megatron_16xv100.log", "megatron_mixtral_16xh100.log", "gpt_neox.log"),
    "modded-nanogpt": ("modded_nanogpt_8xh100.log",),
    "all-reduce-bench": ("all_reduce_bench_4xv100.log", "all_reduce_bench_32xa100.log"),
    "torchtitan": ("torchtitan_8_ranks.log", "torchtitan_t4.log", "torchtitan_llama3_8b_h100.log"),
    "deepspeed": ("deepspeed_engine.log", "deepspeed_older.log", "deepspeed_flops_profiler.log"),
    "nanogpt": ("nanogpt_a100.log", "nanogpt_v100.log"),
    "llm.c": ("llm_c.log",),
    "mlperf": ("mlperf_llama2_lora.log", "mlperf_bert_mi300x.log"),
    "trainer-state": ("trainer_state_wnli.json", "trainer_state_unfinished.json"),
    "nccl-tests": ("nccl_tests_8_ranks.log", "nccl_tests_gb10.log", "nccl_tests_mpi.log"),
}

MADE = {"maxtext", "torchtune", "trainer-output"}  # tests/measure/test_pasted.py makes them after the lines that the programs print


def log(name):
    return read_log(DATA / name)


def write(tmp_path, text, name="some.txt"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(("form", "name"), [(f, n) for f, names in EXPECTED.items() for n in names])
def test_a_format_is_recognised_by_content(form, name):
    assert recognise((DATA / name).read_bytes()) == form
    assert recognise(gzip.compress(b"")) is None


def test_every_format_has_a_real_sample():
    only_made = {row.name for row in table() if not row.module} | {"lightning", "json-lines"}  # test_formats.py has two logs of each
    assert set(EXPECTED) | MADE | only_made | {"plain"} == set(FORMATS)  # versus/test_from_log.py has the forms of plain text
    listed = (DATA / "SOURCES.md").read_text()
    for names in EXPECTED.values():
        for name in names:
            assert f"| {name} |" in listed


# ---------------------------------------------------------------- ground truth


def test_megatron_on_64_v100():
    reading = log_reading(log("megatron_64xv100.log"), on="v100-sxm-32gb")
    assert reading.world_size == 64
    assert reading.steps.median == pytest.approx(126.64, abs=0.005)
    assert reading.steps.lines == 61
    assert reading.aside[0].reason.startswith("first line") and reading.aside[0].iterations == (1,)
    assert reading.aside[0].median == pytest.approx(144.9, abs=0.05)
    rates = reading.rates
    assert rates.model_flops_full_square / 1e12 == pytest.approx(41.16, abs=0.005)
    assert rates.hardware_flops_full_square / 1e12 == pytest.approx(54.78, abs=0.005)
    assert (rates.mfu_full_square, rates.hfu_full_square) == pytest.approx((0.329, 0.438), abs=5e-4)
    masked = 6 * 64 * 8192 * 1024 * rates.tokens_per_second  # half of 12 L w s, which a causal mask hides; forward a third of it again
    assert rates.model_flops_full_square - rates.model_flops == pytest.approx(masked)
    assert rates.hardware_flops_full_square - rates.hardware_flops == pytest.approx(masked * 4 / 3)
    assert (rates.peak, rates.dtype, rates.device) == (125e12, "fp16", "v100-sxm-32gb")
    assert rates.formula == "6 P + 12 L w k"
    assert [f.code for f in reading.findings] == ["warm-up"]
    assert reading.verdict.startswith(NOT_IDENTIFIABLE) and reading.exit_status == 4
    assert reading.gain == pytest.approx((1.0, 1 / rates.hfu)) and 1 / 0.438 < reading.gain[1] < 1 / 0.43


def test_megatron_on_16_v100():
    found = log("megatron_16xv100.log")
    assert (found.device_name, found.devices, found.world_size) == ("Tesla V100-SXM2...", 4, 16)
    reading = log_reading(found, on="v100-sxm-32gb")
    assert reading.steps.median * 1e3 == pytest.approx(1380.6, abs=0.05)
    assert reading.rates.model_flops_full_square / 1e12 == pytest.approx(21.07, abs=0.005)
    assert reading.rates.hardware_flops_full_square / 1e12 == pytest.approx(27.97, abs=0.005)
    assert reading.steps.iterations == 170  # ten a line
    scaled = next(a for a in reading.aside if "loss scaler" in a.reason)
    assert scaled.iterations == (10, 20, 30)


def test_timers_are_shares_of_the_step():
    reading = log_reading(log("megatron_16xv100.log"), on="v100-sxm-32gb")
    timers = {t.name: t for t in reading.timers}
    assert timers["backward-embedding-all-reduce"].share == pytest.approx(420 / 1380.6, abs=0.01)  # 418.95 and 420.71 ms on two lines
    assert reading.timers[0].name == "backward-compute"
    assert reading.data_share == timers["batch-generator"].share < 0.003
    assert "data" in [e.roof for e in reading.excluded] and reading.exit_status == 4


def test_anchored_arguments():
    found = log("megatron_64xv100.log").arguments
    assert found["checkpoint_num_layers"] == "1" and found["num_layers"] == "64"
    assert found["num_layers_per_virtual_pipeline_stage"] == "None"
    assert (found["seq_length"], found["encoder_seq_length"], found["retriever_seq_length"]) == ("1024", "1024", "256")
    assert (found["vocab_size"], found["padded_vocab_size"]) == ("50257", "50688")


def test_modded_nanogpt():
    found = log("modded_nanogpt_8xh100.log")
    assert (found.device_name, found.devices, found.world_size) == ("NVIDIA H100 80GB HBM3", 8, 8)
    reading = log_reading(found)
    assert reading.steps.mean * 1e3 == pytest.approx(148.08, abs=0.005)  # step_avg of the last line
    assert found.claims["mean_step"] * 1e3 == pytest.approx(148.08, abs=0.005)
    assert reading.steps.mean * 1380 == pytest.approx(204.345, abs=1e-6)  # nothing between validations is lost
    assert reading.steps.iterations == 1380
    assert reading.aside[0].iterations == tuple(range(1, 11)) and "timer" in reading.aside[0].reason
    assert reading.memory == 31563 * 2**20
    assert reading.why_no_mfu == "" and reading.rates is None and reading.exit_status == 4


@pytest.mark.parametrize(
    ("name", "ranks", "low", "high"), [("all_reduce_bench_4xv100.log", 4, 988, 1004), ("all_reduce_bench_32xa100.log", 32, 40.4, 40.9)]
)
def test_all_reduce_bench_is_in_gbit(name, ranks, low, high):
    reading = log_reading(log(name))
    (size,) = reading.collectives.sizes
    assert reading.world_size == ranks and size.size == 4e9
    assert low < size.lowest * 8 / 1e9 <= size.bus_bandwidth * 8 / 1e9 <= size.highest * 8 / 1e9 < high
    assert size.first_call < size.lowest / 2  # the first call is warm-up
    assert any("warm-up" in note for note in reading.collectives.notes)
    # the script's 'algo throughput' counts two directions: half of it is size over time, and bus over algorithm is 2 (n - 1) / n
    assert size.algorithm_bandwidth == pytest.approx(size.size / size.seconds, rel=2e-3)
    assert size.bus_bandwidth / size.algorithm_bandwidth == pytest.approx(2 * (ranks - 1) / ranks, rel=2e-3)
    assert not any("check the units" in note for note in reading.collectives.notes)
    assert reading.exit_status == 0


def test_median_of_the_a100_benchmark():
    (size,) = log_reading(log("all_reduce_bench_32xa100.log")).collectives.sizes
    assert size.bus_bandwidth * 8 / 1e9 == pytest.approx(40.5, abs=0.06)


# ---------------------------------------------------------------- each format


def test_current_megatron_spelling():
    found = log("megatron_mixtral_16xh100.log")
    assert found.iteration.tolist() == [57, 58, 59]
    assert found.seconds == pytest.approx([5.4505, 5.5389, 5.4109])
    assert found.tflops == pytest.approx([239.6, 235.8, 241.3]) and found.loss[0] == pytest.approx(1.864605)
    reading = log_reading(found)
    assert reading.steps.lines == 3  # the excerpt starts late: nothing is warm-up
    assert reading.rates is None and "model" in " ".join(reading.said)


def test_a_printed_rate_is_compared_with_the_computed_one():
    found = log("megatron_mixtral_16xh100.log")  # the thread does not say the sequence length; the claim tells 4096 from 2048
    wrong, right = (log_reading(found, "mixtral-8x7b", "h100-sxm", gpus=16, seq_len=seq) for seq in (4096, 2048))
    assert wrong.rates.tokens_per_second == pytest.approx(128 * 4096 / 5.4505 / 16)
    assert [f.code for f in wrong.findings] == ["claim-disagrees"] and wrong.rates.claimed_flops == 239.6e12
    assert right.rates.claim == "agrees with model FLOP/s, attention as the full square" and not right.findings


def test_gpt_neox_prints_megatron_lines_over_deepspeed():
    found = log("gpt_neox.log")
    assert (found.iteration.tolist(), found.seconds.tolist()) == ([34], [4.1031])
    assert found.tflops.tolist() == [112.9] and found.loss[0] == pytest.approx(11.18665)


def test_torchtitan_ranks_without_prefix():
    found = log("torchtitan_8_ranks.log")
    assert found.iteration.tolist() == [4, 5]
    assert found.skipped == {"the same iteration again (another rank)": 2}
    assert found.tokens_per_second.tolist() == [10050.0, 10007.0]
    assert found.seconds[1] == pytest.approx(1.637, abs=1e-6) and found.memory[0] == pytest.approx(66.91 * 2**30)


def test_torchtitan_divides_by_the_wrong_peak():
    found = log("torchtitan_t4.log")
    reading = log_reading(found)
    assert found.device_name == "Tesla T4" and reading.rates is None  # its model is not in the log
    assert reading.why_no_mfu == "" and reading.claimed_mfu == pytest.approx(
        0.52 / 65.0, rel=0.02
    )  # printed, over fp16 of NVIDIA's datasheet
    assert any("divides by the peak of A100" in w for w in reading.warnings)
    assert reading.steps.median == pytest.approx(1.121, abs=0.005)
    wrong = log_reading(found, on="l4")
    assert [f.code for f in wrong.findings if "peak" in f.code] == ["wrong-peak"]


def test_torchtitan_arguments_make_the_catalogue_model(tmp_path):
    start = (DATA / "torchtitan_llama3_8b_h100.log").read_text()
    lines = "".join(
        f"[rank4]:[titan] 2025-08-22 07:53:{i:02d},000 - root - INFO - step: {i:2d}  loss: 2.0  memory: 60.00GiB(63.2%)  tps: 7,000  "
        "tflops: 400.00  mfu: 40.4%\n"
        for i in range(1, 9)
    )
    made = read_log(write(tmp_path, start + lines))  # the steps are made up, the start is real
    own = log_reading(made, on="h100-sxm", seq_len=8192)
    assert own.rates.flop_per_token == log_reading(made, "llama-3-8b", "h100-sxm", seq_len=8192).rates.flop_per_token
    assert own.rates.tokens_per_second == 7000.0
    assert "agrees" in own.rates.claim or own.rates.claim.startswith("is ")


def test_loader_share(tmp_path):
    line = "[titan] 2025-08-22 07:53:{i:02d},000 - root - INFO - step: {i}  loss: 2.0  tps: 7,000  tflops: 1.0  data_loading(%): {d}\n"
    for share, code in ((30.0, "loader-waited-for"), (0.5, None)):  # torchtitan's metric, in a made-up line
        text = "".join(line.format(i=i, d=share) for i in range(1, 8))
        reading = log_reading(read_log(write(tmp_path, text)))
        assert reading.data_share == pytest.approx(share / 100)
        assert (code in [f.code for f in reading.findings]) == (code is not None)
        assert ("data" in [e.roof for e in reading.excluded]) == (code is None)


def test_deepspeed_engine():
    found = log("deepspeed_engine.log")
    assert found.iteration.tolist() == list(range(17, 23))
    assert found.seconds[1:] == pytest.approx([0.224, 0.206, 0.21, 0.209, 0.209], abs=1e-6)
    assert math.isnan(found.seconds[0]) and "no time" in found.aside[0]
    assert found.memory[-1] == pytest.approx(2.62 * 2**30)
    # the engine's own rate gives the batch: 32 samples
    assert found.claims["samples_per_second"] * 0.2063 == pytest.approx(32, rel=1e-2)
    older = log("deepspeed_older.log")
    assert older.seconds[1] == pytest.approx(1.5145, abs=1e-6) and older.averaged.tolist() == [1, 10]


def test_deepspeed_batch_over_rate(tmp_path):
    config = "[2022-12-20 08:26:20,000] [INFO] [config.py:957:print]   train_batch_size ............. 32\n"
    found = read_log(write(tmp_path, config + (DATA / "deepspeed_engine.log").read_text()))
    assert found.seconds[0] == pytest.approx(32 / 159.628891629629)


def test_flops_profiler():
    found = log("deepspeed_flops_profiler.log")
    assert found.claims["profiler: fwd flops per GPU"] == 6279.86e9
    assert found.claims["profiler: bwd latency"] == pytest.approx(0.10802)
    assert (found.iteration.tolist(), found.seconds.tolist(), found.tflops.tolist()) == ([10], [0.18473], [102.0])
    # three times forward over forward and backward, as the block says
    assert 3 * 6279.86e9 / (0.07667 + 0.10802) == pytest.approx(102.0e12, rel=1e-3)
    assert log_reading(found).steps is None  # a profiled step is no ordinary one


def test_nanogpt():
    reading = log_reading(log("nanogpt_a100.log"))
    assert reading.aside[0].iterations == (0,) and reading.aside[0].median == pytest.approx(9.37181)
    assert reading.steps.median == pytest.approx(0.89409)
    assert any("A100" in w for w in reading.warnings)
    v100 = log_reading(log("nanogpt_v100.log"))
    assert {a.reason: a.iterations for a in v100.aside} == {"includes an evaluation": (3000,), "loss is nan": (3010, 3020)}


def test_llm_c(tmp_path):
    found = log("llm_c.log")
    assert found.seconds == pytest.approx([0.04457, 0.04457, 0.04458, 0.04457, 0.04455])
    assert found.loss[0] == pytest.approx(3.208939) and found.aside == ("",) * 5  # nanz is no nan
    said = {"device": "NVIDIA A100-SXM4-80GB", "peak TFlops": "312.0", "precision": "BF16", "padded_vocab_size Vp": "50304"}
    said |= {"num_layers L": "12", "num_heads NH": "12", "channels C": "768", "sequence length T": "1024"}
    table = "\n".join(f"| {name:<21} | {value:<50} |" for name, value in said.items())  # as train_gpt2.cu prints it, filled by us
    table += "\nbatch_size B=4 * seq_len T=1024 * num_processes=1 and total_batch_size=4096\n"
    reading = log_reading(read_log(write(tmp_path, table + (DATA / "llm_c.log").read_text())))
    gpt2 = 6 * (12 * 12 * 768 * 768 + 50304 * 768) + 12 * 12 * 768 * 1024 / 2  # a mask hides half of the keys
    assert reading.rates.flop_per_token == gpt2
    assert reading.rates.tokens_per_second == pytest.approx(4096 / 0.04457)
    assert (reading.rates.device, reading.rates.dtype, reading.rates.peak) == ("a100-sxm-80gb", "bf16", 312e12)


def test_mlperf():
    found = log("mlperf_llama2_lora.log")
    assert found.per == "sample" and 1 / found.seconds[0] == pytest.approx(1.9257918929116467, rel=1e-3)
    assert log("mlperf_bert_mi300x.log").claims["run_seconds"] == pytest.approx(7.713 * 60, abs=0.03)  # as the page says
    with_batch = ':::MLLOG {"time_ms": 1, "key": "global_batch_size", "value": 8}\n' + (DATA / "mlperf_llama2_lora.log").read_text()
    assert recognise(with_batch.encode()) == "mlperf"


def test_trainer_state():
    found = log("trainer_state_wnli.json")
    assert found.averaged.tolist() == [60] and 1 / found.seconds[0] == pytest.approx(6.325, abs=1e-3)
    assert found.claims["samples_per_second"] == 200.829
    unfinished = log_reading(log("trainer_state_unfinished.json"))
    assert unfinished.steps is None and any("did not end" in w for w in unfinished.warnings)


def test_nccl_tests():
    reading = log_reading(log("nccl_tests_8_ranks.log"), gpus=8)
    outside = [s for s in reading.collectives.sizes if not s.in_place]
    assert len(outside) == 15 and outside[-1].bus_bandwidth == pytest.approx(357.73e9)
    assert outside[5].seconds == pytest.approx(27.76e-6)
    place = {f.in_place: f for f in reading.collectives.fits}
    assert 15e-6 < place[False].latency < 21e-6  # the flat part of the table
    assert place[False].bandwidth == pytest.approx(204.42e9, rel=0.1)  # of one line through a table whose algorithm changes
    assert place[False].bus_bandwidth == pytest.approx(357.73e9, rel=0.1)
    assert place[False].bandwidth_error < 0.1 * place[False].bandwidth and place[False].error < 0.15
    spark = log("nccl_tests_gb10.log")
    assert (spark.device_name, spark.world_size, spark.calls.collective) == ("NVIDIA GB10", 2, "all_reduce")
    assert spark.arguments["warmup_iters"] == "10"
    assert log("nccl_tests_mpi.log").calls.size.tolist() == [8, 8, 16, 16, 32, 32]


# ---------------------------------------------------------------- what a reading refuses and finds


def test_unknown_device_is_refused_with_nearest_names():
    with pytest.raises(UnknownNameError, match="nearest: v100-sxm-32gb"):
        log_reading(log("megatron_64xv100.log"), on="v100-sxm-32")
    reading = log_reading(log("megatron_16xv100.log"))  # nvidia-smi cut the name: no device is guessed
    assert reading.rates.mfu is None and "v100-sxm-32gb" in reading.why_no_mfu and reading.rates.model_flops > 0


def test_a_precision_without_a_peak_is_refused():
    with pytest.raises(QuestionError, match="no peak in bf16"):
        log_reading(log("megatron_64xv100.log"), on="v100-sxm-32gb", precision="bf16")


def test_mfu_above_100_is_a_finding():
    reading = log_reading(log("megatron_64xv100.log"), on="v100-sxm-32gb", gpus=16)
    assert reading.rates.mfu > 1
    assert reading.findings[0].code == "mfu-above-100" and "sparse" in reading.findings[0].advice
    assert "impossible" in reading.verdict and reading.exit_status == 4 and reading.gain is None


def test_a_sparse_peak_is_found(tmp_path):
    text = "| device                | NVIDIA H100 80GB HBM3 |\n| peak TFlops           | 1979.0 |\n| precision | BF16 |\n"
    reading = log_reading(read_log(write(tmp_path, text + (DATA / "llm_c.log").read_text())))
    assert "sparse-peak-as-dense" in [f.code for f in reading.findings]


def test_high_utilisation_rules_out_everything_else(tmp_path):
    text = (DATA / "megatron_64xv100.log").read_text()
    reading = log_reading(read_log(write(tmp_path, text)), on="v100-sxm-32gb", gpus=40)  # as if 40 GPUs had done it
    assert 0.5 < reading.rates.hfu < 1 and {"network", "pipeline", "data"} <= {e.roof for e in reading.excluded}


@pytest.mark.parametrize(
    ("argument", "share"),
    [
        ("recompute_granularity ........ full", (1, 0, 0)),
        ("recompute_granularity ........ selective", (0, 1, 0)),
        ("recompute_granularity ........ full\n  recompute_method ..... block\n  recompute_num_layers ..... 1", (0.25, 0, 0)),
        ("recompute_granularity ........ None", (0, 0, 0)),
    ],
)
def test_recompute_in_current_spelling(tmp_path, argument, share):
    text = (DATA / "megatron_64xv100.log").read_text().replace("checkpoint_activations .", "x .")
    reading = log_reading(read_log(write(tmp_path, f"  {argument}\n{text}")))
    layers, hidden, seq = 64, 8192, 1024
    linear, core = 2 * layers * 12 * hidden * hidden, 4 * layers * hidden * seq / 2
    expected = share[0] * (linear + core) + share[1] * core
    assert reading.rates.recomputed_per_token == pytest.approx(expected)


def test_parallel_efficiency():
    base = log_reading(log("megatron_64xv100.log"), gpus=32)
    double = log_reading(log("megatron_64xv100.log"), gpus=64)
    rows = parallel_efficiency([double, base])
    assert [(r.gpus, r.efficiency) for r in rows] == [(32, 1.0), (64, 0.5)]
    with pytest.raises(QuestionError, match="different models"):
        parallel_efficiency([base, log_reading(log("megatron_16xv100.log"))])
    with pytest.raises(QuestionError, match="different numbers of GPUs"):
        parallel_efficiency([base, base])


def test_data_is_plain():
    for names in EXPECTED.values():
        for name in names:
            if name != "torchtitan_llama3_8b_h100.log":
                json.dumps(log_reading(log(name)).data(), allow_nan=False)


# ---------------------------------------------------------------- traps and hostile files

LINE = " iteration {i:8d}/    1000 | elapsed time per iteration (ms): {ms} | lm loss: 1.0E+00 | number of nan iterations: 0 |\n"


def test_ansi_colours(tmp_path):
    text = (DATA / "torchtitan_8_ranks.log").read_text()
    coloured = text.replace("step:", "\x1b[31mstep:").replace("loss:", "\x1b[32mloss:").replace("tps:", "\x1b[34mtps:\x1b[39m")
    assert read_log(write(tmp_path, coloured)).tokens_per_second.tolist() == [10050.0, 10007.0]
    torn = text.replace("step:", "[31mstep:").replace("tps:", "[0mtps:")  # the escape character lost in a copy
    assert read_log(write(tmp_path, torn)).tokens_per_second.tolist() == [10050.0, 10007.0]


def test_interleaved_ranks_and_prefixes(tmp_path):
    rows = [f"[default{rank}]:" + LINE.format(i=i, ms=100.0 * (rank + 1)) for i in range(1, 6) for rank in (3, 1, 2)]
    found = read_log(write(tmp_path, "".join(rows)))
    assert found.iteration.tolist() == [1, 2, 3, 4, 5] and set(found.seconds) == {0.2}
    assert found.skipped == {"an iteration line of another rank": 10}


def test_a_restart_is_named_and_its_first_line_left_out(tmp_path):
    text = "".join(LINE.format(i=i, ms=100.0) for i in range(1, 11)) + "".join(
        LINE.format(i=i, ms=300.0 if i == 6 else 100.0) for i in range(6, 13)
    )
    reading = log_reading(read_log(write(tmp_path, text)))
    assert any("goes back from iteration 10 to 6" in w for w in reading.warnings)
    assert {a.reason for a in reading.aside} == {"first line of the run: warm-up", "first iteration after a restart"}
    assert reading.steps.p95 == pytest.approx(0.1)


def test_nan_iterations_are_left_out(tmp_path):
    nan = LINE.format(i=4, ms=900.0).replace("iterations: 0", "iterations: 1")
    text = "".join(LINE.format(i=i, ms=100.0) for i in (1, 2, 3)) + nan + LINE.format(i=5, ms=100.0).replace("1.0E+00", "nan")
    reading = log_reading(read_log(write(tmp_path, text)))
    assert reading.steps.p95 == pytest.approx(0.1)
    assert next(a for a in reading.aside if "nan" in a.reason).iterations == (4, 5)


def test_a_timer_that_does_not_advance_gives_no_time(tmp_path):
    text = "".join(f"step:{i}/99 train_time:500ms step_avg:5.00ms\n" for i in range(1, 20))
    reading = log_reading(read_log(write(tmp_path, text)), "gpt-2", "h100-sxm", gpus=8, seq_len=1024, global_batch_size=8)
    assert reading.steps is None or reading.steps.lines == 1
    reading.data()


def test_batch_ramp(tmp_path):
    def at(i, ms, batch):
        return LINE.format(i=i, ms=ms).replace("| lm loss", f"| global batch size: {batch} | lm loss")

    text = "".join(at(i, 10.0, 16) for i in range(1, 6)) + "".join(at(i, 20.0, 32) for i in range(6, 11))
    reading = log_reading(read_log(write(tmp_path, text)))
    assert reading.steps.median == pytest.approx(0.02) and any("ramp-up" in a.reason for a in reading.aside)


def test_a_cut_last_line_is_counted(tmp_path):
    text = (DATA / "megatron_64xv100.log").read_text()
    cut = read_log(write(tmp_path, text[: text.rindex("(ms)") + 8]))
    assert len(cut) in (61, 62) and sum(cut.skipped.values()) <= 1
    with pytest.raises(InputError, match="without any step time"):
        read_log(write(tmp_path, text[: text.index(" iteration ")]))


def test_a_log_may_be_compressed(tmp_path):
    path = write(tmp_path, gzip.compress((DATA / "megatron_64xv100.log").read_bytes()))
    assert len(read_log(path)) == 62
    with pytest.raises(InputError, match="truncated"):
        read_log(write(tmp_path, path.read_bytes()[:-200]))


def test_one_endless_line_costs_little(tmp_path, budget):
    path = tmp_path / "endless"
    with path.open("wb") as out:
        out.write(LINE.format(i=1, ms=5.0).encode())
        for _ in range(100):
            out.write(b"elapsed time per iteration (ms): | iteration" * 23832)
        out.write(b"\n" + LINE.format(i=2, ms=5.0).encode())
    with budget(10):
        found = read_log(path)
    assert found.iteration.tolist() == [1, 2] and list(found.skipped.values()) == [1]


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 5000, bytes(range(256)) * 50, b"PK\x03\x04" + b"\xff" * 100, b"hello\n", b"\n" * 300000, b"{}"]
)
def test_a_file_that_is_not_a_log_gives_a_one_line_error(tmp_path, content):
    with pytest.raises(InputError) as caught:
        read_log(write(tmp_path, content))
    assert "\n" not in str(caught.value) and "some.txt" in str(caught.value)


def test_rates_of_zero_and_sizes_of_zero(tmp_path):
    text = (DATA / "torchtitan_8_ranks.log").read_text().replace("tps: 10,0", "tps: 0")
    stopped = text.replace("tps: 050", "tps: 0").replace("tps: 049", "tps: 0").replace("tps: 007", "tps: 0")
    assert log_reading(read_log(write(tmp_path, stopped)), "gpt-2", "h100-sxm", gpus=8, seq_len=1024).rates is None
    table = (DATA / "nccl_tests_8_ranks.log").read_text().replace("  1073741824     268435456 ", "           0             0 ")
    log_reading(read_log(write(tmp_path, table)), gpus=8).data()


def test_not_a_file(tmp_path):
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(InputError):
            read_log(path)


@pytest.mark.parametrize(
    "content",
    [
        b'{"global_step": 5, "log_history": [' + b"[" * 100000,
        b'{"global_step": 1e999, "log_history": [{"train_runtime": 1e999}]}',
        b'{"global_step": ' + b"9" * 5000 + b', "log_history": []}',
        b'{"global_step": "5", "log_history": {}}',
        b'{"global_step": 5, "log_history": [{"loss": 1.0}',
        b'{"global_step": 5, "log_history": [{"train_runtime": true}, 3, null]}',
        b':::MLLOG {"a": ' + b"[" * 9000,
        b':::MLLOG {"key": "block_start", "time_ms": 1e400, "metadata": 5}',
        b'\n:::MLLOG {"key": "tracked_stats", "time_ms": 5, "value": [1]}',
    ],
)
def test_hostile_json(tmp_path, content):
    try:
        log_reading(read_log(write(tmp_path, content))).data()
    except IronlawError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    "line",
    [
        "\x1b[" * 8000 + "m",
        "[" + "1" * 16000 + "x",
        "\x1b]" * 8000,
        "| a" + " " * 16000 + "|",
        "|   0  " + "N " * 8000,
        "iteration" + " " * 16000,
        "a" * 16000 + " ..",
        "#  Rank  0 " + "device  0 [" * 1400,
        "Building a b with X(" + "a" * 16000,
        "step: 1 " + "tps: " * 3000,
        "0/1, " * 3000 + "SamplesPerSec=",
        "CUDA capacity: " * 1000 + " - INFO - ",
        "> padded vocab (size: 1)" * 600,
        "step 1/1 | loss 1 " + "| 1" * 5000,
    ],
)
def test_no_line_is_slow(tmp_path, line, budget):
    heads = [(DATA / names[0]).read_bytes() for form, names in EXPECTED.items() if form != "trainer-state"]
    for head in heads:
        path = write(tmp_path, head + b"\n" + (line + "\n").encode() * 5)
        with budget(2.0):
            read_log(path)
    with budget(4.0):
        recognise((line.encode() + b"\n") * (HEAD // (8 * len(line))))


WHOLE = [(DATA / name).read_bytes()[:6000] for names in EXPECTED.values() for name in names]
QUIET = settings(max_examples=150)


@QUIET
@given(data=st.data())
def test_mutated_logs_raise_only_errors_of_ironlaw(tmp_path, data):
    content = bytearray(data.draw(st.sampled_from(WHOLE)))
    for _ in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.integers(0, len(content) - 1))
        what = data.draw(st.sampled_from(["byte", "cut", "insert", "repeat"]))
        if what == "byte":
            content[at] = data.draw(st.integers(0, 255))
        elif what == "cut":
            del content[at : at + data.draw(st.integers(1, 200))]
        elif what == "insert":
            content[at:at] = data.draw(
                st.sampled_from([b"nan", b"-", b"inf", b"9" * 400, b"\n", b"\0", b"1e999", b"|", b"0", b"\xff", b"NaNms"])
            )
        else:
            content[at:at] = content[max(0, at - 300) : at]
        if not content:
            content = bytearray(b"x")
    try:
        reading = log_reading(read_log(write(tmp_path, bytes(content))), "gpt-2", "h100-sxm", gpus=8, seq_len=1024)
        json.dumps(reading.data(), allow_nan=False)
    except IronlawError as error:
        assert "\n" not in str(error)


@QUIET
@given(st.lists(st.sampled_from([line for text in WHOLE for line in text.splitlines()]), min_size=1, max_size=60), st.binary(max_size=60))
def test_mixed_logs_raise_only_errors_of_ironlaw(tmp_path, found, junk):
    try:
        log_reading(read_log(write(tmp_path, b"\n".join([*found, junk])))).data()
    except IronlawError as error:
        assert "\n" not in str(error)


@given(
    latency=st.floats(0, 1e-3), bandwidth=st.floats(1e8, 1e12), sizes=st.lists(st.integers(1, 2**33), min_size=3, max_size=12, unique=True)
)
def test_a_fit_finds_what_made_the_times(latency, bandwidth, sizes):
    size = np.array(sorted(sizes), np.float64)
    seconds = latency + size / bandwidth
    found = fit(size, seconds)
    assert found.worst < 1e-6
    assert found.latency + size / found.bandwidth == pytest.approx(seconds, rel=1e-6)


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
