"""The reader of Nsight Systems exports, on databases made by NVIDIA's documented schema; no published export has a licence."""

from __future__ import annotations

import contextlib
import gzip
import sqlite3
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironlaw.errors import InputError, IronlawError
from ironlaw.measure.events import KERNEL, MEMCPY, MEMSET, NONE
from ironlaw.measure.read import tables
from ironlaw.measure.read.nsys import link, read_nsys, recognise

# columns and types as the schema reference of the exporter has them; what this reader does not touch is shortened
SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER NOT NULL, name TEXT, busLocation TEXT, totalMemory INTEGER, smCount INTEGER,
  memoryBandwidth INTEGER, clockRate INTEGER, chipName TEXT, uuid TEXT);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT, numMultiprocessors INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, gridX INTEGER NOT NULL,
  graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL,
  copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL,
  bytes INTEGER NOT NULL, memKind INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
  correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER,
  color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER,
  jsonTextId INTEGER, jsonText TEXT, binaryData TEXT);
"""
GRAPH = """CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER);"""
PID = 4711 << 24
TID = PID | 4711
BASE = 1 << 60  # ns that no float holds to the unit


class Export:
    """A database and short ways to put rows in it."""

    def __init__(self, path, schema=SCHEMA):
        self.path, self.db, self.ids = path, sqlite3.connect(path), {}
        self.db.executescript(schema)

    def string(self, text):
        if text not in self.ids:
            self.ids[text] = len(self.ids) + 1
            self.insert("StringIds", id=self.ids[text], value=text)
        return self.ids[text]

    def insert(self, table, **row):
        self.db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))

    def kernel(self, name, start, end, correlation, pid=PID, device=0, stream=7, **more):
        ids = dict(demangledName=self.string(name), shortName=self.string(name.split("<")[0]))
        place = dict(deviceId=device, contextId=1, streamId=stream, correlationId=correlation, globalPid=pid, gridX=1)
        self.insert("CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, **place, **{**ids, **more})

    def call(self, name, start, end, correlation, tid=TID):
        row = dict(eventClass=0, globalTid=tid, correlationId=correlation, nameId=self.string(name), returnValue=0)
        self.insert("CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, **row)

    def mark(self, text, start, end, tid=TID, kind=59, **more):
        self.insert("NVTX_EVENTS", start=start, end=end, eventType=kind, text=text, globalTid=tid, **more)

    def done(self):
        self.db.commit()
        self.db.close()
        return self.path


def small(path, schema=SCHEMA):
    """One process, one device: a step with a GEMM, a copy each way, a memset, an all-reduce, and an event without its launch."""
    e = Export(path, schema)
    e.insert("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.17.2")
    e.insert("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700_000_000_123_456_789, utcTime="", localTime="")
    e.insert("TARGET_INFO_GPU", id=3, name="NVIDIA H100 80GB HBM3", totalMemory=85_024_112_640, smCount=132, chipName="GH100")
    e.insert("TARGET_INFO_CUDA_DEVICE", gpuId=3, cudaId=0, pid=4711)
    e.mark("step 1", BASE, BASE + 1000)
    e.mark(None, BASE + 5, BASE + 90, textId=e.string("forward"))
    e.mark("aten::mm, seq = 12, op_id = 7, sizes = [[2, 4], [4, 8]]", BASE + 10, BASE + 40)
    e.mark("a point", BASE + 11, None, kind=34)
    e.call("cudaLaunchKernel_v7000", BASE + 20, BASE + 30, 101)
    e.call("cudaMemcpyAsync_v3020", BASE + 50, BASE + 60, 102)
    e.kernel("ampere_gemm<float>(int)", BASE + 100, BASE + 301, 101)
    place = dict(deviceId=0, contextId=1, streamId=7, globalPid=PID)
    e.insert("CUPTI_ACTIVITY_KIND_MEMCPY", start=BASE + 310, end=BASE + 320, correlationId=102, bytes=4096, copyKind=1, **place)
    e.insert("CUPTI_ACTIVITY_KIND_MEMSET", start=BASE + 330, end=BASE + 331, correlationId=999, bytes=64, value=0, **place)
    return e


def test_every_column_of_a_small_export(tmp_path):
    (trace,) = read_nsys(small(tmp_path / "a.sqlite").done())
    assert (trace.reader, trace.device_name, trace.rank, trace.base) == ("nsys", "NVIDIA H100 80GB HBM3", None, 1_700_000_000_123_456_789)
    assert trace.properties["totalMemory"] == 85_024_112_640 and trace.properties["pid"] == 4711 and trace.properties["schema"] == "3.17.2"
    events = trace.events
    assert events.start.dtype == np.int64
    assert (events.start - BASE).tolist() == [100, 310, 330] and (events.end - BASE).tolist() == [301, 320, 331]
    assert events.kind.tolist() == [KERNEL, MEMCPY, MEMSET]
    assert [trace.text(i) for i in events.name] == ["ampere_gemm<float>(int)", "Memcpy HtoD", "Memset"]
    assert events.size.tolist() == [NONE, 4096, 64]
    assert events.stream.tolist() == [7, 7, 7] and events.device.tolist() == [0, 0, 0]
    assert events.launch.tolist() == [0, 1, NONE]
    assert [trace.text(i) for i in trace.launches.name] == ["cudaLaunchKernel", "cudaMemcpyAsync"]
    assert trace.launches.thread.tolist() == [4711, 4711]
    assert [trace.text(i) for i in trace.marks.name] == ["step 1", "forward"]
    assert [trace.text(i) for i in trace.operators.name] == ["aten::mm"]
    assert trace.shapes[trace.operators.shapes[0]].dims == ([2, 4], [4, 8])
    assert trace.marks.shapes.tolist() == [NONE, NONE]


def test_a_trace_for_every_device_of_every_process(tmp_path):
    e = small(tmp_path / "a.sqlite")
    other = 42 << 24
    e.call("cudaLaunchKernel_v7000", BASE + 1, BASE + 2, 101, tid=other | 42)  # the same correlation in another process
    e.kernel("other", BASE + 7, BASE + 8, 101, pid=other)
    e.kernel("second", BASE + 9, BASE + 12, 5, device=1)
    first, third, fourth = read_nsys(e.done())
    assert [first.text(i) for i in first.events.name] == ["other"] and first.properties["pid"] == 42
    assert first.events.launch.tolist() == [0] and (first.launches.start - BASE).tolist() == [1]
    assert len(third.events) == 3 and (third.launches.start - BASE).tolist() == [20, 50]
    assert fourth.events.device.tolist() == [1] and fourth.events.launch.tolist() == [NONE]
    assert len(first.marks) == 0 and len(fourth.marks) == 2
    assert first.device_name == ""  # the file says whose device 0 is, and this process is not it; GPU 0 it does not list


def test_graphs_whole_and_by_node(tmp_path):
    e = small(tmp_path / "a.sqlite", SCHEMA + GRAPH)
    e.call("cudaGraphLaunch_v10000", BASE + 400, BASE + 410, 300)
    row = dict(deviceId=0, graphId=5, graphExecId=6, contextId=1, streamId=7, correlationId=300, globalPid=PID)
    e.insert("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=BASE + 420, end=BASE + 900, **row)
    e.kernel("in a graph", BASE + 950, BASE + 960, 300, graphNodeId=17)
    (trace,) = read_nsys(e.done())
    assert [trace.text(i) for i in trace.events.name[-2:]] == ["CUDA graph 5", "in a graph"]
    assert trace.text(trace.launches.name[trace.events.launch[-1]]) == "cudaGraphLaunch"
    assert trace.properties["kernels of graph nodes"] == 1 and trace.properties["graphs recorded whole"] == 1
    assert any("recorded without their kernels" in w for w in trace.warnings)


def test_nccl_payloads_reach_the_kernels_their_calls_launched(tmp_path):
    e = small(tmp_path / "a.sqlite")
    comm = '{"NCCL communicator ID": 255, "No. of ranks": 8, "Rank": 0, "CUDA device": 0}'
    e.mark("ncclCommInitRank", BASE + 1, BASE + 2, jsonText=comm)
    e.mark("ncclAllReduce", BASE + 400, BASE + 420, jsonText='{"NCCL communicator ID": 255, "Message size [bytes]": 1048576}')
    e.mark("ncclAllGather", BASE + 430, BASE + 450, jsonTextId=e.string('{"NCCL communicator ID": 255, "Message size [bytes]": 100}'))
    e.mark("ncclReduceScatter", BASE + 460, BASE + 470, jsonText='{"NCCL communicator ID": 9, "Message size [bytes]": 100}')
    e.mark("ncclSend", BASE + 480, BASE + 481, jsonText='{"Message size [bytes]": 5}')  # its kernel is launched by ncclGroupEnd
    e.mark("ncclBroadcast", BASE + 490, BASE + 495, jsonText='{"Message size [bytes]": -5')  # cut off
    for i, at in enumerate((405, 435, 465), 200):
        e.call("cudaLaunchKernelExC_v11060", BASE + at, BASE + at + 1, i)
        e.kernel(f"ncclDevKernel_{i}(ncclDevKernelArgsStorage)", BASE + at + 50, BASE + at + 60, i, stream=20)
    (trace,) = read_nsys(e.done())
    reduce, gather, scatter = (trace.messages[row] for row in sorted(trace.messages))
    assert (reduce.collective, reduce.elements_in, reduce.elements_out) == ("AllReduce", 1048576, 1048576)
    assert (reduce.dtype, reduce.group_size, reduce.group) == ("Byte", 8, "0xff")
    assert (gather.elements_in, gather.elements_out) == (100, 800)
    assert (scatter.elements_in, scatter.elements_out, scatter.group_size) == (None, 100, None)
    assert any("1 NCCL ranges" in w for w in trace.warnings)


def test_impossible_rows_are_left_out_with_a_warning(tmp_path):
    e = small(tmp_path / "a.sqlite")
    e.kernel("untimed", 0, 0, 1)
    e.kernel("backwards", BASE + 10, BASE + 5, 1)
    e.kernel("beyond", -(1 << 63), (1 << 63) - 1, 1)
    e.mark("open", BASE, None)
    (trace,) = read_nsys(e.done())
    assert len(trace.events) == 3
    assert "CUPTI_ACTIVITY_KIND_KERNEL: 1 rows have no times and are left out" in trace.warnings
    assert "CUPTI_ACTIVITY_KIND_KERNEL: 2 rows end before they start and are left out" in trace.warnings
    assert "NVTX_EVENTS: 1 ranges never end and are left out" in trace.warnings


def test_an_old_schema_is_read_with_warnings(tmp_path):
    e = Export(tmp_path / "old.sqlite", "CREATE TABLE StringIds (id INTEGER, value TEXT);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, shortName INT);")  # fmt: skip
    e.insert("CUPTI_ACTIVITY_KIND_KERNEL", start=5, end=9, shortName=e.string("k"))
    (trace,) = read_nsys(e.done())
    assert [trace.text(i) for i in trace.events.name] == ["k"]
    assert trace.events.launch.tolist() == [NONE] and trace.events.stream.tolist() == [NONE] and trace.device_name == ""
    said = "; ".join(trace.warnings)
    assert "CUPTI_ACTIVITY_KIND_KERNEL has no column deviceId, streamId, correlationId, globalPid" in said
    assert "events cannot be linked" in said and "no NVTX ranges" in said


K = "CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("CREATE TABLE runs (id INTEGER);", "not an export of Nsight Systems"),
        ("CREATE TABLE StringIds (id INTEGER, value TEXT);", f"no kernel was recorded .no table {K}"),
        (f"CREATE TABLE {K} (start INTEGER);", "has no column end"),
        (f"CREATE TABLE {K} (start INT, end INT);", "no device events"),
        (f"CREATE TABLE {K} (start, end); INSERT INTO {K} VALUES (1, 2);", "none of the columns"),
        (f"CREATE TABLE {K} (start, end); INSERT INTO {K} VALUES (1.5, 2);", "is 1.5, not a whole"),
        (f"CREATE TABLE {K} (start, end); INSERT INTO {K} VALUES ('x', 2);", "is 'x', not a whole"),
        (f"CREATE TABLE t (a, b); CREATE VIEW {K} AS SELECT a AS start, b AS end, b AS shortName FROM t;", "is a view"),
        (f"CREATE VIRTUAL TABLE {K} USING fts5(start, end, shortName);", "virtual table, .*: refused"),
    ],
)
def test_a_file_that_is_not_an_export_gives_a_one_line_error(tmp_path, schema, said):
    path = tmp_path / "x.sqlite"
    try:
        Export(path, schema).done()
    except sqlite3.OperationalError as error:  # SQLite without FTS5
        pytest.skip(str(error))
    with pytest.raises(InputError, match=said) as caught:
        read_nsys(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_a_view_hidden_behind_a_row_of_the_schema_is_not_run(tmp_path):
    """A schema row may lie about what it is: the authorizer still refuses what a view reads."""
    path = tmp_path / "x.sqlite"
    e = Export(path, "CREATE TABLE t (start, end, shortName); INSERT INTO t VALUES (1, 2, 3);"
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM t;")  # fmt: skip
    e.db.execute("PRAGMA writable_schema=ON")
    e.db.execute("UPDATE sqlite_master SET type='table' WHERE type='view'")
    e.done()
    with pytest.raises(InputError):
        read_nsys(path)


def test_generated_columns_are_not_computed(tmp_path):
    schema = f"CREATE TABLE {K} (start, shortName, end AS (length(zeroblob(1000000000)))); INSERT INTO {K} VALUES (1, 2);"
    path = Export(tmp_path / "x.sqlite", schema).done()
    with pytest.raises(InputError, match="has no column end"):
        read_nsys(path)


def test_the_file_is_neither_written_nor_joined_by_others(tmp_path):
    path = small(tmp_path / "a.sqlite").done()
    before, names = path.read_bytes(), sorted(p.name for p in tmp_path.iterdir())
    path.chmod(0o444)
    read_nsys(path)
    assert path.read_bytes() == before and sorted(p.name for p in tmp_path.iterdir()) == names


def test_a_name_with_a_question_mark_is_a_name(tmp_path):
    path = small(tmp_path / "a?mode=rw#x%41.sqlite").done()
    assert len(read_nsys(path)) == 1


def test_limits_of_rows_time_and_text(tmp_path, monkeypatch):
    path = small(tmp_path / "a.sqlite").done()
    monkeypatch.setattr(tables, "ROWS", 3)
    with pytest.raises(InputError, match="more than 3 rows"):
        read_nsys(path)
    monkeypatch.setattr(tables, "ROWS", 1000)
    monkeypatch.setattr(tables, "TEXTS", 300)
    with pytest.raises(InputError, match="of names"):
        read_nsys(path)


def test_an_endless_query_is_stopped(tmp_path):
    """The progress handler, not only the look between chunks: a table of empty rows that takes longer than it may."""
    path = tmp_path / "x.sqlite"
    e = Export(path, "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, shortName);")
    e.db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) "
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT i, i + 1, 1 FROM n")  # fmt: skip
    e.done()
    database = tables.Database(path)
    database.deadline.end = time.monotonic() - 1
    with pytest.raises(InputError, match="not read within"):
        database.integers("CUPTI_ACTIVITY_KIND_KERNEL", ("start", "end"))
    database.close()


def test_a_compressed_database_says_to_unpack_it(tmp_path):
    path = tmp_path / "a.sqlite.gz"
    path.write_bytes(gzip.compress(small(tmp_path / "a.sqlite").done().read_bytes()))
    with pytest.raises(InputError, match="unpack it"):
        read_nsys(path)


def test_recognise_by_content(tmp_path):
    head = small(tmp_path / "a.sqlite").done().read_bytes()[: 1 << 16]
    other = Export(tmp_path / "b.sqlite", "CREATE TABLE runs (id INTEGER);").done().read_bytes()[: 1 << 16]
    assert recognise(head) and not recognise(other)
    assert not recognise(b"") and not recognise(b"{}") and not recognise(head[:50])


def test_link_takes_the_first_call_and_no_absent_one():
    assert link(np.array([7, 5, NONE, 8]), np.array([5, 7, 7, NONE])).tolist() == [1, 0, NONE, NONE]
    assert link(np.array([1]), np.array([], np.int64)).tolist() == [NONE]


@given(data=st.data())
@settings(max_examples=150)
def test_a_damaged_database_is_refused_or_read(tmp_path, data):
    good = tmp_path / "good.sqlite"
    if not good.exists():
        small(good).done()
    raw = bytearray(good.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.one_of(st.integers(0, 4095), st.integers(0, len(raw) - 1)))
        piece = data.draw(st.binary(min_size=1, max_size=8))
        raw[at : at + len(piece)] = piece
    cut = data.draw(st.one_of(st.just(len(raw)), st.integers(1, len(raw))))
    path = tmp_path / "bad.sqlite"
    path.write_bytes(bytes(raw[:cut]))
    try:
        for trace in read_nsys(path):
            assert len(trace.events) > 0
    except IronlawError as error:
        assert "\n" not in str(error)


NAMES = ["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds",
         "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_SESSION_START_TIME", "META_DATA_EXPORT", "MPI_RANKS"]  # fmt: skip
COLUMNS = ["start", "end", "deviceId", "globalPid", "globalTid", "correlationId", "shortName", "nameId", "eventType", "textId", "text",
           "jsonText", "id", "value", "name", "gpuId", "cudaId", "pid", "utcEpochNs", "rank", "bytes", "copyKind"]  # fmt: skip
WORDS = ["nccl", "ncclAllReduce", "aten::mm, sizes = [[1]", "aten::mm, sizes = [[1]]", '{"Message size [bytes]": 5}', "\x00", "[" * 3000]
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
CELLS = st.one_of(st.none(), st.integers(-3, 9), LONG, st.floats(), st.sampled_from(WORDS), st.binary(max_size=3))
WHOLE = st.one_of(st.none(), st.integers(-3, 9), st.sampled_from([1 << 62, -(1 << 63), (1 << 63) - 1]), st.sampled_from(WORDS))


@given(st.data())
@settings(max_examples=150)
def test_sound_databases_of_odd_tables_and_values(tmp_path, data):
    path = tmp_path / "odd.sqlite"
    tables = {}
    for table in data.draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=6)):
        columns = data.draw(st.lists(st.sampled_from(COLUMNS), unique=True, min_size=1, max_size=8))
        columns += [c for c in ("start", "end", "shortName") if c not in columns and table == NAMES[0]]
        cell = data.draw(st.sampled_from([CELLS, WHOLE, st.integers(0, 9)]))
        tables[table] = columns, data.draw(st.lists(st.tuples(*[cell] * len(columns)), max_size=4))
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        for table, (columns, rows) in tables.items():
            db.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)
        db.commit()
        path.write_bytes(db.serialize())
    try:
        for trace in read_nsys(path):
            assert len(trace.events) > 0 and all(0 <= i < len(trace.names) for i in trace.events.name)
            assert np.all(trace.events.end >= trace.events.start) and np.all(np.diff(trace.events.start) >= 0)
            assert np.all(trace.events.launch < len(trace.launches))
    except IronlawError as error:
        assert "\n" not in str(error)
