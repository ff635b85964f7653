"""Find the accelerator of the catalogue for the device name in a trace. An uncertain name is unknown, never guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.records import Accelerator
from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import UnknownNameError, nearest_names
from ironlaw.measure.read.toml import shipped

_OTHER_PART = 0.05  # a larger difference in the number of multiprocessors means another product or a slice
_VENDORS = re.compile(r"^(nvidia|amd instinct|amd|tesla|intel)\s+", re.I)


@dataclass(frozen=True)
class Device:
    """The device of a trace: its record and how it was found, or no record and the reason."""

    record: Accelerator | None
    how: str
    warning: Caution | None = None


def device_named(name: str, properties: Mapping[str, Any], on: str | None = None, folders: tuple[str, ...] = ()) -> Device:
    """The accelerator of a trace: ``on`` if given (an unknown name is refused), else from the trace.

    ``properties`` are the recorded properties of the device (totalGlobalMem, numSms), or of a trace that has them under "device".
    """
    inner = properties.get("device", properties)
    recorded: Mapping[str, Any] = inner if isinstance(inner, Mapping) else {}
    if on is not None:
        return Device(load.record("accelerators", on, folders), f"--on {on}", _warn_of_other_device(on, name, recorded, folders))
    record, why = _find_in_catalogue(name, recorded, folders)
    if record is None:
        return Device(None, "", caution("unknown-device", why=why, nearest=_nearest(name, folders)))
    count, accelerator = _number(recorded, "numSms"), load.record("accelerators", record, folders)
    expected = accelerator.sm_count
    if count and expected and abs(count - expected.value) > _OTHER_PART * expected.value:
        return Device(None, "", caution("other-product", device=name, usual=expected.value, multiprocessors=count))
    return Device(accelerator, why)


def _find_in_catalogue(name: str, properties: Mapping[str, Any], folders: tuple[str, ...]) -> tuple[str | None, str]:
    """The name of the record and how it was found, or None and the reason."""
    if not name.strip():
        for rule in shipped("devices.toml")["nameless"]:
            if _applies(rule, properties):
                return str(rule["is"]), "the trace has no device name; it records the memory and the multiprocessors of this one"
        return None, "the trace has no device name"
    for pattern, rule in _rules():
        if pattern.search(name[:200]) and _applies(rule, properties):
            if "unknown" in rule:
                return None, f"device {name[:200]!r}: {rule['unknown']}"
            return str(rule["is"]), f"the trace names {name[:200]!r}"
    plain = _VENDORS.sub("", name[:200])
    for spelling in (name[:200], plain):  # records and spellings of the user's catalogue
        try:
            record = load.resolve("accelerators", spelling, folders)
            return record if _is_exact_name(spelling, folders) else None, f"the trace names {name[:200]!r}"
        except UnknownNameError:
            continue
    return None, f"device {name[:200]!r} is not in the catalogue"


def _is_exact_name(spelling: str, folders: tuple[str, ...]) -> bool:
    """Whether a spelling is exactly the name of a record or one of its aliases."""
    folded = load.fold_name(spelling)
    return folded in load.names("accelerators", folders) or folded in load.aliases(folders)["accelerators"]


def _applies(rule: Mapping[str, Any], properties: Mapping[str, Any]) -> bool:
    """Whether the memory and the multiprocessors of a device satisfy a rule."""
    memory, count = _number(properties, "totalGlobalMem"), _number(properties, "numSms")
    if "memory_over" in rule and not (memory and memory > rule["memory_over"]):
        return False
    if "memory_under" in rule and not (memory and memory < rule["memory_under"]):
        return False
    if "warp" in rule and _number(properties, "warpSize") != rule["warp"]:
        return False
    return "multiprocessors" not in rule or count == rule["multiprocessors"]


def _warn_of_other_device(on: str, name: str, properties: Mapping[str, Any], folders: tuple[str, ...]) -> Caution | None:
    """A warning if the trace names another device than --on."""
    record, _ = _find_in_catalogue(name, properties, folders)
    chosen = load.resolve("accelerators", on, folders)
    return caution("other-device", on=on, device=name, accelerator=record) if record is not None and record != chosen else None


def _nearest(name: str, folders: tuple[str, ...]) -> str:
    near = nearest_names(_VENDORS.sub("", name[:200]), load.names("accelerators", folders)) if name.strip() else []
    return f" (nearest: {', '.join(near)})" if near else ""


def _number(properties: Mapping[str, Any], key: str) -> float:
    value = properties.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e18 else 0.0


@cache
def _rules() -> tuple[tuple[re.Pattern[str], dict[str, Any]], ...]:
    return tuple((re.compile(item["match"]), item) for item in shipped("devices.toml")["device"])
