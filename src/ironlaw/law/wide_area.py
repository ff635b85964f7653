"""Training over distance: how far sites are apart, how long light takes, and what an exchange between them costs."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import fraction, inside, ratio

_EARTH = 6371009.0  # mean radius [m]
_LIGHT = 299792458.0  # in vacuum [m/s], exact


def great_circle(latitude, longitude, other_latitude, other_longitude):
    """Shortest way over the ground: ``2 r asin(sqrt(sin^2(dlat / 2) + cos(lat) cos(other lat) sin^2(dlon / 2)))``.

    Parameters
        latitude [1]: degrees north of one place, any
        longitude [1]: degrees east of it, any
        other_latitude [1]: degrees north of the other, any
        other_longitude [1]: degrees east of it, any
    Factor [m]: r = 6,371,009 m, the mean radius of the Earth
    Returns [m]: distance
    Source: Sinnott, Virtues of the Haversine, Sky and Telescope 68, 1984, page 159;
        radius: Moritz, Geodetic Reference System 1980, Journal of Geodesy 2000, https://doi.org/10.1007/s001900050278
    Leaves out: that the Earth is no sphere (at most 0.6 %), and that no cable runs straight

    >>> round(float(great_circle(48.7071906, 2.1753469, 37.6869634, -121.7084555)) / 1e3, 1)  # km; worked in the study of ten sites
    8930.9
    """
    north, other = np.radians(1.0 * latitude), np.radians(1.0 * other_latitude)
    east = np.radians(1.0 * other_longitude) - np.radians(1.0 * longitude)
    square = np.square(np.sin((other - north) / 2.0)) + np.cos(north) * np.cos(other) * np.square(np.sin(east / 2.0))
    return inside(2.0 * _EARTH * np.arcsin(np.sqrt(np.clip(square, 0.0, 1.0))))


def light_time(distance):
    """The least a signal can take, light in vacuum one way: ``distance / c``.

    Parameters
        distance [m]: way over the ground, >= 0
    Factor [s/m]: 1 / c, c = 299,792,458 m/s
    Returns [s]: one way
    Source: BIPM, The International System of Units, 9th ed., 2019, section 2.2, https://www.bipm.org/en/publications/si-brochure
    Leaves out: the glass, the route, every device on it: see fibre_time

    >>> round(1e3 * float(light_time(8930918.10836962)), 4)  # ms; worked in the study of ten sites
    29.7903
    """
    return inside(1.0 * distance / _LIGHT, distance >= 0)


def fibre_time(distance, route_factor, refractive_index):
    """Light in a fibre that takes a longer way, one way: ``distance route_factor refractive_index / c``.

    Parameters
        distance [m]: way over the ground, >= 0
        route_factor [1]: length of the fibre over the way over the ground, >= 1
        refractive_index [1]: group index of the fibre, >= 1
    Factor [s/m]: 1 / c, c = 299,792,458 m/s
    Returns [s]: one way
    Source: Saleh and Teich, Fundamentals of Photonics, 3rd ed., 2019, section 10.3 (group velocity in a fibre)
    Leaves out: switches, amplifiers, queues, protocols that wait for an answer

    >>> round(1e3 * float(fibre_time(8930918.10836962, 1.0, 1.49896229)), 3)  # ms at 200,000 km/s; worked in the study of ten sites
    44.655
    """
    time = 1.0 * distance * route_factor * refractive_index / _LIGHT
    return inside(time, distance >= 0, route_factor >= 1, refractive_index >= 1)


def tree_all_reduce(n, size, bandwidth, latency):
    """All-reduce on two binary trees: ``2 ceil(log2(n)) latency + 2 size / bandwidth``.

    Parameters
        n [1]: ranks, >= 1
        size [B]: bytes of the tensor, >= 0
        bandwidth [B/s]: bandwidth of a rank, one direction, > 0
        latency [s]: time of one hop, >= 0
    Returns [s]: time; 0 for one rank
    Source: Sanders, Speck and Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel Computing 2009,
        https://doi.org/10.1016/j.parco.2009.09.001
    Leaves out: filling the pipeline with pieces, the additions, contention

    >>> float(tree_all_reduce(8, 10e9, 10e9, 0.05))  # 3 levels up and down
    2.3
    """
    levels = np.ceil(np.log2(np.where(n >= 1, 1.0 * n, np.nan)))
    time = 2.0 * levels * latency + np.where(n > 1, ratio(2.0 * size, 1.0 * bandwidth), 0.0)
    return inside(time, n >= 1, size >= 0, bandwidth > 0, latency >= 0)


def shared_pipe(n, size, bandwidth):
    """Exchange through one pipe that n sites share, the simplified model of the study of ten sites: ``size / (bandwidth / n)``.

    Parameters
        n [1]: sites, >= 1
        size [B]: bytes each site sends, >= 0
        bandwidth [B/s]: of the pipe, shared, > 0
    Returns [s]: time
    Source: the study of ten sites, section "Communication time of data parallelism"; errata E004-6
    Leaves out: the way back, latency, an algorithm: a ring over links of this bandwidth takes 2 (n - 1) / n size / bandwidth

    >>> round(float(shared_pipe(10, 140e9, 10 * 1024**3)), 4)  # worked in the study of ten sites
    130.3852
    """
    return inside(ratio(1.0 * size, ratio(1.0 * bandwidth, 1.0 * n)), n >= 1, size >= 0, bandwidth > 0)


def data_rate(bandwidth, efficiency):
    """Rate at which data arrives over a line: ``bandwidth efficiency``.

    Parameters
        bandwidth [B/s]: rate of the line, > 0
        efficiency [1]: share of the rate that data takes, > 0
    Returns [B/s]: rate of the data
    Source: definition; the share that headers leave: IEEE 802.3 and RFC 9293, 1,448 bytes of data in 1,538 bytes on the wire
    Leaves out: how congestion and lost packets lower the share on a given route

    >>> round(float(data_rate(10e9, 1448 / 1538)) / 1e9, 3)
    9.415
    """
    return inside(1.0 * bandwidth * efficiency, bandwidth > 0, efficiency > 0)


def sent_bytes(n, size):
    """Bytes that each site sends in an all-reduce: ``2 (n - 1) / n size``.

    Parameters
        n [1]: sites, >= 1
        size [B]: bytes of the tensor, >= 0
    Returns [B]: bytes sent by one site; 0 for one site
    Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009, section 3,
        https://doi.org/10.1016/j.jpdc.2008.09.002
    Leaves out: headers, and data that is sent again

    >>> float(sent_bytes(10, 140e9))  # the gradients of 70B parameters in bf16 among ten sites
    252000000000.0
    """
    return inside(ratio(2.0 * (1.0 * n - 1.0) * size, 1.0 * n), n >= 1, size >= 0)


def traffic_cost(sent, exchanges, traffic_price):
    """Cost of what a site sends: ``sent exchanges traffic_price``.

    Parameters
        sent [B]: bytes of one exchange, >= 0
        exchanges [1]: exchanges of the run, >= 0
        traffic_price [USD/B]: price of a byte that leaves the site, >= 0
    Returns [USD]: cost
    Source: product of the three; clouds bill traffic by the bytes that leave (Google Cloud, Network pricing, https://cloud.google.com/vpc/network-pricing)
    Leaves out: discounts for volume, the rent of a line

    >>> float(traffic_cost(252e9, 1000, 20e-12))  # 252 TB at 20 USD a TB
    5040.0
    """
    return inside(1.0 * sent * exchanges * traffic_price, sent >= 0, exchanges >= 0, traffic_price >= 0)


def exposed_per_step(communication, window, inner_steps, fragments):
    """Waiting of a step when pieces are exchanged once in many steps: ``fragments max(0, communication - window) / inner_steps``.

    With one fragment and one step it is what data parallelism shows; with one fragment and many steps, DiLoCo; with more
    fragments and a window, streaming DiLoCo.

    Parameters
        communication [s]: exchange of one fragment, >= 0
        window [s]: time of the computation the exchange may run beside, >= 0
        inner_steps [1]: steps from one exchange of a fragment to its next, >= 1
        fragments [1]: pieces the model is exchanged in, each at its own time, >= 1
    Returns [s]: waiting for each step, in the mean
    Source: Douillard et al., DiLoCo, 2023, section 2, https://arxiv.org/abs/2311.08105;
        fragments and the window: Douillard et al., Streaming DiLoCo, 2025, section 2, https://arxiv.org/abs/2501.18512
    Leaves out: the slowdown of computation beside communication; what rarer exchange costs in loss

    >>> float(exposed_per_step(50.0, 0.0, 500.0, 1.0)), float(exposed_per_step(5.0, 2.0, 100.0, 10.0))
    (0.1, 0.3)
    """
    time = ratio(np.maximum(0.0, 1.0 * communication - window) * fragments, 1.0 * inner_steps)
    return inside(time, communication >= 0, window >= 0, inner_steps >= 1, fragments >= 1)


def communication_share(communication, compute):
    """Share of the time that is waiting: ``communication / (compute + communication)``.

    Parameters
        communication [s]: exposed communication of a step, >= 0
        compute [s]: time of the step without it, > 0
    Returns [1]: share, below 1; one less it is the compute utilisation
    Source: the study of ten sites, section "Communication time of data parallelism" (its comm/compute ratio)
    Leaves out: waiting for anything else

    >>> round(100 * float(communication_share(23.46932888031006, 1.0000503596788266)), 3)  # worked in the study of ten sites
    95.913
    """
    return inside(ratio(1.0 * communication, 1.0 * compute + communication), communication >= 0, compute > 0)


def effective_accelerators(gpus, communication_share):
    """Accelerators that the rest of the time is worth: ``gpus (1 - communication_share)``.

    Parameters
        gpus [1]: accelerators, >= 0
        communication_share [1]: share of a step that is communication, in [0, 1]
    Returns [1]: accelerators that would do the same without communication
    Source: errata E003-23: with a constant share r of communication the efficiency is 1 - r for any number of accelerators
    Leaves out: that the share grows with the number of accelerators

    >>> float(effective_accelerators(256, 0.15))  # worked in the training chapter
    217.6
    """
    return inside(gpus * (1.0 - communication_share), gpus >= 0, fraction(communication_share))
