"""Every row of published_parameters.csv: the count of our laws against the published one.

A row is a model of the catalogue or a config of tests/data/hf_configs. ``total`` leaves out layers for further tokens, as cards do.
``active`` may leave out one embedding table, or both: cards differ and seldom say.
"""

import csv

import pytest

import paths
from ironlaw.catalog import load
from ironlaw.catalog.config_json.read import load_config, model_from_config
from ironlaw.estimate.layer.counts import active_parameters, total_parameters

FILE = paths.DATA / "published_parameters.csv"
COLUMNS = ["name", "kind", "file_or_name", "published", "what", "title", "url", "read", "grade"]
with FILE.open(encoding="utf-8", newline="") as opened:
    ROWS = list(csv.DictReader(opened))


def last_digit(text: str) -> float:
    """What one more in the last digit of a number is worth: 1.6e12 -> 1e11, 426174565632 -> 1."""
    mantissa, _, exponent = text.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - decimals)


def model_of(row):
    if row["kind"] == "catalog":
        return load.record("models", row["file_or_name"])
    path = paths.DATA / "hf_configs" / row["file_or_name"]
    return model_from_config(load_config(path), str(path), path.stem)[0]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['file_or_name']}-{row['what']}-{row['published']}")
def test_the_count_of_a_model_is_the_published_one(row):
    """Within 0.5 %, or half of the last digit of a rounded figure (active: one); counts of a class in code to one in a hundred thousand."""
    published, model = float(row["published"]), model_of(row)
    half = 0.5 * last_digit(row["published"])
    if row["what"] == "active":
        tables = model.vocab_size * model.hidden_size
        counted = [float(active_parameters(model)) - left_out * tables for left_out in (0, 1, 2)]
        assert min(abs(value - published) for value in counted) <= max(0.005 * published, 2.0 * half)  # some cards cut instead of rounding
        return
    share = 1e-5 if row["title"].startswith("counted from the code") else 0.005
    assert float(total_parameters(model)) == pytest.approx(published, rel=share, abs=half)


def test_every_row_has_its_columns_and_every_config_a_row():
    for row in ROWS:
        assert list(row) == COLUMNS
        assert all(row.values()), row
        assert row["kind"] in ("catalog", "config")
        assert row["what"] in ("total", "active")
    listed = {row["file_or_name"] for row in ROWS}
    folder = paths.DATA / "hf_configs" / "language"
    assert {f"language/{path.name}" for path in folder.glob("*.json")} <= listed
