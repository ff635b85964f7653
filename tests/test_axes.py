"""Every parallel axis against every thing it may shard: what doubling the axis does to a rank's share.

The table must hold every pair; a new axis in ``plan.AXES`` fails here until each of its pairs is decided.
"""

from __future__ import annotations

import numpy as np
import pytest

import ironlaw
from ironlaw.plan import AXES

SHAPE = {
    "hidden_size": 2048, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 64,
    "intermediate_size": 8192, "vocab_size": 32000, "gated_mlp": True, "num_experts": 64, "num_experts_per_tok": 4,
    "moe_intermediate_size": 1024, "tie_word_embeddings": False,
}  # fmt: skip
BASE = {
    "tp": 2, "pp": 2, "vpp": 2, "cp": 2, "ep": 4, "etp": 1, "dp_replicate": 2, "dp_shard": 4, "zero": 1, "micro_batch_size": 2,
    "global_batch_size": 1024, "seq_len": 8192, "recompute": "none", "precision": "bf16", "framework": "megatron",
}  # fmt: skip
HALF, SAME, DOUBLE = 0.5, 1.0, 2.0

# what doubling the axis does to one rank's share of the thing, everything else held
TABLE = {
    "tp": {
        "weights": HALF, "gradients": HALF, "states": HALF, "experts": SAME, "expert states": HALF, "activations": HALF,
        "sequence": SAME, "layers": SAME, "flops": HALF, "expert flops": HALF, "micro-batches": SAME, "collectives": "tensor parallel",
    },
    "pp": {
        "weights": HALF, "gradients": HALF, "states": HALF, "experts": HALF, "expert states": HALF, "activations": SAME,
        "sequence": SAME, "layers": HALF, "flops": SAME, "expert flops": SAME, "micro-batches": SAME, "collectives": "pipeline bubble",
    },
    "vpp": {
        "weights": SAME, "gradients": SAME, "states": SAME, "experts": SAME, "expert states": SAME, "activations": SAME,
        "sequence": SAME, "layers": SAME, "flops": SAME, "expert flops": SAME, "micro-batches": SAME, "collectives": "pipeline bubble",
    },
    "cp": {
        "weights": SAME, "gradients": SAME, "states": HALF, "experts": SAME, "expert states": HALF, "activations": HALF,
        "sequence": HALF, "layers": SAME, "flops": HALF, "expert flops": HALF, "micro-batches": SAME, "collectives": "context parallel",
    },
    "ep": {
        "weights": SAME, "gradients": SAME, "states": SAME, "experts": HALF, "expert states": SAME, "activations": SAME,
        "sequence": SAME, "layers": SAME, "flops": SAME, "expert flops": SAME, "micro-batches": SAME, "collectives": "expert parallel",
    },
    "etp": {
        "weights": SAME, "gradients": SAME, "states": SAME, "experts": HALF, "expert states": SAME, "activations": SAME,
        "sequence": SAME, "layers": SAME, "flops": SAME, "expert flops": SAME, "micro-batches": SAME, "collectives": "expert parallel",
    },
    "dp_replicate": {
        "weights": SAME, "gradients": SAME, "states": SAME, "experts": SAME, "expert states": SAME, "activations": SAME,
        "sequence": SAME, "layers": SAME, "flops": SAME, "expert flops": SAME, "micro-batches": HALF,
        "collectives": "exposed gradient reduction",
    },
    "dp_shard": {
        "weights": SAME, "gradients": SAME, "states": HALF, "experts": SAME, "expert states": HALF, "activations": SAME,
        "sequence": SAME, "layers": SAME, "flops": SAME, "expert flops": SAME, "micro-batches": HALF,
        "collectives": "exposed gradient reduction",
    },
}  # fmt: skip
THINGS = tuple(TABLE["tp"])
INSIDE = ("vpp", "ep", "etp")  # axes that divide ranks already there


def measure(**changes) -> dict[str, float]:
    plan = {**BASE, **changes}
    gpus = plan["tp"] * plan["pp"] * plan["cp"] * plan["dp_replicate"] * plan["dp_shard"]
    answer = ironlaw.estimate(SHAPE, on="h100-sxm", gpus=gpus, overlap="none", **plan)
    assert answer.legal[0], answer.row()["warnings"]
    (group,) = answer.groups
    memory, step = group.memory.tree, group.step.tree
    (saved,) = (t for t in memory.walk() if t.name.startswith("saved "))

    def held(name: str, part: int) -> float:
        return float(memory[name].parts[part].value[0])

    experts_in = step["experts in gemm"]
    return {
        "weights": held("weights", 0),
        "gradients": held("gradients", 0),
        "states": held("optimizer states", 0),
        "experts": held("weights", 1),
        "expert states": held("optimizer states", 1),
        "activations": float(saved["attention"].value[0]),
        "sequence": float(group.plan.tokens[0]),
        "layers": float(np.ravel(group.step.pace.of(lambda stage: stage.layers))[0]),
        "flops": float(step["query-key-value gemm"].inputs["flop"][0]),
        "expert flops": float(np.ravel(experts_in.inputs["flop"])[0]),
        "micro-batches": float(group.plan.num_microbatches[0]),
        "network": {t.name: float(np.ravel(t.value)[0]) for t in step.walk()},
    }


def test_the_table_holds_every_pair():
    assert set(TABLE) == set(AXES)
    for axis in AXES:
        assert set(TABLE[axis]) == set(THINGS), axis


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("thing", [t for t in THINGS if t != "collectives"])
def test_doubling_an_axis(axis, thing):
    before, after = measure(), measure(**{axis: 2 * BASE[axis]})
    expected = TABLE[axis][thing]
    # the end stages' embedding does not halve with pp; norms and router stay whole with tp
    loose = {"pp": 0.25, "tp": 0.02}.get(axis, 1e-9) if thing in ("weights", "gradients", "states") else 1e-9
    assert after[thing] / before[thing] == pytest.approx(expected, rel=loose), (before[thing], after[thing])


@pytest.mark.parametrize("axis", AXES)
def test_an_axis_pays_its_collectives(axis):
    """The term named in the table is zero with the axis at 1 (but for vpp, which shortens it) and not with it at 2."""
    name = TABLE[axis]["collectives"]
    alone = {"vpp": 1, axis: 1} | ({"ep": 1} if axis == "etp" else {"etp": 1})
    if axis in ("dp_replicate", "dp_shard"):
        alone |= {"dp_replicate": 1, "dp_shard": 1, "tp": 1, "cp": 1, "ep": 1, "zero": 0 if axis == "dp_replicate" else 1}
        grown = {**alone, axis: 4}
    else:
        grown = {**alone, axis: 2}
    without, having = measure(**alone)["network"][name], measure(**grown)["network"][name]
    if axis == "vpp":
        assert 0.0 < having < without
    else:
        assert without == 0.0 < having


def test_gradients_and_weights_are_sharded_from_their_zero_stage_on():
    for stage, thing in ((2, "gradients"), (3, "weights")):
        plan = {"zero": stage, "pp": 1, "vpp": 1}
        halves = measure(**plan, dp_shard=8)[thing] / measure(**plan, dp_shard=4)[thing]
        assert halves == pytest.approx(0.5)
