"""The step inside a site: from an estimate of each size of site, or at a constant MFU (simplified)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ironlaw.cluster import Cluster
from ironlaw.errors import PlanError, QuestionError, ValueRangeError
from ironlaw.estimate.answer import estimate
from ironlaw.estimate.bind.cluster import bind_precision, cluster_of
from ironlaw.estimate.bind.model import bind_model, plain_model
from ironlaw.estimate.bind.question import batch_taken, sequences_of
from ironlaw.estimate.layer.counts import active_parameters, total_parameters
from ironlaw.estimate.near_counts import why_impossible
from ironlaw.job import PRECISIONS
from ironlaw.law import flops, run
from ironlaw.question import defaults
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import need
from ironlaw.questions.sites.options import PLAN
from ironlaw.terms import Term, leaf, scalar


@dataclass(frozen=True, eq=False)
class SiteStep:
    """The step that sites compute between exchanges."""

    cluster: Cluster
    parameters: float
    batch: float  # tokens of a step, all sites together
    compute: Term  # time of the slowest site
    mfu: float
    fits: bool
    warnings: list[str]


def step_at_constant_mfu(given: dict[str, Any], gpus: list[float], folders: tuple[str, ...], notes: Assumptions) -> SiteStep:
    """Simplified: a step at a constant MFU, whatever the plan."""
    unused = [name for name in (*PLAN, "global_batch_size", "seq_len") if name in given and name not in ("node", "fabric", "precision")]
    if unused:
        raise QuestionError(f"--{unused[0].replace('_', '-')} has no effect with --mfu, which sets the step time: leave one out")
    need(given, "global_batch_tokens")
    if given["global_batch_tokens"] < sum(gpus):
        raise ValueRangeError(f"--global-batch-tokens is {given['global_batch_tokens']:g}, must be at least one per accelerator")
    if given["mfu"] > 1:
        raise ValueRangeError(f"--mfu is {given['mfu']:g}, must be at most 1")
    record = plain_model(bind_model(given["model"], folders)[0])
    cluster = cluster_of(given, folders, notes)
    peak = cluster.accelerator.peak[PRECISIONS[given.get("precision") or bind_precision(given["on"], folders)].peak]
    operations = flops.training(float(active_parameters(record)), given["global_batch_tokens"])
    compute = leaf("compute", run.iron_law, "s", operations=operations, peak=peak.value * sum(gpus), efficiency=given["mfu"])
    warning = f"simplified: every step runs at {given['mfu']:.0%} MFU, whatever the plan; leave --mfu out for an estimate"
    return SiteStep(
        cluster=cluster, parameters=float(total_parameters(record)), batch=given["global_batch_tokens"], compute=compute,
        mfu=given["mfu"], fits=True, warnings=[warning],
    )  # fmt: skip


def estimate_site_step(given: dict[str, Any], gpus: list[float], folders: tuple[str, ...], notes: Assumptions) -> SiteStep:
    """The step of the slowest site, from one estimate per size of site; sites split the batch by accelerators."""
    options = {name: given[name] for name in (*PLAN, "seq_len") if name in given}
    sequences = _batch_sequences(given, gpus, folders, notes)
    groups = {}
    for n in dict.fromkeys(gpus):
        share = None if sequences is None else sequences * n / sum(gpus)
        if share is not None and (share != int(share) or share < 1):
            raise QuestionError(
                f"a batch of {sequences:g} sequences gives {share:.2f} to a site with {n:g} of {sum(gpus):g} GPUs,"
                " must be whole: change the batch or --gpus"
            )
        answer = estimate(given["model"], given["on"], gpus=n, catalog=folders, global_batch_size=share, **options)
        if not bool(answer.legal[0]):
            raise PlanError(f"no such plan at a site of {n:,.0f} {given['on']}: {why_impossible(answer)}")
        groups[n] = answer.groups[0]
    slowest = max(groups.values(), key=lambda group: scalar(group.step.tree))
    for item in slowest.assumptions:
        if item["name"] not in ("gpus", "global_batch_size", "model", "on"):
            assume(notes, item["name"], item["value"], item["origin"])
    batch = sum(float(groups[n].plan.global_batch_size[0]) for n in gpus)
    assume(notes, "global_batch_size", batch, "given" if sequences else "default")
    return SiteStep(
        cluster=slowest.cluster,
        parameters=float(total_parameters(slowest.job.model)),
        batch=batch * float(slowest.plan.seq_len[0]),
        compute=slowest.step.tree,
        mfu=float(slowest.throughput["mfu"].value[0]),
        fits=all(bool(group.memory.fits[0]) for group in groups.values()),
        warnings=list(slowest.warnings),
    )


def _batch_sequences(given: dict[str, Any], gpus: list[float], folders: tuple[str, ...], notes: Assumptions) -> float | None:
    """Sequences in the batch of all sites; None where no batch is given, so that every site has the default batch of an estimate.

    A batch in tokens is the nearest number of sequences that the sites share by their accelerators.
    """
    if "global_batch_tokens" not in given:
        return given.get("global_batch_size")
    if "global_batch_size" in given:
        raise QuestionError("give --global-batch-size (sequences) or --global-batch-tokens, not both")
    seq_len = given.get("seq_len") or defaults.seq_len(bind_model(given["model"], folders)[0].max_position_embeddings)
    tokens, multiple = given["global_batch_tokens"], sum(gpus) / math.gcd(*(int(n) for n in gpus))
    if taken := batch_taken(tokens, seq_len, multiple):
        assume(notes, "--global-batch-tokens", taken, "default")
    return sequences_of(tokens, seq_len, multiple)
