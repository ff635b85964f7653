"""What must hold between two answers whatever the plan: schedules, links, hosts, bands, options without effect, unknown prices."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ironlaw
from ironlaw.cautions.record import sentences
from ironlaw.cli.main import main
from ironlaw.errors import QuestionError

DENSE = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "vocab_size": 64000, "gated_mlp": True, "tie_word_embeddings": False,
}  # fmt: skip
ROUTED = {**DENSE, "num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 7168}
PLAN = {
    "on": "h100-sxm", "gpus": 64, "tp": 2, "pp": 1, "vpp": 1, "cp": 1, "zero": 1, "micro_batch_size": 1, "global_batch_size": 256,
    "seq_len": 4096, "recompute": "none", "framework": "generic",
}  # fmt: skip


def ask(model=DENSE, **changes):
    answer = ironlaw.estimate(model, **{**PLAN, **changes})
    assert answer.legal.all(), sentences(answer.row()["warnings"])
    return answer


def seconds(model=DENSE, **changes) -> float:
    return float(ask(model, **changes).step_seconds[0])


def term(answer, name: str) -> float:
    return float(np.ravel(answer.groups[0].step.tree[name].value)[0])


# schedules


@pytest.mark.parametrize("schedule", ["gpipe", "zero-bubble", "dualpipe", "interleaved"])
def test_a_mixture_has_no_schedule_without_a_pipeline(schedule):
    """DualPipe hides all-to-all beside another micro-batch in the pipe; one stage has none."""
    plain, other = ask(ROUTED, ep=8, schedule="1f1b"), ask(ROUTED, ep=8, schedule=schedule)
    assert other.step_seconds[0] == plain.step_seconds[0]
    assert other.device_bytes[0] == plain.device_bytes[0]
    assert other.row()["step"]["band"] == plain.row()["step"]["band"] is not None


def test_dualpipe_hides_the_exchange_where_there_is_a_pipeline():
    piped = {"ep": 8, "pp": 4, "global_batch_size": 512}
    assert term(ask(ROUTED, **piped, schedule="dualpipe"), "expert parallel") < term(ask(ROUTED, **piped), "expert parallel")


# hand-overs


def test_a_hand_over_that_leaves_the_domain_sets_the_pace():
    """16 stages of 4 ranks: every second boundary lies between two nodes of 8, so the fabric counts; on one domain of 64 it does not."""
    piped = {"pp": 16, "tp": 4, "overlap": "none"}
    slow, fast = ({**piped, "nic_bandwidth": rate} for rate in ("5GB/s", "50GB/s"))
    assert term(ask(**slow), "p2p") > 5.0 * term(ask(**fast), "p2p")
    assert term(ask(**slow, scale_up_size=64), "p2p") == term(ask(**fast, scale_up_size=64), "p2p")


def test_a_ring_that_straddles_a_domain_goes_over_the_fabric():
    """Rings of 8 ranks, 2 apart, span two nodes of 8; rings of 4 fill one."""
    for cp, crosses in ((8, True), (4, False)):
        slow, fast = (term(ask(cp=cp, seq_len=65536, nic_bandwidth=rate), "context parallel") for rate in ("1GB/s", "50GB/s"))
        assert (slow > fast) == crosses


def test_what_is_hidden_beside_a_chunk_is_at_most_the_chunk():
    """2 chunks on each of 8 stages: handing over 4096 tokens, 4096 wide in bf16, half of it a rank, takes 16.8 s at 1 MB/s."""
    piped = {"pp": 8, "vpp": 2, "overlap": "pp"}
    usual, slow = ask(**piped), ask(**piped, nic_bandwidth="1MB/s")
    assert term(usual, "hand-overs beside chunks") == 0.0
    hop = 4096 * 4096 * 2.0 / 2 / 1e6
    micro_batches = 256 / 4
    assert float(slow.step_seconds[0]) > 2 * 2 * micro_batches * hop * 0.9
    assert float(slow.step_seconds[0]) == pytest.approx(seconds(**{**piped, "overlap": "none"}, nic_bandwidth="1MB/s"), rel=0.05)


# the host


def test_the_host_launches_on_while_the_device_waits_for_weights():
    """Small layers on a slow fabric: launches and transfers happen at once, so the longer sets the pace, not their sum."""
    small = {**DENSE, "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8}
    one = {"tp": 1, "zero": 3, "framework": "fsdp", "seq_len": 512}
    starved, slow = ask(small, **one), ask(small, **one, nic_bandwidth="1GB/s")
    assert term(starved, "host dispatch") > 0.0
    assert term(slow, "sharded data parallel") > term(starved, "sharded data parallel")
    assert term(slow, "host dispatch") < term(starved, "host dispatch")


@pytest.mark.parametrize("rate", ["1GB/s", "20GB/s", "50GB/s", "400GB/s"])
def test_recomputing_is_never_faster_than_keeping(rate):
    """With weights gathered beside the layers, whatever binds: device, host or fabric."""
    one = {"tp": 1, "zero": 3, "framework": "fsdp", "seq_len": 512, "nic_bandwidth": rate, "model": DENSE}
    kept, some, full = (seconds(**one, recompute=how) for how in ("none", "selective:attention,elementwise", "full"))
    assert kept <= some * (1 + 1e-12) and some <= full * (1 + 1e-12)


# the table that both ends hold


def test_both_ends_sum_the_gradient_of_a_tied_table():
    """64,000 x 4,096 in fp32 between two ranks with 2 ways of tp: 524 MB each way at 50 GB/s is 10.5 ms, and more for the library."""
    tied = {**DENSE, "tie_word_embeddings": True}
    found = term(ask(tied, pp=4), "tied-embedding all-reduce")
    wire = 64000 * 4096 * 4.0 / 2 / 50e9
    assert wire < found < 1.5 * wire
    for answer in (ask(tied, pp=1), ask(DENSE, pp=4), ask(tied, pp=4, lora_rank=8)):
        assert all(t.name != "tied-embedding all-reduce" or float(np.ravel(t.value)[0]) == 0.0 for t in answer.groups[0].step.tree.walk())
    assert term(ask(tied, pp=4, tp=4), "tied-embedding all-reduce") < found  # a share for each rank
    assert term(ask(tied, pp=4, zero=2), "tied-embedding all-reduce") < found  # a shard for each rank


def test_further_tokens_need_the_table_on_the_last_stage_too():
    assert term(ask(DENSE, pp=4, mtp_layers=1), "tied-embedding all-reduce") > 0.0


# bands


def test_a_device_that_nobody_scored_has_the_wider_band():
    """Mixtures, runs at scale and plain dense runs: each is wider on a device without a published run."""

    def half(on: str, model=DENSE, **changes) -> float:
        lo, hi, _ = ask(model, on=on, **changes).row()["step"]["band"]
        return float(np.log(hi / lo) / 2.0)

    for changes in ({}, {"gpus": 512, "global_batch_size": 1024}, {"model": ROUTED, "ep": 8}):
        assert half("mi300x", **changes) > half("h100-sxm", **changes) + 0.03


# options without effect


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"expert_imbalance": 2.0}, "--expert-imbalance has no effect without experts"),
        ({"capacity_factor": 1.5}, "--capacity-factor has no effect without experts"),
        ({"moe_dispatcher": "deepep"}, "--moe-dispatcher has no effect without experts"),
        ({"grouped_experts": "off"}, "--grouped-experts has no effect without experts"),
        ({"model": ROUTED, "capacity_factor": 1.5, "expert_imbalance": 2.0}, "--expert-imbalance has no effect with --capacity-factor"),
        ({"offload_layers": 4}, "--offload-layers has no effect without --offload activations"),
        ({"lora_targets": "all"}, "--lora-targets has no effect without --lora-rank"),
        ({"cp_method": "all-to-all"}, "--cp-method has no effect with cp 1"),
        ({"document_length": 4096}, "--document-length has no effect from seq_len 4096 on"),
        ({"schedule": "gpipe"}, "--schedule has no effect with pp 1"),
        ({"deferred_wgrad": 4}, "--deferred-wgrad has no effect with pp 1"),
        ({"pp": 2, "microbatch_group": 4}, "--microbatch-group has no effect with vpp 1"),
        ({"evaluation_tokens": "1M"}, "--evaluation-tokens has no effect without --tokens"),
        ({"tokens": "1B", "evaluation_tokens": "1M"}, "--evaluation-tokens has no effect without --evaluate-every"),
    ],
    ids=lambda v: next(iter(reversed(v))) if isinstance(v, dict) else "",
)
def test_an_option_without_effect_is_named_and_has_none(given, named):
    answer = ask(**given)
    assert any(warning.startswith(named) for warning in sentences(answer.row()["warnings"])), sentences(answer.row()["warnings"])
    option = next(iter(reversed(given)))
    without = {name: value for name, value in given.items() if name != option}
    assert answer.step_seconds[0] == ask(**without).step_seconds[0]
    assert answer.device_bytes[0] == ask(**without).device_bytes[0]


@pytest.mark.parametrize(
    "given",
    [
        {"model": ROUTED, "ep": 8, "expert_imbalance": 2.0}, {"cp": 2, "cp_method": "all-to-all"}, {"document_length": 512},
        {"pp": 4, "schedule": "gpipe"}, {"lora_rank": 8, "lora_targets": "all"},
    ],
)  # fmt: skip
def test_an_option_with_an_effect_is_not_called_idle(given):
    assert not [w for w in sentences(ask(**given).row()["warnings"]) if "has no effect" in w]


# a device nobody has priced


@pytest.fixture
def unpriced(tmp_path) -> str:
    """A folder with one accelerator that the catalogue lacks, and nothing else."""
    (tmp_path / "accelerators").mkdir()
    (tmp_path / "accelerators" / "l41.toml").write_text(
        'title = "NVIDIA L40 48 GB"\nvendor = "NVIDIA"\narchitecture = "ada"\nusual_node = "l40s-8"\ncalibration = "l40s"\n'
        'memory_capacity = { value = "48 GiB", source = "s" }\nhbm_bandwidth = { value = "864 GB/s", source = "s" }\n'
        'tdp = { value = "300 W", source = "s" }\n[peak]\nbf16 = { value = "181 TFLOP/s", source = "s" }\n'
        '[sources.s]\ntitle = "NVIDIA L40 datasheet"\nurl = "https://www.nvidia.com/en-us/data-center/l40/"\n'
        'read = 2026-11-22\ngrade = "vendor"\n'
    )
    return str(tmp_path)


def test_one_file_is_enough_for_a_run(unpriced, capsys):
    ask = ["estimate", "llama-3-8b", "--catalog", unpriced, "--on", "l41", "--gpus", "32", "--tokens", "100B"]
    assert main(ask) == 0
    page = capsys.readouterr().out
    assert "no price known" in page and "price none: the catalogue has no price of l41" in page
    assert main([*ask, "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert run["usd"] is run["usd_with_failures"] is None
    assert run["days"] > 0 and run["kwh"] > 0
    assert main([*ask, "--price", "1.5", "--json"]) == 0
    priced = json.loads(capsys.readouterr().out)["run"]
    assert priced["usd"] == pytest.approx(1.5 * run["gpu_hours"])
    assert main([*ask, "--explain"]) == 0


def test_one_file_is_enough_for_a_search(unpriced, capsys):
    ask = ["plan", "llama-3-8b", "--catalog", unpriced, "--on", "l41", "--gpus", "16"]
    assert main(ask) == 0
    assert main([*ask, "--tokens", "100B"]) == 0
    assert "no price known" in capsys.readouterr().out
    assert main([*ask, "--tokens", "100B", "--json"]) == 0
    json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    for money in (["--minimize", "cost"], ["--budget", "1M", "--tokens", "1T"]):
        assert main([*ask, *money]) == 2
        assert capsys.readouterr().err.startswith("ironlaw: the catalogue has no price of l41: give --price")


def test_a_price_that_is_named_must_be_there(unpriced):
    with pytest.raises(QuestionError, match="the catalogue has no price of l41"):
        ironlaw.estimate("llama-3-8b", on="l41", gpus=8, tokens="1B", price="lambda/on-demand", catalog=unpriced)


def test_layers_that_are_chunks_with_the_ends_counted_run(capsys):
    """94 layers and the two ends are 96 = 32 x 3: one each chunk. With vpp 4 no count helps, and none is offered."""
    asked = ["estimate", "qwen-3-235b-a22b", "--on", "h100-sxm", "--gpus", "256", "--tp", "4", "--pp", "32", "--micro-batch-size", "1",
             "--global-batch-size", "64", "--zero", "1", "--recompute", "full", "--short"]  # fmt: skip
    assert main([*asked, "--vpp", "3", "--count-embedding", "on"]) in (0, 1)
    capsys.readouterr()
    assert main([*asked, "--vpp", "4"]) not in (0, 1)
    said = "".join(capsys.readouterr())
    assert "a layer for every chunk" in said
    assert "--count-embedding" not in said
