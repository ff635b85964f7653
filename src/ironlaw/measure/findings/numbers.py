"""Findings about numbers that cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from ironlaw.measure.findings.finding import Facts, Finding

TWICE = (1.9, 2.1)  # sparse peaks are twice the dense ones


def mfu_above_100_percent(name: str, facts: Facts) -> Iterator[Finding]:
    """More than the peak: a wrong count, a wrong peak or a wrong device."""
    for path, what, value in _utilisations(facts):
        if value > 1:
            yield Finding(
                name,
                f"{what} is {value:.0%}: no device exceeds its peak",
                "check the device, the precision, dense against sparse peak, causal or windowed attention, and per GPU against all GPUs",
                None,
                path,
                {what: value},
            )


def sparse_peak_used_as_dense(name: str, facts: Facts) -> Iterator[Finding]:
    """A reported MFU is half of what its own FLOP/s give: the peak was that of structured sparsity."""
    for log in facts.logs:
        if log.claimed_mfu and log.claimed_tflops and log.peak:
            used = log.claimed_tflops * 1e12 / log.claimed_mfu
            if TWICE[0] <= used / log.peak <= TWICE[1]:
                yield Finding(
                    name,
                    f"the log's {log.claimed_mfu:.1%} at {log.claimed_tflops:.4g} TFLOP/s divides by {used / 1e12:.4g} TFLOP/s,"
                    f" twice the dense peak of {log.peak / 1e12:.4g}",
                    "divide by the dense peak: the sparse one needs weights pruned 2:4",
                    None,
                    log.log.path,
                    {"divisor": used, "dense_peak": log.peak},
                )


def _utilisations(facts: Facts) -> Iterator[tuple[str, str, float]]:
    for log in facts.logs:
        for what, value in (("MFU", log.mfu), ("HFU", log.hfu), ("the MFU the log claims", log.claimed_mfu)):
            if value is not None:
                yield log.log.path, what, value
    for p in facts.profiles:
        if p.utilisation is not None:
            for what, value in (("MFU", p.utilisation.mfu), ("HFU", p.utilisation.hfu)):
                if value is not None:
                    yield p.trace.path, what, value
