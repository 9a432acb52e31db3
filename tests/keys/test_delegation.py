"""Advertisements, tokens and traces: what each promises, and every way to cheat with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keys.delegation import (
    BODY_MAX_BYTES,
    DISCOVERER_CHARS_MAX,
    DISCOVERERS_MAX,
    DOMAIN_ADVERTISEMENT,
    DOMAIN_DELEGATION,
    DOMAIN_TRACE,
    GLOBS_MAX,
    SHARED_CHARS,
    SKEW_MS,
    TOKEN_LIFE_MAX_MS,
    WITNESSES_MAX,
    Advertisement,
    Delegated,
    Seat,
    Token,
    Trace,
    admits,
    topic_of,
)
from keys.errors import BadContent, BadFrame, BadSignature, Expired, KeysError, NotAuthorised, OurFault
from keys.identity import Certificate, Identity, Role
from tests.keys.helpers import assert_strict

pytestmark = pytest.mark.invariant(47)

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
AUTHORITY, NODE, PUMP, SPY, HOLDER = (Identity.generate(bytes([n]) * 32) for n in range(1, 6))
UUID = bytes(range(16))


def certified(identity: Identity, name: str, domain: str = "plant", role: Role = Role.ENTITY) -> Certificate:
    return Certificate.issue(
        AUTHORITY, name=name, role=role, public_key=identity.public_bytes, agreement_key=identity.agreement_bytes,
        domain=domain, region=0, not_after_ms=NOW_MS + 10 * HOUR_MS,
    )  # fmt: skip


ADVERTISEMENT = Advertisement(
    UUID, "Availability/Traces/pump-7", certified(PUMP, "pump-7"), ("control-*", "@inspectors"), NOW_MS,
    NOW_MS + 5 * HOUR_MS, "node-1",
).signed(NODE)  # fmt: skip
TOKEN = Token(UUID, HOLDER.public_bytes, Delegated.PUBLISH, NOW_MS, NOW_MS + HOUR_MS).signed(PUMP)
SEATED = replace(TOKEN, seat=Seat(2, 3, NOW_MS - 1000)).signed(PUMP)
TRACE = Trace(TOKEN, 3, 17, NOW_MS + 1000, b'{"state":"READY"}').signed(HOLDER)


def check(trace: Trace = TRACE, advertisement: Advertisement = ADVERTISEMENT, now_ms: int = NOW_MS + 1000) -> None:
    advertisement.verify(NODE.public_bytes, AUTHORITY.public_bytes, now_ms)
    trace.verify(advertisement, now_ms)


def test_what_is_honest_holds_and_reads_back() -> None:
    check()
    assert Advertisement.decode(ADVERTISEMENT.encode()) == ADVERTISEMENT
    assert Token.decode(TOKEN.encode()) == TOKEN
    assert Trace.decode(TRACE.encode()) == TRACE


def test_the_topic_of_an_advertisement_is_read_without_the_rest() -> None:
    encoded = ADVERTISEMENT.encode()
    assert topic_of(encoded) == ADVERTISEMENT.topic
    assert [len(topic_of(encoded[:size])) for size in (0, 3, 10, 19, 20)] == [0, 0, 7, 16, 16]


@pytest.mark.parametrize(("chars", "once"), [(SHARED_CHARS, True), (SHARED_CHARS + 1, False)])
def test_whom_many_advertisements_name_is_kept_once_unless_that_is_long(chars: int, once: bool) -> None:
    named = replace(ADVERTISEMENT, discoverers=("a" * 10, "b" * (chars - 10 - len("node-1"))))
    one, other = (Advertisement.decode(named.encode()) for _ in range(2))
    assert one == other == named
    assert (one.discoverers is other.discoverers, one.node is other.node) == (once, once)


def resigned(**changes: object) -> Trace:
    return replace(TRACE, token=replace(TOKEN, **changes).signed(PUMP)).signed(HOLDER)  # type: ignore[arg-type]


def seated(witness: int, witnesses: int, since_ms: int = NOW_MS) -> Trace:
    """A trace under a token that the entity signed, whatever our own code refuses to sign."""
    token = replace(TOKEN, seat=Seat(witness, witnesses, since_ms))
    token = replace(token, signature=PUMP.sign("veilmq/1 trace token", token.signed_bytes()))
    return replace(TRACE, token=token).signed(HOLDER)


CHEATS: dict[str, tuple[Callable[[], Trace], type[KeysError]]] = {
    "another body": (lambda: replace(TRACE, body=b"{}"), BadSignature),
    "another kind": (lambda: replace(TRACE, kind=1), BadSignature),
    "another number": (lambda: replace(TRACE, number=18), BadSignature),
    "signed by somebody else": (lambda: TRACE.signed(SPY), BadSignature),
    "signed by the entity instead of the token's key": (lambda: TRACE.signed(PUMP), BadSignature),
    "a token of one's own": (
        lambda: replace(TRACE, token=replace(TOKEN, public_key=SPY.public_bytes).signed(SPY)).signed(SPY), BadSignature,
    ),
    "a stolen token without its key": (
        lambda: replace(TRACE, token=replace(TOKEN, public_key=SPY.public_bytes)).signed(SPY), BadSignature,
    ),
    "a token that was made longer": (
        lambda: replace(TRACE, token=replace(TOKEN, not_after_ms=NOW_MS + 2 * HOUR_MS)).signed(HOLDER), BadSignature,
    ),
    "a token of another topic": (lambda: resigned(topic=bytes(16)), NotAuthorised),
    "a token to subscribe": (lambda: resigned(rights=Delegated.SUBSCRIBE), NotAuthorised),
    "a token to come": (lambda: resigned(not_before_ms=NOW_MS + HOUR_MS), Expired),
    "a token that ended": (
        lambda: resigned(not_before_ms=NOW_MS - HOUR_MS, not_after_ms=NOW_MS - SKEW_MS - 1), Expired,
    ),
    "a token of witnesses to come": (lambda: seated(2, 3, NOW_MS + 1), NotAuthorised),
    "a token of another witness": (
        lambda: replace(TRACE, token=replace(SEATED, seat=Seat(1, 3, NOW_MS - 1000))).signed(HOLDER), BadSignature,
    ),
    "a token of the only witness": (
        lambda: replace(TRACE, token=replace(SEATED, seat=None)).signed(HOLDER), BadSignature,
    ),
    "a trace of before its token": (lambda: replace(TRACE, time_ms=NOW_MS - HOUR_MS).signed(HOLDER), Expired),
    "a trace of after its token": (lambda: replace(TRACE, time_ms=NOW_MS + 2 * HOUR_MS).signed(HOLDER), Expired),
}  # fmt: skip


@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats_are_refused(cheat: str) -> None:
    make, error = CHEATS[cheat]
    with pytest.raises(error):
        check(make())


@pytest.mark.parametrize("edge_ms", [TOKEN.not_before_ms - SKEW_MS, TOKEN.not_after_ms + SKEW_MS])
def test_clocks_may_differ_by_the_skew_and_no_more(edge_ms: int) -> None:
    inside = replace(TRACE, time_ms=edge_ms).signed(HOLDER)
    advertisement = replace(ADVERTISEMENT, created_ms=NOW_MS - HOUR_MS).signed(NODE)
    check(inside, advertisement, edge_ms)
    further = edge_ms + (-1 if edge_ms < NOW_MS else 1)
    with pytest.raises(Expired):
        check(replace(TRACE, time_ms=further).signed(HOLDER), advertisement, further)


def test_a_token_that_nobody_could_take_back_is_neither_made_nor_believed() -> None:
    endless = replace(TOKEN, not_after_ms=NOW_MS + TOKEN_LIFE_MAX_MS + 1)
    with pytest.raises(OurFault):
        endless.signed(PUMP)
    forced = replace(endless, signature=PUMP.sign("veilmq/1 trace token", endless.signed_bytes()))
    with pytest.raises(NotAuthorised, match="longer"):
        check(replace(TRACE, token=forced).signed(HOLDER))


def test_a_token_says_which_witness_of_how_many() -> None:
    assert Token.decode(SEATED.encode()) == SEATED
    check(replace(TRACE, token=SEATED).signed(HOLDER))
    assert (SEATED.since_ms, TOKEN.since_ms) == (NOW_MS - 1000, NOW_MS)


@pytest.mark.parametrize("seat", [(0, 1), (0, 2), (3, 3), (0, 4), (1, 0), (0, 17), (255, 255)])
def test_seats_that_are_none_are_neither_made_nor_read(seat: tuple[int, int]) -> None:
    with pytest.raises(OurFault):
        replace(TOKEN, seat=Seat(*seat, NOW_MS)).signed(PUMP)
    with pytest.raises(BadFrame):
        Trace.decode(seated(*seat).encode())


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"topic": bytes(16)}, BadSignature),
        ({"discoverers": ("*",)}, BadSignature),
        ({"not_after_ms": NOW_MS + 50 * HOUR_MS}, BadSignature),
        ({"certificate": certified(SPY, "pump-7")}, BadSignature),
    ],
)
def test_an_advertisement_is_the_nodes_word(changed: dict[str, object], error: type[KeysError]) -> None:
    with pytest.raises(error):
        check(advertisement=replace(ADVERTISEMENT, **changed))  # type: ignore[arg-type]


def test_nodes_cannot_vouch_for_whom_no_authority_certified() -> None:
    own = Certificate.issue(
        NODE, name="pump-7", role=Role.ENTITY, public_key=SPY.public_bytes, agreement_key=SPY.agreement_bytes,
        domain="plant", region=0, not_after_ms=NOW_MS + HOUR_MS,
    )  # fmt: skip
    with pytest.raises(BadSignature):
        check(advertisement=replace(ADVERTISEMENT, certificate=own).signed(NODE))
    gateway = replace(ADVERTISEMENT, certificate=certified(PUMP, "pump-7", role=Role.GATEWAY)).signed(NODE)
    with pytest.raises(NotAuthorised):
        check(advertisement=gateway)


def believe(advertisement: Advertisement, now_ms: int) -> None:
    advertisement.verify(NODE.public_bytes, AUTHORITY.public_bytes, now_ms)


@pytest.mark.parametrize("edge_ms", [ADVERTISEMENT.created_ms - SKEW_MS, ADVERTISEMENT.not_after_ms])
def test_an_advertisement_counts_from_its_making_give_or_take_the_skew_to_its_end(edge_ms: int) -> None:
    believe(ADVERTISEMENT, edge_ms)
    with pytest.raises(Expired):
        believe(ADVERTISEMENT, edge_ms + (-1 if edge_ms < NOW_MS else 1))


def test_an_advertisement_ends_with_its_owners_certificate() -> None:
    lasting = replace(ADVERTISEMENT, not_after_ms=NOW_MS + 20 * HOUR_MS).signed(NODE)
    believe(lasting, NOW_MS + 9 * HOUR_MS)
    with pytest.raises(Expired):
        believe(lasting, NOW_MS + 11 * HOUR_MS)


def test_the_authority_certifies_the_owner_whoever_the_node_is() -> None:
    impostor = Certificate.issue(
        SPY, name="pump-7", role=Role.ENTITY, public_key=SPY.public_bytes, agreement_key=SPY.agreement_bytes,
        domain="plant", region=0, not_after_ms=NOW_MS + HOUR_MS,
    )  # fmt: skip
    with pytest.raises(BadSignature):
        believe(replace(ADVERTISEMENT, certificate=impostor).signed(NODE), NOW_MS)
    with pytest.raises(BadSignature):
        believe(ADVERTISEMENT.signed(SPY), NOW_MS)


@pytest.mark.parametrize("edge_ms", [TOKEN.not_before_ms - SKEW_MS, TOKEN.not_after_ms + SKEW_MS])
def test_a_token_counts_now_whatever_time_its_trace_claims(edge_ms: int) -> None:
    TOKEN.verify(ADVERTISEMENT, Delegated.PUBLISH, edge_ms)
    outside = edge_ms + (-1 if edge_ms < NOW_MS else 1)
    with pytest.raises(Expired, match="token"):
        TOKEN.verify(ADVERTISEMENT, Delegated.PUBLISH, outside)
    with pytest.raises(Expired, match="token"):
        TRACE.verify(ADVERTISEMENT, outside)  # signed while the token counted; replayed outside


@pytest.mark.parametrize("right", list(Delegated))
def test_a_token_gives_the_rights_that_it_names_and_no_other(right: Delegated) -> None:
    token = replace(TOKEN, rights=right).signed(PUMP)
    assert Token.decode(token.encode()).rights == right
    token.verify(ADVERTISEMENT, right, NOW_MS)
    for other in set(Delegated) - {right}:
        with pytest.raises(NotAuthorised, match=str(other.name).lower()):
            token.verify(ADVERTISEMENT, other, NOW_MS)


def test_a_token_of_a_day_is_made_and_believed() -> None:
    day = replace(TOKEN, not_after_ms=NOW_MS + TOKEN_LIFE_MAX_MS).signed(PUMP)
    day.verify(ADVERTISEMENT, Delegated.PUBLISH, NOW_MS)


def test_witnesses_are_named_before_one_of_them_is_let_speak() -> None:
    now = replace(TOKEN, seat=Seat(0, WITNESSES_MAX, NOW_MS)).signed(PUMP)
    now.verify(ADVERTISEMENT, Delegated.PUBLISH, NOW_MS)
    with pytest.raises(OurFault, match="named"):
        replace(TOKEN, seat=Seat(0, 3, NOW_MS + 1)).signed(PUMP)


@pytest.mark.parametrize("witnesses", range(-1, WITNESSES_MAX + 4))
def test_entities_have_3_5_up_to_15_witnesses_numbered_from_0(witnesses: int) -> None:
    there = [witness for witness in range(-2, WITNESSES_MAX + 4) if Seat(witness, witnesses, 0).is_possible]
    assert there == (list(range(witnesses)) if witnesses in (3, 5, 7, 9, 11, 13, 15) else [])


@pytest.mark.parametrize("whole", [ADVERTISEMENT, TOKEN, SEATED, TRACE], ids=lambda one: type(one).__name__)
def test_the_frames_are_strict(whole: Advertisement | Token | Trace) -> None:
    assert_strict(type(whole).decode, type(whole).encode, whole.encode())  # type: ignore[arg-type]


def test_what_only_the_authorised_may_know_does_not_show() -> None:
    shown = "".join(map(repr, (ADVERTISEMENT, TOKEN, replace(TRACE, body=b"BODY"))))
    for hidden in (UUID, b"BODY", ADVERTISEMENT.signature, TOKEN.signature, TRACE.signature):
        assert repr(hidden)[2:-1] not in shown


def test_a_trace_is_clear_unless_it_was_sealed() -> None:
    assert not TRACE.sealed
    assert TRACE.opened_body(b"k" * 32) == TRACE.body


@pytest.mark.parametrize(
    ("name", "domain", "may"),
    [
        ("control-room", "plant", True),
        ("anybody", "inspectors", True),
        ("Control-room", "plant", False),
        ("uncontrol-", "plant", False),
        ("spy", "elsewhere", False),
        ("inspectors", "elsewhere", False),
    ],
)
def test_who_may_discover_a_trace_topic(name: str, domain: str, may: bool) -> None:
    assert ADVERTISEMENT.may_discover(certified(SPY, name, domain)) is may


def test_the_owner_always_finds_its_topic_and_nobody_by_its_name_alone() -> None:
    assert replace(ADVERTISEMENT, discoverers=()).may_discover(certified(PUMP, "renamed"))
    assert not replace(ADVERTISEMENT, discoverers=()).may_discover(certified(SPY, "pump-7"))


def test_sealed_traces_open_under_their_key_only_and_bind_what_they_say() -> None:
    key, other = b"k" * 32, b"o" * 32
    sealed = replace(TRACE, signature=b"").sealed_under(key, bytes(12)).signed(HOLDER)
    check(sealed)
    again = Trace.decode(sealed.encode())
    assert again.opened_body(key) == TRACE.body
    assert TRACE.body not in sealed.encode()
    assert b"READY" not in repr(sealed).encode()
    with pytest.raises(BadContent):
        again.opened_body(other)
    with pytest.raises(BadContent):
        replace(again, number=99).opened_body(key)
    with pytest.raises(BadContent):
        replace(again, body=b"short").opened_body(key)


def test_bounds() -> None:
    with pytest.raises(OurFault):
        replace(TRACE, body=bytes(BODY_MAX_BYTES + 1)).signed(HOLDER)
    with pytest.raises(OurFault):
        replace(ADVERTISEMENT, discoverers=("x",) * (DISCOVERERS_MAX + 1)).signed(NODE)
    for size in (0, 15, 17):
        with pytest.raises(OurFault, match="16 bytes"):
            replace(ADVERTISEMENT, topic=bytes(size)).signed(NODE)
    swollen = replace(TRACE, body=bytes(BODY_MAX_BYTES + 1))
    with pytest.raises(BadFrame, match=str(BODY_MAX_BYTES + 1)):
        Trace.decode(swollen.signed_bytes() + bytes(64))
    crowd = replace(ADVERTISEMENT, discoverers=("x",) * (DISCOVERERS_MAX + 1))
    with pytest.raises(BadFrame, match="discoverers"):
        Advertisement.decode(crowd.encode())
    most = replace(ADVERTISEMENT, discoverers=("x",) * DISCOVERERS_MAX).signed(NODE)
    assert Advertisement.decode(most.encode()) == most
    longest = replace(TRACE, body=bytes(BODY_MAX_BYTES)).signed(HOLDER)
    assert Trace.decode(longest.encode()) == longest


@given(st.binary(max_size=400), st.sampled_from([Advertisement, Token, Trace]))
def test_no_bytes_make_a_parser_raise_anything_else(data: bytes, parser: type[Advertisement | Token | Trace]) -> None:
    with pytest.raises(KeysError):
        parser.decode(data)


def check_read(read: Advertisement | Token | Trace) -> None:
    match read:
        case Advertisement():
            check(advertisement=read)
        case Token():
            read.verify(ADVERTISEMENT, Delegated.PUBLISH, NOW_MS + 1)
        case Trace():
            check(read)


@given(st.sampled_from([ADVERTISEMENT, TOKEN, SEATED, TRACE]), st.data())
def test_a_flipped_bit_is_noticed(what: Advertisement | Token | Trace, data: st.DataObject) -> None:
    whole = bytearray(what.encode())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(KeysError):
        check_read(type(what).decode(bytes(whole)))


def test_what_was_verified_once_counts_no_longer_than_its_certificate_and_itself() -> None:
    ADVERTISEMENT.check_time(NOW_MS)
    ADVERTISEMENT.check_time(ADVERTISEMENT.created_ms - SKEW_MS)
    ADVERTISEMENT.check_time(ADVERTISEMENT.not_after_ms)
    for now_ms in (ADVERTISEMENT.created_ms - SKEW_MS - 1, ADVERTISEMENT.not_after_ms + 1):
        with pytest.raises(Expired, match="trace topic"):
            ADVERTISEMENT.check_time(now_ms)
    outlives = replace(ADVERTISEMENT, not_after_ms=NOW_MS + 100 * HOUR_MS)
    with pytest.raises(Expired, match="certificate"):
        outlives.check_time(ADVERTISEMENT.certificate.not_after_ms + 1)


def test_domains_are_those_of_the_protocol() -> None:
    """Two releases must agree on what they sign."""
    assert (DOMAIN_ADVERTISEMENT, DOMAIN_DELEGATION, DOMAIN_TRACE) == (
        "veilmq/1 trace topic", "veilmq/1 trace token", "veilmq/1 trace"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("discoverers", "fits"),
    [
        (("x",) * DISCOVERERS_MAX, True),
        (("x",) * (DISCOVERERS_MAX + 1), False),
        (("x" * DISCOVERER_CHARS_MAX,) * 16, True),
        (("x" * DISCOVERER_CHARS_MAX,) * 17, False),
        (("x" * (DISCOVERER_CHARS_MAX + 1),), False),
        (("a?b",) * GLOBS_MAX + ("@dom?ain", "control-*", "*"), True),
        (("a?b", "a*b", "[ab]", "**", "*a", "?", "a*b*", "a?*", "[a]*"), False),
    ],
)
def test_discoverers_are_bounded_in_number_length_and_work(discoverers: tuple[str, ...], fits: bool) -> None:
    made = replace(ADVERTISEMENT, discoverers=discoverers)
    if fits:
        assert Advertisement.decode(made.signed(NODE).encode()).discoverers == discoverers
        return
    with pytest.raises(OurFault):
        made.signed(NODE)
    with pytest.raises(BadFrame, match="discoverer"):
        Advertisement.decode(made.encode() + bytes(64))


@given(st.text(alphabet=st.sampled_from("ab*?[]@!"), max_size=6), st.text(alphabet=st.sampled_from("ab*["), max_size=5))
def test_a_pattern_means_the_same_however_it_is_looked_at(pattern: str, name: str) -> None:
    expected = pattern[1:] == "b" if pattern.startswith("@") else fnmatchcase(name, pattern)
    assert admits([pattern], name, "b") is expected
