"""Warnings that follow from the options of a question."""

from __future__ import annotations

from collections.abc import Collection

from ironlaw import __version__, units
from ironlaw.catalog import load
from ironlaw.cluster import Cluster
from ironlaw.estimate.abilities import seldom_in
from ironlaw.estimate.bind.batch import in_words
from ironlaw.estimate.bind.failures import FAILURE_OPTIONS
from ironlaw.estimate.planner.remedies import Remedies
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.question.asked import Asked
from ironlaw.question.defaults import LARGEST_BATCH, MANY_ACCELERATORS, WARN_SEQUENCE

_ONLY_IN_A_RUN = ("price", "grid", "pue", "evaluate_every", "evaluation_tokens", *FAILURE_OPTIONS)
_ONLY_WITH_EXPERTS = ("expert_imbalance", "capacity_factor", "moe_dispatcher", "grouped_experts")


def cautions(asked: Asked, job: Job, cluster: Cluster, chosen: Collection[Collection[str]]) -> list[str]:
    """Warnings about a question whose rows leave ``chosen`` axes open: constants that are priors, an unsuitable node, idle options."""
    warnings = []
    given, device, node, model = asked.given, cluster.accelerator, cluster.node, job.model
    longest, most = _longest_sequence(asked), max(row.gpus or 1.0 for row in asked.rows)
    if cluster.calibration.grade != "measured":
        warnings.append(f"kernel constants of {device.name} are priors, not fitted to operators measured on it: expect wider errors")
    if asked.calibration_version is not None and asked.calibration_version != load.constants_version():
        warnings.append(
            f"the constants are those of {asked.calibration_version}; the laws are those of ironlaw {__version__},"
            " so an answer of that time may differ"
        )
    link = device.scale_up_bandwidth or device.pcie_bandwidth
    if "node" in given and link is not None and abs(node.scale_up_bandwidth.value / link.value - 1.0) > 0.1:
        warnings.append(f"node {node.name} joins its accelerators by {node.scale_up_bandwidth.text}, {device.name} usually has {link.text}")
    if longest > model.max_position_embeddings:
        kind = "table of learned positions" if model.position_embedding == "learned" else "stated range"
        warnings.append(f"seq_len {longest:g} exceeds the model's {kind} of {model.max_position_embeddings}")
    if model.bidirectional or any(tower.items for tower in model.towers):
        warnings.append("no published run of an encoder, an encoder-decoder or a model with a tower is among those of the error band")
    warnings += [*_large_batch(asked), *_assumed_drives(asked, cluster)]
    if (
        longest >= WARN_SEQUENCE
        and "cp" not in given
        and most > 1
        and not any({"cp", "micro_batch_size"} & set(axes) for axes in chosen)  # the plan was not searched
    ):
        warnings.append(f"cp is 1 where the rest of the plan is given: at seq_len {longest:g} context parallel (--cp) may be faster")
    warnings += [f"--{name.replace('_', '-')} has no effect {why}" for name, why in _list_idle(asked, job) if name in given]
    if "tokens" in given and "mttf" not in given and most >= MANY_ACCELERATORS:
        warnings.append(
            "failures are counted as independent and accelerators as alike, which is optimistic: on Meta's RSC 1,024 GPUs ran 7.9 h between"
            " failures where the rate of its nodes says 28.8 h; give --mttf measured in jobs of this size"
        )
    return warnings


def _assumed_drives(asked: Asked, cluster: Cluster) -> list[str]:
    """Warn where states go to NVMe drives whose bandwidth no record of the server has."""
    drives, source = cluster.systems.nvme_bandwidth, cluster.systems.nvme_bandwidth.source
    if cluster.node.nvme_bandwidth is not None or source is None or not any("nvme" in (row.offload or ()) for row in asked.rows):
        return []
    return [
        f"the record of {cluster.node.name} has no bandwidth of NVMe drives, so {drives.text} are assumed for each server, those of a"
        f" DGX-2 ({source.title}; grade {source.grade}): give yours as nvme_bandwidth in a node record of a --catalog folder"
    ]


def _large_batch(asked: Asked) -> list[str]:
    """Warn of a batch of so many sequences that tokens were probably meant."""
    if "global_batch_size" not in asked.given:
        return []
    batch, tokens = max((row.global_batch_size or 0.0, (row.global_batch_size or 0.0) * (row.seq_len or 0.0)) for row in asked.rows)
    if tokens <= LARGEST_BATCH:
        return []
    return [f"global_batch_size {batch:,.0f} counts sequences: {units.show(tokens, 'token')} a step; for tokens give --global-batch-tokens"]


def _list_idle(asked: Asked, job: Job) -> list[tuple[str, str]]:
    """Options that change nothing in this question if they are given, and why."""
    idle = []
    if asked.tokens is None:
        idle += [(name, "without --tokens: there is no run section") for name in _ONLY_IN_A_RUN]
    elif asked.evaluate_every is None:
        idle.append(("evaluation_tokens", "without --evaluate-every"))
    if not job.model.num_experts:
        idle += [(name, f"without experts: {job.model.name} is dense") for name in _ONLY_WITH_EXPERTS]
    elif asked.capacity_factor:
        idle.append(("expert_imbalance", "with --capacity-factor, which says how many rows an expert computes"))
    offloaded = {name for row in asked.rows for name in row.offload or ()}
    for name, needs in (("offload_fraction", "optimizer"), ("offload_overlap", "optimizer"), ("offload_layers", "activations")):
        if needs not in offloaded:
            idle.append((name, f"without --offload {needs}"))
    if not asked.lora_rank:
        idle.append(("lora_targets", "without --lora-rank: everything is trained"))
    if _is_one(asked, "cp"):
        idle.append(("cp_method", "with cp 1"))
    if asked.document_length >= _longest_sequence(asked):
        idle.append(("document_length", f"from seq_len {_longest_sequence(asked):g} on: a sequence is one document"))
    idle += _idle_documents(asked)
    if _is_one(asked, "pp"):
        idle += [(name, "with pp 1") for name in ("schedule", "microbatch_group", "deferred_wgrad")]
    elif _is_one(asked, "vpp"):
        idle.append(("microbatch_group", "with vpp 1"))
    if _is_one(asked, "vpp") and any("pp" in (row.overlap or ()) for row in asked.rows):
        idle.append(("overlap", "for pp with vpp 1: plain 1F1B waits for its neighbours"))
    return idle


def _idle_documents(asked: Asked) -> list[tuple[str, str]]:
    """Options of documents of many lengths that change nothing, and why."""
    if asked.lengths is None:
        return [(name, "without --lengths: all documents are alike") for name in ("packing", "balance", "cp_by_length")]
    return [("cp_by_length", "with cp 1")] if _is_one(asked, "cp") else []


def _longest_sequence(asked: Asked) -> float:
    return max(row.seq_len or 0.0 for row in asked.rows)


def _is_one(asked: Asked, axis: str) -> bool:
    """True where the axis is 1 in every row, and not left open."""
    return all(getattr(row, axis) == 1.0 for row in asked.rows)


def seldom_lines(job: Job, plans: Plan, at: int, chosen: Collection[str]) -> list[str]:
    """What few people run on the stack of a job, of the ``chosen`` axes of the plan of row ``at``: it is tried where nothing else fits."""
    names = seldom_in(job, plans, at, chosen)
    if not names:
        return []
    return [f"few people run {' and '.join(names)} on {job.framework.name}: it was tried because no other plan fits these accelerators"]


def remedy_lines(remedies: Remedies, gpus: float, batch: float, seq_len: float, mfu: float) -> list[str]:
    """What makes the run of a plan much faster, with figures: another batch, or fewer accelerators. Every verb prints these."""
    lines, within = [], ""
    if remedies.over_limit:
        over = f"{gpus:,.0f} has few divisors: the batch of {in_words(batch * seq_len)} tokens"
        lines.append(f"{over} is above the limit of {in_words(remedies.over_limit)} for this run")
        within = ", with a batch within the limit"
    if other := remedies.fewer:
        count, more = other.value, f"{abs(other.times - 1.0):.0%} {'more' if other.times >= 1.0 else 'fewer'}"
        theirs = f"MFU {mfu * other.times * gpus / count:.1%} against {mfu:.1%}{within}"
        lines.append(f"{count:,.0f} of your {gpus:,.0f} process {more} tokens/s ({theirs}): leave {gpus - count:,.0f} idle")
    if other := remedies.near_batch:
        gain = f"--global-batch-size {other.value:g} gives {other.times - 1.0:.0%} more tokens/s"
        lines.append(f"a batch of {batch:g} splits badly over {gpus:,.0f} GPUs: {gain}")
    if other := remedies.larger_batch:
        gain = f"--global-batch-size {other.value:g} ({in_words(other.value * seq_len)}) gives {other.times:.1f} times the tokens/s"
        lines.append(f"a batch of {in_words(batch * seq_len)} tokens is small for {gpus:,.0f} GPUs: {gain}")
    return lines
