"""Measured peaks and memory columns against predictions: reading, comparison, and how near they must be."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

import ironlaw
from ironlaw.errors import IronlawError, QuestionError
from ironlaw.estimate.memory.total import last_stage_memory
from ironlaw.question.read import read_options
from ironlaw.validate import peaks as module
from ironlaw.validate.peaks import Peak, RunMemory, figures, fine_tuned, peaks, ran_and_fits, read_peaks, run_memory, summary

TINY = {
    "--num-layers": 12,
    "--hidden-size": 512,
    "--num-attention-heads": 8,
    "--seq-length": 1024,
    "--max-position-embeddings": 1024,
    "--micro-batch-size": 4,
    "--global-batch-size": 32,
    "--bf16": True,
}
ROW = {
    "test": "gpt/tiny",
    "platform": "dgx_h100",
    "gpus": "8",
    "mem_max_allocated_bytes": "3000000000",
    "mem_allocated_bytes_median": "600000000",
    "all_args": json.dumps(TINY),
}

NO_BYTES = ("abc", "0", "nan", "inf", "1e400", "-5", "1,02")


def _release(**more):
    """Launch arguments of a release run, whose vocabulary is not stated."""
    return json.dumps({**TINY, "--tokenizer-type": "HuggingFaceTokenizer", **more})


RELEASE = {"gpus": "", "all_args": _release()}


@pytest.fixture(scope="module")
def shipped():
    return peaks(read_peaks())


def ask(**options):
    """The only group of an estimate, and the tree of its last stage."""
    group = ironlaw.estimate(**options).groups[0]
    return group, last_stage_memory(group.job, group.cluster, group.plan)


def test_predicted_peaks_are_near_the_measured_ones(shipped):
    """The bounds are the project's own: 8 % median over peaks of 2 GiB and more; each group must stay within it too."""
    result = summary(*shipped)
    assert result["n"] > 100
    assert result["median_abs_error"] <= 0.08
    assert result["p90_abs_error"] <= 0.12
    for name in ("dense", "moe", "muon", "small", "fp16", "hidden_4096", "incomplete"):
        assert result[name]["n"] >= 8, name
        assert result[name]["median_abs_error"] <= 0.08, name
    assert abs(result["bias"]) <= 0.02, "neither workspaces nor states may be missing everywhere"
    assert result["fits_false"] <= 0.02


def test_few_rows_cannot_be_asked_and_each_says_why(shipped):
    found, skipped = shipped
    assert len(found) + sum(skipped.values()) == len(read_peaks())
    assert sum(skipped.values()) / len(read_peaks()) < 0.03
    assert all("not modelled" in why or "Python" in why or "reinforcement" in why for why in skipped)


def test_a_prediction_has_its_rules(shipped):
    result = summary(*shipped)
    assert len(result["predictions"]) == len(shipped[0])
    for told, peak in zip(result["predictions"], shipped[0], strict=True):
        assert told["error"] == pytest.approx(told["predicted_bytes"] / told["measured_bytes"] - 1.0)
        assert told["rules"] == list(peak.rules)
    blank = [p for p in shipped[0] if any(rule.startswith("blank gpus") for rule in p.rules)]
    assert blank
    assert all(any("blank" in rule for rule in p.rules) for p in shipped[0] if not p.complete)


def test_the_table_that_ships_is_small_and_has_its_source():
    path = module.shipped_peaks()
    assert path.stat().st_size < 250_000
    assert "NVIDIA/Megatron-LM" in (path.parent / "README.md").read_text(encoding="utf-8")
    keys = [(cells["test"], cells["platform"]) for _, cells in read_peaks()]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"all_args": "{"}, "not JSON"),
        ({"all_args": "[1]"}, "not a JSON object"),
        ({"all_args": "[" * 100_000}, "not JSON"),
        ({"platform": "dgx_b300"}, "unknown platform 'dgx_b300'"),
        ({"gpus": "many"}, "gpus is 'many'"),
        ({"gpus": "0"}, "gpus is '0'"),
        ({"gpus": "7"}, "illegal plan"),
        ({"mem_max_allocated_bytes": ""}, "no measured peak"),
        ({"mem_max_allocated_bytes": "nan"}, "must be a number of bytes"),
        ({"mem_max_allocated_bytes": "-1"}, "must be a number of bytes"),
        *(({**RELEASE, "mem_allocated_bytes_median": cell}, "measured memory between steps is") for cell in NO_BYTES),
        *(
            ({**RELEASE, "all_args": _release(**{"--tensor-model-parallel-size": n})}, "must be a whole number")
            for n in ("x", 0, [2], "1e9")
        ),
        ({"all_args": json.dumps({**TINY, "--no-such-thing": 1})}, "--no-such-thing"),
        ({"all_args": json.dumps({**TINY, "--hidden-size": None})}, "hidden-size"),
    ],
)
def test_a_row_that_cannot_be_asked_is_counted(change, why):
    found, skipped = peaks([(2, {**ROW, **change}), (3, ROW)])
    assert [p.line for p in found] == [3]
    (reason,) = skipped
    assert why in reason


def test_a_missing_column_is_named():
    cells = {name: cell for name, cell in ROW.items() if name != "all_args"}
    assert peaks([(2, cells)])[1] == {"the table of peaks lacks the columns all_args: add them to its header": 1}


def test_a_users_table_is_read(tmp_path):
    path = tmp_path / "peaks.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["note", *ROW])
        writer.writeheader()
        writer.writerow({"note": "carried along", **ROW})
    (peak,), skipped = peaks(read_peaks(path))
    assert not skipped
    assert (peak.id, peak.line, peak.hidden_size, peak.moe, peak.complete) == ("gpt/tiny/dgx_h100", 2, 512, False, True)
    assert peak.error == peak.predicted_bytes / 3e9 - 1.0


def test_a_release_run_is_completed_from_the_memory_between_steps():
    """An unstated vocabulary is that of the model with these widths; more accelerators hold smaller optimizer states."""
    release = {
        **TINY,
        "--num-layers": 4,
        "--hidden-size": 4096,
        "--num-attention-heads": 32,
        "--group-query-attention": True,
        "--num-query-groups": 8,
        "--ffn-hidden-size": 14336,
        "--swiglu": True,
        "--use-distributed-optimizer": True,
        "--global-batch-size": 4096,
        "--tokenizer-type": "HuggingFaceTokenizer",
    }
    rows = [(2, {**ROW, "gpus": "", "all_args": json.dumps(release), "mem_allocated_bytes_median": size}) for size in ("1e10", "3e10")]
    (much, little), skipped = peaks(rows)
    assert not skipped
    assert not much.complete
    assert any("blank vocabulary: that of llama-3" in rule for rule in much.rules)
    assert much.predicted_bytes < little.predicted_bytes
    assert peaks([(2, {**rows[0][1], "mem_allocated_bytes_median": ""})])[0] == []


def run(**more):
    return {"id": "a", "memory_gb_per_gpu": "40", "memory_unit": "GiB", "memory_kind": "reserved", "step_time_s": "1", **more}


def test_a_memory_column_is_compared_with_its_own_kind():
    estimate = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8)
    group, at = estimate.place_of(0)
    for kind, column in (("allocated", "allocated"), ("reserved", "reserved"), ("device", "device"), ("analytic", "allocated")):
        found = run_memory(run(memory_kind=kind), estimate)
        assert found.predicted_bytes == np.ravel(getattr(group.memory, column))[at]
        assert found.kind == kind
        assert found.measured_bytes == 40 * 2**30
    assert run_memory(run(memory_unit="GB"), estimate).measured_bytes == 40e9


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"memory_gb_per_gpu": ""}, "no measured memory"),
        ({"memory_kind": ""}, "not stated"),
        ({"memory_kind": "peak"}, "unknown memory_kind 'peak'"),
        ({"memory_unit": "pages"}, "unknown memory_unit 'pages'"),
        ({"pp": "8", "micro_batch": ""}, "without a stated micro-batch"),
        *(({"memory_gb_per_gpu": cell}, "memory_gb_per_gpu is") for cell in NO_BYTES),
    ],
)
def test_a_memory_column_that_cannot_be_compared_says_why(change, why):
    with pytest.raises(QuestionError, match=why):
        run_memory(run(**change), ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8))


def test_pre_training_that_ran_must_fit():
    fits, full = (
        ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8),
        ironlaw.estimate("llama-3-70b", on="h100-sxm", gpus=8, offload="none"),
    )
    asked = [(run(), fits, 0), (run(id="b"), full, 0), (run(id="c", training="adapters"), full, 0), (run(id="d", step_time_s=""), full, 0)]
    assert list(ran_and_fits(asked)) == [("a", True), ("b", False)]
    assert fine_tuned({"training": "fine-tuning"})
    assert not fine_tuned({"training": ""}) and not fine_tuned({"training": "adapters", "lora_rank": "16"})


def test_figures_by_hand():
    told = figures([-0.1, 0.3, 0.02, -0.04])
    assert told == {"median_abs_error": pytest.approx(0.07), "p90_abs_error": pytest.approx(0.24), "bias": pytest.approx(-0.01), "n": 4}
    assert figures([]) == {"median_abs_error": None, "p90_abs_error": None, "bias": None, "n": 0}


def test_groups_of_the_summary():
    whole = Peak("a", 2, 4.4e9, 4e9, (), 4096, False, False, "bf16", True, True)
    rows = [
        whole,
        replace(whole, id="b", measured_bytes=4.4e9, moe=True, hidden_size=512),
        replace(whole, id="c", measured_bytes=1e9, predicted_bytes=1.5e9, hidden_size=512, precision="fp16"),
        replace(whole, id="d", complete=False, predicted_bytes=8e9, fits=False),
    ]
    runs = [RunMemory("r", "device", 9e9, 1e10), RunMemory("s", "analytic", 2e10, 1e10)]
    told = summary(rows, {"why": 2}, runs, [("r", True)])
    assert (told["n"], told["moe"]["n"], told["small"]["n"], told["fp16"]["n"], told["incomplete"]["n"]) == (2, 1, 1, 1, 1)
    assert told["median_abs_error"] == pytest.approx(0.05)
    assert told["hidden_4096"]["n"] == 2
    assert told["device"]["bias"] == pytest.approx(-0.1)
    assert told["reserved"]["n"] == 0
    assert told["analytic"]["bias"] == pytest.approx(1.0)
    assert told["fits_false"] == pytest.approx(1 / 5)
    assert told["fits_false_ids"] == ["d"]
    assert told["skipped"] == {"why": 2}


def test_arguments_reach_these_options():
    arguments = {
        **TINY,
        "--num-layers": 12,
        "--pipeline-model-parallel-size": 4,
        "--num-layers-per-virtual-pipeline-stage": 1,
        "--microbatch-group-size-per-virtual-pipeline-stage": 8,
        "--defer-embedding-wgrad-compute": True,
        "--cross-entropy-loss-fusion": True,
    }
    options, rules = module.options_from_arguments(arguments, gpus=4, on="h100-sxm")
    assert options["microbatch_group"] == 8
    assert options["fused_loss"] is True
    assert read_options(options)["deferred_wgrad"] >= 1e6, "no limit given: all micro-batches"
    assert not [rule for rule in rules if "group" in rule or "wait" in rule]
    limited, _ = module.options_from_arguments({**arguments, "--wgrad-deferral-limit": 2}, gpus=4, on="h100-sxm")
    assert limited["deferred_wgrad"] == 2
    fused, _ = module.options_from_arguments({**arguments, "--cross-entropy-fusion-impl": "te"}, gpus=4, on="h100-sxm")
    assert "fused_loss" not in fused
    with pytest.raises(IronlawError):
        module.options_from_arguments({**arguments, "--wgrad-deferral-limit": -1}, gpus=4, on="h100-sxm")


def test_a_missing_table_of_peaks_is_refused_before_the_runs_are_scored(ask, tmp_path, monkeypatch):
    from ironlaw.validate import session

    monkeypatch.setattr(session, "prepare", lambda *a: pytest.fail("the runs were scored first"))
    assert ask("validate", "--peaks", tmp_path / "none.csv")[0] == 3
