"""Reads dropped files in a separate process: what each file is by its content, and the diagnosis of those that were measured.

The process has limits of memory, of CPU time and of what it may write; it works in a private folder that the server makes and removes, and
its files have names that the server gave. Nothing in a file is run. The request comes in at stdin, the answer goes out at stdout, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ironlaw.errors import InputError, IronlawError

MEMORY, CPU, WRITES = 6 << 30, 100, 64 << 20  # bytes of address space, seconds, bytes of a file
LARGEST_QUESTION = 5_000_000  # bytes of a config.json, a question or a script
ASSUMED = {"on": "h100-sxm", "gpus": "8"}  # of a model's configuration or a script that names no machine
OWN = ("unlinked", "last_step", "time_unit", "untraced_step", "tokens_per_second")  # options of a diagnosis alone
_SCRIPT = re.compile(r"--(num-layers|tensor-model-parallel-size|use-mcore-models|micro-batch-size)\b")
_TOML = re.compile(r"""^\s*(\[[\w. "'-]+\]|[\w."'-]+\s*=\s*\S)""", re.MULTILINE)


def limit_process() -> None:
    """Limit what this process may take; nothing where the system has no such limits."""
    with contextlib.suppress(ImportError):
        import resource

        for name, most in (("RLIMIT_AS", MEMORY), ("RLIMIT_CPU", CPU), ("RLIMIT_FSIZE", WRITES), ("RLIMIT_CORE", 0)):
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(getattr(resource, name), (most, most))


# --- what a file is


def look(path: Path, given: Mapping[str, str]) -> dict[str, Any]:
    """What a file is, by its content: a saved answer, a question, a model's configuration, or a measurement.

    Parameters
        path: the file
        given: options of the page, which a script or a configuration does not say

    ``kind`` is ``answer``, ``question``, ``config`` or ``measured``; ``question`` has options as an address has them; ``says`` what was
    taken, ``ignored`` what was not.
    """
    from ironlaw.measure.read.limits import head

    start = head(path, 1 << 16)
    text = start.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if text[:1] == "<" or ('"schema_version"' in text and '"tool_version"' in text and text[:1] in "[{"):
        return {"kind": "answer", "says": "a saved answer", "ignored": []}
    if path.stat().st_size <= LARGEST_QUESTION:
        if text[:1] == "{" and any(f'"{key}"' in text for key in ("model_type", "architectures", "hidden_size", "text_config")):
            return _config(path)
        if _SCRIPT.search(text):
            return _script(path, given)
        if text[:1] not in ("{", "<") and _TOML.match(text) and (found := _question(path)) is not None:
            return found
    from ironlaw.measure.read.sniff import kind_of

    kind = kind_of(path)
    return {"kind": "measured", "says": MEASURED.get(kind, kind), "ignored": []}


MEASURED = {
    "chrome": "a trace of torch.profiler", "nsys": "a trace of Nsight Systems", "log": "a log", "snapshot": "a memory snapshot",
    "timeline": "a memory timeline", "memory": "an out-of-memory message",
}  # fmt: skip


def _config(path: Path) -> dict[str, Any]:
    """A model's ``config.json``; the file itself is the model of the question."""
    from ironlaw.catalog.config_json.read import load_config, model_from_config

    model, left_out = model_from_config(load_config(path), str(path), path.stem)
    layers = f"{model.num_hidden_layers} layers of width {model.hidden_size:,}"
    return {"kind": "config", "says": f"a config.json of {model.family}: {layers}", "ignored": left_out}


def _script(path: Path, given: Mapping[str, str]) -> dict[str, Any]:
    """A launch script of Megatron-LM, read and never run."""
    from ironlaw.files import read_text
    from ironlaw.launch.readers import READERS
    from ironlaw.page.saved import given_texts

    gpus = given.get("gpus") or ASSUMED["gpus"]
    text = read_text(path, "a launch script", LARGEST_QUESTION)
    reader = next(one for one in READERS if re.search(one.mark, text, re.MULTILINE))
    options, rules = reader.read(text, int(gpus) if gpus.isdigit() else None, given.get("on") or ASSUMED["on"])
    question = given_texts({"asked": {"given": options}})
    return {"kind": "question", "says": f"a launch script of {reader.framework}", "question": question, "ignored": rules}


def _question(path: Path) -> dict[str, Any] | None:
    """A question in TOML; None for a text that only looks like one."""
    from ironlaw.files import read_toml
    from ironlaw.page.saved import given_texts
    from ironlaw.question.read import from_sections, read_options

    try:
        table = read_toml(path, "a question", LARGEST_QUESTION)
    except InputError:
        return None
    options = from_sections(table, "the question")
    read_options(options)
    return {"kind": "question", "says": "a question in TOML", "question": given_texts({"asked": {"given": options}}), "ignored": []}


# --- the answers


def answer_of(path: Path, name: str) -> dict[str, Any]:
    """The page of a saved answer, as it stands in its file."""
    from ironlaw.report.saved import drawn, read_answer
    from ironlaw.web import draw
    from ironlaw.web.work import VERBS

    verb, answer = read_answer(path)
    page = drawn(name, lambda: str(draw.saved_page(verb, answer, name, verb in VERBS)))
    return {"status": 200, "data": "", "title": name, "html": page}


def diagnosis_of(paths: Sequence[Path], given: Mapping[str, str], names: Mapping[str, str]) -> dict[str, Any]:
    """The diagnosis of files, as data and drawn; ``names``: what the files are called on the page."""
    from ironlaw.measure.diagnose import diagnose
    from ironlaw.report.diagnosis import diagnosis_data
    from ironlaw.web.diagnosis import drawn
    from ironlaw.web.work import check_words

    check_words(given)
    own: dict[str, Any] = {name: value for name, value in given.items() if name in OWN}
    question = {name: value for name, value in given.items() if name not in OWN}
    found = diagnose(list(map(str, paths)), question=question, on=question.get("on"), **own)
    data = renamed(diagnosis_data(found.data(), found.assumptions, found.warnings), names)
    title, page = drawn(data, given)
    return {"status": 200, "data": json.dumps(data, separators=(",", ":"), allow_nan=False), "title": title, "html": page}


def renamed(data: Any, names: Mapping[str, str]) -> Any:
    """Plain data with the names of files as the page calls them.

    >>> renamed({"path": "ironlaw-file-0000"}, {"ironlaw-file-0000": "rank0.json"})
    {'path': 'rank0.json'}
    """
    if isinstance(data, str):
        if "ironlaw-file-" in data:
            for own, shown in names.items():
                data = data.replace(own, shown)
        return data
    if isinstance(data, Mapping):
        return {key: renamed(value, names) for key, value in data.items()}
    return [renamed(value, names) for value in data] if isinstance(data, (list, tuple)) else data


def respond(request: Mapping[str, Any]) -> Any:
    """The answer to a request of the server: ``look`` at files, ``answer`` of one, or ``diagnose`` them."""
    names = dict(request["names"])
    paths = [Path(name) for name in names]
    given = {str(name): str(value) for name, value in request["given"].items()}
    if request["action"] == "look":
        return list(_looks(paths, given, names))
    try:
        if request["action"] == "answer":
            return answer_of(paths[0], names[str(paths[0])])
        return diagnosis_of(paths, given, names)
    except IronlawError as error:
        return {"status": 422, "data": json.dumps({"error": renamed(error.data(), names)}), "title": "No answer", "html": ""}


def _looks(paths: Sequence[Path], given: Mapping[str, str], names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """What each file is, or why it is not understood."""
    for path in paths:
        try:
            yield renamed(look(path, given), names)
        except (IronlawError, RecursionError) as error:
            says = "nested too deep" if isinstance(error, RecursionError) else renamed(str(error), names)
            yield {"kind": "unknown", "says": says, "ignored": []}


def main() -> None:
    """Answer the request at stdin."""
    limit_process()
    request = json.loads(sys.stdin.buffer.read())
    try:
        found = respond(request)
    except MemoryError:
        found = {"status": 422, "data": "", "title": "No answer", "html": "", "error": "the file takes more memory than a dropped file may"}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
