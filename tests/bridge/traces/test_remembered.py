"""What a restart must not lose of an entity: written down and read back, or refused."""

from __future__ import annotations

import pytest

from bridge.traces.remembered import RememberedEntity
from keys.errors import KeysError
from tests.bridge.traces.test_tracer import Entity


@pytest.mark.parametrize("cut", [0, 1, 2, 40, 200, -1])
def test_a_damaged_record_is_refused(cut: int) -> None:
    pump = Entity()
    pump.register()
    pump.authorise()
    ((_, record),) = pump.tracer.records()
    assert record is not None
    data = record.encode()
    assert RememberedEntity.decode(data) == record
    with pytest.raises(KeysError):
        RememberedEntity.decode(data[:cut])
    with pytest.raises(KeysError):
        RememberedEntity.decode(bytes([99]) + data[1:])
    assert "holder" not in repr(record)
