"""The input pipeline: storage, workers that prepare batches, the copy to the accelerator, and what a step waits for them.

A batch is that of one accelerator, or of one host: whatever the rates and times are of. Copies to the device are
``collectives.point_to_point``, sizes ``traffic.elementwise``.
"""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import flag, fraction, inside, ratio


def storage_rate(disk, network, sustained_fraction, access_factor):
    """What storage delivers: ``min(disk, network) sustained_fraction access_factor``.

    The factor of access applies to what is sustained, not to the datasheet: both losses are real.

    Parameters
        disk [B/s]: datasheet rate of the disks, sequential, > 0
        network [B/s]: rate of the network between storage and host, > 0
        sustained_fraction [1]: share of the datasheet rate that is held, in [0, 1]
        access_factor [1]: 1 for sequential reads, about 0.1 for small random ones, in [0, 1]
    Returns [B/s]: rate
    Source: the training chapter (docs/documents/003-training-chapter.md), data pipeline (storage bandwidth, sequential and random)
    Leaves out: caches of the operating system, latency of metadata

    >>> [round(float(storage_rate(3.5, np.inf, *held)), 3) for held in ((1, 0.1), (0.5, 1), (0.5, 0.1))]  # GB/s
    [0.35, 1.75, 0.175]
    """
    rate = np.minimum(1.0 * disk, 1.0 * network) * sustained_fraction * access_factor
    return inside(rate, disk > 0, network > 0, fraction(sustained_fraction), fraction(access_factor))


def path_rate(storage, system, accelerator):
    """Rate of the way from storage to an accelerator's memory: ``min(storage, system, accelerator)``.

    Parameters
        storage [B/s]: what storage delivers, > 0
        system [B/s]: rate of host memory, > 0
        accelerator [B/s]: rate into the accelerator's memory, > 0
    Returns [B/s]: rate
    Source: the training chapter (docs/documents/003-training-chapter.md), data flows (three tiers of memory)
    Leaves out: caches, and data that is read once and kept

    >>> float(path_rate(2.0, 100.0, 900.0))  # GB/s; worked in the training chapter
    2.0
    """
    return inside(np.minimum(np.minimum(1.0 * storage, 1.0 * system), 1.0 * accelerator), storage > 0, system > 0, accelerator > 0)


def workers_rate(workers, transform_time):
    """Batches that workers make in a second: ``workers / transform_time``.

    Parameters
        workers [1]: processes that prepare batches, >= 0
        transform_time [s]: time of one worker for one batch, > 0
    Returns [1/s]: batches in a second
    Source: the training chapter (docs/documents/003-training-chapter.md), data pipeline (preprocessing throughput)
    Leaves out: workers that share too few cores

    >>> round(float(workers_rate(4, 0.03)), 2)  # worked in the training chapter
    133.33
    """
    return inside(ratio(1.0 * workers, 1.0 * transform_time), workers >= 0, transform_time > 0)


def workers_needed(transform_time, step_time):
    """Workers that keep up with the step: ``ceil(transform_time / step_time)``.

    Parameters
        transform_time [s]: time of one worker for one batch, >= 0
        step_time [s]: time of a step that waits for nothing, > 0
    Returns [1]: workers, a whole number
    Source: the training chapter (docs/documents/003-training-chapter.md), data pipeline; workers_rate solved for the workers
    Leaves out: spread of the times; one more worker than this hides it

    >>> float(workers_needed(0.03, 0.01))  # worked in the training chapter
    3.0
    """
    quotient = ratio(1.0 * transform_time, 1.0 * step_time)
    return inside(np.ceil(quotient * (1.0 - 1e-12)), transform_time >= 0, step_time > 0)  # 0.03 / 0.01 is 3, not 4


def tokenise_time(tokens, token_rate, workers):
    """Time to split text into tokens: ``tokens / (token_rate workers)``.

    Parameters
        tokens [token]: tokens of the batch, >= 0
        token_rate [token/s]: tokens one worker makes in a second, > 0
        workers [1]: workers that share the batch, > 0
    Returns [s]: time
    Source: the training chapter (docs/documents/003-training-chapter.md), the input pipeline of GPT-2
    Leaves out: batches that are stored as tokens, for which there is nothing to do

    >>> [round(float(tokenise_time(32768, 5e5, n)) * 1e3, 3) for n in (1, 8)]  # ms; worked in the training chapter
    [65.536, 8.192]
    """
    return inside(ratio(1.0 * tokens, 1.0 * token_rate * workers), tokens >= 0, token_rate > 0, workers > 0)


def batches_ahead(workers, prefetch_factor):
    """Batches that a loader keeps ready: ``workers prefetch_factor``.

    Parameters
        workers [1]: processes that prepare batches, >= 0
        prefetch_factor [1]: batches each of them keeps ready, >= 0
    Returns [1]: batches
    Source: PyTorch, torch.utils.data.DataLoader, prefetch_factor, https://docs.pytorch.org/docs/stable/data.html
    Leaves out: batches in work

    >>> float(batches_ahead(4, 2))  # the factor is of each worker
    8.0
    """
    return inside(1.0 * workers * prefetch_factor, workers >= 0, prefetch_factor >= 0)


def buffer_memory(prefetch, processing, in_transfer, size):
    """Host memory of the batches on their way: ``(prefetch + processing + in_transfer) size``.

    Parameters
        prefetch [1]: batches that are ready and wait, >= 0
        processing [1]: batches being worked on, >= 0
        in_transfer [1]: batches on their way to the accelerator, >= 0
        size [B]: one batch in host memory, >= 0
    Returns [B]: memory
    Source: the training chapter (docs/documents/003-training-chapter.md), data pipeline (memory of the buffers)
    Leaves out: the workers' own memory

    >>> float(buffer_memory(2, 1, 1, 100e6)) / 1e6  # MB; worked in the training chapter
    400.0
    """
    batches = 1.0 * prefetch + processing + in_transfer
    return inside(batches * size, prefetch >= 0, processing >= 0, in_transfer >= 0, size >= 0)


def supply_time(fetch, process, transfer, overlapped):
    """Time the pipeline takes for a batch: ``max(fetch, process, transfer)`` overlapped, else their sum.

    Parameters
        fetch [s]: time to read it, >= 0
        process [s]: time of all workers to prepare it, >= 0
        transfer [s]: time to copy it to the accelerator, >= 0
        overlapped [1]: whether the stages run beside each other, 0 or 1
    Returns [s]: time from one batch to the next
    Source: the training chapter (docs/documents/003-training-chapter.md), data pipeline (time of an iteration)
    Leaves out: filling the pipeline at the start

    >>> [float(supply_time(10.0, 15.0, 5.0, at)) for at in (0, 1)]  # ms; worked in the training chapter
    [30.0, 15.0]
    """
    slowest = np.maximum(np.maximum(1.0 * fetch, 1.0 * process), 1.0 * transfer)
    time = np.where(np.equal(overlapped, 1), slowest, 1.0 * fetch + process + transfer)
    return inside(time, fetch >= 0, process >= 0, transfer >= 0, flag(overlapped))


def waiting(supply_time, step_time, overlapped):
    """Time a step waits for its batch: ``max(supply_time - step_time, 0)`` overlapped, else ``supply_time``.

    Parameters
        supply_time [s]: time the input pipeline takes for a batch, >= 0
        step_time [s]: time of a step that waits for nothing, >= 0
        overlapped [1]: whether batches are prepared beside the step, 0 or 1
    Returns [s]: time lost in every step
    Source: the training chapter (docs/documents/003-training-chapter.md), data pipeline (time of an iteration)
    Leaves out: batches ready at the start, which run out

    >>> [float(waiting(15.0, 10.0, at)) for at in (0, 1)]
    [15.0, 5.0]
    """
    late = np.maximum(1.0 * supply_time - step_time, 0.0)
    return inside(np.where(np.equal(overlapped, 1), late, 1.0 * supply_time), supply_time >= 0, step_time >= 0, flag(overlapped))


def fed(step_time, waited):
    """Share of the time accelerators have a batch to work on: ``step_time / (step_time + waited)``.

    Parameters
        step_time [s]: time of a step that waits for nothing, > 0
        waited [s]: time it waits for its batch, >= 0
    Returns [1]: share; overlapped, it is the rate of the pipeline over that of the accelerators, at most 1
    Source: the training chapter (docs/documents/003-training-chapter.md), data pipeline (utilisation of starved accelerators)
    Leaves out: how well a step uses the machine: see run.mfu

    >>> [round(float(fed(1 / rate, 1 / 200 - 1 / rate)), 3) for rate in (1000, 2000)]  # 200 a second; worked in the training chapter
    [0.2, 0.1]
    """
    return inside(ratio(1.0 * step_time, 1.0 * step_time + waited), step_time > 0, waited >= 0)
