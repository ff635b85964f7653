"""What a given plan loses by the settings that it leaves to its stack: overlap, layers of the end stages, schedule, dispatcher.

A search chooses these settings too, so a plan that was found is faster than its axes given by hand, which have what the stack does by
itself. The answer to a given plan names the settings that a search would choose for its axes, and their time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ironlaw import units
from ironlaw.errors import IronlawError
from ironlaw.estimate.answer.as_data import plan_data
from ironlaw.estimate.answer.bands import gain_slope, likely_ratio
from ironlaw.estimate.answer.estimate import Estimate, answer_asked
from ironlaw.estimate.answer.reproduce import as_option
from ironlaw.estimate.bind.question import bind_question, with_batch
from ironlaw.estimate.planner.choose import search_settings
from ironlaw.estimate.planner.rows import is_given, with_implied
from ironlaw.estimate.planner.space import ENDS
from ironlaw.question.asked import with_options

LEAST = 0.005  # of a step time: what settings gain below it has no line


class Settings(NamedTuple):
    """The fastest settings of a plan whose axes are given, as options, and how much longer the plan takes as it is given."""

    options: Mapping[str, Any]
    seconds: float  # of a step with them
    longer: float | None  # the given plan, as a fraction of that; None where the given plan breaks a rule without them
    likely_longer: float | None  # by what was measured of predicted differences


def settings_left_open(estimate: Estimate, index: int = 0) -> Settings | None:
    """The settings that a search would choose where a row gives a plan; None where the row leaves none open or they gain nothing.

    A plan that needs too much memory has none, and neither has a question with a space of its own, which says what is tried.
    """
    group, at = estimate.place_of(index)
    asked = estimate.asked
    if asked is None or asked.space is not None or (group.legal[at] and not group.memory.fits[at]):
        return None
    row = asked.rows[index if estimate.taken is None else estimate.taken[index]]
    plan = group.plan.take([at])
    row = row._replace(global_batch_size=float(plan.global_batch_size[0]), vpp=row.vpp or float(plan.vpp[0]))
    if not is_given(with_implied(row, asked.schedule), group.job.model):
        return None
    alone = asked.replace(rows=(row,))
    try:
        found = search_settings(with_batch(bind_question(alone, estimate.folders)))
        if found is None:
            return None
        seconds = found.seconds
        if asked.correction is not None:  # which a search does not read
            seconds = float(answer_asked(with_options(alone.replace(rows=(found.row,)), found.variant), estimate.folders).step_seconds[0])
    except IronlawError:
        return None
    had = row._replace(overlap=frozenset(plan_data(group, at)["overlap"]))
    changed = {name: getattr(found.row, name) for name in ("overlap", *ENDS) if getattr(found.row, name) != getattr(had, name)}
    options = changed | {name: value for name, value in found.variant.items() if value is not None and value != getattr(asked, name)}
    if not group.legal[at]:
        return Settings(options, seconds, None, None) if options else None
    ratio = float(estimate[index].step_seconds[0]) / seconds
    likely = float(likely_ratio(ratio, gain_slope(estimate.folders)))
    return Settings(options, seconds, ratio - 1.0, likely - 1.0) if ratio - 1.0 >= LEAST else None


def describe_settings(settings: Settings) -> str:
    """Settings in words.

    >>> describe_settings(Settings({"overlap": frozenset({"tp", "pp"})}, 5.0, 0.08, 0.06))
    'left open: with --overlap pp,tp a step takes 5 s; with the defaults of its stack it likely takes 6.0% longer (8.0% predicted)'
    >>> describe_settings(Settings({"last_stage_layers": 3.0}, 5.0, None, None))
    'with --last-stage-layers 3 this plan is legal, a step takes 5 s'
    """
    options = " ".join(f"--{name.replace('_', '-')} {as_option(name, value)}" for name, value in settings.options.items())
    takes = f"a step takes {units.show(settings.seconds, 's')}"
    if settings.longer is None:
        return f"with {options} this plan is legal, {takes}"
    longer = f"likely takes {settings.likely_longer:.1%} longer ({settings.longer:.1%} predicted)"
    return f"left open: with {options} {takes}; with the defaults of its stack it {longer}"


def settings_data(settings: Settings | None) -> dict[str, Any] | None:
    """Settings as plain data."""
    if settings is None:
        return None
    return {
        "options": {name: as_option(name, value) for name, value in settings.options.items()},
        "step_seconds": settings.seconds,
        "longer": settings.longer,
        "likely_longer": settings.likely_longer,
    }
