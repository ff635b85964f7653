"""Lets the tests here import their neighbour ``blocks``: importlib mode does not put a test's folder on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
