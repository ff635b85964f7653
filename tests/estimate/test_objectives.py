"""Objectives beside the next token: examples of two sequences, references, teachers, scores, and DoRA."""

import pytest

import ironlaw
from ironlaw.errors import QuestionError, UnsupportedError

GIVEN = {
    "model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "tp": 1, "pp": 1, "micro_batch_size": 2, "global_batch_size": 64, "seq_len": 4096,
    "zero": 1, "recompute": "none", "framework": "generic",
}  # fmt: skip
PARAMETERS = (
    8_030_261_248.0  # of Llama 3 8B, its model card: 8.03 B; 32 (4096 4096 2 + 4096 1024 2 + 3 4096 14336 + 2 4096) + 2 128256 4096 + 4096
)


def estimated(**options):
    return ironlaw.estimate(**{**GIVEN, **options})


def term(estimate, *names):
    """A term of the step by the names on its path."""
    node = estimate.groups[0].step.tree
    for name in names:
        node = node[name]
    return node


def value(node):
    return float(node.value * 1.0) if not hasattr(node.value, "ravel") else float(node.value.ravel()[0])


def allocated(estimate, name):
    return value(estimate.groups[0].memory.tree["allocated"][name])


def test_a_reference_repeats_the_forward_pass_of_the_model():
    """Its layers take exactly as long as the forward passes of the trained model's: the same law, the same sizes."""
    dpo = estimated(objective="dpo")
    micro = term(dpo, "reference model, forward", "micro-batches")
    trained, frozen = term(dpo, "micro-batches", "layers"), micro["frozen layers"]
    assert value(frozen["forward"]) == value(trained["forward"]) > 0.0
    assert value(frozen["backward"]) == 0.0
    assert value(micro["output layer"]["output gemm"]) == value(term(dpo, "micro-batches", "output layer and loss")["output gemm"])


def test_a_step_of_dpo_is_the_step_without_a_reference_and_one_forward_pass():
    """Forward is a third of a step's products, so the step is about 4/3 of the other: equation 7 of the paper adds no backward pass."""
    plain, dpo = estimated(objective="orpo"), estimated(objective="dpo")
    beyond = value(term(dpo)) - value(term(plain))
    assert beyond == pytest.approx(value(term(dpo, "reference model, forward")), rel=0.01)  # the rest: stragglers grow with the step
    assert 1.28 < value(term(dpo)) / value(term(plain)) < 1.38


def test_kto_runs_three_passes_more_and_the_trained_model_once():
    kto, dpo = estimated(objective="kto"), estimated(objective="dpo")
    once = value(term(dpo, "reference model, forward"))
    assert value(term(kto, "reference model, forward")) == pytest.approx(2.0 * once)
    assert value(term(kto, "forward without gradient")) == pytest.approx(once)


@pytest.mark.parametrize(("zero", "shards"), [(1, 1.0), (3, 8.0)])
def test_a_frozen_copy_is_two_bytes_a_parameter_and_sharded_by_zero_3_alone(zero, shards):
    dpo = estimated(objective="dpo", zero=zero)
    assert allocated(dpo, "weights of the reference") == pytest.approx(2.0 * PARAMETERS / shards, rel=1e-9)
    # the logits of 2 sequences of 4096 tokens over 128,256 words, 2 bytes each
    assert allocated(dpo, "logits of the reference") == 2.0 * 2 * 4096 * 128_256


def test_copies_add_up_over_the_stages():
    staged = estimated(objective="dpo", pp=4, vpp=1).groups[0].memory
    held = {name: value(tree["allocated"]["weights of the reference"]) for name, tree in zip(staged.stage_names, staged.trees, strict=True)}
    middle = held.get("middle", held["first"] - 2.0 * 128_256 * 4096)  # a middle stage has no embedding
    assert held["first"] + 2.0 * middle + held["last"] == pytest.approx(2.0 * PARAMETERS, rel=1e-6)


def test_adapters_need_no_copy_and_a_precomputed_reference_no_pass():
    names = [part.name for part in estimated(objective="dpo", lora_rank=16).groups[0].memory.tree["allocated"].parts]
    assert "weights of the reference" not in names
    assert "logits of the reference" in names
    before, plain = estimated(objective="dpo", precomputed_reference=True), estimated(objective="orpo")
    assert value(term(before)) == value(term(plain))
    assert before.groups[0].memory.device[0] == plain.groups[0].memory.device[0]


def test_a_reward_model_has_one_output():
    """128,256 x 4,096 weights less, one row of 4,096 more."""
    reward = estimated(objective="reward").to_dict()
    assert reward["parameters"]["total"] == PARAMETERS - 128_256 * 4096 + 4096
    assert reward["memory"]["device"] < estimated(objective="orpo").to_dict()["memory"]["device"]


def test_a_teacher_is_the_forward_pass_of_another_model():
    """Its layers take as long as they do where that model is trained; its weights are 2 bytes of 70.6 B parameters over 8 shards."""
    alone = estimated(zero=3, model="llama-3-70b")
    taught = estimated(zero=3, objective="distillation", teacher="llama-3-70b")
    layers = term(taught, "teacher model, forward", "micro-batches")["frozen layers"]
    assert value(layers["forward"]) == value(term(alone, "micro-batches", "layers", "forward"))
    assert allocated(taught, "weights of the teacher") == pytest.approx(2.0 * 70_553_706_496.0 / 8.0, rel=1e-9)


def test_a_teacher_of_experts_beside_a_dense_student_runs_on_one_rank():
    taught = estimated(model="mistral-7b", zero=3, objective="distillation", teacher="mixtral-8x7b", gpus=16)
    assert allocated(taught, "weights of the teacher") > 0.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"objective": "dop"}, "dop"),
        ({"objective": "distillation"}, "teacher MODEL"),
        ({"objective": "dpo", "teacher": "llama-3-70b"}, "no teacher"),
        ({"objective": "orpo", "precomputed_reference": True}, "no frozen reference"),
        ({"objective": "distillation", "teacher": "gpt-2"}, "one vocabulary"),
        ({"adapter": "dora"}, "lora_rank"),
    ],
)
def test_refusals_name_the_option(options, words):
    with pytest.raises((QuestionError, ironlaw.errors.UnknownNameError), match=words):
        estimated(**options)


def test_a_search_leaves_out_the_schedules_that_are_not_modelled_with_an_objective():
    """A stack that refuses nothing has DualPipe, which is searched for the next token and never beside a reference."""
    question = {"on": "h100-sxm", "gpus": 8, "global_batch_size": 64, "seq_len": 1024, "framework": "generic"}
    answer = ironlaw.estimate("qwen-3-0.6b", objective="dpo", **question)
    assert answer.legal[0]
    with pytest.raises(UnsupportedError, match="dualpipe is not modelled"):
        ironlaw.estimate("qwen-3-0.6b", objective="dpo", schedule="dualpipe", **question)


def test_a_pair_must_lie_in_one_micro_batch():
    assert not bool(estimated(objective="dpo", micro_batch_size=1).groups[0].rules["examples_whole"].all())
    best = ironlaw.estimate(model="llama-3-8b", on="h100-sxm", gpus=8, objective="dpo", seq_len=4096)
    assert best.to_dict()["plan"]["micro_batch_size"] % 2 == 0


def test_dora_is_refused_on_experts():
    with pytest.raises(UnsupportedError, match="routed experts"):
        estimated(model="mixtral-8x7b", lora_rank=8, lora_targets="attention,experts", adapter="dora")


@pytest.mark.parametrize(("adapter", "published"), [("lora", 0.83), ("dora", 0.84)])
def test_trained_shares_of_the_dora_paper(adapter, published):
    """Liu et al., DoRA, ICML 2024, table 1: LLaMA-7B, rank 32 on queries, keys, values, up and down projections, percent of parameters.

    By hand for LoRA: 32 layers of 32 (3 (4096 + 4096) + 2 (4096 + 11008)) = 56.1 M of 6.74 B.
    """
    answer = estimated(model="llama-1-7b", lora_rank=32, lora_targets="q,k,v,up,fc2", adapter=adapter, seq_len=2048)
    counts = answer.to_dict()["parameters"]
    assert 100.0 * counts["trained"] / counts["total"] == pytest.approx(published, abs=0.006)


def test_dora_costs_time_and_memory_beside_lora():
    lora, dora = (estimated(lora_rank=16, adapter=adapter).to_dict() for adapter in ("lora", "dora"))
    assert dora["step"]["seconds"] > lora["step"]["seconds"]
    # two tensors of the output's size a matrix: 2 sequences of 4096 tokens, (6144 + 4096) columns, 2 bytes, twice, 32 layers
    kept = 2 * 4096 * (6144 + 4096) * 2 * 2 * 32
    assert dora["memory"]["allocated"] - lora["memory"]["allocated"] == pytest.approx(kept, rel=0.05)


def test_the_losses_name_the_passes_that_train_nothing():
    assert estimated(objective="orpo").to_dict()["mfu_waterfall"]["untrained"] == 0.0
    assert estimated(objective="dpo").to_dict()["mfu_waterfall"]["untrained"] == pytest.approx(0.25, abs=0.03)  # 1 of 4 parts of forward
