"""Base of classes whose fields are set once. A subclass is written like a frozen dataclass, and is cheap to define.

``dataclass`` compiles methods for every class, which for the classes of one estimate takes as long as half of its laws
(docs/adr/0003). Here all subclasses share the methods below. Type checkers see a dataclass.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self, dataclass_transform


@dataclass_transform(frozen_default=True, eq_default=False)
class Frozen:
    """An object with the fields that its class annotates; it equals nothing but itself, so it may hold arrays and be a key.

    >>> class Point(Frozen):
    ...     x: float
    ...     y: float = 0.0
    >>> Point(3.0).replace(y=1.0).y
    1.0
    """

    fields: ClassVar[dict[str, Any]] = {}  # name -> default, in order
    required: ClassVar[frozenset[str]] = frozenset()  # fields without a default

    def __init_subclass__(cls) -> None:
        own = cls.__dict__.get("__annotations__", {})  # noqa: RUF063 - importing inspect costs start-up
        cls.fields = {**cls.fields, **{name: cls.__dict__.get(name) for name in own}}
        cls.required = cls.required | {name for name in own if name not in cls.__dict__}

    def __init__(self, *values: Any, **named: Any) -> None:
        given = dict(zip(self.fields, values, strict=False), **named)
        if len(given) < len(values) + len(named) or not self.required <= given.keys() <= self.fields.keys():
            must, has = ", ".join(sorted(self.required)), ", ".join(self.fields)
            raise TypeError(f"{type(self).__name__} has the fields {has}, and must be given {must}; got {', '.join(given)}")
        self.__dict__.update(self.fields, **given)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return type(self)(**{name: self.__dict__[name] for name in self.fields} | changes)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is frozen")


def same_but(one: Frozen, other: Frozen, *names: str) -> bool:
    """True where two objects of one class have equal fields, those of ``names`` aside; such objects and records in fields too.

    >>> class Point(Frozen):
    ...     x: float
    ...     y: float
    >>> same_but(Point(1.0, 2.0), Point(1.0, 3.0), "y"), same_but(Point(1.0, 2.0), Point(1.0, 3.0))
    (True, False)
    """
    return all(_same(getattr(one, name), getattr(other, name)) for name in one.fields if name not in names)


def _same(one: Any, other: Any) -> bool:
    """True for equal values; fields that hold arrays are equal where they are one object."""
    if one is other:
        return True
    fields = getattr(type(one), "fields", None)  # of such an object, or of a record of the catalogue, which a question may have changed
    if isinstance(fields, dict):
        return type(one) is type(other) and all(_same(getattr(one, name), getattr(other, name)) for name in fields)
    return bool(one == other) if getattr(one, "ndim", 0) == 0 else False
