"""The step inside every site: from an estimate of each kind of site, or at a constant MFU (simplified); how the sites split the batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.cluster import Cluster
from ironlaw.errors import IronlawError, QuestionError, ValueRangeError
from ironlaw.estimate.answer.estimate import estimate
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.answer.parameters import trained_parameters
from ironlaw.estimate.bind.cluster import bind_precision, cluster_of
from ironlaw.estimate.bind.model import bind_model, plain_model
from ironlaw.estimate.bind.question import batch_taken, sequences_of
from ironlaw.estimate.layer.counts import active_parameters, total_parameters
from ironlaw.estimate.what_if.near_counts import no_such_plan
from ironlaw.law import flops, run
from ironlaw.precision import precision_of
from ironlaw.question import defaults
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.question.forms import need
from ironlaw.questions.answer import Column, Table
from ironlaw.questions.sites.options import PLAN, SPLITS
from ironlaw.terms import Term, leaf, scalar

SPLIT = (
    Column("split", "batch split"), Column("batches", "sequences of each site"), Column("step", "step", "s"),
    Column("slowest", "slowest site"), Column("tokens_per_second", "tokens/s without exchange", "1"),
)  # fmt: skip
ROUNDS = 4  # of balancing: the rates of the sites change little with their share
FINE = 16.0  # parts of a site's mean share that the batch is moved in, rounded down to a power of two


@dataclass(frozen=True, eq=False)
class SiteStep:
    """The step that one site computes between exchanges."""

    on: str
    gpus: float
    cluster: Cluster
    batch: float  # tokens of its share of the batch
    sequences: float | None  # None in the simplified model
    compute: Term
    mfu: float
    fits: bool
    group: Group | None = None  # of the estimate; None in the simplified model

    @property
    def seconds(self) -> float:
        """Time of the step."""
        return scalar(self.compute)


@dataclass(frozen=True, eq=False)
class SiteSteps:
    """The steps of all sites, in the order of the question."""

    sites: tuple[SiteStep, ...]
    parameters: float  # that are trained, so that sites exchange their gradients or weights
    warnings: list[Caution]
    splits: Table | None  # other ways to split the batch, where the sites differ
    alone: tuple[SiteStep, ...]  # each site with the whole batch; where no plan of a site has that batch, with a batch of its own

    @property
    def slowest(self) -> SiteStep:
        """The site that the others wait for."""
        return max(self.sites, key=lambda site: site.seconds)

    @property
    def batch(self) -> float:
        """Tokens of a step, all sites together."""
        return sum(site.batch for site in self.sites)

    @property
    def fits(self) -> bool:
        """True where the model fits the accelerators of every site."""
        return all(site.fits for site in self.sites)

    @property
    def alike(self) -> bool:
        """True where all sites have the same accelerators, as many, and the same share."""
        return len({(site.on, site.gpus, site.batch) for site in self.sites}) == 1


def bind_steps(
    given: dict[str, Any], ons: list[str], gpus: list[float], names: list[str], folders: tuple[str, ...], notes: Assumptions
) -> SiteSteps:
    """The step of every site."""
    if len(set(ons)) > 1 and (named := next((name for name in ("node", "fabric") if name in given), None)):
        raise QuestionError(f"--{named} names one {named}, but the sites have different accelerators: leave it out")
    return (_steps_at_constant_mfu if "mfu" in given else _estimate_steps)(given, ons, gpus, names, folders, notes)


def default_split(ons: list[str]) -> str:
    """In proportion to the accelerators where all are of one kind; balanced where they differ, as the faster would wait otherwise."""
    return SPLITS[0] if len(set(ons)) == 1 else SPLITS[-1]


def _steps_at_constant_mfu(
    given: dict[str, Any], ons: list[str], gpus: list[float], names: list[str], folders: tuple[str, ...], notes: Assumptions
) -> SiteSteps:
    """Simplified: a step at a constant MFU, whatever the plan."""
    need(given, "global_batch_tokens")
    batch = given["global_batch_tokens"]
    if batch < sum(gpus):
        raise ValueRangeError(f"--global-batch-tokens is {batch:g}, must be at least one per accelerator")
    if given["mfu"] > 1:
        raise ValueRangeError(f"--mfu is {given['mfu']:g}, must be at most 1")
    total, active = _count_parameters(given, folders)
    clusters = {on: cluster_of({**given, "on": on}, folders, notes if on == ons[0] else []) for on in dict.fromkeys(ons)}
    rates = []
    for on, n in zip(ons, gpus, strict=True):
        precision = given.get("precision") or bind_precision(on, folders)
        rates.append(clusters[on].accelerator.peak[precision_of(precision, folders).peak].value * n)

    def one(on: str, n: float, rate: float, share: float) -> SiteStep:
        """The step of a site with a share of the batch."""
        compute = leaf("compute", run.iron_law, "s", operations=flops.training(active, share), peak=rate, efficiency=given["mfu"])
        return SiteStep(on, n, clusters[on], share, None, compute, given["mfu"], True)

    def steps(split: str) -> tuple[SiteStep, ...]:
        """The steps of the sites under a split of the batch."""
        weights = {"gpus": gpus, "even": [1.0] * len(gpus), "balanced": rates}[split]
        shares = [batch * weight / sum(weights) for weight in weights]
        return tuple(one(*site) for site in zip(ons, gpus, rates, shares, strict=True))

    warning = caution("constant-mfu", mfu=given["mfu"])
    chosen = steps(given["batch_split"])
    table = _tabulate_splits({split: steps(split) for split in SPLITS}, names) if len(set(zip(ons, gpus, strict=True))) > 1 else None
    alone = tuple(one(on, n, rate, batch) for on, n, rate in zip(ons, gpus, rates, strict=True))
    return SiteSteps(chosen, total, [warning], table, alone)


def _count_parameters(given: dict[str, Any], folders: tuple[str, ...]) -> tuple[float, float]:
    """Parameters of the model, all of them and those that a token uses."""
    if "parameters" in given:
        return given["parameters"], given["parameters"]
    record = plain_model(bind_model(given["model"], folders)[0])
    return float(total_parameters(record)), float(active_parameters(record))


class _Estimates:
    """Estimates of sites, one for each accelerator, count and share of the batch."""

    def __init__(self, given: dict[str, Any], folders: tuple[str, ...]) -> None:
        self.given, self.folders = given, folders
        self.options = {name: given[name] for name in (*PLAN, "seq_len", "tokens") if name in given}  # the default batch follows the tokens
        self.known: dict[tuple[str, float, float | None], SiteStep] = {}

    def find(self, on: str, gpus: float, share: float | None) -> SiteStep:
        """The step of a site with so many accelerators and sequences; without a share, the default batch of an estimate."""
        if (on, gpus, share) not in self.known:
            answer = estimate(self.given["model"], on, gpus=gpus, catalog=self.folders, global_batch_size=share, **self.options)
            if not bool(answer.legal[0]):
                raise no_such_plan(answer, f" at a site of {gpus:,.0f} {on}")
            group = answer.groups[0]
            sequences = float(group.plan.global_batch_size[0])
            self.known[on, gpus, share] = SiteStep(
                on, gpus, group.cluster, sequences * float(group.plan.seq_len[0]), sequences, group.step.tree,
                float(group.throughput["mfu"].value[0]), bool(group.memory.fits[0]), group,
            )  # fmt: skip
        return self.known[on, gpus, share]

    def alone(self, on: str, gpus: float, sequences: float) -> SiteStep:
        """The step of a site that has the whole batch to itself; with its default batch where no plan has the whole one."""
        try:
            return self.find(on, gpus, sequences)
        except IronlawError:
            return self.find(on, gpus, None)


def _estimate_steps(
    given: dict[str, Any], ons: list[str], gpus: list[float], names: list[str], folders: tuple[str, ...], notes: Assumptions
) -> SiteSteps:
    """The step of every site from one estimate for each kind of site."""
    estimates, split = _Estimates(given, folders), given["batch_split"]
    sequences = _batch_sequences(given, split, gpus, folders, notes)
    if sequences is None:
        chosen = tuple(estimates.find(on, n, None) for on, n in zip(ons, gpus, strict=True))
        usual = sum(site.sequences or 0.0 for site in chosen)
        if split == "balanced":
            chosen = _split_batch(estimates, split, usual, ons, gpus)
        elif len(set(gpus)) > 1:
            chosen = _split_batch(estimates, split, _shared(usual, gpus, gpus if split == "gpus" else [1.0] * len(gpus)), ons, gpus)
    else:
        chosen = _split_batch(estimates, split, sequences, ons, gpus)
    slowest = max(chosen, key=lambda site: site.seconds)
    assert slowest.group is not None
    for item in slowest.group.assumptions:
        if item["name"] not in ("gpus", "global_batch_size", "model", "on"):
            assume(notes, item["name"], item["value"], item["origin"])
    batch = sum(site.sequences or 0.0 for site in chosen)
    assume(notes, "global_batch_size", batch, "given" if sequences else "default")
    table = None
    if len(set(zip(ons, gpus, strict=True))) > 1:
        others = {split: chosen}
        for other in SPLITS:
            try:
                others[other] = others.get(other) or _split_batch(estimates, other, batch, ons, gpus)
            except IronlawError:  # the batch cannot be split in this way
                continue
        table = _tabulate_splits({name: others[name] for name in SPLITS if name in others}, names)
    warnings = list(dict.fromkeys(line for site in chosen if site.group for line in site.group.warnings))
    alone = chosen if len(chosen) == 1 else tuple(estimates.alone(on, n, batch) for on, n in zip(ons, gpus, strict=True))
    return SiteSteps(chosen, trained_parameters(slowest.group.job), warnings, table, alone)


def _shared(usual: float, gpus: list[float], weights: list[float]) -> float:
    """The batch near the sum of the sites' own that is shared in proportion to whole weights, in parts that the accelerators divide well.

    >>> _shared(1536.0, [2048.0, 1024.0, 2048.0], [2048.0, 1024.0, 2048.0]), _shared(2560.0, [2048.0, 1024.0], [1.0, 1.0])
    (1280.0, 3072.0)
    """
    common = float(math.gcd(*(int(n) for n in gpus)))
    parts = sum(weights) / math.gcd(*(int(n) for n in weights))
    share, near = max(usual / parts, 1.0), defaults.BATCH_RANGE
    return defaults.batches(common, share, (1.0 - near) * share, (1.0 + near) * share)[0] * parts


def _split_batch(estimates: _Estimates, split: str, sequences: float, ons: list[str], gpus: list[float]) -> tuple[SiteStep, ...]:
    """The steps of the sites that share a batch of so many sequences."""
    kinds = list(zip(ons, gpus, strict=True))
    if split == "balanced":
        return _balance(estimates, sequences, kinds)
    shares = [sequences * n / sum(gpus) for n in gpus] if split == "gpus" else [sequences / len(gpus)] * len(gpus)
    for share, n in zip(shares, gpus, strict=True):
        if share != int(share) or share < 1:
            raise QuestionError(
                f"a batch of {sequences:g} sequences gives {share:.2f} to a site with {n:g} of {sum(gpus):g} GPUs,"
                " must be whole: change the batch or --gpus, or give --batch-split balanced"
            )
    return tuple(estimates.find(on, n, share) for (on, n), share in zip(kinds, shares, strict=True))


def _balance(estimates: _Estimates, sequences: float, kinds: Sequence[tuple[str, float]]) -> tuple[SiteStep, ...]:
    """The split of the batch whose slowest site is fastest: shares in proportion to the tokens per second of each site."""
    if sequences < len(kinds) or sequences != int(sequences):
        raise QuestionError(f"a batch of {sequences:g} sequences cannot be split over {len(kinds)} sites: give a larger whole batch")
    part = 2.0 ** math.floor(math.log2(max(sequences / (FINE * len(kinds)), 1.0)))
    while sequences % part:
        part /= 2.0
    weights = [n for _, n in kinds]
    best: tuple[SiteStep, ...] = ()
    tried: set[tuple[float, ...]] = set()
    for _ in range(ROUNDS):
        shares = tuple(part * count for count in _whole_parts(sequences / part, weights))
        if shares in tried:
            break
        tried.add(shares)
        steps = tuple(estimates.find(on, n, share) for (on, n), share in zip(kinds, shares, strict=True))
        if not best or max(s.seconds for s in steps) < max(s.seconds for s in best):
            best = steps
        weights = [share / step.seconds for share, step in zip(shares, steps, strict=True)]
    return best


def _whole_parts(count: float, weights: Sequence[float]) -> list[float]:
    """Whole numbers of at least one in proportion to ``weights`` that sum to ``count``: the largest remainders are rounded up."""
    exact = [count * weight / sum(weights) for weight in weights]
    parts = [max(float(math.floor(item)), 1.0) for item in exact]
    order = sorted(range(len(parts)), key=lambda i: exact[i] - parts[i], reverse=True)
    at = 0
    while sum(parts) < count:
        parts[order[at % len(parts)]] += 1.0
        at += 1
    while sum(parts) > count:
        parts[parts.index(max(parts))] -= 1.0
    return parts


def _tabulate_splits(found: dict[str, tuple[SiteStep, ...]], names: list[str]) -> Table:
    """A row for each way to split the batch."""
    rows = []
    for split, sites in found.items():
        step = max(site.seconds for site in sites)
        shares = [f"{site.sequences:,.0f}" if site.sequences else f"{site.batch / sum(s.batch for s in sites):.1%}" for site in sites]
        rows.append({
            "split": split, "batches": " + ".join(shares), "step": step, "tokens_per_second": sum(site.batch for site in sites) / step,
            "slowest": names[max(range(len(sites)), key=lambda i: sites[i].seconds)] if len({s.seconds for s in sites}) > 1 else "",
        })  # fmt: skip
    return Table("splits", "Ways to split the batch", SPLIT, rows)


def _batch_sequences(given: dict[str, Any], split: str, gpus: list[float], folders: tuple[str, ...], notes: Assumptions) -> float | None:
    """Sequences in the batch of all sites; None where no batch is given, so that every site has the default batch of an estimate.

    A batch in tokens is the nearest number of sequences that the sites can share.
    """
    if "global_batch_tokens" not in given:
        return given.get("global_batch_size")
    seq_len = given.get("seq_len") or defaults.seq_len(bind_model(given["model"], folders)[0].max_position_embeddings)
    by_gpus = sum(gpus) / math.gcd(*(int(n) for n in gpus))
    tokens, multiple = given["global_batch_tokens"], {"gpus": by_gpus, "even": float(len(gpus))}.get(split, 1.0)
    if taken := batch_taken(tokens, seq_len, multiple):
        assume(notes, "--global-batch-tokens", taken, "default")
    return sequences_of(tokens, seq_len, multiple)
