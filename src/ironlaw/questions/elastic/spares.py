"""Spare nodes against waiting for repair, running on less, and more frequent checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ironlaw.cautions.record import Sentence
from ironlaw.cautions.table import caution
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.fabric.placement import slices_of
from ironlaw.estimate.what_if.node_loss import Used
from ironlaw.law import cost
from ironlaw.law import goodput as law
from ironlaw.questions.answer import Column, Table, filled_columns
from ironlaw.questions.elastic.base import MONTH, Base
from ironlaw.questions.elastic.part import Part
from ironlaw.terms import Term, leaf, scalar

GIVEN = (0.0, 1.0, 2.0, 4.0)  # spare nodes that are compared where the question lists none
MOST_DOWN = 24  # nodes down for which smaller plans are searched
MOST_TRIED = 256.0  # spare nodes, where the question lists no more
SELDOM = 1e4  # one time in how many more nodes are down than plans are searched for
WAIT, FEWER = "wait for repair", "run on fewer"
POLICIES = (
    Column("spares", "spare nodes", "1"), Column("policy", "when a node is lacking"), Column("held_gpus", "GPUs held", "1"),
    Column("lacking", "time a node is lacking", "%"), Column("stopped", "time stopped", "%"),
    Column("tokens_per_second", "useful tokens/s", "1"), Column("goodput", "goodput", "%"),
    Column("usd_per_million_tokens", "USD per M tokens", "USD"), Column("seconds", "run", "s"),
    Column("usd", "cost", "USD"), Column("best", "cheapest"),
)  # fmt: skip
CHECKPOINTS = (
    Column("interval", "checkpoint every", "s"), Column("what", "what"), Column("checkpoints", "checkpoints", "%"),
    Column("restarts", "restarts", "%"), Column("again", "repeated work", "%"), Column("goodput", "goodput", "%"),
)  # fmt: skip


class State(NamedTuple):
    """So many nodes are under repair: the nodes that run the job, and the useful tokens per second."""

    machines: float
    rate: float


def lefts(base: Base, repair_time: float) -> list[float]:
    """The accelerators that are left with one to many nodes down: all that are down more than seldom."""
    most = float(law.spares(base.gpus, base.rates.mttf.value, repair_time, SELDOM))
    counts = range(1, int(min(max(most, 1.0), MOST_DOWN)) + 1)
    return [base.gpus - down * base.node for down in counts if base.gpus - down * base.node >= 1.0]


def compare(base: Base, repair_time: float, given: tuple[float, ...] | None) -> Part:
    """Expected rate and cost with every number of spare nodes, waiting for repair or running on fewer."""
    enough = float(law.spares(base.gpus, base.rates.mttf.value, repair_time, SELDOM))
    most = int(max(min(enough, MOST_TRIED), *(given or GIVEN))) + 1
    fewer = _rates_of_fewer(base, repair_time)
    everything = [_row(base, repair_time, float(n), policy, fewer) for n in range(most + 1) for policy in (WAIT, FEWER)]
    by_policy = {policy: min((row for row in everything if row["policy"] == policy), key=_cost_key) for policy in (WAIT, FEWER)}
    best = min(by_policy.values(), key=_cost_key)
    shown = set(given or GIVEN) | {row["spares"] for row in by_policy.values()}
    rows = [{**row, "best": "yes" if row is best else ""} for row in everything if row["spares"] in shown]
    tables = [
        Table("spares", "Spare nodes: expected rate and cost, failures and checkpoints included", filled_columns(POLICIES, rows), rows),
        Table("checkpoints", f"Checkpoints of the run on {base.gpus:,.0f}", CHECKPOINTS, _checkpoint_rows(base)),
    ]
    none = {row["policy"]: row for row in everything if row["spares"] == 0.0}
    terms = [_odds(base, repair_time), *(_expected(base, row) for row in (best, none[WAIT], none[FEWER]))]
    warnings = [caution("spares-not-validated")]
    if slices_of(base.group.cluster.node):
        warnings.append(caution("spares-of-slices"))
    if best["spares"] == most:
        warnings.append(caution("more-spares", most=most))
    return Part(
        [Sentence(_sentence(best, none), "spares", {"spares": best["spares"], "goodput": best["goodput"]}), _checkpoint_sentence(base)],
        tables,
        list({term.name: term for term in terms}.values()),
        warnings,
    )


def _cost_key(row: dict[str, Any]) -> tuple[float, float]:
    """Accelerators held for each useful token a second: the cost of a token at any price; then the spares."""
    rate = row["tokens_per_second"]
    return (row["held_gpus"] / rate if rate > 0.0 else math.inf, row["spares"])


def _machines(base: Base, gpus: float) -> float:
    return math.ceil(gpus / base.node)


def machine_mttf(base: Base) -> float:
    """Mean time between failures of a node [s]."""
    return float(law.cluster_mttf(base.rates.mttf.value, base.node))


def shares_of_time(states: Sequence[State], mttf: float, repair_time: float) -> list[float]:
    """The share of time with 0, 1, ... machines under repair, from the odds of one more.

    >>> wait = [State(10.0, 1.0), State(0.0, 0.0)]  # ten machines that all wait for the one under repair
    >>> [round(share, 4) for share in shares_of_time(wait, 1000.0, 50.0)]
    [0.6667, 0.3333]
    """
    machines = np.array([state.machines for state in states[:-1]])
    odds = law.odds_of_one_more_down(machines, mttf, repair_time, np.arange(len(states) - 1.0))
    logs = np.concatenate([[0.0], np.cumsum(np.log(odds))])  # of weights that may be larger than any number
    weights = np.exp(logs - logs.max())
    return [float(weight) for weight in weights / math.fsum(weights)]


def waiting_states(machines: float, rate: float, spares: float) -> list[State]:
    """Up to so many spares the job runs whole; with one more node down it waits."""
    return [State(machines, rate)] * (int(spares) + 1) + [State(0.0, 0.0)]


def fewer_states(machines: float, rate: float, spares: float, smaller: Callable[[int, int], State]) -> list[State]:
    """Up to so many spares the job runs whole; then on fewer nodes, until nothing runs. ``smaller(lacking, down)``: the smaller job."""
    states = [State(machines, rate)] * (int(spares) + 1)
    lacking = 1
    while states[-1].machines > 0.0:
        states.append(smaller(lacking, int(spares) + lacking))
        lacking += 1
    return states


def _rates_of_fewer(base: Base, repair_time: float) -> Callable[[int, int], State]:
    """The smaller job when nodes are lacking: its machines, and its useful rate with failures and with the pauses to grow back."""
    rates: dict[float, float] = {}
    pause = base.rates.restart_time.value + scalar(base.failures(base.group).checkpoint_time)

    def useful(used: Used) -> float:
        if used.gpus not in rates:
            rates[used.gpus] = used.rate * _goodput(base, used.group)
        return rates[used.gpus]

    def smaller(lacking: int, down: int) -> State:
        used = base.best(base.gpus - lacking * base.node)
        if used is None:
            return State(0.0, 0.0)
        grows = lacking == 1 or base.best(base.gpus - (lacking - 1) * base.node) is not used
        between = float(law.share_between_pauses(pause, repair_time / down)) if grows else 1.0  # a repair that ends lets the job grow
        return State(_machines(base, used.gpus), useful(used) * (0.0 if math.isnan(between) else between))

    return smaller


def _goodput(base: Base, group: Group) -> float:
    """Share of the time that is useful while the job runs; 0 where failures leave no progress."""
    found = scalar(base.failures(group).goodput)
    return 0.0 if math.isnan(found) else found


def _row(base: Base, repair_time: float, spares: float, policy: str, fewer: Callable[[int, int], State]) -> dict[str, Any]:
    """The expected rate and cost with a number of spare nodes."""
    useful = base.rate * _goodput(base, base.group)
    machines = _machines(base, base.gpus)
    if policy == WAIT:
        states = waiting_states(machines, useful, spares)
    else:
        states = fewer_states(machines, useful, spares, fewer)
    shares = shares_of_time(states, machine_mttf(base), repair_time)
    rate = math.fsum(share * state.rate for share, state in zip(shares, states, strict=True))
    held = base.gpus + spares * base.node
    seconds = base.tokens / rate if base.tokens is not None and rate > 0.0 else None
    price = base.price.value
    known = rate > 0.0 and not math.isnan(price)
    return {
        "spares": spares, "policy": policy, "held_gpus": held, "lacking": 1.0 - math.fsum(shares[: int(spares) + 1]),
        "stopped": math.fsum(share for share, state in zip(shares, states, strict=True) if state.rate == 0.0),
        "tokens_per_second": rate, "goodput": rate / base.rate,
        "usd_per_million_tokens": float(cost.per_token(held, price, rate)) * 1e6 if known else None, "seconds": seconds,
        "usd": float(cost.rental(held, seconds, price)) if known and seconds is not None else None,
    }  # fmt: skip


def _odds(base: Base, repair_time: float) -> Term:
    """The odds of one node under repair to none."""
    return leaf(
        "odds of a node down", law.odds_of_one_more_down, "1", machines=_machines(base, base.gpus), machine_mttf=machine_mttf(base),
        repair_time=repair_time, down=0.0,
    )  # fmt: skip


def _expected(base: Base, row: dict[str, Any]) -> Term:
    """The expected useful rate of a row."""
    name = f"useful tokens per second, {row['spares']:g} spares, {row['policy']}"
    return leaf(name, useful_rate, "token/s", tokens_per_second=base.rate, goodput=row["goodput"])


def useful_rate(tokens_per_second: Any, goodput: Any) -> Any:
    """``tokens_per_second goodput``; the goodput is the mean over the states of the nodes, by the share of time of each."""
    return tokens_per_second * goodput


def _sentence(best: dict[str, Any], none: dict[str, dict[str, Any]]) -> str:
    """The cheapest choice, against no spares."""
    token = best["usd_per_million_tokens"]
    price = "" if token is None else f", {token:.4g} USD per million useful tokens"
    nodes = "1 spare node" if best["spares"] == 1.0 else f"{best['spares']:g} spare nodes"
    text = f"cheapest useful token: {nodes} and {best['policy']}: goodput {best['goodput']:.1%}{price}"
    return f"{text}; without spares {none[WAIT]['goodput']:.1%} waiting for repair, {none[FEWER]['goodput']:.1%} running on fewer"


def _checkpoint_rows(base: Base) -> list[dict[str, Any]]:
    """Shares of the time at several intervals between checkpoints, on all accelerators, machines always there."""
    failures = base.failures(base.group)
    best, written, mttf = (scalar(term) for term in (failures.interval, failures.checkpoint_time, failures.mttf))
    restart = base.rates.restart_time.value
    intervals = {
        best / 4.0: "a quarter",
        best / 2.0: "half",
        best: "as used",
        2.0 * best: "twice",
        4.0 * best: "four times",
        3600.0: "hourly",
    }
    rows = []
    for interval, what in sorted(intervals.items()):
        wall = float(law.time_with_failures(MONTH, interval, written, restart, mttf))
        goodput = float(law.goodput(MONTH, wall))
        restarts = float(law.restart_share(restart, mttf))
        checkpoints = goodput * written / interval
        again = 1.0 - goodput - checkpoints - restarts
        known = not np.isnan(goodput)
        rows.append({
            "interval": interval, "what": what, "checkpoints": checkpoints if known else None, "restarts": restarts if known else None,
            "again": again if known else None, "goodput": goodput if known else None,
        })  # fmt: skip
    return rows


def _checkpoint_sentence(base: Base) -> str:
    """What checkpoints at the best interval leave, and what twice as many would."""
    rows = {row["what"]: row for row in _checkpoint_rows(base)}
    used, half = rows["as used"], rows["half"]
    if used["goodput"] is None or half["goodput"] is None:
        return "checkpoints: the run fails sooner than it writes one"
    return (
        f"checkpoints every {used['interval'] / 60.0:,.0f} min leave {used['goodput']:.1%} while machines are there;"
        f" twice as many {half['goodput']:.1%}"
    )
