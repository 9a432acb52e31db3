"""Epochs, bumps and rights at the receiver: whose publications are believed, and when rows may show.

What the gateway's subscriber side does with the same attacks is in `tests/bridge/test_epoch_attacks.py`.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.envelope import KeyName, Mode
from keys.epochs import Calendar
from keys.grants import ENDLESS, Grant, Right
from keys.identity import Certificate, Identity, Role
from keys.sharetree import Hop
from spark_ingest.receiving.collector import EARLY_S
from spark_ingest.receiving.publications import UNVOUCHED_MAX
from spark_ingest.receiving.usable_keys import WANTED_MAX
from tests.spark_ingest.region import FAR_MS, NOW, Link, Overlay, Publisher, Sealed, check_values, records

LENGTH_S = 100
GRACE_S = 20
SKEW_S = 5
CALENDAR = Calendar(int(NOW * 1000), LENGTH_S, ahead_s=20, grace_s=GRACE_S, skew_s=SKEW_S)
DEAD_S = NOW + LENGTH_S + GRACE_S + SKEW_S
"""From here on nothing of epoch 0 can be fresh."""


def setup(path: tuple[Hop, ...] = (Hop(1, 1, 2, 3),), **publisher: int) -> tuple[Overlay, Publisher, Link]:
    overlay = Overlay(path=path, calendar=CALENDAR)
    return overlay, Publisher(overlay, **publisher), Link(overlay)


def reasons(link: Link) -> list[str | None]:
    return [record.reason for record in records(link.write())]


def give_up(link: Link, now: float) -> list[str | None]:
    link.collector.do_due_work(now + 10)
    return reasons(link)


# ------------------------------------------------------------------------------------- epochs and bumps


def test_the_epoch_changes_in_the_middle_of_a_stream_and_nothing_stops() -> None:
    _, publisher, link = setup()
    for second in range(0, 3 * LENGTH_S, 10):
        now = NOW + second
        link.publish(publisher.seal("plant/a", time=now), now=now)
    groups = link.write()
    assert [r.reason for r in records(groups)] == [None] * 30
    assert len({key for group in groups for key in group.keys}) == 3, "a data key for each epoch"
    assert len(link.acknowledged) == link.sent


def test_within_the_grace_the_key_of_the_epoch_before_still_seals_and_after_it_no_more() -> None:
    for late_s, whole in ((GRACE_S - 1, True), (GRACE_S + 1, False)):
        _, publisher, link = setup()
        now = NOW + LENGTH_S + late_s
        publisher.new_key("plant/#", epoch=0)
        link.publish(publisher.seal("plant/a", time=now), now=now)
        (reason,) = give_up(link, now)
        assert (reason is None) == whole
        assert whole or str(reason).startswith("key: it is of epoch 0")


def test_a_key_of_an_epoch_to_come_seals_nothing() -> None:
    _, publisher, link = setup()
    publisher.new_key("plant/#", epoch=1)
    link.publish(publisher.seal("plant/a"))
    assert str(give_up(link, NOW)[0]).startswith("key: it is of epoch 1")


def test_after_a_bump_new_rows_need_the_new_key_and_the_old_ones_are_kept() -> None:
    overlay, publisher, link = setup()
    link.collector.learn(check_values(overlay.names(bumps=(0,))))
    link.publish(publisher.seal("plant/a"))
    overlay.change(bump=1)
    link.publish(publisher.seal("plant/b"))
    assert [r.sequence for r in records(link.write())] == [1]
    assert link.collector.granted.take_wanted() == [KeyName("plant/#", 0, 1)]
    link.collector.learn(check_values(overlay.names()))
    assert [r.sequence for r in records(link.write())] == [2]
    assert len(link.acknowledged) == link.sent


def test_a_row_waits_for_its_epoch_key_and_goes_on_when_it_is_learned() -> None:
    _, publisher, link = setup()
    link.collector.learn({})
    link.publish(publisher.seal("plant/a"))
    assert not link.write()
    assert not link.acknowledged
    assert link.collector.granted.take_wanted() == [KeyName("plant/#", 0, 0)]
    assert not link.collector.granted.take_wanted(), "asked for once, until another publication names it"
    link.collector.learn(check_values({KeyName("plant/#", 0, 0)}))
    assert reasons(link) == [None]
    assert len(link.acknowledged) == 3


def test_a_key_that_does_not_come_in_time_is_a_reason_and_the_row_follows_when_it_does() -> None:
    _, publisher, link = setup()
    link.collector.learn({})
    link.publish(publisher.seal("plant/a"))
    assert give_up(link, NOW) == ["grant: no epoch key came for scope plant/#, epoch 0, bump 0"]
    assert len(link.acknowledged) == 3
    link.collector.learn(check_values({KeyName("plant/#", 0, 0)}))
    assert reasons(link) == [None]
    assert not link.write()


def test_keys_that_are_wanted_are_bounded() -> None:
    _, publisher, link = setup()
    link.collector.learn({})
    for bump in range(WANTED_MAX + 1):
        publisher.new_key("plant/#", bump=bump)
        link.publish(publisher.seal("plant/a"))
    assert len(link.collector.granted.take_wanted()) == WANTED_MAX


def test_a_scope_without_epoch_keys_waits_for_none() -> None:
    overlay, publisher, link = setup()
    overlay.change(keyed=False)
    link.collector.learn({})
    link.publish(publisher.seal("plant/a"))
    overlay.change(mode=Mode.PLAIN)
    link.publish(publisher.seal("plant/b"))
    assert reasons(link) == [None, None]


# ------------------------------------------------------------------------------------ who is believed when


def test_a_receiver_that_was_away_takes_a_dead_epoch_from_two_of_three_replicas() -> None:
    _, publisher, link = setup()
    publisher.sequence = 5
    link.publish(publisher.seal("plant/now", time=DEAD_S), now=DEAD_S)  # so that the publisher is known
    away = [publisher.seal("plant/a", time=NOW + second) for second in range(10)]
    for place in (1, 3):
        for sealed in away:
            link.send(place, sealed.piece(place), DEAD_S)
    assert reasons(link) == [None] * 11
    assert not link.collector._publications._unvouched["r1"]
    assert len(link.acknowledged) == link.sent


def test_what_a_revoked_publisher_dates_back_is_not_admitted_from_one_bad_replica() -> None:
    """Its data key of that epoch is known to all: what it lacks is the word of another replica."""
    _, publisher, link = setup(last_epoch=0)
    honest = publisher.seal("plant/a", b"in its time")
    link.publish(honest)
    assert reasons(link) == [None]
    forged = publisher.seal("plant/a", b"dated back", time=NOW + LENGTH_S - 1)
    assert forged.key is honest.key
    link.publish(publisher.seal("plant/a", time=DEAD_S), now=DEAD_S)
    link.collector.judge_early(DEAD_S + EARLY_S)
    assert link.collector.figures["refused_NotAuthorised", "r1"] == 1, "today it may not publish at all"
    for _ in range(3):
        link.send(2, forged.piece(2), DEAD_S)
    assert not link.write()
    link.collector.do_due_work(DEAD_S + 10)
    (closed,) = records(link.write())
    assert (closed.reason or "").startswith("epoch: ")
    assert closed.sealed is None, "a bad replica does not fill the disk with it"
    assert len(link.acknowledged) == link.sent


def test_the_word_of_f_replicas_is_not_enough_with_five() -> None:
    _, publisher, link = setup((Hop(1, 1, 3, 5),))
    link.publish(publisher.seal("plant/now", time=DEAD_S, sequence=100), places=(1, 2, 3), now=DEAD_S)
    assert reasons(link) == [None]
    old = publisher.seal("plant/a", sequence=50)
    link.publish(old, places=(4, 5, 4), now=DEAD_S)
    assert str(give_up(link, DEAD_S)[0]).startswith("epoch: ")
    link.publish(old, places=(1,), now=DEAD_S + 60)
    assert reasons(link) == [None], "the third replica came late"


def test_one_replica_cannot_hold_more_than_its_share_of_dead_publications() -> None:
    overlay, publisher, link = setup()
    overlay.change(mode=Mode.PLAIN, keyed=False)
    sealed = publisher.seal("plant/a")
    link.collector._publications._unvouched["r2"] = 2 * UNVOUCHED_MAX
    link.send(2, sealed.piece(2), DEAD_S)
    assert not link.acknowledged, "it comes again"
    link.publish(sealed, places=(1, 3), now=DEAD_S)
    assert reasons(link) == [None], "the others are not held back by it"


@pytest.mark.parametrize("vouches", [True, False])
def test_what_only_one_replica_brings_is_never_acknowledged_and_nowhere(
    monkeypatch: pytest.MonkeyPatch, vouches: bool
) -> None:
    """A receiver that was away for long: the replica that comes first brings more than is set apart at once."""
    monkeypatch.setattr("spark_ingest.receiving.publications.UNVOUCHED_MAX", 3)
    overlay, publisher, link = setup()
    overlay.change(mode=Mode.PLAIN, keyed=False)
    link.publish(publisher.seal("plant/now", time=DEAD_S, sequence=100), now=DEAD_S)  # so that the publisher is known
    link.write()
    before = len(link.acknowledged)
    away = [publisher.seal("plant/a", sequence=n) for n in range(1, 6)]
    for sealed in away:
        link.publish(sealed, places=(1,), now=DEAD_S)
    apart = give_up(link, DEAD_S)
    assert len(link.acknowledged) - before == len(apart) == 3
    if vouches:
        for sealed in away:
            link.publish(sealed, places=(3,), now=DEAD_S + 15)
        assert reasons(link) == [None] * 5
    else:
        assert len(give_up(link, DEAD_S + 15)) == 2
        assert not give_up(link, DEAD_S + 60)
    assert len(link.acknowledged) == link.sent


def test_no_room_is_no_way_around_the_vouchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_ingest.receiving.publications.HELD_MAX", 0)
    overlay, publisher, link = setup()
    overlay.change(mode=Mode.PLAIN, keyed=False)
    link.publish(publisher.seal("plant/a"), places=(2,), now=DEAD_S)
    assert not link.write()
    assert not link.acknowledged, "it comes again when there is room"


def test_counting_what_waits_for_vouchers_comes_back_to_nothing() -> None:
    _, publisher, link = setup()
    for number in range(20):
        link.publish(publisher.seal("plant/a"), places=(1 + number % 3,), now=DEAD_S)
    assert link.collector._publications._unvouched.total() == 20
    link.collector.do_due_work(DEAD_S + 10)
    assert len(reasons(link)) == 20
    for entry in list(link.collector._publications._late):
        link.collector._publications._forget_waiting(entry)
        link.collector._publications._finish_form(entry)
    assert link.collector._publications._unvouched.total() == 0


def test_a_clock_within_the_skew_needs_no_vouchers_and_one_beyond_it_does() -> None:
    for early_s, whole in ((SKEW_S - 1, True), (SKEW_S + 1, False)):
        overlay, publisher, link = setup()
        overlay.change(mode=Mode.PLAIN, keyed=False)
        now = NOW + LENGTH_S - early_s
        link.publish(publisher.seal("plant/a", time=NOW + LENGTH_S), places=(1,), now=now)
        assert (reasons(link) == [None]) == whole


def test_a_right_counts_from_its_first_to_its_last_epoch() -> None:
    overlay, publisher, link = setup(last_epoch=-1)
    overlay.grants.append(Grant("gw1", "plant/#", Right.PUBLISH, 1, 1))
    for epoch, allowed in ((0, False), (1, True), (2, False)):
        now = NOW + LENGTH_S * epoch + 50
        link.publish(publisher.seal("plant/a", time=now), now=now)
        assert len(reasons(link)) == allowed


def test_a_key_header_of_a_publisher_without_the_right_in_its_epoch_is_refused() -> None:
    """Its grant begins with epoch 1; within the grace a key of epoch 0 could seal, but not one of its own."""
    overlay, publisher, link = setup(last_epoch=-1)
    overlay.grants.append(Grant("gw1", "plant/#", Right.PUBLISH, 1, ENDLESS))
    now = NOW + LENGTH_S + 1
    publisher.new_key("plant/#", epoch=0)
    link.publish(publisher.seal("plant/a", time=now), now=now)
    assert not give_up(link, now)
    assert link.collector.figures["refused_NotAuthorised", "r1"] == 1


def test_a_member_keeps_its_name_and_rights_over_a_rotation() -> None:
    overlay, publisher, link = setup()
    link.publish(publisher.seal("plant/a"))
    old = publisher.certificate
    publisher.identity = Identity.generate(bytes(31) + b"2")
    publisher.certificate = Certificate.issue(
        Identity.generate(bytes(31) + b"o"), name=old.name, role=Role.GATEWAY,
        public_key=publisher.identity.public_bytes, agreement_key=publisher.identity.agreement_bytes,
        domain=old.domain, region=old.region, not_after_ms=FAR_MS,
    )  # fmt: skip
    overlay.members[publisher.identity.party_id] = publisher.certificate
    publisher.keys.clear()
    link.publish(publisher.seal("plant/a"))
    assert reasons(link) == [None, None]


@pytest.mark.parametrize(("keyed", "sealed_keyed"), [(True, False), (False, True)])
def test_a_key_header_that_leaves_the_epoch_key_out_or_brings_one_in_is_refused(
    keyed: bool, sealed_keyed: bool
) -> None:
    overlay, publisher, link = setup()
    overlay.change(keyed=sealed_keyed)
    sealed = publisher.seal("plant/a")
    overlay.change(keyed=keyed)
    link.publish(sealed)
    assert not give_up(link, NOW)
    assert link.collector.figures["refused_BadFrame", "r1"] == 1


def test_content_in_clear_in_a_scope_that_is_sealed_is_refused() -> None:
    _, publisher, link = setup()
    link.publish(publisher.seal("plant/a", mode=Mode.PLAIN))
    assert not give_up(link, NOW)
    assert link.collector.figures["refused_BadFrame", "r2"] == 1


# -------------------------------------------------------------------------------------------- properties


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 399), st.integers(0, 399), st.sets(st.integers(1, 3))), min_size=1, max_size=12),
    st.integers(0, 3),
)
def test_rows_are_those_that_had_the_right_and_were_fresh_or_vouched_for(
    sent: list[tuple[int, int, set[int]]], last_epoch: int
) -> None:
    """Whatever the publisher writes into its headers and whichever replicas bring it, in whatever order."""
    overlay, publisher, link = setup(last_epoch=last_epoch)
    overlay.change(mode=Mode.PLAIN, keyed=False)
    link.collector._publications._met.add(publisher.identity.party_id)
    expected = []
    sealed: list[tuple[Sealed, int, set[int]]] = []
    for claimed_s, arrived_s, places in sent:
        each = publisher.seal("plant/a", time=NOW + claimed_s)
        sealed.append((each, arrived_s, places))
        epoch = claimed_s // LENGTH_S
        fresh = epoch * LENGTH_S - SKEW_S <= arrived_s < (epoch + 1) * LENGTH_S + GRACE_S + SKEW_S
        if epoch <= last_epoch and len(places) >= (1 if fresh else 2):
            expected.append(each.publication[1])
    for each, arrived_s, places in sealed:
        link.publish(each, places=sorted(places), now=NOW + arrived_s)
    assert sorted(r.sequence for r in records(link.write()) if r.reason is None) == sorted(expected)
    link.collector.do_due_work(NOW + 1000)
    assert all(r.reason for r in records(link.write()))
    assert len(link.acknowledged) == link.sent
    assert link.collector._publications._unvouched == replace_counts(link)


def replace_counts(link: Link) -> dict[str, int]:
    """What the counter must be, counted anew."""
    waiting = [entry.unvouched_at for entry in link.collector._publications._late if entry.unvouched_at is not None]
    return {replica: waiting.count(replica) for replica in link.collector._publications._unvouched}
