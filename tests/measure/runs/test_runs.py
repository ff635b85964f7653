"""The store of runs: stored whole or not at all, listed, compared, gated against worked numbers, and exported without names."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ironlaw
from ironlaw.cautions.record import sentences
from ironlaw.cli.main import main
from ironlaw.errors import InputError, IronlawError, QuestionError, UnknownNameError
from ironlaw.measure.runs import exchange, saved_diagnosis, store
from ironlaw.measure.runs.differences import compare_runs
from ironlaw.measure.runs.gate import CHANCE, gate, learn_noise
from ironlaw.measure.runs.ranktest import mann_whitney
from ironlaw.measure.runs.redact import redact_diagnosis

SOURCE = str(Path(ironlaw.__file__).parents[1])


def diagnosis(
    walls=(100.0, 101.0, 102.0, 103.0, 104.0, 105.0), rank=0, device="NVIDIA H100 80GB HBM3", path="t.json", exposed=20.0, **more
):
    """One file whose steps take ``walls`` us: ``exposed`` of communication, 10 of idle, the rest compute."""
    steps = [
        {"number": k, "wall_us": w, "compute_us": w - exposed - 10, "exposed_comm_us": exposed, "exposed_memcpy_us": 0, "idle_us": 10}
        for k, w in enumerate(walls)
    ]
    window = {key: sum(s[key] for s in steps) for key in steps[0] if key != "number"} if steps else {}
    entry = {
        "path": path,
        "device": device,
        "rank": rank,
        "policy": {"unlinked": "keep", "last_step": "keep"},
        "window": window,
        "steps": steps,
    }
    return {
        "schema_version": 1,
        "tool_version": "0.1.0",
        "files": [entry],
        "verdict": {"roof": "compute"},
        "findings": [],
        "compare": None,
    } | more


def log(seconds, path="out.log"):
    entry = {"path": path, "device": None, "rank": None, "log": {"format": "megatron", "median_seconds": 1, "samples_seconds": seconds}}
    return {"schema_version": 1, "tool_version": "0.1.0", "files": [entry], "verdict": None, "findings": [], "compare": None}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "runs.sqlite"


@pytest.fixture
def ask(capsys, path, monkeypatch):
    monkeypatch.setenv("IRONLAW_STORE", str(path))

    def run(*arguments):
        status = main(["runs", *map(str, arguments)])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def refused(result, status, *words):
    code, out, err = result
    assert (code, out, err.count("\n")) == (status, "", 1), result
    for word in words:
        assert word in err, (word, err)


# Storing and loading


def test_a_loaded_run_equals_the_stored_one(path):
    asked = diagnosis(path="fold\udce9r/t.json", extra={"deep": [1, 2.5, None, True, "\ud800"]})
    kept = store.save_run(asked, "main", path)
    assert kept.new
    again, data = store.load_run("main", path)
    assert data == asked
    assert (again.id, again.label, again.steps, again.step_ns) == (kept.id, "main", 6, 102_500.0)
    assert not store.save_run(asked, None, path).new
    assert len(store.list_runs(path)) == 1


def test_samples_are_the_decimal_text_in_whole_nanoseconds(path):
    walls = [222440.001, 219730.123, 4503599627.371]  # us; the last is not a float of whole ns when multiplied
    kept = store.save_run(diagnosis(walls, rank=3), None, path)
    found = [s for s in store.load_samples(kept.id, path) if s.quantity == "wall"]
    assert [s.ns for s in found] == [222440001, 219730123, 4503599627371]
    assert {(s.file, s.rank, s.source) for s in found} == {(0, 3, "trace")}
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT DISTINCT typeof(ns) FROM sample").fetchall() == [("integer",)]
    db.close()


def test_a_log_stores_its_step_times_and_skips_missing_ones(path):
    kept = store.save_run(log([144.9, 126.64, None, 126.5]), None, path)
    assert [s.ns for s in store.load_samples(kept.id, path)] == [144_900_000_000, 126_640_000_000, 126_500_000_000]
    assert kept.step_ns == 126_640_000_000


def test_ranks_are_one_job_and_each_file_without_a_rank_is_a_run():
    two = diagnosis([100, 200], rank=0)
    two["files"] += diagnosis([110, 190], rank=1)["files"]
    assert saved_diagnosis.values_by_step(list(saved_diagnosis.step_samples(two)))["wall"] == [110_000, 200_000]
    assert saved_diagnosis.values_by_step(list(saved_diagnosis.step_samples(two)))["compute"] == [75_000, 165_000]
    two["files"][0]["rank"] = two["files"][1]["rank"] = None
    assert saved_diagnosis.values_by_step(list(saved_diagnosis.step_samples(two)))["wall"] == [100_000, 200_000, 110_000, 190_000]
    two["files"] += log([1.0])["files"]
    assert saved_diagnosis.values_by_step(list(saved_diagnosis.step_samples(two)))["wall"] == [1e9]  # the profiler slowed the others


def test_a_run_is_found_by_id_start_of_id_label_or_latest(path):
    first = store.save_run(diagnosis(), "main", path)
    second = store.save_run(diagnosis([51, 52, 53]), "main", path)
    assert store.load_run("latest", path)[0].id == store.load_run("main", path)[0].id == second.id
    assert store.load_run(first.id, path)[0].id == first.id
    start = next(first.id[:n] for n in range(1, 13) if not second.id.startswith(first.id[:n]))
    assert store.load_run(start, path)[0].id == first.id
    with pytest.raises(UnknownNameError, match="nearest: main"):
        store.load_run("mian", path)[0]
    with pytest.raises(QuestionError, match=r"starts 2 ids|unknown"):
        store.load_run("", path)[0]
    assert store.label_run("main", None, path).id == second.id
    assert store.load_run("main", path)[0].id == first.id
    store.delete_run(first.id, path)
    assert [k.id for k in store.list_runs(path)] == [second.id]
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(DISTINCT run) FROM sample").fetchone() == (1,)
    db.close()


@pytest.mark.parametrize("label", ["", " a", "latest", "0123456789ab", "a\nb", "x" * 81, "\x1b[31m"])
def test_a_label_that_is_unreadable_or_looks_like_an_id_is_refused(label, path):
    with pytest.raises(QuestionError, match="label"):
        store.save_run(diagnosis(), label, path)
    assert not path.exists()


def test_the_fingerprint_depends_on_settings_and_the_content_on_files(path, tmp_path):
    trace = tmp_path / "trace.json"
    trace.write_text("{}")
    one = store.save_run(diagnosis(path=str(trace)), None, path)
    trace.write_text("{ }")
    two = store.save_run(diagnosis([51, 52], path=str(trace)), None, path)
    other = store.save_run(diagnosis(device="NVIDIA A100"), None, path)
    dropped = diagnosis()
    dropped["files"][0]["policy"]["last_step"] = "drop"
    assert one.fingerprint == two.fingerprint
    assert one.content != two.content
    assert len({one.fingerprint, other.fingerprint, store.save_run(dropped, None, path).fingerprint}) == 3
    db = sqlite3.connect(path)
    empty_object = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  # sha256 of {}
    assert db.execute("SELECT sha256 FROM file WHERE run = 1").fetchone() == (empty_object,)
    db.close()


def test_the_default_store_is_set_by_the_environment_or_the_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("IRONLAW_STORE", str(tmp_path / "x"))
    assert store.default_path() == tmp_path / "x"
    monkeypatch.delenv("IRONLAW_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert store.default_path() == tmp_path / "ironlaw" / "runs.sqlite"


def test_a_step_lasts_as_long_as_the_longer_of_host_and_device(path):
    data = diagnosis([])
    parts = {"device_us": 80.5, "compute_us": 60, "exposed_comm_us": 10.5, "exposed_memcpy_us": 0, "idle_us": 10}
    data["files"][0]["steps"] = [
        {"number": 5, "wall_us": 100.25, **parts},  # the device waited 19.75 us before its first event
        {"number": 6, "wall_us": 70, **parts},  # the host ran ahead
        {"number": 7, "wall_us": 90, "device_us": None},
    ]
    kept = store.save_run(data, None, path)
    found = store.load_samples(kept.id, path)
    assert [s.ns for s in found if s.quantity == "device"] == [80_500, 80_500]
    assert saved_diagnosis.values_by_step(found)["wall"] == [100_250, 80_500, 90_000]
    assert saved_diagnosis.values_by_step(found)["compute"] == [60_000, 60_000]
    data["files"][0]["steps"][0]["device_us"] = [1]
    with pytest.raises(InputError, match="device_us is"):
        store.save_run(data, None, path)


# Several processes


def python(code, *arguments, **more):
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], env={**os.environ, "PYTHONPATH": SOURCE}, **more)


WRITER = """
import json, sys
from ironlaw.measure.runs import store
data, who, path = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
for i in range(10):
    data["files"][0]["path"] = f"{who}-{i}"
    store.save_run(data, who, path)
"""


def test_concurrent_writers_lose_nothing(path):
    writers = [python(WRITER, json.dumps(diagnosis()), who, path) for who in ("a", "b")]
    assert [w.wait(600) for w in writers] == [0, 0]
    runs = store.list_runs(path)
    assert sorted(k.label for k in runs) == ["a"] * 10 + ["b"] * 10
    assert all(len(store.load_samples(k.id, path)) == 30 for k in runs)


KILLED = """
import json, os, signal, sys
from ironlaw.measure.runs import store
rows = store._sample_rows
def cut(number, samples):
    for i, row in enumerate(rows(number, samples)):
        if i == 90_000:
            os.kill(os.getpid(), signal.SIGKILL)
        yield row
store._sample_rows = cut
data = json.loads(open(sys.argv[1]).read())
store.save_run(data, "half", sys.argv[2])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_killed_writer_leaves_nothing_half_written(path, tmp_path):
    whole = store.save_run(diagnosis(), "whole", path)
    size = path.stat().st_size
    big = tmp_path / "big.json"
    big.write_text(json.dumps(diagnosis([100.0 + k for k in range(20_000)])))
    assert python(KILLED, big, path).wait(600) == -signal.SIGKILL
    assert path.stat().st_size > size, "the writer died before any page reached the file: the test shows nothing"
    assert [k.id for k in store.list_runs(path)] == [whole.id]
    assert store.save_run(diagnosis([55, 56, 57]), None, path).new
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert db.execute("SELECT count(*) FROM sample WHERE run NOT IN (SELECT number FROM run)").fetchone() == (0,)
    db.close()


def test_a_busy_store_gives_a_clear_error(path, monkeypatch):
    store.save_run(diagnosis(), None, path)
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        for attempt in (lambda: store.save_run(diagnosis([50]), None, path), lambda: store.list_runs(path)):
            with pytest.raises(InputError, match="another process"):
                attempt()
    finally:
        other.close()


# Files that are not stores


def test_a_file_that_is_not_a_store_gives_a_one_line_error(ask, path, tmp_path):
    store.save_run(diagnosis(), "main", path)
    text = tmp_path / "notes.txt"
    text.write_text("not a database at all, but long enough to be asked " * 40)
    refused(ask("list", "--store", text), 3, "notes.txt", "not an SQLite file")
    other = tmp_path / "other.sqlite"
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE t (x)")
    db.close()
    refused(ask("list", "--store", other), 3, "another program")
    refused(ask("add", _file(tmp_path, diagnosis()), "--store", other), 3, "another program")
    refused(ask("list", "--store", tmp_path), 3, "not a file")
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(data)
    refused(ask("show", "main", "--store", damaged), 3, "damaged.sqlite")


def test_a_damaged_list_of_tables_gives_a_one_line_error(ask, path, tmp_path):
    """SQLite's message quotes the damaged names, which are not UTF-8."""
    store.save_run(diagnosis(), "main", path)
    data = path.read_bytes()
    for old, new in ((b"tablerunrun", b"table\xc5\xff\xferun"), (b"CREATE TABLE run", b"CRXATE TABLE run")):
        assert old in data
        data = data.replace(old, new)
    path.write_bytes(data)
    for words in (("list",), ("show", "main"), ("add", _file(tmp_path, diagnosis([50])))):
        refused(ask(*words), 3, "damaged; restore a copy")


def test_a_full_disk_is_named_and_nothing_is_claimed_to_be_stored_or_deleted(ask, path, monkeypatch):
    kept = store.save_run(diagnosis(), "main", path)
    size = sqlite3.connect(path).execute("PRAGMA page_count").fetchone()[0]
    real = store._connect

    def full(*words):
        db = real(*words)
        db.execute(f"PRAGMA max_page_count = {size}")
        return db

    monkeypatch.setattr(store, "_connect", full)
    with pytest.raises(InputError, match="the disk is full; nothing in the store was changed"):
        for step in range(50, 90):
            store.save_run(diagnosis([step] * 40), None, path)
    assert store.load_run("main", path)[0].id == kept.id


def test_a_run_that_a_full_disk_does_not_let_go_is_kept_and_the_room_it_needs_is_named(ask, path, monkeypatch):
    """The journal has no room: to forget a run copies its pages first, so that a killed process leaves the store as it was."""
    store.save_run(diagnosis(), "main", path)
    real = store._connect

    class Full:
        def __init__(self, *words):
            self.db = real(*words)

        def __getattr__(self, name):
            return getattr(self.db, name)

        def execute(self, statement, *values):
            if statement.startswith("DELETE"):
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorname = "SQLITE_FULL"
                raise error
            return self.db.execute(statement, *values)

    monkeypatch.setattr(store, "_connect", Full)
    kibibytes = path.stat().st_size / 1024
    refused(ask("forget", "main"), 3, f"nothing in the store was changed: free up to {kibibytes:.3g} KiB for the journal")
    monkeypatch.undo()
    assert store.load_run("main", path)[0].label == "main"


def test_a_newer_store_is_neither_read_nor_written(ask, path, tmp_path):
    store.save_run(diagnosis(), None, path)
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {store.SCHEMA + 1}")
    db.close()
    before = path.read_bytes()
    refused(ask("list"), 3, "newer ironlaw")
    refused(ask("add", _file(tmp_path, diagnosis([50]))), 3, "newer ironlaw")
    assert path.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_read_only_store_is_read_and_not_written(path):
    store.save_run(diagnosis(), "main", path)
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        assert store.load_run("main", path)[0]
        with pytest.raises(InputError, match=r"read-only|opened"):
            store.save_run(diagnosis([50]), None, path)
    finally:
        path.parent.chmod(0o700)


def test_damaged_samples_are_refused(path):
    kept = store.save_run(diagnosis(), None, path)
    db = sqlite3.connect(path)
    db.execute("UPDATE sample SET ns = 'long'")
    db.commit()
    db.close()
    with pytest.raises(InputError, match="damaged"):
        store.load_samples(kept.id, path)


def test_listing_an_absent_store_says_so_and_creates_nothing(ask, path):
    status, out, _ = ask("list")
    assert (status, "no runs" in out) == (0, True)
    refused(ask("show", "latest"), 2, "no runs")
    refused(ask("forget", "latest"), 2, "no runs")
    assert not path.exists()


# The rank test


def by_enumeration(first, second):
    """Every split of the pooled values, each as likely."""
    pooled = [*first, *second]
    u = lambda b, a: sum((y > x) + 0.5 * (y == x) for x in a for y in b)  # noqa: E731
    seen = u(second, first)
    every = []
    for chosen in itertools.combinations(range(len(pooled)), len(second)):
        b = [pooled[i] for i in chosen]
        every.append(u(b, [pooled[i] for i in range(len(pooled)) if i not in chosen]))
    return sum(e >= seen for e in every) / len(every), sum(e <= seen for e in every) / len(every)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.lists(st.integers(0, 6), min_size=1, max_size=5))
@settings(max_examples=60)
def test_the_rank_test_counts_every_order_also_with_ties(first, second):
    found = mann_whitney(first, second)
    assert (found.p_larger, found.p_smaller) == pytest.approx(by_enumeration(first, second), abs=1e-12)


def test_the_rank_test_is_the_published_table():
    """Critical values of U at one-sided 0.005, n = m: 5 -> 0, 6 -> 2, 7 -> 4, 8 -> 7, 9 -> 11, 10 -> 16 (any printed table)."""
    for n, critical in ((5, 0), (6, 2), (7, 4), (8, 7), (9, 11), (10, 16)):
        for u, passes in ((critical, True), (critical + 1, False)):
            # ranks 1..2n with the second sample on top, then its lowest moved down by u places in all
            first, second = list(range(n)), list(range(n, 2 * n))
            whole, rest = divmod(u, n)
            second = [-1 - i for i in range(whole)] + ([n - rest - 0.5] if rest else []) + second[whole + (1 if rest else 0) :]
            found = mann_whitney(first, second)
            assert found.u == n * n - u
            assert (found.p_larger <= 0.005) == passes, (n, u, found)


@pytest.mark.parametrize("seed", range(8))
def test_the_exact_rank_test_agrees_with_scipy_without_ties(seed):
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(seed)
    for n, m in ((5, 5), (7, 12), (20, 20), (25, 25)):
        a, b = rng.normal(0, 1, n), rng.normal(0.5, 1, m)
        found = mann_whitney(a, b)
        for p, side in ((found.p_larger, "greater"), (found.p_smaller, "less")):
            assert p == pytest.approx(stats.mannwhitneyu(b, a, alternative=side, method="exact").pvalue, rel=1e-9)


def test_the_rank_test_of_small_samples_gives_the_published_numbers():
    """Diagnosis of diabetes by sex, the worked example of scipy's documentation: U = 17 for the men, p = 1/9 on two sides."""
    men, women = [19, 22, 16, 29, 24], [20, 11, 17, 12]
    found = mann_whitney(women, men)
    assert found.u == 17
    assert 2 * found.p_larger == pytest.approx(1 / 9, rel=1e-12)


def test_the_rank_test_of_large_samples_gives_the_published_numbers():
    """Ozone in New York, May against August, the example of R's wilcox.test: W = 127.5, p = 0.0001208 on two sides, with ties."""
    may = [41, 36, 12, 18, 28, 23, 19, 8, 7, 16, 11, 14, 18, 14, 34, 6, 30, 11, 1, 11, 4, 32, 23, 45, 115, 37]
    august = [39, 9, 16, 78, 35, 66, 122, 89, 110, 44, 28, 65, 22, 59, 23, 31, 44, 21, 9, 45, 168, 73, 76, 118, 84, 85]
    found = mann_whitney(may, august)
    assert not found.exact
    assert len(may) * len(august) - found.u == 127.5
    assert 2 * found.p_larger == pytest.approx(0.0001208, abs=5e-8)
    swapped = mann_whitney(august, may)
    assert (swapped.u, swapped.p_smaller, swapped.p_larger) == pytest.approx((127.5, found.p_larger, found.p_smaller), rel=1e-12)


def test_large_samples_without_scipy_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    assert mann_whitney([1.0] * 25, [2.0] * 25).exact
    with pytest.raises(IronlawError, match=r'needs scipy: pip install "ironlaw\[stats\]"') as error:
        mann_whitney([1.0] * 25, [2.0] * 26)
    assert error.value.exit_status == 2


def test_equal_values_shift_nothing():
    for n in (5, 40):
        found = mann_whitney([3.0] * n, [3.0] * n)
        assert found.p_larger == found.p_smaller == 1


# The gate


def steps(rng, n, scale=1.0, spread=0.02, exposed=0.2, idle=0.1):
    compute = (1 - exposed - idle) * 1e8 * scale * rng.normal(1, spread, n)
    comm, rest = exposed * 1e8 * rng.normal(1, spread, n), idle * 1e8 * rng.normal(1, spread, n)
    return {"wall": list(compute + comm + rest), "compute": list(compute), "exposed_comm": list(comm), "idle": list(rest)}


@pytest.mark.parametrize("spread", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("count", [5, 20, 60])
def test_an_unchanged_run_rarely_fails(count, spread):
    rng = np.random.default_rng(count)
    failed = sum(gate(steps(rng, count, spread=spread), steps(rng, count, spread=spread)).exit_status == 1 for _ in range(400))
    assert failed / 400 < 0.02


def test_unsteady_runs_fail_only_until_their_noise_is_learned():
    """Run times move by 4 % from run to run, step times by 1 % within a run."""
    rng = np.random.default_rng(7)

    def run():
        return steps(rng, 20, scale=float(rng.normal(1, 0.04)), spread=0.01)

    pairs = [(run(), run()) for _ in range(300)]
    history = [saved_diagnosis.medians(run()) for _ in range(40)]
    blind = sum(gate(a, b).exit_status == 1 for a, b in pairs)
    learned = sum(gate(a, b, history).exit_status == 1 for a, b in pairs)
    assert blind / 300 > 0.1
    assert learned / 300 < 0.02


def test_a_run_ten_percent_slower_fails():
    rng = np.random.default_rng(3)
    history = [saved_diagnosis.medians(steps(rng, 20)) for _ in range(10)]
    slower = [gate(steps(rng, 20), {"wall": list(1.1e8 * rng.normal(1, 0.05, 20))}, history) for _ in range(300)]
    assert sum(g.exit_status == 1 for g in slower) / 300 > 0.9
    faster = gate(steps(rng, 20), {"wall": list(0.9e8 * rng.normal(1, 0.02, 20))}, history)
    assert (faster.verdict, faster.exit_status) == ("faster", 0)


def test_a_significant_shift_below_three_percent_passes():
    a = {"wall": [100.0 + 0.001 * k for k in range(30)]}
    b = {"wall": [102.9 + 0.001 * k for k in range(30)]}
    found = gate(a, b)
    assert found.checks[0].p_slower < 1e-9
    assert found.verdict == "passed"
    assert gate(a, {"wall": [x * 1.0015 for x in b["wall"]]}).verdict == "slower"


def test_a_large_shift_of_few_steps_that_overlap_is_inconclusive():
    found = gate({"wall": [100, 101, 150, 99, 100]}, {"wall": [110, 111, 108, 112, 95]})
    assert (found.verdict, found.exit_status) == ("inconclusive", 4)
    assert found.checks[0].p_slower > CHANCE


def test_five_steps_that_do_not_overlap_are_enough_and_four_are_not():
    assert gate({"wall": [1, 2, 3, 4, 5]}, {"wall": [6, 7, 8, 9, 10]}).exit_status == 1
    found = gate({"wall": [1, 2, 3, 4]}, {"wall": [6, 7, 8, 9, 10]})
    assert found.exit_status == 4
    assert "the baseline has 4 steps" in found.reasons[0]
    assert gate({}, {}).exit_status == 4


def test_a_slower_kernel_fails_though_faster_communication_hides_it():
    rng = np.random.default_rng(0)
    base = steps(rng, 20, spread=0.005)
    after = dict(base, compute=[c * 1.1 for c in base["compute"]], exposed_comm=[c * 0.65 for c in base["exposed_comm"]])
    found = gate(base, after)
    assert found.checks[0].verdict == "passed"
    assert found.exit_status == 1
    assert "compute" in found.reasons[0]
    assert "other parts hide it" in found.reasons[0]
    idle = dict(base, idle=[i * 1.5 for i in base["idle"]])
    assert "idle" in gate(base, idle).reasons[0]


def test_a_slower_part_of_a_faster_step_is_reported_and_passes():
    base = {"wall": [100.0 + k / 10 for k in range(10)], "exposed_comm": [10.0 + k / 10 for k in range(10)]}
    after = {"wall": [80.0 + k / 10 for k in range(10)], "exposed_comm": [20.0 + k / 10 for k in range(10)]}
    found = gate(base, after)
    assert (found.verdict, found.exit_status) == ("faster", 0)
    assert "exposed_comm" in " ".join(found.reasons)


def test_noise_is_the_usual_shift_between_runs_and_one_change_does_not_raise_it():
    runs = [{"wall": w} for w in (100, 102, 100, 102, 51, 52, 51, 52)]
    noise, count = learn_noise(runs, "wall")
    shifts = [2 / 100, 2 / 102, 2 / 100, 51 / 102, 1 / 51, 1 / 52, 1 / 51]
    assert (noise, count) == (pytest.approx(1.4826 * median(shifts)), 8)
    assert noise < 0.03
    assert learn_noise(runs[:3], "wall") == (None, 3)


def test_the_gate_learns_from_other_runs_of_the_same_fingerprint(ask, path):
    rng = random.Random(1)

    def keep(scale, label=None, **more):
        return store.save_run(
            diagnosis([1000 * scale * rng.gauss(1, 0.002) for _ in range(12)], path=f"{rng.random()}", **more), label, path
        )

    keep(1.0, "main")
    for _ in range(3):
        keep(1.0)
    keep(1.04, "close")
    found = store.gate_run("main", "close", path).gate
    assert (found.exit_status, found.checks[0].learned_from) == (1, 3)
    assert "noise not known" in found.warnings[0]
    for scale in (1.05, 0.95, 1.04, 0.96, 1.0):  # an unsteady machine
        keep(scale)
        keep(scale * 3, device="NVIDIA A100")
    found = store.gate_run("main", "close", path).gate
    assert (found.exit_status, found.checks[0].learned_from) == (0, 8)
    assert found.checks[0].threshold > 0.05
    status, out, _ = ask("gate", "main", "close")
    assert (status, "learned from 8 other runs" in out) == (0, True)


def test_other_or_shared_machines_need_across(ask, path):
    store.save_run(diagnosis(path="a"), "main", path)
    store.save_run(diagnosis(path="b", device="NVIDIA A100"), "moved", path)
    status, out, _ = ask("gate", "main", "moved")
    assert (status, "--across" in out, "hardware" in out) == (4, True, True)
    assert ask("gate", "main", "moved", "--across")[0] == 0
    store.save_run(diagnosis(path="c", contended=True), "shared", path)
    status, out, _ = ask("gate", "main", "--json")
    data = json.loads(out)
    assert (status, data["verdict"], data["exit_status"]) == (4, "inconclusive", 4)
    assert "others used the machine" in data["reasons"][0]
    assert ask("gate", "main", "shared", "--across")[0] == 0
    refused(ask("gate", "shared"), 2, "same run")


def test_a_recording_compared_with_itself_is_inconclusive(path, tmp_path):
    trace = tmp_path / "t.json"
    trace.write_text("{}")
    store.save_run(diagnosis(path=str(trace)), "a", path)
    store.save_run(diagnosis(path=str(trace), findings=[{"name": "new"}]), "b", path)
    assert store.gate_run("a", "b", path, across=True).gate.exit_status == 4


# Comparison of two runs


def test_a_comparison_ranks_parts_by_seconds(path, ask):
    store.save_run(diagnosis([100.0] * 5, exposed=20), "a", path)
    store.save_run(diagnosis([90.0] * 10, exposed=5, path="other"), "b", path)
    found = compare_runs("a", "b", path)
    assert found["step"]["difference"] == {"seconds": pytest.approx(-10e-6), "shift": pytest.approx(-0.1)}
    terms = [(r["term"], round(r["difference"] * 1e6, 6)) for r in found["window"]["terms"]]
    assert terms == [("exposed_comm", -15.0), ("compute", 5.0), ("exposed_memcpy", 0.0), ("idle", 0.0)]
    assert sum(d for _, d in terms) == pytest.approx(found["window"]["wall"]["difference"] * 1e6)
    assert next((r["term"], r["difference"]) for r in found["steps"]) == ("exposed_comm", pytest.approx(-15e-6))
    status, out, _ = ask("compare", "a", "b")
    assert status == 0
    assert "10 us faster (-10.0%)" in out
    assert out.index("exposed communication") < out.index("compute  ")


# Redaction


SECRETS = [
    "acme",
    "alice",
    "node17.corp.example",
    "acme_attention_kernel",
    "ZebraNet",
    "/scratch/acme/alice/run/rank0.json.gz",
    "rank-host-9",
]


def secretive():
    data = diagnosis(path="/scratch/acme/alice/run/rank0.json.gz", workload="ZebraNet-7b", host="rank-host-9")
    data["files"][0]["kernels"] = [
        {"name": "void acme_attention_kernel<float, 128>(float*)", "seconds": 1.25, "count": 7},
        {"name": "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)", "seconds": 0.5},
        {"name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "seconds": 0.25},
        {"name": "triton_red_fused_zebranet_0", "seconds": 0.125},
        {"name": "sm90_acme_gemm", "seconds": 0.1},
    ]
    data["findings"] = [
        {
            "name": "sync",
            "text": "alice@node17.corp.example waits in /scratch/acme/alice/run/rank0.json.gz at ZebraNet.forward for 12.5 ms",
        },
        {"name": "AcmeFunctionBackward0", "evidence": {"ZebraNet": 3, "10.1.2.3": "C:\\Users\\alice\\train.py(12): acme_loss"}},
    ]
    return data


def test_redaction_hides_every_private_name_and_leaves_every_number(path):
    kept = store.save_run(secretive(), "zebranet on acme", path)
    text = json.dumps(exchange.export_run(kept.id, path, redact=True))
    for secret in [*SECRETS, "zebra", "scratch", "Users", "10.1.2.3", "corp"]:
        assert secret.lower() not in text.lower(), secret
    for shown in (
        "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        "ncclDevKernel_AllReduce_Sum",
        "H100",
    ):
        assert shown in text

    def numbers(item):
        if isinstance(item, dict):
            return [n for value in item.values() for n in numbers(value)]
        return [n for value in item for n in numbers(value)] if isinstance(item, list) else [item] if isinstance(item, (int, float)) else []

    assert numbers(redact_diagnosis(secretive())) == [*numbers(secretive()), True]
    assert "12.5 ms" in text


def test_hashes_are_stable_within_an_export_and_differ_between_exports():
    data = secretive()
    data["files"][0]["kernels"].append({"name": "void acme_attention_kernel<float, 128>(float*)"})
    first, second = redact_diagnosis(data), redact_diagnosis(data)
    names = [k["name"] for k in first["files"][0]["kernels"]]
    assert names[0] == names[-1]
    assert names[0] != names[4]
    assert first["files"][0]["path"] in first["findings"][0]["text"]
    assert first["files"][0]["path"] != second["files"][0]["path"]


@given(st.from_regex(r"[a-z]{3,8}(_[a-z]{2,6})?", fullmatch=True))
@settings(max_examples=50)
def test_a_word_to_hide_is_hidden_even_if_it_is_a_common_one(word):
    data = diagnosis(path=f"/data/{word}/t.json", findings=[{"text": f"The {word.upper()} of my{word}2 in ({word})."}])
    found = redact_diagnosis(data, [word])
    assert word not in json.dumps([found["files"][0]["path"], found["findings"][0]["text"]]).lower()


def test_a_redacted_run_is_imported_and_gated_as_before(ask, path, tmp_path):
    store.save_run(secretive(), "main", path)
    out = tmp_path / "run.json"
    assert ask("export", "main", "--redact", "--name", "keep", "-o", out)[0] == 0
    assert ask("import", out, "--label", "theirs")[0] == 0
    theirs, mine = store.load_run("theirs", path)[0], store.load_run("main", path)[0]
    assert (theirs.step_ns, theirs.steps, theirs.roof, theirs.label) == (mine.step_ns, mine.steps, mine.roof, "theirs")
    refused(ask("export", "main", "--name", "x"), 2, "--redact")
    refused(ask("export", "main", "-o", tmp_path / "no" / "x.json"), 3, "cannot be written")


# Broken files


def _file(folder, data, name="d.json"):
    target = folder / name
    target.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return target


def _with(**more):
    data = diagnosis()
    data["files"][0] |= more
    return data


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b"{", "not JSON"),
        (b"[]", "[] is not an object"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": 1e999}', "larger than any float"),
        (b"[" * 100_000, "nested deeper"),
        (b'{"a": ' * 70 + b"1" + b"}" * 70, "nested deeper"),
        (b'{"schema_version": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"\xff\xfe{}", "UTF-16"),
        ({"schema_version": 1, "tool_version": "1", "files": []}, "files is empty"),
        ({"schema_version": 1, "tool_version": "1", "files": [3]}, "files[0]"),
        ({"schema_version": 1, "tool_version": "1", "files": {}}, "not a list"),
        ({"files": []}, "schema_version"),
        (_with(rank=10**30), "rank"),
        (_with(rank=True), "rank"),
        (_with(rank=-1), "rank"),
        (_with(steps=[{"wall_us": -1}]), "wall_us is -1"),
        (_with(steps=[{"wall_us": "1"}]), "wall_us is '1'"),
        (_with(steps=[{"wall_us": 1e300}]), "not a length of time"),
        (_with(steps=[{"number": 1.5, "wall_us": 1}]), "number is 1.5"),
        (_with(steps=[[]]), "steps[0]"),
        (_with(log={"samples_seconds": [1, -2]}), "samples_seconds[1]"),
        (_with(log={"samples_seconds": "x"}), "not a list"),
        (_with(window={"wall_us": [1]}), "wall_us"),
        ({"ironlaw_run": 1}, "runs import"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_file_that_is_not_a_diagnosis_gives_a_one_line_error(ask, path, tmp_path, data, word):
    refused(ask("add", _file(tmp_path, data)), 3, "d.json", word)
    assert not path.exists()


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (diagnosis(), "runs add"),
        ({"ironlaw_run": 2, "diagnosis": diagnosis()}, "format"),
        ({"ironlaw_run": True, "diagnosis": diagnosis()}, "format"),
        ({"ironlaw_run": 1}, "null"),
        ({"ironlaw_run": 1, "label": 3, "diagnosis": diagnosis()}, "label"),
        ({"ironlaw_run": 1, "label": "latest", "diagnosis": diagnosis()}, "latest"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_file_that_is_not_an_export_gives_a_one_line_error(ask, tmp_path, data, word):
    refused(ask("import", _file(tmp_path, data)), 3, "d.json", word)


def test_a_file_too_large_is_not_read(ask, tmp_path, monkeypatch):
    monkeypatch.setattr(saved_diagnosis, "MOST_BYTES", 100)
    refused(ask("add", _file(tmp_path, diagnosis())), 3, "at most 100")
    monkeypatch.setattr(saved_diagnosis, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(saved_diagnosis, "MOST_SAMPLES", 10)
    refused(ask("add", _file(tmp_path, diagnosis())), 3, "more than 10 step samples")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6) | st.sampled_from(list(diagnosis()["files"][0])), inner)
    ),
    max_leaves=12,
)


@given(st.data())
@settings(max_examples=150)
def test_any_json_raises_only_errors_of_ironlaw(tmp_path_factory, data):
    asked = diagnosis()
    if data.draw(st.booleans()):
        asked["files"][0][data.draw(st.sampled_from([*asked["files"][0], "log", "kernels"]))] = data.draw(JSON)
    else:
        asked[data.draw(st.sampled_from([*asked, "warnings", "software", "workload"]))] = data.draw(JSON)
    where = tmp_path_factory.mktemp("fuzz")
    file = _file(where, json.dumps({"ironlaw_run": data.draw(st.sampled_from([1, 1, 1, None, 2])), "diagnosis": asked}).encode())
    for arguments in (
        ["import", file],
        ["list"],
        ["show", "latest"],
        ["export", "latest", "--redact"],
        ["gate", "latest"],
        ["forget", "latest"],
    ):
        assert main(["runs", *map(str, arguments), "--store", str(where / "s.sqlite")]) in (0, 2, 3, 4)


@given(st.binary(max_size=300))
@settings(max_examples=60)
def test_any_bytes_raise_only_errors_of_ironlaw(tmp_path_factory, data):
    with pytest.raises(IronlawError):
        exchange.import_run(_file(tmp_path_factory.mktemp("fuzz"), data), None, "unused.sqlite")


# The command


def test_every_answer_has_the_common_keys(ask, path, tmp_path):
    store.save_run(diagnosis(), "a", path)
    store.save_run(diagnosis([1000.0] * 6, path="b"), "b", path)
    common = {"schema_version", "tool_version", "calibration_version", "catalog_hash", "assumptions", "warnings"}
    for words in (["list"], ["show", "a"], ["compare", "a", "b"], ["gate", "a", "b"], ["label", "b", "c"], ["forget", "c"]):
        _, out, _ = ask(*words, "--json")
        assert common <= set(json.loads(out)), words
    _, out, _ = ask("add", _file(tmp_path, diagnosis()), "--json")
    assert sentences(json.loads(out)["warnings"]) == ["the store already has this diagnosis: nothing was added"]


def test_pages_print_no_control_characters(ask, path):
    store.save_run(diagnosis(path="\x1b[2Jevil", device="a\x07b", verdict={"roof": "r\x1b", "gain": "x", "next": "\x1b"}), "a", path)
    for words in (["list"], ["show", "a"]):
        status, out, _ = ask(*words)
        assert status == 0
        assert "\x1b" not in out
        assert "\x07" not in out


def test_help_loads_no_numpy():
    code = "import sys; from ironlaw.cli.main import main; main(['runs', 'gate', '--help']); sys.exit('numpy' in sys.modules)"
    assert python(code, stdout=subprocess.DEVNULL).wait(600) == 0
