"""Quantities as text: units by size, and numbers as they are read."""

from __future__ import annotations

import pytest

from ironlaw import units
from ironlaw.errors import UnitError


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.6e12, "J", "1 GWh"), (1.49e12, "J", "414 MWh"), (7.2e6, "J", "2 kWh"), (619.2e3, "J", "172 Wh"), (3600.0, "J", "1 Wh"),
        (12.0, "J", "12 J"), (199e3, "kg", "199 t"), (1.5, "kg", "1.5 kg"), (0.0827, "kg", "82.7 g"), (2e-6, "kg", "0.002 g"),
    ],
)  # fmt: skip
def test_energy_and_carbon_have_the_unit_of_their_size(value, unit, text):
    assert units.show(value, unit) == text


@pytest.mark.parametrize("value", [1e-9, 1e-3, 1.0, 1e3, 1e6, 1e9])
@pytest.mark.parametrize("unit", ["J", "kg", "s", "B"])
def test_no_amount_above_zero_is_shown_as_zero(value, unit):
    assert not units.show(value, unit).startswith("0 ")


@pytest.mark.parametrize("text", ["80 GB", "80GB", " 80  GB ", "80_000 MB", "8e10", "8e+10 B", "80 000MB"])
def test_a_quantity_in_its_spellings(text):
    assert units.parse(text, "B") == 80e9


@pytest.mark.parametrize("text", ["", "GB", "+80GB", "８０GB", "80 GBs", "--80GB", "nan", "inf"])
def test_what_is_no_quantity(text):
    with pytest.raises(UnitError):
        units.parse(text, "B")


def test_what_is_shown_is_read_again():
    for seconds in (1e-5, 0.5, 90.0, 3e4, 1e7):
        assert units.parse(units.show(seconds, "s", 12).replace(",", ""), "s") == pytest.approx(seconds)
