"""Pipeline stages of unlike length: what each holds, which one sets the pace, and which the search tries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.errors import QuestionError
from ironlaw.estimate.layer.kinds import kinds, layers_of
from ironlaw.estimate.pipeline.stages import stages
from ironlaw.estimate.planner.ends import RULE, balanced_rows, splits
from ironlaw.estimate.planner.grid import Task
from ironlaw.estimate.planner.mesh import COLUMNS, NO_ROWS, mesh_rows
from ironlaw.estimate.planner.space import ENDS, read_space
from ironlaw.launch.megatron.options import options_from_arguments
from ironlaw.launch.megatron.patterns import layers_by_stage, stage_flags
from ironlaw.search.answer import estimate_of

ASK = {
    "on": "h100-sxm", "framework": "megatron", "gpus": 32, "tp": 1, "pp": 4, "vpp": 1, "zero": 1, "micro_batch_size": 1,
    "global_batch_size": 64, "seq_len": 8192, "recompute": "none",
}  # fmt: skip


def group(model: Any = "llama-3-8b", **changes: Any) -> Any:
    (found,) = ironlaw.estimate(model, **{**ASK, **changes}).groups
    return found


def listed(**changes: Any) -> Any:
    return ironlaw.estimate("llama-3-8b", **{**ASK, **changes}).row()["plan"].get("layers_per_stage")


def test_given_ends_leave_the_rest_to_the_others():
    assert listed() is None  # by the rule nothing is said
    assert listed(last_stage_layers=5) == [9, 9, 9, 5]
    assert listed(last_stage_layers=6) == [8, 9, 9, 6]
    assert listed(first_stage_layers=5) == [5, 9, 9, 9]
    assert listed(first_stage_layers=7, last_stage_layers=7) == [7, 9, 9, 7]
    assert listed(pp=2, last_stage_layers=10) == [22, 10]
    assert listed(last_stage_layers=0) == [10, 11, 11, 0]  # the loss alone


@pytest.mark.parametrize("last", [5, 6, 7])
def test_a_given_end_is_the_explicit_list(last):
    layers = listed(last_stage_layers=last)
    one, other = group(last_stage_layers=last), group(layers_per_stage=layers)
    assert one.step.tree.value[0] == pytest.approx(other.step.tree.value[0], rel=1e-12)
    assert one.memory.device[0] == pytest.approx(other.memory.device[0], rel=1e-12)


def test_both_ends_counted_are_what_counting_embedding_makes_of_them():
    """(32 + 2) / 2 stages: 17 places each, one of them taken."""
    counted, given = group(pp=2, count_embedding=True), group(pp=2, first_stage_layers=16, last_stage_layers=16)
    assert counted.step.tree.value[0] == given.step.tree.value[0]
    assert counted.memory.device[0] == given.memory.device[0]


@pytest.mark.parametrize(
    "ends", [{"first_stage_layers": 30, "last_stage_layers": 4}, {"last_stage_layers": 30}, {"pp": 1, "last_stage_layers": 8}]
)
def test_ends_that_leave_no_layers_are_no_plan(ends):
    assert not ironlaw.estimate("llama-3-8b", **{**ASK, **ends}).legal[0]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"last_stage_layers": 5, "layers_per_stage": "9,9,9,5"}, "not both: both place layers"),
        ({"first_stage_layers": 5, "count_embedding": True}, "not both: both place layers"),
        ({"mtp_stage": 1}, "needs layers_per_stage"),
        ({"mtp_stage": 4, "layers_per_stage": "8,8,8,8"}, "must be one of its stages"),
    ],
)
def test_options_that_set_the_same_layers_are_refused(more, words):
    with pytest.raises(QuestionError, match=words):
        ironlaw.estimate("llama-3-8b", **{**ASK, **more})


# layers for further tokens


def test_layers_for_further_tokens_count_on_their_stage():
    """Two layers more of work and memory on their own stage, two heads more where the loss is."""
    lists = {"layers_per_stage": "9,9,8,6", "mtp_layers": 1}
    end, apart = group(**lists), group(**lists, mtp_stage=2)
    held = {name: [c.further[0] for c in stages(g.job, g.plan)] for name, g in (("end", end), ("apart", apart))}
    assert held == {"end": [0, 0, 0, 1], "apart": [0, 0, 1, 0]}
    # where the loss stage sets the pace, it is shorter by one layer; its two heads stay
    assert apart.step.tree.value[0] < end.step.tree.value[0]
    heads = [g.step.tree["output layer and loss"] for g in (end, apart)]
    assert [float(np.ravel(h.times)[0]) for h in heads if h.times is not None][:1] == [2.0]


def test_a_layout_places_layers_for_further_tokens():
    assert layers_by_stage("Ett|tt|ttm|tL", 4, 7) == ([2, 2, 2, 1], 1, 2)
    assert layers_by_stage("Ett|tt|tt|tmL", 4, 7) == ([2, 2, 2, 1], 1, 3)
    made, _ = options_from_arguments(MEGATRON | {"pipeline_model_parallel_layout": "Ett|tt|ttm|tL"}, gpus=8, on="h100-sxm")
    assert (made["layers_per_stage"], made["mtp_stage"]) == ([2, 2, 2, 1], 2)
    alone, _ = options_from_arguments(MEGATRON | {"pipeline_model_parallel_layout": "Ett|tt|tttm|L"}, gpus=8, on="h100-sxm")
    assert alone["layers_per_stage"] == [2, 2, 3, 0]
    assert ironlaw.estimate(**alone).legal[0]


MEGATRON = {
    "num_layers": 7, "hidden_size": 1024, "num_attention_heads": 16, "seq_length": 2048, "max_position_embeddings": 2048,
    "micro_batch_size": 1, "global_batch_size": 16, "vocab_size": 32000, "bf16": True, "pipeline_model_parallel_size": 4,
    "mtp_num_layers": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("layers", "vpp", "further"),
    [
        ([9, 9, 9, 5], 1, 0), ([5, 9, 9, 9], 1, 0), ([7, 9, 9, 7], 1, 1), ([22, 10], 1, 0), ([8, 9, 9, 6], 1, 1), ([10, 11, 11, 0], 1, 2),
        ([8, 10, 10, 4], 2, 0), ([4, 4, 4, 1], 2, 1), ([8, 8, 8, 8], 2, 0), ([8, 9, 9, 6], 3, 0),
    ],
)  # fmt: skip
def test_stage_flags_are_read_back(layers, vpp, further):
    flags = stage_flags(layers, vpp, further)
    given = MEGATRON | {"num_layers": sum(layers), "pipeline_model_parallel_size": len(layers), "mtp_num_layers": further}
    if vpp > 1:
        given["num_virtual_stages_per_pipeline_rank"] = vpp
    given |= dict(zip((f[2:].replace("-", "_") for f in flags[::2]), flags[1::2], strict=True))
    made, _ = options_from_arguments(given, gpus=8, on="h100-sxm")
    assert made.get("layers_per_stage", layers) == layers
    assert made["vpp"] == vpp
    assert bool(flags) == (len(set(layers)) > 1)


# DualPipe: a rank runs a stage from either end


DUAL = {"framework": "generic", "schedule": "dualpipe", "global_batch_size": 128}


def paired(**changes: Any) -> dict[str, float]:
    g = group(**{**DUAL, **changes})
    return {c.name: float(c.layers[0]) for c in stages(g.job, g.plan) if c.count[0] > 0}


def test_a_rank_of_dualpipe_runs_the_mean_of_its_two_stages():
    assert paired() == {"first and last": 8.0, "middle": 8.0}
    # 32 layers on 6 stages by the rule: 5 6 6 5 5 5; the ranks run 5 + 5, 6 + 5, 6 + 5
    assert paired(gpus=48, pp=6, global_batch_size=96) == {"first and last": 5.0, "longer middle and middle": 5.5}
    assert paired(layers_per_stage="10,8,8,6") == {"stage 0 and stage 3": 8.0, "stage 1 and stage 2": 8.0}


def test_stages_of_one_rank_even_out():
    """What the first has more the last has less: the pair is as fast as two equal stages, but while the pipeline fills and drains."""
    even, uneven = group(**DUAL, layers_per_stage="8,8,8,8"), group(**DUAL, layers_per_stage="10,8,8,6")
    assert even.step.tree["micro-batches"].value[0] == uneven.step.tree["micro-batches"].value[0]
    assert even.step.tree.value[0] == pytest.approx(uneven.step.tree.value[0], rel=0.01)
    assert group(**DUAL).step.tree.value[0] == pytest.approx(even.step.tree.value[0], rel=1e-12)


def test_unequal_pairs_wait_for_the_longest():
    even, uneven = group(**DUAL, layers_per_stage="8,8,8,8"), group(**DUAL, layers_per_stage="6,10,10,6")
    assert uneven.step.tree.value[0] > even.step.tree.value[0]


def test_dualpipe_counts_embedding_and_loss_half_on_their_rank():
    """Half of the micro-batches pass the loss on one rank, half on the other: the pair does the work of one stage with half a head."""
    tree = group(**DUAL, vpp=1).step.tree
    assert float(np.ravel(tree["embedding"].value)[0]) >= 0.0
    head = next(t for t in tree["micro-batches"].parts if t.name == "output layer and loss")
    assert float(np.ravel(head.times)[0]) in (0.0, 0.5)


def test_deepseek_v3_on_sixteen_stages_has_an_answer_of_pairs():
    g = group("deepseek-v3", **DUAL | {"on": "h800-sxm", "gpus": 2048, "pp": 16, "ep": 64, "global_batch_size": 15360, "seq_len": 4096})
    layers = {c.name: (float(c.layers[0]), float(c.count[0])) for c in stages(g.job, g.plan) if c.count[0] > 0}
    assert sum(n * count for n, count in layers.values()) == 61.0
    assert sum(count for _, count in layers.values()) == 16.0
    assert np.isfinite(g.step.tree.value[0])


@pytest.mark.parametrize("schedule", ["gpipe", "zero-bubble", "dualpipe"])
@pytest.mark.parametrize("model", ["llama-3-8b", "deepseek-v2-lite", "nemotron-h-8b"])
def test_schedules_agree_without_a_pipeline(model, schedule):
    alone = {"pp": 1, "gpus": 8, "global_batch_size": 8, "overlap": "grad-reduce", "moe_dispatcher": "alltoall"}
    plain, other = group(model, **alone), group(model, **alone, schedule=schedule)
    assert other.step.tree.value[0] == plain.step.tree.value[0]
    assert other.memory.device[0] == plain.memory.device[0]


# the search


def splits_of(model: str, pp: float, least: float, most: float, vpp: float = 1.0, **more: Any) -> list[Any]:
    """The splits that are tried where the last stage has the work of so many layers beside its own."""
    job = group(model, pp=1, gpus=8, global_batch_size=8, **more).job
    tried, wanted = splits(job, pp, np.array([vpp]), np.array([least]), np.array([most]), np.array([0.0]))
    return [tuple(one) for one in tried[wanted[0, 0]].tolist()]


def test_stages_are_balanced_where_the_last_one_is_slowest():
    # 32 layers on 4 and a loss of two layers: 9 8 8 7, or 7 on each of the two ends
    assert splits_of("llama-3-8b", 4.0, 2.0, 2.0) == [RULE, (7.0, 7.0), (-1.0, 7.0)]
    # a loss of up to four layers: 9 a stage, 5 on the last
    assert splits_of("llama-3-8b", 4.0, 2.0, 4.0) == [RULE, (7.0, 7.0), (-1.0, 7.0), (-1.0, 6.0), (-1.0, 5.0)]
    # 61 layers on 16 and a loss of three: fifteen stages of four, and one
    assert splits_of("deepseek-v3", 16.0, 3.0, 3.0) == [RULE, (-1.0, 1.0)]
    # with three chunks the last stage keeps two layers beside its loss
    assert splits_of("deepseek-v3", 16.0, 3.0, 3.0, vpp=3.0) == [RULE, (3.0, 2.0), (-1.0, 2.0)]
    # 96 layers on 8 with a head worth a third of a layer: 12 each already is best
    assert splits_of("gpt-3-175b", 8.0, 0.33, 0.33) == [RULE]


@pytest.mark.parametrize("work", [0.0, 0.4, 1.0, 1.7, 2.5, 5.0, 9.0])
@pytest.mark.parametrize(
    ("model", "pp"), [("llama-3-8b", 2.0), ("llama-3-8b", 4.0), ("llama-3-70b", 8.0), ("deepseek-v3", 16.0), ("gemma-3-4b", 6.0)]
)
def test_no_other_split_has_a_shorter_slowest_stage(model, pp, work):
    """Every number of layers of the last stage, the others sharing the rest as evenly as they can."""
    layers = load.record("models", model).num_hidden_layers
    shortest = min(max(np.ceil((layers - last) / (pp - 1)), last + work) for last in range(layers) if layers - last >= pp - 1)
    tried = splits_of(model, pp, work, work)
    base, longer = layers // pp, min(layers % pp, pp - 2)  # the middle stages have one more, the first what is left over
    even = max(base + (longer > 0), base + layers % pp - longer, base + work)
    paces = [max(np.ceil((layers - last) / (pp - 1)), last + work) for first, last in tried if first < 0.0 <= last]
    assert min([*paces, even]) == pytest.approx(shortest)


def test_given_stages_are_not_balanced():
    columns = {"pp": np.array([4.0])}
    assert balanced_rows(task_with(count_embedding=True), columns) is columns


def task_with(**more: Any) -> Any:
    g = group("llama-3-8b", pp=4, gpus=8, global_batch_size=8, **more)
    return Task(g.job, g.cluster, NO_ROWS, read_space(None), 8.0, 8192.0, 0.0)


def ends_by_mesh(task: Any, columns: dict[str, Any]) -> dict[Any, set[Any]]:
    """The splits that are tried for each mesh."""
    found: dict[Any, set[Any]] = {}
    for row in zip(*(balanced_rows(task, columns)[name].tolist() for name in COLUMNS), strict=True):
        found.setdefault(row[: -len(ENDS)], set()).add(row[-len(ENDS) :])
    return found


def test_the_splits_that_are_tried_depend_on_no_other_mesh_and_on_no_given_recomputation():
    job, space = group("deepseek-v2-lite").job, read_space(None).narrowed({"cp": 1.0})
    task = Task(job, group("deepseek-v2-lite").cluster, NO_ROWS, space, 64.0, 8192.0, 0.0)
    columns = mesh_rows(space, job, 32.0, 64.0, 8192.0).columns
    every = ends_by_mesh(task, columns)
    assert max(map(len, every.values())) > 2
    given = task.replace(space=space.narrowed({"recompute": "full"}), open_space=space)
    for row in np.random.default_rng(1).choice(np.flatnonzero(columns["pp"] > 1.0), 12):
        alone = ends_by_mesh(given, {name: column[[row]] for name, column in columns.items()})
        assert alone.items() <= every.items()


SEARCH = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 32, "global_batch_size": 64, "seq_len": 8192, "fix": "tp=1,pp=4,cp=1"}


def test_the_search_finds_balanced_stages_and_agrees_with_the_estimate():
    found = ironlaw.search(**SEARCH)
    choices = found.first(50)
    assert any(c.values["last_stage_layers"] >= 0 for c in choices)
    for ends in {c.values["last_stage_layers"] for c in choices}:
        alike = [c for c in choices if c.values["last_stage_layers"] == ends]
        answer = estimate_of(alike, ())
        np.testing.assert_array_equal(answer.step_seconds, [c.seconds for c in alike])
        np.testing.assert_array_equal(answer.device_bytes, [c.device for c in alike])
    mixed = estimate_of(choices, ())
    np.testing.assert_array_equal(mixed.step_seconds, [c.seconds for c in choices])


def test_a_balanced_space_is_never_slower_than_an_even_one(tmp_path):
    from pathlib import Path

    import ironlaw.estimate.planner.space as space

    text = (Path(space.__file__).parent / "spaces" / "default.toml").read_text(encoding="utf-8")
    balanced, even = tmp_path / "balanced.toml", tmp_path / "even.toml"
    balanced.write_text(text, encoding="utf-8")
    even.write_text(text.replace('last_stage_layers = "balanced"\n', ""), encoding="utf-8")
    for model in ("llama-3-8b", "gemma-3-4b"):
        question = {**SEARCH, "model": model}
        best, of_even = (ironlaw.search(**question, space=str(space)).first(1)[0].seconds for space in (balanced, even))
        assert best <= of_even


def test_a_fixed_stage_stays_fixed_in_a_search():
    found = ironlaw.search(**SEARCH, last_stage_layers=6)
    assert {c.values["last_stage_layers"] for c in found.first(20)} == {6.0}


@pytest.mark.parametrize("pp", [4, 8, 16, 31, 32, 61])
@pytest.mark.parametrize("last", [-1.0, 1.0])
def test_stages_hold_the_layers_of_the_front_once(pp, last):
    """Dense layers of a mixture that the first stage has no room for are on the next one, and on no other."""
    found = group("deepseek-v3", gpus=8 * pp, pp=pp, ep=8, global_batch_size=2 * pp * 8)
    plan = found.plan.replace(last_stage_layers=np.full(1, last))
    dense = 0.0
    for stage in stages(found.job, plan):
        inside = {kind: layers_of(stage, kind, found.job.model) for kind in kinds(found.job.model) if kind.place == "front"}
        dense += sum(float(np.sum(stage.count * layers)) for layers in inside.values())
    assert dense == found.job.model.first_k_dense_replace == 3
