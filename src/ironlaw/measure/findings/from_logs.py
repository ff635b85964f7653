"""Findings of logs, under the names the findings of traces have."""

from __future__ import annotations

from collections.abc import Iterator

from ironlaw.measure.findings.finding import Facts, Finding

NAMES = {  # what the reading of a log calls it -> its name everywhere
    "loader-waited-for": "starved-loader",
    "warm-up": "warm-up-steps",
    "drift": "drift",  # a schedule that grows the sequence looks like clocks that fall: a log cannot name throttling
    "mfu-above-100": "mfu-above-100-percent",
    "claimed-mfu-above-100": "mfu-above-100-percent",
    "sparse-peak-as-dense": "sparse-peak-used-as-dense",
    "wrong-peak": "wrong-peak",
    "claim-disagrees": "claim-disagrees",
}


def of_logs(name: str, facts: Facts) -> Iterator[Finding]:
    """What the readings of logs found under this name."""
    for log in facts.logs:
        for found in log.findings:
            if NAMES[found.code] == name:
                yield Finding(name, found.text, found.advice, None, log.path, found.evidence)
