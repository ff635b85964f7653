"""The form that takes dropped files, and what was taken from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from htpy import Element, Node, button, details, div, form, label, li, span, strong, summary, ul
from htpy import input as entry

READS = (
    "traces of torch.profiler and Nsight Systems (several are ranks), training logs, memory snapshots; config.json, a question in TOML,"
    " a Megatron-LM script, a saved answer or report"
)


def drop_form(given: Mapping[str, str], files: Sequence[str] = (), text: str = "Drop a file here, or choose one") -> Element:
    """The form that takes files; it sends the question on the page along, and the files that are there already."""
    kept = {name: given[name] for name in ("model", "on", "gpus", "tokens", "seq_len", "global_batch_size", "framework") if name in given}
    return form("#drop", method="post", action="/files", enctype="multipart/form-data")[
        label(".drop-zone", for_="drop-files")[
            strong[text],
            span(".note")["Kind by content. Nothing leaves this machine, nothing in it is run."],
            entry("#drop-files", type="file", name="file", multiple=True, required=True),
        ],
        (entry(type="hidden", name=name, value=value) for name, value in kept.items()),
        (entry(type="hidden", name="files", value=one) for one in files),
        button(type="submit", class_="quiet")["Read"],
    ]


def took_block(notes: Sequence[Mapping[str, Any]]) -> Node:
    """What was taken from dropped files, and what was ignored."""
    if not notes:
        return None
    return div("#took", role="status")[ul[(_note(one) for one in notes)]]


def _note(one: Mapping[str, Any]) -> Element:
    """What was taken from one file."""
    ignored = [li[text] for text in one["ignored"]]
    count = f"{len(ignored)} {'note' if len(ignored) == 1 else 'notes'} on what it says"
    return li[
        strong[one["name"]],
        ": ",
        "not understood: " if one["kind"] == "unknown" else "taken as ",
        f"{one['says']}.",
        one.get("assumed") and f" Assumed, as the file does not say: {one['assumed']}.",
        ignored and details(".more")[summary[count], ul[ignored]],
    ]
