"""Files are recognised by their content; folders are searched for known files."""

from __future__ import annotations

import json

import pytest

import paths
from ironlaw.errors import InputError
from ironlaw.measure.diagnose import diagnose
from ironlaw.measure.read.sniff import files_of, kind_of
from small_traces import kernel, launch, write_trace

DLRM = paths.DATA / "measured" / "v100x8_dlrm"


def test_other_json_in_a_folder_is_skipped_and_refused_as_a_file(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 8}))
    trace = write_trace(tmp_path, [launch(10, 1), kernel(20, 100, 1)])
    files, passed = files_of([tmp_path])
    assert files == [trace]
    assert any("config.json" in line for line in passed)
    with pytest.raises(InputError, match="no traceEvents"):
        diagnose(tmp_path / "config.json")


def test_an_estimate_given_as_a_trace_is_refused(tmp_path):
    path = tmp_path / "estimate.json"
    path.write_text(json.dumps({"schema_version": 1, "step": {}}))
    with pytest.raises(InputError, match=r"estimate\.json: an estimate, not a measurement"):
        kind_of(path)


def test_a_file_given_by_two_names_is_one_file(tmp_path):
    (tmp_path / "again.json.gz").symlink_to(DLRM / "worker0.json.gz")
    assert len(diagnose([DLRM / "worker0.json.gz", tmp_path / "again.json.gz"]).profiles) == 1


def test_a_report_of_nsight_systems_names_the_export(tmp_path):
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"QDSTRM\0binary")
    with pytest.raises(InputError, match=r"nsys export --type sqlite .*run\.nsys-rep"):
        kind_of(path)
