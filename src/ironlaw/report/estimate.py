"""The page of an estimate: verdict, parts of the step and of the memory with bars, the run, then warnings and assumptions.

Plain text with optional ANSI emphasis; nothing is imported for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ironlaw import units
from ironlaw.catalog.sourced import watch_sources
from ironlaw.cautions.record import Sentence, headline_data
from ironlaw.estimate.answer.as_data import (
    assumptions,
    bound_data,
    faster_data,
    host_data,
    memory_data,
    placement_data,
    plan_data,
    published_layouts,
    run_data,
    stage_name,
    unsearched_data,
    warnings,
    waterfall_data,
)
from ironlaw.estimate.answer.bands import band_data, likely_rate, memory_band, nearest_runs, step_band
from ironlaw.estimate.answer.parameters import parameters_data
from ironlaw.estimate.answer.term_data import number
from ironlaw.estimate.bind.batch import in_words
from ironlaw.estimate.evidence.support import support_data
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.legality.rules import broken_rules
from ironlaw.estimate.memory.start import BEFORE_THE_FIRST_STEP
from ironlaw.estimate.pipeline.schedules import schedule_of
from ironlaw.estimate.planner.unsearched import describe_unsearched
from ironlaw.estimate.step.routing import routing_data
from ironlaw.estimate.step.step import MICRO_BATCHES
from ironlaw.estimate.step.waterfall import LOSSES
from ironlaw.estimate.what_if.left_open import describe_settings
from ironlaw.estimate.what_if.measured_run import mfu_words
from ironlaw.estimate.what_if.offers import describe_offers
from ironlaw.page.words import is_doubtful
from ironlaw.precision import PRECISIONS
from ironlaw.question.defaults import CERTAINTY
from ironlaw.report.documents import document_lines
from ironlaw.report.layouts import close_lines
from ironlaw.report.nearest import nearest_lines
from ironlaw.report.routing import routing_lines
from ironlaw.report.terminal import Ink, bar, dollars, likelihood, short
from ironlaw.terms import Term, scalar

if TYPE_CHECKING:
    from ironlaw.estimate.answer.estimate import Estimate
    from ironlaw.estimate.answer.group import Group
    from ironlaw.estimate.what_if.change_options import Held
    from ironlaw.estimate.what_if.left_open import Settings
    from ironlaw.estimate.what_if.offers import Offer

_WORTH_NAMING = 0.005  # gain of another plan: a smaller one has no line
_FUSED_NORM = 4.0  # B per element of a norm in one kernel: 2 bytes are read, 2 written; a compiler saves nothing there
_NAMED_LOSS = 0.1  # of the step: a smaller loss is not named where computation binds
_SMALLEST_SHARE = 0.0005  # of the step: a smaller loss or roof is not named
_SMALLEST_PART = 0.01  # of the step or the memory: smaller parts are one line together
_ALIKE = 0.05  # largest difference of two kinds of layer whose operators are listed once
_LISTED_KINDS = 3  # kinds of layer in the line of parameters
_LEFT_OUT = {"cp": 1, "etp": 1, "count_embedding": False}  # defaults that the page leaves out


def page(
    estimate: Estimate,
    index: int = 0,
    colour: bool = False,
    held: Held | None = None,
    near: Sequence[float] = (),
    offered: Sequence[Offer] = (),
    settings: Settings | None = None,
) -> str:
    """One row as a page of text.

    ``held``: the answer that it changes; ``near``: numbers of accelerators that have a plan that fits; ``offered``: what makes it fit;
    ``settings``: those that a search would choose where the plan is given.
    """
    group, at = estimate.place_of(index)
    ink = Ink(colour)
    parts = [
        verdict(group, at, ink, offered, settings),
        breakdown(group, at, ink),
        document_lines(group, at, ink),
        memory_lines(group, at, ink),
        run_lines(group, at),
        published_lines(group, at, ink),
        notes(group, at, ink),
    ]
    if near:
        parts.insert(1, iter([f"The nearest number of accelerators that works: {' or '.join(f'{count:,.0f}' for count in near)}."]))
    if held is not None:
        from ironlaw.report.held import held_lines

        parts.insert(1, held_lines(held, ink))
    return "\n\n".join("\n".join(lines) for lines in (list(p) for p in parts) if lines)


def verdict(
    group: Group,
    at: int,
    ink: Ink,
    offered: Sequence[Offer] = (),
    settings: Settings | None = None,
    layouts: Sequence[dict[str, Any]] | None = None,
) -> Iterator[Sentence]:
    """The answer in six lines: what runs on what, whether it fits, how fast it is, what binds it, the plan, and the model's size.

    ``layouts``: the published ones near the plan, where they are known already.
    """
    plan, memory = plan_data(group, at), memory_data(group, at)
    title = f"{group.job.model.title} on {plan['gpus']:,} x {group.cluster.accelerator.title}"
    yield Sentence(ink.bold(title), "job", {name: plan[name] for name in ("model", "gpus", "accelerator")})
    yield _fit_sentence(group, memory, offered, ink)
    step = number(group.step.tree.value, at)
    if step is None:
        yield Sentence(ink.bold(f"no estimate: {_nan_term(group.step.tree, at)}"), "no-step")
        return
    yield _step_sentence(group, at, step, ink)
    bound = bound_data(group, at, False)
    yield Sentence(bound_line(group, at, plan, memory["fits"], ink), "bound", {"by": bound["by"], "share": bound["shares"][bound["by"]]})
    yield Sentence(plan_line(plan), "plan", plan)
    if settings is not None:
        yield Sentence(describe_settings(settings), "left-open", {"seconds": settings.seconds, "likely_longer": settings.likely_longer})
    support = support_data(group, at)
    if words := support_words(support):
        yield Sentence(words, "never-measured", {"never_measured": support["never_measured"]})
    near = published_layouts(group, at) if layouts is None else layouts
    yield from (Sentence(line, "published-layout") for line in close_lines(near))
    if faster := faster_data(group, at).get("faster_unmeasured"):
        yield from (Sentence(line, "fastest-without-evidence", {"likely_gain": faster["likely_gain"]}) for line in faster_words(faster))
    yield from (Sentence(line, "routing") for line in routing_lines(routing_data(group, at)))
    placed = placement_data(group, at)
    if words := placement_words(placed, plan["gpus"]):
        yield Sentence(f"placement: {words}", "placement", {name: placed[name] for name in ("gpus_per_domain", "domains", "free")})
    if words := network_words(placed):
        yield Sentence(f"network: {words}", "network")
    counts = parameters_data(group.job)
    sizes = {name: counts[name] for name in ("total", "active", "trained")}
    yield Sentence(parameters_line(counts) + _adapter_words(group), "parameters", sizes)
    if group.job.objective is not None:
        yield Sentence(_objective_line(group, plan), "objective", {"objective": group.job.objective.name})


def headline(
    group: Group, at: int, offered: Sequence[Offer] = (), settings: Settings | None = None, layouts: Sequence[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """The verdict as plain data; of a plan that breaks a rule, which it breaks."""
    with watch_sources(None):  # what else might help reads records that the answer does not use
        return _headline(group, at, offered, settings, layouts)


def _headline(
    group: Group, at: int, offered: Sequence[Offer], settings: Settings | None, layouts: Sequence[dict[str, Any]] | None
) -> list[dict[str, Any]]:
    if number(group.legal, at):
        return headline_data(verdict(group, at, Ink(False), offered, settings, layouts))
    found = broken_rules(group.job, group.plan, group.rules, at)
    says = f"no such plan: {'; '.join(says for _, says in found)}"
    return headline_data([Sentence(says, "no-such-plan", {"rules": [name for name, _ in found]})])


def _fit_sentence(group: Group, memory: dict[str, Any], offered: Sequence[Offer], ink: Ink) -> Sentence:
    """Whether the plan fits in memory, and what would make it fit."""
    doubtful = is_doubtful(memory)
    fits = ink.bad("does not fit") if not memory["fits"] else ink.bad("may not fit") if doubtful else ink.good("fits")
    words = (
        f"{fits}: {units.show(memory['device'], 'B')} of {units.show(memory['capacity_bytes'], 'B')} per GPU"
        f" ({memory['device'] / memory['capacity_bytes']:.0%}){_fullest_stage(memory['stage'])}{_fullest_moment(memory['moment'])}"
        f"{_margin_words(group, memory)}{_likely_words(memory)}{_host_shortage(memory.get('host'))}{describe_offers(offered)}"
    )
    values = {"bytes": memory["device"], "capacity_bytes": memory["capacity_bytes"], "likely": memory["fits_probability"]}
    return Sentence(words, "fits" if memory["fits"] else "does-not-fit", values)


def _step_sentence(group: Group, at: int, step: float, ink: Ink) -> Sentence:
    """How long a step takes, with its band, and the rates."""
    rates = {name: number(term.value, at) for name, term in group.throughput.items()}
    utilisations = mfu_words(rates, more=[f"HFU {rates['hfu']:.1%}"], by_6n=_is_all_trained(group), strong=ink.bold)
    band, peak = step_band(group, at, step), group.job.precision.peak
    words = (
        f"step {ink.bold(units.show(step, 's'))}{band_words(band)}, {rates['tokens_per_second']:,.0f} tokens/s"
        f" ({rates['tokens_per_second_per_gpu']:,.0f} per GPU),"
        f" {utilisations}"
        f" of {units.show(group.cluster.accelerator.peak[peak].value, 'FLOP/s', 4)} dense {peak}"
    )
    return Sentence(words, "step", {"seconds": step, "band": band, **{name: rates[name] for name in ("tokens_per_second", "mfu", "hfu")}})


def faster_words(faster: dict[str, Any] | None) -> Iterator[str]:
    """The fastest plan, and its gain, where another was chosen for its evidence; nothing where it gains less than half a percent."""
    if faster is None or faster["gain"] < _WORTH_NAMING:
        return
    plan = {**dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard"), 1), **faster["plan"]}
    gain = f"likely {faster['likely_gain']:.1%} faster ({faster['gain']:.1%} predicted)"
    ends = "".join(f" {end} stage {n:g} layers" for end in ("first", "last") if (n := plan.get(f"{end}_stage_layers") or 0) > 0)
    layout = f"{mesh_words(plan)}{ends}, zero {plan['zero']:g}, micro-batch {plan['micro_batch_size']:g}, recompute {plan['recompute']}"
    if faster["never_measured"]:
        yield f"fastest without evidence: {layout}: {gain}; never measured: {', '.join(faster['never_measured'])}"
    else:
        yield f"fastest: {layout}: {gain}; no published layout"


def support_words(support: dict[str, Any]) -> str:
    """The values of a plan that rest on no measured run; nothing where all do."""
    kind = f"{support['model']}, stacks like {support['stack']}"
    if not support["any"]:
        plan = ", ".join(support["never_measured"]) or "one rank"
        return f"never measured: the table that ships has no run of this kind ({kind}); this plan has {plan}"
    never = f"never measured ({kind}): {', '.join(support['never_measured'])}" if support["never_measured"] else ""
    elsewhere = "" if support["on_accelerator"] else f"the table that ships has no run of this kind ({kind}) on this accelerator"
    return "; ".join(words for words in (never, elsewhere) if words)


def _objective_line(group: Group, plan: dict[str, Any]) -> str:
    """What is trained: the examples of a batch, and the model that is compared with."""
    job = group.job
    assert job.objective is not None
    words = [f"objective: {job.objective.name}"]
    if job.objective.sequences > 1:
        words.append(f"{plan['global_batch_size'] / job.objective.sequences:,.0f} examples of {job.objective.sequences} sequences a step")
        words.append(_examples_of_a_micro_batch(group, plan))
    if job.teacher is not None:
        words.append(f"teacher {job.teacher.title}")
    elif job.objective.reference_passes:
        words.append("reference computed before the run" if job.precomputed_reference else "a frozen reference runs beside it")
    return ", ".join(words)


def _examples_of_a_micro_batch(group: Group, plan: dict[str, Any]) -> str:
    """A micro-batch in examples and in sequences, and which of them the trainer counts."""
    job = group.job
    assert job.objective is not None
    what = "pairs" if job.objective.sequences == 2 else "examples"
    examples = plan["micro_batch_size"] / job.objective.sequences
    one = what.removesuffix("s") if examples == 1.0 else what
    words = f"micro-batch {examples:,.3g} {one} = {plan['micro_batch_size']:,} sequences"
    return f"{words} ({job.framework.name} counts {what})" if job.framework.counts_examples else words


def _is_all_trained(group: Group) -> bool:
    """False where weights are frozen, which 6N does not know."""
    return not (group.job.lora_rank or group.job.model.frozen_layers)


def _adapter_words(group: Group) -> str:
    """The rank of adapters, and the format of the frozen weights beside them."""
    if not group.job.lora_rank:
        return ""
    kind = "DoRA adapters" if group.job.adapter == "dora" else "adapters"
    return f"; {kind} of rank {group.job.lora_rank:g}, frozen weights in {group.job.frozen_weights or group.job.precision.name}"


def parameters_line(counts: dict[str, Any]) -> str:
    """The size of the model, and of its layers where they are of few kinds."""
    kinds = [row for row in counts["kinds"] if row["counted"]]
    line = f"model: {_count(counts['total'])} parameters"
    if counts["active"] != counts["total"]:
        line += f", {_count(counts['active'])} active"
    if counts["trained"] != counts["total"]:
        line += f", {_count(counts['trained'])} trained"
    if len(kinds) > _LISTED_KINDS:
        return f"{line}: {sum(row['layers'] for row in kinds):,.0f} layers of {len(kinds)} kinds (--explain parameters)"
    layers = [f"{row['layers']:,.4g} {row['name']} of {_count(row['of_one'])}{_active_words(row)}" for row in kinds]
    tables = "embedding and output layer in one" if counts["tied"] else "embedding and output layer"
    return f"{line}: {', '.join(layers)}, {tables} {_count(counts['embedding'] + counts['output_layer'])}"


def _count(number: float) -> str:
    """A count of parameters in short: 70.6 B."""
    return units.show(number, "parameter").removesuffix(" parameters")


def _active_words(row: dict[str, Any]) -> str:
    return f" ({_count(row['active_of_one'])} active)" if row["active_of_one"] != row["of_one"] else ""


def waterfall_line(losses: dict[str, float]) -> str:
    """The losses from the peak down to the MFU, in one line."""
    steps = "".join(
        f" {'-' if share > 0.0 else '+'} {name} {abs(share):.1%}"
        for name, share in ((LOSSES[key], losses[key]) for key in LOSSES)
        if abs(share) >= _SMALLEST_SHARE
    )
    return f"MFU: peak 100%{steps} = {losses['mfu']:.1%}"


def _fullest_stage(stage: str) -> str:
    return "" if stage == "only" else f" on the fullest stage ({stage})"


def _fullest_moment(moment: str) -> str:
    """The moment at which memory peaks, where that is before the first step."""
    return "" if moment == "step" else f", fullest at {moment}: {BEFORE_THE_FIRST_STEP[moment]}"


def _margin_words(group: Group, memory: dict[str, Any]) -> str:
    """The margin that the question asks for, where a plan would fit without it."""
    margin = group.cluster.margin
    if not margin or memory["fits"] or memory["device"] > memory["capacity_bytes"]:
        return ""
    return f", which leaves less than the margin of {margin:.1%}"


def _likely_words(memory: dict[str, Any]) -> str:
    """How likely a plan fits."""
    likely = memory["fits_probability"]
    return "" if likely is None else f"; {likelihood(likely)} likely to fit"


def _fit_words(memory: dict[str, Any]) -> str:
    """Whether a plan fits, and how likely where that is less than the certainty of a chosen plan."""
    likely = memory["fits_probability"]
    if not memory["fits"]:
        return "does not fit"
    return "fits" if likely is None or likely >= CERTAINTY else f"fits ({likelihood(likely)} likely)"


def _host_shortage(host: dict[str, Any] | None) -> str:
    """The memory that offloading needs in the host, where the host has less."""
    if host is None or host["capacity_bytes"] is None or host["held"] <= host["capacity_bytes"]:
        return ""
    needed, available = (units.show(host[name], "B") for name in ("held", "capacity_bytes"))
    return f"; offloading needs {needed} of host memory per GPU, the host has {available}"


def band_words(band: Any) -> str:
    """An error band of a step time, in brackets; nothing where there is none."""
    return "" if band is None else f" ({band[2]:.0%} band {units.show(band[0], 's')} to {units.show(band[1], 's')})"


def _larger_batch(group: Group, at: int) -> list[str]:
    """The batch that holds back the run less, with what it gives, where one is much faster."""
    other = group.remedies[at].larger_batch
    if other is None:
        return []
    tokens = in_words(other.value * scalar(group.plan.seq_len, at))
    return [f"a batch of {tokens} tokens (likely {float(likely_rate(other.times, group.folders)):.1f} times the tokens/s)"]


def bound_line(group: Group, at: int, plan: dict[str, Any], fits: bool, ink: Ink) -> str:
    """The roof that binds and what may help: first to fit, then against the largest loss beside computation."""
    bound = bound_data(group, at, False)
    roof, shares = bound["by"], bound["shares"]
    line = f"bound by {ink.bold(roof)} ({shares[roof]:.0%} of the step)"
    if not fits:
        return f"{line}; first make it fit: {', '.join(ways_to_fit(plan))}"
    losses = {name: share for name, share in shares.items() if name != "compute" and share}
    worst = max(losses, key=lambda name: losses[name], default="compute")
    if roof == "compute" and losses.get(worst, 0.0) >= _NAMED_LOSS:
        line, roof = f"{line}; largest loss: {worst} ({losses[worst]:.0%})", worst
    helpful = [*_larger_batch(group, at), *(remedies(group, plan, roof) or remedies(group, plan, bound["by"]))]
    return f"{line}; what helps: {', '.join(helpful)}" if helpful else line


def remedies(group: Group, plan: dict[str, Any], roof: str) -> list[str]:
    """Changes that may shorten the time under a roof; without those that this plan has already, or cannot have."""
    job, several, tp = group.job, plan["num_microbatches"] > 1, plan["tp"]
    fused, peaks = job.framework.norm_bytes.value <= _FUSED_NORM, group.cluster.accelerator.peak
    narrower = any(p.operand_bytes < job.precision.operand_bytes and p.peak in peaks for p in PRECISIONS.values())
    could_overlap = {
        "grad-reduce": plan["dp"] > 1,
        "param-gather": plan["zero"] in (1, 2),
        "tp": tp > 1,
        "pp": plan["vpp"] > 1,
        "ep": plan["ep"] > 1,
    }
    candidates = {
        "compute": {"less recomputation": plan["recompute"] != "none", "lower precision": narrower, "more GPUs": True},
        "hbm": {"flash attention": not job.flash, "compiled kernels": not fused},
        "network": {
            "lower tp": tp > 1,
            "larger micro-batches": several,
            "more overlap": any(possible and name not in plan["overlap"] for name, possible in could_overlap.items()),
            "faster links": True,
        },
        "pipeline": {
            "more micro-batches": True,
            "more chunks (vpp)": schedule_of(job).takes_chunks and plan["pp"] * plan["vpp"] < job.model.num_hidden_layers,
            "fewer stages": plan["pp"] > 1,
        },
        "dispatch": {"larger micro-batches": several, "CUDA graphs": job.cuda_graphs == "none", "compiled kernels": not fused},
        "data": {"--balance flops": job.documents is not None and job.documents.balance == "none", "shorter documents": True},
    }
    return [remedy for remedy, usable in candidates[roof].items() if usable]


def ways_to_fit(plan: dict[str, Any]) -> list[str]:
    """Changes that may make a plan fit; without those that this plan has already, or cannot have."""
    candidates = {
        "higher zero": plan["zero"] < 3 and plan["dp"] > 1,
        "more tp or pp": True,
        "recompute": plan["recompute"] != "full",
        "a smaller micro-batch": plan["micro_batch_size"] > 1,
        "more GPUs": True,
    }
    return [remedy for remedy, usable in candidates.items() if usable]


def _nan_term(tree: Term, at: int) -> str:
    """The deepest term that has no value."""
    return next((t.name for t in reversed(list(tree.walk())) if number(t.value, at) is None), tree.name)


def mesh_words(plan: dict[str, Any]) -> str:
    """The axes that a plan uses by their short names, and layers by stage where they were chosen one by one.

    Of a mixture also how its experts share tensor ranks, which not all stacks do alike, and what dispatches its tokens.
    """
    shown = {n for n in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard") if plan[n] != 1}
    if "moe_dispatcher" in plan and plan["tp"] != 1:
        shown.add("etp")
    axes = " ".join(f"{n} {plan[n]}" for n in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard") if n in shown)
    dispatcher = f" dispatcher {plan['moe_dispatcher']}" if plan.get("moe_dispatcher") and plan["ep"] != 1 else ""
    return (axes + dispatcher + stage_layers_words(plan)) or "one rank"


def stage_layers_words(plan: dict[str, Any]) -> str:
    """Layers by stage where they were chosen one by one, equal neighbours together: `` layers 19 17``."""
    runs = [(n, len(list(same))) for n, same in groupby(plan.get("layers_per_stage", ()))]
    return f" layers {' '.join(f'{n}' if times == 1 else f'{times}x{n}' for n, times in runs)}" if runs else ""


def placement_words(placed: dict[str, Any], gpus: int) -> str:
    """What a job takes of each scale-up domain; nothing where it takes one domain, or whole servers."""
    share, largest, size, domains = (placed[name] for name in ("gpus_per_domain", "most_per_domain", "scale_up_size", "domains"))
    if domains == 1 or (share == size and placed["trays_per_domain"] == 1.0):
        return ""
    if placed["scale_up"].endswith("torus"):
        return f"{domains:,} slices of {share:,} chips"
    kind = "nodes" if placed["trays_per_domain"] == 1.0 else "NVLink domains" if placed["scale_up"].startswith("nv") else "domains"
    taken = f"{share}" if share == largest else f"{share} to {largest}"
    rest = gpus - (domains - 1) * share if share == largest else 0
    last = f", {rest} of the last" if 0 < rest < share else ""
    where = "racks" if kind == "NVLink domains" else kind
    left = f"{placed['free']:,} of {domains * size:,} GPUs in these {where} are left for other jobs, not in the cost"
    free = {0: "", 1: "; 1 GPU is left over"}.get(placed["free"], f"; {left}")
    return f"{taken} of {size} accelerators of each of {domains:,} {kind}{last}{free}"


_IN_SWITCHES = {
    "on": "switches add where they can (NVLS in a domain, SHARP on the fabric)",
    "off": "rings alone, no switch adds",
    "nvls": "switches of a domain add (NVLS)",
    "sharp": "switches of the fabric add gradients (SHARP)",
}


def network_words(placed: dict[str, Any]) -> str:
    """The slice of a torus; what the fabric differs in from one at the NICs' whole rate for this job alone."""
    told, words = placed.get("network", {}), []
    if "topology" in told and placed["gpus_per_domain"] > 1:
        lines = [side for side, ring in zip(told["topology"].split("x"), told["wraps"], strict=True) if not ring and side != "1"]
        which = "one slice" if placed["domains"] == 1 else "slices"
        ends = f"no link joins the ends of axes of {', '.join(dict.fromkeys(lines))}" if lines else "a torus"
        words.append(f"{which} of {told['topology']} chips, {ends}")
    if "network_share" in told:
        words.append(f"{told['network_share']:.4g} of the NICs' bandwidth, as other jobs are assumed to leave")
    if "oversubscription" in told:
        words.append(f"{told['oversubscription']:.4g}:1 between pods of {told['pod_size']:,.0f} accelerators")
    if "in_network_reduction" in told:
        words.append(_IN_SWITCHES[told["in_network_reduction"]])
    return "; ".join(words)


def plan_line(plan: dict[str, Any]) -> str:
    """The plan in the short names everyone uses."""
    return (
        f"plan: {mesh_words(plan)}; zero {plan['zero']}, micro-batch {plan['micro_batch_size']} x {short(plan['num_microbatches'])},"
        f" batch {plan['global_batch_size']} x {plan['seq_len']} tokens, recompute {plan['recompute']},{_overlap_words(plan)}"
        f" {plan['precision']}, {plan['optimizer']}{_host_words(plan['offload'])}, {plan['framework']}"
    )


def _overlap_words(plan: dict[str, Any]) -> str:
    """The overlaps that decide how fast tensor and expert parallelism are: not all stacks and machines have them on."""
    names = [name for name in ("tp", "ep") if name in plan["overlap"] and plan[name] != 1]
    return f" overlap {','.join(names)}," if names else ""


def _host_words(offload: Sequence[str]) -> str:
    """Where states and weights are that are not on the device."""
    if "optimizer" not in offload:
        return ""
    where = " on NVMe" if "nvme" in offload else " in HOST MEMORY"
    return where + (", weights in HOST MEMORY" if "parameters" in offload else "")


def breakdown(group: Group, at: int, ink: Ink) -> Iterator[str]:
    """The parts of the step with bars; micro-batches are opened two levels deep."""
    step = number(group.step.tree.value, at)
    if step is None:
        return
    stage = stage_name(group, at)
    yield ink.bold("Where the step goes") + ("" if stage == "only" else ink.dim(f"  (slowest stage: {stage})"))
    small = []
    for name, seconds, depth, opened in time_lines(group.step.tree, at, number(group.step.tree.times, at)):
        share = seconds / step
        if share >= _SMALLEST_PART or (depth == 0 and share >= _SMALLEST_SHARE):
            yield f"  {'  ' * depth + name:<44}{units.show(seconds, 's'):>10} {share:>6.1%} {bar(share)}"
        elif seconds and not opened:
            small.append(seconds)
    if small:
        label = f"{len(small)} parts under {_SMALLEST_PART:.0%} (--explain)"
        yield ink.dim(f"  {label:<44}{units.show(sum(small), 's'):>10} {sum(small) / step:>6.1%}")
    shares = bound_data(group, at, False)["shares"]
    yield ink.dim(f"  {waterfall_line(waterfall_data(group, at))}")
    yield ink.dim("  by roof: " + ", ".join(f"{k} {v:.1%}" for k, v in shares.items() if v and v >= _SMALLEST_SHARE))


def time_lines(tree: Term, at: int, factor: float = 1.0, depth: int = 0, every: bool = False) -> Iterator[tuple[str, float, int, bool]]:
    """(name, seconds of the whole step, depth, whether its parts follow) of the terms that have a line on the page.

    The passes of a second kind of layer that are those of a kind listed before are not listed again, unless ``every`` line is asked for.
    """
    listed: list[list[tuple[str, float]]] = []
    for part in tree.parts:
        seconds = number(part.value, at) * factor
        inside = part.parts if part.key == MICRO_BATCHES or (depth in (1, 2) and len(part.parts) > 3) else ()
        mix = [(inner.name, number(inner.value, at) * number(part.times, at) * factor / seconds) for inner in inside] if seconds else []
        alike = not every and isinstance(part.key, Kind) and any(_is_alike(mix, other) for other in listed)
        yield f"{part.name} (alike)" if alike else part.name, seconds, depth, bool(inside) and not alike
        if not alike:
            listed.append(mix)
            if inside:
                yield from time_lines(part, at, factor * number(part.times, at), depth + 1, every)


def _is_alike(mix: list[tuple[str, float]], other: list[tuple[str, float]]) -> bool:
    """True for two lists of the same parts with nearly the same shares of the time."""
    same_names = bool(mix) and [name for name, _ in mix] == [name for name, _ in other]
    return same_names and all(abs(a - b) <= _ALIKE for (_, a), (_, b) in zip(mix, other, strict=True))


def memory_lines(group: Group, at: int, ink: Ink) -> Iterator[str]:
    """The memory of the fullest stage with bars against the capacity."""
    memory, capacity = group.memory, group.memory.capacity
    yield ink.bold("Memory of the fullest GPU")
    tree = memory.tree
    for term in (*tree["allocated"].parts, *tree["reserved"].parts[1:], *tree.parts[1:]):
        size = number(term.value, at)
        if size and size / capacity >= _SMALLEST_PART:
            yield f"  {term.name:<44}{units.show(size, 'B'):>10} {size / capacity:>6.1%} {bar(size / capacity)}"
    band = memory_band(group, number(memory.needed, at))
    needed = f"; without allocator slack {units.show(number(memory.needed, at), 'B')}" if band else ""
    between = f" ({band[2]:.0%} band {units.show(band[0], 'B')} to {units.show(band[1], 'B')})" if band else ""
    yield (
        f"  allocated {units.show(number(memory.allocated, at), 'B')}, reserved {units.show(number(memory.reserved, at), 'B')},"
        f" device {units.show(number(memory.device, at), 'B')} of {units.show(capacity, 'B')}{needed}{between}"
    )
    if host := host_data(group, at):
        room = host["capacity_bytes"]
        yield f"  host memory per GPU: {units.show(host['held'], 'B')}" + ("" if room is None else f" of {units.show(room, 'B')}")


def run_lines(group: Group, at: int) -> Iterator[str]:
    """Days, money, energy and carbon of the whole run, without and with failures."""
    run = run_data(group, at)
    if run is None or run["days"] is None:
        return
    missing = [name for name in ("days", "gpu_hours", "kwh", "kg_co2e") if run[name] is None]
    if missing:
        yield f"no estimate of the run: {', '.join(missing)}"
        return
    yield f"The run of {units.show(run['tokens'], 'token')} (no failures)"
    yield (
        f"  {units.run_time(run['days'] * 86400.0)}, {units.amount(run['gpu_hours'])} GPU-hours, {dollars(run['usd'])},"
        f" {units.show(run['kwh'] * 3.6e6, 'J')}, {units.show(run['kg_co2e'], 'kg')} CO2e"
    )
    yield f"  with failures: {_with_failures(run)}"


def _with_failures(run: dict[str, Any]) -> str:
    """The run with failures; where they leave no time for training, a warning says why."""
    if run["days_with_failures"] is None:
        return "never finishes: see the warning"
    count = run["failures"]
    return (
        f"{units.run_time(run['days_with_failures'] * 86400.0)}, {dollars(run['usd_with_failures'])};"
        f" a failure every {units.show(run['mttf_hours'] * 3600.0, 's')} ({format(count, ',.0f' if count >= 10.0 else '.2g')} in all),"
        f" checkpoint every {units.show(run['checkpoint_interval_seconds'], 's')}, goodput {run['goodput']:.1%}"
    )


def published_lines(group: Group, at: int, ink: Ink) -> Iterator[str]:
    """The nearest published run with its measured step and our error, and what would narrow the band."""
    if number(group.step.tree.value, at) is None:
        return
    yield ink.bold("Nearest published run") + ink.dim('  (predicted without its publisher; more with --explain "error band")')
    yield from nearest_lines(band_data(group, at), nearest_runs(group, at)[:1])


def notes(group: Group, at: int, ink: Ink) -> Iterator[str]:
    """Warnings, then every option by its origin: given, chosen by rule, default, override."""
    for warning in warnings(group, at):
        yield ink.bad("warning: ") + warning
    items = assumptions(group, at)
    for origin, title in (("given", "Given"), ("held", "Held"), ("chosen", "Chosen"), ("default", "Assumed"), ("override", "Overridden")):
        listed = [f"{i['name']} {short(i['value'])}" for i in items if i["origin"] == origin and not _is_left_out(i)]
        if listed:
            yield ink.bold(title) + ink.dim(": ") + ", ".join(listed)
    if left := unsearched_data(group, at):
        yield ink.bold("Not searched") + ink.dim(": ") + describe_unsearched(left)


def _is_left_out(item: dict[str, Any]) -> bool:
    """True for options that the title shows already, and for axes that are off by default."""
    if item["origin"] == "given":
        return item["name"] in ("model", "on", "gpus")
    return item["name"] in _LEFT_OUT and item["value"] == _LEFT_OUT[item["name"]]


def row_line(estimate: Estimate, index: int) -> str:
    """One row of many on one line: model, accelerators, step, MFU, memory, bound."""
    group, at = estimate.place_of(index)
    plan, memory = plan_data(group, at), memory_data(group, at)
    if not number(group.legal, at):
        return f"{plan['model']:<22} {plan['gpus']:>6} x {plan['accelerator']:<16} no: {'; '.join(warnings(group, at))}"
    bound = bound_data(group, at, False)
    return (
        f"{plan['model']:<22} {plan['gpus']:>6} x {plan['accelerator']:<16} tp {plan['tp']} pp {plan['pp']} dp {plan['dp']}"
        f"  step {units.show(number(group.step.tree.value, at), 's'):>8}  MFU {number(group.throughput['mfu'].value, at):6.1%}"
        f"  {units.show(memory['device'], 'B'):>8} {_fit_words(memory)}  bound by {bound['by']}"
    )
