"""Readers of the values of options: each takes what a user writes and the flag, and returns the value or refuses it by name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ironlaw import units
from ironlaw.errors import QuestionError, UnknownNameError, ValueRangeError
from ironlaw.question import defaults
from ironlaw.question.kinds import kind, kind_of

Reader = Callable[[Any, str], Any]
LEAST, MOST = 1e-30, 1e60  # limits of a measured value: products of larger values overflow
LONGEST = 1e15  # seconds; a longer time is a typing error
SAMPLES = {  # values of quantities with a unit, for whoever tries every option
    "B/s": ("20GB/s",), "W": ("500W",), "s": ("30s",), "B": ("2GB",), "FLOP/s": ("900TFLOP/s",), "FLOP": ("1e22",), "USD": ("30000",),
}  # fmt: skip

whole = kind("int", "str", least=1, most=units.LARGEST, samples=("2", "4"))(units.parse_whole)
none_or_more = kind("int", "str", least=0, most=units.LARGEST, samples=("1", "2"))(partial(units.parse_whole, least=0))
switch = kind("bool", "str", gives="bool", choices=("on", "off"), metavar="on|off")(units.parse_switch)


@kind("int", "str", least=0, most=3, metavar="0|1|2|3", samples=("0", "1", "2", "3"))
def stage(value: Any, flag: str) -> float:
    """Read a ZeRO stage."""
    number = units.parse_count(value, flag)
    if number not in (0, 1, 2, 3):
        raise ValueRangeError(f"{flag} is {value}, must be 0, 1, 2 or 3")
    return number


@kind("str", gives="str", metavar="NAME")
def text(value: Any, flag: str) -> str:
    """Read a name; in Python it may be a path."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(value, str) or not value.strip():
        raise ValueRangeError(f"{flag} is {value!r}, must be a name")
    return value.strip()


@kind("str", gives="str", metavar="NAME", samples=defaults.PRECISIONS)
def precision(value: Any, flag: str) -> str:
    """Read the name of a precision: one that ships, or one of the user's catalogue, which is looked up with the question's records."""
    return text(value, flag).lower().replace("_", "-")


@kind("str", "dict[str, Any]", gives="Any", metavar="MODEL")
def model(value: Any, flag: str) -> Any:
    """Read a model: a name, a path, ``field=value,...`` dimensions, or a table of them."""
    if isinstance(value, Mapping):
        return dict(value)
    return text(value, flag)


def one_of(choices: tuple[str, ...]) -> Callable[[Any, str], str]:
    """Make a reader of one name of ``choices``."""

    @kind("str", gives="str", choices=choices, metavar="NAME")
    def read(value: Any, flag: str) -> str:
        """Read one of the choices, in any case."""
        name = str(value).strip().lower()
        if name not in choices:
            raise UnknownNameError(flag, str(value), choices)
        return name

    return read


MOST_LOADS = 1_000_000  # experts times layers: three times those of the largest model


@kind("str", "Sequence[Any]", gives="Any", metavar="FILE|SHAPE", samples=("zipf:1.2",))
def expert_load(value: Any, flag: str) -> Any:
    """Read the loads of experts: the name of a shape or a file, or numbers by expert, or by layer and expert."""
    if isinstance(value, str):
        return text(value, flag)
    rows = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(rows, (list, tuple)) or not rows:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be a file, a shape or a list of numbers")
    if sum(len(row) if isinstance(row, (list, tuple)) else 1 for row in rows) > MOST_LOADS:
        raise ValueRangeError(f"{flag} has more than {MOST_LOADS:,} numbers")
    return tuple(tuple(row) if isinstance(row, (list, tuple)) else row for row in rows)


@kind("float", "str", unit="1", least=0.0, most=10.0, metavar="X", samples=("0.3",))
def spread(value: Any, flag: str) -> float:
    """Read a deviation over a mean, from 0 to 10."""
    number = units.parse(value, "1", flag)
    if not 0.0 <= number <= 10.0:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be from 0 to 10")
    return number


@kind("str", gives="str", metavar="HOW", samples=("balanced", "redundant:32"))
def expert_placement(value: Any, flag: str) -> str:
    """Read how experts are placed on ranks.

    >>> expert_placement("balanced", "--expert-placement"), expert_placement("redundant:32", "--expert-placement")
    ('balanced', 'redundant:32')
    """
    how, _, count = str(value).strip().lower().partition(":")
    if how not in defaults.EXPERT_PLACEMENTS:
        raise UnknownNameError(flag, how, defaults.EXPERT_PLACEMENTS)
    if how != "redundant":
        if count:
            raise ValueRangeError(f"{flag} {how} has no number, got {units.shorten(count)}")
        return how
    return f"{how}:{int(whole(count, f'{flag} redundant'))}"


@kind("Sequence[int]", "str", gives="tuple[int, ...]", metavar="LIST", samples=("15,17",))
def stage_layers(value: Any, flag: str) -> tuple[int, ...]:
    """Read a comma list of layers per pipeline stage."""
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return tuple(int(none_or_more(item, flag)) for item in items)


@kind("str", gives="str", metavar="NAME")
def one_name(value: Any, flag: str) -> str:
    """Read one name; several are compared by other verbs."""
    name = text(value, flag)
    if "," in name:
        raise QuestionError(f"{flag} is {name}: one name is asked for here; ironlaw plan and ironlaw compare take several")
    return name


@kind("int", "str", least=1, most=units.LARGEST, samples=("16", "64"))
def one_count(value: Any, flag: str) -> float:
    """Read one count of accelerators; several are compared by other verbs."""
    if isinstance(value, str) and ("," in value or ".." in value):
        raise QuestionError(f"{flag} is {units.shorten(value)}: one number is asked for here; estimate, plan and sweep take several")
    return whole(value, flag)


@kind("float", "str", gives="float | str", unit="USD/h", least=0.0, most=1e6, metavar="PRICE", samples=("2.5",))
def price(value: Any, flag: str) -> Any:
    """Read a price: USD per accelerator hour, or provider/term."""
    if isinstance(value, bool):
        raise ValueRangeError(f"{flag} is {value}, must be a price")
    number = _to_float(value)
    if number is None:
        return text(value, flag)
    if not 0 <= number <= 1e6:
        raise ValueRangeError(f"{flag} is {value}, must be from 0 to 1e6 USD per accelerator hour")
    return number


@kind("float", "str", gives="float | str", unit="g/kWh", least=0.0, most=1e4, metavar="GRID", samples=("france", "300"))
def grid(value: Any, flag: str) -> Any:
    """Read a carbon intensity: a region's name, or grams per kWh."""
    if isinstance(value, bool):
        raise ValueRangeError(f"{flag} is {value}, must be a region or g/kWh")
    number = _to_float(value)
    if number is None:
        if str(value).strip().endswith("/kWh"):
            return units.parse(value, "kg/J", flag) * 3.6e9
        return text(value, flag)
    if not 0 <= number <= 1e4:
        raise ValueRangeError(f"{flag} is {value}, must be from 0 to 10000 g/kWh")
    return number


def _to_float(value: Any) -> float | None:
    """A number, nan and infinity included, so that the message is about its size; None for a name."""
    if isinstance(value, str) and (not value.isascii() or value.strip().startswith("+")):
        return None
    try:
        return units.to_float(value)
    except (TypeError, ValueError):
        return None


@kind("Sequence[int]", "str", gives="tuple[int, ...]", metavar="AxBxC", samples=("4x4x4",))
def torus_topology(value: Any, flag: str) -> tuple[int, ...]:
    """Read the chips of each axis of a slice, such as 4x4x8."""
    sides = value if isinstance(value, (list, tuple)) else re.split(r"[x,*]", str(value).strip().lower())
    if not 1 <= len(sides) <= 3:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be chips of each axis, such as 4x4x8")
    return tuple(int(whole(side, flag)) for side in sides)


@kind("float", "str", unit="1", least=1.0, most=units.LARGEST, metavar="R", samples=("3:1",))
def oversubscription(value: Any, flag: str) -> float:
    """Read how many times the rate of its NICs exceeds that of the links above a layer of switches: 7, 7:1 or 1:7."""
    first, colon, second = str(value).partition(":")
    parts = [units.parse(part, "1", flag) for part in ((first, second) if colon else (value, "1"))]
    ratio = max(parts) / min(parts) if colon and min(parts) > 0.0 else parts[0]
    if not 1.0 <= ratio <= units.LARGEST or min(parts) <= 0.0:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be a ratio such as 3:1, or a number of at least 1")
    return ratio


def positive(unit: str) -> Callable[[Any, str], float]:
    """Make a reader of quantities in ``unit`` above zero."""

    @kind("float", "str", unit=unit, least=LEAST, most=MOST, metavar="X", samples=SAMPLES.get(unit, ("2",)))
    def read(value: Any, flag: str) -> float:
        """Read a quantity above zero."""
        number = units.parse(value, unit, flag)
        if not LEAST <= number <= MOST:
            raise ValueRangeError(
                f"{flag} is {units.shorten(value)}, must be {f'at most {MOST:g}' if number > MOST else 'more than 0 and finite'}"
            )
        return number

    return read


@kind("float", "str", unit="1", least=LEAST, most=1.0, metavar="SHARE", samples=("0.5",))
def share(value: Any, flag: str) -> float:
    """Read a part of a whole: above 0, at most 1."""
    number = units.parse(value, "1", flag)
    if not LEAST <= number <= 1.0:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be above 0 and at most 1")
    return number


@kind("float", "str", unit="1", least=0.0, most=1.0, metavar="SHARE", samples=("20%",))
def margin(value: Any, flag: str) -> float:
    """Read a share from 0 to below 1."""
    number = units.parse(value, "1", flag)
    if not 0.0 <= number < 1.0:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be from 0 to less than 1, such as 0.05 or 5%")
    return number


@kind("str", unit="s", least=LEAST, most=LONGEST, metavar="TIME", samples=("2h",))
def duration(value: Any, flag: str) -> float:
    """Read a time with its unit, such as 50000h or 15min. A bare number is refused: it could be seconds or hours."""
    if units.bare_number(value) is not None:
        raise ValueRangeError(f"{flag} is {value}, which has no unit: give one of s, min, h, d, w, such as {value}h")
    number = units.parse(value, "s", flag)
    if not LEAST <= number <= LONGEST:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be more than 0 and at most {LONGEST:g} s")
    return number


@kind("float", "str", unit="1", least=1.0, most=units.LARGEST, metavar="X", samples=("1.5",))
def at_least_one(value: Any, flag: str) -> float:
    """Read a number of at least 1."""
    number = units.parse(value, "1", flag)
    if not 1 <= number <= units.LARGEST:
        raise ValueRangeError(
            f"{flag} is {units.shorten(value)}, must be {f'at most {units.LARGEST:g}' if number > units.LARGEST else 'at least 1'}"
        )
    return number


@kind("str", gives="str", metavar="WHAT", samples=("full", "attn,mlp"))
def graphs(value: Any, flag: str) -> str:
    """Read what runs as a captured graph: a name, or a list of modules."""
    text = str(value).strip()
    if text in defaults.CUDA_GRAPHS:
        return text
    modules = tuple(dict.fromkeys(re.split(r"[,+\s]+", text)))
    if not modules or not set(modules) <= set(defaults.GRAPH_MODULES):
        known = ", ".join((*defaults.CUDA_GRAPHS, *defaults.GRAPH_MODULES))
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be one of {known}, or a list of modules")
    return ",".join(modules)


# --- several values, and values by name

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def list_of(reader: Callable[[Any, str], Any]) -> Callable[[Any, str], tuple[Any, ...]]:
    """Make a reader of a comma list, or of a sequence, whose items ``reader`` reads."""

    @kind(
        *kind_of(reader).takes,
        "Sequence[Any]",
        gives="tuple[Any, ...]",
        unit=kind_of(reader).unit,
        metavar="LIST",
        samples=kind_of(reader).samples,
    )
    def read(value: Any, flag: str) -> tuple[Any, ...]:
        """Read each item of a list."""
        items = value if isinstance(value, (list, tuple)) else str(value).split(",") if isinstance(value, str) else [value]
        if not items:
            raise ValueRangeError(f"{flag} is empty: give at least one value")
        return tuple(reader(item.strip() if isinstance(item, str) else item, flag) for item in items)

    return read


names = list_of(text)


@kind("int", "str", "Sequence[int]", gives="tuple[float, ...]", least=1, most=units.LARGEST, metavar="LIST", samples=("64,128",))
def counts(value: Any, flag: str) -> tuple[float, ...]:
    """Read counts: ``64``; a list ``64,96,128``; or ``64..512``, which doubles from the first to the last.

    >>> counts("64..512", "--gpus"), counts("8,12", "--gpus"), counts("96..400", "--gpus")
    ((64.0, 128.0, 256.0, 512.0), (8.0, 12.0), (96.0, 192.0, 384.0, 400.0))
    """
    first, dots, last = value.partition("..") if isinstance(value, str) else (value, "", "")
    if not dots:
        return tuple(dict.fromkeys(list_of(whole)(value, flag)))
    low, high = whole(first, flag), whole(last, flag)
    if low > high:
        raise ValueRangeError(f"{flag} is {value}: the range ends before it begins")
    return (*(low * 2.0**i for i in range(50) if low * 2.0**i < high), high)


def by_name(reader: Callable[[Any, str], Any]) -> Callable[[Any, str], dict[str, Any]]:
    """Make a reader of ``A=..,B=..`` as values by name, or of one value for all names, whose key is ``""``."""

    @kind(
        *kind_of(reader).takes,
        "Mapping[str, Any]",
        gives="dict[str, Any]",
        unit=kind_of(reader).unit,
        metavar=kind_of(reader).metavar,
        samples=kind_of(reader).samples,
    )
    def read(value: Any, flag: str) -> dict[str, Any]:
        """Read the value of each name."""
        if not isinstance(value, Mapping):
            items = [item.partition("=") for item in str(value).split(",")] if "=" in str(value) else [("", "=", value)]
            value = {name.strip(): item for name, _, item in items}
        return {name: reader(item.strip() if isinstance(item, str) else item, f"{flag} {name}".strip()) for name, item in value.items()}

    return read


def for_each(reader: Callable[[Any, str], Any]) -> Callable[[Any, str], tuple[Any, ...] | dict[str, Any]]:
    """Make a reader of one value for all, a comma list in order, or ``NAME=VALUE`` pairs. A name may be a pair ``LAT,LON``.

    >>> for_each(text)("a,b", "--grid"), for_each(text)("oslo=norway,46.02,8.96=switzerland", "--grid")
    (('a', 'b'), {'oslo': 'norway', '46.02,8.96': 'switzerland'})
    """
    in_order = list_of(reader)

    @kind(
        *kind_of(reader).takes,
        "Sequence[Any]",
        "Mapping[str, Any]",
        gives="Any",
        unit=kind_of(reader).unit,
        metavar="EACH",
        samples=kind_of(reader).samples,
    )
    def read(value: Any, flag: str) -> tuple[Any, ...] | dict[str, Any]:
        """Read the values in order, or by name."""
        if isinstance(value, Mapping):
            pairs = {str(name).strip(): item for name, item in value.items()}
        else:
            items = value if isinstance(value, (list, tuple)) else str(value).split(",") if isinstance(value, str) else [value]
            named = ["=" in item if isinstance(item, str) else False for item in items]
            if not any(named):
                return in_order(value, flag)
            pairs, latitude = {}, ""
            for item, has_name in zip(items, named, strict=True):
                if not has_name and (latitude or units.bare_number(item) is None):
                    raise ValueRangeError(f"{flag}: {item} has no name, but other values have: write all as NAME=VALUE or none")
                if not has_name:
                    latitude = f"{str(item).strip()},"
                    continue
                name, _, one = str(item).partition("=")
                pairs[latitude + name.strip()] = one
                latitude = ""
            if latitude:
                raise ValueRangeError(f"{flag}: {latitude[:-1]} has no name, but other values have: write all as NAME=VALUE or none")
        return {name: reader(item.strip() if isinstance(item, str) else item, f"{flag} {name}") for name, item in pairs.items()}

    return read


def zero_or_more(unit: str) -> Callable[[Any, str], float]:
    """Make a reader of quantities in ``unit``, 0 for none."""

    @kind("float", "str", unit=unit, least=0.0, most=MOST, metavar="X", samples=SAMPLES.get(unit, ("2",)))
    def read(value: Any, flag: str) -> float:
        return 0.0 if str(value).strip() in ("0", "0.0", "none") else positive(unit)(value, flag)

    return read


def with_unit(unit: str, example: str) -> Callable[[Any, str], float]:
    """Make a reader of quantities whose unit must be written, because two units are usual."""

    @kind("float", "str", unit=unit, least=0.0, most=1e15, metavar="PRICE", samples=(example,))
    def read(value: Any, flag: str) -> float:
        """Read a quantity with its unit."""
        if units.bare_number(value) is not None:
            raise ValueRangeError(f"{flag} is {value}, which has no unit: write it as {example}")
        number = units.parse(value, unit, flag)
        if not 0 <= number <= 1e15:
            raise ValueRangeError(f"{flag} is {value}, must be from 0 to 1e15")
        return number

    return read


@kind("float", "str", unit="s", least=LEAST, most=LONGEST, metavar="DAYS", samples=("30",))
def days(value: Any, flag: str) -> float:
    """Read a time; a bare number is days."""
    number = units.bare_number(value)
    return duration(value if number is None else f"{number} days", flag)


@kind("float", "str", unit="USD", least=0.0, most=1e15, metavar="USD", samples=("2M",))
def money(value: Any, flag: str) -> float:
    """Read US dollars: a number, ``2M``, ``USD 2M``, ``2,000,000``."""
    spelled = str(value).upper().replace("USD", "").replace("$", "")
    number = units.parse_count(_THOUSANDS.sub("", spelled).strip(), flag)
    if not 0 < number <= 1e15:
        raise ValueRangeError(f"{flag} is {value}, must be more than 0 and at most 1e15 USD")
    return number


@kind("float", "str", unit="1", least=0.0, most=1e15, samples=("100k",))
def amount(value: Any, flag: str) -> float:
    """Read a count above zero that need not be whole, such as 1.2M."""
    number = units.parse_count(value, flag)
    if not 0 < number <= 1e15:
        raise ValueRangeError(f"{flag} is {value}, must be more than 0 and at most 1e15")
    return number
