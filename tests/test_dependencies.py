"""The lowest versions that the package declares are those that are tested, and they are the ones that run here where asked."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def declared() -> dict[str, str]:
    """Lowest version by dependency, those of extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    found = [re.fullmatch(r"([\w-]+)>=([\d.]+)", one) for one in listed]
    assert all(found), "a dependency has a lower bound and nothing else"
    return {one[1]: one[2] for one in found if one}


def pinned() -> dict[str, str]:
    lines = (ROOT / "requirements" / "oldest.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_the_versions_tested_are_the_lowest_declared():
    assert pinned() == declared()


@pytest.mark.parametrize("name", ["numpy", "click", "tomli", "msgspec"])
def test_no_version_here_is_below_the_lowest_declared(name):
    def number(version: str) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"\d+", version)[:3])

    assert number(importlib.metadata.version(name)) >= number(declared()[name])


def test_the_tests_of_lowest_versions_exist_and_run_on_every_change():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    tests = re.findall(r"tests/[\w/]+(?:\.py)?", makefile.partition("OLDEST_TESTS :=")[2].partition("\n\n")[0])
    assert len(tests) > 10 and all((ROOT / test).exists() for test in tests)
    assert "make test-oldest" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
