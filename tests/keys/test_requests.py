"""keys.requests: the frames between members and key servers, and what strangers can send in their place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys import frames
from keys.epochs import KeyName
from keys.errors import BadFrame, BadSignature, NotAuthorised, OurFault
from keys.identity import Role
from keys.requests import (
    ANSWER_BYTES_MAX,
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
from tests.keys.helpers import assert_canonical, assert_strict, bit_flips
from tests.keys.service import certificate_for, identity_of

READER, SERVER = identity_of("reader"), identity_of("keys-1")
READER_CERTIFICATE = certificate_for("reader", Role.GATEWAY, READER)
SERVER_CERTIFICATE = certificate_for("keys-1", Role.KEY_SERVER, SERVER)
NAMES = (KeyName("plant/#", 10, 0), KeyName("plant/#", 11, 3))
REQUEST = KeyRequest.signed(READER, "keys-1", bytes(16), 1_700_000_000_000, NAMES)
REFUSED = ((0, Refusal.TOO_EARLY), (1, Refusal.GONE))
ANSWER = KeyAnswer(SERVER.party_id, bytes(32), 7, REFUSED, b"box", ((9, b"old"), (10, b"less old"))).signed_by(SERVER)
OUTPUTS = [Outputs(NAMES[0], bytes(12), ((0, bytes(32)), (2, bytes(32)))), Outputs(NAMES[1], bytes(12), ())]


def outputs_again(data: bytes) -> object:
    return decode_outputs(data)


def test_the_frames_are_strict() -> None:
    assert_strict(KeyRequest.decode, KeyRequest.encode, REQUEST.encode())  # type: ignore[arg-type]
    assert_strict(KeyAnswer.decode, KeyAnswer.encode, ANSWER.encode())  # type: ignore[arg-type]
    assert_strict(outputs_again, encode_outputs, encode_outputs(OUTPUTS))  # type: ignore[arg-type]
    assert KeyRequest.decode(REQUEST.encode()) == REQUEST
    assert KeyAnswer.decode(ANSWER.encode()) == ANSWER
    assert decode_outputs(encode_outputs(OUTPUTS)) == OUTPUTS


@pytest.mark.long
def test_a_flipped_bit_anywhere_is_noticed() -> None:
    for changed in bit_flips(REQUEST.encode()):
        with pytest.raises((BadFrame, BadSignature)):
            KeyRequest.decode(changed).verify(READER_CERTIFICATE)
    for changed in bit_flips(ANSWER.encode()):
        with pytest.raises((BadFrame, BadSignature)):
            KeyAnswer.decode(changed).verify(SERVER_CERTIFICATE)


def test_nobody_signs_for_another_nor_one_frame_as_another() -> None:
    with pytest.raises(BadSignature):
        REQUEST.verify(SERVER_CERTIFICATE)
    with pytest.raises(BadSignature):
        ANSWER.verify(READER_CERTIFICATE)
    crossed = replace(ANSWER, signature=SERVER.sign("veilmq/1 key request", ANSWER.signed_bytes()))
    with pytest.raises(BadSignature):
        crossed.verify(SERVER_CERTIFICATE)


@pytest.mark.parametrize("count", [0, NAMES_MAX + 1])
def test_a_request_names_1_to_64_keys(count: int) -> None:
    names = tuple(KeyName("plant/#", epoch, 0) for epoch in range(count))
    with pytest.raises(OurFault):
        KeyRequest.signed(READER, "keys-1", bytes(16), 0, names)
    frame = REQUEST.encode()
    at = 3 + 16 + 2 + len("keys-1") + 16 + 8
    assert frame[at : at + 2] == b"\0\2"
    body = b"".join(frames.text(n.scope) + frames.number(n.epoch, 4) + frames.number(n.bump, 2) for n in names)
    with pytest.raises(BadFrame):
        KeyRequest.decode(frame[:at] + count.to_bytes(2) + body + bytes(64))


def test_64_names_are_allowed() -> None:
    names = [KeyName("plant/#", epoch, 0) for epoch in range(NAMES_MAX)]
    assert len(KeyRequest.decode(KeyRequest.signed(READER, "s", bytes(16), 0, names).encode()).names) == NAMES_MAX


def test_requests_that_cannot_be_are_our_fault() -> None:
    for nonce, time_ms, names in ((bytes(15), 0, NAMES), (bytes(16), -1, NAMES), (bytes(16), 0, NAMES[:1] * 2)):
        with pytest.raises(OurFault):
            KeyRequest.signed(READER, "keys-1", nonce, time_ms, names)


def test_answers_out_of_order_of_unknown_reasons_or_too_long_are_refused() -> None:
    for changes in (
        {"refused": REFUSED[::-1]},
        {"refused": REFUSED[:1] * 2},
        {"archived": ((10, b""), (9, b""))},
        {"refused": tuple((index, Refusal.GONE) for index in range(NAMES_MAX + 1))},
        {"archived": tuple((epoch, b"") for epoch in range(NAMES_MAX + 1))},
    ):
        with pytest.raises(BadFrame):
            KeyAnswer.decode(replace(ANSWER, **changes).encode())  # type: ignore[arg-type]
    at = 3 + 16 + 32 + 8 + 2 + 2
    frame = ANSWER.encode()
    assert frame[at] == Refusal.TOO_EARLY
    with pytest.raises(BadFrame, match="reason"):
        KeyAnswer.decode(frame[:at] + b"\x09" + frame[at + 1 :])
    with pytest.raises(BadFrame):
        KeyAnswer.decode(bytes(ANSWER_BYTES_MAX + 1))
    with pytest.raises(OurFault):
        replace(ANSWER, box=bytes(ANSWER_BYTES_MAX)).encode()


def test_outputs_of_one_name_twice_or_out_of_order_are_refused() -> None:
    for entries in (OUTPUTS[:1] * 2, [Outputs(NAMES[0], bytes(12), OUTPUTS[0].outputs[::-1])]):
        with pytest.raises(BadFrame):
            decode_outputs(encode_outputs(entries))


def test_every_refusal_is_an_error_of_its_own() -> None:
    assert Refusal.from_error(NotAuthorised("no")) is Refusal.NOT_AUTHORISED
    with pytest.raises(StopIteration):
        Refusal.from_error(BadFrame("not a refusal"))


def test_outputs_do_not_show() -> None:
    secret = b"\xaa" * 32
    assert "aa" * 3 not in repr(Outputs(NAMES[0], bytes(12), ((0, secret),)))
    assert "xaa" not in repr(Outputs(NAMES[0], bytes(12), ((0, secret),)))


CODECS: dict[int, tuple[Callable[[bytes], object], Callable[..., bytes]]] = {
    13: (KeyRequest.decode, KeyRequest.encode),
    14: (KeyAnswer.decode, KeyAnswer.encode),
    16: (outputs_again, encode_outputs),
}
FRAMES = {13: REQUEST.encode(), 14: ANSWER.encode(), 16: encode_outputs(OUTPUTS)}


def assert_refused_or_canonical(frame: bytes) -> None:
    """What is of another kind is refused; what is of the decoder's kind is refused or the one encoding of a value."""
    for kind, (decode, encode) in CODECS.items():
        if frame[:3] == bytes((1, kind, 0)):
            assert_canonical(decode, encode, frame)
        else:
            with pytest.raises(BadFrame):
                decode(frame)


@settings(max_examples=150)
@given(st.sampled_from(sorted(FRAMES)), st.integers(0, 260), st.binary(min_size=1, max_size=6))
def test_arbitrary_changes_are_refused_or_canonical(kind: int, offset: int, data: bytes) -> None:
    frame = FRAMES[kind]
    assert_refused_or_canonical(frame[:offset] + data + frame[offset + len(data) :])


@settings(max_examples=100)
@given(st.sampled_from(sorted(FRAMES)), st.binary(max_size=200))
def test_garbage_is_refused(kind: int, data: bytes) -> None:
    assert_refused_or_canonical(bytes((1, kind, 0)) + data)


def test_bounds_are_reached_and_not_passed() -> None:
    refused = tuple((index, Refusal.GONE) for index in range(NAMES_MAX))
    archived = tuple((epoch, b"") for epoch in range(NAMES_MAX))
    assert KeyAnswer.decode(replace(ANSWER, refused=refused, archived=archived).encode()).archived == archived
    most = ANSWER_BYTES_MAX - len(replace(ANSWER, box=b"").encode())
    largest = replace(ANSWER, box=bytes(most))
    assert KeyAnswer.decode(largest.encode()) == largest
    larger = replace(ANSWER, box=bytes(most + 1))
    with pytest.raises(BadFrame, match=f"an answer of {ANSWER_BYTES_MAX + 1} bytes"):
        KeyAnswer.decode(larger.signed_bytes() + ANSWER.signature)
    many = REQUEST.encode()[:-64].replace(b"\0\2\0\x07plant/#", b"\xff\xff\0\x07plant/#", 1)
    with pytest.raises(BadFrame, match="65535 keys"):
        KeyRequest.decode(many)


def test_boxes_do_not_show() -> None:
    shown = repr(replace(ANSWER, box=b"BOX", archived=((9, b"ARCHIVE"),))) + repr(REQUEST)
    for hidden in (b"BOX", b"ARCHIVE", ANSWER.signature, REQUEST.signature):
        assert repr(hidden)[2:-1] not in shown


def test_the_box_of_an_answer_is_bound_as_the_readme_says() -> None:
    assert answer_info("keys-1", b"d" * 32) == b"veilmq/1 key answer\0\6keys-1" + b"d" * 32
    assert digest_of(b"frame") == hashlib.sha256(b"frame").digest()


def test_reasons_have_their_numbers_for_ever() -> None:
    names = ("NOT_AUTHORISED", "TOO_EARLY", "GONE", "UNKNOWN", "NOT_READY")
    assert [(one.name, one.value) for one in Refusal] == list(zip(names, range(1, 6), strict=True))


def test_requests_and_answers_are_signed_in_domains_of_their_own() -> None:
    assert REQUEST.signature == READER.sign("veilmq/1 key request", REQUEST.signed_bytes())
    assert ANSWER.signature == SERVER.sign("veilmq/1 key answer", ANSWER.signed_bytes())


def test_a_request_may_be_of_one_key() -> None:
    one = KeyRequest.signed(READER, "keys-1", bytes(16), 0, NAMES[:1])
    assert KeyRequest.decode(one.encode()).names == NAMES[:1]
