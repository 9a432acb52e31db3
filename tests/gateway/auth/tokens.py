"""An identity provider's keys and tokens, as tests and attackers make them."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

ISSUER, AUDIENCE = "https://login.example.net/realms/plant", "veilmq"


@functools.cache
def rsa_key(name: str = "a", bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65_537, bits)


@functools.cache
def curve_key(curve: type[ec.EllipticCurve] = ec.SECP256R1) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


@functools.cache
def edwards_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def jwk(key: Any, kid: str | None = "a", **more: Any) -> dict[str, Any]:
    """The public JWK of a private key."""
    kinds: dict[type, Any] = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm, ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
    }  # fmt: skip
    kind = next(algorithm for base, algorithm in kinds.items() if isinstance(key, base))
    made: dict[str, Any] = kind.to_jwk(key.public_key(), as_dict=True)
    return {name: value for name, value in {**made, "kid": kid, **more}.items() if value is not None}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def token(key: Any = None, algorithm: str = "RS256", header: dict[str, Any] | None = None, **claims: Any) -> str:
    """A token that counts, but for what is given; a claim of None is left out."""
    now = time.time()
    content = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": int(now), "exp": int(now) + 300,
               "groups": ["plant"], **claims}  # fmt: skip
    content = {name: value for name, value in content.items() if value is not None}
    return jwt.encode(content, key or rsa_key(), algorithm, headers={"kid": "a", **(header or {})})


def encoded(part: bytes | dict[str, Any]) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def claims_of(text: str) -> dict[str, Any]:
    part = text.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))


def with_public_key_as_secret(algorithm: str = "HS256", form: str = "pem", **claims: Any) -> str:
    """The confusion of keys: an HMAC whose secret is the provider's public key, in a form that a library may take."""
    public = rsa_key().public_key()
    secret = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    if form == "der":
        secret = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if form == "jwk":
        secret = json.dumps(jwk(rsa_key())).encode()
    content = {**claims_of(token()), **claims}
    signed = f"{encoded({'alg': algorithm, 'typ': 'JWT', 'kid': 'a'})}.{encoded(content)}"
    return f"{signed}.{encoded(hmac.new(secret, signed.encode(), getattr(hashlib, 'sha' + algorithm[2:])).digest())}"


def unsigned(algorithm: str = "none", signature: str = "") -> str:
    return f"{encoded({'alg': algorithm, 'typ': 'JWT', 'kid': 'a'})}.{encoded(claims_of(token()))}.{signature}"
