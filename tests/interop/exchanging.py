"""What the tests of Paho's cases share: a client that completes its handshakes, a broker whose clock they put forward.

`serving_cases` is a broker on loopback sockets with an access list that refuses one filter and a keep-alive of its own,
as the cases presuppose. Nothing sleeps.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gateway.base.config import parse
from gateway.mqtt5.packets import Disconnect, Packet, Properties, PubAck, PubComp, Publish, PubRec, PubRel, Version
from tests.conformance.harness import SteeredBroker
from tests.gateway.harness import LOOPBACK, Wire, cut_all

KEEP_ALIVE_S = 60
FORBIDDEN = "test/nosubscribe"


@contextlib.asynccontextmanager
async def serving_cases(directory: Path) -> AsyncIterator[SteeredBroker]:
    """The broker that the cases presuppose."""
    acl = directory / "acl"
    acl.write_text(f"topic readwrite #\ntopic readwrite $TopicA/#\ntopic deny {FORBIDDEN}\n")
    content: dict[str, Any] = {
        "listeners": LOOPBACK,
        "allow_anonymous": True,
        "sys_interval": 0,
        "plugins": {"gateway.auth.acl_file.AclFilePlugin": {"acl_file": str(acl)}},
        "limits": {"keep_alive_max_s": KEEP_ALIVE_S},
    }
    broker = SteeredBroker(parse(content))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.shutdown()
        cut_all()


async def joined(broker: SteeredBroker, client_id: str, version: Version = Version.V5, **fields: Any) -> Wire:
    """A client that was accepted."""
    wire = await Wire.connect(broker, client_id, version, **fields)
    assert wire.connack is not None
    assert wire.connack.code == 0, wire.connack
    return wire


def passes(broker: SteeredBroker, seconds: float) -> None:
    """Time passes for the broker, and what is due happens."""
    broker.skew_s += seconds
    broker.do_due_work(broker.now())


def _answer(packet: Packet) -> Packet | None:
    match packet:
        case Publish(qos=1):
            return PubAck(packet.packet_id)
        case Publish(qos=2):
            return PubRec(packet.packet_id)
        case PubRec():
            return PubRel(packet.packet_id)
        case PubRel():
            return PubComp(packet.packet_id)
    return None


async def heard(wire: Wire) -> list[Publish]:
    """The messages that came until now, with every handshake of this client completed in both directions."""
    messages: list[Publish] = []
    while True:
        packets = await wire.barrier()
        messages += [packet for packet in packets if isinstance(packet, Publish)]
        answers = [answer for packet in packets if (answer := _answer(packet)) is not None]
        if not answers:
            return messages
        wire.send(*answers)


async def leave(wire: Wire, **properties: Any) -> None:
    """End the connection as a client does that has nothing more to say."""
    wire.send(Disconnect(0, Properties(**properties)))
    assert await wire.closed() == []


async def farewell(wire: Wire) -> int:
    """The code of the DISCONNECT with which the broker ends the connection."""
    *_, last = await wire.closed()
    assert isinstance(last, Disconnect), last
    return last.code
