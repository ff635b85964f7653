"""Memory by hand: 16 bytes a parameter over the ranks, activations by the textbook's formula, 5 GB of buffers; its verdict and remedies.

Everything here is in decimal gigabytes, as arithmetic by hand is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.law import activations, parameters, states
from ironlaw.questions.answer import Column, Table
from ironlaw.questions.solve.workload import Workload
from ironlaw.terms import Term, leaf, scalar

BUFFERS = 5e9  # bytes that a count by hand allows for temporary buffers
STATES = (("weights", "weights", 2.0), ("gradients", "gradients", 2.0), ("optimizer", "optimizer states", 12.0), ("static", "static", 16.0))
ZERO_OF = {"weights": 3.0, "gradients": 2.0, "optimizer": 1.0}  # the ZeRO stage from which a state is sharded over data-parallel ranks
STATE_COLUMNS = (
    Column("part", "part"), Column("bytes_per_parameter", "bytes a parameter", "1"), Column("size", "whole model", "decimal B"),
    Column("sharded", "each GPU", "decimal B"),
)  # fmt: skip
REMEDY_COLUMNS = (
    Column("way", "with"), Column("activations", "activations", "decimal B"), Column("total", "total", "decimal B"), Column("fits", "fits"),
)  # fmt: skip


@dataclass(frozen=True)
class HandMemory:
    """Memory of one accelerator by hand, and the degrees it was counted with."""

    terms: dict[str, Term]
    tp: float
    pp: float
    micro_batch: float
    zero: float
    gpus: float
    usable: float  # what a job may use of one accelerator [B]
    sold: float  # its memory as sold, in decimal gigabytes [B]

    def __getitem__(self, name: str) -> float:
        """Bytes of a part."""
        return float(self.terms[name].value)

    @property
    def total(self) -> float:
        """Static memory, activations and buffers [B]."""
        return self["static"] + self["activations"] + BUFFERS

    @property
    def fits(self) -> bool:
        """Whether the total is at most what a job may use of one accelerator."""
        return self.total <= self.usable

    def describe(self) -> str:
        """The degrees in words."""
        return f"tp {self.tp:g}, pp {self.pp:g}, micro-batch {self.micro_batch:g}, ZeRO {self.zero:g} over {self.gpus:,.0f}"

    def verdict(self) -> str:
        """Total against the memory of the device, in decimal gigabytes."""
        room = f"{gigabytes(self.usable)} (sold as {gigabytes(self.sold)})"
        return f"{gigabytes(self.total)} of {room}: {'fits' if self.fits else 'does not fit'} ({self.describe()})"


def gigabytes(size: float) -> str:
    """Bytes with a decimal prefix.

    >>> gigabytes(6.5e9), gigabytes(1.12e12)
    ('6.5 GB', '1.12 TB')
    """
    return units.show(size, "decimal B", 4)


def count_memory(values: dict[str, Any], workload: Workload, estimate: Estimate | None, gpus: float) -> HandMemory:
    """Static memory (ZeRO 3 unless --zero is given) and activations; degrees that are not given come from the estimate's plan.

    Flash attention stores no scores, which is the formula without heads.
    """
    model, plan = workload.model, estimate.place_of(0)[0].plan if estimate is not None else None

    def degree(name: str) -> float:
        return float(values.get(name) or (scalar(getattr(plan, name)) if plan is not None else 1.0))

    tp, pp, batch = degree("tp"), degree("pp"), degree("micro_batch_size")
    sequence_parallel = float(values.get("sp", tp > 1.0))
    zero = float(values.get("zero", 3.0))
    split = min(tp * pp, gpus)
    terms = {}
    for name, title, size in STATES[:3]:
        shards = gpus if zero >= ZERO_OF[name] else split
        terms[name] = leaf(f"{title} by hand", states.state, "B", parameters=workload.parameters, bytes_per_parameter=size, shards=shards)
    if zero >= 3.0:
        terms["static"] = leaf(
            "static memory by hand", states.state, "B", parameters=workload.parameters, bytes_per_parameter=16.0, shards=gpus
        )
    else:
        terms["static"] = Term("static memory by hand", sum(float(term.value) for term in terms.values()), "B")
    terms |= _count_activations(values, workload, {"batch": batch, "tp": tp, "sp": sequence_parallel}, model.num_hidden_layers / pp)
    return HandMemory(terms, tp, pp, batch, zero, gpus, workload.usable, workload.sold)


def _count_activations(values: dict[str, Any], workload: Workload, degrees: dict[str, float], layers: float) -> dict[str, Term]:
    """Activations of a layer and of the layers of a stage, with checkpoints where --checkpoint-layers is given."""
    model, interval = workload.model, values.get("checkpoint_layers")
    terms = {
        "layer": leaf(
            "activations of a layer by hand",
            activations.korthikanti_layer,
            "B",
            seq_len=workload.seq_len,
            hidden_size=model.hidden_size,
            num_attention_heads=0.0 if values.get("flash_attention", True) else model.num_attention_heads,
            **degrees,
        )
    }
    stored = {"layers": layers, "interval": interval or layers, "per_layer": terms["layer"].value}
    if interval is None:  # one segment of all layers, without a checkpoint
        terms["activations"] = leaf("activations by hand", activations.checkpointed_exact, "B", **stored, boundary=0.0)
        return terms
    boundary = activations.checkpoint(degrees["batch"] * workload.seq_len, model.hidden_size, degrees["tp"], degrees["sp"], 2.0)
    terms["activations"] = leaf("activations by hand", activations.checkpointed_simple, "B", **stored)
    terms["exact"] = leaf("activations with checkpoints counted", activations.checkpointed_exact, "B", **stored, boundary=boundary)
    each = stored | {"interval": 1.0}
    terms["every layer"] = leaf(
        "activations with a checkpoint at every layer", activations.checkpointed_exact, "B", **each, boundary=boundary
    )
    segment = stored | {"layers": interval}
    terms["window"] = leaf("activations of a recomputed segment", activations.checkpointed_exact, "B", **segment, boundary=0.0)
    return terms


def least_to_hold(workload: Workload) -> tuple[Term, Term, str]:
    """The fewest accelerators that hold the states, as sold and by what a job may use, and a sentence."""
    size = leaf("states", states.training_static, "B", parameters=workload.parameters)
    sold = leaf("least GPUs for the states", states.least_accelerators, "1", size=size.value, capacity=workload.sold)
    usable = leaf("least GPUs for the states, usable memory", states.least_accelerators, "1", size=size.value, capacity=workload.usable)
    exact = scalar(size) / workload.sold
    real = scalar(size) / workload.usable
    sentence = (
        f"at least {scalar(sold):,.0f} GPUs hold the states: {gigabytes(scalar(size))} / {gigabytes(workload.sold)} = {exact:.2f}; "
        f"a job may use {gigabytes(workload.usable)} ({units.show(workload.usable, 'B')}) of each: {real:.2f}; activations come on top"
    )
    return sold, usable, sentence


def count_parameters(workload: Workload) -> tuple[Term, str]:
    """The textbook's count of parameters beside the exact one, and a sentence; only the model's dimensions count."""
    model = workload.model
    rule = leaf(
        "parameters by 12 L H^2 + 2 V H", parameters.textbook_decoder, "1", num_hidden_layers=float(model.num_hidden_layers),
        hidden_size=float(model.hidden_size), vocab_size=float(model.vocab_size),
    )  # fmt: skip
    given = "" if workload.parameters == workload.counted else f"{workload.parameters / 1e9:.4g} B given, "
    dense = " (of a dense model)" if model.num_experts else ""
    return rule, f"parameters: {given}rule of thumb{dense} {scalar(rule) / 1e9:.4g} B, exact {workload.counted / 1e9:.4g} B"


def tabulate_states(workload: Workload, memory: HandMemory) -> Table:
    """Weights, gradients and optimizer states of the whole model and of one accelerator."""
    rows = [
        {"part": title, "bytes_per_parameter": size, "size": size * workload.parameters, "sharded": memory[name]}
        for name, title, size in STATES
    ]
    return Table("states", "States by hand (mixed-precision Adam; GB are 10^9 bytes)", STATE_COLUMNS, rows)


def list_remedies(values: dict[str, Any], workload: Workload, estimate: Estimate | None, memory: HandMemory) -> list[dict[str, Any]]:
    """What the memory by hand would be with other choices, where it does not fit."""
    if memory.fits:
        return []
    rows = [_remedy(way, memory[name] - memory["activations"], memory) for way, name in CHECKPOINTS if name in memory.terms]
    for way, change in _changes(values, memory):
        other = count_memory({**values, **change}, workload, estimate, memory.gpus)
        rows.append({"way": way, "activations": other["activations"], "total": other.total, "fits": other.fits})
    return rows


CHECKPOINTS = (
    ("full recomputation: one recomputed segment, checkpoints not counted", "window"),
    ("the same checkpoints at their real size", "exact"),
    ("a checkpoint at every layer, at its real size", "every layer"),
)


def _remedy(way: str, difference: float, memory: HandMemory) -> dict[str, Any]:
    """A row of the remedies: other activations beside the same states and buffers."""
    total = memory.total + difference
    return {"way": way, "activations": memory["activations"] + difference, "total": total, "fits": total <= memory.usable}


def _changes(values: dict[str, Any], memory: HandMemory) -> Iterator[tuple[str, dict[str, Any]]]:
    """Other options that need less memory: the name, and what they set."""
    if not values.get("flash_attention", True):
        yield "flash attention", {"flash_attention": True}
    if memory.micro_batch > 1.0:
        yield "micro-batch 1", {"micro_batch_size": 1.0}
    if memory.tp < 8.0:
        yield f"tp {2 * memory.tp:g}", {"tp": 2 * memory.tp, "pp": memory.pp, "micro_batch_size": memory.micro_batch}
    yield f"pp {2 * memory.pp:g}", {"pp": 2 * memory.pp, "tp": memory.tp, "micro_batch_size": memory.micro_batch}
    if "checkpoint_layers" not in values:
        yield "a checkpoint at every layer (simple form)", {"checkpoint_layers": 1.0}


def remedies_table(rows: list[dict[str, Any]]) -> Table:
    """The table of remedies."""
    return Table("remedies", "Memory by hand does not fit; with one change", REMEDY_COLUMNS, rows)
