"""What is counted as it passes: packets, publications and their bytes, and figures of sessions that are no more."""

from __future__ import annotations

from dataclasses import fields

import pytest

from gateway.mqtt5.actions import SessionFigures
from gateway.mqtt5.packets import PingReq, Publish
from gateway.operation.traffic import Traffic


@pytest.mark.parametrize(
    ("packets", "counted"),
    [
        ([], (0, 0, 0)),
        ([PingReq()], (1, 0, 0)),
        ([Publish("t", b"abc")], (1, 1, 3)),
        ([PingReq(), Publish("t", b"abc"), Publish("t", b""), PingReq()], (4, 2, 3)),
        ([PingReq(), PingReq()], (2, 0, 0)),
    ],
)
def test_a_read_is_counted_by_packets_publications_and_their_bytes(
    packets: list[PingReq | Publish], counted: tuple[int, int, int]
) -> None:
    traffic = Traffic()
    traffic.read(packets)
    assert (traffic.packets_received, traffic.publish_received, traffic.publish_bytes_received) == counted
    traffic.read(packets)
    assert traffic.packets_received == 2 * counted[0]


def test_figures_of_sessions_that_ended_are_added_up() -> None:
    traffic = Traffic()
    names = [field.name for field in fields(SessionFigures)]
    for amount in (1, 10):
        traffic.session_ended(SessionFigures(**{name: amount * place for place, name in enumerate(names, 1)}))
    assert [getattr(traffic.ended, name) for name in names] == [11 * place for place in range(1, len(names) + 1)]
