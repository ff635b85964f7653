"""The page of a search: the plan, why it, what else, how many, what to buy next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ironlaw import units
from ironlaw.question.defaults import LONG_SEQUENCE
from ironlaw.report.estimate import stage_layers_words
from ironlaw.report.terminal import Ink, dollars, short

_GOALS = {
    "time": "the shortest time",
    "cost": "the least money",
    "energy": "the least energy",
    "carbon": "the least carbon",
    "gpus": "the fewest accelerators",
}
_TERMS = 3  # of a difference
_SIZES = 24  # counts shown
WORTH_SHOWING = 3.0  # times the fastest step: beyond it the page leaves points of the front to the JSON


def page(data: dict[str, Any], colour: bool = False) -> str:
    """The whole answer as text."""
    ink = Ink(colour)
    parts = [head(data, ink)]
    if data["plans"]:
        parts += [best(data, ink), plans(data, ink), sizing(data, ink), pareto(data, ink), advice(data, ink)]
    else:
        parts += [nothing(data, ink), sizing(data, ink)]
    parts.append(notes(data, ink))
    return "\n\n".join(text for text in ("\n".join(p) for p in parts) if text)


def head(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """What was asked and how much was searched."""
    q, s = data["question"], data["space"]
    yield f"{ink.bold(str(q['model']))} on {', '.join(q['on'])}: {_GOALS[q['minimize']]}" + "".join(_limits(q))
    fit = s["legal"] - s["infeasible"]["fits"]
    yield ink.dim(f"{s['legal']:,} legal plans on {s['rows']:,} meshes, about {s['options']:.0f} choices each; {fit:,} fit")
    yield ink.dim(f"searched in {s['seconds']:.2f} s" + (", stopped before the end" if data["partial"] else ""))


def _limits(q: dict[str, Any]) -> Iterator[str]:
    if q["tokens"]:
        yield f" for {units.show(q['tokens'], 'token')}"
    if q["budget"]:
        yield f", at most {q['budget']:,.0f} USD"
    if q["deadline_days"]:
        yield f", in {q['deadline_days']:g} days"
    if q["target_tokens_per_second"]:
        yield f", at least {q['target_tokens_per_second']:,.0f} tokens/s"


def best(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """The best plan and why."""
    plan = data["plans"][0]
    p, t, band = plan["plan"], plan["throughput"], plan["band"]
    axes = " ".join(
        f"{n} {p[n]}" for n in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard") if p[n] != 1
    ) + stage_layers_words(p)
    yield f"{ink.bold('Best')}: {p['gpus']} x {p['accelerator']}, {axes or 'one rank'}, zero {p['zero']}"
    yield (
        f"  micro-batch {p['micro_batch_size']} x {_whole(p['num_microbatches'])}, recompute {p['recompute']},"
        f" overlap {','.join(p['overlap']) or 'none'}{_offloaded(plan)}, {p['precision']}, {p['framework']}"
    )
    told = f" ({band[2]:.0%} band {units.show(band[0], 's')} to {units.show(band[1], 's')})" if band else ""
    yield (
        f"  step {ink.bold(units.show(plan['step']['seconds'], 's'))}{told}, {t['tokens_per_second']:,.0f} tokens/s, MFU {t['mfu']:.1%},"
        f" {plan['memory']['device'] / 2**30:.1f} of {plan['memory']['capacity_bytes'] / 2**30:.1f} GiB"
    )
    if plan["run"] and plan["run"]["days"] is not None:
        yield f"  {_run_line(plan['run'])}"
    if plan["why"]:
        yield f"  why: {_against(plan, data['plans'][1], data['question']['minimize'])}: {_terms(plan['why'])}"
    yield from _shared(data)
    if plan["headroom"] < 0.05:
        more = ": see the plan that leaves 5 %" if any(other["note"] for other in data["plans"]) else ""
        yield ink.dim(f"  it leaves {plan['headroom']:.1%} of the memory{more}")


def _shared(data: dict[str, Any]) -> Iterator[str]:
    """Why sequences are shared over context ranks, or not."""
    c = data["context_parallel"]
    if c["cp"] == 1 and data["question"]["seq_len"] < LONG_SEQUENCE:
        return
    mine = f"cp {c['cp']} by {c['method']}" if c["cp"] > 1 else "cp 1"
    if c["other_seconds"] is not None:
        best = data["plans"][0]["step"]["seconds"]
        other = "the fastest without" if c["cp"] > 1 else f"the fastest with (cp {c['other_cp']})"
        why = f"{other} takes {c['other_seconds'] / best - 1.0:.1%} longer: {_terms(c['why'])}"
    elif c["leanest_bytes"] is not None:
        lean, room = c["leanest_bytes"] / 2**30, c["capacity_bytes"] / 2**30
        why = f"no plan {'without' if c['cp'] > 1 else 'with more'} fits, the leanest holds {lean:.1f} of {room:.1f} GiB"
    else:
        why = f"no plan {'without' if c['cp'] > 1 else 'with more'} is legal, or none was to be tried"
    yield f"  {mine}: {why}"
    if len(c["methods"]) > 1:
        told = ", ".join(f"{name} {units.show(seconds, 's')}" for name, seconds in c["methods"].items())
        yield f"  context ranks by method, each at its fastest: {told}"


def _against(plan: dict[str, Any], other: dict[str, Any], goal: str) -> str:
    """What the next plan has more of the goal, and its step against the best's."""
    longer = other["step"]["seconds"] / plan["step"]["seconds"] - 1.0
    step = f"{abs(longer):.1%} {'longer' if longer >= 0 else 'less'}"
    if goal == "time" and plan["plan"]["gpus"] == other["plan"]["gpus"]:
        return f"the next, {_mesh(other)}, takes {step}"
    words = {"time": "time", "cost": "money", "energy": "energy", "carbon": "carbon", "gpus": "accelerators"}
    return f"the next, {_mesh(other)}, takes {other['goal'] / plan['goal'] - 1.0:.1%} more {words[goal]}, a step {step}"


def _usd(usd: float | None) -> str:
    return "-" if usd is None else f"{usd:,.0f}"


def _run_line(run: dict[str, Any]) -> str:
    line = f"{run['days']:,.1f} days and {dollars(run['usd'])} without failures"
    if run.get("days_with_failures") is None:
        return line
    return f"{line}, {run['days_with_failures']:,.1f} days and {dollars(run['usd_with_failures'])} with them"


def _offloaded(plan: dict[str, Any]) -> str:
    away = [name for name in ("optimizer", "activations") if plan["options"][f"offload_{name}"]]
    return f", offload {','.join(away)}" if away else ""


def _mesh(plan: dict[str, Any]) -> str:
    p = plan["plan"]
    axes = [f"{n} {p[n]}" for n in ("tp", "pp", "cp", "ep") if p[n] != 1] or [f"data parallel alone, zero {p['zero']}"]
    return f"{p['gpus']} x {p['accelerator']} {' '.join(axes)}"


def _terms(why: list[dict[str, Any]]) -> str:
    return ", ".join(f"{'+' if row['seconds'] > 0 else '-'}{units.show(abs(row['seconds']), 's')} {row['term']}" for row in why[:_TERMS])


def _whole(number: Any) -> str:
    return f"{number:.15g}"


_HEADER = f"  {'':3}{'gpus':>6} {'tp':>3} {'pp':>3} {'vpp':>3} {'cp':>3} {'ep':>3} {'dp':>5} {'zero':>4} {'mbs':>3} {'recompute':<10}"


def plans(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """The listed plans as a table."""
    if len(data["plans"]) < 2:
        return
    yield ink.bold("Plans") + ink.dim(f"  (= within {data['told_apart']:.0%}: not to be told from the best)")
    run = f" {'days':>7} {'USD':>12}" if data["question"]["tokens"] else ""
    yield ink.dim(f"{_HEADER} {'step':>8} {'tokens/s':>11} {'MFU':>6} {'memory':>7}{run}")
    for i, plan in enumerate(data["plans"], 1):
        p, worth = plan["plan"], plan["worth"]
        axes = f"{p['tp']:>3} {p['pp']:>3} {p['vpp']:>3} {p['cp']:>3} {p['ep']:>3} {p['dp']:>5}"
        line = (
            f"  {i:>2}{'=' if plan['tie'] else ' '}{p['gpus']:>6} {axes}"
            f" {p['zero']:>4} {p['micro_batch_size']:>3} {p['recompute']:<10} {units.show(plan['step']['seconds'], 's'):>8}"
            f" {plan['throughput']['tokens_per_second']:>11,.0f} {plan['throughput']['mfu']:>6.1%} {1.0 - plan['headroom']:>7.1%}"
        )
        if worth and worth["time"] is not None and worth["cost"] is not None:
            line += f" {worth['time'] / 86400.0:>7,.1f} {worth['cost']:>12,.0f}"
        several = f" {p['accelerator']}" if len(data["question"]["on"]) > 1 else ""
        several += "".join(f" {value}" for name, value in plan["variant"].items() if name != "cp_method" or p["cp"] > 1)
        several += stage_layers_words(p)
        yield line + several + _offloaded(plan).replace(", ", " ", 1) + (f"  {plan['note']}" if plan["note"] else "")
    if told := plans_note(data):
        yield ink.dim(told)


def plans_note(data: dict[str, Any]) -> str:
    """Which of the plans that tie is the simplest."""
    at = data["simplest"]
    if not at:
        return ""
    return f"  of those that cannot be told apart, plan {at + 1} splits the model the fewest ways"


def sizing(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """How many accelerators, where a range was asked."""
    rows = data["sizes"]["by_gpus"]
    if len(rows) < 2:
        return
    yield ink.bold("How many")
    for end in data["sizes"]["ends"]:
        if end["min_gpus"] is not None:
            told = f"from {end['min_gpus']:,.0f} to {end['max_gpus']:,.0f} answer{_gaps(rows, end)}"
            yield f"  {end['accelerator']}: {told}" + _affordable(end)
        elif len(data["plans"]) or end["affordable_gpus"]:
            yield f"  {end['accelerator']}: none answers" + _affordable(end)
    shown = [r for r in rows if r["fits"]]
    if shown:
        run = f" {'days':>9} {'USD':>14}" if data["question"]["tokens"] else ""
        yield ink.dim(f"    {'gpus':>7} {'step':>9} {'tokens/s':>13}{run}")
    for row in _thinned(shown, _SIZES):
        mark = "*" if row["answers"] else " "
        several = f"  {row['accelerator']}" if len(data["question"]["on"]) > 1 else ""
        days = f" {row['days']:>9,.1f} {_usd(row['usd']):>14}" if row["days"] is not None else ""
        yield f"  {mark} {row['gpus']:>7,.0f} {units.show(row['step_seconds'], 's'):>9} {row['tokens_per_second']:>13,.0f}{days}{several}"
    small = [r for r in rows if not r["fits"]]
    if small:
        yield ink.dim(f"  no plan fits or divides on {_listed(sorted({r['gpus'] for r in small}))}")


def _gaps(rows: list[dict[str, Any]], end: dict[str, Any]) -> str:
    inside = [r for r in rows if r["accelerator"] == end["accelerator"] and end["min_gpus"] < r["gpus"] < end["max_gpus"]]
    return "" if all(r["answers"] for r in inside) else ", not every number between"


def _affordable(end: dict[str, Any]) -> str:
    if end["affordable_gpus"] is None:
        return ""
    return f"; the budget holds {end['affordable_gpus']:,.0f} for the whole time"


def _listed(numbers: list[float]) -> str:
    text = ", ".join(f"{n:,.0f}" for n in numbers[:8])
    return text if len(numbers) <= 8 else f"{text} and {len(numbers) - 8} more"


def _thinned(rows: list[Any], most: int) -> list[Any]:
    """At most so many rows: those that answer first of all, with both ends, then evenly."""
    if len(rows) <= most:
        return rows
    keep = {0, len(rows) - 1}
    changes = [i for i in range(1, len(rows)) if rows[i]["answers"] != rows[i - 1]["answers"]]
    keep |= {i for change in changes for i in (change - 1, change)}
    even = [round(i * (len(rows) - 1) / (most - 1)) for i in range(most)]
    for i in even:
        if len(keep) < most:
            keep.add(i)
    return [rows[i] for i in sorted(keep)]


def pareto(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """The front, thinned to a few rows."""
    points = data["pareto"]
    if len(points) < 2:
        return
    names = data["question"]["pareto"]
    yield ink.bold(f"Front of {', '.join(names)}") + ink.dim(f"  ({len(points)} plans that none beats in all)")
    fastest = min(point["step_seconds"] for point in points)
    points = [point for point in points if point["step_seconds"] <= WORTH_SHOWING * fastest]
    count = min(len(points), 8)
    for i in sorted({round(k * (len(points) - 1) / max(count - 1, 1)) for k in range(count)}):
        point = points[i]
        p = point["plan"]
        axes = " ".join(f"{n} {p[n]}" for n in ("tp", "pp", "cp", "ep") if p[n] != 1) or f"zero {p['zero']}"
        several = f"{point['gpus']} x {point['accelerator']} " if len(data["sizes"]["by_gpus"]) > 1 else ""
        values = ", ".join(_objective(name, point["objectives"][name]) for name in names)
        yield f"  step {units.show(point['step_seconds'], 's'):>8}  {values}  {several}{axes}, recompute {p['recompute']}"


def _objective(name: str, value: float | None) -> str:
    if value is None:
        return "no price known"
    shown = {
        "time": lambda v: f"{v / 86400.0:,.2f} days" if v > 3600 else units.show(v, "s"),
        "cost": lambda v: f"{v:,.0f} USD" if v > 100 else f"{v:.3g} USD",
        "energy": lambda v: f"{v / 3.6e9:,.1f} MWh" if v > 1e9 else f"{v / 3.6e6:.3g} kWh",
        "carbon": lambda v: f"{v / 1000.0:,.1f} t CO2e" if v > 1000 else f"{v:.3g} kg CO2e",
        "gpus": lambda v: f"{v:,.0f} gpus",
        "memory": lambda v: f"{v / 2**30:.1f} GiB",
    }
    return shown[name](value)


def advice(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """What to buy next, where the bound changes, how it scales."""
    rows = [r for r in data["advice"] if r["about"] == "resource"]
    if not rows:
        return
    top = rows[0]
    yield ink.bold("What to buy next") + f": {top['name']}" + (f", which is the {top['bound']} roof" if top["bound"] != "capacity" else "")
    for row in rows:
        if row["gain"] < 0.0005:
            continue
        most = f", at best {row['at_best']:.0%}" if row["at_best"] is not None and row["at_best"] < 1.0 else ""
        money = f", worth {row['usd']:,.0f} USD of the run" if row["usd"] and row["usd"] > 0 else ""
        yield f"  {row['name']:<20}{row['change']:>5}  {row['gain']:+.1%} tokens/s{most}{money}"
    idle = [r["name"] for r in rows if r["gain"] < 0.0005]
    if idle:
        yield ink.dim(f"  no gain from {', '.join(idle)}")
    yield from _crossings(data, ink)
    for row in (r for r in data["advice"] if r["about"] == "scaling"):
        points = ", ".join(f"{p['gpus']:,.0f}: {p['efficiency']:.0%}" for p in row["points"])
        yield f"  tokens/s per accelerator against now, {row['name']}: {points}"


def _crossings(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    for row in (r for r in data["advice"] if r["about"] == "crossover"):
        what = {"by": "bound", "lost_to": "largest loss"}
        told = [f"{what[c['what']]} {c['was']} becomes {c['becomes']} between {c['from']:,.0f} and {c['to']:,.0f}" for c in row["changes"]]
        first, last = row["points"][0], row["points"][-1]
        if told:
            yield f"  along {row['name']}: {'; '.join(told)}"
        else:
            yield ink.dim(f"  along {row['name']}, {first['value']:,.0f} to {last['value']:,.0f}: bound by {first['by']} throughout")


def nothing(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """Why no plan answers, and what to change."""
    yield ink.bad("No plan answers.")
    turned = {k: v for k, v in data["space"]["infeasible"].items() if v}
    if any(row["constraint"] in ("budget", "deadline", "target_tokens_per_second") for row in data["misses"]):
        turned.pop("fits", None)  # some plans fit: it is the limits that none keeps to
    if turned:
        told = ", ".join(f"{count:,} {'plans do not fit' if rule == 'fits' else f'meshes break {rule}'}" for rule, count in turned.items())
        yield f"  turned away: {told}"
    elif not data["space"]["rows"]:
        yield "  no tp, pp, cp and data parallel together divide the accelerators and the batch"
    for i, row in enumerate(data["misses"]):
        yield f"  {'relax' if i == 0 else '   or'} {_miss(row)}"
    if not data["misses"]:
        yield "  no single change of the question was found that helps: loosen several, or widen the space (--space)"


def _miss(row: dict[str, Any]) -> str:
    name, now, needs = row["constraint"], row["is"], row["needs"]
    where = f" (at {row['gpus']:,.0f} x {row['accelerator']})" if row["accelerator"] and name != "gpus" else ""
    if name == "memory":
        return (
            f"the memory of {row['accelerator']}: the leanest plan needs {needs / 2**30:.1f} GiB of {now / 2**30:.1f} GiB,"
            f" {needs / now - 1.0:+.0%}{where}"
        )
    if name == "deadline":
        return f"the deadline: {now / 86400.0:g} days to {needs / 86400.0:,.1f}{where}"
    if name == "budget":
        return f"the budget: {now:,.0f} USD to {needs:,.0f} USD{where}"
    if name == "target_tokens_per_second":
        return f"the rate: {now:,.0f} tokens/s to {needs:,.0f}{where}"
    if name == "gpus":
        return f"the number of accelerators: {now:,.0f} to {needs:,.0f}"
    if name == "global_batch_size":
        return f"the batch: {now:,.0f} sequences to {needs:,.0f}{where}"
    return f"{name}: held at {now}, free it (then {needs}){where}"


def notes(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """Warnings, then what was taken on the user's behalf."""
    for warning in dict.fromkeys(data["warnings"]):
        yield ink.bad("warning: ") + warning
    hidden = ("cp", "etp", "count_embedding")
    taken = [f"{a['name']} {short(a['value'])}" for a in data["assumptions"] if a["origin"] == "default" and a["name"] not in hidden]
    if taken:
        yield ink.bold("Assumed") + ink.dim(": ") + ", ".join(taken)
