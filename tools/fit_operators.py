"""Fit the calibration records to measured operators and write them as TOML.

    python tools/fit_operators.py --data DIR --out src/ironlaw/catalog/data/calibration

DIR holds gemm, attention_forward, mla_forward, moe and nccl.parquet, thinned from github ai-dynamo/aiconfigurator
(Apache-2.0; latency in ms, NCCL message_size in elements). Needs ironlaw, numpy, scipy and pyarrow; deterministic.
Every constant minimises the weighted mean of |log(predicted / measured)|; held-out errors are medians of |predicted/measured - 1|.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from fit_experts import fit_experts
from measured_operators import (
    BEST_SHAPE,
    CACHE_BYTES,
    CACHE_SPEEDUP,
    CAST_BANDWIDTH,
    DEVICES,
    OPERANDS,
    accelerator,
    fit,
    hardware,
    held_out,
    pick,
    read_table,
)

VERSION, READ = "2026.11", "2026-11-20"
REPOSITORY = "https://github.com/ai-dynamo/aiconfigurator"
STREAM_BYTES = 100e6  # a GEMM moving more than this is a bandwidth row
MIB = 2.0**20

TITLES = {
    "a100-sxm": "NVIDIA A100 SXM 80 GB",
    "h100-sxm": "NVIDIA H100 SXM",
    "h200-sxm": "NVIDIA H200 SXM",
    "b200-sxm": "NVIDIA B200 SXM",
    "b300-sxm": "NVIDIA B300 SXM",
    "gb200": "NVIDIA GB200",
    "gb300": "NVIDIA GB300",
    "l40s": "NVIDIA L40S",
}

# One stated runtime for every device: torch_flow, cuBLAS as PyTorch calls it. The vllm rows of the same table exceed the
# best shape ever published (ml-engineering MAMF, a sustained benchmark) on large GEMMs: A100 0.93 against 0.869 of peak,
# H100 0.85 against 0.803, B300 0.80 against 0.786; on GB200 they fall to 0.39.
WHY = "cuBLAS as PyTorch calls it; the vllm rows of the same table exceed the best published sustained shape (ml-engineering MAMF)"
GEMM_RUNTIME = dict.fromkeys(DEVICES, ("trtllm 1.3.0rc20", "torch_flow", WHY)) | {"a100-sxm": ("trtllm 1.0.0", "torch_flow", WHY)}
FLASH = dict.fromkeys(DEVICES, ("vllm 0.24.0", "vllm_flashinfer_trtllmprefill")) | {
    "a100-sxm": ("vllm 0.14.0", "vllm_flash_attn"),
    "l40s": ("vllm 0.24.0", "vllm_flash_attn_fa2"),
    "h100-sxm": ("vllm 0.24.0", "vllm_flash_attn_fa3"),
    "h200-sxm": ("vllm 0.24.0", "vllm_flash_attn_fa3"),
}
OPERATIONS = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter", "all_to_all": "alltoall"}

CITED = {
    "fa2": ("FlashAttention-2, arXiv 2307.08691", "https://arxiv.org/abs/2307.08691", "paper"),
    "fa3": ("FlashAttention-3, arXiv 2407.08608", "https://arxiv.org/abs/2407.08608", "paper"),
    "elementwise_rule": (
        "aiconfigurator system descriptions: mem_bw_empirical_scaling_factor 0.8, mem_empirical_constant_latency 3 us",
        REPOSITORY,
        "guess",
    ),
    "p6_b200": (
        "ml-engineering, all-reduce on 4 x P6-B200, 8 x 50 GB/s EFA v4 a node",
        "https://github.com/stas00/ml-engineering/tree/master/network",
        "measured",
    ),
    "nccl_1244": (
        "NCCL issue 1244: floor of small messages on two H20 nodes, 46-48 us",
        "https://github.com/NVIDIA/nccl/issues/1244",
        "measured",
    ),
    "simai": ("SimAI analytical constants: ConnectX-7 48.5 of 50 GB/s", "https://github.com/aliyun/SimAI", "guess"),
    "jean_zay": (
        "bigscience, all_reduce_bench on one Jean Zay node, 4 x V100 32 GB",
        "https://github.com/bigscience-workshop/bigscience/tree/master/experiments/bandwidth",
        "measured",
    ),
    "omni_path": (
        "bigscience, all_reduce_bench on Jean Zay: 84.6 and 54.9 Gbit/s bus bandwidth (V100, 4 and 16 nodes), 40.5 (A100, 4 nodes)",
        "https://github.com/bigscience-workshop/bigscience/tree/master/experiments/bandwidth",
        "measured",
    ),
    "matmul_4090": (
        "torch-performance-test-data issue 78: RTX 4090, torch 2.7, matmul 1024 to 10240",
        "https://github.com/zzc0721/torch-performance-test-data/issues/78",
        "measured",
    ),
    "prior": (
        "Carried over from another record by judgement; expect a wider error",
        "https://github.com/ai-dynamo/aiconfigurator",
        "guess",
    ),
}


# --- GEMM -------------------------------------------------------------------------------------------------------------


def gemm_rows(table, device, dtype, software, kernel) -> dict[str, np.ndarray]:
    mask = (table["device"] == device.replace("-", "_")) & (table["gemm_dtype"] == dtype)
    mask &= (table["software"] == software) & (table["m"] % 8 == 0)  # training batches are aligned
    mask &= (table["kernel_source"] == kernel) if kernel else True
    return dict(zip("mnkt", pick(table, mask, "m", "n", "k", "seconds"), strict=True))


NVLS = ("h100-sxm", "h200-sxm", "b200-sxm", "b300-sxm")  # measured in groups that NCCL reduces in the switch
NUMBERS = {"half": "FP16", "int8": "INT8"}
BLACKWELL = ("b200-sxm", "b300-sxm", "gb200", "gb300")


def runtime(device: str, precision: str) -> tuple[str, str, str]:
    """(software, kernel source, why) whose rows are fitted."""
    if precision == "bf16":
        return GEMM_RUNTIME[device]
    if precision == "fp8-block" and device in BLACKWELL:
        return ("trtllm 1.3.0rc20", "deepgemm", "block-scaled FP8, DeepGEMM")
    return ("trtllm 1.3.0rc20", "torch_flow", f"{precision} through PyTorch")


def fit_gemm(table, device: str, precision: str) -> dict | None:
    """Constants of max(2mnk/(e P) + fill, bytes/(b BW)) + launch, gated on the roof, with held-out error by unseen (n, k)."""
    rate = hardware(device)
    software, kernel, why = runtime(device, precision)
    dtype, width = OPERANDS[precision]
    peak = "fp8" if precision == "fp8-block" else precision
    row = gemm_rows(table, device, dtype, software, kernel)
    if peak not in rate or not len(row["t"]):
        return None
    m, n, k, t = row.values()
    compute, bytes_moved = 2 * m * n * k / rate[peak], width * (m * k + k * n) + 2 * m * n
    memory = bytes_moved / rate["hbm"]
    kept = t >= np.maximum(compute, memory / np.where(bytes_moved < CACHE_BYTES, CACHE_SPEEDUP, 1.0))
    launch = float(np.median(t[kept & (m <= 256) & (n <= 256) & (k <= 256)]))
    narrow = precision != "bf16"
    cast = narrow * m * k / (CAST_BANDWIDTH * rate["hbm"])  # narrow rows cast their activation first, in how many passes is fitted
    train = kept & (m >= 512) & (n >= 1024) & (k >= 1024)
    stream = kept & ~train & (bytes_moved > STREAM_BYTES) & (memory > 1.3 * compute)
    weight = train / train.sum() + 0.5 * stream / max(1, stream.sum())
    best_shape = BEST_SHAPE.get(precision, {}).get(device, 1.0)

    def predict(x, where=slice(None)):  # x = efficiency, bandwidth fraction, fill, bytes an element the cast moves
        return np.maximum(compute[where] / x[0] + x[2], memory[where] / x[1]) + launch + (cast[where] * x[3] if narrow else 0.0)

    starts = [(0.65, 0.7, 2e-6, 4.0), (0.65, 0.7, 2e-5, 7.0)]
    lower, upper = (0.05, 0.05, 1e-8, 3.0), (best_shape, 1.05, 1e-4, 12.0)  # a cast moves at least two bytes in and one out
    if not narrow:
        starts, lower, upper = [s[:3] for s in starts], lower[:3], upper[:3]

    def constants(subset):
        return fit(lambda x: predict(x, subset), starts, t[subset], weight[subset], lower, upper)

    best, used = constants(train | stream), train | stream
    error = held_out(n * 1e6 + k, train, lambda inside: predict(constants(used & inside)) / t)
    note = f"{why}; of {rate[peak] / 1e12:g} TFLOP/s dense and {rate['hbm'] / 1e12:g} TB/s; in-sample p90 {np.quantile(np.abs(predict(best) / t - 1)[train], 0.9):.1%}; {(~kept).sum()} of {len(t)} rows dropped at the roof"
    if best_shape < 1.0:
        note += f"; at most the best published sustained shape, {best_shape:g}"
    if narrow:
        note += f"; the rows' cast of the activation, fitted at {best[3]:.1f} bytes an element at {CAST_BANDWIDTH} of HBM, is not in it"
    difference, other = runtime_difference(
        table, device, precision, dict(zip(zip(m[train], n[train], k[train], strict=True), t[train], strict=True))
    )
    return dict(
        efficiency=best[0],
        bandwidth_fraction=best[1],
        fill=best[2],
        launch=launch,
        rows=int(train.sum()),
        held_out_error=error,
        runtime_difference=difference,
        note=note,
        runtime_difference_note=other,
        software=software,
    )


def runtime_difference(table, device: str, precision: str, seconds: dict) -> tuple[float, str]:
    """Median |ratio - 1| to the other runtime that measured most of the same training shapes, and its name."""
    software, kernel, _ = runtime(device, precision)
    mask = (table["device"] == device.replace("-", "_")) & (table["gemm_dtype"] == OPERANDS[precision][0])
    found = []
    for other in sorted(set(zip(table["software"][mask], table["kernel_source"][mask], strict=True)) - {(software, kernel)}):
        row = gemm_rows(table, device, OPERANDS[precision][0], *other).values()
        ratios = [seconds[m, n, k] / t for m, n, k, t in zip(*row, strict=True) if (m, n, k) in seconds]
        found.append((len(ratios), ratios, " ".join(other)))
    count, ratios, name = max(found)
    return float(np.median(np.abs(np.array(ratios) - 1.0))), f"median over {count} training shapes against {name}"


# --- attention --------------------------------------------------------------------------------------------------------


def fit_attention(table, device: str, launch: float) -> dict:
    """Constants of e s / (s + s0) R / (R + R0), FLOPs 2 b h s^2 d, R = b h s; the rest of the serving operator is subtracted."""
    software, kernel = FLASH[device]
    mask = (table["device"] == device.replace("-", "_")) & (table["software"] == software) & (table["kernel_source"] == kernel)
    mask &= (table["step"] == 0) & (table["kv_cache_dtype"] == "bfloat16") & (table["head_dim"] == 128)
    mask &= np.nan_to_num(table["window_size"].astype(float)) == 0
    b, h, kv, s, t = pick(table, mask, "batch_size", "num_heads", "num_key_value_heads", "isl", "seconds")
    rate = hardware(device)
    ideal = 2 * b * h * s**2 * 128 / rate["bf16"]
    floor = float(np.median(t[s <= 64]))
    cache = 2 * b * kv * s * 128 * 2 * 2 / (CAST_BANDWIDTH * rate["hbm"])  # keys and values read and written to the cache
    kept = t >= ideal
    used = kept & (s >= 512) & (b * h >= 16) & (ideal > 20e-6)  # work of the size a training step has
    few = kept & (s >= 2048) & (b * h < 16) & (ideal > 5e-6)  # never fitted

    def predict(x, where=slice(None)):
        return (ideal * (s + x[1]) / (s * x[0]) * (1.0 + x[2] / (b * h * s)) + floor + cache)[where]

    def constants(subset):
        starts = [(0.6, 1000.0, rows) for rows in (1e3, 3e4)]
        return fit(lambda x: predict(x, subset), starts, t[subset], np.ones(subset.sum()), (0.05, 1.0, 1.0), (1.0, 1e5, 1e6))

    best = constants(used)
    error = held_out(h * 1e3 + kv, used, lambda inside: predict(constants(used & inside)) / t)
    note = (
        f"{kernel}, head_dim 128, batch x heads >= 16, at least 20 us at peak; held out by (heads, kv heads); the serving operator's floor of "
        f"{floor * 1e6:.0f} us (metadata) and its cache write (keys and values read and written at {CAST_BANDWIDTH} of HBM) are not in it; "
        f"with 1 to 15 sequences x heads, never fitted, off by {np.median(np.abs(predict(best) / t - 1)[few]):.1%}; {(~kept).sum()} of {len(t)} rows dropped at the roof"
    )
    return dict(
        forward_efficiency=best[0],
        saturation_length=best[1],
        saturation_rows=best[2],
        launch=launch,
        rows=int(used.sum()),
        held_out_error=error,
        note=note,
        software=f"{software} {kernel}",
    )


LATENT_DIM = (192 + 128) / 2  # of DeepSeek's heads: queries and keys, values
LATENT_LIMIT = 0.10  # median error above which latent attention gets separate constants


def fit_latent(table, device: str, flash: dict) -> dict | None:
    """Add the error of the flash constants on latent attention to ``flash["note"]``; where it is too large, return separate constants."""
    mask = (table["device"] == device.replace("-", "_")) & (table["kv_cache_dtype"] == "bfloat16") & (table["step"] == 0)
    b, h, s, t = pick(table, mask, "batch_size", "num_heads", "isl", "seconds")
    rate, floor = hardware(device), float(np.median(t[s <= 64]))
    ideal = 2 * b * h * s**2 * LATENT_DIM / rate["bf16"]
    cache = b * s * (512 + 64) * 2 * 2 / (CAST_BANDWIDTH * rate["hbm"])  # the latent of a token, read and written
    used = (t >= ideal) & (s >= 1024) & (ideal > 20e-6)
    software = str(table["software"][mask][0])

    def predict(x, where=slice(None)):
        return (ideal * (s + x[1]) / (s * x[0]) * (1.0 + x[2] / (b * h * s)) + floor + cache)[where]

    def constants(subset):
        starts = [(0.6, 1000.0, rows) for rows in (1e3, 3e4)]
        return fit(lambda x: predict(x, subset), starts, t[subset], np.ones(subset.sum()), (0.05, 1.0, 1.0), (1.0, 1e5, 1e6))

    names = ("forward_efficiency", "saturation_length", "saturation_rows")
    off = (predict([flash[name] for name in names]) / t - 1)[used]
    flash["note"] += (
        f"; latent attention (192 and 128 wide, {software}, {used.sum()} rows from 1024 tokens, never fitted): off by {np.median(np.abs(off)):.1%}, {np.median(off):+.1%} in the median"
    )
    print(device, f"latent attention: flash constants off by {np.median(np.abs(off)):.1%}, {np.median(off):+.1%}", flush=True)
    if np.median(np.abs(off)) <= LATENT_LIMIT:
        return None
    best, error = constants(used), held_out(h, used, lambda inside: predict(constants(used & inside)) / t)
    note = (
        f"latent attention, queries and keys 192 wide, values 128; at least 1024 tokens and 20 us at peak; held out by heads, where the flash constants are off by "
        f"{np.median(np.abs(off)):.1%}; the operator's floor of {floor * 1e6:.0f} us and its cache write are not in it"
    )
    found = dict(zip(names, map(float, best), strict=True))
    return found | dict(launch=flash["launch"], rows=int(used.sum()), held_out_error=error, note=note, software=software)


# --- collectives ------------------------------------------------------------------------------------------------------


def collective_time(x, size, factor, line_rate):
    """latency + S f (1 + sqrt(half / S)) / (fraction line_rate), the law of CollectiveConstants; x = latency, fraction, half."""
    return x[0] + size * factor / (x[1] * line_rate) * (1.0 + np.sqrt(x[2] / size))


COLLECTIVE_STARTS = [(1e-5, fraction, half) for fraction in (0.15, 0.5, 0.9, 1.0) for half in (1e5, 5e6)]
COLLECTIVE_BOUNDS = (1e-6, 0.01, 1.0), (1e-3, 1.05, 1e9)  # latency, fraction, half size


def fit_collective(table, device: str, operation: str, groups=(2, 4, 8), line: float = 0.0, numbers: str = "half") -> dict:
    """Constants for each group size, those of the largest on top; messages of 64 MiB count twice, under 1 MiB a quarter."""
    mask = (table["device"] == device.replace("-", "_")) & (table["op_name"] == operation) & np.isin(table["num_gpus"], groups)
    mask &= table["nccl_dtype"] == numbers  # int8 is never reduced in the switch
    n, elements, t = pick(table, mask, "num_gpus", "message_size", "seconds")
    size, line = (
        elements * {"half": 2.0, "int8": 1.0}[numbers],
        line or hardware(device)["link"],
    )  # the whole tensor, as nccl-tests counts it
    factor = (n - 1) / n * (2 if operation == "all_reduce" else 1)
    used, large = size >= 65536, size >= MIB
    weight = np.select([size >= 64 * MIB, large], [2.0, 1.0], 0.25)

    def constants(subset):
        return fit(
            lambda x: collective_time(x, size[subset], factor[subset], line),
            COLLECTIVE_STARTS,
            t[subset],
            weight[subset],
            *COLLECTIVE_BOUNDS,
        )

    def predicted(inside):  # over measured, each group by its own constants
        ratios = np.ones(len(t))
        for g in np.unique(n):
            ratios[n == g] = collective_time(constants(used & inside & (n == g)), size[n == g], factor[n == g], line) / t[n == g]
        return ratios

    by_group = {int(g): constants(used & (n == g)) for g in np.unique(n)}
    error = held_out(np.round(np.log2(size)).astype(int) % 2, large, predicted)
    reached = ", ".join(f"{int(g)} GPUs {np.max((size * factor / t / line)[n == g]):.2f}" for g in np.unique(n))
    switch = (
        "; 8 GPUs reduce in the switch (NVLS), which the fraction includes"
        if operation == "all_reduce" and numbers == "half" and device in NVLS
        else ""
    )
    note = f"of {line / 1e9:g} GB/s one direction{switch}; best fraction measured: {reached}; {NUMBERS[numbers]} messages; held out: every second message size of every group, >= 1 MiB"
    named = {g: dict(zip(("latency", "bandwidth_fraction", "half_size"), x, strict=True)) for g, x in by_group.items()}
    largest = max(named)
    smaller = {"ranks": largest, "smaller": {g: named[g] for g in sorted(named) if g < largest}} if len(named) > 1 else {}
    return named[largest] | dict(rows=int(used.sum()), held_out_error=error, note=note) | smaller


NVLS_RANKS = 8  # the group in which NCCL was measured to reduce FP16 in the switch, on Hopper and Blackwell
CARRIED_NVLS = {"gb200": "b200-sxm", "gb300": "b300-sxm"}  # measured among at most four, where NCCL takes rings


def in_the_switch(constants: dict) -> dict:
    """Measured constants of an all-reduce in the switch, of the traffic it has there (1 + 1/n) instead of a ring's."""
    n = NVLS_RANKS
    fraction = constants["bandwidth_fraction"] * (1 + 1 / n) / (2 * (n - 1) / n)
    note = f"of 1 + 1/n, not of a ring's 2 (n - 1) / n: among {n} in the switches of another node of this generation; a prior, expect a wider band"
    return {name: constants[name] for name in ("latency", "half_size")} | dict(bandwidth_fraction=fraction, note=note)


def ring_all_reduce(table, device: str, usual: dict) -> dict:
    """An all-reduce without the switch: INT8 among 8, which NVLS does not reduce; smaller groups as with FP16, where NCCL takes rings."""
    ring = fit_collective(table, device, "all_reduce", numbers="int8")
    note = ring["note"] + "; rings, since the switch reduces no INT8; constants of smaller groups are those of all_reduce"
    return ring | dict(note=note, smaller=usual["smaller"])


def scaled(values: dict, **by: float) -> dict:
    """The constants of a collective, also of its smaller groups, with some multiplied by factors."""
    made = values | {name: values[name] * factor for name, factor in by.items()}
    if "smaller" in values:
        made["smaller"] = {g: scaled(c, **by) for g, c in values["smaller"].items()}
    return made


def fit_point_to_point(table, device: str, line: float = 0.0) -> dict:
    """Point to point, from NCCL's all-to-all between two GPUs: the message is half of its size."""
    two = fit_collective(table, device, "alltoall", groups=(2,), line=line)
    return two | dict(
        half_size=two["half_size"] / 2, note="NCCL send and receive, from the two-GPU all-to-all (message = half its size, factor 1)"
    )


PCIE_HOSTS = {"l40s": 32e9, "rtx_pro_6000_server": 64e9}  # line rate of x16, one direction


def middle(one: dict, other: dict) -> dict:
    """The geometric mean of two sets of constants."""
    made = {key: float(np.sqrt(one[key] * other[key])) for key in ("latency", "bandwidth_fraction", "half_size")}
    if "smaller" in one:
        made |= {"ranks": one["ranks"], "smaller": {g: middle(one["smaller"][g], other["smaller"][g]) for g in one["smaller"]}}
    return made


def write_pcie(out: Path, table, software: str) -> None:
    """Constants of a PCIe host without measurements: between hosts with slow and with fast links of their sockets."""
    blocks = []
    for name, op in (OPERATIONS | {"point_to_point": ""}).items():
        one, other = (
            fit_collective(table, host, op, line=line) if op else fit_point_to_point(table, host, line) for host, line in PCIE_HOSTS.items()
        )
        note = f"geometric mean of two hosts: {one['bandwidth_fraction']:.2g} of the line rate (8 x L40S) and {other['bandwidth_fraction']:.2g} (8 x RTX PRO 6000), among all ranks"
        if not op:
            note = "geometric mean of two hosts, L40S and RTX PRO 6000 (message = half a two-GPU all-to-all)"
        blocks.append(block(f"collective.{name}", middle(one, other) | dict(note=note), "pcie_hosts"))
    sources = {
        "pcie_hosts": (
            f"github ai-dynamo/aiconfigurator (Apache-2.0), nccl_perf, l40s ({software}) and rtx_pro_6000_server (nccl 2.29.2)",
            REPOSITORY,
            "measured",
        )
    }
    write(out, "pcie", "PCI Express host", "prior", software, blocks, sources)


# --- fabrics ----------------------------------------------------------------------------------------------------------

# all-reduce of S over 32 GPUs on 4 nodes: MiB -> bus bandwidth GB/s; one 50 GB/s NIC an accelerator
P6_B200 = {1: 5.4, 16: 64, 64: 157, 256: 229, 1024: 362, 4096: 377, 16384: 382}


def fit_inter_node() -> dict:
    """EFA constants; the whole time of the hierarchical all-reduce counts as its ring of 32 ranks with S/8 a rail."""
    total, bus = np.array(list(P6_B200)) * MIB, np.array(list(P6_B200.values())) * 1e9
    t, shard, factor = total * 2 * 31 / 32 / bus, total / 8, 2 * 31 / 32

    def constants(subset):
        return fit(
            lambda x: collective_time(x, shard[subset], factor, 50e9),
            [(3e-4, 0.8, 2e6)],
            t[subset],
            np.ones(subset.sum()),
            *COLLECTIVE_BOUNDS,
        )

    everything = np.ones(len(t), bool)
    best = constants(everything)
    error = held_out(np.arange(len(t)) % 2, everything, lambda inside: collective_time(constants(inside), shard, factor, 50e9) / t)
    return dict(latency=best[0], bandwidth_fraction=best[1], half_size=best[2], rows=len(t), held_out_error=error)


# --- writing ----------------------------------------------------------------------------------------------------------

UNITS = {"launch": (1e6, " us"), "latency": (1e6, " us"), "fill": (1e6, " us")}


def quantity(name: str, value: float, source: str, note: str = "") -> str:
    scale, unit = UNITS.get(name, (1.0, ""))
    if name == "half_size":
        scale, unit = (1e-6, " MB") if value >= 1e6 else (1e-3, " kB") if value >= 1e3 else (1.0, " B")
    text = f"{value}" if isinstance(value, int) else f"{float(f'{value * scale:.3g}'):g}"
    return f'{name} = {{ value = "{text}{unit}", source = "{source}"' + (f', note = "{note}"' if note else "") + " }"


def block(title: str, values: dict, source: str, **sources: str) -> str:
    """A TOML table of sourced numbers; ``note`` is the note of the first number, ``NAME_note`` that of NAME.

    ``sources`` names other sources by field; ``smaller`` becomes tables of their own.
    """
    values, lines = dict(values), [f"[{title}]"]
    smaller, note = values.pop("smaller", {}), values.pop("note", "")
    values.pop("software", None)
    notes = {name: values.pop(f"{name}_note") for name in list(values) if f"{name}_note" in values}
    for name, value in values.items():
        lines.append(quantity(name, value, sources.get(name, source), note or notes.get(name, "")))
        note = ""
    return "\n\n".join(["\n".join(lines), *(block(f"{title}.smaller.{g}", c, source, **sources) for g, c in smaller.items())])


def write(
    out: Path, name: str, title: str, grade: str, software: str, blocks: list[str], sources: dict[str, tuple], device: str = ""
) -> None:
    text = "\n\n".join(blocks)
    head = f'name = "{name}"\ntitle = "{title}"\nversion = "{VERSION}"\ngrade = "{grade}"\nsoftware = "{software}"\n'
    head += f'device = "{accelerator(device)}"\n' if device else ""
    for key, (what, url, kind) in sources.items():
        if f'source = "{key}"' in text:
            head += f'\n[sources.{key}]\ntitle = "{what}"\nurl = "{url}"\nread = {READ}\ngrade = "{kind}"\n'
    (out / f"{name}.toml").write_text(head + "\n" + text + "\n")


# backward over forward time: 2.5 times the FLOPs at the papers' rates; no public table measures it
BACKWARD = {
    "flash-2": (2.9, "fa2", "2.5 x the FLOPs, forward up to 73 % and backward up to 63 % of the A100 peak: 2.5 x 0.73/0.63"),
    "flash-3": (
        3.1,
        "fa3",
        "FlashAttention-2's 2.9 times its forward speed-up (1.5 to 2.0) over its backward speed-up (1.5 to 1.75), middles",
    ),
}
FLASH_3_SPEEDUP = 1.75  # forward, over FlashAttention-2 on the same device: middle of 1.5 to 2.0 (arXiv 2407.08608)
AMPERE_LIKE = ("a100-sxm", "l40s", "v100-sxm", "l4", "rtx-4090")  # the rest run a generation of their own, called flash-3


def attention_blocks(device: str, values: dict, source: str) -> list[str]:
    """The measured kernel generation first, then FlashAttention-2 if it is older."""
    generation = "flash-2" if device in AMPERE_LIKE else "flash-3"
    ratio, cited, why = BACKWARD[generation]
    why += "; carried from Hopper" if device.startswith(("b", "gb")) else ""
    blocks = [block(f"attention.{generation}", values, source) + "\n" + quantity("backward_time_ratio", ratio, cited, why)]
    if generation == "flash-3":
        older = bare(values) | dict(forward_efficiency=values["forward_efficiency"] / FLASH_3_SPEEDUP)
        older["note"] = (
            f"the measured kernel's over {FLASH_3_SPEEDUP}, the middle of FlashAttention-3's forward speed-up of 1.5 to 2.0 on H100; not measured here"
        )
        ratio, cited, why = BACKWARD["flash-2"]
        older_source = "fa3" if device.startswith("h") else "prior"
        blocks.append(block("attention.flash-2", older, older_source) + "\n" + quantity("backward_time_ratio", ratio, cited, why))
    return blocks


def bare(values: dict) -> dict:
    """The constants without the statistics of the fit."""
    fitted = (
        "rows",
        "held_out_error",
        "dense_error",
        "fill_note",
        "launch_note",
        "runtime_difference",
        "runtime_difference_note",
        "note",
        "software",
    )
    return {k: v for k, v in values.items() if k not in fitted}


def elementwise_block() -> str:
    note = "rule for element-wise kernels; weight streaming measured in the same tables reaches 0.76 (A100), 0.88 (H100), 0.83 (H200), 0.79 (B200) at the median"
    return block("elementwise", dict(bandwidth_fraction=0.8, launch=3e-6, note=note), "elementwise_rule")


def derived_gemms(gemm: dict, source: str, precisions: tuple[str, ...]) -> list[str]:
    """Constants of precisions without measurements: FP16 runs the BF16 kernels; for the others the BF16 fractions are a prior."""
    plain = bare(gemm)
    notes = {"fp16": (source, "the constants of bf16: same kernels, same peak")}
    made = []
    for precision in precisions:
        cited, note = notes.get(precision, ("prior", "the fractions of bf16, not measured"))
        made.append(block(f"gemm.{precision}", plain | dict(note=note), cited))
    return made


def expert_blocks(experts: dict[str, dict]) -> list[str]:
    """The measured grouped products, and those of FP16, which runs the kernels of BF16."""
    made = [block(f"experts.{p}", e, f"aic_moe_{p}", fill=f"aic_gemm_{p}", launch="aic_gemm_bf16") for p, e in experts.items()]
    if "bf16" in experts:
        made.append(
            block("experts.fp16", bare(experts["bf16"]) | dict(note="the constants of bf16: same kernels, same peak"), "aic_moe_bf16")
        )
    return made


def carried_experts(precision: str, gemm: dict, origin: dict) -> list[str]:
    """A prior for the grouped product of a device: its dense efficiency times the ratio measured on a related device."""
    measured = "bf16" if precision == "fp16" else precision
    if measured not in origin["experts"]:
        return []
    experts, ratio = origin["experts"][measured], origin["experts"][measured]["efficiency"] / origin["gemm"][measured]["efficiency"]
    values = scaled(gemm, efficiency=ratio) | {
        k: experts[k] for k in ("bandwidth_fraction", "fill", "rows_bandwidth_fraction") if k in experts
    }
    note = f"{ratio:.3f} of the dense efficiency, as on the relative; bandwidth and fill are the relative's: a wider band applies"
    return [block(f"experts.{precision}", values | dict(note=note), "prior")]


# devices without a table: name -> (title, record carried from, GEMM precisions, note)
PRIORS = {
    "v100-sxm": (
        "NVIDIA V100 SXM2",
        "a100-sxm",
        ("fp16", "fp32"),
        "check: cuBLAS 8192^3 at 101 of 112 TFLOP/s on a V100 PCIe, forums.developer.nvidia.com/t/79781; no flash attention was published for this device",
    ),
    "l4": ("NVIDIA L4", "l40s", ("bf16", "fp16", "fp8", "tf32", "fp32"), "same chip family; the 72 W limit may lower it further"),
    "rtx-4090": ("NVIDIA GeForce RTX 4090", "l40s", ("bf16", "fp16", "fp8", "tf32", "fp32"), "same chip family"),
}
MATMUL_4090 = 0.93 * 158.5 / 165.2  # measured at 10240 of the dense FP32-accumulate peak, times the middle of fitted over best shape


def write_prior(out: Path, name: str, records: dict[str, dict]) -> None:
    title, origin, precisions, remark = PRIORS[name]
    gemm, attention, collective, p2p = (records[origin][part] for part in ("gemm", "attention", "collective", "point_to_point"))
    note = f"carried from the measured constants of {origin}: a wider band applies; {remark}"
    blocks, grouped = [], []
    for precision in precisions:
        values = bare(gemm["fp8" if precision == "fp8" else "bf16"]) | dict(note=note)
        other = {}
        if name == "rtx-4090" and precision != "fp8":
            values |= dict(
                efficiency=MATMUL_4090,
                note="158.5 of 165.2 TFLOP/s dense (FP32 accumulate) at 10240^3, times 0.93 for training shapes (the middle of fitted over best shape, 0.87 to 0.97); the rest is carried from l40s",
            )
            other = {"efficiency": "matmul_4090"}
        blocks.append(block(f"gemm.{precision}", values, "prior", **other))
        grouped += carried_experts(precision, bare(values), records[origin])
    blocks += grouped
    blocks += [*attention_blocks(name, bare(attention) | dict(note=note), "prior"), elementwise_block()]
    for operation, values in collective.items():
        values, other = bare(values) | dict(note=note), {}
        if name == "v100-sxm" and operation == "all_reduce":
            four = values["smaller"][4]
            fraction = 999e9 / 8 / 150e9 * (1 + np.sqrt(four["half_size"] / 4e9))
            values = scaled(values, bandwidth_fraction=fraction / four["bandwidth_fraction"])
            values["note"] = "999 Gbit/s bus bandwidth for 4 GB over 4 GPUs, of 150 GB/s, scales a100-sxm's; the rest is carried from it"
            other = {"bandwidth_fraction": "jean_zay"}
        blocks.append(block(f"collective.{operation}", values, "prior", **other))
    blocks.append(block("collective.point_to_point", bare(p2p) | dict(note=note), "prior"))
    write(out, name, title, "prior", f"carried from {origin}: {records[origin]['software']}", blocks, CITED, origin)


# fabrics: name -> (title, grade, source, latency, its source, remark); None keeps the EFA value
FABRICS = {
    "efa": (
        "AWS Elastic Fabric Adapter",
        "measured",
        "p6_b200",
        None,
        "p6_b200",
        "check: 4 GiB over 4 x P5en (H200) is 5 % slower than this; half the points held out",
    ),
    "omni-path": (
        "Omni-Path 100 without GPUDirect",
        "prior",
        "omni_path",
        500e-6,
        "prior",
        "median of 0.169 and 0.131 (4 and 16 nodes of 4 x V100, one NIC a GPU) and 0.078 (4 nodes of 8 x A100, half a NIC a GPU), 4 GB, NCCL 2.7 and 2.10",
    ),
    "infiniband": (
        "InfiniBand with GPUDirect",
        "prior",
        "prior",
        47e-6,
        "nccl_1244",
        "fraction and half size carried from efa: a wider band applies",
    ),
    "roce": (
        "RoCE v2 with GPUDirect",
        "prior",
        "prior",
        47e-6,
        "nccl_1244",
        "fraction and half size carried from efa: a wider band applies",
    ),
    "ethernet": (
        "Ethernet, TCP sockets",
        "prior",
        "prior",
        500e-6,
        "prior",
        "a guess: between efa and omni-path, which is measured without GPUDirect",
    ),
}
SLOW_FABRICS = {"ethernet": dict(bandwidth_fraction=0.5, half_size=8e6), "omni-path": dict(bandwidth_fraction=0.131)}
INTER_NODE = (
    "S and half_size are the total size of the inter-node collective of one rail (whole buffer / accelerators per node when hierarchical), the factor that of all ranks, the line rate that of the NIC of one accelerator; "
    "the whole time of a 32-GPU all-reduce is charged here, so combine with the scale-up stages by max, not by sum"
)


def write_fabrics(out: Path) -> None:
    efa = fit_inter_node()
    for name, (title, grade, source, latency, latency_source, remark) in FABRICS.items():
        values = {key: efa[key] for key in ("bandwidth_fraction", "half_size", "latency")}
        values |= SLOW_FABRICS.get(name, {})
        values["latency"], blocks = latency or values["latency"], []
        for operation in OPERATIONS:
            halved = operation in ("all_gather", "reduce_scatter")
            row = (
                values | dict(note="; ".join(filter(None, [remark, INTER_NODE])))
                if operation == "all_reduce"
                else values | dict(note="as all_reduce" + (", half its steps and latency" if halved else ""))
            )
            row["latency"] = values["latency"] / (2 if halved else 1)
            main = source if operation == "all_reduce" else "prior"
            if operation == "all_reduce" and name == "efa":
                row |= dict(rows=efa["rows"], held_out_error=efa["held_out_error"])
            blocks.append(block(f"collective.{operation}", row, main, **({"latency": latency_source} if operation == "all_reduce" else {})))
        fraction, note = (
            (values["bandwidth_fraction"], "as all_reduce")
            if name in SLOW_FABRICS
            else (0.85, "middle of 0.73 (inside a collective, P6-B200) and 0.97 (48.5 of 50 GB/s); 10 us as aiconfigurator's p2p_latency")
        )
        blocks.append(
            block(
                "collective.point_to_point",
                dict(bandwidth_fraction=fraction, half_size=1.0, latency=1e-5, note=note),
                "prior" if name in SLOW_FABRICS else "simai",
            )
        )
        write(out, name, title, grade, "NCCL, as measured on 4 x P6-B200" if name == "efa" else "NCCL, carried from efa", blocks, CITED)


def own_launch(gemm: dict[str, dict]) -> dict[str, dict]:
    """Products of narrow precisions with the launch time of the 16-bit product: their measured fixed time contains a cast."""
    made = {}
    for precision, found in gemm.items():
        note = f"the 16-bit product's; the {found['launch'] * 1e6:.3g} us of the operator measured are those of its cast as well, which a step counts with its casts"
        made[precision] = found if precision == "bf16" else found | dict(launch=gemm["bf16"]["launch"], launch_note=note)
    return made


def fit_device(out: Path, device: str, tables: dict) -> dict:
    """Fit and write one measured device; return its constants for the priors."""
    gemm = own_launch({p: g for p in OPERANDS if (g := fit_gemm(tables["gemm"], device, p))})
    experts = {p: e for p, g in gemm.items() if (e := fit_experts(tables["moe"], device, p, g))}
    attention = fit_attention(tables["attention_forward"], device, gemm["bf16"]["launch"])
    latent = fit_latent(tables["mla_forward"], device, attention)
    collective = {name: fit_collective(tables["nccl"], device, op) for name, op in OPERATIONS.items()}
    nccl = str(tables["nccl"]["software"][tables["nccl"]["device"] == device.replace("-", "_")][0])
    p2p = fit_point_to_point(tables["nccl"], device)
    rings = {"all_reduce_ring": ring_all_reduce(tables["nccl"], device, collective["all_reduce"])} if device in NVLS else {}

    def aic(what, software):
        return f"github ai-dynamo/aiconfigurator (Apache-2.0), {what}, {device.replace('-', '_')}, {software}", REPOSITORY, "measured"

    sources = {f"aic_gemm_{p}": aic("gemm_perf", f"{g['software']}, {p}") for p, g in gemm.items()}
    sources |= {f"aic_moe_{p}": aic("moe_perf", f"{e['software']}, {p}") for p, e in experts.items()}
    sources |= {"aic_mla": aic("context_mla_perf", latent["software"])} if latent else {}
    sources |= {"aic_attention": aic("context_attention_perf", attention["software"]), "aic_nccl": aic("nccl_perf", nccl)}
    blocks = [block(f"gemm.{p}", g, f"aic_gemm_{p}", launch="aic_gemm_bf16") for p, g in gemm.items()]
    blocks += derived_gemms(gemm["bf16"], "aic_gemm_bf16", ("fp16", "tf32", "fp32"))
    if device in BLACKWELL:
        blocks.append(
            block(
                "gemm.mxfp8",
                bare(gemm["fp8"]) | dict(note="the fractions of per-tensor fp8: same matrix rate, a scale per 32 elements"),
                "prior",
            )
        )
    blocks += expert_blocks(experts)
    blocks += attention_blocks(device, attention, "aic_attention")
    if latent:
        ratio, cited, why = BACKWARD["flash-2" if device in AMPERE_LIKE else "flash-3"]
        blocks.append(block("attention.mla", latent, "aic_mla") + "\n" + quantity("backward_time_ratio", ratio, cited, why))
    blocks.append(elementwise_block())
    collective_blocks = [
        block(f"collective.{name}", values, "aic_nccl") for name, values in (collective | {"point_to_point": p2p} | rings).items()
    ]
    if device in CARRIED_NVLS:
        measured = fit_collective(tables["nccl"], CARRIED_NVLS[device], "all_reduce")
        collective_blocks.append(block("collective.all_reduce_nvls", in_the_switch(measured), "prior"))
    software = f"GEMM {gemm['bf16']['software']} (cuBLAS); attention {attention['software']}; {nccl}"
    write(out, device, TITLES[device], "measured", software, blocks + collective_blocks, sources | CITED, device)
    for name, values in (
        [(f"gemm.{p}", g) for p, g in gemm.items()]
        + [(f"experts.{p}", e) for p, e in experts.items()]
        + [("attention", attention), *collective.items(), ("p2p", p2p)]
    ):
        print(device, name, {k: float(f"{v:.3g}") for k, v in values.items() if not isinstance(v, (str, dict))}, flush=True)
    return dict(gemm=gemm, experts=experts, attention=attention, collective=collective, point_to_point=p2p, software=software)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with gemm, attention_forward, mla_forward, moe and nccl parquet files"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder the TOML records are written to")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    tables = {name: read_table(arguments.data / f"{name}.parquet") for name in ("gemm", "attention_forward", "mla_forward", "moe", "nccl")}
    records = {device: fit_device(arguments.out, device, tables) for device in DEVICES}
    for name in PRIORS:
        write_prior(arguments.out, name, records)
    write_fabrics(arguments.out)
    write_pcie(arguments.out, tables["nccl"], "nccl 2.27.3")


if __name__ == "__main__":
    main()
