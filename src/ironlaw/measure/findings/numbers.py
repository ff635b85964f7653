"""Findings about impossible numbers."""

from __future__ import annotations

from collections.abc import Iterator

from ironlaw.measure.findings.finding import Facts, Finding


def mfu_above_100_percent(name: str, facts: Facts) -> Iterator[Finding]:
    """MFU above the peak: a wrong FLOP count, a wrong peak or a wrong device."""
    for p in facts.profiles:
        used = p.utilisation
        if used.mfu is None or used.hfu is None or max(used.mfu, used.hfu) <= 1:
            continue
        yield Finding(
            name,
            f"MFU is {used.mfu:.0%} and HFU {used.hfu:.0%} of {used.denominator}, which is impossible",
            "name the device with --on; check the number format of the kernels and --time-unit",
            None,
            p.trace.path,
            {
                "mfu": used.mfu,
                "hfu": used.hfu,
                "model_flop_a_step": used.model_flop,
                "hardware_flop_a_step": used.hardware_flop,
                "steps": used.steps,
                "peak": used.peak,
                "denominator": used.denominator,
                "window_us": used.wall_ns / 1000,
            },
        )
