"""The validation that ships: every published run scored with the constants of this calibration, so that asking for it takes no minute.

``predictions.json`` lies beside the runs and is written by ``python tools/predictions.py``, after a fit and wherever a prediction moves; a
slow test compares it with a validation that is computed anew.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from ironlaw import files
from ironlaw.catalog import load
from ironlaw.errors import InputError
from ironlaw.validate.runs import DATA, RUNS

TABLE = DATA / "predictions.json"
DIGITS = 6  # significant digits of a number in the file: far more than a prediction has
_REPOSITORY = re.compile(r"(?:github:)?([\w.-]+/[\w.-]+?)(?:@([0-9a-f]{6,40}|HEAD))?(?::([^ ;@]+)(?:@([0-9a-f]{6,40}))?)?(?:[ ;].*)?$")


def link(place: str) -> str | None:
    """The address of where a run was read: a file or folder of a repository at the commit that was read; None for a text that names none.

    >>> link("github:NVIDIA/NeMo@164b0097f8:docs/performance_summary.md")
    'https://github.com/NVIDIA/NeMo/blob/164b0097f8/docs/performance_summary.md'
    >>> link("InternLM/InternEvo:doc/en/train_performance.md"), link("a talk")
    ('https://github.com/InternLM/InternEvo/blob/HEAD/doc/en/train_performance.md', None)
    """
    if place.startswith("https://"):
        return place
    found = _REPOSITORY.match(place.strip())
    if found is None:
        return None
    repository, commit, path, later = found.groups()
    if not path:
        return f"https://github.com/{repository}"
    folder, _, name = path.rpartition("/")
    where = f"tree/{commit or later or 'HEAD'}/{folder}" if "*" in name else f"blob/{commit or later or 'HEAD'}/{path}"
    return f"https://github.com/{repository}/{where}"


def runs_digest() -> str:
    """The digest of the table of runs that ships."""
    return hashlib.sha256(files.read_shipped(RUNS).encode()).hexdigest()


def write_shipped(data: dict[str, Any], path: Path = TABLE) -> None:
    """Write the answer of a validation of the runs that ship, one prediction a line; the rules applied to a run are left out."""
    rows = [{key: value for key, value in row.items() if key != "rules"} for row in data["predictions"]]
    stamps = {"runs_sha256": runs_digest(), "calibration_version": load.calibration_version()}
    head = {**stamps, **{key: value for key, value in data.items() if key != "predictions"}}
    lines = ",\n".join(json.dumps(rounded(row), ensure_ascii=False, separators=(",", ":")) for row in rows)
    text = json.dumps(rounded(head), ensure_ascii=False, separators=(",", ":"), default=float)
    files.write_file(path, f'{text[:-1]},\n"predictions":[\n{lines}\n]}}\n'.encode())


def rounded(value: Any) -> Any:
    """A value with its floats at the digits of the file.

    >>> rounded({"a": [1.23456789, 3, None]})
    {'a': [1.23457, 3, None]}
    """
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def read_shipped(path: Path = TABLE) -> dict[str, Any]:
    """The answer of ``ironlaw validate --json`` that ships, with the digest of the runs and the version of the calibration it is of."""
    try:
        found = json.loads(files.read_shipped(path))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("predictions"), list):
        raise InputError(f"{path}: not the predictions that ship: run python tools/predictions.py")
    return found
