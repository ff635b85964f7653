"""Made logs of every trainer in the table, two of each kind: step time, tokens per second and MFU by hand, or what is missing.

The model is Llama 3 8B in sequences of 8192 tokens, on H100s (989 TFLOP/s): its FLOPs per token are counted here.
"""

from __future__ import annotations

import json
import math

import pytest

from ironlaw.errors import InputError
from ironlaw.measure.diagnose import diagnose
from ironlaw.measure.logs import FORMATS, read_log, recognise
from ironlaw.measure.logs.formats import table
from ironlaw.measure.logs.reading import log_reading

WEIGHTS = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 4096 * 128256  # of all products
FLOP = 6 * WEIGHTS + 12 * 32 * 4096 * (8192 + 1) / 2  # of a token, which sees half of the sequence
RUN = {"gpus": 8, "seq_len": 8192}
GIB = 1 << 30


def steps(template, count=6, start=1, **values):
    """Lines of a log; ``{n}`` is the step, ``{t}`` a first of 30 s and 4 s then."""
    return "".join(
        template.format(n=n, t=30.0 if n == start else 4.0, m=30000.0 if n == start else 4000.0, **values)
        for n in range(start, start + count)
    )


def bars(total, seconds, count=12, epoch="", each=10):
    """States of a progress bar, one each ``each`` steps."""
    return "".join(
        f"\r{epoch}  {100 * n // total}%|#   | {n}/{total} "
        f"[{int(n * seconds) // 60:02}:{int(n * seconds) % 60:02}<10:00,  {seconds:.2f}s/it]"
        for n in range(each, each * (count + 1), each)
    )


NEMO = (
    "[2025-10-17T11:32:59+08:00] Training epoch 0, iteration {n}/99 | lr: 6.9e-06 | global_batch_size: 64 | global_step: {n} |"
    " max_memory_reserved: 68719476736 | max_memory_allocated: 64424509440 | reduced_train_loss: 11.96 | train_step_timing in s: {t} |"
    " TFLOPS_per_GPU: 4.0e+02 | consumed_samples: {n}00\n"
)
BRIDGE = "Step Time : {t}s GPU utilization: 400.0MODEL_TFLOP/s/GPU\n"
ITERATION = (
    " [2025-12-22 15:18:33] iteration {n:8}/      50 | consumed samples:        25600 | elapsed time per iteration (ms): {m} |"
    " learning rate: 3.0E-05 | global batch size:    64 | lm loss: 8.1E+00 | number of skipped iterations:   0 |\n"
)
OLMO = (
    "2025-01-01 00:00:00.000\thost:0\tolmo_core.train:100\tINFO\t[step={n}/1000,epoch=1,eta=0:30:00]\n    train/CE loss=2.5\n"
    "    throughput/device/TPS=16,384\n    throughput/device/TPS (actual avg)=9,000\n    throughput/device/BPS={r}\n"
    "    throughput/device/MFU=40.5\n    gpu_memory/GPU reserved mem (GiB)=60.5\n"
)
COMPOSER = (
    "[batch={n}/1000]:\n\t Train trainer/device_train_microbatch_size: 2\n\t Train loss/train/total: 2.5\n"
    "\t Train throughput/batches_per_sec: 0.2500\n\t Train throughput/device/tokens_per_sec: 16384.0\n\t Train throughput/device/mfu: 0.4\n"
    "\t Train memory/peak_reserved_mem: 60.0\n"
)
NEMO_RL = (
    "========================= Step {n}/100 =========================\nsetting up\n\n  • Loss: 0.0123\n\n⏱️  Timing:\n"
    "  • Total step time: {t}s\n  • generation: 2.00s (50.0%)\n  • Training FLOPS: 1234.50 TFLOPS (154.30 TFLOPS per rank)\n"
    "  • Training Model Floating Point Utilization: 15.60%\n    - E2E (Tokens/sec/gpu): 1000.00\n"
)
PRIME = (
    "[default0]:12:00:40 SUCCESS Step {n} | Time: {t:.2f}s | Loss: 1.1 | Grad. Norm: 4.8 | LR: 2.00e-05 | Throughput: 131072 tokens/s |"
    " MFU: 41.5% | Peak Mem.: 29.5/79.0 GiB (37.3%)\n"
)
VERL = (
    "step:{n} - actor/pg_loss:0.01 - perf/mfu/actor:0.35 - perf/max_memory_allocated_gb:30.5 - perf/max_memory_reserved_gb:40.5 -"
    " timing_s/gen:1.5 - timing_s/step:{t} - perf/time_per_step:{t} - perf/throughput:16384.0\n"
)
NANOCHAT = "Total batch size 524,288 => gradient accumulation steps: 1\nTokens / micro-batch / rank: 8 x 8192 = 65,536\n"
NANOCHAT_STEP = (
    "step {n:05}/21400 (0.05%) | loss: 9.81 | lrm: 1.00 | dt: {m:.2f}ms | tok/sec: 131,072 | bf16_mfu: 41.50 | epoch: 1 pq: 0 rg: 5\n"
)
MODDED = "step:{n}/1000 train_loss:4.1 train_time:{e}ms step_avg:4000.00ms\n"
TORCHTITAN = (
    "[rank0]:[titan] 2026-02-24 19:{a:02}:{b:02},000 - root - INFO - step: {n:2}  loss:  3.2  grad_norm:  0.8  memory: 60.50GiB(76.40%)"
    "  tps: 16,384  tflops: 400.00  mfu: 40.45%\n"
)
DEEPSPEED = (
    "[2023-07-25 21:{a:02}:{b:02},000] [INFO] [timer.py:215:stop] epoch=0/micro_step={n}/global_step={n}, RunningAvgSamplesPerSec=15.9,"
    " CurrSamplesPerSec=16.0, MemAllocated=50.0GB, MaxMemAllocated=60.0GB\n"
)


def clocked(template, each=4, count=6):
    """Lines with a time stamp each 4 s."""
    return "".join(template.format(n=n, a=each * n // 60, b=each * n % 60) for n in range(1, count + 1))


SWIFT = (
    "{{'loss': '1.46', 'epoch': '0.1', 'global_step/max_steps': '{n}0/500', 'elapsed_time': '{e}', 'memory(GiB)': '67.95',"
    " 'train_speed(s/it)': '4.0'}}\n"
)
FACTORY = (
    '{{"current_steps": {n}0, "total_steps": 500, "loss": 1.2, "epoch": 0.1, "elapsed_time": "0:{a:02}:{b:02}", "throughput": 131072.0}}\n'
)
AXOLOTL = (
    "\n{{'loss': 1.2, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'memory/max_mem_active(gib)': 20.5, 'memory/max_mem_allocated(gib)': 20.25,"
    " 'memory/device_mem_reserved(gib)': 25.5, 'tokens_per_second_per_gpu': 16384.0, 'epoch': 0.1}}\n"
)
TRL = "\n{{'loss': 1.2, 'num_tokens': {k}.0, 'mean_token_accuracy': 0.7, 'learning_rate': 1e-05, 'epoch': 0.1}}\n"


def trl(seconds=4.0, tokens=524288):
    """Bars each ten steps, and a dict with the tokens since the start after each."""
    return "".join(bars(500, seconds, 1, each=10 * n) + TRL.format(k=10 * n * tokens) for n in range(1, 7))


# name: text, format, options, step time [s], tokens/s and GPU, whether the MFU follows, and what is missing or another fact
FULL = 16384.0  # 64 sequences of 8192 tokens in 4 s on 8 GPUs
MADE = {
    "nemo": (steps(NEMO), "nemo", RUN, 4.0, FULL),
    "nemo, other memory": (steps(NEMO.replace("max_memory_", "peak_memory_")), "nemo", {"gpus": 16, "seq_len": 8192}, 4.0, FULL / 2),
    "nemo 1, bars": (
        "".join(
            f"\rEpoch 0: :   1%|  | {n}/1000 [01:30<2:28:30, v_num=0, reduced_train_loss=10.90, global_step={n}.000,"
            f" consumed_samples={64 * n}.0, train_step_timing in s={30.0 if n == 1 else 4.0}]"
            for n in range(1, 7)
        ),
        "nemo-bar",
        RUN,
        4.0,
        FULL,
    ),
    "nemo 1, a slower one": (
        "".join(
            f"Epoch 0: :   1%|  | {n}/1000 [01:30<2:28:30, v_num=0, "
            f"global_step={n}.000, consumed_samples={32 * n}.0, train_step_timing in s=8.0]\n"
            for n in range(1, 7)
        ),
        "nemo-bar",
        RUN,
        8.0,
        FULL / 4,
    ),
    "bridge, rates": (steps(BRIDGE), "megatron-bridge", {**RUN, "global_batch_size": 64}, 4.0, FULL),
    "bridge, iterations": (steps(BRIDGE + ITERATION), "megatron", RUN, 4.0, FULL),
    "megatron": (steps(ITERATION), "megatron", {"gpus": 4, "seq_len": 8192}, 4.0, FULL * 2),
    "olmo-core": (steps(OLMO, r=0.25), "olmo-core", RUN, 4.0, FULL),
    "olmo-core, slower": (steps(OLMO.replace("TPS=16,384", "TPS=8,192"), r=0.125), "olmo-core", RUN, 8.0, FULL / 2),
    "composer": (steps(COMPOSER), "composer", RUN, 4.0, FULL),
    "composer, on one line": (
        steps("[batch={n}/9]: Train throughput/batches_per_sec: 0.5 Train throughput/device/tokens_per_sec: 32768.0\n"),
        "composer",
        RUN,
        2.0,
        FULL * 2,
    ),
    "nemo-rl": (steps(NEMO_RL), "nemo-rl", RUN, 4.0, 1000.0),
    "nemo-rl, batch given": (steps(NEMO_RL), "nemo-rl", {**RUN, "global_batch_size": 64}, 4.0, FULL),
    "prime-rl": (steps(PRIME), "prime-rl", RUN, 4.0, FULL),
    "prime-rl, 16 GPUs": (steps(PRIME), "prime-rl", {"gpus": 16, "seq_len": 8192}, 4.0, FULL / 2),
    "verl": (steps(VERL), "verl", RUN, 4.0, FULL),
    "verl, numpy": (steps(VERL.replace("{t}", "np.float64({t})")), "verl", RUN, 4.0, FULL),
    "nanochat": (NANOCHAT + steps(NANOCHAT_STEP), "nanochat", {"gpus": 8}, 4.0, FULL),
    "nanochat, without its head": (steps(NANOCHAT_STEP), "nanochat", RUN, 4.0, FULL),
    "litgpt": (
        steps("Epoch 1 | iter {n} step {n} | loss train: 1.523, val: n/a | iter time: {m:.2f} ms (step) remaining time: 1:02:03\n"),
        "litgpt",
        {**RUN, "global_batch_size": 64},
        4.0,
        FULL,
    ),
    "litgpt, four micro-batches": (
        "".join(f"Epoch 1 | iter {4 * n} step {n} | loss train: 1.5, val: n/a | iter time: 1000.00 ms (step)\n" for n in range(1, 9)),
        "litgpt",
        {**RUN, "global_batch_size": 64},
        4.0,
        FULL,
    ),
    "lightning": (bars(100, 4.0, 9, "Epoch 0: "), "lightning", {**RUN, "global_batch_size": 64}, 4.0, FULL),
    "lightning, two epochs": (
        bars(20, 4.0, 2, "Epoch 0: ") + "\n" + bars(20, 4.0, 2, "Epoch 1: ") + "\n" + bars(20, 4.0, 2, "Epoch 2: "),
        "lightning",
        {**RUN, "global_batch_size": 64},
        4.0,
        FULL,
    ),
    "torchtitan": (clocked(TORCHTITAN), "torchtitan", RUN, 4.0, FULL),
    "torchtitan, batch given": (clocked(TORCHTITAN, 8), "torchtitan", {**RUN, "global_batch_size": 64}, 8.0, FULL / 2),
    "deepspeed": (clocked(DEEPSPEED), "deepspeed", {**RUN, "global_batch_size": 64}, 4.0, FULL),
    "deepspeed, its batch": (
        "[2023-07-25 21:00:00,000] [INFO] [config.py:960:print]   train_batch_size ............. 64\n" + clocked(DEEPSPEED, 9),
        "deepspeed",
        RUN,
        4.0,
        FULL,
    ),
    "trainer, bars": (
        bars(500, 4.0) + "\n{'loss': 1.2, 'learning_rate': 1e-05, 'epoch': 0.1}\n",
        "trainer-output",
        {**RUN, "global_batch_size": 64},
        4.0,
        FULL,
    ),
    "trainer, its end": (
        "{'train_runtime': 400.0, 'train_samples_per_second': 16.0, 'train_steps_per_second': 0.25, 'train_loss': 1.1, 'epoch': 1.0}\n",
        "trainer-output",
        {**RUN, "global_batch_size": 64},
        4.0,
        FULL,
    ),
    "trainer_state": (
        json.dumps(
            {"global_step": 100, "log_history": [{"loss": 2.0, "step": 100}, {"train_runtime": 400.0, "step": 100}], "train_batch_size": 8}
        ),
        "trainer-state",
        {**RUN, "global_batch_size": 64},
        4.0,
        FULL,
    ),
    "trl": (trl(), "trainer-output", RUN, 4.0, FULL),
    "trl, slower": (trl(8.0), "trainer-output", RUN, 8.0, FULL / 2),
    "ms-swift": (
        "".join(SWIFT.format(n=n, e=f"{40 * n // 60}m {40 * n % 60}s") for n in range(1, 7)),
        "trainer-output",
        {**RUN, "global_batch_size": 64},
        4.0,
        FULL,
    ),
    "ms-swift, JSON": (
        "".join(SWIFT.format(n=n, e=f"{40 * n // 60}m {40 * n % 60}s") for n in range(1, 7)).replace("'", '"'),
        "trainer-output",
        {**RUN, "global_batch_size": 32},
        4.0,
        FULL / 2,
    ),
    "axolotl": ("".join(bars(500, 4.0, 1, each=10 * n) + AXOLOTL.format() for n in range(1, 7)), "trainer-output", RUN, 4.0, FULL),
    "axolotl, batch given": (
        "".join(bars(500, 4.0, 1, each=10 * n) + AXOLOTL.format() for n in range(1, 7)),
        "trainer-output",
        {**RUN, "global_batch_size": 32},
        4.0,
        FULL / 2,
    ),
    "llama-factory": ("".join(FACTORY.format(n=n, a=40 * n // 60, b=40 * n % 60) for n in range(1, 7)), "trainer-output", RUN, 4.0, FULL),
    "llama-factory, 16 GPUs": (
        "".join(FACTORY.format(n=n, a=40 * n // 60, b=40 * n % 60) for n in range(1, 7)),
        "trainer-output",
        {"gpus": 16, "seq_len": 8192},
        4.0,
        FULL / 2,
    ),
    "torchtune, rates alone": (
        steps("Step {n} | loss:1.48 lr:2e-05 tokens_per_second_per_gpu:16384.0 peak_memory_active:38.10\n"),
        "torchtune",
        RUN,
        None,
        FULL,
    ),
    "torchtune, 4 GPUs": (
        steps("Step {n} | loss:1.48 lr:2e-05 tokens_per_second_per_gpu:8192.0\n"),
        "torchtune",
        {"gpus": 4, "seq_len": 8192},
        None,
        FULL / 2,
    ),
    "maxtext": (
        steps("completed step: {n}, seconds: {t}, TFLOP/s/device: 400.0, Tokens/s/device: 16384.0, total_weights: 524288, loss: 9.95\n"),
        "maxtext",
        RUN,
        4.0,
        FULL,
    ),
    "maxtext, padded": (
        "Num_devices: 16\n"
        + steps("completed step: {n}, seconds:  {t}, TFLOP/s/device: 200.0, Tokens/s/device: 8192.0, total_weights: 524288, loss: 9.95\n"),
        "maxtext",
        {"seq_len": 8192},
        4.0,
        FULL / 2,
    ),
    "nanogpt": (
        "tokens per iteration will be: 524,288\n" + steps("iter {n}: loss 3.2202, time {m:.2f}ms, mfu 16.68%\n"),
        "nanogpt",
        RUN,
        4.0,
        FULL,
    ),
    "modded-nanogpt": (
        "".join(MODDED.format(n=n, e=4000 * n) for n in range(10, 70, 10)),
        "modded-nanogpt",
        {**RUN, "global_batch_size": 64},
        4.0,
        FULL,
    ),
    "JSON lines": (
        "".join(json.dumps({"step": n, "loss": 2.0, "step_time": 4.0, "tokens_per_second_per_gpu": 16384.0}) + "\n" for n in range(1, 7)),
        "json-lines",
        RUN,
        4.0,
        FULL,
    ),
    "JSON lines of wandb": (
        "".join(
            json.dumps({"_step": 10 * n, "_timestamp": 1.7e9 + 40 * n, "_runtime": 40.0 * n, "train/loss": 2.0}) + "\n" for n in range(1, 7)
        ),
        "json-lines",
        {**RUN, "global_batch_size": 64},
        4.0,
        FULL,
    ),
    "JSON lines of verl": (
        "".join(json.dumps({"step": n, "data": {"timing_s/step": 4.0, "perf/max_memory_allocated_gb": 30.5}}) + "\n" for n in range(1, 7)),
        "json-lines",
        {**RUN, "global_batch_size": 64},
        4.0,
        FULL,
    ),
}


def write(tmp_path, text):
    path = tmp_path / "some.log"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", MADE)
def test_a_made_log_gives_its_step_time_tokens_and_mfu(tmp_path, name):
    text, form, run, seconds, rate = MADE[name]
    assert recognise(text.encode()) == form
    reading = log_reading(read_log(write(tmp_path, text)), "llama-3-8b", "h100-sxm", **run)
    assert reading.format == form
    assert (reading.steps and reading.steps.median) == (seconds and pytest.approx(seconds, rel=1e-3))
    assert reading.rates.tokens_per_second == pytest.approx(rate, rel=1e-3)
    assert reading.rates.mfu == pytest.approx(FLOP * rate / 989e12, rel=1e-3)
    reading.data()


@pytest.mark.parametrize("name", MADE)
def test_a_made_log_alone_names_what_is_missing_in_one_line(tmp_path, name):
    reading = log_reading(read_log(write(tmp_path, MADE[name][0])))
    assert reading.why_no_rates.count("give --") == 1 and "\n" not in reading.why_no_rates
    assert "--model" in reading.why_no_rates


def test_every_trainer_of_the_table_has_made_logs_or_real_ones():
    made = {form for _, form, *_ in MADE.values()}
    real = {"mlperf", "llm.c", "nccl-tests", "all-reduce-bench", "plain"}  # in test_logs and test_pasted
    assert made | real == set(FORMATS) == {row.name for row in table()}
    assert all(row.url.startswith("https://") or row.name == "plain" for row in table())
    assert all(row.read == "recalled" or row.read.startswith("20") or row.name == "plain" for row in table())


def test_everything_that_a_log_says_is_used(tmp_path):
    nemo = log_reading(read_log(write(tmp_path, MADE["nemo"][0])), on="h100-sxm")
    assert nemo.memory == 64 * GIB and nemo.run["global_batch_size"] == 64
    assert nemo.claimed_mfu == pytest.approx(400 / 989, rel=1e-3)
    prime = log_reading(read_log(write(tmp_path, MADE["prime-rl"][0])), "llama-3-8b", "h100-sxm", **RUN)
    assert prime.claimed_flops == pytest.approx(0.415 * 989e12, rel=1e-3) and prime.memory == 29.5 * GIB
    assert prime.run["global_batch_size"] == 64  # from the rate of tokens and the step time
    verl = log_reading(read_log(write(tmp_path, MADE["verl"][0])))
    assert [(timer.name, timer.seconds) for timer in verl.timers] == [("generation", 1.5)]
    nanochat = log_reading(read_log(write(tmp_path, MADE["nanochat"][0])))
    assert (nanochat.run["seq_len"], nanochat.run["micro_batch_size"]) == (8192, 8)
    bridge = log_reading(read_log(write(tmp_path, MADE["bridge, iterations"][0])), on="h100-sxm")
    assert bridge.claimed_flops == pytest.approx(400e12)
    axolotl = read_log(write(tmp_path, MADE["axolotl"][0]))
    sizes = {name: axolotl.claims[f"memory_{name}_max"] / GIB for name in ("active", "allocated", "reserved")}
    assert sizes == {"active": 20.5, "allocated": 20.25, "reserved": 25.5}


def iterations(times, start=1, clock=None):
    """A Megatron log with a time stamp after each line; ``clock`` are seconds since the start."""
    lines, now = [], 0.0
    for n, seconds in enumerate(times, start):
        now = now + seconds if clock is None else clock[n - start]
        stamp = f"2025-12-22 {10 + int(now) // 3600:02}:{int(now) % 3600 // 60:02}:{int(now) % 60:02}"
        lines.append(
            f" [{stamp}] iteration {n:8}/ 500 | elapsed time per iteration (ms): {1e3 * seconds} |"
            " global batch size: 64 | lm loss: 8.1E+00 |\n"
        )
    return lines


def test_the_time_of_a_run_is_divided_into_parts_that_sum_to_it(tmp_path):
    """60 steps of 10 s, of which one took 40 s; 100 s for a checkpoint after the 30th; the last ten were made again after a restart."""
    times = [10.0] * 60
    times[20] = 40.0
    moments, now = [], 0.0
    for n, seconds in enumerate(times):
        now += seconds + (100.0 if n == 30 else 0.0)
        moments.append(now)
    again = [now + 50.0 + 10.0 * n for n in range(1, 21)]
    text = iterations(times, clock=moments)
    text[30] = "  successfully saved checkpoint from iteration 30 to here\n" + text[30]
    log = log_reading(read_log(write(tmp_path, "".join([*text, *iterations([10.0] * 20, 51, again)]))))
    run = log.whole_run
    assert run.wall_seconds == pytest.approx(60 * 10 + 30 + 100 + 50 + 200)
    assert run.useful_seconds == 700.0 and run.slower_seconds == 30.0
    assert (run.repeated_seconds, run.between_seconds, run.restarts) == (100.0, pytest.approx(150.0), 1)
    parts = (run.useful_seconds, run.warm_up_seconds, run.slower_seconds, run.skipped_seconds, run.repeated_seconds, run.between_seconds)
    assert sum(parts) == pytest.approx(run.wall_seconds)
    assert run.events == {"checkpoints": (1, 0.0)} and run.goodput == pytest.approx(700 / 980)
    (lost,) = [one for one in log.findings if one.code == "lost-time"]
    assert "150 s are between the steps" in lost.text


def test_a_change_of_the_step_time_has_its_iteration_and_its_moment(tmp_path):
    times = [10.0 + 0.01 * (n % 3) for n in range(40)] + [12.0 + 0.01 * (n % 3) for n in range(40)]
    log = log_reading(read_log(write(tmp_path, "".join(iterations(times)))))
    (change,) = log.whole_run.changes
    assert change.iteration == 41 and change.ratio == pytest.approx(1.2, rel=2e-3)
    assert change.at_seconds == pytest.approx(400.0, abs=15.0)
    assert log.whole_run.goodput == pytest.approx(800 / 880, rel=2e-3)  # 80 steps at 10 s, of 400 s and 480 s
    assert [one.name for one in diagnose(tmp_path / "some.log").findings if "iteration 41" in one.says] == ["step-time-changed"]
    steady = log_reading(read_log(write(tmp_path, "".join(iterations(times[:40]))))).whole_run
    assert steady.changes == () and steady.goodput == pytest.approx(1.0, abs=0.002)


def test_slow_ranks_and_hosts_are_named(tmp_path):
    text = "".join(
        f"{rank}: iter {n}: loss 3.2, time {1300.0 if rank == 2 else 1000.0}ms, mfu 1.0%\n" for n in range(20) for rank in range(4)
    )
    text += "  Rank=489 Node=h100-004-269-026 Score=0.50\n  Rank=488 Node=h100-004-269-025 Score=1.00\n"
    found = log_reading(read_log(write(tmp_path, text)))
    assert [(one.name, one.ratio) for one in found.whole_run.stragglers] == [("h100-004-269-026", 2.0), ("rank 2", 1.3)]
    (finding,) = [one for one in diagnose(write(tmp_path, text)).findings if one.name == "straggler-rank"]
    assert "h100-004-269-026" in finding.says


@pytest.mark.parametrize(
    "text",
    [
        b"step:1 - " * 2000 + b"\n",
        b"step:1 - perf/time_per_step:" + b"9" * 10_000 + b"\n",
        b"[batch=1/2]\n" + b"\0" * 20_000,
        b"completed step: 1, seconds: nan, TFLOP/s/device: x\n",
        b'{"step": 1, "step_time": ' + b"[" * 5_000 + b"\n",
        b"Epoch 0:  10%|#| 1/10 [00:00<?, ?it/s]\r" * 1000,
        b"\x1b[31m[step=1/10]\x1b[0m\n    throughput/device/BPS=\xff\xfe\n",
        b"Training epoch 0, iteration 1/2 | global_step: 1 | train_step_timing in s: \xc3\x28\n",
        b"iter time: " + b" " * 100_000 + b"iter 1 step 1 |\n",
    ],
)
def test_a_hostile_log_gives_one_line_or_no_step(tmp_path, text):
    path = tmp_path / "some.log"
    path.write_bytes(text)
    try:
        (found,) = diagnose(path).logs
    except InputError as error:
        assert "\n" not in str(error) and str(path) in str(error)
    else:
        assert found.steps is None and found.verdict


@pytest.mark.parametrize("name", ["nemo", "composer", "verl", "JSON lines", "trl"])
def test_damage_between_lines_changes_nothing(tmp_path, name):
    text, _, run, seconds, rate = MADE[name]
    dirt = "\x1b[33m warning \x1b[0m\n" + "x" * 100_000 + "\n\0\0\0\n 10%|#  | 1/9 [00:01<00:08, ?it/s]\r\n"
    lines = text.splitlines(keepends=True)
    reading = log_reading(read_log(write(tmp_path, lines[0] + dirt + "".join(lines[1:]))), "llama-3-8b", "h100-sxm", **run)
    assert reading.steps.median == pytest.approx(seconds, rel=1e-3)
    assert math.isclose(reading.rates.tokens_per_second, rate, rel_tol=1e-3)


@pytest.mark.slow
def test_a_hundred_megabytes_are_read_in_time(tmp_path, budget):
    path = tmp_path / "long.log"
    filler = "INFO 2025-01-01 00:00:00 worker 3: fetched a shard of data from the store and put it into the queue\n" * 250
    with path.open("w") as out:
        for n in range(4000):
            out.write(filler + VERL.format(n=n, t=4.0))
    with budget(12.0):
        assert len(read_log(path)) == 4000
