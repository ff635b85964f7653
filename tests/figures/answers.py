"""Answers that figures draw, each asked once: small questions with plans that are given."""

from __future__ import annotations

import json
from functools import cache

from click.testing import CliRunner

import ironlaw
import paths
from ironlaw.cli.main import command_of
from ironlaw.validate.shipped import read_shipped

HELD = {"tp": 2, "pp": 2, "vpp": 1, "zero": 1, "micro_batch_size": 1, "recompute": "none", "global_batch_size": 64}
RUN = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 16, "tokens": "1T"}
SITES = {
    "model": "llama-3-70b", "sites": "lulea,dublin,ashburn", "on": "h100-sxm", "gpus": "2048,1024,2048", "wan_bandwidth": "400Gb/s",
    "inner_steps": 100, "tokens": "15T", "global_batch_size": 1280,
}  # fmt: skip
TRACE = paths.ROOT / "tests" / "data" / "measured" / "v100_resnet50_nw0.json.gz"
RANKS = paths.ROOT / "tests" / "data" / "measured" / "v100x8_dlrm"


def _rows(estimate):
    return [estimate[at].to_dict() for at in range(estimate.rows)]


def _compared():
    rows = [
        {"term": "compute", "measured_seconds": 1.2, "predicted_seconds": 1.0, "difference_seconds": 0.2, "share": 0.1},
        {"term": "all-gather", "measured_seconds": 0.8, "predicted_seconds": 1.0, "difference_seconds": -0.2, "share": -0.1},
    ]  # fmt: skip
    comparison = {"sentence": "as fast as predicted", "model": "llama-3-8b", "accelerator": "h100-sxm"}
    return {**asked("diagnose"), "compare": rows, "comparison": comparison}


def _timed():
    estimate = ironlaw.estimate(**RUN, **HELD)
    return {**estimate.to_dict(), "timeline": estimate.timeline()}


MADE = {
    "estimate": lambda: ironlaw.estimate(**RUN, **HELD).to_dict(),
    "pipeline": _timed,
    "batch-curve": lambda: _rows(ironlaw.estimate(**RUN, **{**HELD, "global_batch_size": [64, 128, 256]})),
    "memory-batch": lambda: _rows(ironlaw.estimate(**RUN, **{**HELD, "micro_batch_size": [1, 2, 4]})),
    "flop-token": lambda: _rows(ironlaw.estimate(**RUN, **HELD, seq_len=[2048, 8192, 32768])),
    "scaling": lambda: _rows(ironlaw.estimate(**{**RUN, "gpus": [16, 32, 64]}, **HELD)),
    "plan": lambda: ironlaw.plan("llama-3-8b", on="h100-sxm", gpus="8,16", global_batch_size=64, tokens="1T").to_dict(),
    "diagnose": lambda: ironlaw.diagnose(TRACE).to_dict(),
    "measured-predicted": _compared,
    "ranks": lambda: ironlaw.diagnose(RANKS).to_dict(),
    "roofline": lambda: ironlaw.roofline(gemm="64,8192,57344", batch="1,4,16", on="h100-sxm").to_dict(),
    "overlap": lambda: ironlaw.roofline(**{**RUN, "tokens": None}, **HELD).to_dict(),
    "validate": read_shipped,
    "compare": lambda: ironlaw.compare("llama-3-8b", on="h100-sxm,a100-sxm-80gb", gpus=16, tokens="1T", **HELD).to_dict(),
    "sites": lambda: ironlaw.sites(**SITES).to_dict(),
    "price-history": lambda: json.loads(CliRunner().invoke(command_of("catalog"), ["show", "h100-sxm", "--json"]).stdout),
    "checkpointing": lambda: ironlaw.textbook(**{**RUN, "tokens": None}, **{**HELD, "recompute": None}, chapter="checkpoints").to_dict(),
    "energy-precision": lambda: ironlaw.optimize(**{**RUN, "tokens": None}, **HELD, most=1).to_dict(),
}  # fmt: skip


@cache
def asked(name):
    """The answer of a name of MADE."""
    return MADE[name]()


def answer_of(figure, verb):
    """The answer that a figure draws: its own, or its verb's."""
    return asked(figure if figure in MADE else verb)
