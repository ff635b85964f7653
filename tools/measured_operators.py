"""Shared by the fits of measured operators: devices, columns of the tables, the fit, the held-out error."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy.optimize import minimize

from ironlaw.units import parse

SEED, FOLDS = 20261120, 5
ACCELERATORS = Path(__file__).parent.parent / "src/ironlaw/catalog/data/accelerators"
CACHE_BYTES, CACHE_SPEEDUP = 256e6, 1.43  # a product that fits in L2 may exceed HBM bandwidth by this much
CAST_BANDWIDTH = 0.8  # HBM fraction of a cast

# dense peaks [FLOP/s], HBM and scale-up line rate [B/s], used where the accelerator has no TOML file
DEVICES = {
    "a100-sxm": dict(bf16=312e12, hbm=2.039e12, link=300e9),
    "h100-sxm": dict(bf16=989.4e12, fp8=1978.9e12, hbm=3.35e12, link=450e9),
    "h200-sxm": dict(bf16=989.4e12, fp8=1978.9e12, hbm=4.8e12, link=450e9),
    "b200-sxm": dict(bf16=2250e12, fp8=4500e12, hbm=8e12, link=900e9),
    "b300-sxm": dict(bf16=2250e12, fp8=4500e12, hbm=7.75e12, link=900e9),
    "gb200": dict(bf16=2500e12, fp8=5000e12, hbm=8e12, link=900e9),
    "gb300": dict(bf16=2500e12, fp8=5000e12, hbm=8e12, link=900e9),
    "l40s": dict(bf16=362.05e12, fp8=733e12, hbm=864e9, link=32e9),
}
# the name of a precision in the tables, and the bytes of an operand element with its scales
OPERANDS = {"bf16": ("bfloat16", 2), "fp8": ("fp8", 1), "fp8-block": ("fp8_block", 1 + 4 / 128), "nvfp4": ("nvfp4", 0.5 + 1 / 16)}

# the best shape of a long sustained search over the dense peak (MAMF): an efficiency above it is a short, cool measurement
BEST_SHAPE = {
    "bf16": {"a100-sxm": 0.869, "h100-sxm": 0.803, "h200-sxm": 0.803, "b200-sxm": 0.776, "b300-sxm": 0.786, "gb200": 0.729},
    "fp8": {"h100-sxm": 0.709, "h200-sxm": 0.734, "b200-sxm": 0.763, "b300-sxm": 0.745, "gb200": 0.723},
}


def read_table(path: Path) -> dict[str, np.ndarray]:
    """The columns of a parquet file as arrays, with a ``seconds`` column."""
    table = pq.read_table(path)
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    return columns | {"seconds": columns["latency"] * 1e-3}


def pick(columns: dict[str, np.ndarray], mask: np.ndarray, *names: str) -> list[np.ndarray]:
    return [columns[name][mask].astype(float) for name in names]


def accelerator(device: str) -> str:
    """The catalogue's name of a measured accelerator."""
    return "a100-sxm-80gb" if device == "a100-sxm" else device


def hardware(device: str) -> dict[str, float]:
    """Peaks and bandwidths from the accelerator's TOML file, or from DEVICES without one."""
    path = ACCELERATORS / f"{accelerator(device)}.toml"
    if not path.exists():
        return DEVICES[device]
    record, known = tomllib.loads(path.read_text()), dict(DEVICES[device])
    known |= {p: parse(record["peak"][p]["value"], "FLOP/s") for p in ("bf16", "fp8", "nvfp4") if p in record["peak"]}
    known["hbm"] = parse(record["hbm_bandwidth"]["value"], "B/s")
    if "scale_up_bandwidth" in record:
        known["link"] = parse(record["scale_up_bandwidth"]["value"], "B/s")
    return known


def fit(predict, starts, seconds: np.ndarray, weight: np.ndarray, lower, upper) -> np.ndarray:
    """The constants within bounds that minimise the weighted mean |log error|, from the best of several starts."""
    low, high = np.log(lower), np.log(upper)

    def loss(x):
        return np.average(np.abs(np.log(predict(np.exp(np.clip(x, low, high))) / seconds)), weights=weight)

    runs = [minimize(loss, np.log(s), method="Nelder-Mead", options=dict(maxiter=3000, xatol=1e-4, fatol=1e-6)) for s in starts]
    return np.exp(np.clip(min(runs, key=lambda run: run.fun).x, low, high))


def held_out(group: np.ndarray, score: np.ndarray, fit_predict) -> float:
    """Median |error| on rows of ``score`` when whole groups are left out; ``fit_predict(train)`` returns predicted / measured."""
    names = np.random.default_rng(SEED).permutation(np.unique(group))
    errors = []
    for part in np.array_split(names, min(FOLDS, len(names))):
        test = np.isin(group, part)
        errors.append(np.abs(fit_predict(~test) - 1.0)[test & score])
    return float(np.median(np.concatenate(errors)))
