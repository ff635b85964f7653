"""Effects between operators against each other: what switches one off, what can never make a step slower."""

from __future__ import annotations

import numpy as np
import pytest

import ironlaw
from ironlaw.cli.main import main
from ironlaw.estimate.step import step
from ironlaw.law import collectives, experts, overlap
from ironlaw.validate.fit import constants, with_values

DENSE = {"on": "h100-sxm", "gpus": 64, "global_batch_size": 256, "seq_len": 4096, "framework": "megatron", "recompute": "none"}
PLANS = {
    "data parallel": {"tp": 1, "pp": 1, "zero": 1, "micro_batch_size": 1},
    "tensor parallel": {"tp": 8, "pp": 1, "zero": 1, "micro_batch_size": 1},
    "pipeline": {"tp": 2, "pp": 4, "vpp": 2, "zero": 1, "micro_batch_size": 1},
    "sharded weights": {"tp": 1, "pp": 1, "zero": 3, "micro_batch_size": 1, "framework": "fsdp"},
    "context": {"tp": 2, "cp": 4, "pp": 1, "zero": 1, "micro_batch_size": 1},
}
MIXTURE = {**DENSE, "tp": 1, "pp": 1, "zero": 1, "micro_batch_size": 1, "etp": 1}


def seconds(model="llama-3-8b", **options):
    found = ironlaw.estimate(model, **{**DENSE, **options})
    assert found.legal[0]
    return float(found.step_seconds[0])


# laws


def test_all_of_it_exposed_is_no_overlap_and_none_is_free():
    times = np.linspace(0.0, 3.0, 7)
    np.testing.assert_array_equal(overlap.partly_exposed(times, 1.0), times)
    np.testing.assert_array_equal(overlap.partly_exposed(times, 0.0), 0.0)


def test_one_domain_loses_nothing_and_each_doubling_the_same():
    assert overlap.scale_loss(10.0, 1, 0.01) == 0.0
    lost = overlap.scale_loss(10.0, 2.0 ** np.arange(8), 0.01)
    np.testing.assert_allclose(np.diff(lost), 0.1)
    np.testing.assert_array_equal(overlap.scale_loss(10.0, np.arange(1, 9), 0.0), 0.0)


def test_copies_to_distinct_domains_are_never_more_than_copies_or_domains():
    """One domain takes one copy of k; one expert a token is never sent twice; k copies cannot reach more than k domains."""
    domains, k = np.meshgrid(np.arange(1, 33), np.arange(1, 17))
    copies = experts.distinct_share(domains, k) * k
    np.testing.assert_allclose(copies[:, 0], 1.0)
    np.testing.assert_allclose(copies[0], 1.0)
    assert np.all(copies <= np.minimum(domains, k) + 1e-12)
    assert np.all(np.diff(copies, axis=0) >= -1e-12)
    assert np.all(np.diff(copies, axis=1) >= -1e-12)


# steps


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_faster_fabric_is_never_slower(plan):
    slow, usual, fast = (seconds(**plan, nic_bandwidth=rate) for rate in ("25GB/s", "50GB/s", "100GB/s"))
    assert slow >= usual >= fast


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_graphs_of_everything_are_never_slower_than_launches(plan):
    none, partial, full = (seconds(**plan, cuda_graphs=what) for what in ("none", "partial", "full"))
    assert none >= partial >= full


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_one_domain_for_all_is_never_slower(plan):
    small, large = (seconds(**plan, scale_up_size=size) for size in (8, 64))
    assert large <= small


@pytest.mark.parametrize("ep", [2, 8])
def test_sending_once_a_domain_is_never_slower(ep):
    for gpus in (8, 64):
        usual, once = (
            ironlaw.estimate("mixtral-8x7b", **{**MIXTURE, "gpus": gpus}, ep=ep, moe_dispatcher=how).groups[0].step.tree["expert parallel"]
            for how in ("alltoall", "deepep")
        )
        assert once.value[0] <= usual.value[0]


def test_offloading_all_layers_is_offloading():
    for layers in (8, 32):
        plan = {"tp": 2, "pp": 32 // layers, "vpp": 1, "micro_batch_size": 1, "offload": "activations"}
        all_of_them, some = (ironlaw.estimate("llama-3-8b", **{**DENSE, **plan}, **more) for more in ({}, {"offload_layers": layers}))
        assert some.step_seconds[0] == all_of_them.step_seconds[0]
        assert some.device_bytes[0] == all_of_them.device_bytes[0]


def test_a_correction_of_one_changes_nothing(tmp_path):
    path = tmp_path / "one.toml"
    path.write_text('label = "none"\nfactor = 1.0\nhalf_width = 0.1\n', encoding="utf-8")
    plain, ours = (ironlaw.estimate("llama-3-8b", **DENSE, **more).row() for more in ({}, {"correction": str(path)}))
    assert ours["step"]["tree"] == plain["step"]["tree"]
    assert ours["step"]["seconds"] == plain["step"]["seconds"]
    assert ours["throughput"] == plain["throughput"]
    assert ours["memory"] == plain["memory"]


@pytest.mark.parametrize("constant", constants(), ids=lambda c: c.name)
def test_a_step_moves_one_way_with_a_constant(constant):
    """Shares of a rate make steps shorter, losses longer; whichever it is, it is the same between any two values.

    Only the ends of the window behind which gradients hide: where all but fits, the slowdown of what hides grows with it.
    """
    signs = set()
    points = 2 if constant.name == "gradient_window" else 5
    for plan in PLANS.values():
        group = ironlaw.estimate("llama-3-8b", **{**DENSE, **plan}).groups[0]
        taken = []
        for value in np.linspace(constant.low, constant.high, points):
            cluster = group.cluster.__class__(**{**vars(group.cluster), "systems": with_values({constant.name: float(value)})})
            taken.append(float(np.ravel(step(group.job, cluster, group.plan).tree.value)[0]))
        signs |= set(np.sign(np.diff(taken)[np.abs(np.diff(taken)) > 1e-12 * taken[0]]).tolist())
    assert len(signs) <= 1


def test_a_group_along_one_axis_of_a_torus_has_half_its_links():
    """16 chips of a v5e pod of 16 by 16 fill one of two axes; 256 chips fill both (How to Scale Your Model, part 3)."""
    one = collectives.torus_rate(16, 256, 2, 200e9)
    assert one == pytest.approx(100e9)
    assert collectives.torus_rate(256, 256, 2, 200e9) == pytest.approx(2 * one)


def test_a_fixed_clock_holds_what_it_benchmarks():
    asked = {"gpus": 8, "tp": 1, "pp": 1, "global_batch_size": 64, "micro_batch_size": 1, "seq_len": 2048, "recompute": "none"}

    def efficiency(on: str) -> tuple[float, float]:
        group = ironlaw.estimate("llama-3-8b", on=on, **asked).groups[0]
        used = group.step.tree["mlp in gemm"].inputs["efficiency"].value
        return used, group.cluster.calibration.gemm["bf16"].efficiency.value

    used, alone = efficiency("tpu-v5p")
    assert used == alone
    used, alone = efficiency("h100-sxm")
    assert used < alone


# the host


def launched(on, **options):
    """What the host needs for all launches of a layer that the device hardly computes in: its own time and the wait for it together."""
    tiny = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 512}
    asked = {"gpus": 4, "global_batch_size": 4, "seq_len": 128, "micro_batch_size": 1, "recompute": "none", "zero": 1}
    return ironlaw.estimate({**tiny, "vocab_size": 512}, **asked, on=on, **options)


def test_a_grace_launches_a_layer_as_much_later_as_it_was_measured():
    """Thirty kernels forward and sixty backward of each of four layers, at what one call takes on the processor of the node."""
    xeon, grace = 13.48e-6, 37.08e-6  # s, Transformer Engine issue 2053, H100 DGX and GB200
    for on, call in (("h100-sxm", xeon), ("gb200", grace), ("gh200-96gb", 33.17e-6)):
        found = launched(on, framework="megatron")
        assert float(found.step_seconds[0]) > 4 * 90 * call
        assert float(found.step_seconds[0]) - float(launched(on, framework="megatron", cuda_graphs="full").step_seconds[0]) < 4 * 90 * call
    slow, quick = (float(launched(on, framework="megatron").step_seconds[0]) for on in ("gb200", "b200-sxm"))
    assert slow - quick == pytest.approx(4 * 90 * (grace - xeon), rel=0.02)  # both wait for the host in every layer


def test_the_processor_of_the_node_is_named(capsys):
    assert (
        main(
            [
                "estimate",
                "qwen3-30b-a3b",
                "--on",
                "gb200",
                "--gpus",
                "8",
                "--ep",
                "8",
                "--global-batch-size",
                "8",
                "--explain",
                "host dispatch",
            ]
        )
        == 0
    )
    page = capsys.readouterr().out
    assert "13.48 us, 2.751 times that on this host" in page
    assert "issues/2053" in page
