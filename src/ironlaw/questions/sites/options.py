"""Options of ``ironlaw sites``, and readers of their values."""

from __future__ import annotations

from typing import Any

from ironlaw import units
from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.question.forms import Form, OneOf
from ironlaw.question.kinds import kind
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import ROUNDING, Option, group, taken_by
from ironlaw.question.readers import at_least_one, days, for_each, one_of, positive, share, text, whole
from ironlaw.question.words import tokens

GRADIENT_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}  # of one gradient on the wire
SPLITS = ("gpus", "even", "balanced")  # how the sites split the batch
PLACES = ("host", "device")  # where the outer state of DiLoCo is; the first is the default
SLOWEST = 1e5  # B/s; a rate below it that has no unit is taken for a unit forgotten
RECORDED = "place"  # the price of electricity that the catalogue has for a place


@kind("int", "str", "Sequence[Any]", gives="Any", metavar="SITES", samples=("jean-zay,lumi", "3"))
def read_places(value: Any, flag: str) -> tuple[str | tuple[float, float], ...] | int:
    """Read a comma list of site names and LAT,LON pairs, or a count of sites at unknown places."""
    items = list(value) if isinstance(value, (list, tuple)) else [i.strip() for i in str(value).split(",") if i.strip()]
    if len(items) == 1 and str(items[0]).isascii() and str(items[0]).isdecimal():
        return int(str(items[0])[:9])
    places: list[str | tuple[float, float]] = []
    while items:
        item = items.pop(0)
        if isinstance(item, (list, tuple)):
            pair = [units.bare_number(part) for part in item]
            if len(pair) != 2 or None in pair:
                raise QuestionError(f"{flag}: {item} is not a LAT,LON pair of degrees")
        elif (latitude := units.bare_number(item)) is None:
            places.append(str(item))
            continue
        else:
            pair = [latitude, units.bare_number(items.pop(0)) if items else None]
        north, east = pair
        assert north is not None
        if east is None:
            raise QuestionError(f"{flag}: {north:g} has no longitude; coordinates are LAT,LON pairs of degrees, such as 48.71,2.18")
        if not (-90.0 <= north <= 90.0 and -180.0 <= east <= 180.0):
            raise ValueRangeError(f"{flag}: {north:g},{east:g} is out of range: LAT is -90 to 90 degrees north, LON -180 to 180 east")
        places.append((north, east))
    return tuple(places)


@kind("float", "str", unit="1", least=0.0, most=1e6, metavar="STEPS", samples=("1",))
def window(value: Any, flag: str) -> float:
    """Read a number of steps from 0 to a million, not always whole."""
    number = units.parse(value, "1", flag)
    if not 0 <= number <= 1e6:
        raise ValueRangeError(f"{flag} is {value}, must be from 0 to 1e6 steps")
    return number


@kind("float", "str", unit="B/s", metavar="RATE", samples=("20GB/s",))
def line_rate(value: Any, flag: str) -> float:
    """Read the line rate of a link between sites [B/s]. A number without a unit is B/s, so a small one is a unit forgotten.

    >>> line_rate("100Gb/s", "--wan-bandwidth")
    12500000000.0
    """
    rate = positive("B/s")(value, flag)
    if units.bare_number(value) is not None and rate < SLOWEST:
        raise ValueRangeError(f"{flag} is {value} without a unit, which is {units.show(rate, 'B/s')}; give its unit, such as {value}Gb/s")
    return rate


@kind("float", "str", gives="Any", unit="USD/kWh", metavar="PRICE", samples=("0.1", RECORDED))
def electricity_price(value: Any, flag: str) -> Any:
    """Read a price of electricity: USD per kWh, a quantity with its unit, or ``place`` for the recorded one."""
    if str(value).strip().lower() == RECORDED:
        return RECORDED
    return _read_price(value, flag, "USD/J", "USD/kWh", 3.6e6)


@kind("float", "str", unit="USD/TB", metavar="PRICE", samples=("20",))
def traffic_price(value: Any, flag: str) -> float:
    """Read a price of traffic: USD per TB that leaves a site, or a quantity with its unit."""
    return _read_price(value, flag, "USD/B", "USD/TB", 1e12)


def _read_price(value: Any, flag: str, unit: str, usual: str, size: float) -> float:
    """Read a price of at least 0; a bare number is in the usual unit."""
    bare = units.bare_number(value)
    number = units.parse(value, unit, flag) if bare is None else bare / size
    if not 0.0 <= number <= 1e6:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be from 0 to a finite number of {usual}")
    return number


@kind("str", "Sequence[str]", gives="tuple[int, ...]", metavar="HOURS", samples=("22-6",))
def hours_of_day(value: Any, flag: str) -> tuple[int, ...]:
    """Read hours of the day such as ``22-6`` or ``0-4,20-24``: the hours in which something runs, in order.

    >>> hours_of_day("22-2", "--hours")
    (0, 1, 22, 23)
    """
    hours: set[int] = set()
    for item in value if isinstance(value, (list, tuple)) else str(value).split(","):
        start, dash, end = (part.strip() for part in str(item).partition("-"))
        if not (dash and start.isascii() and end.isascii() and start.isdecimal() and end.isdecimal()):
            raise QuestionError(f"{flag}: {units.shorten(item)} is not a range of hours such as 22-6")
        first, last = int(start[:3]), int(end[:3])
        if first > 24 or last > 24 or first % 24 == last % 24:
            raise ValueRangeError(f"{flag}: {item} must go from one hour to another, each from 0 to 24")
        hours |= {hour % 24 for hour in range(first, last if last > first else last + 24)}
    return tuple(sorted(hours))


@kind("str", "Sequence[float]", gives="Any", metavar="FILE")
def carbon_profile(value: Any, flag: str) -> Any:
    """Read the hourly carbon intensity of a site: a file, a grid of the catalogue, or 24 numbers of g/kWh."""
    if isinstance(value, (list, tuple)):
        numbers = [units.bare_number(item) for item in value]
        if len(numbers) != 24 or None in numbers:
            raise ValueRangeError(f"{flag} has {len(numbers)} values, must be 24 numbers of g/kWh, the first from 0:00 UTC on")
        return tuple(numbers)
    return text(value, flag)


OWN: dict[str, Option] = {
    "model": ESTIMATE["model"],
    **group("Sites (EACH: one value for all, a comma list in order, or NAME=VALUE,...)", {
        "sites": Option(
            read_places, "comma list of cities, cloud regions (us-east-1, westeurope), supercomputers, LAT,LON in degrees; or a number",
            "SITES", records="sites",
        ),
        "on": Option(for_each(text), "accelerator, by catalogue name; one for each site where they differ", "EACH", records="accelerators"),
        "gpus": Option(for_each(whole), "total accelerators, split evenly; or one count for each site", "EACH"),
        "batch_split": Option(
            one_of(SPLITS),
            "shares of the batch: gpus (in proportion), even, balanced (finish together)",
            "HOW", decided="gpus; balanced for unlike accelerators",
        ),
        "power_limit": Option(for_each(positive("W")), "power of a site, such as 20MW", "EACH", decided="the record's"),
    }),
    **group("Prices and carbon of each site", {
        "price": Option(
            for_each(ESTIMATE["price"].read), "USD per accelerator hour, or provider/term", "EACH", decided="newest on-demand price"
        ),
        "electricity_price": Option(
            for_each(electricity_price), "USD/kWh, paid on top of --price; place: the recorded price", "EACH", decided="in --price"
        ),
        "pue": Option(for_each(at_least_one), "power usage effectiveness", "EACH", decided="the catalogue's"),
        "grid": Option(for_each(ESTIMATE["grid"].read), "grid: a region, or g/kWh", "EACH", records="grids",
            decided="the place's; without a place, world"),
    }),
    **group("Network between the sites", {
        "wan_bandwidth": Option(for_each(line_rate), "line rate from a site to the others, one direction, such as 100Gb/s", "EACH"),
        "shared_bandwidth": Option(line_rate, "line rate of a network that all sites share in equal parts", "RATE"),
        "wan_efficiency": Option(share, "share of the line rate that data takes", decided="94 %, what headers leave"),
        "wan_price": Option(for_each(traffic_price), "USD per TB that leaves a site", "EACH", decided="not counted"),
        "latency": Option(positive("s"), "one-way latency between neighbours, such as 45ms", "TIME",
            decided="a fibre along the longest link"),
        "route_factor": Option(at_least_one, "length of a fibre over the great-circle distance", "X", decided="the catalogue's",
            excludes={"latency": "the latency of a fibre follows from its length"}),
    }),
    **group("Exchange", {
        "exchange": Option(one_of(("ring", "tree", "pipe")), "ring, tree, or pipe (one link for all sites)", "NAME", decided="ring"),
        "gradients": Option(one_of(tuple(GRADIENT_BYTES)), "format sent: bf16, fp32, fp16, fp8, int8, int4", "TYPE", decided="bf16"),
        "inner_steps": Option(whole, "steps between exchanges: 1 is data parallel, more is DiLoCo", "STEPS", decided="1"),
        "outer_fragments": Option(whole, "pieces that are exchanged at different times: streaming DiLoCo", decided="1"),
        "overlap_steps": Option(window, "steps of computation that an exchange overlaps", "STEPS", decided="0"),
        "outer_state": Option(
            one_of(PLACES), "memory of DiLoCo's outer momentum and outer weights: host or device", "WHERE", decided="host"
        ),
    }),
    **group("Run", {
        "tokens": ESTIMATE["tokens"].replace(decided=""),
        "rounding": ROUNDING,
        "deadline": Option(days, "days that the run may take: the cheapest sites that meet it",
            excludes={"hours": "a deadline compares runs without pauses"}),
        "global_batch_size": ESTIMATE["global_batch_size"].replace(
            says="sequences per step of all sites", decided="about 4 Mi tokens each"
        ),
        "global_batch_tokens": ESTIMATE["global_batch_tokens"],
        "seq_len": ESTIMATE["seq_len"],
    }),
    **group("Hours of the day", {
        "hours": Option(hours_of_day, "run in these hours of every day only, in UTC, such as 22-6", "HOURS", decided="all"),
        "carbon_profile": Option(
            for_each(carbon_profile), "g/kWh by hour of the day in UTC: a CSV file of 24 values, or a grid with hourly values", "EACH"
        ),
        "restart_time": ESTIMATE["restart_time"].replace(
            says="with --hours: from the end of a pause to training again", decided="1000 s", needs=("hours", "carbon_profile")
        ),
    }),
    **group("Simplified", {
        "mfu": Option(positive("1"), "simplified: every step at this MFU with 6 N FLOP per token, no estimate", "X"),
        "parameters": Option(tokens, "simplified, with --mfu, instead of MODEL: parameters, such as 70B", "N",
            needs=("mfu",), excludes={"model": ""}),
    }),
}  # fmt: skip
PLAN = tuple(taken_by("sites", OWN))  # passed to the estimate of each site unchanged
OPTIONS: dict[str, Option] = {**OWN, **taken_by("sites", OWN)}
LINES = OneOf(
    ("wan_bandwidth", "shared_bandwidth"),
    "missing option --wan-bandwidth RATE (of each site) or --shared-bandwidth RATE (of all sites together)",
)
OF_PLAN = (*PLAN, "global_batch_size", "seq_len")  # options that set the step of an estimate
FORMS = (
    Form(
        "--mfu, which sets the step time",
        when=("mfu",),
        takes=(*(name for name in OPTIONS if name not in OF_PLAN), "node", "fabric", "precision"),
        needs=(OneOf(("model", "parameters"), "missing MODEL"), "sites", "on", "gpus", "tokens", LINES),
    ),
    Form("an estimate of each site", needs=("model", "sites", "on", "gpus", "tokens", LINES)),
)
EXAMPLES = """\
  ironlaw sites llama-3-70b --sites ashburn,dallas,lulea --on h100-sxm --gpus 3072 --wan-bandwidth 100Gb/s --tokens 1.4T --inner-steps 100
  ironlaw sites llama-3-70b --sites us-east-1,europe-west4 --on h100-sxm,b200-sxm --gpus 512,256 --wan-bandwidth 10GB/s --tokens 1T
  ironlaw sites llama-3-70b --sites oslo,46.0,9.0 --on h100-sxm --gpus 2048 --wan-bandwidth 1GB/s --tokens 1T --inner-steps 50
"""
