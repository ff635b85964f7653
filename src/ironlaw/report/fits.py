"""The page of ``ironlaw validate --fits``: what was predicted of every row of a table of runs that fitted or failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ironlaw.report.columns import percent
from ironlaw.report.terminal import markdown_table
from ironlaw.validate.fits import Fit, lines, summary
from ironlaw.validate.odds import LIKELY, UNLIKELY, WRONG, odds

HEADER = ("group", "ran", "refused", "out of memory", "passed", "other failures", "passed", "peaks", "median", "p90", "bias")


def text(rows: Sequence[Fit]) -> str:
    """Totals, a table of the groups, and a line for every row."""
    found = summary(rows)
    passed = f"{found['failed_without_text_passed']} of {found['failed_without_text']}"
    return "\n".join(
        [
            f"{found['scored']} of {found['rows']} rows predicted",
            f"ran: {found['ran']}, of which {found['ran_refused']} were said not to fit (less than 50 % likely)",
            f"failed: {found['failed']}; of those whose text says out of memory, {found['failed_passed']} were said to fit; of failures"
            f" without such a text, {passed}",
            f"stated peaks: {found['peaks']}, median error {percent(found['median_abs_error'])}, p90 {percent(found['p90_abs_error'])},"
            f" bias {percent(found['bias'], signed=True)}",
            "",
            *markdown_table(HEADER, [_group(name, counts) for name, counts in found["groups"].items()]),
            "",
            *_odds(odds(rows)),
            "",
            *(_line(line) for line in lines(rows)),
        ]
    )


def _odds(found: dict[str, Any]) -> list[str]:
    """What ran of what was said to fit with a probability, every stack by the spread of the others."""
    each = {**found["stacks"], "all": found}
    return [
        "Said to fit, by the spread of other stacks: what ran of how many",
        "",
        *markdown_table(
            ("stack", *(f"{b['from']:.0%} to {b['to']:.0%}" for b in found["bins"]), "likely failed", "unlikely ran", "holds"),
            [_odds_of(stack, counts) for stack, counts in each.items()],
        ),
        "",
        f"Odds hold where at most {WRONG:.0%} of what is at least {LIKELY:.0%} likely failed, and at most {WRONG:.0%} of what is less than"
        f" {UNLIKELY:.0%} likely ran.",
    ]


def _odds_of(stack: str, c: dict[str, Any]) -> tuple[str, ...]:
    """The counts of one stack as cells."""
    ran = (f"{b['ran']} of {b['rows']}" if b["rows"] else "-" for b in c["bins"])
    return (stack, *ran, f"{c['likely_failed']} of {c['likely']}", f"{c['unlikely_ran']} of {c['unlikely']}", "yes" if c["holds"] else "no")


def _group(name: str, c: dict[str, Any]) -> tuple[str, ...]:
    """The counts and errors of one framework as cells."""
    silent = c["failed_without_text"]
    numbers = (c["ran"], c["ran_refused"], c["failed"] - silent, c["failed_passed"], silent, c["failed_without_text_passed"], c["peaks"])
    errors = (percent(c["median_abs_error"]), percent(c["p90_abs_error"]), percent(c["bias"], signed=True))
    return (name, *(str(n) for n in numbers), *errors)


def _line(line: dict[str, Any]) -> str:
    """One row as a line."""
    if line["probability"] is None:
        return f"line {line['line']} ({line['name']}): not predicted: {line['reason']}"
    measured = f", measured {line['measured_gib']:.1f} GiB {line['kind']}" if line["measured_gib"] is not None else ""
    error = f" ({percent(line['error'], signed=True)})" if line["error"] is not None else ""
    said = f"line {line['line']} ({line['name']}): {line['verdict']} ({line['probability']:.0%} likely)"
    return f"{said}; predicted {line['predicted_gib']:.1f} GiB{measured}{error}"
