"""The run that a measurement of memory is compared with: as given, and what is not given in its simplest form.

A best plan would recompute, shard or offload what the measured run did not. So axes that a question leaves open take the values of a run
that nobody tuned, and the page names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.measure.versus.predicted import run_estimate
from ironlaw.question.assumptions import printed

SIMPLE = {"tp": 1, "pp": 1, "cp": 1, "vpp": 1, "recompute": "none", "offload": "none"}
WAYS: tuple[tuple[str, Mapping[str, Any]], ...] = (  # what asks for less memory, the cheapest kinds first
    ("--recompute selective", {"recompute": "selective"}),
    ("--recompute full", {"recompute": "full"}),
    ("--zero 1", {"zero": 1}),
    ("--zero 3", {"zero": 3}),
    ("--micro-batch-size 1", {"micro_batch_size": 1}),
    ("--micro-batch-size 1 --recompute full", {"micro_batch_size": 1, "recompute": "full"}),
    ("--zero 3 --recompute full", {"zero": 3, "recompute": "full"}),
    ("--optimizer adam8bit", {"optimizer": "adam8bit"}),
    ("--offload optimizer", {"offload": "optimizer"}),
)
MOST_WAYS = 3
FACTS = ("seq_len", "global_batch_size", "micro_batch_size", "zero", "precision", "optimizer", "framework")  # of the run, beside its axes


def fill_simply(question: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The question with its open axes in their simplest form, and those axes as ``name value``.

    With a batch and without a micro-batch, a rank runs its share of the batch at once. ZeRO shards nothing on one accelerator.

    >>> fill_simply({"model": "llama-3-8b", "gpus": 1, "global_batch_size": 4})[1]
    ('tp 1', 'pp 1', 'cp 1', 'vpp 1', 'recompute none', 'offload none', 'zero 0', 'micro_batch_size 4')
    """
    filled = {name: value for name, value in question.items() if value is not None}
    simple: dict[str, Any] = dict(SIMPLE)
    if str(filled.get("gpus", "")) == "1":
        simple["zero"] = 0
        if (batch := filled.get("global_batch_size")) is not None:
            simple["micro_batch_size"] = batch
    added = {name: value for name, value in simple.items() if name not in filled}
    return {**filled, **added}, tuple(f"{name} {value}" for name, value in added.items())


def assumed_facts(question: Mapping[str, Any], estimate: Estimate) -> tuple[str, ...]:
    """The facts of the predicted run that the question does not give, as ``name value``: the estimate took them."""
    plan = estimate.row(0)["plan"]
    return tuple(f"{name} {printed(plan[name])}" for name in FACTS if question.get(name) is None and plan.get(name) is not None)


def describe_run(estimate: Estimate) -> str:
    """The plan of an estimate with one row, in the words of the page of an estimate."""
    plan = estimate.row(0)["plan"]
    axes = " ".join(f"{name} {plan[name]:g}" for name in ("tp", "pp", "cp", "ep") if plan[name] > 1)
    batch = f"micro-batch {plan['micro_batch_size']:g} x {plan['num_microbatches']:g} of {plan['seq_len']:g} tokens"
    offload = f", offload {','.join(plan['offload'])}" if plan["offload"] else ""
    words = [axes, f"zero {plan['zero']:g}", batch, f"recompute {plan['recompute']}{offload}", plan["precision"], plan["optimizer"]]
    return ", ".join(word for word in (*words, plan["framework"]) if word)


def ways_to_fit(question: Mapping[str, Any], folders: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Single changes of a run that is out of memory with which it is likely to fit, the fastest first.

    Each has its flags, the memory of the device, the probability to fit, and its time over that of the run.
    """
    from ironlaw.errors import IronlawError

    base = float(run_estimate(question, folders).step_seconds[0])
    found, tried = [], {frozenset[tuple[str, str]]()}
    for flags, options in WAYS:
        changes = frozenset((name, str(value)) for name, value in options.items() if str(question.get(name)) != str(value))
        if changes in tried:
            continue
        tried.add(changes)
        try:
            row = run_estimate({**question, **options}, folders).row(0)
        except IronlawError:
            continue  # not a run of this stack, plan or count
        if row["memory"]["fits"]:
            chance, seconds = row["memory"]["fits_probability"], row["step"]["seconds"]
            found.append({"flags": flags, "device": row["memory"]["device"], "fits_probability": chance, "time_ratio": seconds / base})
    found.sort(key=lambda way: (way["fits_probability"] < 0.5, way["time_ratio"]))
    return found[:MOST_WAYS]
