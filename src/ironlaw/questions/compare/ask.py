"""Hardware for a job: what each accelerator needs, reaches and costs by ``estimate``, and which price orders them as their cost does.

The three-roof model of ``questions.three_roof`` stands beside the full answer, by name: corrected, or as its document prints it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ironlaw.errors import QuestionError, UnknownNameError, ValueRangeError
from ironlaw.question import options as known
from ironlaw.question.options import Option, at_least_one, one_of, positive, price, text, tokens, whole
from ironlaw.questions.answer import Answer, need, read
from ironlaw.questions.asked_run import amount
from ironlaw.questions.compare import tables

if TYPE_CHECKING:
    from ironlaw.questions.textbook.three_roof import Device, Roofs, Work
    from ironlaw.terms import Term


def names(value: Any, flag: str) -> tuple[str, ...]:
    """A comma list of names."""
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return tuple(text(item, flag) for item in items)


def by_name(reader: Callable[[Any, str], Any]) -> Callable[[Any, str], dict[str, Any]]:
    """``A=..,B=..``, or one value for every accelerator, which stands under ``""``."""

    def split(value: Any, flag: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            items = [item.partition("=") for item in str(value).split(",")] if "=" in str(value) else [("", "=", value)]
            value = {name.strip(): item for name, _, item in items}
        return {name: reader(item.strip() if isinstance(item, str) else item, f"{flag} {name}".strip()) for name, item in value.items()}

    return split


def zero_or_more(unit: str) -> Callable[[Any, str], float]:
    """A reader of quantities in ``unit``, 0 for none."""

    def split(value: Any, flag: str) -> float:
        return 0.0 if str(value).strip() in ("0", "0.0", "none") else positive(unit)(value, flag)

    return split


def utilisation(value: Any, flag: str) -> float:
    """A share above 0 and at most 1."""
    number = positive("1")(value, flag)
    if number > 1.0:
        raise ValueRangeError(f"{flag} is {value}, must be above 0 and at most 1: nothing runs above its roof")
    return number


PASSED = (  # to estimate, as they are
    "precision", "global_batch_size", "global_batch_tokens", "seq_len", "micro_batch_size", "optimizer", "framework", "recompute",
    "tp", "pp", "zero", "overlap",
)  # fmt: skip
OPTIONS: dict[str, Option] = {
    "model": known.OPTIONS["model"],
    "on": Option(names, "accelerators to compare, by catalogue name, comma separated", "A[,B...]"),
    "gpus": Option(whole, "accelerators of each, in all"),
    "target_tokens_per_second": Option(amount, "the rate to reach, such as 500k; without --gpus the fewest that reach it are found", "R"),
    "price": Option(by_name(price), "USD per accelerator hour or provider/term, for all or A=3.93,B=4.33 (default: newest)", "PRICE"),
    **{name: known.OPTIONS[name] for name in PASSED},
    "three_roof": Option(one_of(("corrected", "as-printed", "off")), "the first-order model beside: corrected, as-printed, off", "HOW"),
    "task": Option(one_of(("training", "inference")), "what the first-order model counts (default: training)", "WHAT"),
    "peak": Option(by_name(positive("FLOP/s")), "first-order: peak, for all or A=900TFLOP/s,... (default: dense peak)", "RATE"),
    "bandwidth": Option(by_name(positive("B/s")), "first-order: HBM bandwidth (default: catalogue)", "RATE"),
    "nic": Option(by_name(zero_or_more("B/s")), "first-order: network of one accelerator, 0 for none (default: its fabric's)", "RATE"),
    "utilization": Option(
        by_name(utilisation), "first-order: share of its roof that the bound reaches (default 0.75); or compute=U,hbm=U,network=U", "U"
    ),
    "parameters": Option(tokens, "first-order: a round count of parameters (default: the model's)", "N"),
    "kappa": Option(positive("1"), "first-order: FLOP per parameter and token: 6 to train (default), 2 forward only", "K"),
    "gamma": Option(at_least_one, "first-order: recompute multiplier, 1.1 to 1.4 where there is some (default 1)", "G"),
    "alpha_opt": Option(zero_or_more("1"), "first-order: optimizer bytes per parameter and step (default: the optimizer's)", "A"),
    "c_act": Option(zero_or_more("1"), "first-order: hidden states moved per token and layer; fused kernels less (default 6)", "C"),
    "gradient_bytes": Option(positive("B"), "first-order: bytes of a gradient (default 2)", "B"),
    "dp": Option(whole, "first-order, as printed: data-parallel ranks (default 8)"),
    "gpus_per_replica": Option(whole, "first-order: accelerators that share a replica (default: the fewest that hold it)"),
    "roofs": Option(one_of(("overlap", "serial")), "first-order: resources work at once (default) or one after the other", "HOW"),
}
RESOURCES = ("compute", "hbm", "network")
PRINTED_BATCH, PRINTED_ALPHA = 512e3, 16.0  # the document's own defaults; 16 is what Adam keeps, not what it moves
TERA, PETA, HOUR, MILLION = 1e12, 1e15, 3600.0, 1e6


def compare(model: Any = None, on: Any = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """What accelerators need, reach and cost for one job: ``compare("llama-3-70b", on="h100-sxm,h200-sxm", gpus=256)``."""
    from ironlaw.catalog import load

    return ask({"model": model, "on": on, **options}, load.given_folders(catalog))


def ask(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The answer to options as the command line gives them."""
    from ironlaw.catalog import load
    from ironlaw.estimate.bind.records import assume, bind_model
    from ironlaw.estimate.candidates import DEFAULT_SEQ_LEN

    values = read(options, OPTIONS, "compare")
    need(values, "model", "on")
    training = values.get("task", "training") == "training"
    if training and not ("gpus" in values or "target_tokens_per_second" in values):
        raise QuestionError("the question lacks --gpus N or --target-tokens-per-second R: how much hardware is compared")
    on = tuple(load.resolve("accelerators", name, folders) for name in values["on"])
    if len(set(on)) < len(on):
        raise QuestionError(f"--on names an accelerator twice: {', '.join(on)}")
    for name in ("price", "peak", "bandwidth", "nic"):
        values[name] = _resolved(values.get(name, {}), name, on, folders)
    record, left_out = bind_model(values["model"], folders)
    notes: list[dict[str, Any]] = []
    if "seq_len" not in values:
        values["seq_len"] = float(min(record.max_position_embeddings, DEFAULT_SEQ_LEN))
        assume(notes, "seq_len", values["seq_len"], "default")
    work = _work(values, record)
    rows, terms = [], tables.intensities(work, values)
    for name in on:
        row, made = _row(name, values, work, training, folders, notes)
        rows.append(row)
        terms += made
    told = [f"left out: {item}" for item in left_out] + [line for row in rows for line in row["warnings"]]
    if len({row["batch_tokens"] for row in rows if row.get("batch_tokens")}) > 1:
        told.append("the default batch grows with the accelerators and differs between them: give --global-batch-size to compare one job")
    told += _too_good(rows) if training else []
    if values.get("three_roof") != "off" and training:
        told.append(tables.LEFT_OUT)
    rent = "first_order_usd_per_hour" if values.get("three_roof") == "as-printed" or not training else "usd_per_hour"
    rows.sort(key=lambda row: row.get(rent, math.inf))
    what = "trained" if training else "run forward"
    return Answer(
        title=f"{record.title} {what} on {', '.join(on)}",
        headline=tables.headline(rows, work, values),
        tables=tables.tables(rows, work, values),
        terms=terms,
        values={
            "metric": tables.best_metric(rows, values),
            "metrics": tables.metrics(rows, values),
            "rule_pick": tables.rule_pick(rows),
            "three_roof_model": values.get("three_roof", "corrected"),
        },
        assumptions=notes,
        warnings=told,
        feasible=any(row.get("fits") for row in rows) if training else True,
        folders=folders,
    )


def _too_good(rows: list[dict[str, Any]]) -> list[str]:
    """A word where the first-order model implies an MFU that tuned runs do not reach."""
    from ironlaw.questions.solve.five_steps import USUAL_MFU

    high = {row["accelerator"]: row["first_order_mfu"] for row in rows if row.get("first_order_mfu", 0.0) > USUAL_MFU[1]}
    if not high:
        return []
    implied = ", ".join(f"{share:.0%} on {name}" for name, share in high.items())
    return [f"three roofs imply an MFU of {implied}; tuned runs reach {USUAL_MFU[0]:.0%} to {USUAL_MFU[1]:.0%}: they count too few GPUs"]


def _resolved(given: dict[str, Any], what: str, on: tuple[str, ...], folders: tuple[str, ...]) -> dict[str, Any]:
    """Values by the accelerators' own names."""
    from ironlaw.catalog import load

    found: dict[str, Any] = {}
    for name, value in given.items():
        full = load.resolve("accelerators", name, folders) if name else ""
        if full and full not in on:
            raise UnknownNameError(f"accelerator of --{what}", name, on)
        found |= {full: value} if full else dict.fromkeys(on, value)
    return found


def _work(values: dict[str, Any], record: Any) -> Work:
    """The knobs of the first-order model; ``kappa`` 2, no optimizer and no recomputation where a model is only run forward."""
    from ironlaw.estimate.candidates import DEFAULT_BATCH_TOKENS
    from ironlaw.estimate.layer.counts import active_parameters, attending_layers, cached_heads, total_parameters
    from ironlaw.law.states import OPTIMIZERS
    from ironlaw.questions.textbook.three_roof import Work

    training = values.get("task", "training") == "training"
    seq_len = values["seq_len"]
    as_printed = values.get("three_roof") == "as-printed"
    default_batch = PRINTED_BATCH if as_printed else float(DEFAULT_BATCH_TOKENS)
    batch = values.get("global_batch_tokens") or values.get("global_batch_size", 0.0) * seq_len or default_batch
    traffic = PRINTED_ALPHA if as_printed else OPTIMIZERS[values.get("optimizer", "adamw")].traffic_bytes
    reached = _reached(values.get("utilization", {}))
    heads = 2.0 * cached_heads(record) * record.head_dim * attending_layers(record)
    return Work(
        parameters=values.get("parameters", total_parameters(record)),
        active=values.get("parameters", active_parameters(record)),
        layers=float(record.num_hidden_layers),
        width=float(record.hidden_size),
        kappa=values.get("kappa", 6.0 if training else 2.0),
        gamma=values.get("gamma", 1.0),
        optimizer_traffic=values.get("alpha_opt", traffic) if training else 0.0,
        activation_passes=values.get("c_act", 6.0),
        tokens_per_step=batch,
        element=2.0,
        gradient=values.get("gradient_bytes", 2.0),
        efficiency=reached[-1],
        each=None if len(set(reached)) == 1 else reached,
        serial=values.get("roofs") == "serial",
        cache=0.0 if training else heads * seq_len,
    )


def _reached(given: dict[str, float]) -> tuple[float, float, float]:
    """Shares of the compute, HBM and network roof: one for all, or by resource."""
    if odd := [name for name in given if name not in ("", *RESOURCES)]:
        raise UnknownNameError("resource of --utilization", odd[0], RESOURCES)
    one = given.get("", 0.75)
    return given.get("compute", one), given.get("hbm", one), given.get("network", one)


def _row(
    name: str, values: dict[str, Any], work: Work, training: bool, folders: tuple[str, ...], notes: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[Term]]:
    """One accelerator: prices, the first-order model and the estimate, with their Terms."""
    from ironlaw.estimate.bind.records import bind_cluster, bind_precision
    from ironlaw.estimate.run import bind_price
    from ironlaw.estimate.wires import nic_rate
    from ironlaw.job import PRECISIONS
    from ironlaw.law import cost, kernels
    from ironlaw.questions.textbook.three_roof import Device
    from ironlaw.terms import leaf, plain

    precision = values.get("precision") or bind_precision(name, folders)
    given = {"on": name, "precision": precision}
    cluster = bind_cluster(given, folders, [])
    found: list[dict[str, Any]] = []
    rent = bind_price(values["price"].get(name), cluster, folders, found)
    notes += [{**item, "name": f"{name} {item['name']}"} for item in found]
    accelerator = cluster.accelerator
    peak = accelerator.peak[PRECISIONS[precision].peak]
    device = Device(
        name,
        values["peak"].get(name, peak),
        values["bandwidth"].get(name, accelerator.hbm_bandwidth),
        values["nic"].get(name, nic_rate(cluster)),
        accelerator.memory_capacity,
    )
    _refuse(values, work, device, peak)
    above = plain(device.peak) / plain(peak)
    bandwidth = leaf(f"{name} price of HBM bandwidth", cost.per_bandwidth, "USD/B", price=rent, bandwidth=device.bandwidth)
    arithmetic = leaf(f"{name} price of arithmetic", cost.per_flop, "USD/FLOP", price=rent, peak=device.peak)
    balance = leaf(f"{name} machine balance", kernels.ridge_point, "FLOP/B", peak=device.peak, bandwidth=device.bandwidth)
    terms = [bandwidth, arithmetic, balance]
    row: dict[str, Any] = {
        "accelerator": name,
        "usd_per_gpu_hour": plain(rent) * HOUR,
        "usd_per_tbs_hour": float(bandwidth.value) * HOUR * TERA,
        "usd_per_pflops_hour": float(arithmetic.value) * HOUR * PETA,
        "machine_balance": float(balance.value),
        "roofs": None,
        "warnings": [f"--peak of {name} is {above:.2f} times its dense peak: nothing runs above that"] if above > 1.0 else [],
    }
    if values.get("three_roof") != "off":
        terms += _first(row, values, work, device, rent, peak)
    if training:
        terms += _full(row, values, name, rent, plain(peak), cluster, folders, notes)
    return row, terms


def _refuse(values: dict[str, Any], work: Work, device: Device, peak: Any) -> None:
    """What cannot be: a replica larger than its memory, a rate above the roof."""
    from ironlaw.law import states
    from ironlaw.law.flops import per_token
    from ironlaw.terms import plain

    held, each = float(states.training_static(work.parameters)), plain(device.capacity)
    share = values.get("gpus_per_replica")
    if share and work.trains and share * each < held:
        raise ValueRangeError(
            f"--gpus-per-replica is {share:g}: {share:g} x {device.name} hold {share * each / 1e9:,.0f} GB, weights, gradients and"
            f" Adam's states are {held / 1e9:,.0f} GB: give at least {math.ceil(held / each)}"
        )
    gpus, target = values.get("gpus"), values.get("target_tokens_per_second")
    if gpus and target and work.trains:
        roof = gpus * max(plain(peak), plain(device.peak)) / float(per_token(work.active))
        if target > roof:
            raise ValueRangeError(
                f"--target-tokens-per-second is {target:g}: {gpus:g} x {device.name} reach at most {roof:,.0f} at their peak:"
                " give more --gpus"
            )


def _first(row: dict[str, Any], values: dict[str, Any], work: Work, device: Device, rent: Any, peak: Any) -> list[Term]:
    """The columns of the first-order model; its MFU is of the dense peak, whatever peak it is given as usable."""
    from ironlaw.law import cost, run
    from ironlaw.law import three_roof as law
    from ironlaw.law.flops import per_token
    from ironlaw.questions.textbook import three_roof
    from ironlaw.terms import leaf, plain

    target, gpus = values.get("target_tokens_per_second"), values.get("gpus")
    share = values.get("gpus_per_replica") or three_roof.replica(work, device)
    if values.get("three_roof") == "as-printed":
        roofs = three_roof.printed(work, device, values.get("dp", 8.0), target, gpus)
        ranks = 2.0  # the printed term is that of two ranks
        row["warnings"].append(
            f"as printed, {device.name}: the network term knows no number of ranks, and one accelerator of"
            f" {plain(device.capacity) / 1e9:,.0f} GB is taken to hold a replica that needs {share:g}"
        )
        row |= _what_is_wrong(work, device, roofs, values.get("dp", 8.0))
        share = 1.0
    else:
        roofs = three_roof.corrected(work, device, share, target, gpus)
        ranks = (roofs.gpus if math.isfinite(roofs.gpus) else share) / share
        if gpus and gpus < share:
            row["warnings"].append(f"{device.name}: {share:g} hold a replica, {gpus:g} do not: the first-order model has no answer")
            roofs = three_roof.Roofs(roofs.terms, roofs.bound, math.nan, share)
    limits = three_roof.limits(work, device, share, target, ranks)
    terms = [*roofs.terms.values(), *limits.values()]
    count, reached = roofs.gpus, roofs.gpus * roofs["rate"]
    row |= {
        "roofs": roofs,
        "first_order_compute": roofs["compute"],
        "first_order_memory": roofs["memory"],
        "first_order_network": roofs["network"],
        "first_order_rate": roofs["rate"],
        "first_order_bound": roofs.bound,
        "first_order_gpus": count,
        "first_order_mfu": float(run.mfu(float(per_token(work.active)) * roofs["rate"], 1.0, 1.0, plain(peak))),
        "first_order_gpus_per_replica": roofs.gpus_per_replica,
        "first_order_tokens_per_second": reached,
        "first_order_cluster_hbm": float(law.cluster_traffic(target or reached, roofs["moved"])),
        "first_order_usd_per_hour": count * plain(rent) * HOUR,
        **{f"first_order_{key}": float(term.value) for key, term in limits.items()},
    }
    if math.isfinite(count):
        token = leaf(
            f"{device.name} three-roof price of a token",
            cost.per_token,
            "USD/token",
            gpus=count,
            price=rent,
            tokens_per_second=target or reached,
        )
        row["first_order_usd_per_million_tokens"] = float(token.value) * MILLION
        terms.append(token)
    return terms


def _what_is_wrong(work: Work, device: Device, printed: Roofs, ranks: float) -> dict[str, Any]:
    """The printed answer looked at again: what its ranks and its own count of accelerators really leave of the network."""
    from ironlaw.questions.textbook import three_roof

    given, planned = (three_roof.corrected(work, device, 1.0, None, n) for n in (ranks, printed.gpus))
    return {
        "network_at_given_ranks": given["network"],
        "bound_at_given_ranks": given.bound,
        "network_at_planned_ranks": planned["network"],
        "bound_at_planned_ranks": planned.bound,
    }


def _full(
    row: dict[str, Any],
    values: dict[str, Any],
    name: str,
    rent: Any,
    peak: float,
    cluster: Any,
    folders: tuple[str, ...],
    notes: list[dict[str, Any]],
) -> list[Term]:
    """The columns of the estimate; at the fewest accelerators that reach the target where no count is given."""
    from ironlaw.estimate.answer import answer
    from ironlaw.estimate.bind.records import bind_model
    from ironlaw.estimate.layer.counts import active_parameters
    from ironlaw.law import cost
    from ironlaw.law.flops import per_token
    from ironlaw.questions.compare.fewest import fewest, plan_words
    from ironlaw.terms import leaf, plain

    asked = {key: values[key] for key in ("model", *PASSED) if key in values} | {"on": name}
    target: Any = values.get("target_tokens_per_second")
    if "gpus" in values:
        found: Any = answer({**asked, "gpus": values["gpus"]}, folders)
    else:
        least = target * float(per_token(active_parameters(bind_model(values["model"], folders)[0]))) / peak
        found = fewest(asked, target, int(cluster.node.accelerators.value), max(least, 1.0), folders)
    if found is None:
        row |= {
            "fits": False,
            "warnings": [*row["warnings"], f"{name}: no plan on a round count up to 131,072 fits and reaches {target:,.0f} tokens/s"],
        }
        return []
    group, _ = found.place_of(0)
    fits, rate, gpus = bool(found.fits[0]), float(found.tokens_per_second[0]), float(group.plan.gpus[0])
    row |= {
        "gpus": gpus,
        "fits": fits,
        "memory_share": float(found.device_bytes[0]) / float(group.memory.capacity),
        "plan": plan_words(found),
        "batch_tokens": float((group.plan.global_batch_size * group.plan.seq_len)[0]),
    }
    notes += [item for item in group.assumptions if item["origin"] == "default" and item not in notes]
    row["warnings"] += [line for line in group.warnings if line not in row["warnings"]]
    if not (fits and math.isfinite(rate)):
        row["warnings"].append(f"{name}: {gpus:,.0f} do not hold the job: give more, or a smaller batch")
        return []
    shares = {key: float(column.ravel()[0]) for key, column in group.shares.items()}
    hourly = leaf(f"{name} rent of an hour", cost.rental, "USD", gpus=gpus, seconds=HOUR, price=rent)
    token = leaf(f"{name} price of a token", cost.per_token, "USD/token", gpus=gpus, price=rent, tokens_per_second=rate)
    row |= {
        "tokens_per_second": rate,
        "mfu": float(found.mfu[0]),
        "bound": max(shares, key=lambda key: shares[key]),
        "hbm_share": shares["hbm"],
        "network_share": shares["network"],
        "usd_per_hour": float(hourly.value),
        "usd_per_million_tokens": float(token.value) * MILLION,
        "cluster_hbm": gpus * plain(cluster.accelerator.hbm_bandwidth),
        "meets_target": target is None or rate >= target,
    }
    return [token, hourly, *(_of(name, group.throughput[key]) for key in ("tokens_per_second", "mfu"))]


def _of(name: str, term: Term) -> Term:
    """The same term under an accelerator's name."""
    from ironlaw.terms import Term

    return Term(f"{name} {term.name}", term.value, term.unit, term.law, term.inputs, term.parts, term.times, term.bound)
