"""The answer in a terminal, set like a page: the verdict, the breakdown with bars, then what was assumed.

Plain text with optional ANSI emphasis; nothing is imported for it. ``width`` and ``colour`` come from the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ironlaw import units
from ironlaw.estimate.as_data import assumptions, bound_data, host_data, memory_data, number, plan_data, run_data, stage_name, warnings
from ironlaw.estimate.bands import step_band
from ironlaw.estimate.step import MICRO_BATCHES
from ironlaw.terms import Term

if TYPE_CHECKING:
    from ironlaw.estimate.answer import Estimate, Group

_BAR = 24
_REMEDY = {
    "compute": "fewer recomputed FLOPs, lower precision, more accelerators",
    "hbm": "fused kernels, flash attention, compile",
    "network": "less tp, larger micro-batches, more overlap, faster links",
    "pipeline": "more micro-batches, more chunks (vpp), fewer stages",
    "dispatch": "larger micro-batches, CUDA graphs, compile",
    "data": "more loader workers, faster storage",
}
_WORTH_A_WORD = 0.1  # of the step: below it, no loss beside the bound is named
_OBVIOUS = {"cp": 1, "etp": 1, "count_embedding": False}  # defaults that say nothing


class Ink:
    """ANSI emphasis, or none."""

    def __init__(self, colour: bool) -> None:
        self.colour = colour

    def bold(self, text: str) -> str:
        """Bold."""
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text

    def dim(self, text: str) -> str:
        """Faint."""
        return f"\x1b[2m{text}\x1b[0m" if self.colour else text

    def good(self, text: str) -> str:
        """Green."""
        return f"\x1b[32m{text}\x1b[0m" if self.colour else text

    def bad(self, text: str) -> str:
        """Red."""
        return f"\x1b[31m{text}\x1b[0m" if self.colour else text


def page(estimate: Estimate, index: int = 0, colour: bool = False) -> str:
    """One row as a page of text."""
    group, at = estimate.place_of(index)
    ink = Ink(colour)
    parts = [verdict(group, at, ink), breakdown(group, at, ink), memory_lines(group, at, ink), run_lines(group, at), notes(group, at, ink)]
    return "\n\n".join("\n".join(lines) for lines in (list(p) for p in parts) if lines)


def verdict(group: Group, at: int, ink: Ink) -> Iterator[str]:
    """What a reader came for, in three lines."""
    plan, held, bound = plan_data(group, at), memory_data(group, at), bound_data(group, at, False)
    model = group.job.model
    title = f"{model.title} on {plan['gpus']:,} x {group.cluster.accelerator.title}"
    yield ink.bold(title)
    fits = ink.good("fits") if held["fits"] else ink.bad("does not fit")
    yield (
        f"{fits}: {units.show(held['device'], 'B')} of {units.show(held['capacity_bytes'], 'B')} per GPU"
        f" ({held['device'] / held['capacity_bytes']:.0%}){_of_stage(held['stage'])}{_in_the_host(held.get('host'))}"
    )
    step, t = number(group.step.tree.value, at), group.throughput
    if step is None:
        yield ink.bold(f"no estimate: {_nan_term(group.step.tree, at)}")
        return
    yield (
        f"step {ink.bold(units.show(step, 's'))}{_band(group, at, step)}, {number(t['tokens_per_second'].value, at):,.0f} tokens/s"
        f" ({number(t['tokens_per_second_per_gpu'].value, at):,.0f} per GPU),"
        f" MFU {ink.bold(format(number(t['mfu'].value, at), '.1%'))}"
        f" (causal {number(t['mfu_causal'].value, at):.1%}, HFU {number(t['hfu'].value, at):.1%})"
        f" of {units.show(group.cluster.accelerator.peak[group.job.precision.peak].value, 'FLOP/s', 4)} dense {group.job.precision.peak}"
    )
    yield bound_line(bound["by"], bound["shares"], held["fits"], ink)
    yield plan_line(plan)


def _in_the_host(host: dict[str, Any] | None) -> str:
    """That the host is too small for what is offloaded, where it is."""
    if host is None or host["capacity_bytes"] is None or host["held"] <= host["capacity_bytes"]:
        return ""
    return f"; offloaded {units.show(host['held'], 'B')} of {units.show(host['capacity_bytes'], 'B')} in the host for each GPU"


def _band(group: Group, at: int, step: float) -> str:
    """The error band in brackets, where published runs support one."""
    band = step_band(group, at, step)
    return "" if band is None else f" ({band[2]:.0%} band {units.show(band[0], 's')} to {units.show(band[1], 's')})"


def bound_line(by: str, shares: dict[str, float], fits: bool, ink: Ink) -> str:
    """What binds, and what to try: first that it fits, then the largest loss beside computation."""
    line = f"bound by {ink.bold(by)} ({shares[by]:.0%} of the step)"
    if not fits:
        return f"{line}; first make it fit: higher zero, more tp or pp, recompute, a smaller micro-batch, more GPUs"
    losses = {k: v for k, v in shares.items() if k != "compute" and v}
    worst = max(losses, key=lambda k: losses[k], default="compute")
    if by != "compute" or losses.get(worst, 0.0) < _WORTH_A_WORD:
        return f"{line}; what helps: {_REMEDY[by]}"
    return f"{line}; most is lost to {worst} ({losses[worst]:.0%}); what helps there: {_REMEDY[worst]}"


def _of_stage(stage: str) -> str:
    return "" if stage == "only" else f", fullest on the {stage} stage"


def _nan_term(tree: Term, at: int) -> str:
    return next((t.name for t in reversed(list(tree.walk())) if number(t.value, at) is None), tree.name)


def uneven(plan: dict[str, Any]) -> str:
    """Layers by stage where they were chosen one by one, equal neighbours together."""
    runs = [(n, len(list(same))) for n, same in groupby(plan.get("layers_per_stage", ()))]
    return f" layers {' '.join(f'{n}' if times == 1 else f'{times}x{n}' for n, times in runs)}" if runs else ""


def plan_line(plan: dict[str, Any]) -> str:
    """The plan in the short names everyone says."""
    axes = " ".join(f"{n} {plan[n]}" for n in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard") if plan[n] != 1)
    axes += uneven(plan)
    return (
        f"plan: {axes or 'one rank'}; zero {plan['zero']}, micro-batch {plan['micro_batch_size']} x {short(plan['num_microbatches'])},"
        f" batch {plan['global_batch_size']} x {plan['seq_len']} tokens, recompute {plan['recompute']},"
        f" {plan['precision']}, {plan['optimizer']}, {plan['framework']}"
    )


def breakdown(group: Group, at: int, ink: Ink) -> Iterator[str]:
    """The step's parts with bars, deepest two levels of the micro-batches opened."""
    step = number(group.step.tree.value, at)
    if step is None:
        return
    stage = stage_name(group, at)
    yield ink.bold("Where the step goes") + ("" if stage == "only" else ink.dim(f"  (pace set by the {stage} stage)"))
    for name, seconds, depth in _lines(group.step.tree, at, number(group.step.tree.times, at)):
        share = seconds / step
        if share >= 0.0005 or depth == 0:
            label = "  " * depth + name
            yield f"  {label:<44}{units.show(seconds, 's'):>10} {share:>6.1%} {bar(share)}"
    shares = bound_data(group, at, False)["shares"]
    yield ink.dim("  by roof: " + ", ".join(f"{k} {v:.1%}" for k, v in shares.items() if v and v >= 0.0005))


def _lines(tree: Term, at: int, factor: float = 1.0, depth: int = 0) -> Iterator[tuple[str, float, int]]:
    """(name, seconds of the whole step, depth) of the nodes a reader wants to see."""
    for part in tree.parts:
        seconds = number(part.value, at) * factor
        yield part.name, seconds, depth
        if part.key == MICRO_BATCHES or (depth in (1, 2) and len(part.parts) > 3):
            yield from _lines(part, at, factor * number(part.times, at), depth + 1)


def bar(share: float) -> str:
    """A share of 1 as a bar of blocks, in eighths; of number signs where standard output cannot write blocks."""
    eighths = round(share * _BAR * 8)
    full, rest = divmod(max(eighths, 0), 8)
    if not _writes_blocks(getattr(sys.stdout, "encoding", None) or "utf-8"):
        return "#" * min(round(max(share, 0.0) * _BAR), _BAR)
    return "█" * min(full, _BAR) + (" ▏▎▍▌▋▊▉"[rest].strip() if full < _BAR else "")


@cache
def _writes_blocks(encoding: str) -> bool:
    try:
        "█▏▎▍▌▋▊▉".encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def memory_lines(group: Group, at: int, ink: Ink) -> Iterator[str]:
    """The fullest stage's memory with bars against the capacity."""
    held = group.memory
    capacity = held.capacity
    yield ink.bold("What the fullest GPU holds")
    tree = held.tree
    allocated = tree["allocated"]
    rows = (
        [(t.name, t) for t in allocated.parts] + [(t.name, t) for t in tree["reserved"].parts[1:]] + [(t.name, t) for t in tree.parts[1:]]
    )
    for name, term in rows:
        size = number(term.value, at)
        if size and size / capacity >= 0.0005:
            yield f"  {name:<44}{units.show(size, 'B'):>10} {size / capacity:>6.1%} {bar(size / capacity)}"
    yield (
        f"  allocated {units.show(number(held.allocated, at), 'B')}, reserved {units.show(number(held.reserved, at), 'B')},"
        f" device {units.show(number(held.device, at), 'B')} of {units.show(capacity, 'B')}"
    )
    if host := host_data(group, at):
        room = host["capacity_bytes"]
        of = "" if room is None else f" of {units.show(room, 'B')}"
        yield f"  the host holds {units.show(host['held'], 'B')}{of} for each GPU"


def run_lines(group: Group, at: int) -> Iterator[str]:
    """The whole run."""
    run = run_data(group, at)
    if run is None or run["days"] is None:
        return
    missing = [name for name in ("days", "gpu_hours", "kwh", "kg_co2e") if run[name] is None]
    if missing:
        yield f"no estimate of the run: {', '.join(missing)}"
        return
    yield f"The run of {units.show(run['tokens'], 'token')} (no failures)"
    yield (
        f"  {run['days']:,.1f} days, {run['gpu_hours']:,.0f} GPU-hours, {dollars(run['usd'])},"
        f" {run['kwh'] / 1000:,.0f} MWh, {run['kg_co2e'] / 1000:,.0f} t CO2e"
    )
    yield f"  with failures: {_with_failures(run)}"


def dollars(usd: float | None) -> str:
    """Money, or that no price is known."""
    return "no price known" if usd is None else f"{usd:,.0f} USD"


def _with_failures(run: dict[str, Any]) -> str:
    """What failures make of the run; a warning says why where they leave it no time to work."""
    if run["days_with_failures"] is None:
        return "never finishes in any useful time"
    count = run["failures"]
    return (
        f"{run['days_with_failures']:,.1f} days, {dollars(run['usd_with_failures'])};"
        f" a failure every {units.show(run['mttf_hours'] * 3600.0, 's')} ({format(count, ',.0f' if count >= 10.0 else '.2g')} in all),"
        f" checkpoint every {units.show(run['checkpoint_interval_seconds'], 's')}, goodput {run['goodput']:.1%}"
    )


def notes(group: Group, at: int, ink: Ink) -> Iterator[str]:
    """Warnings, then what was taken on the user's behalf."""
    for warning in warnings(group, at):
        yield ink.bad("warning: ") + warning
    items = assumptions(group, at)
    for origin, title in (("given", "Given"), ("chosen", "Chosen"), ("default", "Assumed"), ("override", "Overridden")):
        taken = [f"{i['name']} {short(i['value'])}" for i in items if i["origin"] == origin and not _is_obvious(i)]
        if taken:
            yield ink.bold(title) + ink.dim(": ") + ", ".join(taken)


def _is_obvious(item: dict[str, Any]) -> bool:
    """True for what a reader need not be told: the question's own words in the title, and axes that are off."""
    if item["origin"] == "given":
        return item["name"] in ("model", "on", "gpus")
    return item["name"] in _OBVIOUS and item["value"] == _OBVIOUS[item["name"]]


def short(value: Any) -> str:
    """A value as a person writes it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def row_line(estimate: Estimate, index: int) -> str:
    """One row of many on one line: model, accelerators, step, MFU, memory, bound."""
    group, at = estimate.place_of(index)
    plan, held = plan_data(group, at), memory_data(group, at)
    if not number(group.legal, at):
        return f"{plan['model']:<22} {plan['gpus']:>6} x {plan['accelerator']:<16} no: {'; '.join(warnings(group, at))}"
    bound = bound_data(group, at, False)
    return (
        f"{plan['model']:<22} {plan['gpus']:>6} x {plan['accelerator']:<16} tp {plan['tp']} pp {plan['pp']} dp {plan['dp']}"
        f"  step {units.show(number(group.step.tree.value, at), 's'):>8}  MFU {number(group.throughput['mfu'].value, at):6.1%}"
        f"  {units.show(held['device'], 'B'):>8} {'fits' if held['fits'] else 'does not fit'}  bound by {bound['by']}"
    )
