"""keys.sealedbox: a box opens for its receiver and its purpose, and for nobody and nothing else."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.errors import BadContent, BadFrame, OurFault
from keys.sealedbox import BOX_OVERHEAD_BYTES, open_box, seal_box
from tests.keys.helpers import bit_flips, stream

RECEIVER = X25519PrivateKey.from_private_bytes(stream("receiver")(32))
PUBLIC = RECEIVER.public_key().public_bytes_raw()
EPHEMERAL = stream("ephemeral")(32)


@settings(max_examples=60)
@given(st.binary(max_size=300), st.binary(max_size=40), st.binary(min_size=32, max_size=32))
def test_what_is_sealed_opens(plaintext: bytes, info: bytes, ephemeral: bytes) -> None:
    box = seal_box(PUBLIC, plaintext, info, ephemeral)
    assert len(box) == len(plaintext) + BOX_OVERHEAD_BYTES
    assert open_box(RECEIVER, box, info) == plaintext


def test_the_construction_is_that_of_the_docstring() -> None:
    box = seal_box(PUBLIC, b"plain", b"info", EPHEMERAL)
    agreed = RECEIVER.exchange(X25519PublicKey.from_public_bytes(box[:32]))
    key = HKDF(hashes.SHA256(), 32, None, b"veilmq/1 box" + box[:32] + PUBLIC + b"info").derive(agreed)
    assert AESGCM(key).decrypt(bytes(12), box[32:], None) == b"plain"


def test_another_receiver_or_purpose_opens_nothing() -> None:
    box = seal_box(PUBLIC, b"plain", b"info", EPHEMERAL)
    stranger = X25519PrivateKey.from_private_bytes(stream("stranger")(32))
    for receiver, info in ((stranger, b"info"), (RECEIVER, b"inf"), (RECEIVER, b""), (RECEIVER, b"info\0")):
        with pytest.raises(BadContent):
            open_box(receiver, box, info)


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    """The bits of the ephemeral key too: they go into the derivation as they stand, so not even the one that X25519
    ignores can be flipped."""
    for changed in bit_flips(seal_box(PUBLIC, b"plain", b"info", EPHEMERAL)):
        with pytest.raises(BadContent):
            open_box(RECEIVER, changed, b"info")


@settings(max_examples=60)
@given(st.binary(max_size=100))
def test_garbage_does_not_open(data: bytes) -> None:
    with pytest.raises((BadFrame, BadContent)):
        open_box(RECEIVER, data, b"info")


def test_points_of_small_order_are_refused_on_both_sides() -> None:
    """They would make the agreed secret one that everybody knows (RFC 7748 §6.1)."""
    for point in (bytes(32), b"\1" + bytes(31)):
        with pytest.raises(OurFault):
            seal_box(point, b"plain", b"info", EPHEMERAL)
        with pytest.raises(BadContent):
            open_box(RECEIVER, point + bytes(16), b"info")


def test_keys_of_other_sizes_are_our_fault() -> None:
    for receiver, ephemeral in ((PUBLIC[:31], EPHEMERAL), (PUBLIC, EPHEMERAL[:31]), (b"", EPHEMERAL), (PUBLIC, b"")):
        with pytest.raises(OurFault):
            seal_box(receiver, b"plain", b"info", ephemeral)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 47])
def test_what_cannot_be_a_box_is_told_from_one_that_does_not_open(size: int) -> None:
    with pytest.raises(BadFrame):
        open_box(RECEIVER, seal_box(PUBLIC, b"", b"info", EPHEMERAL)[:size], b"info")
    assert open_box(RECEIVER, seal_box(PUBLIC, b"", b"info", EPHEMERAL), b"info") == b""
