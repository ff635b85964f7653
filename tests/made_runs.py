"""Rows of run tables and prepared runs, made for tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ironlaw.validate.predict import Prepared, prepare
from ironlaw.validate.runs import Measured, Run, map_row

GPT = {
    "id": "a", "family": "ours", "model_name": "GPT", "layers": "24", "hidden": "2048", "heads": "16", "vocab": "50304",
    "gpu_type": "A100", "gpu_mem_gb": "80", "gpus": "8", "tp": "1", "pp": "1", "micro_batch": "4", "global_batch_seqs": "256",
    "seq_len": "2048", "precision": "bf16", "recompute": "none", "framework": "megatron", "step_time_s": "4.0",
}  # fmt: skip


def mapped(**change):
    return map_row("a", 2, "ours", {k: v for k, v in {**GPT, **change}.items() if v is not None})


def ready(*changes):
    """Prepared runs of the GPT above, one for each change."""
    runs = [replace(mapped(**c), id=str(i), family=c.get("family", "ours")) for i, c in enumerate(changes)]
    prepared, skipped = prepare(runs)
    assert not skipped
    return prepared


def synthetic(measured, ideal, families, hardware=None, apart=None):
    n = len(measured)
    runs = tuple(Run(str(i), i, families[i], {}, (), Measured(measured[i]), (), tuple((apart or [()] * n)[i])) for i in range(n))
    return Prepared(
        runs, (), np.array(measured), np.array(ideal), tuple(hardware or ["x bf16"] * n), ("dense",) * n, np.ones(n, dtype=bool), ()
    )
