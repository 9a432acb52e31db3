"""What a restart must not lose of an entity: written down and read back, or refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.traces.remembered import RememberedEntity
from keys.errors import BadFrame, KeysError
from keys.frames import number
from tests.bridge.traces.test_tracer import Entity


def remembered() -> RememberedEntity:
    pump = Entity()
    pump.register()
    pump.authorise()
    ((_, record),) = pump.tracer.records()
    assert record is not None
    return record


@pytest.mark.parametrize("cut", [0, 1, 2, 40, 200, -1])
def test_a_damaged_record_is_refused(cut: int) -> None:
    record = remembered()
    data = record.encode()
    assert RememberedEntity.decode(data) == record
    with pytest.raises(KeysError):
        RememberedEntity.decode(data[:cut])
    with pytest.raises(KeysError):
        RememberedEntity.decode(bytes([99]) + data[1:])
    with pytest.raises(BadFrame):
        RememberedEntity.decode(data + b"x")


def test_a_record_shows_none_of_its_keys() -> None:
    shown = repr(remembered())
    assert "holder=" not in shown
    assert " key=" not in shown
    assert "session=" not in shown
    assert "trace_key" not in shown


@pytest.mark.parametrize("held", [b'{"1":[9999,{}]}', b'{"1":7}', b'{"x":[1,{}]}', b'{"1":[1,7]}'])
def test_a_record_of_what_no_trace_says_is_refused(held: bytes) -> None:
    record = replace(remembered(), holds={})
    data = record.encode()
    assert data.endswith(number(2, 4) + b"{}")
    with pytest.raises(BadFrame, match="no trace says"):
        RememberedEntity.decode(data[:-6] + number(len(held), 4) + held)
