"""Read catalogue records from TOML files: find by name or alias, decode, attach sources.

Folders are searched in order: those given (``--catalog DIR``), the user's folder (``$IRONLAW_CATALOG`` or
``~/.config/ironlaw/catalog``), those of installed packages, then the one that ships. The first file with a name wins, so a user's file
overrides a package's, and both override ours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ironlaw import files, units
from ironlaw.catalog.hub_names import plain_names, quantised
from ironlaw.catalog.packages import packages
from ironlaw.catalog.records import KINDS
from ironlaw.catalog.schema import Field, Schema
from ironlaw.catalog.sourced import GRADES, READING, Source, Sourced, make_sourced
from ironlaw.errors import CatalogError, InputError, QuestionError, UnitError, UnknownNameError, UnsupportedError, nearest_names, quote
from ironlaw.files import is_folder, is_there

SHIPPED = Path(__file__).parent / "data"
VERSIONS = Path(__file__).parent / "versions"  # earlier sets of constants: a catalogue folder for each version
CONSTANTS = ("calibration", "systems", "bands")  # kinds of records with fitted and measured constants, which have one version
SINGULAR = {
    "accelerators": "accelerator",
    "nodes": "node",
    "fabrics": "fabric",
    "models": "model",
    "prices": "price list",
    "clouds": "cloud",
    "grids": "grid",
    "sites": "site",
    "fibres": "fibre",
    "power": "power record",
    "ownership": "ownership record",
    "failures": "failure log",
    "lengths": "distribution of lengths",
    "expert-loads": "expert load",
    "layouts": "list of layouts",
    "frameworks": "framework",
    "choices": "choice",
    "precisions": "precision",
    "optimizers": "optimizer",
    "calibration": "calibration record",
    "systems": "systems record",
    "bands": "bands record",
    "objectives": "objective",
}
CODED = ("nodes",)  # kinds whose other names people type as they are printed elsewhere: instance types of clouds
SHOWN = 3  # accelerators of a maker that a refusal names
_MAX_FILE = 2_000_000  # bytes
ADDS, REPLACES = "adds", "replaces"  # keys of a record that is like another: what becomes of a part that both have
_LARGEST = 1e15  # of a plain number; sizes of models are far below
_PLAIN = {"str": str, "int": int, "bool": bool, "float": float}
_OF_PLAIN = {"tuple[str, ...]": (list, str), "tuple[int, ...]": (list, int), "dict[str, str]": (dict, str)}


def given_folders(folders: Sequence[str] | str) -> tuple[str, ...]:
    """The folders of ``--catalog``, which must exist; a string is one folder."""
    if isinstance(folders, (str, Path)):
        folders = (str(folders),) if str(folders) else ()
    if not isinstance(folders, (list, tuple)) or not all(isinstance(folder, (str, Path)) for folder in folders):
        raise QuestionError(f"--catalog is {quote(folders)}, must be a folder or a list of folders")
    for folder in folders:
        if not is_folder(folder):
            raise InputError(f"--catalog {folder}: no such folder")
        if not any(is_there(Path(folder) / part) for part in (*KINDS, "aliases.toml")):
            raise InputError(f"--catalog {folder}: no records; expected folders in it such as accelerators or models")
    return tuple(str(f) for f in folders)


def roots(folders: tuple[str, ...] = ()) -> list[Path]:
    """The catalogue folders in order of precedence."""
    of_user = [Path(f) for f in (*folders, _user_folder()) if f and is_folder(f)]
    return [*of_user, *(package.folder for package in packages()), SHIPPED]


def with_constants(folders: tuple[str, ...], version: str | None) -> tuple[str, ...]:
    """Catalogue folders whose constants are those of a version. Records of ``folders`` go before them, and they before all others.

    >>> with_constants((), None)
    ()
    """
    if version is None or version == constants_version() or str(VERSIONS / version) in folders:
        return folders
    known = [constants_version(), *sorted(path.name for path in VERSIONS.iterdir() if is_folder(path))]
    if version not in known:
        says = f"unknown calibration version {quote(version)}; known: {', '.join(known)}"
        raise QuestionError(says, option="calibration_version", value=version, nearest=known)
    return (*folders, str(VERSIONS / version))


def constants_version() -> str:
    """The version of the constants that ship."""
    return next(str(read_file(path)["version"]) for path in (SHIPPED / "calibration").glob("*.toml"))


def _user_folder() -> str:
    """The user's folder; empty where this user has no home, or may not look into it, as in many containers."""
    if named := os.environ.get("IRONLAW_CATALOG"):
        if not is_folder(named):
            raise InputError(f"IRONLAW_CATALOG={named}: no such folder: correct the environment variable, or unset it")
        return named
    try:
        folder = Path.home() / ".config" / "ironlaw" / "catalog"
        return str(folder) if is_folder(folder) else ""
    except (RuntimeError, OSError):
        return ""


def names(kind: str, folders: tuple[str, ...] = ()) -> list[str]:
    """The names of all records of ``kind``, sorted."""
    return sorted({p.stem for root in roots(folders) for p in (root / kind).glob("*.toml")})


@cache
def aliases(folders: tuple[str, ...] = ()) -> dict[str, dict[str, str]]:
    """Other spellings by kind: folded spelling -> name."""
    return {kind: {fold_name(k): name for k, name in table.items()} for kind, table in written_aliases(folders).items()}


@cache
def written_aliases(folders: tuple[str, ...] = ()) -> dict[str, dict[str, str]]:
    """Other spellings by kind, as they are written: spelling -> name. A later folder replaces a spelling that folds alike."""
    by_kind: dict[str, dict[str, tuple[str, str]]] = {kind: {} for kind in KINDS}
    for root in reversed(roots(folders)):
        path = root / "aliases.toml"
        if is_there(path, follow=False):
            for kind, table in read_file(path).items():
                spellings = _check_type(dict, table, str(path), kind)
                wrong = next((k for k, v in spellings.items() if not isinstance(v, str)), None)
                if wrong is not None:
                    raise CatalogError(f"{path}: {kind}.{wrong} is {spellings[wrong]!r}, expected a name")
                by_kind.setdefault(kind, {}).update({fold_name(k): (k, v) for k, v in spellings.items()})
    return {kind: dict(found.values()) for kind, found in by_kind.items()}


def fold_name(name: str) -> str:
    """A spelling in lower case, with single hyphens between words; names that fold alike are one name.

    >>> fold_name("Llama 3_8B")
    'llama-3-8b'
    """
    return "-".join(str(name).lower().replace("_", " ").replace("-", " ").split())


def resolve(kind: str, name: str, folders: tuple[str, ...] = ()) -> str:
    """The catalogue name for a spelling; UnknownNameError with the nearest names otherwise."""
    return _locate(kind, name, folders).stem


def path_of(kind: str, name: str, folders: tuple[str, ...] = ()) -> Path:
    """The file of a record."""
    return _locate(kind, name, folders)


def _locate(kind: str, name: str, folders: tuple[str, ...]) -> Path:
    """The file of a record: its name as it is spelled, in lower case with hyphens, or an alias of it; else as ``other_name`` reads it."""
    folded = fold_name(name)
    for candidate in dict.fromkeys((str(name), folded, aliases(folders)[kind].get(folded, ""))):
        if path := _find_path(kind, candidate, folders):
            return path
    if (other := other_name(kind, folded, folders)) and (path := _find_path(kind, other, folders)):
        return path
    known = names(kind, folders)
    if kind == "models" and (stripped := quantised(folded)):
        base = other_name(kind, stripped[0], folders)
        weights = "fp8" if stripped[1] == 8 else "nf4"
        hint = f"{base or stripped[0]} with --frozen-weights {weights} and --lora-rank{' (--qlora)' if weights == 'nf4' else ''}"
        raise UnsupportedError(
            f"{name}: a checkpoint with weights in {stripped[1]} bits, which are trained as frozen weights under adapters: write {hint},"
            f" or {base or stripped[0]} alone for weights in 16 bits"
        )
    if instead := aliases(folders).get(f"not-{kind}", {}).get(folded):
        raise UnknownNameError(SINGULAR[kind], str(name), (), more=f"ironlaw catalog list {kind}", instead=instead)
    every = [*known, *written_aliases(folders)[kind]]
    own_names = kind not in CODED and (nearest_names(str(name), known) or not nearest_names(str(name), every))
    raise UnknownNameError(
        SINGULAR[kind],
        str(name),
        known if own_names else every,
        more=f"ironlaw catalog list {kind}",
        instead=_by_maker(str(name), folders) if kind == "accelerators" else "",
    )


def _by_maker(name: str, folders: tuple[str, ...]) -> str:
    """The accelerators of every maker, those first whose letters come nearest to a name."""
    from difflib import SequenceMatcher

    makers: dict[str, list[str]] = {}
    for known in names("accelerators", folders):
        makers.setdefault(record("accelerators", known, folders).vendor, []).append(known)

    def alike(known: str) -> float:
        return SequenceMatcher(None, fold_name(name), known).ratio()

    listed = sorted(makers, key=lambda maker: -max(alike(known) for known in makers[maker]))
    return "by maker: " + "; ".join(f"{maker} {', '.join(sorted(makers[maker], key=alike, reverse=True)[:SHOWN])}" for maker in listed)


@cache
def other_name(kind: str, folded: str, folders: tuple[str, ...]) -> str:
    """The record that a folded spelling means: one whose name or alias differs in its separators alone; of models also as hubs write them.

    Where records differ in separators alone, a spelling without them names none.
    """
    meant: dict[str, set[str]] = {}
    for spelling, name in [*((one, one) for one in names(kind, folders)), *aliases(folders)[kind].items()]:
        meant.setdefault(_squeezed(spelling), set()).add(name)
    for candidate in (folded, *(plain_names(folded) if kind == "models" else ())):
        found = meant.get(_squeezed(candidate), set())
        if len(found) == 1:
            return next(iter(found))
    return ""


def _squeezed(name: str) -> str:
    """A spelling without what separates its words."""
    return re.sub(r"[-\s_()]", "", name.lower())


def record(kind: str, name: str, folders: tuple[str, ...] = ()) -> Any:
    """The record of ``kind`` called ``name`` (or an alias of it), an instance of ``KINDS[kind]``."""
    reading = READING.get()
    if reading is None:
        return _record(kind, name, folders, _working_folder() if folders else "")
    key = (kind, name, folders)
    if key not in reading.records:
        found = reading.records[key] = _decode_file(kind, name, folders)
        if isinstance(plain := getattr(found, "source", None), Source):  # of its numbers without a unit, such as a model's sizes
            reading.sources[plain] = None
    return reading.records[key]


@cache
def _record(kind: str, name: str, folders: tuple[str, ...], working_folder: str) -> Any:
    """The record of a name, decoded once; ``folders`` may be relative to the working folder."""
    del working_folder
    return _decode_file(kind, name, folders)


def _working_folder() -> str:
    """The working folder; "" where it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _decode_file(kind: str, name: str, folders: tuple[str, ...]) -> Any:
    """The record of a name from its file."""
    path = _locate(kind, name, folders)
    return decode(kind, path.stem, completed(kind, read_file(path), str(path), folders), str(path))


def completed(kind: str, table: dict[str, Any], where: str, folders: tuple[str, ...] = ()) -> dict[str, Any]:
    """The table of a record with what the record that it is ``like`` has and it does not say; so too for a part of it, such as ``can``.

    A part that both have, a table or a list of tables, is added to that of the base where ``adds`` names it, and stands instead of it where
    ``replaces`` does. A part named in neither is an error: it is not guessed.
    """
    for part in [name for name, item in table.items() if isinstance(item, dict) and isinstance(item.get("like"), str)]:
        base = _base_of(kind, table[part], where, folders)
        if "like" in base.get(part, {}):
            raise CatalogError(f"{where}: {part}.like {table[part]['like']!r}: its {part} is like {base[part]['like']!r}; write that name")
        table = {**table, part: {**base.get(part, {}), **table[part]}, "sources": _joined_sources(base, table, where)}
    if "like" not in table:
        return table
    base = completed(kind, _base_of(kind, table, where, folders), where, folders)
    return {**_merged(base, table, where), "sources": _joined_sources(base, table, where)}


def _merged(base: dict[str, Any], table: dict[str, Any], where: str) -> dict[str, Any]:
    """A record over its base: the parts that both have as ``adds`` and ``replaces`` say, else the record's own values."""
    said = {way: _check_type(list, table.get(way, []), where, way) for way in (ADDS, REPLACES)}
    own = {key: item for key, item in table.items() if key not in said}
    shared = [key for key, item in own.items() if key in base and key != "sources" and _is_part(item) and "like" not in item]
    for key in shared:
        if (key in said[ADDS]) == (key in said[REPLACES]):
            raise CatalogError(
                f"{where}: {table['like']} has {key} too: write {ADDS} = [{key!r}] to keep its own beside yours,"
                f" or {REPLACES} = [{key!r}] for yours alone"
            )
    if unknown := [key for names in said.values() for key in names if key not in shared]:
        raise CatalogError(f"{where}: {ADDS} and {REPLACES} name parts of the record that {table['like']} has too, not {unknown[0]!r}")
    added = {key: base[key] | own[key] if isinstance(own[key], dict) else [*base[key], *own[key]] for key in said[ADDS]}
    return {**base, **own, **added}


def _is_part(item: Any) -> bool:
    """True for a table of a record or a list of tables; a quantity with its source is a value."""
    return "value" not in item if isinstance(item, dict) else isinstance(item, list) and any(isinstance(one, dict) for one in item)


def _base_of(kind: str, table: dict[str, Any], where: str, folders: tuple[str, ...]) -> dict[str, Any]:
    """The table of the record that a table is ``like``, which itself is like no other."""
    base = read_file(_locate(kind, str(table["like"]), folders))
    if "like" in base:
        raise CatalogError(f"{where}: like {table['like']!r}, which is like {base['like']!r}: write like = {str(base['like'])!r}")
    return base


def _joined_sources(base: dict[str, Any], table: dict[str, Any], where: str) -> dict[str, Any]:
    """The sources of a table and of the record it is like."""
    both = (_check_type(dict, one.get("sources", {}), where, "sources") for one in (base, table))
    return {key: source for sources in both for key, source in sources.items()}


def overrides(kind: str, name: str, folders: tuple[str, ...] = ()) -> str:
    """The user's file, or a package's with its name, that overrides ``name``; empty where the shipped file is used."""
    path = None if roots(folders) == [SHIPPED] else _find_path(kind, name, folders)
    if path is None or SHIPPED in path.parents:
        return ""
    package = next((one.name for one in packages() if one.folder in path.parents), "")
    return f"{path} (package {package})" if package else str(path)


def decode(kind: str, name: str, table: dict[str, Any], where: str) -> Any:
    """The record in a parsed TOML table; a CatalogError names the file and the wrong key."""
    table = dict(table)
    sources = read_sources(table, where)
    table.pop("sources", None)
    if table.get("name", name) != name:
        raise CatalogError(f"{where}: name is {table['name']!r}, but the file is called {name!r}")
    table["name"] = name
    return _decode(KINDS[kind], table, sources, where, "")


def read_sources(table: dict[str, Any], where: str) -> dict[str, Source]:
    """The sources that a parsed TOML table declares, by key."""
    declared = _check_type(dict, table.get("sources", {}), where, "sources")
    return {key: _read_source(key, item, where) for key, item in declared.items()}


def catalog_hash(folders: tuple[str, ...] = ()) -> str:
    """Twelve hex digits that change when any catalogue file changes; computed once, as records are read once."""
    return _hash_of(tuple(roots(folders)))


def calibration_version(folders: tuple[str, ...] = ()) -> str:
    """The version of the calibration records; all versions where a user's records differ.

    >>> calibration_version() == record("calibration", "h100-sxm").version
    True
    """
    return ", ".join(sorted({record("calibration", name, folders).version for name in names("calibration", folders)}))


@cache
def _hash_of(folders: tuple[Path, ...]) -> str:
    """Twelve hex digits of the names and contents of all TOML files in some folders."""
    import hashlib

    digest = hashlib.sha256()
    for root in folders:
        for path in sorted(root.rglob("*.toml")):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(_read_bytes(path))
    return digest.hexdigest()[:12]


def _find_path(kind: str, name: str, folders: tuple[str, ...]) -> Path | None:
    if not name or "/" in name:
        return None
    return next((p for root in roots(folders) if is_there(p := root / kind / f"{name}.toml", follow=False)), None)


def read_file(path: Path) -> dict[str, Any]:
    """The table of a catalogue file; CatalogError where it is not a plain file that can be read, or is not TOML."""
    try:
        return files.read_toml(path, "a catalogue file", _MAX_FILE, pipes=False)  # TOML's top level is always a table
    except InputError as error:
        raise CatalogError(str(error)) from None


def _read_bytes(path: Path) -> bytes:
    """The bytes of a catalogue file."""
    try:
        return files.read_bytes(path, "a catalogue file", _MAX_FILE, pipes=False)
    except InputError as error:
        raise CatalogError(str(error)) from None


def _read_source(key: str, item: Any, where: str) -> Source:
    """One source of a record, with all its fields and a known grade."""
    _check_type(dict, item, where, f"sources.{key}")
    try:
        source = Source(key, str(item["title"]), str(item["url"]), str(item["read"]), str(item["grade"]))
    except (KeyError, TypeError) as error:
        raise CatalogError(f"{where}: sources.{key}: missing {error} (needs title, url, read, grade)") from None
    if source.grade not in GRADES:
        raise CatalogError(f"{where}: sources.{key}.grade is {source.grade!r}, expected one of {', '.join(GRADES)}")
    return source


def _decode(cls: type[Schema], table: dict[str, Any], sources: dict[str, Source], where: str, at: str) -> Any:
    """An instance of ``cls`` from a table; an unknown or missing key is an error."""
    known = cls.fields
    for key in table:
        if key not in known:
            near = ", ".join(nearest_names(key, known)) or ", ".join(known)
            raise CatalogError(f"{where}: unknown key {at}{key!r}; nearest: {near}")
    values: dict[str, Any] = {}
    for key, item in table.items():
        if key == "source":
            values[key] = _look_up(item, sources, where, f"{at}source")
        else:
            values[key] = _read_field(known[key], item, sources, where, at + key)
    if "source" not in known:
        values.pop("source", None)
    missing = [f.name for f in known.values() if f.required and f.name not in values]
    if missing:
        raise CatalogError(f"{where}: {(at or cls.__name__).rstrip('.')}: missing {', '.join(missing)}")
    return cls(**values)


def _read_field(f: Field, item: Any, sources: dict[str, Source], where: str, at: str) -> Any:
    """The value of one key: nested records, sourced quantities, or a plain value."""
    if f.nested is not None and f.many:
        tables = [(f"{at}[{i}]", t) for i, t in enumerate(_check_type(list, item, where, at))]
        return tuple(_decode(f.nested, _check_type(dict, t, where, place), sources, where, f"{place}.") for place, t in tables)
    if f.nested is not None and f.table:
        named = {k: (f"{at}.{k}", t) for k, t in _check_type(dict, item, where, at).items()}
        return {k: _decode(f.nested, _check_type(dict, t, where, p), sources, where, f"{p}.") for k, (p, t) in named.items()}
    if f.nested is not None:
        return _decode(f.nested, _check_type(dict, item, where, at), sources, where, f"{at}.")
    if f.unit and f.table:
        return {k: _read_quantity(t, f, sources, where, f"{at}.{k}") for k, t in _check_type(dict, item, where, at).items()}
    if f.unit:
        return _read_quantity(item, f, sources, where, at)
    return _read_plain(f, item, where, at)


def _read_plain(f: Field, item: Any, where: str, at: str) -> Any:
    """A value without a unit, and every element of a list or a table, checked against the annotation."""
    if (known := _OF_PLAIN.get(f.type)) is not None:
        form, of = known
        items = _check_type(form, item, where, at)
        wrong = next((x for x in (items if form is list else items.values()) if not isinstance(x, of) or isinstance(x, bool)), None)
        if wrong is not None:
            raise CatalogError(f"{where}: {at} has {wrong!r}, expected only {'texts' if of is str else 'whole numbers'}")
        return tuple(items) if form is list else items
    expected = _PLAIN.get(f.type)
    if expected is str and not isinstance(item, (dict, list)):
        if f.words and str(item) not in f.words:
            raise CatalogError(f"{where}: {at} is {quote(item)}, expected one of {', '.join(f.words)}")
        return str(item)
    if expected and (not isinstance(item, expected) or (expected is not bool and isinstance(item, bool))):
        raise CatalogError(f"{where}: {at} is {quote(item)}, expected {expected.__name__}")
    least = 1.0 if expected is int and f.required and f.least == 0.0 else f.least  # a size or a count that there must be
    if expected in (int, float) and not least <= item <= _LARGEST:
        raise CatalogError(f"{where}: {at} is {quote(item)}, must be from {least:g} to {_LARGEST:g}")
    return item


def _read_quantity(item: Any, f: Field, sources: dict[str, Source], where: str, at: str) -> Sourced:
    """A number with a unit and a source, from a table of value, source and note."""
    if not isinstance(item, dict) or "value" not in item:
        raise CatalogError(f'{where}: {at} has no source: write {at} = {{ value = "{item}", source = "KEY" }}')
    if unknown := set(item) - {"value", "source", "note"}:
        raise CatalogError(f"{where}: {at}: unknown key {sorted(unknown)[0]!r} (value, source, note)")
    try:
        value = units.parse(item["value"], f.unit, at)
    except UnitError as error:
        raise CatalogError(f"{where}: {error}") from None
    if not f.least <= value <= f.most or value == float("inf"):
        most = "finite" if f.most == float("inf") else f"at most {f.most:g}"
        raise CatalogError(f"{where}: {at} is {item['value']!r}, must be {most} and at least {f.least:g}")
    source = _look_up(item.get("source"), sources, where, at)
    return make_sourced(value, f.unit, str(item["value"]), source, str(item.get("note", "")))


def _look_up(key: Any, sources: dict[str, Source], where: str, at: str) -> Source:
    """The source called ``key``; a CatalogError with the nearest names otherwise."""
    if not isinstance(key, str) or key not in sources:
        near = ", ".join(nearest_names(str(key), sources)) or ", ".join(sources) or "none declared"
        raise CatalogError(f"{where}: {at}: no source {key!r} in [sources]; nearest: {near}")
    return sources[key]


def _check_type(kind: type, item: Any, where: str, at: str) -> Any:
    if not isinstance(item, kind):
        raise CatalogError(f"{where}: {at} expected a {'table' if kind is dict else 'list'}")
    return item
