"""Somebody who records every byte of every link today, and breaks X25519 later, reads nothing.

TLS falls with X25519, so the recorder has all wires in clear: headers, content, and all shares of each data key. The
epoch keys, which travel in boxes, are missing.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest

from bridge.contract.machine import Subscribed, Wire
from bridge.node import GatewayNode
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, check_share, from_property, open_key
from keys.epochs import KeyName
from keys.errors import BadContent, BadFrame, WrongEpochKey
from keys.records import Records
from keys.requests import KeyAnswer, Outputs, answer_info, decode_outputs
from keys.signedheader import header_of
from tests.keys.helpers import secret_behind, without_x25519
from tests.sim.keyservers import SERVERS, Service, key_world
from tests.sim.test_secrecy import Recorder, pool
from tests.sim.world import NOW, Traffic

GATEWAYS = ("site", "control")


def outputs(service: Service, wires: Iterable[Wire]) -> Iterator[Outputs]:
    """What boxes of key servers hold that open with X25519 keys alone."""
    names = {service.overlay.certificate(name).party_id: name for name in SERVERS}
    thieves = [without_x25519(service.world.identities[name]) for name in GATEWAYS]
    for wire in wires:
        try:
            answer = KeyAnswer.decode(wire.payload)
        except BadFrame:
            continue
        for thief in thieves:
            try:
                yield from decode_outputs(thief.open(answer.box, answer_info(names[answer.server], answer.request)))
            except (BadFrame, BadContent):
                continue


def epoch_keys(service: Service, wires: Iterable[Wire]) -> dict[KeyName, bytes]:
    """The keys of which an output of every set was in these boxes."""
    found: dict[KeyName, dict[int, bytes]] = {}
    for each in outputs(service, wires):
        found.setdefault(each.name, {}).update(each.outputs)
    sets = {number for outputs in found.values() for number in outputs}
    keys = {}
    for name, parts in found.items():
        if parts.keys() == sets:
            total = 0
            for part in parts.values():
                total ^= int.from_bytes(part)
            keys[name] = total.to_bytes(32)
    return keys


def opened(service: Service, keys: dict[KeyName, bytes], wires: list[Wire]) -> set[bytes]:
    """The payloads that these epoch keys and all recorded shares open."""
    found = set()
    hops = service.overlay.hops_between(1, 2)
    known = pool(wires)
    for wire in wires:
        properties = dict(wire.properties)
        if PROPERTY_HEADER not in properties or not wire.payload:
            continue
        header = header_of(from_property(properties[PROPERTY_HEADER]))
        key, shares = known[header.key_id]
        level = [share for label, share in shares.items() if len(label) == 1]
        secret = secret_behind(level, hops[:1], lambda place, value, key=key: check_share(key, place, value))
        try:
            data_key = open_key(key, secret, keys.get(key.epoch_key))
            content = data_key.open(header.prefix(), header.sequence, wire.topic, wire.payload)
        except (WrongEpochKey, BadContent):
            continue
        found |= set(Records.decode(content).payloads())
    return found


@pytest.mark.parametrize("is_quantum_safe", [True, False])
def test_who_breaks_x25519_later_reads_all_of_a_classical_overlay_and_nothing_of_a_safe_one(is_quantum_safe: bool):
    service = key_world(1, is_quantum_safe=is_quantum_safe)
    kernel = service.kernel(random.Random(1))
    recorders = {name: Recorder(node) for name, node in kernel.nodes.items()}
    kernel.nodes.update(recorders)
    assert isinstance(recorders["site"].machine, GatewayNode)
    traffic = Traffic("site")
    kernel.plan_event(NOW + 2, "control", Subscribed("plant/#"))
    payloads = {str(number).encode() for number in range(20)}
    for number in range(20):
        traffic.publish(kernel, NOW + 3 + 5 * number, "plant/t", str(number).encode())
    trace = kernel.run(NOW + 130)
    assert {d.publication.payload for d in trace.delivered["control"]} == payloads
    wires = [wire for recorder in recorders.values() for wire in recorder.wires]
    assert any(PROPERTY_KEY in dict(wire.properties) for wire in wires)
    keys = epoch_keys(service, wires)
    if is_quantum_safe:
        assert not list(outputs(service, wires))
        assert not opened(service, keys, wires)
    else:
        assert len(keys) >= 3
        assert all(key == service.right(name) for name, key in keys.items())
        assert opened(service, keys, wires) == payloads
