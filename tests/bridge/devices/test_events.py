"""What happens to devices: a message of a device shows in no log, and is its own unless it is said to be its will."""

from __future__ import annotations

from bridge.devices.events import Published, Tell
from bridge.traces.kinds import TraceKind


def test_what_a_device_publishes_does_not_show() -> None:
    assert repr(Published("plug", "t", b"secret")) == "Published(client='plug', topic='t', will=False)"


def test_what_is_told_is_no_change_unless_it_is_said() -> None:
    assert not Tell("plug", TraceKind.ALLS_WELL, {}).change
