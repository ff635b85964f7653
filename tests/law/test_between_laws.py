"""Relations between laws: what one says must agree with what another says, or with a count made the slow way."""

from __future__ import annotations

import numpy as np
import pytest

from ironlaw.catalog import load
from ironlaw.law import activations, collectives, cost, flops, kernels, masks, overlap, pipeline, run, states, traffic
from ironlaw.question import defaults

RNG = np.random.default_rng(11)
ROWS = 500


def whole(low, high, rows=ROWS):
    return RNG.integers(low, high, rows).astype(float)


def real(low, high, rows=ROWS):
    return RNG.uniform(low, high, rows)


# kernels


def test_a_kernel_takes_the_longer_roof():
    flop, moved, peak, bandwidth = real(1e9, 1e13), real(1e6, 1e10), real(1e13, 1e15), real(1e12, 8e12)
    efficiency, fraction, fill, launch = real(0.3, 1.0), real(0.3, 1.0), real(0.0, 1e-5), real(0.0, 1e-5)
    compute = kernels.compute_time(flop, peak, efficiency) + fill
    memory = kernels.memory_time(moved, bandwidth, fraction, 0.0)
    bound = kernels.memory_bound(flop, moved, peak, bandwidth, efficiency, fraction, fill)
    time = kernels.kernel_time(flop, moved, peak, bandwidth, efficiency, fraction, fill, launch)
    assert bound.any() and not bound.all()
    np.testing.assert_array_equal(time, np.where(bound, memory, compute) + launch)


def test_ridge_point_parts_the_roofs():
    flop, moved, peak, bandwidth = real(1e9, 1e13), real(1e6, 1e10), real(1e13, 1e15), real(1e12, 8e12)
    below = kernels.intensity(flop, moved) < kernels.ridge_point(peak, bandwidth)
    np.testing.assert_array_equal(below, kernels.memory_bound(flop, moved, peak, bandwidth, 1.0, 1.0, 0.0))
    rate = kernels.attainable_rate(kernels.intensity(flop, moved), peak, bandwidth)
    np.testing.assert_allclose(flop / rate, kernels.kernel_time(flop, moved, peak, bandwidth, 1.0, 1.0, 0.0, 0.0), rtol=1e-13)


def test_power_follows_the_cube_of_the_clock():
    limit, idle = real(200.0, 700.0), real(50.0, 150.0)
    clock = kernels.power_limited_clock(limit, 700.0, idle)
    np.testing.assert_allclose(idle + (700.0 - idle) * clock * clock * clock, limit, rtol=1e-12)


def test_below_the_voltage_floor_power_follows_the_clock():
    """Both pieces meet at the floor; below it half the power above idle is half the clock, and the cube alone promises more."""
    idle, floor = real(50.0, 150.0), real(0.5, 0.95)
    at_floor = idle + (700.0 - idle) * floor * floor * floor
    np.testing.assert_allclose(kernels.power_limited_clock(at_floor, 700.0, idle, floor), floor, rtol=1e-12)
    below = idle + (at_floor - idle) / 2.0
    np.testing.assert_allclose(kernels.power_limited_clock(below, 700.0, idle, floor), floor / 2.0, rtol=1e-12)
    assert (kernels.power_limited_clock(below, 700.0, idle) > floor / 2.0).all()


def test_work_for_a_joule_is_most_at_the_voltage_floor_or_above():
    """Without a host, the energy of a fixed work, P / clock, falls to the floor; the cube alone has its least at 1.5 times idle power."""
    limits = np.linspace(120.0, 700.0, 59)
    cost = limits / kernels.power_limited_clock(limits, 700.0, 105.0, 0.86)
    assert abs(limits[np.argmin(cost)] - (105.0 + 595.0 * 0.86**3)) <= 10.0
    alone = limits / kernels.power_limited_clock(limits, 700.0, 105.0)
    assert abs(limits[np.argmin(alone)] - 1.5 * 105.0) <= 10.0


def test_attention_reaches_half_its_efficiency_at_the_saturation_length():
    length = real(100.0, 2000.0)
    np.testing.assert_allclose(kernels.saturating_efficiency(length, 0.7, length), 0.35)
    assert kernels.saturating_efficiency(1e15, 0.7, 600.0) == pytest.approx(0.7)


def test_the_tail_of_an_attention_kernel_goes_with_its_length():
    """Time over filling is time and a tail that does not depend on the number of heads."""
    heads, length, saturation = whole(1, 65), whole(512, 16384), real(1e3, 5e4)
    flop = flops.attention_core(1.0, length, length / 2.0, heads, 128.0)
    tail = flop / kernels.device_filling(heads * length, saturation) - flop
    np.testing.assert_allclose(tail, flops.attention_core(1.0, saturation, length / 2.0, 1.0, 128.0), rtol=1e-6)


def test_full_waves_waste_nothing():
    rounds, multiprocessors = whole(1, 50), whole(1, 200)
    np.testing.assert_array_equal(kernels.wave_efficiency(rounds * multiprocessors, multiprocessors), 1.0)
    np.testing.assert_array_equal(kernels.waves(rounds * multiprocessors + 1, multiprocessors), rounds + 1)


# FLOP


def test_attended_length_counts_the_mask():
    """The convention drops half the diagonal: 1/2 for the full mask, w / (2 s) in a window."""
    for seq_len in (1, 2, 7, 64):
        for window in range(1, seq_len + 3):
            keys = [min(query + 1, window) for query in range(seq_len)]
            width = min(window, seq_len)
            assert masks.attended_length(seq_len, window) == pytest.approx(sum(keys) / seq_len - width / (2 * seq_len))


def test_a_window_as_long_as_the_sequence_is_no_window():
    seq_len = whole(1, 1 << 20)
    for window in (seq_len, seq_len + 5.0, 0.0, -1.0):
        np.testing.assert_array_equal(masks.attended_length(seq_len, window), seq_len / 2.0)
    assert np.all(masks.attended_length(seq_len, 17.0) <= seq_len / 2.0)


def test_causal_attention_is_half_the_square():
    seq_len = whole(1, 1 << 17)
    square = flops.attention_core(3, seq_len, seq_len, 32, 128)
    causal = flops.attention_core(3, seq_len, masks.attended_length(seq_len, 0), 32, 128)
    np.testing.assert_allclose(causal, square / 2.0)


def test_a_layer_is_its_matrix_products():
    batch, seq_len, hidden, inner, kv = 3, 512, 1024, 2816, 4
    tokens = batch * seq_len
    products = (
        flops.gemm(tokens, 16 * 64, hidden)
        + 2 * flops.gemm(tokens, kv * 64, hidden)
        + flops.gemm(tokens, hidden, 16 * 64)
        + 3 * flops.gemm(tokens, inner, hidden)
        + batch * 16 * (flops.gemm(seq_len, seq_len, 64) + flops.gemm(seq_len, 64, seq_len))
    )
    assert flops.dense_layer_forward(batch, seq_len, seq_len, hidden, inner, 16, kv, 64, 1) == products


def test_model_flop_are_three_forward_passes_of_the_layers():
    """Backward costs twice the forward pass; P is what multiplies a token."""
    layers, seq_len, hidden = 40, 4096, 5120
    matmul = layers * (4 * hidden * hidden + 3 * hidden * 13824)
    forward = layers * flops.dense_layer_forward(1, seq_len, seq_len, hidden, 13824, 40, 40, 128, 1) / seq_len
    assert flops.model_per_token(matmul, layers, hidden, seq_len) == pytest.approx(3 * forward, rel=1e-13)
    half = masks.attended_length(seq_len, 0)
    forward = layers * flops.dense_layer_forward(1, seq_len, half, hidden, 13824, 40, 40, 128, 1) / seq_len
    assert flops.model_per_token(matmul, layers, hidden, half) == pytest.approx(3 * forward, rel=1e-13)


def test_forward_and_backward_make_a_token():
    parameters = real(1e8, 1e12)
    both = flops.forward_per_token(parameters) + flops.backward_per_token(parameters)
    np.testing.assert_allclose(both, flops.per_token(parameters), rtol=1e-15)
    np.testing.assert_array_equal(flops.training(parameters, 7.0), flops.per_token(parameters) * 7.0)
    np.testing.assert_array_equal(flops.model_per_token(parameters, 32, 4096, 0), flops.per_token(parameters))


# traffic and states


def test_fused_attention_moves_less_than_unfused():
    seq_len = whole(512, 16384)
    fused = traffic.flash_attention(2, seq_len, 32, 32, 128, 2)
    assert np.all(fused < traffic.unfused_attention(2, seq_len, 32, 128, 2, 4))
    without_scores = traffic.unfused_attention(2, seq_len, 32, 128, 2, 0)
    np.testing.assert_allclose(fused - without_scores, 4.0 * 2 * seq_len * 32)


def test_adam_counted_two_ways():
    parameters = real(1e8, 1e12)
    adamw = load.record("optimizers", "adamw")
    held = states.state(parameters, 2 + 2 + adamw.state_bytes + adamw.master_bytes.value, 1)
    np.testing.assert_array_equal(held, states.training_static(parameters))
    np.testing.assert_array_equal(states.state(parameters, adamw.state_bytes, 1), states.adam(parameters))
    moved = traffic.optimizer_step(parameters, adamw.traffic.value)
    np.testing.assert_array_equal(moved, traffic.adam_mixed_precision(parameters))


@pytest.mark.parametrize("name", load.names("optimizers"))
def test_an_optimizer_reads_and_writes_its_states(name):
    """Gradient in (2), weight out (2), every state and the master in and out; bf16 weights without a master are read too."""
    kept = load.record("optimizers", name)
    weight_read = 0.0 if kept.master_bytes.value else 2.0
    assert kept.traffic.value >= 4.0 + 2.0 * (kept.state_bytes + kept.master_bytes.value) + weight_read


def test_zero_over_one_rank_is_no_zero():
    for zero in range(4):
        for threshold in (1, 2, 3):
            assert states.zero_shards(threshold, zero, 1) == 1.0
    np.testing.assert_array_equal(
        states.zero_shards(np.array([1, 2, 3]), np.array([[0], [1], [2], [3]]), 8), [[1, 1, 1], [8, 1, 1], [8, 8, 1], [8, 8, 8]]
    )
    assert states.state(7e9, 16, states.zero_shards(3, 3, 1)) == states.training_static(7e9)


# activations


@pytest.mark.parametrize(("tp", "sp"), [(1, 0), (4, 0), (4, 1), (8, 1)])
def test_a_gpt_layer_is_the_sum_of_its_parts(tp, sp):
    batch, seq_len, heads = whole(1, 9), whole(64, 8192), whole(1, 97)
    hidden = heads * 64
    tokens = batch * seq_len
    parts = (
        activations.norms_and_residuals(tokens, hidden, 2, 1, tp, sp, 2, 2)
        + activations.attention(tokens, heads, heads, 64, 0, tp, 2)
        + activations.attention_scores(tokens, seq_len, heads, 0, 1, tp, 2)
        + activations.mlp(tokens, 4 * hidden, 2, tp, 2)
    )
    np.testing.assert_allclose(parts, activations.korthikanti_layer(batch, seq_len, hidden, heads, tp, sp), rtol=1e-13)


def test_sequence_parallelism_needs_tensor_parallelism():
    np.testing.assert_array_equal(
        activations.korthikanti_layer(2, 4096, 5120, 40, 1, 0), activations.korthikanti_layer(2, 4096, 5120, 40, 1, 1)
    )
    assert activations.checkpoint(4096, 5120, 8, 1, 2) * 8 == activations.checkpoint(4096, 5120, 8, 0, 2)


def test_flash_keeps_a_logsumexp_and_no_scores():
    assert activations.attention_scores(4096, 4096, 32, 1, 1, 1, 2) == 0.0
    extra = activations.attention(4096, 32, 8, 128, 1, 1, 2) - activations.attention(4096, 32, 8, 128, 0, 1, 2)
    assert extra == 4.0 * 32 * 4096


def test_a_checkpoint_is_smaller_than_the_layer_it_replaces():
    tokens, hidden = whole(1, 1 << 16), whole(64, 16384)
    assert np.all(activations.checkpoint(tokens, hidden, 1, 0, 2) < activations.norms_and_residuals(tokens, hidden, 2, 0, 1, 0, 2, 2))


def test_checkpointing_forms_agree_where_they_should():
    layers = 48.0
    interval = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 48.0])
    simple = activations.checkpointed_simple(layers, interval, 3.0)
    exact = activations.checkpointed_exact(layers, interval, 3.0, 3.0)
    np.testing.assert_allclose(simple, exact)
    best = activations.checkpointed_simple(layers, activations.optimal_interval(layers, 3.0, 3.0), 3.0)
    assert np.all(best <= simple)
    assert best == pytest.approx(2.0 * 48.0**0.5 * 3.0)


def test_layers_that_are_kept_are_not_run_again():
    assert activations.checkpointed_exact(40, 40, 5.0, 0.0) == 200.0
    assert activations.recomputed_layers(40, 40) == 0.0
    assert activations.recomputed_layers(40, 0) == 40.0


# collectives


def test_a_tree_between_two_domains_sends_each_byte_once_and_beyond_it_is_a_ring():
    n, domains = whole(1, 200) * 8.0, whole(3, 8)
    np.testing.assert_array_equal(collectives.all_reduce_across_factor(n, 2.0), 1.0)
    np.testing.assert_array_equal(collectives.all_reduce_across_factor(n, 1.0), 0.0)
    np.testing.assert_array_equal(collectives.all_reduce_across_factor(n, domains), collectives.all_reduce_factor(n))
    assert collectives.all_reduce_across_factor(2.0, 2.0) == collectives.all_reduce_factor(2.0)  # one rank in each domain: the same


def test_all_reduce_is_reduce_scatter_and_all_gather():
    n, size, bandwidth, latency = whole(1, 4096), real(0.0, 1e11), real(1e9, 1e12), real(0.0, 1e-4)
    both = collectives.ring_reduce_scatter(n, size, bandwidth, latency) + collectives.ring_all_gather(n, size, bandwidth, latency)
    np.testing.assert_allclose(collectives.ring_all_reduce(n, size, bandwidth, latency), both, rtol=1e-14)
    np.testing.assert_array_equal(collectives.all_reduce_factor(n), 2.0 * collectives.one_way_factor(n))


def test_one_rank_does_not_communicate():
    size = real(0.0, 1e11)
    for law in (collectives.ring_all_reduce, collectives.ring_all_gather, collectives.ring_reduce_scatter, collectives.all_to_all):
        np.testing.assert_array_equal(law(1, size, 1e11, 1e-5), 0.0)
    factor = collectives.all_reduce_factor(1)
    np.testing.assert_array_equal(collectives.measured(1, size, factor, 1e11, 0.8, 1e6, 1e-5), 0.0)
    assert collectives.measured(8, 0.0, 1.75, 1e11, 0.8, 1e6, 1e-5) == 0.0
    assert collectives.measured(8, 0.0, 1.75, 1e11, 0.8, 0.0, 1e-5) == 0.0


def test_measured_without_saturation_is_latency_and_bandwidth():
    n, size = whole(2, 512), real(1.0, 1e10)
    time = collectives.measured(n, size, collectives.one_way_factor(n), 4e11, 0.8, 0.0, 1e-5)
    np.testing.assert_allclose(time, 1e-5 + collectives.ring_all_gather(n, size, 0.8 * 4e11, 0.0), rtol=1e-13)


def test_measured_uses_saturation():
    size, half = real(1.0, 1e10), real(1e5, 1e8)
    time = collectives.measured(8, size, 1.75, 4.5e11, 0.9, half, 0.0)
    bus = collectives.bus_bandwidth(size, time, 1.75)
    np.testing.assert_allclose(bus, 0.9 * 4.5e11 * (np.sqrt(size) / (np.sqrt(size) + np.sqrt(half))), rtol=1e-13)
    np.testing.assert_allclose(bus, 1.75 * collectives.algorithm_bandwidth(size, time), rtol=1e-13)


def test_two_tiers_lie_between_the_slower_and_the_sum():
    inner, outer = real(0.0, 1.0), real(0.0, 1.0)
    np.testing.assert_array_equal(collectives.hierarchical(inner, outer, 0.0), np.maximum(inner, outer))
    np.testing.assert_allclose(collectives.hierarchical(inner, outer, 1.0), inner + outer)
    middle = collectives.hierarchical(inner, outer, 0.25)
    assert np.all((middle >= np.maximum(inner, outer)) & (middle <= inner + outer))


# pipeline


def simulate_1f1b(stages, micro_batches):
    """Step time (forward 1, backward 2) and peak micro-batches held by each stage, event by event."""
    order = []
    for stage in range(stages):
        warm = min(stages - stage - 1, micro_batches)
        steady = [work for i in range(micro_batches - warm) for work in (("F", warm + i), ("B", i))]
        order.append([("F", i) for i in range(warm)] + steady + [("B", i) for i in range(micro_batches - warm, micro_batches)])
    done, clock, position = {}, [0.0] * stages, [0] * stages
    held, peak = [0] * stages, [0] * stages
    while any(position[s] < len(order[s]) for s in range(stages)):
        for stage in range(stages):
            while position[stage] < len(order[stage]):
                kind, index = order[stage][position[stage]]
                if kind == "F":
                    needs = [("F", stage - 1, index)] if stage else []
                else:
                    needs = [("B", stage + 1, index)] if stage < stages - 1 else [("F", stage, index)]
                if any(need not in done for need in needs):
                    break
                start = max([clock[stage], *[done[need] for need in needs]])
                clock[stage] = done[kind, stage, index] = start + (1.0 if kind == "F" else 2.0)
                held[stage] += 1 if kind == "F" else -1
                peak[stage] = max(peak[stage], held[stage])
                position[stage] += 1
    return max(clock), peak


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 4), (2, 2), (4, 4), (4, 9), (6, 3), (8, 32)])
def test_1f1b_as_simulated(stages, micro_batches):
    time, peak = simulate_1f1b(stages, micro_batches)
    useful = 3.0 * micro_batches
    assert time == useful + pipeline.bubble_time(3.0 * stages, 3.0, 1)
    assert time == pytest.approx(useful * (1.0 + (stages - 1) / micro_batches))
    assert 1.0 - useful / time == pytest.approx(pipeline.bubble_fraction(stages, micro_batches))
    np.testing.assert_array_equal(peak, pipeline.in_flight_interleaved(stages, 1, np.arange(stages), micro_batches, stages))


def test_interleaving_shrinks_the_bubble_and_holds_more():
    pp, vpp, m = whole(1, 33), whole(1, 9), whole(1, 257)
    stage = np.floor(pp * real(0.0, 1.0))
    assert np.all(pipeline.bubble_time(pp * 3.0, 3.0, vpp) <= pipeline.bubble_time(pp * 3.0, 3.0, 1))
    first = pipeline.in_flight_interleaved(pp, vpp, 0, m, pp)
    assert np.all(first >= np.minimum(pp, m))
    assert np.all(pipeline.in_flight_interleaved(pp, vpp, stage, m, pp) <= m)
    np.testing.assert_array_equal(pipeline.in_flight_interleaved(pp, 1, stage, m, pp), np.minimum(pp - stage, m))


def test_first_stage_holds_what_korthikanti_says():
    pp, vpp = whole(1, 33), whole(2, 9)
    expected = pp * (1.0 + (pp - 1.0) / (pp * vpp))
    np.testing.assert_allclose(pipeline.in_flight_interleaved(pp, vpp, 0, 1e6, pp), expected, rtol=1e-14)


def test_chunks_hold_together_what_the_stage_holds():
    pp, vpp, group = whole(1, 33), whole(2, 9), whole(1, 40)
    stage = np.floor(pp * real(0.0, 1.0))
    for v in range(2, 9):
        held = sum(pipeline.in_flight_chunk(pp, v, stage, 1e6, group, chunk) for chunk in range(v))
        np.testing.assert_allclose(held, v * pipeline.in_flight_interleaved(pp, v, stage, 1e6, group), rtol=1e-14)
    assert np.all(pipeline.in_flight_chunk(pp, vpp, pp - 1.0, 1e6, np.maximum(group, pp), vpp - 1.0) == 1.0), "the loss is computed at once"


# overlap


def test_overlap_lies_between_the_longer_and_the_slowed_sum():
    compute, communication, slowdown = real(0.0, 1.0), real(0.0, 1.0), real(0.0, 1.0)
    both = overlap.overlapped(compute, communication, slowdown)
    assert np.all(both >= np.maximum(compute, communication))
    assert np.all(both <= compute + communication + 1e-15), "with slowdown <= 1 overlapping never loses to taking turns"
    np.testing.assert_allclose(overlap.exposed_after_overlap(compute + 1.0, communication, slowdown), slowdown * communication, atol=1e-15)
    np.testing.assert_array_equal(overlap.overlapped(compute, 0.0, slowdown), compute)
    np.testing.assert_array_equal(overlap.overlapped(0.0, communication, slowdown), communication)
    np.testing.assert_allclose(
        overlap.exposed_after_overlap(compute, communication, 0.0), overlap.exposed(communication, compute), atol=1e-15
    )


# runs


def test_iron_law_and_mfu_are_inverses():
    work, peak, gpus, efficiency = real(1e18, 1e24), real(1e14, 2e15), whole(1, 4096), real(0.1, 0.9)
    seconds = run.iron_law(work, peak * gpus, efficiency)
    np.testing.assert_allclose(run.mfu(work, seconds, gpus, peak), efficiency, rtol=1e-13)


def test_rent_by_the_hour_is_rent_by_the_second():
    gpus, seconds, hourly = whole(1, 4096), real(1.0, 1e7), real(1.0, 12.0)
    np.testing.assert_allclose(cost.rental(gpus, seconds, hourly / 3600.0), cost.gpu_hours(gpus, seconds) * hourly, rtol=1e-13)
    tokens = real(1e9, 1e13)
    np.testing.assert_allclose(
        cost.per_token(gpus, hourly / 3600.0, tokens / seconds) * tokens, cost.rental(gpus, seconds, hourly / 3600.0), rtol=1e-13
    )


def test_whole_steps_see_all_tokens():
    tokens, batch = whole(1, 1 << 40), whole(1, 1 << 24)
    count = run.steps(tokens, batch, run.UP)
    assert np.all(count * batch >= tokens)
    assert np.all((count - 1) * batch < tokens)


def test_roundings_of_steps_differ_by_less_than_one():
    """Rounded down and up enclose the exact number, and are equal where the batch divides the tokens."""
    tokens, batch = whole(1, 1 << 40), whole(1, 1 << 24)
    down, exact, up = (run.steps(tokens, batch, how) for how in (run.DOWN, run.EXACT, run.UP))
    assert np.all((down <= exact) & (exact <= up) & (up - down <= 1.0))
    assert np.array_equal(run.steps(batch * down, batch, run.DOWN), run.steps(batch * down, batch, run.UP))
    np.testing.assert_array_equal(run.ROUNDINGS["exact"] * exact, 0.0)


def test_every_rounding_of_a_question_has_a_law():
    assert tuple(run.ROUNDINGS) == defaults.ROUNDINGS and defaults.ROUNDING == "up"
