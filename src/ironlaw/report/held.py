"""The lines of an estimate whose plan is held: what was changed, and how far that moves step, memory, MFU and money."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ironlaw import units
from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.estimate.answer.reproduce import as_option
from ironlaw.estimate.what_if.change_options import Held, chosen_plan, differences, is_reproduced, likely_faster, plan_changes, results
from ironlaw.report.columns import set_rows
from ironlaw.report.terminal import Ink, short


def held_lines(held: Held, ink: Ink) -> Iterator[str]:
    """The changes, then a row for the answer, for its plan held, and for the plan chosen anew."""
    name = held.saved.name
    yield ink.bold(f"The plan of {name}, with {_changes_words(held.changed) or 'nothing changed'}")
    if held.followed:
        yield f"  follows from it: {_changes_words(held.followed)}"
    yield from _batch_lines(held)
    before = results(held.before)
    rows = [(_row_name(name, held.before), before, None), (_row_name("plan held", held.after), results(held.after), before)]
    other = plan_changes(held)
    if held.anew is not None and other:
        rows.append((_row_name("plan chosen anew", held.anew), results(held.anew), before))
    yield from _table(rows, ink)
    if other:
        yield f"  the tool would choose another plan{_gain_words(held)}: {_changes_words(other)}"
    elif held.anew is None:
        yield f"  no plan can be chosen anew: {held.why_not}"
    else:
        yield "  the tool would choose this plan"
    if not is_reproduced(held):
        then, now = held.saved.data.get("calibration_version"), held.before.row(0)["calibration_version"]
        hint = f"; its constants were {short(then)}: --calibration-version" if then != now else "; ironlaw diff says what changed"
        yield f"{ink.bad('warning: ')}{name} has other numbers than this version and catalogue give; differences are against today's{hint}"


def _gain_words(held: Held) -> str:
    """The step that the plan chosen anew saves, by what was measured of predicted differences, and the prediction itself."""
    likely = likely_faster(held)
    before, after = (results(estimate)["seconds"] if estimate is not None else None for estimate in (held.after, held.anew))
    if likely is None or not before or not after:
        return ""
    word = "less" if likely >= 0.0 else "more"
    return f", likely {abs(likely):.1%} {word} time a step ({abs(1.0 - after / before):.1%} predicted)"


def _batch_lines(held: Held) -> Iterator[str]:
    """What another sequence length does to the tokens of a step; no line where it stays."""
    plans = [chosen_plan(estimate) for estimate in (held.before, held.after)]
    (old, length), (new, new_length) = ((plan["global_batch_size"], plan["seq_len"]) for plan in plans)
    if length != new_length:
        times = new * new_length / (old * length)
        share = "as many" if times == 1.0 else f"{times:.1%} of the"
        yield f"  a step: {old:,.0f} sequences of {length:,.0f} tokens, then {new:,.0f} of {new_length:,.0f}: {share} tokens"


def _row_name(name: str, estimate: Estimate) -> str:
    return name if estimate.fits[0] else f"{name} (does not fit)"


def _changes_words(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """Options with their values before and after: ``recompute none to full``."""
    return ", ".join(f"{name} {_value_words(name, before)} to {_value_words(name, after)}" for name, (before, after) in changes.items())


def _value_words(name: str, value: Any) -> str:
    if value is None:
        return "default"
    text = short(as_option(name, value) if not isinstance(value, str) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def _table(rows: Sequence[tuple[str, Mapping[str, float | None], Mapping[str, float | None] | None]], ink: Ink) -> Iterator[str]:
    """Values with their differences from the first row; money where there is a run."""
    columns = {"seconds": "step", "bytes": "memory", "mfu": "MFU", "tokens_per_second": "tokens/s", "usd": "money"}
    if all(values["usd"] is None for _, values, _ in rows):
        del columns["usd"]
    cells = [["", *(title for title in columns.values())]]
    for name, values, base in rows:
        moved = differences(base, values) if base else dict.fromkeys(values)
        cells.append([name, *(_cell(key, values[key], moved[key]) for key in columns)])
    head, *lines = set_rows(cells, indent="  ")
    yield from (ink.dim(head), *lines)


def _cell(key: str, value: float | None, difference: float | None) -> str:
    """A value, and in brackets its difference."""
    if value is None:
        return "-"
    shown = _show_result(key, value)
    return f"{shown} ({'+' if difference >= 0 else ''}{_show_result(key, difference)})" if difference is not None else shown


def _show_result(key: str, value: float) -> str:
    """A result with its unit: an MFU, a rate, money, a time or a size."""
    if key == "mfu":
        return f"{value:.1%}"
    if key in ("usd", "tokens_per_second"):
        return f"{value:,.0f}{' USD' if key == 'usd' else ''}"
    return units.show(value, "s" if key == "seconds" else "B", 4)
