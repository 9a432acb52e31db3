"""Errors of `keys`: whose fault each was, and that no message can carry a secret by accident."""

from __future__ import annotations

import inspect
import re

import pytest

from keys import errors
from keys.errors import KeysError, OurFault

ALL = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, KeysError)]


def test_only_our_own_fault_is_a_value_error() -> None:
    assert [one for one in ALL if issubclass(one, ValueError)] == [OurFault]


@pytest.mark.parametrize("one", [one for one in ALL if one is not KeysError], ids=lambda one: one.__name__)
def test_no_error_is_a_kind_of_another_so_that_each_is_caught_alone(one: type[KeysError]) -> None:
    assert one.__bases__[0] is KeysError
    assert one.__doc__


def test_the_tree_names_them_all() -> None:
    drawn = set(re.findall("[├└]── (\\w+)", errors.__doc__ or ""))
    assert drawn == {one.__name__ for one in ALL} - {"KeysError"}
