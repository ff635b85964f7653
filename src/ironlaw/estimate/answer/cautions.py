"""Warnings that follow from the options of a question."""

from __future__ import annotations

from collections.abc import Collection

from ironlaw import __version__
from ironlaw.catalog import load
from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.cluster import Cluster
from ironlaw.estimate.bind.batch import in_words
from ironlaw.estimate.bind.failures import FAILURE_OPTIONS
from ironlaw.estimate.legality.abilities import seldom_in
from ironlaw.estimate.planner.remedies import Remedies
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.question.asked import Asked
from ironlaw.question.defaults import CP_METHODS, LARGEST_BATCH, MANY_ACCELERATORS, WARN_SEQUENCE
from ironlaw.question.options import flag

_ONLY_IN_A_RUN = ("price", "grid", "pue", "evaluate_every", "evaluation_tokens", *FAILURE_OPTIONS)
_OPEN = ("cp", "micro_batch_size")  # an axis that is chosen in every plan that was searched
_ONLY_WITH_EXPERTS = ("expert_imbalance", "capacity_factor", "moe_dispatcher", "grouped_experts")


def cautions(asked: Asked, job: Job, cluster: Cluster, chosen: Collection[Collection[str]]) -> list[Caution]:
    """Warnings about a question whose rows leave ``chosen`` axes open: constants that are priors, an unsuitable node, idle options."""
    warnings = []
    given, device, node, model = asked.given, cluster.accelerator, cluster.node, job.model
    longest, most = _longest_sequence(asked), max(row.gpus or 1.0 for row in asked.rows)
    if cluster.calibration.grade != "measured":
        warnings.append(caution("prior-constants", accelerator=device.name))
    if asked.calibration_version is not None and asked.calibration_version != load.constants_version():
        warnings.append(caution("older-constants", constants=asked.calibration_version, tool=__version__))
    link = device.scale_up_bandwidth or device.pcie_bandwidth
    if "node" in given and link is not None and abs(node.scale_up_bandwidth.value / link.value - 1.0) > 0.1:
        rates = {"bandwidth": node.scale_up_bandwidth.value, "usual_bandwidth": link.value}
        texts = {"link": node.scale_up_bandwidth.text, "usual": link.text}
        warnings.append(caution("other-link", node=node.name, accelerator=device.name, **texts, **rates))
    if longest > model.max_position_embeddings:
        kind = "table of learned positions" if model.position_embedding == "learned" else "stated range"
        warnings.append(caution("long-sequence", seq_len=longest, kind=kind, positions=model.max_position_embeddings))
    if model.bidirectional or any(tower.items for tower in model.towers):
        warnings.append(caution("no-run-of-this-kind", model=model.name))
    warnings += [*_large_batch(asked), *_assumed_drives(asked, cluster)]
    if (
        longest >= WARN_SEQUENCE
        and "cp" not in given
        and most > 1
        and not any({*_OPEN} & set(axes) for axes in chosen)  # the plan was not searched
    ):
        warnings.append(caution("cp-not-searched", seq_len=longest))
    ratio = cluster.oversubscription
    is_oversubscribed = getattr(ratio, "value", ratio) > 1.0
    idle = ((name, why) for name, why in _list_idle(asked, job, chosen, is_oversubscribed) if name in given)
    warnings += [caution("no-effect", name, flag=flag(name), why=why) for name, why in idle]
    if "tokens" in given and "mttf" not in given and most >= MANY_ACCELERATORS:
        warnings.append(caution("independent-failures"))
    return warnings


def _assumed_drives(asked: Asked, cluster: Cluster) -> list[Caution]:
    """Warn where states go to NVMe drives whose bandwidth no record of the server has."""
    drives, source = cluster.systems.nvme_bandwidth, cluster.systems.nvme_bandwidth.source
    if cluster.node.nvme_bandwidth is not None or source is None or not any("nvme" in (row.offload or ()) for row in asked.rows):
        return []
    told = {"drives": drives.text, "bandwidth": drives.value, "title": source.title, "grade": source.grade}
    return [caution("assumed-drives", node=cluster.node.name, **told)]


def _large_batch(asked: Asked) -> list[Caution]:
    """Warn of a batch of so many sequences that tokens were probably meant."""
    if "global_batch_size" not in asked.given:
        return []
    batch, tokens = max((row.global_batch_size or 0.0, (row.global_batch_size or 0.0) * (row.seq_len or 0.0)) for row in asked.rows)
    return [caution("batch-counts-sequences", global_batch_size=batch, tokens=tokens)] if tokens > LARGEST_BATCH else []


def _list_idle(asked: Asked, job: Job, chosen: Collection[Collection[str]], oversubscribed: bool) -> list[tuple[str, str]]:
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
        idle += [(name, "without --lora-rank: everything is trained") for name in ("lora_targets", "lora_sets")]
    if not any((row.recompute or "").startswith(("full", "every", "share", "segments")) for row in asked.rows):
        idle.append(("key_value_cache", "where no whole layer is recomputed: attention keeps its keys and values anyway"))
    if not oversubscribed:
        idle.append(("rail_optimised", "where no link above the NICs is oversubscribed"))
    if asked.document_length >= _longest_sequence(asked):
        idle.append(("document_length", f"from seq_len {_longest_sequence(asked):g} on: a sequence is one document"))
    idle += _idle_documents(asked)
    idle += _idle_axes(asked, job, chosen)
    return idle


def _idle_axes(asked: Asked, job: Job, chosen: Collection[Collection[str]]) -> list[tuple[str, str]]:
    """Options of context ranks and of pipelines that change nothing where their axis is 1."""
    idle: list[tuple[str, str]] = []
    if _is_one(asked, "cp") or not ("cp" in asked.given or any({*_OPEN} & set(axes) for axes in chosen)):
        idle += [(name, "with cp 1") for name in ("cp_method", "cp_inner", "cp_balance")]
    elif job.cp_method != CP_METHODS[-1]:
        idle.append(("cp_inner", f"without --cp-method {CP_METHODS[-1]}"))
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


def seldom_lines(job: Job, plans: Plan, at: int, chosen: Collection[str]) -> list[Caution]:
    """What few people run on the stack of a job, of the ``chosen`` axes of the plan of row ``at``: it is tried where nothing else fits."""
    names = seldom_in(job, plans, at, chosen)
    return [caution("seldom-run", choices=list(names), framework=job.framework.name)] if names else []


def remedy_lines(remedies: Remedies, gpus: float, batch: float, seq_len: float, mfu: float) -> list[Caution]:
    """What makes the run of a plan much faster, with figures: another batch, or fewer accelerators. Every verb prints these.

    The gains of ``remedies`` by another batch are the likely ones (``bands.likely_remedies``).
    """
    lines, within, tokens = [], "", batch * seq_len
    if remedies.over_limit:
        words = {"batch": in_words(tokens), "limit": in_words(remedies.over_limit)}
        lines.append(caution("batch-over-limit", gpus=gpus, tokens=tokens, limit_tokens=remedies.over_limit, **words))
        within = ", with a batch within the limit"
    if other := remedies.fewer:
        count, more = other.value, f"{abs(other.times - 1.0):.0%} {'more' if other.times >= 1.0 else 'fewer'}"
        shares = {"mfu": mfu, "mfu_then": mfu * other.times * gpus / count, "within": within}
        told = {"fewer": count, "idle": gpus - count, "times": other.times, "more": more}
        lines.append(caution("fewer-accelerators", gpus=gpus, **told, **shares))
    if other := remedies.near_batch:
        lines.append(caution("batch-splits-badly", global_batch_size=batch, gpus=gpus, better=other.value, gain=other.times - 1.0))
    if other := remedies.larger_batch:
        words = {"batch": in_words(tokens), "better_batch": in_words(other.value * seq_len)}
        lines.append(caution("small-batch", gpus=gpus, tokens=tokens, better=other.value, times=other.times, **words))
    return lines
