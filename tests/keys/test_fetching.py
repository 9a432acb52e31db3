"""keys.fetching: the right key or none, whatever f servers do; outages, clocks, rekeys, and bounded work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys import fetching, issuing
from keys.archive import make_archive
from keys.epochs import Calendar, KeyName, ScopeKeys
from keys.errors import BadFrame, BadSignature, Expired, KeysError, OurFault, Replayed, TooOften
from keys.fetching import Ask, Effect, KeyFetcher, Learned, Lied, RefusedByServer
from keys.grants import Right
from keys.identity import Role
from keys.issuing import KeyServer
from keys.material import chain, deal
from keys.requests import (
    NAMES_MAX,
    KeyAnswer,
    KeyRequest,
    Outputs,
    Refusal,
    answer_info,
    decode_outputs,
    digest_of,
    encode_outputs,
)
from keys.sealedbox import seal_box
from tests.keys.helpers import stream
from tests.keys.service import (
    CALENDAR,
    DAY_S,
    NOW,
    PLANT,
    Service,
    Wire,
    certificate_for,
    grant,
    identity_of,
    revoke,
    run,
    service,
)

PRESENT, FOLLOWING = KeyName(PLANT, 10, 0), KeyName(PLANT, 11, 0)


def honest(world: Service) -> Wire:
    return lambda server, data, now: world.servers[server].answer(data, now)


def lying(world: Service, liars: tuple[str, ...], lie: Callable[[str, bytes, float], bytes | None]) -> Wire:
    return lambda server, data, now: (
        lie(server, data, now) if server in liars else world.servers[server].answer(data, now)
    )


def started(world: Service, fetcher: KeyFetcher, now: float = NOW, without: tuple[str, ...] = ()) -> list[Effect]:
    return [e for server in world.book.servers if server not in without for e in fetcher.link_up(server, now)]


def fetched(
    world: Service, wire: Wire, until: float = NOW + 100, name: str = "reader"
) -> tuple[ScopeKeys, list[Effect]]:
    fetcher, keys = world.client(name)
    log: list[Effect] = []
    run(fetcher, started(world, fetcher), wire, NOW, NOW + 100, log)
    return keys, log


def forged(
    world: Service,
    server: str,
    data: bytes,
    edit: Callable[[list[Outputs]], list[Outputs]],
    party: bytes = b"",
    **changes: object,
) -> bytes:
    """An answer that the server signed properly and whose content it made up."""
    request = KeyRequest.decode(data)
    answer = KeyAnswer.decode(world.servers[server].answer(data, request.time_ms / 1000))
    asker = next(c for c in world.book.certificates if c.party_id == request.asker)
    info = answer_info(server, digest_of(data))
    said = decode_outputs(identity_of(asker.name).open_box(answer.box, info))
    box = seal_box(asker.agreement_key, encode_outputs(edit(said)), info, stream("lie")(32))
    fields: dict[str, object] = {"box": box, "server": party or answer.server}
    return replace(answer, **(fields | changes)).signed_by(identity_of(server)).encode()  # type: ignore[arg-type]


def other_values(said: list[Outputs]) -> list[Outputs]:
    return [replace(o, outputs=tuple((i, bytes(b ^ 1 << i % 8 for b in out)) for i, out in o.outputs)) for o in said]


# --------------------------------------------------------------------------------------------- honest days


@pytest.mark.parametrize(("count", "faults"), [(3, 0), (4, 1), (7, 2), (1, -1), (3, -1)])
@pytest.mark.parametrize("name", ["reader", "writer"])
def test_members_learn_their_keys_for_epoch_after_epoch(count: int, faults: int, name: str) -> None:
    world = service(count, faults)
    fetcher, keys = world.client(name)
    log: list[Effect] = []
    run(fetcher, started(world, fetcher), honest(world), NOW, NOW + 3 * DAY_S, log)
    assert [e.name.epoch for e in log if isinstance(e, Learned)] == [10, 11, 12, 13]
    assert all(key == world.key(key_name) for key_name, key in keys)
    assert len(keys) == 4
    assert not [e for e in log if isinstance(e, Lied | RefusedByServer)]


def test_who_has_no_right_asks_for_nothing() -> None:
    world = service()
    keys, log = fetched(service(), honest(world), name="nobody")
    assert (len(keys), log) == (0, [])


def test_many_scopes_go_in_requests_of_64_names() -> None:
    world = service()
    world.book.bumps = {f"s{number}/#": 0 for number in range(150)}
    fetcher, keys = world.client("reader")
    asks = [e for e in fetcher.link_up("keys-1", NOW) if isinstance(e, Ask)]
    assert [len(KeyRequest.decode(ask.data).names) for ask in asks] == [NAMES_MAX, NAMES_MAX, 22]
    run(fetcher, [*asks, *started(world, fetcher, without=("keys-1",))], honest(world), NOW, NOW + 1)
    assert len(keys) == 150


def test_the_next_epochs_keys_are_fetched_at_scattered_moments_of_the_first_half() -> None:
    """Members that ran together for an epoch do not ask together for the next."""
    moments = []
    for seed in range(20):
        world = service()
        fetcher, _ = world.client("reader", f"member {seed}")
        run(fetcher, started(world, fetcher), honest(world), NOW, NOW + 1)
        moments.append(fetcher.next_deadline)
    opens = 11 * DAY_S - CALENDAR.ahead_s
    assert min(moments) >= opens
    assert max(moments) <= opens + CALENDAR.ahead_s / 2
    assert len(set(moments)) == 20
    assert max(moments) - min(moments) > CALENDAR.ahead_s / 4


def test_who_starts_late_in_an_epoch_fetches_both_at_once() -> None:
    world = service()
    fetcher, keys = world.client("reader")
    late = 11 * DAY_S - 10.0
    run(fetcher, started(world, fetcher, late), honest(world), late, late + 1)
    assert {name for name, _ in keys} == {PRESENT, FOLLOWING}


def test_a_reader_with_history_opens_what_was_sealed_before_it_came() -> None:
    world = service(calendar=replace(CALENDAR, history_epochs=2), first_epoch=5)
    for server in world.servers.values():
        server.walk(NOW)
    grant(world.book, "nobody", Right.READ, 9)
    fetcher, keys = world.client("nobody")
    effects = started(world, fetcher)
    for epoch in (9, 8):
        effects += fetcher.want_key(KeyName(PLANT, epoch, 0), NOW)
    run(fetcher, effects, honest(world), NOW, NOW + 100)
    assert keys.get(KeyName(PLANT, 9, 0)) == world.key(KeyName(PLANT, 9, 0))
    assert keys.get(KeyName(PLANT, 8, 0)) is None


@pytest.mark.parametrize(("count", "faults"), [(4, 1), (3, -1)])
def test_who_was_away_gets_the_keys_of_a_dead_epoch_from_the_archive(count: int, faults: int) -> None:
    world = service(count, faults)
    later = NOW + 3 * DAY_S
    for server in world.servers.values():
        server.walk(later)
    fetcher, keys = world.client("reader")
    effects = [*started(world, fetcher, later), *fetcher.want_key(PRESENT, later), *fetcher.want_key(FOLLOWING, later)]
    run(fetcher, effects, honest(world), later, later + 100)
    assert keys.get(PRESENT) == world.key(PRESENT)
    assert keys.get(FOLLOWING) == world.key(FOLLOWING)


def test_a_bump_is_fetched_as_soon_as_the_policy_says_so() -> None:
    world = service()
    fetcher, keys = world.client("reader")
    run(fetcher, started(world, fetcher), honest(world), NOW, NOW + 1)
    world.book.bumps[PLANT] = 1
    run(fetcher, fetcher.adopt_directory(world.book, NOW + 1), honest(world), NOW + 1, NOW + 2)
    bumped = KeyName(PLANT, 10, 1)
    assert keys.get(bumped) == world.key(bumped) != keys.get(PRESENT)


# ---------------------------------------------------------------------------------------- outages and clocks


@pytest.mark.parametrize(("count", "faults"), [(3, 0), (4, 1), (7, 2)])
def test_any_f_servers_may_be_away(count: int, faults: int) -> None:
    for away in combinations([f"keys-{n + 1}" for n in range(count)], max(1, faults)):
        world = service(count, faults)
        fetcher, keys = world.client("reader")
        run(fetcher, started(world, fetcher, without=away), honest(world), NOW, NOW + 1)
        assert keys.get(PRESENT) == world.key(PRESENT)


def test_a_chain_needs_one_server_and_goes_to_the_next_if_it_is_silent() -> None:
    world = service(3, -1)
    for alive in world.book.servers:
        keys, log = fetched(world, lying(world, tuple(s for s in world.book.servers if s != alive), lambda *_: None))
        assert keys.get(PRESENT) == world.key(PRESENT)
        asked = [e.server for e in log if isinstance(e, Ask)]
        assert len(asked) == len(set(asked)) <= 3
    keys, log = fetched(world, honest(world))
    assert len([e for e in log if isinstance(e, Ask)]) == 1


def test_in_a_chain_a_refusal_passes_the_turn_at_once() -> None:
    world = service(3, -1)
    stale = replace(world.book, bumps={})
    world.servers["keys-1"].adopt_directory(stale)
    world.servers["keys-2"].adopt_directory(stale)
    fetcher, keys = world.client("reader")
    run(fetcher, started(world, fetcher), honest(world), NOW, NOW + 0.5)
    assert keys.get(PRESENT) == world.key(PRESENT)


def test_an_outage_ends_by_itself_and_is_no_flood() -> None:
    world = service()
    fetcher, keys = world.client("reader")
    log: list[Effect] = []
    now = run(fetcher, started(world, fetcher), lambda *_: None, NOW, NOW + 400, log)
    asks = [e for e in log if isinstance(e, Ask)]
    assert 4 * 8 <= len(asks) <= 4 * 20
    assert len(keys) == 0
    run(fetcher, fetcher.tick(fetcher.next_deadline), honest(world), fetcher.next_deadline, now + 120)
    assert keys.get(PRESENT) == world.key(PRESENT)


def test_a_link_that_comes_back_is_asked_at_once() -> None:
    world = service()
    fetcher, keys = world.client("reader")
    run(fetcher, started(world, fetcher), lambda *_: None, NOW, NOW + 200)
    for server in world.book.servers:
        fetcher.link_down(server, NOW + 200)
    assert fetcher.next_deadline > NOW + 400  # nobody to ask: only the calendar matters
    run(fetcher, started(world, fetcher, NOW + 201), honest(world), NOW + 201, NOW + 202)
    assert keys.get(PRESENT) == world.key(PRESENT)


def test_servers_that_slept_through_epochs_serve_on() -> None:
    world = service()
    later = NOW + 30 * DAY_S
    for server in world.servers.values():
        server.walk(later)
    fetcher, keys = world.client("reader")
    run(fetcher, started(world, fetcher, later), honest(world), later, later + 100)
    name = KeyName(PLANT, 40, 0)
    assert keys.get(name) == world.key(name)


@pytest.mark.parametrize("skew", [-10.0, 10.0, -60.0, 60.0])
def test_clocks_apart_to_both_sides_across_epochs(skew: float) -> None:
    """Our clock against the servers': within the calendar's skew no request is lost; beyond it, it is later."""
    world = service()
    fetcher, keys = world.client("reader")
    log: list[Effect] = []

    def wire(server: str, data: bytes, now: float) -> bytes:
        world.servers[server].walk(now - skew)
        return world.servers[server].answer(data, now - skew)

    run(fetcher, started(world, fetcher), wire, NOW, NOW + 3 * DAY_S, log)
    assert {name.epoch for name, _ in keys} == {10, 11, 12, 13}
    assert all(key == world.key(name) for name, key in keys)
    if abs(skew) <= CALENDAR.skew_s:
        assert not [e for e in log if isinstance(e, RefusedByServer)]


def test_the_endless_epoch_needs_nothing_after_its_key() -> None:
    world = service(2, -1, calendar=Calendar(), first_epoch=0)
    fetcher, keys = world.client("reader")
    run(fetcher, started(world, fetcher), honest(world), NOW, NOW + 1e6)
    assert [name for name, _ in keys] == [KeyName(PLANT, 0, 0)]
    assert fetcher.next_deadline == float("inf")


# --------------------------------------------------------------------------------------------------- liars


@pytest.mark.parametrize(("count", "faults"), [(4, 1), (7, 2)])
def test_f_liars_change_nothing_and_are_named(count: int, faults: int) -> None:
    world = service(count, faults)
    for liars in combinations(world.book.servers, faults):
        keys, log = fetched(world, lying(world, liars, lambda s, d, _: forged(world, s, d, other_values)))
        assert keys.get(PRESENT) == world.key(PRESENT)
        named = [e.server for e in log if isinstance(e, Lied)]
        assert set(named) <= set(liars)
        assert named == sorted(named), "in the order in which the servers answer"
    heard_last = lying(world, world.book.servers[:faults], lambda s, d, _: forged(world, s, d, other_values))
    keys, log = fetched(world, heard_last)
    assert {e.server for e in log if isinstance(e, Lied)} == set(world.book.servers[:faults])


def test_a_liar_that_answers_after_the_key_is_known_is_named_too() -> None:
    world = service()
    fetcher, keys = world.client("reader")
    asks = [e for e in started(world, fetcher) if isinstance(e, Ask)]
    for ask in asks[:3]:
        fetcher.take_answer(ask.server, world.servers[ask.server].answer(ask.data, NOW), NOW)
    assert keys.get(PRESENT) == world.key(PRESENT)
    (lied,) = fetcher.take_answer("keys-4", forged(world, "keys-4", asks[3].data, other_values), NOW)
    assert isinstance(lied, Lied)
    assert lied.server == "keys-4"
    assert keys.get(PRESENT) == world.key(PRESENT)


def test_f_plus_one_liars_who_agree_are_believed() -> None:
    """The bound is tight (docs/explanation/threat-model.md): more than f that collude give out keys and blame."""
    world = service()
    liars = ("keys-1", "keys-2")
    keys, log = fetched(world, lying(world, liars, lambda s, d, _: forged(world, s, d, other_values)))
    assert keys.get(PRESENT) not in (None, world.key(PRESENT))
    assert {e.server for e in log if isinstance(e, Lied)} - set(liars)


def test_f_plus_one_liars_who_do_not_agree_give_nothing() -> None:
    world = service()

    def own_lie(server: str, data: bytes, _: float) -> bytes:
        mask = int(server[-1])
        return forged(
            world,
            server,
            data,
            lambda said: [
                replace(o, outputs=tuple((i, bytes(b ^ mask for b in out)) for i, out in o.outputs)) for o in said
            ],
        )

    keys, log = fetched(world, lying(world, ("keys-1", "keys-2"), own_lie))
    assert len(keys) == 0
    assert not [e for e in log if isinstance(e, Lied)]


Misbehaviour = Callable[[Service, str, bytes], bytes | None]


def drop_some(said: list[Outputs]) -> list[Outputs]:
    return [replace(o, outputs=o.outputs[1:]) for o in said]


def other_name(said: list[Outputs]) -> list[Outputs]:
    return [replace(o, name=o.name._replace(scope="other/#")) for o in said]


def later_deal(said: list[Outputs]) -> list[Outputs]:
    return [replace(o, deal=b"\xff" * 12) for o in said]


def all_sets(said: list[Outputs]) -> list[Outputs]:
    return [replace(o, outputs=tuple((i, b"\1" * 32) for i in range(4))) for o in said]


def invented_archive(world: Service, server: str, data: bytes) -> bytes:
    reader = next(c for c in world.book.certificates if c.name == "reader")
    lies = [Outputs(PRESENT, b"\xff" * 12, ((0, bytes(32)), (1, bytes(32)), (2, bytes(32))))]
    archive = make_archive(server, 10, [(reader, lies)], stream("x"))
    return forged(world, server, data, lambda said: said, archived=((10, archive[15 + 16 :]), (11, b"junk")))


BAD: dict[str, Misbehaviour] = {
    "silent": lambda w, s, d: None,
    "other values": lambda w, s, d: forged(w, s, d, other_values),
    "fewer sets": lambda w, s, d: forged(w, s, d, drop_some),
    "sets of others": lambda w, s, d: forged(w, s, d, all_sets),
    "another name": lambda w, s, d: forged(w, s, d, other_name),
    "a later deal": lambda w, s, d: forged(w, s, d, later_deal),
    "nothing": lambda w, s, d: forged(w, s, d, lambda said: []),
    "a name twice": lambda w, s, d: forged(w, s, d, lambda said: said + said),
    "a refusal": lambda w, s, d: forged(w, s, d, lambda said: [], refused=((0, Refusal.GONE),)),
    "a refusal of nothing": lambda w, s, d: forged(w, s, d, lambda said: said, refused=((63, Refusal.GONE),)),
    "a box that does not open": lambda w, s, d: forged(w, s, d, lambda said: said, box=bytes(100)),
    "an invented archive": invented_archive,
    "unsigned": lambda w, s, d: forged(w, s, d, other_values)[:-64] + bytes(64),
    "garbage": lambda w, s, d: b"\1\x0e\0" + d,
    "another request": lambda w, s, d: forged(w, s, d, other_values, request=bytes(32)),
    "in another's name": lambda w, s, d: forged(w, s, d, other_values, identity_of("keys-3").party_id),
}


def deliver(world: Service, order: list[int], moods: list[str], bad: set[str]) -> tuple[ScopeKeys, set[str]]:
    """Run for 100 s; a bad server behaves as another of `moods` says with each request. The keys, and who was named."""
    fetcher, keys = world.client("reader")
    queue: list[Effect] = [e for number in order for e in fetcher.link_up(f"keys-{number}", NOW)]
    now, turn, named = NOW, 0, set()
    while now <= NOW + 100:
        while queue:
            effect = queue.pop(0)
            if isinstance(effect, Lied):
                named.add(effect.server)
            if not isinstance(effect, Ask):
                continue
            if effect.server in bad:
                answer = BAD[moods[turn % len(moods)]](world, effect.server, effect.data)
                turn += 1
            else:
                answer = world.servers[effect.server].answer(effect.data, now)
            try:
                queue += fetcher.take_answer(effect.server, answer, now) if answer else []
            except KeysError:
                assert effect.server in bad
        now = fetcher.next_deadline
        queue += fetcher.tick(now)
    return keys, named


@settings(max_examples=150, deadline=None)
@given(st.permutations([1, 2, 3, 4]), st.lists(st.sampled_from(sorted(BAD)), min_size=1, max_size=6), st.integers(1, 4))
def test_the_right_key_or_none_whatever_one_of_four_does(order: list[int], moods: list[str], bad: int) -> None:
    """A liar may change its mind with every request; servers answer in any order. Never a wrong key, and the right
    one as all the others are there. Only the liar is named."""
    world = service()
    keys, named = deliver(world, order, moods, {f"keys-{bad}"})
    assert dict(keys) == {PRESENT: world.key(PRESENT)}
    assert named <= {f"keys-{bad}"}


@settings(max_examples=25, deadline=None)
@given(
    st.permutations(range(1, 8)),
    st.lists(st.sampled_from(sorted(BAD)), min_size=1, max_size=6),
    st.sets(st.integers(1, 7), min_size=2, max_size=2),
)
def test_the_right_key_or_none_whatever_two_of_seven_do(order: list[int], moods: list[str], bad: set[int]) -> None:
    world, liars = service(7, 2), {f"keys-{number}" for number in bad}
    keys, named = deliver(world, order, moods, liars)
    assert dict(keys) == {PRESENT: world.key(PRESENT)}
    assert named <= liars


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from(sorted(BAD)))
def test_never_a_wrong_key_while_another_is_away(bad: int, away: int, mood: str) -> None:
    """One lies and one is away: more than f; there may be no key, but no wrong one."""
    world = service()
    fetcher, keys = world.client("reader")
    for ask in started(world, fetcher, without=(f"keys-{away}",)):
        assert isinstance(ask, Ask)
        lie = ask.server == f"keys-{bad}"
        answer = BAD[mood](world, ask.server, ask.data) if lie else world.servers[ask.server].answer(ask.data, NOW)
        try:
            named = fetcher.take_answer(ask.server, answer, NOW) if answer else []
        except KeysError:
            named = []
        assert not [e for e in named if isinstance(e, Lied) and e.server != f"keys-{bad}"]
    assert keys.get(PRESENT) in (None, world.key(PRESENT))


# ------------------------------------------------------------------------------------------------- answers


def one_ask(fetcher: KeyFetcher, server: str = "keys-1", now: float = NOW) -> bytes:
    (ask,) = fetcher.link_up(server, now)
    assert isinstance(ask, Ask)
    return ask.data


def test_answers_of_another_to_another_or_again_are_refused() -> None:
    world = service()
    fetcher, _ = world.client("reader")
    data = one_ask(fetcher)
    answer = world.servers["keys-1"].answer(data, NOW)
    with pytest.raises(BadSignature):
        fetcher.take_answer("keys-2", answer, NOW)
    other, _ = world.client("reader", "other client")
    with pytest.raises(Replayed):
        fetcher.take_answer("keys-1", world.servers["keys-1"].answer(one_ask(other), NOW), NOW)
    fetcher.take_answer("keys-1", answer, NOW)
    with pytest.raises(Replayed):
        fetcher.take_answer("keys-1", answer, NOW)
    late, _ = world.client("reader", "late")
    answer = world.servers["keys-1"].answer(one_ask(late), NOW)
    late.link_down("keys-1", NOW)
    with pytest.raises(Replayed):
        late.take_answer("keys-1", answer, NOW)


def test_an_answer_says_nothing_about_names_that_its_request_had_not() -> None:
    world = service(1, -1, calendar=replace(CALENDAR, history_epochs=2), first_epoch=5)
    fetcher, keys = world.client("reader")
    data, past = one_ask(fetcher), KeyName(PLANT, 9, 0)
    assert fetcher.want_key(past, NOW)
    fetcher.take_answer(
        "keys-1", forged(world, "keys-1", data, lambda said: [replace(o, name=past) for o in said]), NOW
    )
    assert len(keys) == 0


def test_answers_of_members_that_are_no_key_servers_or_have_ended_are_refused() -> None:
    world = service()
    fetcher, _ = world.client("reader")
    data = one_ask(fetcher)
    answer = KeyAnswer.decode(world.servers["keys-1"].answer(data, NOW))
    forger = replace(answer, server=identity_of("writer").party_id).signed_by(identity_of("writer")).encode()
    with pytest.raises(BadSignature):
        fetcher.take_answer("writer", forger, NOW)
    with pytest.raises(BadSignature):
        fetcher.take_answer("keys-1", forger, NOW)
    stranger = replace(answer, server=identity_of("x").party_id).signed_by(identity_of("x")).encode()
    with pytest.raises(BadSignature):
        fetcher.take_answer("keys-1", stranger, NOW)
    ended = certificate_for("keys-1", Role.KEY_SERVER, identity_of("keys-1"), int(NOW * 1000) - 1)
    world.book.certificates = [ended, *world.book.certificates[1:]]
    with pytest.raises(Expired):
        fetcher.take_answer("keys-1", answer.encode(), NOW)


@settings(max_examples=80)
@given(st.binary(max_size=120), st.integers(0, 300))
def test_garbage_and_altered_answers_are_refused(data: bytes, at: int) -> None:
    world = service()
    fetcher, keys = world.client("reader")
    frame = world.servers["keys-1"].answer(one_ask(fetcher), NOW)
    for sent in (data, frame[:3] + data, frame[:at] + data + frame[at + len(data) :]):
        if sent != frame:
            with pytest.raises((BadFrame, BadSignature)):
                fetcher.take_answer("keys-1", sent, NOW)
    assert len(keys) == 0


def test_an_answer_on_its_way_opens_after_our_rotation() -> None:
    world, new = service(), identity_of("reader's new key")
    world.book.certificates.append(certificate_for("reader", Role.GATEWAY, new))
    fetcher, keys = world.client("reader")
    asks = [e for e in started(world, fetcher) if isinstance(e, Ask)]
    answers = [(a.server, world.servers[a.server].answer(a.data, NOW)) for a in asks]
    fetcher.rotate_identity(new)
    for server, answer in answers:
        fetcher.take_answer(server, answer, NOW)
    assert keys.get(PRESENT) == world.key(PRESENT)
    world.book.bumps[PLANT] = 1
    asks = [e for e in fetcher.adopt_directory(world.book, NOW) if isinstance(e, Ask)]
    assert {KeyRequest.decode(ask.data).asker for ask in asks} == {new.party_id}


# ------------------------------------------------------------------------------------ wanting, doubting, rekey


def test_what_cannot_be_or_is_not_ours_is_not_asked_for() -> None:
    world = service()
    fetcher, _ = world.client("reader")
    run(fetcher, started(world, fetcher), honest(world), NOW, NOW + 1)
    revoked_before = KeyName(PLANT, 3, 0)
    grant(world.book, "nobody", Right.READ, 9, 9)
    for name in (
        PRESENT,
        KeyName(PLANT, 10, 1),
        KeyName("x", 10, 0),
        KeyName(PLANT, 12, 0),
        KeyName(PLANT, 1 << 31, 0),
    ):
        assert fetcher.want_key(name, NOW) == []
    other, _ = world.client("nobody")
    started(world, other)
    assert other.want_key(revoked_before, NOW) == []
    assert other.want_key(KeyName(PLANT, 9, 0), NOW) != []


@pytest.mark.long
def test_a_publisher_that_invents_epochs_does_not_fill_our_memory() -> None:
    world = service()
    world.book.bumps[PLANT] = 60_000
    fetcher, _ = world.client("reader")
    run(fetcher, started(world, fetcher), honest(world), NOW, NOW + 1)
    asks = [fetcher.want_key(KeyName(PLANT, 9, bump), NOW) for bump in range(2000)]
    assert len([ask for ask in asks if ask]) == 1  # the others are gathered
    log: list[Effect] = []
    run(fetcher, [], lambda *_: None, NOW, NOW + 60, log)
    assert len(log) <= 4 * (60 / fetching.EXTRA_EVERY_S + 1)
    assert len(fetcher._wishes) <= fetching.EXTRA_MAX + 1
    assert all(len(pending) <= fetching.PENDING_MAX for pending in fetcher._up.values())
    end = NOW + fetching.EXTRA_S
    assert fetcher.next_deadline < end
    fetcher.tick(end)
    assert all(name.epoch >= 10 for name in fetcher._wishes)


def test_a_wrong_key_of_a_chain_is_replaced_when_publishers_use_another() -> None:
    world = service(3, -1)
    first = fetched(world, honest(world))[1][0]
    assert isinstance(first, Ask)
    wire = lying(world, (first.server,), lambda s, d, _: forged(world, s, d, other_values))
    fetcher, keys = world.client("reader")
    now = run(fetcher, started(world, fetcher), wire, NOW, NOW + 1)
    assert keys.get(PRESENT) != world.key(PRESENT)
    log: list[Effect] = []
    run(fetcher, fetcher.doubted(PRESENT, now), wire, now, now + 50, log)
    assert keys.get(PRESENT) == world.key(PRESENT)
    assert [e for e in log if isinstance(e, Learned)] == [Learned(PRESENT)]
    assert first.server not in {e.server for e in log if isinstance(e, Ask)}
    assert not [e for e in log if isinstance(e, Lied)]  # of two that differ nobody can say who lied


@pytest.mark.parametrize(("count", "faults"), [(3, -1), (4, 1), (1, -1)])
def test_a_bad_publisher_cannot_talk_us_out_of_the_right_key(count: int, faults: int) -> None:
    world = service(count, faults)
    fetcher, keys = world.client("reader")
    now = run(fetcher, started(world, fetcher), honest(world), NOW, NOW + 1)
    log: list[Effect] = []
    for second in range(59):
        run(fetcher, fetcher.doubted(PRESENT, now + second), honest(world), now + second, now + second + 1, log)
    assert keys.get(PRESENT) == world.key(PRESENT)
    assert not [e for e in log if isinstance(e, Learned | Lied)]
    assert len([e for e in log if isinstance(e, Ask)]) <= count


def test_a_doubted_key_that_came_from_the_disk_is_compared() -> None:
    world = service()
    fetcher, keys = world.client("reader")
    keys.put_key(PRESENT, b"\7" * 32)
    assert started(world, fetcher) == []
    run(fetcher, fetcher.doubted(PRESENT, NOW), honest(world), NOW, NOW + 50)
    assert keys.get(PRESENT) == world.key(PRESENT)


def test_a_rekey_whose_files_come_in_one_after_another() -> None:
    """Servers behind and ahead are not mixed and nobody is called a liar; the later deal wins once f + 1 have it."""
    world = service()
    new = deal(4, 1, 11, stream("rekey"))
    for number in (1, 2):
        world.servers[f"keys-{number}"].take_in(new[number - 1])
    fetcher, keys = world.client("reader")
    at = 11 * DAY_S + 20.0
    log: list[Effect] = []
    now = run(fetcher, started(world, fetcher, at), honest(world), at, at + 10, log)
    assert keys.get(FOLLOWING) is None  # two of each: no set has f + 1 of one deal everywhere
    world.servers["keys-3"].take_in(new[2])
    run(fetcher, fetcher.tick(fetcher.next_deadline), honest(world), max(now, fetcher.next_deadline), at + 200, log)
    expected = Service(world.book, new, {}).key(FOLLOWING)
    assert keys.get(FOLLOWING) == expected
    assert not [e for e in log if isinstance(e, Lied)]


def test_a_rekey_between_clients_and_epochs() -> None:
    world = service()
    new = deal(4, 1, 11, stream("rekey"))
    for number, material in enumerate(new, 1):
        world.servers[f"keys-{number}"].take_in(material)
    fetcher, keys = world.client("reader")
    run(fetcher, started(world, fetcher), honest(world), NOW, NOW + DAY_S)
    assert keys.get(PRESENT) == world.key(PRESENT)
    assert keys.get(FOLLOWING) == Service(world.book, new, {}).key(FOLLOWING)


# ------------------------------------------------------------------------------------------------ policies


@pytest.mark.long
def test_a_revoked_member_learns_no_key_of_a_later_epoch() -> None:
    world = service()
    fetcher, keys = world.client("reader")
    now = run(fetcher, started(world, fetcher), honest(world), NOW, NOW + 1)
    old_book = replace(world.book, grants=list(world.book.grants))
    revoke(world.book, "reader", 10)
    log: list[Effect] = []
    # It ignores the policy.
    run(fetcher, fetcher.adopt_directory(old_book, now), honest(world), now, now + 2 * DAY_S, log)
    assert {name for name, _ in keys} == {PRESENT}
    assert [e for e in log if isinstance(e, RefusedByServer)]
    log.clear()
    fetcher, keys = world.client("reader")
    run(fetcher, started(world, fetcher, now + DAY_S), honest(world), now + DAY_S, now + 3 * DAY_S, log)
    assert log == []  # it obeys: it does not even ask


def test_servers_that_are_behind_in_the_policy_are_asked_again_and_not_blamed() -> None:
    world = service()
    stale = replace(world.book, bumps=dict(world.book.bumps))
    world.book.bumps[PLANT] = 1
    for server in ("keys-1", "keys-2", "keys-3"):
        world.servers[server].adopt_directory(stale)
    fetcher, keys = world.client("reader")
    log: list[Effect] = []
    now = run(fetcher, started(world, fetcher), honest(world), NOW, NOW + 5, log)
    assert "unknown" in next(e.why for e in log if isinstance(e, RefusedByServer))
    for server in world.servers.values():
        server.adopt_directory(world.book)
    run(fetcher, fetcher.tick(fetcher.next_deadline), honest(world), max(now, fetcher.next_deadline), NOW + 200, log)
    assert keys.get(KeyName(PLANT, 10, 1)) == world.key(KeyName(PLANT, 10, 1))
    assert not [e for e in log if isinstance(e, Lied)]


def test_servers_that_left_are_not_asked_and_not_believed() -> None:
    world = service(4, 1)
    fetcher, _ = world.client("reader")
    data = [e for e in started(world, fetcher) if isinstance(e, Ask)][3].data
    answer = world.servers["keys-4"].answer(data, NOW)
    smaller = replace(world.book, servers=world.book.servers[:3], faults=0)
    asks = fetcher.adopt_directory(smaller, NOW)
    assert {e.server for e in asks if isinstance(e, Ask)} == {"keys-1", "keys-2", "keys-3"}
    with pytest.raises(Replayed):
        fetcher.take_answer("keys-4", answer, NOW)
    assert fetcher.link_up("keys-4", NOW) == []


def test_a_directory_that_is_no_key_service_is_refused() -> None:
    world = service()
    with pytest.raises(OurFault):
        KeyFetcher(identity_of("reader"), "reader", replace(world.book, faults=2), ScopeKeys(), stream("x"))
    fetcher, _ = world.client("reader")
    with pytest.raises(OurFault):
        fetcher.adopt_directory(replace(world.book, servers=("a", "b"), faults=0), NOW)


def test_no_key_shows_in_what_is_logged() -> None:
    world = service()
    keys, log = fetched(world, honest(world))
    secret = keys.get(PRESENT) or b""
    assert secret.hex() not in repr(keys) + repr(log)
    server = KeyServer(identity_of("keys-1"), "keys-1", chain(0, stream("s")), world.book, stream("x"), {})
    assert "subkey" not in repr(server)


def test_a_silent_server_is_asked_again_after_pauses_that_double_up_to_a_minute() -> None:
    fetcher, _ = service().client("reader")
    times: list[float] = []
    asks = fetcher.link_up("keys-1", NOW)
    now = NOW
    while len(times) < 10:
        times += [now] * sum(isinstance(effect, Ask) for effect in asks)
        now = fetcher.next_deadline
        asks = fetcher.tick(now)
    for count, (before, after) in enumerate(pairwise(times)):
        usual = min(fetching.RETRY_MAX_S, fetching.RETRY_S * 2.0**count)
        assert 0.75 * usual <= after - before <= 1.25 * usual
    assert len({round((b - a) / min(60, 2.0 * 2**n), 3) for n, (a, b) in enumerate(pairwise(times))}) > 3, "by chance"


def test_only_the_last_requests_to_a_server_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PENDING_MAX", 2)
    world = service()
    fetcher, _ = world.client("reader")
    asks = [effect.data for effect in fetcher.link_up("keys-1", NOW) if isinstance(effect, Ask)]
    now = NOW
    while len(asks) < 4:
        now = fetcher.next_deadline
        asks += [effect.data for effect in fetcher.tick(now) if isinstance(effect, Ask)]
    answers = [world.servers["keys-1"].answer(data, now) for data in asks]
    for forgotten in answers[:2]:
        with pytest.raises(Replayed):
            fetcher.take_answer("keys-1", forgotten, now)
    for remembered in answers[2:]:
        fetcher.take_answer("keys-1", remembered, now)


@pytest.mark.parametrize(("late_ms", "counts"), [(0, True), (1, False)])
def test_an_answer_counts_until_the_millisecond_at_which_its_servers_certificate_ends(
    late_ms: int, counts: bool
) -> None:
    world = service()
    fetcher, _ = world.client("reader")
    request = one_ask(fetcher)
    answer = world.servers["keys-1"].answer(request, NOW)
    ends_ms = int(NOW * 1000)
    world.book.certificates[0] = certificate_for("keys-1", Role.KEY_SERVER, identity_of("keys-1"), ends_ms)
    now = (ends_ms + late_ms) / 1000
    if counts:
        fetcher.take_answer("keys-1", answer, now)
        return
    with pytest.raises(Expired):
        fetcher.take_answer("keys-1", answer, now)


# ---------------------------------------------------------------------------------------------- exact edges


def by_chance(world: Service, byte: int, name: str = "reader") -> tuple[KeyFetcher, ScopeKeys]:
    """A fetcher whose random bytes are all the same: its chance is always the least (0) or the greatest (255)."""
    keys = ScopeKeys()
    return KeyFetcher(identity_of(name), name, world.book, keys, lambda size: bytes([byte]) * size), keys


def names_asked(effects: list[Effect], server: str = "keys-1") -> list[list[KeyName]]:
    """What each request to that server names."""
    asks = [effect for effect in effects if isinstance(effect, Ask) and effect.server == server]
    return [list(KeyRequest.decode(ask.data).names) for ask in asks]


def servers_asked(effects: list[Effect]) -> list[str]:
    return [effect.server for effect in effects if isinstance(effect, Ask)]


@pytest.mark.parametrize("byte", [0, 255])
def test_chance_moves_a_pause_by_a_quarter_and_the_next_epochs_moment_within_the_first_half(byte: int) -> None:
    world = service()
    fetcher, _ = by_chance(world, byte)
    assert fetcher.next_deadline <= NOW, "it was not asked yet what it wants"
    fetcher.link_up("keys-1", NOW)
    assert fetcher.next_deadline == pytest.approx(NOW + (1.25 if byte else 0.75) * fetching.RETRY_S, abs=1e-6, rel=0)
    run(fetcher, started(world, fetcher), honest(world), NOW, NOW + 1)
    opens = 11 * DAY_S - CALENDAR.ahead_s
    assert fetcher.next_deadline == pytest.approx(opens + (CALENDAR.ahead_s / 2 if byte else 0), abs=1e-6, rel=0)


def test_the_moment_for_the_next_epoch_is_drawn_once() -> None:
    world = service()
    fetcher, _ = world.client("reader")
    run(fetcher, started(world, fetcher), honest(world), NOW, NOW + 1)
    moment = fetcher.next_deadline
    fetcher.link_down("keys-1", NOW + 2)
    fetcher.link_up("keys-1", NOW + 3)
    assert fetcher.next_deadline == moment


def test_keys_that_are_asked_for_together_are_asked_for_together_again() -> None:
    world = service()
    world.book.bumps = dict.fromkeys(("a/#", "b/#", "c/#"), 0)
    fetcher, _ = world.client("reader")
    asked = names_asked(fetcher.link_up("keys-1", NOW))
    for _ in range(4):
        asked += names_asked(fetcher.tick(fetcher.next_deadline))
    assert [[name.scope for name in names] for names in asked] == [["a/#", "b/#", "c/#"]] * 5


def test_the_key_of_the_epoch_before_is_still_asked_for_and_no_earlier_one() -> None:
    fetcher, _ = service().client("reader")
    epochs = [
        [name.epoch for names in names_asked(fetcher.link_up("keys-1", epoch * DAY_S + 500.0)) for name in names]
        for epoch in (10, 11, 12)
    ]
    assert epochs == [[10], [10, 11], [11, 12]]


def test_members_of_a_chain_go_on_with_different_servers() -> None:
    """The first link that stands is asked first; who follows where it is silent, each member finds for itself."""
    world = service(3, -1)
    second = set()
    for number in range(24):
        fetcher = KeyFetcher(identity_of(f"member {number}"), "reader", world.book, ScopeKeys(), stream("x"))
        started(world, fetcher)
        second |= set(servers_asked(fetcher.tick(fetcher.next_deadline)))
    assert second == {"keys-2", "keys-3"}


def test_naming_a_key_that_is_asked_for_already_changes_nothing() -> None:
    world = service()
    fetcher, _ = world.client("reader")
    started(world, fetcher)
    due = fetcher.next_deadline
    for again in (fetcher.want_key, fetcher.doubted):
        assert again(PRESENT, NOW) == []
        assert fetcher.next_deadline == due
    later = fetcher.link_up("keys-1", NOW + fetching.EXTRA_S + 1)
    assert names_asked(later) == [[FOLLOWING, PRESENT]], "our own keys have no time by which they are given up"


def test_other_names_are_gathered_and_go_in_one_request_so_often() -> None:
    world = service()
    world.book.bumps[PLANT] = 60_000
    fetcher, keys = by_chance(world, 255)
    run(fetcher, started(world, fetcher), honest(world), NOW, NOW + 1)
    at = NOW + 2
    run(fetcher, fetcher.want_key(PRESENT, at), honest(world), at, at + 0.5)
    assert keys.get(PRESENT) == world.key(PRESENT)
    for bump in range(1, 101):
        assert fetcher.want_key(KeyName(PLANT, 10, bump), at + 1) == []
        assert fetcher.next_deadline == at + fetching.EXTRA_EVERY_S
    fetcher.link_up("keys-1", at + 1.5)
    assert fetcher.next_deadline == at + fetching.EXTRA_EVERY_S, "whatever happens meanwhile"
    known: set[KeyName] = set()
    for count in (NAMES_MAX, 100):
        at += fetching.EXTRA_EVERY_S
        asks = fetcher.tick(at)
        assert servers_asked(asks) == list(world.book.servers)
        known |= {name for names in names_asked(asks) for name in names}
        assert len(known) == count, "those that were not asked for yet come first"
    assert fetcher.want_key(KeyName(PLANT, 11, 0), at + fetching.EXTRA_EVERY_S)


def test_other_names_are_given_up_after_their_time_also_without_any_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "EXTRA_MAX", 3)
    world = service(calendar=replace(CALENDAR, length_s=100_000), first_epoch=0)
    world.book.bumps[PLANT] = 60
    fetcher, keys = world.client("reader")
    for bump in range(5):
        assert fetcher.want_key(KeyName(PLANT, 0, bump), NOW) == []
    keys.put_key(KeyName(PLANT, 0, 7), b"k" * 32)
    assert fetcher.want_key(KeyName(PLANT, 0, 7), NOW) == []
    assert fetcher.next_deadline == NOW + fetching.EXTRA_S
    (asked,) = names_asked(fetcher.link_up("keys-1", NOW + 1))
    assert [name.bump for name in asked] == [60, 2, 3, 4], "ours, and the last three of the others"
    (asked,) = names_asked(fetcher.link_up("keys-1", NOW + fetching.EXTRA_S))
    assert [name.bump for name in asked] == [60]


def test_another_policy_ends_what_it_does_not_allow_and_keeps_what_else_was_wanted() -> None:
    world = service()
    fetcher, _ = world.client("reader")
    started(world, fetcher)
    world.book.bumps[PLANT] = 1
    bumped, extra = KeyName(PLANT, 10, 1), KeyName(PLANT, 11, 1)
    assert names_asked(fetcher.adopt_directory(world.book, NOW)) == [[bumped]], (
        "nobody seals under the former bump any more"
    )
    fetcher.want_key(extra, NOW)
    assert names_asked(fetcher.adopt_directory(world.book, NOW + fetching.EXTRA_EVERY_S)) == [[extra, bumped]]
    revoke(world.book, "reader", 10)
    assert names_asked(fetcher.adopt_directory(world.book, NOW + 2 * fetching.EXTRA_EVERY_S)) == [[bumped]]


def test_answers_about_what_is_wanted_no_more_change_nothing() -> None:
    world = service(calendar=replace(CALENDAR, history_epochs=2), first_epoch=5)
    fetcher, keys = world.client("reader")
    run(fetcher, started(world, fetcher), honest(world), NOW, NOW + 1)
    past = KeyName(PLANT, 9, 0)
    asks = [effect for effect in fetcher.want_key(past, NOW + 1) if isinstance(effect, Ask)]
    answers = [(ask.server, world.servers[ask.server].answer(ask.data, NOW + 1)) for ask in asks[:3]]
    answers.append(
        (asks[3].server, forged(world, asks[3].server, asks[3].data, lambda _: [], refused=((0, Refusal.GONE),)))
    )
    revoke(world.book, "reader", 8)
    assert fetcher.adopt_directory(world.book, NOW + 1) == []
    assert fetcher.doubted(PRESENT, NOW + 10) == [], "we may read it no more"
    told = [effect for server, answer in answers for effect in fetcher.take_answer(server, answer, NOW + 1)]
    assert [type(effect) for effect in told] == [RefusedByServer]
    assert keys.get(past) is None


def test_a_refusal_names_its_reason_and_one_of_more_than_was_asked_is_no_error() -> None:
    world = service()
    fetcher, _ = world.client("reader")
    beyond = forged(world, "keys-1", one_ask(fetcher), lambda said: said, refused=((1, Refusal.GONE),))
    why = "it refuses what it was not asked for"
    assert fetcher.take_answer("keys-1", beyond, NOW) == [RefusedByServer("keys-1", why)]
    data = one_ask(fetcher, "keys-2")
    refused = forged(world, "keys-2", data, lambda _: [], refused=((0, Refusal.NOT_AUTHORISED),))
    (told,) = fetcher.take_answer("keys-2", refused, NOW)
    assert isinstance(told, RefusedByServer)
    assert told.why.startswith("not authorised: ")


@pytest.mark.parametrize("how", ["a refusal", "sets of others", "a box that does not open"])
def test_in_a_chain_an_answer_of_no_use_is_told_and_passes_the_turn_at_once(how: str) -> None:
    world = service(3, -1)
    fetcher, _ = world.client("reader")
    (first,) = [effect for effect in started(world, fetcher) if isinstance(effect, Ask)]
    answer = BAD[how](world, first.server, first.data)
    assert answer is not None
    told, *following = fetcher.take_answer(first.server, answer, NOW)
    assert isinstance(told, RefusedByServer)
    assert told.server == first.server
    (second,) = servers_asked(following)
    assert second != first.server


def test_in_a_chain_a_refusal_of_before_another_policy_is_no_error() -> None:
    world = service(3, -1)
    fetcher, _ = world.client("reader")
    (first,) = [effect for effect in started(world, fetcher) if isinstance(effect, Ask)]
    assert servers_asked(fetcher.adopt_directory(world.book, NOW)) == ["keys-2"], "where this member begins"
    refused = forged(world, first.server, first.data, lambda _: [], refused=((0, Refusal.GONE),))
    assert [type(effect) for effect in fetcher.take_answer(first.server, refused, NOW)] == [RefusedByServer]


def test_a_doubted_key_is_compared_for_a_minute_and_may_be_doubted_again_then() -> None:
    world = service()
    fetcher, _ = world.client("reader")
    now = run(fetcher, started(world, fetcher), honest(world), NOW, NOW + 1)
    everybody = list(world.book.servers)
    assert servers_asked(fetcher.doubted(PRESENT, now)) == everybody, "all of them gave a word before"
    later = now + fetching.DOUBT_S
    assert fetcher.doubted(PRESENT, later - 0.5) == []
    assert servers_asked(fetcher.doubted(PRESENT, later)) == everybody
    assert servers_asked(fetcher.link_up("keys-1", later + fetching.DOUBT_S - 0.5)) == everybody
    assert fetcher.link_up("keys-1", later + fetching.DOUBT_S) == []


def test_a_liar_is_named_once_an_epoch_whatever_it_lies_about() -> None:
    world = service()
    world.book.bumps = dict.fromkeys(("a/#", "b/#"), 0)
    fetcher, _ = world.client("reader")
    log: list[Effect] = []
    wire = lying(world, ("keys-4",), lambda s, d, _: forged(world, s, d, other_values))
    run(fetcher, started(world, fetcher), wire, NOW, NOW + 2 * DAY_S, log)
    assert [e.server for e in log if isinstance(e, Lied)] == ["keys-4", "keys-4"], "with the keys of 10, and of 12"


def test_who_needs_no_keys_refuses_a_directory_that_is_no_key_service_too() -> None:
    fetcher, _ = service().client("nobody")
    with pytest.raises(OurFault):
        fetcher.adopt_directory(replace(service().book, servers=("a", "b"), faults=0), NOW)


def test_of_two_servers_of_a_chain_the_other_is_believed_once_the_first_is_doubted() -> None:
    world = service(2, -1)
    fetcher, keys = world.client("reader")
    wire = lying(world, ("keys-1",), lambda s, d, _: forged(world, s, d, other_values))
    now = run(fetcher, started(world, fetcher), wire, NOW, NOW + 1)
    assert keys.get(PRESENT) != world.key(PRESENT)
    run(fetcher, fetcher.doubted(PRESENT, now), wire, now, now + 50)
    assert keys.get(PRESENT) == world.key(PRESENT)


def test_who_answered_a_doubt_is_not_asked_again_and_the_doubt_ends_with_the_last_answer() -> None:
    world = service()
    fetcher, _ = world.client("reader")
    now = run(fetcher, started(world, fetcher), honest(world), NOW, NOW + 1)
    moment = fetcher.next_deadline
    log: list[Effect] = []
    first = lying(world, ("keys-2", "keys-3", "keys-4"), lambda *_: None)
    run(fetcher, fetcher.doubted(PRESENT, now), first, now, now + 50, log)
    assert servers_asked(log).count("keys-1") == 1 < servers_asked(log).count("keys-2")
    later = now + fetching.DOUBT_S
    run(fetcher, fetcher.doubted(PRESENT, later), honest(world), later, later + 1)
    assert fetcher.next_deadline == moment


@pytest.mark.long
@pytest.mark.attack(205)
def test_endless_questions_for_ended_epochs_leave_room_for_the_keys_of_the_present_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(issuing, "REQUESTS_BURST", 4)  # which takes 64 epochs otherwise
    calendar = Calendar(0, 20, ahead_s=8, grace_s=2, skew_s=1)
    first = 10_000
    world = service(1, -1, calendar, first)
    fetcher, keys = world.client("reader")

    def answered(server: str, data: bytes, now: float) -> bytes | None:
        world.servers[server].walk(now)
        try:
            return world.servers[server].answer(data, now)
        except TooOften:
            return None

    now = calendar.start_s(first) + 1.0
    run(fetcher, started(world, fetcher, now), answered, now, now + 1)
    for second in range(400):
        now += 1.0
        ask = [*fetcher.tick(now), *fetcher.want_key(KeyName(PLANT, second, 0), now)]  # gone, whoever asks
        run(fetcher, ask, answered, now, now + 1)
        if now == calendar.start_s(calendar.epoch_at(now)) + 1:
            assert keys.get(KeyName(PLANT, calendar.epoch_at(now), 0)) is not None, f"after {second} s"
