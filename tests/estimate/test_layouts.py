"""Published layouts: records that say what their runs say, and what such a layout takes on another job."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.cli.main import main
from ironlaw.estimate.answer.layouts import layouts_of, time_layout
from ironlaw.estimate.bind.question import bind_question, with_batch
from ironlaw.estimate.planner.published import AXES, axes_on, is_published, published_axes, without_runs
from ironlaw.estimate.planner.space import read_space
from ironlaw.report.estimate import page
from ironlaw.search.as_data import search_data
from ironlaw.validate.runs import read_runs

LAYOUTS = [layout for name in load.names("layouts") for layout in load.record("layouts", name).layout]
JOB = {"on": "h100-sxm", "gpus": 32, "global_batch_size": 512, "seq_len": 8192}


def question(model, **options):
    """The bound question, its job and its row."""
    estimate = ironlaw.estimate(model, **options)
    group = estimate.place_of(0)[0]
    bound = with_batch(bind_question(estimate.asked, ()))
    return bound, group.job, bound.asked.rows[0]


def found(model, **options):
    """The published layouts in the JSON of an estimate."""
    return ironlaw.estimate(model, **options).row(0).get("published_layouts", [])


def test_a_layout_is_what_its_runs_say():
    """Every axis of a record, its counts and precisions are those of its rows in the table of runs, where one rank may be left out."""
    runs = {run.id: run for run in read_runs()[0]}
    assert 8 <= len(LAYOUTS) <= 32
    assert len({layout.name for layout in LAYOUTS}) == len(LAYOUTS)
    for layout in LAYOUTS:
        rows = [runs[name].asked[0] for name in layout.runs]
        for row in rows:
            for axis in AXES:
                assert row.get(axis, "" if axis == "recompute" else 1.0) == getattr(layout, axis)
            assert (row["seq_len"], row["framework"]) == (layout.seq_len, layout.framework) or layout.framework.startswith("torchtitan")
        if rows:
            assert sorted({int(row["gpus"]) for row in rows}) == list(layout.gpus)
            assert {row.get("precision", "bf16") for row in rows} == set(layout.precisions)
            usual = set(load.record("frameworks", layout.framework).overlap)
            assert set(layout.overlap) in [set(row.get("overlap") or ()) - usual for row in rows]


def test_a_layout_takes_what_the_best_plan_with_its_axes_takes():
    """Without a pipeline there are no stages to balance, so a search with the same axes has the same plans."""
    (one,) = found("llama-3-8b", **JOB, tokens="1T")
    assert (one["plan"]["cp"], one["plan"]["micro_batch_size"], one["gpus"][0]) == (2, 1, 8)
    fixed = ironlaw.estimate("llama-3-8b", **JOB, tp=1, pp=1, cp=2, ep=1, zero=1, micro_batch_size=1)
    assert fixed.place_of(0)[0].recompute == ("none",)
    assert one["step_seconds"] == pytest.approx(float(fixed.step_seconds[0]), rel=1e-12)
    best = float(ironlaw.estimate("llama-3-8b", **JOB).step_seconds[0])
    assert one["longer"] == pytest.approx(one["step_seconds"] / best - 1.0)
    assert 0.0 <= one["likely_longer"] <= one["longer"]
    assert one["tie"] == (one["longer"] < 0.05)
    assert one["source"]["url"].startswith("https://")


def test_a_plan_and_an_estimate_say_the_same():
    asked = {**JOB, "fix": "tp=1"}
    data = search_data(ironlaw.search("llama-3-8b", **asked))
    assert data["published_layouts"] == found("llama-3-8b", **JOB, tp=1)


def test_what_the_question_fixes_is_kept():
    assert found("llama-3-8b", **JOB, cp=1) == []
    assert [one["name"] for one in found("llama-3-8b", **JOB, cp=2)] == ["dense-8b-h100-nemo"]
    assert found("llama-3-8b", **JOB, tp=1, pp=1, ep=1, vpp=1, zero=1, micro_batch_size=1, recompute="none") == []  # nothing is open


def test_the_stack_and_the_device_decide():
    names = {one["name"] for one in found("llama-3-8b", **JOB, framework="torchtitan-compile")}
    assert names == {"dense-8b-h100-torchtitan"}
    assert found("llama-3-8b", **{**JOB, "on": "mi300x"}) == []
    assert found("llama-3-8b", **{**JOB, "seq_len": 65536, "global_batch_size": 64}) == []  # no run was so long


def test_a_layout_that_needs_more_accelerators_says_why():
    bound, job, row = question("llama-3-70b", on="h100-sxm", gpus=16, global_batch_size=128, seq_len=8192, framework="megatron")
    layout = next(one for one in LAYOUTS if one.name == "dense-70b-h100-nemo")
    timed = time_layout(bound, job, row, read_space(None), layout)
    assert timed.seconds is None
    assert "16 accelerators are no multiple of its tp x pp x cp, 32" in timed.why_not


def test_chunks_divide_the_layers_and_micro_batches_the_sequences():
    """GPT-3 has 96 layers: 12 stages a rank of 8 hold 12 chunks of one. On 4 stages 5 chunks do not divide its 24: 4 and 6 are nearest.
    16 sequences of a micro-batch meet 12 of a rank: 4 divide both."""
    _, job, _ = question("gpt-3-175b", on="h100-sxm", gpus=512, global_batch_size=1024, framework="megatron")
    named = {layout.name: layout for layout in LAYOUTS}
    sizes = {"gpus": 512.0, "global_batch_size": 1024.0, "seq_len": 2048.0}
    assert axes_on(job, sizes, named["dense-175b-h100-nemo"])["vpp"] == 12.0
    axes = axes_on(job, sizes, named["dense-70b-h100-nemo"])
    assert axes["vpp"] in (4.0, 6.0)
    layout = named["dense-70b-h100-torchtitan"]
    assert layout.micro_batch_size == 16
    assert axes_on(job, {**sizes, "global_batch_size": 12.0 * 64}, layout)["micro_batch_size"] == 4.0


def test_the_nearest_in_size_come_first():
    bound, job, row = question("llama-3.1-405b", on="h100-sxm", gpus=1024, global_batch_size=512, seq_len=8192, framework="megatron")
    assert [one.name for one in layouts_of(bound, job, row, read_space(None))] == ["dense-405b-h100-bridge", "dense-340b-h100-nemo"]


def test_the_pages_name_them(capsys):
    words = ["llama-3-8b", "--on", "h100-sxm", "--gpus", "32", "--global-batch-size", "512", "--seq-len", "8192"]
    assert main(["estimate", *words]) == 0
    assert (
        "published layout: cp 2, zero 1, micro-batch 1, recompute none (Llama 3.1 8B in NeMo on H100, 8 to 128" in capsys.readouterr().out
    )
    assert main(["plan", *words]) == 0
    printed = capsys.readouterr().out
    assert "Published layouts" in printed
    assert "README_8b.md" in printed


TAKEN = {"on": "h100-sxm", "gpus": 512, "global_batch_size": 512, "seq_len": 8192}


def without(*names):
    """The runs of some layouts, which are then not used."""
    return without_runs([run for layout in LAYOUTS if layout.name in names for run in layout.runs])


def test_a_published_layout_is_taken_where_it_loses_less_than_can_be_told():
    """Of a faster plan the page and the JSON say what it gains; without the layout that plan, or one as good, is the answer."""
    estimate = ironlaw.estimate("llama-3-70b", **TAKEN)
    row = estimate.row(0)
    assert {name: row["plan"][name] for name in ("tp", "pp", "vpp", "cp")} == {"tp": 4, "pp": 4, "vpp": 5, "cp": 2}
    taken = next(one for one in row["published_layouts"] if one["same"])
    faster = row["faster_unmeasured"]
    assert taken["name"] == "dense-70b-h100-nemo"
    assert taken["slower_than_fastest"] == pytest.approx(row["step"]["seconds"] / faster["seconds"] - 1.0) == faster["gain"]
    assert f"taken: {taken['slower_than_fastest']:.1%} slower than the fastest as predicted, too close to rank" in page(estimate)
    with without("dense-70b-h100-nemo", "dense-70b-h100-bridge"):
        other = ironlaw.estimate("llama-3-70b", **TAKEN).row(0)
    assert not [one for one in other.get("published_layouts", []) if "70b" in one["name"]]
    assert faster["seconds"] <= other["step"]["seconds"] <= row["step"]["seconds"] <= 1.05 * other["step"]["seconds"]


def test_a_search_lists_the_layout_first_and_the_fastest_after_it():
    data = search_data(ironlaw.search("llama-3-70b", **TAKEN))
    row = ironlaw.estimate("llama-3-70b", **TAKEN).row(0)
    assert data["plans"][0]["step"]["seconds"] == row["step"]["seconds"]
    (fastest,) = [plan for plan in data["plans"] if plan["note"] in ("without evidence", "not published")]
    assert fastest["step"]["seconds"] == row["faster_unmeasured"]["seconds"]
    assert [one["slower_than_fastest"] for one in data["published_layouts"]] == [
        one["slower_than_fastest"] for one in row["published_layouts"]
    ]


def test_a_layout_that_loses_more_is_not_taken():
    row = ironlaw.estimate("llama-3.1-405b", on="h100-sxm", gpus=1024, global_batch_size=512, seq_len=8192).row(0)
    assert all(one["longer"] > 0.05 and not one["same"] for one in row["published_layouts"])


def test_the_axes_of_a_layout_are_those_of_its_plans():
    """126 layers, the embedding and the loss are 8 stages of 8 chunks of 2; the end stages have a layer less than the 16 of the others."""
    bound, job, _ = question("llama-3.1-405b", on="h100-sxm", gpus=1024, global_batch_size=512, seq_len=8192, framework="megatron")
    sizes = {"gpus": 1024.0, "global_batch_size": 512.0, "seq_len": 8192.0}
    first, second = published_axes(bound, job, sizes, read_space(None))
    assert (first["first_stage_layers"], first["last_stage_layers"], first["vpp"]) == (15.0, 15.0, 8.0)
    assert "first_stage_layers" not in second  # 126 layers are not 8 stages of 12 chunks
    open_words = replace(read_space(None), given=frozenset({"micro_batch_size", "pp"}))  # words, not values: nothing is fixed
    assert published_axes(bound, job, sizes, open_words) == (first, second)
    columns = {name: np.array([value, value]) for name, value in first.items() if name != "recompute"}
    assert is_published((first, second), columns).tolist() == [True, True]
    columns["vpp"] = np.array([8.0, 4.0])
    assert is_published((first, second), columns).tolist() == [True, False]


def test_a_layout_that_does_not_divide_the_accelerators_says_so():
    (layout, *_) = ironlaw.estimate("llama-3-70b", on="h100-sxm", gpus=500, global_batch_size=500).row(0)["published_layouts"]
    assert layout["why_not"] == "500 accelerators are no multiple of its tp x pp x cp, 32"
