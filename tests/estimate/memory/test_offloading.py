"""The optimizer in host memory: its time by bytes, its copies, its share of the states, and the room the host has."""

from __future__ import annotations

import json

import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.cli.main import main
from ironlaw.errors import ValueRangeError

ASK = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "tp": 1, "pp": 1, "zero": 2, "micro_batch_size": 1, "global_batch_size": 64,
       "recompute": "full", "framework": "megatron", "offload": "optimizer"}  # fmt: skip
OWN = 8030261248 / 8  # parameters of Llama 3 8B on each of eight ranks


def group(**more):
    (one,) = ironlaw.estimate(**{**ASK, **more}).groups
    return one


def seconds(name, **more):
    return float(group(**more).step.tree[name].value[0])


def test_the_host_moves_forty_bytes_a_parameter():
    """Adam in fp32: gradient in and read 8, states read and written 24, weight cast and sent 4 + 2 + 2; of 614.4 GB/s a fifth."""
    assert seconds("optimizer in the host") == pytest.approx(8 * OWN * 40 / (0.2 * 614.4e9), rel=1e-6)


def test_gradients_go_in_four_bytes_and_weights_come_in_two():
    """PCIe Gen5 x16, 64 GB/s one direction."""
    assert seconds("gradients to the host") == pytest.approx(OWN * 4 / 64e9, rel=1e-6)
    assert seconds("weights from the host") == pytest.approx(OWN * 2 / 64e9, rel=1e-6)


def test_one_accelerator_has_the_host_for_itself():
    one = {"gpus": 1, "model": "llama-2-7b", "zero": 1}
    alone, eight = (float(group(**{**one, "gpus": n}).step.tree["optimizer in the host"].value[0]) for n in (1, 8))
    assert alone == pytest.approx(eight, rel=1e-9)  # an eighth of the states each, but eight at once


def test_half_of_the_states_take_half_of_the_time():
    whole, half = (group(offload_fraction=f) for f in (1.0, 0.5))
    for name in ("optimizer in the host", "gradients to the host", "weights from the host"):
        assert half.step.tree[name].value[0] == pytest.approx(0.5 * whole.step.tree[name].value[0])
    assert half.memory.tree["optimizer states"].value[0] == pytest.approx(OWN * 8 * 0.5, rel=1e-6)
    assert whole.memory.tree["optimizer states"].value[0] == 0.0
    assert half.memory.host[0] == pytest.approx(0.5 * whole.memory.host[0])


def test_with_offload_overlap_the_longest_of_update_and_copies_counts():
    update = seconds("optimizer in the host")
    assert seconds("optimizer in the host", offload_overlap=True) == update
    assert seconds("copies beside the host's optimizer", offload_overlap=True) == 0.0  # 64 GB/s are more than a host's Adam needs


def test_deepspeed_sends_gradients_beside_the_backward_pass():
    assert seconds("gradients to the host", framework="deepspeed") < 0.5 * seconds("gradients to the host")


def test_two_accelerators_behind_a_switch_share_its_link():
    """DGX-1: PCIe Gen3 x16 between two V100."""
    v100 = load.record("accelerators", "v100-sxm-32gb", ()).pcie_bandwidth.value
    ask = {"on": "v100-sxm-32gb", "model": "gpt-2-xl", "gpus": 8, "precision": "fp16", "zero": 2, "seq_len": 1024, "offload": "optimizer"}
    (one,) = ironlaw.estimate(**ask, tp=1, pp=1, micro_batch_size=1, global_batch_size=64, framework="megatron").groups
    assert one.step.tree["gradients to the host"].inputs["bandwidth"].value == v100 / 2
    assert "shared by 2" in one.step.tree["gradients to the host"].inputs["bandwidth"].text


def test_the_host_must_hold_what_leaves_the_devices():
    """12 bytes of states and 4 of gradients: 405 billion parameters are 6.5 TB, more than three hosts of 1.5 TiB."""
    ask = {**ASK, "model": "llama-3.1-405b", "zero": 3, "framework": "deepspeed", "on": "mi300x", "global_batch_size": 96, "seq_len": 4096}
    few, many = (ironlaw.estimate(**{**ask, "gpus": n}) for n in (24, 32))
    (held,) = few.groups
    assert held.memory.host[0] == pytest.approx(16 * 405.85e9 / 24, rel=2e-3)
    assert held.memory.device[0] <= held.memory.capacity and not few.fits[0]
    assert many.groups[0].memory.host[0] <= 1.5 * 2**40 / 8 and many.fits[0]


def test_an_unknown_host_memory_is_an_assumption():
    notes = {a["name"]: a for a in group(node="h800-8").assumptions}
    assert notes["host memory bandwidth"]["value"].startswith("400 GB/s, a usual server")
    assert notes["host memory"]["value"] == "not in the catalogue for h800-8, not checked"
    assert not any(a["name"].startswith("host memory") for a in group(offload="none").assumptions)


def test_a_fraction_is_a_part_of_a_whole():
    for wrong in (0, 1.5, -1):
        with pytest.raises(ValueRangeError, match="offload_fraction"):
            ironlaw.estimate(**ASK, offload_fraction=wrong)


def test_offload_options_without_effect_give_a_warning():
    told = group(offload="activations", offload_fraction=0.5, offload_overlap=True).warnings
    assert [w for w in told if "no effect" in w] == [
        "--offload-fraction has no effect without --offload optimizer",
        "--offload-overlap has no effect without --offload optimizer",
    ]


def test_the_page_and_the_json(capsys):
    asked = ["estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--tp", "1", "--pp", "1", "--offload", "optimizer"]
    asked += ["--framework", "deepspeed"]  # which keeps fp32 masters
    main(asked)
    assert "host memory per GPU: 15 GiB of 233 GiB" in capsys.readouterr().out
    main([*asked, "--json"])
    host = json.loads(capsys.readouterr().out)["memory"]["host"]
    assert host["held"] == pytest.approx(16 * OWN, rel=1e-6) and host["capacity_bytes"] == 250e9
    main([*asked, "--explain", "optimizer in the host"])
    page = capsys.readouterr().out
    assert "bandwidth_fraction" in page and "614.4 GB/s" in page
