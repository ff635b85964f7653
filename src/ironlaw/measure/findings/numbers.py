"""Findings about impossible numbers."""

from __future__ import annotations

from collections.abc import Iterator

from ironlaw.measure.findings.finding import Facts, Finding


def mfu_above_100_percent(name: str, facts: Facts) -> Iterator[Finding]:
    """MFU above the peak: a wrong FLOP count, a wrong peak or a wrong device."""
    for p in facts.profiles:
        rates = p.utilisation
        if rates.mfu is None or rates.hfu is None or max(rates.mfu, rates.hfu) <= 1:
            continue
        yield Finding(
            name,
            f"MFU is {rates.mfu:.0%} and HFU {rates.hfu:.0%} of {rates.denominator}, which is impossible",
            "name the device with --on; check the number format of the kernels and --time-unit",
            None,
            p.trace.path,
            {
                "mfu": rates.mfu,
                "hfu": rates.hfu,
                "model_flop_a_step": rates.model_flop,
                "hardware_flop_a_step": rates.hardware_flop,
                "steps": rates.steps,
                "peak": rates.peak,
                "denominator": rates.denominator,
                "window_us": rates.wall_ns / 1000,
            },
        )
