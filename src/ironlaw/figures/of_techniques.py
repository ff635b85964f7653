"""Figures of techniques: what checkpointing saves, energy of precisions."""

from __future__ import annotations

from ironlaw.errors import QuestionError
from ironlaw.figures.marks import GIB, Answer, Spec, frame, layer, names, quantity, rows_size, shown, signed, tooltip, with_room


def checkpointing(answer: Answer) -> Spec:
    """Memory and step time of the ways to recompute, the plan held."""
    rows = [
        {
            "recompute": one["how"],
            "GiB": one["device"] / GIB,
            "step_seconds": one["seconds"],
            "checkpoints": one["checkpoints"],
            "fits": one["fits"],
            "says": f"{shown(one['device'], 'B')}, step {shown(one['seconds'], 's')}{'' if one['fits'] else ', does not fit'}",
        }
        for one in answer["checkpoints"]
        if one["device"] is not None
    ]
    y, x = (
        names("recompute"),
        quantity("GiB", "memory of the fullest accelerator, GiB", domain=with_room(max(row["GiB"] for row in rows), 0.4)),
    )
    fill = {"condition": {"test": "datum.fits", "value": "@activations"}, "value": "@bg"}
    marks = [
        layer(
            {"type": "bar", "height": {"band": 0.6}, "stroke": "@activations"}, y=y, x=x, fill=fill, tooltip=tooltip("recompute", "says")
        ),
        layer({"type": "text", "align": "left", "dx": 4}, y=y, x=x, text={"field": "says"}),
    ]
    listed = "; ".join(f"{row['recompute']}: {row['says']}" for row in rows)
    return frame(
        ("What checkpointing saves", str(answer["title"])), f"{answer['title']}. {listed}.", rows_size(len(rows), 560), rows, marks
    )


def energy_precision(answer: Answer) -> Spec:
    """Energy of a million tokens in each precision that the accelerator can multiply."""
    first = answer["plan"]["precision"]
    base = answer["base"]["joules"]
    found = [(first, answer["base"])]
    for one in answer["techniques"]:
        words = str(one["options"]).split()
        if "--precision" in words and one.get("joules") is not None:
            found.append((words[words.index("--precision") + 1], one))
    if len(found) < 2:
        raise QuestionError("no other precision was tried: name an accelerator that multiplies in fp8")
    rows = [
        {"precision": name, "kilojoules": one["joules"] / 1e3, "step_seconds": one["seconds"], "against_first": one["joules"] / base - 1.0,
         "says": shown(one["joules"], "J") + ("" if name == first else f", {signed(one['joules'] / base - 1.0)}")}
        for name, one in sorted(found, key=lambda pair: -pair[1]["joules"])
    ]  # fmt: skip
    y, x = (
        names("precision"),
        quantity("kilojoules", "kJ for a million tokens", domain=with_room(max(row["kilojoules"] for row in rows), 0.4)),
    )
    marks = [
        layer({"type": "bar", "height": {"band": 0.6}, "color": "@compute"}, y=y, x=x, tooltip=tooltip("precision", "says")),
        layer({"type": "text", "align": "left", "dx": 4}, y=y, x=x, text={"field": "says"}),
    ]
    listed = "; ".join(f"{row['precision']} {row['says']}" for row in rows)
    plan = answer["plan"]
    return frame(
        ("Energy by precision", f"{plan['model']} on {plan['gpus']:,.0f} {plan['accelerator']}"),
        f"Energy of a million tokens: {listed}.",
        rows_size(len(rows), 480),
        rows,
        marks,
    )
