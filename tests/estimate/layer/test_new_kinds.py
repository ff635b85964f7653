"""Worked numbers of compressed and linear attention, hyper-connections, attention residuals and attention in fp8, from their papers."""

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.errors import IronlawError
from ironlaw.estimate.layer import residuals as layer_residuals
from ironlaw.estimate.layer.counts import attending_layers, total_parameters
from ironlaw.estimate.layer.kinds import kinds, sized
from ironlaw.estimate.legality.rules import broken
from ironlaw.estimate.pipeline.hand_overs import handed_over, sources
from ironlaw.law import compressed, flops, masks, residuals, scans

MILLION = 2.0**20
PLAN = {"on": "h200-sxm", "gpus": 64, "tp": 1, "pp": 1, "cp": 1, "ep": 64, "zero": 3, "seq_len": 4096, "micro_batch_size": 1,
        "global_batch_size": 64, "recompute": "none", "framework": "megatron"}  # fmt: skip


def one_token(model, active):
    """FLOPs of one token behind a million others, in units of fp8: what DeepSeek-V4's report compares. Attention in bf16 counts double."""
    total = 2.0 * active
    for kind in kinds(model):
        if kind.place == "end":
            continue
        m = sized(model, kind)
        if m.kv_lora_rank:  # V3.2: picked keys, whose latent is key and value
            total += kind.count * 2.0 * float(flops.attention_core(1, 1, m.index_topk, m.num_attention_heads, m.kv_lora_rank + 32))
            total += kind.count * float(flops.indexer(1, 1, MILLION, m.index_n_heads, m.index_head_dim))
            continue
        entries = MILLION / m.compress_ratio if m.compress_ratio else 0.0
        seen = m.sliding_window + (min(entries, m.index_topk) if m.index_topk else entries)
        total += kind.count * 2.0 * float(flops.attention_core(1, 1, seen, m.num_attention_heads, m.head_dim))
        if m.index_topk:  # the indexer of V4 is in fp4, half of fp8
            total += kind.count * 0.5 * float(flops.indexer(1, 1, entries, m.index_n_heads, m.index_head_dim))
    return total


@pytest.mark.parametrize(("name", "active", "share"), [("deepseek-v4-pro", 49e9, 0.27), ("deepseek-v4-flash", 13e9, 0.10)])
def test_a_token_of_deepseek_v4_costs_the_published_share_of_v3_2(name, active, share):
    """DeepSeek-V4, abstract: with a million tokens of context, 27 % (Pro) and 10 % (Flash) of the single-token FLOPs of V3.2."""
    before = one_token(load.record("models", "deepseek-v3.2"), 37e9)
    assert one_token(load.record("models", name), active) / before == pytest.approx(share, abs=0.01)


def test_keys_of_compressed_attention_are_counted_one_by_one():
    length, window, ratio, picked = 4096, 128, 4, 512
    queries = np.arange(length) + 0.5  # the field's convention: a query stands in the middle of its place
    entries = np.minimum(queries / ratio, picked)
    assert float(compressed.key_length(length, window, ratio, picked)) == pytest.approx(
        np.mean(np.minimum(queries, window) + entries), rel=1e-4
    )
    assert float(compressed.key_length(length, window, 0, 0)) == float(masks.attended_length(length, window))


def test_kimi_delta_attention_has_the_operations_of_its_paper():
    """Kimi Linear, equation 10: 6 T d^2 + 3 T C d + T C^2 a head with C = 64, d = 128, and 2 T^2 d of causal attention."""
    length, heads = 65536, 32
    by_paper = heads * (6 * length * 128**2 + 3 * length * 64 * 128 + length * 64**2)
    assert float(scans.kimi_delta_scan(1, length, heads, 128, 64)) == by_paper
    attention = flops.attention_core(1, length, masks.attended_length(length, 0), heads, 128)
    assert float(attention) == heads * 2 * length**2 * 128
    assert float(attention) / by_paper == pytest.approx(132.13, rel=1e-3)


def test_four_streams_move_six_times_a_plain_addition():
    """mHC, table 2 and section 4.3.1: 3 n + 1 elements read and n + 1 written a channel, n of them read by the coefficients' product."""
    n, width = 4, 7168
    beside = float(residuals.hyper_connection_traffic(1, width, n, 1)) / width
    assert beside + n == (3 * n + 1) + (n + 1) == 18
    assert float(residuals.hyper_connection_matmul(width, n)) == (n * n + 2 * n) * n * width


def test_streams_are_kept_handed_over_and_checkpointed():
    v4, k3, plain = (load.record("models", name) for name in ("deepseek-v4-flash", "kimi-k3", "llama-3-8b"))
    assert (handed_over(v4), handed_over(plain)) == (4.0, 1.0)
    # 93 layers in groups of 12: the embedding, the sums before, and the one under way
    assert handed_over(k3) == sources(k3) == pytest.approx(2.0 + (93 / 12 - 1) / 2)
    assert layer_residuals.saved_states(v4, 2.0, 1.0) == 2 + 2 * 4
    assert layer_residuals.saved_states(v4, 2.0, 0.0) == 2 + 4
    assert layer_residuals.saved_states(plain, 2.0, 1.0) == 0.0


def test_hyper_connections_take_the_place_of_additions():
    with_streams, model = ironlaw.estimate("deepseek-v4-flash", **PLAN), load.record("models", "deepseek-v4-flash")
    tree = with_streams.groups[0].step.tree
    names = {term.name for term in tree.walk()}
    assert {"residual streams", "stream weights gemm", "entries of tokens", "index scores"} <= names
    assert "residuals" not in names
    assert float(total_parameters(model)) - float(total_parameters(model.replace(hc_mult=0))) == 43 * 2 * 393_243 + 65_541


@pytest.mark.parametrize(("name", "layers"), [("kimi-k3", 24), ("minimax-text-01", 10), ("jamba-v0.1", 4), ("mamba-2.8b", 0)])
def test_scanning_layers_do_not_attend(name, layers):
    model = load.record("models", name)
    assert attending_layers(model) == layers


@pytest.mark.parametrize("name", ["kimi-linear-48b-a3b", "minimax-text-01", "mamba-2.8b", "jamba-v0.1"])
def test_time_of_a_scan_goes_with_the_sequence(name):
    """Of a scan's time twice the tokens take twice as long, but for its launches."""

    def scan(length):
        plan = PLAN | {"seq_len": length, "ep": 1, "tp": 1}
        tree = ironlaw.estimate(name, **plan).groups[0].step.tree
        return max(float(np.ravel(term.inputs["flop"])[0]) for term in tree.walk() if term.name in ("state scan", "selective scan"))

    assert scan(16384) == 2.0 * scan(8192)


@pytest.mark.parametrize(
    ("change", "rule", "says"),
    [
        ({"cp": 2, "gpus": 128}, "cp_splits_attention", "context parallelism of compressed attention is not modelled"),
        ({"tp": 16, "gpus": 1024}, "tp_divides_output_groups", "tp 16 does not divide o_groups 8"),
    ],
)
def test_a_plan_of_compressed_attention_that_is_not_modelled_is_not_legal(change, rule, says):
    answer = ironlaw.estimate("deepseek-v4-flash", **PLAN | change)
    (group,) = answer.groups
    assert not answer.legal[0] and not np.ravel(group.rules[rule])[0]
    (message,) = [text for text in broken(group.job, group.plan, group.rules, 0) if says in text]
    assert "\n" not in message


def test_attention_in_fp8_is_faster_by_its_rate_and_needs_the_device():
    """FlashAttention-3: 1.2 PFLOP/s in fp8 to 0.74 in 16 bits."""
    asked = {"on": "h100-sxm", "gpus": 8, "tp": 1, "pp": 1, "cp": 1, "zero": 3, "seq_len": 131072, "micro_batch_size": 1,
             "global_batch_size": 8, "recompute": "full", "framework": "megatron"}  # fmt: skip

    def kernels(how):
        tree = ironlaw.estimate("llama-3-8b", **asked, attention_precision=how).groups[0].step.tree
        return {term.name: float(np.ravel(term.value)[0]) for term in tree["micro-batches/layers/forward"].parts}

    wide, narrow = kernels("wide"), kernels("fp8")
    assert wide["flash attention"] / narrow["flash attention"] == pytest.approx(1.2 / 0.74, rel=0.01)
    assert "attention casts" in narrow and "attention casts" not in wide
    with pytest.raises(IronlawError, match="has no fp8 rate"):
        ironlaw.estimate("llama-3-8b", **asked | {"on": "a100-sxm"}, attention_precision="fp8")
