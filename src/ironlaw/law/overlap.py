"""What of communication stays visible when compute runs at the same time."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import inside


def exposed(communication, window):
    """Communication that does not fit behind other work: ``max(0, communication - window)``.

    Parameters
        communication [s]: time of the communication alone, >= 0
        window [s]: time of the work it may hide behind, >= 0
    Returns [s]: visible time
    Source: Li et al., PyTorch Distributed, VLDB 2020, section 3.2.3 (overlap of computation and communication), https://arxiv.org/abs/2006.15704
    Leaves out: the slowdown of the work in the window: see overlapped

    >>> float(exposed(5.5, 4.0)), float(exposed(3.0, 4.0))
    (1.5, 0.0)
    """
    return inside(np.maximum(0.0, 1.0 * communication - window), communication >= 0, window >= 0)


def overlapped(compute, communication, slowdown):
    """Both at once, compute slowed while they run together: ``max(compute + slowdown min(compute, communication), communication)``.

    Parameters
        compute [s]: time of the compute alone, >= 0
        communication [s]: time of the communication alone, >= 0
        slowdown [1]: time compute loses for each second of overlap, >= 0
    Returns [s]: time until both are done
    Source: Characterizing Compute-Communication Overlap in GPU-Accelerated Distributed Deep Learning, arXiv, July 2025, abstract, https://arxiv.org/abs/2507.03114:
        compute slowed by 18.9 % on average and at most 40.0 % when overlapped
    Leaves out: the slowdown of the communication; tail waves that lose an SM to the communication kernel

    >>> round(float(overlapped(10.0, 4.0, 0.2)), 6), float(overlapped(2.0, 10.0, 0.2))
    (10.8, 10.0)
    """
    slowed = compute + slowdown * np.minimum(compute, 1.0 * communication)
    time = np.maximum(slowed, 1.0 * communication)
    return inside(time, compute >= 0, communication >= 0, slowdown >= 0)


def partly_exposed(communication, share):
    """What shows of communication that is cut into pieces and run beside its own GEMM: ``share communication``.

    Parameters
        communication [s]: time of the communication alone, >= 0
        share [1]: what of it no piece can hide: the first chunk, the last, and what competes for the same bandwidth, >= 0
    Returns [s]: visible time
    Source: Chang et al., FLUX: Fast Software-based Communication Overlap on GPUs through Kernel Fusion, arXiv 2406.06858, 2024,
        https://arxiv.org/abs/2406.06858 (why a part stays visible)
    Leaves out: that the share falls with the size of the GEMM

    >>> float(partly_exposed(2.0, 0.25))
    0.5
    """
    return inside(1.0 * share * communication, communication >= 0, share >= 0)


def scale_loss(time, domains, loss):
    """Waiting for the slowest of many: ``time loss log2(domains)``, nothing inside one.

    Parameters
        time [s]: time of the step without it, >= 0
        domains [1]: scale-up domains the job is spread over, > 0
        loss [1]: share of the step lost for each doubling of the domains, >= 0
    Returns [s]: time lost
    Source: the expected maximum of n like delays grows with the logarithm of n (Gumbel, Statistics of Extremes, 1958, chapter 4)
    Leaves out: single slow nodes, which cost the same at any scale above their own

    >>> float(scale_loss(10.0, 8, 0.125))
    3.75
    """
    lost = 1.0 * time * (loss * np.log2(np.maximum(domains, 1.0)))
    return inside(lost, time >= 0, domains > 0, loss >= 0)


def exposed_after_overlap(compute, communication, slowdown):
    """Time that overlapped communication adds to compute: ``overlapped(compute, communication, slowdown) - compute``.

    Parameters
        compute [s]: time of the compute alone, >= 0
        communication [s]: time of the communication alone, >= 0
        slowdown [1]: time compute loses for each second of overlap, >= 0
    Returns [s]: time added
    Source: Characterizing Compute-Communication Overlap in GPU-Accelerated Distributed Deep Learning, arXiv, July 2025, abstract, https://arxiv.org/abs/2507.03114
    Leaves out: what overlapped leaves out

    >>> float(exposed_after_overlap(2.0, 10.0, 0.2))
    8.0
    """
    return overlapped(compute, communication, slowdown) - compute
