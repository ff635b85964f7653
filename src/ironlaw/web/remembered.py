"""Answers that the server gave, so that the same question is not computed twice: for Back, a shared link, and several readers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request

from ironlaw.web import work
from ironlaw.web.work import Reply

MOST = 48 << 20  # characters of all answers: the oldest go first
KEPT = (200, 422)  # statuses of answers that are the same tomorrow
NOT_KEPT = (work.report,)  # what says the day


class Remembered:
    """Answers by their question."""

    def __init__(self, most: int = MOST) -> None:
        self.most, self.size = most, 0
        self.replies: OrderedDict[Any, Reply] = OrderedDict()

    def get(self, key: Any) -> Reply | None:
        """The answer to a question, which is now the newest; None where it was not asked, or is not kept."""
        if key not in self.replies:
            return None
        self.replies.move_to_end(key)
        return self.replies[key]

    def keep(self, key: Any, reply: Reply) -> None:
        """Keep an answer, and forget the oldest where all take too much."""
        if key is None or reply.status not in KEPT or key in self.replies:
            return
        self.replies[key] = reply
        self.size += _size(reply)
        while self.size > self.most:
            self.size -= _size(self.replies.popitem(last=False)[1])


def _size(reply: Reply) -> int:
    return len(reply.data) + len(reply.html)


def key_of(function: Callable[..., Reply], arguments: tuple[Any, ...], models: Mapping[str, bytes]) -> Any:
    """What a question is remembered by; None for one whose answer is not: of dropped files, and with a day in it.

    >>> key_of(work.raw, ("estimate", {"gpus": "8", "model": "gpt-2"}), {})
    ('raw', ('estimate', (('gpus', '8'), ('model', 'gpt-2'))))
    """
    if models or function in NOT_KEPT:
        return None
    return function.__name__, tuple(tuple(sorted(one.items())) if isinstance(one, Mapping) else one for one in arguments)


def remembered(request: Request) -> Remembered:
    """The answers of the server."""
    state = request.app.state
    if not hasattr(state, "remembered"):
        state.remembered = Remembered()
    found: Remembered = state.remembered
    return found
