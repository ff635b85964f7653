"""What people reported of real runs, put as questions: memory that was measured, and runs that ran out of it or did not.

A fact stands with the tolerance that its report allows. Questions are our own; nothing is copied.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import ironlaw

GB = 1e9
LLAMA_70B = {
    "model": "llama-2-70b", "on": "h100-sxm", "gpus": 128, "tp": 8, "pp": 2, "zero": 0, "micro_batch_size": 1, "recompute": "none",
    "seq_len": 4096, "global_batch_size": 128,
}  # fmt: skip
FULL_8B = {
    "model": "llama-3.1-8b", "on": "a100-sxm-80gb", "gpus": 1, "framework": "huggingface", "micro_batch_size": 1, "global_batch_size": 1,
    "seq_len": 2048, "recompute": "full",
}  # fmt: skip


def flags_of(question: dict[str, Any]) -> list[Any]:
    """A question as arguments of the command line."""
    return [
        question["model"],
        *(part for name, value in question.items() if name != "model" for part in (f"--{name.replace('_', '-')}", value)),
    ]


# runs that ran out of memory: an option that the asker has no reason to give must not make them fit


@pytest.mark.parametrize("question", [LLAMA_70B, FULL_8B], ids=["70B on 128", "8B on one"])
def test_a_run_that_ran_out_of_memory_does_not_fit_by_what_was_not_asked(question):
    estimate = ironlaw.estimate(**question)
    assert not estimate.fits[0]
    plan = estimate.row()["plan"]
    assert (plan["offload"], plan["cp"]) == ([], 1)


def test_chunks_alone_are_searched_where_the_rest_of_a_plan_is_given():
    """More chunks keep more micro-batches in flight: one chunk needs least, and it is what the run had."""
    row = ironlaw.estimate(**LLAMA_70B).row()
    given = ironlaw.estimate(**LLAMA_70B, vpp=1).row()
    assert row["plan"]["vpp"] == 1
    assert row["memory"]["device"] == given["memory"]["device"] > row["memory"]["capacity_bytes"]
    roomy = {**LLAMA_70B, "gpus": 128, "zero": 1, "recompute": "full"}
    assert ironlaw.estimate(**roomy).row()["plan"]["vpp"] > 1


def test_what_would_make_it_fit_is_named_with_its_price(ask):
    status, out, _ = ask("estimate", *flags_of(FULL_8B), "--json")
    answer = json.loads(out)
    (offer,) = answer["offers"]
    with_it = ironlaw.estimate(**FULL_8B, **offer["options"]).row()
    assert status == 1
    assert offer["options"] == {"offload": "optimizer"}
    assert offer["device"] == with_it["memory"]["device"] < with_it["memory"]["capacity_bytes"]
    assert offer["step_seconds"] == with_it["step"]["seconds"]
    # the offered plan is the plan that does not fit, with the states elsewhere
    assert offer["times_as_long"] == pytest.approx(with_it["step"]["seconds"] / answer["step"]["seconds"])
    page = ask("estimate", *flags_of(FULL_8B))[1]
    first = page.splitlines()[1]
    assert first.startswith("does not fit: 150 GiB")
    assert f"with --offload optimizer it fits at 67.1 GiB and takes {offer['times_as_long']:.1f} x as long" in first
    assert first in ask("estimate", *flags_of(FULL_8B), "--short")[1]


def test_every_verb_says_so(ask):
    short = (
        "llama-3.1-8b",
        "--on",
        "a100-sxm-80gb",
        "--gpus",
        1,
        "--framework",
        "huggingface",
        "--global-batch-size",
        8,
        "--seq-len",
        2048,
    )
    said = "with --offload optimizer it fits at"
    planned = ask("plan", *short)[1]
    assert "No plan meets the question." in planned
    for text in (planned, ask("compare", *short)[1], ask("estimate", *short)[1], ask("sweep", *short, "--tokens", "1B")[1]):
        assert said in text


def test_a_question_that_gives_offload_gets_no_offer(ask):
    assert json.loads(ask("estimate", *flags_of(FULL_8B), "--offload", "none", "--json")[1])["offers"] == []
    assert "offers" not in json.loads(ask("estimate", *flags_of(FULL_8B), "--offload", "optimizer", "--json")[1])


def test_a_space_file_may_ask_for_it(tmp_path):
    file = tmp_path / "host.toml"
    file.write_text('offload_optimizer = ["off", "on"]\nmicro_batch_size = [1]\n')
    asked = {name: value for name, value in FULL_8B.items() if name != "micro_batch_size"}
    row = ironlaw.estimate(**asked, space=str(file)).row()
    assert row["plan"]["offload"] == ["optimizer"]
    assert row["memory"]["fits"]
