"""The lines of a page about published layouts: what most teams run, and what it would take here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ironlaw.report.terminal import Ink

_AXES = ("tp", "pp", "vpp", "cp", "ep", "etp")


def layout_lines(layouts: Sequence[dict[str, Any]], ink: Ink) -> Iterator[str]:
    """The published layouts of a job, what each would take, and where it was published."""
    if layouts:
        yield ink.bold("Published layouts") + ink.dim("  (nearest in size, of this kind of model, device and stack)")
    for one in layouts:
        yield f"  {_axes(one)}: {_verdict(one)}"
        yield ink.dim(f"    {one['title']}, {_counts(one['gpus'])}: {one['source']['title']}")


def close_lines(layouts: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line for each published layout that is too close to the best plan to rank; where none is, for the nearest one."""
    for one in [one for one in layouts if one["tie"]] or layouts[:1]:
        yield f"published layout: {_axes(one)} ({one['title']}, {_counts(one['gpus'])}): {_verdict(one)}"


def _verdict(one: dict[str, Any]) -> str:
    """What a published layout would take, or why it does not run here."""
    if one["why_not"]:
        return f"not here: {one['why_not']}"
    if slower := one["slower_than_fastest"]:
        return f"taken: {slower:.1%} slower than the fastest as predicted, too close to rank"
    if one["same"]:
        return "the best plan has it"
    close = ", too close to rank" if one["tie"] else ""
    memory = "" if one["keeps_margin"] else "; it may run out of memory"
    if not one["longer"]:
        return f"takes no longer{close}{memory}"
    return f"takes likely {one['likely_longer']:.1%} longer ({one['longer']:.1%} predicted){close}{memory}"


def _axes(one: dict[str, Any]) -> str:
    """The axes of a layout that it uses, ZeRO, micro-batch, recomputation, and what its runs overlapped beside the stack's habits."""
    plan = one["plan"]
    degrees = " ".join(f"{name} {plan[name]}" for name in _AXES if plan.get(name, 1) != 1) or "data parallel alone"
    how = f", recompute {plan['recompute']}" if "recompute" in plan else ""
    overlap = f", overlap {','.join(one['overlap'])}" if one["overlap"] else ""
    return f"{degrees}, zero {plan['zero']}, micro-batch {plan['micro_batch_size']}{how}{overlap}"


def _counts(gpus: Sequence[int]) -> str:
    """The numbers of accelerators of published runs.

    >>> _counts([8, 16, 128]), _counts([64])
    ('8 to 128 accelerators', '64 accelerators')
    """
    return f"{gpus[0]:,} to {gpus[-1]:,} accelerators" if len(gpus) > 1 else f"{gpus[0]:,} accelerators"
