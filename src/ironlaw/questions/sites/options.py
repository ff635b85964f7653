"""Options of ``ironlaw sites``, and readers of their values."""

from __future__ import annotations

from typing import Any

from ironlaw import units
from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import ROUNDING, Option, at_least_one, one_of, positive, whole
from ironlaw.question.readers import list_of

GRADIENT_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}  # of one gradient on the wire
PLAN = (  # options of an estimate that set the plan inside a site
    "node", "fabric", "framework", "precision", "micro_batch_size", "tp", "pp", "vpp", "cp", "ep", "dp_replicate", "dp_shard", "zero",
    "recompute", "overlap", "optimizer", "space", "margin", "gpus_per_domain",
)  # fmt: skip


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


def window(value: Any, flag: str) -> float:
    """Read a number of steps from 0 to a million, not always whole."""
    number = units.parse(value, "1", flag)
    if not 0 <= number <= 1e6:
        raise ValueRangeError(f"{flag} is {value}, must be from 0 to 1e6 steps")
    return number


OPTIONS: dict[str, Option] = {
    "model": ESTIMATE["model"],
    "sites": Option(read_places, "comma list of catalogue names and LAT,LON pairs in degrees; or a count of unknown places", "SITES"),
    "on": ESTIMATE["on"],
    "gpus": Option(list_of(whole), "total accelerators, split evenly; or a comma list, one count per site"),
    "tokens": ESTIMATE["tokens"].replace(help="tokens of the whole run, such as 15T, or per parameter: 20x"),
    "global_batch_size": ESTIMATE["global_batch_size"],
    "global_batch_tokens": ESTIMATE["global_batch_tokens"],
    "seq_len": ESTIMATE["seq_len"],
    "wan_bandwidth": Option(list_of(positive("B/s")), "bandwidth of a site to the others, one direction; or a comma list", "RATE"),
    "shared_bandwidth": Option(positive("B/s"), "bandwidth of a network that all sites share in equal parts", "RATE"),
    "exchange": Option(one_of(("ring", "tree", "pipe")), "ring, tree, or pipe (one link for all sites) (default: ring)", "NAME"),
    "gradients": Option(one_of(tuple(GRADIENT_BYTES)), "format sent: bf16, fp32, fp16, fp8, int8, int4 (default: bf16)", "TYPE"),
    "every": Option(whole, "steps between exchanges: 1 is data parallel, more is DiLoCo (default: 1)", "STEPS"),
    "fragments": Option(whole, "pieces that are exchanged at different times: streaming DiLoCo (default: 1)", "N"),
    "beside": Option(window, "steps of computation that an exchange overlaps (default: 0)", "STEPS"),
    "latency": Option(positive("s"), "one-way latency between neighbours, such as 45ms (default: a fibre along the longest link)", "TIME"),
    "route_factor": Option(at_least_one, "length of a fibre over the great-circle distance (default: the catalogue's)", "X"),
    "mfu": Option(positive("1"), "simplified: every step at this MFU with 6 N FLOP per token, no estimate", "X"),
    "site_power": Option(list_of(positive("W")), "power of a site, such as 20MW; or a comma list (default: the record's)", "POWER"),
    "price": ESTIMATE["price"],
    "pue": ESTIMATE["pue"],
    "grid": Option(ESTIMATE["grid"].read, "grid of sites given without a name: region, or g/kWh (default: world)", "GRID"),
    "rounding": ROUNDING,
    "model_of": Option(one_of(("ten-sites",)), "print a published study: ten-sites; takes no other option", "NAME"),
    **{name: ESTIMATE[name] for name in PLAN},
}  # fmt: skip
EXAMPLES = """\
  ironlaw sites llama-3-70b --sites jean-zay,el-capitan --on h100-sxm --gpus 2048 --wan-bandwidth 10GB/s --tokens 1.4T
  ironlaw sites llama-3-70b --sites lumi,46.02,8.96 --on h100-sxm --gpus 2048 --wan-bandwidth 1GB/s --tokens 1T --every 50 --gradients int8
  ironlaw sites --model-of ten-sites
"""
