"""Frameworks side by side: in a comparison a row for each with each accelerator; one name for every other verb but plan."""

from __future__ import annotations

import json

import pytest

import ironlaw
from ironlaw import compare
from ironlaw.cautions.record import sentences

JOB = {"gpus": 16, "global_batch_size": 64, "seq_len": 4096}
NAMES = ("megatron", "torchtitan-compile")


@pytest.fixture(scope="module")
def answer():
    return compare("llama-3-8b", on="h100-sxm,mi300x", framework=",".join(NAMES), **JOB)


def test_every_framework_has_a_row_for_every_accelerator(answer):
    rows = answer["estimate"]
    assert {(row["accelerator"], row["framework"]) for row in rows} == {(on, name) for on in ("h100-sxm", "mi300x") for name in NAMES}
    for row in rows:
        alone = ironlaw.estimate("llama-3-8b", on=row["accelerator"], framework=row["framework"], **JOB)
        assert row["tokens_per_second"] == alone.tokens_per_second[0]


def test_what_no_framework_changes_is_listed_once(answer):
    assert [row["accelerator"] for row in answer["prices"]] == ["mi300x", "h100-sxm"]


def test_one_framework_has_no_column(ask):
    _, out, _ = ask("compare", "llama-3-8b", "--on", "h100-sxm", "--gpus", 16, "--framework", "megatron")
    assert "  framework  " not in out


def test_the_terms_of_every_row_have_names_of_their_own(answer):
    names = [term.name for term in answer.terms if "price of a token" in term.name]
    assert len(names) == len(set(names)) == 4


@pytest.mark.parametrize("verb", ["estimate", "solve", "money", "goodput", "sweep", "optimize", "sites"])
def test_other_verbs_take_one_framework_and_name_those_that_take_several(verb, ask):
    status, _, err = ask(verb, "llama-3-8b", "--on", "h100-sxm", "--gpus", 16, "--tokens", "1T", "--framework", "megatron,fsdp")
    assert (status, err.count("\n")) == (2, 1)
    assert "ironlaw plan and ironlaw compare take several" in err or "No such option" in err


@pytest.mark.parametrize(("option", "values"), [
    ("precision", ("bf16", "fp8")), ("cuda-graphs", ("none", "full")), ("gradient-dtype", ("fp32", "bf16")), ("framework", NAMES),
])  # fmt: skip
def test_a_list_in_a_search_compares_its_values(option, values, ask):
    """The best plan is the fastest of those with one value, and the page no longer says that the axis is not searched."""
    words = ("llama-3-8b", "--on", "h100-sxm", "--gpus", 16, "--global-batch-size", 64, "--seq-len", 4096)
    _, out, _ = ask("plan", *words, f"--{option}", ",".join(values), "--json")
    found = json.loads(out)
    each = [json.loads(ask("estimate", *words, f"--{option}", value, "--json")[1])["step"]["seconds"] for value in values]
    assert found["plans"][0]["step"]["seconds"] == min(each)
    assert option.replace("-", "_") not in found["question"]["not_searched"]


SPACE = """
tp = [1, 2]
pp = [1, 2]
ep = [1, 2, 4]
etp = [1, 2]
zero = [1]
recompute = ["none"]
micro_batch_size = [1]
cuda_graphs = ["none", "partial", "full"]
gradient_dtype = ["fp32", "bf16"]
precision = ["bf16", "fp8"]
"""


def test_a_space_may_list_graphs_gradients_precisions_and_expert_tensor_ranks(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text(SPACE)
    question = {"model": "deepseek-v2-lite", "on": "h100-sxm", "gpus": 16, "global_batch_size": 64, "space": str(path)}
    estimate = ironlaw.estimate(**question)
    asked = estimate.row(0)["asked"]
    again = ironlaw.estimate(**{**asked["given"], **asked["plan"]})
    assert (again.step_seconds[0], again.device_bytes[0]) == (estimate.step_seconds[0], estimate.device_bytes[0])
    assert ironlaw.search(**question).first(1)[0].seconds == estimate.step_seconds[0]
    for given in ({"etp": 2}, {"precision": "bf16"}, {"gradient_dtype": "fp32"}, {"cuda_graphs": "none"}):
        assert ironlaw.estimate(**question, **given).step_seconds[0] >= estimate.step_seconds[0]
    left = ironlaw.search(**question).to_dict()["question"]["not_searched"]
    assert not {"cuda_graphs", "gradient_dtype", "precision", "etp"} & {*left, *estimate.row(0)["not_searched"]}


def test_graphs_are_not_warned_of_where_the_framework_has_them_or_its_record_does_not_say():
    assert not [line for line in warnings_of("megatron", "full") if "CUDA graphs" in line]
    assert not [line for line in warnings_of("torchtitan", "full") if "CUDA graphs" in line]


def warnings_of(framework: str, graphs: str) -> list[str]:
    asked = {"framework": framework, "cuda_graphs": graphs}
    return sentences(ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, global_batch_size=64, **asked).row(0)["warnings"])
