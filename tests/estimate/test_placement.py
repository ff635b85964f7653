"""What a job takes of each scale-up domain: no group that fits is cut, whole nodes are as ever, scale costs what the wires explain."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.catalog.sourced import Sourced
from ironlaw.cautions.record import sentences
from ironlaw.errors import ValueRangeError
from ironlaw.estimate.bind.cluster import cluster_of
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.fabric.placement import cut_groups, group_spans, nearest_slices, placement, slices_of
from ironlaw.plan import column, plan_with

MODEL_70B = {"on": "gb200", "tp": 4, "pp": 4, "vpp": 5, "zero": 1, "micro_batch_size": 1, "recompute": "none", "framework": "megatron"}


def cluster(on="gb200", **options):
    return cluster_of({"on": on, **options}, (), [])


def sized(domain: int, tray: int):
    """A cluster with domains of a size, made of servers of a size."""
    made = cluster()
    size, server = (Sourced(float(n), "1", f"{n}", None) for n in (domain, tray))
    return made.replace(node=made.node.replace(scale_up_size=size, accelerators=server))


def drawn_plans(rows: int, seed: int, powers: int = 5):
    """Random legal meshes: tp, cp and ep of 2s and 3s, a number of shards, replicas and stages."""
    rng = np.random.default_rng(seed)

    def sizes(most: int):
        return 2.0 ** rng.integers(0, most, rows) * 3.0 ** rng.integers(0, 2, rows) ** 2

    tp, cp, shard, replicate, pp = sizes(4), 2.0 ** rng.integers(0, 3, rows), sizes(powers), sizes(3), sizes(3)
    shard = np.where(rng.random(rows) < 0.3, shard * 5.0, shard)
    model = tp * cp * shard
    ep = np.array([rng.choice([d for d in range(1, int(m) + 1) if m % d == 0]) for m in model], dtype=np.float64)
    return plan_with(tp=tp, cp=cp, pp=pp, ep=ep, dp_shard=shard, dp_replicate=replicate, gpus=model * replicate * pp)


def domain_of_ranks(placed, row: int, gpus: int, domain: int):
    """The domain of every rank, from the numbers of a placement: blocks take domains of their own, units are dealt out evenly."""
    share, largest, domains, unit, block, _ = (int(np.broadcast_to(c, placed.share.shape)[row]) for c in placed)
    if share == largest:
        return np.arange(gpus) // share
    each, units = domains // -(-gpus // block), block // unit
    sizes = [(units // each + (i < units % each)) * unit for i in range(each)]
    assert max(sizes) <= domain and sum(sizes) == block
    inside = np.repeat(np.arange(each), sizes)
    return inside[np.arange(gpus) % block] + each * (np.arange(gpus) // block)


@pytest.mark.parametrize(
    ("domain", "tray", "given"),
    [(72, 4, None), (64, 16, None), (32, 2, None), (36, 6, None), (8, 8, None), (144, 4, None), (72, 4, 72), (72, 4, 40), (8, 8, 6)],
)
def test_no_group_that_fits_a_domain_is_cut(domain, tray, given):
    """Rank by rank: a tensor, context or expert group shares one domain, unless it is named as cut, as by many given shares."""
    plan, made = drawn_plans(400, domain + tray), sized(domain, tray).replace(gpus_per_domain=given)
    placed, cut = placement(made, plan), cut_groups(made, plan)
    gpus = plan.gpus.astype(int)
    checked = whole = 0
    for row in np.flatnonzero(gpus <= 1500):
        at = domain_of_ranks(placed, row, gpus[row], domain)
        assert np.bincount(at).max() <= min(domain, placed.largest[row])
        for name, spans in group_spans(plan).items():
            groups = at[: gpus[row] // int(spans[row]) * int(spans[row])].reshape(-1, int(spans[row]))
            assert len(groups) * int(spans[row]) == gpus[row]
            inside = int(placed.whole(spans.astype(np.int64))[row])
            fewest = min(np.unique(group, return_counts=True)[1].min() for group in groups)
            assert inside <= fewest, "no more ranks count as inside than share a domain in the group that is cut worst"
            if name in cut:
                is_cut = bool((groups != groups[:, :1]).any()) and spans[row] <= domain
                assert is_cut <= bool(cut[name][row]), f"{name} group of {spans[row]:g} is cut and not named"
                checked += spans[row] <= domain
                whole += inside == spans[row]
    assert checked > 100 and whole > (0.9 if tray < domain and not given else 0.5) * checked


def test_groups_that_the_tray_divides_with_are_whole():
    """On trays of 4 in domains of 72 every tensor group of up to 8, and experts over 2 to 64 ranks, stay whole at any number of stages."""
    tp, ep, pp, shards = (c.ravel() for c in np.meshgrid([1, 2, 4, 8], [1, 2, 8, 16, 32, 64], [1, 2, 3, 4, 5, 16], [8, 24, 40, 64]))
    plan = plan_with(tp=1.0 * tp, ep=1.0 * ep, pp=1.0 * pp, dp_shard=8.0 * shards, gpus=8.0 * tp * pp * shards)
    assert all(np.all(ranks == 0) for ranks in cut_groups(cluster(), plan).values())
    assert np.all(placement(cluster(), plan).share % 4 == 0)


def test_whole_nodes_are_as_ever():
    """Nodes of 8: full nodes, and of a group the greatest common divisor of its span and 8 in each, as decision 10 had it."""
    plan = drawn_plans(2000, 1)
    plan = plan.take(np.flatnonzero(plan.gpus % 8 == 0))
    nodes = cluster("h100-sxm")
    several = plan.take(np.flatnonzero(plan.gpus > 8))
    assert np.all(group_links.domain_ranks(nodes, several) == 8.0)
    assert np.array_equal(group_links.domains_taken(nodes, plan), np.ceil(plan.gpus / 8.0))
    for n, stride in ((plan.tp, 1.0), (plan.ep, plan.etp), (plan.dp_shard, plan.tp * plan.cp), (plan.pp, plan.gpus / plan.pp)):
        before = np.minimum(n, np.maximum(np.floor(np.gcd((n * stride).astype(int), 8) / stride), 1.0))
        assert np.array_equal(group_links.inner_ranks(nodes, plan, n, stride), before)


def share_of(on="gb200", gpus=2048, **sizes):
    made = {name: column(value) for name, value in {"tp": 1, **sizes}.items()}
    model = made["tp"] * made.get("pp", 1.0) * made.get("cp", 1.0)
    placed = placement(cluster(on), plan_with(gpus=column(gpus), dp_shard=gpus / model, **made))
    return int(placed.share[0]), int(placed.largest[0]), int(placed.domains[0])


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"gpus": 2048, "tp": 4}, (64, 64, 32)),
        ({"gpus": 4096, "tp": 8}, (64, 64, 64)),
        ({"gpus": 2304, "tp": 4}, (72, 72, 32)),
        ({"gpus": 2304, "tp": 8}, (72, 72, 32)),
        ({"gpus": 2304, "tp": 1, "ep": 32}, (64, 64, 36)),
        ({"gpus": 2304, "tp": 1, "ep": 72}, (72, 72, 32)),
        ({"gpus": 2000, "tp": 4}, (68, 72, 28)),  # 500 trays: 40 a domain would leave more idle than used
        ({"gpus": 2000, "tp": 8}, (64, 72, 28)),
        ({"gpus": 72, "tp": 8}, (72, 72, 1)),
        ({"gpus": 40, "tp": 4}, (40, 40, 1)),
        ({"gpus": 256, "tp": 1}, (64, 64, 4)),
        ({"on": "h100-sxm", "gpus": 24, "tp": 4}, (8, 8, 3)),
        ({"on": "h100-sxm", "gpus": 12, "tp": 2}, (6, 6, 2)),
        ({"on": "h100-sxm", "gpus": 12, "tp": 4}, (4, 8, 2)),
        ({"on": "h100-sxm", "gpus": 5, "tp": 1}, (5, 5, 1)),
        ({"on": "h100-sxm", "gpus": 2000, "tp": 8}, (8, 8, 250)),
        ({"on": "tpu-v5p", "gpus": 1024, "tp": 4}, (1024, 1024, 1)),
    ],
)
def test_shares_by_hand(asked, found):
    assert share_of(**asked) == found


def test_a_batch_of_plans_has_the_shares_of_its_plans():
    plan = drawn_plans(300, 7)
    together = placement(cluster(), plan)
    for row in range(0, plan.rows, 17):
        alone = placement(cluster(), plan.take([row]))
        for name in ("share", "largest", "domains"):
            assert getattr(alone, name)[0] == getattr(together, name)[row]


# what it does to a step


def estimates(**changes):
    answer = ironlaw.estimate("llama-3-70b", **{**MODEL_70B, **changes})
    assert answer.legal.all()
    return answer


def test_scale_costs_no_more_than_the_wires_explain():
    """Equal work for each accelerator: what a step takes longer on more racks is network and stragglers, and little."""
    answers = [estimates(gpus=gpus, global_batch_size=gpus) for gpus in (512, 1024, 2048, 4096)]
    steps = np.array([a.step_seconds[0] for a in answers])
    wired = np.array([a.groups[0].shares["network"][0] for a in answers]) * steps
    assert np.all(np.diff(steps) <= np.diff(wired) + 1e-9 * steps[0])
    assert steps[-1] <= 1.05 * steps[0]


def test_racks_of_72_do_as_well_as_racks_of_64_with_powers_of_two():
    for gpus in (512, 1024, 2048, 4096):
        asked = {"gpus": gpus, "global_batch_size": gpus}
        assert estimates(**asked).step_seconds[0] == estimates(**asked, scale_up_size=64).step_seconds[0]


def test_experts_wait_less_with_fewer_micro_batches():
    """The same plan and batch on more accelerators: as many micro-batches fewer, as much less all-to-all."""
    fixed = {"on": "gb200", "precision": "fp8-block", "tp": 1, "pp": 4, "ep": 32, "zero": 1, "micro_batch_size": 1}
    waits = []
    for gpus in (512, 1024, 2048, 4096):
        answer = ironlaw.estimate("deepseek-v3", **fixed, vpp=1, global_batch_size=4096, gpus=gpus, recompute="full", framework="megatron")
        tree = answer.groups[0].step.tree
        waits.append(float(np.ravel(tree["expert parallel"].value)[0] * np.ravel(answer.groups[0].plan.num_microbatches)[0]))
    assert np.all(np.array(waits[1:]) == pytest.approx(np.array(waits[:-1]) / 2.0))


@pytest.mark.parametrize("mesh", [{"tp": 8, "pp": 1}, {"tp": 4, "pp": 8}, {"tp": 2, "pp": 2, "cp": 2}, {"tp": 8, "pp": 16}])
def test_a_larger_domain_or_a_faster_link_never_slows_a_plan(mesh):
    plan = {"vpp": 1, "gpus": 2048, "global_batch_size": 2048, **mesh}
    by_size = [float(estimates(**plan, scale_up_size=size).step_seconds[0]) for size in (8, 16, 24, 36, 64, 68, 72, 96, 128, 144, 256)]
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(by_size)), by_size
    by_rate = [float(estimates(**plan, nic_bandwidth=rate).step_seconds[0]) for rate in ("25GB/s", "50GB/s", "100GB/s")]
    assert by_rate == sorted(by_rate, reverse=True)


@pytest.mark.parametrize("gpus", [96, 200, 480, 768, 1000, 1920, 2000, 3072, 5000])
def test_the_chosen_plan_cuts_no_group(gpus):
    answer = ironlaw.estimate("llama-3-70b", on="gb200", gpus=gpus)
    group = answer.groups[0]
    assert answer.fits[0]
    assert all(np.all(ranks == 0) for ranks in cut_groups(group.cluster, group.plan).values())


# what a person reads and gives


def test_the_share_can_be_given():
    given = estimates(gpus=2048, gpus_per_domain=72).row()
    assert given["placement"] | {"scale_up": ""} == {
        "gpus_per_domain": 72, "most_per_domain": 72, "domains": 29, "scale_up_size": 72, "scale_up": "", "trays_per_domain": 18.0,
        "free": 29 * 72 - 2048, "given": True,
    }  # fmt: skip
    same = estimates(gpus=2048, gpus_per_domain=64).row()
    assert same["step"]["seconds"] == estimates(gpus=2048).row()["step"]["seconds"]
    assert not any("cut by its edge" in warning for warning in [*sentences(same["warnings"]), *sentences(given["warnings"])])


def test_the_rest_in_the_last_domain_sets_the_pace():
    """2,048 in full racks of 72: 28 racks, and 32 in the last. Of the 512 ranks that reduce gradients with tp 4 the last rack has 8."""
    plan = plan_with(gpus=column(2048), tp=column(4), dp_shard=column(512))
    assert group_links.inner_ranks(cluster(gpus_per_domain=72.0), plan, plan.dp_shard, plan.tp)[0] == 8.0
    assert group_links.inner_ranks(cluster(gpus_per_domain=64.0), plan, plan.dp_shard, plan.tp)[0] == 16.0


def test_a_share_that_cuts_a_group_is_named():
    warnings = sentences(estimates(gpus=2048, tp=8, vpp=10, pp=4, gpus_per_domain=60).row()["warnings"])
    assert [w for w in warnings if "cut" in w] == [
        "tensor-parallel groups of 8 accelerators fit a domain but are cut by its edge: the job takes 60 of each domain;"
        " --gpus-per-domain 72 keeps them whole"
    ]


@pytest.mark.parametrize(("given", "words"), [(62, "whole trays of 4.*give 60 or 64"), (76, "at most 72"), (2, "give 4")])
def test_a_share_is_whole_trays_of_a_domain(given, words):
    with pytest.raises(ValueRangeError, match=words):
        estimates(gpus=2048, gpus_per_domain=given)


def test_a_node_gives_single_accelerators_if_asked():
    """tp 3 does not tile nodes of 8: six of each keep its groups whole."""
    cut = placement(cluster("h100-sxm"), plan_with(gpus=column(48), tp=column(3), dp_shard=column(16)))
    asked = placement(cluster("h100-sxm", gpus_per_domain=6.0), plan_with(gpus=column(48), tp=column(3), dp_shard=column(16)))
    assert (int(cut.whole(np.array([3]))[0]), int(asked.whole(np.array([3]))[0])) == (1, 3)
    assert int(asked.domains[0]) == 8


def test_the_page_states_the_placement(ask):
    said = ask("estimate", "llama-3-70b", "--on", "gb200", "--gpus", "2048")[1]
    assert "placement: 64 of 72 accelerators of each of 32 NVLink domains; 256 of 2,304 GPUs in these racks are left for other jobs" in said
    assert "placement:" not in ask("estimate", "llama-3-70b", "--on", "h100-sxm", "--gpus", "512")[1]
    explained = ask("estimate", "llama-3-70b", "--on", "gb200", "--gpus", "2048", "--explain", "accelerators per domain")[1]
    assert "accelerators per domain: 64" in explained and "tray = 4" in explained


VERBS = {
    "estimate": (), "plan": ("--global-batch-size", "2000", "--fix", "tp=8"), "compare": (), "solve": ("--tokens", "1T"),
    "money": ("--tokens", "1T"), "goodput": ("--tokens", "1T"), "sweep": ("--tokens", "1T"), "optimize": (),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("on", ["gb200", "h100-sxm"])
def test_every_verb_answers_2000_accelerators(ask, verb, on):
    status, out, err = ask(verb, "llama-3-70b", "--on", on, "--gpus", "2000", *VERBS[verb], "--json")
    assert status == 0, err
    assert "cut by its edge" not in out
    assert json.loads(out)["schema_version"] == 2


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "plan"])
def test_every_verb_takes_a_share(ask, verb):
    """40 of 72 instead of 64: what is sent between racks uses fewer rails, and the answer says what was given."""
    asked = (verb, "llama-3-70b", "--on", "gb200", "--gpus", "2048", *VERBS[verb], "--json")
    status, usual, _ = ask(*asked)
    fewer = ask(*asked, "--gpus-per-domain", "40")
    assert (status, fewer[0]) == (0, 0), fewer[2]
    assert fewer[1] != usual
    refused = ask(*asked, "--gpus-per-domain", "42")
    assert refused[0] > 0
    assert "give 40 or 44" in refused[1] + refused[2] or verb == "solve"  # which says that no plan of the question is predicted


def test_trays_of_the_catalogue_divide_their_domains():
    for name in load.names("nodes"):
        node = load.record("nodes", name)
        domain, tray = int(node.scale_up_size.value), int(node.accelerators.value)
        assert domain % math.gcd(domain, tray) == 0 and (domain % tray == 0 or tray > domain), name


# slices of a torus


def warned(**asked):
    return [w for w in sentences(ironlaw.estimate("llama-3-8b", **asked).row()["warnings"]) if "chips" in w]


def test_slices_by_the_shapes_of_their_vendor():
    v5e, v5p = (load.record("nodes", name) for name in ("tpu-v5e-pod", "tpu-v5p-pod"))
    assert slices_of(v5e) == (1, 4, 8, 16, 32, 64, 128, 256)
    assert slices_of(v5p)[:7] == (4, 8, 16, 32, 64, 128, 192)
    assert slices_of(v5p)[-1] == 8960
    assert slices_of(load.record("nodes", "dgx-h100")) == ()
    assert (nearest_slices(v5e, 192), nearest_slices(v5p, 1000), nearest_slices(v5p, 960)) == ((128, 256), (960, 1024), ())


def test_a_count_that_is_no_slice_is_told_the_nearest():
    assert warned(on="tpu-v5p", gpus=1000) == [
        "1,000 chips are no slice of tpu-v5p-pod, the nearest are 960 and 1,024: links of a slice are assumed all the same"
    ]
    assert warned(on="tpu-v5p", gpus=1024) == warned(on="tpu-v5e", gpus=512) == warned(on="h100-sxm", gpus=1000) == []
    assert warned(on="tpu-v5e", gpus=1000) == ["1,000 chips are 125 slices of 8: 768 or 1,024 fill whole pods"]


@pytest.mark.parametrize(("gpus", "share"), [(256, 256), (384, 128), (512, 256), (1280, 256), (320, 64)])
def test_a_job_on_several_pods_takes_equal_slices(gpus, share):
    placed = ironlaw.estimate("llama-3-8b", on="tpu-v5e", gpus=gpus).row()["placement"]
    assert (placed["gpus_per_domain"], placed["domains"]) == (share, gpus // share)


# bridges


def test_a_pair_uses_its_bridge_and_a_larger_group_does_not():
    """Two A100 PCIe have 300 GB/s over bridges and 32 GB/s without; the fitted share of the rate is the same, so the ratio shows."""
    plain, bridged = cluster("a100-pcie-80gb"), cluster("a100-pcie-80gb", node="a100-pcie-8-bridged")
    plan = plan_with(gpus=column([8.0, 8.0]), tp=column([2.0, 4.0]), dp_shard=column([4.0, 2.0]))
    rates = [group_links.collective(c, plan, "", "all_reduce", plan.tp, 1e9, 1.0).inputs["inner_rate"] for c in (plain, bridged)]
    assert rates[0].value == 32e9
    assert rates[1].tolist() == [300e9, 32e9]
    data = group_links.collective(bridged, plan, "", "all_reduce", plan.dp_shard, 1e9, plan.tp)
    assert np.all(data.inputs["inner_rate"] == 32e9), "ranks that are two apart share no bridge"
    pair = plan_with(gpus=column(2.0), pp=column(2.0))
    hop = {c.node.name: float(group_links.point_to_point(c, pair, "", 1e9, pair.pp, 1.0).value[0]) for c in (plain, bridged)}
    assert hop["a100-pcie-8-bridged"] < hop["a100-pcie-8"] / 5.0


def test_bridges_never_slow_a_plan_and_make_tp_2_faster():
    asked = {"on": "a100-pcie-80gb", "gpus": 8, "zero": 1, "pp": 1, "micro_batch_size": 1, "recompute": "full"}
    for tp in (1, 2, 4):
        plain, bridged = (
            ironlaw.estimate("llama-3-8b", **asked, tp=tp, node=node, framework="megatron").step_seconds[0]
            for node in ("a100-pcie-8", "a100-pcie-8-bridged")
        )
        assert bridged < plain if tp == 2 else bridged == plain
