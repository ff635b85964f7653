"""How many accelerators: the first round count that meets a condition, the last one, and counts just below a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Meets = Callable[[float], bool]
HALVINGS = 6  # of the largest power of two that divides a count below a limit
NEAR_LIMIT = 0.7  # of the limit: smaller counts are not worth a search


def octaves(tried: Sequence[float]) -> list[int]:
    """Positions of ascending counts, each at least twice the one before; the first and the last are among them.

    >>> octaves([8.0, 16.0, 24.0, 32.0, 40.0])
    [0, 1, 3, 4]
    """
    steps: list[int] = []
    for at, count in enumerate(tried):
        if not steps or count >= 2.0 * tried[steps[-1]] or at == len(tried) - 1:
            steps.append(at)
    return steps


def first_count(tried: Sequence[float], meets: Meets) -> float | None:
    """The first of ascending counts that meets a condition; None where none does.

    One count of every octave is tried, then the counts of the octave before the first that meets it. Where no octave does, all are
    tried.

    >>> first_count([8.0, 16.0, 24.0, 32.0, 40.0], lambda count: count >= 20)
    24.0
    """
    before = -1
    for at in octaves(tried):
        if meets(tried[at]):
            return next((count for count in tried[before + 1 : at] if meets(count)), tried[at])
        before = at
    return next((count for count in tried if meets(count)), None)


def last_count(tried: Sequence[float], meets: Meets) -> float | None:
    """The last of ascending counts that meets a condition, which few and many accelerators may both break; None where none does.

    One count of every octave is tried, until two after a success break the condition; then the counts of the octave after the last
    that meets it.

    >>> last_count([8.0, 16.0, 24.0, 32.0, 40.0, 48.0, 56.0, 64.0], lambda count: 10 <= count <= 50)
    48.0
    """
    steps = octaves(tried)
    last, broken = None, 0
    for place, at in enumerate(steps):
        if meets(tried[at]):
            last, broken = place, 0
        elif last is not None:
            broken += 1
            if broken == 2:
                break
    if last is None:
        return None
    end = steps[last + 1] if last + 1 < len(steps) else len(tried)
    between = tried[steps[last] + 1 : end]
    return next((count for count in reversed(between) if meets(count)), tried[steps[last]])


def counts_below(limit: float, node: int, round_counts: Sequence[float]) -> list[float]:
    """Counts just below a limit, the largest first: whole numbers of 1, 2, 4, ... nodes, which plans divide better, and a round count.

    >>> counts_below(3_500, 8, [2048.0, 2560.0, 3072.0, 3584.0])
    [3496.0, 3488.0, 3456.0, 3328.0, 3072.0]
    """
    units = [float(node * 2**power) for power in range(HALVINGS + 1)]
    whole = {limit // unit * unit for unit in units} | {max((n for n in round_counts if n <= limit), default=0.0)}
    most = max(whole)
    return sorted((n for n in whole if n > 0 and n >= NEAR_LIMIT * most), reverse=True)
