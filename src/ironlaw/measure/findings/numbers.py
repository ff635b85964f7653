"""Findings about numbers that cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from ironlaw.measure.findings.finding import Facts, Finding


def mfu_above_100_percent(name: str, facts: Facts) -> Iterator[Finding]:
    """More than the peak: a wrong count, a wrong peak or a wrong device."""
    for p in facts.profiles:
        for what, value in (("MFU", p.utilisation.mfu), ("HFU", p.utilisation.hfu)):
            if value is None or value <= 1:
                continue
            yield Finding(
                name,
                f"{what} is {value:.0%}: no device exceeds its peak",
                "check the device, the precision, dense against sparse peak, causal or windowed attention, and per GPU against all GPUs",
                None,
                p.trace.path,
                {what: value},
            )
