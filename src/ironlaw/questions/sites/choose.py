"""Which sites to take: the same run on other choices of the sites, with its time, money and carbon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from ironlaw import units
from ironlaw.question import defaults
from ironlaw.questions.answer import Column, Table, filled_columns
from ironlaw.questions.sites.accounts import count_accounts
from ironlaw.questions.sites.bind import Site
from ironlaw.questions.sites.exchange import Exchange, Wan
from ironlaw.questions.sites.run_time import time_run
from ironlaw.terms import Term, scalar

CHOICES = (
    Column("sites", "sites"), Column("gpus", "accelerators", "1"), Column("tokens_per_second", "tokens/s", "1"),
    Column("seconds", "run", "s"), Column("share", "exchange", "%"), Column("waits", "who waits longest"), Column("power", "power", "W"),
    Column("usd", "USD", "USD"), Column("carbon", "CO2e", "kg"), Column("best", "best by"), Column("why_not", ""),
)  # fmt: skip
ALL = 6  # up to this many sites every subset is a row
PAIRS = 10  # up to this many sites every pair is one
LARGE = 12  # with more sites, no table
GOALS = {"time": "seconds", "money": "usd", "carbon": "carbon"}


@dataclass(frozen=True, eq=False)
class Question:
    """The run, whatever its sites."""

    tokens: float
    batch: float  # tokens of a step, the same for every choice
    parameters: float
    exchange: Exchange
    wan: Wan
    deadline: float | None  # [s]
    rounding: str = defaults.ROUNDING  # of steps


@dataclass(frozen=True, eq=False)
class Choices:
    """Rows for choices of the sites, and the best of them by each goal."""

    rows: list[dict[str, Any]]
    best: dict[str, dict[str, Any]]
    deadline: float | None

    def describe(self) -> list[str]:
        """The best choices in a sentence."""
        if not self.rows:
            return []
        within = "" if self.deadline is None else f" within {units.run_time(self.deadline)}"
        if not self.best:
            fastest = min(self.rows, key=lambda row: row["seconds"])
            return [f"no choice of these sites meets the question{within}; the fastest takes {units.run_time(fastest['seconds'])}"]
        words = {"time": "fastest", "money": "least money", "carbon": "least carbon"}
        parts = [f"{words[goal]}: {row['sites']} ({_describe_row(row, goal)})" for goal, row in self.best.items()]
        return [f"best sites{within}: " + "; ".join(parts)]

    def tabulate(self) -> list[Table]:
        """The table of all choices."""
        title = "Which sites: the same run and batch on other choices; a site alone has its own plan, several keep their tokens/s"
        return [Table("choices", title, filled_columns(CHOICES, self.rows), self.rows)] if self.rows else []


def _describe_row(row: dict[str, Any], goal: str) -> str:
    """The figure of a goal, and the time where that is another figure."""
    days = units.run_time(row["seconds"])
    if goal == "money":
        return f"{units.amount(row['usd'])} USD in {days}"
    return f"{units.show(row['carbon'], 'kg', 4)} CO2e in {days}" if goal == "carbon" else days


def compare_choices(question: Question, sites: Sequence[Site]) -> Choices:
    """The run on other choices of the sites: every subset, or for many sites each alone, pairs, and all but one."""
    rows = [_make_row(question, subset) for subset in _list_subsets(question.wan, sites)]
    rows.sort(key=lambda row: row["seconds"])
    able = [row for row in rows if not row["why_not"]]
    goals = [goal for goal in GOALS if goal != "carbon" or all(site.grid_known or site.place.latitude is None for site in sites)]
    best = {goal: min(able, key=lambda row: row[GOALS[goal]]) for goal in goals} if able else {}
    for row in rows:
        row["best"] = ", ".join(goal for goal, found in best.items() if found is row)
    return Choices(rows, best, question.deadline)


def _list_subsets(wan: Wan, sites: Sequence[Site]) -> Iterator[tuple[Site, ...]]:
    """The choices that are rows."""
    n = len(sites)
    if not wan.located and len({_kind(wan, site) for site in sites}) == 1:  # sites that differ in nothing: only their number counts
        for count in sorted({n, *(2**power for power in range(n.bit_length()) if 2**power < n)}):
            yield tuple(sites[:count])
        return
    if n > LARGE:
        return
    sizes = range(1, n + 1) if n <= ALL else sorted({1, n - 1, n, *((2,) if n <= PAIRS else ())})
    for size in sizes:
        yield from combinations(sites, size)


def _kind(wan: Wan, site: Site) -> tuple[Any, ...]:
    """What makes two sites different in a run."""
    numbers = (site.price, site.pue, site.intensity, site.electricity, site.traffic)
    step = site.step
    return (step.on, step.gpus, step.batch, site.limit, wan.bandwidth[site.name], *(n.value if n else None for n in numbers))


def _make_row(question: Question, subset: tuple[Site, ...]) -> dict[str, Any]:
    """The run on some of the sites, with the same batch.

    One site alone has the plan of an estimate with that batch, however the sites shared it. Of several each has a larger share than among
    all, which takes it in proportion longer.
    """
    steps = {site.name: site.alone if len(subset) == 1 else site.step for site in subset}
    larger = question.batch / sum(step.batch for step in steps.values())
    own = {name: step.seconds * larger for name, step in steps.items()}
    network = question.wan.join([site.place for site in subset])
    compute = Term("compute", max(own.values()), "s")
    time = time_run(question.tokens, question.batch, question.exchange, network, question.parameters, compute, question.rounding)
    seconds = scalar(time.seconds)
    accounts = count_accounts(subset, seconds, scalar(time.sent), time.exchanges)
    slow, fast = max(own, key=lambda name: own[name]), min(own, key=lambda name: own[name])
    late = 1.0 - own[fast] / own[slow]
    why_not = [f"{account.site.name} has too little power" for account in accounts.short]
    why_not += [f"does not fit {name}" for name, step in steps.items() if not step.fits]
    if question.deadline is not None and seconds > question.deadline:
        why_not.append("misses the deadline")
    return {
        "sites": " + ".join(site.name for site in subset) if question.wan.located or len(subset) < 2 else f"{len(subset)} sites",
        "gpus": sum(site.step.gpus for site in subset), "tokens_per_second": question.tokens / seconds, "seconds": seconds,
        "share": scalar(time.share), "waits": f"{fast} {late:.0%} for {slow}" if late >= 0.005 else "", "power": scalar(accounts.power),
        "usd": scalar(accounts.usd), "carbon": scalar(accounts.carbon), "best": "", "why_not": "; ".join(why_not),
    }  # fmt: skip
