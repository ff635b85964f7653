"""How long a run takes whose sites compute steps and exchange gradients, and who waits for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ironlaw.errors import UnsupportedError
from ironlaw.law import run, wide_area
from ironlaw.question import defaults
from ironlaw.questions.answer import Column, Table, filled_columns
from ironlaw.questions.sites.exchange import Exchange, Network
from ironlaw.questions.sites.site_step import SiteSteps
from ironlaw.terms import Term, leaf, scalar, total

WAITING = (
    Column("site", "site"), Column("on", "accelerator"), Column("gpus", "accelerators", "1"), Column("sequences", "sequences", "1"),
    Column("tokens_per_second", "tokens/s alone", "1"), Column("step", "own step", "s"), Column("waits_for", "waits for"),
    Column("others", "for it, per step", "s"), Column("exchange", "for the exchange", "s"), Column("share", "waiting", "%"),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class RunTime:
    """Computation and waiting of a run, a Term each."""

    tensor: Term  # bytes of one exchange
    exchange: Term  # time of one exchange
    exposed: Term  # waiting per step
    share: Term  # of the run that is waiting for exchanges
    steps: Term
    computing: Term
    waiting: Term
    seconds: Term
    sent: Term  # bytes that each site sends in one exchange
    exchanges: float  # of the run

    @property
    def tokens_per_second_of(self) -> float:
        """Steps per second of the run; times the tokens of a step it is the rate of all sites."""
        return scalar(self.steps) / scalar(self.seconds)


def time_run(
    tokens: float, batch: float, exchange: Exchange, network: Network, parameters: float, compute: Term, rounding: str = defaults.ROUNDING
) -> RunTime:
    """Time of a run whose steps take ``compute``, with ``rounding`` of their number; a single site exchanges nothing."""
    step = scalar(compute)
    if not step > 0.0:
        raise UnsupportedError("this plan has no estimate of a step: ironlaw estimate says why; or give --mfu")
    tensor = exchange.tensor(parameters)
    alone = len(network.order) == 1
    time = Term("exchange", 0.0, "s") if alone else network.exchange_time(exchange.way, scalar(tensor))
    exposed = leaf(
        "exposed", wide_area.exposed_per_step, "s", communication=scalar(time), window=exchange.beside * step,
        inner_steps=exchange.every, fragments=exchange.fragments,
    )  # fmt: skip
    share = leaf("communication share", wide_area.communication_share, "1", communication=scalar(exposed), compute=step)
    steps = leaf("steps", run.steps, "1", tokens=tokens, tokens_per_step=batch, rounding=run.ROUNDINGS[rounding])
    computing = total("computing", [compute], times=scalar(steps))
    waiting = total("waiting", [exposed], times=scalar(steps))
    sent = network.sent(exchange.way, 0.0 if alone else scalar(tensor))
    exchanges = 0.0 if alone else scalar(steps) / exchange.every * exchange.fragments
    return RunTime(tensor, time, exposed, share, steps, computing, waiting, total("seconds", [computing, waiting]), sent, exchanges)


def tabulate_waiting(steps: SiteSteps, names: Sequence[str], exposed: float) -> Table:
    """Every site with its own step, and what it waits for in each step: the slowest site, and the exchange."""
    slowest = steps.slowest
    slowest_name = names[steps.sites.index(slowest)]
    rows: list[dict[str, Any]] = []
    for name, site in zip(names, steps.sites, strict=True):
        behind = slowest.seconds - site.seconds
        rows.append({
            "site": name, "on": site.on, "gpus": site.gpus, "sequences": site.sequences, "tokens_per_second": site.batch / site.seconds,
            "step": site.seconds, "waits_for": slowest_name if behind > 0.0 else "", "others": behind, "exchange": exposed,
            "share": (behind + exposed) / (slowest.seconds + exposed),
        })  # fmt: skip
    if all(row["others"] == 0.0 for row in rows):
        for row in rows:
            row["others"] = None
    return Table("waiting_by_site", "Who waits for whom, in a mean step", filled_columns(WAITING, rows), rows)
