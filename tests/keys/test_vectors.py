"""The vectors of tests/vectors: primitives as their standards say, our own frames as they once were.

`python -m tests.keys.test_vectors` prints the frames of today; a change of them is a change of the protocol.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from keys.envelope import (
    KeyHeader,
    SignedHeader,
    check_share,
    make_key,
    open_key,
    sign_header,
    verify_header,
)
from keys.epochs import KeyName, scope_key, token_key
from keys.identity import Certificate, Identity, Role
from keys.records import Extras, encode
from keys.sharetree import Hop, decode_shares, encode_shares, resplit
from keys.topictokens import retained_id, tokenise_filter, tokenise_topic
from tests.keys.helpers import message_header, recombine

FOLDER = Path(__file__).parent.parent / "vectors"


def load(name: str) -> dict[str, Any]:
    vectors = json.loads((FOLDER / name).read_text())
    assert vectors["provenance"]
    return dict(vectors)


def unhex(case: dict[str, Any]) -> dict[str, bytes]:
    return {name: bytes.fromhex(value) for name, value in case.items() if isinstance(value, str)}


@pytest.mark.parametrize("case", load("hkdf_sha256.json")["cases"])
def test_hkdf_is_that_of_rfc_5869(case: dict[str, Any]) -> None:
    known, size = unhex(case), case["size"]
    prk = HKDF.extract(hashes.SHA256(), known["salt"] or bytes(32), known["ikm"])
    assert prk == known["prk"]
    assert HKDFExpand(hashes.SHA256(), size, known["info"]).derive(prk) == known["okm"]


@pytest.mark.parametrize("case", load("ed25519.json")["cases"])
def test_ed25519_is_that_of_rfc_8032(case: dict[str, Any]) -> None:
    known = unhex(case)
    identity = Identity.from_private_bytes(known["private"])
    assert identity.public_bytes == known["public"]
    assert identity._private.sign(known["message"]) == known["signature"]


@pytest.mark.parametrize("case", load("aes256gcm.json")["cases"])
def test_aes_gcm_is_that_of_its_authors(case: dict[str, Any]) -> None:
    known = unhex(case)
    cipher = AESGCM(known["key"])
    assert cipher.encrypt(known["nonce"], known["plain"], known["associated"]) == known["sealed"]


def counted(seed: bytes) -> Any:
    """Bytes n of the stream SHAKE-256(seed ‖ n), n = 0, 1, ... (one byte): the fixed randomness of our frames."""
    calls = iter(range(256))
    return lambda size: hashlib.shake_256(seed + bytes([next(calls)])).digest(size)


ROOT, OWNER_SEED, PUBLISHER_SEED, REPLICA_SEED = (bytes([n]) * 32 for n in (1, 2, 3, 4))
HOPS = (Hop(1, 7, 2, 3), Hop(2, 9, 3, 5))
TOPIC, WIRE_TOPIC = "plant/line/speed", "veilmq/batch/1"


def current_frames() -> dict[str, str]:
    """Our frames from the fixed seeds above, as hex or text."""
    owner, publisher = Identity.generate(OWNER_SEED), Identity.generate(PUBLISHER_SEED)
    epoch_key = scope_key(ROOT, "plant/#", 3, 1)
    header, key, shares = make_key(publisher, KeyName("plant/#", 3, 1), HOPS, 1000, 64, epoch_key, counted(b"frames"))
    extras = Extras(sealed=("text/plain", "reply", b"\1\2", 1), properties=(("unit", "m/s"),)).encode()
    content = encode(b"\1", [1_700_000_000_000], [TOPIC.encode()], [extras], [b"21.5"])
    draft = message_header(header.key_id, publisher=publisher.party_id)
    sealed = key.seal(draft.prefix(), draft.sequence, WIRE_TOPIC, content)
    message = message_header(header.key_id, publisher=publisher.party_id, digests=(hashlib.sha256(sealed).digest(),))
    certificate = Certificate.issue(
        owner,
        name="gateway-1",
        role=Role.GATEWAY,
        public_key=publisher.public_bytes,
        agreement_key=publisher.agreement_bytes,
        domain="acme",
        region=1,
        not_after_ms=2_000_000_000_000,
    )
    return {
        "key_header": header.encode().hex(),
        "level1_shares": encode_shares(shares).hex(),
        "level2_shares": encode_shares(
            sub for share in shares for sub in resplit(share, header.digest, HOPS[1], REPLICA_SEED)
        ).hex(),
        "content": content.hex(),
        "sealed": sealed.hex(),
        "signed_header": sign_header(publisher, message, WIRE_TOPIC).encode().hex(),
        "certificate": certificate.encode().hex(),
        "retained_id": retained_id(token_key(ROOT), TOPIC).hex(),
        "topic_tokens": tokenise_topic(TOPIC, token_key(ROOT)),
        "filter_tokens": tokenise_filter("plant/+/speed", token_key(ROOT)),
    }


def test_no_frame_has_changed_unnoticed() -> None:
    assert current_frames() == load("frames.json")["frames"]


def test_the_frozen_frames_still_work_together() -> None:
    """A reader of today, given only frozen bytes, verifies and opens them."""
    frozen = {name: value for name, value in load("frames.json")["frames"].items() if "tokens" not in name}
    frames = unhex(frozen)
    certificate = Certificate.decode(frames["certificate"])
    certificate.verify(Identity.generate(OWNER_SEED).public_bytes, 0)
    assert certificate.agreement_key == Identity.generate(PUBLISHER_SEED).agreement_bytes
    header = KeyHeader.decode(frames["key_header"])
    header.verify(certificate.public_key)
    signed = SignedHeader.decode(frames["signed_header"])
    verify_header(signed.header, frames["signed_header"], WIRE_TOPIC, certificate.public_key)
    assert signed.header.digests == (hashlib.sha256(frames["sealed"]).digest(),)
    epoch_key = scope_key(ROOT, "plant/#", 3, 1)
    found = recombine(
        decode_shares(frames["level2_shares"]),
        HOPS,
        lambda place, value: check_share(header, place, value),
        lambda secret: open_key(header, secret, epoch_key).key_id == header.key_id,
    )
    assert found is not None
    opened = open_key(header, found.secret, epoch_key).open(
        signed.header.prefix(), signed.header.sequence, WIRE_TOPIC, frames["sealed"]
    )
    assert opened == frames["content"]


def expand(key: bytes, info: bytes) -> bytes:
    return hmac.digest(key, info + b"\1", "sha256")


def test_the_derivations_are_those_of_the_readme() -> None:
    """Sealed content opened with nothing but HMAC, SHA-256 and AES-GCM, by the offsets that docs/protocol.md gives."""
    frames = unhex({k: v for k, v in load("frames.json")["frames"].items() if "tokens" not in k})
    header, message = frames["key_header"], frames["signed_header"]
    hops_end = 3 + 16 + 2 + len("plant/#") + 4 + 2 + 1 + 2 * 10
    binding = hashlib.sha256(header[: hops_end + 4 + 8 + 4 + 8 + 4]).digest()
    secret = hashlib.shake_256(b"frames\0").digest(32)
    epoch_key = expand(bytes([1]) * 32, b"veilmq/1 scope" + b"\0\7plant/#" + b"\0\0\0\3" + b"\0\1")
    prk = hmac.digest(epoch_key, secret, "sha256")
    after = header[hops_end + 28 :]
    assert after[:16] == expand(epoch_key, b"veilmq/1 kcv")[:16]
    assert after[16:48] == expand(prk, b"veilmq/1 commit" + binding)
    level1 = frames["level1_shares"][14:]
    for place in (1, 2, 3):
        value = level1[33 * (place - 1) + 1 : 33 * place]
        commitment = hashlib.sha256(b"veilmq/1 share" + binding + bytes([place]) + value).digest()[:16]
        assert after[48 + 16 * (place - 1) : 48 + 16 * place] == commitment
    associated = b"\1" + message[:81] + len(WIRE_TOPIC).to_bytes(2) + WIRE_TOPIC.encode()
    nonce = bytes(4) + message[36:44]
    opened = AESGCM(expand(prk, b"veilmq/1 enc" + binding)).decrypt(nonce, frames["sealed"], associated)
    assert opened == frames["content"]
    assert frames["retained_id"] == hmac.digest(token_key(ROOT), TOPIC.encode(), "sha256")[:16]


if __name__ == "__main__":
    print(json.dumps(current_frames(), indent=2))
