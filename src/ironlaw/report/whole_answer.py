"""An estimate as plain data with all that its page says: what would make it fit, what open settings cost, where it came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.estimate.what_if.change_options import Held, held_data
from ironlaw.estimate.what_if.left_open import Settings, settings_data, settings_left_open
from ironlaw.estimate.what_if.near_counts import nearest_counts
from ironlaw.estimate.what_if.offers import Offer, offers, offers_data
from ironlaw.report.estimate import headline
from ironlaw.report.explanation import explained_data, names_term


def looked_up(estimate: Estimate) -> dict[str, Any]:
    """The whole answer of one row, with what was looked for beside it."""
    near, offered = (nearest_counts(estimate), offers(estimate)) if not estimate.fits[0] else (None, ())
    data: dict[str, Any] = whole_answer(estimate, None, None, near, offered, settings_left_open(estimate))
    return data


def whole_answer(
    estimate: Estimate,
    term: str | None,
    held: Held | None,
    near: Sequence[float] | None,
    offered: Sequence[Offer],
    settings: Settings | None,
) -> Any:
    """The answer as plain data, or a list of them for several rows; with ``--explain TERM`` what was asked for alone."""
    data = explained_data(estimate, term) if estimate.rows == 1 and names_term(term) else estimate.to_dict(term is not None)
    if held:
        data["held"] = held_data(held)
    if near is not None and isinstance(data, dict):
        data["nearest_gpus"] = list(near)
        data["offers"] = offers_data(offered)
    if settings is not None and isinstance(data, dict):
        data["left_open"] = settings_data(settings)
    if isinstance(data, dict) and "headline" in data and (offered or settings is not None):
        data["headline"] = headline(*estimate.place_of(0), offered, settings, data.get("published_layouts", ()))
    return data
