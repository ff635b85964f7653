"""Power, energy and carbon of a cluster."""

from __future__ import annotations

from ironlaw.law._domain import inside


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

    >>> float(cluster_power(100000, 700, 575, 1.0))  # oracle S004-12
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

    >>> round(float(energy(435200, 273437.5)) / 3.6e6, 3)  # kWh; oracle S003-60
    33055.556
    """
    return inside(1.0 * power * seconds, power >= 0, seconds >= 0)


def carbon(energy, intensity):
    """Carbon dioxide emitted for the energy: ``energy intensity``.

    Parameters
        energy [J]: energy from the grid, >= 0
        intensity [kg/J]: carbon intensity of the grid, >= 0
    Returns [kg]: CO2 equivalent
    Source: Patterson et al., Carbon Emissions and Large Neural Network Training, 2021, section 2, https://arxiv.org/abs/2104.10350
    Leaves out: emissions of manufacture; hourly variation of the grid

    >>> round(float(carbon(16527.7778 * 3.6e6, 0.4 / 3.6e6)), 2)  # oracle S003-60
    6611.11
    """
    return inside(1.0 * energy * intensity, energy >= 0, intensity >= 0)
