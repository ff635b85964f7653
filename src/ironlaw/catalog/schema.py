"""Classes whose annotations are the schema of a TOML file: keyword-only, frozen, cheap to define.

``dataclass`` would do the same, but defining twenty of them takes a tenth of the command's start-up time (docs/adr/0003).
Type checkers see these as dataclasses.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self, dataclass_transform

MISSING: Any = object()


class Field:
    """One key of a schema: annotation, default, and form of its value in TOML."""

    __slots__ = ("default", "factory", "least", "many", "most", "name", "nested", "table", "type", "unit", "words")

    def __init__(
        self,
        default: Any = MISSING,
        factory: Any = None,
        unit: str = "",
        table: bool = False,
        many: bool = False,
        nested: Any = None,
        least: float = 0.0,
        most: float = math.inf,
        words: tuple[str, ...] = (),
    ) -> None:
        self.name, self.type = "", ""
        self.default, self.factory = default, factory
        self.unit, self.table, self.many, self.nested, self.least, self.most = unit, table, many, nested, least, most
        self.words = words

    @property
    def required(self) -> bool:
        """True where a record must have the key."""
        return self.default is MISSING and self.factory is None

    def default_value(self) -> Any:
        """The value of an absent key."""
        return self.factory() if self.factory else self.default


def quantity(unit: str, required: bool = True, least: float = 0.0, most: float = math.inf) -> Any:
    """A sourced number in SI ``unit`` from ``least`` to ``most``; an optional one is None when absent."""
    return Field(MISSING if required else None, unit=unit, least=least, most=most)


def quantities(unit: str, least: float = 0.0, most: float = math.inf) -> Any:
    """A table of sourced numbers in SI ``unit`` by name, each from ``least`` to ``most``."""
    return Field(factory=dict, unit=unit, table=True, least=least, most=most)


def signed(default: Any = MISSING) -> Any:
    """A plain number that may be below zero."""
    return Field(default, least=-math.inf)


def word(*words: str, default: Any = MISSING) -> Any:
    """One of some words."""
    return Field(default, words=words)


def plain_table() -> Any:
    """A table of strings by name."""
    return Field(factory=dict)


def table_of(cls: type) -> Any:
    """A table of records of ``cls`` by name."""
    return Field(factory=dict, table=True, nested=cls)


def list_of(cls: type) -> Any:
    """An array of tables, each a record of ``cls``."""
    return Field(factory=tuple, many=True, nested=cls)


def record_of(cls: type) -> Any:
    """A table that is a record of ``cls``."""
    return Field(nested=cls)


def optional_record(cls: type) -> Any:
    """A table that is a record of ``cls``, None when absent."""
    return Field(None, nested=cls)


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    field_specifiers=(Field, quantity, signed, word, plain_table, quantities, table_of, list_of, record_of, optional_record),
)
class Schema:
    """Base of all record classes."""

    fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls) -> None:
        fields = dict(cls.fields)
        for name, annotation in cls.__dict__.get("__annotations__", {}).items():  # noqa: RUF063 - importing inspect costs start-up
            default = cls.__dict__.get(name, MISSING)
            field = default if isinstance(default, Field) else Field(default)
            field.name, field.type = name, str(annotation)
            fields[name] = field
        cls.fields = fields

    def __init__(self, **values: Any) -> None:
        for name in values:
            if name not in self.fields:
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
        for name, field in self.fields.items():
            value = values.get(name, MISSING)
            if value is MISSING:
                if field.required:
                    raise TypeError(f"{type(self).__name__} needs {name!r}")
                value = field.default_value()
            self.__dict__[name] = value

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return type(self)(**{**self.__dict__, **changes})

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is frozen")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={self.__dict__[n]!r}' for n in self.fields)})"
