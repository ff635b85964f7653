"""The family that comes nearest to a ``config.json`` of an unknown ``model_type``, and the fields of the file that it does not know."""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.model_types import READERS
from ironlaw.catalog.config_json.unread import unread_fields
from ironlaw.errors import InputError, UnsupportedError, quote

SHOWN = 3  # fields that a refusal names


def unknown_type(config: dict[str, Any], where: str, prefix: str = "") -> UnsupportedError:
    """The error for a file whose type has no reader: every reader reads it, and that which leaves the fewest fields unread is named."""
    from difflib import SequenceMatcher

    stated = str(config.get("model_type"))
    found: list[tuple[int, float, str, list[str]]] = []
    for name, reader in READERS.items():
        fields = Fields(config, where, prefix)
        try:
            reader(fields)
        except (InputError, UnsupportedError):
            continue
        unread = unread_fields(fields)
        alike = SequenceMatcher(None, name, stated).ratio()
        found.append((len(unread), -alike, name, unread))
    if not found:
        return UnsupportedError(
            f"{where}: unknown model_type {quote(stated)}, and no family reads its fields; the {len(READERS)} types that are read"
            " are listed in docs/how-to/add-a-model.md"
        )
    _, _, near, unread = min(found)
    if not unread:
        told = f"{near} has all its fields: with model_type {near} the file is read, rightly if its layers are of that family"
    else:
        shown = ", ".join(f"'{name}' = {quote(_value(config, name, prefix))}" for name in unread[:SHOWN])
        more = f" and {len(unread) - SHOWN} more" if len(unread) > SHOWN else ""
        told = f"its parts come nearest to {near}, which does not have {shown}{more}"
    return UnsupportedError(f"{where}: unknown model_type {quote(stated)}; {told}")


def _value(config: dict[str, Any], name: str, prefix: str) -> Any:
    value: Any = config
    for part in name.removeprefix(prefix).split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
