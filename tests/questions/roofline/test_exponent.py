"""``roofline --scaling``: exponent, interval, what the interval excludes, jitter and the peaks of the allocator."""

from __future__ import annotations

import shlex

import numpy as np
import pytest

from ironlaw import roofline
from ironlaw.cli.main import main
from ironlaw.errors import InputError, IronlawError, UnknownNameError, ValueRangeError


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_exponent_of_a_power(power):
    points = [(size, 1e-3 * size**power) for size in (1.0, 1.1, 1.2, 1.5)]
    found = roofline(scaling=points)
    assert found["exponent"] == pytest.approx(power)
    assert found["exponent between the ends"] == pytest.approx(power)
    assert {0.5: "sublinear", 1.0: "linear", 2.0: "superlinear"}[power] in found.headline[0]
    assert bool(found.warnings) is (power == 1.0)  # E002-4


@pytest.mark.parametrize("sizes", [(1.0, 2.0, 4.0), (1.0, 2.0, 4.0, 8.0), (1.0, 2.0, 4.0, 8.0, 16.0)])
@pytest.mark.parametrize(("power", "verdict"), [(0.1, "sublinear"), (0.5, "sublinear"), (1.0, "linear"), (1.15, "superlinear")])
def test_sizes_on_a_power_give_a_verdict(sizes, power, verdict):
    found = roofline(scaling=[(size, 1e-3 * size**power) for size in sizes])
    assert found["verdict"] == verdict
    assert found["low"] == pytest.approx(power, abs=1e-6) and found["high"] == pytest.approx(power, abs=1e-6)


def test_four_sizes_with_overhead_are_sublinear():
    """The sweep by +10, +20 and +50 % of area of the note on bandwidth accounting, with 15 ms of overhead: 15 + 35 size [ms]."""
    found = roofline(scaling="1:50ms,1.1:53.5ms,1.2:57ms,1.5:67.5ms")
    assert found["verdict"] == "sublinear" and found["excluded"] == ["linear", "superlinear"]
    assert found["time at size 0"] == pytest.approx(15e-3)
    assert [row["time_ratio"] for row in found["points"]] == pytest.approx([1.0, 1.07, 1.14, 1.35])
    assert found["exponent between the ends"] == pytest.approx(np.log(1.35) / np.log(1.5))


def test_what_an_interval_excludes_is_said():
    """A verdict needs one class inside the interval; with two the third is excluded."""
    rising = roofline(scaling="1:10ms,2:20.5ms,4:47ms,8:95ms")
    assert rising["low"] < 1.1 < rising["high"] and rising["low"] > 0.8
    assert rising["verdict"] == "not sublinear" and rising["excluded"] == ["sublinear"]
    assert "not sublinear" in rising.headline[1]
    wild = roofline(scaling="1:10ms,2:30ms,4:35ms")
    assert wild["verdict"] == "inconclusive" and wild["excluded"] == []


def test_two_sizes_give_an_exponent_and_no_interval():
    found = roofline(scaling="1:10ms,2:20ms")
    assert found["exponent"] == pytest.approx(1.0) and found["verdict"] == "inconclusive"
    assert "no interval" in found.headline[1]


def test_the_interval_of_an_exponent_uses_students_t():
    """Against numpy's covariance of a straight line, and the 97.5 % quantile of Student's t with three degrees of freedom."""
    sizes, times = np.array([1.0, 2.0, 4.0, 8.0, 16.0]), np.array([50e-3, 60e-3, 202e-3, 398e-3, 605e-3])
    found = roofline(scaling=list(zip(sizes.tolist(), times.tolist(), strict=True)))
    (slope, _), covariance = np.polyfit(np.log(sizes), np.log(times), 1, cov=True)
    half = 3.182446305284263 * float(np.sqrt(covariance[0, 0]))
    assert (found["low"], found["high"]) == (pytest.approx(slope - half), pytest.approx(slope + half))
    assert found["verdict"] == "inconclusive" and any("more than one reading" in w for w in found.warnings)


def test_repeats_narrow_the_interval():
    rng = np.random.default_rng(7)
    points = [(size, 1e-3 * size * float(np.exp(rng.normal(0.0, 0.03)))) for size in (1.0, 2.0, 4.0, 8.0, 16.0) for _ in range(8)]
    few, many = roofline(scaling=points[::8]), roofline(scaling=points)
    assert many["verdict"] == "linear" and many["low"] < 1.0 < many["high"]
    assert many["high"] - many["low"] < few["high"] - few["low"]


def test_the_interval_holds_the_exponent_as_often_as_it_says():
    """Coverage: with the noise of the model, 95 % of the intervals from four sizes hold the true exponent."""
    rng = np.random.default_rng(11)
    inside = 0
    for _ in range(200):
        points = [(size, 1e-3 * size * float(np.exp(rng.normal(0.0, 0.05)))) for size in (1.0, 2.0, 3.0, 4.0)]
        found = roofline(scaling=points)
        inside += found["low"] < 1.0 < found["high"]
    assert 180 <= inside <= 198  # 190 expected, deviation 3


def test_one_late_step_does_not_bend_the_exponent():
    clean = roofline(scaling="1:10ms|10ms|10ms,2:20ms|20ms|20ms,4:40ms|40ms|40ms")
    late = roofline(scaling="1:10ms|10ms|10ms,2:20ms|20ms|20ms,4:40ms|40ms|400ms")
    assert late["exponent"] == pytest.approx(float(clean["exponent"]))
    assert any("jitter grows with size" in line for line in late.headline)
    assert any("jitter does not grow" in line for line in clean.headline)


def test_percentiles_are_of_the_times():
    times = [10.0 + 0.1 * i for i in range(101)]
    found = roofline(scaling="1:" + "|".join(f"{t}ms" for t in times) + ",2:40ms,4:80ms")
    row = found["points"][0]
    assert row["time"] == pytest.approx(15e-3) and row["p99"] == pytest.approx(19.9e-3) and row["count"] == 101
    assert found["points"][1]["p99"] is None


def test_peaks_of_the_allocator():
    found = roofline(scaling="1:50ms:20GB:21GB,1.5:75ms:30GB:33GB,2:100ms:40GB:50GB")
    assert found["points"][2]["overhang"] == pytest.approx(1.25)
    assert any("power 1.000" in line for line in found.headline) and any("allocator cliff: it" in line for line in found.headline)
    tight = roofline(scaling="1:50ms:20GB:21GB,2:100ms:40GB:42GB")
    assert any("no allocator cliff" in line for line in tight.headline)


def test_a_file_says_the_same_as_the_list(tmp_path):
    path = tmp_path / "sweep.csv"
    path.write_text(
        "size,time,allocated,reserved\n1,50ms,20GB,21GB\n1,52ms,20GB,21GB\n1.5,75ms,30GB,33GB\n2,100ms,40GB,50GB\n", encoding="utf-8"
    )
    file = roofline(scaling=str(path))
    text = roofline(scaling="1:50ms|52ms:20GB:21GB,1.5:75ms:30GB:33GB,2:100ms:40GB:50GB")
    assert (file.headline, file["points"]) == (text.headline, text["points"])
    path.write_text("size,time,p99\n1,50ms,55ms\n1.5,75ms,110ms\n2,100ms,160ms\n", encoding="utf-8")
    assert roofline(scaling=str(path))["points"][2]["jitter"] == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("text", "error", "word"),
    [
        ("size;time\n1;5ms\n", UnknownNameError, "size;time"),
        ("size,time\n1,5\n2,6ms\n", ValueRangeError, "no unit"),
        ("size,time\n1,\n", InputError, "time is empty"),
        ("size,time\n1,5ms\n", ValueRangeError, "two different sizes"),
        ("size,time,allocated,reserved\n1,5ms,2GB,1GB\n2,5ms,,\n", ValueRangeError, "less is reserved"),
    ],
)
def test_a_wrong_file_says_where(tmp_path, text, error, word):
    path = tmp_path / "sweep.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(error, match=word):
        roofline(scaling=str(path))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.csv"):
        roofline(scaling=str(tmp_path / "none.csv"))


@pytest.mark.parametrize("text", ["1:5ms", "1:5ms,1:6ms", "1,2", "1:5ms:1GB:2GB:3,2:6ms", "1:5ms,two:6ms"])
def test_wrong_lists_are_refused(text):
    with pytest.raises(IronlawError):
        roofline(scaling=text)


def test_overhead_is_the_time_at_size_0():
    found = roofline(scaling=[(size, 5e-3 + 1e-3 * size) for size in (1.0, 2.0, 4.0)])
    assert found["time at size 0"] == pytest.approx(5e-3)


def test_time_that_falls_with_size_is_warned_of(capsys):
    assert main(shlex.split("roofline --scaling 1:1ms,2:0.5ms")) == 0
    assert "time falls as size grows" in capsys.readouterr().out
