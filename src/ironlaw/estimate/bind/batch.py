"""The range of the batch of a question that gives none: where it starts, its limit, and what an answer says of them."""

from __future__ import annotations

from collections.abc import Collection
from math import ceil, log2
from typing import TYPE_CHECKING, Any, NamedTuple

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.estimate.layer.counts import active_parameters, total_parameters
from ironlaw.law.batches import deepseek_batch
from ironlaw.law.flops import per_token
from ironlaw.question import defaults
from ironlaw.question.assumptions import Assumptions, assume

if TYPE_CHECKING:
    from ironlaw.estimate.bind.question import Bound
    from ironlaw.question.asked import Asked
    from ironlaw.question.fields import Row


class BatchRange(NamedTuple):
    """Sequences of a step where the question gives none: the usual number, the range to pick from, and the rule as text."""

    usual: float
    least: float
    most: float
    rule: str

    def to_try(self, gpus: float, micro_batch_size: float = 1.0) -> list[float]:
        """The batches to try on a number of accelerators, the nearest to the usual one first."""
        return defaults.batches(gpus, self.usual, self.least, self.most, micro_batch_size)


def batch_range(bound: Bound, row: Row) -> BatchRange:
    """The range of the batch of a row.

    A fine-tuning (adapters, frozen layers, an objective on answers, or a framework that is named and fine-tunes) takes what the recipes of
    trainers take: so many sequences for each accelerator, between two numbers. Other runs start at 4 Mi tokens, or at the limit where that
    is less. The limit is the power of two that is nearest to ``law.batches.deepseek_batch`` of the run's compute.
    """
    seq_len = row.seq_len or 1.0
    each = fine_tuned_each(bound.asked, bound.folders)
    if each:
        usual = defaults.fine_tuning_batch(row.gpus or 1.0, each)
        return _around(usual, usual, "what the recipes of fine-tuning take")
    given = bound.asked.tokens
    tokens, of = (given, "") if given else (usual_tokens(bound), " (a usual number: the question gives none)")
    limit = batch_limit(bound, tokens)
    usual, most = (max(float(ceil(size / seq_len)), 1.0) for size in (min(limit, defaults.BATCH_TOKENS), limit))
    start, loss = units.binary(min(limit, defaults.BATCH_TOKENS)), f"at most {defaults.BATCH_LOSS:.0%} of the speed of the best"
    rule = (
        f"nearest to {start} tokens that loses {loss} up to {units.binary(limit)} tokens, the limit for {units.amount(tokens)} tokens{of}"
    )
    return _around(usual, most, rule)


def in_words(tokens: float) -> str:
    """Tokens with a binary prefix where that is short, else with a decimal one.

    >>> in_words(2.0**24), in_words(8191 * 8192.0)
    ('16 Mi', '67.1 M')
    """
    if tokens % 2**18 == 0.0:
        return units.binary(tokens)
    return f"{tokens / 1e6:.3g} M" if tokens >= 1e6 else f"{tokens:,.0f}"


def _around(usual: float, most: float, rule: str) -> BatchRange:
    """A range whose ends leave room for batches that plans divide well."""
    share = defaults.BATCH_RANGE
    return BatchRange(usual, float(ceil((1.0 - share) * usual)), max(most, float(int((1.0 + share) * usual))), rule)


def fine_tuned_each(asked: Asked, folders: tuple[str, ...]) -> float | None:
    """Sequences of a step for each accelerator where a question fine-tunes and gives no batch; None where it does not fine-tune.

    It does where adapters are trained, where layers are frozen, or where the objective's record says so. A question that names a framework
    and no objective does where the framework's record has such a batch: what its full fine-tuning takes.
    """
    objective = load.record("objectives", asked.objective or "next-token", folders)
    if asked.lora_rank or asked.frozen_layers or objective.fine_tunes:
        return defaults.FINE_TUNED_EACH
    if asked.objective or not asked.framework:
        return None
    stated = load.record("frameworks", asked.framework, folders).fine_tuning_batch
    return None if stated is None else float(stated.value)


def objective_of_several(frameworks: Collection[str], folders: tuple[str, ...]) -> dict[str, str]:
    """The objective of frameworks that are compared and of which only some fine-tune: all take the batch of one job, a pre-training."""
    fine_tune = {load.record("frameworks", name, folders).fine_tuning_batch is not None for name in frameworks if name}
    return {"objective": "next-token"} if len(fine_tune) == 2 else {}


def usual_tokens(bound: Bound) -> float:
    """Tokens of a run that gives none: 20 for each parameter, and at least 300 G."""
    return max(defaults.TOKENS_PER_PARAMETER * float(total_parameters(bound.model)), defaults.LEAST_TOKENS)


def batch_limit(bound: Bound, tokens: float) -> float:
    """The most tokens of a step that the rule takes for a run: the power of two nearest to the law of its compute."""
    operations = float(per_token(active_parameters(bound.model))) * tokens
    return float(2.0 ** round(log2(float(deepseek_batch(operations)))))


def assume_batch(notes: Assumptions, bound: Bound, batches: Collection[float], shared: str = "") -> None:
    """Note the batches that were picked for a question that gives none; ``shared`` says for whom the one batch was picked."""
    asked = bound.asked
    if "global_batch_size" in asked.given or asked.global_batch_tokens is not None:
        return
    batch, taken = next(iter(batches)), batch_range(bound, asked.rows[0])
    value: Any = batch if len(set(batches)) == 1 else "by row"
    assume(notes, "global_batch_size", f"{batch:g} {shared}" if shared else value, "default")
    assume(notes, "batch", taken.rule, "default")
