"""Words and numbers of the wire that may never change: domains of signatures, purposes of boxes, kinds, codes, names.

A signature is checked here with Ed25519 alone, over `domain ‖ 0x00 ‖ all bytes before the signature`.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from keys import archive, delegation, frames, grants, handover, identity, keyheader, ownword, requests, signedheader
from keys import tracesession as sessions
from keys.envelope import sign_header
from keys.epochs import KeyName
from keys.identity import Identity, Role
from keys.message import FLAGS_AT, KEY_ID_AT, PUBLISHER_AT, SEQUENCE_AT, Mode
from keys.tracesession import TraceSession, Word
from tests.keys.helpers import PUBLISHER, made, message_header
from tests.keys.test_delegation import ADVERTISEMENT, HOLDER, NODE, NOW_MS, PUMP, TOKEN, TRACE, certified

REQUEST = requests.KeyRequest.signed(PUMP, "keys-1", bytes(16), NOW_MS, [KeyName("plant/#", 1, 0)])
ANSWER = requests.KeyAnswer(NODE.party_id, bytes(32), 1, (), b"box").signed_by(NODE)
SIGNED: dict[str, tuple[str, Identity, Callable[[], bytes]]] = {
    "certificate": ("veilmq/1 certificate", Identity.generate(bytes([1]) * 32), certified(PUMP, "pump-7").encode),
    "key header": ("veilmq/1 key", PUBLISHER, made(3).header.encode),
    "key request": ("veilmq/1 key request", PUMP, REQUEST.encode),
    "key answer": ("veilmq/1 key answer", NODE, ANSWER.encode),
    "advertisement": ("veilmq/1 trace topic", NODE, ADVERTISEMENT.encode),
    "token": ("veilmq/1 trace token", PUMP, TOKEN.encode),
    "trace": ("veilmq/1 trace", HOLDER, TRACE.encode),
    "registration": (
        "veilmq/1 registration", PUMP,
        sessions.Registration(ADVERTISEMENT.encode(), bytes(16), NOW_MS).signed(PUMP).encode,
    ),
    "word of a session": (
        "veilmq/1 trace session", PUMP, lambda: TraceSession(bytes(16), bytes(32), 0).say_word(Word.STATE, b"\1", PUMP),
    ),
    "own word": ("veilmq/1 own word", PUMP, ownword.OwnWord(1, 2, 3, 4, b"{}").signed(PUMP).encode),
}  # fmt: skip


@pytest.mark.parametrize("what", SIGNED)
def test_what_is_signed_is_everything_before_the_signature_in_its_domain(what: str) -> None:
    domain, signer, encode = SIGNED[what]
    whole = encode()
    of_session = hmac.digest(bytes(32), domain.encode(), "sha256") if what == "word of a session" else b""
    public = Ed25519PublicKey.from_public_bytes(signer.public_bytes)
    public.verify(whole[-64:], domain.encode() + b"\0" + whole[:-64] + of_session)
    for other in {name for name, _, _ in SIGNED.values()} - {domain}:
        with pytest.raises(InvalidSignature):
            public.verify(whole[-64:], other.encode() + b"\0" + whole[:-64] + of_session)


def test_no_two_signatures_share_a_domain() -> None:
    domains = [domain for domain, _, _ in SIGNED.values()] + [signedheader.HEADER_DOMAIN]
    assert len(set(domains)) == len(domains)
    assert signedheader.HEADER_DOMAIN == "veilmq/1 header"


def test_a_header_is_signed_in_its_domain_with_its_topic() -> None:
    header = message_header(bytes(15) + b"k")
    signature = sign_header(PUBLISHER, header, "plant/~").signature
    public = Ed25519PublicKey.from_public_bytes(PUBLISHER.public_bytes)
    public.verify(signature, b"veilmq/1 header\0" + header.encode() + b"\0\7plant/~")


def test_boxes_are_bound_to_their_purposes() -> None:
    assert requests.answer_info("k", b"d" * 32) == b"veilmq/1 key answer\0\1k" + b"d" * 32
    assert archive.archive_info("k", b"p" * 16, 7) == b"veilmq/1 key archive\0\1k" + b"p" * 16 + b"\0\0\0\7"
    assert archive.archive_info("k", b"", 1 << 24) == b"veilmq/1 key archive\0\1k\1\0\0\0"
    assert handover._info("o", "m") == b"veilmq/1 handover\0\1o\0\1m"


NUMBERS: dict[type[IntEnum], str] = {
    frames.Kind: (
        "SHARES 1 KEY_HEADER 2 MESSAGE_HEADER 3 CERTIFICATE 6 VIEW 7 POLICY 8 SCOPE 9 STATEMENT 10"
        " GRANT 11 SEALED_GRANT 12 KEY_REQUEST 13 KEY_ANSWER 14 OVERLAY_OFFER 15 KEY_OUTPUTS 16 KEY_ARCHIVE 17"
        " KEY_MATERIAL 18 GROUP_LEASE 19 PULL 20 ENDORSEMENT 21 OWN_WORD 22 ADVERTISEMENT 24 TOKEN 25 TRACE 26"
        " TRACE_KEY 27 REGISTRATION 28 REGISTERED 29 TRACE_SESSION 30 INTEREST 31 DISCOVERY 32"
    ),
    Word: "PING 1 ANSWER 2 STATE 3 LOAD 4 TOKEN 5 TRACE_KEY 6 SILENT 7 CLOCK 8",
    Mode: "COPIES 1 ONE 2 BLOCKS 3 PLAIN 4 AUTO 5",
    requests.Refusal: "NOT_AUTHORISED 1 TOO_EARLY 2 GONE 3 UNKNOWN 4 NOT_READY 5",
    grants.Right: "PUBLISH 1 READ 2",  # type: ignore[dict-item]
    delegation.Delegated: "PUBLISH 1 SUBSCRIBE 2",  # type: ignore[dict-item]
}


@pytest.mark.parametrize("numbers", NUMBERS, ids=lambda one: one.__name__)
def test_numbers_on_the_wire(numbers: type[IntEnum]) -> None:
    """New ones may come; none of these may change or be given again."""
    words = NUMBERS[numbers].split()
    known: dict[str, Any] = {one.name: one.value for one in numbers}
    for name, value in zip(words[::2], words[1::2], strict=True):
        assert known[name] == int(value), name


def test_roles_have_their_names_in_files_and_their_codes_in_certificates() -> None:
    names = ["replica", "gateway", "ingest", "owner", "keyserver", "entity", "hosted"]
    assert [role.value for role in Role] == names
    for code, name in enumerate(names, 1):
        assert certified(PUMP, "pump-7", role=Role(name)).encode()[3] == code
    assert issubclass(Role, Enum)


def test_user_properties_have_their_names() -> None:
    assert (frames.PROPERTY_HEADER, frames.PROPERTY_KEY, frames.PROPERTY_SHARES) == ("vmq", "vmq-key", "vmq-shares")


def test_where_fields_of_a_key_header_stand() -> None:
    header = made(3, 5).header
    frame = header.encode()
    assert frame[keyheader.PUBLISHER_AT : keyheader.PUBLISHER_AT + 16] == header.publisher
    assert frame[keyheader.SCOPE_AT : keyheader.SCOPE_AT + 9] == frames.text(header.scope)
    assert identity.PARTY_ID_BYTES == 16


def test_where_fields_of_a_message_header_stand() -> None:
    header = message_header(b"k" * 16, sequence=0x0102030405060708, qos=2, retain=True, tombstone=True)
    frame = header.encode()
    assert frame[FLAGS_AT] == 2 | 4 | 8
    assert frame[PUBLISHER_AT : PUBLISHER_AT + 16] == header.publisher
    assert frame[KEY_ID_AT : KEY_ID_AT + 16] == b"k" * 16
    assert frame[SEQUENCE_AT : SEQUENCE_AT + 8] == bytes(range(1, 9))
