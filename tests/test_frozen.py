"""Classes with fixed fields: what they take, what they refuse, and that a copy is made of their fields alone."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import cached_property

import pytest

from ironlaw.frozen import Frozen


class Shape(Frozen):
    width: float
    height: float = 2.0
    area: Callable[[float, float], float] = lambda width, height: width * height

    @cached_property
    def size(self):
        return self.area(self.width, self.height)


class Solid(Shape):
    depth: float = 1.0


def test_fields_are_given_by_position_or_by_name_and_defaults_fill_the_rest():
    assert (Shape(3.0).width, Shape(3.0).height) == (3.0, 2.0)
    assert (Shape(3.0, height=5.0).size, Shape(width=3.0).size) == (15.0, 6.0)  # a default that is a function is no method


def test_a_subclass_has_the_fields_of_its_base():
    assert list(Solid.fields) == ["width", "height", "area", "depth"]
    assert Solid(3.0, depth=4.0).depth == 4.0
    assert Solid.required == {"width"}


@pytest.mark.parametrize(("values", "named"), [((), {}), ((1.0, 2.0, max, 4.0), {}), ((1.0,), {"width": 2.0}), ((1.0,), {"colour": 2.0})])
def test_a_missing_unknown_or_doubled_value_is_refused(values, named):
    with pytest.raises(TypeError, match="Shape has the fields width, height, area, and must be given width"):
        Shape(*values, **named)


def test_a_field_cannot_be_set_again():
    with pytest.raises(AttributeError, match=r"Shape\.width is frozen"):
        Shape(3.0).width = 4.0


def test_a_copy_has_the_fields_that_change_and_computes_anew():
    one = Shape(3.0)
    assert one.size == 6.0
    assert one.replace(width=4.0).size == 8.0
    with pytest.raises(TypeError):
        one.replace(size=4.0)


def test_objects_equal_only_themselves_and_may_be_keys():
    one, other = Solid(3.0), Solid(3.0)
    assert one != other
    assert {one: 1, other: 2}[one] == 1


def test_objects_are_copied_and_stored():
    one = Solid(3.0, area=max)
    assert copy.deepcopy(one).width == pickle.loads(pickle.dumps(one)).width == 3.0
