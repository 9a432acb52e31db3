"""Late forms: within bounds of number and bytes, the oldest goes first."""

from __future__ import annotations

from typing import Any, cast

import pytest

from spark_ingest.receiving import late as module
from spark_ingest.receiving.late import Late
from spark_ingest.receiving.sealings import Form


class Header:
    frame = b"ff"


class Sealing:
    def __init__(self, size: int = 0) -> None:
        self.content: bytes | None = bytes(size) if size else None
        self.admitted, self.told, self.topic = Header(), ("told", ""), "topic"  # 2 + 4 + 5 bytes


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LATE_KEPT", 3)
    monkeypatch.setattr(module, "LATE_BYTES", 100)


def form(size: int = 0) -> Any:
    return cast(Form, Sealing(size))


def test_the_oldest_goes_when_there_are_too_many() -> None:
    late, forms = Late(), [form() for _ in range(5)]
    gone = [late.keep_form(one) for one in forms]
    assert gone == [[], [], [], [forms[0]], [forms[1]]]
    assert list(late) == forms[2:]
    assert len(late) == 3


def test_large_ones_push_out_as_many_as_they_need_and_perhaps_themselves() -> None:
    late, small, large, middle, last, huge = Late(), form(), form(70), form(8), form(89), form(90)
    late.keep_form(small)
    assert late.keep_form(large) == []
    assert late.keep_form(middle) == [small], "81 and 19 bytes are just not too many"
    assert late.keep_form(last) == [large, middle]
    assert late.keep_form(huge) == [last, huge]
    assert len(late) == 0


def test_one_that_has_grown_is_counted_as_it_is_now_and_is_the_youngest() -> None:
    late, first, second = Late(), form(10), form(10)
    late.keep_form(first)
    late.keep_form(second)
    first.content = bytes(40)
    assert late.keep_form(first) == []
    assert list(late) == [second, first]
    assert late.keep_form(form(20)) == [second], "21 + 51 + 31 bytes are too many"


def test_what_is_dropped_counts_no_longer() -> None:
    late, one = Late(), form(80)
    late.keep_form(one)
    assert late.drop_form(one)
    assert not late.drop_form(one)
    assert late.keep_form(form(80)) == []
    assert len(late) == 1
