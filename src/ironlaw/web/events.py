"""A stream of events: how far a worker is with a question, then its answer. A client that goes stops the worker.

The worker is another process, so it writes how far it is into a file, which is replaced in one step and read five times a second.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_process
from anyio import CapacityLimiter

from ironlaw.errors import InputError
from ironlaw.files import read_bytes, write_file
from ironlaw.progress import Progress, watched
from ironlaw.web import work
from ironlaw.web.work import Reply

OFTEN = 0.2  # s between two looks at the file
HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]


class Notes:
    """How far a worker is, in a file."""

    def __init__(self, path: str) -> None:
        self.path, self.last = path, 0.0

    def note(self, progress: Progress | None) -> None:
        """Write how far the work is, at most as often as it is read."""
        now = time.monotonic()
        if progress is not None and now - self.last >= OFTEN / 2.0:
            self.last = now
            share = progress.done / progress.of if progress.of else None
            write_file(self.path, json.dumps({"text": str(progress), "share": share}).encode())


def told(path: str, verb: str, given: dict[str, str]) -> Reply:
    """Answer in a worker, and write into the file how far it is."""
    with watched(Notes(path).note):
        return work.reply(verb, given)


class EventStream:
    """The response: events ``progress`` and one event ``answer``, as ``text/event-stream``."""

    def __init__(
        self,
        function: Callable[..., Reply],
        arguments: tuple[Any, ...],
        limiter: CapacityLimiter,
        seconds: float,
        keep: Callable[[Reply], None] = lambda _: None,
    ) -> None:
        """``keep`` gets the answer, for whoever asks the same next."""
        self.function, self.arguments, self.limiter, self.seconds, self.keep = function, arguments, limiter, seconds, keep

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request of the ASGI protocol."""
        del scope
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        with tempfile.TemporaryDirectory(prefix="ironlaw-progress-") as folder:
            path = Path(folder) / "progress"
            gone = False
            async with anyio.create_task_group() as group:

                async def watch_client() -> None:
                    nonlocal gone
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    gone = True
                    group.cancel_scope.cancel()

                async def tell() -> None:
                    last = b""
                    while True:
                        await anyio.sleep(OFTEN)
                        if (note := _noted(path)) and note != last:
                            await send(_event("progress", note.decode()))
                            last = note

                group.start_soon(watch_client)
                group.start_soon(tell)
                found = await self._answer(str(path))
                self.keep(found)
                group.cancel_scope.cancel()
            if not gone:
                title = f"{found.title}, ironlaw"
                await send(_event("answer", json.dumps({"status": found.status, "title": title, "html": found.html})))
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _answer(self, path: str) -> Reply:
        """The answer of a worker; why there is none where it takes too long."""
        with anyio.move_on_after(self.seconds):
            return await anyio.to_process.run_sync(self.function, path, *self.arguments, cancellable=True, limiter=self.limiter)
        return work.too_long(self.seconds)


class Fixed(EventStream):
    """A stream whose answer is there already."""

    def __init__(self, status: int, title: str, html: str) -> None:
        self.found, self.keep = Reply(status, "", title, html), lambda _: None

    async def _answer(self, path: str) -> Reply:
        del path
        return self.found


def _noted(path: Path) -> bytes:
    """What the worker has written last; nothing before it has."""
    try:
        return read_bytes(path, "progress")
    except InputError:
        return b""


def _event(name: str, data: str) -> dict[str, Any]:
    """One event of the stream; JSON has no line break."""
    return {"type": "http.response.body", "body": f"event: {name}\ndata: {data}\n\n".encode(), "more_body": True}
