"""The lines of a page on uneven routing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ironlaw import units


def routing_lines(data: dict[str, Any] | None) -> Iterator[str]:
    """How uneven the ranks of experts are, how late the slowest steps are, and what a capacity factor drops."""
    if data is None:
        return
    if "busiest" in data and not data["capacity_factor"]:
        worst = max(data["busiest_by_layer"], default=1.0)
        yield (
            f"experts: load {data['load']}, {data['placement']}: the busiest rank has {data['busiest']:.3f} of the mean rows"
            f" (the loads of the worst layer alone: {worst:.3f})"
        )
        late = [units.show(data["step_seconds"][name], "s", 4) for name in ("p95", "p99")]
        if data["noise"] or data["spread"]:
            yield f"uneven from step to step: 95% of steps within {late[0]}, 99% within {late[1]}"
    if data["capacity_factor"]:
        dropless = data["dropless_seconds"]["p50"]
        yield (
            f"capacity factor {data['capacity_factor']:g}: {data['dropped_share']:.2%} of rows dropped;"
            f" without a capacity nothing is dropped and a step takes {units.show(dropless, 's', 4)}"
        )
