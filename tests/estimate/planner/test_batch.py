"""The batch of a question that gives none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ironlaw
from ironlaw import estimate
from ironlaw.cautions.record import sentences
from ironlaw.estimate.answer.bands import likely_rate
from ironlaw.estimate.bind.batch import batch_range
from ironlaw.estimate.bind.question import bind_question, with_batch
from ironlaw.estimate.planner.batch import pick_batch
from ironlaw.question.asked import asked_of
from ironlaw.question.read import read_options

RATES = st.lists(st.floats(0.5, 2.0) | st.just(0.0), min_size=1, max_size=6)


@given(RATES)
def test_the_picked_batch_is_the_first_that_loses_little(rates):
    batches = [float(100 + at) for at in range(len(rates))]
    by_batch = dict(zip(batches, rates, strict=True))
    picked = pick_batch(batches, lambda batch, least: by_batch[batch] if by_batch[batch] >= least else 0.0)
    near_enough = [batch for batch in batches if by_batch[batch] >= 0.95 * max(rates)]
    assert picked == (near_enough[0] if max(rates) > 0.0 else 100.0)


@pytest.mark.parametrize(
    ("model", "gpus", "sequence"), [("llama-3-8b", 24, 131072), ("llama-3-8b", 96, 65536), ("llama-3-70b", 200, 131072)]
)
def test_no_batch_up_to_the_limit_gives_five_per_cent_more_tokens_per_second(model, gpus, sequence):
    question = {"model": model, "on": "h100-sxm", "gpus": gpus, "seq_len": sequence, "cp": 8}
    picked = estimate(**question)
    allowed = range_of(**question)
    every = np.arange(allowed.least, allowed.most + 1.0)
    rates = estimate(**question, global_batch_size=every)
    best = np.nanmax(np.where(rates.fits, rates.tokens_per_second, np.nan))
    assert picked.fits[0] and picked.tokens_per_second[0] >= 0.95 * best


def range_of(**question):
    """The range of the batch of a question that gives none."""
    bound = with_batch(bind_question(asked_of(read_options({**question, "on": "h100-sxm"}))))
    return batch_range(bound, bound.asked.rows[0])


MI = 2**20


@pytest.mark.parametrize(
    ("model", "tokens", "limit"),
    [
        # 6 N D by hand, in the law 0.2920 C^0.3271, to the nearest power of two; beside it what was published
        ("llama-3-8b", 15e12, 16),  # C 7.2e23: 18.6 M
        ("llama-3-70b", 15e12, 32),  # C 6.4e24: 38 M
        ("llama-3-70b", None, 16),  # 20 tokens a parameter are 1.4 T, C 5.9e23: 17.5 M
        ("llama-3.1-405b", 15.6e12, 64),  # C 3.8e25: 68 M; Llama 3 ended at 16 M
        ("gpt-3-175b", 300e9, 16),  # C 3.1e23: 14.2 M; GPT-3 took 3.2 M
        ("deepseek-v3", 14.8e12, 32),  # 37 G active, C 3.3e24: 31 M; DeepSeek-V3 took 63 M
        ("gpt-2", None, 1),  # 300 G tokens, C 2.2e20: 1.3 M; GPT-3 took 0.5 M at this size
    ],
)
def test_the_limit_of_the_batch_follows_the_compute_of_the_run(model, tokens, limit):
    found = range_of(model=model, gpus=64, **({} if tokens is None else {"tokens": tokens}))
    seq_len = {"gpt-2": 1024, "gpt-3-175b": 2048}.get(model, 8192)
    assert found.usual * seq_len == min(limit, 4) * MI
    assert found.most * seq_len == (limit if limit > 4 else 1.25 * limit) * MI
    assert f"up to {limit} Mi tokens" in found.rule


FINE_TUNINGS = [
    {"lora_rank": 16},
    {"frozen_layers": 8},
    *({"objective": name} for name in ("sft", "dpo", "kto", "orpo", "simpo", "reward")),
]


@pytest.mark.parametrize("of", FINE_TUNINGS)
@pytest.mark.parametrize(("gpus", "sequences"), [(1, 16), (4, 32), (8, 64), (64, 128)])
def test_a_fine_tuning_takes_8_sequences_for_each_accelerator_within_what_recipes_take(of, gpus, sequences):
    assert range_of(model="llama-3-8b", gpus=gpus, seq_len=2048, **of).usual == sequences


def test_a_supervised_fine_tuning_differs_from_pre_training_by_its_default_batch_alone():
    """Every stack runs its step, which is that of the next token; the names that people use for it are one objective."""
    asked = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "seq_len": 4096}
    tuned = estimate(**asked, objective="sft", framework="megatron")
    assert tuned.groups[0].plan.global_batch_size[0] == 64
    same = estimate(**asked, global_batch_size=64, framework="megatron")
    assert tuned.tokens_per_second[0] == same.tokens_per_second[0] and tuned.groups[0].job.objective is None
    for name in ("supervised fine-tuning", "finetune"):
        assert estimate(**asked, objective=name, framework="trl").groups[0].plan.global_batch_size[0] == 64
    assert range_of(**asked).usual * 4096 == range_of(**asked, objective="next-token").usual * 4096 == 4 * MI


def test_a_stack_is_asked_by_the_name_of_the_record():
    """DPO's other name, and AdamW's in torch, are what the tables of TRL and Megatron have."""
    assert estimate("llama-3-8b", on="h100-sxm", gpus=8, objective="ipo", framework="trl").groups[0].job.objective.name == "dpo"
    adamw = estimate("llama-3-8b", on="h100-sxm", gpus=8, optimizer="adamw_torch", framework="megatron")
    assert adamw.groups[0].job.framework.name == "megatron"


def test_qlora_on_one_card_takes_16_sequences():
    plan = estimate("llama-3-8b", on="rtx-4090", gpus=1, lora_rank=8, frozen_weights="nf4", seq_len=2048).groups[0].plan
    assert plan.global_batch_size[0] == 16


def fastest_rates(answer):
    """Tokens per second of the fastest plan of every row, by which batches are compared; another may be taken for its evidence."""
    rates = np.array(answer.tokens_per_second)
    for group in answer.groups:
        for at, faster in enumerate(group.faster):
            if faster is not None:
                rates[group.index[at]] *= np.ravel(np.broadcast_to(group.step.tree.value, group.index.shape))[at] / faster.seconds
    return rates


@pytest.mark.parametrize("gpus", [1300, 1500, 3000, 6000, 12000])
def test_an_awkward_number_of_accelerators_takes_a_batch_that_it_divides(gpus):
    """The batch is up to the limit, and its fastest plan loses at most 5 % of the tokens per second of the best there."""
    question = {"model": "llama-3-70b", "on": "h100-sxm", "gpus": gpus}
    found, allowed = estimate(**question), range_of(**question)
    assert allowed.least <= found.groups[0].plan.global_batch_size[0] <= allowed.most
    top = [batch for batch in allowed.to_try(gpus) if batch > allowed.most / 2.0]
    best = np.nanmax(fastest_rates(estimate(**question, global_batch_size=np.array(top))))
    assert fastest_rates(found)[0] >= 0.95 * best


def test_a_batch_that_cannot_be_split_is_given_one_sequence_for_each_rank():
    assert estimate("llama-3-8b", on="h100-sxm", gpus=997).groups[0].plan.global_batch_size[0] == 997.0


def test_a_given_batch_that_is_divided_badly_gets_one_line_that_names_a_better_one():
    question = {"model": "llama-3-70b", "on": "h100-sxm", "gpus": 768}
    lines = [line for line in sentences(estimate(**question, global_batch_size=516).row(0)["warnings"]) if "splits badly" in line]
    assert len(lines) == 1
    better = float(lines[0].split("--global-batch-size ")[1].split(" likely gives")[0])
    bad, good = (estimate(**question, global_batch_size=batch).tokens_per_second[0] for batch in (516, better))
    assert 464.4 <= better <= 567.6 and good > bad / 0.9
    assert f"{likely_rate(good / bad) - 1.0:.0%} more" in lines[0]


@pytest.mark.parametrize("batch", [512, 768, 516 - 4])
def test_a_batch_that_plans_divide_well_gets_no_such_line(batch):
    answer = estimate("llama-3-70b", on="h100-sxm", gpus=768, global_batch_size=batch)
    assert not [line for line in sentences(answer.row(0)["warnings"]) if "splits badly" in line]


@pytest.mark.parametrize(
    ("framework", "gpus", "batch"),
    [
        ("trl", 8, 64),
        ("trl", 1, 16),
        ("llama-factory", 8, 64),
        ("peft", 8, 64),
        ("unsloth", 1, 16),
        ("ms-swift", 8, 16),
        ("torchtune", 16, 32),
    ],
)
def test_a_framework_that_fine_tunes_takes_the_batch_of_its_trainer(framework, gpus, batch):
    """By hand: 8 for each GPU by TrainingArguments, 2 by torchtune's recipes, 16 of all by ms-swift; at least 16."""
    asked = {"model": "llama-3-8b", "on": "h200-sxm", "gpus": gpus, "seq_len": 1024, "framework": framework, "recompute": "full", "tp": 1}
    if gpus == 1:
        asked["model"] = "llama-3.2-1b"
    assert estimate(**asked).row()["plan"]["global_batch_size"] == batch


def test_a_framework_that_is_told_to_pre_train_or_that_is_not_named_does():
    asked = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "tp": 1, "pp": 1, "zero": 3, "micro_batch_size": 1, "recompute": "full"}
    told, unnamed = (estimate(**asked, **more).row()["plan"] for more in ({"framework": "trl", "objective": "next-token"}, {}))
    assert told["global_batch_size"] == unnamed["global_batch_size"] == 512


def test_frameworks_that_are_compared_share_the_batch_of_one_job():
    """Megatron pre-trains and TRL fine-tunes: their tokens a second are those of one batch, whichever is named first."""
    asked = {"on": ["h100-sxm"], "gpus": [8], "tp": 1, "pp": 1, "recompute": "full", "micro_batch_size": 1}
    rows = ironlaw.compare("llama-3-8b", **asked, framework=["megatron", "trl"]).to_dict()["plans"]
    assert {row["batch_tokens"] for row in rows} == {4 * 2**20}
