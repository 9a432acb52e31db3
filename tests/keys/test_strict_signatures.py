"""What `identity.verify` accepts of signatures that implementations of Ed25519 judge differently.

The rule (docs/protocol.md §10): S below the group's order, key and point canonical and not of small order, and the
equation of RFC 8032 §5.1.7 without the cofactor. So nothing is accepted that OpenSSL refuses, and all who verify with
this function decide alike.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_scalar_add,
    crypto_core_ed25519_scalar_mul,
    crypto_core_ed25519_scalar_reduce,
    crypto_scalarmult_ed25519_base_noclamp,
)

from keys import identity
from keys.errors import BadSignature
from keys.identity import verify
from tests.keys.helpers import PUBLISHER
from tests.keys.test_vectors import load
from tests.keys.test_wycheproof import cases

ROOT = Path(__file__).parents[2]
DOMAIN = "veilmq/1 headers"
ORDER = 2**252 + 27742317777372353535851937790883648493
NEUTRAL = (1).to_bytes(32, "little")
OF_ORDER_8 = bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a")


def multiples(point: bytes) -> list[bytes]:
    """The eight points of small order, the neutral one first."""
    return list(itertools.accumulate([point] * 7, crypto_core_ed25519_add, initial=NEUTRAL))


def scalar(data: bytes) -> bytes:
    """SHA-512 modulo the group's order, 32 bytes, the least first."""
    return crypto_core_ed25519_scalar_reduce(hashlib.sha512(data).digest())


SMALL = multiples(OF_ORDER_8)


def ours(public: bytes, data: bytes, signature: bytes) -> bool:
    try:
        verify(public, DOMAIN, data, signature)
    except BadSignature:
        return False
    return True


def openssl(public: bytes, message: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the prefix of the domain, which no vector has."""
    monkeypatch.setattr(identity, "_with_domain", lambda _, data: data)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("case", load("ed25519_speccheck.json")["cases"], ids=lambda case: case["about"])
def test_vectors_on_which_implementations_differ(case: dict[str, Any]) -> None:
    public, message, signature = (bytes.fromhex(case[name]) for name in ("public", "message", "signature"))
    assert ours(public, message, signature) is case["valid"]
    assert openssl(public, message, signature) or not case["valid"]


@pytest.mark.usefixtures("bare")
def test_nothing_is_accepted_that_openssl_refuses() -> None:
    tests = cases("Signature/wycheproof/ed25519_test.json")
    for case in tests:
        if ours(case["pk"], case["msg"], case["sig"]):
            assert openssl(case["pk"], case["msg"], case["sig"]), case["tcId"]


@given(st.binary(max_size=40))
def test_a_second_signature_is_not_made_of_a_first(data: bytes) -> None:
    """By adding the group's order to S, which leaves the equation true. What is signed once has one name then."""
    signature = PUBLISHER.sign(DOMAIN, data)
    assert ours(PUBLISHER.public_bytes, data, signature)
    s = int.from_bytes(signature[32:], "little")
    for more in range(1, 16):
        if (other := s + more * ORDER) < 2**256:
            assert not ours(PUBLISHER.public_bytes, data, signature[:32] + other.to_bytes(32, "little"))
    for bit in range(252, 256):
        assert not ours(PUBLISHER.public_bytes, data, signature[:32] + (s ^ 1 << bit).to_bytes(32, "little"))


@given(st.binary(max_size=40))
def test_a_key_of_small_order_signs_nothing(data: bytes) -> None:
    """Whoever brings such a key could say later that it signed something else: under the neutral one, a signature
    fits any data."""
    s = scalar(data)
    point = crypto_scalarmult_ed25519_base_noclamp(s)
    assert openssl(NEUTRAL, data, point + s)
    for public in SMALL:
        assert not ours(public, data, point + s)
        assert not ours(public, data, public + bytes(32))


@given(st.binary(max_size=40))
@settings(max_examples=20)
def test_small_parts_in_key_and_point_divide_nobody(data: bytes) -> None:
    """A signer who adds points of small order to key and point makes signatures that hold times the cofactor, and by
    chance without. Ours decides as OpenSSL does, by chance, and never by who asks."""
    private, nonce = scalar(b"private" + data), scalar(b"nonce" + data)
    public, point = (crypto_scalarmult_ed25519_base_noclamp(number) for number in (private, nonce))
    message = DOMAIN.encode() + b"\0" + data
    for more, further in itertools.product(SMALL, SMALL):
        key, start = crypto_core_ed25519_add(public, more), crypto_core_ed25519_add(point, further)
        number = scalar(start + key + message)
        s = crypto_core_ed25519_scalar_add(nonce, crypto_core_ed25519_scalar_mul(number, private))
        decided = ours(key, data, start + s)
        assert decided == openssl(key, message, start + s)
        assert decided or more != NEUTRAL or further != NEUTRAL


@pytest.mark.long
def test_one_function_verifies_for_all_parties() -> None:
    """Two libraries under one overlay would let a signer choose who accepts a message."""
    files = [
        file
        for package in ("keys", "bridge", "gateway", "papers", "spark_ingest")
        for file in (ROOT / package).rglob("*.py")
    ]
    verifying = [file for file in files if re.search(r"InvalidSignature|\bnacl\b", file.read_text())]
    assert verifying == [ROOT / "keys/identity.py"]
