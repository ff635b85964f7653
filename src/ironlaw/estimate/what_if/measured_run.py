"""A measured throughput against the estimate of its plan: its MFU by every convention, the loss, and what could explain it.

A throughput or a log has the time of whole steps only. So each part of the predicted step is asked the same question: how long would it
have to be, if it alone made the difference? Beside that stands the step of the same plan with a usual fault of that part, by estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ironlaw import units
from ironlaw.errors import IronlawError, QuestionError
from ironlaw.estimate.answer.as_data import waterfall_data
from ironlaw.estimate.answer.bands import step_band
from ironlaw.estimate.answer.estimate import estimate
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.answer.reproduce import asked_data
from ironlaw.estimate.answer.term_data import number
from ironlaw.estimate.step.rates import utilisation
from ironlaw.estimate.step.waterfall import LOSSES
from ironlaw.frozen import Frozen
from ironlaw.law import flops
from ironlaw.terms import Term, leaf, scalar

MFU_NAMES = {  # by convention, as every answer names it
    "mfu_6n": "MFU (6N)", "mfu": "MFU (attention as computed)", "mfu_full_square": "MFU (full square)",
}  # fmt: skip
CHECKS = {  # by part of a step: what to look at first where it is too long
    "kernels": "precision of the products, clocks and power limit, sizes of the products",
    "memory_bound": "flash attention, fused norms and losses, torch.compile, casts and copies",
    "recomputation": "the recompute options that the run really had",
    "network": "overlap options, links (nccl-tests), placement of groups, a late rank",
    "pipeline": "micro-batches of a step, chunks per stage (vpp), layers of each stage",
    "host": "synchronisation in the loop, small kernels, CUDA graphs, CPU frequency",
    "data": "time in the data loader, workers, storage (ironlaw data)",
    "rest": "layers of each stage, padding",
}
NOTICEABLE = 1.001  # times the predicted step: a fault that makes less is none of this plan


def mfu_words(
    shares: Mapping[str, Any],
    digits: int = 1,
    of: str = "",
    more: Sequence[str] = (),
    by_6n: bool = True,
    strong: Callable[[str], str] = str,
) -> str:
    """The MFU with its convention, and beside it the other conventions by name; ``of``: before the names of the keys of MFU_NAMES.

    >>> mfu_words({"mfu": 0.5021, "mfu_full_square": 0.5383, "mfu_6n": 0.473})
    'MFU 50.2% (attention as computed; full square 53.8%, 6N 47.3%)'
    """
    beside = {"full square": shares[f"{of}mfu_full_square"], **({"6N": shares[f"{of}mfu_6n"]} if by_6n else {})}
    others = [f"{name} {units.share(share, digits)}" for name, share in beside.items() if share is not None]
    return f"MFU {strong(units.share(shares[f'{of}mfu'], digits))} (attention as computed; {', '.join([*others, *more])})"


Plan = Mapping[str, Any]  # options that reproduce a row


class Fault(Frozen):
    """A usual fault of a part of the step: the options that the same plan has with it, None where it cannot have it."""

    part: str
    name: str
    change: Callable[[Plan], dict[str, Any] | None]


FAULTS = (
    Fault("kernels", "products in tf32", lambda plan: {"precision": "tf32"} if plan["precision"] in ("bf16", "fp16") else None),
    Fault("kernels", "products in fp32", lambda plan: {"precision": "fp32"} if plan["precision"] in ("bf16", "fp16", "tf32") else None),
    Fault("memory_bound", "no flash attention", lambda plan: {"flash_attention": False} if plan["flash_attention"] else None),
    Fault("recomputation", "every layer recomputed", lambda plan: {"recompute": "full"} if plan["recompute"] != "full" else None),
    Fault("network", "nothing overlaps", lambda plan: {"overlap": "none"} if plan["gpus"] > 1 else None),
    Fault("pipeline", "no interleaving", lambda plan: {"vpp": 1} if plan["vpp"] > 1 else None),
)


class Suspect(Frozen):
    """A part of the predicted step that could explain the difference. Times are seconds of a step."""

    part: str  # a key of LOSSES
    takes: float
    would_take: float  # if it alone made the difference
    fault: str  # "" where the plan has no usual fault of this part
    with_fault: float | None  # the whole step

    def data(self, measured: float, predicted: float) -> dict[str, Any]:
        """The suspect as plain data; ``explains`` is the share of the difference that the fault makes."""
        gap = measured - predicted
        explained = None if self.with_fault is None or gap <= 0.0 else (self.with_fault - predicted) / gap
        return {
            "part": LOSSES[self.part], "takes": self.takes, "would_take": self.would_take,
            "times": self.would_take / self.takes if self.takes > 0.0 else None,
            "fault": self.fault, "with_fault": self.with_fault, "explains": explained, "check": CHECKS[self.part],
        }  # fmt: skip


class MeasuredRun(Frozen):
    """A measured step of a plan, in seconds, against its estimate."""

    step: float
    predicted: float
    tokens: float  # of a step
    band: tuple[float, float, float] | None  # of the predicted step
    utilisation: Mapping[str, Term]  # measured, by the keys of MFU_NAMES
    predicted_utilisation: Mapping[str, float]
    of_peak: float  # share of the peak that the FLOPs of the plan take in the measured time; above 1 it is impossible
    suspects: tuple[Suspect, ...]  # most likely first

    @property
    def rate(self) -> float:
        """Measured tokens per second."""
        return self.tokens / self.step

    @property
    def predicted_rate(self) -> float:
        """Predicted tokens per second."""
        return self.tokens / self.predicted

    @property
    def rate_band(self) -> tuple[float, float] | None:
        """Predicted tokens per second, from and to."""
        return None if self.band is None else (self.tokens / self.band[1], self.tokens / self.band[0])

    @property
    def inside(self) -> bool | None:
        """Whether the measured step is inside the band; None without a band."""
        return None if self.band is None else self.band[0] <= self.step <= self.band[1]

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "measured_seconds": self.step, "predicted_seconds": self.predicted, "tokens_per_step": self.tokens,
            "tokens_per_second": self.rate, "predicted_tokens_per_second": self.predicted_rate,
            "predicted_band_tokens_per_second": None if self.rate_band is None else list(self.rate_band),
            "inside_band": self.inside, "of_predicted": self.predicted / self.step, "of_peak": self.of_peak,
            **{name: scalar(term) for name, term in self.utilisation.items()},
            **{f"predicted_{name}": value for name, value in self.predicted_utilisation.items()},
            "suspects": [suspect.data(self.step, self.predicted) for suspect in self.suspects],
        }  # fmt: skip


def flop_per_token(group: Group, at: int, parameters: float | None = None) -> dict[str, float]:
    """Model FLOPs of a token by convention, the keys of MFU_NAMES; ``parameters``: a given count, instead of the model's."""
    counted = {name: scalar(group.throughput[name].inputs["flop_per_token"], at) for name in MFU_NAMES}
    more = 0.0 if parameters is None else float(flops.per_token(parameters)) - counted["mfu_6n"]
    return {name: flop + more for name, flop in counted.items()}


def utilisations(group: Group, at: int, seconds: float, parameters: float | None = None, of: str = "measured") -> dict[str, Term]:
    """The MFU of a step time [s] by convention, the keys of MFU_NAMES."""
    plan, peak = group.plan, group.cluster.accelerator.peak[group.job.precision.peak]
    rate = scalar(plan.global_batch_size, at) * scalar(plan.seq_len, at) / seconds
    inputs = {"tokens_per_second": rate, "gpus": scalar(plan.gpus, at), "peak": peak}
    per_token = flop_per_token(group, at, parameters)
    return {key: leaf(f"{of} {name}", utilisation, "1", flop_per_token=per_token[key], **inputs) for key, name in MFU_NAMES.items()}


def measured_run(
    group: Group, at: int, *, step: float | None = None, tokens_per_second: float | None = None, parameters: float | None = None
) -> MeasuredRun:
    """A measured step [s] or throughput [token/s] of the plan of a row, against its estimate; ``parameters``: as for flop_per_token."""
    plan, predicted = group.plan, scalar(group.step.tree, at)
    tokens = scalar(plan.global_batch_size, at) * scalar(plan.seq_len, at)
    if step is None:
        assert tokens_per_second is not None
        step = tokens / tokens_per_second
    if not math.isfinite(predicted):
        raise QuestionError("the plan has no predicted step to compare with (ironlaw estimate says why)")
    peak = group.cluster.accelerator.peak[group.job.precision.peak]
    mfu = scalar(group.throughput["mfu"], at)
    band = step_band(group, at, predicted)
    return MeasuredRun(
        step=step,
        predicted=predicted,
        tokens=tokens,
        band=None if band is None else (band[0], band[1], band[2]),
        utilisation=utilisations(group, at, step, parameters),
        predicted_utilisation={key: scalar(term) for key, term in utilisations(group, at, predicted, parameters).items()},
        of_peak=max(mfu * predicted, _seconds_at_peak(group.step.tree, at, peak.value)) / step,
        suspects=rank_suspects(group, at, step, predicted),
    )


def _seconds_at_peak(node: Term, at: int, peak: float) -> float:
    """Seconds of all products of the slowest stage at the peak."""
    if node.parts:
        return sum(_seconds_at_peak(part, at, peak) for part in node.parts) * scalar(node.times, at)
    return scalar(node.inputs.get("flop", 0.0), at) * scalar(node.times, at) / peak


def rank_suspects(group: Group, at: int, step: float, predicted: float) -> tuple[Suspect, ...]:
    """Parts of the predicted step that could explain a longer measured one, the most likely first; none where it is not longer.

    First come the parts whose usual fault makes a step near the measured one; parts that no fault tells apart follow by how many times
    longer they would have to be.
    """
    gap = step - predicted
    if gap <= 0.0:
        return ()
    plan, seconds = _options(group, at), {name: share * predicted for name, share in waterfall_data(group, at).items()}
    faulty = _nearest_faults([(fault, _step_with(fault, plan, group)) for fault in FAULTS], step, predicted)
    suspects = []
    for part in CHECKS:
        if (part == "pipeline" and plan["pp"] == 1) or (part == "network" and plan["gpus"] == 1):
            continue
        name, slower = faulty.get(part, ("", None))
        takes = max(seconds[part], 0.0)
        suspects.append(Suspect(part=part, takes=takes, would_take=takes + gap, fault=name, with_fault=slower))
    return tuple(sorted(suspects, key=lambda suspect: _unlikeliness(suspect, step, predicted)))


def _nearest_faults(steps: Sequence[tuple[Fault, tuple[str, float] | None]], step: float, predicted: float) -> dict[str, tuple[str, float]]:
    """Of the faults of each part that make the step longer, the one whose step is nearest to the measured one."""
    faulty: dict[str, tuple[str, float]] = {}
    for fault, found in steps:
        if found is None or not found[1] > NOTICEABLE * predicted:
            continue
        known = faulty.get(fault.part)
        if known is None or abs(math.log(found[1] / step)) < abs(math.log(known[1] / step)):
            faulty[fault.part] = found
    return faulty


def _unlikeliness(suspect: Suspect, step: float, predicted: float) -> tuple[float, float]:
    """How far the step with the fault is from the measured one, in log; then how many times longer the part would have to be."""
    with_fault = max(suspect.with_fault or predicted, predicted)
    return round(abs(math.log(with_fault / step)), 2), suspect.would_take / suspect.takes if suspect.takes > 0.0 else math.inf


def _options(group: Group, at: int) -> dict[str, Any]:
    """The options that ask for exactly the plan of a row."""
    asked, job = asked_data(group, at), group.job
    fixed = {"precision": job.precision.name, "flash_attention": job.flash, "gpus": number(group.plan.gpus, at)}
    return {"vpp": 1, "pp": 1, "recompute": group.recompute[at], **asked["given"], **asked["plan"], **fixed}


def _step_with(fault: Fault, plan: Plan, group: Group) -> tuple[str, float] | None:
    """The name of a fault and the step of the plan with it [s]; None where the plan cannot have it.

    Overlap of experts excludes some faults; the plan has them without that overlap.
    """
    change = fault.change(plan)
    if change is None:
        return None
    given = {name: value for name, value in plan.items() if name not in ("global_batch_tokens", "tokens", "correction", "flash_attention")}
    given |= {} if plan["flash_attention"] else {"flash_attention": False}
    seconds = _estimate_step({**given, **change}, group.folders)
    if seconds is not None:
        return fault.name, seconds
    overlap = str(given.get("overlap", "")).split(",")
    if "ep" not in overlap or "overlap" in change:
        return None
    rest = ",".join(name for name in overlap if name != "ep") or "none"
    seconds = _estimate_step({**given, "overlap": rest, **change}, group.folders)
    return None if seconds is None else (f"{fault.name}, no overlap of experts", seconds)


def _estimate_step(options: dict[str, Any], folders: tuple[str, ...]) -> float | None:
    """The step of a plan [s]; None where the plan is not possible."""
    try:
        seconds = float(estimate(catalog=folders, **options).step_seconds[0])
    except IronlawError:  # such as a precision that the device lacks
        return None
    return seconds if math.isfinite(seconds) else None
