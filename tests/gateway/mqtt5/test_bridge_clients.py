"""How a client says that it is a bridge, and what a 3.x bridge is granted beside what it asks."""

from __future__ import annotations

from gateway.mqtt5.bridge_clients import MARK, as_bridge, bridge_name
from gateway.mqtt5.packets import Connect, Properties, Subscribe, Subscription, Version


def test_a_bridge_names_its_broker_in_mqtt_5_and_nobody_in_3() -> None:
    assert bridge_name(Connect("c", properties=Properties(user=((MARK, "a"),)))) == "a"
    assert bridge_name(Connect("c", Version.V311, is_bridge=True)) == ""
    assert bridge_name(Connect("c", Version.V311)) is None
    assert bridge_name(Connect("c", properties=Properties(user=(("other", "a"),)))) is None


def test_a_3_bridge_gets_nothing_of_its_own_and_retain_as_published_but_a_shared_filter_stays() -> None:
    asked = Subscribe(1, (Subscription("a/#", 1), Subscription("$share/g/a", 1)))
    assert as_bridge(asked).subscriptions == (
        Subscription("a/#", 1, no_local=True, retain_as_published=True),
        Subscription("$share/g/a", 1),
    )
