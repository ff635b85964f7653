"""Renting against buying: what a machine costs while one owns it, and when that is less than rent. All rates are of one accelerator."""

from __future__ import annotations

from ironlaw.law._domain import inside, ratio


def depreciation(purchase, residual, life):
    """Value an accelerator loses in a second, straight line: ``(purchase - residual) / life``.

    Parameters
        purchase [USD]: price of it with its share of server and network, >= 0
        residual [USD]: what it sells for at the end of its life, >= 0
        life [s]: time from purchase to sale, > 0
    Where: purchase >= residual
    Returns [USD/s]: cost of owning it
    Source: straight-line method, IAS 16 Property, Plant and Equipment, paragraph 62, https://www.ifrs.org/issued-standards/list-of-standards/ias-16-property-plant-and-equipment/
    Leaves out: interest on the money tied up, taxes

    >>> round(float(depreciation(30000.0, 0.0, 5 * 365.25 * 86400)) * 3600, 4)  # USD/h
    0.6845
    """
    return inside(ratio(1.0 * purchase - residual, 1.0 * life), purchase >= 0, residual >= 0, life > 0, purchase >= residual)


def hosting(power_limit, hosting_price):
    """Rent of the room, by the power it must be able to give: ``power_limit hosting_price``.

    Parameters
        power_limit [W]: most an accelerator draws with its share of the node and the network, >= 0
        hosting_price [USD/J]: price of a watt held for a second; USD/kW/month for people, >= 0
    Returns [USD/s]: cost of the place of one accelerator, whether it works or not
    Source: colocation is let by the kilowatt and month: CBRE, North America Data Center Trends H2 2024, https://www.cbre.com/insights/reports/north-america-data-center-trends-h2-2024
    Leaves out: electricity, which is billed apart: see electricity

    >>> round(float(hosting(1275.0, 184.06 / (1e3 * 30.4375 * 86400))) * 3600, 4)  # USD/h
    0.3213
    """
    return inside(1.0 * power_limit * hosting_price, power_limit >= 0, hosting_price >= 0)


def electricity(power, pue, electricity_price):
    """Electricity of an accelerator while it works: ``power pue electricity_price``.

    Parameters
        power [W]: mean power with its share of the node and the network, >= 0
        pue [1]: power of the building over power of the machines, >= 1
        electricity_price [USD/J]: price of energy from the grid, >= 0
    Returns [USD/s]: cost of working
    Source: product; Patterson et al., Carbon Emissions and Large Neural Network Training, 2021, section 2, https://arxiv.org/abs/2104.10350
    Leaves out: demand charges

    >>> round(float(electricity(700.0, 1.2, 0.12 / 3.6e6)) * 3600, 4)  # USD/h
    0.1008
    """
    return inside(1.0 * power * pue * electricity_price, power >= 0, pue >= 1, electricity_price >= 0)


def owned_cost(gpus, seconds, standing, running_rate, utilisation):
    """Cost of work on machines that are paid for whether they work or not: ``gpus seconds (standing / utilisation + running_rate)``.

    Parameters
        gpus [1]: accelerators that work, >= 0
        seconds [s]: time they work, >= 0
        standing [USD/s]: what one costs all the time: depreciation, hosting, staff, or a reserved price, >= 0
        running_rate [USD/s]: what it costs on top while it works, >= 0
        utilisation [1]: share of the time it works, > 0
    Returns [USD]: cost of this work, with its part of the time in which nothing ran
    Source: sum of the two; idle time is charged to the work that is done
    Leaves out: electricity of machines that stand idle

    >>> float(owned_cost(8, 3600.0, 2.0 / 3600, 0.0, 0.5))  # 8 hours at 2 USD, half of the time unused
    32.0
    """
    rate = ratio(1.0 * standing, 1.0 * utilisation) + running_rate
    return inside(1.0 * gpus * seconds * rate, gpus >= 0, seconds >= 0, standing >= 0, running_rate >= 0, utilisation > 0)


def break_even_runs(purchase, rent, running):
    """Runs after which a purchase has cost less than their rent: ``purchase / (rent - running)``.

    Parameters
        purchase [USD]: price of all machines, >= 0
        rent [USD]: rent of one run, >= 0
        running [USD]: what one run costs on machines of one's own; 0 in the simplified model, >= 0
    Where: rent > running
    Returns [1]: runs, back to back
    Source: the training chapter (docs/documents/003-training-chapter.md), the utility bill, which has running 0: a lower bound
    Leaves out: time between runs, and what machines cost in it: see payback_time

    >>> float(break_even_runs(30e6, 1415571.2841253793, 0.0))  # worked in the training chapter
    21.19285714285714
    """
    saved = 1.0 * rent - running
    return inside(ratio(1.0 * purchase, saved), purchase >= 0, rent >= 0, running >= 0, rent > running)


def saving(price, running_rate, utilisation):
    """Rent one does not pay for a machine of one's own, less what its work costs: ``utilisation (price - running_rate)``.

    Parameters
        price [USD/s]: rent of one accelerator, >= 0
        running_rate [USD/s]: what an owned one costs while it works, >= 0
        utilisation [1]: share of the time it works, >= 0
    Where: price >= running_rate
    Returns [USD/s]: saving, mean over time
    Source: difference of the two
    Leaves out: what the machine costs all the time: see payback_time

    >>> float(saving(3.0, 1.0, 0.5))
    1.0
    """
    return inside(1.0 * utilisation * (1.0 * price - running_rate), price >= 0, running_rate >= 0, utilisation >= 0, price >= running_rate)


def payback_time(purchase, saved_rate, standing):
    """Time until what is saved has paid the price: ``purchase / (saved_rate - standing)``.

    Parameters
        purchase [USD]: price of one accelerator with its share of server and network, >= 0
        saved_rate [USD/s]: rent not paid, less the cost of working: see saving, >= 0
        standing [USD/s]: what one costs all the time: hosting and staff, without depreciation, >= 0
    Where: saved_rate > standing
    Returns [s]: time; more than the life of the machine means never
    Source: payback period, Brealey, Myers and Allen, Principles of Corporate Finance, chapter 5
    Leaves out: interest on the money tied up, rents that fall

    >>> float(payback_time(300.0, 2.0, 1.0))
    300.0
    """
    rate = 1.0 * saved_rate - standing
    return inside(ratio(1.0 * purchase, rate), purchase >= 0, saved_rate >= 0, standing >= 0, saved_rate > standing)


def break_even_purchase(saved_rate, standing, life):
    """Price at which buying costs what renting costs: ``(saved_rate - standing) life``.

    Parameters
        saved_rate [USD/s]: rent not paid, less the cost of working: see saving, >= 0
        standing [USD/s]: what one costs all the time: hosting and staff, without depreciation, >= 0
        life [s]: time from purchase to the end, nothing left over, > 0
    Where: saved_rate >= standing
    Returns [USD]: price of one accelerator with its share of server and network
    Source: payback_time, solved for the price
    Leaves out: interest on the money tied up, rents that fall

    >>> float(break_even_purchase(2.0, 1.0, 300.0))
    300.0
    """
    return inside((1.0 * saved_rate - standing) * life, saved_rate >= 0, standing >= 0, life > 0, saved_rate >= standing)


def break_even_utilisation(standing, price, running_rate):
    """Share of the time a machine must work to cost no more than rent: ``standing / (price - running_rate)``.

    Parameters
        standing [USD/s]: what an owned one costs all the time, depreciation with it, >= 0
        price [USD/s]: rent of one accelerator, paid only while it works, >= 0
        running_rate [USD/s]: what an owned one costs while it works, >= 0
    Where: price > running_rate
    Returns [1]: share of the time; more than 1 means never
    Source: owned_cost equal to rent, solved for utilisation
    Leaves out: rent that is paid while nothing runs

    >>> float(break_even_utilisation(1.0, 3.0, 1.0))
    0.5
    """
    rate = 1.0 * price - running_rate
    return inside(ratio(1.0 * standing, rate), standing >= 0, price >= 0, running_rate >= 0, price > running_rate)
