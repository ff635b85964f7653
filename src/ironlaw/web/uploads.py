"""Dropped files: taken within limits, kept in memory by the hash of their content, read by a process that is stopped when late."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import anyio
from anyio import CapacityLimiter
from markupsafe import Markup
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from ironlaw.errors import IronlawError, QuestionError, UnknownNameError
from ironlaw.files import write_file
from ironlaw.web import diagnosis, drop, reading, work
from ironlaw.web.work import Reply

LARGEST = 64 << 20  # bytes of a request
DRAINED = 512 << 20  # bytes that are read and thrown away, so that the browser hears why the request was refused
KEPT = 256 << 20  # bytes of all files that are kept: the oldest go first
MOST_FILES = 256  # of a request
ARRIVES, READS = 60.0, 120.0  # seconds that the bytes of a request, and reading them, may take
MOST_NOTES, MOST_ANSWERS = 64, 16  # that are remembered
TOOK = "took"  # the word of an address that names what was taken from files
_BOUNDARY = re.compile(r'boundary="?([^";,]{1,200})"?')
_NAME = re.compile(r'\bname="([^"]*)"')
_FILE = re.compile(r'filename="((?:[^"\\]|\\.)*)"')


class File(NamedTuple):
    """A file as it was dropped: what it is called on the page, and its bytes."""

    name: str
    content: bytes


class RefusedError(Exception):
    """A request that is not read: the status, and why in one sentence."""

    def __init__(self, status: int, says: str) -> None:
        super().__init__(says)
        self.status = status


class Shelf:
    """What the server remembers: files by the hash of their content, notes on them, and answers. All of it is forgotten when it ends."""

    def __init__(self) -> None:
        self.files: OrderedDict[str, File] = OrderedDict()
        self.notes: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()
        self.answers: OrderedDict[tuple[Any, ...], Reply] = OrderedDict()
        self.limiter = CapacityLimiter(2)

    def put(self, file: File, key: str = "") -> str:
        """Keep a file, and give its key."""
        key = key or hashlib.sha256(file.content).hexdigest()[:24]
        self.files[key] = file
        self.files.move_to_end(key)
        while len(self.files) > 1 and sum(len(one.content) for one in self.files.values()) > KEPT:
            self.files.popitem(last=False)
        return key

    def note(self, notes: list[dict[str, Any]]) -> str:
        """Keep notes on files, and give their key."""
        key = hashlib.sha256(json.dumps(notes).encode()).hexdigest()[:16]
        self.notes[key] = notes
        while len(self.notes) > MOST_NOTES:
            self.notes.popitem(last=False)
        return key

    def answered(self, key: tuple[Any, ...], reply: Reply) -> None:
        """Keep an answer."""
        self.answers[key] = reply
        while len(self.answers) > MOST_ANSWERS:
            self.answers.popitem(last=False)


def shelf(request: Request) -> Shelf:
    """The shelf of the server."""
    state = request.app.state
    if not hasattr(state, "shelf"):
        state.shelf = Shelf()
    found: Shelf = state.shelf
    return found


def routes() -> list[Route]:
    """The addresses of dropped files."""
    return [
        Route("/files", _take, methods=["POST"]),
        Route("/diagnose", _diagnose),
        Route("/saved/{key}", _saved),
        Route("/api/diagnose", _data),
        Route("/report/diagnose", _report),
    ]


# --- taking files


async def _take(request: Request) -> Response:
    """Take dropped files, say what each is, and lead to the answer."""
    try:
        with anyio.fail_after(ARRIVES):
            files, given = parts_of(await _body(request), request.headers.get("content-type", ""))
        named = [file for file in files if file.content]
        if not named:
            raise RefusedError(422, "No file was sent, or only empty ones.")
    except TimeoutError:
        return _not_read([("", f"The file did not arrive within {ARRIVES:g} s.")], 408)
    except ClientDisconnect:
        return Response(status_code=499)
    except RefusedError as refused:
        return _not_read([("", str(refused))], refused.status)
    kept = shelf(request)
    found = await _read(request, "look", named, {name: value for name, value in given.items() if name != "files"})
    if not isinstance(found, list):
        return _not_read([("", _why(found))], 503)
    looked = [{**one, "name": file.name} for one, file in zip(found, named, strict=True)]
    return _lead_on(kept, named, looked, given)


async def _body(request: Request) -> bytes:
    """The bytes of a request, at most ``LARGEST``."""
    stated = request.headers.get("content-length", "")
    late = f"At most {LARGEST >> 20} MiB are taken at once: give larger files to ironlaw diagnose FILE, or cut the trace to fewer steps."
    if stated.isdigit() and int(stated) > DRAINED:
        raise RefusedError(413, late)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= LARGEST:
            parts.append(part)
        elif size > DRAINED:
            break
        else:
            parts.clear()
    if size > LARGEST:
        raise RefusedError(413, late)
    return b"".join(parts)


def parts_of(body: bytes, kind: str) -> tuple[list[File], dict[str, str]]:
    """The files of a form, and its other values; a value that is given several times is joined by commas.

    >>> form = b'--x\\r\\nContent-Disposition: form-data; name="on"\\r\\n\\r\\nh100-sxm\\r\\n--x--\\r\\n'
    >>> parts_of(form, "multipart/form-data; boundary=x")
    ([], {'on': 'h100-sxm'})
    """
    found = _BOUNDARY.search(kind) if kind.startswith("multipart/form-data") else None
    if found is None:
        raise RefusedError(415, "Files come as a form: drop them on the page.")
    files: list[File] = []
    values: dict[str, str] = {}
    for part in body.split(b"--" + found[1].encode("latin-1"))[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        said = head.decode("utf-8", "replace")
        content = content.removesuffix(b"\r\n")
        if (name := _FILE.search(said)) is not None:
            files.append(File(shown_name(name[1]), content))
        elif (name := _NAME.search(said)) is not None and len(content) <= work.LONGEST:
            text = content.decode("utf-8", "replace")
            values[name[1]] = f"{values[name[1]]},{text}" if values.get(name[1]) else text
    if len(files) > MOST_FILES:
        raise RefusedError(413, f"At most {MOST_FILES} files are taken at once.")
    return files, values


def shown_name(name: str) -> str:
    """What a file is called on the page: its last part, without what cannot be printed. It is never a path.

    >>> shown_name("C:\\\\traces\\\\rank0.json"), shown_name("../../etc/passwd"), shown_name("")
    ('rank0.json', 'passwd', 'file')
    """
    last = re.split(r"[\\/]", name)[-1]
    return "".join(one for one in last if one.isprintable())[:100] or "file"


def _lead_on(kept: Shelf, files: Sequence[File], looked: Sequence[dict[str, Any]], given: Mapping[str, str]) -> Response:
    """Where the answer to dropped files is: their diagnosis, a saved answer, or the estimate that they ask for."""
    measured = [kept.put(file) for file, one in zip(files, looked, strict=True) if one["kind"] == "measured"]
    question: dict[str, str] = {}
    for file, one in zip(files, looked, strict=True):
        if one["kind"] == "question":
            question |= one["question"]
        elif one["kind"] == "config":
            question["model"] = kept.put(file, model_key(file))
    held = {name: value for name, value in given.items() if value and name not in ("files", *(["model"] if question else []))}
    if measured or (given.get("files") and question):
        before = [key for key in given.get("files", "").split(",") if key in kept.files]
        keys = ",".join(dict.fromkeys([*before, *measured]))
        return _to("/diagnose", {"files": keys, **held, **question, TOOK: kept.note(list(looked))})
    if answer := next((file for file, one in zip(files, looked, strict=True) if one["kind"] == "answer"), None):
        return _to(f"/saved/{kept.put(answer)}", {})
    if question:
        asked = {**held, **question}
        assumed = {name: value for name, value in reading.ASSUMED.items() if name not in asked}
        for one in looked:
            one["assumed"] = ", ".join(f"{name} {value}" for name, value in assumed.items())
        return _to("/estimate", {**asked, **assumed, TOOK: kept.note(list(looked))})
    return _not_read([(one["name"], one["says"].removeprefix(f"{one['name']}: ")) for one in looked], 422)


def model_key(file: File) -> str:
    """The name of a model whose configuration was dropped, as an address has it; the content decides, not the name.

    >>> model_key(File("My Model.json", b"{}"))
    'my-model-44136fa355b3.json'
    """
    stem = re.sub(r"[^a-z0-9]+", "-", file.name.lower().removesuffix(".json")).strip("-")[:40] or "model"
    return f"{stem}-{hashlib.sha256(file.content).hexdigest()[:12]}.json"


def _to(path: str, query: Mapping[str, str]) -> Response:
    return RedirectResponse(path + (f"?{urlencode(query)}" if query else ""), 303)


def _not_read(reasons: Sequence[tuple[str, str]], status: int) -> Response:
    return HTMLResponse(diagnosis.page(diagnosis.not_read(reasons), {}, {}, "Not understood"), status)


def models_in(request: Request, values: Sequence[Any]) -> dict[str, bytes]:
    """The dropped configurations that a question names as its model."""
    files = shelf(request).files
    named = [value.get("model", "") for value in values if isinstance(value, Mapping)]
    return {name: files[name].content for name in named if name.endswith(".json") and name in files}


# --- reading files


async def _read(request: Request, action: str, files: Sequence[File], given: Mapping[str, str]) -> Any:
    """What a separate process reads from files in a private folder; None where the browser has gone, text where it failed."""
    found: Any = None
    late = False
    async with shelf(request).limiter, anyio.create_task_group() as group:

        async def watch() -> None:
            while not await request.is_disconnected():
                await anyio.sleep(0.25)
            group.cancel_scope.cancel()

        group.start_soon(watch)
        with anyio.move_on_after(READS) as scope:
            found = await _run(action, files, given, models_in(request, [given]))
        late = scope.cancelled_caught
        group.cancel_scope.cancel()
    return f"Not read within {READS:g} s: cut the trace to fewer steps, or ask on the command line." if late else found


async def _run(action: str, files: Sequence[File], given: Mapping[str, str], models: Mapping[str, bytes]) -> Any:
    """Write the files under names of our own, and run the reader on them; the folder goes whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix="ironlaw-files-"))
    names = {f"ironlaw-file-{at:04d}": file.name for at, file in enumerate(files)}
    try:
        for own, file in zip(names, files, strict=True):
            await anyio.to_thread.run_sync(write_file, folder / own, file.content)
        for own, content in models.items():
            write_file(folder / own, content)
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        request = json.dumps({"action": action, "names": names, "given": dict(given)}).encode()
        command = [sys.executable, "-m", "ironlaw.web.reading"]
        done = await anyio.run_process(command, input=request, cwd=str(folder), env=environment, check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        print(f"ironlaw: reading {', '.join(names.values())} ended with {done.returncode}: {last}", file=sys.stderr)
        return "The file took more time or memory than a dropped file may; ask on the command line."


def _why(found: Any) -> str:
    return found if isinstance(found, str) else "The browser has gone."


# --- answers


def _asked(request: Request) -> tuple[dict[str, str], dict[str, str]]:
    """The files of an address by their key, and the options beside them."""
    from ironlaw.question.options import OPTIONS

    given = {name: value for name, value in request.query_params.multi_items() if value != ""}
    given.pop(TOOK, None)
    kept = shelf(request).files
    keys = [key for key in given.pop("files", "").split(",") if key]
    if missing := [key for key in keys if key not in kept]:
        raise QuestionError(f"{len(missing)} of {len(keys)} files are not kept any more: drop them again")
    known = {*OPTIONS, *reading.OWN}
    for name in given:
        if name not in known:
            raise UnknownNameError("option", name, known)
    return {key: kept[key].name for key in keys}, given


async def _diagnosed(request: Request, files: Mapping[str, str], given: Mapping[str, str]) -> Reply | None:
    """The diagnosis of kept files; None where the browser has gone."""
    kept = shelf(request)
    key = (tuple(files), tuple(sorted(given.items())))
    if key in kept.answers:
        return kept.answers[key]
    found = await _read(request, "diagnose", [kept.files[one] for one in files], given)
    if not isinstance(found, dict):
        return None if found is None else Reply(503, json.dumps({"error": {"code": "too-long", "message": found}}))
    if found.get("error"):
        return Reply(422, json.dumps({"error": {"code": "too-large", "message": found["error"]}}))
    reply = Reply(found["status"], found["data"], found["title"], found["html"])
    kept.answered(key, reply)
    return reply


async def _diagnose(request: Request) -> Response:
    """The page of a diagnosis."""
    try:
        files, given = _asked(request)
    except IronlawError as error:
        return _not_read([("", str(error))], 422)
    if not files and "tokens_per_second" not in given:
        return HTMLResponse(diagnosis.page(diagnosis.empty(), given, {}, "Diagnose a run"))
    found = await _diagnosed(request, files, given)
    if found is None:
        return Response(status_code=499)
    notes = drop.took_block(shelf(request).notes.get(request.query_params.get(TOOK, ""), []))
    if found.status != 200:
        message = str(json.loads(found.data)["error"]["message"])
        inside = diagnosis.not_read([("", message)])
        return HTMLResponse(diagnosis.page(inside, given, files, "No answer", notes), found.status)
    return HTMLResponse(diagnosis.page(Markup(found.html), given, files, found.title, notes))


async def _saved(request: Request) -> Response:
    """The page of a saved answer that was dropped."""
    key = request.path_params["key"]
    kept = shelf(request)
    if key not in kept.files:
        return _not_read([("", "This answer is not kept any more: drop its file again.")], 404)
    found = kept.answers.get((key,))
    if found is None:
        read = await _read(request, "answer", [kept.files[key]], {})
        if not isinstance(read, dict) or read.get("error"):
            return _not_read([(kept.files[key].name, _why(read.get("error") if isinstance(read, dict) else read))], 422)
        found = Reply(read["status"], read["data"], read["title"], read["html"])
        kept.answered((key,), found)
    if found.status != 200:
        return _not_read([(kept.files[key].name, str(json.loads(found.data)["error"]["message"]))], found.status)
    return HTMLResponse(found.html)


async def _data(request: Request) -> Response:
    """The diagnosis as data."""
    try:
        files, given = _asked(request)
    except IronlawError as error:
        return JSONResponse({"error": error.data()}, 422)
    found = await _diagnosed(request, files, given)
    return Response(status_code=499) if found is None else Response(found.data, found.status, media_type="application/json")


async def _report(request: Request) -> Response:
    """The diagnosis as a report."""
    from datetime import date

    from ironlaw.page.report import report

    reply = await _data(request)
    if reply.status_code != 200:
        return reply
    files, given = _asked(request)
    words = ["diagnose", *files.values(), *(word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value))]
    text = await anyio.to_thread.run_sync(lambda: report(json.loads(bytes(reply.body)), "diagnose", words, date.today()))
    return HTMLResponse(text)
