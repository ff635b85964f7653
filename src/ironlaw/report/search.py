"""The page of a search: the best plan and why, the other plans, how many accelerators, the Pareto front, what to buy next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Sentence, headline_data, sentences
from ironlaw.estimate.answer.as_data import overlap_words
from ironlaw.estimate.legality.rules import RULES
from ironlaw.estimate.planner.unsearched import describe_unsearched
from ironlaw.question.defaults import LONG_SEQUENCE, OFFLOADS
from ironlaw.report.estimate import (
    band_words,
    mesh_words,
    network_words,
    parameters_line,
    placement_words,
    stage_layers_words,
    support_words,
    waterfall_line,
)
from ironlaw.report.layouts import layout_lines
from ironlaw.report.near import near_best, one_less
from ironlaw.report.terminal import Ink, dollars, short, variant_words
from ironlaw.search.why import shortest_why

_GOALS = {
    "time": "shortest time",
    "cost": "lowest cost",
    "energy": "lowest energy",
    "carbon": "lowest carbon",
    "gpus": "fewest accelerators",
}
_LIMITS = {"deadline_days": "the deadline", "budget": "the budget", "target_tokens_per_second": "the rate"}
_SCALED = {"batch held": "with the same global batch", "batch grown along": "with a global batch that grows in proportion"}
_LEFT_OUT = ("cp", "etp", "count_embedding")  # assumptions that have no place on the page
_TERMS = 3  # shown of a difference
_SIZES = 24  # numbers of accelerators shown
_NO_GAIN = 0.0005  # of the step time
SLOWEST_SHOWN = 3.0  # times the fastest step: slower points of the front are in the JSON alone


def page(data: dict[str, Any], colour: bool = False) -> str:
    """The whole answer as text."""
    ink = Ink(colour)
    parts = [head(data, ink)]
    if data["plans"]:
        parts += [
            best(data, ink),
            plans(data, ink),
            layout_lines(data["published_layouts"], ink),
            near_best(data, ink),
            one_less(data, ink),
            sizing(data, ink),
            pareto(data, ink),
            advice(data, ink),
        ]
    else:
        parts += [no_plan(data, ink), sizing(data, ink)]
    parts.append(notes(data, ink))
    return "\n\n".join(text for text in ("\n".join(p) for p in parts) if text)


def head(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """The question, and how much was searched."""
    q, s = data["question"], data["space"]
    yield f"{ink.bold(str(q['model']))} on {', '.join(q['on'])}: {_GOALS[q['minimize']]}" + "".join(_limits(q))
    fit = s["legal"] - s["infeasible"]["fits"]
    counts = f"{s['legal']:,} legal plans on {s['rows']:,} meshes, about {s['options']:.0f} choices each; {fit:,} fit"
    yield ink.dim(counts if s["legal"] else "no legal plan")
    if s["legal"]:
        yield ink.dim(f"{s['timed']:,} timed; {s['excluded']:,} excluded by bounds of their time and memory")
    yield ink.dim(f"searched in {s['seconds']:.2f} s" + (", stopped before the end" if data["partial"] else ""))


def headline(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The question of a search and its best plan, or why no plan meets it, as plain data."""
    ink, question = Ink(False), data["question"]
    lines: list[Sentence] = [Sentence(next(head(data, ink)), "question", {name: question[name] for name in ("model", "on", "minimize")})]
    if not data["plans"]:
        return headline_data([*lines, *(Sentence(line.strip(), "no-plan") for line in no_plan(data, ink) if line)])
    plan = data["plans"][0]
    memory, rates, run = plan["memory"], plan["throughput"], plan["run"] or {}
    step = {"seconds": plan["step"]["seconds"], "band": plan["band"], "tokens_per_second": rates["tokens_per_second"], "mfu": rates["mfu"]}
    told = (
        ("best", {name: plan["plan"][name] for name in ("gpus", "accelerator")}),
        ("plan", plan["plan"]),
        ("step", {**step, "bytes": memory["device"], "capacity_bytes": memory["capacity_bytes"]}),
    )
    first = [line.strip() for line in best(data, ink)][: len(told)]
    lines += [Sentence(line, code, values) for line, (code, values) in zip(first, told, strict=True)]
    if run.get("days") is not None:
        lines.append(Sentence(run_line(run), "run", {name: run[name] for name in ("days", "usd", "kwh", "kg_co2e")}))
    return headline_data(lines)


def _limits(q: dict[str, Any]) -> Iterator[str]:
    """The limits of the search in words."""
    if q["tokens"]:
        yield f" for {units.show(q['tokens'], 'token')}"
    if q["budget"]:
        yield f", at most {q['budget']:,.0f} USD"
    if q["deadline_days"]:
        yield f", in {q['deadline_days']:g} days"
    if q["target_tokens_per_second"]:
        yield f", at least {q['target_tokens_per_second']:,.0f} tokens/s"


def best(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """The best plan and why it is the best."""
    plan = data["plans"][0]
    p, rates, memory = plan["plan"], plan["throughput"], plan["memory"]
    yield f"{ink.bold('Best')}: {p['gpus']} x {p['accelerator']}, {mesh_words(p)}, zero {p['zero']}"
    yield (
        f"  micro-batch {p['micro_batch_size']} x {short(p['num_microbatches'])}, recompute {p['recompute']},"
        f" overlap {overlap_words(p)}{_offloaded(plan)}, {p['precision']}, {p['framework']}"
    )
    yield (
        f"  step {ink.bold(units.show(plan['step']['seconds'], 's'))}{band_words(plan['band'])},"
        f" {rates['tokens_per_second']:,.0f} tokens/s, MFU {rates['mfu']:.1%},"
        f" {memory['device'] / 2**30:.1f} of {memory['capacity_bytes'] / 2**30:.1f} GiB{likely_words(memory['fits_probability'])}"
    )
    if words := placement_words(plan["placement"], p["gpus"]):
        yield f"  {words}"
    if words := network_words(plan["placement"]):
        yield f"  {words}"
    if words := support_words(plan["support"]):
        yield f"  {words}"
    yield f"  {waterfall_line(plan['mfu_waterfall'])}"
    yield f"  {parameters_line(plan['parameters'])}"
    if plan["run"] and plan["run"]["days"] is not None:
        yield f"  {run_line(plan['run'])}"
    if plan["why"]:
        yield f"  why: {_slower(plan, data['plans'][1], data['question']['minimize'])}: {_terms(plan['why'])}"
    yield from _context_parallel(data)
    if not memory["keeps_margin"]:
        yield ink.dim(f"  uses {1.0 - plan['headroom']:.1%} of the memory and may run out: no plan keeps {memory['margin']:.1%} free")


def likely_words(probability: float | None) -> str:
    """How likely a plan fits: ``, 98% likely to fit``."""
    return "" if probability is None else f", {probability:.0%} likely to fit"


def _context_parallel(data: dict[str, Any]) -> Iterator[str]:
    """Why the best plan uses context parallelism, or does not."""
    c = data["context_parallel"]
    if c["cp"] == 1 and data["question"]["seq_len"] < LONG_SEQUENCE:
        return
    uses_cp = c["cp"] > 1
    line = f"cp {c['cp']} ({c['method']}): without it" if uses_cp else f"cp 1: with cp {c['other_cp'] or '> 1'}"
    if c["other_seconds"] is not None:
        longer = c["other_seconds"] / data["plans"][0]["step"]["seconds"] - 1.0
        why = f"the fastest plan takes {_likely(longer, c['likely_longer'])}: {_terms(c['why'])}"
    elif c["leanest_bytes"] is not None:
        why = f"no plan fits: the smallest needs {c['leanest_bytes'] / 2**30:.1f} GiB of {c['capacity_bytes'] / 2**30:.1f} GiB"
    else:
        why = "no plan is legal, or none is in the search space"
    yield f"  {line} {why}"
    if len(c["methods"]) > 1:
        methods = ", ".join(f"{name} {units.show(seconds, 's')}" for name, seconds in c["methods"].items())
        yield f"  fastest plan by context-parallel method: {methods}"


def _slower(plan: dict[str, Any], other: dict[str, Any], goal: str) -> str:
    """How much more of the goal the next plan needs, and its step time against the best plan's."""
    longer = other["step"]["seconds"] / plan["step"]["seconds"] - 1.0
    step = f"{abs(longer):.1%} {'longer' if longer >= 0 else 'less'}"
    if goal == "time" and plan["plan"]["gpus"] == other["plan"]["gpus"]:
        return f"the next, {_mesh(other)}, takes {_likely(longer, other['likely_longer'])}"
    words = {"time": "time", "cost": "money", "energy": "energy", "carbon": "carbon", "gpus": "accelerators"}
    if other["goal"] == plan["goal"]:
        more = "no more"
    elif plan["goal"]:
        more = f"{other['goal'] / plan['goal'] - 1.0:.1%} more"
    else:  # machines or power that cost nothing
        more = "more"
    return f"the next, {_mesh(other)}, takes {more} {words[goal]}, a step {step}"


def _likely(longer: float, likely: float | None) -> str:
    """How much longer a plan takes, by what was measured of predicted differences; the prediction itself in brackets."""

    def words(share: float) -> str:
        return f"{abs(share):.1%} {'longer' if share >= 0 else 'less'}"

    return words(longer) if likely is None else f"likely {words(likely)} ({abs(longer):.1%} predicted)"


def _usd(usd: float | None) -> str:
    return "-" if usd is None else f"{usd:,.0f}"


def run_line(run: dict[str, Any]) -> str:
    """Time and money of a run, without and with failures."""
    line = f"{units.run_time(run['days'] * 86400.0)} and {dollars(run['usd'])} without failures"
    if run.get("days_with_failures") is None:
        return line
    return f"{line}, {units.run_time(run['days_with_failures'] * 86400.0)} and {dollars(run['usd_with_failures'])} with them"


def _offloaded(plan: dict[str, Any]) -> str:
    names = [name for name in OFFLOADS if plan["options"][f"offload_{name}"]]
    return f", offload {','.join(names)}" if names else ""


def _mesh(plan: dict[str, Any]) -> str:
    p = plan["plan"]
    axes = [f"{n} {p[n]}" for n in ("tp", "pp", "cp", "ep") if p[n] != 1] or [f"data parallel alone, zero {p['zero']}"]
    return f"{p['gpus']} x {p['accelerator']} {' '.join(axes)}"


def _terms(why: list[dict[str, Any]]) -> str:
    """The largest terms of a difference and the rest of it, so that what is printed says which plan is slower."""
    shown = ((row["seconds"], row["term"]) for row in shortest_why(why, _TERMS))
    return ", ".join(f"{'+' if seconds > 0 else '-'}{units.show(abs(seconds), 's')} {term}" for seconds, term in shown)


_HEADER = f"  {'':3}{'gpus':>6} {'tp':>3} {'pp':>3} {'vpp':>3} {'cp':>3} {'ep':>3} {'dp':>5} {'zero':>4} {'mbs':>3} {'recompute':<10}"


def plans(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """The listed plans as a table."""
    if len(data["plans"]) < 2:
        return
    yield ink.bold("Plans") + ink.dim(f"  (= within {data['told_apart']:.0%}: too close to the best to rank)")
    run = f" {'days':>7} {'USD':>12}" if data["question"]["tokens"] else ""
    yield ink.dim(f"{_HEADER} {'step':>8} {'tokens/s':>11} {'MFU':>6} {'memory':>7} {'fastest':>7}{run}")
    several = len(data["question"]["on"]) > 1
    for number, plan in enumerate(data["plans"], 1):
        yield _plan_row(plan, number, several)
    yield from (_unmeasured(number, plan) for number, plan in enumerate(data["plans"], 1) if plan["note"] in _AHEAD)
    if data["winner_bias"]:
        yield ink.dim(f"  picked as the fastest of many predictions, plan 1 may take up to {data['winner_bias']:.1%} longer than said")
    if data["simplest"]:
        yield ink.dim(f"  of the plans too close to rank, plan {data['simplest'] + 1} splits the model least")


_AHEAD = ("without evidence", "not published")  # notes of plans that are faster than the best


def _unmeasured(number: int, plan: dict[str, Any]) -> str:
    """The gain of a plan that is faster than the best, which was measured or published."""
    likely, predicted = (1.0 / (1.0 + plan[name]) - 1.0 for name in ("likely_longer", "longer"))
    never = ", ".join(plan["support"]["never_measured"])
    why = f"never measured: {never}" if never else "no published layout, as plan 1 is"
    return f"  plan {number} is likely {likely:.1%} faster than plan 1 ({predicted:.1%} predicted); {why}"


def _plan_row(plan: dict[str, Any], number: int, several: bool) -> str:
    """One plan of the table of plans."""
    p, totals = plan["plan"], plan["worth"]
    row = (
        f"  {number:>2}{'=' if plan['tie'] else ' '}{p['gpus']:>6}"
        f" {p['tp']:>3} {p['pp']:>3} {p['vpp']:>3} {p['cp']:>3} {p['ep']:>3} {p['dp']:>5}"
        f" {p['zero']:>4} {p['micro_batch_size']:>3} {p['recompute']:<10} {units.show(plan['step']['seconds'], 's'):>8}"
        f" {plan['throughput']['tokens_per_second']:>11,.0f} {plan['throughput']['mfu']:>6.1%} {1.0 - plan['headroom']:>7.1%}"
        f" {'-' if plan['fastest_probability'] is None else format(plan['fastest_probability'], '.0%'):>7}"
    )
    if totals and totals["time"] is not None and totals["cost"] is not None:
        row += f" {totals['time'] / 86400.0:>7,.1f} {totals['cost']:>12,.0f}"
    row += f" {p['accelerator']}" if several else ""
    row += "".join(f" {word}" for word in variant_words(plan["variant"], p["cp"]))
    return row + stage_layers_words(p) + _offloaded(plan).replace(", ", " ", 1) + (f"  {plan['note']}" if plan["note"] else "")


def sizing(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """How many accelerators, where a range was asked."""
    rows, question = data["sizes"]["by_gpus"], data["question"]
    if len(rows) < 2:
        return
    limits = " and ".join(words for name, words in _LIMITS.items() if question[name])
    meet = f"meet {limits}" if limits else "fit"
    yield ink.bold("How many") + ink.dim(f"  (* {meet})" if limits else "")
    for end in data["sizes"]["ends"]:
        if end["min_gpus"] is not None:
            yield f"  {end['accelerator']}: {_range(rows, end, meet)}" + _affordable(end)
        elif data["plans"] or end["affordable_gpus"]:
            yield f"  {end['accelerator']}: no number of accelerators tried can {meet}" + _affordable(end)
    shown = [r for r in rows if r["fits"]]
    if shown:
        run = f" {'days':>9} {'USD':>14}" if question["tokens"] else ""
        yield ink.dim(f"    {'gpus':>7} {'step':>9} {'tokens/s':>13}{run}")
    for row in _thin_out(shown, _SIZES):
        mark = "*" if row["answers"] else " "
        accelerator = f"  {row['accelerator']}" if len(question["on"]) > 1 else ""
        days = f" {row['days']:>9,.1f} {_usd(row['usd']):>14}" if row["days"] is not None else ""
        step, rate = units.show(row["step_seconds"], "s"), row["tokens_per_second"]
        yield f"  {mark} {row['gpus']:>7,.0f} {step:>9} {rate:>13,.0f}{days}{accelerator}"
    without = sorted({r["gpus"] for r in rows if not r["fits"]})
    if without:
        yield ink.dim(f"  no plan fits or divides the batch on {_first_eight(without)}")


def _range(rows: list[dict[str, Any]], end: dict[str, Any], meet: str) -> str:
    """The numbers of accelerators that meet the limits, and the largest below them that does not."""
    low, high = end["min_gpus"], end["max_gpus"]
    same_device = [r for r in rows if r["accelerator"] == end["accelerator"]]
    numbers = f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
    gaps = "" if all(r["answers"] for r in same_device if low < r["gpus"] < high) else ", but not every number between"
    below = max((r["gpus"] for r in same_device if r["gpus"] < low), default=None)
    return f"{numbers} {meet}{gaps}" + ("" if below is None else f"; {below:,.0f} do not")


def _affordable(end: dict[str, Any]) -> str:
    if end["affordable_gpus"] is None:
        return ""
    return f"; the budget pays for {end['affordable_gpus']:,.0f} until the deadline"


def _first_eight(numbers: list[float]) -> str:
    text = ", ".join(f"{n:,.0f}" for n in numbers[:8])
    return text if len(numbers) <= 8 else f"{text} and {len(numbers) - 8} more"


def _thin_out(rows: list[Any], limit: int) -> list[Any]:
    """At most ``limit`` rows: both ends, the rows on either side of every change of the answer, then evenly spaced ones."""
    if len(rows) <= limit:
        return rows
    keep = {0, len(rows) - 1}
    changes = [i for i in range(1, len(rows)) if rows[i]["answers"] != rows[i - 1]["answers"]]
    keep |= {i for change in changes for i in (change - 1, change)}
    even = [round(i * (len(rows) - 1) / (limit - 1)) for i in range(limit)]
    for i in even:
        if len(keep) < limit:
            keep.add(i)
    return [rows[i] for i in sorted(keep)]


def pareto(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """The Pareto front, thinned to a few rows."""
    points = data["pareto"]
    if len(points) < 2:
        return
    names = data["question"]["pareto"]
    yield ink.bold(f"Pareto front of {', '.join(names)}") + ink.dim(f"  ({len(points)} plans)")
    fastest = min(point["step_seconds"] for point in points)
    points = [point for point in points if point["step_seconds"] <= SLOWEST_SHOWN * fastest]
    count = min(len(points), 8)
    for i in sorted({round(k * (len(points) - 1) / max(count - 1, 1)) for k in range(count)}):
        point = points[i]
        p = point["plan"]
        axes = " ".join(f"{n} {p[n]}" for n in ("tp", "pp", "cp", "ep") if p[n] != 1) or f"zero {p['zero']}"
        accelerators = f"{point['gpus']} x {point['accelerator']} " if len(data["sizes"]["by_gpus"]) > 1 else ""
        values = ", ".join(_objective(name, point["objectives"][name]) for name in names)
        yield f"  step {units.show(point['step_seconds'], 's'):>8}  {values}  {accelerators}{axes}, recompute {p['recompute']}"


def _objective(name: str, value: float | None) -> str:
    """The value of an objective with its unit."""
    if value is None:
        return "no price known"
    shown = {
        "time": lambda v: f"{v / 86400.0:,.2f} days" if v > 3600 else units.show(v, "s"),
        "cost": lambda v: f"{units.amount(v)} USD",
        "energy": lambda v: units.show(v, "J", 4),
        "carbon": lambda v: f"{units.show(v, 'kg', 4)} CO2e",
        "gpus": lambda v: f"{v:,.0f} gpus",
        "memory": lambda v: f"{v / 2**30:.1f} GiB",
    }
    return shown[name](value)


def advice(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """What to buy next, where the bound changes, and how the plan scales."""
    rows = [r for r in data["advice"] if r["about"] == "resource"]
    if not rows:
        return
    top = rows[0]
    yield ink.bold("What to buy next") + f": {top['name']}" + (f", which is the {top['bound']} roof" if top["bound"] != "capacity" else "")
    for row in rows:
        if row["gain"] < _NO_GAIN:
            continue
        at_best = f", at best {row['at_best']:.0%}" if row["at_best"] is not None and row["at_best"] < 1.0 else ""
        saving = f", saves {units.amount(row['usd'])} USD of the run" if row["usd"] and row["usd"] > 0 else ""
        yield f"  {row['name']:<20}{row['change']:>5}  {row['gain']:+.1%} tokens/s{at_best}{saving}"
    useless = [r["name"] for r in rows if r["gain"] < _NO_GAIN]
    if useless:
        yield ink.dim(f"  no gain from {', '.join(useless)}")
    yield from _crossovers([row for row in data["advice"] if row["about"] == "crossover"], ink)
    for row in (r for r in data["advice"] if r["about"] == "scaling"):
        points = ", ".join(f"{p['efficiency']:.0%} on {p['gpus']:,.0f}" for p in row["points"])
        yield f"  tokens/s per accelerator {_SCALED[row['name']]}: {points}"


def _crossovers(rows: Sequence[dict[str, Any]], ink: Ink) -> Iterator[str]:
    """Axes along which the bound stays, by bound in one line; then where the bound and the largest loss change along the others."""
    same: dict[str, list[str]] = {}
    for row in rows:
        if not row["changes"]:
            same.setdefault(row["points"][0]["by"], []).append(_axis(row))
    for bound, axes in same.items():
        yield ink.dim(f"  {', '.join(axes)}: {bound}-bound throughout")
    name = {"by": "bound", "lost_to": "largest loss"}
    for row in (row for row in rows if row["changes"]):
        changes = [
            f"{name[c['what']]} changes from {c['was']} to {c['becomes']} at {c['from']:,.0f} to {c['to']:,.0f}" for c in row["changes"]
        ]
        yield f"  {_axis(row)}: {'; '.join(changes)}"


def _axis(row: dict[str, Any]) -> str:
    """An axis and the values that were tried of it."""
    return f"{row['name']} {row['points'][0]['value']:,.0f} to {row['points'][-1]['value']:,.0f}"


def no_plan(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """Why no plan meets the question, and what to change."""
    yield ink.bad("No plan meets the question.")
    rejected = {rule: count for rule, count in data["space"]["infeasible"].items() if count}
    if any(row["constraint"] in ("budget", "deadline", "target_tokens_per_second") for row in data["misses"]):
        rejected.pop("fits", None)  # some plans fit: none of them meets the limits
    for rule, count in rejected.items():
        yield f"  rejected: {count:,} " + ("plans do not fit" if rule == "fits" else f"meshes, which break {rule}: {RULES[rule]}")
    if not rejected and not data["space"]["rows"]:
        yield "  no combination of tp, pp, cp and data parallelism divides the accelerators and the batch"
    if data["misses"]:
        yield "  one of these changes is enough, the smallest first:"
    for row in data["misses"]:
        yield f"    {_miss(row)}"
    if not data["misses"]:
        yield "  no single change was found that is enough: relax several limits, or widen the search space (--space)"


def _miss(row: dict[str, Any]) -> str:
    """One limit, and the value that it needs."""
    name, current, needs = row["constraint"], row["is"], row["needs"]
    where = f" (at {row['gpus']:,.0f} x {row['accelerator']})" if row["accelerator"] and name != "gpus" else ""
    if name == "memory":
        shortage = f"{needs / current - 1.0:+.0%}"
        return f"memory: the smallest plan needs {needs / 2**30:.1f} GiB per GPU, a GPU has {current / 2**30:.1f} GiB, {shortage}{where}"
    if name == "deadline":
        return f"deadline: {current / 86400.0:g} days to {needs / 86400.0:,.1f}{where}"
    if name == "budget":
        return f"budget: {current:,.0f} USD to {needs:,.0f} USD{where}"
    if name == "target_tokens_per_second":
        return f"rate: {current:,.0f} tokens/s to {needs:,.0f}{where}"
    if name == "gpus":
        return f"number of accelerators: {current:,.0f} to {needs:,.0f}"
    if name in ("offload", "weights_dtype"):
        return f"{row['note']}{where}"
    if name == "global_batch_size":
        return f"global batch: {current:,.0f} sequences to {needs:,.0f}{where}"
    return f"{name}: only {current} is allowed; without that limit, {name} {needs} fits{where}"


def notes(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """Warnings, then the defaults that the search assumed."""
    for warning in sentences(data["warnings"]):
        yield ink.bad("warning: ") + warning
    defaults = [a for a in data["assumptions"] if a["origin"] == "default" and a["name"] not in _LEFT_OUT]
    if defaults:
        yield ink.bold("Assumed") + ink.dim(": ") + ", ".join(f"{a['name']} {short(a['value'])}" for a in defaults)
    yield ink.bold("Not searched") + ink.dim(": ") + describe_unsearched(data["question"]["not_searched"])
