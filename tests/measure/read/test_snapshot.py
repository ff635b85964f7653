"""Memory snapshots: made by hand with known sums, and hostile pickles. No public snapshot of a real run has a licence."""

from __future__ import annotations

import copy
import gzip
import io
import json
import math
import pickle
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ironlaw
import paths
from ironlaw.errors import InputError, IronlawError, QuestionError
from ironlaw.measure.read import memory_timeline, pickles, snapshot
from ironlaw.measure.read.memory_timeline import read_levels, read_timeline
from ironlaw.measure.read.pickles import load_plain
from ironlaw.measure.read.snapshot import EARLIER, NO_STACK, read_snapshot
from ironlaw.measure.versus.memory import compare_memory
from made_snapshots import IN_FORWARD, IN_STEP, MIB, MODEL, TRAIN, A, B, block, entry, segment, worked

DATA = paths.DATA / "measured"


def put(path, tree, protocol=4):
    path.write_bytes(tree if isinstance(tree, bytes) else pickle.dumps(tree, protocol))
    return path


def test_sums_done_by_hand(tmp_path):
    shot = read_snapshot(put(tmp_path / "a.pickle", worked()))
    (d,) = shot.devices
    assert (d.device, d.segments, d.reserved, d.allocated, d.pending, d.free) == (0, 3, 24 * MIB, 16 * MIB, 2 * MIB, 6 * MIB)
    assert d.requested == 8388000 + 8388608 and d.unused == 8 * MIB and d.active == 18 * MIB
    assert (d.largest_free, d.inactive_split) == (4 * MIB, 4 * MIB)  # the 2 MiB of B are a whole segment: they can go back
    assert d.fragmentation == pytest.approx(1 / 3)
    assert [(h.frame, h.size, h.blocks) for h in d.holders] == [(IN_STEP, 8388608, 1), (IN_FORWARD, 8388000, 1)]
    assert (d.peak.size, d.peak.time_us, d.peak.entry) == (8388000 + 4_000_000 + 8388608, 1_000_120, 4)
    assert [(h.frame, h.size) for h in d.peak_holders] == [(IN_STEP, 12388608), (IN_FORWARD, 8388000)]
    assert d.reserved_peak.size == 24 * MIB
    c = d.churn
    assert (c.entries, c.span_us, c.segment_allocs, c.segment_frees, c.segment_bytes) == (9, 500, 2, 1, 22 * MIB)
    assert c.refills == 1 and c.ooms == ((1 << 30, 5000),) and c.per_second == pytest.approx(6000)
    assert shot.settings["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True" and shot.settings["roundup_power2_divisions"] == {"1": 0}


def test_the_same_from_every_protocol_from_json_and_gzipped(tmp_path):
    first = read_snapshot(put(tmp_path / "a", worked())).devices
    for protocol in range(6):
        assert read_snapshot(put(tmp_path / "a", worked(), protocol)).devices == first
    (tmp_path / "a").write_text(json.dumps(worked(), indent=1), encoding="utf-8")
    assert read_snapshot(tmp_path / "a").devices == first and read_snapshot(tmp_path / "a").form == "json"
    (tmp_path / "a").write_bytes(gzip.compress(pickle.dumps(worked())))
    assert read_snapshot(tmp_path / "a").devices == first


def test_data_is_plain(tmp_path):
    data = read_snapshot(put(tmp_path / "a", worked())).data()
    assert json.loads(json.dumps(data)) == json.loads(json.dumps(data, allow_nan=False))
    assert data["devices"][0]["churn"]["ooms"] == [{"size": 1 << 30, "free": 5000}]
    assert data["devices"][0]["peak"]["size"] == 20776608 and data["devices"][0]["unused"] == 8 * MIB


def test_memory_from_before_the_trace_counts_at_the_peak(tmp_path):
    """A ring that lost its beginning: 3 MiB freed in it were allocated before it; 1 MiB was there all along."""
    tree = {
        "segments": [segment(A, block(MIB, frames=[MODEL]), block(7 * MIB, "inactive"))],
        "device_traces": [[entry("alloc", A + MIB, MIB, 10, [TRAIN]), entry("free_requested", A + 2 * MIB, 3 * MIB, 20),
                           entry("free_requested", A + MIB, MIB, 30), entry("segment_free", B, 10 * MIB, 40)]],
    }  # fmt: skip
    (d,) = read_snapshot(put(tmp_path / "a", tree)).devices
    assert (d.peak.size, d.peak.time_us) == (5 * MIB, 10)
    assert {(h.frame, h.size) for h in d.peak_holders} == {(EARLIER, 3 * MIB), (IN_FORWARD, MIB), (IN_STEP, MIB)}
    assert d.reserved_peak.size == 18 * MIB


def test_devices_apart_old_forms_and_no_trace(tmp_path):
    old = {"size": MIB, "state": "active_allocated", "history": [{"addr": A, "real_size": 1000, "frames": [TRAIN]}]}
    tree = {"segments": [segment(A, old), segment(B, block(MIB), device=3)]}
    del tree["segments"][0]["device"]
    shot = read_snapshot(put(tmp_path / "a", tree))
    first, third = shot.devices
    assert (first.device, first.requested, first.holders[0].frame) == (0, 1000, IN_STEP)
    assert (third.device, third.holders[0].frame, third.peak, third.churn) == (3, NO_STACK, None, None)
    assert "no trace of allocations" in shot.warnings[0]


def test_entries_without_times(tmp_path):
    tree = worked()
    for row in tree["device_traces"][0]:
        del row["time_us"]
    (d,) = read_snapshot(put(tmp_path / "a", tree)).devices
    assert d.peak.size == 20776608 and d.peak.time_us is None and d.churn.span_us is None and d.churn.per_second is None


def test_names_from_the_file_cannot_move_the_cursor(tmp_path):
    frame = {"filename": "/x/\x1b[2Ja.py", "line": "\x07", "name": "f\n"}
    (d,) = read_snapshot(put(tmp_path / "a", {"segments": [segment(A, block(5, frames=[frame]))]})).devices
    assert d.holders[0].frame == "/x/?[2Ja.py:? f?"


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ([1, 2], "not a memory snapshot"),
        ({"a": 1}, "not a dict with the keys"),
        ({"segments": {}}, "segments of a memory snapshot are a list"),
        ({"segments": [[]]}, "segments of a memory snapshot are dicts"),
        ({"segments": []}, "the snapshot is empty"),
        ({"segments": [segment(A, block(-5))]}, "total_size in segments is -5"),
        ({"segments": [{"total_size": 1 << 70}]}, "total_size in segments is"),
        ({"segments": [segment(A, block(5, state="odd"))]}, "a block in state 'odd'"),
        ({"segments": [segment(A, block(5, requested=True))]}, "requested_size in blocks is True"),
        ({"segments": [segment("x", block(5))]}, "address in segments is 'x'"),
        ({"segments": [segment(A, block(5))], "device_traces": [[{"action": "alloc", "addr": 1}]]}, "size in device_traces is None"),
        ({"segments": [segment(A, block(5))], "device_traces": {"0": []}}, "device_traces of a memory snapshot are a list"),
        ({"segments": [segment(A, block(5))], "device_traces": [[entry("alloc", 1, 2, -3)]]}, "time_us in device_traces is -3"),
    ],
)
def test_a_wrong_snapshot_gives_a_one_line_error(tmp_path, tree, said):
    path = put(tmp_path / "a.pickle", tree)
    with pytest.raises(InputError, match=said) as caught:
        read_snapshot(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"segments": [', "not JSON"),
        (b'{"segments": ' + b"[" * 100_000, "nested too deep|not JSON"),
        (b'{"segments": [{"total_size": NaN}]}', "NaN in the JSON"),
        (b'{"segments": [{"total_size": ' + b"9" * 5000 + b"}]}", "not JSON|total_size"),
    ],
)
def test_broken_json_gives_a_one_line_error(tmp_path, text, said):
    with pytest.raises(InputError, match=said):
        read_snapshot(put(tmp_path / "a.json", text))


# pickles made to harm


class Runs:
    def __init__(self, call, *given):
        self.answer = (call, given)

    def __reduce__(self):
        return self.answer


def attacks(marker):
    import os

    command = f"touch {marker}"
    yield from (pickle.dumps({"segments": [Runs(os.system, command)]}, p) for p in range(6))
    yield from (pickle.dumps(Runs(eval, f"__import__('os').system({command!r})"), p) for p in range(6))
    yield pickle.dumps(Runs(os.system, Runs(str, command)), 4)  # a reduce inside a reduce
    yield f"cos\nsystem\n(S'{command}'\ntR.".encode()
    yield f"(S'{command}'\nios\nsystem\n.".encode()  # INST
    yield f"(cos\nsystem\nS'{command}'\no.".encode()  # OBJ
    yield b"\x80\x02}cos\nsystem\nb."  # BUILD
    yield b"\x80\x02cos\nsystem\n)\x81."  # NEWOBJ
    yield b"\x80\x04\x8c\x02os\x8c\x06system\x93."  # STACK_GLOBAL
    yield b"\x80\x02\x82\x01."  # an extension
    yield b"\x80\x02Pname\n."  # a persistent id
    yield b"\x80\x02K\x01Q."
    yield b"\x80\x02}}R."  # without any name
    yield b"\x80\x02}}b."
    yield b"\x80\x02})\x81."
    yield b"\x80\x04})}\x92."


def test_nothing_is_run(tmp_path):
    marker = tmp_path / "ran"
    count = 0
    for raw in attacks(marker):
        with pytest.raises(InputError, match=r"would import, call or restore an object|never has: refused") as caught:
            read_snapshot(put(tmp_path / "evil.pickle", b"\x80\x02" + raw if raw[:1] != b"\x80" else raw))
        assert "\n" not in str(caught.value)
        assert not marker.exists()
        count += 1
    assert count == 26


def test_the_message_names_what_would_have_run(tmp_path):
    import os

    with pytest.raises(InputError, match=r"STACK_GLOBAL (posix|nt)\.system at byte"):
        read_snapshot(put(tmp_path / "a", {"segments": [Runs(os.system, "x")]}))
    with pytest.raises(InputError, match=r"GLOBAL os\?.system at byte 2"):
        read_snapshot(put(tmp_path / "a", b"\x80\x02cos\x1b\nsystem\n."))


def test_objects_that_plain_data_never_needs_are_refused(tmp_path):
    for value in (b"bytes", bytearray(b"x"), {1, 2}, frozenset([1]), 1 + 2j, range(3), Path("x")):
        for protocol in (2, 4, 5):
            with pytest.raises(InputError, match=r"refused"):
                read_snapshot(put(tmp_path / "a", {"segments": value}, protocol))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"\x80\x06.", "protocol 6"),
        (b"\x80\x02\x8b\xff\xff\xff\x7f", "an integer of 2147483647 bytes"),
        (b"\x80\x02\x8a\xff" + b"\x01" * 255 + b".", "an integer of 255 bytes"),
        (b"\x80\x02L" + b"9" * 100_000 + b"L\n.", "not well formed"),
        (b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"x.", "a text of 4611686018427387904 bytes"),
        (b"\x80\x04X\xff\xff\xff\xff.", "a text of 4294967295 bytes"),
        (b"\x80\x04\x95" + struct.pack("<Q", 1 << 63) + b".", "left over"),  # a frame longer than the file; nothing is read ahead
        (b"\x80\x02" + b"(" * 100_000 + b".", "1000 deep"),
        (b"\x80\x02" + b")\x85" * 3 + b"N" + b"s.", "operation|left over|not well|truncated|never"),
        (b"\x80\x02}" + b")" + b"\x85" * 200_000 + b"Ns.", "a key that is not text"),  # hashing this would end the process
        (b"\x80\x02}K\x01Ns.", "a key that is not text"),
        (b"\x80\x02h\x05.", "uses object 5"),
        (b"\x80\x02}(X\x01\x00\x00\x00au.", "not well formed"),
        (b"\x80\x02}a.", "truncated|empty stack"),
        (b"\x80\x02]Ns.", "truncated|empty stack"),
        (b"\x80\x02.", "left over"),
        (b"\x80\x02", "truncated"),
        (b"\x80\x02NN.", "left over"),
        (b"\x80\x02(.", "left over"),
        (b"\x80\x02\xfe.", "0xfe is not an operation"),
        (b"\x80\x02Iabc\n.", "not well formed"),
        (b"\x80\x02Fnan\n.", "not a memory snapshot"),
        (b"\x80\x02V\\ud8\n.", "not well formed"),
    ],
)
def test_pickles_that_are_too_much_or_too_little(tmp_path, raw, said, budget):
    with budget(5):
        with pytest.raises(InputError, match=said):
            read_snapshot(put(tmp_path / "a", raw))


def test_truncated_at_every_byte(tmp_path):
    tree = worked()
    tree["device_traces"] = []
    for protocol in (2, 4):
        raw = pickle.dumps(tree, protocol)
        for cut in range(2, len(raw)):
            with pytest.raises(InputError, match=r"cannot be read at byte|never holds"):
                load_plain(io.BytesIO(raw[:cut]), "a")


def doubled(levels):
    """A list that holds the last one twice, that holds ...: 2 to the ``levels`` leaves in a few bytes each."""
    tree = [worked()["segments"][0]]
    for _ in range(levels):
        tree = [tree] * 10
    return tree


def test_lists_shared_without_end_are_not_walked(tmp_path, monkeypatch, budget):
    with budget(20):
        with pytest.raises(InputError, match="segments of a memory snapshot are dicts"):
            read_snapshot(put(tmp_path / "a", {"segments": doubled(300)}))
        with pytest.raises(InputError, match="is \\[\\["):
            read_snapshot(put(tmp_path / "a", {"segments": [segment(A, block(5)) | {"total_size": doubled(3)}]}))
        kept = read_snapshot(put(tmp_path / "a", worked() | {"allocator_settings": {"a": doubled(300), "b": {"c": doubled(300)}, "d": 1}}))
        assert kept.settings == {"b": {}, "d": 1}
        monkeypatch.setattr(snapshot, "ROWS", 100_000)
        shared = segment(A, *[block(5)] * 1000)
        with pytest.raises(InputError, match="more than 100000 blocks and entries"):
            read_snapshot(put(tmp_path / "a", {"segments": [shared] * 1000}))


def test_values_that_hold_themselves(tmp_path):
    loop: list = []
    loop.append(loop)
    me: dict = {"segments": loop}
    me["allocator_settings"] = me
    with pytest.raises(InputError, match="segments of a memory snapshot are dicts"):
        read_snapshot(put(tmp_path / "a", me))


@pytest.mark.parametrize(("piece", "times"), [(b"]", 20), (b"}", 20), (b"N0", 20), (b"]\x94", 10), (b"((tt", 5)])
def test_a_small_pickle_cannot_fill_the_memory(tmp_path, piece, times, budget):
    """Objects are charged for; the reader stops at its sum. The process reports its own peak, above the pickle it holds."""
    path = tmp_path / "a"
    path.write_bytes(b"\x80\x04" + piece * (times * 1_000_000))
    program = f"""
        import resource
        from ironlaw.errors import InputError
        from ironlaw.measure.read import pickles
        from ironlaw.measure.read.snapshot import read_snapshot
        pickles.OBJECTS = 64 << 20
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            read_snapshot({str(path)!r})
        except InputError as error:
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    with budget(60):
        run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True, timeout=600)
        assert int(run.stdout) < 320 << 10  # KiB: 40 MB of file, read in one piece, and the objects


def test_limits_of_steps_memo_and_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(pickles, "STEPS", pickles.CHECK)
    with pytest.raises(InputError, match="steps; record fewer"):
        load_plain(io.BytesIO(b"\x80\x02" + b"N0" * 100_000 + b"N."), "a")
    monkeypatch.setattr(pickles, "STEPS", 10 * pickles.CHECK)
    monkeypatch.setattr(pickles, "MEMO", 10)
    with pytest.raises(InputError, match="of objects: refused"):
        load_plain(io.BytesIO(b"\x80\x04" + b"N\x940" * 100_000 + b"N."), "a")
    monkeypatch.setattr(pickles, "PICKLE", 100)
    with pytest.raises(InputError, match="more than 100 bytes"):
        load_plain(io.BytesIO(bytes(101)), "a")
    with pytest.raises(InputError, match="not read within"):
        load_plain(io.BytesIO(b"\x80\x02N."), "a", seconds=-1.0)


numbers = st.one_of(st.integers(-(1 << 64), 1 << 64), st.floats(allow_nan=False))


def containers(inner):
    dicts = st.dictionaries(st.text(max_size=5), inner, max_size=6)
    return st.one_of(st.lists(inner, max_size=6), dicts, st.tuples(inner), st.tuples(inner, inner, inner))


plain = st.recursive(st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=20)), containers, max_leaves=40)


@given(plain, st.integers(0, 5))
@settings(max_examples=300)
def test_plain_data_is_what_the_standard_reader_gives(tree, protocol):
    raw = pickle.dumps([tree, tree], protocol)
    mine, theirs = load_plain(io.BytesIO(raw), "a"), pickle.loads(raw)
    assert repr(mine) == repr(theirs)  # types too: True is not 1


@given(st.data())
@settings(max_examples=400)
def test_damaged_snapshots_are_read_or_refused(tmp_path, data):
    raw = bytearray(pickle.dumps(worked(), data.draw(st.integers(0, 5))))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    try:
        read_snapshot(put(tmp_path / "a", bytes(raw) or b"x")).data()
    except IronlawError as error:
        assert "\n" not in str(error)


@given(st.binary(max_size=200))
@settings(max_examples=400)
def test_any_bytes_are_refused_by_us(tmp_path, data):
    for start in (b"", b"\x80\x04", b"\x80\x02}(", b'{"segments":', b"[["):
        for read in (read_snapshot, read_timeline):
            with pytest.raises(IronlawError):
                read(put(tmp_path / "a", start + data + b"\xff"))


leaf = st.one_of(st.none(), st.integers(-5, 1 << 70), st.text(max_size=3), st.floats(), st.booleans())
odd = st.recursive(leaf, containers, max_leaves=5)


@given(st.data())
@settings(max_examples=400)
def test_snapshots_with_one_value_exchanged_are_read_or_refused(tmp_path, data):
    tree = copy.deepcopy(worked())
    places = []

    def walk(node):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(value, (dict, list)):
                walk(value)

    walk(tree)
    node, key = places[data.draw(st.integers(0, len(places) - 1))]
    node[key] = data.draw(odd)
    try:
        json.dumps(read_snapshot(put(tmp_path / "a", tree)).data(), allow_nan=False)
    except IronlawError as error:
        assert "\n" not in str(error)


def test_recognise_by_content():
    assert snapshot.recognise(pickle.dumps(worked(), 4)) and snapshot.recognise(pickle.dumps(worked(), 0))
    assert snapshot.recognise(json.dumps(worked()).encode())
    assert not snapshot.recognise(b'{"traceEvents": []}') and not snapshot.recognise(b"")
    assert memory_timeline.recognise(b"[[-1, 1, 37888, 7], [-1,") and not memory_timeline.recognise(b'[{"ts": 1')


# the profiler's memory timeline

RESNET50 = 25_557_032  # parameters; its batch norms keep 26 560 means and as many variances


def test_a_real_timeline_of_resnet50():
    """SGD with momentum keeps four bytes a parameter; parameters are those and the buffers of the batch norms."""
    t = read_timeline(DATA / "memory_timeline.raw.gz")
    assert t.form == "raw" and t.entries == 16845
    assert t.at_peak["optimizer state"] == 4 * RESNET50
    assert t.at_peak["parameter"] == 4 * (RESNET50 + 2 * 26_560)
    assert sum(t.at_peak.values()) == t.peak == 3_082_832_104
    assert t.peak_time == 1_696_966_047_194_486_198
    assert t.end["temporary"] == 0 and all(t.peaks[name] >= level for name, level in t.at_peak.items())


def test_the_levels_are_those_another_tool_expects():
    """HTA's own test names the bytes by category after the 745th time of this file (MIT, tests/test_memory_analysis.py)."""
    _, times, levels = read_levels(DATA / "memory_timeline.raw.gz")
    last = np.flatnonzero(np.append(times[1:] != times[:-1], True))
    assert levels[last][744].tolist() == [102440608, 102228128, 19395584, 0, 2618160128, 58417152, 41811968, 25494440]


def test_the_plotted_form_gives_the_same_peak(tmp_path):
    raw = [[-1, 1, 100, 0], [5000, 2, 40, 4], [6000, 3, -40, 4], [6000, 3, 40, 6], [7000, 4, -40, 6], [8000, 2, 10, 3]]
    plotted = [[5, 5, 6, 7, 8], [[0, 100, 0, 0, 0, 0, 0, 0, 0], [0, 100, 0, 0, 0, 40, 0, 0, 0], [0, 100, 0, 0, 0, 0, 0, 40, 0],
                                 [0, 100, 0, 0, 0, 0, 0, 0, 0], [0, 100, 0, 0, 10, 0, 0, 0, 0]]]  # fmt: skip
    one = read_timeline(put(tmp_path / "a.json", json.dumps(raw).encode()))
    other = read_timeline(put(tmp_path / "b.json", json.dumps(plotted).encode()))
    assert one.peak == other.peak == 140 and one.peak_time == other.peak_time == 5000
    assert one.at_peak == other.at_peak and one.at_peak["activation"] == 40 and one.end == other.end
    assert one.peaks["autograd detail"] == 40
    assert json.loads(json.dumps(one.data()))["form"] == "raw"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "no list of"),
        ({}, "no list of"),
        ([[1, 2, 3]], "entry 0 of the memory timeline is"),
        ([[1, 2, 3, 8]], "category 8 in entry 0"),
        ([[1, 2, 3, -1]], "category -1"),
        ([[1, 2, 1 << 61, 0]] * 9, "out of range"),
        ([[1, 2, 0.5, 0]], "entry 0"),
        ([[1, 2], [[0] * 9]], "2 times and 1 rows"),
        ([[1 << 61], [[0] * 9]], "out of range"),
        ([[1], [[0] * 8]], "bytes of 8 categories"),
        ([[1], [[1 << 61] * 9]], "out of range"),
    ],
)
def test_a_file_that_is_not_a_timeline_gives_a_one_line_error(tmp_path, rows, said):
    with pytest.raises(InputError, match=said):
        read_timeline(put(tmp_path / "a.json", json.dumps(rows).encode()))


# against an estimate


@pytest.fixture(scope="module")
def guess():
    return ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, global_batch_size=64)


def test_a_snapshot_against_the_estimate(tmp_path, guess):
    rows = {r.term: r for r in compare_memory(read_snapshot(put(tmp_path / "a", worked())), guess)}
    tree = guess.groups[0].memory.tree
    assert rows["allocated"].measured == 20776608 and rows["reserved"].measured == 24 * MIB
    assert rows["allocator slack"].measured == 24 * MIB - 20776608
    for name in ("allocated", "reserved", "allocator slack"):
        assert rows[name].predicted == float(np.ravel(tree[name].value)[0])
        assert rows[name].error == pytest.approx(rows[name].predicted / rows[name].measured - 1)
    assert rows["device"].measured is None and rows["device"].error is None and rows["device"].predicted == float(tree.value[0])
    assert "requested bytes" in rows["allocated"].note
    json.dumps([r.data() for r in rows.values()])


def test_without_a_trace_the_note_says_it_is_not_the_peak(tmp_path, guess):
    tree = worked() | {"device_traces": []}
    row = compare_memory(read_snapshot(put(tmp_path / "a", tree)), guess)[0]
    assert row.measured == 16 * MIB and "not at the peak" in row.note


def test_a_timeline_against_the_estimate_sums_on_both_sides(guess):
    timeline = read_timeline(DATA / "memory_timeline.raw.gz")
    rows = compare_memory(None, guess, timeline)
    total = rows[-1]
    assert total.term == "tensors" and total.measured == timeline.peak == sum(r.measured for r in rows[:-1])
    assert math.fsum(r.predicted for r in rows[:-1]) == pytest.approx(total.predicted, rel=1e-12)
    assert {r.term: r.measured for r in rows}["optimizer states"] == 4 * RESNET50


def test_a_plan_that_cannot_run_is_not_compared(tmp_path):
    bad = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, global_batch_size=64, tp=8, micro_batch_size=7)
    assert not bad.legal[0]
    with pytest.raises(QuestionError, match="cannot run"):
        compare_memory(None, bad)
