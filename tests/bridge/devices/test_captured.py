"""Sessions of real software, replayed at the pace at which they came: how its devices stand at the end."""

from __future__ import annotations

import pytest

from bridge.devices.life_evidence import DeviceHealth
from bridge.devices.rules import DeviceRules
from bridge.traces.kinds import TraceKind
from tests.bridge.devicesite import Site
from tests.captured import NAMES, Session


def replayed(session: Session) -> Site:
    site = Site(DeviceRules(clients=(), sparkplug_host="gate"))
    began, open_ = site.now, set[int]()
    for at, number, connection, sent in session.events():
        site.run(max(0.0, began + at - site.now))
        client = connection.client or f"auto-{number}"
        if sent is not None:
            site.publish(client, sent.topic, sent.payload)
        elif number not in open_:
            open_.add(number)
            site.connect(client, settled=False)
        else:
            if connection.will is not None:
                site.publish(client, connection.will.topic, connection.will.payload, will=True)
            site.lose(client, clean=connection.is_clean)
    site.run(30)
    return site


@pytest.mark.parametrize("name", NAMES)
def test_devices_of_a_captured_session_end_as_they_did(name: str) -> None:
    session = Session.load(name)
    site = replayed(session)
    for device, health in session.devices.items():
        known = site.devices.device(device)
        assert known is not None, device
        assert known.told is DeviceHealth(health), device
        kinds = site.kinds(device)
        assert kinds[0] is TraceKind.JOIN, "it lived"
        assert kinds.count(TraceKind.FAILED) == (health == "failed"), "and was told dead no more than once"
    assert site.commands == [], "no real node was asked for a rebirth"


def test_there_are_ten_sessions_each_of_which_says_something() -> None:
    assert len(NAMES) >= 10
    for name in NAMES:
        assert Session.load(name).published(), name
