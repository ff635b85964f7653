"""Figures of several estimates that differ in one value: batch, memory, scaling."""

from __future__ import annotations

from collections.abc import Sequence

from ironlaw.errors import QuestionError
from ironlaw.figures.marks import (
    GIB,
    MEDIUM,
    NAMES,
    Answer,
    Row,
    Size,
    Spec,
    frame,
    hatch,
    kind_colour,
    layer,
    outline,
    quantity,
    shown,
    tooltip,
)
from ironlaw.figures.of_estimate import memory_kinds

VARIED = (
    "micro_batch_size",
    "seq_len",
    "global_batch_size",
    "gpus",
    "tp",
    "pp",
    "cp",
    "ep",
)  # values that rows may differ in, first the likeliest
TITLES = {
    "micro_batch_size": "sequences in a micro-batch", "seq_len": "tokens in a sequence", "global_batch_size": "sequences in a batch",
    "gpus": "accelerators",
}  # fmt: skip


def varied(answers: Sequence[Answer], among: Sequence[str] = VARIED) -> str:
    """The value in which estimates differ; an error where they do not."""
    for name in among:
        if len({answer["plan"].get(name) for answer in answers}) > 1:
            return name
    raise QuestionError(f"all rows have one {' and one '.join(name.replace('_', ' ') for name in among[:2])}: give a list, such as 1,2,4")


def batch_curve(answers: Sequence[Answer]) -> Spec:
    """Tokens per second against the batch, with its band."""
    rows = [_rate_row(answer, "global_batch_size") for answer in _timed(answers)]
    varied(answers, ("global_batch_size",))
    x = quantity("global_batch_size", "sequences in a batch (log)", log=True, values=[row["global_batch_size"] for row in rows])
    return _rates("What the batch changes", answers, rows, x, [], "sequences")


def scaling(answers: Sequence[Answer]) -> Spec:
    """Tokens per second against the number of accelerators, with its band, and what the first number would give in proportion."""
    rows = [_rate_row(answer, "gpus") for answer in _timed(answers)]
    varied(answers, ("gpus",))
    first = rows[0]
    rate = first["tokens_per_second"] / first["gpus"]
    ideal = [{"gpus": row["gpus"], "tokens_per_second": rate * row["gpus"]} for row in rows]
    x = quantity("gpus", "accelerators (log)", log=True, values=[row["gpus"] for row in rows])
    line = layer({"type": "line", "strokeDash": [4, 4], "color": "@line2"}, ideal, x=x, y=quantity("tokens_per_second", log=True))
    return _rates("What more accelerators give", answers, rows, x, [line], "accelerators", log=True)


def _timed(answers: Sequence[Answer]) -> list[Answer]:
    """The rows that have a step time."""
    found = [answer for answer in answers if answer["step"]["seconds"] is not None]
    if len(found) < 2:
        raise QuestionError("fewer than two rows have a step time: give a list of values that a plan allows")
    return found


def _rate_row(answer: Answer, name: str) -> Row:
    """Tokens per second of a row, with the band of its step."""
    rate, seconds, band = answer["throughput"]["tokens_per_second"], answer["step"]["seconds"], answer["step"].get("band")
    return {
        name: answer["plan"][name], "tokens_per_second": rate, "low": rate * seconds / band[1] if band else None,
        "high": rate * seconds / band[0] if band else None, "step_seconds": seconds, "fits": answer["memory"]["fits"],
        "says": f"{shown(rate, 'token/s')}, step {shown(seconds, 's')}{'' if answer['memory']['fits'] else ', does not fit'}",
    }  # fmt: skip


def _rates(
    title: str, answers: Sequence[Answer], rows: Sequence[Answer], x: Spec, more: Sequence[Spec], unit: str, log: bool = False
) -> Spec:
    """A curve of tokens per second; rows that do not fit are hollow."""
    name = x["field"]
    y = quantity("tokens_per_second", "tokens/s" + (" (log)" if log else ""), log=log, zero=False, format="~s")
    ends = quantity("low", log=log)
    banded = [row for row in rows if row["low"] is not None]
    marks = [
        layer({"type": "area", "color": "@line2", "opacity": 0.3}, banded, x=x, y=ends, y2={"field": "high"}),
        *more,
        layer({"type": "line", "color": "@ink2"}, x=x, y=y),
        layer(
            {"type": "point", "filled": True, "size": 60, "fillOpacity": 1, "stroke": "@accent"},
            x=x, y=y, fill={"condition": {"test": "datum.fits", "value": "@accent"}, "value": "@bg"}, tooltip=tooltip(name, "says"),
        ),
    ]  # fmt: skip
    listed = "; ".join(f"{row[name]:,.0f} {unit}: {row['says']}" for row in rows)
    model, device = answers[0]["plan"]["model"], answers[0]["plan"]["accelerator"]
    return frame((title, f"{model} on {device}"), f"{title}. {listed}.", Size(MEDIUM.width, 250), rows, marks)


def memory_batch(answers: Sequence[Answer]) -> Spec:
    """Memory of the fullest accelerator against the micro-batch, or against whatever the rows differ in, by kind."""
    name = varied(answers)
    rows = []
    for answer in answers:
        at, low = str(answer["plan"][name]), 0.0
        for kind, size in memory_kinds(answer).items():
            rows.append(
                {
                    name: at,
                    "kind": kind,
                    "what": NAMES.get(kind, kind),
                    "GiB": size / GIB,
                    "from": low,
                    "to": low + size / GIB,
                    "says": shown(size, "B"),
                }
            )
            low += size / GIB
    limit = max(answer["memory"]["capacity_bytes"] for answer in answers) / GIB
    x = {"field": name, "type": "ordinal", "sort": None, "title": TITLES.get(name, name), "axis": {"labelAngle": 0}}
    marks = [
        layer(
            {"type": "bar", "width": {"band": 0.6}},
            x=x,
            y=quantity("from", "GiB"),
            y2={"field": "to"},
            color=kind_colour(rows, legend=True),
            stroke=outline(),
            tooltip=tooltip("what", "says"),
        ),
        *hatch(rows, quantity("from"), x, 0.6, upright=True),
        layer({"type": "rule", "size": 2}, [{"limit": limit}], y=quantity("limit")),
        layer(
            {"type": "text", "align": "right", "dy": -6, "x": "width"},
            [{"limit": limit}],
            y=quantity("limit"),
            text={"value": f"limit {limit:.3g} GiB"},
        ),
    ]
    listed = "; ".join(f"{answer['plan'][name]}: {shown(answer['memory']['device'], 'B')}" for answer in answers)
    model, device = answers[0]["plan"]["model"], answers[0]["plan"]["accelerator"]
    says = f"Memory of the fullest accelerator by {TITLES.get(name, name)}, limit {shown(limit * GIB, 'B')}. {listed}."
    return frame((f"Memory against {TITLES.get(name, name)}", f"{model} on {device}"), says, Size(MEDIUM.width, 300), rows, marks)


PARTS = (  # of the FLOP of a token: key, what they are, and their colour
    ("forward", "forward, 2 a parameter", "@compute"), ("backward", "backward, 4 a parameter", "@backward"),
    ("attention", "attention", "@pipeline"),
)  # fmt: skip


def flop_parts(answer: Answer) -> dict[str, float]:
    """FLOP of a token of training: 2 for each parameter that multiplies it, 4 backward, and the products of attention.

    All parameters must be trained. An embedding that is not the output layer, too, multiplies nothing.
    """
    found, speed = answer["parameters"], answer["throughput"]
    multiplying = found["active"] - (0.0 if found["tied"] else found["embedding"])
    whole = speed["model_flop_per_second_per_gpu"] / speed["tokens_per_second_per_gpu"]
    return {"forward": 2.0 * multiplying, "backward": 4.0 * multiplying, "attention": whole - 6.0 * multiplying}


def flop_token(answers: Sequence[Answer]) -> Spec:
    """FLOP of a token against the length of the sequence: what the rule 6 N counts, and what attention adds."""
    rows = []
    for answer in _timed(answers):
        if answer["parameters"]["trained"] != answer["parameters"]["total"]:
            raise QuestionError("the rule 6 N D is of a run that trains all parameters: leave out adapters and frozen layers")
        low, length = 0.0, f"{answer['plan']['seq_len']:,.0f}"
        for key, name, _ in PARTS:
            size = flop_parts(answer)[key] / 1e9
            rows.append({"tokens": length, "part": name, "gflop": size, "from": low, "to": low + size, "says": shown(size * 1e9, "FLOP")})
            low += size
    varied(answers, ("seq_len",))
    rule = 6.0 * answers[0]["parameters"]["active"] / 1e9
    colour = {
        "field": "part", "type": "nominal", "legend": {"columns": 2},
        "scale": {"domain": [name for _, name, _ in PARTS], "range": [shade for _, _, shade in PARTS]},
    }  # fmt: skip
    x = {"field": "tokens", "type": "ordinal", "sort": None, "title": "tokens in a sequence", "axis": {"labelAngle": 0}}
    marks = [
        layer(
            {"type": "bar", "width": {"band": 0.6}},
            x=x,
            y=quantity("from", "GFLOP for a token"),
            y2={"field": "to"},
            color=colour,
            tooltip=tooltip("part", "says"),
        ),
        layer({"type": "rule", "size": 2, "strokeDash": [4, 3]}, [{"rule": rule}], y=quantity("rule")),
        layer(
            {"type": "text", "align": "left", "dy": -6, "x": 4},
            [{"rule": rule}],
            y=quantity("rule"),
            text={"value": f"6 N: {rule:.3g} GFLOP"},
        ),
    ]
    sums = "; ".join(f"{row['tokens']} tokens {row['to']:.4g} GFLOP" for row in rows if row["part"] == PARTS[-1][1])
    model = answers[0]["plan"]["model"]
    says = f"FLOP of a token of training, {model}: {sums}. The rule 6 N says {rule:.4g} GFLOP."
    return frame(("Where 6 N D comes from", str(model)), says, Size(MEDIUM.width + 90, 320), rows, marks)
