"""Replica, gateway and ingest job say the same of every wire: what one of them believes, no other refuses.

The wires are those of simulated overlays with liars in them, and each field of a header and of a key header altered,
signed anew by the publisher itself. What only one of the three has to say (statements, pulls) is not asked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from bridge.contract.batches import Numbered, packed
from bridge.contract.machine import Publication, Received, Wire
from bridge.document.policy import REFRESH_MESSAGES_MAX, Refresh, Scope
from bridge.document.wire_topics import retained_topic
from bridge.topology import Topology
from bridge.wire.pieces import PROPERTY_PART
from bridge.wire.statements import CONTROL_ROOT, KEYS_TOPIC
from keys.envelope import (
    PROPERTY_HEADER,
    PROPERTY_KEY,
    PROPERTY_SHARES,
    KeyHeader,
    MessageHeader,
    Mode,
    content_digest,
    make_key,
    sign_header,
    to_property,
)
from keys.epochs import Calendar, KeyName
from keys.errors import OurFault
from keys.identity import Identity
from keys.keyheader import KEY_DOMAIN, NO_KCV
from keys.sharetree import Hop, Place, Share, encode_shares
from keys.topictokens import retained_id
from papers.sim.adversary import Behaviour
from spark_ingest.opening.decode import Opener
from tests.bridge.helpers import wire_topic
from tests.seldom import in_turn
from tests.sim.judges import NOTHING, Judges, Verdicts, disagreements, without_shares
from tests.sim.placements import Recorder
from tests.sim.world import NOT_AFTER_MS, NOW, Traffic, World, make_world, subscribe

pytestmark = pytest.mark.invariant(10)

# ------------------------------------------------------------------------------------------- wires of liars


def recorded(
    seed: int, ways: Mapping[str, frozenset[Behaviour]], mode: Mode = Mode.COPIES
) -> tuple[World, list[tuple[float, str, Received]]]:
    """What a reader of region 2 and a replica of it received while replicas of both regions lied."""
    scopes = [Scope("plant/#", mode), Scope("open/#", Mode.PLAIN)]
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2}, scopes, seed)
    world.liars.update(ways)
    world.probability = 0.7
    rng = random.Random(seed)
    kernel = world.kernel(rng)
    seen: list[tuple[float, str, Received]] = []
    for member in ("control", "r2a"):
        kernel.nodes[member] = Noting(kernel.nodes[member], member, seen)
    subscribe(kernel, "control", "#")
    traffic = Traffic("site")
    for number in range(24):
        topic = ("plant/a", "open/b", "plant/c")[number % 3]
        payload = rng.randbytes((20, 1500)[number % 2])
        traffic.publish(kernel, NOW + 5 + number * 3, topic, payload, number % 3, retain=number % 8 == 7)
    kernel.run(NOW + 120)
    return world, seen


@dataclass
class Noting(Recorder):
    """A recorder that notes when, and for whom, in a list that it shares with others."""

    def __init__(self, machine: Any, member: str, seen: list[tuple[float, str, Received]]) -> None:
        super().__init__(machine)
        self._member, self._seen = member, seen

    def handle(self, event: Any, now: float) -> Any:
        if isinstance(event, Received):
            self._seen.append((now, self._member, event))
        return super().handle(event, now)


def one_fault(wire: Wire) -> Iterator[Wire]:
    """Its key and its publication apart: of a wire with two faults each judge may name another one."""
    names = [name for name, _ in wire.properties]
    if PROPERTY_KEY in names:
        key = tuple(p for p in wire.properties if p[0] in (PROPERTY_KEY, PROPERTY_SHARES))
        yield Wire(KEYS_TOPIC, b"", properties=key)
    if PROPERTY_HEADER in names or PROPERTY_KEY not in names:
        rest = tuple(p for p in wire.properties if p[0] not in (PROPERTY_KEY, PROPERTY_SHARES))
        yield replace(wire, properties=rest)


MIXED = [
    {Behaviour.HEADER, Behaviour.SHARES},
    {Behaviour.KEY, Behaviour.CONTENT, Behaviour.DUPLICATE},
    {Behaviour.LABELS, Behaviour.REPLAY, Behaviour.TOPIC},
    {Behaviour.POSITION, Behaviour.FLOOD},
    {Behaviour.VIEW, Behaviour.CONTENT, Behaviour.REORDER},
    {Behaviour.PATH, Behaviour.PARTS, Behaviour.RETAIN},
    {Behaviour.FRAME, Behaviour.FOREIGN_KEY},
    {Behaviour.WITHHOLD, Behaviour.DELAY, Behaviour.EQUIVOCATE},
]


@pytest.mark.parametrize(("seed", "mode"), in_turn(range(len(MIXED)), [Mode.COPIES, Mode.BLOCKS]))
def test_every_wire_of_a_run_with_liars(seed: int, mode: Mode) -> None:
    world, seen = recorded(seed, {"r2b": frozenset(MIXED[seed]), "r1c": frozenset(MIXED[(seed + 3) % 8])}, mode)
    judges = Judges(world)
    found: list[tuple[str, Verdicts]] = []
    for number, (now, member, event) in enumerate(seen):
        if event.wire.topic.startswith(f"{CONTROL_ROOT}/") and not event.wire.topic.startswith(KEYS_TOPIC):
            continue
        before = event.peer.replace("r2", "r1")  # who speaks to a replica of region 2, and whom its readers hear
        after = event.peer.replace("r1", "r2")
        for wire in one_fault(event.wire):
            # Shares are stamped for who receives them; all else of a wire is the same for everybody.
            to_replica, to_readers = (wire, without_shares(wire))[:: 1 if member == "r2a" else -1]
            told = f"{number} {event.peer} to {member} {wire.topic} {[name for name, _ in wire.properties]}"
            found.append((told, judges.judge(after, to_readers, now, Received(before, to_replica))))
    assert sum(bool(verdicts.gateway) for _, verdicts in found) > 3, "nothing was refused: the liars did not lie"
    assert not disagreements(found, apart=frozenset({"BadShare"}))
    judges.tick(NOW + 140)
    judges.tick(NOW + 160)
    assert judges.delivered <= judges.rows, "the gateway's clients saw what no row shows"
    assert judges.rows, "nothing came through"
    assert judges.blamed["gateway"] == judges.blamed["job"]


# -------------------------------------------------------------------------------------- every field altered

LENGTH_S = 100
CALENDAR = Calendar(int(NOW * 1000), LENGTH_S, ahead_s=20, grace_s=20, skew_s=5)
EPOCH = 5
BEGAN = NOW + EPOCH * LENGTH_S
SENT = BEGAN + 50
TO_COME = frozenset({"NotAuthorised"})
"""What a replica says of an epoch that has not begun; a reader, whose clock may be slow, asks others as well."""


class Forge:
    """A publisher of region 1 that signs whatever it is told to, and what a replica and both readers there get."""

    def __init__(self) -> None:
        scopes = [
            Scope("plant/#", refresh=Refresh(messages=10)),
            Scope("open/#", Mode.PLAIN),
            Scope("bare/#", shares_only=True),
        ]
        self.world = make_world(
            {1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 1}, scopes, calendar=CALENDAR,
            rights={"site": (["plant/#", "open/#", "bare/#"], ["#"]), "control": ([], ["#"])},
        )  # fmt: skip
        self.world.learn(self.world.keys, range(EPOCH - 2, EPOCH + 2))
        self.world.learn(self.world.keys, [EPOCH], 1)
        self.random = random.Random(7).randbytes
        self.site = self.world.identities["site"]
        self.now = SENT

    def key(self, scope: str = "plant/#", epoch: int = EPOCH) -> tuple[KeyHeader, Any, list[Share]]:
        name = KeyName(scope, epoch, 0)
        found = self.world.overlay.scope_named(scope)
        assert found is not None
        hops = Topology(self.world.overlay).key_hops(found, 1)
        secret = self.world.keys.get(name) if found.keyed else None
        return make_key(self.site, name, hops, 1, 10, secret, self.random)

    def signed(self, key: KeyHeader, by: Identity | None = None, **fields: Any) -> KeyHeader:
        """With other fields, signed by the publisher, or whoever else."""
        altered = replace(key, **fields)
        return replace(altered, signature=(by or self.site).sign(KEY_DOMAIN, altered.signed_bytes))

    def sealed(
        self,
        key: KeyHeader,
        data_key: Any,
        topic: str = "plant/a",
        by: Identity | None = None,
        clear: bytes | None = None,
        **fields: Any,
    ) -> Wire:
        """A publication under a key, with other fields in its signed header, or other content."""
        retained = {
            "own": self.site,
            "another's": self.world.identities["control"],
        }
        name = "plant/a" if topic in retained or topic.startswith("veilmq") or not topic else topic
        if topic in retained:
            topic = retained_topic(1, retained_id(None, name), retained[topic].party_id)
        topic = wire_topic(self.world, "site", topic, retain=fields.get("retain", False))
        plain = name.startswith("open")
        header = MessageHeader(
            publisher=self.site.party_id, key_id=bytes(16) if plain else key.key_id, sequence=7, previous=3,
            time_ms=int(self.now * 1000), deadline_ms=0, qos=1, retain=False, tombstone=False,
            mode=Mode.PLAIN if plain else Mode.COPIES, digests=(bytes(32),),
        )  # fmt: skip
        header = replace(header, **fields)
        made = Publication(name, b"21.5", 1, header.retain, time_ms=header.time_ms)
        try:
            content = clear or packed(name, [Numbered(header.sequence, made)]).payload
        except OurFault:  # no record has such a time
            content = b"c"
        if header.mode is not Mode.PLAIN:
            fits = header.key_id == data_key.key_id  # else nobody can open it, whatever is inside
            content = data_key.seal(header.prefix(), header.sequence, topic, content) if fits else bytes(40)
        header = replace(header, digests=(content_digest(content),))
        signer = by or self.site
        told = to_property(sign_header(signer, header, topic).encode())
        return Wire(topic, content, 1, properties=((PROPERTY_HEADER, told),))

    def judged(
        self, key: KeyHeader, shares: list[Share], *publications: Wire, executor: Opener | None = None
    ) -> list[tuple[str, Verdicts]]:
        """What all three say of the key alone, and then of publications."""
        judges = Judges(self.world, "control", "r1a", executor)
        carried = [
            ((PROPERTY_KEY, to_property(key.encode())), (PROPERTY_SHARES, to_property(encode_shares([s]))))
            for s in shares
        ]
        wires = [(Wire(KEYS_TOPIC, b"", properties=carried[1]), Wire(KEYS_TOPIC, b"", properties=carried[0]))]
        found = [
            (
                f"{wire.topic} {[name for name, _ in wire.properties]}",
                judges.judge("r1b", wire, self.now, Received("site", its)),
            )
            for wire, its in [*wires, *((wire, wire) for wire in publications)]
        ]
        judges.judge("r1c", Wire(KEYS_TOPIC, b"", properties=carried[2]), self.now, Received("site", wires[0][1]))
        judges.tick(self.now + 20)
        self.judges = judges
        return found


KEYS: dict[str, Callable[[Forge, KeyHeader], KeyHeader]] = {
    "another scope": lambda f, k: f.signed(k, scope="bare/#"),
    "a plain scope": lambda f, k: f.signed(k, scope="open/#"),
    "no scope": lambda f, k: f.signed(k, scope="none/#"),
    "an epoch to come": lambda f, k: f.signed(k, epoch=EPOCH + 3),
    "the epoch before": lambda f, k: f.signed(k, epoch=EPOCH - 1),
    "a dead epoch": lambda f, k: f.signed(k, epoch=EPOCH - 3),
    "a bump to come": lambda f, k: f.signed(k, bump=1),
    "a bump to come, for all messages": lambda f, k: f.signed(k, bump=1, message_limit=REFRESH_MESSAGES_MAX),
    "a bump to come, for more": lambda f, k: f.signed(k, bump=1, message_limit=REFRESH_MESSAGES_MAX + 1),
    "for one message more than the scope has": lambda f, k: f.signed(k, message_limit=11),
    "for all messages": lambda f, k: f.signed(k, message_limit=REFRESH_MESSAGES_MAX),
    "for as many as a frame can say": lambda f, k: f.signed(k, message_limit=(1 << 32) - 1),
    "of another tree": lambda f, k: f.signed(k, tree=1),
    "first sequence": lambda f, k: f.signed(k, first_sequence=1 << 63),
    "a region left out": lambda f, k: f.signed(k, hops=k.hops[:1]),
    "another view elsewhere": lambda f, k: f.signed(k, hops=(k.hops[0], replace(k.hops[1], view=0))),
    "another threshold elsewhere": lambda f, k: f.signed(k, hops=(k.hops[0], replace(k.hops[1], threshold=1))),
    "another threshold": lambda f, k: f.signed(k, hops=(replace(k.hops[0], threshold=1), k.hops[1])),
    "a view to come": lambda f, k: f.signed(k, hops=(replace(k.hops[0], view=2), k.hops[1])),
    "a view to come elsewhere": lambda f, k: f.signed(k, hops=(k.hops[0], replace(k.hops[1], view=2))),
    "a region that is not": lambda f, k: f.signed(k, hops=(*k.hops, Hop(9, 1, 2, 3))),
    "a home that is not ours": lambda f, k: f.signed(k, hops=k.hops[::-1]),
    "without an epoch key": lambda f, k: f.signed(k, kcv=NO_KCV),
    "with another epoch key": lambda f, k: f.signed(k, kcv=bytes([k.kcv[0] ^ 1]) + k.kcv[1:]),
    "another commitment": lambda f, k: f.signed(k, commitment=bytes(32)),
    "other share commitments": lambda f, k: f.signed(k, share_commitments=k.share_commitments[::-1]),
    "another signature": lambda f, k: replace(k, signature=bytes(64)),
    "another's signature": lambda f, k: f.signed(k, by=f.world.identities["control"]),
    "another publisher": lambda f, k: f.signed(
        k, by=f.world.identities["control"], publisher=f.world.identities["control"].party_id
    ),
    "a replica's": lambda f, k: f.signed(k, by=f.world.identities["r1b"], publisher=f.world.identities["r1b"].party_id),
    "a stranger's": lambda f, k: f.signed(k, publisher=bytes(16)),
}
HEADERS: dict[str, dict[str, Any]] = {
    "sequence 0": {"sequence": 0, "previous": 0},
    "the last sequence that is taken": {"sequence": (1 << 63) - 1024},
    "the one behind it": {"sequence": (1 << 63) - 1023},
    "the largest sequence": {"sequence": (1 << 63) - 1},
    "a larger sequence": {"sequence": 1 << 63},
    "the largest number": {"sequence": (1 << 64) - 1},
    "after itself": {"previous": 7},
    "after a later one": {"previous": 8},
    "after nothing": {"previous": 0},
    "in a year that no row shows": {"time_ms": 253_402_300_800_000},
    "in the year 9999": {"time_ms": 253_402_300_799_999},
    "before all epochs": {"time_ms": 0},
    "in an epoch to come": {"time_ms": int((BEGAN + 2 * LENGTH_S) * 1000)},
    "in the epoch before": {"time_ms": int((BEGAN - 1) * 1000)},
    "in a dead epoch": {"time_ms": int((BEGAN - LENGTH_S - 1) * 1000)},
    "expired": {"deadline_ms": 1},
    "with a deadline": {"deadline_ms": (1 << 64) - 1},
    "of another tree than its key": {"tree": 255},
    "a snapshot": {"retain": True, "snapshot": True, "previous": 0, "topic": "own"},
    "qos 0": {"qos": 0},
    "qos 2": {"qos": 2},
    "retained": {"retain": True},
    "a tombstone": {"retain": True, "tombstone": True},
    "by one": {"mode": Mode.ONE},
    "retained by one": {"mode": Mode.ONE, "retain": True},
    "plain": {"mode": Mode.PLAIN, "key_id": bytes(16)},
    "another key": {"key_id": bytes([1]) * 16},
    "a stranger's": {"publisher": bytes(16)},
    "on a plain topic": {"topic": "open/a"},
    "sealed on a plain topic": {"topic": "open/a", "mode": Mode.COPIES, "key_id": bytes([1]) * 16},
    "on a topic without epoch keys": {"topic": "bare/a"},
    "on a topic of no scope": {"topic": "none/a"},
    "on a clear topic": {"topic": "elsewhere/a"},
    "on a wildcard": {"topic": "veilmq/batch/+"},
    "in a scope that is not": {"topic": "veilmq/batch/9"},
    "in no scope": {"topic": "veilmq/batch/"},
    "retained in no scope": {"topic": "veilmq/retained/1/a/b", "retain": True},
    "retained among batches": {"topic": "veilmq/batch/1", "retain": True},
    "not retained on a retained topic": {"topic": "own"},
    "retained on another's topic": {"topic": "another's", "retain": True},
    "on an empty topic": {"topic": ""},
}
HOLDS = {
    "the last sequence that is taken", "after nothing", "with a deadline", "a snapshot", "qos 0", "qos 2", "retained",
    "a tombstone", "by one", "on a plain topic",
}  # fmt: skip
"""These are delivered by gateway and job; every other one by neither."""


@pytest.mark.parametrize("fault", KEYS)
def test_every_field_of_a_key_header(fault: str) -> None:
    forge = Forge()
    key, data_key, shares = forge.key()
    altered = KEYS[fault](forge, key)
    found = forge.judged(altered, shares, forge.sealed(altered, data_key))
    assert not disagreements(found, apart=TO_COME if fault == "an epoch to come" else NOTHING)
    assert not forge.judges.delivered
    assert not forge.judges.rows or fault == "another commitment", "a job's executors compare that"


@pytest.mark.parametrize("fault", HEADERS)
def test_every_field_of_a_header(fault: str) -> None:
    forge = Forge()
    key, data_key, shares = forge.key()
    wire = forge.sealed(key, data_key, **HEADERS[fault])
    found = forge.judged(key, shares, wire, replace(wire, payload=wire.payload + b"x"), replace(wire, retain=True))
    if fault == "before all epochs":  # a gateway drops it for what it says of itself, so sees no fault of its content
        assert [verdicts.gateway for _, verdicts in found[-2:]] == [NOTHING] * 2
        del found[-2]
    if fault == "in a scope that is not":  # it may be one to come, for which a gateway waits, with one wire of a header
        of_it = [verdicts.gateway for name, verdicts in found if name.startswith("veilmq/batch/9")]
        assert of_it[0] == NOTHING
        assert NOTHING not in of_it[1:]
        found = [(name, replace(verdicts, gateway=verdicts.job)) for name, verdicts in found]
    assert not disagreements(found, apart=TO_COME if fault in ("in an epoch to come", "in the year 9999") else NOTHING)
    assert forge.judges.delivered == forge.judges.rows
    assert bool(forge.judges.rows) is (fault in HOLDS)


@pytest.mark.parametrize("part", ["", "-", "0", "1", "0,1", "x"])
def test_every_part_of_content(part: str) -> None:
    forge = Forge()
    key, data_key, shares = forge.key()
    wire = forge.sealed(key, data_key)
    parted = replace(wire, properties=(*wire.properties, (PROPERTY_PART, part)))
    assert not disagreements(forge.judged(key, shares, parted, replace(parted, payload=b"")))


@pytest.mark.parametrize("how", ["value", "place", "view", "region", "depth", "tag"])
def test_every_field_of_a_share(how: str) -> None:
    forge = Forge()
    key, data_key, shares = forge.key()
    altered = []
    for share in shares:
        (at,) = share.label
        label = {
            "place": (at._replace(place=at.place % 3 + 1),),
            "view": (at._replace(view=2),),
            "region": (at._replace(region=2),),
            "depth": (at, Place(2, 1, 1)),
        }.get(how, share.label)
        value = bytes(32) if how == "value" else share.value
        tags = (bytes(4),) * (len(label) - 1) if how != "tag" else share.tags
        altered.append(Share(label, tags, value))
    assert not disagreements(forge.judged(key, altered, forge.sealed(key, data_key)))
    assert forge.judges.delivered == forge.judges.rows


@pytest.mark.parametrize("age_s", [0.0, LENGTH_S / 2, LENGTH_S, 3 * LENGTH_S, 290.0, 310.0])
@pytest.mark.parametrize("retain", [False, True])
def test_what_is_old(age_s: float, retain: bool) -> None:
    """Sealed in its time, brought later by all replicas: a reader may have been away."""
    forge = Forge()
    key, data_key, shares = forge.key()
    wire = forge.sealed(key, data_key, retain=retain)
    forge.now += age_s
    judges = Judges(forge.world, "control", "r1a")
    found = []
    for place, peer in enumerate(("r1b", "r1c"), 2):
        told = (
            (PROPERTY_KEY, to_property(key.encode())),
            (PROPERTY_SHARES, to_property(encode_shares([shares[place - 1]]))),
        )
        carried = replace(wire, properties=(*wire.properties, *told))
        found.append((peer, judges.judge(peer, carried, forge.now, Received("site", wire))))
    assert not disagreements(found)
    for step in range(1, 30):
        judges.tick(forge.now + step)
    assert judges.delivered == judges.rows
    assert bool(judges.rows) == (retain or age_s <= 300)


def test_the_publishers_certificate_ended() -> None:
    forge = Forge()
    key, data_key, shares = forge.key()
    forge.now = NOT_AFTER_MS / 1000 + 1
    assert not disagreements(forge.judged(key, shares, forge.sealed(key, data_key)))
    assert not forge.judges.rows


def test_the_publishers_certificate_ended_on_the_way() -> None:
    """Retained, so that its age alone is no reason against it."""
    forge = Forge()
    key, data_key, shares = forge.key()
    wire = forge.sealed(key, data_key, retain=True)
    forge.now = NOT_AFTER_MS / 1000 + 1
    judges = Judges(forge.world, "control", "r1a")
    for place, peer in enumerate(("r1b", "r1c"), 2):
        told = (
            (PROPERTY_KEY, to_property(key.encode())),
            (PROPERTY_SHARES, to_property(encode_shares([shares[place - 1]]))),
        )
        carried = replace(wire, properties=(*wire.properties, *told))
        judges.judge(peer, carried, forge.now, Received("site", wire))
        forge.now += 3
        judges.tick(forge.now)
        assert len(judges.rows) == len(judges.delivered) == place - 2, "one is no voucher, two are"


def test_more_than_the_key_is_for() -> None:
    forge = Forge()
    key, data_key, shares = forge.key()
    data_key._message_limit = 99
    found = forge.judged(key, shares, *(forge.sealed(key, data_key, sequence=n, previous=n - 1) for n in range(1, 20)))
    assert not disagreements(found)
    assert forge.judges.delivered == forge.judges.rows
    assert len(forge.judges.rows) == 10
