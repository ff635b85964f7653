"""Open untrusted files within limits of size and time.

Traces, logs and snapshots come from other machines. Every file is read here: plain or compressed, recognised by its first bytes,
streamed, with a limit on its unpacked size. Every fault of a file is an InputError of one line. The readers of gzip and zstd are written
by hand, because those of the standard library have no limit on the unpacked size.
"""

from __future__ import annotations

import io
import os
import time
import zlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from ironlaw.errors import InputError
from ironlaw.files import CHUNK, open_file

GIB = 1 << 30
UNPACKED = 16 * GIB  # a trace of 1 GB is large
RATIO = 300  # traces are packed 10 to 30 times, zeros up to 1032 times
RATIO_FROM = 64 << 20  # a small file may have any ratio
PIECE = 1 << 15  # fed at a time: its rest is copied once per member, and a hostile file has a member every 20 bytes

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
BOM, UTF16 = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")  # byte order marks of editors and PowerShell
# formats that are not read; tools write gzip
PACKED = {b"PK\x03\x04": "a zip archive", b"\xfd7zXZ\0": "packed by xz", b"BZh91AY&SY": "packed by bzip2"}


def open_bytes(path: str | Path, most: int = UNPACKED) -> BinaryIO:
    """Open ``path`` as a stream of bytes, unpacked if it is gzip (with any number of members) or zstd.

    ``most`` limits the unpacked bytes. Reading raises InputError if the file is truncated, corrupt or a zip bomb.
    """
    file = open_file(path)
    try:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise InputError(f"{path}: the file is empty; was it still being written?")
        if size > most:
            raise InputError(f"{path}: {size} bytes, and at most {most} are read; cut the file")
        magic = file.peek(4)[:4]
        if magic[:3] == BOM:
            file.read(3)
        if magic[:2] in UTF16:
            raise InputError(f"{path}: text in UTF-16, the encoding of > in PowerShell: save it as UTF-8")
        if magic[:2] == GZIP:
            return io.BufferedReader(_Unpacked(file, path, most, "gzip", _Gzip), CHUNK)
        if magic == ZSTD:
            return io.BufferedReader(_Unpacked(file, path, most, "zstd", _zstd(path)), CHUNK)
        if form := next((form for start, form in PACKED.items() if file.peek(16).startswith(start)), None):
            raise InputError(f"{path}: {form}; unpack it first")
    except BaseException:
        file.close()
        raise
    return file


def blocks(stream: BinaryIO, size: int = 1 << 20) -> Iterator[bytes]:
    """Read the rest of ``stream`` in blocks of ``size`` bytes; the last one may be shorter.

    >>> list(blocks(io.BytesIO(b"abcde"), 2))
    [b'ab', b'cd', b'e']
    """
    while block := stream.read(size):
        yield block


def head(path: str | Path, size: int = 1 << 16) -> bytes:
    """The first ``size`` bytes of ``path``, unpacked."""
    with open_bytes(path) as stream:
        return stream.read(size)


def printable(text: object, most: int | None = 300) -> str:
    """The first ``most`` characters (None: all) of a text, with control characters replaced.

    >>> printable("a\\x1b[31mb")
    'a?[31mb'
    """
    return "".join(c if c.isprintable() else "?" for c in str(text)[:most])


class Deadline:
    """A time limit for one file: ``check`` raises InputError after it."""

    def __init__(self, path: str | Path, seconds: float) -> None:
        self.path, self.seconds, self.end = path, seconds, time.monotonic() + seconds

    @property
    def passed(self) -> bool:
        """Whether the time limit is over."""
        return time.monotonic() > self.end

    def check(self) -> None:
        """Raise InputError if the time limit is over."""
        if self.passed:
            raise InputError(f"{self.path}: not read within {self.seconds:g} s; cut the file to fewer steps")


class _Gzip:
    """One gzip member, at most a given number of bytes at a time."""

    wrong: tuple[type[Exception], ...] = (zlib.error,)

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    def feed(self, data: bytes, most: int) -> tuple[bytes, bytes]:
        """Unpack up to ``most`` bytes of ``data``; return them and the unread rest of ``data``."""
        out = self._inner.decompress(data, most)
        return out, self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail

    @property
    def ended(self) -> bool:
        return self._inner.eof

    @property
    def has_output(self) -> bool:
        """Whether more output may come without input; used only when there is no input left."""
        return False


def _zstd(path: str | Path) -> type[Any]:
    """A class for zstd frames with the interface of ``_Gzip``, from the standard library (3.14) or its backport."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            module = import_module(name)
        except ImportError:
            continue
        return _zstd_of(module)
    raise InputError(f"{path}: this Python cannot unpack zstd; run `zstd -d` on the file, or install backports.zstd")


def _zstd_of(module: Any) -> type[Any]:
    """A class that unpacks one zstd frame with ``module``."""

    class Frame:
        wrong = (module.ZstdError,)

        def __init__(self) -> None:
            self._inner = module.ZstdDecompressor()

        def feed(self, data: bytes, most: int) -> tuple[bytes, bytes]:
            out = self._inner.decompress(data, most)
            return out, self._inner.unused_data if self._inner.eof else b""

        @property
        def ended(self) -> bool:
            return bool(self._inner.eof)

        @property
        def has_output(self) -> bool:
            return not self._inner.needs_input and not self._inner.eof

    return Frame


class _Unpacked(io.RawIOBase):
    """The unpacked bytes of a compressed file, member by member; counts input and output."""

    def __init__(self, file: io.BufferedReader, path: str | Path, most: int, form: str, member: type[Any]) -> None:
        self._file, self._path, self._most, self._form, self._member = file, path, most, form, member
        self._now = member()
        self._left = b""  # read from the file, not yet fed
        self._taken = self._given = 0  # bytes of the file read, bytes unpacked

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, target: Any) -> int:
        """Fill ``target`` with unpacked bytes; 0 at the end of the file."""
        view = memoryview(target).cast("B")
        while True:
            if not self._left and not self._now.has_output and not self._read_more():
                return 0
            out = self._unpack(len(view))
            if out:
                view[: len(out)] = out
                return len(out)

    def _read_more(self) -> bool:
        """Read more input; False at the end of the file, which may come only between members."""
        self._left = self._file.read(PIECE)
        self._taken += len(self._left)
        if self._left:
            return True
        if not self._now.ended:
            raise InputError(
                f"{self._path}: {self._form} data stops at byte {self._taken}, before the end: the file is truncated; copy it again"
            )
        return False

    def _unpack(self, most: int) -> bytes:
        """Unpack up to ``most`` bytes, and begin the next member where one has ended."""
        if self._now.ended:
            self._left = self._left.lstrip(b"\0")  # tapes and some writers pad with zeros
            if not self._left:
                return b""
            self._now = self._member()
        try:
            out, self._left = self._now.feed(self._left, most)
        except self._now.wrong as error:
            where = self._taken - len(self._left)
            raise InputError(f"{self._path}: corrupt {self._form} data after byte {where}: {error}; copy the file again") from error
        self._given += len(out)
        self._count()
        return bytes(out)

    def _count(self) -> None:
        """Refuse a file that unpacks to too many bytes, or to many times its size."""
        if self._given > self._most:
            raise InputError(f"{self._path}: unpacks to more than {self._most} bytes; cut the file")
        read = max(1, self._taken - len(self._left))
        if self._given > RATIO_FROM and self._given > RATIO * read:
            raise InputError(f"{self._path}: {read} bytes unpack to {self._given} and more, over {RATIO} times: refused as a zip bomb")
