"""What makes a job fit that does not: other ways to run it, each with the memory that it needs and the time that it costs.

They change what is asked, so nothing takes them by itself: an answer that does not fit names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ironlaw import units
from ironlaw.errors import IronlawError
from ironlaw.estimate.again import as_option
from ironlaw.estimate.answer import Estimate, answer_asked, evaluate_plans
from ironlaw.estimate.as_data import number
from ironlaw.question.asked import Asked, Row
from ironlaw.question.defaults import CERTAINTY, OFFLOADS

# what is moved to the host, the least first: the first that fits is offered
OFFLOADED = (frozenset({"optimizer"}), frozenset({"activations"}), frozenset({"optimizer", "activations"}))
SLOWER = 1.05  # times as long: a smaller difference has no words


class Offer(NamedTuple):
    """Options that a question does not give, with which it has a plan that fits."""

    options: Mapping[str, Any]
    device: float  # bytes of the fullest accelerator
    likely: float | None  # to fit
    seconds: float  # of a step
    times: float  # as long as the same plan would take in device memory


def offers(estimate: Estimate, index: int = 0) -> tuple[Offer, ...]:
    """What makes a row fit that does not: the least that is moved to the host with which a plan of the row fits.

    A row that gives ``offload``, or that fits, has no offer.
    """
    group, at = estimate.place_of(index)
    if estimate.asked is None or not group.legal[at] or group.memory.fits[at]:
        return ()
    row = estimate.asked.rows[index if estimate.taken is None else estimate.taken[index]]
    if row.offload is not None:
        return ()
    found = (_offer(estimate.asked, row._replace(offload=names), {"offload": names}, estimate.folders) for names in OFFLOADED)
    return tuple(_first(found))


def _first(found: Iterator[Offer | None]) -> Iterator[Offer]:
    """The first of some offers that there is."""
    for offer in found:
        if offer is not None:
            yield offer
            return


def _offer(asked: Asked, row: Row, options: Mapping[str, Any], folders: tuple[str, ...]) -> Offer | None:
    """The offer of a row with other options; None where it has no plan that fits, or cannot be asked."""
    try:
        given = {**asked.given, **{name: as_option(name, value) for name, value in options.items()}}
        estimate = answer_asked(asked.replace(rows=(row,), given=given), folders)
    except IronlawError:
        return None
    return offer_of(estimate, options) if estimate.fits[0] else None


def offer_of(estimate: Estimate, options: Mapping[str, Any], index: int = 0) -> Offer:
    """The offer of a row that fits with some options."""
    group, at = estimate.place_of(index)
    moved = {f"offload_{name}": np.zeros(group.plan.rows) for name in OFFLOADS}
    in_device = evaluate_plans(group.replace(plan=group.plan.replace(**moved)), [at], estimate.folders)
    seconds, whole = number(group.step.tree.value, at) or np.nan, number(in_device.step.tree.value) or np.nan
    likely = None if group.likely is None else number(group.likely.value, at)
    return Offer(options, float(number(group.memory.device, at)), likely, seconds, seconds / whole)


def describe_offer(offer: Offer) -> str:
    """An offer in words.

    >>> describe_offer(Offer({"offload": frozenset({"optimizer"})}, 67 * 2.0**30, 0.97, 3.2, 3.2))
    'with --offload optimizer it fits at 67 GiB and takes 3.2 x as long'
    """
    options = " ".join(f"--{name.replace('_', '-')} {_word(name, value)}" for name, value in offer.options.items())
    times = f" and takes {offer.times:.1f} x as long" if offer.times >= SLOWER else ""
    likely = "" if offer.likely is None or offer.likely >= CERTAINTY else f" ({offer.likely:.0%} likely)"
    return f"with {options} it fits at {units.show(offer.device, 'B')}{likely}{times}"


def _word(name: str, value: Any) -> str:
    text = as_option(name, value)
    return ",".join(text) if isinstance(text, list) else str(text)


def describe_offers(found: Sequence[Offer]) -> str:
    """Offers in words behind a refusal; nothing where there are none."""
    return "".join(f"; {describe_offer(offer)}" for offer in found)


def offers_data(found: Sequence[Offer]) -> list[dict[str, Any]]:
    """Offers as plain data."""
    return [
        {
            "options": {name: as_option(name, value) for name, value in offer.options.items()},
            "device": offer.device,
            "fits_probability": offer.likely,
            "step_seconds": offer.seconds,
            "times_as_long": offer.times,
        }
        for offer in found
    ]
