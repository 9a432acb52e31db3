"""What the collector gives to the spool and when it acknowledges: honest replicas, dead ones and liars.

Pieces that come a moment before the version of the overlay that gives their publisher its right.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from pathlib import Path
from sys import getsizeof

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.document.policy import REFRESH_MESSAGES_MAX
from bridge.reader.intake import FRESH_S
from gateway.overlay import RegionClient
from keys.envelope import Mode
from keys.sharetree import Hop, Place, decode_shares
from spark_ingest.receiver.recovery import recovered, state_of
from spark_ingest.receiving import Seen
from spark_ingest.receiving.collector import EARLY_BYTES, EARLY_PIECES, EARLY_S, EarlyPiece, early_pieces, keep_piece
from spark_ingest.spool.writer import SpoolWriter
from tests.spark_ingest.region import FAR_MS, NOW, Link, Overlay, Publisher, Wire, corrupt, records

pytestmark = pytest.mark.attack(105)


def of_a_newcomer() -> tuple[Link, Publisher, Callable[[], None]]:
    """A job's link, a publisher that its version does not know, and the version that does."""
    overlay = Overlay()
    Publisher(overlay)
    link, fresh = Link(overlay), Publisher(overlay, "fresh")
    member = overlay.members.pop(fresh.identity.party_id)
    return link, fresh, lambda: overlay.members.update({fresh.identity.party_id: member})


def test_what_comes_before_the_version_that_allows_it_is_a_row_once_that_is_there() -> None:
    link, fresh, allow = of_a_newcomer()
    link.publish(fresh.seal("plant/a"))
    assert not link.write()
    assert not link.acknowledged
    allow()
    link.follow(NOW + 1)
    assert len(list(records(link.write()))) == 1
    assert len(link.acknowledged) == 3
    assert not [name for name, _ in link.collector.figures if name.startswith("refused")]


@pytest.mark.attack(121)
def test_a_job_that_was_cut_off_loses_nothing_of_before_the_version_that_it_gets_late() -> None:
    """All replicas bring the same before the version: what all of them were acknowledged for would be gone."""
    link, fresh, allow = of_a_newcomer()
    for _ in range(300):
        link.publish(fresh.seal("plant/a"))
    assert not link.acknowledged
    allow()
    link.follow(NOW + 1)
    assert len(list(records(link.write()))) == 300


@pytest.mark.attack(121)
def test_the_version_comes_through_whatever_waits_before_it() -> None:
    window = signature(RegionClient).parameters["receive_maximum"].default
    assert window // 2 == EARLY_PIECES


@pytest.mark.attack(121)
def test_large_pieces_that_nobody_may_publish_fill_no_memory() -> None:
    early = early_pieces()
    large = EarlyPiece("r1", "veilmq/batch/1", bytes(EARLY_BYTES // 2), (("vmq", "h"),), lambda: None, NOW)
    assert [keep_piece(early, each) for each in (large, large, large._replace(replica="r2"))] == [True, False, True]
    assert len(early.take_due(NOW + EARLY_S)) == 2
    assert keep_piece(early, large)
    assert len(early.take_all()) == 1
    assert keep_piece(early, large)


@pytest.mark.parametrize("char", ["a", "\N{GRINNING FACE}"])
@pytest.mark.parametrize("of", ["topic", "property"])
def test_long_topics_and_properties_of_pieces_that_nobody_may_publish_fill_no_memory(char: str, of: str) -> None:
    """Attack: a replica brings headers of strangers, each on a topic as long as there may be."""
    early, held = early_pieces(), list[str]()
    for number in range(EARLY_PIECES):
        text = char * (65_535 // len(char.encode()) - 4) + f"{number:04}"
        topic, properties = (text, ()) if of == "topic" else ("veilmq/batch/1", (("vmq", text),))
        if not keep_piece(early, EarlyPiece("r1", topic, b"", properties, lambda: None, NOW)):
            break
        held.append(text)
    assert held
    assert sum(map(getsizeof, held)) <= EARLY_BYTES * 1.1


def test_a_replica_that_brings_without_end_what_nobody_may_is_refused_at_once() -> None:
    early = early_pieces()
    piece = EarlyPiece("r1", "veilmq/batch/1", b"", (), lambda: None, NOW)
    assert [keep_piece(early, piece) for _ in range(EARLY_PIECES + 1)] == [True] * EARLY_PIECES + [False]
    other = piece._replace(replica="r2", since=NOW + 1)
    assert keep_piece(early, other)
    assert early.next_deadline == NOW + EARLY_S
    assert early.take_due(NOW + EARLY_S - 1) == []
    assert early.take_due(NOW + EARLY_S) == [piece] * EARLY_PIECES
    assert early.take_due(NOW - 3600) == [other]
    assert (early.take_all(), early.next_deadline) == ([], None)


TWO_REGIONS = (Hop(1, 1, 2, 3), Hop(2, 4, 2, 3))


def setup(path: tuple[Hop, ...] = (Hop(1, 1, 2, 3),)) -> tuple[Overlay, Publisher, Link]:
    overlay = Overlay(path=path)
    publisher = Publisher(overlay)
    return overlay, publisher, Link(overlay)


def test_three_pieces_make_one_record_with_k_shares() -> None:
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a", retain=True, qos=2)
    link.publish(sealed)
    (group,) = link.write()
    (record,) = group.records
    assert (record.publisher, record.sequence) == sealed.publication
    assert (record.sealed, record.reason, record.retain, record.qos) == (sealed.content, None, True, 2)
    shares = decode_shares(group.keys[record.key_id].shares)
    assert len(shares) == 2
    assert len(link.acknowledged) == 3


def test_two_of_three_replicas_are_enough() -> None:
    _, publisher, link = setup()
    link.publish(publisher.seal("plant/a"), places=(3, 1))
    assert [r.reason for r in records(link.write())] == [None]


def test_one_share_is_not_enough_and_is_not_acknowledged() -> None:
    _, publisher, link = setup()
    link.publish(publisher.seal("plant/a"), places=(2,))
    assert not link.write()
    assert not link.acknowledged


def test_nothing_is_acknowledged_before_it_is_written() -> None:
    _, publisher, link = setup()
    link.publish(publisher.seal("plant/a"))
    group = link.collector.take_group(10)
    assert group is not None
    assert not link.acknowledged
    link.send(3, publisher.seal("plant/b").piece(3))
    for ack in link.collector.note_written(group):
        ack()
    assert len(link.acknowledged) == 3


def test_a_piece_that_comes_while_its_publication_is_written_waits_for_the_sync() -> None:
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    link.publish(sealed, places=(1, 2))
    group = link.collector.take_group(10)
    assert group is not None
    link.publish(sealed, places=(3,))
    assert not link.acknowledged
    for ack in link.collector.note_written(group):
        ack()
    assert sorted(place for place, _ in link.acknowledged) == [1, 2, 3]
    assert not link.write()


def test_pieces_of_a_written_publication_are_acknowledged_and_make_no_row() -> None:
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    link.publish(sealed)
    assert len(list(records(link.write()))) == 1
    link.publish(sealed)
    assert len(link.acknowledged) == 6
    assert not link.write()


# ------------------------------------------------------------------------------------------------ liars


def test_a_publisher_of_two_contents_under_one_number_is_named_once_with_evidence() -> None:
    """Attack: a gateway shows one replica one content, and another replica another one."""
    overlay, publisher, link = setup()
    link.publish(publisher.seal("plant/a", b"on", sequence=7), places=(1, 2))
    for payload in (b"off", b"neither"):  # by a copy of it, which draws the data key that it drew
        link.publish(Publisher(overlay).seal("plant/a", payload, sequence=7), places=(3,))
    (proof,) = link.collector.take_proved()
    assert (proof.proven, proof.proven.author) == (proof.evidence.check_proof(), "gw1")
    assert not link.collector.take_proved()
    assert link.collector.figures["named", "gw1"] == 1


def test_a_publication_that_every_replica_brings_twice_is_evidence_of_nothing() -> None:
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    for _ in range(2):
        link.publish(sealed)
    publisher.new_key(publisher.overlay.scope_of("plant/a").filter)
    link.publish(publisher.seal("plant/a", b"sealed anew", sequence=sealed.publication[1]))
    assert not link.collector.take_proved()


def test_wrong_content_of_a_minority_is_counted_and_not_stored() -> None:
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    link.send(1, sealed.piece(1, content=b"something else"))
    link.publish(sealed, places=(2, 3))
    (record,) = records(link.write())
    assert record.sealed == sealed.content
    assert link.collector.figures["refused_content", "r1"] == 1
    assert len(link.acknowledged) == 3


def test_a_wrong_share_is_named_and_the_good_ones_are_stored() -> None:
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    assert sealed.key is not None
    link.send(1, sealed.piece(1, shares=[corrupt(sealed.key[2][0])]))
    link.publish(sealed, places=(2, 3))
    (group,) = link.write()
    stored = decode_shares(next(iter(group.keys.values())).shares)
    assert stored == sealed.key[2][1:]
    assert not link.collector.figures["suspected", "r1"], "it did not contradict another one, and k others fitted"
    link.collector.do_due_work(NOW + 2)
    assert (link.collector.figures["named", "r1"], link.collector.figures["suspected", "r1"]) == (1, 1)


def test_a_share_stamped_for_another_replica_is_refused() -> None:
    """One bad replica that got hold of others' shares may not stand for several."""
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    assert sealed.key is not None
    link.send(1, sealed.piece(1, shares=sealed.key[2]))
    link.send(1, sealed.piece(1))
    assert not link.write()
    assert link.collector.figures["refused_BadShare", "r1"] == 1


def test_a_share_of_another_view_is_refused() -> None:
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    assert sealed.key is not None
    old = [replace(s, label=(Place(1, 0, s.label[0].place),)) for s in sealed.key[2]]
    for place in (1, 2, 3):
        link.send(place, sealed.piece(place, shares=[old[place - 1]]))
    assert not link.write()


def test_a_header_moved_to_another_topic_is_refused() -> None:
    """A replica that publishes a true header elsewhere first would make the true one look like a duplicate."""
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    link.send(1, replace(sealed.piece(1), topic="veilmq/batch/2"))
    assert link.collector.figures["refused_BadSignature", "r1"] == 1
    link.publish(sealed)
    assert [r.wire_topic for r in records(link.write())] == ["veilmq/batch/1"]


def test_strangers_and_publishers_without_the_right_are_refused() -> None:
    overlay, _, link = setup()
    stranger = Publisher(overlay, "stranger")
    del overlay.members[stranger.identity.party_id]
    link.publish(stranger.seal("plant/a"))
    link.publish(Publisher(overlay, "elsewhere", publish=("open/own",)).seal("plant/other"))
    assert not link.write()
    assert link.collector.next_deadline == NOW + EARLY_S
    link.collector.do_due_work(NOW + EARLY_S)
    assert not link.write()
    assert len(link.acknowledged) == 6, "a refused piece may not fill its sender's window"
    assert link.collector.figures["refused_NotAuthorised", "r1"] == 2
    link.publish(Publisher(overlay, "narrow", publish=("plant/own",)).seal("plant/own"))
    assert len(list(records(link.write()))) == 1


def test_what_is_of_a_certificate_that_has_ended_is_a_row_as_far_as_replicas_vouch_for_it() -> None:
    """Else it would be acknowledged and nowhere, if the job was away meanwhile or its clock is ahead."""
    _, publisher, link = setup()
    link.publish(publisher.seal("plant/a"))
    link.write()
    late = FAR_MS / 1000 + 1
    sealed, forged = publisher.seal("plant/a"), publisher.seal("plant/a", time=late)
    link.publish(sealed, places=(1, 2, 3), now=late)
    link.publish(forged, places=(1,), now=late)
    assert [(r.sequence, r.reason) for r in records(link.write())] == [(sealed.publication[1], None)]
    link.collector.do_due_work(late + 11)
    (apart,) = records(link.write())
    assert (apart.reason or "").startswith("epoch")
    assert apart.sealed is None
    assert len(link.acknowledged) == link.sent


def test_a_key_of_another_publisher_does_not_make_a_publication_whole() -> None:
    overlay, publisher, link = setup()
    other = Publisher(overlay, "other")
    first = publisher.seal("plant/a")
    link.publish(first)
    other.keys["plant/#"] = publisher.keys["plant/#"]
    link.publish(other.seal("plant/a", sequence=100))
    assert [r.publisher for r in records(link.write())] == [publisher.identity.party_id]


def test_a_replay_after_restart_makes_no_second_row(tmp_path: Path) -> None:
    overlay, publisher, link = setup()
    writer = SpoolWriter(tmp_path, "main", cap_bytes=1 << 30)
    writer.roll(state_of(link.collector.seen, link.collector.keys()))
    sent = [publisher.seal("plant/a") for _ in range(5)]
    for sealed in sent:
        link.publish(sealed)
    link.write(writer)
    writer.close()

    writer = SpoolWriter(tmp_path, "main", cap_bytes=1 << 30)
    seen, keys = recovered(writer.state, writer.history())
    again = Link(overlay, seen=seen, keys=keys)
    for sealed in sent:
        again.publish(sealed)
    assert not again.write()
    assert len(again.acknowledged) == 15
    again.publish(publisher.seal("plant/a"), with_key=False)
    assert [r.reason for r in records(again.write())] == [None], "its key was known from the spool"
    writer.close()


@pytest.mark.attack(111)
def test_what_was_sealed_since_the_spool_began_is_no_replay_however_late_it_comes() -> None:
    """Links were cut when a gateway spoke first: what is written is remembered, so this was not; over a restart too."""
    _, publisher, link = setup()
    link.collector.do_due_work(NOW)
    seen = Seen.from_json(json.loads(json.dumps(link.collector.seen.to_json())))
    for each in (link, Link(publisher.overlay, seen=seen)):
        late = publisher.seal("plant/a", time=NOW + 60)
        each.publish(late, now=NOW + 3600)
        assert [r.reason for r in records(each.write())] == [None]


def test_an_old_publication_of_an_unknown_publisher_is_set_apart() -> None:
    """docs/protocol.md §5.2: with no state, old means replayed; it is kept, but not as telemetry."""
    _, publisher, link = setup()
    old = publisher.seal("plant/a", time=NOW - FRESH_S - 1)
    link.publish(old)
    (record,) = records(link.write())
    assert record.reason is not None
    assert record.reason.startswith("stale")
    link.publish(old)
    assert not link.write()
    link.publish(publisher.seal("plant/a"))
    link.publish(publisher.seal("plant/a", time=NOW - 9999))
    assert [r.reason for r in records(link.write())] == [None, None], "a known publisher may have been offline"


def test_retained_state_of_an_unknown_publisher_may_be_old() -> None:
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a", time=NOW - 99_999, retain=True)
    for place in (1, 2):
        link.send(place, replace(sealed.piece(place), retain=True))
    assert [r.reason for r in records(link.write())] == [None]


def test_an_expired_publication_is_dropped() -> None:
    _, publisher, link = setup()
    link.publish(publisher.seal("plant/a", deadline_ms=int(NOW * 1000) - 1))
    assert not link.write()
    assert len(link.acknowledged) == 3


# --------------------------------------------------------------------------------- keys, order, timeouts


def test_a_publication_ahead_of_its_key_waits_for_it() -> None:
    _, publisher, link = setup()
    first, second = publisher.seal("plant/a"), publisher.seal("plant/b")
    link.publish(second, with_key=False)
    assert not link.write()
    link.publish(first)
    assert sorted(r.sequence for r in records(link.write())) == [1, 2]


def test_key_and_shares_may_come_without_a_publication() -> None:
    _, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    for place in (1, 2):
        piece = sealed.piece(place)
        link.send(place, Wire("$veil/keys", b"", properties=piece.properties[1:]))
    link.publish(sealed, places=(3,), with_key=False)
    assert len(list(records(link.write()))) == 1


@pytest.mark.parametrize("path", [(Hop(1, 1, 2, 3),), TWO_REGIONS], ids=["one region", "two regions"])
@pytest.mark.parametrize("messages", [1, 10])
def test_keys_on_a_topic_of_their_own_with_a_replica_that_serves_old_ones(path: tuple[Hop, ...], messages: int) -> None:
    _, publisher, link = setup(path)
    publisher.messages = messages
    old: Wire | None = None
    for number in range(20):
        if number % messages == 0:
            publisher.new_key("plant/#")
        sealed = publisher.seal(f"plant/{number}")
        link.publish(sealed, places=(3,), with_key=False)  # overtakes its key
        if number % messages == 0:
            old = old or sealed.entry(1)
            for place, wire in ((1, old), (2, sealed.entry(2)), (3, sealed.entry(3))):
                link.send(place, wire)
        link.publish(sealed, places=(1, 2), with_key=False)
    found = list(records(link.write()))
    assert [r.sequence for r in found] == [*range(1, 21)]
    assert not [r.reason for r in found if r.reason]
    assert len(link.acknowledged) == link.sent


@pytest.mark.invariant(9)
def test_more_than_a_key_is_for_is_spooled_with_that_reason() -> None:
    _, publisher, link = setup()
    publisher.messages = 2
    publisher.new_key("plant/#")
    publisher.keys["plant/#"][1]._message_limit = 9
    for topic in ("plant/a", "plant/b", "plant/c"):
        link.publish(publisher.seal(topic))
    assert [r.sequence for r in records(link.write())] == [1, 2]
    link.collector.do_due_work(NOW + 10)
    (record,) = records(link.write())
    assert record.sequence == 3
    assert "2 messages that it is for" in (record.reason or "")


def test_a_key_for_more_messages_than_any_scope_may_have_is_refused() -> None:
    """The sequences that it served are remembered."""
    _, publisher, link = setup()
    publisher.messages = REFRESH_MESSAGES_MAX + 1
    publisher.new_key("plant/#")
    link.publish(publisher.seal("plant/a"))
    assert not list(records(link.write()))


def test_a_replica_that_replays_old_keys_pushes_out_none_that_is_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are signed and count to the publisher: without the key in use, what comes next would not open."""
    monkeypatch.setattr("bridge.reader.key_opening.KEYS_HELD_MAX", 4)
    _, publisher, link = setup()
    old = []
    for _ in range(10):
        publisher.new_key("plant/#")
        old.append(publisher.seal("plant/old").entry(3))
    publisher.new_key("plant/#")
    link.publish(publisher.seal("plant/a"))
    for wire in old:
        link.send(3, wire)
    link.publish(publisher.seal("plant/b"), with_key=False)
    assert [r.sequence for r in records(link.write())] == [11, 12]


def test_what_stays_incomplete_is_spooled_with_its_reason_and_acknowledged() -> None:
    _, publisher, link = setup()
    link.publish(publisher.seal("plant/a"), places=(1, 2), content=b"")
    deadline = NOW + 10
    link.collector.do_due_work(deadline - 0.001)
    assert link.collector.next_deadline == deadline
    assert not link.write()
    assert not link.acknowledged
    link.collector.do_due_work(deadline)
    (record,) = records(link.write())
    assert (record.reason or "").startswith("content")
    assert len(link.acknowledged) == 2
    assert link.collector.next_deadline is None


def test_a_later_message_of_a_key_brings_the_share_that_an_earlier_one_lacked() -> None:
    _, publisher, link = setup()
    link.publish(publisher.seal("plant/a"), places=(1,))
    link.publish(publisher.seal("plant/b"), places=(2,))
    assert [r.sequence for r in records(link.write())] == [1, 2]


def test_without_key_and_without_shares_are_told_apart() -> None:
    _, publisher, link = setup()
    link.publish(publisher.seal("plant/a"), with_key=False)
    publisher.new_key("plant/#")
    link.publish(publisher.seal("plant/b"), places=(1,))
    link.collector.do_due_work(NOW + 10)
    assert [(r.reason or "").split(":")[0] for r in records(link.write())] == ["key", "shares"]
    assert len(link.acknowledged) == 4


def test_plain_content_needs_no_key() -> None:
    overlay, publisher, link = setup()
    overlay.change(mode=Mode.PLAIN, keyed=False)
    link.publish(publisher.seal("plant/a"), places=(2,))
    assert [r.reason for r in records(link.write())] == [None]


# ------------------------------------------------------------------------------------------ two regions


def test_shares_of_shares_are_recombined_to_k_level_one_shares() -> None:
    overlay, publisher, link = setup(TWO_REGIONS)
    sealed = publisher.seal("plant/a")
    for place in (1, 3):
        link.send(place, sealed.piece(place, shares=sealed.shares_at(place, overlay)))
    (group,) = link.write()
    stored = decode_shares(next(iter(group.keys.values())).shares)
    assert sealed.key is not None
    assert len(stored) == 2
    assert set(stored) <= set(sealed.key[2])


def test_a_liar_in_the_last_region_cannot_spoil_the_key() -> None:
    overlay, publisher, link = setup(TWO_REGIONS)
    sealed = publisher.seal("plant/a")
    lies = [corrupt(share) for share in sealed.shares_at(1, overlay)]
    link.send(1, sealed.piece(1, shares=lies))
    for place in (2, 3):
        link.send(place, sealed.piece(place, shares=sealed.shares_at(place, overlay)))
    assert [r.reason for r in records(link.write())] == [None]


def test_a_key_split_for_an_older_view_is_refused() -> None:
    overlay, publisher, link = setup()
    sealed = publisher.seal("plant/a")
    overlay.hops = (Hop(1, 2, 2, 3),)
    link.publish(sealed)
    assert not link.write()


# -------------------------------------------------------------------------------------------- properties


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int, str]]:
    """(publication, replica, what it does) in any order: true and false pieces, repeats, losses."""
    acts = st.sampled_from(["true", "true", "true", "content", "share", "empty", "again"])
    pairs = [(p, r) for p in range(draw(st.integers(1, 5))) for r in (1, 2, 3)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=40))
    return [(p, r, draw(acts)) for p, r in chosen]


@settings(max_examples=60, deadline=None)
@given(histories(), st.integers(1, 3))
def test_every_history_gives_each_publication_once_and_true(history: list[tuple[int, int, str]], rows: int) -> None:
    _, publisher, link = setup()
    published = [publisher.seal("plant/a", f"{n}".encode()) for n in range(5)]
    groups = []
    for number, (which, place, act) in enumerate(history):
        sealed = published[which]
        assert sealed.key is not None
        wire = sealed.piece(place)
        if act == "content":
            wire = sealed.piece(place, content=b"lie")
        elif act == "share":
            wire = sealed.piece(place, shares=[corrupt(sealed.key[2][place - 1])])
        elif act == "empty":
            wire = sealed.piece(place, content=b"")
        link.send(place, wire)
        if number % 7 == 3:
            groups += link.write(max_rows=rows)
    link.collector.do_due_work(NOW + 10)
    groups += link.write(max_rows=rows)
    whole = [r for r in records(groups) if r.reason is None]
    assert len({r.sequence for r in whole}) == len(whole), "a publication came twice"
    contents = {s.publication[1]: s.content for s in published}
    assert all(contents[r.sequence] == r.sealed for r in whole)
    sent = {which for which, _, _ in history}
    assert {r.sequence - 1 for r in records(groups)} == sent, "a publication left no trace"
    assert len(link.acknowledged) == link.sent, "a piece stays unacknowledged"


@pytest.mark.parametrize("junk", ["", "A", "AAAA", "!!", "é", "A" * 9000])
@pytest.mark.parametrize("name", ["vmq", "vmq-key", "vmq-shares"])
def test_junk_from_a_replica_never_raises(name: str, junk: str) -> None:
    _, publisher, link = setup()
    good = dict(publisher.seal("plant/a").piece(1).properties)
    link.send(1, Wire("plant/a", b"x", properties=tuple({**good, name: junk}.items())))
    link.send(2, Wire("plant/a", b"x", properties=((name, junk),)))
    link.send(3, Wire("plant/a", b"x"))
    assert not link.write()
