"""The events of a Chrome trace, a few megabytes at a time, whatever the size of the file.

The file is one object with a ``traceEvents`` array among other keys, or that array alone. A piece of the array ends where it parses: text
``P`` such that ``[P]`` is valid JSON holds whole elements only, so cutting at ``},{`` and letting the parser decide is exact, and a cut
inside a string or a nested array is found out and undone. What stands before and after the array is parsed as the header.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ironlaw.errors import InputError

LARGEST_EVENT = 64 << 20  # [B] of text without one whole event in it
_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_CUT = re.compile(rb"\}\s*,\s*(?=\{)")
_NO_NUMBER = re.compile(rb":\s*-?(?:nan|inf|NaN|Infinity)(?=\s*[,}\]])")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


class Event(msgspec.Struct, gc=False):
    """One element of ``traceEvents``; numbers of time stay text until they are made integers."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    args: msgspec.Raw = msgspec.Raw(b"")


_EVENTS = msgspec.json.Decoder(list[Event])
_ANY = msgspec.json.Decoder()


class EventStream:
    """Iterates over lists of events; ``header`` is whole once the iteration has ended."""

    def __init__(self, path: str, blocks: Iterator[bytes]) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self._blocks = blocks
        self._before = b""

    def __iter__(self) -> Iterator[list[Event]]:
        rest = self._to_first_event()
        for block in self._blocks:
            rest += block
            cut = _last_cut(rest)
            if cut is None:
                if len(rest) > LARGEST_EVENT:
                    raise InputError(f"{self.path}: no whole event in {len(rest) >> 20} MiB; is it a Chrome trace?")
                continue
            try:
                events = _EVENTS.decode(b"[" + rest[: cut[0]] + b"]")
            except msgspec.MsgspecError:
                events, rest, ended = self._by_depth(rest)
                if events:
                    yield events
                if ended:
                    self._finish(rest + b"".join(self._blocks_left()))
                    return
                continue
            yield events
            rest = rest[cut[1] :]
        events, tail, ended = self._by_depth(rest)
        if events:
            yield events
        if not ended and (self._before or tail.strip()):  # an array alone may lack its end, as its format allows
            raise InputError(f"{self.path}: the file ends inside its events: it is cut short; profile again or copy it whole")
        self._finish(tail)

    def _to_first_event(self) -> bytes:
        """Read up to the array; what stands before it is kept for the header."""
        text = b""
        for block in self._blocks:
            text += block
            stripped = text.lstrip()
            if stripped.startswith(b"["):
                return stripped[1:]
            found = _KEY.search(text)
            if found:
                self._before = text[: found.end()]
                return text[found.end() :]
            if stripped and not stripped.startswith(b"{"):
                break
            if len(text) > LARGEST_EVENT:
                break
        raise InputError(f"{self.path}: no traceEvents in it; ironlaw reads Chrome traces as torch.profiler exports them")

    def _by_depth(self, text: bytes) -> tuple[list[Event], bytes, bool]:
        """The whole events at the front of ``text``, found by counting brackets; the rest; and whether the array ended."""
        depth, whole, end = 0, 0, -1
        for token in _TOKEN.finditer(text):
            mark = text[token.start()]
            if mark in b"[{":
                depth += 1
            elif mark in b"]}":
                depth -= 1
                if depth < 0:
                    end = token.start()
                    break
                if depth == 0:
                    whole = token.end()
        if end < 0 and len(text) - whole > LARGEST_EVENT:
            raise InputError(f"{self.path}: one event is larger than {LARGEST_EVENT >> 20} MiB; is it a Chrome trace?")
        body = text[: end if end >= 0 else whole].strip().rstrip(b",")
        events = self._parsed(body) if body else []
        if end >= 0:
            return events, text[end:], True
        return events, text[whole:].lstrip().removeprefix(b","), False

    def _parsed(self, body: bytes) -> list[Event]:
        text = b"[" + body + b"]"
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return _EVENTS.decode(text)
        # profilers write names that are not UTF-8 and rates that are inf or nan; a field of another type costs its event alone
        text = text.decode("utf-8", "replace").encode()
        text = _NO_NUMBER.sub(b": null", text)
        try:
            items: list[Any] = _ANY.decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InputError(f"{self.path}: its events are not JSON: {error}") from None
        return [event for item in items if (event := _tolerant(item)) is not None]

    def _blocks_left(self) -> Iterator[bytes]:
        size = 0
        for block in self._blocks:
            size += len(block)
            if size > LARGEST_EVENT:
                raise InputError(f"{self.path}: more than {LARGEST_EVENT >> 20} MiB follow its events")
            yield block

    def _finish(self, tail: bytes) -> None:
        """Parse what stands around the array as the header."""
        if not self._before:
            return
        try:
            header = _ANY.decode(self._before + tail)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InputError(f"{self.path}: what stands around its events is not JSON ({error}): it is cut short or damaged") from None
        if isinstance(header, dict):
            header.pop("traceEvents", None)
            self.header = header


def _last_cut(text: bytes) -> tuple[int, int] | None:
    """Where the last whole event probably ends and the next begins; looked for from the end, a few kilobytes at a time."""
    reach = 4096
    while True:
        start = max(0, len(text) - reach)
        found = None
        for found in _CUT.finditer(text, start):  # noqa: B007 - the last one is wanted
            pass
        if found is not None:
            return found.start() + 1, found.end()
        if start == 0:
            return None
        reach *= 16


def _tolerant(item: Any) -> Event | None:
    """An event whose fields have unexpected types: what is usable of it, or nothing."""
    if not isinstance(item, dict):
        return None

    def raw(key: str) -> msgspec.Raw:
        value = item.get(key)
        return msgspec.Raw(b"") if value is None else msgspec.Raw(msgspec.json.encode(value))

    pid, tid = item.get("pid"), item.get("tid")
    return Event(
        ph=str(item.get("ph", "")),
        cat=None if item.get("cat") is None else str(item["cat"]),
        name=str(item.get("name", "")),
        pid=pid if isinstance(pid, (int, str)) else None,
        tid=tid if isinstance(tid, (int, str)) else None,
        ts=raw("ts"),
        dur=raw("dur"),
        args=raw("args"),
    )
