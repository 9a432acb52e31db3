"""Leases of shared groups: who may make them, that none can be undone or invented, and that all choose alike."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bridge.document.policy import Scope
from bridge.document.scope_secret import ScopeSecret
from bridge.groups import leases as groups
from bridge.groups.leases import (
    ENDED_S,
    LEASE_AHEAD_S,
    LIVES_MAX,
    NEWS_BURST,
    NEWS_EVERY_S,
    Lease,
    LeaseQuestion,
    LeaseTable,
    group_id,
)
from bridge.wire import AHEAD_S
from keys.errors import BadFrame, BadSignature, NotAuthorised, NotFresh, TooOften
from keys.identity import Identity
from tests.bridge.reader.test_newest_retained import rotated
from tests.sim.world import NOW, make_world

NOW_MS = int(NOW * 1000)
GROUP = bytes(range(16))
ID = ("plant/#", GROUP)
RIGHTS = {"writer": (("#",), ()), "nosy": ((), ("plant/line1/#",))}
WORLD = make_world(
    {1: 3, 2: 3},
    [(1, 2)],
    {"a": 1, "b": 2, "c": 2, "writer": 1, "nosy": 1, "site": 1},
    [Scope("plant/#"), Scope("open/#")],
    rights=RIGHTS,
)


def lease_of(
    member: str, start_s: float = -10, end_s: float = 50, *, version: int = 0, on: bool = True,
    own: tuple[float, float] | None = None, scope: str = "plant/#",
) -> Lease:  # fmt: skip
    """Seconds from now; `own`: when the member serves its own devices' publications, the same if it is not given."""
    own_s = own or (start_s, end_s)
    times = [NOW_MS + int(s * 1000) for s in (*own_s, start_s, end_s)]
    return Lease(member, scope, GROUP, version or times[0], on, *times).signed(WORLD.identities[member])


def asked(publisher: str = "site", sequence: int = 1, at_s: float = 0.0, **changes: int) -> LeaseQuestion:
    at_ms = NOW_MS + int(at_s * 1000)
    return replace(LeaseQuestion(publisher, sequence, at_ms, at_ms), **changes)  # type: ignore[arg-type]


def table_of(*leases: Lease) -> LeaseTable:
    table = LeaseTable(WORLD.overlay)
    for lease in leases:
        table.accept(lease, NOW)
    return table


def test_a_lease_survives_its_frame():
    lease = lease_of("a", on=False)
    assert Lease.decode(lease.encode()) == lease
    for cut in (0, 1, 63, 64, 100, len(lease.encode()) - 1):
        with pytest.raises(BadFrame):
            Lease.decode(lease.encode()[:cut])


def test_replicas_learn_no_names_of_groups_where_the_scope_hides_names():
    hidden = ScopeSecret(Scope("plant/#", tokens=True), "plant/#", b"\2" * 32)
    bare = ScopeSecret(Scope("plant/#"), "plant/#")
    assert group_id(hidden, "g", "plant/a") != group_id(replace(hidden, token_key=b"\1" * 32), "g", "plant/a")
    ids = {group_id(s, *g) for s in (hidden, bare) for g in (("g", "plant/a"), ("g", "plant/#"), ("gp", "lant/a"))}
    assert len(ids) == 6, "the same name with another filter is another group"


# ------------------------------------------------------------------------------------------- who is believed


@pytest.mark.parametrize("field", ["version", "on", "own_from_ms", "own_until_ms", "starts_ms", "ends_ms", "group"])
def test_a_changed_lease_is_refused(field: str):
    lease = lease_of("a")
    changes = {"on": False, "group": bytes(16)}
    changed = replace(lease, **{field: changes.get(field, NOW_MS + 1)})
    with pytest.raises(BadSignature):
        LeaseTable(WORLD.overlay).accept(changed, NOW)


def test_nobody_leases_for_another_nor_where_it_has_no_right():
    table = LeaseTable(WORLD.overlay)
    forged = replace(lease_of("a"), signature=b"").signed(WORLD.identities["b"])
    with pytest.raises(BadSignature):
        table.accept(forged, NOW)
    stranger = replace(lease_of("a"), member="stranger").signed(Identity.generate(bytes(32)))
    of_replica = replace(lease_of("a"), member="r1a").signed(WORLD.identities["r1a"])
    unknown_scope = replace(lease_of("a"), scope="else/#").signed(WORLD.identities["a"])
    for lease in (stranger, of_replica, unknown_scope, lease_of("nosy")):
        with pytest.raises(NotAuthorised):
            table.accept(lease, NOW)
    assert not list(table)


def test_leases_into_the_far_future_and_old_ones_change_nothing():
    table = LeaseTable(WORLD.overlay)
    with pytest.raises(NotAuthorised, match="longer than anybody may"):
        table.accept(lease_of("a", end_s=LEASE_AHEAD_S + 1), NOW)
    assert not table.accept(lease_of("a", start_s=-2 * ENDED_S, end_s=-ENDED_S), NOW), "a replay"
    assert not list(table)


def test_an_older_lease_undoes_nothing_whatever_comes_first():
    early, late = lease_of("a", end_s=50, version=1), lease_of("a", end_s=-1, version=2, on=False)
    for leases in ((early, late), (late, early)):
        table = table_of(*leases, lease_of("b"))
        assert table.server(ID, asked(), NOW) == "b"
        assert not table.accept(early, NOW)


def test_members_that_come_and_go_without_uplink_undo_nothing_that_was_said_before():
    """Neither lease takes part in the choice yet; what the first served alone would be served again by others."""
    first = replace(lease_of("a", end_s=-50, own=(-100, -50), version=1, on=False), starts_ms=0)
    second = replace(lease_of("a", own=(-10, 50), version=2), starts_ms=0)
    leases = [lease.signed(WORLD.identities["a"]) for lease in (first, second)]
    for order in (leases, leases[::-1]):
        table = table_of(*order, lease_of("b", start_s=-200))
        assert [table.server(ID, asked("a", at_s=s), NOW) for s in (-70, -30, -5)] == ["a", "b", "a"]


@pytest.mark.long
def test_leases_are_bounded_for_each_author():
    table = LeaseTable(WORLD.overlay)
    for number in range(NEWS_BURST):
        table.accept(lease_of("a", version=number + 1), NOW)
    with pytest.raises(TooOften):
        table.accept(lease_of("a", version=NEWS_BURST + 1), NOW)
    assert table.accept(lease_of("b"), NOW), "others are not concerned"
    assert table.accept(lease_of("a", version=NEWS_BURST + 1), NOW + 2 * NEWS_EVERY_S)
    for number in range(3 * LIVES_MAX):
        table.accept(lease_of("b", start_s=number / 10, version=NOW_MS + number), NOW)
    assert len(table.leases_of(ID)["b"]) == LIVES_MAX


@pytest.mark.attack(35)
def test_a_version_that_is_to_come_outranks_nothing():
    """Attack: who has a former key of a gateway says its last word for it, and makes its process unable to say more."""
    table = LeaseTable(WORLD.overlay)
    for version in (NOW_MS + int(AHEAD_S * 1000) + 1, (1 << 64) - 1):
        with pytest.raises(NotFresh):
            table.accept(lease_of("a", version=version, on=False), NOW)
    assert table.accept(lease_of("a", version=NOW_MS + int(AHEAD_S * 1000)), NOW)


@pytest.mark.attack(78)
def test_who_has_a_former_key_ends_no_lease_of_the_present_one():
    """Attack: its thief says, with the greatest version that is taken, that the member left the group."""
    after = rotated(WORLD, "a")
    fresh = lease_of("a")
    ours = [replace(fresh, version=NOW_MS + renewed).signed(after.identities["a"]) for renewed in (0, 20_000)]
    thief = replace(lease_of("a", version=NOW_MS + 299_000, on=False), ends_ms=fresh.starts_ms + 1)
    thief = thief.signed(WORLD.identities["a"])
    known = LeaseTable(after.overlay)
    assert [known.accept(lease, NOW) for lease in (ours[0], thief, ours[1])] == [True, False, True]
    assert known.server(ID, asked(), NOW) == "a"
    late = LeaseTable(after.overlay)
    assert [late.accept(lease, NOW) for lease in (thief, thief, ours[0])] == [True, False, True]
    assert late.server(ID, asked(), NOW) == "a"


def test_a_member_that_has_its_next_key_later_than_others_know_of_it_leases_on():
    known = table_of(lease_of("a", version=NOW_MS))
    after = rotated(WORLD, "a")
    known.adopt_overlay(after.overlay)
    assert known.accept(lease_of("a", end_s=55, version=NOW_MS + 1), NOW)
    present = lease_of("a", end_s=60, version=NOW_MS + 2).signed(after.identities["a"])
    assert known.accept(present, NOW)
    assert [lease.version for lease in known] == [NOW_MS + 2]


def test_a_gateway_with_too_many_groups_loses_its_own_oldest(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(groups, "LEASES_MAX", 5)
    table = table_of(lease_of("b"))
    for number in range(9):
        lease = replace(lease_of("a"), group=bytes([number] * 16))
        table.accept(lease.signed(WORLD.identities["a"]), NOW)
    assert [lease.group[0] for lease in table if lease.member == "a"] == [5, 6, 7, 8]
    assert [lease.group for lease in table if lease.member == "b"] == [GROUP]


def test_who_leaves_the_overlay_or_loses_the_right_serves_nobody():
    table = table_of(lease_of("a"), lease_of("b"))
    sequence = next(s for s in range(99) if table.server(ID, asked(sequence=s), NOW) == "a")
    table.adopt_overlay(WORLD.revoked("a", -1))
    assert table.server(ID, asked(sequence=sequence), NOW) == "b"
    table.adopt_overlay(WORLD.with_policy(scopes=(Scope("open/#"),)))
    assert not list(table)


# -------------------------------------------------------------------------------------------- who is chosen


def test_gateways_share_evenly_and_the_publishers_own_members_come_first():
    table = table_of(lease_of("a"), lease_of("b"), lease_of("c"))
    got = Counter(table.server(ID, asked(sequence=sequence), NOW) for sequence in range(300))
    assert set(got) == {"a", "b", "c"}
    assert min(got.values()) > 70
    assert all(table.server(ID, asked("b", sequence), NOW) == "b" for sequence in range(30))
    assert table_of(lease_of("writer"), lease_of("a")).server(ID, asked("writer"), NOW) == "writer", "it may not read"
    assert table_of(lease_of("writer"), lease_of("a")).server(ID, asked(), NOW) == "a"


def test_a_publishers_gateway_is_not_chosen_for_what_it_published_before_it_had_members():
    table = table_of(lease_of("a", own=(-5, 50)), lease_of("b"))
    assert table.server(ID, asked("a", at_s=-4), NOW) == "a"
    assert {table.server(ID, asked("a", s, at_s=-6), NOW) for s in range(30)} == {"b"}
    assert table_of(lease_of("a", own=(-5, 50))).server(ID, asked("a", at_s=-6), NOW) is None


def test_what_waited_in_an_outbox_goes_to_who_is_there_when_it_is_sent():
    gone, there = lease_of("a", start_s=-900, end_s=-300, on=False), lease_of("b", start_s=-200)
    late = asked(at_s=-600, sealed_ms=NOW_MS)
    assert {table_of(gone, there).server(ID, replace(late, sequence=s), NOW) for s in range(30)} == {"b"}
    # What it gave to its own members, days ago, nobody gives again.
    assert table_of(lease_of("site", own=(-900, 50)), there).server(ID, late, NOW) == "site"


def test_a_retained_publication_goes_to_nobody_who_joined_after_it():
    table = table_of(lease_of("a", start_s=-100), lease_of("b", start_s=-5))
    old = asked(at_s=-50, sealed_ms=NOW_MS, retained=True)
    assert {table.server(ID, replace(old, sequence=s), NOW) for s in range(30)} == {"a"}
    assert table_of(lease_of("b", start_s=-5)).server(ID, old, NOW) is None


@pytest.mark.parametrize("begins_s", [None, 6.0], ids=["before the new lease begins", "after"])
def test_a_restart_changes_nothing_of_what_was_sent_before_the_first_leases_began(begins_s: float | None):
    """What the gateways that had joined by then were to serve stays theirs: of `a` it waits at the replicas."""
    first = [lease_of(name, 1, 58, own=(-2, 58)) for name in ("a", "b")]
    before = table_of(*first)
    new = lease_of("a", 0, 60, own=(3, 60), version=NOW_MS + 3000)
    new = replace(new, starts_ms=NOW_MS + int(begins_s * 1000) if begins_s else 0).signed(WORLD.identities["a"])
    after = table_of(*first, new)
    chosen = [before.server(ID, asked(sequence=n, at_s=0.5), NOW) for n in range(40)]
    assert set(chosen) == {"a", "b"}
    assert [after.server(ID, asked(sequence=n, at_s=0.5), NOW + 4) for n in range(40)] == chosen


def test_a_restart_ends_nothing_that_was_leased_before():
    """The former process's lease is the older life of two; a lease that ended bounds those before it."""
    before, after = lease_of("a", start_s=-30, end_s=20), lease_of("a", start_s=3, end_s=55, own=(0, 55))
    for leases in ((before, after), (after, before)):
        table = table_of(*leases)
        assert table.server(ID, asked(at_s=-1), NOW) == "a"
        assert table.server(ID, asked(at_s=30), NOW) == "a"
    left = lease_of("a", start_s=3, end_s=5, own=(0, 5), version=after.version + 1, on=False)
    table = table_of(before, after, left, lease_of("b"))
    assert {table.server(ID, asked(sequence=s, at_s=10), NOW) for s in range(30)} == {"b"}, "though `before` says 20"


SPANS = st.tuples(st.integers(-60, 20), st.integers(1, 60), st.integers(0, 3), st.booleans())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), SPANS), min_size=1, max_size=8), st.integers(0, 1 << 32))
def test_in_whatever_order_leases_come_all_choose_alike(given_leases: list[tuple[str, tuple[int, int, int, bool]]],
                                                       seed: int):  # fmt: skip
    """Whoever knows the same leases; copies, old versions and forgeries in between change nothing."""
    assume(max(Counter(member for member, _ in given_leases).values()) <= LIVES_MAX)
    leases = [
        lease_of(member, start, min(start + length, 60), version=version, on=on)
        for version, (member, (start, length, _, on)) in enumerate(given_leases, 1)
    ]
    rng = random.Random(seed)
    questions = [asked(p, s, rng.uniform(-60, 60)) for s in range(20) for p in ("site", "a")]
    answers = set()
    for _ in range(3):
        arriving = [*leases, *leases]
        rng.shuffle(arriving)
        table = LeaseTable(WORLD.overlay)
        for lease in arriving:
            with pytest.raises(BadSignature):
                LeaseTable(WORLD.overlay).accept(replace(lease, ends_ms=lease.ends_ms + 1), NOW)
            table.accept(lease, NOW)
        answers.add(tuple(table.server(ID, question, NOW) for question in questions))
    assert len(answers) == 1
