"""The five steps of an estimate by hand with their numbers filled in, and the four errors that are usually made, each checked.

By hand means the arithmetic of a page: 16 bytes a parameter, 34 + 5 a s / h bytes of activations, 6 FLOP. The estimate's own numbers
stand beside it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw import units
from ironlaw.law import activations, states
from ironlaw.questions.answer import Column, Table
from ironlaw.terms import Term, leaf

if TYPE_CHECKING:
    from ironlaw.questions.solve.job import Job

USUAL_MFU = (0.40, 0.50)  # what document 001 takes tuned runs to reach
NEAR = 1.25  # beyond this factor of it a plan is too good, or something is lost
BUFFERS = 5e9  # bytes; what a page allows for temporary buffers
STEPS = (Column("step", "step"), Column("finding", "finding"), Column("ok", "ok"))
MEMORY = (Column("part", "part"), Column("by_hand", "by hand", "B"), Column("estimate", "estimate", "B"))
ERRORS = (Column("error", "error"), Column("consequence", "consequence here"), Column("fix", "what to do"))


def tables(known: dict[str, Any], gpus: float | None) -> list[Table]:
    """Five steps, memory part by part, four errors, from ``numbers``."""
    if not gpus:
        return []
    return [
        Table("steps", "The five steps", STEPS, _steps(known, gpus)),
        Table("memory", "Memory of one GPU (by hand all is sharded over all of them, as ZeRO 3 does)", MEMORY, _memory(known)),
        Table("errors", "The usual errors", ERRORS, _errors(known)),
        Table("causes", "What keeps it from the peak, by estimate", CAUSES, _causes(known)),
    ]


def numbers(values: dict[str, Any], job: Job, found: Any, gpus: float | None, mfu: float | None) -> dict[str, Any]:
    """What the steps are made of, as plain SI values; nothing where no count is known."""
    if not gpus:
        return {}
    held = by_hand(values, job, found, gpus)
    job.terms = [t for t in job.terms if t.name not in {h.name for h in held.values()}] + list(held.values())
    known: dict[str, Any] = {name: float(term.value) for name, term in held.items()} | {"capacity": job.capacity, "mfu": mfu}
    known["by_hand"] = known["static"] + known["activations"] + BUFFERS
    known["best_interval"] = float(activations.optimal_interval(job.record.num_hidden_layers))
    known["least_at_best_interval"] = float(
        activations.checkpointed_simple(job.record.num_hidden_layers, known["best_interval"], known["layer"])
    )
    if job.legal(found):
        known |= _estimated(found)
    return known


def by_hand(values: dict[str, Any], job: Job, found: Any, gpus: float) -> dict[str, Term]:
    """Static memory sharded over all ranks (ZeRO 3) and activations; degrees that are not given are the plan's.

    Flash attention keeps no scores, which is the formula without heads.
    """
    record, plan = job.record, found.place_of(0)[0].plan if job.legal(found) else None

    def degree(name: str) -> float:
        return float(values.get(name) or (getattr(plan, name).ravel()[0] if plan is not None else 1.0))

    tp, pp, batch = degree("tp"), degree("pp"), degree("micro_batch_size")
    sequence = values.get("sp", tp > 1.0)
    flash = values.get("flash_attention", True)
    terms = {
        name: leaf(f"{title} by hand", states.state, "B", parameters=job.parameters, bytes_per_parameter=size, shards=gpus)
        for name, title, size in (
            ("weights", "weights", 2.0),
            ("gradients", "gradients", 2.0),
            ("optimizer", "optimizer states", 12.0),
            ("static", "static memory", 16.0),
        )
    }
    terms["layer"] = leaf(
        "activations of a layer by hand",
        activations.korthikanti_layer,
        "B",
        batch=batch,
        seq_len=job.seq_len,
        hidden_size=record.hidden_size,
        num_attention_heads=0.0 if flash else record.num_attention_heads,
        tp=tp,
        sp=float(sequence),
    )
    layers, interval = record.num_hidden_layers / pp, values.get("checkpoint_layers")
    kept = {"layers": layers, "interval": interval or layers, "per_layer": terms["layer"].value}
    if interval:
        terms["activations"] = leaf("activations by hand", activations.checkpointed_simple, "B", **kept)
        boundary = activations.checkpoint(batch * job.seq_len, record.hidden_size, tp, float(sequence), 2.0)
        terms["exact"] = leaf("activations with checkpoints counted", activations.checkpointed_exact, "B", **kept, boundary=boundary)
        window = {**kept, "layers": interval}
        terms["window"] = leaf("activations of a recomputed segment", activations.checkpointed_exact, "B", **window, boundary=0.0)
    else:  # one segment of all layers, without a checkpoint
        terms["activations"] = leaf("activations by hand", activations.checkpointed_exact, "B", **kept, boundary=0.0)
    return terms


def _estimated(found: Any) -> dict[str, Any]:
    """What the estimate says of the same."""
    from ironlaw.estimate.bands import step_band

    group, at = found.place_of(0)
    shares = {name: float(column.ravel()[0]) for name, column in group.shares.items()}
    step = float(found.step_seconds[0])
    parts = {node.name: float(np.ravel(node.value)[0]) for node in group.memory.tree.walk()}
    return {
        "device": float(found.device_bytes[0]),
        "capacity": float(group.memory.capacity),
        "fits": bool(found.fits[0]),
        "step": step,
        "band": step_band(group, at, step),
        "compute": shares["compute"],
        "network": shares["network"],
        "bound": max(shares, key=lambda name: shares[name]),
        "predicted_mfu": float(found.mfu[0]),
        "shares": shares,
        "parts": parts,
    }


def _steps(known: dict[str, Any], gpus: float) -> list[dict[str, Any]]:
    """Memory, compute, communication, bottleneck, sanity."""
    estimated = "device" in known
    held = known["device"] if estimated else known["by_hand"]
    fits = known.get("fits", held <= known["capacity"])
    remedy = "" if fits else "; more tp or pp, recompute, a smaller micro-batch or sequence, more GPUs"
    room = f"{units.show(held, 'B')} of {units.show(known['capacity'], 'B')} on each of {gpus:,.0f}{remedy}"
    rows = [{"step": "1 memory", "finding": room, "ok": bool(fits)}]
    mfu = known["mfu"]
    if mfu:
        rows.append({"step": "2 compute", "finding": f"{1 / mfu:.2f} times as long as at the peak (MFU {mfu:.1%})", "ok": mfu <= 1.0})
    if estimated:
        share = known["network"]
        rows.append({"step": "3 communication", "finding": f"{share:.1%} of the step shows", "ok": share < 0.5})
        rows.append({"step": "4 bottleneck", "finding": f"{known['bound']}, {known['compute']:.1%} of the step is compute", "ok": True})
    if mfu:
        rows.append(_sanity(known, mfu))
    return rows


def _sanity(known: dict[str, Any], mfu: float) -> dict[str, Any]:
    """Against published runs: the band in which they lie around such predictions, and the MFU they reach."""
    low, high = USUAL_MFU
    band = known.get("band")
    text = f"tuned runs reach {low:.0%} to {high:.0%} MFU"
    if band:
        text += f"; {band[2]:.0%} of published steps lie from {band[0] / known['step'] - 1:+.0%} to {band[1] / known['step'] - 1:+.0%}"
    return {"step": "5 sanity", "finding": text, "ok": low / NEAR <= mfu <= high * NEAR}


def _memory(known: dict[str, Any]) -> list[dict[str, Any]]:
    """Part by part, by hand and by the estimate."""
    parts = known.get("parts", {})

    def told(*names: str) -> float | None:
        return sum(parts.get(name, 0.0) for name in names) if parts else None

    rows = [
        {"part": "weights", "by_hand": known["weights"], "estimate": told("weights")},
        {"part": "gradients", "by_hand": known["gradients"], "estimate": told("gradients")},
        {"part": "optimizer states", "by_hand": known["optimizer"], "estimate": told("master weights", "optimizer states")},
        {"part": "activations", "by_hand": known["activations"], "estimate": told("activations")},
        {"part": "buffers and the rest", "by_hand": BUFFERS, "estimate": None},
        {"part": "total", "by_hand": known["by_hand"], "estimate": known.get("device")},
    ]
    if parts:
        rows[4]["estimate"] = known["device"] - sum(row["estimate"] or 0.0 for row in rows[:4])
    if "exact" in known:
        rows.insert(4, {"part": "  with checkpoints as they are", "by_hand": known["exact"], "estimate": None})
        rows.insert(5, {"part": "  one recomputed segment", "by_hand": known["window"], "estimate": None})
    return rows


CAUSES = (Column("cause", "cause"), Column("share", "of the step", "%"), Column("fix", "what helps"))
HELPS = {
    "compute": "larger micro-batches and tiles, newer kernels, less recomputation",
    "hbm": "flash attention, fused kernels, compile, fewer optimizer bytes",
    "network": "overlap, tensor parallelism inside the node, a larger batch, more sharding groups",
    "pipeline": "more micro-batches, more chunks a stage, fewer stages",
    "dispatch": "CUDA graphs, larger micro-batches",
    "data": "more loader workers, prefetch, faster storage (ironlaw data)",
}


def _causes(known: dict[str, Any]) -> list[dict[str, Any]]:
    """Parts of a step that are not the peak at work, longest first: the causes of a low MFU, each with what helps."""
    mfu = known.get("predicted_mfu")
    if mfu is None or "shares" not in known:
        return []
    shares = known["shares"]
    rows = [{"cause": "model FLOPs at the peak", "share": mfu, "fix": "a faster device, lower precision"}]
    slower = {
        "kernels below the peak, recomputation": max(shares["compute"] - mfu, 0.0),
        **{n: s for n, s in shares.items() if n != "compute"},
    }
    rows += [
        {"cause": name, "share": share, "fix": HELPS.get(name, HELPS["compute"])}
        for name, share in sorted(slower.items(), key=lambda item: -item[1])
        if share > 0.0005
    ]
    return rows


def _errors(known: dict[str, Any]) -> list[dict[str, Any]]:
    """Forgotten states, ignored activations, a perfect MFU, ignored communication: what each would have said here."""
    mfu, share = known["mfu"], known.get("network")
    bare = known["static"] - known["optimizer"]
    rows = [
        {
            "error": "forgetting optimizer states",
            "consequence": f"{units.show(bare, 'B')} for {units.show(known['static'], 'B')}: {known['static'] / bare:.0f}x too little",
            "fix": "count 12 bytes a parameter for Adam",
        },
        {
            "error": "ignoring activations",
            "consequence": f"{units.show(known.get('parts', {}).get('activations', known['activations']), 'B')} missing",
            "fix": "count batch x sequence x width, and recompute where they do not fit",
        },
    ]
    if mfu and math.isfinite(mfu):
        rows.append({"error": "100% MFU", "consequence": f"{1 / mfu:.2f}x too fast", "fix": "take the predicted MFU"})
    if share is not None:
        text = f"{share:.1%} of the step missing: {1 / (1 - share):.2f}x too fast"
        rows.append({"error": "ignoring communication", "consequence": text, "fix": "add what is not hidden of each collective"})
    return rows
