"""Replace private names in a diagnosis by hashes, so that it can be shown to others. Numbers stay.

Public are the words of ironlaw's sentences and keys, numbers, and the names of public libraries (``data/public_names.toml``). Everything
else becomes a hash: the same throughout one export, different in the next one, because the salt is thrown away. So two exports cannot be
joined, and a guessed name cannot be checked.
"""

from __future__ import annotations

import ast
import functools
import getpass
import hashlib
import hmac
import re
import secrets
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from ironlaw.files import read_shipped
from ironlaw.measure.read.toml import DATA, shipped

HERE = Path(__file__).parents[1]
PUBLIC = "public_names.toml"
ROOMS = ("cautions", "measure", "estimate", "report")  # packages whose strings appear in a diagnosis
PATH_KEYS = frozenset({"path", "paths", "folder", "against", "trace", "source_path", "where"})
HIDDEN_KEYS = frozenset(
    {
        "host",
        "hostname",
        "hosts",
        "user",
        "username",
        "node_name",
        "label",
        "group",
        "job",
        "job_id",
        "sha256",
        "project",
        "cwd",
        "env",
        "command",
    }
)
DEVICE_KEYS = frozenset({"device", "devices", "device_name"})
KEPT_KEYS = frozenset({"tool_version"})
_SUFFIX = re.compile(r"(\.(json|gz|zst|txt|log|out|err|sqlite|pickle|pkl|csv|toml))+$")
# a path or address in a sentence: text with a slash, a backslash or an @ in it
_PATHLIKE = re.compile(r"[^\s'\"`(),;<>|=]*[/\\@][^\s'\"`(),;<>|=]*")
_HOSTLIKE = re.compile(r"\b(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){3,7})\b")
_QUALIFIED = re.compile(r"(?:(?:\(anonymous namespace\)|\w+)::?)*\w+")
_NUMBER = re.compile(r"\d+(?:x\d+)+|\d[\d_]*(?:e\d+)?(?:us|ms|ns|s|x|[kMGT]i?B|B|h|d|ul|u|l|f|ull|st|nd|rd|th)?")
_UNITS = re.compile(r"(?:\w+/)+s|\w{1,5}(?:/\w{1,5}){1,3}|/")


class Redactor:
    """One export: its salt, and the paths and names that it hides in every text."""

    def __init__(self, extra: Sequence[str] = (), paths: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        self._salt = secrets.token_bytes(32)
        self._issued = {"name", "file", "host"}  # hashes given out, and the words before them: they stay
        self._paths = _any_of(paths, "{}")
        self._extra = _any_of(extra, r"\w*{}\w*")  # with the rest of the word around it
        self._names = _any_of([*names, *_of_this_machine()], r"\w*(?<![^\W_]){}(?![^\W_])\w*")

    def hashed(self, text: str, kind: str = "name") -> str:
        """A short hash of ``text``, the same each time within this export."""
        short = hmac.new(self._salt, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:10]
        self._issued.add(short)
        return f"{kind}-{short}"

    def path(self, text: str) -> str:
        """A path as one hash with its usual suffix; no folder of it stays."""
        suffix = _SUFFIX.search(PurePosixPath(text).name.lower())
        return self.hashed(text, "file") + (suffix[0] if suffix else "")

    def text(self, text: str) -> str:
        """A sentence or a name in which every word that is not public is hashed."""
        if text in literals() and not (self._extra and self._extra.search(text)):
            return text
        text = self._paths.sub(lambda m: self.path(m[0]), text) if self._paths else text
        text = _PATHLIKE.sub(lambda m: self._pathlike(m[0]), text)
        for names in (self._extra, self._names):
            text = names.sub(lambda m: m[0] if m[0] in self._issued else self.hashed(m[0].lower()), text) if names else text
        text = _HOSTLIKE.sub(lambda m: self.hashed(m[0], "host"), text)
        return _QUALIFIED.sub(lambda m: self._name(m[0]), text)

    def is_device(self, text: str) -> bool:
        """Whether ``text`` is the name of an accelerator or another public product."""
        is_product = text.startswith(tuple(public()["devices"])) and re.fullmatch(r"[\w .()-]{1,60}", text) is not None
        return is_product and not (self._extra and self._extra.search(text))

    def _pathlike(self, text: str) -> str:
        """Leave a unit like GB/s or a file of a public library as it is; hash anything else."""
        if _UNITS.fullmatch(text) and all(is_public(part) for part in text.split("/") if part):
            return text
        if re.fullmatch(r"docs/[\w-]+\.md(#[\w-]+)?", text) and all(is_public(word) for word in re.findall(r"\w+", text)):
            return text
        if re.fullmatch(r"[\w./-]+", text) and text.partition("/")[0] in public()["packages"]:
            return "/".join(part if is_public(part.removesuffix(".py")) else self.hashed(part) for part in text.split("/"))
        return self.path(text)

    def _name(self, text: str) -> str:
        if "::" in text and text.partition("::")[0] in public()["namespaces"]:
            return text
        return re.sub(r"\w+", lambda m: m[0] if m[0] in self._issued or is_public(m[0]) else self.hashed(m[0]), text)


def _any_of(names: Iterable[str], template: str) -> re.Pattern[str] | None:
    """A pattern that finds any of ``names``, the longest first, in upper or lower case."""
    ordered = sorted({name for name in names if name.strip()}, key=lambda name: (-len(name), name))
    return re.compile("|".join(template.replace("{}", re.escape(name)) for name in ordered), re.IGNORECASE) if ordered else None


def redact_diagnosis(diagnosis: Mapping[str, Any], names: Sequence[str] = ()) -> dict[str, Any]:
    """Hash paths, hosts, users and names that are not public; also every word in ``names``.

    The sha256 of a file is left out, because whoever has the file could recognise it.
    """
    paths = {text for key, text in _strings(diagnosis, "") if key in PATH_KEYS}
    redacted = _walk(dict(diagnosis), "", Redactor(names, paths, _components(diagnosis, paths)))
    return {**redacted, "redacted": True}


def _walk(item: Any, key: str, redactor: Redactor) -> Any:
    """Copy the diagnosis; every text is kept, hashed or removed by its key."""
    if isinstance(item, dict):
        return {_key(name, redactor): _walk(value, name, redactor) for name, value in item.items()}
    if isinstance(item, (list, tuple)):
        return [_walk(value, key, redactor) for value in item]
    if not isinstance(item, str) or not item:
        return item
    if key == "sha256":
        return None
    if key in KEPT_KEYS:
        return item
    if key in PATH_KEYS:
        return redactor.path(item)
    if key in HIDDEN_KEYS and item not in literals():
        return redactor.hashed(item)
    return item if key in DEVICE_KEYS and redactor.is_device(item) else redactor.text(item)


def _key(name: str, redactor: Redactor) -> str:
    """Leave a key of the format as it is; hash a key that is a private name."""
    unit = re.search(r"_(us|ns|seconds|bytes)$", name)
    base = name[: unit.start()] if unit else name
    is_format_key = base in public()["keys"] or (unit is not None and all(is_public(part) for part in base.split("_")))
    return name if is_format_key or is_public(name) else redactor.text(name)


def _components(diagnosis: Mapping[str, Any], paths: Iterable[str]) -> set[str]:
    """Names of folders and files in the diagnosis, and values under hidden keys: sentences may repeat them."""
    texts = {text for key, text in _strings(diagnosis, "") if key in HIDDEN_KEYS and text not in literals()}
    texts |= {part for path in paths for part in re.split(r"[/\\]", path)}
    return {name for name in texts if len(name) > 2 and not is_public(name)}


def _strings(item: Any, key: str) -> Iterator[tuple[str, str]]:
    """Every text in the diagnosis, with the key it is under."""
    stack = [(key, item)]
    while stack:
        name, value = stack.pop()
        if isinstance(value, dict):
            stack += list(value.items())
        elif isinstance(value, (list, tuple)):
            stack += [(name, element) for element in value]
        elif isinstance(value, str):
            yield name, value


def _of_this_machine() -> list[str]:
    """The names of this host and of its user; they are hidden even where they are common words."""
    names = []
    for ask in (getpass.getuser, socket.gethostname, lambda: Path.home().name):
        try:
            names.append(ask())
        except (OSError, KeyError, RuntimeError, ImportError):  # no such user, no home
            continue
    return [name for name in {*names, *(n.split(".")[0] for n in names)} if len(name) > 2 and name != "root"]


@functools.lru_cache(1 << 16)
def is_public(word: str) -> bool:
    """Whether a word may stay: a word of ironlaw, a number, or a name of a public library."""
    if word in words() or _NUMBER.fullmatch(word) or _public_name().fullmatch(word):
        return True
    for family in public()["built"]:  # names that libraries build from known parts
        if match := re.match(family["prefix"], word):
            allowed, pieces = set(family["parts"]), word[match.end() :].split("_")
            return all(p in allowed or not p or re.fullmatch(family["pattern"], p) is not None for p in pieces)
    return False


@functools.cache
def public() -> dict[str, Any]:
    """The names of public libraries, from the data file."""
    return shipped(PUBLIC)


@functools.cache
def _public_name() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in public()["names"]))


@functools.cache
def words() -> frozenset[str]:
    """All words of the strings in ironlaw's code and of the names in its catalogue."""
    vocabulary = {*public()["words"], *public()["namespaces"], *public()["packages"]}
    vocabulary |= {word for text in literals() for word in re.findall(r"\w+", text)}
    for path in (HERE.parent / "catalog" / "data").rglob("*.toml"):
        vocabulary |= {path.stem, *path.stem.replace(".", "-").split("-")}
    return frozenset(vocabulary)


@functools.cache
def literals() -> frozenset[str]:
    """All strings in ironlaw's code and data from which a diagnosis is written."""
    texts: set[str] = set()
    for room in ROOMS:
        for path in sorted((HERE.parent / room).rglob("*.py")):
            tree = ast.walk(ast.parse(read_shipped(path)))
            for node in tree:
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.add(node.value)
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    texts.add(node.target.id)  # a field of a record is a key of its JSON
    for path in sorted(DATA.glob("*.toml")):
        if path.name != PUBLIC:
            texts |= {text for _, text in _strings(shipped(path.name), "")}
    return frozenset(texts)
