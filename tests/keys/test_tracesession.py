"""Registration and sessions between an entity and its broker: only these two take part, and nothing counts twice."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from keys.delegation import Advertisement
from keys.errors import BadContent, BadFrame, BadSignature, Expired, KeysError, OurFault, Replayed
from keys.frames import Kind, opening
from keys.sealedbox import seal_box
from keys.tracesession import (
    BODY_MAX_BYTES,
    DOMAIN_REGISTRATION,
    DOMAIN_SESSION,
    REQUEST_FRESH_MS,
    Registration,
    TraceSession,
    Word,
    open_registered,
    registered,
)
from tests.keys.helpers import assert_strict
from tests.keys.test_delegation import ADVERTISEMENT, NOW_MS, PUMP, SPY

SESSION, KEY, REQUEST = b"s" * 16, b"k" * 32, b"r" * 16
REGISTRATION = Registration(ADVERTISEMENT.encode(), REQUEST, NOW_MS).signed(PUMP)


def ends() -> tuple[TraceSession, TraceSession]:
    """The entity's and the broker's end."""
    return TraceSession(SESSION, KEY, 0), TraceSession(SESSION, KEY, 1, PUMP.public_bytes)


def test_a_registration_shows_that_its_sender_holds_the_entitys_key() -> None:
    REGISTRATION.verify(ADVERTISEMENT, NOW_MS + 10)
    assert Registration.decode(REGISTRATION.encode()) == REGISTRATION
    with pytest.raises(BadSignature):
        Registration(ADVERTISEMENT.encode(), REQUEST, NOW_MS).signed(SPY).verify(ADVERTISEMENT, NOW_MS)
    with pytest.raises(BadSignature):
        replace(REGISTRATION, request=b"x" * 16).verify(ADVERTISEMENT, NOW_MS)
    for late_ms in (REQUEST_FRESH_MS + 1, -REQUEST_FRESH_MS - 1):
        with pytest.raises(Expired):
            REGISTRATION.verify(ADVERTISEMENT, NOW_MS + late_ms)


def test_the_answer_opens_for_the_entity_only() -> None:
    answer = registered(REQUEST, SESSION, KEY, ADVERTISEMENT, bytes(range(32)))
    assert open_registered(answer, PUMP) == (REQUEST, SESSION, KEY)
    assert KEY not in answer
    assert SESSION not in answer
    with pytest.raises(KeysError):
        open_registered(answer, SPY)
    with pytest.raises(KeysError):
        open_registered(answer[:3] + b"x" * 16 + answer[19:], PUMP)


def test_both_ends_understand_each_other() -> None:
    entity, broker = ends()
    assert broker.hear(entity.say_word(Word.ANSWER, b"one")) == (Word.ANSWER, b"one")
    assert broker.hear(entity.say_word(Word.STATE, b"\3", PUMP)) == (Word.STATE, b"\3")
    assert entity.hear(broker.say_word(Word.PING, b"two")) == (Word.PING, b"two")


def test_sealed_messages_show_neither_word_nor_body() -> None:
    entity, _ = ends()
    said = entity.say_word(Word.TRACE_KEY, b"secret" * 4)
    assert b"secret" not in said
    for word in (Word.TOKEN, Word.TRACE_KEY):
        with pytest.raises(OurFault):
            entity.say_word(word, b"secret", PUMP)


ATTACKS: dict[str, tuple[Callable[[TraceSession, TraceSession], bytes], type[KeysError]]] = {
    "a stranger's signature": (lambda entity, broker: entity.say_word(Word.STATE, b"\1", SPY), BadSignature),
    "another key": (lambda entity, broker: TraceSession(SESSION, b"x" * 32, 0).say_word(Word.ANSWER), BadContent),
    "another session": (lambda entity, broker: TraceSession(b"x" * 16, KEY, 0).say_word(Word.ANSWER), BadContent),
    "the broker's own words": (lambda entity, broker: broker.say_word(Word.PING, b"x"), BadContent),
    "cut short": (lambda entity, broker: entity.say_word(Word.STATE, b"\1", PUMP)[:-70], BadFrame),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_others_have_no_say(attack: str) -> None:
    make, error = ATTACKS[attack]
    entity, broker = ends()
    with pytest.raises(error):
        broker.hear(make(entity, broker))


def test_a_secret_that_comes_signed_is_refused() -> None:
    _, broker = ends()
    clear = TraceSession(SESSION, KEY, 0).say_word(Word.STATE, b"", PUMP)[:27] + bytes([Word.TRACE_KEY]) + bytes(32)
    bound = hmac.digest(KEY, b"veilmq/1 trace session", "sha256")
    with pytest.raises(BadContent):
        broker.hear(clear + PUMP.sign("veilmq/1 trace session", clear + bound))
    with pytest.raises(BadSignature):
        broker.hear(clear + PUMP.sign("veilmq/1 trace session", clear))


def test_nothing_counts_twice_and_nothing_old_counts() -> None:
    entity, broker = ends()
    first, second = entity.say_word(Word.ANSWER, b"1"), entity.say_word(Word.ANSWER, b"2")
    broker.hear(second)
    for again in (first, second):
        with pytest.raises(Replayed):
            broker.hear(again)


def test_a_forgery_does_not_move_the_counter() -> None:
    entity, broker = ends()
    far = TraceSession(SESSION, b"x" * 32, 0)
    far._counter = 1_000
    with pytest.raises(BadContent):
        broker.hear(far.say_word(Word.ANSWER))
    assert broker.hear(entity.say_word(Word.ANSWER, b"1"))[1] == b"1"


def test_signatures_count_at_the_brokers_end_only() -> None:
    entity, _ = ends()
    with pytest.raises(BadFrame):
        entity.hear(TraceSession(SESSION, KEY, 1).say_word(Word.PING, b"", PUMP))


def test_bodies_are_bounded() -> None:
    entity, broker = ends()
    broker.hear(entity.say_word(Word.LOAD, bytes(BODY_MAX_BYTES)))
    with pytest.raises(OurFault):
        entity.say_word(Word.LOAD, bytes(BODY_MAX_BYTES + 1))


@given(st.binary(max_size=200))
def test_no_bytes_make_an_end_raise_anything_else(data: bytes) -> None:
    for parse in (ends()[1].hear, Registration.decode, lambda d: open_registered(d, PUMP)):
        with pytest.raises(KeysError):
            parse(data)


def test_the_frame_of_a_registration_is_strict() -> None:
    assert_strict(Registration.decode, Registration.encode, REGISTRATION.encode())  # type: ignore[arg-type]
    assert repr(REGISTRATION.signature)[2:-1] not in repr(REGISTRATION)
    for size in (0, 15, 17):
        with pytest.raises(OurFault):
            Registration(b"", bytes(size), NOW_MS).signed(PUMP)


def test_a_registration_of_a_minute_ago_or_ahead_is_of_now() -> None:
    for apart_ms in (-REQUEST_FRESH_MS, REQUEST_FRESH_MS):
        REGISTRATION.verify(ADVERTISEMENT, NOW_MS + apart_ms)


def answer_of(advertisement: Advertisement, inside: bytes) -> bytes:
    """A broker's answer around something else than a session and its key."""
    head = opening(Kind.REGISTERED) + REQUEST
    return head + seal_box(advertisement.certificate.agreement_key, inside, head, bytes(range(32)))


@pytest.mark.parametrize("size", [0, 47, 49])
def test_an_answer_holds_a_session_and_its_key(size: int) -> None:
    assert open_registered(answer_of(ADVERTISEMENT, bytes(48)), PUMP) == (REQUEST, bytes(16), bytes(32))
    with pytest.raises(BadFrame, match="session"):
        open_registered(answer_of(ADVERTISEMENT, bytes(size)), PUMP)


@pytest.mark.parametrize(("session", "key"), [(bytes(15), KEY), (SESSION, bytes(31)), (bytes(32), bytes(16))])
def test_a_broker_answers_with_a_session_and_its_key(session: bytes, key: bytes) -> None:
    with pytest.raises(OurFault):
        registered(REQUEST, session, key, ADVERTISEMENT, bytes(32))


def forged(inside: bytes, counter: int = 1) -> bytes:
    """What an entity that does not follow the format seals."""
    entity, _ = ends()
    head = opening(Kind.TRACE_SESSION) + SESSION + counter.to_bytes(8)
    return head + AESGCM(entity._key).encrypt(bytes(4) + counter.to_bytes(8), inside, head)


@pytest.mark.parametrize("inside", [b"", b"\0", bytes([max(Word) + 1]), b"\xff", b"\4" + bytes(BODY_MAX_BYTES + 1)])
def test_a_message_without_a_known_word_or_too_long_is_refused_and_moves_nothing(inside: bytes) -> None:
    entity, broker = ends()
    with pytest.raises(BadFrame, match="word"):
        broker.hear(forged(inside))
    assert broker.hear(entity.say_word(Word.SILENT)) == (Word.SILENT, b"")


@pytest.mark.parametrize("size", range(27))
def test_a_message_shorter_than_its_head_is_refused(size: int) -> None:
    entity, broker = ends()
    for said in (entity.say_word(Word.ANSWER, b"one"), entity.say_word(Word.STATE, b"\1", PUMP)):
        with pytest.raises(KeysError):
            broker.hear(said[:size])
        with pytest.raises(BadFrame):
            broker.hear(said[: max(size, 1)])


def test_a_signature_over_no_word_is_refused() -> None:
    _, broker = ends()
    nothing = opening(Kind.TRACE_SESSION, 1) + SESSION + (1).to_bytes(8)
    with pytest.raises(BadFrame):
        broker.hear(nothing + PUMP.sign(DOMAIN_SESSION, nothing))


def test_messages_are_counted_from_1_without_a_gap() -> None:
    entity, _ = ends()
    counters = [int.from_bytes(entity.say_word(Word.ANSWER)[19:27]) for _ in range(3)]
    assert counters == [1, 2, 3]
    assert ends()[1].hear(ends()[0].say_word(Word.ANSWER)) == (Word.ANSWER, b""), "no body unless there is one"


def test_no_bytes_of_another_session_are_taken_for_its_end() -> None:
    entity, broker = ends()
    said = bytearray(entity.say_word(Word.STATE, b"\1", PUMP))
    said[5] ^= 1
    with pytest.raises(BadContent, match="another"):
        broker.hear(bytes(said))


def test_a_signed_message_without_room_for_a_word_and_a_signature_is_no_message() -> None:
    entity, broker = ends()
    said = entity.say_word(Word.STATE, b"\1", PUMP)
    for size in range(27, 27 + 64 + 1):
        with pytest.raises(BadFrame):
            broker.hear(said[:size])
    assert broker.hear(said) == (Word.STATE, b"\1")


def test_words_and_domains_are_those_of_the_protocol() -> None:
    """Two releases must agree on what they say."""
    assert [word.name for word in sorted(Word)] == [
        "PING", "ANSWER", "STATE", "LOAD", "TOKEN", "TRACE_KEY", "SILENT", "CLOCK", "ALIVE"
    ]  # fmt: skip
    assert [int(word) for word in sorted(Word)] == list(range(1, 10))
    assert (DOMAIN_REGISTRATION, DOMAIN_SESSION) == ("veilmq/1 registration", "veilmq/1 trace session")


def test_what_another_broker_passes_on_has_an_end_of_its_own_on_each_side() -> None:
    entity, broker = ends()
    for _ in range(3):
        broker.hear(entity.say_word(Word.ANSWER))
        entity.hear(broker.say_word(Word.PING))
    beside_entity, beside_broker = entity.aside(), broker.aside()
    said, answered = beside_entity.say_word(Word.ANSWER, b"one"), beside_broker.say_word(Word.PING, b"two")
    assert said[19:27] == answered[19:27] == (1).to_bytes(8)
    assert beside_broker.hear(said) == (Word.ANSWER, b"one")
    assert beside_entity.hear(answered) == (Word.PING, b"two")
    for end, words in ((broker, beside_entity), (beside_broker, entity), (entity, beside_broker)):
        for _ in range(3):
            with pytest.raises(KeysError):
                end.hear(words.say_word(Word.STATE))
    with pytest.raises(BadFrame):
        beside_broker.hear(beside_entity.say_word(Word.STATE, b"", PUMP))
    for end in (beside_entity, beside_broker):
        with pytest.raises(OurFault):
            end.aside()
