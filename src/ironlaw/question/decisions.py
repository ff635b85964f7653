"""What every option of an estimate is to a search for plans: an axis, a decision that it leaves as it is, or none of its decisions.

A page lists the decisions that are left as they are under *Not searched* (``estimate.planner.unsearched``). An option with neither
words nor a reason is an axis of the space that ships; in a space that does not vary it, it is listed by its name.
"""

from __future__ import annotations

from typing import NamedTuple


class Decision(NamedTuple):
    """One option as a decision of the search."""

    words: str = ""  # how a page names it
    where: str = ""  # the only plans that it changes, a row of ``estimate.planner.unsearched.PLACES``; "": all
    partly: bool = False  # listed although the space varies it: some of its values are not tried
    settled: str = ""  # why it is no decision of a search


AXIS = Decision()
MODEL = Decision(settled="says what is trained")
MACHINE = Decision(settled="says what it runs on")
DATA = Decision(settled="says what is read")
BATCH = Decision(settled="says how much a step learns from; where it is open, it is chosen before the plan")
RUN = Decision(settled="belongs to the run, and changes no step")
ANSWER = Decision(settled="says how the answer is made")
FASTEST = Decision(settled="no held plan of tests/search/test_not_searched.py gains 1 % by another value")
WASTE = Decision(settled="off is never worse: it only takes memory")
OF_STAGES = Decision(settled="the splits of last_stage_layers have it")


def part_of(option: str) -> Decision:
    """A detail of another option, which changes nothing without it."""
    return Decision(settled=f"a part of {option}")
