"""Every parallel axis against every thing it may shard: what doubling the axis does to a rank's share.

The tables must hold every pair; a new axis in ``plan.AXES``, or a new column of ``Plan``, fails here until each of its pairs is decided.
"""

from __future__ import annotations

import numpy as np
import pytest

import ironlaw
from ironlaw.cautions.record import sentences
from ironlaw.estimate.layer import experts
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.layer.trained import stage_trained
from ironlaw.estimate.network import context, sharding, tensor
from ironlaw.estimate.pipeline import hand_overs
from ironlaw.estimate.step import step
from ironlaw.plan import AXES, RECOMPUTE_MODULES, Plan

SHAPE = {
    "hidden_size": 2048, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 64,
    "intermediate_size": 8192, "vocab_size": 32000, "gated_mlp": True, "num_experts": 64, "num_experts_per_tok": 4,
    "moe_intermediate_size": 1024, "tie_word_embeddings": False,
}  # fmt: skip
BASE = {
    "tp": 2, "pp": 2, "vpp": 2, "cp": 2, "ep": 4, "etp": 1, "dp_replicate": 2, "dp_shard": 4, "zero": 1, "micro_batch_size": 2,
    "global_batch_size": 1024, "seq_len": 8192, "recompute": "none", "precision": "bf16", "framework": "generic",
}  # fmt: skip
HALF, SAME, DOUBLE = 0.5, 1.0, 2.0

# what a rank holds, computes and sends, and among how many ranks
HELD = ("weights", "gradients", "master weights", "optimizer states")
HELD_BY_EXPERTS = tuple(f"{name}, experts" for name in HELD)
KEPT = ("attention activations", "norm activations", "expert activations", "logits")
WORK = ("sequence", "layers", "flops", "head flops", "expert flops", "norm traffic", "optimizer traffic", "micro-batches")
SENT = (
    "tensor bytes",
    "ring bytes",
    "hand-over bytes",
    "all-to-all bytes",
    "gradient bytes",
    "expert gradient bytes",
    "whole gradients",
    "whole expert gradients",
)
AMONG = ("tensor ranks", "ring ranks", "all-to-all ranks", "gradient ranks", "replicas", "expert gradient ranks", "expert replicas")
THINGS = (*HELD, *HELD_BY_EXPERTS, *KEPT, *WORK, *SENT, *AMONG)


EXPERT_STATES = {"master weights, experts": HALF, "optimizer states, experts": HALF}  # ZeRO-1 spreads both
EXPERT_WEIGHTS = {"weights, experts": HALF, "gradients, experts": HALF}


def all_same_but(**changed: float) -> dict[str, float]:
    """A row of the table: every thing decided, those not named stay the same."""
    named = {name.replace("_", " ").replace("micro batches", "micro-batches"): value for name, value in changed.items()}
    named = {name.replace("hand over", "hand-over").replace("all to all", "all-to-all"): value for name, value in named.items()}
    assert set(named) <= set(THINGS), set(named) - set(THINGS)
    return dict.fromkeys(THINGS, SAME) | named


# what doubling the axis does to one rank's share of the thing, everything else held
TABLE = {
    "tp": all_same_but(
        weights=HALF, gradients=HALF, master_weights=HALF, optimizer_states=HALF, attention_activations=HALF, norm_activations=HALF,
        expert_activations=HALF, logits=HALF, flops=HALF, head_flops=HALF, expert_flops=HALF, ring_bytes=HALF, hand_over_bytes=HALF,
        all_to_all_bytes=HALF, gradient_bytes=HALF, whole_gradients=HALF, norm_traffic=HALF, optimizer_traffic=HALF,
        tensor_ranks=DOUBLE, expert_gradient_ranks=DOUBLE,
    ) | EXPERT_STATES,
    "pp": all_same_but(
        weights=HALF, gradients=HALF, master_weights=HALF, optimizer_states=HALF, layers=HALF, gradient_bytes=HALF,
        expert_gradient_bytes=HALF, whole_gradients=HALF, whole_expert_gradients=HALF, optimizer_traffic=HALF,
    ) | EXPERT_STATES | EXPERT_WEIGHTS,
    "vpp": all_same_but(),
    "cp": all_same_but(
        master_weights=HALF, optimizer_states=HALF, attention_activations=HALF, norm_activations=HALF, expert_activations=HALF,
        logits=HALF, sequence=HALF, flops=HALF, head_flops=HALF, expert_flops=HALF, tensor_bytes=HALF, ring_bytes=HALF,
        hand_over_bytes=HALF, all_to_all_bytes=HALF, norm_traffic=HALF, optimizer_traffic=HALF,
        ring_ranks=DOUBLE, gradient_ranks=DOUBLE, expert_gradient_ranks=DOUBLE,
    ) | EXPERT_STATES,
    "ep": all_same_but(all_to_all_ranks=DOUBLE, expert_gradient_ranks=HALF, expert_gradient_bytes=HALF, whole_expert_gradients=HALF)
    | EXPERT_WEIGHTS,
    "etp": all_same_but(expert_gradient_ranks=HALF, expert_gradient_bytes=HALF, whole_expert_gradients=HALF)
    | EXPERT_WEIGHTS,
    "dp_replicate": all_same_but(micro_batches=HALF, replicas=DOUBLE, expert_replicas=DOUBLE),
    "dp_shard": all_same_but(
        master_weights=HALF, optimizer_states=HALF, micro_batches=HALF, optimizer_traffic=HALF, gradient_ranks=DOUBLE,
        expert_gradient_ranks=DOUBLE,
    ) | EXPERT_STATES,
}  # fmt: skip

# switches: what one setting does against another, as a ratio; 8 ranks share a shard, 2 of them by context parallel; of experts 4
SHARD, EXPERT_SHARD = 1 / 8, 1 / 4
SWITCHES = {
    ("sp", 0, 1): all_same_but(norm_activations=HALF, norm_traffic=HALF),
    ("zero", 1, 2): all_same_but(gradients=SHARD) | {"gradients, experts": EXPERT_SHARD},
    ("zero", 2, 3): all_same_but(weights=SHARD) | {"weights, experts": EXPERT_SHARD},
}
PAYS = {
    "tp": "tensor parallel", "pp": "pipeline bubble", "vpp": "pipeline bubble", "cp": "context parallel", "ep": "expert parallel",
    "etp": "expert parallel", "dp_replicate": "exposed gradient reduction", "dp_shard": "exposed gradient reduction",
}  # fmt: skip
# columns of a plan that are no way of dividing it over ranks
NO_AXES = {
    "gpus", "micro_batch_size", "global_batch_size", "seq_len", "recompute_layers", "recompute_attention", "recompute_linear",
    "recompute_elementwise", "overlap_grad_reduce", "overlap_param_gather", "overlap_tp", "overlap_pp", "offload_optimizer",
    "offload_activations", "offload_parameters", "offload_nvme", "overlap_ep", "first_stage_layers",
    "last_stage_layers", "recompute_segment", *RECOMPUTE_MODULES.values(),
}  # fmt: skip


def one(value) -> float:
    return float(np.ravel(getattr(value, "value", value))[0])


def ask(**changes):
    plan = {**BASE, **changes}
    gpus = plan["tp"] * plan["pp"] * plan["cp"] * plan["dp_replicate"] * plan["dp_shard"]
    answer = ironlaw.estimate(SHAPE, on="h100-sxm", gpus=gpus, overlap="none", **plan)
    assert answer.legal[0], sentences(answer.row()["warnings"])
    return answer.groups[0]


def measure(**changes) -> dict[str, float]:
    group = ask(**changes)
    memory, timed, plan, job, cluster = group.memory.tree, group.step.tree, group.plan, group.job, group.cluster
    (saved,) = (t for t in memory.walk() if t.name.startswith("saved "))
    shapes = Shapes.of(job, plan)
    (scattered, whole, replicated) = sharding.reductions(job, cluster, plan, *stage_trained(job, group.step.pace.classes[0]))
    exchanged = experts.communication(cluster, job, plan, shapes).combine
    summed = tensor.collectives(cluster, job, plan, shapes)["all-reduce"]
    ring = context.ring(cluster, job, plan, shapes)

    def ranks(term) -> float:
        return one(term.inputs.get("inner_ranks", 1.0)) * one(term.inputs.get("outer_ranks", 1.0))  # a rank alone sends nothing

    held = {name: memory[name].parts for name in HELD}
    return {
        **{name: one(parts[0].value) for name, parts in held.items()},
        **{f"{name}, experts": one(parts[1].value) for name, parts in held.items()},
        "attention activations": one(saved["attention"].value),
        "norm activations": one(saved["norms and residuals"].value),
        "expert activations": one(saved["experts"].value),
        "logits": max(one(t["logits"].value) for t in group.memory.trees),
        "sequence": one(plan.tokens),
        "layers": one(group.step.pace.of(lambda stage: stage.layers)),
        "flops": one(timed["query-key-value gemm"].inputs["flop"]),
        "head flops": one(step.head_term(job, cluster, plan, shapes)["output gemm"].inputs["flop"]),
        "expert flops": one(timed["experts in gemm"].inputs["flop"]),
        "norm traffic": one(timed["norms"].inputs["traffic"]),
        "optimizer traffic": one(timed["optimizer"].inputs["traffic"]),
        "micro-batches": one(plan.num_microbatches),
        "tensor bytes": one(summed.inputs["size"]),
        "ring bytes": one(ring.inputs["size"]),
        "hand-over bytes": one(hand_overs.hand_over(job, cluster, plan)["p2p"].inputs["size"]),
        "all-to-all bytes": one(exchanged.inputs["size"]),
        "gradient bytes": one(scattered[1][0].inputs["size"]),
        "expert gradient bytes": one(scattered[1][1].inputs["size"]),
        "whole gradients": one(whole[1][0].inputs["size"]),
        "whole expert gradients": one(whole[1][1].inputs["size"]),
        "tensor ranks": ranks(summed),
        "ring ranks": one(ring.inputs["n"]),
        "all-to-all ranks": ranks(exchanged),
        "gradient ranks": ranks(scattered[1][0]),
        "replicas": ranks(replicated[1][0]),
        "expert gradient ranks": ranks(scattered[1][1]),
        "expert replicas": ranks(replicated[1][1]),
    }


def check(before: dict[str, float], after: dict[str, float], expected: dict[str, float], loose: dict[str, float]) -> None:
    assert set(before) == set(expected) == set(THINGS)
    wrong = {
        thing: (before[thing], after[thing], ratio)
        for thing, ratio in expected.items()
        if after[thing] / before[thing] != pytest.approx(ratio, rel=loose.get(thing, 1e-9))
    }
    assert not wrong


def test_the_tables_hold_every_pair():
    assert set(TABLE) == set(PAYS) == set(AXES)
    for row in (*TABLE.values(), *SWITCHES.values()):
        assert set(row) == set(THINGS)
    switched = {name for name, *_ in SWITCHES}
    assert set(Plan.fields) == set(AXES) | switched | NO_AXES


@pytest.mark.parametrize("axis", AXES)
def test_doubling_an_axis(axis):
    # the end stages' tables do not halve with pp; norms and router stay whole with tp
    loose = dict.fromkeys((*HELD, "gradient bytes", "whole gradients", "optimizer traffic"), {"pp": 0.25, "tp": 0.02}.get(axis, 1e-9))
    check(measure(), measure(**{axis: 2 * BASE[axis]}), TABLE[axis], loose)


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda s: f"{s[0]} {s[1]} to {s[2]}")
def test_switching(switch):
    name, off, on = switch

    check(measure(**{name: off}), measure(**{name: on}), SWITCHES[switch], {})


def test_zero_1_spreads_states_over_shards_and_context_ranks():
    """Against ZeRO-0 on the same ranks: states alone are an eighth, those of experts a quarter; replicas become shards."""
    whole = measure(zero=0, dp_replicate=8, dp_shard=1)
    spread = measure(zero=1, dp_replicate=2, dp_shard=4)
    states = ("master weights", "optimizer states")
    expected = dict.fromkeys(THINGS, SAME)
    expected |= dict.fromkeys(states, SHARD) | dict.fromkeys((f"{name}, experts" for name in states), EXPERT_SHARD)
    expected |= {"gradient ranks": 8.0, "expert gradient ranks": 4.0, "replicas": 1 / 4, "expert replicas": 1 / 4}
    moved = spread["optimizer traffic"] / whole["optimizer traffic"]
    assert SHARD < moved < EXPERT_SHARD  # of both
    check(whole, spread, expected | {"optimizer traffic": moved}, {})


def test_experts_that_span_replicas_are_reduced_over_what_is_left():
    """tp 2, cp 2 and 4 shards are 16 ranks: 16 ways of experts leave the 2 replicas, 32 ways leave one copy and nothing to reduce."""
    for ep, replicas in ((8, 2.0), (16, 2.0), (32, 1.0)):
        found = measure(ep=ep)
        assert found["expert replicas"] == replicas
        assert found["expert gradient ranks"] == max(16 / ep, 1.0)


@pytest.mark.parametrize("axis", AXES)
def test_an_axis_pays_its_collectives(axis):
    """The term named in the table is zero with the axis at 1 (but for vpp, which shortens it) and not with it at 2."""
    alone = {"vpp": 1, axis: 1} | ({"ep": 1} if axis == "etp" else {"etp": 1})
    if axis in ("dp_replicate", "dp_shard"):
        alone |= {"dp_replicate": 1, "dp_shard": 1, "tp": 1, "cp": 1, "ep": 1, "zero": 0 if axis == "dp_replicate" else 1}
        grown = {**alone, axis: 4}
    else:
        grown = {**alone, axis: 2}
    without, having = (one(ask(**plan).step.tree[PAYS[axis]].value) for plan in (alone, grown))
    if axis == "vpp":
        assert 0.0 < having < without
    else:
        assert without == 0.0 < having
