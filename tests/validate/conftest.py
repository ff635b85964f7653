"""Fixtures of the tests of ``ironlaw validate``."""

import csv

import pytest


@pytest.fixture
def table(tmp_path):
    def write(*rows, name="runs.csv", **how):
        path = tmp_path / name
        with path.open("w", newline="", encoding=how.pop("encoding", "utf-8")) as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(k for row in rows for k in row)), **how)
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write
