"""Signed tokens of an identity provider: access tokens (RFC 9068) and ID tokens (OpenID Connect Core §2).

    keys = KeySet.parse(jwks)                              # RFC 7517, as the provider publishes it
    login = verified(token, keys, rules, now)              # raises TokenRefused, UnknownProviderKey

A token names its key, and never brings one: `jku`, `jwk`, `x5u` and `x5c` of its header are not looked at, and a key
id is compared with the ids of the set and used for nothing else. Only algorithms of public keys exist here, and each
key has those of its own type: neither `none` nor an HMAC over a public key can pass. No I/O, no clock. JOSE is
PyJWT's. Source: RFC 7515, 7517, 7519, 8725.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

TOKEN_BYTES_MAX = 16_384
"""Stops a client from having megabytes decoded and hashed before it is known."""
KEYS_MAX = 64  # of a provider; further ones are left out
RSA_BITS_MIN, RSA_BITS_MAX = 2_048, 8_192
"""Too few bits can be forged; too many take milliseconds of every login."""
USER_CHARS_MAX, GROUPS_MAX, GROUP_CHARS_MAX = 255, 1_000, 255
"""Names in a token: longer user names are refused, further or longer groups do not count."""
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Algorithms of public keys (RFC 7518 §3.1, RFC 8037)."""
TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""Values of `typ`: a token that was made for something else, such as a logout, is no login (RFC 8725 §3.11)."""

_SIGNATURES = jwt.PyJWS(algorithms=list(ALGORITHMS))
_COMPACT = re.compile(r"eyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_CURVES = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}


class TokenRefused(Exception):  # noqa: N818 - an outcome
    """A refusal of a token. The text goes into our log and holds nothing of the token."""


class UnknownProviderKey(TokenRefused):
    """A refusal because the set has no key of this name: the provider may have a new one."""


class KeySetError(ValueError):
    """An error of a key set, in a line."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Conditions of a login. `audience`: names of which the token must be for at least one; `leeway_s`: by so much the
    provider's clock may differ from ours. `user_claim`, `groups_claim`: places in the claims, levels joined by dots.
    """

    issuer: str
    audience: tuple[str, ...]
    algorithms: tuple[str, ...] = ALGORITHMS
    user_claim: str = "sub"
    groups_claim: str = "groups"
    leeway_s: float = 30.0


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """The login that a token stands for. `ends`: Unix time in seconds, leeway included; `issued`: 0 if not told."""

    user: str
    groups: tuple[str, ...]
    ends: float
    issued: float
    claims: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Key:
    public: Any = field(repr=False)
    algorithms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeySet:
    """The public keys of a provider, by id; those without an id in `nameless`."""

    named: Mapping[str, _Key]
    nameless: tuple[_Key, ...] = ()

    def __len__(self) -> int:
        return len(self.named) + len(self.nameless)

    @classmethod
    def parse(cls, data: bytes) -> KeySet:
        """Reads a JWK Set. Keys of other kinds and uses are left out. Raises KeySetError."""
        try:
            entries = json.loads(data)["keys"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise KeySetError('no JWK Set (RFC 7517): a JSON object with "keys"') from None
        if not isinstance(entries, list):
            raise KeySetError('no JWK Set (RFC 7517): "keys" is no list')
        named: dict[str, _Key] = {}
        nameless: list[_Key] = []
        for entry in entries[:KEYS_MAX]:
            key = _key_of(entry) if isinstance(entry, dict) else None
            if key is None:
                continue
            name = entry.get("kid")
            if isinstance(name, str):
                named.setdefault(name, key)
            else:
                nameless.append(key)
        if not named and not nameless:
            raise KeySetError("holds no public key for signatures that is known here")
        return cls(named, tuple(nameless))

    def key_of(self, header: Mapping[str, Any]) -> _Key:
        """Returns the key for a token's header. Raises UnknownProviderKey."""
        name, algorithm = header.get("kid"), header["alg"]
        if name is None:
            fitting = [key for key in (*self.named.values(), *self.nameless) if algorithm in key.algorithms]
            if len(fitting) != 1:
                raise UnknownProviderKey("names no key, and not exactly one key of the provider fits")
            return fitting[0]
        key = self.named.get(name) if isinstance(name, str) else None
        if key is None:
            raise UnknownProviderKey("signed with a key that the provider does not have")
        if algorithm not in key.algorithms:
            raise TokenRefused("the key is not for the algorithm of the token")
        return key


def _key_of(entry: Mapping[str, Any]) -> _Key | None:
    """Returns a public key for signatures; None for any other."""
    if entry.get("kty") not in ("RSA", "EC", "OKP") or entry.get("use", "sig") != "sig":
        return None
    operations = entry.get("key_ops")
    if operations is not None and (not isinstance(operations, list) or "verify" not in operations):
        return None
    only_public = {name: entry[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in entry}
    try:
        # PyJWT chooses the algorithm of a JWK without `alg` by its type; the type decides here anyway.
        public = jwt.PyJWK(only_public).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    algorithms: tuple[str, ...]
    match public:
        case RSAPublicKey():
            if not RSA_BITS_MIN <= public.key_size <= RSA_BITS_MAX:
                return None
            algorithms = ALGORITHMS[:6]
        case EllipticCurvePublicKey():
            algorithms = _CURVES.get(public.curve.name, ())
        case Ed25519PublicKey() | Ed448PublicKey():
            algorithms = ("EdDSA",)
        case _:
            return None
    said = entry.get("alg")
    if said is not None:
        algorithms = tuple(one for one in algorithms if one == said)
    return _Key(public, algorithms) if algorithms else None


def is_token(text: str | None) -> bool:
    """Returns True if the text has the form of a signed token (RFC 7515 §3.1); nothing is verified."""
    return text is not None and text.startswith("eyJ") and _COMPACT.fullmatch(text) is not None


def verified(token: str, keys: KeySet, rules: TokenRules, now: float) -> TokenLogin:
    """Returns the login of a token at the Unix time `now`. Raises TokenRefused, UnknownProviderKey."""
    if len(token) > TOKEN_BYTES_MAX:
        raise TokenRefused(f"longer than {TOKEN_BYTES_MAX} bytes")
    if not is_token(token):
        raise TokenRefused("not of the form of a signed token")
    header = _header(token, rules.algorithms)
    key = keys.key_of(header)
    try:
        # Claims are compared below: each refusal has a line of its own, and the time is passed in.
        content = json.loads(_SIGNATURES.decode(token, key.public, algorithms=[header["alg"]]))
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise TokenRefused("the signature is wrong") from None
    if not isinstance(content, dict):
        raise TokenRefused("the claims are no JSON object")
    return _login(content, rules, now)


def _header(token: str, algorithms: Sequence[str]) -> Mapping[str, Any]:
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise TokenRefused("the token is damaged") from None
    if header.get("alg") not in algorithms:
        raise TokenRefused("signed with an algorithm that does not count here")
    if "crit" in header or "b64" in header or "zip" in header:
        raise TokenRefused("the header demands an extension")
    if str(header.get("typ", "JWT")).lower() not in TYPES:
        raise TokenRefused("the type of the token is another one")
    return header


def _login(claims: dict[str, Any], rules: TokenRules, now: float) -> TokenLogin:
    if claims.get("iss") != rules.issuer:
        raise TokenRefused("issued by another issuer")
    audience = claims.get("aud")
    found = audience if isinstance(audience, list) else [audience]
    if not any(isinstance(one, str) and one in rules.audience for one in found):
        raise TokenRefused("meant for another audience")
    ends, begins, issued = (_time(claims, name) for name in ("exp", "nbf", "iat"))
    if ends is None:
        raise TokenRefused("has no end (exp)")
    if now >= ends + rules.leeway_s:
        raise TokenRefused("expired")
    if max(begins or 0.0, issued or 0.0) > now + rules.leeway_s:
        raise TokenRefused("not valid yet")
    user = at_place(claims, rules.user_claim)
    if not isinstance(user, str) or not is_user(user):
        raise TokenRefused(f"the claim {rules.user_claim} is no user name")
    return TokenLogin(user, _groups(at_place(claims, rules.groups_claim)), ends + rules.leeway_s, issued or 0.0, claims)


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """Returns a NumericDate (RFC 7519 §2); None if it is absent. Raises TokenRefused."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise TokenRefused(f"the claim {name} is no time")
    return float(value)


def at_place(claims: Mapping[str, Any], place: str) -> object:
    """Returns the claim of that name, else the one at that path of levels joined by dots; None if there is none."""
    if place in claims:
        return claims[place]
    found: object = claims
    for level in place.split("."):
        found = found.get(level) if isinstance(found, dict) else None
    return found


def is_user(name: str) -> bool:
    """Returns True for a name that users may have: on one line, without spaces."""
    return 0 < len(name) <= USER_CHARS_MAX and name.isprintable() and not any(c.isspace() for c in name)


def _groups(value: object) -> tuple[str, ...]:
    """Returns the groups of a claim: a list, or names with spaces between them as `scope` has them (RFC 8693 §4.2)."""
    names = value.split(" ") if isinstance(value, str) else value if isinstance(value, list) else []
    found = (one for one in names[:GROUPS_MAX] if isinstance(one, str) and 0 < len(one) <= GROUP_CHARS_MAX)
    return tuple(dict.fromkeys(found))
