"""keys.issuing: who gets which key of which epoch, what a server keeps, and the attacks on it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys import issuing, material
from keys.archive import archive_info, find_box, make_archive
from keys.epochs import Calendar, KeyName
from keys.errors import (
    BadContent,
    BadFrame,
    BadSignature,
    Expired,
    KeysError,
    NotAuthorised,
    NotFresh,
    OurFault,
    TooEarly,
    TooOften,
    UnknownKey,
)
from keys.grants import Right
from keys.identity import Role
from keys.issuing import KeepArchive, KeepMaterial, KeyServer
from keys.material import Material, chain, deal
from keys.requests import KeyAnswer, KeyRequest, Outputs, Refusal, answer_info, decode_outputs, digest_of
from tests.keys.helpers import stream
from tests.keys.service import (
    CALENDAR,
    DAY_S,
    NOW,
    PLANT,
    Service,
    certificate_for,
    grant,
    identity_of,
    revoke,
    service,
)

READER = identity_of("reader")
PRESENT = KeyName(PLANT, 10, 0)
ENDED = NOW + DAY_S - 500 + CALENDAR.grace_s + CALENDAR.skew_s  # epoch 10 is dead


def asked(*names: KeyName, by: str = "reader", now: float = NOW, server: str = "keys-1", nonce: int = 0) -> bytes:
    return KeyRequest.signed(identity_of(by), server, bytes([nonce] * 16), int(now * 1000), names).encode()


def read(data: bytes, request: bytes, by: str = "reader") -> tuple[KeyAnswer, list[Outputs]]:
    answer = KeyAnswer.decode(data)
    box = identity_of(by).open_box(answer.box, answer_info("keys-1", digest_of(request)))
    return answer, decode_outputs(box)


def got(world: Service, *names: KeyName, by: str = "reader", now: float = NOW) -> list[KeyName | Refusal]:
    """What one server says to a request: the name where it gives outputs, the reason where it refuses."""
    request = asked(*names, by=by, now=now)
    answer, said = read(world.servers["keys-1"].answer(request, now), request, by)
    refused, given = dict(answer.refused), {outputs.name for outputs in said}
    assert not given & {names[index] for index in refused}
    return [refused.get(i) or (name if name in given else Refusal.GONE) for i, name in enumerate(names)]


# ------------------------------------------------------------------------------------------------- answers


def test_a_reader_gets_the_outputs_of_all_sets_of_the_server() -> None:
    world = service()
    request = asked(PRESENT)
    answer, said = read(world.servers["keys-1"].answer(request, NOW), request)
    answer.verify(world.book.certificates[0])
    assert answer.server == identity_of("keys-1").party_id
    assert (answer.request, answer.version, answer.refused, answer.archived) == (digest_of(request), 1, (), ())
    (outputs,) = said
    generation = world.materials[0].generations[0]
    assert (outputs.name, outputs.deal) == (PRESENT, generation.deal)
    assert outputs.outputs == generation.outputs(PRESENT)


def test_an_answer_opens_for_its_asker_and_its_request_only() -> None:
    world = service()
    request, other = asked(PRESENT), asked(PRESENT, nonce=1)
    answer = KeyAnswer.decode(world.servers["keys-1"].answer(request, NOW))
    for identity, info in (
        (identity_of("writer"), answer_info("keys-1", digest_of(request))),
        (identity_of("keys-1"), answer_info("keys-1", digest_of(request))),
        (READER, answer_info("keys-1", digest_of(other))),
        (READER, answer_info("keys-2", digest_of(request))),
    ):
        with pytest.raises(BadContent):
            identity.open_box(answer.box, info)


def test_rights_are_judged_by_epoch() -> None:
    world = service()
    at = NOW + 450  # the next epoch's keys are out
    revoke(world.book, "reader", 10)
    names = [KeyName(PLANT, 10, 0), KeyName(PLANT, 11, 0), KeyName("other/#", 10, 0)]
    assert got(world, *names, now=at) == [names[0], Refusal.NOT_AUTHORISED, Refusal.UNKNOWN]
    revoke(world.book, "reader", 9)
    assert got(world, *names, now=at)[:2] == [Refusal.NOT_AUTHORISED] * 2
    assert got(world, PRESENT, by="nobody") == [Refusal.NOT_AUTHORISED]


def test_a_publisher_without_the_right_to_read_gets_what_it_seals_under() -> None:
    world = service(calendar=replace(CALENDAR, history_epochs=3), first_epoch=5)
    world.book.bumps[PLANT] = 2
    at = NOW + 450
    names = [KeyName(PLANT, 10, 2), KeyName(PLANT, 11, 2), KeyName(PLANT, 10, 1), KeyName(PLANT, 9, 2)]
    assert got(world, *names, by="writer", now=at) == [*names[:2], Refusal.NOT_AUTHORISED, Refusal.NOT_AUTHORISED]
    assert got(world, *names, now=at) == names


def test_keys_are_issued_ahead_by_so_much_and_never_two_epochs() -> None:
    world = service()
    following, start = KeyName(PLANT, 11, 0), 11 * DAY_S
    opens = start - CALENDAR.ahead_s - CALENDAR.skew_s
    assert got(world, following, now=opens - 1) == [Refusal.TOO_EARLY]
    assert got(world, following, now=opens) == [following]
    for epoch in (12, 13, 1 << 31):
        assert got(world, KeyName(PLANT, epoch, 0), now=start - 1) == [Refusal.TOO_EARLY]


def test_bumps_that_the_policy_does_not_know_are_refused_and_old_ones_stay_for_readers() -> None:
    world = service()
    assert got(world, KeyName(PLANT, 10, 1)) == [Refusal.UNKNOWN]
    world.book.bumps[PLANT] = 1
    assert got(world, KeyName(PLANT, 10, 1), KeyName(PLANT, 10, 0)) == [KeyName(PLANT, 10, 1), KeyName(PLANT, 10, 0)]


def test_history_is_given_to_a_grant_that_reaches_back() -> None:
    world = service(calendar=replace(CALENDAR, history_epochs=2), first_epoch=5)
    server = world.servers["keys-1"]
    server.walk(NOW)
    grant(world.book, "nobody", Right.READ, 9)
    names = [KeyName(PLANT, epoch, 0) for epoch in (10, 9, 8)]
    assert got(world, *names, by="nobody") == [*names[:2], Refusal.NOT_AUTHORISED]
    assert got(world, KeyName(PLANT, 8, 0), KeyName(PLANT, 7, 0)) == [KeyName(PLANT, 8, 0), Refusal.GONE]


def test_each_refusal_is_an_error_class_of_its_own() -> None:
    server = service().servers["keys-1"]
    server.check_request("reader", PRESENT, NOW)
    for name, key, error in (
        ("nobody", PRESENT, NotAuthorised),
        ("reader", KeyName(PLANT, 11, 0), TooEarly),
        ("reader", KeyName("x", 10, 0), UnknownKey),
        ("reader", KeyName(PLANT, 10, 7), UnknownKey),
    ):
        with pytest.raises(error):
            server.check_request(name, key, NOW)


# ------------------------------------------------------------------------------------------------- attacks


def test_requests_of_strangers_by_another_and_to_another_are_not_answered() -> None:
    world = service()
    server = world.servers["keys-1"]
    genuine = KeyRequest.decode(asked(PRESENT))
    with pytest.raises(NotAuthorised):
        server.answer(asked(PRESENT, by="stranger"), NOW)
    with pytest.raises(BadSignature):
        server.answer(replace(genuine, asker=identity_of("writer").party_id).encode(), NOW)
    with pytest.raises(BadSignature, match="another server"):
        server.answer(asked(PRESENT, server="keys-2"), NOW)
    with pytest.raises(BadSignature):
        server.answer(replace(genuine, names=(KeyName(PLANT, 9, 0),)).encode(), NOW)


def test_a_revoked_member_keeps_its_certificate_and_gets_nothing() -> None:
    world = service()
    revoke(world.book, "reader", 9)
    request = asked(PRESENT)
    answer, said = read(world.servers["keys-1"].answer(request, NOW), request)
    assert answer.refused == ((0, Refusal.NOT_AUTHORISED),)
    assert said == []


def test_a_former_certificate_counts_until_its_end() -> None:
    world, old = service(), identity_of("reader's former key")
    world.book.certificates.append(certificate_for("reader", Role.GATEWAY, old, int(NOW * 1000) + 5000))
    request = KeyRequest.signed(old, "keys-1", bytes(16), int(NOW * 1000), [PRESENT]).encode()
    answer = KeyAnswer.decode(world.servers["keys-1"].answer(request, NOW + 5))
    assert decode_outputs(old.open_box(answer.box, answer_info("keys-1", digest_of(request))))
    with pytest.raises(BadContent):
        READER.open_box(answer.box, answer_info("keys-1", digest_of(request)))
    with pytest.raises(Expired):
        world.servers["keys-1"].answer(request, NOW + 5.01)


@pytest.mark.parametrize("offset", [-71, 71, -9_000, 1e9])
def test_old_and_future_requests_are_not_answered(offset: float) -> None:
    """The bound is the age of a request plus the skew that the calendar allows."""
    with pytest.raises(NotFresh):
        service().servers["keys-1"].answer(asked(PRESENT, now=NOW + offset), NOW)


@pytest.mark.parametrize("offset", [-70, 70])
def test_clocks_may_differ_to_both_sides(offset: float) -> None:
    assert service().servers["keys-1"].answer(asked(PRESENT, now=NOW + offset), NOW)


def test_a_replay_is_answered_with_nothing_new_for_anybody() -> None:
    server, request = service().servers["keys-1"], asked(PRESENT)
    first, again = (read(server.answer(request, NOW + s), request)[1] for s in (0, 30))
    assert first == again


def test_a_greedy_asker_spends_its_own_requests() -> None:
    world = service()
    server = world.servers["keys-1"]
    for _ in range(issuing.REQUESTS_BURST):
        server.answer(asked(PRESENT), NOW)
    with pytest.raises(TooOften):
        server.answer(asked(PRESENT), NOW)
    server.answer(asked(PRESENT, by="writer"), NOW)
    server.answer(asked(PRESENT), NOW + issuing.REQUEST_EVERY_S)
    forged = replace(KeyRequest.decode(asked(PRESENT, by="writer")), signature=bytes(64)).encode()
    for _ in range(issuing.REQUESTS_BURST + 1):
        with pytest.raises(BadSignature):
            server.answer(forged, NOW)
    server.answer(asked(PRESENT, by="writer"), NOW)
    world.book.certificates = [c for c in world.book.certificates if c.name != "writer"]
    server.adopt_directory(world.book)
    assert set(server._requests) == {READER.party_id}


@settings(max_examples=100)
@given(st.binary(max_size=200), st.integers(0, 200))
def test_garbage_and_altered_requests_raise_errors_of_ours(data: bytes, at: int) -> None:
    server, frame = service().servers["keys-1"], asked(PRESENT)
    for sent in (data, frame[:3] + data, frame[:at] + data + frame[at + len(data) :]):
        if sent != frame:
            with pytest.raises(KeysError):
                server.answer(sent, NOW)


def test_material_for_another_list_of_servers_answers_nothing() -> None:
    """Its outputs would contradict the others', and an honest server would be called a liar."""
    world = service()
    for book in (
        replace(world.book, servers=world.book.servers[::-1]),
        replace(world.book, servers=world.book.servers[1:]),
        replace(world.book, servers=(*world.book.servers, "keys-5", "keys-6", "keys-7"), faults=2),
        replace(world.book, chain=True),
    ):
        world.servers["keys-1"].adopt_directory(book)
        assert got(world, PRESENT) == [Refusal.NOT_READY]
        assert not [e for e in world.servers["keys-1"].walk(ENDED) if isinstance(e, KeepArchive)]
        world = service()


# -------------------------------------------------------------------------------------------------- epochs


def walked(server: KeyServer, now: float) -> dict[int, bytes]:
    """Walk until there is nothing to do; the archives that are to be kept."""
    kept: dict[int, bytes] = {}
    for _ in range(1000):
        effects = server.walk(now)
        for effect in effects:
            if isinstance(effect, KeepArchive):
                kept.pop(effect.epoch, None)
                if effect.data is not None:
                    kept[effect.epoch] = effect.data
        if server.next_deadline > now:
            return kept
    raise AssertionError("it never comes to rest")


def test_a_server_walks_when_an_epoch_is_dead_and_not_before() -> None:
    world = service()
    server = world.servers["keys-1"]
    assert server.next_deadline == ENDED
    assert server.walk(ENDED - 0.001) == []
    assert got(world, PRESENT, now=ENDED - 0.001) == [PRESENT]
    assert set(server._walked) == {10}
    archive, material = server.walk(ENDED)
    assert not server._walked  # nor does memory hold what was erased
    assert isinstance(archive, KeepArchive)
    assert isinstance(material, KeepMaterial)
    assert archive.epoch == 10
    assert Material.decode(material.data).epoch == 11
    assert server.next_deadline == ENDED + DAY_S
    for _, subkey in world.materials[0].generations[0].subkeys:
        assert subkey not in material.data
    assert "data" not in repr(material) + repr(archive)


def test_who_was_authorised_then_fetches_later_and_nobody_else() -> None:
    world = service()
    server = world.servers["keys-1"]
    expected = world.materials[0].generations[0].outputs(PRESENT)
    server.walk(ENDED)
    grant(world.book, "nobody", Right.READ, 0)  # authorised for the past, but too late
    assert got(world, PRESENT, by="nobody", now=ENDED) == [Refusal.GONE]
    assert got(world, PRESENT, by="writer", now=ENDED) == [Refusal.NOT_AUTHORISED]
    request = asked(PRESENT, now=ENDED)
    answer, said = read(server.answer(request, ENDED), request)
    assert said == []
    ((epoch, box),) = answer.archived
    assert epoch == 10
    (outputs,) = decode_outputs(READER.open_box(box, archive_info("keys-1", READER.party_id, 10)))
    assert (outputs.name, outputs.outputs) == (PRESENT, expected)


def test_an_archived_box_opens_for_its_reader_only() -> None:
    world = service()
    archive = walked(world.servers["keys-1"], ENDED)[10]
    box = find_box(archive, READER.party_id)
    assert box is not None
    assert find_box(archive, identity_of("writer").party_id) is None
    for name in ("keys-1", "keys-2", "writer", "owner"):
        with pytest.raises(BadContent):
            identity_of(name).open_box(box, archive_info("keys-1", READER.party_id, 10))
    for info in (
        archive_info("keys-2", READER.party_id, 10),
        archive_info("keys-1", READER.party_id, 11),
        archive_info("keys-1", identity_of("writer").party_id, 10),
    ):
        with pytest.raises(BadContent):
            READER.open_box(box, info)
    with pytest.raises(BadFrame):
        find_box(archive[:-1], b"\xff" * 16)


def test_an_archive_has_one_order_and_may_be_empty() -> None:
    people = sorted((certificate_for(n, Role.GATEWAY, identity_of(n)) for n in "ab"), key=lambda c: c.party_id)
    archive = make_archive("keys-1", 10, [(certificate, []) for certificate in people[::-1]], stream("boxes"))
    assert archive[11:27] == people[0].party_id
    size = (len(archive) - 11) // 2
    with pytest.raises(BadFrame, match="order"):
        find_box(archive[:11] + archive[11 + size :] + archive[11 : 11 + size], bytes(16))
    assert find_box(make_archive("keys-1", 10, [], stream("none")), bytes(16)) is None


def test_archives_of_many_epochs_go_as_far_as_an_answer_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever order they are asked for; what does not fit is neither given nor refused, and is asked for again."""
    world, now = service(), 14 * DAY_S + 500.0
    server = world.servers["keys-1"]
    walked(server, now)
    request = asked(*(KeyName(PLANT, epoch, 0) for epoch in (13, 11, 12, 10)), now=now)
    answer, _ = read(server.answer(request, now), request)
    assert [epoch for epoch, _ in answer.archived] == [10, 11, 12, 13]
    monkeypatch.setattr(issuing, "ANSWER_BYTES_MAX", 2 * 2 * len(answer.archived[0][1]))
    answer, _ = read(server.answer(request, now), request)
    assert [epoch for epoch, _ in answer.archived] == [10, 11]
    assert answer.refused == ()


def test_a_later_revocation_closes_the_archive_too() -> None:
    """`revoke` of a whole grant takes the history back from those who did not fetch it."""
    world = service()
    world.servers["keys-1"].walk(ENDED)
    revoke(world.book, "reader", 9)
    request = asked(PRESENT, now=ENDED)
    answer, _ = read(world.servers["keys-1"].answer(request, ENDED), request)
    assert (answer.refused, answer.archived) == (((0, Refusal.NOT_AUTHORISED),), ())


@pytest.mark.attack(203)
def test_a_reader_that_was_away_gets_the_keys_of_an_epoch_in_which_the_owner_revoked_many() -> None:
    world = service()
    world.book.bumps[PLANT] = 40
    server, names = world.servers["keys-1"], [KeyName(PLANT, 10, bump) for bump in (0, 7, 40)]
    walked(server, ENDED)
    request = asked(*names, now=ENDED)
    answer, _ = read(server.answer(request, ENDED), request)
    ((_, box),) = answer.archived
    said = decode_outputs(READER.open_box(box, archive_info("keys-1", READER.party_id, 10)))
    assert {*names} <= {outputs.name for outputs in said}


def test_where_the_bytes_of_an_archive_do_not_suffice_it_has_the_newest_bumps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuing, "ARCHIVED_BYTES", 100)
    world = service()
    world.book.bumps[PLANT] = 9
    archive = walked(world.servers["keys-1"], ENDED)[10]
    box = find_box(archive, READER.party_id) or b""
    said = decode_outputs(READER.open_box(box, archive_info("keys-1", READER.party_id, 10)))
    assert [outputs.name.bump for outputs in said] == [5, 6, 7, 8, 9]


def test_archives_survive_a_restart_and_are_dropped_after_the_session_bound() -> None:
    world = service()
    server = world.servers["keys-1"]
    kept, material = {}, b""
    for effect in server.walk(ENDED):
        if isinstance(effect, KeepArchive):
            kept[effect.epoch] = effect.data or b""
        else:
            material = effect.data
    again = KeyServer(identity_of("keys-1"), "keys-1", Material.decode(material), world.book, stream("again"), kept)
    request = asked(PRESENT, now=ENDED)
    assert read(again.answer(request, ENDED), request)[0].archived
    later = 11 * DAY_S + issuing.SESSION_MAX_S
    assert KeepArchive(10, None) in again.walk(later)
    request = asked(PRESENT, now=later)
    assert read(again.answer(request, later), request)[0].refused == ((0, Refusal.GONE),)


def test_a_damaged_archive_is_a_lost_epoch_and_no_more() -> None:
    world = service()
    server = KeyServer(
        identity_of("keys-1"), "keys-1", world.materials[0].walked(11), world.book, stream("x"), {10: b"junk", 9: b""}
    )
    request = asked(PRESENT, KeyName(PLANT, 9, 0), KeyName(PLANT, 11, 0), now=ENDED)
    answer, said = read(server.answer(request, ENDED), request)
    assert answer.refused == ((0, Refusal.GONE), (1, Refusal.GONE))
    assert [outputs.name.epoch for outputs in said] == [11]


def test_a_server_that_was_down_for_many_epochs_walks_forward_in_pieces() -> None:
    world = service()
    server, now = world.servers["keys-1"], 60 * DAY_S + 500.0
    assert len(server.walk(now)) == issuing.ARCHIVES_A_WALK + 1
    assert server.next_deadline <= now
    kept = walked(server, now)
    assert server.next_deadline > now
    assert max(kept) == 59
    name = KeyName(PLANT, 60, 0)
    assert got(world, name, now=now) == [name]
    fresh = world.materials[0].walked(60).generations[0]
    assert server._outputs(name).outputs == fresh.outputs(name)


@pytest.mark.long
def test_what_nobody_may_fetch_any_more_is_not_archived() -> None:
    world = service()
    now = issuing.SESSION_MAX_S + 20 * DAY_S
    kept = walked(world.servers["keys-1"], float(now))
    assert min(kept) * DAY_S > now - issuing.SESSION_MAX_S - 2 * DAY_S
    assert len(kept) < 620


def test_archives_of_short_epochs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuing, "ARCHIVE_EPOCHS_MAX", 5)
    world = service()
    server = world.servers["keys-1"]
    kept: set[int] = set()
    for epoch in range(11, 30):
        for effect in server.walk(epoch * DAY_S + 500.0):
            if isinstance(effect, KeepArchive):
                (kept.discard if effect.data is None else kept.add)(effect.epoch)
        assert len(kept) <= 5
    assert kept == {24, 25, 26, 27, 28}
    monkeypatch.setattr(issuing, "ARCHIVE_BYTES_MAX", 0)
    assert {e.epoch for e in server.walk(29 * DAY_S + 501.0) if isinstance(e, KeepArchive)} == kept


def test_without_epochs_there_is_nothing_to_walk() -> None:
    world = service(2, -1, calendar=Calendar(), first_epoch=0)
    server = world.servers["keys-1"]
    assert server.next_deadline == float("inf")
    assert server.walk(1e12) == []
    assert got(world, KeyName(PLANT, 0, 0), KeyName(PLANT, 1, 0)) == [KeyName(PLANT, 0, 0), Refusal.TOO_EARLY]


@settings(max_examples=60)
@given(st.integers(0, 10**13), st.integers(300, 10**7), st.integers(0, 99), st.integers(0, 99), st.integers(0, 3))
def test_the_deadline_is_when_walking_does_something(
    zero_ms: int, length_s: int, grace_s: int, skew_s: int, history: int
) -> None:
    """Neither early, which would spin, nor late: whatever floats make of it."""
    calendar = Calendar(zero_ms, length_s, 0, grace_s, skew_s, history)
    book = service(2, -1).book
    book.calendar = calendar
    server = KeyServer(identity_of("keys-1"), "keys-1", chain(7, stream("c")), book, stream("r"), {})
    due = server.next_deadline
    assert server.walk(due - 0.01) == []
    assert any(isinstance(effect, KeepMaterial) for effect in server.walk(due))
    assert server.next_deadline > due


# --------------------------------------------------------------------------------------------------- rekey


def test_a_rekey_at_an_epochs_boundary() -> None:
    world = service()
    new = deal(4, 1, 11, stream("rekey"))
    server, at = world.servers["keys-1"], 11 * DAY_S - 50.0
    names = [PRESENT, KeyName(PLANT, 11, 0)]
    (kept,) = server.take_in(new[0])
    assert len(Material.decode(kept.data).generations) == 2
    request = asked(*names, now=at)
    _, said = read(server.answer(request, at), request)
    assert [outputs.deal for outputs in said] == [world.materials[0].generations[0].deal, new[0].generations[0].deal]
    assert said[1].outputs == new[0].generations[0].outputs(names[1])
    *_, kept_later = server.walk(ENDED)
    assert isinstance(kept_later, KeepMaterial)
    assert kept_later.data == new[0].encode()


def test_a_rekey_that_comes_late_is_in_force_at_once_and_an_older_one_never() -> None:
    world, new = service(), deal(4, 1, 11, stream("late"))[0]
    server = world.servers["keys-1"]
    now, name = 11 * DAY_S + 500.0, KeyName(PLANT, 11, 0)
    server.walk(now)
    old = server._outputs(name)
    assert server.take_in(new) == [KeepMaterial(new.encode())]
    assert server._outputs(name).outputs == new.generations[0].outputs(name) != old.outputs
    with pytest.raises(OurFault, match="last rekey"):
        server.take_in(world.materials[0])


def test_a_rotated_server_signs_with_its_new_key() -> None:
    world, new = service(), identity_of("new key of keys-1")
    world.servers["keys-1"].rotate_identity(new)
    answer = KeyAnswer.decode(world.servers["keys-1"].answer(asked(PRESENT), NOW))
    answer.verify(certificate_for("keys-1", Role.KEY_SERVER, new))
    assert answer.server == new.party_id


def test_a_request_over_many_epochs_walks_there_once(monkeypatch: pytest.MonkeyPatch):
    """Attack: a reader of a long history names epochs far apart, latest first; each walk would begin at the oldest."""
    made = service(calendar=replace(CALENDAR, history_epochs=2_000), first_epoch=0)
    names = tuple(KeyName(PLANT, epoch, 0) for epoch in range(630, -1, -10))
    steps, walk = 0, material._expand

    def counting(key: bytes, info: bytes) -> bytes:
        nonlocal steps
        steps += 1
        return walk(key, info)

    monkeypatch.setattr("keys.material._expand", counting)
    now = 630.5 * DAY_S
    data = made.servers["keys-1"].answer(asked(*names, now=now), now)
    assert KeyAnswer.decode(data).refused == ()
    assert steps == 630 * len(made.materials[0].generations[0].subkeys)


def test_refusals_stand_in_the_order_of_the_request_whatever_the_epochs():
    made = service()
    names = (KeyName(PLANT, 12, 0), PRESENT, KeyName("other/#", 10, 0), KeyName(PLANT, 0, 0))
    answer = KeyAnswer.decode(made.servers["keys-1"].answer(asked(*names), NOW))
    assert [index for index, _ in answer.refused] == [0, 2, 3]


def test_a_publisher_gets_what_it_seals_under_also_where_clocks_differ() -> None:
    """By a clock that is behind, the epoch before is still the present one; by none is the next one over."""
    world = service(calendar=replace(CALENDAR, history_epochs=3), first_epoch=5)
    begins, skew_s = 10 * DAY_S, CALENDAR.skew_s
    before = KeyName(PLANT, 9, 0)
    assert got(world, before, by="writer", now=begins + skew_s - 1) == [before]
    assert got(world, before, by="writer", now=begins + skew_s + 1) == [Refusal.NOT_AUTHORISED]
    assert got(world, PRESENT, by="writer", now=begins + DAY_S - 1) == [PRESENT]


def test_requests_come_back_one_at_a_time() -> None:
    server = service().servers["keys-1"]
    for nonce in range(issuing.REQUESTS_BURST):
        server.answer(asked(PRESENT, nonce=nonce), NOW)
    for waited in (0.0, issuing.REQUEST_EVERY_S / 2):
        for _ in range(3):
            with pytest.raises(TooOften):
                server.answer(asked(PRESENT, nonce=99), NOW + waited)
    server.answer(asked(PRESENT, nonce=100), NOW + issuing.REQUEST_EVERY_S)
    for _ in range(3):
        with pytest.raises(TooOften):
            server.answer(asked(PRESENT, nonce=101), NOW + issuing.REQUEST_EVERY_S)


@pytest.mark.parametrize("faults", [1, -1], ids=["threshold", "chain"])
def test_a_server_that_the_policy_lists_no_more_issues_nothing(faults: int) -> None:
    world = service(faults=faults)
    world.book.servers = world.book.servers[1:]
    assert got(world, PRESENT) == [Refusal.NOT_READY]


def test_what_was_given_and_refused_is_counted() -> None:
    world = service()
    got(world, PRESENT, KeyName("other/#", 10, 0))
    server = world.servers["keys-1"]
    assert (server.issued, server.refused) == (1, 1)


# ---------------------------------------------------------------------------------------------- exact edges


def test_keys_of_one_epoch_are_derived_once_and_an_earlier_one_may_be_asked_for_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = service(calendar=replace(CALENDAR, history_epochs=2_000), first_epoch=0)
    made.book.bumps = {PLANT: 0, "other/#": 0}
    server, steps, walk = made.servers["keys-1"], 0, material._expand

    def counting(key: bytes, info: bytes) -> bytes:
        nonlocal steps
        steps += 1
        return walk(key, info)

    monkeypatch.setattr("keys.material._expand", counting)
    names = KeyName(PLANT, 10, 0), KeyName("other/#", 10, 0)
    assert got(made, *names) == list(names)
    assert steps == 10 * len(made.materials[0].generations[0].subkeys)
    assert got(made, KeyName(PLANT, 4, 0)) == [KeyName(PLANT, 4, 0)], "before those that are derived already"
    many = tuple(KeyName(PLANT, epoch, 0) for epoch in range(11))
    assert got(made, *many) == list(many)
    for epoch in range(12, 30):
        got(made, KeyName(PLANT, epoch, 0), now=epoch * DAY_S + 500.0)
    assert len(server._walked) == issuing.ARCHIVES_A_WALK, "memory has a bound, however many epochs are asked for"


def test_a_history_that_is_longer_than_a_session_is_kept() -> None:
    made = service(calendar=replace(CALENDAR, history_epochs=2_000), first_epoch=0)
    now = 2_500 * DAY_S + 500.0
    assert walked(made.servers["keys-1"], now) == {}
    names = [KeyName(PLANT, epoch, 0) for epoch in (500, 499)]
    assert got(made, *names, now=now) == [names[0], Refusal.GONE]


def test_after_a_long_absence_only_the_archives_that_are_kept_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuing, "ARCHIVE_EPOCHS_MAX", 5)
    effects = service().servers["keys-1"].walk(29 * DAY_S + 500.0)
    assert [(e.epoch, e.data is None) for e in effects if isinstance(e, KeepArchive)] == [
        (epoch, False) for epoch in (24, 25, 26, 27, 28)
    ]


def test_a_walk_takes_no_more_steps_at_once_than_the_bound_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(material, "WALK_STEPS_MAX", 10)
    server, now = service().servers["keys-1"], issuing.SESSION_MAX_S + 500 * DAY_S + 500.0
    (kept,) = server.walk(now)
    assert isinstance(kept, KeepMaterial)
    assert Material.decode(kept.data).epoch == 20
    assert server.next_deadline <= now, "the rest is for another call"


def test_epochs_longer_than_a_session_outlive_their_archives() -> None:
    long_s = 2 * issuing.SESSION_MAX_S
    world = service(calendar=replace(CALENDAR, length_s=long_s), first_epoch=0)
    server = world.servers["keys-1"]
    assert server.walk(float(long_s)) == [], "the grace of the first is not over"
    assert set(walked(server, server.next_deadline)) == {0}
    assert server.next_deadline == long_s + issuing.SESSION_MAX_S
    assert server.walk(server.next_deadline) == [KeepArchive(0, None)]
    assert server.next_deadline == 2 * long_s + CALENDAR.grace_s + CALENDAR.skew_s


def test_the_first_epoch_is_not_walked_away_while_it_lives() -> None:
    world = service(calendar=replace(CALENDAR, history_epochs=3), first_epoch=0)
    assert world.servers["keys-1"].walk(500.0) == []
    assert got(world, KeyName(PLANT, 0, 0), now=500.0) == [KeyName(PLANT, 0, 0)]


def test_the_archive_of_a_scope_with_few_bumps_holds_all_of_them() -> None:
    world = service()
    world.book.bumps[PLANT] = 2
    box = find_box(walked(world.servers["keys-1"], ENDED)[10], READER.party_id) or b""
    said = decode_outputs(READER.open_box(box, archive_info("keys-1", READER.party_id, 10)))
    assert [outputs.name.bump for outputs in said] == [0, 1, 2]


def test_the_oldest_archives_are_dropped_first_and_only_as_many_as_the_bytes_ask_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, now = service(), 20 * DAY_S
    monkeypatch.setattr(issuing, "ARCHIVE_BYTES_MAX", 20)
    kept = {epoch: bytes(10) for epoch in (13, 11, 12, 10)}
    server = KeyServer(
        identity_of("keys-1"), "keys-1", world.materials[0].walked(20), world.book, stream("x"), kept
    )  # fmt: skip
    assert server.walk(float(now)) == [KeepArchive(10, None), KeepArchive(11, None)]
