"""What every folder of tests shares: the command in this process, budgets of time that never fail a test, and isolation."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path

import hypothesis
import pytest

from ironlaw.catalog import load
from ironlaw.cli.main import main
from ironlaw.estimate.legality.abilities import choose

# Examples are the same in every run, and no clock decides: `--hypothesis-profile random` draws new ones.
SHARED = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture]}
hypothesis.settings.register_profile("random", **SHARED)
hypothesis.settings.register_profile("repeatable", **SHARED, derandomize=True)
hypothesis.settings.load_profile("repeatable")


def pytest_addoption(parser):
    parser.addoption("--budgets", type=Path, help="append the CPU seconds of tests that have a budget to this file")


def pytest_collection_modifyitems(items):
    for item in items:
        if "budget" in getattr(item, "fixturenames", ()):
            item.add_marker("timed")


@pytest.fixture(scope="session", autouse=True)
def no_settings_of_the_user(tmp_path_factory):
    """Neither the user's catalogue nor the user's store is read or written."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IRONLAW_CATALOG", "IRONLAW_STORE"):
            patch.delenv(name, raising=False)
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="module")
def free_stacks(tmp_path_factory):
    """Every framework's record without its table of what it can run: for tests that list plans whatever the stack."""
    folder = tmp_path_factory.mktemp("free") / "frameworks"
    folder.mkdir()
    for path in (load.SHIPPED / "frameworks").glob("*.toml"):
        (folder / path.name).write_text(re.sub(r"(?ms)^\[can\]$.*?(?=^\[|\Z)", "", path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IRONLAW_CATALOG", str(folder.parent))
        for cached in (load._record, choose):
            cached.cache_clear()
        yield
    for cached in (load._record, choose):
        cached.cache_clear()


@pytest.fixture
def ask(capsys):
    """Run a command in this process; return its status, standard output and standard error."""

    def run(*words) -> tuple[int, str, str]:
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def one_answer(monkeypatch):
    """Questions that are asked again have the answer of the first time: for tests of the forms that one answer is printed in."""
    from ironlaw.questions import answer

    ask_anew = answer.answer_question

    def ask_once(verb, options, catalog, cite=False):
        key = (verb, repr(sorted(options.items())), catalog, cite)
        if key not in _ANSWERED:
            _ANSWERED[key] = ask_anew(verb, options, catalog, cite)
        return _ANSWERED[key]

    monkeypatch.setattr(answer, "answer_question", ask_once)


_ANSWERED: dict[tuple[object, ...], object] = {}


def cpu_seconds() -> float:
    """User and system time of this process and of its ended children."""
    return sum(os.times()[:4])


@pytest.fixture
def budget(request):
    """``with budget(0.5):`` records the CPU seconds of the block beside the budget; ``make bench`` prints them. It asserts nothing."""

    @contextlib.contextmanager
    def block(seconds: float):
        start = cpu_seconds()
        yield
        taken = cpu_seconds() - start
        if path := request.config.getoption("budgets"):
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"test": request.node.nodeid, "seconds": taken, "budget": seconds}) + "\n")

    return block
