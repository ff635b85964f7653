"""Effects between operators against each other: what switches one off, what can never make a step slower."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import ironlaw
from ironlaw.cli.main import main
from ironlaw.errors import QuestionError
from ironlaw.estimate.bind.cluster import cluster_of
from ironlaw.estimate.evidence.correction import OwnRun, write_correction
from ironlaw.estimate.fabric.slices import torus_rate
from ironlaw.estimate.step.step import step
from ironlaw.law import exchanges, experts, overlap
from ironlaw.plan import column, plan_with
from ironlaw.validate.fit import constants, with_values

DENSE = {"on": "h100-sxm", "gpus": 64, "global_batch_size": 256, "seq_len": 4096, "framework": "megatron", "recompute": "none"}
PLANS = {
    "data parallel": {"tp": 1, "pp": 1, "zero": 1, "micro_batch_size": 1},
    "tensor parallel": {"tp": 8, "pp": 1, "zero": 1, "micro_batch_size": 1},
    "pipeline": {"tp": 2, "pp": 4, "vpp": 2, "zero": 1, "micro_batch_size": 1},
    "sharded weights": {"tp": 1, "pp": 1, "zero": 3, "micro_batch_size": 1, "framework": "generic"},
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
    np.testing.assert_array_equal(overlap.in_pieces(4.0, times, 0.0, 1.0, 4, 0.0), times)
    np.testing.assert_array_equal(overlap.in_pieces(4.0, times, 0.0, 0.0, 4, 0.0), 0.0)


def test_one_domain_loses_nothing_and_each_doubling_the_same():
    assert overlap.scale_loss(10.0, 1, 0.01) == 0.0
    lost = overlap.scale_loss(10.0, 2.0 ** np.arange(8), 0.01)
    np.testing.assert_allclose(np.diff(lost), 0.1)
    np.testing.assert_array_equal(overlap.scale_loss(10.0, np.arange(1, 9), 0.0), 0.0)


def test_copies_to_distinct_domains_are_never_more_than_copies_or_domains():
    """One domain takes one copy of k; one expert a token is never sent twice; k copies cannot reach more than k domains."""
    domains, k = np.meshgrid(np.arange(1, 33), np.arange(1, 17))
    copies = experts.distinct_share(domains, k, 1, 1) * k
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
    place = {"stack": "fsdp", "device": "h100-sxm", "architecture": "hopper", "format": "bf16", "mixture": False, "adapters": False,
             "hybrid": False, "gpus": 8.0, "seq_len": 8192.0, "parameters": 8e9}  # fmt: skip
    write_correction(path, [OwnRun("equal", place, 1.0, 0.2)], path, 0.8, 0.5)
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
    made = cluster_of({"on": "tpu-v5e"}, (), [])
    plan = plan_with(gpus=column(256), tp=column(16), dp_shard=column(16))
    rates = [torus_rate(made, plan, n, stride, 200e9)[0] for n, stride in ((16.0, 1.0), (16.0, 16.0), (256.0, 1.0))]
    assert rates == pytest.approx([100e9, 100e9, 200e9])


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
    """Thirty kernels forward and sixty backward of each of four layers, at what one call takes on the processor of the node.

    Grace: the geometric middle of a module with one kernel (37.08 us on GB200, 33.17 us on GH200, 13.48 us on the Xeon of a DGX H100;
    Transformer Engine, issue 2053) and of a call through the dispatcher alone (197.4 and 181.7 ns; PyTorch, issue 187862).
    """
    xeon, dispatcher = 13.48e-6, 197.4 / 181.7
    grace = xeon * (37.08 / 13.48 * dispatcher) ** 0.5
    for on, call in (("h100-sxm", xeon), ("gb200", grace), ("gh200-96gb", xeon * (33.17 / 13.48 * dispatcher) ** 0.5)):
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
    assert "13.48 us, 1.73 times that on this host" in page
    assert "issues/2053" in page


# copies that need not be sent


def drawn_domains(domains, k, experts_in_all, groups=1, chosen=1, tokens=20000):
    """Domains a token's experts lie in, on average: groups drawn evenly, then k different experts of them, as a router picks."""
    rng = np.random.default_rng(5)
    held = experts_in_all // groups
    open_groups = np.argsort(rng.random((tokens, groups)), axis=1)[:, :chosen]
    allowed = np.zeros((tokens, groups), dtype=bool)
    np.put_along_axis(allowed, open_groups, True, axis=1)
    scores = np.where(np.repeat(allowed, held, axis=1), rng.random((tokens, experts_in_all)), -1.0)
    picked = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    reached = np.zeros((tokens, domains), dtype=bool)
    np.put_along_axis(reached, picked // (experts_in_all // domains), True, axis=1)
    return reached.sum(axis=1).mean()


@pytest.mark.parametrize(
    ("domains", "by_hand"),
    [
        # DeepSeek-V3: 8 of 256 experts, in 4 of 8 groups. A group a domain: 4 open ones, each missed by a draw with 3/4
        (8, 4 * (1 - (3 / 4) ** 8)),
        # half a group a domain: 8 open domains
        (16, 8 * (1 - (7 / 8) ** 8)),
        # two groups a domain: of the 70 ways to open 4 of 8, 15 open none of its two, 40 one, 15 both
        (4, 4 * (40 / 70 * (1 - (3 / 4) ** 8) + 15 / 70 * (1 - (1 / 2) ** 8))),
        # four groups a domain: 1, 16, 36, 16, 1 ways to open 0 to 4 of them
        (2, 2 * sum(ways / 70 * (1 - (1 - j / 4) ** 8) for j, ways in enumerate((1, 16, 36, 16, 1)))),
        (1, 1.0),
    ],
)
def test_groups_limit_the_domains_a_row_reaches(domains, by_hand):
    law = float(experts.distinct_share(domains, 8, 8, 4)) * 8
    assert law == pytest.approx(by_hand, rel=1e-12)
    assert law == pytest.approx(drawn_domains(domains, 8, 256, 8, 4), rel=0.025)  # a router draws no expert twice, which spreads more
    assert law <= float(experts.distinct_share(domains, 8, 1, 1)) * 8 + 1e-12


def test_device_limited_routing_of_deepseek_v2():
    """6 of 160 experts on 3 of 8 devices (section 2.2.2): at most 3, and with 6 draws over 3 nearly always all."""
    law = float(experts.distinct_share(8, 6, 8, 3)) * 6
    assert law == pytest.approx(3 * (1 - (2 / 3) ** 6))
    assert law == pytest.approx(drawn_domains(8, 6, 160, 8, 3), rel=0.025)


def test_without_a_limit_groups_change_nothing():
    for domains in (1, 2, 4, 8, 16, 64):
        free = float(experts.distinct_share(domains, 8, 1, 1))
        assert float(experts.distinct_share(domains, 8, 8, 8)) == pytest.approx(free, rel=1e-12)
        assert free * 8 == pytest.approx(drawn_domains(domains, 8, 256), rel=0.025)


def test_a_tighter_limit_never_reaches_more():
    reached = experts.distinct_share(np.array([[2.0], [4.0], [8.0], [16.0], [64.0]]), 8, 8, np.arange(1.0, 9.0))
    assert np.all(np.diff(reached, axis=1) >= -1e-12)


def test_forwarded_copies_by_hand():
    """64 ranks in 8 nodes, 1 GB of copies, k = 8 with 4 of 8 groups: 3.5995 of 8 copies leave, 7/8 of them to other nodes; ranks
    reached are 32 open ones of 8 draws, and 7 of 8 are not the one the copy came to."""
    wires = {"inner_ranks": 8, "outer_ranks": 8, "size": 1e9, "inner_rate": 200e9, "outer_rate": 50e9}
    wires |= {
        f"{tier}_{name}": value for tier in ("inner", "outer") for name, value in (("fraction", 1.0), ("half_size", 0.0), ("latency", 0.0))
    }
    domains, ranks = 4 * (1 - 0.75**8) / 8, 32 * (1 - (31 / 32) ** 8) / 8
    seconds = exchanges.two_tier_forwarded(**wires, distinct=domains, distinct_ranks=ranks)
    over_nvlink, over_rails = 1e9 * ranks * 7 / 8 / 200e9, 1e9 * domains * 7 / 8 / 50e9
    assert over_rails > over_nvlink
    assert float(seconds) == pytest.approx(over_rails)
    slow = {**wires, "inner_rate": 50e9}  # one scale-up link as slow as the rail: forwarding sets the pace
    assert float(exchanges.two_tier_forwarded(**slow, distinct=domains, distinct_ranks=ranks)) == pytest.approx(over_nvlink * 4)


def test_a_catalogued_limit_is_used_where_rows_are_sent_once_and_nowhere_else():
    asked = {**MIXTURE, "on": "h800-sxm", "gpus": 256, "ep": 64, "pp": 4, "vpp": 1, "precision": "bf16", "mtp_layers": 0}
    for how in ("deepep", "hybridep", "alltoall"):
        group = ironlaw.estimate("deepseek-v3", **{**asked, "moe_dispatcher": how}).groups[0]
        sent = group.step.tree["all-to-all"].inputs
        if how == "alltoall":
            assert "distinct" not in sent
        else:
            assert float(np.ravel(sent["distinct"])[0]) * 8 == pytest.approx(3.5995, abs=1e-4)
            assert float(np.ravel(sent["distinct_ranks"])[0]) * 8 == pytest.approx(32 * (1 - (31 / 32) ** 8), rel=1e-9)


# rows on their way in eight bits

DEEPSEEK = {
    "on": "h800-sxm", "gpus": 256, "framework": "megatron", "tp": 1, "cp": 1, "etp": 1, "pp": 4, "vpp": 1, "ep": 64, "zero": 1,
    "micro_batch_size": 1, "seq_len": 4096, "global_batch_size": 512, "recompute": "none", "precision": "fp8-block", "mtp_layers": 0,
    "moe_dispatcher": "deepep",
}  # fmt: skip


def tree_of(**options):
    return ironlaw.estimate("deepseek-v3", **{**DEEPSEEK, **options}).groups[0].step.tree


def of(term, name):
    return float(np.ravel(term.inputs[name])[0])


def test_rows_in_fp8_are_a_byte_and_a_128th_of_four():
    """4,096 tokens of 7,168 numbers to 8 experts: 2 bytes a number wide, 1 + 4 / 128 in fp8; combine as it was."""
    wide, narrow = tree_of()["dispatch and combine"], tree_of(dispatch_precision="fp8")["dispatch and combine"]
    numbers = 4096 * 7168 * 8
    assert of(wide.parts[0], "size") == 2 * numbers
    assert [of(part, "size") for part in narrow.parts] == [numbers * (1 + 4 / 128), 2 * numbers]


def test_forward_alone_lies_between():
    times = [float(np.ravel(tree_of(dispatch_precision=how)["expert parallel"].value)[0]) for how in ("fp8", "fp8-forward", "wide")]
    assert times == sorted(times)
    assert times[1] == pytest.approx((times[0] + times[2]) / 2, rel=1e-12)  # one of two passes


def test_rows_are_quantised_where_they_start():
    """2 bytes read and 1.03125 written for each own number. The experts of fp8-block then turn their input, 1.03125 bytes read and written,
    where they read 2 bytes and wrote both orientations; those of others cast as before.
    """
    assert of(tree_of(dispatch_precision="fp8")["routed layers/forward"]["casts before dispatch"], "traffic") == 4096 * 7168 * (
        2 + 1 + 4 / 128
    )
    cast = {}
    for precision, how in product(("fp8-block", "fp8"), ("wide", "fp8")):
        forward = tree_of(precision=precision, dispatch_precision=how)["routed layers/forward"]
        cast[precision, how] = of(forward["experts' casts"], "traffic")
    assert cast["fp8", "fp8"] == cast["fp8", "wide"]
    assert cast["fp8-block", "wide"] - cast["fp8-block", "fp8"] == pytest.approx(
        4096 * 8 * 7168 * (2 + 2 * (1 + 4 / 128) - 2 * (1 + 4 / 128))
    )


@pytest.mark.parametrize(
    ("model", "change", "words"),
    [
        ("deepseek-v3", {"precision": "bf16"}, "needs precision fp8, .*; got bf16"),
        ("deepseek-v3", {"ep": 1}, "ep 1"),
        ("llama-3-8b", {"ep": 1}, "no experts"),
    ],
)
def test_a_dispatch_in_fp8_is_refused_where_it_means_nothing(model, change, words):
    with pytest.raises(QuestionError, match=words):
        ironlaw.estimate(model, **{**DEEPSEEK, "dispatch_precision": "fp8", **change})


def test_pairs_hide_a_narrow_dispatch_too():
    """Each window has its own way: rows in fp8 beside experts backward, gradients in two bytes beside attention forward."""
    tree = tree_of(vpp=3, overlap="pp,ep", dispatch_precision="fp8-forward", layers_per_stage="15,15,15,16")
    rows = of(tree["dispatch forward beside experts backward"], "communication")
    assert 0 < rows < of(tree["combine backward beside attention forward"], "communication")
    assert of(tree["combine backward beside attention forward"], "communication") == pytest.approx(
        of(tree["combine forward beside attention backward"], "communication")
    )


# what a dispatcher keeps for itself


def buffers(how, **options):
    asked = {**DEEPSEEK, "moe_dispatcher": how, **options}
    memory = ironlaw.estimate("deepseek-v3", **asked).groups[0].memory
    return sum(float(np.ravel(part.value)[0]) for part in memory.tree.parts if part.name == f"buffers of {how}")


def test_queues_of_deepep_by_hand():
    """ep 64: 8 ranks a node and 8 nodes, 10 channels, queues of 288 and 128 tokens of 2 h + 8 + 128 (8 + 4 + 4) bytes."""
    token = 2 * 7168 + 8 + 128 * 16
    assert buffers("deepep") == 10 * 8 * 288 * token + 10 * 8 * 128 * 2 * (token + 16) + 2**20
    assert buffers("deepep", ep=8) == 10 * 8 * 256 * token  # one node: nothing goes over the fabric


def test_buffers_of_hybridep_hold_every_token_of_the_group():
    """ep 8 in one node, 4,096 tokens a rank: 8 times 4,096 rows of 2 h bytes, 256 probabilities and 56 scales of 4 bytes."""
    assert buffers("hybridep", ep=8) == 8 * 4096 * (2 * 7168 + 4 * 256 + 4 * 56)
    row, narrow, own = 2 * 7168 + 4 * 32 + 4 * 56, 2 * 7168 + 4 * 32, 2 * 7168 + 4 * 256 + 4 * 56
    assert buffers("hybridep") == 4096 * (64 * row + own + 7 * row + 2 * 7 * narrow)


def test_no_dispatcher_no_buffers():
    assert buffers("alltoall") == 0
    assert buffers("deepep", ep=1) == 0


def test_zero_3_may_need_more_than_zero_2_and_its_buffers_are_why():
    """Beside a pipeline the shards are few: two whole layers of gathered weights are more than their share saves."""
    question = {"on": "mi300x", "gpus": 16, "tp": 1, "pp": 8, "vpp": 1, "micro_batch_size": 1, "recompute": "none", "global_batch_size": 64}
    two, three = (ironlaw.estimate("gemma-2-9b", zero=zero, **question).groups[0].memory for zero in (2, 3))
    assert three.allocated > two.allocated
    gathered = sum(three.tree[name].value for name in ("gather buffers", "gathered linear weights", "gathered weights"))
    assert three.allocated - gathered < two.allocated
