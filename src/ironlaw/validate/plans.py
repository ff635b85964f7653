"""Choose published plans to compare a search with, and check whether the model orders measured plans of one job as measured."""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ironlaw.estimate.answer.bands import likely_fastest
from ironlaw.estimate.evidence.support import model_kind, stack_kind
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.estimate.memory.errors import ANY
from ironlaw.files import read_shipped
from ironlaw.validate.fill import Apart
from ironlaw.validate.fit import COVERAGE, held_out_times, read_record, weighted_quantile
from ironlaw.validate.pairs import list_changes, sum_by_column
from ironlaw.validate.predict import Prepared, prepare
from ironlaw.validate.runs import DATA, RUNS, Run, read_runs

SCHEMA_VERSION = 2
LEAST_GPUS = 64
CLOSE = 0.10  # a published plan at most this much slower than our best agrees with it
IN_ORDER = 0.85  # aimed at: share of pairs that are predicted in the measured order
REGRET = 0.03  # aimed at: mean time that is lost by running the plan predicted fastest of the measured ones
TELLS = 0.05  # below this measured difference the order of two plans is noise
RULE = (
    "Of every family, accelerator and kind (dense, mixture): pre-training on at least"
    f" {LEAST_GPUS} accelerators with tensor and pipeline parallelism, micro-batch, recomputation and precision known; of these the row"
    " with most accelerators, then most parameters, then most tokens per second"
)
PLAN = (
    "tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "zero", "sp", "micro_batch_size", "recompute", "overlap", "offload",
    "offload_layers", "layers_per_stage", "microbatch_group", "deferred_wgrad", "schedule", "fp8_param_gather", "bf16_layers_at_start",
    "bf16_layers_at_end",
)  # fmt: skip
_LAYOUT = (*PLAN, "count_embedding")  # the plan of a row; a search takes count_embedding from the row
_KNOWN = ("tp", "pp", "micro_batch_size", "recompute")
_JOB_CELLS = ("software", "interconnect", "compile")  # columns besides options in which two rows of one job agree

APART = (0.0, 0.02, 0.05, 0.1, 0.2)  # lower ends of the bins of predicted differences
LIKELY = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # lower ends of the bins of probabilities
OWN_SPREAD = ("launch-bound",)  # kinds of runs whose differences have a spread of their own


@cache
def read_notes() -> Mapping[str, Any]:
    """``data/plans.toml``: the axes that each family's stack could vary, and the verdicts."""
    return tomllib.loads(read_shipped(DATA / "plans.toml"))


def gather(path: Path = RUNS, folders: tuple[str, ...] = ()) -> tuple[Prepared, Any]:
    """The runs of a table, and their step times [s], each family's predicted with constants that were fitted without it."""
    prepared, _ = prepare(read_runs(path, folders)[0], folders)
    return prepared, held_out_times(prepared, read_record()[0])


def plan_known(run: Run, despite: tuple[Apart, ...] = ()) -> bool:
    """True for pre-training whose whole plan is published; ``despite`` allows further reasons to be set apart."""
    return set(run.apart) <= {Apart.MIXTURE, *despite} and all(run.asked[0].get(name) is not None for name in _KNOWN)


def published(prepared: Prepared) -> list[dict[str, Any]]:
    """The rows chosen by ``RULE``, in the order of the table, each with question, plan and estimate."""
    best: dict[tuple[Any, ...], tuple[tuple[float, ...], int]] = {}
    for i, run in enumerate(prepared.runs):
        options = run.asked[0]
        if not plan_known(run) or options["gpus"] < LEAST_GPUS:
            continue
        group = _group_of(prepared, i)[0]
        rate = options["global_batch_size"] * options["seq_len"] / float(prepared.measured[i])
        order = (options["gpus"], float(np.ravel(total_parameters(group.job.model))[0]), rate)
        key = (run.family, group.cluster.accelerator.name, bool(run.apart))
        if key not in best or order > best[key][0]:
            best[key] = (order, i)
    return [_describe_case(prepared, i) for _, i in sorted(best.values(), key=lambda item: item[1])]


def _group_of(prepared: Prepared, i: int) -> tuple[Any, int]:
    estimate, row = prepared.answers[i]
    return estimate.place_of(row)


def _describe_case(prepared: Prepared, i: int) -> dict[str, Any]:
    """One row as plain data for a search."""
    run, (group, at) = prepared.runs[i], _group_of(prepared, i)
    options = {**run.asked[0], "on": group.cluster.accelerator.name}
    stack = read_notes()["stack"].get(run.family, {})
    return {
        "id": run.id,
        "model": run.cells.get("model_name", ""),
        "on": options["on"],
        "gpus": options["gpus"],
        "question": {name: value for name, value in options.items() if name not in (*PLAN, "space")},
        "plan": {name: options[name] for name in PLAN if options.get(name) is not None},
        "place": (group, at),
        "measured_s": float(prepared.measured[i]),
        "fits": bool(prepared.fits[i]),
        "axes": dict(stack.get("axes", {})),
        "even": bool(stack.get("even", False)),
        "stack": stack.get("why", ""),
    }


def judge(row: dict[str, Any]) -> dict[str, Any]:
    """A compared row with its verdict: within 10 %, or the text in ``data/plans.toml``."""
    ratio = row["ratio"]
    if ratio is None:
        verdict = "no plan is predicted to fit"
    elif ratio <= 1.0 + CLOSE:
        verdict = "within 10 %"
    else:
        verdict = read_notes()["verdict"].get(row["id"], "")
    return {**row, "close": ratio is not None and ratio <= 1.0 + CLOSE, "verdict": verdict}


# --- order of measured plans -------------------------------------------------------------------------------------------


def orders(prepared: Prepared, predicted: Any) -> dict[str, Any]:
    """Pairs of plans of one job measured more than 5 % apart, and how many are predicted in that order: by family, by axis.

    Also the regret of each job: how much slower the plan that is predicted fastest was than the fastest one measured.
    """
    apart_by = {edge: _Tally() for edge in APART}
    families: dict[str, _Tally] = {}
    axes: dict[tuple[str, str], _Tally] = {}
    for (family, _), members in jobs_of(prepared).items():
        tally = families.setdefault(family, _Tally())
        tally.plans += len(members)
        tally.regrets.append(_find_regret(prepared.measured[members], predicted[members]))
    pairs = pairs_of(prepared, predicted)
    for pair in pairs:
        apart_by[max(edge for edge in APART if abs(pair.predicted) >= math.log1p(edge))].add(pair.right)
        if abs(pair.measured) > math.log1p(TELLS):
            families[pair.family].add(pair.right)
            differ = " and ".join(pair.differ) if len(pair.differ) < 3 else "three axes or more"
            axes.setdefault((differ, pair.family), _Tally()).add(pair.right)
    listed = list_changes(prepared, predicted)
    return {
        "families": [{"family": family, **tally.data()} for family, tally in families.items()],
        "axes": [
            {"axes": axis, "family": family, "pairs": t.pairs, "right": t.right}
            for (axis, family), t in sorted(axes.items(), key=lambda item: (-item[1].pairs, item[0]))
        ],
        "apart": [{"from": edge, "pairs": t.pairs, "right": t.right} for edge, t in apart_by.items()],
        "likely": likely_orders(pairs),
        "total": _total(list(families.values())),
        "why": dict(read_notes()["order"]),
        "columns": sum_by_column(listed),
        "changes": listed,
    }


def _total(families: Sequence[_Tally]) -> dict[str, Any]:
    """All families together: pairs in order, and the regret of the plans that the model would pick, beside what is aimed at."""
    pairs, right = (sum(getattr(tally, name) for tally in families) for name in ("pairs", "right"))
    regrets = [regret for tally in families for regret in tally.regrets]
    return {
        "jobs": len(regrets),
        "pairs": pairs,
        "right": right,
        "share": right / pairs if pairs else None,
        "aim": IN_ORDER,
        "mean_regret": float(np.mean(regrets)) if regrets else None,
        "worst_regret": max(regrets, default=None),
        "regret_aim": REGRET,
    }


class Pair(NamedTuple):
    """Two measured plans of one job: the axes in which they differ, and log ratios of their step times."""

    family: str
    kind: str  # of OWN_SPREAD where a plan of the pair is of such a kind, else ANY
    differ: list[str]
    measured: float
    predicted: float
    stack: str = ""  # kind of stack and of model by which evidence counts
    model: str = ""

    @property
    def right(self) -> bool:
        """True where the plans are predicted in the measured order."""
        return self.predicted * self.measured > 0.0


def jobs_of(prepared: Prepared, despite: tuple[Apart, ...] = (Apart.NO_PRECISION,)) -> dict[tuple[str, str], list[int]]:
    """The runs of every job of which several known plans were measured, by family and job; ``despite`` as in ``plan_known``."""
    jobs: dict[tuple[str, str], list[int]] = {}
    for i, run in enumerate(prepared.runs):
        if plan_known(run, despite):
            jobs.setdefault((run.family, _describe_job(run)), []).append(i)
    return {job: members for job, members in jobs.items() if len({repr(_plan_of(prepared.runs[i])) for i in members}) > 1}


def pairs_of(prepared: Prepared, predicted: Any, despite: tuple[Apart, ...] = (Apart.NO_PRECISION,)) -> list[Pair]:
    """Every pair of measured runs of one job that differ in plan; ``despite`` as in ``plan_known``."""
    pairs = []
    for (family, _), members in jobs_of(prepared, despite).items():
        plans = [_plan_of(prepared.runs[i]) for i in members]
        for a, i in enumerate(members):
            for b, j in enumerate(members[:a]):
                differ = [name for name in _LAYOUT if plans[a].get(name) != plans[b].get(name)]
                if differ:
                    kind = next((k for k in OWN_SPREAD if k in (prepared.support[i], prepared.support[j])), ANY)
                    said, seen = (math.log(times[i] / times[j]) for times in (predicted, prepared.measured))
                    job = _group_of(prepared, i)[0].job
                    pairs.append(Pair(family, kind, differ, seen, said, stack_kind(job), model_kind(job)))
    return pairs


def told_apart_note(pairs: Sequence[Pair], edge: float) -> str:
    """How many pairs that are predicted closer than ``edge``, and further apart, were measured in the predicted order."""
    near, far = ([p.right for p in pairs if (abs(p.predicted) >= math.log1p(edge)) == apart] for apart in (False, True))
    return (
        f"of {len(near)} pairs of measured plans of one job that are predicted closer than this, {sum(near)} were measured in the predicted"
        f" order; of {len(far)} further apart, {sum(far)}"
    )


def difference_spreads(pairs: Sequence[Pair], without: str = "") -> dict[str, tuple[float, int, int]]:
    """For each kind of pair: half-width of log(predicted ratio / measured ratio), pairs, families; ``without`` is a family to leave out.

    The COVERAGE quantile with equal weights of families. The spread of one family is at least that of ANY. It does not grow with the
    number of axes in which the plans differ: published pairs show no such growth.
    """
    spreads: dict[str, tuple[float, int, int]] = {}
    for kind in (ANY, *OWN_SPREAD):
        chosen = [pair for pair in pairs if pair.kind == kind and pair.family != without]
        if not chosen:
            continue
        size = Counter(pair.family for pair in chosen)
        error = np.array([abs(pair.predicted - pair.measured) for pair in chosen])
        half = weighted_quantile(error, np.array([1.0 / size[pair.family] for pair in chosen]), COVERAGE)
        least = spreads[ANY][0] if ANY in spreads and len(size) == 1 else 0.0
        spreads[kind] = (max(half, least), len(chosen), len(size))
    return spreads


def slope(pairs: Sequence[Pair], by_family: bool = False, without: str = "") -> float | None:
    """The slope of measured on predicted log ratios of pairs of plans of one job, through the origin: ``sum w x y / sum w x^2``.

    ``by_family``: families weigh the same, ``w = 1 / pairs of the family``, else every pair does. ``without`` is a family to leave out.

    >>> pair = Pair("a", "any", ["tp"], 0.1, 0.2)
    >>> slope([pair, pair, pair._replace(family="b", measured=0.2)], by_family=True)
    0.75
    """
    kept = [pair for pair in pairs if pair.family != without]
    if not kept:
        return None
    families = [pair.family for pair in kept]
    weights = np.array([1.0 / families.count(family) if by_family else 1.0 for family in families])
    measured, predicted = (np.array([getattr(pair, name) for pair in kept]) for name in ("measured", "predicted"))
    square = float(np.sum(weights * predicted**2))
    return float(np.sum(weights * measured * predicted)) / square if square else None


def as_printed(pairs: Sequence[Pair]) -> list[Pair]:
    """Pairs with the gain that a page prints as likely: the predicted log ratio times the slope learned without the family of the pair."""
    learned = {family: slope(pairs, without=family) for family in dict.fromkeys(pair.family for pair in pairs)}
    return [pair._replace(predicted=pair.predicted * (learned[pair.family] or 1.0)) for pair in pairs]


def slope_note(pairs: Sequence[Pair]) -> str:
    """The pairs behind a slope, and what it is with a family left out or with equal weights of families."""
    families = list(dict.fromkeys(pair.family for pair in pairs))
    behind = f"measured over predicted log ratio of two plans of one job: {len(pairs)} pairs of {len(families)} families"
    without = [found for family in families if (found := slope(pairs, without=family)) is not None]
    if not without:
        return behind
    alike = f"{slope(pairs, by_family=True):.2f} with equal weights of families"
    return f"{behind}; {min(without):.2f} to {max(without):.2f} with one left out, {alike}"


def likely_orders(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """How often pairs are in the predicted order, by the probability that the spread learned without their family gives that order."""
    bins: dict[float, list[tuple[float, bool]]] = {edge: [] for edge in LIKELY}
    for family in dict.fromkeys(pair.family for pair in pairs):
        spreads = difference_spreads(pairs, family)
        for pair in pairs:
            if pair.family == family and ANY in spreads:
                half = spreads.get(pair.kind, spreads[ANY])[0]
                said = float(likely_fastest(np.exp([0.0, abs(pair.predicted)]), half, COVERAGE)[0])
                bins[max(edge for edge in LIKELY if said >= edge)].append((said, pair.right))
    return [
        {
            "from": edge,
            "pairs": len(found),
            "said": float(np.mean([said for said, _ in found])) if found else None,
            "right": sum(right for _, right in found),
        }
        for edge, found in bins.items()
    ]


class _Tally:
    """Counts of pairs, and the regret of each job."""

    def __init__(self) -> None:
        self.plans = self.pairs = self.right = 0
        self.regrets: list[float] = []

    def add(self, right: bool) -> None:
        self.pairs += 1
        self.right += right

    def data(self) -> dict[str, Any]:
        """The counts as plain data."""
        return {
            "jobs": len(self.regrets),
            "plans": self.plans,
            "pairs": self.pairs,
            "right": self.right,
            "kendall": (2 * self.right - self.pairs) / self.pairs if self.pairs else None,
            "fastest_chosen": sum(r < 1e-9 for r in self.regrets),
            "median_regret": float(np.median(self.regrets)),
            "worst_regret": max(self.regrets),
        }


def _describe_job(run: Run) -> str:
    """The options and columns that identify a job, without its plan."""
    options = {name: value for name, value in run.asked[0].items() if name not in _LAYOUT}
    return repr((sorted(options.items(), key=lambda item: item[0]), [run.cells.get(name, "") for name in _JOB_CELLS]))


def _plan_of(run: Run) -> dict[str, Any]:
    return {name: sorted(v) if isinstance(v := run.asked[0].get(name), frozenset) else v for name in _LAYOUT}


def _find_regret(measured: Sequence[float], predicted: Sequence[float]) -> float:
    """Measured time of the plan predicted fastest, over the fastest measured, - 1."""
    return float(measured[int(np.argmin(predicted))] / np.min(measured) - 1.0)
