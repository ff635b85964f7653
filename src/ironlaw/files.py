"""Read and write a user's files: the only place that opens one.

A file that a user names may be anything: a folder, a device without an end, a pipe that nobody writes to, gigabytes, or bytes that are no
text. Every reader goes through ``read_bytes`` or ``open_file``, and every writer through ``write_file``; each fault is an InputError of
one line that names the file. A test finds any other call that opens a file.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from ironlaw.errors import InputError, quote

CHUNK = 1 << 18
LARGEST_TEXT = 1_000_000  # bytes of a file that people write
REPORT_BLOCK = "ironlaw-answer"  # the part of a report that holds its answer
MOST_CELLS = 2_000_000  # of a table, a line counting as one more
WRITER = 1.0  # s that a pipe without a writer is waited for
SILENCE = 60.0  # s that a program may write nothing into its pipe
_NO_SUCH_NAME = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
_KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
_UTF16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of PowerShell
_WIDE = re.compile(r"\d{309}|[eE]\+?\d{3}", re.ASCII)  # what a number larger than any float has
_DESCRIPTOR = re.compile(r"/(?:proc/(self|\d+)|dev)/fd/(\d{1,6})", re.ASCII)
STANDARD_INPUT = "-"  # as a name of a file
_kept: list[Any] = []  # the copy of standard input
_piped: dict[tuple[int, int], bytes] = {}  # what unnamed pipes gave: their bytes come once, and a file may be read twice


def is_there(path: Path, follow: bool = True) -> bool:
    """True where a file or folder has this path, or a link that is not followed; InputError where that cannot be seen."""
    try:
        path.stat(follow_symlinks=follow)
    except OSError as error:
        if error.errno in _NO_SUCH_NAME:
            return False
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:  # a null character
        return False
    return True


def is_folder(path: str | Path) -> bool:
    """True where a folder has this path; false also for names that no file can have, where ``Path.is_dir`` raises.

    >>> is_folder("/"), is_folder("9" * 10_000), is_folder("a\\0b")
    (True, False, False)
    """
    return os.path.isdir(path)


def is_file(path: str | Path) -> bool:
    """True where a plain file has this path; false also for names that no file can have."""
    return os.path.isfile(path)


def check_name(path: str | Path) -> None:
    """Refuse a name that no file can have: with a null character, or with half of a surrogate pair."""
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        raise InputError(f"{str(path)!r}: not the name of a file")


# --- reading


def read_shipped(path: Path) -> str:
    """The text of a file that ships with the package."""
    return path.read_text(encoding="utf-8")


def open_file(path: str | Path) -> io.BufferedReader:
    """Open a plain file as a stream of bytes; InputError for anything else. "-" is what ``keep_standard_input`` kept."""
    kept = _kept[0].name if _kept and str(path) == STANDARD_INPUT else path
    return io.BufferedReader(io.FileIO(_open(kept, pipes=False), "rb"), CHUNK)


def keep_standard_input(most: int = 1 << 30) -> None:
    """Copy standard input to a file without a lasting name, so that "-" can be opened like a file, and more than once."""
    if _kept:
        return
    if sys.stdin is None or sys.stdin.closed:
        raise InputError("-: there is no standard input")
    copy = tempfile.NamedTemporaryFile(prefix="ironlaw-")  # noqa: SIM115 - it lasts as long as the process, which deletes it
    size = 0
    while block := sys.stdin.buffer.read(CHUNK):
        size += len(block)
        if size > most:
            raise InputError(f"-: more than {most} bytes on standard input; save it to a file")
        copy.write(block)
    copy.flush()
    _kept.append(copy)


def _open(path: str | Path, pipes: bool) -> int:
    """Open a plain file, or a pipe where ``pipes`` allows it; InputError for anything else.

    The check follows the opening, so that the file cannot be swapped in between. The file is opened without blocking: a FIFO without a
    writer would never open.
    """
    flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_BINARY", "O_CLOEXEC", "O_NOCTTY"))
    try:
        number = os.open(path, flags)
    except ValueError as error:  # a NUL in the name
        raise InputError(f"{str(path)!r}: not the name of a file: {error}") from None
    except OSError as error:
        if is_folder(path):
            raise InputError(f"{path}: a folder, not a file") from None
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    mode = os.fstat(number).st_mode
    if stat.S_ISREG(mode) or (pipes and stat.S_ISFIFO(mode)):
        return number
    os.close(number)
    advice = "" if stat.S_ISDIR(mode) else "; save its output to a file"
    raise InputError(f"{path}: {_kind_of(mode)}, not a file{advice}")


def read_bytes(path: str | Path, kind: str, limit: int = LARGEST_TEXT, pipes: bool = True) -> bytes:
    """The bytes of a file or pipe; InputError where it cannot be read, or has more than ``limit`` bytes. ``kind`` names it in errors.

    An unnamed pipe, such as ``<(...)``, gives its bytes once, so they are remembered: a file may be read twice.
    """
    number = _open(path, pipes)
    try:
        status = os.fstat(number)
        name = status.st_dev, status.st_ino
        if stat.S_ISREG(status.st_mode):
            if status.st_size > limit:
                raise _too_large(path, f"{status.st_size:,} bytes", kind, limit)
            content = b"".join(_parts(number, status.st_size, limit))
        elif name in _piped:
            return _piped[name]
        else:
            content = b"".join(_parts_of_pipe(path, number, limit))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    finally:
        os.close(number)
    if len(content) > limit:
        raise _too_large(path, f"more than {limit:,} bytes", kind, limit)
    if stat.S_ISFIFO(status.st_mode) and not os.path.lexists(os.path.realpath(path)):
        _piped[name] = content
    return content


def _parts(number: int, size: int, limit: int) -> Iterator[bytes]:
    """The bytes of an open plain file, a few more than ``limit`` at most: it may grow, or state no size."""
    left = limit + 1
    while left > 0 and (part := os.read(number, min(max(size, CHUNK) + 1, left))):
        yield part
        left -= len(part)


def _parts_of_pipe(path: str | Path, number: int, limit: int) -> Iterator[bytes]:
    """All that is written into a pipe; InputError where nobody writes."""
    left, last, begun = limit + 1, time.monotonic(), False
    while left > 0:
        try:
            part = os.read(number, min(CHUNK, left))
            written = True
        except BlockingIOError:  # there is a writer that has not written yet
            part, written = b"", False
        waited = time.monotonic() - last
        if part:
            yield part
            left, last, begun = left - len(part), time.monotonic(), True
        elif written and begun:
            return  # the last writer has closed it
        elif written and waited > WRITER:
            raise InputError(f"{path}: a FIFO to which no program writes; save its output to a file")
        elif waited > SILENCE:
            raise InputError(f"{path}: a FIFO into which nothing was written for {SILENCE:g} s; save its output to a file")
        else:
            time.sleep(0.01)


def _too_large(path: str | Path, size: str, kind: str, limit: int) -> InputError:
    return InputError(f"{path}: {size} is too large for {kind} (limit {limit:,})")


def _kind_of(mode: int) -> str:
    """What a file is that is no plain file."""
    return next((name for test, name in _KINDS if test(mode)), "a device")


def read_text(path: str | Path, kind: str, limit: int = LARGEST_TEXT, pipes: bool = True) -> str:
    """The text of a file in UTF-8, with or without a byte order mark; InputError as of ``read_bytes``, and for other encodings."""
    content = read_bytes(path, kind, limit, pipes)
    if content.startswith(_UTF16):
        raise InputError(f"{path}: text in UTF-16, the encoding of > in PowerShell: save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: cannot be read as text: byte {error.start} is not UTF-8: save it as UTF-8") from None


def read_toml(path: str | Path, kind: str, limit: int = LARGEST_TEXT, pipes: bool = True) -> dict[str, Any]:
    """The table of a TOML file; InputError where it cannot be read or is not TOML."""
    return parse_toml(read_text(path, kind, limit, pipes), str(path))


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The table of a TOML text; InputError names ``where`` it stands."""
    import tomli

    try:
        return tomli.loads(text)
    except RecursionError:
        raise InputError(f"{where}: not valid TOML: nested too deep") from None
    except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
        raise InputError(f"{where}: not valid TOML: {_first_line(error)}") from None


def parse_json(text: str | bytes) -> Any:
    """The values of a text in JSON; ValueError where it is not JSON, or where a number is larger than any float.

    >>> parse_json("[1e400]")
    Traceback (most recent call last):
    ValueError: 1e400 is larger than any float
    """
    import json

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not a number in JSON")

    def bounded(read: Callable[[str], Any]) -> Callable[[str], Any]:
        def number(word: str) -> Any:
            if not isfinite(float(word)):
                raise ValueError(f"{word if len(word) < 20 else f'a number of {len(word)} digits'} is larger than any float")
            return read(word)

        return number

    text = text if isinstance(text, str) else text.decode(json.detect_encoding(text))
    if _WIDE.search(text):
        return json.loads(text, parse_constant=refuse, parse_int=bounded(int), parse_float=bounded(float))
    return json.loads(text, parse_constant=refuse)


def read_json(path: str | Path, kind: str, limit: int, deepest: int = 64) -> Any:
    """The values of a JSON file of at most ``limit`` bytes and ``deepest`` levels; InputError where it cannot be read or is not JSON."""
    return _tree_of(read_text(path, kind, limit), path, kind, deepest)


def read_saved(path: str | Path, limit: int) -> Any:
    """The values of an answer in a file: of ``--json``, or within the report that ``--html`` wrote."""
    text = read_text(path, "an answer", limit)
    if text.lstrip()[:1] != "<":
        return _tree_of(text, path, "an answer", 64)
    _, found, rest = text.partition(f'id="{REPORT_BLOCK}">')
    inside, ends, _ = rest.partition("</script>")
    if not found or not ends:
        raise InputError(f"{path}: no report of ironlaw: give a file from --json or --html")
    tree = _tree_of(inside, path, "an answer", 64)
    if not isinstance(tree, dict) or "answer" not in tree:
        raise InputError(f"{path}: the report holds no answer: give a file from --json or --html")
    return tree["answer"]


def _tree_of(text: str, path: str | Path, kind: str, deepest: int) -> Any:
    """The values of a text of JSON."""
    try:
        tree = parse_json(text)
    except RecursionError:
        raise InputError(f"{path}: nested deeper than {deepest} levels, not {kind}") from None
    except ValueError as error:  # not JSON, or a number of thousands of digits
        raise InputError(f"{path}: not JSON: {_first_line(error)}") from None
    level = [tree]
    for _ in range(deepest):
        level = [item for node in level for item in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())]
        if not level:
            return tree
    raise InputError(f"{path}: nested deeper than {deepest} levels, not {kind}")


def read_csv(path: str | Path, kind: str, limit: int = LARGEST_TEXT, strict: bool = False) -> list[tuple[int, list[str]]]:
    """(line number, cells) of the lines of a CSV file that are not empty; InputError where it cannot be read or has too many cells.

    ``strict`` refuses a quote that is not closed, or that stands inside a cell.
    """
    import csv

    reader = csv.reader(io.StringIO(read_text(path, kind, limit), newline=""), strict=strict)
    lines: list[tuple[int, list[str]]] = []
    count = 0
    try:
        for cells in reader:
            count += len(cells) + 1
            if count > MOST_CELLS:
                raise InputError(f"{path}: more than {MOST_CELLS:,} cells is too large for {kind}")
            if cells:
                lines.append((reader.line_num, cells))
    except csv.Error as error:
        hint = " (a quote that is not closed?)" if strict else ""
        raise InputError(f"{path}: cannot be read as CSV: line {reader.line_num}: {error}{hint}") from None
    return lines


def with_headers(headers: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """The cells of a line by header, without blanks around them; missing cells are empty, and surplus ones are joined under ``""``."""
    named = {header: cell.strip() for header, cell in zip(headers, [*cells, *[""] * (len(headers) - len(cells))], strict=False)}
    if len(cells) > len(headers):
        named[""] = ",".join(cells[len(headers) :]).strip()
    return named


def _first_line(error: Exception) -> str:
    """The message of a library, which may quote a whole file, as a part of one line."""
    return str(error).partition("\n")[0][:200]


# --- writing


def check_output(path: str, option: str) -> None:
    """Refuse a name that ``write_file`` could not write to, before the work whose answer goes there."""
    _target_of(path, option)


def write_file(path: str | Path, content: bytes, option: str = "") -> None:
    """Write a file, whole or not at all; InputError where it cannot be written.

    A link is followed, and the file behind it replaced in one step, so that a reader never sees half of it. What is no plain file, such as
    a pipe, a terminal or /dev/stdout, is written into and never replaced.
    """
    target = _target_of(str(path), option)
    try:
        if isinstance(target, int):
            _write_into(os.dup(target), content)
        elif target.exists() and not target.is_file():
            _write_into(os.open(target, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)), content)
        else:
            _replace(target, content)
    except OSError as error:
        why = "no program reads from it" if error.errno == errno.ENXIO else error.strerror or error
        raise InputError(f"{path}: cannot be written: {why}") from None


FOLDER_MARK = ".ironlaw-written"  # a file in folders that may be written anew


def check_folder(path: str | Path) -> None:
    """Refuse a folder that ``write_folder`` could not write: one that holds files of others, or something else."""
    target = Path(path)
    check_name(path)
    if not target.parent.is_dir():
        raise InputError(f"{path}: cannot be written: no such folder to write to")
    if os.path.lexists(target) and not target.is_dir():
        raise InputError(f"{path}: a file, not a folder")
    if target.is_dir() and any(target.iterdir()) and not is_file(target / FOLDER_MARK):
        raise InputError(f"{path}: holds files that ironlaw did not write: name a new or an empty folder")


def write_folder(path: str | Path, content: Iterable[tuple[str, bytes]]) -> int:
    """Write a folder of files, whole or not at all; the number of files. A folder that this wrote before is replaced."""
    import shutil
    import tempfile

    check_folder(path)
    target, count = Path(os.path.realpath(path)), 0
    beside = Path(tempfile.mkdtemp(prefix=".ironlaw-", dir=target.parent))
    try:
        made = beside / "new"
        made.mkdir()
        for name, data in content:
            where = made / name
            where.parent.mkdir(parents=True, exist_ok=True)
            where.write_bytes(data)
            count += 1
        (made / FOLDER_MARK).write_bytes(b"")
        check_folder(path)  # it may have been filled meanwhile
        if target.exists():
            target.rename(beside / "old")
        made.rename(target)
    except OSError as error:
        if not target.exists() and (beside / "old").exists():
            (beside / "old").rename(target)
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return count


def make_private(path: Path) -> None:
    """Make an empty file that the user alone may read; nothing where the file exists."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _target_of(path: str, option: str) -> Path | int:
    """Where the bytes for a name go: a path without links, or the number of an open file, as for /dev/stdout."""
    named = f"{option} {path}" if option else path
    if not path:
        raise InputError(f"{option or 'output'}: the name of the file is empty")
    check_name(path)
    if (number := _descriptor(path)) is not None:
        return number
    try:
        target = Path(os.path.realpath(path, strict=os.path.lexists(path) and os.path.exists(path)))
        mode = target.stat().st_mode if target.exists() else None
    except OSError as error:
        raise InputError(f"{named}: cannot be written: {error.strerror}") from None
    if mode is None:
        if path.endswith(("/", os.sep)):
            raise InputError(f"{named}: cannot be written: a folder, not a file")
        if os.path.islink(target):
            raise InputError(f"{named}: cannot be written: a link to itself")
        if not target.parent.is_dir():
            raise InputError(f"{named}: cannot be written: no such folder to write to")
    elif stat.S_ISDIR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise InputError(f"{named}: cannot be written: {'a disk' if stat.S_ISBLK(mode) else _kind_of(mode)}, not a file")
    elif not os.access(target, os.W_OK):
        raise InputError(f"{named}: cannot be written: {os.strerror(errno.EACCES)}")
    return target


def _descriptor(path: str) -> int | None:
    """The number of the open file that a name such as /dev/stdout or /dev/fd/63 stands for; None for other names."""
    for _ in range(8):
        found = _DESCRIPTOR.fullmatch(path)
        if found and found[1] in (None, "self", str(os.getpid())):
            return int(found[2])
        if not os.path.islink(path):
            return None
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return None


def _write_into(number: int, content: bytes) -> None:
    """Write all bytes into an open file, behind what this process has printed, and close it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # no stream, or a closed one
            stream.flush()
    with open(number, "wb", buffering=0) as file:
        os.set_blocking(number, True)
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) :]


def _replace(target: Path, content: bytes) -> None:
    """Put a new file in the place of a path in one step; it has the permissions of the one before it."""
    import tempfile

    number, beside = tempfile.mkstemp(prefix=".ironlaw-", dir=target.parent)
    try:
        with open(number, "wb") as file:
            file.write(content)
        if target.exists():
            mode = stat.S_IMODE(target.stat().st_mode)
        else:
            mask = os.umask(0)
            os.umask(mask)
            mode = 0o666 & ~mask
        os.chmod(beside, mode)
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def check_shape(data: Any, shape: Any, where: str, at: str = "", hint: str = "") -> Any:
    """The value ``at`` a place of a JSON file as a msgspec struct or another type; InputError names the part of another type.

    >>> check_shape({"a": 1}, dict[str, int], "x.json")
    {'a': 1}
    """
    import msgspec

    try:
        return msgspec.convert(data, shape)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {_wrong_shape(data, str(error), at)}{hint}") from None


def _wrong_shape(data: Any, error: str, start: str) -> str:
    """What is wrong with the shape of some data, by msgspec's words: ``Expected `int`, got `str` - at `$.files[0].rank` ``."""
    said, _, path = error.partition(" - at `$")
    steps = re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", path.rstrip("`"))
    place = (start + "".join(f".{name}" if name else f"[{index}]" for name, index in steps)).removeprefix(".")
    if missing := re.fullmatch(r"Object missing required field `(.+)`", said):
        return f"{place}.{missing[1]}".removeprefix(".") + " is missing"
    value = data
    for name, index in steps:
        value = value[name] if name else value[int(index)]
    if said.startswith("Expected `array` of length"):
        return f"{place} is empty"
    expected = re.match(r"Expected `(\w+)", said)
    what = _WORDS.get(expected[1], expected[1]) if expected else said
    bound = re.search(r"([<>]=?) ([-+.e\d]+)$", said)
    return f"{place or 'it'} is {quote(value)}, not {what}{f' {bound[1]} {bound[2]}' if bound else ''}"


_WORDS = {"str": "text", "array": "a list", "object": "a table", "int": "a whole number", "float": "a number", "bool": "true or false"}
