"""A session goes on for those two who know its key, once, and nothing that was said before is said again."""

from __future__ import annotations

import hmac
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keys.errors import BadContent, BadFrame, Expired, KeysError, OurFault, Replayed
from keys.resumption import CODE_BYTES, KNOCK, Knock, is_resumed, open_resumed, unknown
from keys.tracesession import REQUEST_FRESH_MS, TraceSession, Word
from tests.keys.helpers import assert_strict

NOW_MS = 1_800_000_000_000
SESSION, KEY, OTHER_KEY = b"s" * 16, b"k" * 32, b"o" * 32
KNOCKED = Knock(SESSION, b"n" * 16, NOW_MS, "pump-7")
FRAME = KNOCKED.coded(KEY).encode()
ANSWER, NEXT_KEY = Knock.decode(FRAME).resumed_session(KEY, b"b" * 16)


def test_both_ends_have_the_same_new_key() -> None:
    knock = Knock.decode(FRAME)
    assert knock == replace(KNOCKED, code=FRAME[-CODE_BYTES:])
    knock.verify(KEY, 0, NOW_MS + 10)
    assert open_resumed(ANSWER, KEY, KNOCKED) == NEXT_KEY
    assert FRAME.startswith(KNOCK)
    assert is_resumed(ANSWER)
    assert is_resumed(unknown(SESSION))
    assert not is_resumed(FRAME)


def test_keys_and_codes_are_those_of_the_protocol() -> None:
    """HMAC-SHA256 (RFC 2104) by the standard library, over what the module's first lines lay out."""

    def mac(key: bytes, what: bytes) -> bytes:
        return hmac.digest(key, what, "sha256")

    domain = b"veilmq/1 trace session resumed"
    assert FRAME[-16:] == mac(mac(KEY, domain + b"\1"), FRAME[:-16])[:16]
    assert ANSWER[-16:] == mac(mac(KEY, domain + b"\1"), ANSWER[:-16] + b"n" * 16)[:16]
    assert mac(mac(KEY, domain + b"\2"), SESSION + b"n" * 16 + b"b" * 16) == NEXT_KEY


def test_what_was_said_before_cannot_be_said_again() -> None:
    said = TraceSession(SESSION, KEY, 0).say_word(Word.ALIVE, bytes(8))
    with pytest.raises(KeysError):
        TraceSession(SESSION, NEXT_KEY, 1).hear(said)


def test_a_knock_counts_once_and_now() -> None:
    knock = Knock.decode(FRAME)
    knock.verify(KEY, NOW_MS - 1, NOW_MS + REQUEST_FRESH_MS)
    knock.verify(KEY, NOW_MS - 1, NOW_MS - REQUEST_FRESH_MS)
    for after_ms in (NOW_MS, NOW_MS + 1):
        with pytest.raises(Replayed):
            knock.verify(KEY, after_ms, NOW_MS)
    for now_ms in (NOW_MS + REQUEST_FRESH_MS + 1, NOW_MS - REQUEST_FRESH_MS - 1):
        with pytest.raises(Expired):
            knock.verify(KEY, 0, now_ms)


def test_nobody_knocks_for_a_session_whose_key_he_does_not_have() -> None:
    for bad in (KNOCKED.coded(OTHER_KEY), replace(Knock.decode(FRAME), code=bytes(CODE_BYTES))):
        with pytest.raises(BadContent):
            bad.verify(KEY, 0, NOW_MS)
    for name, value in (("nonce", b"x" * 16), ("time_ms", NOW_MS + 1), ("name", "pump-8"), ("session", b"t" * 16)):
        with pytest.raises(BadContent):
            replace(Knock.decode(FRAME), **{name: value}).verify(KEY, 0, NOW_MS)


def test_an_answer_is_for_the_very_knock_and_by_who_has_the_key() -> None:
    for knock in (replace(KNOCKED, nonce=b"x" * 16), replace(KNOCKED, session=b"t" * 16)):
        with pytest.raises(BadContent):
            open_resumed(ANSWER, KEY, knock)
    with pytest.raises(BadContent):
        open_resumed(ANSWER, OTHER_KEY, KNOCKED)
    with pytest.raises(BadContent):
        open_resumed(KNOCKED.resumed_session(OTHER_KEY, b"b" * 16)[0], KEY, KNOCKED)
    assert KNOCKED.resumed_session(KEY, b"c" * 16)[1] != NEXT_KEY
    assert KEY not in ANSWER
    assert NEXT_KEY not in ANSWER
    for place in range(len(ANSWER)):
        with pytest.raises(KeysError):
            open_resumed(ANSWER[:place] + bytes([ANSWER[place] ^ 2]) + ANSWER[place + 1 :], KEY, KNOCKED)


def test_a_broker_that_knows_no_such_session_says_so_and_only_the_one_who_asked_takes_it() -> None:
    assert open_resumed(unknown(SESSION), KEY, KNOCKED) is None
    with pytest.raises(BadContent):
        open_resumed(unknown(b"t" * 16), KEY, KNOCKED)
    for longer in (unknown(SESSION) + b"x", ANSWER + b"x"):
        with pytest.raises(BadFrame):
            open_resumed(longer, KEY, KNOCKED)


def test_names_are_those_of_entities() -> None:
    for name in ("", "a/b", "+", "x" * 65, "pump\0"):
        with pytest.raises(BadFrame):
            Knock.decode(replace(KNOCKED, name=name).coded(KEY).encode())


def test_our_own_mistakes_are_ours() -> None:
    for bad in (replace(KNOCKED, nonce=b"x"), replace(KNOCKED, session=b"x")):
        with pytest.raises(OurFault):
            bad.coded(KEY)
    with pytest.raises(OurFault):
        KNOCKED.coded(b"x")
    with pytest.raises(OurFault):
        KNOCKED.resumed_session(KEY, b"x")


def test_frames_are_strict() -> None:
    assert_strict(Knock.decode, Knock.encode, FRAME)


@given(st.binary(max_size=90))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(KeysError):
        Knock.decode(KNOCK + data).verify(KEY, 0, NOW_MS)
    with pytest.raises(KeysError):
        open_resumed(data, KEY, KNOCKED)


def test_a_knock_shows_no_secret() -> None:
    assert repr(Knock.decode(FRAME)) == f"Knock(time_ms={NOW_MS}, name='pump-7')"
