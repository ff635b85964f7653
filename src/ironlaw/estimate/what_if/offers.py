"""What makes a job fit that does not: other ways to run it, each with the memory that it needs and the time that it costs.

They change what is asked, so nothing takes them by itself: an answer that does not fit names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ironlaw import units
from ironlaw.errors import IronlawError
from ironlaw.estimate.answer.estimate import Estimate, answer_asked, evaluate_plans
from ironlaw.estimate.answer.reproduce import as_option
from ironlaw.estimate.answer.term_data import number
from ironlaw.estimate.bind.question import bind_question, with_batch
from ironlaw.estimate.planner.possible import may_have_plan
from ironlaw.job import Job
from ironlaw.question.asked import Asked, with_options
from ironlaw.question.defaults import CERTAINTY, OFFLOADS, WEIGHTS_DTYPES
from ironlaw.question.fields import Row
from ironlaw.question.read import read_options

# what is moved to the host, the least first: the first that fits is offered
OFFLOADED = tuple(
    frozenset(names)
    for names in (("optimizer",), ("activations",), ("optimizer", "activations"), ("parameters",), ("parameters", "activations"))
)
SLOWER = 1.05  # times as long: a smaller difference has no words


class Offer(NamedTuple):
    """Options that a question does not give, with which it has a plan that fits."""

    options: Mapping[str, Any]
    device: float  # bytes of the fullest accelerator
    likely: float | None  # to fit
    seconds: float  # of a step
    times: float  # as long as the same plan would take in device memory


def offers(estimate: Estimate, index: int = 0) -> tuple[Offer, ...]:
    """What makes a row fit that does not: weights loaded in fewer bytes, and the least that is moved to the host; each where it is enough.

    A row that fits has no offer, and nothing is offered in place of what the row gives.
    """
    group, at = estimate.place_of(index)
    if estimate.asked is None or not group.legal[at] or group.memory.fits[at]:
        return ()
    row = estimate.asked.rows[index if estimate.taken is None else estimate.taken[index]]
    narrower = (_offer(estimate, row, {"weights_dtype": name}) for name in narrower_weights(estimate.asked, group.job))
    moved = (_offer(estimate, row, {"offload": names}) for names in (OFFLOADED if row.offload is None else ()))
    return (*_first(narrower), *_first(moved))


def narrower_weights(asked: Asked, job: Job) -> Iterator[str]:
    """Types in which the framework can load weights that are narrower than those it has."""
    stored = job.framework.frozen_bytes if job.lora_rank else job.framework.parameter_bytes
    if "weights_dtype" in asked.given or stored is None or not job.precision.master_weights:
        return
    yield from (name for name, width in WEIGHTS_DTYPES.items() if name in job.framework.weights_dtypes and width < stored.value)


def _first(found: Iterator[Offer | None]) -> Iterator[Offer]:
    """The first of some offers that there is."""
    for offer in found:
        if offer is not None:
            yield offer
            return


def _offer(estimate: Estimate, row: Row, options: Mapping[str, Any]) -> Offer | None:
    """The offer of a row with more options; None where it has no plan that fits, or cannot be asked."""
    assert estimate.asked is not None
    asked = with_options(estimate.asked.replace(rows=(row,)), read_options(options))
    try:
        if not may_have_plan(with_batch(bind_question(asked, estimate.folders))):
            return None
        found = answer_asked(asked, estimate.folders)
    except IronlawError:
        return None
    return offer_of(found, options) if found.fits[0] else None


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
