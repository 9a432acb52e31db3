"""Names of columns as Spark's SQL takes them."""

from __future__ import annotations

import pytest

from spark_ingest.payloads.schema import quoted


@pytest.mark.parametrize(("name", "wanted"), [("value", "`value`"), ("a b", "`a b`"), ("a`b", "`a``b`"), ("", "``")])
def test_a_name_is_quoted_and_its_own_quotes_are_doubled(name: str, wanted: str) -> None:
    assert quoted(name) == wanted
