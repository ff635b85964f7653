"""Money: what accelerators cost to rent, and what one gets for it. Prices are USD/s inside; USD/h is for people."""

from __future__ import annotations

from ironlaw.law._domain import inside, ratio


def gpu_hours(gpus, seconds):
    """Accelerator hours: ``gpus seconds / 3600``.

    Parameters
        gpus [1]: accelerators held, >= 0
        seconds [s]: time they are held, >= 0
    Factor [h/s]: 1/3600
    Returns [h]: accelerator hours
    Source: BIPM, The International System of Units, 9th ed., 2019, table 8 (1 h = 3600 s), https://www.bipm.org/en/publications/si-brochure
    Leaves out: the minimum term of a contract

    >>> float(gpu_hours(32, 336 * 3600))  # 32 accelerators for 14 days; worked in the training chapter
    10752.0
    """
    return inside(ratio(1.0 * gpus * seconds, 3600.0), gpus >= 0, seconds >= 0)


def rental(gpus, seconds, price):
    """Rent of accelerators: ``gpus seconds price``.

    Parameters
        gpus [1]: accelerators rented, >= 0
        seconds [s]: time they are rented, >= 0
        price [USD/s]: price of one accelerator, >= 0
    Returns [USD]: rent
    Source: product of the three; on-demand prices are linear in both counts (Google Cloud, GPU pricing, https://cloud.google.com/compute/gpus-pricing)
    Leaves out: storage, traffic, support, idle time, discounts for a term

    >>> round(float(rental(640, 30 * 86400, 4 / 3600)))  # worked in the estimation exercises
    1843200
    """
    return inside(1.0 * gpus * seconds * price, gpus >= 0, seconds >= 0, price >= 0)


def per_bandwidth(price, bandwidth):
    """Price of moving a byte through HBM: ``price / bandwidth``.

    Parameters
        price [USD/s]: price of one accelerator, >= 0
        bandwidth [B/s]: its HBM bandwidth, > 0
    Returns [USD/B]: price of a byte; times 3600e12 it reads as USD/h for each TB/s
    Source: the cost-of-bandwidth note (docs/documents/000-cost-of-bandwidth.md), section 7 ($/TB/s/h)
    Leaves out: that work bound by compute does not follow it: see per_flop

    >>> round(float(per_bandwidth(3.93 / 3600, 3.35e12)) * 3600 * 1e12, 4)  # H100; worked in the cost-of-bandwidth note
    1.1731
    """
    return inside(ratio(1.0 * price, 1.0 * bandwidth), price >= 0, bandwidth > 0)


def per_flop(price, peak):
    """Price of an operation at the peak: ``price / peak``.

    Parameters
        price [USD/s]: price of one accelerator, >= 0
        peak [FLOP/s]: its dense peak rate, or the rate it reaches, > 0
    Returns [USD/FLOP]: price of an operation
    Source: Hobbhahn and Besiroglu, Trends in GPU Price-Performance, Epoch AI, 2022, https://epoch.ai/blog/trends-in-gpu-price-performance
    Leaves out: efficiency, unless peak is the rate reached

    >>> round(float(per_flop(3.93 / 3600, 989e12)) * 1e18, 3)  # USD for each EFLOP, H100
    1.104
    """
    return inside(ratio(1.0 * price, 1.0 * peak), price >= 0, peak > 0)


def per_token(gpus, price, tokens_per_second):
    """Price of training on one token: ``gpus price / tokens_per_second``.

    Parameters
        gpus [1]: accelerators rented, >= 0
        price [USD/s]: price of one accelerator, >= 0
        tokens_per_second [token/s]: tokens all of them train on in a second, > 0
    Returns [USD/token]: price of a token
    Source: the cost-of-bandwidth note (docs/documents/000-cost-of-bandwidth.md), section 7 ($/hr over tokens/s)
    Leaves out: failures and idle time

    >>> round(float(per_token(150, 3.93 / 3600, 200e3)) * 1e6, 5)  # H100; worked in the cost-of-bandwidth note
    0.81875
    """
    rate = ratio(1.0 * gpus * price, 1.0 * tokens_per_second)
    return inside(rate, gpus >= 0, price >= 0, tokens_per_second > 0)


def affordable_gpus(budget, seconds, price):
    """Accelerators that a budget rents for a time: ``budget / (seconds price)``.

    Parameters
        budget [USD]: what may be spent, >= 0
        seconds [s]: time they are held, > 0
        price [USD/s]: price of one accelerator, > 0
    Returns [1]: accelerators, not rounded
    Source: rental solved for the accelerators
    Leaves out: whole nodes, idle time

    >>> round(float(affordable_gpus(2e6, 30 * 86400, 4 / 3600)), 4)  # worked in the estimation exercises
    694.4444
    """
    return inside(ratio(1.0 * budget, 1.0 * seconds * price), budget >= 0, seconds > 0, price > 0)


def affordable_time(budget, gpus, price):
    """Time for which a budget rents accelerators: ``budget / (gpus price)``.

    Parameters
        budget [USD]: what may be spent, >= 0
        gpus [1]: accelerators held, > 0
        price [USD/s]: price of one accelerator, > 0
    Returns [s]: time
    Source: rental solved for the time
    Leaves out: idle time

    >>> round(float(affordable_time(2e6, 1, 4 / 3600)) / 3600)  # accelerator hours; worked in the estimation exercises
    500000
    """
    return inside(ratio(1.0 * budget, 1.0 * gpus * price), budget >= 0, gpus > 0, price > 0)
