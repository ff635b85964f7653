"""Numbers and times as the page writes them: three significant digits, units that never part from their number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from ironlaw import units

NARROW = "\u202f"  # thin space that does not break: between thousands
FIXED = "\u00a0"  # space that does not break: between a number and its unit
MINUS = "\u2212"
DASH = "\u2013"
DAY = 86400.0
_EVEN = 0.5  # a plan that is less likely to fit is not said to fit


class Figure(NamedTuple):
    """A number and its unit, as two texts: the page prints the unit smaller."""

    number: str
    unit: str

    def __str__(self) -> str:
        return f"{self.number}{FIXED}{self.unit}" if self.unit else self.number


def thousands(text: str) -> str:
    """A number as text with thin spaces for commas and a true minus.

    >>> thousands("-1,234.5").encode("unicode_escape").decode()
    '\\\\u22121\\\\u202f234.5'
    """
    return text.replace(",", NARROW).replace("-", MINUS)


def figure(value: Any, unit: str, exact: bool = False) -> Figure:
    """A value in SI ``unit`` with a suitable prefix, to three digits, so that a column of them is aligned; a dash where it is not known.

    Parameters
        value: in the SI unit
        unit: name of the SI unit
        exact: the value is a given one, which has no further digits: 80 GiB

    >>> figure(7.4163, "s"), figure(61150302208.0, "B"), figure(None, "s").number
    (Figure(number='7.42', unit='s'), Figure(number='57.0', unit='GiB'), '–')
    >>> figure(80.0 * 2**30, "B", exact=True), figure(6.48e-6, "s")
    (Figure(number='80', unit='GiB'), Figure(number='6.48', unit='µs'))
    """
    if value is None or not math.isfinite(value):
        return Figure(DASH, "")
    number, _, name = units.show(value, unit).partition(" ")
    if unit not in ("token", "") and not exact:
        number = three_digits(number)
    return Figure(thousands(number), name.replace("us", "\u00b5s") if name == "us" else name)


def three_digits(number: str) -> str:
    """A number as text with the zeros that three digits need.

    >>> three_digits("6.7"), three_digits("54"), three_digits("312"), three_digits("0"), three_digits("1,364")
    ('6.70', '54.0', '312', '0', '1,364')
    """
    digits = sum(one.isdigit() for one in number.lstrip("-0."))
    if not 0 < digits < 3 or not number.lstrip("-").replace(".", "", 1).isdigit():
        return number
    return f"{number}{'' if '.' in number else '.'}{'0' * (3 - digits)}"


def quantity(value: Any, unit: str, exact: bool = False) -> str:
    """A value with its unit, which does not break from it; ``exact``: as in `figure`.

    >>> quantity(0.0386, "s").replace(FIXED, " ")
    '38.6 ms'
    """
    return str(figure(value, unit, exact))


_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def large(value: Any, unit: str = "") -> Figure:
    """A count in k, M, G or T of its unit, to three digits.

    >>> large(15e12, "tokens"), large(4396800.0)
    (Figure(number='15', unit='T tokens'), Figure(number='4.4', unit='M'))
    """
    if value is None or not math.isfinite(value):
        return Figure(DASH, "")
    for size, prefix in _LARGE:
        if abs(value) >= size * 0.9995:
            return Figure(thousands(f"{value / size:.3g}"), f"{prefix} {unit}".strip())
    return Figure(thousands(f"{value:.3g}"), unit)


def money(value: Any, unit: str = "USD") -> Figure:
    """An amount of money, to three digits; ``unit`` empty where a head of the column names it.

    >>> money(14420868.8), money(950.0), money(16000000.0, "")
    (Figure(number='14.4', unit='M USD'), Figure(number='950', unit='USD'), Figure(number='16.0', unit='M'))
    """
    number, name = large(value, unit)
    return Figure(three_digits(number), name)


def energy_of(kwh: Any) -> Figure:
    """Energy in a suitable multiple of the watt-hour.

    >>> energy_of(5593809.2)
    Figure(number='5.59', unit='GWh')
    """
    number, unit = large(None if kwh is None else kwh * 1e3, "Wh")
    return Figure(three_digits(number), unit.replace(" ", ""))


def whole(value: Any) -> str:
    """A count, all its digits."""
    return DASH if value is None else thousands(f"{value:,.0f}")


def days(value: Any) -> Figure:
    """Days of a run: hours below two days.

    >>> days(310.47), days(46.0), days(0.5)
    (Figure(number='310', unit='days'), Figure(number='46.0', unit='days'), Figure(number='12.0', unit='h'))
    """
    if value is None or not math.isfinite(value):
        return Figure(DASH, "")
    if value < 2.0:
        return figure(value * DAY, "s")
    return Figure(thousands(f"{value:,.0f}" if value >= 99.95 else three_digits(f"{value:.3g}")), "days")


def share(value: Any, digits: int = 1) -> str:
    """A share in percent.

    >>> share(0.8286).replace(FIXED, " "), share(0.8285, 0).replace(FIXED, " ")
    ('82.9 %', '83 %')
    """
    return DASH if value is None else f"{value * 100.0:.{digits}f}{FIXED}%"


def change(value: float, digits: int = 1) -> str:
    """A relative change in percent, with its sign.

    >>> change(-0.0946).replace(FIXED, " ")
    '−9.5 %'
    """
    return f"{value * 100.0:+.{digits}f}{FIXED}%".replace("-", MINUS)


def interval(low: str, high: str) -> str:
    """Two ends of a band; a unit that both share is written once.

    >>> interval(f"6.09{FIXED}s", f"9.03{FIXED}s").replace(FIXED, " ")
    '6.09 to 9.03 s'
    """
    first, _, unit = low.partition(FIXED)
    return f"{first if unit and high.endswith(FIXED + unit) else low} to {high}"


def is_doubtful(memory: Mapping[str, Any]) -> bool:
    """True where a plan fits by the figure and probably does not by its error.

    >>> is_doubtful({"fits": True, "fits_probability": 0.32}), is_doubtful({"fits": True, "fits_probability": None})
    (True, False)
    """
    likely = memory["fits_probability"]
    return bool(memory["fits"]) and likely is not None and likely < _EVEN


def as_sentence(text: str) -> str:
    """A line of a headline as a sentence.

    >>> as_sentence("cheapest run: 1,024 x mi300x")
    'Cheapest run: 1,024 x mi300x.'
    """
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?')) else '.'}"
