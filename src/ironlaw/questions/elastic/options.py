"""Options of ``ironlaw elastic``."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ironlaw import units
from ironlaw.errors import ValueRangeError
from ironlaw.question.forms import Form
from ironlaw.question.kinds import kind
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option
from ironlaw.question.readers import duration, list_of, one_of, positive, price

MOST_LOSSES = 12
MOST_SPARES = 1024.0
_COUNT_OF = re.compile(r"([0-9]{1,6})\s*(node|rack|domain)s?", re.ASCII)
_FRACTION = re.compile(r"([0-9]{1,4})/([0-9]{1,4})", re.ASCII)


class Loss(NamedTuple):
    """Accelerators that are lost: so many of a unit, or a share of all."""

    written: str
    number: float
    unit: str  # accelerator, node, rack or share

    @property
    def label(self) -> str:
        """The loss in words.

        >>> Loss("2nodes", 2.0, "node").label, Loss("33%", 0.33, "share").label
        ('2 nodes', '33%')
        """
        return self.written if self.unit == "share" else f"{self.number:g} {self.unit}{'s' * (self.number != 1.0)}"


def loss(value: Any, flag: str) -> Loss:
    """Read what is lost: 8 (accelerators), 2nodes, 1rack, 33% or 1/3.

    >>> loss("2nodes", "--lost"), loss("1/4", "--lost")
    (Loss(written='2nodes', number=2.0, unit='node'), Loss(written='1/4', number=0.25, unit='share'))
    """
    text = str(value).strip().lower()
    if match := _COUNT_OF.fullmatch(text):
        unit = "rack" if match[2] == "domain" else match[2]
        return Loss(text, units.parse_whole(match[1], flag), unit)
    fraction = _FRACTION.fullmatch(text)
    if fraction or text.endswith("%"):
        share = units.parse(text, "1", flag) if not fraction else int(fraction[1]) / max(int(fraction[2]), 1)
        if not 0.0 < share < 1.0:
            raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be a share above 0 and below all")
        return Loss(text, share, "share")
    if units.bare_number(text) is None:
        raise ValueRangeError(f"{flag} is {units.shorten(value)!r}, must be accelerators such as 8, or 2nodes, 1rack, 33%, 1/3")
    return Loss(text, units.parse_whole(value, flag), "accelerator")


@kind("str", "Sequence[Any]", gives="tuple[Loss, ...]", metavar="LIST", samples=("8,2nodes",))
def losses(value: Any, flag: str) -> tuple[Loss, ...]:
    """Read a comma list of losses, each once."""
    found = tuple(dict.fromkeys(list_of(loss)(value, flag)))
    if len(found) > MOST_LOSSES:
        raise ValueRangeError(f"{flag} lists {len(found)} losses, must be at most {MOST_LOSSES}")
    return found


def _spares(value: Any, flag: str) -> float:
    number = units.parse_whole(value, flag, least=0)
    if number > MOST_SPARES:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be at most {MOST_SPARES:g} nodes")
    return number


@kind("int", "str", "Sequence[Any]", gives="tuple[float, ...]", least=0, most=MOST_SPARES, metavar="LIST", samples=("0,3",))
def spares(value: Any, flag: str) -> tuple[float, ...]:
    """Read a comma list of numbers of spare nodes: sorted, each once."""
    return tuple(sorted(set(list_of(_spares)(value, flag))))


OPTIONS: dict[str, Option] = {
    **ESTIMATE,
    "lost": Option(losses, "accelerators, nodes, racks or shares to lose, comma separated", "8,2nodes,33%", decided="1node,1rack,1/3"),
    "batch": Option(
        one_of(("keep", "scale")),
        "keep the global batch, by more accumulation, or scale it with the accelerators",
        "keep|scale",
        decided="keep",
    ),
    "repair_time": Option(duration, "repair time of a failed node: also compares spare nodes, waiting and running on less"),
    "spares": Option(
        spares, "with --repair-time: spare nodes to compare", "LIST", decided="0,1,2,4 and the best number", needs=("repair_time",)
    ),
    "spot_price": Option(
        price, "price of interruptible machines: USD per accelerator hour, or provider/term", needs=("spot_mttf", "spot_rate")
    ),
    "spot_mttf": Option(duration, "mean time between interruptions of one spot accelerator, such as 20000h", needs=("spot_price",)),
    "spot_rate": Option(
        positive("1"),
        "interruptions of one spot node per hour, such as 0.01, instead of --spot-mttf",
        "X",
        needs=("spot_price",),
        excludes={"spot_mttf": ""},
    ),
    "preemption_notice": Option(
        duration, "warning before an interruption, such as 2min: long enough, it saves a checkpoint", decided="none", needs=("spot_price",)
    ),
    "replacement_time": Option(duration, "time to get another spot machine after an interruption", decided="none", needs=("spot_price",)),
}
FORMS = (Form("ironlaw elastic", needs=("model", "on", "gpus")),)
EXAMPLES = """\
  ironlaw elastic llama-3-8b --on h100-sxm --gpus 128 --global-batch-size 512
  ironlaw elastic llama-3-70b --on h100-sxm --gpus 512 --lost 8,2nodes,33% --batch scale
  ironlaw elastic llama-3-70b --on h100-sxm --gpus 512 --tokens 2T --repair-time 24h --spares 0,1,2,4
  ironlaw elastic llama-3-70b --on h100-sxm --gpus 512 --tokens 2T --spot-price 1.5 --spot-rate 0.002 --preemption-notice 2min
"""
