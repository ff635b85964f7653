"""The step inside a site: by an estimate of each size of site, or at a constant share of the peak (simplified)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ironlaw.errors import PlanError, QuestionError, ValueRangeError
from ironlaw.questions.answer import need

PLAN = (  # options of an estimate that say how a site runs
    "node", "fabric", "framework", "precision", "micro_batch_size", "tp", "pp", "vpp", "cp", "ep", "dp_replicate", "dp_shard", "zero",
    "recompute", "overlap", "optimizer",
)  # fmt: skip


@dataclass(frozen=True)
class Inside:
    """What one site does between exchanges, and who pays for it."""

    cluster: Any
    parameters: float
    batch: float  # tokens of a step, all sites together
    compute: Any  # Term: the step of the slowest site
    mfu: float
    fits: bool


def one(term: Any) -> float:
    """The value of a term that may be a column of one."""
    value = term.value
    return float(value[0]) if getattr(value, "shape", ()) else float(value)


def constant_mfu(given: dict[str, Any], gpus: list[float], folders: tuple[str, ...], notes: list[Any], warnings: list[str]) -> Inside:
    """Simplified: a step at a constant share of the peak, whatever the plan."""
    from ironlaw.estimate.bind.records import bind_cluster, bind_model, bind_precision, plain_model
    from ironlaw.estimate.layer.counts import active_parameters, total_parameters
    from ironlaw.job import PRECISIONS
    from ironlaw.law import flops, run
    from ironlaw.terms import leaf

    if unused := [
        name for name in (*PLAN, "global_batch_size", "seq_len") if name in given and name not in ("node", "fabric", "precision")
    ]:
        raise QuestionError(f"--mfu takes the step as given, so --{unused[0].replace('_', '-')} says nothing: leave one of them out")
    need(given, "global_batch_tokens")
    if given["global_batch_tokens"] < sum(gpus):
        raise ValueRangeError(f"--global-batch-tokens is {given['global_batch_tokens']:g}, less than one for each accelerator: give more")
    if given["mfu"] > 1:
        raise ValueRangeError(f"--mfu is {given['mfu']:g}, a share of the peak: must be at most 1")
    record = plain_model(bind_model(given["model"], folders)[0])
    asked = {**given, "precision": given.get("precision") or bind_precision(given["on"], folders)}
    cluster = bind_cluster(asked, folders, notes)
    peak = cluster.accelerator.peak[PRECISIONS[asked["precision"]].peak]
    work = flops.training(float(active_parameters(record)), given["global_batch_tokens"])
    compute = leaf("compute", run.iron_law, "s", operations=work, peak=peak.value * sum(gpus), efficiency=given["mfu"])
    warnings.append(f"simplified: every step runs at {given['mfu']:.0%} of the peak, whatever the plan; leave --mfu out for an estimate")
    return Inside(cluster, float(total_parameters(record)), given["global_batch_tokens"], compute, given["mfu"], True)


def _sequences(given: dict[str, Any], folders: tuple[str, ...]) -> float | None:
    """The batch of all sites in sequences, where it was given; of the length an estimate assumes where none is."""
    from ironlaw.estimate.answer import sequences_of
    from ironlaw.estimate.bind.records import bind_model
    from ironlaw.estimate.candidates import DEFAULT_SEQ_LEN

    if "global_batch_tokens" not in given:
        return given.get("global_batch_size")
    if "global_batch_size" in given:
        raise QuestionError("give --global-batch-size (sequences) or --global-batch-tokens, not both")
    longest = bind_model(given["model"], folders)[0].max_position_embeddings
    return sequences_of(given["global_batch_tokens"], given.get("seq_len", float(min(longest, DEFAULT_SEQ_LEN))))


def estimated(given: dict[str, Any], gpus: list[float], folders: tuple[str, ...], notes: list[Any], warnings: list[str]) -> Inside:
    """The step of the slowest site, by one estimate for each size of site; the batch is shared out by accelerators."""
    from ironlaw.estimate.answer import estimate
    from ironlaw.estimate.bind.records import assume
    from ironlaw.estimate.layer.counts import total_parameters

    options = {name: given[name] for name in (*PLAN, "seq_len") if name in given}
    sequences = _sequences(given, folders)
    groups = {}
    for n in dict.fromkeys(gpus):
        share = None if sequences is None else sequences * n / sum(gpus)
        if share is not None and (share != int(share) or share < 1):
            raise QuestionError(f"a batch of {sequences:g} sequences gives {share:.2f} to a site of {n:g} of {sum(gpus):g}: must be whole")
        group = estimate(given["model"], given["on"], gpus=n, catalog=folders, global_batch_size=share, **options).groups[0]
        if not bool(group.legal[0]):
            broken = next(name for name, kept in group.rules.items() if name != "fits" and not bool(kept[0]))
            raise PlanError(f"a site of {n:g} {given['on']} has no such plan ({broken}): ironlaw estimate --gpus {n:g} says more")
        groups[n] = group
    slowest = max(groups.values(), key=lambda group: one(group.step.tree))
    for item in slowest.assumptions:
        if item["name"] not in ("gpus", "global_batch_size", "model", "on"):
            assume(notes, item["name"], item["value"], item["origin"])
    batch = sum(float(groups[n].plan.global_batch_size[0]) for n in gpus)
    assume(notes, "global_batch_size", batch, "given" if sequences else "default")
    warnings += slowest.warnings
    return Inside(
        slowest.cluster, float(total_parameters(slowest.job.model)), batch * float(slowest.plan.seq_len[0]), slowest.step.tree,
        float(slowest.throughput["mfu"].value[0]), all(bool(group.memory.fits[0]) for group in groups.values()),
    )  # fmt: skip
