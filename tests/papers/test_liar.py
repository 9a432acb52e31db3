"""The replica that lies when it is told to, and only then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bridge.contract.machine import Effect, Event, Received, Send, Tick, Wire
from gateway.demo.logs import (
    read_lines,
)
from keys.envelope import PROPERTY_HEADER, PROPERTY_SHARES, to_property
from keys.identity import Identity
from keys.message import MessageHeader, Mode
from keys.sharetree import Place, Share, encode_shares
from keys.signedheader import sign_header
from papers.liar import Liar


class Forwarder:
    """Sends on what it receives, unaltered."""

    next_deadline: float | None = None

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        return [Send("r2a", event.wire)] if isinstance(event, Received) else []


def _wire(publisher: Identity, sequence: int, shares: bool) -> Wire:
    header = MessageHeader(publisher.party_id, b"k" * 16, sequence, 0, 1, 0, 1, False, False, Mode.COPIES, (b"d" * 32,))
    properties = [(PROPERTY_HEADER, to_property(sign_header(publisher, header, "token").encode()))]
    if shares:
        properties.append((PROPERTY_SHARES, to_property(encode_shares([Share((Place(1, 1, 1),), (), b"s" * 32)]))))
    return Wire("token", b"sealed content", properties=tuple(properties))


def test_the_liar_is_honest_until_told_and_after_and_alters_shares_and_content_between(tmp_path: Path) -> None:
    liar = Liar(Forwarder(), 1, tmp_path / "saw.jsonl")
    wire = _wire(Identity.generate(b"p" * 32), 1, shares=True)

    def forwarded() -> Wire:
        (send,) = liar.handle(Received("site", wire), 0.0)
        assert isinstance(send, Send)
        return send.wire

    assert forwarded() == wire
    assert not list(read_lines(tmp_path / "saw.jsonl"))
    liar.lying = True
    lied = forwarded()
    assert lied.payload != wire.payload
    assert dict(lied.properties)[PROPERTY_SHARES] != dict(wire.properties)[PROPERTY_SHARES]
    assert dict(lied.properties)[PROPERTY_HEADER] == dict(wire.properties)[PROPERTY_HEADER]
    liar.handle(Tick(), 0.0)
    liar.lying = False
    assert forwarded() == wire
    (line,) = read_lines(tmp_path / "saw.jsonl")
    assert bytes.fromhex(line["content"]) == wire.payload


def test_no_command_leads_to_the_liar() -> None:
    code = (
        "import sys, gateway.cli, gateway.party, gateway.broker.edge_broker, gateway.checking.check; "
        "print([name for name in sys.modules if 'papers.sim' in name or 'gateway.demo' in name])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.strip() == "[]"
