"""What programs print about memory, in all their wordings. Sizes are those of the made text, in its unit."""

from __future__ import annotations

import io

import pytest

from ironlaw import files
from ironlaw.cli.main import main
from ironlaw.errors import InputError
from ironlaw.measure.diagnose import diagnose
from ironlaw.measure.read.memory_text import read_entries, read_memory_text, recognise
from ironlaw.report.diagnosis import diagnosis_page

GIB = 1 << 30
HEAD = "{0} out of memory. Tried to allocate 2.00 GiB"
SECOND = (
    " GPU 1 has a total {0} of 79.00 GiB of which 1.50 GiB is free. {1}Of the allocated memory 70.00 GiB is allocated by PyTorch, {2}and"
)
TAIL = " 4.25 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting max_split_size_mb"
THIS = "Including non-PyTorch memory, this process has 77.00 GiB memory in use. "
BROKEN = "Process 1 has 17179869184.00 GiB memory in use. Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use. "
SIZES = {"asked": 2.0, "capacity": 79.0, "free": 1.5, "allocated": 70.0, "unallocated": 4.25}
MESSAGES = {
    "1.0, cached": (
        HEAD.format("CUDA") + " (GPU 1; 79.00 GiB total capacity; 70.00 GiB already allocated; 1.50 GiB free; 4.25 GiB cached)",
        SIZES,
    ),
    "1.4": (
        HEAD.format("CUDA")
        + " (GPU 1; 79.00 GiB total capacity; 70.00 GiB already allocated; 1.50 GiB free; 74.25 GiB reserved in total by PyTorch)",
        SIZES,
    ),
    "1.11, with a limit": (
        HEAD.format("CUDA") + " (GPU 1; 79.00 GiB total capacity; 70.00 GiB already allocated; 1.50 GiB free; 72.00 GiB allowed; 74.25 GiB"
        " reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.",
        {**SIZES, "allowed": 72.0},
    ),
    "2.1, misspelt": (HEAD.format("CUDA") + "." + SECOND.format("capacty", "", "") + TAIL, SIZES),
    "2.2": (HEAD.format("CUDA") + "." + SECOND.format("capacity", THIS, "") + TAIL, {**SIZES, "this_process": 77.0}),
    "2.3, with pools": (
        HEAD.format("CUDA")
        + "."
        + SECOND.format("capacity", "Process 7 has 3.00 GiB memory in use. " + THIS, "with 512.00 MiB allocated in private pools, ")
        + TAIL,
        {**SIZES, "this_process": 77.0, "other_processes": 3.0, "private_pools": 0.5},
    ),
    "in a container": (HEAD.format("CUDA") + "." + SECOND.format("capacity", BROKEN, "") + TAIL, SIZES),
    "ROCm": (HEAD.format("HIP") + "." + SECOND.format("capacity", THIS, "") + TAIL, {**SIZES, "this_process": 77.0}),
    "MPS": (
        "RuntimeError: MPS backend out of memory (MPS allocated: 5.00 GB, other allocations: 2.25 GB, max allowed: 9.00 GB). Tried to"
        " allocate 2.00 GB on private pool.",
        {"asked": 2.0, "allocated": 5.0, "other_processes": 2.25, "capacity": 9.0},
    ),
    "XLA on GPUs": ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3221225472 bytes.", {"asked": 3.0}),
    "XLA on TPUs, compiled": (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 40.50G of 31.25G"
        " hbm. Exceeded hbm capacity by 9.25G.",
        {"needed": 40.5, "capacity": 31.25},
    ),
    "XLA on TPUs, running": (
        "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 1.50G. That was not possible. There are 512.00M free.;"
        " (0x0x0_HBM0)",
        {"asked": 1.5, "free": 0.5},
    ),
    "XLA on TPUs, two kinds of cores": (
        "RESOURCE_EXHAUSTED: TPU TensorCore Hbm usage: 34.50G, SparseCore Hbm usage 74.00G, exceeding available bytes: 95.50G",
        {"needed": 108.5, "capacity": 95.5},
    ),
}


def shown(entry, names):
    return {name: getattr(entry, name) / GIB for name in names}


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("width", [10_000, 72])
def test_every_wording_gives_its_sizes_also_broken_into_lines(tmp_path, name, width):
    text, sizes = MESSAGES[name]
    words, broken = text.split(" "), [""]
    for word in words:
        broken[-1:] = [broken[-1] + " " + word] if len(broken[-1]) + len(word) < width else [broken[-1], word]
    path = tmp_path / "pasted"
    path.write_text("Traceback (most recent call last):\n" + "\n".join(broken) + "\n")
    (entry,) = read_memory_text(path).entries
    assert shown(entry, sizes) == pytest.approx(sizes, abs=1e-9) and entry.failed
    assert entry.this_process is None or "this_process" in sizes
    (finding,) = diagnose(path).findings
    assert finding.name == "out-of-memory"


def test_two_messages_of_two_ranks_are_two_entries():
    entries = read_entries([MESSAGES["2.2"][0], MESSAGES["1.4"][0], "another line"])
    assert [entry.allocated for entry in entries] == [70 * GIB, 70 * GIB]


def test_a_refusal_without_sizes_names_the_device(tmp_path):
    path = tmp_path / "pasted"
    path.write_text("RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call\n")
    (finding,) = diagnose(path).findings
    assert "the device is full" in finding.says and "nvidia-smi" in finding.advice


def test_a_limit_set_by_the_process_is_the_cause(tmp_path):
    path = tmp_path / "pasted"
    path.write_text(MESSAGES["1.11, with a limit"][0].replace("1.50 GiB free", "8.00 GiB free").replace("74.25", "71.00"))
    (finding,) = diagnose(path).findings
    assert "may use 72.00 GiB" in finding.says


TABLES = {
    "old units": (
        "|                  PyTorch CUDA memory summary, device ID 0                 |\n"
        "|            CUDA OOMs: 1            |        cudaMalloc retries: 3         |\n"
        "| Allocated memory      |   12345 MB |   23456 MB |   1024 GB |   1000 GB |\n"
        "| GPU reserved memory   |   24000 MB |   25000 MB |  25000 MB |   1000 MB |\n",
        [{"allocated": 12345 << 20, "peak_allocated": 23456 << 20, "reserved": 24000 << 20, "peak_reserved": 25000 << 20, "retries": 3}],
    ),
    "DeepSpeed": (
        "[2024-05-01 10:00:00,000] [INFO] [utils.py:801:see_memory_usage] MA 1.25 GB         Max_MA 2.5 GB  "
        "       CA 3.75 GB         Max_CA 4 GB \n"
        "[2024-05-01 10:00:00,000] [INFO] [utils.py:808:see_memory_usage] CPU Virtual Memory:  used = 50.5 GB, percent = 5.0%\n",
        [{"allocated": 1.25 * GIB, "peak_allocated": 2.5 * GIB, "reserved": 3.75 * GIB, "peak_reserved": 4 * GIB}],
    ),
    "Megatron": (
        "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1024.0 | max allocated: 2048.0 | reserved: 3072.0 | max reserved: 4096.0\n",
        [{"allocated": 1 * GIB, "peak_allocated": 2 * GIB, "reserved": 3 * GIB, "peak_reserved": 4 * GIB}],
    ),
    "nvidia-smi": (
        "| N/A   45C    P0             300W / 700W |   2048MiB /  81559MiB |     99%      Default |\n"
        "| N/A   45C    P0             300W / 700W |   1024MiB /  81559MiB |     99%      Default |\n"
        "|    0   N/A  N/A      1234      C   python3                                    1500MiB |\n"
        "|    0   N/A  N/A      1235      C   /usr/bin/python3                            500MiB |\n",
        [
            {"device": 0, "used": 2048 << 20, "capacity": 81559 << 20, "processes": (1500 << 20, 500 << 20)},
            {"device": 1, "used": 1024 << 20, "processes": ()},
        ],
    ),
    "nvidia-smi as CSV": (
        "index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n"
        "0, NVIDIA H100 80GB HBM3, 98 %, 103 MiB, 81559 MiB\n3, NVIDIA H100 80GB HBM3, 0 %, 8311 MiB, 81559 MiB\n",
        [{"device": 3, "used": 8311 << 20, "capacity": 81559 << 20}, {"device": 0, "used": 103 << 20}],
    ),
    "nvidia-smi as CSV without units": (
        "memory.used, memory.total\n512, 12288\n",
        [{"device": 0, "used": 512 << 20, "capacity": 12288 << 20}],
    ),
    "rocm-smi": (
        "GPU[0]\t\t: VRAM Total Memory (B): 68702699520\nGPU[0]\t\t: VRAM Total Used Memory (B): 10960896\n",
        [{"device": 0, "capacity": 68702699520, "used": 10960896}],
    ),
    "amd-smi": (
        "GPU: 2\n    MEM_USAGE:\n        TOTAL_VRAM: 196592 MB\n        USED_VRAM: 285 MB\n        FREE_VRAM: 196307 MB\n",
        [{"device": 2, "capacity": 196592 << 20, "used": 285 << 20}],
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_gives_each_device(tmp_path, name):
    text, expected = TABLES[name]
    path = tmp_path / "table"
    path.write_text(text)
    assert recognise(text.encode())
    entries = read_memory_text(path).entries
    assert len(entries) == len(expected)
    for entry, values in zip(entries, expected, strict=True):
        assert {key: getattr(entry, key) for key in values} == values
    diagnosis_page(diagnose(path).data())


STATES = """Estimated memory needed for params, optim states and gradients for a:
HW: Setup with 2 nodes, 8 GPUs per node.
SW: Model with 2851M total params, 32M largest layer params.
  per CPU  |  per GPU |   Options
   71.71GB |   0.12GB | offload_param=cpu , offload_optimizer=cpu , zero_init=1
  127.48GB |   6.10GB | offload_param=none, offload_optimizer=none, zero_init=0
"""


def test_an_estimate_of_model_states_is_a_table(tmp_path):
    path = tmp_path / "states"
    path.write_text(STATES)
    first, last = read_memory_text(path).states
    assert (first.parameters, first.largest_layer, first.gpus) == (2_851_000_000, 32_000_000, 16)
    assert (last.host / GIB, last.device / GIB) == pytest.approx((127.48, 6.10))
    page = diagnosis_page(diagnose(path).data())
    assert "2,851 M parameters on 16 GPUs" in page and "6.1 GiB" in page


def test_a_message_is_divided_by_the_terms_of_the_estimate(tmp_path):
    path = tmp_path / "pasted"
    path.write_text(MESSAGES["2.2"][0])
    question = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "zero": 3, "micro_batch_size": 2, "framework": "fsdp"}
    diagnosis = diagnose(path, question=question)
    rows = {row.term: row for row in diagnosis.memory}
    parts = [row.predicted for row in diagnosis.memory if row.measured is None and row.note.startswith("part of")]
    assert sum(parts) == pytest.approx(rows["allocated"].predicted) and "weights" in rows
    assumed = " ".join(diagnosis.memory_run["assumed"])
    assert "seq_len 8192" in assumed and "optimizer adamw" in assumed and "micro_batch_size" not in assumed


@pytest.mark.parametrize(
    "text",
    [
        b"CUDA out of memory. Tried to allocate" + b" " * 50_000,
        b"CUDA out of memory. Tried to allocate \0\0\0 GiB\n" + b"\0" * 50_000,
        b"RESOURCE_EXHAUSTED: out of memory\n",
        b"memory.used [MiB], memory.total [MiB]\n[N/A], [N/A]\n",
        b"Model with 5M total params, 1M largest layer params\n",
        b"\xff\xfeC\0U\0D\0A\0 \0o\0u\0t\0",
    ],
)
def test_a_damaged_text_gives_one_line(tmp_path, text):
    path = tmp_path / "pasted"
    path.write_bytes(text)
    with pytest.raises(InputError) as caught:
        diagnose(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_colours_and_bars_do_not_hide_a_message(tmp_path):
    path = tmp_path / "pasted"
    path.write_text("\x1b[31m 10%|# | 1/10\r 20%|## | 2/10\r\x1b[0m" + MESSAGES["2.2"][0] + "\x1b[0m\n")
    assert read_memory_text(path).entries[0].allocated == 70 * GIB


def test_a_dash_is_standard_input(monkeypatch, capsys):
    stream = io.TextIOWrapper(io.BytesIO(MESSAGES["2.2"][0].encode()))
    monkeypatch.setattr("sys.stdin", stream)
    monkeypatch.setattr(files, "_kept", [])
    assert main(["diagnose", "-"]) == 0
    assert "allocated by PyTorch            70.000 GiB" in capsys.readouterr().out
