"""Findings in logs, under the names of the findings in traces."""

from __future__ import annotations

from collections.abc import Iterator

from ironlaw.measure.findings.finding import Facts, Finding

NAMES = {  # code of the remark in a log -> name of the finding
    "loader-waited-for": "starved-loader",
    "warm-up": "warm-up-steps",
    "drift": "drift",  # not throttling: in a log, longer sequences look like lower clocks
    "change": "step-time-changed",
    "lost-time": "lost-time",
    "straggler": "straggler-rank",
    "mfu-above-100": "mfu-above-100-percent",
    "claimed-mfu-above-100": "mfu-above-100-percent",
    "sparse-peak-as-dense": "sparse-peak-used-as-dense",
    "wrong-peak": "wrong-peak",
    "claim-disagrees": "claim-disagrees",
}


def of_logs(name: str, facts: Facts) -> Iterator[Finding]:
    """Yield the remarks of all logs under this name."""
    for log in facts.logs:
        for remark in log.findings:
            if NAMES[remark.code] == name:
                yield Finding(name, remark.text, remark.advice, None, log.path, remark.evidence)
