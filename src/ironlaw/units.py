"""Convert text with a unit to an SI float, and back. Prefixes exist only here.

Inside ironlaw every quantity is a float in s, B, FLOP, W, J, USD, tokens and their quotients.
Bits are bytes/8. Decimal and binary prefixes differ: ``80 GB`` is 8e10 B, ``80 GiB`` is 85 899 345 920 B. Lower-case ``b`` is a
bit, upper-case ``B`` a byte.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ironlaw.errors import UnitError, ValueRangeError, nearest_names

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 1024.0, "Mi": 1024.0**2, "Gi": 1024.0**3, "Ti": 1024.0**4, "Pi": 1024.0**5}
_SMALL = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_YEAR = 365.25 * 86400.0
_LARGE_WATT = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_TIMES = {
    "min minute minutes": 60.0,
    "h hour hours": 3600.0,
    "d day days": 86400.0,
    "w week weeks": 604800.0,
    "month months": _YEAR / 12.0,
    "year years": _YEAR,
}


def _list_units() -> dict[str, tuple[float, str]]:
    """Every unit, prefixes included, with the factor to its SI unit and the name of that."""
    units: dict[str, tuple[float, str]] = {"": (1.0, "1"), "1": (1.0, "1"), "%": (0.01, "1")}
    for prefix, factor in (_DECIMAL | _BINARY).items():
        units[f"{prefix}B"] = (factor, "B")
        units[f"{prefix}B/s"] = (factor, "B/s")
        units[f"{prefix}b/s"] = (factor / 8.0, "B/s")
    for prefix, factor in _DECIMAL.items():
        units[f"{prefix}bit/s"] = (factor / 8.0, "B/s")
        units[f"{prefix}bps"] = (factor / 8.0, "B/s")
        units[f"{prefix}FLOP"] = (factor, "FLOP")
        units[f"{prefix}FLOP/s"] = (factor, "FLOP/s")
        units[f"{prefix}FLOPS"] = (factor, "FLOP/s")
        units[f"{prefix}Hz"] = (factor, "1/s")
    for prefix, factor in _SMALL.items():
        units[f"{prefix}s"] = (factor, "s")
    for prefix, factor in _LARGE_WATT.items():
        units[f"{prefix}W"] = (factor, "W")
        units[f"{prefix}J"] = (factor, "J")
        units[f"{prefix}Wh"] = (factor * 3600.0, "J")
    for names, seconds in _TIMES.items():
        units |= dict.fromkeys(names.split(), (seconds, "s"))
    units |= {"m": (1.0, "m"), "km": (1e3, "m")}
    units |= {"USD": (1.0, "USD"), "USD/h": (1.0 / 3600.0, "USD/s"), "USD/s": (1.0, "USD/s")}
    units |= {"USD/year": (1.0 / _YEAR, "USD/s")}
    units |= {"USD/kW/month": (12.0 / (1e3 * _YEAR), "USD/J")}
    units |= {"USD/kWh": (1.0 / 3.6e6, "USD/J"), "USD/MWh": (1.0 / 3.6e9, "USD/J")}
    units |= {"USD/GB": (1e-9, "USD/B"), "USD/TB": (1e-12, "USD/B")}
    units |= {"g/kWh": (1e-3 / 3.6e6, "kg/J"), "kg/kWh": (1.0 / 3.6e6, "kg/J"), "g": (1e-3, "kg"), "kg": (1.0, "kg"), "t": (1e3, "kg")}
    for prefix, factor in {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}.items():
        units[f"{prefix} tokens".strip()] = (factor, "token")
    units |= {
        "token": (1.0, "token"),
        "parameters": (1.0, "parameter"),
        "B parameters": (1e9, "parameter"),
        "M parameters": (1e6, "parameter"),
        "B parameters/s": (1e9, "1/s"),
    }
    return units


UNITS = _list_units()
_NUMBER = re.compile(r"-?(?:\d[\d_ ]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_COUNT_SUFFIX = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12} | {name: _BINARY[name] for name in ("Ki", "Mi", "Gi", "Ti")}
_USUAL = {"s": ["s", "min", "h", "d", "w"]}  # units offered for every unit that is not known


def _split(text: str) -> tuple[float, str] | None:
    """A number in ASCII digits, without a plus sign, and the text behind it; None for any other text."""
    text = text.strip()
    match = _NUMBER.match(text)
    return (float(match[0].replace("_", "").replace(" ", "")), text[match.end() :].strip()) if match else None


def to_float(number: float) -> float:
    """A number as a float; infinite where it is a whole number larger than any float.

    >>> to_float(8), to_float(-(10**400))
    (8.0, -inf)
    """
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def bare_number(value: Any) -> float | None:
    """A number that has no unit; None for anything else.

    >>> bare_number("2.5"), bare_number("2.5h"), bare_number("+2.5")
    (2.5, None, None)
    """
    if isinstance(value, (int, float)):
        return to_float(value)
    found = _split(str(value))
    return found[0] if found and not found[1] else None


def parse(text: str | float, unit: str, what: str = "quantity") -> float:
    """The SI value of ``text``, a number with a unit of the same dimension as ``unit``.

    Parameters: text, ``"3.35 TB/s"``; a number without a unit is in ``unit``.
    unit, the expected SI unit: s, B, B/s, FLOP/s, W, USD/s, ...; what, the name in the error.
    Raises UnitError with the nearest known units.

    >>> parse("80 GiB", "B")
    85899345920.0
    >>> parse("400 Gb/s", "B/s")
    50000000000.0
    """
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return to_float(text)
    found = _split(str(text))
    if not found:
        raise UnitError(f"{what}: {shorten(text)!r} is not a number with a unit (expected a quantity in {unit})")
    number, suffix = found
    if not suffix:
        return number
    if suffix not in UNITS:
        known = [u for u, (_, si) in UNITS.items() if si == unit and u]
        near = dict.fromkeys([*nearest_names(suffix, known), *_USUAL.get(unit, [])]) or known[:6]
        raise UnitError(f"{what}: unknown unit {shorten(suffix)!r} in {shorten(text)!r}; nearest: {', '.join(near)}")
    factor, dimension = UNITS[suffix]
    if dimension != unit:
        known = [u for u, (_, si) in UNITS.items() if si == unit and u]
        raise UnitError(f"{what}: {shorten(text)!r} is in {dimension}, expected {unit} (for example {', '.join(known[:4])})")
    return number * factor


def parse_count(text: str | float, what: str = "count") -> float:
    """A count with an optional magnitude: ``15T``, ``300B``, ``4M``, ``1.5e12``; ``128Ki`` and ``1Mi`` are binary.

    >>> parse_count("15T"), parse_count("128Ki")
    (15000000000000.0, 131072.0)
    """
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return to_float(text)
    found = _split(str(text))
    if not found or found[1] not in _COUNT_SUFFIX:
        raise UnitError(f"{what}: {shorten(text)!r} is not a count (examples: 300B, 15T, 128Ki, 1.5e12)")
    return found[0] * _COUNT_SUFFIX[found[1]]


LARGEST = 1e12  # a larger count is a typing error


def parse_whole(value: Any, what: str = "count", least: int = 1) -> float:
    """A whole number from ``least`` to 1e12, with an optional magnitude.

    >>> parse_whole("4k")
    4000.0
    """
    if isinstance(value, bool):
        raise ValueRangeError(f"{what} is {value}, must be a number")
    try:
        number = parse_count(value, what)
    except UnitError:
        raise UnitError(f"{what} is {shorten(value)!r}, must be a whole number (examples: 512, 4k, 128Ki, 1.5e12)") from None
    if not least <= number <= LARGEST or number != int(number):
        raise ValueRangeError(f"{what} is {shorten(value)}, must be a whole number from {least} to {LARGEST:g}")
    return number


def shorten(value: Any) -> str:
    """``value`` as an error message quotes it, at most 40 characters."""
    text = "astronomical" if isinstance(value, int) and abs(value) >= 10**18 else str(value)
    return text if len(text) < 40 else text[:37] + "..."


def parse_switch(value: Any, what: str = "switch") -> bool:
    """``on`` or ``off``, in any of the usual spellings.

    >>> parse_switch("yes"), parse_switch("off")
    (True, False)
    """
    text = str(value).strip().lower()
    if text in ("on", "yes", "y", "true", "1", "1.0"):
        return True
    if text in ("off", "no", "n", "false", "0", "0.0"):
        return False
    raise ValueRangeError(f"{what} is {value!r}, must be on or off")


_SCALES = {
    "decimal B": [(1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")],
    "B": [(1024.0**4, "TiB"), (1024.0**3, "GiB"), (1024.0**2, "MiB"), (1024.0, "KiB"), (1.0, "B")],
    "B/s": [(1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")],
    "FLOP": [(1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1.0, "FLOP")],
    "FLOP/s": [(1e18, "EFLOP/s"), (1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1.0, "FLOP/s")],
    "s": [(_YEAR * 10.0, "years"), (86400.0 * 2, "days"), (3600.0 * 2, "h"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us")],
    "m": [(1e3, "km"), (1.0, "m")],
    "W": [(1e12, "TW"), (1e9, "GW"), (1e6, "MW"), (1e3, "kW"), (1.0, "W")],
    "J": [(3.6e15, "TWh"), (3.6e12, "GWh"), (3.6e9, "MWh"), (3.6e6, "kWh"), (3.6e3, "Wh"), (1.0, "J")],
    "kg": [(1e9, "Mt"), (1e6, "kt"), (1e3, "t"), (1.0, "kg"), (1e-3, "g")],
    "token": [(1e12, "T tokens"), (1e9, "B tokens"), (1e6, "M tokens"), (1.0, "tokens")],
    "parameter": [(1e12, "T parameters"), (1e9, "B parameters"), (1e6, "M parameters"), (1.0, "parameters")],
    "1": [(1.0, "")],
}
_NAMED_SIZE = {"years": _YEAR, "days": 86400.0, "h": 3600.0}


def show(value: float, unit: str, digits: int = 3) -> str:
    """``value`` in SI ``unit``, with a suitable prefix.

    >>> show(85899345920.0, "B"), show(3.35e12, "B/s"), show(0.0123, "s")
    ('80 GiB', '3.35 TB/s', '12.3 ms')
    >>> show(1.2e6, "h"), show(1.2e6, "s"), show(30181.8 * 86400, "s", 4)
    ('1,200,000 h', '13.9 days', '82.63 years')
    >>> show(4194304.0, "token"), show(8191 * 8192.0, "token"), show(1.4e12, "token")
    ('4 Mi tokens', '67.1 M tokens', '1.4 T tokens')
    """
    if math.isnan(value):
        return "nan"
    if unit == "token" and value and value % 2.0**18 == 0.0 and abs(value) < 2.0**30:  # a batch of sequences whose length is binary
        return f"{binary(value)} tokens"
    if value == 0.0 and unit == "s":
        return "0 s"
    for threshold, name in _SCALES.get(unit, [(1.0, unit)]):
        if abs(value) >= threshold * 0.9995:
            size = _NAMED_SIZE.get(name, threshold) if unit == "s" else threshold  # accelerator hours are already in hours
            return f"{_short(value / size, digits)} {name}".strip()
    name = _SCALES.get(unit, [(1.0, unit)])[-1][1]
    return f"{_short(value / _SCALES.get(unit, [(1.0, unit)])[-1][0], digits)} {name}".strip()


def binary(value: float) -> str:
    """A number with a binary prefix.

    >>> binary(4.0 * 2**20), binary(2.0**19)
    ('4 Mi', '512 Ki')
    """
    return f"{value / 2**20:g} Mi" if abs(value) >= 2**20 else f"{value / 2**10:g} Ki"


def amount(value: float) -> str:
    """A number of dollars or hours: no decimals from 100 on, three digits below.

    >>> amount(1234.5), amount(99.97), amount(12.345), amount(0.00123)
    ('1,234', '100', '12.3', '0.00123')
    """
    return f"{value:,.0f}" if abs(value) >= 99.95 or value == 0.0 else f"{value:.3g}"


def share(value: float, digits: int = 1) -> str:
    """A share of a peak or a roof in percent; a larger one is no share of it.

    >>> share(0.5021), share(1.416)
    ('50.2%', 'above 100%')
    """
    return f"{value:.{digits}%}" if value <= 1.0 else "above 100%"


def run_time(seconds: float) -> str:
    """A time as a run takes it: days to a tenth from two days on, years beside them from ten on, and shorter ones in hours or seconds.

    >>> run_time(1990656.0), run_time(43200.0), run_time(0.9), run_time(30181.8 * 86400)
    ('23.0 days', '12 h', '900 ms', '30,181.8 days (82.63 years)')
    """
    years = f" ({seconds / _YEAR:,.2f} years)" if seconds >= 10.0 * _YEAR else ""
    return f"{seconds / 86400.0:,.1f} days{years}" if seconds >= 172800.0 else show(seconds, "s")


def _short(value: float, digits: int) -> str:
    if value == 0.0:
        return "0"
    if abs(value) >= 10.0**digits - 0.5:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"
