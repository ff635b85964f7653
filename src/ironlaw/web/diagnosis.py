"""The pages of dropped files: the diagnosis with its rail, the page without a file, and what was not understood."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from htpy import (
    Element,
    Node,
    a,
    aside,
    button,
    code,
    details,
    div,
    form,
    h1,
    h2,
    label,
    li,
    main,
    option,
    p,
    pre,
    select,
    span,
    strong,
    summary,
    ul,
)
from htpy import input as entry

from ironlaw.page.diagnose import view
from ironlaw.web import draw
from ironlaw.web.drop import READS, drop_form

FIELDS = (  # options of a diagnosis: name, label, words behind, records that a field suggests
    ("on", "Accelerator", "read from the trace", "accelerators"),
    ("model", "Compare with an estimate of", "model", "models"),
    ("gpus", "Accelerators", "of the job", ""),
    ("seq_len", "Sequence", "tokens", ""),
    ("global_batch_size", "Global batch", "sequences", ""),
    ("framework", "Stack", "", "frameworks"),
    ("tokens_per_second", "Measured throughput", "tokens/s of all", ""),
    ("untraced_step", "Step without a profiler", "such as 1.2s", ""),
)
WITHOUT = (*draw.FIELDS[:3], FIELDS[6])  # of a diagnosis without a file
CHOICES = (("last_step", "Last step"), ("unlinked", "Unlinked events"))


def drawn(data: Mapping[str, Any], given: Mapping[str, str]) -> tuple[str, str]:
    """Title and sections of a diagnosis; the server puts the rail beside them."""
    found = view(data)
    command = shlex.join(
        ["ironlaw", "diagnose", *(str(file["path"]) for file in data["files"]), *draw.command_words("diagnose", given)[1:]]
    )
    inside = div[
        p(".subject")[found.subject],
        h1(aria_live="polite")[found.verdict],
        div(".lead")[found.lead],
        found.content,
        details(".all-sources")[summary["Sources"], found.sources] if found.sources else None,
        details(".block.same")[summary["The same in the terminal"], pre(".command")[command]],
    ]
    return f"{found.subject}: {found.verdict.rstrip('.')}", str(inside)


def page(inside: Node, given: Mapping[str, str], files: Mapping[str, str], title: str, took: Node = None) -> str:
    """The whole page of a diagnosis; ``files``: the names of the files by their key."""
    if not files and not given:
        return draw.document("diagnose", {}, main("#answer.wide", tabindex="-1")[took, inside], title)
    left = aside("#rail.of-files", aria_label="Files")[_rail(given, files)]
    return draw.document("diagnose", {}, div(".frame")[left, main("#answer", tabindex="-1")[took, inside]], title)


def _rail(given: Mapping[str, str], files: Mapping[str, str]) -> Node:
    """The files, and what changes their diagnosis."""
    listed = [li[span(".file")[name]] for name in files.values()]
    fields = form(method="get", action="/diagnose", class_="question plain")[
        files and entry(type="hidden", name="files", value=",".join(files)),
        (draw.field(field, given, {}, "", slides=False) for field in FIELDS),
        (_choice(name, text, given.get(name, "keep")) for name, text in CHOICES),
        div(".buttons")[button(type="submit", class_="primary")["Diagnose"]],
    ]
    names = list(files.values())
    line = names[0] if len(names) == 1 else f"{len(names)} files" if names else "A measured throughput"
    return [
        entry("#edit", type="checkbox", aria_label="Change the diagnosis"),
        label(".sentence", for_="edit")[strong[line], span(".action")["Edit"]],
        h2["Files"],
        listed and ul(".files")[listed],
        drop_form(given, list(files), "Drop traces of more ranks" if files else "Drop a trace or a log"),
        fields,
    ]


def _choice(name: str, text: str, value: str) -> Element:
    return div(".field")[
        label(for_=f"q-{name}")[text],
        select(id=f"q-{name}", name=name)[(option(value=one, selected=one == value)[one] for one in ("keep", "drop"))],
    ]


def empty() -> Node:
    """What stands where there is no file yet."""
    return [
        h1["Why was it slow?"],
        p(".lead")["Drop a trace, a log or a memory snapshot: ironlaw says which roof binds, what to try, and how much that could gain."],
        div(".view")[drop_form({}, (), "Drop files here, or choose them"), p(".note")[f"Read are {READS}."]],
        p(".label")["Without a file: the throughput that you measured, against an estimate of the same run"],
        form(method="get", action="/diagnose", class_="question plain without")[
            (draw.field(field, {}, {}, "", slides=False) for field in WITHOUT),
            div(".buttons")[button(type="submit", class_="primary")["Diagnose"]],
        ],
        p(".note.same")["Larger files, and folders with all ranks: ", code["ironlaw diagnose FOLDER"]],
    ]


def not_read(reasons: Sequence[tuple[str, str]]) -> Node:
    """Why files were not understood, each in a line."""
    return [
        h1["There is nothing to diagnose." if len(reasons) > 1 else "This file is not understood."],
        ul(".further", role="alert")[(li[strong[name] if name else None, ": " if name else None, says] for name, says in reasons)],
        p(".note")[f"Read are {READS}."],
        p(".note")["Drop another file anywhere on this page, or go to ", a(href="/diagnose")["the empty page"], "."],
    ]
