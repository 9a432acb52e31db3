"""Discovery nodes: topics are theirs to draw, answers only for those who may know, nodes stand in for each other."""

from __future__ import annotations

import random
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.base import Wall
from bridge.contract.machine import Count
from bridge.traces.events import Registered
from bridge.traces.kinds import answers_to
from bridge.traces.offenders import BOGUS_MAX, BUDGETS, Complain, Offenders, SendAway
from bridge.traces.tracer import Say
from bridge.tracking import discovery as discovering
from bridge.tracking.discovery import (
    LIFE_MAX_S,
    Asked,
    DiscoveryEffect,
    DiscoveryNode,
    Heard,
    Request,
    ShareAdvertisement,
    entity_of,
    open_answer,
    open_found,
    owns,
)
from keys.delegation import DISCOVERERS_MAX, Advertisement
from keys.errors import BadFrame, KeysError
from keys.frames import Reader
from keys.identity import Certificate, Identity, Role
from keys.tracesession import REQUEST_FRESH_MS, Registration
from tests.keys.test_delegation import AUTHORITY, NODE, PUMP, SPY, certified

NOW = 1_800_000_000.0
NOW_MS = int(NOW * 1000)
OTHER_NODE, DESK = Identity.generate(b"node" * 8), Identity.generate(b"desk" * 8)
NODES = {"node-1": NODE.public_bytes, "node-2": OTHER_NODE.public_bytes}
CREATE = Request(
    certified(PUMP, "pump-7"), "Availability/Traces/pump-7", b"c" * 16, NOW_MS, ("desk*",), 3_600
)  # fmt: skip
QUERY = Request(certified(DESK, "desk-1"), "Availability/Traces/pump-7", b"q" * 16, NOW_MS)


def node(name: str = "node-1", identity: Identity = NODE) -> DiscoveryNode:
    return DiscoveryNode(name, identity, NODES, AUTHORITY.public_bytes, random.Random(name).randbytes)


def ask(of: DiscoveryNode, request: Request, holder: Identity, now: float = NOW) -> list[DiscoveryEffect]:
    return of.handle(Asked("client", request.signed(holder).encode()), now)


def answer(effects: list[DiscoveryEffect], asker: Identity) -> Advertisement | None:
    said = [effect for effect in effects if isinstance(effect, Say)]
    if not said:
        return None
    (one,) = said
    return open_answer(one.payload, asker)[1]


def shared(effects: list[DiscoveryEffect]) -> Advertisement:
    (one,) = [effect.advertisement for effect in effects if isinstance(effect, ShareAdvertisement)]
    return one


def refused(effects: list[DiscoveryEffect]) -> bool:
    """Counted, and answered by nothing."""
    figures = [effect.name for effect in effects if isinstance(effect, Count)]
    return figures == ["discoveries_refused"] and all(isinstance(effect, Count | Complain) for effect in effects)


def test_an_entity_gets_a_topic_that_the_node_drew_and_signed() -> None:
    effects = ask(node(), CREATE, PUMP)
    made = answer(effects, PUMP)
    assert made is not None
    made.verify(NODE.public_bytes, AUTHORITY.public_bytes, NOW_MS)
    assert UUID(bytes=made.topic).version == 4
    assert made == shared(effects)
    assert effects[-1] == Count("trace_topics")
    assert [e.topic for e in effects if isinstance(e, Say)] == [answers_to("pump-7")]


@pytest.mark.parametrize("spelling", ["Availability/Traces/pump-7", "/Availability/Traces/pump-7", "/Liveness/pump-7"])
def test_who_may_discovers_it_in_either_spelling_and_for_no_other_eyes(spelling: str) -> None:
    one = node()
    made = shared(ask(one, CREATE, PUMP))
    effects = ask(one, replace(QUERY, descriptor=spelling), DESK)
    assert answer(effects, DESK) == made
    (said,) = [effect for effect in effects if isinstance(effect, Say)]
    assert made.topic not in said.payload
    with pytest.raises(KeysError):
        open_answer(said.payload, SPY)


def test_whoever_may_not_know_hears_what_one_hears_of_an_entity_that_is_not() -> None:
    one = node()
    ask(one, CREATE, PUMP)
    unauthorised = ask(one, replace(QUERY, certificate=certified(SPY, "spy")), SPY)
    unknown = ask(one, replace(QUERY, descriptor="Liveness/nobody", request=b"n" * 16), DESK)
    assert unauthorised == unknown
    assert not [effect for effect in unknown if isinstance(effect, Say)]


REFUSED = {
    "signed by another": (CREATE, SPY, NOW),
    "of another entity": (replace(CREATE, descriptor="Availability/Traces/pump-8"), PUMP, NOW),
    "of no descriptor": (replace(CREATE, descriptor="plant/pump-7"), PUMP, NOW),
    "of a member of the overlay": (
        replace(CREATE, certificate=certified(PUMP, "pump-7", role=Role.GATEWAY)),
        PUMP,
        NOW,
    ),
    "old": (CREATE, PUMP, NOW + REQUEST_FRESH_MS / 1000 + 1),
    "from the future": (CREATE, PUMP, NOW - REQUEST_FRESH_MS / 1000 - 1),
}


@pytest.mark.parametrize("what", REFUSED)
def test_requests_that_do_not_hold_are_answered_by_nothing(what: str) -> None:
    request, holder, now = REFUSED[what]
    effects = ask(node(), request, holder, now)
    assert refused(effects)


def test_certificates_count_only_from_the_authority() -> None:
    own = replace(certified(SPY, "pump-7"), signature=b"")
    forged = replace(CREATE, certificate=replace(own, signature=SPY.sign("veilmq/1 certificate", own.signed_bytes())))
    assert refused(ask(node(), forged, SPY))


def test_a_replayed_request_makes_no_second_topic() -> None:
    one = node()
    ask(one, CREATE, PUMP)
    assert not [e for e in ask(one, CREATE, PUMP) if isinstance(e, Say | ShareAdvertisement)]
    assert len(one) == 1


def test_a_second_node_answers_for_the_first() -> None:
    made = shared(ask(node(), CREATE, PUMP))
    other = node("node-2", OTHER_NODE)
    assert other.handle(Heard(made.encode()), NOW) == []
    assert answer(ask(other, QUERY, DESK), DESK) == made


def test_nodes_believe_no_advertisement_that_no_node_signed() -> None:
    made = shared(ask(node(), CREATE, PUMP))
    other = node("node-2", OTHER_NODE)
    for forged in (
        replace(made, topic=b"F" * 16),
        replace(made, signature=b"").signed(SPY),
        replace(made, node="node-9").signed(NODE),
        replace(made, descriptor="Availability/Traces/pump-8").signed(NODE),
    ):
        effects = other.handle(Heard(forged.encode()), NOW)
        assert [effect.name for effect in effects if isinstance(effect, Count)] == ["discoveries_refused"]
    assert len(other) == 0


def test_an_entity_whose_topic_became_known_takes_a_new_one() -> None:
    one = node()
    first = shared(ask(one, CREATE, PUMP))
    second = shared(ask(one, replace(CREATE, request=b"d" * 16, time_ms=NOW_MS + 5, discoverers=()), PUMP, NOW + 1))
    assert first.topic != second.topic
    assert answer(ask(one, QUERY, DESK), DESK) is None, "the new one has other restrictions"
    again = node("node-2", OTHER_NODE)
    again.restore([second, first])
    assert answer(ask(again, replace(CREATE, life_s=0, request=b"e" * 16), PUMP), PUMP) == second


def test_topics_end() -> None:
    one = node()
    ask(one, replace(CREATE, life_s=10), PUMP)
    late = NOW + 11
    assert answer(ask(one, replace(QUERY, time_ms=int(late * 1000)), DESK, late), DESK) is None
    swollen = replace(CREATE, life_s=LIFE_MAX_S + 1, request=b"s" * 16)
    assert refused(ask(one, swollen, PUMP))


def test_an_entity_with_topics_without_end_evicts_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovering, "ADVERTISEMENTS_MAX", 5)
    one = node()
    honest = shared(ask(one, CREATE, PUMP))
    for place in range(20):
        request = replace(
            CREATE, certificate=certified(SPY, "spy"), descriptor="Liveness/spy", request=bytes([place]) * 16
        )
        ask(one, request, SPY)
    assert len(one) == 5
    assert answer(ask(one, QUERY, DESK), DESK) == honest


@pytest.mark.parametrize(
    ("descriptor", "entity"),
    [("Liveness/a", "a"), ("/Liveness/a", "a"), ("Availability/Traces/a", "a"), ("Liveness/", None), ("Liveness", None),
     ("Liveness/a/b", None), ("x/Liveness/a", None), ("", None), ("/x", None)],
)  # fmt: skip
def test_descriptors(descriptor: str, entity: str | None) -> None:
    assert entity_of(descriptor) == entity


@given(st.binary(max_size=300))
def test_no_bytes_make_a_node_raise(data: bytes) -> None:
    one = node()
    assert refused(one.handle(Asked("x", data), NOW))
    assert refused(one.handle(Heard(data), NOW))
    with pytest.raises(KeysError):
        open_answer(data, DESK)


def test_who_forges_requests_is_sent_away_and_who_asks_for_nobody_is_not() -> None:
    one = node()
    for place in range(BOGUS_MAX + 5):
        assert not _away(ask(one, replace(QUERY, descriptor="Liveness/nobody", request=bytes([place]) * 16), DESK))
    forged = [ask(one, replace(CREATE, request=bytes([place]) * 16), SPY) for place in range(BOGUS_MAX)]
    assert [bool(_away(effects)) for effects in forged] == [False] * (BOGUS_MAX - 1) + [True]
    assert sum(isinstance(e, Complain) for effects in forged for e in effects) == 1, "the log says it once"


def test_creating_topics_has_a_budget_and_is_not_even_verified_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    one, verified = node(), list[str]()
    monkeypatch.setattr(discovering.Request, "verify", lambda self, *rest: verified.append(self.descriptor))
    most, every_s = BUDGETS["creation"]
    for place in range(most + 10):
        ask(one, replace(CREATE, request=bytes([place]) * 16), PUMP)
    assert len(verified) == most
    ask(one, replace(CREATE, request=b"later" + bytes(11)), PUMP, NOW + 1.5 * every_s)
    assert len(verified) == most + 1


def _away(effects: list[DiscoveryEffect]) -> list[DiscoveryEffect]:
    return [effect for effect in effects if isinstance(effect, SendAway)]


# ------------------------------------------------------------------------------------- figures and exact edges


def test_the_domain_of_a_request_is_what_others_sign_too() -> None:
    request = replace(CREATE, signature=PUMP.sign("veilmq/1 trace discovery", CREATE.signed_bytes()))
    assert answer(node().handle(Asked("client", request.encode()), NOW), PUMP) is not None
    for shown in (repr(request), repr(Asked("client", b"sealed")), repr(Heard(b"sealed"))):
        assert "signature=" not in shown
        assert "data=" not in shown


def test_requests_are_read_up_to_their_bounds_and_no_further() -> None:
    for life_s, count in ((1, 0), (LIFE_MAX_S, DISCOVERERS_MAX)):
        fits = replace(CREATE, life_s=life_s, discoverers=("d",) * count).signed(PUMP)
        assert Request.decode(fits.encode()) == fits
    for life_s, count in ((LIFE_MAX_S + 1, 0), (1, DISCOVERERS_MAX + 1)):
        with pytest.raises(BadFrame):
            Request.decode(replace(CREATE, life_s=life_s, discoverers=("d",) * count).signed(PUMP).encode())


def test_a_topic_is_the_nodes_draw_marked_as_version_4_and_lives_as_long_as_asked_for() -> None:
    one = DiscoveryNode("node-1", NODE, NODES, AUTHORITY.public_bytes, lambda size: bytes(range(size)))
    made = shared(ask(one, CREATE, PUMP))
    assert made.topic == bytes([0, 1, 2, 3, 4, 5, 0x46, 7, 0x88, *range(9, 16)])
    assert (made.created_ms, made.not_after_ms) == (NOW_MS, NOW_MS + 3_600_000)
    assert made.descriptor == "Availability/Traces/pump-7"


def test_an_owner_has_topics_of_what_it_names_and_of_no_pattern() -> None:
    assert owns("pump-7", "pump-7:arm")
    assert not owns("pump-7", "pump-7arm")
    assert not owns("pump-7", "pump-70:arm")
    one = node()
    assert answer(ask(one, replace(CREATE, descriptor="Liveness/pump-7:arm"), PUMP), PUMP) is not None
    assert refused(ask(one, replace(CREATE, descriptor="Liveness/pump-7:*", request=b"p" * 16), PUMP))


def test_an_owner_learns_of_the_topics_that_this_node_made_for_it_and_one_that_is_forgotten_is_gone() -> None:
    one, other = node(), node("node-2", OTHER_NODE)
    first = shared(ask(one, CREATE, PUMP))
    second = shared(ask(one, replace(CREATE, request=b"d" * 16), PUMP, NOW + 1))
    ask(one, replace(CREATE, certificate=certified(SPY, "spy"), descriptor="Liveness/spy", request=b"s" * 16), SPY)
    elsewhere = shared(ask(other, replace(CREATE, request=b"e" * 16), PUMP))
    one.handle(Heard(elsewhere.encode()), NOW)
    assert one.owned_by(CREATE.certificate) == [second, first]
    one.forget_topic(b"nobody's topic!!")
    one.handle(Registered(Registration(second.encode(), b"r" * 16, NOW_MS).signed(PUMP), second), NOW)
    one.forget_topic(second.topic)
    assert one.advertisement(second.topic) is None
    assert set(one._newest) == {"spy"}
    assert not one._claims
    nobody = ask(one, replace(QUERY, request=b"n" * 16), DESK)
    assert nobody == [Count("discoveries_refused", 1, "Unknown")]


def test_what_comes_from_disk_is_not_taken_for_verified_until_it_is() -> None:
    """It may have been signed by a node, or for an authority, that counts no longer."""
    one, made = node(), shared(ask(node("node-2", OTHER_NODE), CREATE, PUMP))
    forged = replace(made, discoverers=("spy",))
    one.restore([forged])
    assert (one.advertisement(made.topic), one.verified(made.topic)) == (forged, None)
    one.handle(Heard(made.encode()), NOW)
    assert one.advertisement(made.topic) == one.verified(made.topic) == made
    one.handle(Heard(forged.encode()), NOW)
    assert one.verified(made.topic) == made
    own = shared(ask(one, replace(CREATE, request=b"d" * 16), PUMP, NOW + 1))
    assert one.verified(own.topic) == own
    one.forget_topic(own.topic)
    one.restore([own])
    one.forget_topic(own.topic)
    assert one.verified(own.topic) is None
    assert not one._unverified


def test_a_claim_is_told_as_it_was_signed_whatever_else_is_known_of_the_topic() -> None:
    """A node that lies could advertise another's trace topic once more, and our entity's claim would not hold."""
    one, made = node(), shared(ask(node("node-2", OTHER_NODE), CREATE, PUMP))
    twin = replace(made, not_after_ms=made.not_after_ms - 1).signed(OTHER_NODE)
    one.handle(Heard(twin.encode()), NOW)
    claim = Registration(made.encode(), b"r" * 16, NOW_MS).signed(PUMP)
    one.handle(Registered(claim, made), NOW)
    said = next(each for each in ask(one, QUERY, DESK) if isinstance(each, Say))
    assert open_found(said.payload, DESK) == (QUERY.request, made, claim)


def test_under_what_an_entity_registered_here_is_told_with_its_signature() -> None:
    one = node()
    made = shared(ask(node("node-2", OTHER_NODE), CREATE, PUMP))
    claim = Registration(made.encode(), b"r" * 16, NOW_MS).signed(PUMP)
    assert one.handle(Registered(claim, made), NOW) == []
    said, counted = ask(one, QUERY, DESK)
    assert isinstance(said, Say)
    assert open_found(said.payload, DESK) == (QUERY.request, made, claim)
    assert counted == Count("discoveries")
    plain = ask(node(), CREATE, PUMP)[0]
    assert isinstance(plain, Say)
    assert open_found(plain.payload, PUMP)[2] is None
    nobodys = replace(made, descriptor="plant/X", certificate=certified(PUMP, "X")).signed(OTHER_NODE)
    assert refused(one.handle(Heard(nobodys.encode()), NOW))


def test_a_pattern_names_who_lives_and_may_be_known_has_a_budget_and_charges_the_account_it_shares() -> None:
    offenders = Offenders()
    one = DiscoveryNode(
        "node-1", NODE, NODES, AUTHORITY.public_bytes, random.Random(1).randbytes, offenders=offenders
    )  # fmt: skip
    for name, may, life_s in (("a1", "desk*", 9), ("a2", "wall*", 9), ("a3", "desk*", 1), ("b1", "desk*", 9)):
        own = certified(PUMP, name)
        ask(one, Request(own, f"Liveness/{name}", name.encode() * 8, NOW_MS, (may,), life_s), PUMP)
    named = []
    for place, (pattern, after_s) in enumerate((("a*", 9), ("a*", 1), ("*", 2), ("a*", 9.001))):
        query = replace(QUERY, descriptor=f"Liveness/{pattern}", request=bytes([place]) * 16)
        said, counted = ask(one, query, DESK, NOW + after_s)
        assert isinstance(said, Say)
        assert counted == Count("discoveries")
        inside = DESK.open_box(said.payload[3:], said.payload[:3])
        named.append([name for name in (b"a1", b"a2", b"a3", b"b1") if name in inside[16:]])
    assert named == [[b"a1"], [b"a1", b"a3"], [b"a1", b"b1"], []]
    most, _ = BUDGETS["pattern"]
    for place in range(most):
        query = replace(QUERY, descriptor="Liveness/c*", request=bytes([place, 9]) * 8)
        effects = one.handle(Asked("greedy", query.signed(DESK).encode()), NOW)
    assert effects[1:] == [Count("discoveries")]
    query = replace(query, request=b"m" * 16)
    effects = one.handle(Asked("greedy", query.signed(DESK).encode()), NOW)
    assert effects == [Count("discoveries_refused", 1, "TooOften")]
    one.handle(Asked("liar", b"x"), NOW)
    assert not any(isinstance(each, Complain) for each in offenders.charge("liar", "x", BadFrame("x")))


def test_what_is_evicted_leaves_no_name_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovering, "ADVERTISEMENTS_MAX", 3)
    monkeypatch.setattr(discovering, "REQUESTS_MAX", 3)
    one = node()
    requests = [replace(CREATE, descriptor=f"Liveness/pump-7:{n}", request=bytes([n]) * 16) for n in range(8)]
    for request in requests:
        ask(one, request, PUMP)
    assert len(one) == len(one._newest) == len(one._answered) == 3
    for request in requests[-3:]:
        assert ask(one, request, PUMP)[0] == Count("discoveries_refused", 1, "Replayed")
    assert answer(ask(one, requests[0], PUMP), PUMP) is not None, "so long ago that it is remembered no more"
    fresh = node()
    fresh.restore([replace(QUERY_NOBODY, descriptor="plant/x")])
    assert len(fresh) == 0


QUERY_NOBODY = Advertisement(b"N" * 16, "Liveness/x", certified(PUMP, "x"), (), NOW_MS, NOW_MS + 1, "node-1")


def test_a_request_is_of_now_up_to_its_bound_on_both_sides() -> None:
    for way in (-1, 1):
        at_the_bound = replace(CREATE, time_ms=NOW_MS + way * REQUEST_FRESH_MS)
        assert answer(ask(node(), at_the_bound, PUMP), PUMP) is not None
        assert refused(ask(node(), replace(at_the_bound, time_ms=at_the_bound.time_ms + way), PUMP))


def test_a_topic_is_told_up_to_the_millisecond_at_which_it_ends() -> None:
    one = node()
    made = shared(ask(one, replace(CREATE, life_s=10), PUMP))
    for after_ms, found in ((10_000, made), (10_001, None)):
        query = replace(QUERY, request=after_ms.to_bytes(16, "big"), time_ms=NOW_MS + after_ms)
        assert answer(ask(one, query, DESK, NOW + after_ms / 1000), DESK) == found


def test_a_topic_that_is_known_is_nobody_elses_and_is_no_younger_for_being_told_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attack: another node lies, and names a topic that it was told of as somebody else's."""
    monkeypatch.setattr(discovering, "ADVERTISEMENTS_MAX", 2)
    one = node()
    first = shared(ask(one, CREATE, PUMP))
    stolen = replace(first, certificate=certified(SPY, "spy"), descriptor="Liveness/spy", node="node-2")
    assert one.handle(Heard(stolen.signed(OTHER_NODE).encode()), NOW) == []
    assert one.advertisement(first.topic) == first
    assert answer(ask(one, QUERY, DESK), DESK) == first
    second = shared(ask(one, replace(CREATE, descriptor="Liveness/pump-7:arm", request=b"d" * 16), PUMP))
    one.handle(Heard(first.encode()), NOW)
    third = shared(ask(one, replace(CREATE, descriptor="Liveness/pump-7:leg", request=b"e" * 16), PUMP))
    assert [one.advertisement(each.topic) for each in (first, second, third)] == [None, second, third]


def test_where_a_node_names_another_topic_both_that_and_the_registered_one_are_told() -> None:
    """Attack: another node lies, and advertises a later topic at which nobody speaks."""
    one, liar = node(), node("node-2", OTHER_NODE)
    made = shared(ask(one, CREATE, PUMP))
    claim = Registration(made.encode(), b"r" * 16, NOW_MS).signed(PUMP)
    one.handle(Registered(claim, made), NOW)
    lie = liar.make(CREATE.certificate, "pump-7", ("desk*",), 60, NOW_MS + 1)
    one.handle(Heard(lie.encode()), NOW)
    told = [open_found(each.payload, DESK)[1:] for each in ask(one, QUERY, DESK) if isinstance(each, Say)]
    assert told == [(lie, None), (made, claim)]
    one.forget_topic(lie.topic)
    (said, _) = ask(one, replace(QUERY, request=b"a" * 16), DESK)
    assert isinstance(said, Say)
    assert open_found(said.payload, DESK)[1:] == (made, claim)


def test_an_older_topic_that_goes_leaves_the_newer_one_its_name() -> None:
    one = node()
    first, second = (shared(ask(one, replace(CREATE, request=bytes([n]) * 16), PUMP)) for n in range(2))
    assert answer(ask(one, QUERY, DESK), DESK) == second, "made in the same millisecond, and later"
    one.forget_topic(first.topic)
    assert answer(ask(one, replace(QUERY, request=b"a" * 16), DESK), DESK) == second


def test_what_stands_around_a_sealed_or_signed_message_is_read_too() -> None:
    longer = Request.decode(CREATE.signed(PUMP).encode()).encode() + b"x"
    with pytest.raises(BadFrame):
        Request.decode(longer)
    said = ask(node(), CREATE, PUMP)[0]
    assert isinstance(said, Say)
    with pytest.raises(BadFrame, match="not the answer"):
        open_answer(b"\x00\x00\x00" + said.payload[3:], PUMP)


def test_questions_for_one_entity_have_the_larger_budget_and_the_walls_time() -> None:
    one = DiscoveryNode(
        "node-1", NODE, NODES, AUTHORITY.public_bytes, random.Random(1).randbytes, wall=Wall(NOW)
    )  # fmt: skip
    made = shared(ask(one, CREATE, PUMP, 0.0))
    assert made.created_ms == NOW_MS
    most, _ = BUDGETS["pattern"]
    for place in range(most + 5):
        assert answer(ask(one, replace(QUERY, request=bytes([place, 7]) * 8), DESK, 0.0), DESK) == made


def test_another_broker_whose_words_do_not_hold_is_counted_and_never_sent_away() -> None:
    one = node()
    for _ in range(BOGUS_MAX + 1):
        assert one.handle(Heard(b"x"), NOW) == [Count("discoveries_refused", 1, "BadFrame")]


# ----------------------------------------------------------------------------- what one entity costs all the others


def test_discoverers_that_would_fill_a_node_are_refused() -> None:
    one = node()
    for long in (("a*" * 2_000,), tuple(f"{'x' * 200}{number}" for number in range(256)), ("a?b",) * 9):
        assert refused(ask(one, replace(CREATE, discoverers=long, request=b"l" * 16), PUMP))
        with pytest.raises(BadFrame, match="discoverer"):
            Request.decode(replace(CREATE, discoverers=long).signed(PUMP).encode())
    assert len(one) == 0


def listed(effects: list[DiscoveryEffect]) -> set[str]:
    names: set[str] = set()
    for effect in effects:
        if isinstance(effect, Say):
            inside = DESK.open_box(effect.payload[3:], effect.payload[:3])
            reader = Reader(inside[16:])
            names |= {reader.text() for _ in range(reader.number(2))}
    return names


@pytest.mark.long
@pytest.mark.parametrize("others", [20, 2_000])
def test_a_question_for_a_pattern_looks_at_no_names_that_begin_otherwise(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, looked = node(), 0
    for owner, count in (("evil", others), ("pump-7", 5)):
        for number in range(count):
            one.make(certified(PUMP, owner), f"{owner}:{number}", ("desk*",), 3_600, NOW_MS)
    get = one._kept.get

    def counting(key: bytes) -> Advertisement | None:
        nonlocal looked
        looked += 1
        return get(key)

    monkeypatch.setattr(one._kept, "get", counting)
    pattern = replace(QUERY, descriptor="Availability/Traces/pump-7:*")
    assert listed(ask(one, pattern, DESK)) == {f"pump-7:{number}" for number in range(5)}
    assert looked <= 10


def test_a_question_looks_through_so_much_and_asked_again_through_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovering, "LIST_WORK_MAX", 200)
    one, checks = node(), 0
    for number in range(50):
        one.make(certified(PUMP, "pump-7"), f"pump-7:{number}", (f"desk*{number % 7}", "desk-1"), 3_600, NOW_MS)
    may_discover = Advertisement.may_discover

    def counting(advertisement: Advertisement, who: Certificate) -> bool:
        nonlocal checks
        checks += 1
        return may_discover(advertisement, who)

    monkeypatch.setattr(Advertisement, "may_discover", counting)
    found: set[str] = set()
    for number in range(400):
        asked = replace(QUERY, descriptor="Availability/Traces/pump-7:*", request=number.to_bytes(16)).signed(DESK)
        checks = 0
        found |= listed(one.handle(Asked(f"client-{number}", asked.encode()), NOW))
        assert checks <= 2, "each with a mark in its midst counts for a hundred"
    assert found == {f"pump-7:{number}" for number in range(50)}
