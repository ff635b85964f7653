"""``textbook limits``: memory, wall clock and data of one machine, with thresholds as inputs; the scale by sizes."""

from __future__ import annotations

import pytest

import ironlaw
from ironlaw import optimize, textbook
from ironlaw.cli.main import main
from ironlaw.errors import IronlawError
from ironlaw.questions.optimize.rules_of_thumb import Sizes, recommend_scale


def limits(model, **asked):
    return textbook("limits", model, **{"on": "h100-sxm", **asked})


def test_every_row_of_the_rule_of_scale():
    """The table of scaling decisions of the training chapter: below both sizes of a row, or the next."""
    assert recommend_scale(0.5e9, 50e9) == "single GPU"
    assert recommend_scale(0.5e9, 500e9) == "single node (1-8 GPUs)"  # too much data for the first row
    assert recommend_scale(7e9, 500e9) == "single node (1-8 GPUs)"
    assert recommend_scale(7e9, 5e12) == "multi-node cluster"
    assert recommend_scale(70e9, 1e12) == "multi-node cluster"
    assert recommend_scale(7e9, 20e12) == "multi-node + streaming"
    wide = Sizes((8e9, 1e12), (80e9, 10e12), 100e12)
    assert [recommend_scale(n, 500e9, wide) for n in (7e9, 70e9, 700e9)] == ["single GPU", "single node (1-8 GPUs)", "multi-node cluster"]


def test_a_small_model_needs_one_accelerator():
    found = limits("gpt-2")
    assert found.feasible and "one accelerator is enough" in found.headline[0]
    assert found["reached"] == {"one accelerator": [], "one machine": []}


def test_seventy_billion_exhaust_the_memory_of_one_accelerator():
    """Weights of 70 B parameters alone are 140 GB in 16 bits; an H100 has 80."""
    found = limits("llama-3-70b", tokens="1T")
    one, node = found["limits"]
    assert one["memory_limit"] == "reached" and one["memory"] > 140e9
    assert "memory" in found["reached"]["one accelerator"] and node["time_limit"] == "reached"
    assert not found.feasible and found["scale"] == "multi-node cluster"


def test_the_run_of_a_machine_is_the_estimate_and_its_deadline_an_input():
    asked = {"tokens": "200B", "dataset": "800GB"}
    days = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, tokens="200B").row(0)["run"]["days"]
    row = limits("llama-3-8b", **asked)["limits"][1]
    assert row["seconds"] == pytest.approx(days * 86400)
    assert 14 < days < 40  # two weeks are the default, so the limit is reached
    assert "wall clock" in limits("llama-3-8b", **asked)["reached"]["one machine"]
    assert limits("llama-3-8b", **asked, deadline=40)["reached"]["one machine"] == []
    assert "3 machines" in limits("llama-3-8b", **asked).headline[1]


def test_data_that_takes_longer_to_read_than_to_train_on():
    """2 PB at 1.75 GB/s are 13.2 days; at 350 GB/s the run sets the time."""
    asked = {"tokens": "2.5B", "dataset": "2PB"}
    slow = limits("gpt-2", **asked)
    assert float(slow["reading the data once"]) == pytest.approx(2e15 / 1.75e9)
    assert slow["reached"]["one machine"] == ["data"] and slow["scale"] == "multi-node + streaming"
    fast = limits("gpt-2", tokens="2.5B", dataset="2TB", storage_network="700GB/s")
    assert float(fast["reading the data once"]) == pytest.approx(2e12 / 350e9)
    assert fast["reached"]["one machine"] == []


def test_sizes_are_inputs():
    assert limits("llama-3-8b", tokens="1B", sizes="10B:1TB,100B:10TB,100TB")["scale"] == "single GPU"
    assert limits("llama-3-8b", tokens="1B")["scale"] == "single node (1-8 GPUs)"


@pytest.mark.parametrize(
    ("more", "word"),
    [({"sizes": "1B:1TB"}, "such as 1B:100GB"), ({"sizes": "10B:1TB,1B:2TB,10TB"}, "must grow"), ({"gpus": 64}, "at most 8")],
)
def test_wrong_questions_are_refused_in_one_line(more, word):
    with pytest.raises(IronlawError, match=word) as caught:
        limits("llama-3-8b", tokens="1B", **more)
    assert "\n" not in str(caught.value)


def test_a_plan_that_cannot_be_says_why():
    assert "tp" in limits("llama-3-8b", tokens="1B", tp=3)["limits"][1]["why_not"]


def test_options_of_the_table_do_not_go_elsewhere():
    with pytest.raises(IronlawError, match="it belongs to ironlaw textbook CHAPTER"):
        optimize("llama-3-8b", on="h100-sxm", gpus=8, sizes="1B:1GB,2B:2GB,3GB")


def test_the_command(capsys):
    assert main(["textbook", "limits", "llama-3-8b", "--on", "h100-sxm", "--tokens", "200B", "--dataset", "800GB"]) == 1
    out = capsys.readouterr().out
    assert "several machines: one machine of 8 reaches its limit of wall clock" in out
