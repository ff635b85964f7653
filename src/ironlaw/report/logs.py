"""Lines of a page for logs, memory snapshots and memory timelines, from the data of the JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ironlaw import units
from ironlaw.questions.answer import Column, Table
from ironlaw.report.answer import table_lines
from ironlaw.report.terminal import Ink

MOST_ROWS = 12


def logs_lines(files: list[Mapping[str, Any]], ink: Ink) -> Iterator[str]:
    """A table of several logs, one line each."""
    if not files:
        return
    rows = []
    for file in files:
        log = file["log"]
        steps, rates = log["steps"] or {}, log["rates"] or {}
        rows.append(
            {
                "file": str(file["path"]).rsplit("/", 1)[-1],
                "format": log["format"],
                "gpus": log["world_size"],
                "median": steps.get("median_seconds"),
                "tokens": rates.get("tokens_per_second"),
                "flops": rates.get("model_flops"),
                "mfu": rates.get("mfu"),
                "hfu": rates.get("hfu"),
            }
        )
    columns = (
        Column("file", "log"),
        Column("format", "format"),
        Column("gpus", "GPUs"),
        Column("median", "median step", "s"),
        Column("tokens", "tokens/s/GPU"),
        Column("flops", "model FLOP/s/GPU", "FLOP/s"),
        Column("mfu", "MFU", "%"),
        Column("hfu", "HFU", "%"),
    )
    yield from table_lines(Table("logs", "Logs", columns, rows), ink)


def efficiency_lines(rows: list[Mapping[str, Any]], ink: Ink) -> Iterator[str]:
    """Parallel efficiency of one model on several numbers of GPUs."""
    columns = (Column("gpus", "GPUs"), Column("per_gpu", "tokens/s/GPU"), Column("efficiency", "efficiency", "%"))
    if rows:
        yield from table_lines(Table("efficiency", "Parallel efficiency", columns, rows), ink)


def log_lines(log: Mapping[str, Any], ink: Ink) -> Iterator[str]:
    """Step times, rates and their peaks, the bottlenecks the log rules out, and the sources of its values."""
    steps = log["steps"]
    if steps is not None:
        yield ink.bold("Steps")
        spread = f"; 5th to 95th percentile {_s(steps['p5_seconds'])} to {_s(steps['p95_seconds'])}" if steps["lines"] > 1 else ""
        yield f"  median {_s(steps['median_seconds'])} per {steps['per']}, over {steps['iterations']} ({_lines(steps['lines'])}){spread}"
    for aside in log["aside"]:
        yield f"  left out: {_lines(aside['lines'])}: {aside['reason']}" + (
            f" ({_s(aside['median_seconds'])})" if aside["median_seconds"] else ""
        )
    yield from _run_lines(log.get("whole_run"), ink)
    yield from _rate_lines(log, ink)
    if log["collectives"]:
        yield from _collective(log["collectives"], ink)
        return  # a benchmark of collectives has no model
    if missing := "; ".join(why for why in (log["why_no_rates"], log["why_no_mfu"]) if why):
        yield ink.dim(f"  {missing}")
    for excluded in log["excluded"]:
        yield f"  ruled out: {excluded['roof']} ({excluded['why']})"
    if peaks := _peaks(log["claims"]):
        yield f"  memory at most: {peaks}"
    elif log["memory"]:
        yield f"  highest memory {log['memory'] / 2**30:.1f} GiB"
    for source in log["said"]:
        yield ink.dim(f"  {source}")


PARTS_OF_RUN = (
    ("warm_up_seconds", "warm-up"), ("slower_seconds", "slower than usual"), ("skipped_seconds", "skipped iterations"),
    ("repeated_seconds", "made again after a restart"), ("between_seconds", "between steps"),
)  # fmt: skip


def _run_lines(run: Mapping[str, Any] | None, ink: Ink) -> Iterator[str]:
    """The run as a whole: its goodput and where the rest went, events and changes. Nothing of a log of a few steps."""
    if run is None or run["iterations"] < MOST_ROWS:
        return
    wall = run["wall_seconds"]
    yield ink.bold("Run")
    parts = [f"{words} {run[key] / wall:.1%}" for key, words in PARTS_OF_RUN if abs(run[key] or 0.0) >= 0.001 * wall]
    yield f"  {run['goodput']:.1%} of {_s(wall)} made progress at the usual step time of {_s(run['usual_seconds'])}" + (
        f"; {', '.join(parts)}" if parts else ""
    )
    for event in run["events"]:
        yield f"  {event['kind']}: {event['count']}" + (f", {_s(event['seconds'])}" if event["seconds"] else "")
    if run["restarts"]:
        yield f"  {run['restarts']} restart{'s' if run['restarts'] != 1 else ''}"


def _rate_lines(log: Mapping[str, Any], ink: Ink) -> Iterator[str]:
    """Rates of a GPU with their peak; without a model, what the log prints of them."""
    rates = log["rates"]
    if rates is not None:
        yield ink.bold("Rates per GPU")
        yield f"  {rates['tokens_per_second']:,.1f} tokens/s"
        yield f"  model    {_tflops(rates['model_flops'])}{_of(rates['mfu'], 'MFU')}: {rates['formula']}, k keys that a token sees"
        full = f"{_tflops(rates['model_flops_full_square'])}{_of(rates['mfu_full_square'], 'MFU')}"
        yield f"  model    {full}: attention as the full square"
        yield f"  hardware {_tflops(rates['hardware_flops'])}{_of(rates['hfu'], 'HFU')}: with recompute, {rates['recompute_formula']}"
        if rates["peak"]:
            yield f"  peak     {_tflops(rates['peak'])}, dense {rates['dtype']} of {rates['device']}"
        if rates["claim"]:
            yield f"  the log prints {_tflops(rates['claimed_flops'])}, which {rates['claim']}"
    elif log["claimed_mfu"] is not None:
        share, rate = log["claimed_mfu"], _tflops(log["claimed_flops"])
        yield f"  the log prints {rate} per GPU: {share:.1%} of the dense peak, as its framework counts FLOPs"
    if rates is None and log["tokens_per_second"]:
        yield f"  {log['tokens_per_second']:,.0f} tokens/s of all GPUs"


def _collective(bench: Mapping[str, Any], ink: Ink) -> Iterator[str]:
    """A benchmark of collectives: rates by size, fits and notes."""
    rows = [{**s, "where": "in place" if s["in_place"] else "out of place"} for s in bench["sizes"][:MOST_ROWS]]
    columns = (
        Column("size", "bytes", "B"),
        Column("where", ""),
        Column("calls", "calls"),
        Column("seconds", "time", "s"),
        Column("algorithm_bandwidth", "algbw", "B/s"),
        Column("bus_bandwidth", "busbw", "B/s"),
    )
    title = f"{bench['collective'] or 'collective'} over {bench['ranks'] or 'an unknown number of'} ranks, medians"
    yield from table_lines(Table("sizes", title, columns, rows), ink)
    for fit in bench["fits"]:
        yield f"  {_fit(fit)}" + (f"; {fit['why']}" if fit["why"] else "")
    for note in bench["notes"]:
        yield ink.dim(f"  {note}")


def _fit(fit: Mapping[str, Any]) -> str:
    """One line for a fit: latency, bandwidth and their errors."""
    rate, error = fit["bandwidth"], fit["bandwidth_error"]
    if rate is None:
        return f"fit over {fit['sizes']} sizes: no bandwidth"
    bus = "" if fit["bus_bandwidth"] is None else f" (bus {units.show(fit['bus_bandwidth'], 'B/s', 4)})"
    spread = units.show(error or 0.0, "B/s", 2)
    return (
        f"fit over {fit['sizes']} sizes: latency {_s(fit['latency_seconds'])}, bandwidth {units.show(rate, 'B/s', 4)} +- {spread}{bus},"
        f" half of it at {units.show(fit['half_size'], 'B')}; error {fit['error']:.1%}, at most {fit['worst']:.1%}"
    )


def snapshot_lines(snapshot: Mapping[str, Any], ink: Ink) -> Iterator[str]:
    """The peak of each device and its holders, then the state of its allocator at the dump."""
    for device in snapshot["devices"]:
        yield ink.bold(f"Memory of device {device.get('device', 0)}")
        peak, reserved = device.get("peak"), device.get("reserved_peak")
        if peak:
            yield f"  peak of the trace              {_gib(peak['size'])}{_moment(peak, device)}"
            yield from _holder_lines(device.get("peak_holders"))
        if reserved:
            yield f"  peak reserved                  {_gib(reserved['size'])}"
        yield "  at the dump" + ("" if peak else " (the file has no trace, so no peak)")
        for key, value in device.items():
            if isinstance(value, int) and not isinstance(value, bool) and value > 1 << 20:
                yield f"    {key.replace('_', ' '):<28} {_gib(value)}"
            elif isinstance(value, float):
                yield f"    {key.replace('_', ' '):<28} {value:9.1%}"
        yield from _holder_lines(device.get("holders"))


def _gib(size: float) -> str:
    return f"{size / 2**30:9.3f} GiB"


def _moment(peak: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    """When the peak was, in entries of the trace."""
    churn = device.get("churn") or {}
    return f", after entry {peak['entry']:,} of {churn['entries']:,}" if churn.get("entries") else ""


def _holder_lines(holders: list[Mapping[str, Any]] | None) -> Iterator[str]:
    """The largest holders of memory with their lines of source."""
    for holder in (holders or [])[:MOST_ROWS]:
        yield f"      {_gib(holder['size'])}  {holder.get('frame') or holder.get('name') or ''}"


SAID = (  # what a message or table may say, with its words
    ("asked", "requested, and refused"),
    ("needed", "needed by the program"),
    ("allocated", "allocated by PyTorch"),
    ("peak_allocated", "peak allocated"),
    ("reserved", "reserved by PyTorch"),
    ("peak_reserved", "peak reserved"),
    ("unallocated", "reserved, not allocated"),
    ("this_process", "this process"),
    ("used", "used by all processes"),
    ("other_processes", "other processes"),
    ("free", "free on the device"),
    ("allowed", "allowed to the process"),
    ("private_pools", "in pools of CUDA graphs"),
    ("capacity", "capacity"),
)


def memory_text_lines(text: Mapping[str, Any], ink: Ink) -> Iterator[str]:
    """The message or table with the most memory, and how many others the file has; then the model states that it estimates."""
    if text["entries"]:
        entry, rest = text["entries"][0], len(text["entries"]) - 1
        device = "" if entry["device"] is None else f" of device {entry['device']}"
        yield ink.bold(f"Memory{device}, from {entry['form']}" + (f" ({rest} more in the file)" if rest else ""))
        for key, words in SAID:
            if entry[key] is not None:
                yield f"  {words:<28} {_gib(entry[key])}"
        for size in entry["processes"][:MOST_ROWS]:
            yield f"  {'a process':<28} {_gib(size)}"
        if entry["retries"]:
            yield f"  the allocator gave its cache back {entry['retries']:,} times: it was nearly out of memory"
        if entry["form"] == text["entries"][-1]["form"] and rest and entry["used"] is not None:
            used = [other["used"] / 2**30 for other in text["entries"] if other["used"] is not None]
            yield f"  used on {len(used)} devices: {min(used):.2f} to {max(used):.2f} GiB"
    if text["states"]:
        first = text["states"][0]
        gpus = "" if first["gpus"] is None else f" on {first['gpus']} GPUs"
        columns = (Column("options", "options"), Column("host", "host, per node", "B"), Column("device", "per GPU", "B"))
        title = f"Weights, gradients and optimizer states as DeepSpeed estimates them: {first['parameters'] / 1e6:,.0f} M parameters{gpus}"
        yield from table_lines(Table("states", title, columns, list(text["states"])), ink)
        yield ink.dim("  without activations, buffers and fragments: ironlaw estimate has them")


def timeline_lines(timeline: Mapping[str, Any], ink: Ink) -> Iterator[str]:
    """The peak of a memory timeline, by category."""
    yield ink.bold(f"Peak {timeline['peak'] / 2**30:.3f} GiB")
    for category, size in timeline["at_peak"].items():
        if size:
            yield f"  {category:<24} {size / 2**30:9.3f} GiB"


def memory_lines(rows: list[Mapping[str, Any]], run: Mapping[str, Any] | None, ink: Ink) -> Iterator[str]:
    """A table of measured and predicted memory, with the run that was predicted, and changes with which it fits."""
    columns = (
        Column("term", "memory"),
        Column("measured", "measured", "B"),
        Column("predicted", "predicted", "B"),
        Column("error", "error", "%"),
        Column("note", ""),
    )
    if rows:
        yield from table_lines(Table("memory", "Memory, measured and predicted", columns, rows), ink)
    if not run:
        return
    yield f"  predicted for {run['plan']}"
    if run["assumed"]:
        yield ink.dim(f"  assumed, as not given: {', '.join(run['assumed'])}")
    if run["ways_to_fit"] is None:
        return
    for way in run["ways_to_fit"]:
        fits = f"{way['device'] / 2**30:.1f} GiB, {way['fits_probability']:.0%} likely to fit, {way['time_ratio']:.2f} x the time"
        yield f"  with {way['flags']}: {fits}"
    if not run["ways_to_fit"]:
        yield "  no single change makes it fit: more GPUs, a smaller model, or adapters (ironlaw plan searches)"


def _lines(number: int) -> str:
    """A number of lines, in words."""
    return f"{number} line{'s' if number != 1 else ''}"


def _s(seconds: float) -> str:
    """A time in seconds, with a unit."""
    return units.show(seconds, "s", 5)


def _tflops(rate: float) -> str:
    return f"{rate / 1e12:.2f} TFLOP/s"


def _of(share: float | None, name: str) -> str:
    return "" if share is None else f" = {name} {units.share(share)}"


PEAKS = (("memory_active_max", "active"), ("memory_allocated_max", "allocated"), ("memory_reserved_max", "reserved"))


def _peaks(claims: Mapping[str, float]) -> str:
    """The peaks of memory that a log prints, each with its kind.

    >>> _peaks({"memory_allocated_max": 2.0**31, "memory_reserved_max": 3.0 * 2**30})
    'allocated 2.0 GiB, reserved 3.0 GiB'
    """
    return ", ".join(f"{words} {claims[name] / 2**30:.1f} GiB" for name, words in PEAKS if name in claims)
