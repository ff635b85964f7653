"""``roofline --tiers``: from storage to the chip, the slowest on the way, times for a model's weights."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ironlaw import roofline
from ironlaw.cli.main import main
from ironlaw.errors import QuestionError


def tiers(**asked):
    found = roofline(tiers="on", **asked)
    return found, {row["tier"]: row for row in found["tiers"]}


def test_the_three_tiers_of_the_training_chapter():
    """Storage at 1 to 2 GB/s, host memory at 50 to 100 GB/s or more, HBM of a V100 at 900 GB/s; the least of them counts (E003-31)."""
    found, rows = tiers(on="v100-sxm-32gb")
    assert rows["storage"]["bandwidth"] == 1.75e9  # half of 3.5 GB/s
    assert rows["HBM"]["bandwidth"] == 900e9
    assert rows["host memory"]["jump"] == pytest.approx(rows["host memory"]["bandwidth"] / 1.75e9)
    assert rows["HBM"]["bandwidth"] / rows["storage"]["bandwidth"] == pytest.approx(514, abs=1)  # within 450 to 900, not 1,000
    assert found["slowest"] == "storage"
    assert float(found["rate from storage to the accelerator"]) == 1.75e9 / 8


def test_fast_storage_moves_the_limit_to_the_link():
    found, _ = tiers(on="h100-sxm", storage_network="5TB/s", sustained=1)
    assert found["slowest"] == "link to the host"
    assert float(found["rate from storage to the accelerator"]) == 64e9


def test_memory_nearer_to_the_chip_is_faster_and_smaller():
    _, rows = tiers(on="h100-sxm")
    memories = [rows[name] for name in ("storage", "host memory", "HBM", "L2 cache", "shared memory")]
    assert all(a["bandwidth"] < b["bandwidth"] for a, b in pairwise(memories))
    sizes = [row["capacity"] for row in memories[1:]]
    assert sizes == sorted(sizes, reverse=True)
    assert all(row["jump"] > 1 for row in memories[1:])


def test_times_of_the_weights_of_a_model():
    found, rows = tiers(model="llama-3-8b", on="h100-sxm", disk="25GB/s")
    size = 2 * 8_030_261_248
    assert rows["HBM"]["seconds"] == pytest.approx(size / 3.35e12)
    assert rows["storage"]["seconds"] == pytest.approx(size / (12.5e9 / 8))
    assert rows["HBM"]["holds"] and not rows["L2 cache"]["holds"]
    assert float(found["time from storage"]) == rows["storage"]["seconds"]
    _, same = tiers(on="h100-sxm", disk="25GB/s", size=size)
    assert {name: row.get("seconds") for name, row in same.items()} == {name: row.get("seconds") for name, row in rows.items()}


def test_a_device_without_numbers_of_its_caches_has_no_row_for_them():
    _, rows = tiers(on="mi300x")
    assert "L2 cache" not in rows and "HBM" in rows


def test_what_is_refused():
    with pytest.raises(QuestionError, match=r"\bon\b"):
        roofline("llama-3-8b", tiers="on")
    with pytest.raises(QuestionError, match="not both"):
        roofline("llama-3-8b", on="h100-sxm", tiers="on", size="1GB")
    with pytest.raises(QuestionError, match="disk"):
        roofline(on="h100-sxm", disk="1GB/s")


def test_the_command(capsys):
    assert main(["roofline", "llama-3-8b", "--tiers", "--on", "h100-sxm"]) == 0
    out = capsys.readouterr().out
    for word in ("storage", "NIC", "host memory", "link to the host", "scale-up link", "HBM", "L2 cache", "shared memory"):
        assert word in out
    assert main(["roofline", "--tiers", "off", "--on", "h100-sxm"]) == 0
    assert "Ridge points" in capsys.readouterr().out
