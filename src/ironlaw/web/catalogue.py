"""The pages of the catalogue: the search at the left, one record at the right."""

from __future__ import annotations

from htpy import Node, aside, code, div, h1, main, p

from ironlaw.catalog import load
from ironlaw.catalog.records import KINDS
from ironlaw.errors import UnknownNameError
from ironlaw.page import catalogue
from ironlaw.page.figure import live
from ironlaw.report.records import find_records, record_data
from ironlaw.web import draw

LONGEST = 200  # characters of a search


def search_page(words: str) -> tuple[int, str]:
    """Status and HTML of the search; where one record is found, or the first has exactly this name, it stands at the right."""
    found = find_records(words[:LONGEST])
    hits = [(kind, one["name"]) for kind, listed in found["found"].items() for one in listed]
    exact = [hit for hit in hits if hit[1] == words.strip().lower()]
    if len(hits) == 1 or exact:
        return record_page(*(exact or hits)[0], words)
    inside: Node = [h1["Where does a value come from?"], p(".lead")[_says(found, len(hits))]]
    return 200, draw.document("catalog", {}, _frame(catalogue.search_list(found), inside), "Catalogue")


def _says(found: dict[str, object], hits: int) -> str:
    if not found["words"]:
        return "Every number that ironlaw uses stands in a record, with its source, its grade and the day it was read. Search for one."
    if not hits:
        return f"No record is called {found['words']}."
    return f"{hits} records have these words in kind, name or title. Choose one."


def record_page(kind: str, name: str, words: str = "") -> tuple[int, str]:
    """Status and HTML of one record; the nearest names where there is none."""
    found = find_records(words[:LONGEST] or name[:LONGEST])
    try:
        data = record_data(kind, _known(kind, name))
    except UnknownNameError as error:
        inside: Node = [h1["There is no such record."], p(".lead", role="alert")[str(error)]]
        return 404, draw.document("catalog", {}, _frame(catalogue.search_list(found), inside), "No such record")
    drawn = catalogue.view(data, live)
    command = f"ironlaw catalog show {data['name']} --kind {kind} --json"
    inside = [
        p(".subject")[drawn.subject],
        h1[drawn.verdict],
        div(".lead")[drawn.lead],
        drawn.content,
        p(".note.same")["The same in the terminal: ", code[command]],
    ]
    page = draw.document("catalog", {}, _frame(catalogue.search_list(found, (kind, data["name"])), inside, ".of-record"), data["title"])
    return 200, page


def _known(kind: str, name: str) -> str:
    """The name of a record for a spelling of it; it is looked up among the names there are, and never becomes a path."""
    if kind not in KINDS:
        raise UnknownNameError("kind of record", kind[:LONGEST], KINDS)
    known = load.names(kind)
    found = name if name in known else load.aliases()[kind].get(load.fold_name(name[:LONGEST]), "")
    if found not in known:
        raise UnknownNameError(load.SINGULAR[kind], name[:LONGEST], known, more=f"ironlaw catalog list {kind}")
    return found


def _frame(left: Node, right: Node, more: str = "") -> Node:
    """The search beside the record; on a narrow screen the hits stand below the record."""
    return div(f".frame.catalogue{more}")[aside("#search", aria_label="Records")[left], main("#answer", tabindex="-1")[right]]
