"""How far long work is: loops say what they count, and whoever waits shows it. Nothing is said where nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

Item = TypeVar("Item")


class Progress(NamedTuple):
    """What is counted, how many are done, of how many (None: not known before), and the best so far in words."""

    what: str
    done: int
    of: int | None = None
    best: str = ""

    def __str__(self) -> str:
        """The line that is shown.

        >>> str(Progress("meshes", 1824, 14138, "7.41 s")), str(Progress("numbers of GPUs", 3))
        ('1,824 of 14,138 meshes, best so far 7.41 s', '3 numbers of GPUs')
        """
        count = f"{self.done:,}" if self.of is None else f"{self.done:,} of {self.of:,}"
        return f"{count} {self.what}" + (f", best so far {self.best}" if self.best else "")


Watch = Callable[[Progress | None], None]  # None: what was counted is over
_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Call ``watch`` with the progress of the work within, and with None where a count is over."""
    before = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(before)


class Count:
    """A count that is shown: ``tell`` says how far it is."""

    def __init__(self, watch: Watch | None, what: str, of: int | None) -> None:
        self.watch, self.what, self.of, self.done = watch, what, of, 0

    def tell(self, done: int, best: str = "", of: int | None = None) -> None:
        """So many are done; ``of``: of how many, where that is known only now."""
        self.done, self.of = done, of or self.of
        if self.watch is not None:
            self.watch(Progress(self.what, done, self.of, best))


@contextmanager
def counted(what: str, of: int | None = None) -> Iterator[Count]:
    """Count something. Counts within this one are not shown: of nested loops the outermost says more."""
    watch = _WATCH.get()
    inner = _WATCH.set(None)
    try:
        yield Count(watch, what, of)
    finally:
        _WATCH.reset(inner)
        if watch is not None:
            watch(None)


def steps(items: Iterable[Item], what: str, best: Callable[[], str] = str) -> Iterator[Item]:
    """The items, each counted when the loop is done with it; ``best`` gives the best so far in words.

    >>> with watched(print):
    ...     squares = [x * x for x in steps([1, 2], "numbers")]
    0 of 2 numbers
    1 of 2 numbers
    2 of 2 numbers
    None
    """
    listed: Any = items if isinstance(items, Sized) else list(items)
    with counted(what, len(listed)) as count:
        count.tell(0)
        for at, item in enumerate(listed):
            yield item
            count.tell(at + 1, best())
