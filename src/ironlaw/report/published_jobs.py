"""Every published job against the best plan of an open question: figures and a table, for the terminal and the page of published plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ironlaw.estimate.evidence.support import read_values
from ironlaw.report.columns import ratio, set_rows
from ironlaw.report.estimate import mesh_words
from ironlaw.report.terminal import markdown_table

_HEADER = ("job", "row", "measured", "published", "best", "R", "published plan", "best plan", "")


def plan_in_words(plan: Mapping[str, Any]) -> str:
    """A plan of an answer in a few words: its axes, ZeRO, micro-batch and recomputation.

    >>> axes = dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard"), 1)
    >>> plan_in_words({**axes, "tp": 8, "pp": 4, "zero": 1, "micro_batch_size": 2, "recompute": "full"})
    'tp 8 pp 4, zero 1, micro-batch 2, recompute full'
    """
    mesh = mesh_words({**plan, "dp_shard": 1})  # what is left of the accelerators
    return f"{mesh}, zero {plan['zero']}, micro-batch {plan['micro_batch_size']}, recompute {plan['recompute']}"


def remarks(row: Mapping[str, Any]) -> list[str]:
    """What stands beside a job: why its best plan does not run, what rests on no measured run, and that no plan fits."""
    found = [f"refused: {row['refused']}"] if row["refused"] else []
    found += [f"never measured: {', '.join(row['never_measured'])}"] if row["never_measured"] else []
    found += [f"MFU {row['mfu']:.1%} above {row['ceiling']['mfu']:.1%} ({row['ceiling']['run']})"] if row["ceiling"] else []
    return found + (["no plan fits"] if row["fits"] is False else [])


def summary_lines(figures: Mapping[str, Any]) -> Iterator[str]:
    """The figures over all jobs in sentences."""
    yield (
        f"{figures['jobs']} published jobs on 16 accelerators or more, {figures['jobs_64']} of them on 64 or more. R, the predicted time of"
        f" the published plan over that of the best, on these: median {ratio(figures['ratio_median'])}, dense"
        f" {ratio(figures['ratio_median_dense'])}, mixtures {ratio(figures['ratio_median_mixtures'])};"
        f" {_share(figures['ratio_above_1_25'])} above 1.25. Of these {figures['above_1_25']} jobs {figures['argued']} are argued by"
        " measured runs or by a count, the others are open; each has a line below."
    )
    yield (
        "Where another run of the same job was measured faster, whatever is known of its plan, R is confirmed in part. Times what that run"
        f" took of the published plan's measured time the median is {ratio(figures['ratio_run_median_dense'])} for dense models and"
        f" {ratio(figures['ratio_run_median_mixtures'])} for mixtures."
    )
    yield f"Best plans that their stack refuses if given: {figures['refused']}."
    yield (
        f"Best plans with a value that no run of their kind of stack and model measured: {figures['never_measured']}, of which the page"
        f" does not name it: {figures['never_measured_unnamed']}. Above the highest measured MFU: {figures['above_ceiling']}, of which the"
        f" page does not say so: {figures['above_ceiling_unnamed']}."
    )
    yield (
        f"{figures['jobs_measured']} jobs with several measured plans, {figures['pairs']} pairs, families left out: measured log ratios are"
        f" {ratio(figures['slope'])} times the predicted ones, {ratio(figures['slope_families'])} with equal families. The plan predicted"
        f" fastest loses {_share(figures['regret'])} against the fastest measured one in the mean, a random one"
        f" {_share(figures['regret_random'])}."
    )
    yield (
        "Gains as pages print them are shrunk by a slope that was learned without the family of a pair: measured log ratios are"
        f" {ratio(figures['slope_printed'])} times the printed ones, {ratio(figures['slope_printed_families'])} with equal families. Of"
        f" pairs that are predicted at least 5 % apart the raw slope is {ratio(figures['slope_far'])}."
    )
    if figures["bubble_error_max"] is not None:
        yield f"Bubbles of best plans against an event simulation: at most {_share(figures['bubble_error_max'])} of the step apart."


def job_rows(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The cells of every job."""
    return [
        (
            f"{row['model']} on {row['gpus']} x {row['on']}",
            row["id"],
            _seconds(row["measured_s"]),
            _seconds(row["published_s"]),
            _seconds(row["best_s"]),
            ratio(row["ratio"]),
            plan_in_words(row["published"]),
            "-" if row["best"] is None else plan_in_words(row["best"]),
            "; ".join(remarks(row)),
        )
        for row in rows
    ]


_ARGUED = (
    "### Jobs above 1.25\n\n"
    "A line says what each change between the two plans gains alone: the best plan takes so many times as long with the published value."
    " *Likely* is the gain as every page prints it, the predicted ratio to the power of the learned slope. For it speak: another run of the"
    " same job (model, device, number, batch, length and format) that was measured faster; ranks that wait for the pipeline in a fifth of"
    " their passes or more; pairs of measured plans on such a stack and model that differ in the largest change, if two thirds are in the"
    " predicted order; a series of jobs with one layout, unless the best plan is above the highest measured MFU. Where nothing speaks for"
    " it the job is open.\n"
)


def arguments(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The jobs above 1.25, the largest ratio first, and what speaks for and against each gain."""
    far = sorted((row for row in rows if row["argument"]), key=lambda row: -row["ratio"])
    return [(f"{row['id']}, {row['model']} on {row['gpus']} x {row['on']}", row["argument"]["text"]) for row in far]


def without_rows() -> Iterator[str]:
    """What a search may choose and no published run has, so that no row can correct its law or its band."""
    of_kind = read_values()
    stages = [word for word in ("ZeRO 2", "ZeRO 2 with a pipeline") if not any(word in values for values in of_kind.values())]
    stacks = sorted({stack for stack, _ in of_kind} - {stack for (stack, _), values in of_kind.items() if "cp" in values})
    if stages:
        yield f"No published run has {' or '.join(stages)}, on any stack."
    if stacks:
        yield f"None has context parallelism on stacks like {', '.join(stacks)}; what runs on a torus is such a stack."
    if stages or stacks:
        yield (
            "There is no row by which their laws or bands could be corrected. A plan with one of them counts a value that was never"
            " measured: it is chosen only where it is predicted more than 5 % faster than any other plan, and its page names the value."
        )


def text(figures: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Figures and a line for each job in a terminal."""
    cells = [_HEADER, *job_rows(rows)]
    left = [k for k in range(len(_HEADER)) if k not in range(2, 6)]
    argued = [f"{job}: {line}" for job, line in arguments(rows)]
    return "\n".join([*summary_lines(figures), "", *set_rows(cells, left), "", *argued]).rstrip()


def markdown(figures: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The section of all jobs of ``docs/plans-against-published.md``."""
    yield "## All published jobs\n"
    yield (
        "Every job with a known plan on at least 16 accelerators: the fastest of its measured plans against the best plan of the same"
        " question without a plan, in the default space of its stack, with the margin of memory that every answer keeps. R near 1 alone"
        " proves nothing, a model that copies experts has it too; so read it beside the loss and the slope of measured plans.\n"
    )
    yield from (f"- {line}" for line in summary_lines(figures))
    yield ""
    order = (0, 1, 6, 7, 8, 2, 3, 4, 5)  # texts first
    yield from markdown_table(tuple(_HEADER[k] for k in order), [tuple(row[k] for k in order) for row in job_rows(rows)], 5)
    yield ""
    if lines := list(without_rows()):
        yield "### What no run measured\n"
        yield " ".join(lines) + "\n"
    if argued := arguments(rows):
        yield _ARGUED
        yield from (f"- **{job}**: {line}" for job, line in argued)
        yield ""


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
