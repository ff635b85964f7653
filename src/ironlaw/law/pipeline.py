"""Pipeline parallelism: bubbles and micro-batches in flight. Stages count from 0."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import fraction, inside, ratio


def bubble_fraction(pp, num_microbatches):
    """Idle share of the whole step, equal stages, 1F1B or GPipe: ``(p - 1) / (m + p - 1)``.

    Parameters
        pp [1]: stages p, >= 1
        num_microbatches [1]: micro-batches m of a step, >= 1
    Returns [1]: idle time over step time
    Source: Huang et al., GPipe, NeurIPS 2019, section 2.3, https://arxiv.org/abs/1811.06965
    Leaves out: unequal stages, communication, interleaving

    >>> float(bubble_fraction(8, 32))  # worked in the estimation exercises
    0.1794871794871795
    """
    return inside(ratio(pp - 1.0, num_microbatches + (pp - 1.0)), pp >= 1, num_microbatches >= 1)


def bubble_time(pipeline_time, slowest_stage_time, vpp):
    """Idle time of the slowest stage, stages unequal: ``(pipeline_time - slowest_stage_time) / vpp``.

    While the pipeline fills and drains the slowest stage waits for one micro-batch to pass all others, forward and backward.

    Parameters
        pipeline_time [s]: one micro-batch, forward and backward, summed over all stages, >= 0
        slowest_stage_time [s]: one micro-batch, forward and backward, on the slowest stage, >= 0
        vpp [1]: model chunks of a stage, 1 without interleaving, >= 1
    Where: pipeline_time >= slowest_stage_time
    Returns [s]: idle time of a step; with equal stages (p - 1) (forward + backward) / vpp
    Source: Narayanan et al., Megatron-LM, SC 2021, sections 2.2.1 and 2.2.2, https://arxiv.org/abs/2104.04473
    Leaves out: bubbles inside the steady state when a fast stage starves; schedules that split the backward pass

    >>> float(bubble_time(8.0, 1.0, 2))
    3.5
    """
    time = ratio(1.0 * pipeline_time - slowest_stage_time, 1.0 * vpp)
    return inside(time, pipeline_time >= 0, slowest_stage_time >= 0, vpp >= 1, pipeline_time >= slowest_stage_time)


def waiting_time(passes_time, slowest_stage_time, num_microbatches):
    """Time in which the slowest stage waits: ``passes_time - num_microbatches slowest_stage_time``.

    Parameters
        passes_time [s]: from the first pass of a step to the end of its last, on all stages, >= 0
        slowest_stage_time [s]: one micro-batch, forward and backward, on the slowest stage, >= 0
        num_microbatches [1]: micro-batches of a step, >= 1
    Returns [s]: time, not below 0
    Source: the definition
    Leaves out: what other stages wait beside it

    >>> float(waiting_time(33.0, 3.0, 8))  # four stages: (p - 1) (F + B)
    9.0
    """
    time = np.maximum(0.0, passes_time - 1.0 * num_microbatches * slowest_stage_time)
    return inside(time, passes_time >= 0, slowest_stage_time >= 0, num_microbatches >= 1)


def interleaved_time(pp, vpp, num_microbatches, group, chunk_time, first_chunk_time, last_chunk_time, forward_share):
    """All passes of a step with several equal chunks a stage: ``max(m ((v - 1) c + last), ...) + (p - 1) c + ...``.

    The embedding makes the first chunk of the first stage unlike the others, the loss the last chunk of the last stage. The step is the
    longest of three chains of passes, which have one stage for all m micro-batches: the last, one between, or the first. The first stage
    runs a whole group through its first chunk before anybody else can go on: g times what that chunk has more than another. Beside a
    short last chunk a chain of another stage is shorter by two forward passes (or backward, whichever are shorter) and by what that chunk
    lacks, at most by a chunk; and a chain of the first stage by two passes for each other stage.

    Parameters
        pp [1]: stages p, >= 1
        vpp [1]: model chunks v of a stage, >= 1
        num_microbatches [1]: micro-batches m of a step, >= 1
        group [1]: micro-batches g a chunk runs before the next chunk's turn, usually p, >= 1
        chunk_time [s]: one micro-batch, forward and backward, through a chunk c, >= 0
        first_chunk_time [s]: the same through the first chunk of the first stage, >= 0
        last_chunk_time [s]: the same through the last chunk of the last stage, >= 0
        forward_share [1]: of these times, the forward pass, in [0, 1]
    Returns [s]: time; with equal chunks m v c + (p - 1) c
    Source: Narayanan et al., Megatron-LM, SC 2021, section 2.2.2, https://arxiv.org/abs/2104.04473; the ends: longest chains of its order
    Leaves out: hand-overs; other chunks that differ

    >>> float(interleaved_time(4, 2, 8, 4, 1.5, 1.5, 1.5, 1 / 3)), 8 * 2 * 1.5 + 3 * 1.5
    (28.5, 28.5)
    """
    first, last = first_chunk_time - 1.0 * chunk_time, last_chunk_time - 1.0 * chunk_time
    m, stage = 1.0 * num_microbatches, 1.0 * vpp * chunk_time
    filling = np.maximum(first, np.minimum(group, m) * first)
    passes = 2.0 * np.minimum(forward_share, 1.0 - forward_share) * chunk_time  # two, of those that are shorter
    ending = np.where(last >= 0.0, last, -np.minimum(passes - last, 1.0 * chunk_time))
    by_last = m * (stage + last) + filling
    between = np.where(np.greater(pp, 2), m * stage + filling + ending, by_last)
    lost = passes + forward_share * np.maximum(first, 0.0) - np.minimum(last, 0.0)
    by_first = m * (stage + first) + np.maximum(last, 0.0) - (pp - 1.0) * np.minimum(lost, 1.0 * chunk_time)
    time = np.maximum(np.maximum(by_last, between), by_first) + (pp - 1.0) * chunk_time
    time = np.where(np.greater(pp, 1), time, m * (stage + first + last))
    return inside(
        np.maximum(time, 0.0),
        pp >= 1,
        vpp >= 1,
        num_microbatches >= 1,
        group >= 1,
        chunk_time >= 0,
        first_chunk_time >= 0,
        last_chunk_time >= 0,
        fraction(forward_share),
    )


def in_flight_interleaved(pp, vpp, stage, num_microbatches, group):
    """Activations a stage holds at once, in units of all its layers: ``min((2 (p - stage - 1) + (v - 1) g + 1) / v, m)``.

    The warm-up runs 2 (p - stage - 1) + (v - 1) g chunks and the steady state adds one; each chunk is 1/v of the layers.
    On stage 0 with g = p this is p (1 + (p - 1) / (p v)). With v = 1 the schedule is 1F1B, and a stage holds ``min(p - stage, m)``.

    Parameters
        pp [1]: stages p, >= 1
        vpp [1]: model chunks v of a stage, >= 1
        stage [1]: the stage, from 0, >= 0
        num_microbatches [1]: micro-batches m of a step, >= 1
        group [1]: micro-batches g a chunk runs before the next chunk's turn, usually p, >= 1
    Where: stage < pp
    Returns [1]: micro-batches, a fraction when only some chunks hold one
    Source: Korthikanti et al., Reducing Activation Recomputation, MLSys 2023, section 4.2.3, https://arxiv.org/abs/2205.05198;
        NVIDIA, Megatron-LM, core/pipeline_parallel/schedules.py (warm-up micro-batches of the interleaved schedule,
        --microbatch-group-size-per-virtual-pipeline-stage)
    Leaves out: m = p, where versions before 2024 run all chunks as warm-up

    >>> float(in_flight_interleaved(8, 2, 0, 32, 8)), 8 * (1 + 7 / 16)
    (11.5, 11.5)
    """
    held = np.minimum(ratio(_chunks_in_flight(pp, vpp, stage, group), 1.0 * vpp), 1.0 * num_microbatches)
    plain = np.minimum(1.0 * pp - stage, 1.0 * num_microbatches)
    return inside(np.where(np.greater(vpp, 1), held, plain), pp >= 1, vpp >= 1, stage >= 0, num_microbatches >= 1, group >= 1, stage < pp)


def in_flight_chunk(pp, vpp, stage, num_microbatches, group, model_chunk):
    """Micro-batches of one chunk that a stage holds at once: ``floor(K / (g v)) g + min(max(K mod (g v) - c g, 0), g)``.

    K is the number of chunks in flight on the stage, see in_flight_interleaved. They ran in order: g micro-batches through
    chunk 0, the same through chunk 1, and so on. So the last chunk of the last stage, which computes the loss, holds one.

    Parameters
        pp [1]: stages p, >= 1
        vpp [1]: model chunks v of a stage, >= 1
        stage [1]: the stage, from 0, >= 0
        num_microbatches [1]: micro-batches m of a step, >= 1
        group [1]: micro-batches g a chunk runs before the next chunk's turn, usually p, >= 1
        model_chunk [1]: the chunk c, from 0, >= 0
    Where: stage < pp; model_chunk < vpp
    Returns [1]: micro-batches
    Source: NVIDIA, Megatron-LM, core/pipeline_parallel/schedules.py (schedule table of the interleaved schedule)
    Leaves out: a last group of fewer micro-batches

    >>> [float(in_flight_chunk(4, 2, 3, 8, 4, chunk)) for chunk in (0, 1)], float(in_flight_interleaved(4, 2, 3, 8, 4))
    ([4.0, 1.0], 2.5)
    """
    rounds = np.floor(ratio(_chunks_in_flight(pp, vpp, stage, group), 1.0 * group * vpp))
    left = _chunks_in_flight(pp, vpp, stage, group) - rounds * group * vpp
    held = np.minimum(rounds * group + np.clip(left - model_chunk * group, 0.0, 1.0 * group), 1.0 * num_microbatches)
    plain = np.minimum(1.0 * pp - stage, 1.0 * num_microbatches)
    return inside(
        np.where(np.greater(vpp, 1), held, plain),
        pp >= 1,
        vpp >= 1,
        stage >= 0,
        num_microbatches >= 1,
        group >= 1,
        model_chunk >= 0,
        stage < pp,
        model_chunk < vpp,
    )


def _chunks_in_flight(pp, vpp, stage, group):
    return 2.0 * np.maximum(0.0, 1.0 * pp - stage - 1.0) + (vpp - 1.0) * group + 1.0


def lone_share(vpp, num_microbatches, group):
    """Of a step's passes, the share that has no other micro-batch beside it: ``min(((v - 1) g + 1) / (v m), 1)``.

    A schedule that runs the forward of one micro-batch beside the backward of another needs one forward more before its first
    pair than 1F1B: the last stage runs (v - 1) g + 1 chunks forward by themselves, and as many backward at the end. Without a
    pipeline (v = 1) that is the first forward and the last backward.

    Parameters
        vpp [1]: model chunks v of a stage, >= 1
        num_microbatches [1]: micro-batches m of a step, >= 1
        group [1]: micro-batches g a chunk runs before the next chunk's turn, usually pp, >= 1
    Returns [1]: share, forward and backward alike
    Source: NVIDIA, Megatron-LM, core/pipeline_parallel/schedules.py (get_pp_rank_microbatches: one more warm-up forward with
        overlap_moe_expert_parallel_comm) and combined_1f1b.py, https://github.com/NVIDIA/Megatron-LM, read 2026-11-22
    Leaves out: earlier stages, whose 2 (pp - stage - 1) further lone passes fall into the time they would wait

    >>> float(lone_share(1, 8, 1)), float(lone_share(4, 16, 8)), float(lone_share(2, 4, 4))
    (0.125, 0.390625, 0.625)
    """
    share = np.minimum(ratio((vpp - 1.0) * group + 1.0, 1.0 * vpp * num_microbatches), 1.0)
    return inside(share, vpp >= 1, num_microbatches >= 1, group >= 1)
