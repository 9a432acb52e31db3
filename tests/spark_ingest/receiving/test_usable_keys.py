"""Keys of a receiver: k shares for the spool, what a restart brings back, epoch keys that executors lack."""

from __future__ import annotations

from bridge.reader import KeyRing
from bridge.wire import Admission
from keys.envelope import PROPERTY_KEY, KeyHeader, KeyName, check_share
from keys.sharetree import decode_shares
from spark_ingest.receiving.usable_keys import (
    WANTED_MAX,
    GrantedKeys,
    KShares,
    Usable,
    material_of,
    materials_from_json,
    materials_to_json,
)
from spark_ingest.spool.writer import SpooledKey
from tests.sim.test_wrapped_paths import line, listened
from tests.sim.world import NOW
from tests.spark_ingest.region import Link, Overlay, Publisher, check_values, collector_of, records


def material_after(places: tuple[int, ...]) -> tuple[Overlay, Publisher, SpooledKey]:
    overlay = Overlay()
    publisher, link = Publisher(overlay), Link(overlay)
    link.publish(publisher.seal("plant/a"), places=places)
    (material,) = link.collector.keys()
    return overlay, publisher, material


def test_k_shares_are_kept_of_a_key_and_what_there_is_of_one_that_is_not_whole() -> None:
    for places, kept in (((1,), 1), ((1, 3), 2), ((1, 2, 3), 2)):
        assert len(decode_shares(material_after(places)[2].shares)) == kept


def test_a_key_is_usable_again_after_a_restart_and_shares_of_one_that_was_not_count() -> None:
    for before, after in (((1, 2), ()), ((1,), (2,))):
        overlay, publisher, material = material_after(before)
        link = Link(overlay)
        link.collector = collector_of(overlay, keys=materials_from_json(materials_to_json([material])))
        link.collector.learn(check_values(overlay.names()))
        sealed = publisher.seal("plant/b")
        link.publish(sealed, with_key=False)
        for place in after:
            link.send(place, sealed.entry(place))
        assert [record.reason for record in records(link.write())] == [None]


def test_a_key_of_somebody_who_left_is_not_known_after_a_restart() -> None:
    overlay, publisher, material = material_after((1, 2))
    del overlay.members[publisher.identity.party_id]
    assert not collector_of(overlay, keys=[material, SpooledKey(b"of another version", b"")]).keys()


def test_what_executors_lack_is_wanted_once_and_within_bounds() -> None:
    granted, names = GrantedKeys(), [KeyName("plant/#", epoch, 0) for epoch in range(WANTED_MAX + 2)]
    granted.learn(check_values(names[:1]))
    assert [granted.lacks(name) for name in names] == [False] + [True] * (WANTED_MAX + 1)
    assert granted.take_wanted() == names[1:-1]
    assert not granted.take_wanted()


def test_a_key_that_a_publisher_contradicts_is_wanted_again() -> None:
    granted, name = GrantedKeys(), KeyName("plant/#", 0, 0)
    granted.learn(check_values([name]))
    (ours,) = check_values([name]).values()
    nothing = SpooledKey(b"", b"")
    assert not granted.contradicts(Usable(nothing, name, ours))
    assert not granted.take_wanted()
    assert granted.contradicts(Usable(nothing, name, bytes(16)))
    assert granted.take_wanted() == [name]


def test_a_wrapped_key_goes_to_the_spool_as_k_shares_of_the_first_region_like_any_other() -> None:
    """What replicas of the last of five regions told a reader there, told to a job's key ring."""
    heard = listened(5, ["control"])["control"]
    overlay = line(5).overlay
    keys: KeyRing[Usable] = KeyRing(overlay, 5, KShares(), Admission(overlay, replica=False))
    opened = []
    for event in heard.received:
        told = dict(event.wire.properties)
        if PROPERTY_KEY in told:
            opened += [key_id for key_id in [keys.take_key_wire(event.peer, told, NOW + 6)[1]] if key_id is not None]
    assert len(opened) >= 2
    for key_id in opened:
        material = material_of(keys, key_id)
        assert material is not None
        header, shares = KeyHeader.decode(material.header), decode_shares(material.shares)
        assert header.wrapped
        assert len(shares) == 2
        assert all(check_share(header, share.label[0].place, share.value) for share in shares)
