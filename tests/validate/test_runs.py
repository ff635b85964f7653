"""Rows of run tables become questions: rules that fill blanks, facts in prose, and measured step times."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import ironlaw
from ironlaw.estimate.answer.estimate import answer
from ironlaw.estimate.answer.table import answer_many, read_table
from ironlaw.validate import predict
from ironlaw.validate.fill import Apart, SkipError, number
from ironlaw.validate.predict import prepare, times
from ironlaw.validate.runs import RUNS, Measured, Skipped, read_runs
from ironlaw.validate.stack import Known, find_stack
from made_runs import GPT, mapped, ready


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


def test_a_full_row_needs_no_rule_and_is_not_set_apart():
    run = mapped(sharding="none", model_name="Ours 7B")
    assert (run.rules, run.apart) == ((), ())


@pytest.mark.parametrize(("how", "part", "layers"), [("full", "0.25", 0.25), ("full", "1", 1.0), ("full", "", 1.0), ("none", "0", 0.0)])
def test_a_share_of_layers_recomputed_in_full_is_no_more_than_that(how, part, layers):
    """Megatron's --recompute-method block recomputes some layers whole and leaves the others."""
    runs = [mapped(sharding="none", recompute=how, recompute_fraction=part)]
    prepared, skipped = prepare(runs)
    assert not skipped
    assert float(np.ravel(prepared.batches[0].plan.recompute_layers)[0]) == layers


def test_models_of_a_family_have_its_traits_at_every_size():
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


def test_a_stack_is_recognised_by_a_word():
    for name, taken in (("Megatron-DeepSpeed fork", "deepspeed"), ("JAX", "maxtext"), ("TorchTitan fork", "torchtitan")):
        assert find_stack({"framework": name}) == (taken, Known.WORD)


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
    [("", "how attention is counted"), ("all", "how attention is counted"), ("full, with recompute", "include recomputation")],
)
def test_flops_without_a_known_convention_are_skipped(convention, why):
    with pytest.raises(SkipError, match=why):
        mapped(step_time_s="", tflops_per_gpu="150", flops_convention=convention)


def test_a_stated_step_comes_first():
    assert mapped(tokens_per_s_per_gpu="1").measured == Measured(4.0)


def test_thousands_are_whole_groups_of_three():
    assert [number(c) for c in ("1,536", "1 536", "1'536.5", "12,345,678")] == [1536.0, 1536.0, 1536.5, 12345678.0]
    assert all(np.isnan(number(c)) for c in ("9,5", "1,53", "1,5360", "1,234 567", "abc", "0x10", "9_0", "", None))


def test_more_cells_than_the_header_skip_their_row_only(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(f"{','.join(GPT)}\n{','.join(GPT.values())},extra\n{','.join(GPT.values())}\n", encoding="utf-8")
    runs, skipped = read_runs(path)
    assert [r.line for r in runs] == [3]
    assert skipped == [Skipped("a", 2, "ours", "more cells than the header: 'extra'")]


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


def test_maxtext_splits_experts_over_its_tensor_axis_and_recomputes_in_full():
    found = {r.id: r for r in read_runs()[0] if r.id in ("maxtext-043", "maxtext-044", "maxtext-045")}
    assert {name: str(r.asked[0].get("recompute")) for name, r in found.items()} == dict.fromkeys(found, "full")
    assert float(found["maxtext-045"].asked[0]["etp"]) == 4.0
    assert any("tensor axis" in rule for rule in found["maxtext-045"].rules)
    assert float(found["maxtext-044"].asked[0]["etp"]) == 1.0


def test_counts_and_families_of_prepared_runs_are_computed_once():
    from ironlaw.validate.predict import prepare
    from ironlaw.validate.runs import read_runs

    prepared, _ = prepare(read_runs(RUNS)[0][:20])
    assert prepared.counts is prepared.counts and prepared.families is prepared.families


@pytest.mark.parametrize("cell", ["x", "1e999", "-1", "nan", "1e400", "0"])
@pytest.mark.parametrize("name", ["tp", "pp", "cp", "ep", "etp", "vpp", "dp", "zero_group", "micro_batch"])
def test_a_degree_that_is_no_number_skips_its_row(name, cell):
    with pytest.raises(SkipError, match=f"{name} is '{cell}', must be a number above 0"):
        mapped(**{name: cell}, vocab="")


def test_a_blank_degree_pads_the_vocabulary_for_one_rank():
    assert mapped(tp="", vocab="").cells["vocab"] == str(-(-50257 // 128) * 128)


VALUES = ("", "x", "0", "-1", "1e999", "1e308", "1e-320", "nan", "0.5", "1,5", "9" * 400, "\uff18", "y", "n", "every:0", "a=b,c")


@pytest.mark.parametrize("dropped", ["", "vocab", "tp", "pp", "precision", "framework", "recompute", "vpp"])
def test_one_wrong_cell_never_loses_a_table(dropped, tmp_path):
    """Every column with every kind of wrong cell: the row is a run or is set apart with a reason, and the row after it is read."""
    mixture = {"moe_experts": "8", "moe_topk": "2", "expert_ffn_hidden": "1024", "shared_experts": "1"}
    table = [cells for _, cells in read_table(RUNS)]
    columns = list(dict.fromkeys(name for cells in table for name in cells))
    for base in ({**GPT, "pp": "2", dropped: ""}, {**GPT, **mixture, dropped: ""}):
        rows = [{**base, name: value} for name in columns for value in VALUES if name not in ("id", "family")]
        with (tmp_path / "runs.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows([*rows, GPT])
        runs, skipped = read_runs(tmp_path / "runs.csv")
        assert len(runs) + len(skipped) == len(rows) + 1 and runs[-1].line == len(rows) + 2
        assert all(row.reason for row in skipped)
