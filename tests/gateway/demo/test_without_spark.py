"""`veilmq demo` without the packages of Spark: one line with the cure, before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from gateway import demo


@pytest.mark.parametrize("name", demo.SPARK_NEEDS)
def test_a_demo_without_spark_is_one_line(veilmq: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda asked: None if asked == name else object())
    monkeypatch.setattr(demo.tempfile, "mkdtemp", lambda **options: pytest.fail("something was made"))
    status, out, error = veilmq("demo")
    assert (status, out) == (2, "")
    assert error == f"veilmq: the demo needs Spark, and {name} is missing; pip install 'veilmq[spark]'\n"
