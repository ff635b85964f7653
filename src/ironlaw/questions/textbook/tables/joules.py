"""Energy of moving a byte through each memory and link; with a model, the energy a step spends on moving data."""

from __future__ import annotations

from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.sourced import Sourced
from ironlaw.cautions.record import Sentence
from ironlaw.cautions.table import caution
from ironlaw.law import energy
from ironlaw.question.forms import need
from ironlaw.questions.answer import Answer, Column, Table, ask_verb, read
from ironlaw.questions.roofline.options import OPTIONS
from ironlaw.questions.roofline.options import STEP as OF_STEP
from ironlaw.questions.textbook.tables import dense_peak, read_numbers, sourced
from ironlaw.terms import Term, leaf, total

PICO = 1e-12
TIERS = (
    Column("tier", "memory or link"), Column("pj_per_bit", "pJ/bit", "1"), Column("per_flop", "fp16 operations per operand moved", "1"),
    Column("told", "published as"), Column("grade", "grade"), Column("by", "source"),
)  # fmt: skip
STEP = (
    Column("what", "part of a step"), Column("amount", "amount"), Column("joules", "J", "1"), Column("share", "of the board", "%"),
    Column("note", ""),
)  # fmt: skip


def table(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The published energies; with a model the energy of its step by memory and link."""
    numbers, sources = read_numbers("joules")
    flop = float(numbers["arithmetic"]["fp16_pj_per_flop"]) * PICO
    byte: dict[str, Sourced] = {}
    rows = []
    for tier in numbers["tier"]:
        cited = sources[tier["source"]]
        byte[tier["carries"]] = sourced(8.0 * PICO * tier["pj_per_bit"], "J/B", tier["text"], cited, tier.get("note", ""))
        rows.append({
            "tier": tier["name"], "pj_per_bit": float(tier["pj_per_bit"]), "joules_per_byte": byte[tier["carries"]].value,
            "per_flop": 16.0 * PICO * tier["pj_per_bit"] / flop, "told": tier["text"], "grade": cited.grade, "by": cited.title,
        })  # fmt: skip
    terms: list[Term] = [leaf("a gigabyte through HBM2E", energy.of_bytes, "J", size=1e9, energy_per_byte=byte["hbm"])]
    gigabyte = {"hbm": float(terms[0].value), "scale_up": byte["scale-up"].value * 1e9, "nic": byte["nic"].value * 1e9}
    text = (
        f"a gigabyte costs {gigabyte['hbm']:.3g} J through HBM2E, {gigabyte['scale_up']:.3g} J over a serial link, "
        f"{gigabyte['nic']:.3g} J over an optical one"
    )
    headline = [
        Sentence(text, "gigabyte", gigabyte),
        Sentence("moving an operand from HBM costs more energy than many operations on it", "operand"),
    ]
    tables = [Table("joules", "Energy of a bit", TIERS, rows)]
    if "model" in values:
        need(values, "on", "gpus")
        more, lines, nodes = _count_step_energy(values, byte, folders)
        tables.append(more)
        headline, terms = [*headline, *lines], [*terms, *nodes]
    warnings = [caution("energies-of-45-nm"), caution("no-public-energy")]
    warnings += [caution("counted-as-hbm2e")] if "model" in values else []
    return Answer("Energy of moving data", headline, tuple(tables), tuple(terms), warnings=warnings, folders=folders)


def _count_step_energy(
    values: dict[str, Any], byte: dict[str, Sourced], folders: tuple[str, ...]
) -> tuple[Table, list[Sentence], list[Term]]:
    """Bytes of the step's operators times energy per byte, beside the board's power for the time of the step."""

    asked = {name: value for name, value in values.items() if name in (*OF_STEP, "optimizer")}
    step = ask_verb("roofline", read(asked, OPTIONS, "roofline"), folders)
    device = load.record("accelerators", values["on"], folders)
    sent = dict.fromkeys(("scale-up", "nic"), 0.0)
    for row in step["operators"]:
        if row["wire_bytes"]:
            sent[row["link"]] += row["wire_bytes"]
    node = load.record("nodes", values.get("node", device.usual_node), folders)
    link = "nic" if values["gpus"] > values.get("scale_up_size", node.scale_up_size.value) else "scale-up"
    sent[link] += float(step["hidden_wire_bytes"])  # their link is not recorded: the slower one that the job uses
    flop, moved = float(step["FLOP of a step"]), float(step["HBM bytes of a step"])
    hbm = leaf("through HBM", energy.of_bytes, "J", size=moved, energy_per_byte=byte["hbm"])
    links = [leaf(f"over {name}", energy.of_bytes, "J", size=size, energy_per_byte=byte[name]) for name, size in sent.items() if size]
    moving = total("energy of moving", [hbm, *links])
    board = leaf("energy of the board", energy.energy, "J", power=device.tdp, seconds=float(step["step"]))
    per_operation = leaf("an operation at the peak", energy.per_operation, "J/FLOP", power=device.tdp, peak=dense_peak(device))
    share = float(moving.value) / float(board.value)
    rows: list[dict[str, Any]] = []
    for term, size in zip([hbm, *links], [moved, *(size for size in sent.values() if size)], strict=True):
        part = float(term.value) / float(board.value)
        rows.append({"what": term.name, "amount": units.show(size, "B", 4), "joules": float(term.value), "share": part, "note": ""})
    other_power = float(board.value) - float(moving.value)
    rest_row = {"what": "all else on the board", "amount": units.show(flop, "FLOP", 4), "joules": other_power, "share": 1.0 - share}
    rows.append({**rest_row, "note": "arithmetic, caches, leakage, waiting"})
    of_step = (
        f"a step of {units.show(float(step['step']), 's', 4)} spends {float(moving.value):,.4g} J on moving data, {share:.0%} of the "
        f"{float(board.value):,.4g} J of a board at its limit of {units.show(device.tdp.value, 'W')}"
    )
    of_rest = (
        f"the rest is {other_power / flop / PICO:.3g} pJ per operation; the whole board at the peak rate would use"
        f" {float(per_operation.value) / PICO:.3g}"
    )
    lines = [
        Sentence(of_step, "step", {"moving": float(moving.value), "board": float(board.value), "share": share}),
        Sentence(of_rest, "rest", {"joules_per_operation": other_power / flop}),
    ]
    return Table("step", "Energy of a step of one accelerator", STEP, rows), lines, [moving, board, per_operation]
