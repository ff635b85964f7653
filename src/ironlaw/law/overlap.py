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


def hidden(communication, window):
    """Communication that fits behind other work: ``min(communication, window)``.

    Parameters
        communication [s]: time of the communication alone, >= 0
        window [s]: time of the work it may hide behind, >= 0
    Returns [s]: time that does not show
    Source: Li et al., PyTorch Distributed, VLDB 2020, section 3.2.3 (overlap of computation and communication), https://arxiv.org/abs/2006.15704
    Leaves out: as exposed, which is the rest

    >>> float(hidden(5.5, 4.0)), float(hidden(3.0, 4.0))
    (4.0, 3.0)
    """
    return inside(np.minimum(1.0 * communication, window), communication >= 0, window >= 0)


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


def in_pieces(compute, communication, slowdown, share, pieces, launch):
    """What a collective cut into pieces adds to its product: ``overlapped - compute + share communication + (pieces - 1) launch``.

    ``overlapped`` is ``max(compute + slowdown min(compute, communication), communication)``: the longer of the two sets the pace, a
    share of the communication has no piece to hide behind, and every piece of the product is a kernel.

    Parameters
        compute [s]: time of the product alone, >= 0
        communication [s]: time of the collective alone, >= 0
        slowdown [1]: time the product loses for each second of overlap; 0 where copy engines move the pieces, >= 0
        share [1]: what of the communication no piece can hide: the first, or the last, >= 0
        pieces [1]: pieces the product is cut into, >= 1
        launch [s]: what a product takes beside its work, once for each kernel, >= 0
    Offset [1]: the first piece is the kernel the product had anyway
    Returns [s]: time added; nothing where nothing is communicated
    Source: Chang et al., FLUX: Fast Software-based Communication Overlap on GPUs through Kernel Fusion, arXiv 2406.06858, 2024, section 2,
        https://arxiv.org/abs/2406.06858 (medium-grained overlap: what pieces cost)
    Leaves out: that smaller pieces fill the device less well, and that pieces on several streams fill it for each other

    >>> round(float(in_pieces(4.0, 2.0, 0.0, 0.25, 4, 0.01)), 6), round(float(in_pieces(1.0, 2.0, 0.5, 0.25, 4, 0.0)), 6)
    (0.53, 1.5)
    """
    beside = overlapped(compute, communication, slowdown) - compute
    time = beside + 1.0 * share * communication + (1.0 * pieces - 1.0) * launch * (communication > 0)
    return inside(time, share >= 0, pieces >= 1, launch >= 0)


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

    ``overlapped`` is ``max(compute + slowdown min(compute, communication), communication)``.

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


def exposed_beside_idle(compute, idle, communication, slowdown):
    """Time that overlapped communication adds where the device also waits: ``max(0, overlapped - compute - idle)``.

    ``overlapped`` is ``max(compute + slowdown min(compute, communication), communication)``. Communication, and the computation that
    it slows, fill the idle time before they lengthen the stretch. So computation that takes less of a stretch whose length its host
    sets leaves communication as much time as before.

    Parameters
        compute [s]: time of the compute alone, >= 0
        idle [s]: time of the same stretch in which the device waits for its host or for another link, >= 0
        communication [s]: time of the communication alone, >= 0
        slowdown [1]: time compute loses for each second of overlap, >= 0
    Returns [s]: time added to ``compute + idle``
    Source: Li et al., PyTorch Distributed, VLDB 2020, section 3.2.3, https://arxiv.org/abs/2006.15704 (reductions run while backward
        goes on: they hide behind time by the clock, of which kernels take a part)
    Leaves out: what overlapped leaves out; idle time that ends before the communication may begin

    >>> float(exposed_beside_idle(2.0, 3.0, 10.0, 0.2)), float(exposed_beside_idle(1.0, 4.0, 10.0, 0.2))
    (5.0, 5.0)
    """
    return inside(np.maximum(0.0, exposed_after_overlap(compute, communication, slowdown) - idle), idle >= 0)
