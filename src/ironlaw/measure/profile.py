"""Analyse one trace: its window, steps, idle time, kernels and collectives."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import QuestionError
from ironlaw.measure.communication.classify import Classified, Unclassified, classify
from ironlaw.measure.communication.collectives import Collective, Link, by_size, collectives, link_of
from ironlaw.measure.events import KERNEL, DeviceEvents, Trace
from ironlaw.measure.idle import Idle, explain_idle
from ironlaw.measure.intervals import Instants, union
from ironlaw.measure.kernels.devices import Device, device_named
from ironlaw.measure.kernels.names import KernelNames, shipped_names
from ironlaw.measure.kernels.operators import Linked, link
from ironlaw.measure.kernels.table import KernelGroup, kernel_table
from ironlaw.measure.kernels.utilisation import Utilisation, mfu_of
from ironlaw.measure.window import (
    Policy,
    Step,
    Window,
    assign_steps,
    choose_events,
    classify_events,
    find_step_marks,
    split_window,
    split_windows,
)

if TYPE_CHECKING:
    from ironlaw.catalog.records import Accelerator

EARLY = 0.01  # of the linked events may begin before their launch by chance; more of them means that the clocks differ


@dataclass(frozen=True)
class Profile:
    """The analysis of one trace; ``events`` has the counted events, ``rows`` their rows in the trace."""

    trace: Trace
    policy: Policy
    device: Device
    rows: NDArray[np.int64]
    events: DeviceEvents
    communicates: NDArray[np.bool_]  # over events
    classified: Classified
    window: Window
    steps: tuple[Step, ...]
    idle: Idle
    linked: Linked | None  # operators of all events of the trace; None where no kernel computes
    kernels: tuple[KernelGroup, ...]
    collectives: tuple[Collective, ...]
    utilisation: Utilisation
    folders: tuple[str, ...]
    names: KernelNames  # rules that give a kernel its class
    left_out: dict[str, int]  # number of events the policy dropped, by reason
    warnings: tuple[Caution, ...]

    @property
    def counted(self) -> NDArray[np.bool_]:
        """A mask over all events of the trace: whether the policy counts them."""
        mask = np.zeros(len(self.trace.events), bool)
        mask[self.rows] = True
        return mask

    @property
    def accelerator(self) -> Accelerator | None:
        """The catalogue record of the device, None if the device is unknown."""
        return self.device.record

    @property
    def link(self) -> Link | None:
        """The link between accelerators of a node, None if the device or its link is unknown."""
        return None if self.accelerator is None else link_of(self.accelerator.name, self.folders)

    @property
    def event_classes(self) -> NDArray[np.int64]:
        """The class of each event: compute, communication or copy."""
        return classify_events(self.events, self.communicates)

    @property
    def serial_share(self) -> float:
        """Time in which any kernel computes over the summed time of kernels; below 1 where streams overlap."""
        return min(1.0, self.window.compute / max(sum(k.total_ns for k in self.kernels), 1))

    def ran(self, chosen: NDArray[np.bool_]) -> Instants:
        """When any of the chosen of ``events`` ran."""
        return union(self.events.start[chosen], self.events.end[chosen])

    @property
    def span_with_gaps(self) -> int:
        """[ns] the time of all steps with the gap after each one. The window has no gap after its last step: the mean gap is added."""
        return span_with_gaps(self.window, self.steps, self.events)

    def data(self) -> dict[str, Any]:
        """The entry of this trace under ``files`` of the JSON."""
        return {
            "path": self.trace.path,
            "device": self.trace.device_name or None,
            "accelerator": self.accelerator.name if self.accelerator else None,
            "rank": self.trace.rank,
            "world_size": self.trace.world_size,
            "reader": self.trace.reader,
            "software": _read_versions(self.trace),
            "policy": {"unlinked": self.policy.unlinked, "last_step": self.policy.last_step},
            "left_out": self.left_out,
            "events": len(self.events),
            "window": window_data(self.window),
            "steps": [step_data(step, self.window.start) for step in self.steps],
            "collectives": [c.data() for c in by_size(self.collectives, self.link)],
            "kernels": [k.data() for k in self.kernels],
            "idle": {f"{reason.replace(' ', '_')}_us": ns / 1000 for reason, ns in self.idle.by_reason.items()},
            "utilisation": self.utilisation.data(),
            "communication": {
                "reasons": {self.trace.text(i): why for i, why in self.classified.reason.items()},
                "unclassified": [_suspect_data(u) for u in self.classified.unclassified if u.suspect],
            },
        }


VERSIONS = (
    "cuda_runtime_version",
    "cuda_driver_version",
    "cupti_version",
    "hip_runtime_version",
    "hip_driver_version",
    "roctracer_version",
)


def _read_versions(trace: Trace) -> dict[str, Any]:
    """Software versions in the file, which two runs must share to be compared."""
    info = trace.properties.get("distributedInfo")
    nccl = info.get("nccl_version") if isinstance(info, dict) else None
    versions = {name: trace.properties[name] for name in VERSIONS if isinstance(trace.properties.get(name), (int, float, str))}
    return versions | ({"nccl_version": nccl} if isinstance(nccl, str) else {})


def _suspect_data(kernel: Unclassified) -> dict[str, Any]:
    return {"name": kernel.name, "count": kernel.count, "us": kernel.time / 1000, "suspect": kernel.suspect}


def window_data(window: Window) -> dict[str, float]:
    """A window in microseconds, exact to the nanosecond, as plain data."""
    return {
        "wall_us": window.wall / 1000,
        "compute_us": window.compute / 1000,
        "comm_us": window.comm / 1000,
        "exposed_comm_us": window.exposed_comm / 1000,
        "memcpy_us": window.copy / 1000,
        "exposed_memcpy_us": window.exposed_copy / 1000,
        "busy_us": window.busy / 1000,
        "idle_us": window.idle / 1000,
    }


def step_data(step: Step, start: int) -> dict[str, Any]:
    """A step as plain data: ``wall_us`` on the host, ``device_us`` on the device and the parts that sum to it; starts after ``start``."""
    device = {} if step.device is None else window_data(step.device)
    wall = device.pop("wall_us", None)
    starts = {
        "start_us": (step.host_start - start) / 1000,
        "device_start_us": None if step.device is None else (step.device.start - start) / 1000,
    }
    return {"number": step.number, "wall_us": (step.host_end - step.host_start) / 1000, "device_us": wall, **starts, **device}


def profile(
    trace: Trace,
    policy: Policy,
    on: str | None = None,
    patterns: tuple[Path, ...] = (),
    folders: tuple[str, ...] = (),
    names: KernelNames | None = None,
) -> Profile:
    """Analyse one trace under ``policy``; ``on`` names the accelerator where the file does not.

    ``patterns`` are files with more names of communication kernels, ``names`` the rules for other kernels (default: those shipped).
    """
    names = names or shipped_names()
    marks = find_step_marks(trace)
    step = assign_steps(trace, marks)
    keep = choose_events(trace, policy, step, len(marks) - 1)
    if not keep.any():
        raise QuestionError(_explain_no_events(trace, policy, len(marks)))
    classified = classify(trace, patterns)
    device = device_named(trace.device_name, trace.properties, on, folders)
    events, communicates = trace.events.rows(keep), classified.mask[keep]
    window = split_window(events, communicates)
    steps = _steps(marks, step[keep], events, communicates, policy)
    not_communication = keep & ~classified.mask
    linked = link(trace) if (not_communication & (trace.events.kind == KERNEL)).any() else None
    kernels = kernel_table(trace, not_communication, device.record, folders, names, linked)
    return Profile(
        trace=trace,
        policy=policy,
        device=device,
        rows=np.flatnonzero(keep),
        events=events,
        communicates=communicates,
        classified=classified,
        window=window,
        steps=steps,
        idle=explain_idle(trace, events),
        linked=linked,
        kernels=tuple(kernels),
        collectives=tuple(collectives(trace, classified, keep)),
        utilisation=mfu_of(kernels, span_with_gaps(window, steps, events), sum(s.device is not None for s in steps), device.record),
        folders=folders,
        names=names,
        left_out=_count_left_out(trace, policy, keep),
        warnings=(
            *trace.warnings,
            *([device.warning] if device.warning else []),
            *_policy_warnings(trace, policy),
            *_warn_of_marks(trace, marks),
        ),
    )


def span_with_gaps(window: Window, steps: tuple[Step, ...], events: DeviceEvents) -> int:
    """The window plus the mean gap between steps, for the missing gap after the last one; with one step, the window alone."""
    starts = np.array([s.device.start for s in steps if s.device is not None][1:], np.int64)
    if not len(starts):
        return window.wall
    busy_until = np.maximum.accumulate(events.end)[np.searchsorted(events.start, starts, "left") - 1]
    return window.wall + int(np.maximum(starts - busy_until, 0).mean())


def _steps(
    marks: list[tuple[int, int, int]], step: NDArray[np.int64], events: DeviceEvents, communicates: NDArray[np.bool_], policy: Policy
) -> tuple[Step, ...]:
    """The steps. On the device, a step lasts from its first event to the first event of the next, so that steps sum to the window."""
    # events are sorted, so the first of a step is the earliest
    index, first_row = np.unique(np.where(step >= 0, step, len(marks)), return_index=True)
    index, starts = index[index < len(marks)], events.start[first_row[index < len(marks)]]
    edges = np.append(np.sort(starts), events.end.max())
    until = np.maximum(starts, edges[np.minimum(np.searchsorted(edges, starts, "right"), len(starts))])
    windows = dict(zip(index.tolist(), split_windows(events, communicates, starts, until), strict=True))
    steps = []
    for at, (number, start, end) in enumerate(marks):
        if policy.last_step == "drop" and at == len(marks) - 1:
            continue
        steps.append(Step(number, start, end, windows.get(at)))
    return tuple(steps)


def _count_left_out(trace: Trace, policy: Policy, keep: NDArray[np.bool_]) -> dict[str, int]:
    """The number of events that each choice of the policy drops."""
    unlinked = trace.events.launch < 0
    counts = {}
    if policy.unlinked == "drop":
        counts["unlinked"] = int((unlinked & ~keep).sum())
    if policy.last_step == "drop":
        counts["last_step"] = int((~unlinked & ~keep).sum())
    return counts


def _policy_warnings(trace: Trace, policy: Policy) -> list[Caution]:
    """Warn where events without a launch are counted."""
    count = int((trace.events.launch < 0).sum())
    if policy.unlinked == "keep" and count:
        events = len(trace.events)
        return [caution("unlinked-events", count=count, events=events, share=count / events)]
    return []


def _warn_of_marks(trace: Trace, marks: list[tuple[int, int, int]]) -> list[Caution]:
    """Warn about the steps, the clocks and the rank in a trace."""
    warnings = []
    if not marks:
        warnings.append(caution("no-step-marks"))
    numbers = sorted(m[0] for m in marks)
    if len(set(numbers)) < len(numbers):
        repeated = next(a for a, b in pairwise(numbers) if a == b)
        warnings.append(caution("step-marked-twice", step=repeated))
    missing = numbers[-1] - numbers[0] + 1 - len(set(numbers)) if numbers else 0
    if missing:
        warnings.append(caution("steps-missing", count=missing, first=numbers[0], last=numbers[-1]))
    overlap = next(((a, b) for a, b in pairwise(marks) if b[1] < a[2]), None)
    if overlap:
        warnings.append(caution("steps-overlap", first=overlap[0][0], second=overlap[1][0]))
    return [*warnings, *_warn_of_clock(trace), *_warn_of_rank(trace)]


def _warn_of_clock(trace: Trace) -> list[Caution]:
    """Warn of device events that begin before they were launched."""
    rows = np.flatnonzero(trace.events.launch >= 0)
    ahead = trace.launches.start[trace.events.launch[rows]] - trace.events.start[rows] if len(rows) else rows
    early = int((ahead > 0).sum())
    if early <= EARLY * len(rows):
        return []
    most = int(ahead.max()) / 1000
    return [caution("clocks-differ", count=early, microseconds=most)]


def _warn_of_rank(trace: Trace) -> list[Caution]:
    if trace.rank is None or trace.world_size is None or 0 <= trace.rank < trace.world_size:
        return []
    return [caution("impossible-rank", rank=trace.rank, world_size=trace.world_size)]


def _explain_no_events(trace: Trace, policy: Policy, steps: int) -> str:
    """Why no event is left to analyse, and what to change."""
    if not len(trace.events):
        return f"{trace.path}: no kernel, copy or memset; profile with ProfilerActivity.CUDA (or that of your device) switched on"
    if policy.last_step == "drop" and steps == 1:
        return f"{trace.path}: --last-step drop leaves nothing of a trace with one step; use --last-step keep"
    return f"{trace.path}: --unlinked {policy.unlinked} --last-step {policy.last_step} leave none of the {len(trace.events)} device events"
