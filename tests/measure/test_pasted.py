"""What people paste: messages of "out of memory", tables of memory, and lines of trainers. Made after the forms that the programs print."""

from __future__ import annotations

import pickle

import pytest

from ironlaw.errors import InputError
from ironlaw.estimate.answer.estimate import answer
from ironlaw.estimate.what_if.measured_run import rank_suspects
from ironlaw.measure.diagnose import diagnose
from ironlaw.measure.kernels.names import shipped_names
from ironlaw.measure.logs import read_log
from ironlaw.measure.logs.reading import log_reading
from ironlaw.question.read import read_options
from ironlaw.report.diagnosis import diagnosis_page

GIB = 1 << 30
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.20 GiB is"
    " free. {other}Including non-PyTorch memory, this process has 77.93 GiB memory in use. Of the allocated memory 70.10 GiB is allocated"
    " by PyTorch, and {unused} GiB is reserved by PyTorch but unallocated."
)
OLD_OOM = (
    "RuntimeError: HIP out of memory. Tried to allocate 20.00 MiB (GPU 3; 39.59 GiB total capacity; 37.38 GiB already allocated;"
    " 19.19 MiB free; 38.07 GiB reserved in total by PyTorch)"
)
SUMMARY = """
|===========================================================================|
|                  PyTorch CUDA memory summary, device ID 2                 |
|---------------------------------------------------------------------------|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |  12345 MiB |  23456 MiB |   1024 GiB |   1000 GiB |
|       from large pool |  12300 MiB |  23400 MiB |   1024 GiB |   1000 GiB |
| GPU reserved memory   |  24000 MiB |  25000 MiB |  25000 MiB |   1000 MiB |
"""
DEEPSPEED = "[INFO] [utils.py:801:see_memory_usage] MA 13.24 GB         Max_MA 14.1 GB         CA 15.0 GB         Max_CA 15 GB \n"
SMI = "| N/A   45C    P0             300W / 700W |   71234MiB /  81559MiB |     99%      Default |\n"


def write(tmp_path, text):
    path = tmp_path / "pasted.txt"
    path.write_text(text)
    return path


def first_entry(tmp_path, text):
    return diagnose(write(tmp_path, text)).data()["files"][0]["memory_text"]["entries"][0]


def test_a_message_gives_its_sizes(tmp_path):
    entry = first_entry(tmp_path, OOM.format(other="", unused="5.00"))
    sizes = {name: round(entry[name] / GIB, 2) for name in ("asked", "capacity", "free", "allocated", "unallocated", "this_process")}
    assert sizes == {"asked": 2.0, "capacity": 79.15, "free": 1.2, "allocated": 70.1, "unallocated": 5.0, "this_process": 77.93}
    old = first_entry(tmp_path, OLD_OOM)
    assert (old["device"], old["asked"]) == (3, 20 << 20)
    assert old["unallocated"] / GIB == pytest.approx(38.07 - 37.38, abs=0.005)


@pytest.mark.parametrize(
    ("other", "unused", "why"),
    [
        ("", "5.00", "fragments"),
        ("Process 77 has 9.00 GiB memory in use. ", "0.20", "other processes hold 9.00 GiB"),
        ("", "0.20", "more than the device has"),
    ],
)
def test_a_failed_request_names_its_cause(tmp_path, other, unused, why):
    (finding,) = diagnose(write(tmp_path, OOM.format(other=other, unused=unused))).findings
    assert finding.name == "out-of-memory" and why in finding.says


def test_tables_and_lines_give_their_peaks(tmp_path):
    summary = first_entry(tmp_path, SUMMARY)
    assert (summary["device"], summary["peak_allocated"], summary["reserved"]) == (2, 23456 << 20, 24000 << 20)
    lines = first_entry(tmp_path, DEEPSPEED)
    assert lines["allocated"] == pytest.approx(13.24 * GIB) and lines["peak_reserved"] == 15 * GIB
    smi = first_entry(tmp_path, SMI)
    assert (smi["used"], smi["capacity"]) == (71234 << 20, 81559 << 20)


def test_a_log_that_ends_out_of_memory_has_both(tmp_path):
    log = "".join(f"iter {i}: loss 3.2, time 500.00ms, mfu 16.68%\n" for i in range(4)) + OOM.format(other="", unused="5.00")
    data = diagnose(write(tmp_path, log)).data()
    assert data["files"][0]["log"]["steps"]["median_seconds"] == 0.5
    assert data["files"][1]["memory_text"]["entries"][0]["asked"] == 2 * GIB


def test_a_message_is_compared_with_the_run_and_ways_to_fit(tmp_path):
    question = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "zero": 3, "micro_batch_size": 4, "global_batch_size": 32}
    diagnosis = diagnose(write(tmp_path, OOM.format(other="", unused="5.00")), question={**question, "seq_len": 4096, "framework": "fsdp"})
    run, rows = diagnosis.memory_run, {row.term: row for row in diagnosis.memory}
    assert rows["allocated"].measured == pytest.approx(72.1 * GIB)  # with the request that failed
    assert "recompute none" in run["assumed"] and "recompute none" in run["plan"]
    assert run["ways_to_fit"] and all(way["fits_probability"] > 0.5 for way in run["ways_to_fit"])
    ratios = [way["time_ratio"] for way in run["ways_to_fit"]]
    assert ratios == sorted(ratios)
    page = diagnosis_page(diagnosis.data())
    assert "predicted for zero 3, micro-batch 4 x 1" in page and f"with {run['ways_to_fit'][0]['flags']}:" in page


def snapshot(tmp_path, frames=()):
    """1 GiB that stays, 9 GiB that are freed before the dump."""
    block = {"size": GIB, "requested_size": GIB, "state": "active_allocated", "frames": list(frames)}
    free = {"size": 10 * GIB, "requested_size": 0, "state": "inactive", "frames": []}
    entries = [
        {"action": "alloc", "addr": 0, "size": GIB, "stream": 0, "time_us": 1, "frames": list(frames)},
        {
            "action": "alloc",
            "addr": GIB,
            "size": 9 * GIB,
            "stream": 0,
            "time_us": 2,
            "frames": [{"filename": "/a/train.py", "line": 7, "name": "step"}],
        },
        {"action": "free_requested", "addr": GIB, "size": 9 * GIB, "stream": 0, "time_us": 3, "frames": []},
        {"action": "free_completed", "addr": GIB, "size": 9 * GIB, "stream": 0, "time_us": 4, "frames": []},
    ]
    segment = {"device": 0, "address": 0, "total_size": 11 * GIB, "blocks": [block, free]}
    path = tmp_path / "peak.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [entries]}))
    return path


def test_the_page_of_a_snapshot_begins_with_its_peak_and_its_holders(tmp_path):
    lines = diagnosis_page(diagnose(snapshot(tmp_path)).data()).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  peak of the trace"))
    assert "10.000 GiB" in lines[at] and "9.000 GiB  /a/train.py:7 step" in lines[at + 1]
    assert at < next(i for i, line in enumerate(lines) if "at the dump" in line)


def test_a_stack_of_the_backward_pass_is_named(tmp_path):
    frames = [
        {"filename": "??", "line": 0, "name": "torch::unwind::unwind()"},
        {"filename": "??", "line": 0, "name": "torch::autograd::Engine::thread_main()"},
    ]
    page = diagnosis_page(diagnose(snapshot(tmp_path, frames)).data())
    assert "(backward pass: C++ stack only)" in page and "unwind" not in page


def test_a_snapshot_is_compared_with_the_simplest_run(tmp_path):
    question = {"model": "gpt2", "on": "h100-sxm", "gpus": 1, "global_batch_size": 4, "seq_len": 1024}
    diagnosis = diagnose(snapshot(tmp_path), question=question)
    plan = diagnosis.memory_run["plan"]
    assert "micro-batch 4 x 1" in plan and "recompute none" in plan and "offload" not in plan
    given = diagnose(snapshot(tmp_path), question={**question, "recompute": "full"}).memory_run
    assert "recompute full" in given["plan"] and "recompute none" not in given["assumed"]


LOGS = {  # text of a log, median step by hand
    "modded-nanogpt, every tenth step": (
        "".join(f"step:{n}/1000 train_time:{62 * n}ms step_avg:62.00ms\n" for n in range(10, 60, 10)),
        0.062,
    ),
    "modded-nanogpt, with its loss": (
        "".join(f"step:{n}/1000 train_loss:4.1 train_time:{62 * n}ms step_avg:62.00ms\n" for n in range(10, 60, 10)),
        0.062,
    ),
    "maxtext": (
        "".join(
            f"completed step: {n}, seconds: {45.0 if n == 0 else 6.101}, TFLOP/s/device: 240.500, Tokens/s/device: 5371.200,"
            " total_weights: 2097152, loss: 9.950\n"
            for n in range(4)
        ),
        6.101,
    ),
    "trainer, bars": (
        "\r".join(f" {n}%|#   | {45 * n}/450 [0{1 + (n - 1) * 3 // 2}:{'30' if n % 2 else '00'}<13:30,  2.00s/it]" for n in (1, 3, 5))
        + "\r        \r{'loss': 1.2, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}\n",
        2.0,
    ),
    "trainer, dicts": (
        "".join(
            f"{{'loss': 1.2, 'memory(GiB)': 76.72, 'train_speed(iter/s)': 0.2, 'epoch': 0.1, 'global_step/max_steps': '{n}/4500',"
            f" 'elapsed_time': '{n * 5 // 60}m {n * 5 % 60}s'}}\n"
            for n in (5, 10, 15, 20)
        ),
        5.0,
    ),
    "own, a figure with a unit": ("".join(f"step {n} | loss 3.2 | dt 338.12ms\n" for n in range(5)), 0.33812),
    "own, seconds an iteration": ("".join(f"Iter {n}: loss 3.2, 2.50 s/it\n" for n in range(5)), 2.5),
    "own, time stamps": ("".join(f"2026-11-02 10:00:{n:02} INFO step={n // 2} loss=3.2\n" for n in range(0, 60, 20)), 2.0),
    "own, elapsed time": ("".join(f"iteration {n}: elapsed time: {0.305 * n} s\n" for n in range(100, 500, 100)), 0.305),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_gives_the_time_of_one_step(tmp_path, name):
    text, seconds = LOGS[name]
    steps = log_reading(read_log(write(tmp_path, text))).steps
    assert steps is not None and steps.median == pytest.approx(seconds, rel=1e-6)


def test_torchtune_gives_rate_and_three_figures_of_memory(tmp_path):
    line = (
        "Step {} | loss:1.48 lr:2e-05 tokens_per_second_per_gpu:2772.771 peak_memory_active:38.10 peak_memory_alloc:37.10"
        " peak_memory_reserved:42.50\n"
    )
    log = read_log(write(tmp_path, "".join(line.format(n) for n in range(1, 4))))
    assert log.tokens_per_second[1] == pytest.approx(2772.771)
    peaks = {name: log.claims[f"memory_{name}_max"] / GIB for name in ("active", "allocated", "reserved")}
    assert peaks == pytest.approx({"active": 38.1, "allocated": 37.1, "reserved": 42.5})


def test_a_time_without_a_unit_is_not_read(tmp_path):
    text = "2026-11-02 10:00:00 step 1 loss 3.2 3 s\n" + "step 2 time 5.0\nstep 3 time 5.0\n"
    log = read_log(write(tmp_path, text))
    assert log.skipped["a line with a step, and no time with a unit"] == 2
    with pytest.raises(InputError, match="unknown kind"):
        diagnose(write(tmp_path, "step 2 time 5.0\nstep 3 time 5.0\n"))


def test_a_bar_of_an_evaluation_is_not_the_training(tmp_path):
    text = " 1%| | 90/450 [03:00<12:00,  2.00s/it]\n 50%|# | 10/20 [00:05<00:05,  2.00it/s]\n{'eval_loss': 1.0, 'epoch': 0.2}\n"
    text += "{'loss': 1.2, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}\n"
    assert log_reading(read_log(write(tmp_path, text))).steps.median == pytest.approx(2.0)


def test_a_pooling_kernel_of_xmma_is_no_product():
    kinds = [shipped_names().named(f"sm80_xmma_{name}").kind.name for name in ("pooling_max_nhwc_fp32", "gemm_bf16bf16_bf16f32_tn_n")]
    assert kinds == ["pooling", "gemm"]


def test_products_in_fp32_are_a_suspect():
    """A 70B run on A100s at 20 TFLOP/s a GPU, the dense fp32 peak being 19.5: nothing but fp32 products is so slow."""
    question = {"model": "llama-2-70b", "on": "a100-sxm-80gb", "gpus": 64, "seq_len": 4096, "global_batch_size": 64}
    plan = {"tp": 8, "pp": 2, "vpp": 1, "zero": 1, "micro_batch_size": 1, "recompute": "full"}
    group, at = answer(read_options({**question, **plan})).place_of(0)
    step = 6.0 * 69e9 * 64 * 4096 / (64 * 10e12)
    first = rank_suspects(group, at, step, float(answer(read_options({**question, **plan})).step_seconds[0]))[0]
    assert first.fault == "products in fp32"
