"""Figures of a validation: errors of the predictions of published runs, by run, by family, and whether bands hold."""

from __future__ import annotations

from ironlaw.figures.marks import LARGE, Answer, Size, Spec, frame, layer, names, percent, quantity, rows_size, signed, tooltip


def error_scatter(answer: Answer) -> Spec:
    """Predicted over measured, a point for each run; a ring is outside its own band."""
    rows = []
    for one in answer["predictions"]:
        band = one.get("band")
        rows.append(
            {
                "run": one["id"],
                "family": one["family"],
                "model": one["model"],
                "support": one["support"],
                "measured_seconds": one["measured_s"],
                "predicted_seconds": one["predicted_s"],
                "ratio": 1.0 + one["error"],
                "inside": None if not band else band[0] <= one["measured_s"] <= band[1],
                "says": signed(one["error"]),
            }
        )
    usual = next((one["ratio"] for one in answer["deciles"] if one["group"] == "headline"), None)
    x = quantity("measured_seconds", "measured step time, s (log)", log=True)
    y = quantity("ratio", "predicted / measured (log)", log=True, values=[0.25, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2], format="~g")
    marks = [layer({"type": "rule"}, [{"ratio": 1.0}], y=quantity("ratio", log=True))]
    if usual:
        marks.insert(
            0,
            layer(
                {"type": "rect", "color": "@line2", "opacity": 0.25},
                [{"ratio": usual[1], "to": usual[-2]}],
                y=quantity("ratio", log=True),
                y2={"field": "to"},
            ),
        )
    test = {"condition": {"test": "datum.inside === false", "value": "@bad"}, "value": "@ink3"}
    fill = {"condition": {"test": "datum.inside === false", "value": "@bad-tint"}, "value": "@ink3"}
    marks.append(
        layer(
            {"type": "point", "filled": True, "size": 22, "opacity": 0.55},
            x=x,
            y=y,
            stroke=test,
            fill=fill,
            tooltip=tooltip("run", "model", "says"),
        )
    )
    outside = [row for row in rows if row["inside"] is False]
    slower = sum(1 for row in outside if row["ratio"] < 1.0)
    head = answer["headline"]
    ends = f" Eight of ten dense runs lie between {signed(usual[1] - 1.0, 0)} and {signed(usual[-2] - 1.0, 0)}." if usual else ""
    says = (
        f"{len(rows)} published runs; the median error of families is {percent(head['family_median_abs_error'])}.{ends} "
        f"{len(outside)} lie outside their own band, {slower} of them measured slower than predicted."
    )
    return frame(("Predicted over measured", "a point for each published run; red: outside its own band"), says, LARGE, rows, marks)


def families(answer: Answer) -> Spec:
    """Who is predicted well: the median error of each family, and the error that one run in ten exceeds."""
    groups = sorted(answer["groups"], key=lambda one: one["median_abs_error"])
    rows = [
        {
            "family": one["key"],
            "runs": one["n"],
            "median_error": one["median_abs_error"],
            "one_in_ten_above": one["p90_abs_error"],
            "bias": one["bias"],
            "says": f"{one['n']} runs, median {percent(one['median_abs_error'])}, one in ten above {percent(one['p90_abs_error'])}",
        }
        for one in groups
    ]
    middle = answer["headline"]["family_median_abs_error"]
    y, x = names("family", labelLimit=300), quantity("median_error", "error: point median, line to one in ten", format=".0%")
    marks = [
        layer({"type": "rule", "strokeDash": [3, 3], "color": "@line2"}, [{"median_error": middle}], x=quantity("median_error")),
        layer({"type": "rule", "size": 2, "color": "@ink2"}, y=y, x=quantity("median_error"), x2={"field": "one_in_ten_above"}),
        layer({"type": "point", "filled": True, "size": 60, "color": "@ink"}, y=y, x=x, tooltip=tooltip("family", "says")),
    ]
    listed = "; ".join(f"{row['family']}: {row['says']}" for row in rows[:12])
    more = f"; and {len(rows) - 12} more" if len(rows) > 12 else ""
    return frame(
        ("Families of runs", "each predicted without itself"),
        f"The median of families is {percent(middle)}. {listed}{more}.",
        rows_size(len(rows), 640),
        rows,
        marks,
    )


def coverage(answer: Answer) -> Spec:
    """Whether the band of 80 % holds: the share of a family's runs inside it, with the record of its stack and with a generic one."""
    rows = []
    for one in answer["bands"]["groups"]:
        group, _, record = one["group"].rpartition(", ")
        rows.append(
            {
                "group": group or one["group"],
                "record": record,
                "runs": one["n"],
                "inside": one["family_coverage"],
                "says": f"{one['n']} runs, {percent(one['family_coverage'], 0)}",
            }
        )
    kinds = list(dict.fromkeys(row["record"] for row in rows))
    shape = {
        "field": "record",
        "type": "nominal",
        "scale": {"domain": kinds, "range": ["circle", "diamond", "square"][: len(kinds)]},
        "legend": {"symbolStrokeColor": "@ink", "columns": 3},
    }
    y = names("group", dict.fromkeys(row["group"] for row in rows), labelLimit=300)
    x = quantity(
        "inside",
        "share of a family's runs inside the band, mean of families",
        domain=(min([0.5, *(row["inside"] for row in rows)]), 1.0),
        format=".0%",
    )
    marks = [
        layer({"type": "rule", "strokeDash": [3, 3]}, [{"inside": 0.8}], x=quantity("inside")),
        layer(
            {"type": "point", "filled": False, "size": 80, "strokeWidth": 2},
            y=y,
            x=x,
            shape=shape,
            tooltip=tooltip("group", "record", "says"),
        ),
    ]
    listed = "; ".join(f"{row['group']}, {row['record']}: {row['says']}" for row in rows)
    size = rows_size(len({row["group"] for row in rows}), 600, 96)
    return frame(
        ("Inside the band, by group", "80 % is promised"), f"80 % is promised. {listed}.", Size(size.width, size.height), rows, marks
    )
