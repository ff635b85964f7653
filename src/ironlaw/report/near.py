"""The lines of a search's page about the plans near the best, what is free to choose, and what one node less costs."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill
from typing import Any

from ironlaw import units
from ironlaw.question.defaults import OFFLOADS
from ironlaw.report.estimate import mesh_words, stage_layers_words
from ironlaw.report.terminal import Ink, dollars, variant_words

_WORDS = {"micro_batch_size": "micro-batch", "dp_replicate": "replicas", "cp_method": "method of cp", "moe_dispatcher": "dispatcher"}
_WIDTH = 140  # of a line
_LISTED = 3  # values of an axis with their costs; of more the ends alone
_COLUMNS = (("tp", 3), ("pp", 3), ("vpp", 3), ("cp", 3), ("ep", 3), ("dp", 5), ("zero", 4), ("mbs", 3))  # with their widths


def near_best(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """The plans within 2 % that differ most from the best, the simplest first, and the axes that are free."""
    near = data["near"]
    if near is None or data["space"]["legal"] < 2:
        return
    if near["count"] < 2:
        yield ink.bold("Near the best") + f": no other plan is within {near['within']:.0%}"
        return
    other = f", {near['without_overlap']:,} if overlap is not counted" if near["without_overlap"] < near["count"] else ""
    yield ink.bold("Near the best") + ink.dim(f"  ({near['count']:,} plans within {near['within']:.0%}{other}; the simplest first)")
    if (slope := data["gain_slope"]) != 1.0:
        yield ink.dim(f"  differences are what is likely: of a predicted difference {slope:.0%} was measured")
    if near["plans"]:
        header = " ".join(f"{name:>{width}}" for name, width in _COLUMNS)
        yield ink.dim(f"     {header} {'recompute':<10} {'step':>8} {'longer':>6} {'memory':>7} {'faster':>7}")
    for row in near["plans"]:
        yield _near_row(row, data["plans"][0]["memory"]["capacity_bytes"])
    if near["simplest"] is None:
        yield f"  simplest plan within {near['within']:.0%}: the best itself"
    else:
        row = near["plans"][near["simplest"]]
        yield f"  simplest plan within {near['within']:.0%}: {mesh_words(_with_dp(row['plan']))}, {row['likely_longer']:+.1%}"
    if near["free"]:
        words = "; ".join(map(_free_words, near["free"]))
        yield fill(words, _WIDTH, initial_indent="  free to choose: ", subsequent_indent="    ", break_on_hyphens=False)
    if any(item["longer"] is None for row in near["free"] for item in row["values"]):
        yield ink.dim("  (* only with another change of the layout)")
    if words := _fixed_words(near["fixed"]):
        yield f"  not free: {words}"


def _near_row(row: dict[str, Any], capacity: float) -> str:
    """One plan near the best."""
    p = _with_dp(row["plan"])
    p["mbs"] = p["micro_batch_size"]
    axes = " ".join(f"{p[name]:>{width}}" for name, width in _COLUMNS)
    step, used = units.show(row["step_seconds"], "s"), row["device_bytes"] / capacity
    likely = "-" if row["faster_probability"] is None else f"{row['faster_probability']:.0%}"
    text = f"     {axes} {p['recompute']:<10} {step:>8} {row['likely_longer']:>+6.1%} {used:>7.1%} {likely:>7}"
    offload = ",".join(name for name in OFFLOADS if p[f"offload_{name}"])
    variant = variant_words(row["variant"], p["cp"])
    return " ".join([text, *variant, *([f"offload {offload}"] if offload else [])]) + stage_layers_words(p)


def _with_dp(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan with its data-parallel ranks."""
    return {**plan, "dp": plan["dp_replicate"] * plan["dp_shard"]}


def _free_words(row: dict[str, Any]) -> str:
    """An axis with its values near the best and what they cost: ``cp 1 or 2 (+0.8%)``."""
    values = row["values"]
    if isinstance(row["best"], bool):
        values = sorted(values, key=lambda item: item["value"] != row["best"])
    if len(values) > _LISTED:
        costs = [item["likely_longer"] for item in values]
        ends = f"{_name(row['axis'])} {_value(values[0]['value'])} to {_value(values[-1]['value'])}"
        return f"{ends}{'*' if None in costs else ''} (up to {max(cost or 0.0 for cost in costs):+.1%})"
    words = [_value(item["value"]) + _cost(item["likely_longer"], item["value"] == row["best"]) for item in values]
    return f"{_name(row['axis'])} {', '.join(words[:-1])} or {words[-1]}"


def _cost(longer: float | None, best: bool) -> str:
    return "" if best else "*" if longer is None else f" ({longer:+.1%})"


def _fixed_words(fixed: dict[str, Any]) -> str:
    """The axes that have one value near the best; of switches those that are on."""
    words = [f"{_name(axis)} {value}" for axis, value in fixed.items() if not isinstance(value, bool) and (axis, value) != ("vpp", 1)]
    overlaps = [axis for axis in fixed if axis.startswith("overlap_") and fixed[axis]]
    words += [f"{_name(axis)} on" for axis, value in fixed.items() if value is True and axis not in overlaps]
    names = [axis.removeprefix("overlap_").replace("_", "-") for axis in overlaps]
    return ", ".join(words + ([f"overlap of {' and '.join([', '.join(names[:-1])] * (len(names) > 1) + names[-1:])}"] if names else []))


def _name(axis: str) -> str:
    return _WORDS.get(axis, axis.replace("overlap_", "overlap of ").replace("offload_", "offload of ").replace("_", "-"))


def _value(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def one_less(data: dict[str, Any], ink: Ink) -> Iterator[str]:
    """The run without one node, tray, rack or slice: with another batch and with the same one, what loses less first."""
    less = data["one_less"]
    if less is None:
        return
    gpus, batch = f"{less['gpus']:,} accelerators", data["question"]["global_batch_size"]
    why = {"divides": f"no tp, pp, cp and dp divide {gpus} and the batch of {batch:,.0f}", "fits": f"no plan fits {gpus}"}
    yield ink.bold(f"One {less['unit']} less") + f": {why[less['why']] if less['why'] else gpus}"
    found = [(name, less[name]) for name in ("same_layout", "near_batch", "same_batch") if less[name]]
    for name, entry in sorted(found, key=lambda item: float(item[1]["lost"])):
        count, sequences, mesh = f"{entry['gpus']:,}", f"{entry['global_batch_size']:,}", mesh_words(_with_dp(entry["plan"]))
        how = {
            "same_layout": f"with the same layout on {count}, batch {sequences}",
            "near_batch": f"with a batch of {sequences} on {count}: {mesh}",
            "same_batch": f"with the same batch on {count}: {mesh}",
        }
        yield f"  {how[name]}{':' if name == 'same_layout' else ','} {_lost(entry)}"
    if not found:
        yield "  no plan was found on fewer accelerators"


def _lost(entry: dict[str, Any]) -> str:
    """The step, the rate and what they cost against the best plan."""
    words = [f"step {units.show(entry['step_seconds'], 's')}", f"{entry['tokens_per_second']:,.0f} tokens/s", _share_lost(entry)]
    for name, shown in (("more_days", lambda v: units.run_time(v * 86400.0)), ("more_usd", dollars)):
        if entry[name] is not None:
            words.append(f"{shown(abs(entry[name]))} {'more' if entry[name] > 0.0 else 'less'}")
    return ", ".join(words) + ("" if entry["keeps_margin"] else "; it may run out of memory")


def _share_lost(entry: dict[str, Any]) -> str:
    """The share of the rate that is likely lost, and the predicted one; a run on fewer accelerators can also be faster."""
    likely, share = entry["likely_lost"], entry["lost"]
    return f"likely {abs(likely):.1%} {'lost' if likely >= 0.0 else 'faster'} ({abs(share):.1%} predicted)"
