"""Comparison of a measured step with its estimate: every term has an entry, known changes give known rows, files are checked."""

from __future__ import annotations

import ast
import copy
import gzip
import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ironlaw
from ironlaw.earlier import READABLE
from ironlaw.errors import InputError, IronlawError, PlanError, QuestionError
from ironlaw.measure.read.toml import shipped
from ironlaw.measure.versus.compare import UNEXPLAINED, Measured, compare, find_entries, known_parts
from ironlaw.measure.versus.predicted import load_prediction, read_estimate, read_saved_estimate, run_estimate

SHAPE = {
    "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 5632,
    "vocab_size": 32000, "gated_mlp": True, "tie_word_embeddings": False,
}  # fmt: skip
MEGATRON = {"on": "h100-sxm", "gpus": 64, "global_batch_size": 128, "seq_len": 4096, "framework": "megatron", "micro_batch_size": 1}
FSDP = {"on": "h100-sxm", "gpus": 64, "global_batch_size": 128, "seq_len": 4096, "framework": "fsdp", "tp": 1, "pp": 1}
DENSE = {"model": "llama-3-8b", **MEGATRON, "tp": 2, "pp": 4, "zero": 1, "recompute": "none"}
LARGE = {"model": "llama-3-70b", **FSDP, "gpus": 256, "global_batch_size": 256, "zero": 3, "micro_batch_size": 1, "recompute": "full"}
HOST = {**FSDP, "model": "llama-3-8b", "framework": "generic", "gpus": 8, "micro_batch_size": 1}
CASES = {
    "dense": DENSE,
    "zero-0": {**DENSE, "zero": 0, "dp_replicate": 8, "dp_shard": 1},
    "zero-2": {**DENSE, "model": SHAPE, "pp": 1, "zero": 2},
    "no sequence parallel": {**DENSE, "sp": False},
    "overlapped tensor parallel": {**DENSE, "overlap": "tp"},
    "overlapped tensor parallel without sequence parallel": {**DENSE, "overlap": "tp", "sp": False},
    "fully sharded": LARGE,
    "slow fabric": {**LARGE, "nic_bandwidth": "2GB/s", "zero": 3},
    "slow fabric, zero-2": {**FSDP, "model": SHAPE, "zero": 2, "nic_bandwidth": "0.2GB/s"},
    "replicas of shards": {**FSDP, "model": "llama-3-8b", "zero": 3, "dp_replicate": 8, "dp_shard": 8, "nic_bandwidth": "2GB/s"},
    "mixture": {"model": "mixtral-8x7b", **MEGATRON, "tp": 2, "ep": 8, "pp": 2, "zero": 1},
    "mixture inside experts": {"model": "mixtral-8x7b", **MEGATRON, "tp": 2, "ep": 4, "etp": 2, "pp": 2, "zero": 1, "recompute": "full"},
    "paired micro-batches": {
        "model": "mixtral-8x7b", **MEGATRON, "tp": 2, "ep": 4, "etp": 2, "pp": 2, "vpp": 4, "zero": 1, "recompute": "none",
        "overlap": "ep,pp", "delay_wgrad_compute": True, "precision": "fp8", "dispatch_precision": "fp8-forward",
        "moe_dispatcher": "deepep",
    },
    "latent attention": {"model": "deepseek-v2-lite", **MEGATRON, "tp": 1, "ep": 8, "pp": 1, "zero": 1},
    "dualpipe": {
        "model": "deepseek-v3", "on": "h800-sxm", "gpus": 2048, "global_batch_size": 15360, "seq_len": 4096, "tp": 1, "pp": 16, "ep": 64,
        "precision": "fp8-block", "schedule": "dualpipe", "zero": 1, "micro_batch_size": 1, "moe_dispatcher": "deepep",
        "recompute": "selective:elementwise", "framework": "generic",
    },
    "state layers": {"model": "nemotron-h-8b", **MEGATRON, "tp": 2, "pp": 1, "zero": 1, "cp": 2},
    "linear attention": {"model": "qwen3-next-80b-a3b", **MEGATRON, "tp": 2, "pp": 2, "ep": 8, "zero": 1},
    "ring": {**DENSE, "pp": 2, "cp": 4, "seq_len": 32768, "nic_bandwidth": "1GB/s"},
    "heads for tokens": {**DENSE, "pp": 2, "cp": 4, "seq_len": 32768, "cp_method": "all-to-all"},
    "interleaved": {**DENSE, "vpp": 4, "overlap": "pp,grad-reduce"},
    "zero-bubble": {**DENSE, "framework": "generic", "schedule": "zero-bubble"},
    "gpipe": {**DENSE, "framework": "generic", "schedule": "gpipe"},
    "fp8": {**DENSE, "precision": "fp8"},
    "mixture fp8": {"model": "mixtral-8x7b", **MEGATRON, "tp": 2, "ep": 8, "pp": 2, "zero": 1, "precision": "fp8"},
    "unfused": {"model": "gpt-2-xl", **MEGATRON, "on": "v100-sxm-32gb", "tp": 1, "pp": 1, "seq_len": 1024, "flash_attention": "off"},
    "launch-bound": {"model": "gpt-2", **FSDP, "gpus": 1, "zero": 0, "global_batch_size": 8, "seq_len": 1024, "micro_batch_size": 1},
    "offload": {**HOST, "zero": 2, "offload": "optimizer,activations"},
    "parameters in the host": {**HOST, "zero": 3, "offload": "optimizer,parameters", "nic_bandwidth": "2GB/s"},
    "states on NVMe": {**HOST, "zero": 3, "offload": "optimizer,nvme"},
    "pages of states": {**HOST, "gpus": 1, "zero": 0, "optimizer": "paged-adamw"},
    "low rank": {**HOST, "zero": 3, "lora_rank": 16, "lora_targets": "all"},
    "frozen layers": {**FSDP, "model": "llama-3-8b", "frozen_layers": 8, "zero": 3, "micro_batch_size": 1},
    "query and key norms": {**FSDP, "model": "qwen3-8b", "zero": 3, "micro_batch_size": 1},
    "further tokens": {**DENSE, "mtp_layers": 1, "layers_per_stage": "8,8,8,8"},
}  # fmt: skip
PERTURBED = ("dense", "zero-0", "fully sharded", "mixture", "latent attention", "ring", "overlapped tensor parallel", "replicas of shards")


@pytest.fixture(scope="module")
def rows():
    """Every case as plain data, estimated when it is first asked for."""
    known: dict[str, dict] = {}

    def row(name: str) -> dict:
        if name not in known:
            known[name] = ironlaw.estimate(**CASES[name]).row(0)
        return copy.deepcopy(known[name])

    return row


@pytest.fixture(scope="module")
def saved(rows, tmp_path_factory):
    """A file of ``estimate --json``, and how to make a changed one beside it."""
    folder = tmp_path_factory.mktemp("saved")

    def write(data=None, name="estimate.json", text=None):
        path = folder / name
        path.write_bytes(text if text is not None else json.dumps(rows("dense") if data is None else data).encode())
        return path

    return write


def leaves(node, factor=1.0):
    """The test's own walk: (name, exclusive seconds) of every leaf."""
    if not node["parts"]:
        return [(node["name"], node["value"] * factor)]
    times = factor * node.get("times", 1.0)
    return [found for part in node["parts"] for found in leaves(part, times)]


def as_the_table_says(row) -> dict[str, float]:
    """The parts a trace of exactly this estimate would have, by the test's own reading of the table."""
    table = shipped("terms.toml")["term"]
    found: dict[str, float] = {}
    for name, seconds in leaves(row["step"]["tree"]):
        if not seconds:
            continue
        (entry,) = (
            e
            for e in table
            if re.fullmatch(e["name"], name)
            and row["plan"]["zero"] in e.get("zero", [0, 1, 2, 3])
            and row["plan"]["sp"] in ([e["sp"]] if "sp" in e else [True, False])
        )
        for part, share in zip(entry["parts"], entry.get("shares", [1.0]), strict=False):
            found[part] = found.get(part, 0.0) + share * seconds
    return found


def measured(parts_, **more) -> Measured:
    return Measured(math.fsum(parts_.values()), parts_, **more)


# the table


def test_the_table_of_terms_is_complete():
    table = shipped("terms.toml")
    assert len({row["part"] for row in table["row"].values()}) == len(table["row"])
    for term in table["term"]:
        assert set(term["parts"]) <= set(known_parts()), term
        assert math.fsum(term.get("shares", [1.0])) == pytest.approx(1.0, abs=1e-15)
        assert len(term.get("shares", term["parts"])) == len(term["parts"])
        assert len(term["parts"]) == 1 or len(term["why"]) > 20, term["name"]


def test_parts_are_the_reasons_of_idle_time():
    from ironlaw.measure.idle import REASONS

    assert {f"idle: {reason}" for reason in REASONS} == {part for part in known_parts() if part.startswith("idle")}


@pytest.mark.parametrize("case", CASES)
def test_every_leaf_has_one_entry_and_all_leaves_sum_to_the_step(case, rows, saved):
    row = rows(case)
    for name, _ in leaves(row["step"]["tree"]):
        if any(name == n and s for n, s in leaves(row["step"]["tree"])):
            assert len(find_entries(name, row["plan"])) == 1, name
    found = as_the_table_says(row)
    assert math.fsum(found.values()) == pytest.approx(row["step"]["seconds"], rel=1e-9)
    row["memory"]["fits"] = True  # the time of a plan is asked here, not whether memory holds it
    made = compare(measured(found), read_saved_estimate(saved(row, "case.json")))
    assert math.fsum(r.predicted for r in made.rows) == pytest.approx(row["step"]["seconds"], rel=1e-9)
    assert max(abs(r.share) for r in made.rows) < 1e-9
    assert made.sentence == "as long as predicted"


def test_the_cases_use_the_whole_table(rows):
    """An entry that not an estimate needs is dead, or the cases miss what it is for."""
    seen = {(name, row["plan"]["zero"], row["plan"]["sp"]) for row in map(rows, CASES) for name, s in leaves(row["step"]["tree"]) if s}
    for term in shipped("terms.toml")["term"]:
        assert any(
            re.fullmatch(term["name"], name)
            and zero in term.get("zero", [0, 1, 2, 3])
            and sp in ([term["sp"]] if "sp" in term else [True, False])
            for name, zero, sp in seen
        ), term["name"]


# times that are summed into an exposed leaf and stand in no tree by themselves, and what is memory
SUMMED = {
    "gather weights", "gather experts", "scatter gradients", "scatter experts' gradients", "all-reduce over replicas",
    "all-reduce of experts", "all-reduce of experts over replicas", "keys and values round the ring", "gather", "scatter",
    "layer of the paired micro-batch", "attention", "attention scores", "activations", "inputs of the norms of queries and keys",
    "inputs of products", "weights", "queries, keys and values", "output of attention", "sums of the softmax",
}  # fmt: skip
MAKERS = {
    "leaf",
    "elementwise_update",
    "kernel",
    "gemm",
    "elementwise",
    "grouped_gemm",
    "collective",
    "all_to_all",
    "point_to_point",
    "ring_pass",
    "exposed",
}


def test_every_term_in_the_code_has_an_entry():
    """Also those that no case above reaches: a new leaf must be added to the table."""
    folder, found = Path(ironlaw.__file__).parent / "estimate", set()
    for module in (
        "step/step",
        "step/optimizer_step",
        "pipeline/schedules",
        "pipeline/hand_overs",
        "layer/passes",
        "layer/experts",
        "network/overlapped_experts",
        "layer/attention",
        "layer/mixers",
        "layer/compressed",
        "layer/state_mixer",
        "layer/scans",
        "layer/residuals",
        "layer/sources",
        "layer/casts",
        "network/sharding",
        "memory/offloading",
    ):
        for node in ast.walk(ast.parse((folder / f"{module}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (getattr(node.func, "id", "") or getattr(node.func, "attr", "")) in MAKERS:
                texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                found |= {text for text in texts[:1] if text not in ("s", "B") and "_" not in text}
    assert {"flash attention", "pipeline bubble", "exposed weight gather", "optimizer"} <= found
    for name in found - SUMMED:
        for zero in (0, 1, 2, 3):
            for sp in (True, False):
                assert len(find_entries(name, {"zero": zero, "sp": sp})) == 1, f"{name!r} is not in measure/data/terms.toml"


# known changes


@pytest.mark.parametrize("case", PERTURBED)
def test_known_changes_appear_in_rows_and_sentence(case, rows):
    row = rows(case)
    step = row["step"]["seconds"]
    parts_ = as_the_table_says(row)
    parts_["exposed all_gather"] = parts_.get("exposed all_gather", 0.0) + 0.07 * step
    parts_["attention"] += 0.03 * step
    parts_["idle: unknown"] = parts_.get("idle: unknown", 0.0) + 0.01 * step
    made = compare(measured(parts_), ironlaw.estimate(**CASES[case]))
    assert made.sentence == "11 % slower than predicted: 7 % exposed all-gather, 3 % attention kernel, 1 % unexplained"
    assert [r.term for r in made.rows[:3]] == ["exposed all-gather", "attention kernel", UNEXPLAINED]
    assert [r.share for r in made.rows[:3]] == pytest.approx([0.07, 0.03, 0.01], abs=1e-12)
    assert all(abs(r.share) < 1e-12 for r in made.rows[3:])


def test_faster_terms_are_named_too(rows):
    row = rows("dense")
    step, parts_ = row["step"]["seconds"], as_the_table_says(row)
    parts_["gemm"] -= 0.06 * step
    parts_["idle: data loading"] = 0.02 * step
    made = compare(measured(parts_), ironlaw.estimate(**DENSE))
    assert made.sentence == "4 % faster than predicted: 6 % matrix products, less 2 % data loading"
    parts_["gemm"] += 0.05 * step
    made = compare(measured(parts_), ironlaw.estimate(**DENSE))
    assert made.sentence == "1 % slower than predicted: 2 % data loading, less 1 % matrix products"


def test_small_terms_are_summed_and_many_are_not_named(rows):
    row = rows("dense")
    step, parts_ = row["step"]["seconds"], as_the_table_says(row)
    for part in ("gemm", "memory operators", "optimizer"):
        parts_[part] += 0.004 * step
    made = compare(measured(parts_), ironlaw.estimate(**DENSE))
    assert re.fullmatch(r"1\.2 % slower than predicted: 1\.2 % \d+ smaller terms", made.sentence), made.sentence


# waiting is looked for where a trace can show it


@pytest.mark.parametrize("part", ["exposed send_recv", "idle: stream wait", "idle: synchronisation"])
def test_a_bubble_is_found_wherever_a_trace_shows_it(part, rows):
    row = rows("dense")
    bubble = next(p["value"] for p in row["step"]["tree"]["parts"] if p["name"] == "pipeline bubble")
    assert bubble > 0.01 * row["step"]["seconds"]
    parts_ = as_the_table_says(row)
    parts_["exposed send_recv"] -= bubble
    parts_[part] = parts_.get(part, 0.0) + bubble
    made = compare(measured(parts_), ironlaw.estimate(**DENSE))
    assert max(abs(r.share) for r in made.rows) < 1e-9
    assert next(r for r in made.rows if part in r.measured_parts).predicted_terms["pipeline bubble"] == pytest.approx(bubble)


def test_a_predicted_bubble_that_is_not_measured_is_a_row(rows):
    row = rows("dense")
    bubble = next(p["value"] for p in row["step"]["tree"]["parts"] if p["name"] == "pipeline bubble")
    parts_ = as_the_table_says(row)
    parts_["exposed send_recv"] -= bubble
    first = compare(measured(parts_), ironlaw.estimate(**DENSE)).rows[0]
    assert first.term == "exposed send and receive"
    assert first.difference == pytest.approx(-bubble)


def test_time_without_a_name_is_unexplained(rows):
    row = rows("dense")
    step, parts_ = row["step"]["seconds"], as_the_table_says(row)
    parts_["other kernels"], parts_["idle: unknown"] = 0.02 * step, 0.01 * step
    made = compare(measured(parts_), ironlaw.estimate(**DENSE))
    assert made.sentence == "3 % slower than predicted: 3 % unexplained"
    assert set(made.rows[0].measured_parts) == {"other kernels", "idle: unknown"}


@settings(max_examples=60)
@given(st.data())
def test_rows_sum_to_the_difference_for_any_measurement(data):
    case = data.draw(st.sampled_from(["dense", "fully sharded", "mixture"]))
    predicted = _kept(case)
    values = data.draw(st.dictionaries(st.sampled_from(known_parts()), st.floats(0.0, 10.0), min_size=1))
    hidden = data.draw(st.floats(0.001, 1.0))  # of the step in no part: it must not be lost
    made = compare(Measured(sum(values.values()) + hidden, values), predicted)
    assert math.fsum(r.difference for r in made.rows) == pytest.approx(made.difference, rel=1e-12, abs=1e-12)
    assert math.fsum(r.measured for r in made.rows) == pytest.approx(made.measured.step_seconds, rel=1e-12)
    assert math.fsum(r.predicted for r in made.rows) == pytest.approx(predicted.seconds, rel=1e-12)
    assert [abs(r.difference) for r in made.rows] == sorted((abs(r.difference) for r in made.rows), reverse=True)
    assert all(r.predicted > -1e-9 for r in made.rows)
    json.dumps(made.data(), allow_nan=False)


_PREDICTED: dict = {}


def _kept(case):
    if case not in _PREDICTED:
        _PREDICTED[case] = read_estimate(ironlaw.estimate(**CASES[case]))
    return _PREDICTED[case]


# a log, the band, utilisation


def test_a_log_gives_the_total_only():
    predicted = _kept("dense")
    made = compare(Measured(1.11 * predicted.seconds, {}), predicted)
    assert made.sentence.startswith("measured ") and " a step: 11 % slower than predicted; a log cannot show which terms" in made.sentence
    assert "log" in made.sentence
    assert made.data()["compare"] == []
    assert made.data()["comparison"]["identifiable"] is False


def test_the_band_of_the_estimate_decides_inside_or_outside(rows):
    low, high, _ = rows("dense")["step"]["band"]
    predicted = _kept("dense")
    inside = [compare(Measured(s, {}), predicted).inside for s in (0.999 * low, 1.001 * low, 0.999 * high, 1.001 * high)]
    assert inside == [False, True, True, False]


def test_utilisation_of_the_published_70b_run_on_512_h100():
    """llm-foundry: 1007 tokens a second and accelerator, 408 TFLOP/s, MFU 41.25 % of a dense 989.5; HFU 4/3 of it with full recompute."""
    asked = {
        "model": "mpt-70b", "on": "h100-sxm", "gpus": 512, "zero": 3, "seq_len": 2048, "global_batch_size": 4096, "recompute": "full",
        "framework": "fsdp", "tp": 1, "pp": 1, "micro_batch_size": 8,
    }  # fmt: skip
    step = 4096 * 2048 / (1007.0 * 512)
    found = compare(Measured(step, {}), ironlaw.estimate(**asked)).data()["comparison"]["utilisation"]
    assert found["mfu_full_square"]["measured"] == pytest.approx(0.4125, rel=0.01)
    assert found["hfu_full_square"]["measured"] == pytest.approx(0.55, rel=0.02)
    assert found["dtype"] == "bf16"
    assert found["peak_flop_per_second"] == pytest.approx(989e12, rel=0.001)
    square = found["mfu_full_square"]["measured"] / found["mfu"]["measured"]  # 408 counts it
    assert square * found["model_flop_per_step_and_accelerator"] == pytest.approx(408e12 * step, rel=0.01)


@pytest.mark.parametrize(
    ("layers", "hidden", "asked", "step", "model_rate", "hardware_rate"),
    [
        (64, 8192, {"gpus": 64, "pp": 16, "micro_batch_size": 4, "global_batch_size": 1024}, 126.64, 41.16, 54.78),
        (40, 6144, {"gpus": 16, "pp": 4, "micro_batch_size": 1, "global_batch_size": 4}, 1.3806, 21.07, 27.97),
        (48, 7168, {"gpus": 32, "pp": 8, "micro_batch_size": 1, "global_batch_size": 4}, 1.6172, 14.56, 19.36),
    ],
)
def test_utilisation_of_three_megatron_logs_on_v100(layers, hidden, asked, step, model_rate, hardware_rate):
    """BigScience's runs: TFLOP/s of each accelerator, of the model and with recomputation, of a dense 125."""
    model = {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": 32, "intermediate_size": 4 * hidden, "vocab_size": 50688,
        "gated_mlp": False, "tie_word_embeddings": True,
    }  # fmt: skip
    asked = {"on": "v100-sxm-32gb", "tp": 4, "zero": 0, "seq_len": 1024, "recompute": "full", "sp": False, "vpp": 1, **asked}
    predicted = load_prediction({"model": model, "framework": "megatron", "precision": "fp16", "flash_attention": "off", **asked})
    found = compare(Measured(step, {}), predicted).data()["comparison"]["utilisation"]
    assert found["mfu_full_square"]["measured"] * 125 == pytest.approx(model_rate, abs=0.011)
    assert found["hfu_full_square"]["measured"] * 125 == pytest.approx(hardware_rate, abs=0.011)


# the same run?


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"device": "Tesla V100-SXM2-32GB"}, "not the same device"),
        ({"device": ""}, "has no device name"),
        ({"world_size": 8}, "not the same number of accelerators: measured on 8, predicted for 64"),
        ({"layers": 32.0}, "not the same layers: 32 on the measured rank, 8 on"),
        ({"microbatches": 1.0}, "not the same micro-batches: 1 per step measured, 16 predicted"),
        ({"steps": 1}, "1 measured step:"),
        ({"mfu": 1.05}, "above 100 %"),
        ({"mfu": 0.1}, "count differently"),
        ({"recompute_seconds": 1.0}, "not the same recomputation"),
    ],
)
def test_two_different_runs_give_warnings(more, word):
    predicted = _kept("dense")
    same = {"device": "NVIDIA H100 80GB HBM3", "world_size": 64, "layers": 8.0, "microbatches": 16.0, "steps": 5, "recompute_seconds": 0.0}
    quiet = compare(Measured(predicted.seconds, {"gemm": predicted.seconds}, **same), predicted).warnings
    assert not any("not" in line.split(":")[0] for line in quiet), quiet
    loud = compare(Measured(predicted.seconds, {"gemm": predicted.seconds}, **{**same, **more}), predicted).warnings
    assert any(word in line for line in loud), loud


@pytest.mark.parametrize("other", [{"device": "NVIDIA L4"}, {"world_size": 8}])
def test_another_device_gives_no_utilisation(other):
    found = compare(Measured(1.0, {}, **other), _kept("dense")).data()["comparison"]["utilisation"]
    assert found["mfu"]["measured"] is None
    assert found["mfu"]["predicted"] > 0.0


def test_a_step_of_convolutions_gives_a_warning():
    predicted = _kept("dense")
    made = compare(Measured(1.0, {"convolution": 0.5, "gemm": 0.5}), predicted)
    assert any("not a transformer" in line for line in made.warnings)


def test_axes_that_the_estimate_chose_are_named():
    made = compare(Measured(1.0, {}), ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=64))
    assert any("the estimate chose" in line and "tp=" in line for line in made.warnings)


@pytest.mark.parametrize(("step", "error"), [(0.0, QuestionError), (math.nan, QuestionError), (-1.0, QuestionError)])
def test_a_step_without_length_is_refused(step, error):
    with pytest.raises(error, match="must be more than 0"):
        Measured(step, {})


def test_parts_have_known_names():
    with pytest.raises(ValueError, match="not a part of a measured step"):
        Measured(1.0, {"nccl": 1.0})


# saved estimates


def test_a_saved_estimate_equals_the_estimate(saved, rows):
    assert rows("dense")["schema_version"] == READABLE[-1]
    live, read = read_estimate(ironlaw.estimate(**DENSE)), read_saved_estimate(saved())
    assert (read.seconds, read.leaves, read.band, read.rates, read.plan) == (live.seconds, live.leaves, live.band, live.rates, live.plan)
    packed = saved(name="packed.json", text=gzip.compress(json.dumps(rows("dense")).encode()))
    assert read_saved_estimate(packed).seconds == live.seconds


def test_an_explained_estimate_is_read(saved):
    data = ironlaw.estimate(**DENSE).row(0, explain=True)
    assert read_saved_estimate(saved(data, "explained.json")).seconds == data["step"]["seconds"]


def changed(row, **fields):
    for path, value in fields.items():
        node = row
        *way, last = path.split("__")
        for key in way:
            node = node[int(key[1:])] if re.fullmatch(r"_\d+", key) else node[key]
        node[last] = value
    return row


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"schema_version": 3}, "schema version 3, this version reads 1 and 2"),
        ({"schema_version": "1"}, "schema version '1'"),
        ({"schema_version": True}, "schema version"),
        ({"step__seconds": None}, "no step time"),
        ({"step__seconds": 0}, "must be more than 0"),
        ({"step__seconds": "1"}, "expected a number"),
        ({"step__seconds": 1e6}, "changed by hand"),
        ({"step__seconds": 10**400}, "larger than any float"),
        ({"step__tree": []}, r"a term of the step is \[\], expected a table"),
        ({"step__tree__parts": None}, "parts of 'step' is null"),
        ({"step__tree__parts": []}, "unknown term 'step'|changed by hand"),
        ({"step__tree__times": 1e308}, "not finite|changed by hand"),
        ({"step__tree__name": "x" * 5000}, "expected a name"),
        ({"step__band": [1, 2]}, "low, high and coverage"),
        ({"step": 3}, "step is 3, expected a table"),
        ({"throughput": None}, "throughput is null"),
        ({"throughput__mfu": "high"}, "mfu is 'high'"),
        ({"plan__gpus": None}, "plan.gpus is null"),
        ({"plan__model": 7}, "model is 7"),
        ({"assumptions": {}}, r"assumptions is {}, expected a list"),
    ],
)
def test_a_changed_saved_estimate_is_refused(fields, word, saved, rows):
    path = saved(changed(rows("dense"), **fields), "changed.json")
    with pytest.raises(InputError, match=word) as raised:
        compare(Measured(1.0, {"gemm": 1.0}), read_saved_estimate(path))
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"", "empty"),
        (b"{}", "schema_version, step or plan is missing"),
        (b"null", "not an estimate"),
        (b"[]", "a list of 0 estimates"),
        (b"[[[[", "not JSON"),
        (b"[" * 100_000, "nested deeper|not JSON"),
        (b'{"a":' * 100_000, "nested deeper|not JSON"),
        (b'{"schema_version": NaN}', "NaN is not a number"),
        (b'{"schema_version": -Infinity}', "not a number"),
        (b'{"schema_version": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"\xff\xfe{", "UTF-16"),
        (b"\x80\x04K\x01.", "not UTF-8"),
        (b" " * (9 << 20), "at most"),
        (gzip.compress(b" " * (9 << 20)), "unpacks to more"),
    ],
)
def test_a_file_that_is_not_an_estimate_is_refused(text, word, saved):
    with pytest.raises(InputError, match=word):
        read_saved_estimate(saved(name="hostile.json", text=text))


def test_a_step_tree_that_is_too_large_is_refused(saved, rows):
    row = rows("dense")
    node = row["step"]["tree"]
    for _ in range(100):
        node["parts"] = [{"name": "deeper", "value": 1.0, "parts": []}]
        node = node["parts"][0]
    with pytest.raises(InputError, match="too large"):
        read_saved_estimate(saved(row, "deep.json"))
    row = rows("dense")
    row["step"]["tree"]["parts"] = [{"name": "norms", "value": 0.0, "parts": []}] * 30_000
    with pytest.raises(InputError, match="too large"):
        read_saved_estimate(saved(row, "wide.json"))


def test_an_unknown_term_is_refused(saved, rows):
    row = rows("dense")
    optimizer = next(p for p in row["step"]["tree"]["parts"] if p["name"] == "optimizer")
    optimizer["name"] = "magic"
    with pytest.raises(InputError, match="unknown term 'magic'"):
        compare(Measured(1.0, {"gemm": 1.0}), read_saved_estimate(saved(row, "magic.json")))


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150)
@given(data=st.data())
def test_any_change_of_a_file_raises_only_errors_of_ironlaw(data, tmp_path, rows):
    row = rows("dense")
    for _ in range(data.draw(st.integers(1, 3))):
        node, key = row, data.draw(st.sampled_from(["step", "plan", "throughput", "memory", "assumptions", "schema_version"]))
        for _ in range(data.draw(st.integers(0, 7))):
            below = node[key]
            if not isinstance(below, (dict, list)) or not below:
                break
            node = below
            key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else list(range(len(node)))))
        if data.draw(st.booleans()) and isinstance(node, dict) and len(node) > 1:
            del node[key]
            break
        node[key] = data.draw(_ANY)
    path = tmp_path / "estimate.json"
    path.write_text(json.dumps(row), encoding="utf-8")
    try:
        made = compare(Measured(1.0, {"gemm": 0.5, "idle: unknown": 0.5}), read_saved_estimate(path))
        json.dumps(made.data(), allow_nan=False)
    except InputError as error:
        assert "\n" not in str(error)


# options


def test_options_are_those_of_estimate():
    options = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": "64", "tp": "2", "pp": "4", "zero": "1", "micro_batch_size": "1"}
    assert run_estimate(options).step_seconds[0] == ironlaw.estimate(**options).step_seconds[0]
    found = load_prediction({**options, "vpp": None})
    assert found is not None
    assert found.seconds == ironlaw.estimate(**options).step_seconds[0]
    assert load_prediction({}) is None
    assert load_prediction({"model": None}) is None


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"on": "h100-sxm", "gpus": 8}, QuestionError, "missing option --model"),
        ({"model": "llama-3-8b", "gpus": 8}, QuestionError, "--on"),
        ({"model": "llama-3-8b", "on": "h100-sxm", "gpus": [8, 16]}, QuestionError, "2 rows"),
        ({"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "tp": 3}, PlanError, "the plan cannot run"),
        ({"model": "llama-3-8b", "on": "a-toaster", "gpus": 8}, IronlawError, "a-toaster"),
    ],
)
def test_impossible_options_are_refused(options, error, word):
    with pytest.raises(error, match=word):
        load_prediction(options)


def test_a_saved_estimate_and_options_contradict(saved):
    path = saved()
    assert load_prediction({}, path).seconds == _kept("dense").seconds
    with pytest.raises(QuestionError, match="--model, --micro-batch-size both describe"):
        load_prediction({"model": "llama-3-8b", "micro_batch_size": 1}, path)


def test_a_run_is_compared_even_if_the_estimate_does_not_fit():
    predicted = load_prediction({"model": "llama-3-70b", "on": "h100-sxm", "gpus": 8, "tp": 8, "recompute": "none", "offload": "none"})
    assert predicted is not None
    found = compare(Measured(predicted.seconds, {}, device="h100-sxm", world_size=8), predicted)
    assert any("the run fitted" in line for line in found.warnings)
