"""Read pickles of plain data without executing anything.

A pickle is a program, and the standard library runs it: it looks up names and calls them. This reader, written by hand for that reason, has
only a stack for lists, dicts with text keys, tuples, text and numbers. An operation that would import, call or restore an object is refused
by name, as is every operation that plain data never needs. Each step is charged for its memory, so a small file cannot become a large
object. Only text is hashed or compared.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from ironlaw.errors import InputError
from ironlaw.measure.read.limits import Deadline, printable

PICKLE = 1 << 30  # bytes of a pickle; a snapshot of a million allocations with stacks is a tenth of it
OBJECTS = 6 << 30  # bytes of all objects
STEPS = 200_000_000
TEXT = 1 << 20  # bytes of one text
INTEGER = 16  # bytes of one integer: an address has 8
MEMO = 20_000_000  # objects in the memo
DEPTH = 1000  # nested containers
CHECK = 1 << 16  # steps between two checks of time and memory

_RUNS = ("GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID")
_NAMES = {ord(op.code): op.name for op in pickletools.opcodes}
_HEADS = frozenset(range(2, 6))  # protocols that begin with their number

Handler = Callable[[], None]


def load_plain(stream: BinaryIO, path: str | Path, seconds: float = 600.0) -> Any:
    """Load lists, dicts, texts and numbers from the pickle in ``stream``; anything else is an InputError."""
    data = stream.read(PICKLE + 1)
    if len(data) > PICKLE:
        raise InputError(f"{path}: a pickle of more than {PICKLE} bytes; record fewer entries (max_entries) and dump again")
    return _Machine(data, path, Deadline(path, seconds)).run()


def is_pickle(head: bytes) -> bool:
    """Whether a file with this beginning is a pickle of protocol 2 to 5, or an older one of a dict."""
    return (len(head) > 1 and head[0] == 0x80 and head[1] in _HEADS) or head[:2] in (b"(d", b"}q")


class _Ended(Exception):  # noqa: N818
    """Raised at the STOP of a pickle."""


class _Machine:
    """The stack, its marks and the memo; one method for each operation."""

    def __init__(self, data: bytes, path: str | Path, deadline: Deadline) -> None:
        self.data, self.path, self.deadline = data, path, deadline
        self.at = 0  # the next byte
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.charged = 0
        self.handlers: dict[int, Handler] = {ord(code): getattr(self, name) for code, name in _OPERATIONS.items()}

    def run(self) -> Any:
        """Run the pickle and return the object left on the stack."""
        data, handlers = self.data, self.handlers
        try:
            for _ in range(STEPS // CHECK):
                self._look()
                for _ in range(CHECK):
                    code = data[self.at]
                    self.at += 1
                    handlers[code]()
        except _Ended:
            return self._result()
        except KeyError:
            raise self._refused(data[self.at - 1]) from None
        except (IndexError, struct.error):
            raise self._broken("it stops early, or takes from an empty stack: truncated or not a pickle") from None
        except (ValueError, AttributeError, TypeError) as error:  # wrong digits; an operation of a list on a dict
            raise self._broken(f"not well formed ({type(error).__name__})") from None
        raise InputError(f"{self.path}: a pickle of more than {STEPS} steps; record fewer entries (max_entries) and dump again")

    def _look(self) -> None:
        self.deadline.check()
        if self.charged > OBJECTS or len(self.memo) > MEMO:
            raise InputError(f"{self.path}: the pickle unpacks to more than {OBJECTS >> 30} GiB of objects: refused at byte {self.at}")

    def _result(self) -> Any:
        if len(self.stack) != 1 or self.marks:
            raise self._broken("objects are left over at its end")
        return self.stack[0]

    def _broken(self, what: str) -> InputError:
        return InputError(f"{self.path}: the pickle cannot be read at byte {min(self.at, len(self.data))}: {what}")

    def _refused(self, code: int) -> InputError:
        name, at = _NAMES.get(code), self.at - 1
        if name is None:
            return self._broken(f"{code:#04x} is not an operation of a pickle")
        if name in _RUNS:
            callee = self._callee(name)
            return InputError(
                f"{self.path}: the pickle would import, call or restore an object ({name}{callee} at byte {at}): refused, nothing was run; "
                "a memory snapshot has lists, dicts, text and numbers only"
            )
        return InputError(f"{self.path}: {name} at byte {at} of the pickle, which a memory snapshot never has: refused")

    def _callee(self, name: str) -> str:
        """The name that would have been called, for the message."""
        if name in ("GLOBAL", "INST"):
            words = self.data[self.at : self.at + 200].split(b"\n")[:2]
        elif name == "STACK_GLOBAL":
            words = [str(word).encode("utf-8", "replace")[:80] for word in self.stack[-2:] if isinstance(word, str)]
        else:
            return ""
        text = ".".join(word.decode("ascii", "replace") for word in words)
        return " " + printable(text, 80)

    # reading operands

    def _byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def _number(self, size: int, signed: bool = False) -> int:
        start = self.at
        self.at += size
        if self.at > len(self.data):
            raise IndexError
        return int.from_bytes(self.data[start : self.at], "little", signed=signed)

    def _line(self) -> str:
        end = self.data.index(b"\n", self.at, self.at + 64)  # ValueError where there is none
        text = self.data[self.at : end].decode("ascii")
        self.at = end + 1
        return text

    def _text(self, size: int) -> None:
        if size > TEXT:
            raise InputError(f"{self.path}: a text of {size} bytes at byte {self.at} of the pickle; at most {TEXT} are read")
        start = self.at
        self.at += size
        if self.at > len(self.data):
            raise IndexError
        self.charged += 56 + size
        self.stack.append(self.data[start : self.at].decode("utf-8", "replace"))

    def _push(self, value: Any, charge: int) -> None:
        """Push a value, and count its ``charge`` [B] towards the limit of the unpacked objects."""
        self.charged += charge
        self.stack.append(value)

    def _pop_to_mark(self) -> list[Any]:
        """Pop the objects above the last mark."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def _top(self) -> Any:
        """The top object, which must be above the last mark."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise IndexError
        return self.stack[-1]

    def _pop(self) -> Any:
        self._top()
        return self.stack.pop()

    def _put(self, index: int) -> None:
        self.memo[index] = self._top()
        self.charged += 100

    def _get(self, index: int) -> None:
        if index not in self.memo:
            raise self._broken(f"it uses object {index} before it is defined")
        self._push(self.memo[index], charge=8)

    def _fill(self, target: Any, items: list[Any]) -> None:
        """Set keys and values of a dict."""
        if type(target) is not dict or len(items) % 2:
            raise TypeError
        for key in items[::2]:
            if type(key) is not str:
                raise InputError(f"{self.path}: a key that is not text, before byte {self.at} of the pickle: not a memory snapshot")
        self.charged += 60 * len(items)
        target.update(zip(items[::2], items[1::2], strict=True))

    def _tuple(self, count: int) -> None:
        items = [self._pop() for _ in range(count)]
        self._push(tuple(items[::-1]), charge=56 + 8 * count)

    # the operations

    def proto(self) -> None:
        if (version := self._byte()) > 5:
            raise InputError(f"{self.path}: a pickle of protocol {version}; 0 to 5 are read")

    def frame(self) -> None:
        self._number(8)

    def stop(self) -> None:
        raise _Ended

    def mark(self) -> None:
        if len(self.marks) >= DEPTH:
            raise InputError(f"{self.path}: containers nested {DEPTH} deep at byte {self.at} of the pickle: refused")
        self.marks.append(len(self.stack))

    def pop(self) -> None:
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self._pop()

    def pop_mark(self) -> None:
        self._pop_to_mark()

    def dup(self) -> None:
        self._push(self._top(), charge=8)

    def none(self) -> None:
        self._push(None, charge=8)

    def true(self) -> None:
        self._push(True, charge=8)

    def false(self) -> None:
        self._push(False, charge=8)

    def integer1(self) -> None:
        self._push(self._byte(), charge=8)

    def integer2(self) -> None:
        self._push(self._number(2), charge=36)

    def integer4(self) -> None:
        self._push(self._number(4, signed=True), charge=40)

    def long1(self) -> None:
        self._long(self._byte())

    def long4(self) -> None:
        self._long(self._number(4))

    def _long(self, size: int) -> None:
        if size > INTEGER:
            raise InputError(f"{self.path}: an integer of {size} bytes at byte {self.at} of the pickle; at most {INTEGER} are read")
        self._push(self._number(size, signed=True), charge=44)

    def integer_line(self) -> None:
        text = self._line()
        self._push({"00": False, "01": True}[text] if text in ("00", "01") else int(text), charge=44)

    def long_line(self) -> None:
        self._push(int(self._line().removesuffix("L")), charge=44)

    def float_line(self) -> None:
        self._push(float(self._line()), charge=32)

    def float8(self) -> None:
        self._push(struct.unpack_from(">d", self.data, self.at)[0], charge=32)
        self.at += 8

    def text_line(self) -> None:
        end = self.data.index(b"\n", self.at, self.at + TEXT)
        self.charged += 56 + 4 * (end - self.at)
        self.stack.append(self.data[self.at : end].decode("raw-unicode-escape"))
        self.at = end + 1

    def text1(self) -> None:
        self._text(self._byte())

    def text4(self) -> None:
        self._text(self._number(4))

    def text8(self) -> None:
        self._text(self._number(8))

    def new_list(self) -> None:
        self._push([], charge=72)

    def new_dict(self) -> None:
        self._push({}, charge=80)

    def new_tuple(self) -> None:
        self._push((), charge=8)

    def list_of(self) -> None:
        items = self._pop_to_mark()
        self._push(items, charge=72 + 8 * len(items))

    def dict_of(self) -> None:
        items = self._pop_to_mark()
        result: dict[str, Any] = {}
        self._fill(result, items)
        self._push(result, charge=80)

    def tuple_of(self) -> None:
        items = self._pop_to_mark()
        self._push(tuple(items), charge=56 + 8 * len(items))

    def tuple1(self) -> None:
        self._tuple(1)

    def tuple2(self) -> None:
        self._tuple(2)

    def tuple3(self) -> None:
        self._tuple(3)

    def append(self) -> None:
        item, target = self._pop(), self._top()
        self._extend(target, [item])

    def appends(self) -> None:
        items = self._pop_to_mark()
        self._extend(self._top(), items)

    def _extend(self, target: Any, items: list[Any]) -> None:
        if type(target) is not list:
            raise TypeError
        self.charged += 9 * len(items)
        target.extend(items)

    def set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._fill(self._top(), [key, value])

    def set_items(self) -> None:
        items = self._pop_to_mark()
        self._fill(self._top(), items)

    def put_line(self) -> None:
        self._put(int(self._line()))

    def put1(self) -> None:
        self._put(self._byte())

    def put4(self) -> None:
        self._put(self._number(4))

    def memoize(self) -> None:
        self._put(len(self.memo))

    def get_line(self) -> None:
        self._get(int(self._line()))

    def get1(self) -> None:
        self._get(self._byte())

    def get4(self) -> None:
        self._get(self._number(4))


_OPERATIONS = {
    "\x80": "proto", "\x95": "frame", ".": "stop", "(": "mark", "0": "pop", "1": "pop_mark", "2": "dup",
    "N": "none", "\x88": "true", "\x89": "false", "K": "integer1", "M": "integer2", "J": "integer4",
    "\x8a": "long1", "\x8b": "long4", "I": "integer_line", "L": "long_line", "F": "float_line", "G": "float8",
    "V": "text_line", "\x8c": "text1", "X": "text4", "\x8d": "text8", "]": "new_list", "}": "new_dict", ")": "new_tuple",
    "l": "list_of", "d": "dict_of", "t": "tuple_of", "\x85": "tuple1", "\x86": "tuple2", "\x87": "tuple3",
    "a": "append", "e": "appends", "s": "set_item", "u": "set_items", "p": "put_line", "q": "put1", "r": "put4",
    "\x94": "memoize", "g": "get_line", "h": "get1", "j": "get4",
}  # fmt: skip
