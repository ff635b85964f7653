"""What the command writes to pipes, full devices and terminals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ironlaw.report.terminal import bar

PLAN = ["estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8"]


def process(*words, **kwargs):
    environment = {**os.environ, **kwargs.pop("env", {})}
    return subprocess.run([sys.executable, "-m", "ironlaw", *words], capture_output=True, env=environment, check=False, **kwargs)


def test_a_closed_pipe_does_not_change_the_status():
    shell = f"{sys.executable} -m ironlaw catalog list | head -n 1 >/dev/null; exit ${{PIPESTATUS[0]}}"
    child = subprocess.run(["bash", "-c", shell], capture_output=True, check=False)
    assert (child.returncode, child.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_standard_error_that_cannot_be_written_does_not_change_the_status():
    with open("/dev/full", "w") as full:
        child = subprocess.run(
            [sys.executable, "-m", "ironlaw", "estimate", "lama", "--on", "h100-sxm", "--gpus", "8"], stderr=full, check=False
        )
    assert child.returncode == 2


def test_bars_are_number_signs_where_blocks_cannot_be_written(monkeypatch):
    blocks = bar(0.5)
    page = process(*PLAN, env={"PYTHONIOENCODING": "ascii"}).stdout.decode("ascii")
    assert "?" not in page and "############" in page
    assert blocks == "█" * 12


def test_a_message_is_one_line_without_control_characters(ask):
    status, out, err = ask("diagnose", "gone\x1b[31m\nfile.json")
    assert (status, out) == (3, "")
    assert err.count("\n") == 1 and "\x1b" not in err and "gone?[31m file.json" in err


def test_a_command_stopped_while_its_modules_are_imported_says_so():
    stopped = (
        "import builtins, runpy\n"
        "real = builtins.__import__\n"
        "def stop(name, *rest, **more):\n"
        "    if name == 'click': raise KeyboardInterrupt\n"
        "    return real(name, *rest, **more)\n"
        "builtins.__import__ = stop\n"
        "runpy.run_module('ironlaw', run_name='__main__')\n"
    )
    child = subprocess.run([sys.executable, "-c", stopped], capture_output=True, check=False)
    assert (child.returncode, child.stdout, child.stderr) == (130, b"", b"ironlaw: stopped\n")
