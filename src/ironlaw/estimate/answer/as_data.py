"""A row of an estimate as plain data: the JSON of ``ironlaw estimate``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw import __version__
from ironlaw.catalog import load
from ironlaw.catalog.sourced import Source, Sourced
from ironlaw.cautions.record import Caution, as_record
from ironlaw.cautions.table import caution
from ironlaw.estimate.answer.term_data import Origins, laws_of, number, sources_data, term_data, term_sources
from ironlaw.estimate.answer.whole_counts import whole_counts
from ironlaw.estimate.fabric.placement import cut_groups, nearest_slices, placement, placement_term, slices_of, uncut_share
from ironlaw.estimate.fabric.slices import slice_of, wraps, written
from ironlaw.estimate.memory.paging import MOVED
from ironlaw.estimate.memory.start import MOMENTS, moment_of
from ironlaw.estimate.memory.states import WHOLE
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.question.defaults import CERTAINTY, OFFLOADS
from ironlaw.question.options import OPTIONS, flag
from ironlaw.shown import SCHEMA_VERSION, writer
from ironlaw.terms import Term

if TYPE_CHECKING:
    from ironlaw.catalog.records import Calibration, Node
    from ironlaw.cluster import Cluster
    from ironlaw.estimate.answer.group import Group

_PLAN_INTEGERS = (
    "gpus", "tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "dp", "zero", "micro_batch_size", "global_batch_size",
    "seq_len", "num_microbatches",
)  # fmt: skip


def assumption_data(item: Mapping[str, Any]) -> dict[str, Any]:
    """An assumption with the flag that sets it, the unit of a value that is a number, and for a default its source: who decides it.

    >>> assumption_data({"name": "mttf", "value": 3600.0, "origin": "given"})["option"]
    '--mttf'
    >>> assumption_data({"name": "pp", "value": 1, "origin": "chosen"})
    {'name': 'pp', 'value': 1, 'origin': 'chosen', 'option': '--pp'}
    >>> assumption_data({"name": "nic_bandwidth", "value": 5e10, "origin": "default"})["source"]
    "the node's"
    """
    option = OPTIONS.get(item["name"])
    if option is None:
        return dict(item)
    is_number = isinstance(item["value"], (int, float)) and not isinstance(item["value"], bool)
    unit = {"unit": option.kind.unit} if is_number and option.kind.unit else {}
    source = {"source": option.otherwise} if item["origin"] == "default" and option.otherwise else {}
    return {**item, "option": flag(item["name"]), **unit, **source}


def common_keys(
    assumptions: Iterable[Mapping[str, Any]],
    warnings: Iterable[str | Mapping[str, Any]],
    folders: tuple[str, ...] | None = None,
    calibration: Calibration | None = None,
) -> dict[str, Any]:
    """The keys that every answer begins with. Without ``folders`` the answer reads no catalogue, and its keys are None.

    ``calibration``: the record of the only device of the answer; without it the version covers all records.
    """
    if folders is None:
        version, digest = None, None
    else:
        version, digest = calibration.version if calibration else load.calibration_version(folders), load.catalog_hash(folders)
    return {
        "schema_version": SCHEMA_VERSION,
        "tool_version": __version__,
        "calibration_version": version,
        "catalog_hash": digest,
        "assumptions": [assumption_data(item) for item in assumptions],
        "warnings": [as_record(warning) for warning in warnings],
    }


def row_data(group: Group, at: int, explain: bool = False) -> dict[str, Any]:
    """One row of a group as the object of its JSON."""
    from ironlaw.estimate.answer.bands import band_data, nearest_runs, step_band
    from ironlaw.estimate.answer.legal_values import legal_values
    from ironlaw.estimate.answer.many_lengths import documents_data
    from ironlaw.estimate.answer.parameters import parameters_data
    from ironlaw.estimate.answer.reproduce import asked_data, records_data
    from ironlaw.estimate.evidence.support import ceiling_data, support_data
    from ironlaw.estimate.step.routing import routing_data

    origins = origins_of(group) if explain else None
    routing = None if not number(group.legal, at) else routing_data(group, at)
    step = number(group.step.tree.value, at) if number(group.legal, at) else None
    layouts = published_layouts(group, at)
    return whole_counts({
        **common_keys(assumptions(group, at), warnings(group, at), group.folders, group.cluster.calibration),
        "headline": writer().headline(group, at, layouts),
        "step": {
            "seconds": step,
            "band": step_band(group, at, step),
            "tree": term_data(group.step.tree, at, explain, origins),
            "stage": stage_name(group, at),
        },
        "error_band": None if step is None else band_data(group, at),
        "nearest_runs": [] if step is None else nearest_runs(group, at),
        "support": None if step is None else support_data(group, at),
        "ceiling": None if step is None else ceiling_data(group, at),
        **({"published_layouts": layouts} if layouts else {}),
        **faster_data(group, at),
        "memory": memory_data(group, at, explain, origins),
        "throughput": throughput_data(group, at, step is None),
        **documents_data(group, at),
        "mfu_waterfall": None if step is None else waterfall_data(group, at),
        "parameters": parameters_data(group.job),
        "bound": bound_data(group, at, step is None),
        **({} if routing is None else {"routing": routing}),
        "run": _run_with_bands(group, at),
        "rules": {name: bool(number(column, at)) for name, column in group.rules.items()},
        "plan": plan_data(group, at),
        "legal_values": legal_values(group, at),
        "not_searched": list(unsearched_data(group, at)),
        "placement": placement_data(group, at),
        **({"laws": laws_of(trees_of(group))} if explain else {}),
        "sources": sources(group),
        "asked": asked_data(group, at),
        "records": records_data(group),
    })  # fmt: skip


def published_layouts(group: Group, at: int) -> list[dict[str, Any]]:
    """The published layouts of the class of a row whose plan was searched, each against its plan; a question of many rows has none."""
    from ironlaw.estimate.answer.layouts import layouts_data
    from ironlaw.estimate.bind.question import bind_question, with_batch
    from ironlaw.estimate.planner.rows import LAYOUT
    from ironlaw.estimate.planner.space import read_space

    asked = group.asked
    if asked is None or len(asked.rows) > 1 or not {*LAYOUT} & {*group.chosen[at]} or not number(group.legal, at):
        return []
    bound = with_batch(bind_question(asked, group.folders))
    row = bound.asked.rows[0]._replace(global_batch_size=number(group.plan.global_batch_size, at))
    level = 1.0 if group.level is None else number(group.level.factor, at)
    seconds, faster = (number(group.step.tree.value, at) or np.nan) / level, group.faster[at]
    fastest = None if faster is None else faster.seconds
    return layouts_data(bound, group.job, row, read_space(asked.space), plan_data(group, at), seconds, fastest)


def unsearched_data(group: Group, at: int) -> tuple[str, ...]:
    """The options that the search for the plan of a row left as they are; none where the plan was given."""
    from ironlaw.estimate.planner.rows import LAYOUT
    from ironlaw.estimate.planner.space import read_space
    from ironlaw.estimate.planner.unsearched import unsearched

    if group.asked is None or not {*LAYOUT} & {*group.chosen[at]}:
        return ()
    axes = ("pp", "cp", "ep", "seq_len", "offload_optimizer", "offload_activations")
    plan = {**{axis: number(getattr(group.plan, axis), at) for axis in axes}, "recompute": group.recompute[at]}
    return unsearched(read_space(group.asked.space), group.job, group.cluster, group.asked.given, plan)


def faster_data(group: Group, at: int) -> dict[str, Any]:
    """The fastest plan, where another was chosen because published runs measured more of it; else nothing."""
    from ironlaw.estimate.answer.bands import gain_slope, likely_ratio
    from ironlaw.estimate.answer.reproduce import as_option

    faster = group.faster[at]
    if faster is None:
        return {}
    ratio = (number(group.step.tree.value, at) or faster.seconds) / faster.seconds
    plan = {name: as_option(name, value) for name in _FASTER if (value := getattr(faster.row, name)) is not None}
    return {
        "faster_unmeasured": {
            "plan": plan,
            "seconds": faster.seconds,
            "gain": ratio - 1.0,
            "likely_gain": float(likely_ratio(ratio, gain_slope(group.folders))) - 1.0,
            "never_measured": list(faster.never_measured),
        }
    }


_FASTER = (
    "tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "sp", "zero", "micro_batch_size", "recompute", "overlap", "offload",
    "first_stage_layers", "last_stage_layers",
)  # fmt: skip


def assumptions(group: Group, at: int) -> list[dict[str, Any]]:
    """The assumptions of a row: axes that were chosen, then options that were given, defaults and overrides."""
    plan = plan_data(group, at)
    chosen = {name: plan[name] for name in (*group.chosen[at], *group.variant) if name in plan}
    listed = [
        {
            "name": name,
            "value": overlap_words(plan) if name == "overlap" else (",".join(value) or "none") if isinstance(value, list) else value,
            "origin": "chosen",
        }
        for name, value in chosen.items()
    ]
    return listed + [dict(item) for item in group.assumptions if item["name"] not in chosen]


def overlap_words(plan: Mapping[str, Any]) -> str:
    """What a plan overlaps, as a page says it: its switches, and what ZeRO does beside its layers without one.

    >>> shards = {"dp_shard": 8, "cp": 1}
    >>> [overlap_words({"overlap": on, "zero": zero, **shards}) for on, zero in (([], 1), ([], 3), (["pp", "tp"], 2))]
    ['none', 'gathers and scatters of ZeRO 3', 'pp,tp, scatters of ZeRO 2']
    """
    switches = [",".join(plan["overlap"])] if plan["overlap"] else []
    own = {2: "scatters of ZeRO 2", 3: "gathers and scatters of ZeRO 3"}.get(plan["zero"])
    return ", ".join([*switches, *([own] if own and plan["dp_shard"] * plan["cp"] > 1 else [])]) or "none"


def warnings(group: Group, at: int, ceiling: bool = True) -> list[Caution]:
    """The warnings of a row; without ``ceiling``, for a table that names in one line all rows above what was measured."""
    from ironlaw.estimate.answer.bands import why_no_band
    from ironlaw.estimate.legality.rules import broken_rules

    return [
        *group.warnings,
        *([caution("little-free-memory", margin=group.margin)] if group.tight[at] else []),
        *why_no_band(group, at),
        *(_ceiling_warning(group, at) if ceiling else []),
        *_seldom_warning(group, at),
        *_margin_warning(group, at),
        *_offload_warning(group, at),
        *_paging_warning(group, at),
        *_sharding_warning(group, at),
        *_failure_warning(group, at),
        *_placement_warnings(group, at),
        *(caution("broken-rule", rule=name, says=says) for name, says in broken_rules(group.job, group.plan, group.rules, at)),
    ]


def _ceiling_warning(group: Group, at: int) -> list[Caution]:
    """Warn where a legal plan is predicted to use more of the peak than any published run did on its device, in its format and kind."""
    from ironlaw.estimate.evidence.support import ceiling_data

    ceiling = ceiling_data(group, at) if number(group.legal, at) else None
    if ceiling is None or not (ceiling["above"] or ceiling["hfu_above"]):
        return []
    name = "mfu" if ceiling["above"] else "hfu"
    what, run = ("MFU", ceiling["run"]) if ceiling["above"] else ("the FLOP rate with recomputation", ceiling["hfu_run"])
    of = "the only run" if ceiling["runs"] == 1 else f"of {ceiling['runs']} runs"
    matrices = "experts" if group.job.model.num_experts else "MLPs"
    where = f"{ceiling['format']} on {group.cluster.accelerator.name}, {ceiling['model']}, {matrices} up to {ceiling['width']:,.0f} wide"
    said = {"quantity": what, "value": number(group.throughput[name].value, at), "highest": ceiling[name]}
    return [caution("above-measured", **said, where=where, run=run, runs=ceiling["runs"], of_runs=of)]


def _seldom_warning(group: Group, at: int) -> list[Caution]:
    """Name what few people run of a chosen plan; a question of one row has it among its warnings (``answer.with_run``)."""
    from ironlaw.estimate.answer.cautions import seldom_lines

    return seldom_lines(group.job, group.plan, at, {*group.chosen[at], *group.variant}) if group.plan.rows > 1 else []


def _offload_warning(group: Group, at: int) -> list[Caution]:
    """Warn where the planner put the optimizer into host memory, with what this costs each step."""
    if "offload" not in group.chosen[at] or not number(group.plan.offload_optimizer, at):
        return []
    from ironlaw.estimate.memory.offloading import HOST_OPTIMIZER

    step = number(group.step.tree.value, at) or 1.0
    costs = sum(number(part.value, at) or 0.0 for part in group.step.tree.parts if part.name in HOST_OPTIMIZER)
    return [caution("optimizer-in-host", seconds=costs, share=costs / step)]


def _paging_warning(group: Group, at: int) -> list[Caution]:
    """Warn where pages of a paged optimizer find no room on the device, with the time that moving them takes."""
    moved = number(np.broadcast_to(group.memory.paged, group.memory.device.shape), at)
    if not moved:
        return []
    (seconds,) = (number(part.value, at) or 0.0 for part in group.step.tree.parts if part.name == MOVED)
    return [caution("pages-moved", bytes=moved, seconds=seconds, share=seconds / (number(group.step.tree.value, at) or 1.0))]


def _sharding_warning(group: Group, at: int) -> list[Caution]:
    """Warn where ZeRO 3 gathers more at once than it shards, so that ZeRO 2 may need less memory."""
    shards = (number(group.plan.shard_ranks, at) or 1.0) - 1.0
    if number(group.plan.zero, at) != 3 or not shards:
        return []
    held = {term.name: number(term.value, at) or 0.0 for term in group.memory.tree["allocated"].parts}
    gathered = sum(held.get(name, 0.0) for name in ("gather buffers", *WHOLE))
    sharded = held.get("weights", 0.0) * shards
    return [caution("gathers-more-than-it-shards", gathered=gathered, saved=sharded)] if gathered > sharded else []


def _margin_warning(group: Group, at: int) -> list[Caution]:
    """Warn where a plan is predicted to fit, but leaves so little memory free that it may not."""
    if group.likely is None or not number(group.memory.fits, at) or keeps_margin(group, at):
        return []
    used, likely = number(group.memory.device, at) / group.memory.capacity, number(group.likely.value, at)
    return [caution("may-not-fit", used=used, likely=likely, margin=group.margin, certainty=CERTAINTY)]


def _failure_warning(group: Group, at: int) -> list[Caution]:
    """Warn where the run fails so often that it cannot restart or save a checkpoint; it then has no estimate with failures."""
    if group.run is None or number(group.run.seconds.value, at) is None or number(group.run.failures.seconds.value, at) is not None:
        return []
    asked = group.run.failures.seconds.inputs
    times = ("mttf", "restart_time", "checkpoint_interval", "checkpoint_time")
    return [caution("never-finishes", **{name: number(asked[name], at) for name in times})]


def _placement_warnings(group: Group, at: int) -> list[Caution]:
    """Warn of each kind of group that would fit in one scale-up domain but is split between two; kinds of equal span give one line."""
    cut: dict[int, str] = {}
    for name, spans in cut_groups(group.cluster, group.plan).items():
        cut.setdefault(int(number(spans, at)), name)
    cut.pop(0, None)
    if not number(group.legal, at):
        return []
    placed = placement_data(group, at)
    lines = _slice_warning(group.cluster.node, placed, int(number(group.plan.gpus, at)))
    for span, name in cut.items():
        told = {"axis": name, "span": span, "share": placed["gpus_per_domain"]}
        whole = uncut_share(group.cluster, span)
        lines.append(caution("group-cut-by-share", **told, whole=whole) if whole else caution("group-cut", **told))
    return lines


def _slice_warning(node: Node, placed: dict[str, Any], gpus: int) -> list[Caution]:
    """A job of chips of a torus that is no slice, or many small ones: the nearest numbers that are."""
    share, domains, pod = placed["gpus_per_domain"], placed["domains"], placed["scale_up_size"]
    if near := nearest_slices(node, share):
        which = " and ".join(f"{chips:,}" for chips in near)
        return [caution("no-slice", gpus=share, node=node.name, nearest=which, slices=list(near))]
    if slices_of(node) and domains > 1 and 2 * share < pod:
        told = {"slices": domains, "share": share, "fewer": gpus // pod * pod, "more": -(-gpus // pod) * pod}
        return [caution("many-slices", gpus=gpus, **told)]
    return []


def placement_data(group: Group, at: int) -> dict[str, Any]:
    """The accelerators that a plan uses in each scale-up domain, and those that stay free for other jobs."""
    placed, node = placement(group.cluster, group.plan), group.cluster.node
    share, largest, domains, gpus = (
        int(number(np.broadcast_to(column, (group.plan.rows,)), at)) for column in (*placed[:3], group.plan.gpus)
    )
    size = int(node.scale_up_size.value)
    return {
        "gpus_per_domain": share,
        "most_per_domain": largest,
        "domains": domains,
        "scale_up_size": size,
        "scale_up": node.scale_up,
        "trays_per_domain": size / node.accelerators.value,
        "free": 0 if slices_of(node) else domains * size - gpus,  # slices of one job may share a pod
        "given": group.cluster.gpus_per_domain is not None,
        **network_data(group.cluster, share),
    }


def network_data(cluster: Cluster, share: int) -> dict[str, Any]:
    """The slice of a torus that a job takes; what the fabric differs in from one of its own at the NICs' whole rate, where it does."""
    told: dict[str, Any] = {}
    if cluster.node.torus_axes is not None:
        sides = slice_of(cluster, share)
        joined = wraps(cluster.node, np.array(sides))
        told |= {"topology": written(sides), "wraps": [bool(one) for one in joined]}
    if cluster.network_share != 1.0:
        told["network_share"] = cluster.network_share
    if cluster.in_network_reduction is not None:
        told["in_network_reduction"] = cluster.in_network_reduction
    if cluster.pod_size is not None:
        told |= {"oversubscription": number(cluster.oversubscription), "pod_size": number(cluster.pod_size)}
    return {"network": told} if told else {}


def stage_name(group: Group, at: int) -> str | None:
    """The name of the slowest pipeline stage."""
    return _name_stage(group, tuple(c.name for c in group.step.pace.classes), group.step.pace.which, at)


def _name_stage(group: Group, names: tuple[str, ...], which: Any, at: int) -> str | None:
    """The name of a stage class; None without an answer."""
    if number(group.plan.pp, at) == 1:
        return "only"
    index = number(which, at)
    return None if index is None else names[int(index)]


def memory_data(group: Group, at: int, explain: bool = False, origins: Origins | None = None) -> dict[str, Any]:
    """The memory of the fullest stage."""
    from ironlaw.estimate.answer.bands import memory_band

    needed, likely = group.memory, group.likely
    host = host_data(group, at, explain, origins)
    return {
        "allocated": number(needed.allocated, at),
        "reserved": number(needed.reserved, at),
        "device": number(needed.device, at),
        "capacity_bytes": needed.capacity,
        "fits": bool(number(needed.fits, at)),
        "fits_probability": None if likely is None else number(likely.value, at),
        "needed": number(needed.needed, at),
        "needed_band": memory_band(group, number(needed.needed, at)),
        "margin": group.margin,
        "keeps_margin": keeps_margin(group, at),
        "stage": _name_stage(group, needed.stage_names, needed.which, at),
        "moment": MOMENTS[int(number(moment_of(needed.tree), at) or 0)],
        "band": memory_band(group, number(needed.device, at)),
        "tree": term_data(needed.tree, at, explain, origins),
        **({} if host is None else {"host": host}),
    }


def keeps_margin(group: Group, at: int) -> bool:
    """True for a plan that leaves the margin of device memory free, and fits."""
    return bool(number(group.memory.fits, at)) and number(group.memory.device, at) <= (1.0 - group.margin) * group.memory.capacity


def host_data(group: Group, at: int, explain: bool = False, origins: Origins | None = None) -> dict[str, Any] | None:
    """Host memory per accelerator, where something is offloaded; its capacity is None where the node record has none."""
    needed = group.memory
    if not needed.hosts:
        return None
    room = float(np.ravel(np.broadcast_to(needed.host_capacity, needed.device.shape))[at])
    return {
        "held": number(needed.host, at),
        "capacity_bytes": room if np.isfinite(room) else None,
        "tree": term_data(needed.host_tree, at, explain, origins),
    }


def throughput_data(group: Group, at: int, illegal: bool) -> dict[str, Any]:
    """Rates and utilisations, and the peak that they refer to."""
    peak = group.cluster.accelerator.peak[group.job.precision.peak]
    data = {name: None if illegal else number(term.value, at) for name, term in group.throughput.items()}
    data["peak"] = {
        "flop_per_second": peak.value,
        "precision": group.job.precision.peak,
        "accelerator": group.cluster.accelerator.name,
        "dense": True,
        "source": peak.source.line() if peak.source else None,
    }
    return data


def waterfall_data(group: Group, at: int) -> dict[str, float]:
    """Losses from the peak down to the MFU, and the MFU: shares of the step that add up to 1."""
    return {name: number(column, at) for name, column in group.waterfall.items()}


def bound_data(group: Group, at: int, illegal: bool) -> dict[str, Any]:
    """The roof with the largest share of the step, and the share of every roof."""
    if illegal:
        return {"by": None, "shares": None}
    shares = {name: number(column, at) for name, column in group.shares.items()}
    finite = {k: v for k, v in shares.items() if v is not None}
    return {"by": max(finite, key=lambda k: finite[k]) if finite else None, "shares": shares}


def run_data(group: Group, at: int) -> dict[str, Any] | None:
    """The whole run, if tokens were given."""
    run = group.run
    if run is None:
        return None
    legal = number(group.legal, at)

    def of(term: Term, scale: float = 1.0) -> Any:
        value = number(term.value, at)
        return value / scale if legal and value is not None else None

    return {
        "tokens": run.tokens,
        "days": of(run.seconds, 86400.0),
        "gpu_hours": of(run.gpu_hours),
        "usd": of(run.usd),
        "kwh": of(run.joules, 3.6e6),
        "kg_co2e": of(run.kg_co2e),
        "days_with_failures": of(run.failures.seconds, 86400.0),
        "usd_with_failures": of(run.usd_with_failures),
        "kwh_with_failures": of(run.joules_with_failures, 3.6e6),
        "kg_co2e_with_failures": of(run.kg_co2e_with_failures),
        "goodput": of(run.failures.goodput),
        "failures": of(run.failures.count),
        "checkpoint_interval_seconds": of(run.failures.interval),
        "mttf_hours": of(run.failures.mttf, 3600.0),
    }


def _run_with_bands(group: Group, at: int) -> dict[str, Any] | None:
    """The whole run with the bands of its time, money, energy and carbon."""
    from ironlaw.estimate.answer.bands import run_bands

    run = run_data(group, at)
    return None if run is None else {**run, "bands": run_bands(group, at, run)}


def plan_data(group: Group, at: int) -> dict[str, Any]:
    """The plan by the names of the options."""
    from ironlaw.estimate.layer.context_methods import method_of
    from ironlaw.estimate.pipeline.schedules import name_in_plan

    plan, job, cluster = group.plan, group.job, group.cluster
    data: dict[str, Any] = {"model": job.model.name, "accelerator": cluster.accelerator.name}
    data |= {"node": cluster.node.name, "fabric": cluster.fabric.name, "framework": job.framework.name}
    for name in _PLAN_INTEGERS:
        value = number(getattr(plan, name), at)
        data[name] = int(value) if value is not None and value == int(value) else value
    data["sp"] = bool(number(plan.sp, at))
    data["recompute"] = group.recompute[at]
    data |= {"precision": job.precision.name, "optimizer": job.optimizer.name}
    if job.model.wide_layers_at_start or job.model.wide_layers_at_end:
        data["bf16_layers_at_start"], data["bf16_layers_at_end"] = job.model.wide_layers_at_start, job.model.wide_layers_at_end
    data["schedule"] = name_in_plan(job, data["vpp"])
    if job.model.num_experts:
        data["moe_dispatcher"] = job.moe_dispatcher
    data["flash_attention"] = "on" if job.flash else "off"
    data["overlap"] = [
        name
        for name, column in (
            ("ep", plan.overlap_ep),
            ("grad-reduce", plan.overlap_grad_reduce),
            ("param-gather", plan.overlap_param_gather),
            ("pp", plan.overlap_pp),
            ("tp", plan.overlap_tp),
        )
        if number(column, at)
    ]
    data["offload"] = [name for name in sorted(OFFLOADS) if number(getattr(plan, f"offload_{name}"), at)]
    if job.layers_per_stage:
        data["layers_per_stage"] = list(job.layers_per_stage)
    elif np.broadcast_to(np.maximum(plan.first_stage_layers, plan.last_stage_layers), (plan.rows,))[at] >= 0.0:
        data["layers_per_stage"] = layers_by_stage(job, plan, at)
    if data["cp"] != 1:
        data |= {"cp_method": job.cp_method, "cp_balance": "on" if job.cp_balance else "off"}
        if method_of(job).has_two_levels:
            from ironlaw.estimate.layer.sequence import head_ranks

            data["cp_inner"] = number(head_ranks(job, plan), at)
    return {**group.variant, **data}


def layers_by_stage(job: Job, plan: Plan, at: int) -> list[int]:
    """Layers of every stage of one plan, from the first to the last."""
    from ironlaw.estimate.pipeline.stages import unpaired_stages

    row = plan.take([at])
    classes = sorted(((float(s.index[0]), s) for s in unpaired_stages(job, row) if s.count[0] > 0), key=lambda pair: pair[0])
    return [int(s.layers[0]) for _, s in classes for _ in range(int(s.count[0]))]


def sources(group: Group) -> dict[str, dict[str, str]]:
    """Every source of the answer, by key."""
    job, cluster = group.job, group.cluster
    records = (job.framework, cluster.accelerator, cluster.node, cluster.fabric, cluster.systems)
    values = (value for record in records for value in vars(record).values())
    of_records = (v.source if isinstance(v, Sourced) else v if isinstance(v, Source) else None for v in values)
    return sources_data([*of_records, job.model.source, *term_sources(trees_of(group))])


def origins_of(group: Group) -> Origins:
    """Where the inputs of the laws of an estimate come from."""
    return Origins.of(trees_of(group), group.plan)


def trees_of(group: Group) -> list[Term]:
    """The terms of an estimate: step, memory, throughput, placement, run."""
    trees = [group.step.tree, group.memory.tree, *group.throughput.values(), placement_term(group.cluster, group.plan)]
    if group.memory.hosts:
        trees.append(group.memory.host_tree)
    if group.likely is not None:
        trees.append(group.likely)
    return trees if group.run is None else [*trees, *group.run.trees()]
