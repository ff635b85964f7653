"""Opening untrusted files: every form and every fault, within limits of memory and time."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import textwrap
import types
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironlaw.errors import InputError, IronlawError
from ironlaw.measure.read import limits
from ironlaw.measure.read.limits import Deadline, blocks, head, open_bytes, printable

TEXT = b"".join(b'{"ts": %d, "name": "kernel"}\n' % i for i in range(40_000))


def put(path, data):
    path.write_bytes(data)
    return path


def read(path, **more):
    with open_bytes(path, **more) as stream:
        return b"".join(blocks(stream, 1000))


@pytest.mark.parametrize(
    "packed",
    [
        TEXT,
        gzip.compress(TEXT),
        gzip.compress(TEXT, 0),
        gzip.compress(TEXT[:777]) + gzip.compress(b"") + gzip.compress(TEXT[777:]),  # concatenated members, one empty
        gzip.compress(TEXT) + bytes(1000),  # padded, as tapes do
    ],
    ids=["plain", "gzip", "stored", "members", "padded"],
)
def test_packed_bytes_are_unpacked(tmp_path, packed):
    path = put(tmp_path / "a", packed)
    assert read(path) == TEXT
    with open_bytes(path) as stream:
        assert stream.read() == TEXT
    assert head(path, 50) == TEXT[:50]
    with open_bytes(path) as stream:
        assert stream.readline() == TEXT[: TEXT.index(b"\n") + 1]


def test_a_name_is_a_text_or_a_path(tmp_path):
    assert read(str(put(tmp_path / "a", b"x"))) == b"x"


def test_truncated_gzip_says_where_at_every_length(tmp_path):
    packed = gzip.compress(TEXT[:3000], mtime=0)
    for cut in range(2, len(packed)):
        with pytest.raises(InputError, match=rf"stops at byte {cut}, before the end: the file is truncated"):
            read(put(tmp_path / "a.gz", packed[:cut]))


def test_a_second_member_cut_off_is_truncated_too(tmp_path):
    whole = gzip.compress(TEXT[:3000])
    with pytest.raises(InputError, match="truncated"):
        read(put(tmp_path / "a.gz", whole + whole[:5]))


@pytest.mark.parametrize("at", [3, 12, 60, -8, -1])
def test_corrupt_gzip_names_the_file_and_a_byte(tmp_path, at):
    packed = bytearray(gzip.compress(TEXT, mtime=0))
    packed[at] ^= 0xFF
    path = put(tmp_path / "a.gz", bytes(packed))
    with pytest.raises(InputError, match=r"a\.gz: (corrupt gzip data after byte \d+|gzip data stops at byte \d+)"):
        read(path)


def test_garbage_after_the_last_member_is_corrupt(tmp_path):
    with pytest.raises(InputError, match="corrupt gzip data"):
        read(put(tmp_path / "a.gz", gzip.compress(TEXT) + b"garbage"))


def test_what_is_not_a_file_is_refused_without_waiting(tmp_path, budget):
    with pytest.raises(InputError, match="a folder, not a file"):
        open_bytes(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        open_bytes(tmp_path / "missing")
    with pytest.raises(InputError, match="not the name of a file"):
        open_bytes("a\0b")
    with pytest.raises(InputError, match="the file is empty"):
        open_bytes(put(tmp_path / "empty", b""))
    with pytest.raises(InputError, match="a device, not a file"):
        open_bytes(os.devnull)
    os.mkfifo(tmp_path / "fifo")
    with budget(5):
        with pytest.raises(InputError, match="a FIFO, not a file"):
            open_bytes(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(InputError, match="a folder, not a file"):
        open_bytes(tmp_path / "link")


@pytest.mark.parametrize("packed", [b"PK\x03\x04rest", bz2.compress(TEXT), lzma.compress(TEXT)], ids=["zip", "bzip2", "xz"])
def test_other_packings_say_to_unpack(tmp_path, packed):
    with pytest.raises(InputError, match="unpack it first"):
        open_bytes(put(tmp_path / "a", packed))


def test_a_file_without_permission_gives_a_clear_error(tmp_path):
    path = put(tmp_path / "a", b"x")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root reads everything")
    with pytest.raises(InputError, match="Permission denied"):
        open_bytes(path)


def test_files_are_closed_when_refused(tmp_path):
    folder = "/proc/self/fd"
    if not os.path.isdir(folder):
        pytest.skip("no /proc")
    before = len(os.listdir(folder))
    for data in (b"", limits.ZSTD + b"x", gzip.compress(b"x")[:4]):
        path = put(tmp_path / "a", data)
        with pytest.raises(InputError), open_bytes(path, most=3) as stream:
            stream.read()
    assert len(os.listdir(folder)) == before


def test_the_limit_is_of_unpacked_bytes(tmp_path):
    path = put(tmp_path / "a.gz", gzip.compress(TEXT))
    assert len(read(path, most=len(TEXT))) == len(TEXT)
    with pytest.raises(InputError, match=f"unpacks to more than {len(TEXT) - 1} bytes"):
        read(path, most=len(TEXT) - 1)
    with pytest.raises(InputError, match=f"{len(TEXT)} bytes, and at most 5 are read"):
        read(put(tmp_path / "a", TEXT), most=5)


def test_a_small_file_of_blanks_is_read(tmp_path):
    assert len(read(put(tmp_path / "a.gz", gzip.compress(bytes(8 << 20))))) == 8 << 20


def test_a_zip_bomb_costs_little_memory_and_time(tmp_path, budget):
    """A gigabyte of zeros in a megabyte, read in another process that reports its own peaks."""
    bomb = tmp_path / "bomb.gz"
    packer = zlib.compressobj(9, wbits=31)
    zeros = bytes(1 << 20)
    bomb.write_bytes(b"".join(packer.compress(zeros) for _ in range(1024)) + packer.flush())
    assert bomb.stat().st_size < 2 << 20
    code = f"""
        import resource, tracemalloc
        from ironlaw.errors import InputError
        from ironlaw.measure.read.limits import blocks, open_bytes
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        tracemalloc.start()
        taken = 0
        try:
            with open_bytes({str(bomb)!r}) as stream:
                for block in blocks(stream, 1 << 16):
                    taken += len(block)
        except InputError as error:
            assert "zip bomb" in str(error) and "\\n" not in str(error), error
            print(taken, tracemalloc.get_traced_memory()[1], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    with budget(30):
        run = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=600)
        taken, traced, resident = map(int, run.stdout.split())
        assert taken < 80 << 20
        assert traced < 4 << 20 and resident < 16 << 10  # KiB


def test_a_member_every_twenty_bytes_is_read_in_time(tmp_path, budget):
    path = put(tmp_path / "a.gz", gzip.compress(b"") * 100_000)
    with budget(30):
        assert read(path) == b""


def test_zstd_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    with pytest.raises(InputError, match=r"zstd -d"):
        open_bytes(put(tmp_path / "a.zst", limits.ZSTD + b"rest"))


def test_zstd_where_the_library_has_it(tmp_path):
    for name in ("compression.zstd", "backports.zstd"):
        try:
            module = limits.import_module(name)
            break
        except ImportError:
            continue
    else:
        pytest.skip("no zstd in this Python")
    packed = module.compress(TEXT) + module.compress(TEXT)
    assert read(put(tmp_path / "a.zst", packed)) == TEXT + TEXT
    with pytest.raises(InputError, match="zstd data stops at byte"):
        read(put(tmp_path / "b.zst", packed[:-3]))
    with pytest.raises(InputError, match="corrupt zstd data"):
        read(put(tmp_path / "c.zst", packed[:-40] + b"\xff" * 40))
    with pytest.raises(InputError, match="zip bomb"):
        read(put(tmp_path / "d.zst", module.compress(bytes(200 << 20))))


def test_frames_of_a_library_that_holds_bytes_back_are_emptied(tmp_path, monkeypatch):
    """The face of zstd's decompressor, which keeps what did not fit and gives it when fed nothing."""

    class Decompressor:
        def __init__(self):
            self.inner, self.out, self.eof, self.unused_data = zlib.decompressobj(), b"", False, b""

        @property
        def needs_input(self):
            return not self.out

        def decompress(self, data, max_length):
            self.out += self.inner.decompress(data.removeprefix(limits.ZSTD))
            given, self.out = self.out[:max_length], self.out[max_length:]
            self.eof, self.unused_data = self.inner.eof and not self.out, self.inner.unused_data
            return given

    module = types.SimpleNamespace(ZstdDecompressor=Decompressor, ZstdError=zlib.error)
    monkeypatch.setattr(limits, "import_module", lambda _: module)
    frame = limits.ZSTD + zlib.compress(TEXT)
    assert read(put(tmp_path / "a.zst", frame + frame)) == TEXT + TEXT
    with pytest.raises(InputError, match="truncated"):
        read(put(tmp_path / "b.zst", frame[:-5]))


def test_deadline_and_printable():
    assert not Deadline("x", 100).passed
    late = Deadline("x", -1)
    with pytest.raises(InputError, match="x: not read within -1 s"):
        late.check()
    assert printable("a\x1b[2Jb\nc" + "d" * 400, 10) == "a?[2Jb?cdd"


@given(st.binary(max_size=400))
@settings(max_examples=200)
def test_any_bytes_are_read_or_refused(tmp_path, data):
    for start in (b"", limits.GZIP, limits.GZIP + b"\x08\x00\x00\x00\x00\x00\x00\x03", limits.ZSTD):
        try:
            read(put(tmp_path / "a", start + data))
        except IronlawError as error:
            assert "\n" not in str(error)


@given(st.data())
@settings(max_examples=200)
def test_any_damage_to_gzip_is_an_error_or_harmless(tmp_path, data):
    packed = bytearray(gzip.compress(TEXT[:2000], mtime=0) + gzip.compress(TEXT[:500], mtime=0))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        out = read(put(tmp_path / "a.gz", bytes(packed)))
    except InputError:
        return
    good = io.BytesIO(TEXT[:2000] + TEXT[:500]).read()
    assert out == good or bytes(packed[:2]) != limits.GZIP  # a flag or the time changed, or it is no gzip any more
