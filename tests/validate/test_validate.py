"""Published runs and a user's own against estimates: how rows are mapped, measured, skipped, scored, fitted and written down."""

from __future__ import annotations

import csv
import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

import ironlaw
from ironlaw.errors import InputError, QuestionError
from ironlaw.estimate.answer import answer
from ironlaw.estimate.correction import read_correction, write_correction
from ironlaw.estimate.table import answer_many
from ironlaw.validate import predict, session
from ironlaw.validate.fill import Apart, SkipError, number, stack_of
from ironlaw.validate.fit import (
    RECORD,
    Constant,
    Fit,
    Problem,
    constants,
    half_widths,
    held_out_times,
    read_record,
    weighted_quantile,
    with_values,
)
from ironlaw.validate.predict import Prepared, prepare, times
from ironlaw.validate.runs import RUNS, Measured, Run, Skipped, map_row, read_runs
from ironlaw.validate.score import baseline_data, by_device, by_level, far_apart, headline, interval_scores, score

GPT = {
    "id": "a", "family": "ours", "model_name": "GPT", "layers": "24", "hidden": "2048", "heads": "16", "vocab": "50304",
    "gpu_type": "A100", "gpu_mem_gb": "80", "gpus": "8", "tp": "1", "pp": "1", "micro_batch": "4", "global_batch_seqs": "256",
    "seq_len": "2048", "precision": "bf16", "recompute": "none", "framework": "megatron", "step_time_s": "4.0",
}  # fmt: skip


def mapped(**change):
    return map_row("a", 2, "ours", {k: v for k, v in {**GPT, **change}.items() if v is not None})


def ready(*changes):
    """Prepared runs of the GPT above, one for each change."""
    runs = [replace(mapped(**c), id=str(i), family=c.get("family", "ours")) for i, c in enumerate(changes)]
    prepared, skipped = prepare(runs)
    assert not skipped
    return prepared


@pytest.fixture
def table(tmp_path):
    def write(*rows, name="runs.csv", **how):
        path = tmp_path / name
        with path.open("w", newline="", encoding=how.pop("encoding", "utf-8")) as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(k for row in rows for k in row)), **how)
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write


# --- blanks: every rule writes what it says and says what it wrote -----------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "cell", "value", "rule"),
    [
        ({"gpu_mem_gb": ""}, "gpu_type", "A100", "a bare A100 is the 80 GB SXM"),
        ({"model_name": "GPT LoRA r8"}, "lora_rank", "8", "adapters of rank 8"),
        ({"training": "adapters", "lora_rank": "8"}, "lora_rank", "8", "adapters of rank 8"),
        ({"model_name": "GPT lora"}, "model_name", "GPT", "adapters of rank 16"),
        ({"moe_experts": "8", "moe_topk": "2", "moe_dispatch": "token-drop", "ep": "8"}, "capacity_factor", "1", "capacity factor 1"),
        ({"vocab": "", "tp": "4"}, "vocab", str(-(-50257 // 512) * 512), "padded to a multiple of 128 tp"),
        ({"precision": "", "precision_filled": "bf16"}, "precision_filled", "bf16", "precision as filled in"),
        ({"precision": ""}, "precision", "fp16", "16 bits, whose formats have one rate"),
        ({"tp": "", "pp": ""}, "cp", "1", "blank tp or pp: chosen by ironlaw"),
        ({"tp": "2"}, "sharding", "zero1", "a distributed optimizer"),
        ({"micro_batch": ""}, "micro_batch", "", "blank micro-batch"),
        ({"recompute": ""}, "recompute", "", "blank recompute"),
        ({"framework": "NeMo 1.2 (legacy)"}, "framework", "nemo", "taken as nemo"),
        ({"framework": "home-made"}, "framework", "fsdp", "taken as fsdp"),
        ({"framework": "home-made", "tp": "2"}, "framework", "megatron", "taken as megatron"),
        ({"enrich_source": "FA1, paper"}, "attention_kernel", "fa1", "first flash attention"),
        ({"flash_attention": "?"}, "flash_attention", "", "flash attention not known"),
        ({"pp": "2", "vpp_filled": "2"}, "vpp_filled", "2", "vpp as filled in"),
        ({"nic_gbps_per_gpu": "200"}, "nic_bandwidth", "200 Gb/s", "200 Gb/s of NIC"),
        ({"interconnect": "Slingshot 11"}, "fabric", "slingshot-11", "fabric by a word"),
        ({"interconnect": "2 slices over DCN"}, "scale_up_size", "4", "2 slices of 4 chips"),
        ({"dp": "8", "notes": "zero1 group 4"}, "dp_shard", "4", "sharded over 4 ranks"),
        ({"notes": "mixed_precision=DEFAULT"}, "gradient_dtype", "fp32", "reduced in fp32"),
        ({"offload": "activations", "notes": "cpu_offloading_num_layers=6"}, "offload_layers", "6", "as the recipe's preset says"),
        ({"precision": "fp8", "gpu_type": "H100", "notes": "label FP8-CS"}, "fp8_scaling", "current", "current scaling"),
    ],
    ids=lambda v: v if isinstance(v, str) and " " in v else None,
)
def test_a_rule_writes_its_cell_and_reports_itself(change, cell, value, rule):
    run = mapped(**change)
    assert run.cells.get(cell, "") == value
    assert sum(rule in told for told in run.rules) == 1


def test_a_full_row_needs_no_rule_and_counts():
    run = mapped(sharding="none", model_name="Ours 7B")
    assert (run.rules, run.apart) == ((), ())


@pytest.mark.parametrize(("how", "part", "layers"), [("full", "0.25", 0.25), ("full", "1", 1.0), ("full", "", 1.0), ("none", "0", 0.0)])
def test_a_share_of_layers_recomputed_in_full_is_no_more_than_that(how, part, layers):
    """Megatron's --recompute-method block recomputes some layers whole and leaves the others."""
    runs = [mapped(sharding="none", recompute=how, recompute_fraction=part)]
    prepared, skipped = prepare(runs)
    assert not skipped
    assert float(np.ravel(prepared.batches[0].plan.recompute_layers)[0]) == layers


def test_families_keep_their_traits_at_every_size():
    """Tables tell sizes alone; the catalogue tells what GPT, BLOOM and MPT share."""
    (gpt,), (bloom,), (llama,) = (mapped(sharding="none", model_name=name).asked for name in ("GPT 7B", "BLOOM-prelim 7B", "Llama 7B"))
    assert (gpt["model"]["position_embedding"], gpt["model"]["dropout"], gpt["model"]["mlp_bias"]) == ("learned", "on", "on")
    assert (bloom["model"]["position_embedding"], bloom["model"]["dropout"]) == ("alibi", "off")
    assert "position_embedding" not in llama["model"]
    for other in ("GPT-NeoX 20B", "GPT-J 6B", "gpt-oss-20b-like"):
        assert "position_embedding" not in mapped(sharding="none", model_name=other).asked[0]["model"], other
    (released,) = mapped(sharding="none", model_name="mpt-7b").asked  # MosaicML released it with ALiBi and without biases
    assert (released["model"]["position_embedding"], released["model"]["mlp_bias"]) == ("alibi", "off")
    (benchmark,) = mapped(sharding="none", model_name="MPT-7b", framework="llm-foundry").asked
    assert (benchmark["model"]["position_embedding"], benchmark["model"]["mlp_bias"]) == ("learned", "on")


@pytest.mark.parametrize(
    ("change", "apart"),
    [
        ({"moe_experts": "8", "moe_topk": "2", "ep": "1"}, "mixture of experts"),
        ({"model_name": "GPT LoRA"}, "adapters"),
        ({"task": "sft"}, "fine-tuning or proxy"),
        ({"training": "fine-tuning"}, "fine-tuning or proxy"),
        ({"moe_experts": "8", "moe_topk": "2", "ep": "1", "tuned": "n"}, "called early by its source"),
        ({"precision": ""}, "precision unknown"),
        ({"tp": ""}, "parallelism unknown"),
        ({"recompute": ""}, "recompute unknown"),
        ({"pp": "2"}, "vpp unknown"),
    ],
)
def test_a_run_other_than_known_dense_pre_training_is_set_apart(change, apart):
    assert apart in mapped(**change).apart


def test_prose_is_read_by_whole_words():
    assert mapped(notes="SFT, packed").apart == (Apart.FINE_TUNING,)
    assert mapped(notes="LoRA; tuned").apart == (Apart.ADAPTERS,)
    assert mapped(notes="LoRAX is something else; SFTP too").apart == ()


def test_unknown_chunks_are_bracketed_and_scored_by_their_geometric_mean():
    run = mapped(pp="2")
    assert [o["vpp"] for o in run.asked] == [1.0, 12.0]
    p, _ = prepare([run])
    each = [ironlaw.estimate(**o).step_seconds[0] for o in run.asked]
    np.testing.assert_allclose(times(p), np.sqrt(each[0] * each[1]))


def test_a_stack_is_known_by_a_word():
    for name, taken in (("Megatron-DeepSpeed", "deepspeed"), ("JAX", "maxtext"), ("TorchTitan fork", "torchtitan")):
        assert stack_of({"framework": name}) == taken


# --- what was measured ------------------------------------------------------------------------------------------------------


def seconds(run):
    p, skipped = prepare([run])
    assert not skipped
    return float(p.measured[0])


def test_tokens_per_second_become_a_step():
    """256 sequences of 2048 tokens on 8 accelerators are 65536 tokens each; at 16384 a second that takes 4 s."""
    run = mapped(step_time_s="", tokens_per_s_per_gpu="16,384")
    assert run.measured == Measured(4.0)
    assert "step time from tokens/s per GPU" in run.rules


@pytest.mark.parametrize(("convention", "attention"), [("full square, no recompute", 12), ("attention at half", 6), ("halved", 6)])
def test_flops_become_a_step_by_the_convention_of_the_row(convention, attention):
    """A GPT of 24 layers of width 2048: 72 L h^2 + 6 V h, and attention of 12 L h s, or half of it (Narayanan et al., 2021)."""
    per_token = 72 * 24 * 2048**2 + 6 * 50304 * 2048 + attention * 24 * 2048 * 2048
    run = mapped(step_time_s="", tflops_per_gpu="150", flops_convention=convention)
    assert seconds(run) == pytest.approx(65536 * per_token / 150e12, rel=1e-9)


@pytest.mark.parametrize(
    ("convention", "why"),
    [("", "without a stated convention"), ("all", "without a stated convention"), ("full, with recompute", "include recompute")],
)
def test_flops_of_no_known_convention_are_not_guessed(convention, why):
    with pytest.raises(SkipError, match=why):
        mapped(step_time_s="", tflops_per_gpu="150", flops_convention=convention)


def test_a_stated_step_comes_first():
    assert mapped(tokens_per_s_per_gpu="1").measured == Measured(4.0)


# --- rows that cannot be asked ----------------------------------------------------------------------------------------------

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
    ({"tp": "two"}, "tp: 'two'"),
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
    assert told["scored"] == 2 and [text.partition(":")[0] for text in told["warnings"]] == ["line 3 (a)"]


def test_no_published_run_is_far_from_its_prediction():
    assert far_apart(session.validate().held_out) == []


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


def test_thousands_are_whole_groups_of_three():
    assert [number(c) for c in ("1,536", "1 536", "1'536.5", "12,345,678")] == [1536.0, 1536.0, 1536.5, 12345678.0]
    assert all(np.isnan(number(c)) for c in ("9,5", "1,53", "1,5360", "1,234 567", "abc", "0x10", "9_0", "", None))


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
def test_a_file_that_is_no_table_is_one_line(tmp_path, ask, content, word):
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    status, out, err = ask("validate", "--mine", path)
    assert (status, out, err.count("\n")) == (3, "", 1)
    assert word in err
    assert "runs.csv" in err


def test_more_cells_than_the_header_skip_their_row_only(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(f"{','.join(GPT)}\n{','.join(GPT.values())},extra\n{','.join(GPT.values())}\n", encoding="utf-8")
    runs, skipped = read_runs(path)
    assert [r.line for r in runs] == [3]
    assert skipped == [Skipped("a", 2, "ours", "more cells than the header: 'extra'")]


# --- the verb ---------------------------------------------------------------------------------------------------------------


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
        (("--by", ""), 2, "family, device, support, apart"),
        (("--runs", "x.csv"), 2, "one of them"),
        (("--json", "--markdown"), 2, "one of them"),
        (("--catalog", "nowhere"), 3, "no such folder"),
        (("--peaks", "nowhere.csv"), 3, "nowhere.csv"),
    ],
)
def test_a_wrong_question_is_one_line(table, ask, arguments, status, word):
    code, out, err = ask("validate", "--mine", table(*five()), *arguments)
    assert (code, out, err.count("\n")) == (status, "", 1)
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


def test_a_table_that_repeats_itself_asks_each_question_once(monkeypatch):
    asked = []

    def counted(options, folders):
        asked.append(len(options))
        return answer_many(options, folders)

    monkeypatch.setattr(predict, "answer_many", counted)
    p = ready(*({"step_time_s": str(3 + i), "tp": str(1 + i % 2)} for i in range(12)))
    assert asked == [2]
    assert len(p.runs) == 12
    assert np.unique(times(p)).size == 2


# --- held out ---------------------------------------------------------------------------------------------------------------


def test_a_family_of_the_record_is_predicted_by_constants_that_never_saw_it():
    p = ready({"family": "seen"}, {"family": "ours"})
    slow = {"compute_sustained": 0.5}
    fit = Fit({"compute_sustained": 0.9}, {"seen": slow})
    held = held_out_times(p, fit)
    assert held[0] == times(p, with_values(slow))[0]
    assert held[1] == times(p, with_values(fit.values))[1]
    assert held[0] > held[1]


def test_the_record_that_ships_covers_the_constants():
    fit, record = read_record()
    names = {c.name for c in constants()}
    assert set(fit.values) == names
    assert record["rows"] > 0
    for family, values in fit.held_out.items():
        assert set(values) == names, family
    for c in constants():
        assert c.low <= c.first <= c.high


def test_with_values_changes_those_alone():
    shipped, other = with_values({}), with_values({"tp_exposed": 0.5})
    assert other.tp_exposed.value == 0.5
    assert other.tp_exposed.unit == shipped.tp_exposed.unit
    assert repr(other.replace(tp_exposed=shipped.tp_exposed)) == repr(shipped)


def test_longer_measurements_move_the_bias_and_nothing_else():
    p = ready(*({"step_time_s": str(3.0 + 0.2 * i)} for i in range(5)))
    once, twice = (score(q, times(q), []) for q in (p, replace(p, measured=2.0 * p.measured)))
    np.testing.assert_array_equal(once.predicted, twice.predicted)
    assert 1.0 + headline(twice)["bias"] == pytest.approx((1.0 + headline(once)["bias"]) / 2.0)


# --- figures on numbers that are known --------------------------------------------------------------------------------------


def synthetic(measured, ideal, families, hardware=None, apart=None):
    n = len(measured)
    runs = tuple(Run(str(i), i, families[i], {}, (), Measured(measured[i]), (), tuple((apart or [()] * n)[i])) for i in range(n))
    return Prepared(
        runs, (), np.array(measured), np.array(ideal), tuple(hardware or ["x bf16"] * n), ("dense",) * n, np.ones(n, dtype=bool), ()
    )


def test_baselines_know_only_what_they_may():
    """Family a runs at MFU 0.5, b at 0.25, on the same device; c is alone on its device and takes the median of all others."""
    p = synthetic([2.0, 4.0, 4.0, 8.0], [1.0, 2.0, 1.0, 4.0], ["a", "a", "b", "c"], ["x", "x", "x", "y"])
    np.testing.assert_allclose(by_device(p), [1 / 0.25, 2 / 0.25, 1 / 0.5, 4 / 0.5])
    np.testing.assert_allclose(by_level(p), p.measured)
    told = baseline_data(score(p, p.measured, []))["one efficiency a device"]
    assert told["families"] == {"a": pytest.approx(1.0), "b": pytest.approx(0.5), "c": pytest.approx(0.0)}
    assert told["family_median_abs_error"] == pytest.approx(0.5)


def test_baselines_of_one_family_alone_have_nothing_to_learn_from():
    p = synthetic([2.0], [1.0], ["a"])
    assert np.isnan(by_device(p)[0])
    assert baseline_data(score(p, p.measured, []))["one efficiency a device"]["family_median_abs_error"] is None


def test_rows_apart_do_not_count_in_the_headline():
    p = synthetic([1.0, 1.0, 1.0], [0.5] * 3, ["a", "a", "b"], apart=[(), (Apart.ADAPTERS,), ()])
    told = headline(score(p, np.array([1.1, 9.0, 0.8]), []))
    assert told["pooled_median_abs_error"] == pytest.approx(0.15)
    assert told["family_median_abs_error"] == pytest.approx(0.15)
    assert told["bias"] == pytest.approx(-0.05)


def test_interval_scores_by_hand():
    """A band of half-width 0.1 that misses by 0.05 in log, at 80 %: 0.2 + 2/0.2 0.05; one that holds costs its width."""
    error = np.expm1([0.15, -0.15, 0.05])
    np.testing.assert_allclose(interval_scores(error, np.full(3, 0.1), 0.2), [0.7, 0.7, 0.2])


def test_weighted_quantile_is_the_first_that_covers():
    values = np.array([0.3, 0.1, 0.2, 0.4])
    assert weighted_quantile(values, np.ones(4), 0.5) == 0.2
    assert weighted_quantile(values, np.ones(4), 0.75) == 0.3
    assert weighted_quantile(values, np.array([10.0, 1, 1, 1]), 0.8) == 0.3
    assert weighted_quantile(values, np.ones(4), 1.0) == 0.4
    assert weighted_quantile(np.array([7.0]), np.array([2.0]), 0.8) == 7.0


def test_half_widths_weigh_families_alike_and_leave_one_out():
    """Nine rows of a are off by 0.1 in log, one row of b by 0.5: half of the weight each, so 80 % needs b."""
    p = synthetic([1.0] * 10, [0.5] * 10, ["a"] * 9 + ["b"])
    predicted = np.exp([0.1] * 9 + [-0.5])
    assert half_widths(p, predicted) == {"dense": (pytest.approx(0.5), 10, 2)}
    assert half_widths(p, predicted, "b") == {"dense": (pytest.approx(0.1), 9, 1)}
    assert half_widths(p, predicted, "a")["dense"][0] == pytest.approx(0.5)


def test_what_rests_on_one_family_is_half_as_uncertain_again():
    p = synthetic([1.0, 1.0], [0.5, 0.5], ["a", "b"])
    p = replace(p, support=("dense", "prior device"))
    made = half_widths(p, np.exp([0.1, 0.01]))
    assert made["dense"][0] == pytest.approx(0.1)
    assert made["prior device"][0] == pytest.approx(0.15)


def problem(n=400):
    free = tuple(Constant(name, 1.0, 0.1, 10.0, 3.0, 1.0, "", "") for name in "ab")
    return Problem(synthetic([1.0] * n, [0.5] * n, [f"f{i % 4}" for i in range(n)]), free, {"c": 7.0})


def test_a_move_finds_the_constants_of_linear_residuals_despite_outliers():
    asked, rng = problem(), np.random.default_rng(3)
    jacobian, truth = rng.normal(size=(400, 2)), np.log([1.5, 0.7])
    residual = jacobian @ (asked.first - truth)
    mask = np.ones(400, dtype=bool)
    np.testing.assert_allclose(asked.move(asked.first, residual, jacobian, mask), truth, atol=1e-3)
    residual[::10] += 3.0  # one row in ten is wrong by a factor of twenty
    np.testing.assert_allclose(asked.move(asked.first, residual, jacobian, mask), truth, atol=0.02)
    assert asked.values(truth) == {"c": 7.0, "a": pytest.approx(1.5), "b": pytest.approx(0.7)}


def test_a_move_stays_within_bounds_and_looks_at_its_rows_only():
    asked = problem()
    jacobian = np.tile([1.0, 0.0], (400, 1))
    half = np.arange(400) % 4 < 2
    residual = np.where(half, 9.0, 0.0)
    np.testing.assert_allclose(asked.move(asked.first, residual, jacobian, half), np.log([0.1, 1.0]), atol=1e-9)
    np.testing.assert_allclose(asked.move(asked.first, residual, jacobian, ~half), [0.0, 0.0], atol=1e-9)


def test_a_family_weighs_the_root_of_its_rows():
    asked = problem()
    mask = np.arange(400) % 4 == 0
    mask[1] = True
    weights = asked.weights(mask)
    assert weights[0] * 10.0 == pytest.approx(weights[1])
    assert weights[2] == 0.0


# --- corrections ------------------------------------------------------------------------------------------------------------


def test_a_correction_comes_back_as_it_was_written(tmp_path):
    path = tmp_path / "ours.toml"
    errors = np.array([1 / 1.1, 1 / 1.2, 1 / 1.3]) - 1.0
    assert write_correction(path, errors, path.with_name("our runs.csv")) == pytest.approx(1.2)
    back = read_correction(str(path))
    assert back.factor == pytest.approx(1.2)
    assert np.log(1.3 / 1.2) <= back.half_width <= np.log(1.2 / 1.1)
    assert back.label.startswith("our runs.csv, 3 runs")
    write_correction(path, errors, path)  # an earlier correction is replaced
    assert list(tmp_path.iterdir()) == [path]


def test_a_correction_never_replaces_another_file(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("id\n1\n", encoding="utf-8")
    with pytest.raises(QuestionError, match="is no correction"):
        write_correction(path, np.zeros(3), path)
    assert path.read_text(encoding="utf-8") == "id\n1\n"


def test_a_correction_that_an_estimate_would_refuse_is_not_written(tmp_path):
    path = tmp_path / "ours.toml"
    with pytest.raises(QuestionError, match="is a unit wrong"):
        write_correction(path, np.full(3, -0.999), path)
    assert not path.exists()


@pytest.mark.parametrize("name", ["", "nowhere/c.toml", "."])
def test_a_correction_that_cannot_be_written_leaves_nothing(tmp_path, name):
    with pytest.raises(InputError, match="cannot be written"):
        write_correction(tmp_path / name, np.zeros(3), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["", "factor = nan\nhalf_width = 0.1", "factor = 1.0", "factor = true\nhalf_width = 0", "[", "factor = 99"]
)
def test_a_correction_of_nonsense_is_refused(tmp_path, text):
    path = tmp_path / "c.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"c\.toml"):
        read_correction(str(path))


def test_ones_own_runs_correct_an_estimate(tmp_path, table, ask):
    """Three runs that all took 1.25 times their prediction: steps times 1.25, and a band as narrow as they agree."""
    wanted = 1.25 * float(times(ready({}))[0])
    runs = table(*({**GPT, "id": str(i), "step_time_s": repr(wanted)} for i in range(3)))
    path = tmp_path / "ours.toml"
    status, _, err = ask("validate", "--mine", runs, "--correction", path)
    assert status == 0
    assert "steps times 1.250" in err
    question = {**mapped().asked[0]}
    plain, ours = (ironlaw.estimate(**question, **more) for more in ({}, {"correction": str(path)}))
    assert ours.step_seconds[0] == pytest.approx(1.25 * plain.step_seconds[0], rel=1e-4)
    assert ours.mfu[0] == pytest.approx(plain.mfu[0] / 1.25, rel=1e-4)
    assert sum(float(np.ravel(v)[0]) for v in ours.groups[0].shares.values()) == pytest.approx(1.0)
    step = ours.row()["step"]
    parts = step["tree"]["parts"]
    assert step["seconds"] == pytest.approx(1.25 * sum(p["value"] for p in parts), rel=1e-4)
    low, high, _ = step["band"]
    assert np.log(high / low) == pytest.approx(2.0 * read_correction(str(path)).half_width)
    json.dumps(ours.row(), allow_nan=False)
    assert [a["origin"] for a in ours.row()["assumptions"] if a["name"] == "correction"][-1] == "override"


def test_too_few_runs_say_nothing(tmp_path, table, ask):
    path = tmp_path / "ours.toml"
    status, out, err = ask("validate", "--mine", table(GPT), "--correction", path)
    assert (status, out) == (2, "")
    assert "at least 3" in err
    assert not path.exists()


def test_the_record_is_of_the_runs_that_ship():
    """A row changed without a new fit would be scored by constants that saw its old value."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert record["runs_sha256"] == hashlib.sha256(RUNS.read_bytes()).hexdigest(), "run ironlaw validate fit"
    assert set(record["constants"]) == {c.name for c in constants()}


def test_maxtext_counts_attention_in_full():
    """120 TFLOP/s a chip on 256 v5e: 6 FLOP a matrix weight and token and 12 L w s, by hand from the row's sizes."""
    run = next(r for r in read_runs()[0] if r.id == "maxtext-001")
    c = {k: float(run.cells[k]) for k in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab", "seq_len")}
    attention = c["hidden"] * c["head_dim"] * (2 * c["heads"] + 2 * c["kv_heads"])
    weights = c["layers"] * (attention + 3 * c["hidden"] * c["ffn_hidden"]) + c["vocab"] * c["hidden"]
    per_token = 6 * weights + 12 * c["layers"] * c["heads"] * c["head_dim"] * c["seq_len"]
    tokens = float(run.cells["global_batch_seqs"]) * c["seq_len"]
    (group,) = answer(run.asked[0]).groups
    assert run.measured.step_seconds(group, 0) == pytest.approx(tokens * per_token / (120e12 * 256), rel=1e-3)


def test_maxtext_splits_experts_over_its_tensor_axis_and_keeps_only_what_custom_names():
    found = {r.id: r for r in read_runs()[0] if r.id in ("maxtext-043", "maxtext-044", "maxtext-045")}
    assert {name: str(r.asked[0].get("recompute")) for name, r in found.items()} == dict.fromkeys(found, "full")
    assert float(found["maxtext-045"].asked[0]["etp"]) == 4.0
    assert any("tensor axis" in rule for rule in found["maxtext-045"].rules)
    assert float(found["maxtext-044"].asked[0]["etp"]) == 1.0


def test_counts_and_families_of_prepared_runs_are_computed_once():
    from ironlaw.validate.predict import prepare
    from ironlaw.validate.runs import RUNS, read_runs

    prepared, _ = prepare(read_runs(RUNS)[0][:20])
    assert prepared.counts is prepared.counts and prepared.families is prepared.families
