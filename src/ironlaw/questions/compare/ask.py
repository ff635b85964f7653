"""Compare accelerators for a job: what each needs, reaches and costs by ``estimate``, and which simple price ranks them as their cost does.

The three-roof model of ``textbook.three_roof`` answers beside the estimate, corrected or as the cost-of-bandwidth note prints it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ironlaw.catalog import load
from ironlaw.cluster import Cluster
from ironlaw.errors import QuestionError, UnknownNameError
from ironlaw.estimate.answer import Estimate, answer
from ironlaw.estimate.bind.cluster import bind_precision, cluster_of
from ironlaw.estimate.bind.model import bind_model
from ironlaw.estimate.bind.money import bind_price
from ironlaw.estimate.layer.counts import active_parameters
from ironlaw.estimate.near_counts import describe_counts, nearest_counts, why_impossible
from ironlaw.estimate.wires import nic_rate
from ironlaw.job import PRECISIONS
from ironlaw.law import cost, kernels
from ironlaw.law.flops import per_token
from ironlaw.question import defaults
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.question.defaults import USUAL_MFU
from ironlaw.questions.answer import Answer, need, read
from ironlaw.questions.compare import first_order, tables
from ironlaw.questions.compare.candidates import Candidate, Planned, Prices, Trained
from ironlaw.questions.compare.fewest import describe_plan, fewest
from ironlaw.questions.compare.options import OPTIONS, PASSED
from ironlaw.questions.textbook.three_roof import Device, Knobs
from ironlaw.terms import Term, leaf, plain

TERA, PETA, HOUR, MILLION = 1e12, 1e15, 3600.0, 1e6


def ask(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The answer to options as the command line gives them."""
    values = read(options, OPTIONS, "compare")
    need(values, "model", "on")
    training = values.get("task", "training") == "training"
    if training and not ("gpus" in values or "target_tokens_per_second" in values):
        raise QuestionError("missing option --gpus N or --target-tokens-per-second R: give one of them")
    on = tuple(load.resolve("accelerators", name, folders) for name in values["on"])
    if len(set(on)) < len(on):
        raise QuestionError(f"--on names an accelerator twice: {', '.join(on)}")
    for name in ("price", "peak", "bandwidth", "nic"):
        values[name] = _by_full_name(values.get(name, {}), name, on, folders)
    model, left_out = bind_model(values["model"], folders)
    assumptions: Assumptions = []
    if "seq_len" not in values:
        values["seq_len"] = defaults.seq_len(model.max_position_embeddings)
        assume(assumptions, "seq_len", values["seq_len"], "default")
    knobs = first_order.knobs_of(values, model)
    frameworks = values.pop("framework", (None,))
    if len(frameworks) > 1 and not training:
        raise QuestionError("--task inference estimates no training: give no --framework")
    several = {"several_frameworks": len(frameworks) > 1}
    runs = [values | ({"framework": framework} | several if framework else {}) for framework in frameworks]
    candidates = [_evaluate_candidate(name, run, knobs, training, folders) for name in on for run in runs]
    terms = [*first_order.intensities(knobs, values), *(term for candidate in candidates for term in candidate.terms)]
    for candidate in candidates:
        assumptions += [item for item in candidate.assumptions if item not in assumptions]
    warnings = [f"left out: {item}" for item in left_out] + [line for candidate in candidates for line in candidate.warnings]
    if len({candidate.planned.batch_tokens for candidate in candidates if candidate.planned}) > 1:
        warnings.append("the default batch differs with the number of accelerators: give --global-batch-size to compare one job")
    if training:
        warnings += _too_good(candidates)
        warnings += [] if values.get("three_roof") == "off" else [tables.LEFT_OUT]
    by_first_order = values.get("three_roof") == "as-printed" or not training
    candidates.sort(key=lambda candidate: _hourly_rent(candidate, by_first_order))
    return Answer(
        title=f"{model.title} {'trained' if training else 'run forward'} on {', '.join(on)}",
        headline=[*(c.why_not for c in candidates if c.why_not), *tables.headline(candidates, knobs, values)],
        tables=tables.tables(candidates, knobs, values),
        terms=terms,
        values={
            "metric": tables.best_metric(candidates, values),
            "metrics": tables.metrics(candidates, values),
            "rule_pick": tables.rule_pick(candidates),
            "three_roof_model": values.get("three_roof", "corrected"),
        },
        assumptions=assumptions,
        warnings=warnings,
        feasible=any(candidate.fits for candidate in candidates) if training else True,
        possible=any(candidate.legal for candidate in candidates),
        folders=folders,
    )


def _hourly_rent(candidate: Candidate, by_first_order: bool) -> float:
    """USD per hour of all accelerators, by the three-roof model or by the estimate; infinite where there is no answer."""
    answered = candidate.first_order if by_first_order else candidate.trained
    return answered.usd_per_hour if answered else math.inf


def _too_good(candidates: list[Candidate]) -> list[str]:
    """A warning where the three-roof model implies a higher MFU than tuned runs reach."""
    implied = {c.label: c.first_order.mfu for c in candidates if c.first_order and c.first_order.mfu > USUAL_MFU[1]}
    if not implied:
        return []
    shares = ", ".join(f"{share:.0%} on {name}" for name, share in implied.items())
    usual = f"{USUAL_MFU[0]:.0%} to {USUAL_MFU[1]:.0%}"
    return [f"the three-roof model implies an MFU of {shares}; tuned runs reach {usual}: it counts too few GPUs"]


def _by_full_name(given: dict[str, Any], option: str, on: tuple[str, ...], folders: tuple[str, ...]) -> dict[str, Any]:
    """Values by the accelerators' full names; a value without a name applies to all."""
    values: dict[str, Any] = {}
    for name, value in given.items():
        full = load.resolve("accelerators", name, folders) if name else ""
        if full and full not in on:
            raise UnknownNameError(f"accelerator of --{option}", name, on)
        values |= {full: value} if full else dict.fromkeys(on, value)
    return values


def _evaluate_candidate(name: str, values: dict[str, Any], knobs: Knobs, training: bool, folders: tuple[str, ...]) -> Candidate:
    """One accelerator: its prices, its answer by the three-roof model and its estimate."""
    precision = values.get("precision") or bind_precision(name, folders)
    cluster = cluster_of({"on": name, "precision": precision}, folders, [])
    framework = values.get("framework", "") if values.get("several_frameworks") else ""
    label = f"{name} ({framework})" if framework else name
    price_assumptions: Assumptions = []
    price = bind_price(values["price"].get(name), cluster, folders, price_assumptions)
    assumptions = [{**item, "name": f"{name} {item['name']}"} for item in price_assumptions]
    accelerator = cluster.accelerator
    dense_peak = accelerator.peak[PRECISIONS[precision].peak]
    device = Device(
        name=label,
        peak=values["peak"].get(name, dense_peak),
        bandwidth=values["bandwidth"].get(name, accelerator.hbm_bandwidth),
        nic=values["nic"].get(name, nic_rate(cluster)),
        capacity=accelerator.memory_capacity,
    )
    peak = plain(dense_peak)
    first_order.check_feasible(values, knobs, device, peak)
    above = plain(device.peak) / peak
    warnings = [f"--peak of {name} is {above:.2f} times its dense peak: no kernel is that fast"] if above > 1.0 else []
    prices, terms = _price_resources(device, price)
    numbers = real_ranks = fits = planned = trained = None
    legal, why_not = True, ""
    if values.get("three_roof") != "off":
        numbers, real_ranks, more_terms, more_warnings = first_order.answer_first_order(values, knobs, device, price, peak)
        terms += more_terms
        warnings += more_warnings
    if training:
        estimate = _estimate_enough(values, name, peak, cluster, folders)
        fits = estimate is not None and bool(estimate.fits[0])
        if estimate is None:
            target = values["target_tokens_per_second"]
            why_not = f"No: no plan of {label} on a round count up to 131,072 fits and reaches {target:,.0f} tokens/s"
        else:
            group = estimate.groups[0]
            assumptions += [item for item in group.assumptions if item["origin"] == "default"]
            warnings += [line for line in group.warnings if line not in warnings]
            planned = _describe_planned(estimate)
            if fits and math.isfinite(float(estimate.tokens_per_second[0])):
                trained, more_terms = _rate_training(estimate, label, price, values.get("target_tokens_per_second"))
                terms += more_terms
            else:
                legal = bool(estimate.legal[0])
                why_not = _say_no(estimate, label, planned.gpus)
    return Candidate(
        name, prices, tuple(terms), numbers, real_ranks, fits, legal, why_not, planned, trained, tuple(assumptions), tuple(warnings),
        framework,
    )  # fmt: skip


def _say_no(estimate: Estimate, name: str, gpus: float) -> str:
    """Why an accelerator does not do the job, and the nearest counts that work."""
    if not estimate.legal[0]:
        return f"No: no plan is legal on {gpus:,.0f} x {name}: {why_impossible(estimate)}"
    near = describe_counts(nearest_counts(estimate)) or "; give a smaller batch, or fewer axes of the plan"
    return f"No: the job does not fit on {gpus:,.0f} x {name}{near}"


def _price_resources(device: Device, price: Any) -> tuple[Prices, list[Term]]:
    """What bandwidth and arithmetic cost, with their Terms."""
    name = device.name
    bandwidth = leaf(f"{name} price of HBM bandwidth", cost.per_bandwidth, "USD/B", price=price, bandwidth=device.bandwidth)
    arithmetic = leaf(f"{name} price of arithmetic", cost.per_flop, "USD/FLOP", price=price, peak=device.peak)
    balance = leaf(f"{name} machine balance", kernels.ridge_point, "FLOP/B", peak=device.peak, bandwidth=device.bandwidth)
    prices = Prices(
        usd_per_gpu_hour=plain(price) * HOUR,
        usd_per_tbs_hour=float(bandwidth.value) * HOUR * TERA,
        usd_per_pflops_hour=float(arithmetic.value) * HOUR * PETA,
        machine_balance=float(balance.value),
    )
    return prices, [bandwidth, arithmetic, balance]


def _estimate_enough(values: dict[str, Any], name: str, peak: float, cluster: Cluster, folders: tuple[str, ...]) -> Estimate | None:
    """The estimate at the given count, or at the fewest accelerators that reach the target; None: no count does."""
    asked = {key: values[key] for key in ("model", *PASSED) if key in values} | {"on": name}
    if "gpus" in values:
        return answer({**asked, "gpus": values["gpus"]}, folders)
    target = values["target_tokens_per_second"]
    least = target * float(per_token(active_parameters(bind_model(values["model"], folders)[0]))) / peak
    return fewest(asked, target, int(cluster.node.accelerators.value), max(least, 1.0), folders)


def _describe_planned(estimate: Estimate) -> Planned:
    """The count, memory, plan and batch of an estimate."""
    group, _ = estimate.place_of(0)
    return Planned(
        gpus=float(group.plan.gpus[0]),
        memory_share=float(estimate.device_bytes[0]) / float(group.memory.capacity),
        plan=describe_plan(estimate),
        batch_tokens=float((group.plan.global_batch_size * group.plan.seq_len)[0]),
    )


def _rate_training(estimate: Estimate, name: str, price: Any, target: float | None) -> tuple[Trained, list[Term]]:
    """Rate, bound and cost of a plan that fits, with their Terms."""
    group, _ = estimate.place_of(0)
    gpus, rate = float(group.plan.gpus[0]), float(estimate.tokens_per_second[0])
    shares = {key: float(column.ravel()[0]) for key, column in group.shares.items()}
    hourly = leaf(f"{name} rent of an hour", cost.rental, "USD", gpus=gpus, seconds=HOUR, price=price)
    token = leaf(f"{name} price of a token", cost.per_token, "USD/token", gpus=gpus, price=price, tokens_per_second=rate)
    trained = Trained(
        tokens_per_second=rate,
        mfu=float(estimate.mfu[0]),
        bound=max(shares, key=lambda key: shares[key]),
        hbm_share=shares["hbm"],
        network_share=shares["network"],
        usd_per_hour=float(hourly.value),
        usd_per_million_tokens=float(token.value) * MILLION,
        cluster_hbm=gpus * plain(group.cluster.accelerator.hbm_bandwidth),
        meets_target=target is None or rate >= target,
    )
    rates = (group.throughput[key] for key in ("tokens_per_second", "mfu"))
    return trained, [token, hourly, *(term.named(f"{name} {term.name}") for term in rates)]
