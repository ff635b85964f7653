"""Parameters in host memory and states on NVMe: what they need and what they cost, worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.cautions.record import sentences
from ironlaw.errors import QuestionError

PARAMETERS = 6_738_415_616  # of Llama 2 7B
LAYER = 202_383_360  # of one of its 32 layers
FSDP: dict[str, Any] = {
    "model": "llama-2-7b", "on": "a100-sxm-40gb", "gpus": 4, "framework": "huggingface", "zero": 3, "tp": 1, "pp": 1, "vpp": 1,
    "micro_batch_size": 2, "global_batch_size": 8, "seq_len": 512, "recompute": "none",
}  # fmt: skip


def row(**changes) -> dict[str, Any]:
    return ironlaw.estimate(**{**FSDP, **changes}).row()


def parts(answer: dict[str, Any], tree: str) -> dict[str, float]:
    """The values of all terms of a breakdown by name."""
    found: dict[str, float] = {}

    def walk(term):
        found.setdefault(term["name"], term["value"])
        for part in term.get("parts", ()):
            walk(part)

    walk(answer[tree]["tree"])
    return found


def test_parameters_take_gradients_and_the_optimizer_with_them():
    answer = row(offload="parameters")
    assert answer["plan"]["offload"] == ["optimizer", "parameters"]
    on_device = parts(answer, "memory")
    assert not {"weights", "gradients", "optimizer states", "master weights"} & {name for name, size in on_device.items() if size}
    # two layers in use and prefetched in bf16, and the gradient of one as it is reduced
    table = 32000 * 4096
    assert on_device["gather buffers"] == (2 * 2 + 2) * max(LAYER, table)
    # fp32 weights, which are the master weights, two moments and the gradient: 16 bytes a parameter, a quarter of them each
    assert answer["memory"]["host"]["held"] == 16 * PARAMETERS / 4


def test_each_micro_batch_fetches_its_shard_twice():
    """The shard is stored in fp32 and cast on the device; the gradient leaves as the weights come: the link runs both ways."""
    group = ironlaw.estimate(**FSDP, offload="parameters").groups[0]
    (layers,) = (part for part in group.step.tree.parts if part.name == "micro-batches")
    link = load.record("accelerators", "a100-sxm-40gb").pcie_bandwidth.value
    found = {term.name: term for term in layers.walk() if term.name.startswith("weights from the host")}
    for term in found.values():
        assert float(np.ravel(term.inputs["communication"])[0]) == pytest.approx(4 * LAYER / 4 / link)
    assert len(found) == 2


def test_nothing_is_copied_for_an_update_of_weights_that_are_in_the_host():
    step = parts(row(offload="parameters"), "step")
    assert (step["gradients to the host"], step["weights from the host"]) == (0.0, 0.0)
    # the framework's own optimizer runs there, an operation after the other: three passes for a fused one
    passes, moved = 3, 24 + 8 + 4 + 4
    rate = 0.2 * load.record("nodes", "dgx-a100").host_memory_bandwidth.value
    assert step["optimizer in the host"] == pytest.approx(PARAMETERS * (moved + (passes - 1) * 24) / rate)


def test_deepspeed_updates_in_one_kernel_and_sends_16_bit_weights():
    zero3 = {**FSDP, "framework": "deepspeed"}
    times = [parts(ironlaw.estimate(**zero3, offload=name).row(), "step")["optimizer in the host"] for name in ("optimizer", "parameters")]
    assert times[0] == times[1]
    held = ironlaw.estimate(**zero3, offload="parameters").row()["memory"]["host"]["held"]
    assert held == (2 + 4 + 8 + 4) * PARAMETERS / 4


def test_hours_of_a_published_run_with_everything_in_the_host():
    """7B, 4 A100 of 40 GB, FSDP with cpu_offload, three epochs of 52,000 examples: 58 hours; 2.9 were predicted with all on the device.

    The batch is not reported. The host's update takes most of each step whatever its batch, so that the hours are those of the number of
    steps: with two sequences on each GPU and none accumulated they are of the reported order.
    """
    hours = row(offload="parameters")["step"]["seconds"] * 3 * 52000 / 8 / 3600
    assert 58 / 2 < hours < 58 * 2
    assert row()["step"]["seconds"] * 3 * 52000 / 8 / 3600 < 10


def test_one_gpu_needs_no_zero_stage():
    one = ironlaw.estimate("llama-2-7b", on="rtx-4090", gpus=1, framework="fsdp", global_batch_size=8, seq_len=512, offload="parameters")
    assert one.fits[0]
    assert ironlaw.estimate("llama-2-7b", on="rtx-4090", gpus=1, framework="fsdp", global_batch_size=8, seq_len=512).fits[0] is np.False_


def test_weights_of_zero_1_stay_on_the_device(ask):
    given = [
        part
        for name, value in {**FSDP, "framework": "deepspeed", "zero": 1}.items()
        if name != "model"
        for part in (f"--{name.replace('_', '-')}", value)
    ]
    status, _, error = ask("estimate", "llama-2-7b", *given, "--offload", "parameters")
    assert status == 2
    assert "needs zero 3; zero is 1" in error


def test_cpu_offload_is_answered_with_what_it_means():
    with pytest.raises(QuestionError, match="offload parameters"):
        ironlaw.estimate(**FSDP, cpu_offload=True)


def test_states_on_nvme_leave_the_host_and_take_their_time():
    """By hand: 12 bytes of fp32 weight and moments are read and written, all of a host's accelerators through 25 GB/s."""
    in_host, on_drives = (row(offload=name, framework="deepspeed") for name in ("optimizer", "nvme"))
    assert in_host["memory"]["host"]["held"] - on_drives["memory"]["host"]["held"] == 12 * PARAMETERS / 4
    update, drives = (parts(on_drives, "step")[name] for name in ("optimizer in the host", "states from and to NVMe"))
    assert update + drives == pytest.approx(2 * 12 * PARAMETERS / 25e9)
    assert on_drives["step"]["seconds"] > in_host["step"]["seconds"]
    assert any(item["name"] == "NVMe bandwidth" for item in on_drives["assumptions"])


def test_drives_of_another_server_are_told_with_their_grade_until_a_record_has_its_own(tmp_path):
    """Read and written are 12 bytes a parameter; the update hides as much of it with other drives."""
    assumed = row(offload="nvme", framework="deepspeed")
    (warning,) = (line for line in sentences(assumed["warnings"]) if "NVMe" in line)
    assert "25 GB/s are assumed for each server" in warning and "grade paper" in warning and "dgx-a100" in warning
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "ours.toml").write_text(
        'like = "dgx-a100"\nnvme_bandwidth = { value = "40 GB/s", source = "own" }\n'
        '[sources.own]\ntitle = "fio"\nurl = "https://a.example"\nread = 2026-11-27\ngrade = "measured"\n'
    )
    own = row(offload="nvme", framework="deepspeed", node="ours", catalog=tmp_path)
    assert not any("NVMe" in line for line in sentences(own["warnings"]))
    drives = [parts(one, "step")["states from and to NVMe"] for one in (assumed, own)]
    assert drives[0] - drives[1] == pytest.approx(2 * 12 * PARAMETERS * (1 / 25e9 - 1 / 40e9))
    assert not any("NVMe" in line for line in sentences(row(offload="optimizer", framework="deepspeed")["warnings"]))
