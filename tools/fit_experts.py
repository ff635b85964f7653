"""Fit the grouped products of a rank's experts to measured forward passes of whole expert layers.

A row is the operator of one rank: permutation, grouped product in (gate and up), activation, grouped product out, and the
sum of a token's experts. ``num_tokens`` counts the tokens of all expert-parallel ranks, of which balanced routing sends
``topk / ep`` rows to the experts of this one: latency falls as 1 / ep, and any other reading exceeds the roof several times over.
"""

from __future__ import annotations

import numpy as np

from measured_operators import BEST_SHAPE, CACHE_SPEEDUP, OPERANDS, fit, hardware, held_out, pick

KERNEL = "moe_torch_flow_cutlass"  # gated experts; rows without a gate are few
TILE = 128.0  # estimate.experts.TILE: rows an expert is filled up to
LEAST_ROWS, LEAST_FLOP = 64.0, 1e11  # an expert's rows and a rank's work in training
STREAMED = 0.9  # of HBM bandwidth: no kernel of these tables streams weights faster in the median


def expert_rows(table, device: str, precision: str) -> dict[str, np.ndarray]:
    """Columns of the measured rows: seconds of the two products at their roofs, seconds of the rest at HBM bandwidth, latency, group."""
    mask = (table["device"] == device.replace("-", "_")) & (table["distribution"] == "balanced") & (table["kernel_source"] == KERNEL)
    mask &= table["moe_dtype"] == OPERANDS[precision][0]
    names = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "seconds")
    tokens, hidden, inter, topk, experts, tp, ep, t = pick(table, mask, *names)
    rate, size = hardware(device), OPERANDS[precision][1]
    peak = rate["fp8" if precision == "fp8-block" else precision]
    rows, local, width = tokens * topk / ep, experts / ep, inter / tp
    filled = np.ceil(rows / local / TILE) * TILE * local
    ideal, weights = 6 * rows * hidden * width / peak, local * hidden * width * size
    bytes_in = 2 * weights + rows * hidden * size + rows * 2 * width * 2
    bytes_out = weights + rows * width * size + rows * hidden * 2
    permuted, activated, summed = rows * hidden * (2 + size), rows * width * (4 + size), (rows + tokens) * hidden * 2
    kept = t >= np.maximum(ideal, (bytes_in + bytes_out) / (CACHE_SPEEDUP * rate["hbm"]))
    return dict(
        t=t,
        kept=kept,
        used=kept & (rows / local >= LEAST_ROWS) & (ideal * peak >= LEAST_FLOP),
        compute_in=4 * filled * hidden * width / peak,
        compute_out=2 * filled * hidden * width / peak,
        memory_in=bytes_in / rate["hbm"],
        memory_out=bytes_out / rate["hbm"],
        rest=(permuted + activated + summed) / rate["hbm"],
        site=hidden * 1e8 + inter * 1e4 + experts,
    )


def operator_time(row: dict, x, fill: float, launch: float, where=slice(None)):
    """The operator's time; x = efficiency and bandwidth fraction of its products, bandwidth fraction and fixed time of the rest."""
    products = sum(np.maximum(row[f"compute_{p}"][where] / x[0] + fill, row[f"memory_{p}"][where] / x[1]) for p in ("in", "out"))
    return products + 2 * launch + row["rest"][where] / x[2] + x[3]


def fit_experts(table, device: str, precision: str, dense: dict) -> dict | None:
    """Constants of a grouped product, held out by (hidden, inter, experts); None where the constants of a dense product predict as well.

    The rest of the serving operator is fitted in both cases and then left out. A grouped product is at most as fast as one dense product
    with the same FLOPs: faster rows were measured on uninitialised weights, and constant operands draw less power.
    """
    row, fixed = expert_rows(table, device, precision), (dense["fill"], dense["launch"])
    if not row["used"].any():
        return None
    t, used = row["t"], row["used"]
    single = [dense["efficiency"], dense["bandwidth_fraction"]]
    rest, low, high = [(0.6, 2e-5), (0.2, 2e-5)], (0.05, 1e-6), (1.05, 5e-4)
    cap = min(dense["efficiency"], BEST_SHAPE.get(precision, {}).get(device, 1.0))

    def grouped(subset):
        starts = [(0.8 * cap, 0.7, *r) for r in rest]
        bounds = (0.05, 0.05, *low), (cap, STREAMED, *high)
        return fit(lambda x: operator_time(row, x, *fixed, subset), starts, t[subset], np.ones(subset.sum()), *bounds)

    def as_dense(subset):
        found = fit(lambda x: operator_time(row, [*single, *x], *fixed, subset), rest, t[subset], np.ones(subset.sum()), low, high)
        return [*single, *found]

    def error(constants):
        return held_out(row["site"], used, lambda inside: operator_time(row, constants(used & inside), *fixed) / t)

    best, one, many = grouped(used), error(as_dense), error(grouped)
    plain = operator_time(row, [*single, 0.8, 15e-6], *fixed) / t - 1
    print(
        f"{device} experts {precision}: held out {many:.1%}, dense constants {one:.1%}, and by the elementwise rule {np.median(abs(plain)[used]):.1%}"
    )
    if many >= one:
        return None
    sites = len(np.unique(row["site"][used]))
    note = (
        f"{KERNEL}, balanced routing; at least {LEAST_ROWS:g} rows an expert and {LEAST_FLOP:g} FLOP, {sites} models; held out by (hidden, inter, experts), where "
        f"the dense constants are off by {one:.1%}, in-sample p90 {np.quantile(np.abs(operator_time(row, best, *fixed) / t - 1)[used], 0.9):.1%}; permutation, activation with casts and sum, fitted at "
        f"{best[2]:.2f} of HBM and {best[3] * 1e6:.0f} us, are not in it; at most the dense efficiency; {(~row['kept']).sum()} of {len(t)} rows dropped at the roof"
    )
    return dict(
        efficiency=best[0],
        bandwidth_fraction=best[1],
        fill=dense["fill"],
        launch=dense["launch"],
        **({"rows_bandwidth_fraction": best[2]} if precision == "bf16" else {}),  # elsewhere the rest casts too
        rows=int(used.sum()),
        held_out_error=many,
        dense_error=one,
        note=note,
        fill_note="fill and launch are the dense product's: they do not tell themselves from the operator's fixed time",
        software=str(table["software"][(table["device"] == device.replace("-", "_")) & (table["kernel_source"] == KERNEL)][0]),
    )
