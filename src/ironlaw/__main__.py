"""``python -m ironlaw``."""

from ironlaw.cli.main import run

run()
