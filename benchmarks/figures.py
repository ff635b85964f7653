"""A measured figure beside its budget."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One figure of one subject; a figure without a budget is only printed."""

    subject: str
    name: str
    value: float
    unit: str
    budget: float | None = None

    @property
    def over(self) -> bool:
        """Whether the figure exceeds its budget."""
        return self.budget is not None and self.value > self.budget


def table(figures: list[Figure]) -> str:
    """One line a figure, its subject on a line above."""
    lines = []
    for at, one in enumerate(figures):
        if not at or figures[at - 1].subject != one.subject:
            lines.append(one.subject)
        budget = "" if one.budget is None else f"   budget {one.budget:g}{'   OVER BUDGET' if one.over else ''}"
        lines.append(f"  {one.name:<44}{one.value:>14,.2f} {one.unit:<10}{budget}".rstrip())
    return "\n".join(lines)


class WrongError(Exception):
    """A benchmark whose answer is wrong, whatever time it took."""
