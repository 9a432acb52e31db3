"""keys.sealedbox: a box opens for its receiver and its purpose, and for nobody and nothing else."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
from hypothesis import given, settings
from hypothesis import strategies as st

from keys import sealedbox
from keys.errors import BadContent, BadFrame, OurFault
from keys.identity import Identity
from keys.sealedbox import (
    BOX_OVERHEAD_BYTES,
    HYBRID_DOMAIN,
    HYBRID_OVERHEAD_BYTES,
    BoxKey,
    check_receiver,
    is_hybrid,
    seal_box,
)
from tests.keys.helpers import bit_flips, stream

RECEIVER = BoxKey(stream("receiver")(32), stream("seed")(64))
STRANGER = BoxKey(stream("stranger")(32), stream("other seed")(64))
CLASSICAL, HYBRID = RECEIVER.agreement_bytes, RECEIVER.hybrid_bytes
EPHEMERAL = stream("ephemeral")(32)
FORMS = pytest.mark.parametrize("public", [CLASSICAL, HYBRID], ids=["classical", "hybrid"])
ENCAPSULATED_BYTES = 1088
VECTORS = Path(__file__).parents[1] / "vectors"


@FORMS
@settings(max_examples=60)
@given(plaintext=st.binary(max_size=300), info=st.binary(max_size=40), ephemeral=st.binary(min_size=32, max_size=32))
def test_what_is_sealed_opens(public: bytes, plaintext: bytes, info: bytes, ephemeral: bytes) -> None:
    box = seal_box(public, plaintext, info, ephemeral)
    assert len(box) == len(plaintext) + (HYBRID_OVERHEAD_BYTES if is_hybrid(public) else BOX_OVERHEAD_BYTES)
    assert RECEIVER.open(box, info) == plaintext


def test_a_long_classical_box_opens_too() -> None:
    plaintext = bytes(2 * HYBRID_OVERHEAD_BYTES)
    assert RECEIVER.open(seal_box(CLASSICAL, plaintext, b"info", EPHEMERAL), b"info") == plaintext


def test_the_classical_construction_is_that_of_the_docstring() -> None:
    box = seal_box(CLASSICAL, b"plain", b"info", EPHEMERAL)
    private = X25519PrivateKey.from_private_bytes(stream("receiver")(32))
    agreed = private.exchange(X25519PublicKey.from_public_bytes(box[:32]))
    key = HKDF(hashes.SHA256(), 32, None, b"veilmq/1 box" + box[:32] + CLASSICAL + b"info").derive(agreed)
    assert AESGCM(key).decrypt(bytes(12), box[32:], None) == b"plain"


# ---------------------------------------------------------------------- hybrid boxes beside a second implementation


def decapsulated(encapsulation: MLKEM768PrivateKey, agreement: X25519PrivateKey, sent: bytes) -> bytes:
    """Returns the shared secret of MLKEM768-X25519: SHA3-256 over both secrets, the X25519 keys and a label."""
    inner, theirs = sent[:ENCAPSULATED_BYTES], sent[ENCAPSULATED_BYTES:]
    agreed = agreement.exchange(X25519PublicKey.from_public_bytes(theirs))
    ours = agreement.public_key().public_bytes_raw()
    return hashlib.sha3_256(encapsulation.decapsulate(inner) + agreed + theirs + ours + b"\\.//^\\").digest()


def schedule(shared: bytes, info: bytes, suite: bytes) -> tuple[bytes, bytes]:
    """Returns key and base nonce of HPKE's base mode with HKDF-SHA256 and a key of 32 bytes (RFC 9180 §5.1)."""

    def extract(salt: bytes, label: bytes, ikm: bytes) -> bytes:
        return HKDF.extract(hashes.SHA256(), salt or bytes(32), b"HPKE-v1" + suite + label + ikm)

    def expand(secret: bytes, label: bytes, context: bytes, length: int) -> bytes:
        labelled = length.to_bytes(2) + b"HPKE-v1" + suite + label + context
        return HKDFExpand(hashes.SHA256(), length, labelled).derive(secret)

    context = b"\0" + extract(b"", b"psk_id_hash", b"") + extract(b"", b"info_hash", info)
    secret = extract(shared, b"secret", b"")
    return expand(secret, b"key", context, 32), expand(secret, b"base_nonce", context, 12)


def test_the_second_implementation_gives_the_vector_of_the_draft() -> None:
    vector = json.loads((VECTORS / "hpke_pq.json").read_text())
    given = {name: bytes.fromhex(value) for name, value in vector.items() if name != "provenance"}
    expanded = hashlib.shake_256(given["private"]).digest(96)
    encapsulation = MLKEM768PrivateKey.from_seed_bytes(expanded[:64])
    agreement = X25519PrivateKey.from_private_bytes(expanded[64:])
    public = encapsulation.public_key().public_bytes_raw() + agreement.public_key().public_bytes_raw()
    assert public == given["public"]
    shared = decapsulated(encapsulation, agreement, given["encapsulated"])
    assert shared == given["shared"]
    assert schedule(shared, given["info"], given["suite"]) == (given["key"], given["nonce"])
    opened = ChaCha20Poly1305(given["key"]).decrypt(given["nonce"], given["sealed"], given["associated"])
    assert opened == given["plain"]


def test_a_hybrid_box_opens_by_the_second_implementation() -> None:
    box = seal_box(HYBRID, b"plain", b"info", EPHEMERAL)
    encapsulation = MLKEM768PrivateKey.from_seed_bytes(stream("seed")(64))
    agreement = X25519PrivateKey.from_private_bytes(stream("receiver")(32))
    sent, sealed = box[: ENCAPSULATED_BYTES + 32], box[ENCAPSULATED_BYTES + 32 :]
    suite = b"HPKE" + bytes.fromhex("647a 0001 0002")  # MLKEM768-X25519, HKDF-SHA256, AES-256-GCM
    key, nonce = schedule(decapsulated(encapsulation, agreement, sent), HYBRID_DOMAIN + b"info", suite)
    assert AESGCM(key).decrypt(nonce, sealed, b"") == b"plain"


def test_who_has_one_of_both_private_keys_opens_no_hybrid_box() -> None:
    box = seal_box(HYBRID, b"plain", b"info", EPHEMERAL)
    for thief in (BoxKey(stream("receiver")(32), bytes(64)), BoxKey(bytes(32), stream("seed")(64))):
        with pytest.raises(BadContent):
            thief.open(box, b"info")


# -------------------------------------------------------------------------------------------------------- attacks


@FORMS
def test_another_receiver_or_purpose_opens_nothing(public: bytes) -> None:
    box = seal_box(public, b"plain", b"info", EPHEMERAL)
    for receiver, info in ((STRANGER, b"info"), (RECEIVER, b"inf"), (RECEIVER, b""), (RECEIVER, b"info\0")):
        with pytest.raises(BadContent):
            receiver.open(box, info)


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    """The bits of the ephemeral key too: they go into the derivation as they stand, so not even the one that X25519
    ignores can be flipped."""
    for changed in bit_flips(seal_box(CLASSICAL, b"plain", b"info", EPHEMERAL)):
        with pytest.raises(BadContent):
            RECEIVER.open(changed, b"info")


@pytest.mark.long
def test_a_flipped_bit_of_each_byte_of_a_hybrid_box_is_noticed() -> None:
    box = seal_box(HYBRID, b"plain", b"info", EPHEMERAL)
    for place in range(len(box)):
        changed = bytearray(box)
        changed[place] ^= 1 << place % 8
        with pytest.raises(BadContent):
            RECEIVER.open(bytes(changed), b"info")


@settings(max_examples=60)
@given(st.binary(max_size=100) | st.binary(min_size=HYBRID_OVERHEAD_BYTES, max_size=HYBRID_OVERHEAD_BYTES + 40))
def test_garbage_does_not_open(data: bytes) -> None:
    with pytest.raises((BadFrame, BadContent)):
        RECEIVER.open(data, b"info")


def test_points_of_small_order_are_refused_on_both_sides() -> None:
    """They would make the agreed secret one that everybody knows (RFC 7748 §6.1)."""
    for point in (bytes(32), b"\1" + bytes(31)):
        for receiver in (point, HYBRID[:-32] + point):
            with pytest.raises(OurFault):
                seal_box(receiver, b"plain", b"info", EPHEMERAL)
            with pytest.raises(OurFault):
                check_receiver(receiver)
        with pytest.raises(BadContent):
            RECEIVER.open(point + bytes(16), b"info")


def test_a_key_is_tried_once_and_a_bad_one_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trial:
        tried = 0

        def exchange(self, key: object) -> bytes:
            self.tried += 1
            raise ValueError

    check_receiver.cache_clear()
    check_receiver(CLASSICAL)
    trial = Trial()
    monkeypatch.setattr(sealedbox, "_TRIAL", trial)
    check_receiver(CLASSICAL)
    assert trial.tried == 0
    for tried in (1, 2):
        with pytest.raises(OurFault):
            check_receiver(STRANGER.agreement_bytes)
        assert trial.tried == tried


def test_an_encapsulation_key_with_numbers_out_of_range_is_no_key() -> None:
    """FIPS 203 §7.2 has each coefficient checked to be below 3,329."""
    wrong = b"\xff" * 3 + HYBRID[3:]
    with pytest.raises(OurFault, match="ML-KEM-768"):
        check_receiver(wrong)
    with pytest.raises(OurFault, match="ML-KEM-768"):
        seal_box(wrong, b"plain", b"info", EPHEMERAL)


def test_keys_of_other_sizes_are_our_fault() -> None:
    short = [(CLASSICAL[:31], EPHEMERAL), (CLASSICAL, EPHEMERAL[:31]), (b"", EPHEMERAL), (CLASSICAL, b"")]
    for receiver, ephemeral in [*short, (HYBRID[:-1], EPHEMERAL), (HYBRID + b"\0", EPHEMERAL)]:
        with pytest.raises(OurFault):
            seal_box(receiver, b"plain", b"info", ephemeral)
    for receiver in (b"", CLASSICAL[:31], HYBRID[:-1], HYBRID + b"\0"):
        with pytest.raises(OurFault):
            check_receiver(receiver)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 47])
def test_what_cannot_be_a_box_is_told_from_one_that_does_not_open(size: int) -> None:
    with pytest.raises(BadFrame):
        RECEIVER.open(seal_box(CLASSICAL, b"", b"info", EPHEMERAL)[:size], b"info")
    assert RECEIVER.open(seal_box(CLASSICAL, b"", b"info", EPHEMERAL), b"info") == b""


def test_a_private_key_shows_nothing_and_is_not_pickled() -> None:
    assert repr(RECEIVER) == "BoxKey()"
    with pytest.raises(OurFault):
        pickle.dumps(RECEIVER)


def test_both_keys_of_an_identity_follow_from_its_one_secret() -> None:
    first, second = (Identity.generate(stream("identity")(32)) for _ in range(2))
    assert first.hybrid_bytes == second.hybrid_bytes
    assert first.hybrid_bytes.endswith(first.agreement_bytes)
    box = seal_box(first.hybrid_bytes, b"plain", b"info", EPHEMERAL)
    assert second.open_box(box, b"info") == b"plain"
