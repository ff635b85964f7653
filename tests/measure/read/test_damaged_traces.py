"""Traces in unusual encodings, empty, or with lost times, through ``ironlaw diagnose``."""

from __future__ import annotations

import copy
import gzip
import json

import pytest

import paths

TRACE = paths.DATA / "measured" / "v100_resnet50_nw0.json.gz"


@pytest.fixture(scope="module")
def events():
    return json.loads(gzip.open(TRACE).read())


def written(path, data, before=b"", form="utf-8"):
    path.write_bytes(before + json.dumps(data).encode(form))
    return path


def test_a_byte_order_mark_is_skipped(ask, tmp_path, events):
    status, out, _ = ask("diagnose", written(tmp_path / "bom.json", events, before=b"\xef\xbb\xbf"))
    assert status == 0 and "host-bound (data)" in out


def test_utf_16_is_named_in_the_refusal(ask, tmp_path, events):
    status, _, err = ask("diagnose", written(tmp_path / "wide.json", events, form="utf-16"))
    assert status == 3 and "UTF-16" in err and "UTF-8" in err


@pytest.mark.parametrize(("content", "says"), [(gzip.compress(b"", mtime=0), "empty after unpacking"), (b" \n\n", "white space")])
def test_an_empty_file_is_refused_as_empty(ask, tmp_path, content, says):
    path = tmp_path / "empty"
    path.write_bytes(content)
    status, _, err = ask("diagnose", path)
    assert status == 3 and says in err


@pytest.mark.parametrize(("every", "status"), [(1, 4), (5, 4), (12, 0)])  # of 9,096 device events 96 %, 19 %, 8 % are lost; 10 % may be
def test_events_without_times_are_not_counted_as_idle(ask, tmp_path, events, every, status):
    broken = copy.deepcopy(events)
    kernels = [e for e in broken["traceEvents"] if e.get("cat") == "Kernel"]
    for event in kernels[::every]:
        event["dur"] = None
    found, out, _ = ask("diagnose", written(tmp_path / "lost.json", broken), "--json")
    verdict = json.loads(out)["verdict"]
    assert found == status and (verdict["roof"] is None) == (status == 4)
    if status == 4:
        assert "cannot be read" in verdict["says"]


def test_kernel_names_cannot_move_the_cursor(ask, tmp_path, events):
    evil = copy.deepcopy(events)
    for event in evil["traceEvents"]:
        if event.get("cat") == "Kernel":
            event["name"] = "gemm\x1b[2J\x07" + event["name"]
    status, out, _ = ask("diagnose", written(tmp_path / "evil.json", evil))
    assert status == 0 and "gemm?[2J?" in out and not {"\x1b", "\x07"} & set(out)
