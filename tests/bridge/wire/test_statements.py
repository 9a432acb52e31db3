"""Statements: who may make them, that one copy suffices, that none can be undone or invented, and when they end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.document import Member, Overlay, Scope, ShownAttribute
from bridge.predicates import parse_where
from bridge.wire import ShownList
from bridge.wire.admission import AHEAD_S
from bridge.wire.statements import (
    CLOCKS_S,
    DOMAIN,
    KEYS_TOPIC,
    NEWS_BURST,
    NEWS_EVERY_S,
    RENEW_AFTER_S,
    SESSION_S,
    SUBSCRIBE_TOPIC,
    RoutingTable,
    Statement,
    lease_s,
)
from keys.epochs import Calendar
from keys.errors import BadFrame, BadSignature, Expired, NotAuthorised, NotFresh, TooOften
from keys.identity import Identity, Role
from tests.sim.world import NOT_AFTER_MS, NOW, World, make_world
from tests.support.regions import fresh, one_region

pytestmark = pytest.mark.invariant(34)

EXPIRES_MS = int((NOW + 3600) * 1000)
PLANT = Scope("plant/#")


world = fresh(one_region, "control", "nosy", scopes=[PLANT, Scope("open/#")], rights={"nosy": ((), ("plant/line1/#",))})


def stated(world: World, member: str = "control", version: int = 1, on: bool = True, expires_ms: int = EXPIRES_MS,
           wire_filter: str = "plant/#") -> Statement:  # fmt: skip
    return Statement(member, wire_filter, version, on, expires_ms).signed(world.identities[member])


def test_a_statement_survives_its_frame(world: World):
    statement = stated(world, on=False)
    assert Statement.decode(statement.encode()) == statement


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 80])
def test_a_truncated_frame_is_refused(world: World, cut: int):
    with pytest.raises(BadFrame):
        Statement.decode(stated(world).encode()[:cut])


def test_the_highest_version_wins_and_off_means_off(world: World):
    table = RoutingTable(world.overlay)
    assert table.accept(stated(world, version=2), NOW)
    assert table.wanting(PLANT, NOW) == ["control"]
    assert not table.accept(stated(world, version=2, on=False), NOW)
    assert not table.accept(stated(world, version=1, on=False), NOW)
    assert table.accept(stated(world, version=3, on=False), NOW)
    assert table.wanting(PLANT, NOW) == []
    assert not table.accept(stated(world, version=2), NOW), "an old one, replayed, undoes nothing"


def test_another_scope_is_another_statement(world: World):
    table = RoutingTable(world.overlay)
    table.accept(stated(world, version=5), NOW)
    assert table.accept(stated(world, version=1, wire_filter="open/#"), NOW)
    assert len(table.live(NOW)) == 2


@pytest.mark.parametrize("field", ["version", "expires_ms", "on"])
def test_nobody_can_change_a_statement(world: World, field: str):
    forged = replace(stated(world), **{field: {"version": 9, "expires_ms": EXPIRES_MS + 1, "on": False}[field]})
    with pytest.raises(BadSignature):
        RoutingTable(world.overlay).accept(forged, NOW)


def test_nobody_can_state_for_another(world: World):
    forged = Statement("control", "plant/#", 1, True, EXPIRES_MS).signed(world.identities["nosy"])
    with pytest.raises(BadSignature):
        RoutingTable(world.overlay).accept(forged, NOW)


def test_rights_scopes_and_members_are_checked(world: World):
    table = RoutingTable(world.overlay)
    with pytest.raises(NotAuthorised):
        table.accept(stated(world, "nosy"), NOW)
    with pytest.raises(NotAuthorised):
        table.accept(stated(world, wire_filter="plant/line1/#"), NOW)
    with pytest.raises(NotAuthorised):
        table.accept(replace(stated(world), member="stranger"), NOW)
    with pytest.raises(NotAuthorised):
        table.accept(stated(world, "r1a"), NOW)
    assert table.live(NOW) == []


def test_a_lease_ends(world: World):
    table = RoutingTable(world.overlay)
    assert not table.accept(stated(world, expires_ms=int(NOW * 1000)), NOW)
    assert table.accept(stated(world), NOW)
    assert table.wanting(PLANT, NOW + 3601) == []


def test_a_lease_ends_with_the_certificate(world: World):
    table, end = RoutingTable(world.overlay), NOT_AFTER_MS / 1000
    assert table.accept(stated(world, expires_ms=NOT_AFTER_MS + 1_800_000), end - 1800)
    assert table.wanting(PLANT, end - 1) == ["control"]
    assert table.wanting(PLANT, end + 1) == []
    with pytest.raises(Expired, match="certificate"):
        table.accept(stated(world, version=2, expires_ms=NOT_AFTER_MS + 1_900_000), end + 1)


def test_a_full_table_still_takes_news_of_what_it_knows(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.wire.statements.STATEMENTS_MAX", 1)
    table = RoutingTable(world.overlay)
    assert table.accept(stated(world), NOW)
    assert not table.accept(stated(world, wire_filter="open/#"), NOW)
    assert table.accept(stated(world, version=2, on=False), NOW)


# ------------------------------------------------------------------------------- other versions, rotation


def with_members(world: World, members: list[Member]) -> Overlay:
    assert world.owner is not None
    return Overlay.sign(world.owner, world.overlay.policy, world.overlay.views.values(), members)


def test_statements_of_members_and_scopes_that_are_gone_are_forgotten(world: World):
    table = RoutingTable(world.overlay)
    table.accept(stated(world), NOW)
    table.accept(stated(world, wire_filter="open/#"), NOW)
    table.adopt_overlay(world.with_policy(scopes=(PLANT,)))
    assert [s.filter for s in table.live(NOW)] == ["plant/#"]
    table.adopt_overlay(with_members(world, [m for n, m in world.overlay.members.items() if n != "control"]))
    assert table.live(NOW) == []
    assert table.wanting(PLANT, NOW) == []


def test_a_former_certificate_counts_to_its_end_and_no_longer(world: World):
    assert world.owner is not None
    old = world.overlay.certificate("control")
    fresh = Identity.generate(bytes(range(32)))
    new = replace(old, public_key=fresh.public_bytes, agreement_key=fresh.agreement_bytes)
    ending = replace(old, not_after_ms=int((NOW + 60) * 1000))
    others = [m for n, m in world.overlay.members.items() if n != "control"]
    table = RoutingTable(with_members(world, [*others, Member(new, before=ending)]))
    assert table.accept(stated(world, version=1), NOW)
    assert table.accept(Statement("control", "plant/#", 2, True, EXPIRES_MS).signed(fresh), NOW)
    with pytest.raises(Expired):
        table.accept(stated(world, version=3), NOW + 61)
    with pytest.raises(BadSignature):
        table.accept(Statement("control", "plant/#", 4, True, EXPIRES_MS).signed(world.identities["nosy"]), NOW)


@pytest.mark.attack(7)
def test_a_statement_with_the_last_version_of_all_mutes_nobody(world: World):
    """A copy of a gateway, or a thief of its key, states the greatest version that there is."""
    table = RoutingTable(world.overlay)
    for version in ((1 << 64) - 1, int((NOW + AHEAD_S) * 1000) + 1):
        with pytest.raises(NotFresh, match="version"):
            table.accept(stated(world, version=version, on=False), NOW)
    assert table.accept(stated(world, version=int(NOW * 1000)), NOW)
    assert table.wanting(PLANT, NOW) == ["control"]


@pytest.mark.attack(7)
def test_a_statement_with_the_last_version_that_is_taken_outranks_for_five_minutes(world: World):
    table = RoutingTable(world.overlay)
    assert table.accept(stated(world, version=int((NOW + AHEAD_S) * 1000), on=False), NOW)
    assert not table.accept(stated(world, version=int(NOW * 1000) + 10), NOW + 10)
    later = NOW + AHEAD_S + 1
    assert table.accept(stated(world, version=int(later * 1000)), later)
    assert table.wanting(PLANT, later) == ["control"]


def test_no_statement_lives_longer_than_statements_do(world: World):
    table = RoutingTable(world.overlay)
    with pytest.raises(Expired, match="longer"):
        table.accept(stated(world, expires_ms=(1 << 64) - 1), NOW)
    ends = int((NOW + lease_s(Role.GATEWAY) + CLOCKS_S) * 1000)
    assert table.accept(stated(world, version=2, on=False, expires_ms=ends), NOW)
    assert table.accept(stated(world, version=1, expires_ms=ends + 3_600_000), ends / 1000)


@pytest.mark.attack(115)
@pytest.mark.parametrize(("member", "role"), [("control", Role.GATEWAY), ("job", Role.INGEST)])
def test_a_statement_lives_as_long_as_its_authors_session_and_its_renewal_and_no_longer(member: str, role: Role):
    """The certificate says who has a session of 7 days: a gateway, or who stole its key, is not kept for as long."""
    world = make_world({1: 3}, [], {"control": 1, "job": 1}, [PLANT], jobs={"job"})
    table, longest = RoutingTable(world.overlay), int((NOW + lease_s(role) + CLOCKS_S) * 1000)
    assert lease_s(role) == SESSION_S[role] + RENEW_AFTER_S
    assert (lease_s(role) + CLOCKS_S == 7200) == (role is Role.GATEWAY)
    with pytest.raises(Expired, match="longer"):
        table.accept(stated(world, member, expires_ms=longest + 1), NOW)
    assert table.accept(stated(world, member, expires_ms=longest), NOW)
    assert table.wanting(PLANT, longest / 1000 - 1) == [member]
    assert table.wanting(PLANT, longest / 1000) == [] == table.live(longest / 1000)


@pytest.mark.attack(115)
def test_a_jobs_statement_of_a_week_ends_with_its_right_its_word_its_membership_and_its_key():
    world = make_world({1: 3}, [], {"job": 1}, [PLANT], jobs={"job"})
    assert world.owner is not None
    lives, day = int((NOW + lease_s(Role.INGEST)) * 1000), NOW + 86_400
    table = RoutingTable(world.overlay)
    assert table.accept(stated(world, "job", expires_ms=lives), NOW)
    assert table.wanting(PLANT, day) == ["job"]
    table.adopt_overlay(world.revoked("job", -1))
    assert table.wanting(PLANT, day) == []
    table.adopt_overlay(world.overlay)
    assert table.wanting(PLANT, day) == ["job"]
    assert table.accept(stated(world, "job", version=2, on=False, expires_ms=lives), NOW)
    assert table.wanting(PLANT, day) == []

    old = world.overlay.certificate("job")
    fresh = Identity.generate(bytes(range(32)))
    new = replace(old, public_key=fresh.public_bytes, agreement_key=fresh.agreement_bytes)
    ending = replace(old, not_after_ms=int((NOW + 60) * 1000))
    others = [m for n, m in world.overlay.members.items() if n != "job"]
    for members in ([*others, Member(new)], others):
        table = RoutingTable(world.overlay)
        assert table.accept(stated(world, "job", expires_ms=lives), NOW)
        table.adopt_overlay(with_members(world, members))
        assert table.live(NOW) == [], "what a key signed that is no member's any more is forgotten"
    table = RoutingTable(world.overlay)
    assert table.accept(stated(world, "job", expires_ms=lives), NOW)
    table.adopt_overlay(with_members(world, [*others, Member(new, before=ending)]))
    assert table.wanting(PLANT, NOW + 59) == ["job"]
    assert table.wanting(PLANT, NOW + 61) == [] == table.live(NOW + 61), "not longer than the former certificate"


@pytest.mark.attack(32)
def test_whoever_has_a_former_key_does_not_outrank_the_present_one(world: World):
    """The owner renewed a stolen identity; the former certificate counts for a while, but not against the new one."""
    assert world.owner is not None
    old = world.overlay.certificate("control")
    fresh = Identity.generate(bytes(range(32)))
    new = replace(old, public_key=fresh.public_bytes, agreement_key=fresh.agreement_bytes)
    others = [m for n, m in world.overlay.members.items() if n != "control"]
    table = RoutingTable(world.overlay)
    assert table.accept(stated(world, version=int(NOW * 1000), on=False), NOW)
    table.adopt_overlay(with_members(world, [*others, Member(new, before=old)]))
    mine = Statement("control", "plant/#", 2, True, EXPIRES_MS).signed(fresh)
    assert table.accept(mine, NOW)
    assert not table.accept(stated(world, version=int(NOW * 1000) + 1, on=False), NOW)
    assert table.wanting(PLANT, NOW) == ["control"]
    assert not table.accept(mine, NOW)


@pytest.mark.long
def test_an_author_of_statements_without_end_is_refused_and_nobody_else(world: World):
    table = RoutingTable(world.overlay)
    for version in range(1, NEWS_BURST + 1):
        assert table.accept(stated(world, version=version), NOW)
    with pytest.raises(TooOften):
        table.accept(stated(world, version=NEWS_BURST + 1), NOW)
    assert not table.accept(stated(world, version=NEWS_BURST), NOW), "a repetition costs nothing"
    assert table.accept(stated(world, "nosy", on=False), NOW)
    assert table.accept(stated(world, version=NEWS_BURST + 1), NOW + 2 * NEWS_EVERY_S)


@pytest.mark.long
def test_old_statements_replayed_do_not_spend_their_authors_allowance():
    """One bad replica has a member's statements of last month; the member's own must go on counting."""
    world = make_world({1: 3}, [], {"site": 1, "control": 1}, [PLANT, Scope("old/#")])
    table = RoutingTable(world.overlay)
    old = stated(world, expires_ms=int((NOW - 10) * 1000), wire_filter="old/#")
    for _ in range(NEWS_BURST + 1):
        assert not table.accept(old, NOW)
    assert table.accept(stated(world, version=2), NOW)


def test_domain_and_topics_are_those_of_the_protocol():
    assert DOMAIN == "veilmq/1 subscription"
    assert (SUBSCRIBE_TOPIC, KEYS_TOPIC) == ("$veil/subscribe", "$veil/keys")


def test_nothing_stands_behind_a_statement(world: World):
    statement = stated(world)
    with pytest.raises(BadFrame):
        Statement.decode(statement.signed_bytes() + b"x" + statement.signature)


def test_a_lease_is_too_long_by_its_first_millisecond(world: World):
    longest = int((NOW + lease_s(Role.GATEWAY) + CLOCKS_S) * 1000)
    with pytest.raises(Expired, match="longer"):
        RoutingTable(world.overlay).accept(stated(world, expires_ms=longest + 1), NOW)


def test_a_lease_has_ended_at_its_end(world: World):
    table = RoutingTable(world.overlay)
    assert table.accept(stated(world), NOW)
    assert table.wanting(PLANT, EXPIRES_MS / 1000 - 0.001) == ["control"]
    assert table.wanting(PLANT, EXPIRES_MS / 1000) == []


def test_a_certificate_signs_to_its_last_millisecond(world: World):
    end = NOT_AFTER_MS / 1000
    assert RoutingTable(world.overlay).accept(stated(world, expires_ms=NOT_AFTER_MS + 1000), end)


def test_what_ended_is_nobodys_fault_and_forged_it_is_one(world: World):
    """A neighbour may be late with what a member stated that has lost the right since; it cannot sign in its name."""
    table, ended = RoutingTable(world.overlay), int(NOW * 1000)
    table.accept(stated(world), NOW)
    assert not table.accept(stated(world, version=2, expires_ms=ended), NOW)
    assert not table.accept(stated(world, "nosy", expires_ms=ended), NOW)
    for forged in (stated(world, version=2, expires_ms=ended), stated(world, "nosy", expires_ms=ended)):
        with pytest.raises(BadSignature):
            table.accept(replace(forged, signature=bytes(64)), NOW)
    assert table.live(NOW) == [stated(world)]


def test_a_right_that_is_taken_away_counts_at_once_and_at_every_use(world: World):
    table = RoutingTable(world.overlay)
    table.accept(stated(world), NOW)
    assert table.wanting(PLANT, NOW) == ["control"]
    table.adopt_overlay(world.revoked("control", -1))
    assert table.wanting(PLANT, NOW) == []
    with pytest.raises(NotAuthorised):
        table.accept(stated(world, version=2), NOW)


def test_rights_are_remembered_for_one_epoch(monkeypatch: pytest.MonkeyPatch):
    world = make_world({1: 3}, [], {"control": 1}, [PLANT], calendar=Calendar(int(NOW * 1000), 60))
    table, asked = RoutingTable(world.overlay), []
    may_read = Overlay.may_read

    def spy(overlay: Overlay, member: str, scope: Scope, epoch: int) -> bool:
        asked.append(epoch)
        return may_read(overlay, member, scope, epoch)

    monkeypatch.setattr(Overlay, "may_read", spy)
    for now in (NOW, NOW + 59, NOW + 60, NOW + 61, NOW + 180):
        assert table.may_read("control", PLANT, now)
    assert asked == [0, 1, 3], "once an epoch"
    assert list(table._rights) == [("control", "plant/#", 3)]


def test_another_version_gives_nobody_a_new_allowance(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.wire.statements.NEWS_BURST", 2)
    table = RoutingTable(world.overlay)
    for version in (1, 2):
        assert table.accept(stated(world, version=version), NOW)
    table.adopt_overlay(world.with_policy())
    with pytest.raises(TooOften):
        table.accept(stated(world, version=3), NOW)
    table.adopt_overlay(with_members(world, [m for n, m in world.overlay.members.items() if n != "control"]))
    assert table._allowances == {}, "who is gone is forgotten"


def test_what_is_forgotten_leaves_room(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.wire.statements.STATEMENTS_MAX", 1)
    table = RoutingTable(world.overlay)
    table.accept(stated(world, wire_filter="open/#"), NOW)
    table.adopt_overlay(world.with_policy(scopes=(PLANT,)))
    assert table.accept(stated(world), NOW)


@pytest.mark.attack(32)
def test_former_keys_rank_among_themselves_until_the_present_one_speaks(world: World):
    assert world.owner is not None
    old = world.overlay.certificate("control")
    fresh = Identity.generate(bytes(range(32)))
    new = replace(old, public_key=fresh.public_bytes, agreement_key=fresh.agreement_bytes)
    others = [m for n, m in world.overlay.members.items() if n != "control"]
    table = RoutingTable(with_members(world, [*others, Member(new, before=old)]))
    assert [table.accept(stated(world, version=version), NOW) for version in (5, 4, 5, 6)] == [True, False, False, True]
    assert table.accept(Statement("control", "plant/#", 2, False, EXPIRES_MS).signed(fresh), NOW), "it outranks them"
    assert not table.accept(stated(world, version=9), NOW)
    assert table.accept(Statement("control", "plant/#", 3, True, EXPIRES_MS).signed(fresh), NOW)


ATTIC = parse_where("room = 'attic'")


def test_a_cover_travels_with_its_statement_and_nobody_can_change_it(world: World):
    for goes_on in (False, True):
        statement = replace(stated(world), cover=ATTIC, goes_on=goes_on).signed(world.identities["control"])
        assert Statement.decode(statement.encode()) == statement
    with pytest.raises(BadSignature):
        RoutingTable(world.overlay).accept(replace(statement, cover=None), NOW)


def test_who_wants_less_is_left_out_where_a_publication_shows_it(world: World):
    scopes = (replace(world.overlay.policy.scopes[0], shown=(ShownAttribute(("room",)),)),)
    table = RoutingTable(world.with_policy(scopes=scopes))
    attic, hall = (ShownList(frozenset({("room",)}), ({("room",): room},)) for room in ("attic", "hall"))
    sign = world.identities["control"]
    assert table.accept(replace(stated(world), cover=ATTIC).signed(sign), NOW)
    assert table.wanting(scopes[0], NOW) == ["control"]
    assert (table.left_out(scopes[0], attic), table.left_out(scopes[0], hall)) == (set(), {"control"})
    again = replace(stated(world, version=2), goes_on=True).signed(sign)
    assert table.goes_on(again, NOW)
    assert not table.goes_on(stated(world, version=2), NOW)
    assert not table.goes_on(again, NOW + 3600), "what it says to go on with has ended"
    assert table.accept(again, NOW)
    assert not table.left_out(scopes[0], hall)
    assert table.accept(replace(stated(world, version=3), cover=ATTIC).signed(sign), NOW)
    assert table.left_out(scopes[0], hall) == {"control"}
    table.adopt_overlay(world.with_policy(scopes=(PLANT,)))
    assert not table.left_out(PLANT, hall), "the owner shows it no more"


@pytest.mark.attack(95)
def test_who_wants_a_scope_that_retires_wants_what_it_is_now_until_it_says_something_of_that():
    rights = {"nosy": (("#",), ("open/#",))}
    world = make_world({1: 3}, [], {"control": 1, "nosy": 1}, [Scope("plant/#", tokens=True)], rights=rights)
    former = world.secrets[0].scope.filter
    table = RoutingTable(world.overlay)
    table.accept(stated(world, wire_filter=former), NOW)
    table.adopt_overlay(world.renew_tokens("plant/#"))
    present = world.secrets[-1].scope
    assert present.number != 1
    assert table.wanting(present, NOW) == ["control"]
    assert table.wanting(present, NOW + 7200) == [], "its lease is over"
    nosy = world.with_policy()
    nosy.set_grants(grant for grant in world.overlay.policy.grants if grant.member != "control")
    without = RoutingTable(world.overlay)
    without.accept(stated(world, wire_filter=former), NOW)
    without.adopt_overlay(nosy)
    assert without.wanting(present, NOW) == [], "its right to what the scope is now counts"
    table.accept(stated(world, wire_filter=present.filter, version=2, on=False), NOW)
    assert table.wanting(present, NOW) == []
    table.accept(stated(world, wire_filter=present.filter, version=3), NOW)
    assert table.wanting(present, NOW) == ["control"]


def with_next_key(world: World, overlay: Overlay) -> tuple[Overlay, Identity]:
    """This version, in which `control` has another signing key beside its former one."""
    assert world.owner is not None
    fresh = Identity.generate(bytes(range(32)))
    old = overlay.certificate("control")
    new = replace(old, public_key=fresh.public_bytes, agreement_key=fresh.agreement_bytes)
    members = [Member(new, before=old) if n == "control" else m for n, m in overlay.members.items()]
    return Overlay.sign(world.owner, overlay.policy, overlay.views.values(), members), fresh


@pytest.mark.attack(125)
@pytest.mark.parametrize("on", [False, True])
def test_a_former_key_mutes_nobody_who_has_not_said_anything_of_the_new_tokens(on: bool):
    """Attack: a former key that is still listed says of the new tokens that it wants nothing, or next to nothing."""
    scope = Scope("plant/#", tokens=True, shown=(ShownAttribute(("room",)),))
    world = make_world({1: 3}, [], {"control": 1}, [scope])
    former = world.secrets[0].scope.filter
    overlay, fresh = with_next_key(world, world.renew_tokens("plant/#"))
    present = world.secrets[-1].scope
    hall = ShownList(frozenset({("room",)}), ({("room",): "hall"},))
    table = RoutingTable(overlay)
    table.left_out(present, hall)  # covers are known from now on
    thief = stated(world, version=9, on=on, wire_filter=present.filter)
    thief = replace(thief, cover=ATTIC if on else None).signed(world.identities["control"])
    assert table.accept(thief, NOW)
    assert table.wanting(present, NOW) == (["control"] if on else []), "a former key ranks as long as nothing else does"
    assert table.accept(Statement("control", former, 5, True, EXPIRES_MS).signed(fresh), NOW)
    for again in (table, RoutingTable(overlay)):
        again.accept(Statement("control", former, 5, True, EXPIRES_MS).signed(fresh), NOW)
        again.accept(thief, NOW)
        assert again.wanting(present, NOW) == ["control"]
        assert not again.left_out(present, hall)
    off = Statement("control", present.filter, 1, False, EXPIRES_MS).signed(fresh)
    assert table.accept(off, NOW), "what the present key says of the new tokens counts"
    assert table.wanting(present, NOW) == []
    narrow = replace(off, version=2, on=True, cover=ATTIC).signed(fresh)
    assert table.accept(narrow, NOW)
    assert (table.wanting(present, NOW), table.left_out(present, hall)) == (["control"], {"control"})
