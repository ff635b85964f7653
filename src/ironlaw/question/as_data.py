"""Rows of options as plain data: what ``ironlaw schema --options`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ironlaw.question.options import Option, flag, heading_of


def row_data(name: str, option: Option, own: str) -> dict[str, Any]:
    """One option of a verb, whose own heading is ``own``, as plain data.

    >>> from ironlaw.question.options import OPTIONS
    >>> row = row_data("nic_bandwidth", OPTIONS["nic_bandwidth"], "Question")
    >>> row["flag"], row["unit"], row["takes"], row["least"], row["otherwise"]
    ('--nic-bandwidth', 'B/s', ['float', 'str'], 1e-30, "the node's")
    """
    kind = option.kind
    return {
        "name": name,
        "flag": flag(name),
        "heading": heading_of(name, option, own),
        "says": option.says,
        "value": option.metavar,
        "takes": list(kind.takes),
        "unit": kind.unit,
        "choices": list(kind.choices),
        "least": kind.least,
        "most": kind.most,
        "default": list(option.default) if isinstance(option.default, tuple) else option.default,
        "otherwise": option.otherwise,
        "column": option.column,
        "records": option.records,
        "also": list(option.also),
        "needs": list(option.needs),
        "excludes": dict(option.excludes),
        "left_out": dict(option.left_out),
        "since": option.since,
    }


def table_data(table: Mapping[str, Option], own: str) -> list[dict[str, Any]]:
    """The options of a verb as plain data."""
    return [row_data(name, option, own) for name, option in table.items()]
