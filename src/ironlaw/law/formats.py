"""Number formats: what a sign, an exponent and a mantissa can hold. Bits beyond those of a double (11 and 52) count as a double's."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import flag, inside, ratio


def _bias(exponent_bits):
    return np.exp2(np.minimum(1.0 * exponent_bits, 11.0) - 1.0) - 1.0


def largest(exponent_bits, mantissa_bits, infinities, nan_code):
    """The largest number of a format: ``(2 - 2^-mantissa_bits (1 + nan_code)) 2^(2^exponent_bits - 1 - infinities - bias)``.

    The bias is 2^(exponent_bits - 1) - 1.

    Parameters
        exponent_bits [1]: bits of the exponent, >= 1
        mantissa_bits [1]: bits of the mantissa, without the leading one that is not stored, >= 0
        infinities [1]: whether the top exponent is kept for infinities and NaN, as IEEE 754 does, 0 or 1
        nan_code [1]: where it is not: whether the last code of all is NaN, as in E4M3, 0 or 1
    Returns [1]: the largest finite number; greater ones overflow
    Source: IEEE 754-2019, section 3.4; OCP 8-bit Floating Point Specification (OFP8) 1.0, 2023, tables 1 and 2,
        https://www.opencompute.org/documents/ocp-8bit-floating-point-specification-ofp8-revision-1-0-2023-12-01-pdf-1
    Leaves out: formats with another bias, such as the fp8 of the MI300 series; the scale of a block

    >>> [float(largest(*bits)) for bits in ((5, 10, 1, 0), (4, 3, 0, 1), (5, 2, 1, 0), (2, 1, 0, 0))]  # fp16, E4M3, E5M2, E2M1
    [65504.0, 448.0, 57344.0, 6.0]
    """
    codes = np.exp2(np.minimum(1.0 * exponent_bits, 11.0))
    exponent = np.minimum(codes - 1.0 - infinities - _bias(exponent_bits), 1023.0)
    step = np.exp2(-np.minimum(1.0 * mantissa_bits, 52.0))
    taken = np.where(np.equal(infinities, 1), 1.0, 1.0 + nan_code)
    value = np.clip(2.0 - step * taken, 0.0, 2.0 - 2.0**-52) * np.exp2(exponent)
    return inside(value, exponent_bits >= 1, mantissa_bits >= 0, flag(infinities), flag(nan_code))


def least_normal(exponent_bits):
    """The least number with all digits: ``2^(1 - bias)``, the bias 2^(exponent_bits - 1) - 1.

    Parameters
        exponent_bits [1]: bits of the exponent, >= 1
    Returns [1]: the least normal number
    Source: IEEE 754-2019, section 3.4
    Leaves out: formats with another bias

    >>> [f"{float(least_normal(bits)):.3g}" for bits in (8, 5, 4)]  # fp32 and bf16, fp16, E4M3
    ['1.18e-38', '6.1e-05', '0.0156']
    """
    return inside(np.exp2(1.0 - _bias(exponent_bits)), exponent_bits >= 1)


def least_subnormal(exponent_bits, mantissa_bits):
    """The least number above zero: ``2^(1 - bias - mantissa_bits)``, the bias 2^(exponent_bits - 1) - 1.

    Parameters
        exponent_bits [1]: bits of the exponent, >= 1
        mantissa_bits [1]: bits of the mantissa, without the leading one that is not stored, >= 0
    Returns [1]: the least subnormal number; what rounds below half of it is lost
    Source: IEEE 754-2019, section 3.4
    Leaves out: hardware that flushes subnormal numbers to zero

    >>> [f"{float(least_subnormal(*bits)):.3g}" for bits in ((8, 23), (8, 7), (5, 10), (4, 3))]  # errata E003-17
    ['1.4e-45', '9.18e-41', '5.96e-08', '0.00195']
    """
    value = np.exp2(1.0 - _bias(exponent_bits) - np.minimum(1.0 * mantissa_bits, 52.0))
    return inside(value, exponent_bits >= 1, mantissa_bits >= 0)


def decimal_digits(mantissa_bits):
    """Decimal digits of a format: ``(mantissa_bits + 1) log10(2)``.

    Parameters
        mantissa_bits [1]: bits of the mantissa, without the leading one that is not stored, >= 0
    Returns [1]: digits
    Source: IEEE 754-2019, section 5.12.2
    Leaves out: rounding that adds up over a sum

    >>> [round(float(decimal_digits(bits)), 1) for bits in (23, 10, 7)]  # fp32, fp16, bf16: 2 to 3, errata E003-17
    [7.2, 3.3, 2.4]
    """
    return inside((1.0 * mantissa_bits + 1.0) * np.log10(2.0), mantissa_bits >= 0)


def stored_bytes(bits, scale_bits, block):
    """Bytes of an element with its share of a block's scale: ``(bits + scale_bits / block) / 8``.

    Parameters
        bits [1]: bits of an element, >= 0
        scale_bits [1]: bits of the scale of a block, >= 0
        block [1]: elements that share a scale, >= 1
    Factor [B]: an eighth for each bit
    Returns [B]: bytes
    Source: OCP Microscaling Formats (MX) Specification 1.0, 2023, section 5; NVIDIA, Pretraining Large Language Models with NVFP4,
        2025, section 2, https://arxiv.org/abs/2509.25149
    Leaves out: rows and columns that a kernel pads to whole blocks; the one fp32 scale that NVFP4 has for a tensor

    >>> [float(8 * stored_bytes(*format)) for format in ((4, 8, 16), (4, 8, 32), (8, 8, 32))]  # nvfp4, mxfp4, mxfp8 in bits
    [4.5, 4.25, 8.25]
    >>> float(stored_bytes(8, 32, 128)), float(stored_bytes(8, 32, 128 * 128))  # DeepSeek-V3: activations, weights
    (1.03125, 1.000244140625)
    """
    enough = block >= 1
    share = ratio(1.0 * scale_bits, np.where(enough, 1.0 * block, np.nan))
    return inside((1.0 * bits + share) / 8.0, bits >= 0, scale_bits >= 0, enough)


def hadamard_flop(elements, transform_size):
    """FLOPs of a Hadamard transform of a tensor as products with a square matrix: ``2 elements transform_size``.

    Parameters
        elements [1]: elements of the tensor, >= 0
        transform_size [1]: elements that are transformed together, 0 without a transform, >= 0
    Factor [FLOP]: 2 for each multiply-add
    Returns [FLOP]: multiplications and additions
    Source: NVIDIA, Pretraining Large Language Models with NVFP4, 2025, section 4.2, https://arxiv.org/abs/2509.25149: the transform of a
        tile is a small matrix product
    Leaves out: the random signs, which are part of the matrix; a fast transform, which needs log2(size) additions an element

    >>> float(hadamard_flop(8192 * 4096, 16)) / (2 * 8192 * 4096 * 4096)  # of a square product of 4096 columns: 16 / 4096
    0.00390625
    """
    return inside(2.0 * elements * transform_size, elements >= 0, transform_size >= 0)


def loss_scale(largest, gradient):
    """The largest power of two that a loss can be multiplied by: ``2^floor(log2(largest / gradient))``.

    Parameters
        largest [1]: largest number of the format, > 0
        gradient [1]: the largest gradient or loss before it is scaled, > 0
    Returns [1]: scale; a greater one overflows
    Source: Micikevicius et al., Mixed Precision Training, 2018, section 3.2, https://arxiv.org/abs/1710.03740
    Leaves out: sums of scaled numbers, which overflow before each of them does

    >>> float(loss_scale(65504.0, 1.0))  # fp16: 2^15
    32768.0
    """
    positive = np.logical_and(largest > 0, gradient > 0)
    room = np.where(positive, ratio(1.0 * largest, 1.0 * gradient), np.nan)
    return inside(np.exp2(np.floor(np.log2(room))), positive)
