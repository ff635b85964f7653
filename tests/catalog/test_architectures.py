"""What a device can do is a field of its record, so that a new architecture needs no change of code."""

from __future__ import annotations

import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.errors import UnsupportedError

PLAN = {"gpus": 64, "tp": 8, "pp": 1, "zero": 1, "micro_batch_size": 1, "recompute": "none"}
ON_RUBIN = {"model": "deepseek-v3", "on": "rubin"}


def test_the_switches_of_rubin_add():
    """NVLink 6 switches all-reduce: IEEE Spectrum, 10 January 2026."""
    answer = ironlaw.estimate(**ON_RUBIN, **{**PLAN, "gpus": 256, "ep": 8}, in_network_reduction="nvls")
    assert answer.groups[0].cluster.in_network_reduction == "nvls"


def test_the_search_tries_deepep_on_rubin():
    best, deepep = (ironlaw.estimate(**ON_RUBIN, gpus=256, **more).row()["step"]["seconds"] for more in ({}, {"moe_dispatcher": "deepep"}))
    assert best <= deepep * (1.0 + 1e-9)


def test_switches_of_the_a100_do_not_add_and_its_search_has_no_deepep():
    with pytest.raises(UnsupportedError, match="no NVSwitch that adds"):
        ironlaw.estimate("llama-3-8b", on="a100-sxm-80gb", **PLAN, in_network_reduction="nvls")
    device = load.record("accelerators", "a100-sxm-80gb")
    assert not (device.dispatchers or device.flash_3 or device.fp8_one_layout)


def test_products_of_consumer_blackwell_and_of_cdna_read_fp8_along_the_sum():
    """Transformer Engine, pytorch/utils.py, is_non_tn_fp8_gemm_supported: compute capability 10 and 11, and no device of ROCm."""
    either = {name for name in load.names("accelerators") if load.record("accelerators", name).fp8_one_layout}
    assert {"b200-sxm", "gb300", "rubin"} <= either
    assert not either & {"rtx-5090", "rtx-pro-6000", "mi300x", "mi355x", "h100-sxm", "l40s"}


def test_a_new_architecture_is_one_file(tmp_path):
    """It says in its record whose kernels it runs; no framework names it."""
    shipped = (load.SHIPPED / "accelerators" / "b200-sxm.toml").read_text(encoding="utf-8")
    (tmp_path / "accelerators").mkdir()
    asked = {"model": "llama-3-8b", "precision": "fp8", "framework": "megatron", **PLAN}
    answers = {}
    for name, more in (("like-b200", 'kernels_of = "blackwell"'), ("alone", "")):
        new = shipped.replace('architecture = "blackwell"', f'architecture = "unheard-of"\n{more}')
        (tmp_path / "accelerators" / f"{name}.toml").write_text(new, encoding="utf-8")
        answers[name] = ironlaw.estimate(on=name, catalog=[str(tmp_path)], **asked).groups[0]
    usual = ironlaw.estimate(on="b200-sxm", **asked).groups[0]
    workspace = {name: group.memory.tree["library workspace"].value for name, group in {**answers, "usual": usual}.items()}
    assert workspace["like-b200"] == workspace["usual"] > workspace["alone"]
    assert answers["like-b200"].step.tree.value[0] == usual.step.tree.value[0]
