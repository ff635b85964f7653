"""The command ``ironlaw validate``: tables it reads, rows it skips, JSON it prints, and questions it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ironlaw.cautions.record import sentences
from made_runs import GPT

WRONG = [
    ({"gpu_type": ""}, "no accelerator"),
    ({"gpu_type": "H1000", "gpu_mem_gb": ""}, "unknown accelerator 'H1000'; nearest: h100"),
    ({"gpus": ""}, "no number of accelerators"),
    ({"gpus": "0"}, "gpus is '0'"),
    ({"gpus": "1.5"}, "gpus is '1.5'"),
    ({"gpus": "eight"}, "gpus is 'eight'"),
    ({"model_name": ""}, "no model"),
    ({"global_batch_seqs": ""}, "no global batch: global_batch_seqs"),
    ({"seq_len": ""}, "no sequence length: seq_len"),
    ({"seq_len": "-1"}, "seq_len is '-1'"),
    ({"layers": ""}, "not in the catalogue, and missing layers"),
    ({"layers": "0"}, "layers is '0'"),
    ({"heads": "0"}, "heads is '0'"),
    ({"kv_heads": "0"}, "kv_heads is '0'"),
    ({"moe_experts": "some"}, "moe_experts is 'some'"),
    ({"hidden": "1e12"}, "above the roof"),
    ({"tp": "3"}, "tp 3 does not divide num_attention_heads 16"),
    ({"tp": "two"}, "tp is 'two'"),
    ({"micro_batch": "3"}, "micro_batch_size 3 * dp 8 does not divide global_batch_size 256"),
    ({"tp": "", "global_batch_seqs": "4"}, "parallelism unknown"),
    ({"precision": "fp3"}, "unknown precision 'fp3'"),
    ({"precision": "int8"}, "int8 training is not modelled"),
    ({"recompute": "sometimes"}, "unknown recompute 'sometimes'"),
    ({"step_time_s": ""}, "no step time, tokens/s or FLOP/s"),
    ({"step_time_s": "nan"}, "step_time_s is 'nan'"),
    ({"step_time_s": "inf"}, "step_time_s is 'inf'"),
    ({"step_time_s": "-4"}, "step_time_s is '-4'"),
    ({"step_time_s": "0"}, "step_time_s is '0'"),
    ({"step_time_s": "4,5"}, "step_time_s is '4,5', must be a number above 0, with a point for decimals"),
    ({"step_time_s": "1e300"}, "measured step of 1e+300 s"),
    ({"step_time_s": "1e-300"}, "measured rate above the roof of a100-sxm-80gb in bf16"),
    ({"step_time_s": "", "tokens_per_s_per_gpu": "1e9"}, "above the roof"),
]


def test_each_row_that_cannot_be_asked_says_why_and_where(table, ask):
    path = table(GPT, *({**GPT, **change} for change, _ in WRONG))
    status, out, err = ask("validate", "--mine", path, "--json")
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert (told["rows"], told["scored"]) == (len(WRONG) + 1, 1)
    reasons = {s["line"]: s["reason"] for s in told["skipped_rows"]}
    for line, (_, why) in enumerate(WRONG, start=3):
        assert why in reasons[line], (line, why)
    assert sum(told["skipped"].values()) == len(WRONG)
    status, out, err = ask("validate", "--mine", path)
    assert err.count("\n") == len(WRONG)
    assert "ironlaw: line 3 (a): no accelerator" in err


def test_a_row_far_from_its_prediction_is_asked_for_its_units(table, ask):
    path = table(GPT, {**GPT, "step_time_s": str(1000 * float(GPT["step_time_s"]))})
    err = ask("validate", "--mine", path)[2]
    assert err.count("\n") == 1 and "line 3 (a): measured 4,000 s" in err and "times apart: check its units" in err
    told = json.loads(ask("validate", "--mine", path, "--json")[1])
    assert told["scored"] == 2 and [text.partition(":")[0] for text in sentences(told["warnings"])] == ["line 3 (a)"]


def test_a_spreadsheets_table_is_read(table, ask):
    plain = ask("validate", "--mine", table(GPT), "--json")
    big = {**GPT, "hidden": "2,048", "seq_len": "2,048", "vocab": "50,304"}
    path = table({**big, "step_time_s": "4.0"}, name="excel.csv", encoding="utf-8-sig", lineterminator="\r\n")
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    found = ask("validate", "--mine", path, "--json")
    one, other = (json.loads(r[1])["predictions"][0] for r in (plain, found))
    assert one == other


def test_a_table_may_name_the_options_of_a_question(table, ask):
    names = {
        "model_name": "model",
        "gpu_type": "on",
        "layers": "num_hidden_layers",
        "hidden": "hidden-size",
        "global_batch_seqs": "Global_Batch_Size",
    }
    found = [ask("validate", "--mine", table({n.get(k, k): v for k, v in GPT.items()}), "--json") for n in ({}, names)]
    one, other = (json.loads(out)["predictions"] for _, out, _ in found)
    assert one == other


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "is empty"),
        (b"id,gpus\n", "no rows"),
        (bytes(range(256)), "UTF-8"),
        ("id,gpus\n1,2\n".encode("utf-16"), "UTF-8"),
        (b"id;gpus;tp\n1;8;2\n", "separated by semicolons"),
        (b"id\tgpus\n1\t8\n", "separated by tabs"),
        (b"id,gpus,gpus\n1,8,8\n", "'gpus' twice"),
        (b'id,gpus\n"1,8\n2,8\n', "a quote that is not closed?"),
    ],
)
def test_a_file_that_is_not_a_table_is_refused_in_one_line(tmp_path, ask, content, word):
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    status, out, err = ask("validate", "--mine", path)
    assert (status, out, err.count("\n")) == (3, "", 1)
    assert word in err
    assert "runs.csv" in err


def five(**more):
    return [{**GPT, "id": f"r{i}", "step_time_s": str(3.0 + 0.1 * i), **more} for i in range(5)]


def test_json_has_the_keys_of_the_contract(table, ask):
    status, out, err = ask("validate", "--mine", table(*five()), "--json")
    assert (status, err) == (0, "")
    told = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert {"schema_version", "rows", "scored", "skipped", "headline", "memory", "groups", "baselines", "predictions"} <= set(told)
    assert {"family_median_abs_error", "pooled_median_abs_error", "p90_abs_error", "bias", "band_coverage", "band_width"} <= set(
        told["headline"]
    )
    assert {"key", "n", "median_abs_error", "p90_abs_error", "bias", "band_coverage"} <= set(told["groups"][0])
    for p in told["predictions"]:
        assert {"id", "predicted_s", "measured_s", "error", "band", "rules"} <= set(p)
        assert p["error"] == pytest.approx(p["predicted_s"] / p["measured_s"] - 1.0)
        assert p["band"][0] < p["predicted_s"] < p["band"][1]
    errors = [p["error"] for p in told["predictions"]]
    assert told["headline"]["pooled_median_abs_error"] == pytest.approx(np.median(np.abs(errors)))
    assert told["headline"]["bias"] == pytest.approx(np.median(errors))
    assert told["memory"] is None


def test_nothing_scored_is_status_1_and_still_json(table, ask):
    path = table({**GPT, "gpus": "0"})
    status, out, _ = ask("validate", "--mine", path, "--json")
    assert status == 1
    told = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (told["rows"], told["scored"], told["predictions"], told["groups"]) == (1, 0, [], [])
    assert ask("validate", "--mine", path)[0] == 1
    assert ask("validate", "--mine", path, "--markdown")[0] == 1
    assert ask("validate", "--mine", path, "--memory", "--json")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        (("--by", "famly"), 2, "nearest: family"),
        (("--by", ""), 2, "family, stack, device, support, apart"),
        (("--runs", "x.csv"), 2, "one of them"),
        (("--json", "--markdown"), 2, "leave one out"),
        (("--catalog", "nowhere"), 3, "no such folder"),
        (("--peaks", "nowhere.csv"), 3, "nowhere.csv"),
    ],
)
def test_a_wrong_question_is_one_line(table, ask, arguments, status, word):
    code, out, err = ask("validate", "--mine", table(*five()), *arguments)
    assert (code, err.count("\n")) == (status, 1) and (out == "") == ("--json" not in arguments)
    assert word in err


def test_only_a_fit_fits(ask):
    assert ask("validate", "fit", "--json")[0] == 2
    assert ask("validate", "fti")[0] == 2
    assert ask("validate", "--correction", "x.toml")[0] == 2
    assert ask("validate", "--mine", "")[0] == 3


def test_groups_are_by_any_column(table, ask):
    path = table(*five(), {**GPT, "id": "s", "hidden": "1024", "step_time_s": "6"})
    _, out, _ = ask("validate", "--mine", path, "--json", "--by", "hidden")
    assert [(g["key"], g["n"]) for g in json.loads(out)["groups"]] == [("2048", 5), ("1024", 1)]
