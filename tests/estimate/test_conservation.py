"""What no plan may change: FLOPs of a step, bytes of the states, and what every answer must be made of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import ironlaw
from ironlaw.catalog import load
from ironlaw.errors import IronlawError
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.layer.counts import matmul_parameters, stage_common, stage_routed
from ironlaw.estimate.layer.kinds import kinds, sized
from ironlaw.estimate.layer.trained import stage_trained
from ironlaw.estimate.network import sharding
from ironlaw.estimate.step.rates import beside_sequence
from ironlaw.terms import BOUNDS
from made_recipes import recipe_with_wide_products

MODELS, DEVICES = load.names("models"), load.names("accelerators")
SQUARE = ("flash attention", "attention batched gemms", "index scores", "state scan", "selective scan")  # these grow with the sequence


def copied(model, tp: int) -> float:
    """Share of the FLOPs that tensor-parallel ranks compute more than once: indexers, and what makes the decays of Kimi Delta Attention."""
    weights, hidden = 0.0, float(model.hidden_size)
    for kind in kinds(model):
        m = sized(model, kind)
        if m.index_topk and kind.mixer.attends:
            queries = m.q_lora_rank or hidden
            keys = 4.0 if m.o_lora_rank else 1.0  # a compressor has values and scores of two windows
            of_layer = (
                m.index_n_heads * (queries * m.index_head_dim + (hidden if m.q_lora_rank else 0.0)) + keys * hidden * m.index_head_dim
            )
            weights += kind.count * of_layer * (m.index_layers / m.num_hidden_layers if m.index_layers else 1.0)
        if kind.mixer.name == "kda":
            weights += kind.count * hidden * (m.linear_key_head_dim + m.linear_gate_rank)
    return (tp - 1) * weights / float(matmul_parameters(model))


def one(value) -> float:
    return float(np.ravel(value)[0])


def flops(term, times: float = 1.0) -> float:
    """FLOPs of the matrix products below a node, every repetition counted."""
    times = times * one(term.times)
    if term.parts:
        return sum(flops(part, times) for part in term.parts)
    return times * one(term.inputs["flop"]) if "flop" in term.inputs and term.name not in SQUARE else 0.0


def weights_flop(group) -> float:
    """FLOPs of the matrices for a token of the sequence: 6 a parameter, and those of an encoder and of what reads it."""
    beside = beside_sequence(group.job, group.plan)
    extra = 0.0
    for part in () if beside is None else beside.parts:
        inputs = part.parts[0].inputs
        extra += one(part.times) * one(inputs["tokens"]) * 2.0 * one(inputs["weights"])
    return 6.0 * one(matmul_parameters(group.job.model)) + extra


def held(model: str, **mesh):
    tp, cp, shard, replicas = (mesh.get(name, 1) for name in ("tp", "cp", "dp_shard", "dp_replicate"))
    asked = {
        "on": "h100-sxm", "gpus": tp * cp * shard * replicas, "pp": 1, "micro_batch_size": 4, "global_batch_size": 4 * shard * replicas,
        "seq_len": 8192, "recompute": "none", "framework": "megatron",
    }  # fmt: skip
    answer = ironlaw.estimate(model, **{**asked, **mesh})
    return answer.groups[0] if answer.legal[0] else None


MESHES = (
    {"ep": 1, "dp_shard": 8, "zero": 3}, {"tp": 2, "ep": 1, "dp_shard": 4, "zero": 1},
    {"tp": 2, "cp": 2, "ep": 4, "dp_shard": 4, "zero": 1},
    {"tp": 4, "cp": 1, "ep": 8, "dp_shard": 4, "dp_replicate": 2, "zero": 2}, {"tp": 2, "ep": 4, "etp": 2, "dp_shard": 8, "zero": 3},
    {"ep": 1, "dp_shard": 1, "dp_replicate": 8, "zero": 0},
)  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_a_plan_neither_makes_nor_loses_flops_or_states(model):
    """6 FLOP a parameter and token, summed over ranks, micro-batches, layers and experts; and every Adam state once a replica.

    More FLOPs only where kv heads, indexers or decays are copied to tensor-parallel ranks or an expert's rows are filled up to whole tiles
    of 128; more states only where norms and routers are whole on every tensor-parallel rank.
    """
    found = 0
    for mesh in MESHES:
        group = held(model, **mesh)
        if group is None:
            continue
        found += 1
        gpus, tokens = one(group.plan.gpus), one(group.plan.global_batch_size * group.plan.seq_len)
        computed = flops(group.step.tree) * gpus / (weights_flop(group) * tokens)
        more = copied(group.job.model, mesh.get("tp", 1))
        experts = group.job.model.num_experts  # of 896 experts each has few rows, so that tiles fill up more
        assert 0.999 + more < computed < (1.2 if experts > 512 else 1.1 if experts else 1.02) + more, mesh
        (stage,) = group.step.pace.classes
        parameters = one(stage_common(group.job.model, stage) + stage_routed(group.job.model, stage))
        kept = one(group.memory.tree["optimizer states"].value) / 8.0 * gpus / mesh.get("dp_replicate", 1)
        assert kept / parameters == pytest.approx(1.0, abs=0.02), mesh
    assert found


@pytest.mark.parametrize("model", ["mixtral-8x7b", "deepseek-v2-lite", "qwen-3-next-80b-a3b", "nemotron-h-8b", "gpt-oss-20b"])
def test_a_recipe_with_wide_products_is_bf16_in_every_architecture(model, tmp_path):
    mesh = {"on": "h100-sxm", "gpus": 32, "pp": 2, "tp": 2, "zero": 1, "vpp": 1, "global_batch_size": 64, "micro_batch_size": 1}
    mesh |= {"seq_len": 4096, "recompute": "none", "framework": "megatron", "catalog": str(recipe_with_wide_products(tmp_path))}
    made = [ironlaw.estimate(model, **mesh, precision=precision) for precision in ("bf16", "alike")]
    assert made[0].step_seconds[0] == made[1].step_seconds[0]
    assert made[0].device_bytes[0] == made[1].device_bytes[0]


@st.composite
def questions(draw):
    tp, pp, cp, dp, replicas = (
        draw(st.sampled_from(values)) for values in ((1, 1, 2, 4, 8), (1, 1, 2, 4, 8), (1, 1, 2), (1, 2, 8), (1, 1, 2))
    )
    zero = draw(st.sampled_from((0, 1, 2, 3)))
    dp, replicas = (1, dp * replicas) if zero == 0 else (dp, replicas)
    micro, turns = draw(st.sampled_from((1, 2))), draw(st.sampled_from((1, 2, 4)))
    schedule = draw(st.sampled_from(("1f1b", "gpipe", "zero-bubble", "dualpipe", "interleaved")))
    return draw(st.sampled_from(MODELS)), {
        "on": draw(st.sampled_from(DEVICES)), "gpus": tp * pp * cp * dp * replicas, "tp": tp, "pp": pp, "cp": cp, "dp_shard": dp,
        "dp_replicate": replicas, "zero": zero, "ep": draw(st.sampled_from((1, 1, 4))), "micro_batch_size": micro,
        "vpp": draw(st.sampled_from((1, 2))) if schedule == "interleaved" and pp > 1 else 1, "schedule": schedule,
        "global_batch_size": micro * turns * 2 * pp * dp * replicas, "seq_len": draw(st.sampled_from((2048, 8192))),
        "recompute": draw(st.sampled_from(("none", "full", "selective", "every:2", "share:0.3", "selective:half-linear"))),
        "framework": draw(st.sampled_from(("megatron", "fsdp", "maxtext", "torchtitan"))),
        "overlap": draw(st.sampled_from(("none", "all", "grad-reduce,param-gather,pp"))),
        "sp": draw(st.sampled_from(("on", "off"))), "cp_method": draw(st.sampled_from(("ring", "all-to-all"))),
    }  # fmt: skip


@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(questions())
def test_every_answer_hangs_together(question):
    """Any model on any device by any legal plan: finite parts, shares of one, a named bound, a band around, alike alone and in a column."""
    model, plan = question
    try:
        answer = ironlaw.estimate(model, **plan)
    except IronlawError as error:
        assert "\n" not in str(error) and error.exit_status in (2, 3)
        return
    assume(answer.legal[0])
    group, row = answer.groups[0], answer.row()
    for tree in (group.step.tree, group.memory.tree):
        for term in tree.walk():
            assert np.isfinite(term.value).all() and (np.asarray(term.value) >= 0.0).all(), term.name
            parts = sum(one(part.value) for part in term.parts) * one(term.times)
            assert not term.parts or one(term.value) == pytest.approx(parts, rel=1e-9), term.name
    shares = row["bound"]["shares"]
    assert sum(shares.values()) == pytest.approx(1.0) and min(shares.values()) >= 0.0
    assert row["bound"]["by"] in BOUNDS and shares[row["bound"]["by"]] == max(shares.values())
    for part, value in ((row["step"], row["step"]["seconds"]), (row["memory"], row["memory"]["device"])):
        assert part["band"] is None or part["band"][0] < value < part["band"][1]
    pair = ironlaw.estimate(model, **{**plan, "recompute": ["none", plan["recompute"]], "micro_batch_size": [1, plan["micro_batch_size"]]})
    assert (pair.step_seconds[1], pair.device_bytes[1]) == (answer.step_seconds[0], answer.device_bytes[0])
    nic = one(group_links.nic_rate(group.cluster).value)
    wider = ironlaw.estimate(model, **plan, nic_bandwidth=f"{2.0 * nic:.17g}B/s")
    assert wider.step_seconds[0] <= answer.step_seconds[0] * (1.0 + 1e-12)
    if plan["pp"] == 1:
        plain = ironlaw.estimate(model, **{**plan, "schedule": "1f1b", "vpp": 1})
        assert (plain.step_seconds[0], plain.device_bytes[0]) == (answer.step_seconds[0], answer.device_bytes[0])


TYPES = [("fp32", None, 4), ("tf32", None, 4), ("fp32", "bf16", 2), ("bf16", "fp32", 4), ("bf16", "bf16", 2)]


@pytest.mark.parametrize(
    ("framework", "precision", "dtype", "size"),
    [
        (framework, *types)
        for framework in load.names("frameworks")
        for types in TYPES
        if framework != "maxtext" or types[0] == "bf16"  # it runs on TPUs alone, and they multiply no wide numbers
    ],
)
def test_gradients_are_held_and_reduced_in_one_type(framework, precision, dtype, size):
    """Of wide weights as wide, whatever a framework does in 2 bytes, and as ``--gradient-dtype`` says where it is given."""
    on = "tpu-v5p" if framework == "maxtext" else "a100-sxm-80gb"
    asked = {"on": on, "gpus": 8, "dp_shard": 1, "zero": 0, "tp": 1, "pp": 1, "ep": 1, "micro_batch_size": 1}
    asked |= {"global_batch_size": 8, "seq_len": 2048, "recompute": "none", "framework": framework}
    (group,) = ironlaw.estimate("llama-3-8b", **asked, precision=precision, **({"gradient_dtype": dtype} if dtype else {})).groups
    parameters = one(group.memory.tree["gradients"].inputs["parameters"])
    held = group.memory.tree["gradients"]
    assert one(held.inputs["bytes_per_parameter"]) * one(held.inputs["parameters"]) == size * parameters
    assert one(held.value) in (size * parameters, 0.0)  # 0 where the fullest moment of the step comes before gradients exist
    common, routed = stage_trained(group.job, group.step.pace.classes[0])
    (_, (whole,)) = sharding.reductions(group.job, group.cluster, group.plan, common, routed)[1]
    assert one(whole.inputs["size"]) == pytest.approx(size * parameters, rel=1e-6)
