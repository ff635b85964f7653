"""How long one kernel runs on one accelerator: the roofline and its corrections."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import fraction, inside, ratio


def compute_time(flop, peak, efficiency):
    """Time the arithmetic takes at a constant fraction of the peak: ``flop / (efficiency peak)``.

    Parameters
        flop [FLOP]: operations of the kernel, >= 0
        peak [FLOP/s]: dense peak rate of its precision, > 0
        efficiency [1]: fraction of the peak that large kernels reach, > 0
    Returns [s]: time on the compute roof
    Source: Williams, Waterman and Patterson, Roofline, CACM 2009, https://doi.org/10.1145/1498765.1498785
    Leaves out: tile and wave quantisation, clock changes under load

    >>> float(compute_time(2e12, 1e12, 0.5))
    4.0
    """
    time = ratio(1.0 * flop, 1.0 * efficiency * peak)
    return inside(time, flop >= 0, peak > 0, efficiency > 0)


def memory_time(traffic, bandwidth, bandwidth_fraction, launch):
    """Time of a memory-bound kernel: ``traffic / (bandwidth_fraction bandwidth) + launch``.

    Parameters
        traffic [B]: bytes read from and written to HBM, >= 0
        bandwidth [B/s]: HBM bandwidth of the datasheet, > 0
        bandwidth_fraction [1]: fraction of it that streaming kernels reach, > 0
        launch [s]: fixed time of one kernel, >= 0
    Returns [s]: time of the kernel
    Source: Williams, Waterman and Patterson, Roofline, CACM 2009, https://doi.org/10.1145/1498765.1498785
    Leaves out: cache hits, small messages that cannot fill the memory pipeline, fusion with a neighbour

    >>> float(memory_time(4e10, 4.8e12, 1.0, 0.0))  # at full bandwidth; worked in the bandwidth-accounting note
    0.008333333333333333
    """
    time = ratio(1.0 * traffic, 1.0 * bandwidth_fraction * bandwidth) + launch
    return inside(time, traffic >= 0, bandwidth > 0, bandwidth_fraction > 0, launch >= 0)


def kernel_time(flop, traffic, peak, bandwidth, efficiency, bandwidth_fraction, fill, launch):
    """Time of one kernel: ``max(flop / (efficiency peak) + fill, traffic / (bandwidth_fraction bandwidth)) + launch``.

    Parameters
        flop [FLOP]: operations of the kernel, >= 0
        traffic [B]: bytes read from and written to HBM, >= 0
        peak [FLOP/s]: dense peak rate of its precision, > 0
        bandwidth [B/s]: HBM bandwidth of the datasheet, > 0
        efficiency [1]: fraction of the peak that large kernels reach, > 0
        bandwidth_fraction [1]: fraction of the bandwidth that streaming kernels reach, > 0
        fill [s]: what filling and draining the multiprocessors adds to the compute roof, >= 0
        launch [s]: fixed time of one kernel, >= 0
    Returns [s]: time of the kernel
    Source: Williams, Waterman and Patterson, Roofline, CACM 2009, https://doi.org/10.1145/1498765.1498785;
        fill: NVIDIA, Matrix Multiplication Background User's Guide, "Wave Quantization" (the tail), as a constant fitted to GEMMs
        (aiconfigurator systems tables, NVIDIA, 2025, https://github.com/ai-dynamo/aiconfigurator)
    Leaves out: which tile the library picks, caches, clock changes under load

    >>> float(kernel_time(8e12, 4e9, 1e15, 4e12, 0.8, 0.8, 2e-6, 1e-6))
    0.010003
    """
    compute = ratio(1.0 * flop, 1.0 * efficiency * peak) + fill
    time = np.maximum(compute, ratio(1.0 * traffic, 1.0 * bandwidth_fraction * bandwidth))
    return inside(
        time + launch, flop >= 0, traffic >= 0, peak > 0, bandwidth > 0, efficiency > 0, bandwidth_fraction > 0, fill >= 0, launch >= 0
    )


def transformed_time(transform_flop, traffic, peak, bandwidth, efficiency, bandwidth_fraction, launch):
    """A memory-bound kernel's time: ``max(transform_flop / (efficiency peak), traffic / (bandwidth_fraction bandwidth)) + launch``.

    Parameters
        transform_flop [FLOP]: operations that transform what the kernel reads, no part of the model's, >= 0
        traffic [B]: bytes read from and written to HBM, >= 0
        peak [FLOP/s]: dense peak rate of its precision, > 0
        bandwidth [B/s]: HBM bandwidth of the datasheet, > 0
        efficiency [1]: fraction of the peak that large kernels reach, > 0
        bandwidth_fraction [1]: fraction of the bandwidth that streaming kernels reach, > 0
        launch [s]: fixed time of its kernels, >= 0
    Returns [s]: time of the kernel
    Source: Williams, Waterman and Patterson, Roofline, CACM 2009, https://doi.org/10.1145/1498765.1498785
    Leaves out: transforms as kernels of their own, which write their result; a small matrix product that fills its units badly

    >>> float(transformed_time(32e9, 7.125e9, 2e15, 8e12, 0.8, 0.8, 0.0))  # 32 FLOP an element stay below 7.125 bytes
    0.00111328125
    """
    compute = ratio(1.0 * transform_flop, 1.0 * efficiency * peak)
    time = np.maximum(compute, ratio(1.0 * traffic, 1.0 * bandwidth_fraction * bandwidth))
    positive = (peak > 0, bandwidth > 0, efficiency > 0, bandwidth_fraction > 0)
    return inside(time + launch, transform_flop >= 0, traffic >= 0, *positive, launch >= 0)


def memory_bound(flop, traffic, peak, bandwidth, efficiency, bandwidth_fraction, fill):
    """Whether the memory roof is the longer: ``traffic / (bandwidth_fraction bandwidth) > flop / (efficiency peak) + fill``.

    Parameters
        flop [FLOP]: operations of the kernel, >= 0
        traffic [B]: bytes read from and written to HBM, >= 0
        peak [FLOP/s]: dense peak rate of its precision, > 0
        bandwidth [B/s]: HBM bandwidth of the datasheet, > 0
        efficiency [1]: fraction of the peak that large kernels reach, > 0
        bandwidth_fraction [1]: fraction of the bandwidth that streaming kernels reach, > 0
        fill [s]: what filling and draining the multiprocessors adds to the compute roof, >= 0
    Returns [bool]: True where memory binds; False where compute does, on a tie, and outside the domain
    Source: Williams, Waterman and Patterson, Roofline, CACM 2009, https://doi.org/10.1145/1498765.1498785
    Leaves out: the launch time, which may exceed both

    >>> bool(memory_bound(1e12, 1e10, 1e15, 1e12, 1.0, 1.0, 0.0))
    True
    """
    memory = ratio(1.0 * traffic, 1.0 * bandwidth_fraction * bandwidth)
    compute = ratio(1.0 * flop, 1.0 * efficiency * peak) + fill
    within = inside(1.0, flop >= 0, traffic >= 0, peak > 0, bandwidth > 0, efficiency > 0, bandwidth_fraction > 0, fill >= 0)
    return np.logical_and(memory > compute, within == 1.0)


def ridge_point(peak, bandwidth):
    """Intensity at which the two roofs meet: ``peak / bandwidth``.

    Parameters
        peak [FLOP/s]: dense peak rate, > 0
        bandwidth [B/s]: HBM bandwidth, > 0
    Returns [FLOP/B]: kernels below it are memory-bound
    Source: Williams, Waterman and Patterson, Roofline, CACM 2009, https://doi.org/10.1145/1498765.1498785
    Leaves out: that real kernels reach neither roof, and not in the same proportion

    >>> round(float(ridge_point(989e12, 3.35e12)), 4)  # H100 SXM, bf16 dense; worked in the training chapter
    295.2239
    """
    return inside(ratio(1.0 * peak, 1.0 * bandwidth), peak > 0, bandwidth > 0)


def intensity(flop, traffic):
    """Operations for each byte moved: ``flop / traffic``.

    Parameters
        flop [FLOP]: operations, >= 0
        traffic [B]: bytes moved, > 0
    Returns [FLOP/B]: arithmetic intensity
    Source: Williams, Waterman and Patterson, Roofline, CACM 2009, https://doi.org/10.1145/1498765.1498785
    Leaves out: which level of the memory hierarchy the bytes cross

    >>> round(float(intensity(2 * 4096 * 4096 * 4096, 100663296)), 4)  # worked in the bandwidth-accounting note
    1365.3333
    """
    return inside(ratio(1.0 * flop, 1.0 * traffic), flop >= 0, traffic > 0)


def attainable_rate(intensity, peak, bandwidth):
    """Height of the roof over an intensity: ``min(peak, intensity bandwidth)``.

    Parameters
        intensity [FLOP/B]: arithmetic intensity, >= 0
        peak [FLOP/s]: dense peak rate, > 0
        bandwidth [B/s]: HBM bandwidth, > 0
    Returns [FLOP/s]: the highest rate the hardware allows
    Source: Williams, Waterman and Patterson, Roofline, CACM 2009, https://doi.org/10.1145/1498765.1498785
    Leaves out: efficiencies below one

    >>> float(attainable_rate(50, 312e12, 2e12))  # unfused attention on an A100; worked in the training chapter
    100000000000000.0
    """
    rate = np.minimum(1.0 * peak, 1.0 * intensity * bandwidth)
    return inside(rate, intensity >= 0, peak > 0, bandwidth > 0)


def saturating_efficiency(seq_len, efficiency, saturation_length):
    """Efficiency of an attention kernel over the sequence length: ``efficiency s / (s + s0)``.

    Parameters
        seq_len [token]: length of the sequence, > 0
        efficiency [1]: fraction of the peak reached on very long sequences, > 0
        saturation_length [token]: length s0 at which half of it is reached, >= 0
    Returns [1]: fraction of the peak
    Source: fitted to forward attention kernels of A100, H100 and B200 (aiconfigurator systems tables, NVIDIA, 2025,
        https://github.com/ai-dynamo/aiconfigurator); s0 about 600, 1,150 and 1,850 tokens
    Leaves out: how many heads fill the device (device_filling); head_dim; windows

    >>> float(saturating_efficiency(1150, 0.7, 1150))
    0.35
    """
    value = ratio(1.0 * efficiency * seq_len, 1.0 * seq_len + saturation_length)
    return inside(value, seq_len > 0, efficiency > 0, saturation_length >= 0)


def device_filling(query_rows, saturation_rows):
    """Share of the device that an attention kernel keeps busy: ``R / (R + R0)``.

    Blocks of query rows run side by side, and the last to finish works alone: its time goes with the length, not with the
    number of rows. R0 is near one block of 256 rows for each multiprocessor where a block takes long (37,900 on a B200).

    Parameters
        query_rows [1]: rows R of queries: batch, heads and query tokens multiplied, > 0
        saturation_rows [1]: rows R0 that keep half of the device busy, >= 0
    Returns [1]: fraction in (0, 1]
    Source: fitted to forward attention kernels with at least 16 sequences times heads (aiconfigurator systems tables, NVIDIA, 2025,
        https://github.com/ai-dynamo/aiconfigurator); predicts those with 1 to 15, which it has not seen
    Leaves out: whole waves, kernels that split the keys of one query

    >>> float(device_filling(8 * 4096, 8 * 4096))
    0.5
    """
    return inside(ratio(1.0 * query_rows, 1.0 * query_rows + saturation_rows), query_rows > 0, saturation_rows >= 0)


def power_limited_clock(power_limit, reference_power, idle_power, voltage_floor=0.0):
    """Clock under a power limit as a fraction of the reference clock: ``min(1, cbrt(s), s / (v v))``, ``s = (P - P0) / (Pr - P0)``.

    Dynamic power is proportional to f V V. V follows f, so power above idle goes with the cube of the clock, down to the clock v at
    which the voltage is the lowest that the device runs at. Below v, power above idle is proportional to the clock.

    Parameters
        power_limit [W]: power P the device may draw, >= 0
        reference_power [W]: power Pr at which it holds the reference clock under the same load, >= 0
        idle_power [W]: power P0 that does not depend on the clock, >= 0
        voltage_floor [1]: clock v, as a fraction of the reference clock, below which the voltage falls no further, in [0, 1]
    Where: reference_power > idle_power; power_limit >= idle_power
    Returns [1]: fraction of the reference clock, at most 1
    Source: Weste and Harris, CMOS VLSI Design, 4th ed., 2010, section 5.2 (dynamic power);
        the cube holds where voltage scales with frequency
    Leaves out: HBM, whose power does not scale; work that draws less than the limit, whose clock stays higher

    >>> round(float(power_limited_clock(500, 700, 100)), 4), float(power_limited_clock(800, 700, 100))
    (0.8736, 1.0)
    >>> round(float(power_limited_clock(400, 700, 100, 0.9)), 4)  # s is 0.5, below 0.9 cubed: 0.5 / 0.81
    0.6173
    """
    share = ratio(1.0 * power_limit - idle_power, 1.0 * reference_power - idle_power)
    linear = ratio(share, 1.0 * voltage_floor * voltage_floor)  # nan without a floor, which fmin passes over
    clock = np.minimum(1.0, np.fmin(np.cbrt(share), linear))
    return inside(
        clock, power_limit >= 0, idle_power >= 0, reference_power > idle_power, power_limit >= idle_power, fraction(voltage_floor)
    )


def dispatch_shortfall(operators, host_time, device_time):
    """Time the device waits for the host: ``max(0, operators host_time - device_time)``.

    Parameters
        operators [1]: operators the host launches, >= 0
        host_time [s]: host time of one launch, >= 0
        device_time [s]: time the device needs for them, >= 0
    Returns [s]: idle time of the device, to be added to device_time
    Source: PyTorch documentation, CUDA graphs,
        https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs (why launches are amortised)
    Leaves out: how far the host runs ahead from one stretch of work to the next

    >>> round(1e6 * float(dispatch_shortfall(70, 10e-6, 500e-6)), 6)  # us
    200.0
    """
    time = np.maximum(0.0, 1.0 * operators * host_time - device_time)
    return inside(time, operators >= 0, host_time >= 0, device_time >= 0)


def waves(tiles, multiprocessors):
    """Rounds in which a device works through thread blocks: ``ceil(tiles / multiprocessors)``.

    Parameters
        tiles [1]: thread blocks (output tiles) of the kernel, > 0
        multiprocessors [1]: blocks that run at once, > 0
    Returns [1]: waves
    Source: NVIDIA, Matrix Multiplication Background User's Guide, "Wave Quantization", https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication
    Leaves out: persistent and split-K schedules, which have no waves

    >>> float(waves(133, 132))
    2.0
    """
    return inside(np.ceil(ratio(1.0 * tiles, 1.0 * multiprocessors)), tiles > 0, multiprocessors > 0)


def wave_efficiency(tiles, multiprocessors):
    """Share of the device busy, averaged over the waves: ``tiles / (ceil(tiles / multiprocessors) multiprocessors)``.

    Parameters
        tiles [1]: thread blocks (output tiles) of the kernel, > 0
        multiprocessors [1]: blocks that run at once, > 0
    Returns [1]: fraction in (0, 1]
    Source: NVIDIA, Matrix Multiplication Background User's Guide, "Wave Quantization", https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication
    Leaves out: persistent and split-K schedules; which tile the library picks

    >>> float(wave_efficiency(512, 132))  # 4096 x 4096 in 128 x 256 tiles on an H100; worked in the training chapter
    0.9696969696969697
    """
    rounds = np.ceil(ratio(1.0 * tiles, 1.0 * multiprocessors))
    return inside(ratio(1.0 * tiles, rounds * multiprocessors), tiles > 0, multiprocessors > 0)
