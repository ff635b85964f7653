"""What answers share: how they show themselves in a terminal and in a notebook, and their forms as JSON and as tables.

A page is written by the room of reports, which reads every room of answers; an answer knows that room only by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ironlaw.errors import import_extra

SCHEMA_VERSION = 2  # of the JSON of answers and errors
_WRITER = "ironlaw.report.notebook"


def writer() -> Any:
    """The module that writes answers."""
    return import_module(_WRITER)


class Shown:
    """An answer. Its text is the first lines of its page; a notebook shows it as a small table."""

    def __repr__(self) -> str:
        return str(writer().text(self))

    def _repr_html_(self) -> str:
        return str(writer().html(self))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle: dict[str, Any] = writer().mime_bundle(self, include, exclude)
        return bundle

    def figures(self) -> list[str]:
        """The names of the figures that the answer has."""
        return list(writer().figures(self))

    def figure(self, name: str = "") -> Any:
        """A figure of the answer by its name, by default the first: a notebook draws it, ``save`` writes it to a file."""
        return writer().figure(self, name)

    def to_dict(self, explain: bool = False) -> Any:
        """The answer as plain data, the same that ``--json`` prints; ``explain`` adds formula, inputs and sources of every term."""
        return writer().data(self, explain)

    def to_json(self, explain: bool = False) -> str:
        """The text that ``--json`` prints."""
        import json

        return json.dumps(self.to_dict(explain), indent=1, allow_nan=False)

    def to_markdown(self, table: str = "") -> str:
        """The tables as Markdown; ``table`` names one."""
        return str(writer().markdown(self, table))

    def to_csv(self, table: str = "") -> str:
        """The tables as CSV: SI values, units in the headings; ``table`` names one."""
        return str(writer().csv(self, table))


class Columns:
    """Something with columns of equal length, which tools for tables read: pandas, polars, pyarrow, DuckDB."""

    def to_columns(self) -> Mapping[str, list[Any]]:
        """The values of every column by name; None where a row has none."""
        raise NotImplementedError

    def column_units(self) -> Mapping[str, str]:
        """The unit of every column; "" for texts and pure numbers."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """A pandas DataFrame; ``attrs["units"]`` has the unit of each column."""
        pandas = import_extra("pandas", "pandas", "to_pandas()")
        frame = pandas.DataFrame(dict(self.to_columns()))
        frame.attrs["units"] = dict(self.column_units())
        return frame

    def to_arrow(self) -> Any:
        """A pyarrow Table; the metadata of a field has its unit."""
        arrow = import_extra("pyarrow", "tables", "to_arrow()")
        table = arrow.table({name: _one_type(values) for name, values in self.to_columns().items()})
        units = self.column_units()
        return table.cast(
            arrow.schema([field.with_metadata({"unit": units[field.name]} if units[field.name] else None) for field in table.schema])
        )

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        return self.to_arrow().__dataframe__(nan_as_null, allow_copy)


def _one_type(values: list[Any]) -> list[Any]:
    """The values of a column as values of one type: numbers as floats where some are no integers, other mixtures as texts."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) < 2:
        return values
    make = float if kinds <= {int, float} else str
    return [None if value is None else make(value) for value in values]
