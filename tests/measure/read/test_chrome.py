"""Chrome traces: exact times, every spelling, any block boundary, hostile and broken files."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paths
from ironlaw.errors import InputError, IronlawError
from ironlaw.measure.events import NONE, Spans
from ironlaw.measure.idle import explain_idle
from ironlaw.measure.read import chrome, json_stream
from ironlaw.measure.read.chrome import nanoseconds, read_chrome
from ironlaw.measure.read.json_stream import EventStream
from ironlaw.measure.window import Policy, assign_steps, choose_events, find_step_marks, split_window

DATA = paths.DATA / "measured"
REAL = gzip.decompress((DATA / "hta_mi250_minitoy.json.gz").read_bytes())
HEAD, TAIL = b'{"schemaVersion": 1, "traceEvents": [', b'], "displayTimeUnit": "ms"}'


def kernel(at=b"10.5", lasts=b"2", more=b"", name=b"k"):
    return b'{"ph":"X","cat":"kernel","name":"%b","pid":0,"tid":7,"ts":%b,"dur":%b,"args":{"stream":7,"correlation":1%b}}' % (
        name,
        at,
        lasts,
        more,
    )


def trace_of(*events):
    return HEAD + b",".join(events) + TAIL


def read(tmp_path, text, unit="us"):
    path = tmp_path / "t.json"
    path.write_bytes(text)
    return read_chrome(str(path), unit)


def stream_of(text, *sizes):
    """The events and the header of ``text`` cut into blocks of ``sizes``, over and over."""

    def blocks():
        at = turn = 0
        while at < len(text):
            yield text[at : at + sizes[turn % len(sizes)]]
            at += sizes[turn % len(sizes)]
            turn += 1

    stream = EventStream("t.json", blocks())
    events = [
        (e.ph, e.cat, e.name, e.pid, e.tid, bytes(e.ts), bytes(e.dur), bytes(e.args) if len(e.args) else "")
        for found in stream
        for e in found
    ]
    return events, stream.header


def outcome(text, *sizes):
    try:
        return stream_of(text, *sizes)
    except InputError:
        return "refused"


class TestTimes:
    @pytest.mark.parametrize(
        ("text", "unit", "expected"),
        [
            (b"1699999999999999.999", 1_000, 1_699_999_999_999_999_999),
            (b"1700000000000000.001", 1_000, 1_700_000_000_000_000_001),
            (b"1700000000123.456789", 1_000_000, 1_700_000_000_123_456_789),
            (b"1700000000123456789", 1, 1_700_000_000_123_456_789),
            (b"12", 1_000, 12_000),
            (b"12.3", 1_000_000, 12_300_000),
            (b"-0.5", 1_000, -500),
            (b"1.5e3", 1_000, 1_500_000),
            (b"1E3", 1, 1_000),
            (b'"12.5"', 1_000, 12_500),
            (b"0.9600000000000001", 1_000, 960),
            (b"7.25", 1, 7),
        ],
    )
    def test_a_time_is_the_integer_of_its_text(self, text, unit, expected):
        assert nanoseconds(text, unit) == expected

    @given(st.integers(-(10**18), 10**18), st.sampled_from([(1, 0), (1_000, 3), (1_000_000, 6)]))
    def test_every_nanosecond_survives_being_written(self, value, unit):
        text = format(Decimal(value) / unit[0], f".{unit[1]}f").encode()
        assert nanoseconds(text, unit[0]) == value

    @pytest.mark.parametrize(
        "text",
        [
            b"",
            b"null",
            b"true",
            b"nan",
            b"-inf",
            b"1e999999",
            b"1e99999999999",
            b"9" * 5000,
            b'"x"',
            b"[1]",
            b"99999999999999999999",
            b"\xff",
        ],
    )
    def test_text_that_is_not_a_time_is_an_error_at_once(self, text, budget):
        with budget(0.5):
            with pytest.raises((ValueError, ArithmeticError)):
                nanoseconds(text)

    @pytest.mark.parametrize(
        ("unit", "start", "length"),
        [("us", b"1700000000000000.001", b"0.999"), ("ms", b"1700000000000.000001", b"0.000999"), ("ns", b"1700000000000000001", b"999")],
    )
    def test_a_file_of_each_unit_is_exact(self, tmp_path, unit, start, length):
        (trace,) = read(tmp_path, trace_of(kernel(start, length)), unit)
        assert trace.events.start.tolist() == [1_700_000_000_000_000_001]
        assert trace.events.end.tolist() == [1_700_000_000_000_001_000]

    def test_a_bad_neighbour_costs_no_decimals(self, tmp_path):
        odd = b'{"ph":"X","cat":"kernel","name":3,"pid":0,"tid":[],"ts":1700000000000001.457,"dur":1}'
        (trace,) = read(tmp_path, trace_of(kernel(b"1700000000000000.123"), odd))
        assert trace.events.start.tolist() == [1_700_000_000_000_000_123, 1_700_000_000_000_001_457]
        assert trace.names == ("k", "3")


class TestBlocks:
    def test_pieces_of_any_size_give_the_same_events(self):
        expected = stream_of(REAL, len(REAL))
        assert len(expected[0]) == len(json.loads(REAL)["traceEvents"])
        for size in (1, 2, 3, 7, 64, 1000, 4096):
            assert stream_of(REAL, size) == expected

    @settings(max_examples=60)
    @given(st.lists(st.integers(1, 30_000), min_size=1, max_size=6))
    def test_blocks_of_any_size_give_the_same_events(self, sizes):
        assert stream_of(REAL, *sizes) == stream_of(REAL, len(REAL))

    TRICKY = (
        b'{"a":"},{","ph":"X"} , {"ph":"X","args":{"l":[{"b":1},{"b":2}]},"name":"\\"}, {\\\\"}\n,\t{"name":"[[["},{}',
        b'{"ph":"X","args":{"x":nan}},{"ph":"X","name":": nan, "},{"ph":"X","args":{"y":[-inf, Infinity ,NaN]}}',
        b'{"ph":"X","name":"\xff\xfe"},{"ph":3,"name":null,"pid":true},{"ph":"X","name":"\xc3\xa9"}',
        b'{"ph":"X"},{"ph":"X"},',
        b'{"ph":"X"},,{"ph":"X"}',
        b',{"ph":"X"}',
        b'{"ph":"X"}{"ph":"X"}',
        b"1,2,3",
        b'{"ph":"X"},1,[2],"}",{"ph":"X"}',
        b"",
        b" ",
        b'{"ph":"X"}]}',
        b'{"ph":"X"',
    )

    @pytest.mark.parametrize("body", TRICKY, ids=range(len(TRICKY)))
    @pytest.mark.parametrize(
        "around", [(HEAD, TAIL), (b"[", b"]"), (b" [", b""), (b'{"traceEvents":[', b'], "x": [{"a": 1}, {"a": 2}], "y": "]}"}')]
    )
    def test_a_boundary_anywhere_changes_nothing(self, body, around):
        text = around[0] + body + around[1]
        whole = outcome(text, len(text))
        for size in range(1, len(text)):
            assert outcome(text, size) == whole, size
            assert outcome(text, size, len(text)) == whole, size

    def test_a_name_that_looks_like_nan_is_unchanged(self):
        events, _ = stream_of(HEAD + self.TRICKY[1] + TAIL, 1000)
        assert [e[2] for e in events] == ["", ": nan, ", ""]

    def test_bare_arrays_with_and_without_their_end(self):
        for tail in (b"]", b"", b",", b",\n", b" ] "):
            assert len(stream_of(b"[" + kernel() + b"," + kernel() + tail, 50)[0]) == 2

    @pytest.mark.parametrize(
        "before",
        [
            b'{"note": "\\"traceEvents\\": [1, 2", ',
            b'{"note": {"traceEvents": [1, 2]}, ',
            b'{"note\\"traceEvents": [1, 2], ',
            b'{"note": "traceEvents", "other": [{"traceEvents" : [[]]}], ',
            b"\xef\xbb\xbf{",
        ],
    )
    def test_the_events_are_those_of_the_outermost_object(self, before):
        text = before + b'"traceEvents" : [' + kernel() + b'], "rank": 3}'
        for size in (1, 9, len(text)):
            events, header = stream_of(text, size)
            assert len(events) == 1
            assert header["rank"] == 3

    def test_arrays_of_objects_after_the_events_are_header(self):
        more = b",".join(b'{"id": %d, "traceEvents": [{}]}' % i for i in range(1000))
        text = HEAD + kernel() + b'], "deviceProperties": [' + more + b"]}"
        for size in (100, len(text)):
            events, header = stream_of(text, size)
            assert len(events) == 1
            assert [d["id"] for d in header["deviceProperties"]] == list(range(1000))


class TestReading:
    def test_the_small_real_trace(self):
        (trace,) = read_chrome(str(DATA / "hta_mi250_minitoy.json.gz"))
        assert trace.device_name == "AMD Radeon Graphics"
        found = [e for e in json.loads(REAL, parse_float=Decimal)["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        expected = sorted((int(e["ts"] * 1000), int((e["ts"] + e["dur"]) * 1000)) for e in found)
        assert list(zip(trace.events.start.tolist(), trace.events.end.tolist(), strict=True)) == expected
        assert len(find_step_marks(trace)) == 2
        calls = {
            e["args"]["correlation"]: int(e["ts"] * 1000)
            for e in json.loads(REAL, parse_float=Decimal)["traceEvents"]
            if "runtime" in str(e.get("cat"))
        }
        for correlation, launch in zip(trace.events.correlation.tolist(), trace.events.launch.tolist(), strict=True):
            assert trace.launches.start[launch] == calls[correlation]

    def test_a_device_without_arguments_is_its_process(self, tmp_path):
        event = b'{"ph":"X","cat":"Kernel","name":"k","pid":%d,"tid":"stream 7","ts":1,"dur":1}'
        first, second = read(tmp_path, trace_of(event % 3, event % 1))
        assert (first.events.device.tolist(), second.events.device.tolist()) == ([1], [3])
        assert first.events.stream.tolist() == [7]

    def test_each_device_of_each_process_is_a_trace_and_keeps_its_messages(self, tmp_path):
        events = []
        for i, (pid, device) in enumerate([(1, 0), (2, 1), (1, 0), (1, 1), (2, 1)]):
            more = b',"Collective name":"allreduce","Process Group Ranks":"[0, %d]","In msg nelems":%d' % (pid, i) if i % 2 == 0 else b""
            args = b'{"device":%d,"stream":7%b}' % (device, more)
            events.append(b'{"ph":"X","cat":"kernel","name":"n","pid":%d,"tid":7,"ts":%d,"dur":1,"args":%b}' % (pid, 100 - i, args))
        found = read(tmp_path, trace_of(*events))
        assert [t.events.start.tolist() for t in found] == [[98_000, 100_000], [97_000], [96_000, 99_000]]
        assert [{k: (m.elements_in, m.ranks) for k, m in t.messages.items()} for t in found] == [
            {0: (2, (0, 1)), 1: (0, (0, 1))},
            {},
            {0: (4, (0, 2))},
        ]

    def test_single_values_of_the_header_are_stored_and_no_environment(self, tmp_path):
        text = (
            HEAD + kernel() + b'], "with_stack": 1, "metadata": {"env": {"TOKEN": "s3cret"}}, "deviceProperties": [{"id": 0, "name": "H"}]}'
        )
        (trace,) = read(tmp_path, text.replace(b'"pid":0', b'"pid":9').replace(b'"stream":7', b'"stream":7,"device":0'))
        assert trace.properties == {"schemaVersion": 1, "with_stack": 1, "device": {"id": 0, "name": "H"}}
        assert trace.device_name == "H"

    def test_unreadable_events_are_counted_and_the_rest_is_read(self, tmp_path):
        wrong = (b'"x"', b"null", b"[1]", b"1e400", b"1e99999", b"true")
        (trace,) = read(tmp_path, trace_of(kernel(), *(kernel(at) for at in wrong), kernel(lasts=b"-1"), kernel(b"20")))
        assert trace.events.start.tolist() == [10_500, 20_000]
        assert sorted(trace.warnings) == ["1 events left out: the duration is negative", "6 events left out: the time is not a number"]

    def test_names_that_are_not_utf8_and_rates_that_are_not_numbers(self, tmp_path):
        odd = kernel(more=b',"bandwidth":inf,"other":-nan', name=b"a\xffb: nan, c")
        (trace,) = read(tmp_path, trace_of(odd, kernel(more=b',"Collective name":"all\xffgather"', name=b"plain")))
        assert trace.names == ("a\ufffdb: nan, c", "plain")
        assert trace.messages[1].collective == "all\ufffdgather"

    @pytest.mark.parametrize(
        "value", [b'"x"', b"1.5", b"null", b"true", b"[]", b"{}", b"123456789012345678901234567890", b"9" * 5000, b'"\\ud800"']
    )
    def test_a_field_of_any_type_costs_at_most_its_own_value(self, tmp_path, value):
        for field in ("ph", "cat", "name", "pid", "tid", "args"):
            event = json.loads(kernel())
            event.pop(field)
            text = json.dumps(event).encode().replace(b"{", b'{"%b":%b,' % (field.encode(), value), 1)
            found = read(tmp_path, trace_of(text, kernel(b"5000.5")))
            assert 5_000_500 in [start for trace in found for start in trace.events.start.tolist()]
        for field in ("device", "stream", "correlation", "External id", "bytes", "Collective name", "In msg nelems", "Process Group Ranks"):
            text = kernel(more=b',"%b":%b' % (field.encode(), value))
            assert sum(len(t.events) for t in read(tmp_path, trace_of(text, kernel(b"5000.5")))) == 2


def slow_launch_rows(start, correlation, launches):
    """The same as in the reader, one event at a time."""
    found = []
    for at, number in zip(start.tolist(), correlation.tolist(), strict=True):
        same = [(launches.start[i], i) for i in range(len(launches)) if launches.correlation[i] == number and number >= 0]
        before = [one for one in same if one[0] <= at]
        found.append(max(before, key=lambda one: one[0])[0] if before else min(same)[0] if same else NONE)
    return found


@given(
    st.lists(st.tuples(st.integers(-50, 50), st.integers(-1, 4)), max_size=25),
    st.lists(st.tuples(st.integers(-50, 50), st.integers(-1, 4)), max_size=25),
)
def test_an_event_belongs_to_the_last_earlier_call_with_its_correlation(events, calls):
    def columns(rows):
        return [np.array(c, np.int64) for c in zip(*sorted(rows), strict=True)] or [np.empty(0, np.int64)] * 2

    (start, correlation), (called, numbers) = columns(events), columns(calls)
    nothing = np.zeros(len(called), np.int64)
    launches = Spans(called, called, nothing, nothing, numbers, nothing, nothing)
    rows = chrome._launch_rows(start, correlation, launches)
    assert [NONE if r == NONE else called[r] for r in rows] == slow_launch_rows(start, correlation, launches)
    assert all(r == NONE or numbers[r] == c for r, c in zip(rows, correlation, strict=True))


def slowly_scanned(text):
    """Depths and strings, a byte at a time; None where a backslash stands outside a string."""
    found, depth, inside, escaped = [], 0, False, False
    for byte in text:
        if escaped:
            escaped = False
        elif byte == ord("\\"):
            if not inside:
                return None
            escaped = True
        elif byte == ord('"'):
            inside = not inside
        elif not inside:
            depth += (byte in b"[{") - (byte in b"]}")
        found.append((depth, inside))
    return found


@given(st.lists(st.text(alphabet='\\\\\\"[]{}x', max_size=12), max_size=4), st.booleans())
def test_brackets_are_counted_outside_strings_whatever_the_pieces(pieces, begins_inside):
    pieces = [piece.encode() for piece in ['"'] * begins_inside + pieces]
    expected = slowly_scanned(b"".join(pieces))
    scan = json_stream._Scan()
    found = [pair for piece in pieces for pair in zip(*(column.tolist() for column in scan.feed(piece)), strict=True)]
    assert expected is None or found == expected


def whatever_is_read(path):
    """Read it and look at it; only errors of ours may come out."""
    try:
        traces = read_chrome(str(path))
    except IronlawError as error:
        assert "\n" not in str(error)
        return None
    for trace in traces:
        marks = find_step_marks(trace)
        step = assign_steps(trace, marks)
        for policy in (Policy(), Policy("drop", "drop")):
            keep = choose_events(trace, policy, step, len(marks) - 1)
            window = split_window(trace.events.rows(keep), np.zeros(int(keep.sum()), bool))
            assert window.busy + window.idle == window.wall
    return traces


FUZZ = settings(max_examples=80)


class TestHostile:
    @FUZZ
    @given(st.binary(max_size=300))
    def test_random_bytes(self, tmp_path, text):
        for before in (b"", b"[", HEAD, HEAD + kernel()):
            path = tmp_path / "t.json"
            path.write_bytes(before + text)
            if before or text:
                whatever_is_read(path)

    @FUZZ
    @given(st.data())
    def test_a_real_trace_with_some_bytes_changed(self, tmp_path, data):
        text = bytearray(REAL)
        for _ in range(data.draw(st.integers(1, 6))):
            at = data.draw(st.integers(0, len(text) - 1))
            piece = data.draw(
                st.sampled_from([b"", b"\xff", b"\\", b'"', b"{", b"}", b"[", b"]", b",", b":", b"nan", b"-", b"1e999", b"\0", b"null"])
            )
            text[at : at + data.draw(st.integers(0, 40))] = piece
        path = tmp_path / "t.json"
        path.write_bytes(bytes(text))
        whatever_is_read(path)

    @FUZZ
    @given(st.data())
    def test_events_of_any_json(self, tmp_path, data):
        leaf = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
        value = st.recursive(
            leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6
        )
        keys = st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "s"])
        likely = st.sampled_from(
            ["X", "kernel", "cpu_op", "cuda_runtime", "user_annotation", "ProfilerStep#1", "record_param_comms", 5, 7.5]
        )
        named = st.sampled_from(
            ["correlation", "stream", "device", "External id", "Input Dims", "Collective name", "Process Group Ranks", "bytes"]
        )
        args = st.dictionaries(named, value, max_size=4)
        events = data.draw(st.lists(st.dictionaries(keys, likely | value | args, max_size=9) | value, max_size=12))
        path = tmp_path / "t.json"
        path.write_text(json.dumps({"distributedInfo": data.draw(value), "deviceProperties": data.draw(value), "traceEvents": events}))
        whatever_is_read(path)

    @pytest.mark.parametrize("cut", [1, 7, 100, 3000, 20_000, len(REAL) - 40, len(REAL) - 1])
    def test_a_cut_trace_is_refused(self, tmp_path, cut):
        with pytest.raises(InputError, match=r"it is cut|is cut or damaged|no traceEvents"):
            read(tmp_path, REAL.rstrip()[:cut])

    @pytest.mark.parametrize(
        ("text", "match"),
        [
            (b"{}", "no traceEvents"),
            (b'"traceEvents": [', "no traceEvents"),
            (b"\0" * 100, "no traceEvents"),
            (b'{"traceEvents": 3}', "no traceEvents"),
            (HEAD + b"}" + TAIL, "not JSON"),
            (HEAD + b'{"ph":"X"}], "a": }', "not JSON"),
            (HEAD + b'{"ph":"X"}]} {', "not JSON"),
            (HEAD + b'{"ph":"X" "a":1}' + TAIL, "not JSON"),
            (HEAD + b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}" + TAIL, "nested"),
            (HEAD + kernel(more=b',"a":' + b"[" * 100_000 + b"]" * 100_000) + TAIL, "nested"),
            (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b',"traceEvents":[]}', "not JSON"),
        ],
        ids=range(11),
    )
    def test_a_file_that_is_not_a_trace_gives_a_one_line_error(self, tmp_path, text, match):
        with pytest.raises(InputError, match=match) as found:
            read(tmp_path, text)
        assert "\n" not in str(found.value)

    LARGE = 63 << 20

    @pytest.mark.parametrize(
        ("inner", "size"),
        [
            (lambda n: b'"' + b"x" * n + b'"', LARGE),
            (lambda n: b"[" + b"{}," * (n // 3) + b"{}]", LARGE),
            (lambda n: b"[" + b'"},{",' * (n // 6) + b"0]", LARGE // 4),
            (lambda n: b" " * n + b"0", LARGE // 4),
            (lambda n: b'"' + b"\\n" * (n // 2) + b'"', LARGE // 4),
        ],
        ids=["text", "objects", "false cuts", "blanks", "escapes"],
    )
    def test_one_large_event_takes_seconds(self, tmp_path, inner, size, budget):
        text = trace_of(kernel(), kernel(b"20", more=b',"a":' + inner(size)), kernel(b"30"))
        with budget(20):
            (trace,) = read(tmp_path, text)
            assert trace.events.start.tolist() == [10_500, 20_000, 30_000]

    @pytest.mark.parametrize("piece", [b"x", b" ", b"{},", b'"', b"\\", b"[", b'},{"', b'\\"'])
    def test_an_event_larger_than_any_is_refused(self, tmp_path, monkeypatch, piece, budget):
        monkeypatch.setattr(json_stream, "LARGEST_EVENT", 8 << 20)
        text = HEAD + b'{"args":["' + piece * ((9 << 20) // len(piece))
        with budget(10):
            with pytest.raises(InputError):
                read(tmp_path, text)

    @pytest.mark.parametrize(
        "before",
        [b'{"a":"' + b"x" * (20 << 20), b'{"a":[' + b'{"traceEvents":[]},' * (1 << 20), b"{" * (20 << 20), b" " * (20 << 20)],
        ids=range(4),
    )
    def test_a_header_larger_than_any_is_refused(self, tmp_path, before, budget):
        with budget(10):
            with pytest.raises(InputError, match="no traceEvents"):
                read(tmp_path, before)

    def test_what_follows_the_events_is_limited(self, tmp_path):
        with pytest.raises(InputError, match="follow its events"):
            read(tmp_path, HEAD + kernel() + b"]," + b" " * (json_stream.LARGEST_HEADER + (3 << 20)) + b'"a":1}')

    def test_a_million_small_events(self, tmp_path, budget):
        with budget(20):
            (trace,) = read(tmp_path, HEAD + b"{}," * 1_000_000 + kernel() + TAIL)
            assert len(trace.events) == 1

    def test_thousands_of_launching_threads_are_charged_in_seconds(self, tmp_path, budget):
        events = []
        for i in range(3000):
            call = b'{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":%d,"ts":%d,"dur":5,"args":{"correlation":%d}}'
            run = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%d,"dur":50,"args":{"device":0,"stream":7,"correlation":%d}}'
            events += [call % (i, 100 * i + 60, i), run % (100 * i + 65, i)]
        (trace,) = read(tmp_path, trace_of(*events))
        with budget(5):
            found = explain_idle(trace, trace.events)
        assert found.total == 2999 * 50_000
        assert found.by_reason["launch latency"] == 2999 * 5_000
        assert sum(found.by_reason[r] for r in ("host launch", "unknown")) == 2999 * 45_000

    def test_limits_of_memory(self, tmp_path, monkeypatch):
        many = [kernel(b"%d" % i, name=b"name %d" % i, more=b',"device":%d' % i) for i in range(50)]
        monkeypatch.setattr(chrome, "MOST_DEVICES", 49)
        with pytest.raises(InputError, match="50 devices"):
            read(tmp_path, trace_of(*many))
        monkeypatch.setattr(chrome, "MOST_TEXT", 300)
        with pytest.raises(InputError, match="different names"):
            read(tmp_path, trace_of(*many))
        monkeypatch.setattr(chrome, "MOST_ROWS", 49)
        with pytest.raises(InputError, match="profile fewer steps"):
            read(tmp_path, trace_of(*many))

    def test_too_many_shapes_cost_shapes_and_nothing_else(self, tmp_path, monkeypatch):
        monkeypatch.setattr(chrome, "MOST_SHAPES", 60)
        operator = b'{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":%d,"dur":1,"args":{"Input Dims":[[%d,10],[10,10]]}}'
        (trace,) = read(tmp_path, trace_of(*(operator % (i, i) for i in range(10))))
        assert len(trace.operators) == 10
        assert trace.operators.shapes.tolist()[:3] == [0, 1, 2]
        assert trace.operators.shapes.tolist()[-1] == NONE
        assert any("shapes" in w for w in trace.warnings)


def test_a_device_is_found_by_the_only_product_of_the_list(tmp_path):
    """ROCm numbers the devices of kernels by agent (2, 9), the list from 0."""
    listed = [{"id": i, "name": "AMD Instinct MI300X", "totalGlobalMem": 206_141_652_992, "numSms": 304, "warpSize": 64} for i in range(8)]
    event = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 9, "tid": 7, "ts": 1, "dur": 2, "args": {"device": 9, "stream": 7}}

    def name_of():
        (trace,) = read(tmp_path, json.dumps({"deviceProperties": listed, "traceEvents": [event]}).encode())
        return trace.device_name

    assert name_of() == "AMD Instinct MI300X"
    listed[0]["name"] = "another"
    assert name_of() == ""
