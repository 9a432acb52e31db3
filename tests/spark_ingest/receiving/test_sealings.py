"""A form as the spool keeps it: content only of what is believed."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bridge.document import RecordRights
from bridge.wire.admission import Admitted
from spark_ingest.receiving.sealings import UNVOUCHED, WHOLE, Form, State, call_each, record_of
from tests.keys.helpers import message_header

HEADER = message_header(b"k" * 16, sequence=7, qos=2, retain=True)


def form(**changes: object) -> Form:
    nobody: Any = cast(Any, None)
    admitted = Admitted(HEADER, b"frame", nobody, nobody, 0, True, RecordRights("plant/#", (), ("#",)), 0)
    made = Form(("told", "topic"), admitted, HEADER, "topic", 12.5, (HEADER.publisher, 7))
    made.content = b"content"
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_a_record_says_what_the_header_says() -> None:
    record = record_of(form())
    assert (record.publisher, record.sequence, record.key_id) == (HEADER.publisher, 7, b"k" * 16)
    assert (record.wire_topic, record.header, record.sealed, record.reason) == ("topic", b"frame", b"content", None)
    assert (record.qos, record.retain) == (2, True)
    assert (record.published_us, record.received_us) == (HEADER.time_ms * 1000, 12_500_000)


@pytest.mark.parametrize(("reason", "content"), [
    (None, b"content"), ("content", b"content"), (UNVOUCHED, None), (f"{UNVOUCHED}: nobody else brings it", None),
])  # fmt: skip
def test_what_nobody_vouches_for_is_a_row_without_content(reason: str | None, content: bytes | None) -> None:
    record = record_of(form(reason=reason))
    assert (record.sealed, record.reason) == (content, reason)


def test_content_and_keys_do_not_show() -> None:
    shown = repr(form(content=b"SECRET", acks=["ACK"])) + repr(record_of(form(content=b"SECRET")))
    assert "SECRET" not in shown
    assert "ACK" not in shown


def test_forms_are_compared_by_identity() -> None:
    assert form() != form()
    assert State.LATE not in WHOLE


def test_acknowledgements_are_called_in_order() -> None:
    called: list[int] = []
    call_each(lambda number=number: called.append(number) for number in range(3))  # type: ignore[misc]
    assert called == [0, 1, 2]
