"""Joules of a byte over each way it can go, and with a model what a step spends on moving beside computing."""

from __future__ import annotations

from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.sourced import Sourced
from ironlaw.law import energy
from ironlaw.questions.answer import Answer, Column, Table, need
from ironlaw.questions.lessons.tables import numbers, sourced
from ironlaw.terms import Term, leaf, total

_NEWER = "whatever memory the device has is charged as HBM2E, the newest with a public number"
PICO = 1e-12
TIERS = (
    Column("tier", "way"), Column("pj_per_bit", "pJ/bit", "1"), Column("per_flop", "an fp16 operand, in fp16 operations", "1"),
    Column("told", "as told"), Column("grade", "grade"), Column("by", "who says so"),
)  # fmt: skip
STEP = (
    Column("what", "of a step"), Column("amount", "moved or done"), Column("joules", "J", "1"), Column("share", "of the board's", "%"),
    Column("note", ""),
)  # fmt: skip
_NOT_TOLD = "registers and L2 are left out: no public source gives their energy with its width"


def table(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The sourced table; with a model the energy of its step by what moves."""
    found, sources = numbers("joules")
    flop = float(found["arithmetic"]["fp16_pj_per_flop"]) * PICO
    byte: dict[str, Sourced] = {}
    rows = []
    for tier in found["tier"]:
        cited = sources[tier["source"]]
        byte[tier["carries"]] = sourced(8.0 * PICO * tier["pj_per_bit"], "J/B", tier["text"], cited, tier.get("note", ""))
        rows.append({
            "tier": tier["name"], "pj_per_bit": float(tier["pj_per_bit"]), "joules_per_byte": byte[tier["carries"]].value,
            "per_flop": 16.0 * PICO * tier["pj_per_bit"] / flop, "told": tier["text"], "grade": cited.grade, "by": cited.title,
        })  # fmt: skip
    terms: list[Term] = [leaf("a gigabyte through HBM2E", energy.of_bytes, "J", size=1e9, energy_per_byte=byte["hbm"])]
    headline = [
        f"a gigabyte costs {float(terms[0].value):.3g} J through HBM2E, {byte['scale-up'].value * 1e9:.3g} J over a serial link, "
        f"{byte['nic'].value * 1e9:.3g} J over an optical one",
        "what moves least far costs least: an operand from HBM costs more than many operations on it",
    ]
    tables = [Table("joules", "Energy of a bit", TIERS, rows)]
    if "model" in values:
        need(values, "on", "gpus")
        more, lines, nodes = _step(values, byte, folders)
        tables.append(more)
        headline, terms = [*headline, *lines], [*terms, *nodes]
    warnings = ["the on-chip and arithmetic numbers are of 45 nm; ratios hold better than values", _NOT_TOLD]
    warnings += [_NEWER] if "model" in values else []
    return Answer("Energy of moving", headline, tuple(tables), tuple(terms), {}, [], warnings, folders=folders)


def _step(values: dict[str, Any], byte: dict[str, Sourced], folders: tuple[str, ...]) -> tuple[Table, list[str], list[Term]]:
    """Bytes of the census times energy of a byte, beside the board's power for the time of the step."""
    from ironlaw.questions.roofline import ask as roofline

    asked = {name: value for name, value in values.items() if name in roofline.QUESTIONS["model"][1] or name == "model"}
    census = roofline.ask(asked, folders)
    device = load.record("accelerators", values["on"], folders)
    sent = dict.fromkeys(("scale-up", "nic"), 0.0)
    for row in census["operators"]:
        if row["wire_bytes"]:
            sent[row["link"]] += row["wire_bytes"]
    node = load.record("nodes", values.get("node", device.usual_node), folders)
    beside = "nic" if values["gpus"] > values.get("scale_up_size", node.scale_up_size.value) else "scale-up"
    sent[beside] += float(census["hidden_wire_bytes"])  # the census does not say their link: the slower of those the job uses
    flop, moved = float(census["FLOP of a step"]), float(census["HBM bytes of a step"])
    hbm = leaf("through HBM", energy.of_bytes, "J", size=moved, energy_per_byte=byte["hbm"])
    links = [leaf(f"over {name}", energy.of_bytes, "J", size=size, energy_per_byte=byte[name]) for name, size in sent.items() if size]
    moving = total("energy of moving", [hbm, *links])
    board = leaf("energy of the board", energy.energy, "J", power=device.tdp, seconds=float(census["step"]))
    each = leaf("an operation at the peak", energy.per_operation, "J/FLOP", power=device.tdp, peak=_peak(device))
    share = float(moving.value) / float(board.value)
    rows: list[dict[str, Any]] = []
    for term, size in zip([hbm, *links], [moved, *(size for size in sent.values() if size)], strict=True):
        part = float(term.value) / float(board.value)
        rows.append({"what": term.name, "amount": units.show(size, "B", 4), "joules": float(term.value), "share": part, "note": ""})
    rest = float(board.value) - float(moving.value)
    else_on = {"what": "all else on the board", "amount": units.show(flop, "FLOP", 4), "joules": rest, "share": 1.0 - share}
    rows.append({**else_on, "note": "arithmetic, caches, leakage, waiting"})
    told = [
        f"a step of {units.show(float(census['step']), 's', 4)} moves {float(moving.value):,.4g} J of the {float(board.value):,.4g} J "
        f"that a board at its limit of {units.show(device.tdp.value, 'W')} draws meanwhile: {share:.0%}",
        f"all else is {rest / flop / PICO:.3g} pJ an operation; at the peak rate the whole board would be {float(each.value) / PICO:.3g}",
    ]
    return Table("step", "Energy of a step of one accelerator", STEP, rows), told, [moving, board, each]


def _peak(device: Any) -> Any:
    return device.peak["bf16"] if "bf16" in device.peak else device.peak["fp16"] if "fp16" in device.peak else device.peak["fp32"]
