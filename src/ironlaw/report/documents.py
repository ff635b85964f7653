"""The lines of an estimate about documents of many lengths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ironlaw import units
from ironlaw.estimate.answer.many_lengths import documents_data
from ironlaw.terms import scalar

if TYPE_CHECKING:
    from ironlaw.estimate.answer.group import Group
    from ironlaw.report.terminal import Ink

WAYS = {  # of packing, in words
    "none": "one a sequence, padded to the longest of its micro-batch",
    "sorted": "one a sequence, padded to the longest of its micro-batch of neighbours in length",
    "pad": "one a sequence, padded to seq_len",
    "pack": "packed by first fit",
    "pack-best-fit": "packed by best fit, the longest first",
    "truncate": "one stream, cut at every sequence",
}


def document_lines(group: Group, at: int, ink: Ink) -> Iterator[str]:
    """What the documents are, how they are packed, and what padding and unequal work cost; nothing where all documents are alike."""
    data = documents_data(group, at).get("documents")
    if data is None:
        return
    short = units.amount
    yield ink.bold("Documents") + ink.dim(f"  ({data['title']})")
    yield (
        f"  mean {short(data['mean_length'])} tokens, median {short(data['median_length'])}, 95% up to {short(data['length_95'])}, longest"
        f" {short(data['longest'])}; a random token is in a document of {short(data['length_of_a_token'])}"
    )
    cut = f"; {data['tokens_cut_off']:.1%} of their tokens cut off" if data["tokens_cut_off"] >= 0.0005 else ""
    yield (
        f"  {WAYS[data['packing']]}: {short(data['per_sequence'])} a sequence of {short(data['computed_tokens_per_sequence'])} tokens,"
        f" padding {data['padding']:.1%}{cut}"
    )
    needed, computed = data["attention_flop_needed"], data["attention_flop_computed"]
    yield (
        f"  attention needs {units.show(needed, 'FLOP')} a step inside documents and computes {units.show(computed, 'FLOP')}"
        f" ({1.0 - needed / computed:.1%} for padding)"
    )
    if data["step_median"] is None:
        return
    real, mfu = (scalar(group.throughput[name], at) for name in ("real_tokens_per_second", "mfu_real"))
    yield (
        f"  real tokens {real:,.0f}/s, MFU of real tokens {mfu:.1%} (attention inside documents); slowest rank"
        f" {data['slowest_over_mean']:.3f} times the mean; step median {units.show(data['step_median'], 's')}, 95% up to"
        f" {units.show(data['step_95'], 's')}"
    )
    by_balance = data["step_by_balance"]
    yield "  step by balance: " + ", ".join(f"{name} {units.show(seconds, 's')}" for name, seconds in by_balance.items())
    if "step_with_fixed_cp" in data:
        fixed, shares = data["step_with_fixed_cp"], data["tokens_by_context_ranks"]
        listed = ", ".join(f"{share:.0%} on {ranks}" for ranks, share in shares.items() if share >= 0.0005)
        yield (
            f"  context ranks by length: tokens {listed}; with all ranks for all documents the step takes {units.show(fixed, 's')},"
            f" {fixed / scalar(group.step.tree, at):.2f} times as long"
        )
