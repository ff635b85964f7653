"""Fixtures for every folder of tests."""

from __future__ import annotations

import pytest

from ironlaw.cli.main import main


@pytest.fixture
def ask(capsys):
    """Run a command in this process; its status, standard output and standard error."""

    def run(*words) -> tuple[int, str, str]:
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return status, out, err

    return run
