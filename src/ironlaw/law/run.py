"""A whole training run: its steps, its time, and the utilisation that a time implies."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import fraction, inside, ratio

UP, EXACT, DOWN = 1.0, 0.0, -1.0  # roundings of a count
ROUNDINGS = {"up": UP, "down": DOWN, "exact": EXACT}


def steps(tokens, tokens_per_step, rounding):
    """Optimizer steps of a run: ``tokens / tokens_per_step``, rounded up (1), down (-1) or exact (0).

    Rounded up, the steps see at least all tokens; rounded down, up to one batch of tokens is left out.

    Parameters
        tokens [token]: tokens of the run, >= 0
        tokens_per_step [token]: tokens of the global batch, > 0
        rounding [1]: above 0 rounds up, below 0 down, 0 does not round, any
    Returns [1]: steps, a whole number unless exact
    Source: count; errata E004-8: rounding down drops up to a batch
    Leaves out: a batch size that grows during the run

    >>> float(steps(1.4e12, 2e6, UP)), float(steps(10, 3, UP)), float(steps(10, 3, DOWN)), float(steps(10, 4, EXACT))
    (700000.0, 4.0, 3.0, 2.5)
    """
    return inside(_round(ratio(1.0 * tokens, 1.0 * tokens_per_step), rounding), tokens >= 0, tokens_per_step > 0)


def _round(count, rounding):
    """A count rounded up, down or not at all."""
    rounded = np.where(np.greater(rounding, 0), np.ceil(count), np.where(np.less(rounding, 0), np.floor(count), count))
    return inside(rounded, np.isfinite(rounding))


def iron_law(operations, peak, efficiency):
    """Time from work, speed and efficiency: ``operations / (peak efficiency)``.

    Parameters
        operations [FLOP]: operations to do, >= 0
        peak [FLOP/s]: peak rate of all accelerators together, > 0
        efficiency [1]: fraction of it that is reached, > 0
    Returns [s]: time
    Source: the training chapter (docs/documents/003-training-chapter.md), section "The iron law of training performance";
        after Patterson and Hennessy, Computer Organization and Design, section 1.6
    Leaves out: where the efficiency comes from, which is what the rest of ironlaw answers

    >>> float(iron_law(1e20, 1e15, 0.4))  # worked in the training chapter
    250000.0
    """
    time = ratio(1.0 * operations, 1.0 * peak * efficiency)
    return inside(time, operations >= 0, peak > 0, efficiency > 0)


def mfu(model_flop, seconds, gpus, peak):
    """Model FLOPs utilisation that a time implies: ``model_flop / (seconds gpus peak)``.

    Parameters
        model_flop [FLOP]: model FLOP done in that time, no recompute (with recompute the answer is HFU), >= 0
        seconds [s]: time, > 0
        gpus [1]: accelerators, > 0
        peak [FLOP/s]: dense peak rate of one, > 0
    Returns [1]: fraction of the peak; above 1 the measurement is impossible
    Source: Chowdhery et al., PaLM, 2022, appendix B, https://arxiv.org/abs/2204.02311
    Leaves out: what kept it below 1

    >>> float(mfu(294.912e12, 1.0, 8, 125e12))  # worked in the training chapter
    0.294912
    """
    value = ratio(1.0 * model_flop, 1.0 * seconds * gpus * peak)
    return inside(value, model_flop >= 0, seconds > 0, gpus > 0, peak > 0)


def operations(flop_per_token, tokens):
    """Operations of a run: ``flop_per_token tokens``.

    Parameters
        flop_per_token [FLOP/token]: operations of a token, >= 0
        tokens [token]: tokens of the run, >= 0
    Returns [FLOP]: operations
    Source: product of the two
    Leaves out: recomputation, steps done again after failures

    >>> float(operations(6 * 30e9, 600e9))  # worked in the estimation exercises
    1.08e+23
    """
    return inside(1.0 * flop_per_token * tokens, flop_per_token >= 0, tokens >= 0)


def gpus_needed(operations, seconds, peak, efficiency, rounding):
    """Accelerators that finish in a time: ``operations / (seconds peak efficiency)``, rounded up (1), down (-1) or exact (0).

    Rounded up, they are the fewest that finish in time; rounded down, the time is a little longer.

    Parameters
        operations [FLOP]: operations to do, >= 0
        seconds [s]: time they may take, > 0
        peak [FLOP/s]: dense peak rate of one, > 0
        efficiency [1]: fraction of it that is reached, > 0
        rounding [1]: above 0 rounds up, below 0 down, 0 does not round, any
    Offset [FLOP, s]: whole accelerators
    Returns [1]: accelerators
    Source: iron_law solved for the peak; errata E001-6, E004-8
    Leaves out: an efficiency that falls with their number

    >>> float(gpus_needed(3.6e23, 30 * 86400, 989e12, 0.45, UP))  # worked in the estimation exercises
    313.0
    >>> float(gpus_needed(6 * 70e9 * 8192, 1.0, 989.4e12, 0.4, DOWN))  # of a step of a second; worked in the study of ten sites
    8.0
    """
    count = _round(ratio(1.0 * operations, 1.0 * seconds * peak * efficiency), rounding)
    return inside(count, operations >= 0, seconds > 0, peak > 0, efficiency > 0)


def tokens_done(gpus, seconds, peak, efficiency, flop_per_token):
    """Tokens that a time is enough for: ``gpus seconds peak efficiency / flop_per_token``.

    Parameters
        gpus [1]: accelerators, >= 0
        seconds [s]: time, >= 0
        peak [FLOP/s]: dense peak rate of one, >= 0
        efficiency [1]: fraction of it that is reached, >= 0
        flop_per_token [FLOP/token]: operations of a token, > 0
    Returns [token]: tokens
    Source: iron_law solved for the operations
    Leaves out: failures

    >>> float(tokens_done(128, 1.0, 989e12, 0.45, 6 * 30e9))  # of a second; worked in the estimation exercises
    316480.0
    """
    done = ratio(1.0 * gpus * seconds * peak * efficiency, 1.0 * flop_per_token)
    return inside(done, gpus >= 0, seconds >= 0, peak >= 0, efficiency >= 0, flop_per_token > 0)


def amdahl_speedup(gpus, serial_fraction):
    """Speed-up where a part of the work gains nothing (simplified): ``gpus / (1 + (gpus - 1) serial_fraction)``.

    Parameters
        gpus [1]: accelerators, >= 1
        serial_fraction [1]: share of the work of one that more of them do not shorten, in [0, 1]
    Returns [1]: speed-up over one, at most 1 / serial_fraction
    Source: Amdahl, Validity of the single processor approach, AFIPS 1967; the training chapter, communication tax
    Leaves out: communication that grows with the accelerators, and what hides beside computation; errata E003-23

    >>> [round(float(amdahl_speedup(256, r)), 2) for r in (0.05, 0.15, 0.4)]  # errata E003-23
    [18.62, 6.52, 2.49]
    """
    speedup = ratio(1.0 * gpus, 1.0 + (1.0 * gpus - 1.0) * serial_fraction)
    return inside(speedup, gpus >= 1, fraction(serial_fraction))
