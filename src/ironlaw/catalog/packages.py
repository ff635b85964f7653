"""Catalogue folders of installed packages: entry points of the group ``ironlaw.catalog``.

A package of records says in its ``pyproject.toml``

    [project.entry-points."ironlaw.catalog"]
    lab = "lab_records"

and its folder ``lab_records`` has folders such as ``accelerators`` in it. No code of the package runs: the folder is found, not imported.
``importlib.metadata`` takes longer to import than a catalogue record to read, so it is imported only where an installed package declares
the group, which a scan of the files on ``sys.path`` shows.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ironlaw import files
from ironlaw.errors import CatalogError, InputError

GROUP = "ironlaw.catalog"
SWITCH = "IRONLAW_CATALOG_PACKAGES"  # "off": look for no packages
_MARK = f"[{GROUP}]".encode()
_MAX_FILE = 1_000_000  # bytes of a list of entry points


class Package(NamedTuple):
    """An installed package with records: its name with its version, and its folder."""

    name: str
    folder: Path


def packages() -> tuple[Package, ...]:
    """The installed packages with records, sorted by name: of two with one record the first counts."""
    if os.environ.get(SWITCH, "").lower() == "off":
        return ()
    return _packages(tuple(sys.path))


@cache
def _packages(search: tuple[str, ...]) -> tuple[Package, ...]:
    """The packages in some folders of Python modules; read once for each set of folders.

    Entry points are slow to import, so they are asked only where a folder declares one of this group.
    """
    if not any(_declares(folder) for folder in dict.fromkeys(search)):
        return ()
    from importlib.metadata import entry_points

    found: dict[Path, Package] = {}
    for point in entry_points(group=GROUP):
        owner = "an unknown package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
        folder = _folder_of(point.value, f"package {owner}: entry point {point.name} = {point.value!r}")
        found.setdefault(folder, Package(owner, folder))
    return tuple(sorted(found.values()))


def _declares(folder: str) -> bool:
    """True where a package that is installed in a folder of ``sys.path`` declares the group."""
    try:
        with os.scandir(folder or ".") as entries:
            infos = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return False
    return any(_has_mark(os.path.join(info, "entry_points.txt")) for info in infos)


def _has_mark(path: str) -> bool:
    """True where a list of entry points has the group."""
    try:
        return _MARK in files.read_bytes(path, "a list of entry points", _MAX_FILE, pipes=False).replace(b" ", b"")
    except InputError:
        return False


def _folder_of(value: str, where: str) -> Path:
    """The folder of a module or package that an entry point names."""
    from importlib.util import find_spec

    from ironlaw.catalog.records import KINDS

    advice = f"install the package again, uninstall it, or set {SWITCH}=off"
    if ":" in value or "[" in value:
        raise CatalogError(f"{where}: expected a package with records, such as lab_records; {advice}")
    try:
        spec = find_spec(value.strip())
    except Exception as error:
        raise CatalogError(f"{where}: cannot be found: {type(error).__name__}: {error}; {advice}") from None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    folder = next((Path(place) for place in places if files.is_folder(place)), None)
    if folder is None:
        raise CatalogError(f"{where}: no such folder is installed; {advice}")
    if not any(files.is_there(folder / part) for part in (*KINDS, "aliases.toml")):
        raise CatalogError(f"{where}: {folder} has no records: no folder in it such as accelerators or models; {advice}")
    return folder
