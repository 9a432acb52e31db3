"""What the events and effects of a tracing broker show in logs: who, and no topic, session or message."""

from __future__ import annotations

import pytest

from bridge.traces.events import AskThere, ClientGone, Interested, Registered, Registering, Relayed, Spoke
from keys.tracesession import Registration
from tests.bridge.traces.test_tracer import advertised

SECRET = b"topsecret"
HIDING = [
    Registering("client", SECRET), Spoke("client", SECRET, SECRET), Interested("client", SECRET, SECRET),
    Relayed(SECRET, SECRET), AskThere(SECRET, "topsecret/1", SECRET, "topsecret/2"),
]  # fmt: skip


@pytest.mark.parametrize("event", HIDING)
def test_whoever_reads_a_log_learns_no_topic_session_or_message(event: object) -> None:
    assert "topsecret" not in repr(event)


def test_who_did_it_shows() -> None:
    assert repr(ClientGone("client", clean=True)) == "ClientGone(client='client', clean=True)"
    assert "client" in repr(Registering("client", b""))


def test_a_registration_of_before_a_restart_came_from_no_client() -> None:
    assert Registered(Registration(b"", b"", 0), advertised()).client == ""
