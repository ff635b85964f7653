"""Power, energy and carbon of a cluster."""

from __future__ import annotations

from ironlaw.law._domain import fraction, inside, ratio


def cluster_power(gpus, accelerator_power, host_power_per_accelerator, pue):
    """Power a cluster draws from the grid: ``gpus (accelerator_power + host_power_per_accelerator) pue``.

    Parameters
        gpus [1]: accelerators, >= 0
        accelerator_power [W]: mean power of one, >= 0
        host_power_per_accelerator [W]: its share of processors, memory, network and fans, >= 0
        pue [1]: power of the building over power of the machines, >= 1
    Returns [W]: power
    Source: Patterson et al., Carbon Emissions and Large Neural Network Training, 2021, section 2, https://arxiv.org/abs/2104.10350
    Leaves out: load that varies within a step

    >>> float(cluster_power(100000, 700, 575, 1.0))  # worked in the study of ten sites
    127500000.0
    """
    power = 1.0 * gpus * (1.0 * accelerator_power + host_power_per_accelerator) * pue
    return inside(power, gpus >= 0, accelerator_power >= 0, host_power_per_accelerator >= 0, pue >= 1)


def energy(power, seconds):
    """Energy drawn: ``power seconds``.

    Parameters
        power [W]: mean power, >= 0
        seconds [s]: time, >= 0
    Returns [J]: energy
    Source: BIPM, The International System of Units, 9th ed., 2019, table 4 (W = J/s), https://www.bipm.org/en/publications/si-brochure
    Leaves out: start-up and idle nodes

    >>> round(float(energy(435200, 273437.5)) / 3.6e6, 3)  # kWh; worked in the training chapter
    33055.556
    """
    return inside(1.0 * power * seconds, power >= 0, seconds >= 0)


def energy_cost(energy, electricity_price):
    """Price of the energy: ``energy electricity_price``.

    Parameters
        energy [J]: energy from the grid, >= 0
        electricity_price [USD/J]: price of energy, >= 0
    Returns [USD]: cost
    Source: product of the two; EIA gives the mean as revenue over energy sold, https://www.eia.gov/electricity/annual/
    Leaves out: charges for the highest power of a month, taxes that are paid back

    >>> round(float(energy_cost(1e9 * 3.6e3, 0.0892 / 3.6e6)))  # 1 GWh at 0.0892 USD/kWh
    89200
    """
    return inside(1.0 * energy * electricity_price, energy >= 0, electricity_price >= 0)


def carbon(energy, intensity):
    """Carbon dioxide emitted for the energy: ``energy intensity``.

    Parameters
        energy [J]: energy from the grid, >= 0
        intensity [kg/J]: carbon intensity of the grid, >= 0
    Returns [kg]: CO2 equivalent
    Source: Patterson et al., Carbon Emissions and Large Neural Network Training, 2021, section 2, https://arxiv.org/abs/2104.10350
    Leaves out: emissions of manufacture; hourly variation of the grid

    >>> round(float(carbon(16527.7778 * 3.6e6, 0.4 / 3.6e6)), 2)  # worked in the training chapter
    6611.11
    """
    return inside(1.0 * energy * intensity, energy >= 0, intensity >= 0)


def paused_run(seconds, working):
    """Length of a run that trains for a part of every day only: ``86400 seconds / working``.

    Parameters
        seconds [s]: time of the run without pauses, >= 0
        working [s]: time of a day in which it trains: its hours without the restarts after pauses, > 0
    Factor [s]: 86,400 s, a day
    Returns [s]: time from the first to the last step
    Source: BIPM, The International System of Units, 9th ed., 2019, table 8 (a day), https://www.bipm.org/en/publications/si-brochure
    Leaves out: the checkpoint before a pause; that a run does not end at the end of a day

    >>> float(paused_run(10 * 86400, 8 * 3600)) / 86400, round(float(paused_run(86400, 28800 - 1000)) / 86400, 3)
    (30.0, 3.108)
    """
    return inside(ratio(86400.0 * seconds, 1.0 * working), seconds >= 0, working > 0)


def power_at_load(waiting_power, busy_power, load):
    """Mean power of a machine that works part of the time: ``waiting_power + load (busy_power - waiting_power)``.

    Parameters
        waiting_power [W]: power while it waits, for the network or for data, >= 0
        busy_power [W]: power while it computes, >= 0
        load [1]: share of the time it computes, in [0, 1]
    Where: busy_power >= waiting_power
    Returns [W]: power
    Source: linear in the load, as Fan, Weber and Barroso, Power Provisioning for a Warehouse-sized Computer, ISCA 2007, section 3,
        https://doi.org/10.1145/1250662.1250665
    Leaves out: clocks that fall with the load

    >>> float(power_at_load(500.0, 900.0, 0.25))
    600.0
    """
    power = 1.0 * waiting_power + load * (1.0 * busy_power - waiting_power)
    return inside(power, waiting_power >= 0, busy_power >= waiting_power, fraction(load))


def household_months(energy, household_energy):
    """Months a household would take for the energy: ``energy / household_energy``.

    Parameters
        energy [J]: energy from the grid, >= 0
        household_energy [J]: what a household takes in a month, > 0
    Returns [1]: months
    Source: the training chapter (docs/documents/003-training-chapter.md), the carbon footprint of a run, at 900 kWh a month
    Leaves out: everything a household burns besides

    >>> round(float(household_months(33055.5555556, 900.0)), 3)  # kWh; worked in the training chapter
    36.728
    """
    return inside(ratio(1.0 * energy, 1.0 * household_energy), energy >= 0, household_energy > 0)


def per_operation(power, peak):
    """Energy of an operation at a power and a rate: ``power / peak``.

    Parameters
        power [W]: power of one accelerator, >= 0
        peak [FLOP/s]: operations it does meanwhile, its dense peak at best, > 0
    Returns [J/FLOP]: energy of an operation, memory and wires of the board included
    Source: quotient of the two
    Leaves out: what of the power is not spent on arithmetic, so it is an upper bound for arithmetic alone

    >>> round(float(per_operation(700, 989e12)) * 1e12, 3)  # pJ, H100 at its limit
    0.708
    """
    return inside(ratio(1.0 * power, 1.0 * peak), power >= 0, peak > 0)


def of_bytes(size, energy_per_byte):
    """Energy of moving bytes: ``size energy_per_byte``.

    Parameters
        size [B]: bytes moved, >= 0
        energy_per_byte [J/B]: energy of one byte over that way, >= 0
    Returns [J]: energy
    Source: Horowitz, Computing's Energy Problem, ISSCC 2014, https://doi.org/10.1109/ISSCC.2014.6757323
    Leaves out: what a memory or a link draws while nothing moves

    >>> round(float(of_bytes(1e12, 8 * 6e-12)), 6)  # a terabyte through HBM2E at 6 pJ a bit
    48.0
    """
    return inside(1.0 * size * energy_per_byte, size >= 0, energy_per_byte >= 0)
