"""Tokens of an identity provider: those that count, and each attack that is known of libraries that verify them."""

from __future__ import annotations

import hmac
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.access_tokens import (
    KEYS_MAX,
    TOKEN_BYTES_MAX,
    KeySet,
    KeySetError,
    TokenRefused,
    TokenRules,
    UnknownProviderKey,
    at_place,
    is_token,
    verified,
)
from tests.gateway.auth.tokens import (
    AUDIENCE,
    ISSUER,
    claims_of,
    curve_key,
    edwards_key,
    encoded,
    jwk,
    key_set,
    rsa_key,
    token,
    unsigned,
    with_public_key_as_secret,
)

RULES = TokenRules(ISSUER, (AUDIENCE,))
KEYS = KeySet.parse(key_set(jwk(rsa_key())))


def refused(text: str, keys: KeySet = KEYS, rules: TokenRules = RULES, now: float | None = None) -> str:
    with pytest.raises(TokenRefused) as caught:
        verified(text, keys, rules, time.time() if now is None else now)
    assert len(text) < 9 or text not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        *((rsa_key(), name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        (curve_key(), "ES256"), (curve_key(ec.SECP384R1), "ES384"), (edwards_key(), "EdDSA"),
    ],
)  # fmt: skip
def test_a_token_names_user_groups_and_end(key: Any, algorithm: str) -> None:
    login = verified(token(key, algorithm, exp=2_000, iat=1_000), KeySet.parse(key_set(jwk(key))), RULES, 1_500.0)
    assert (login.user, login.groups, login.ends, login.issued) == ("ann", ("plant",), 2_030.0, 1_000.0)


def test_claims_may_stand_deeper_and_groups_be_a_scope() -> None:
    text = token(realm_access={"roles": ["a", "b", "a", 3, ""]}, email="ann@example.net", scope="mqtt read")
    rules = TokenRules(ISSUER, (AUDIENCE,), user_claim="email", groups_claim="realm_access.roles")
    login = verified(text, KEYS, rules, time.time())
    assert (login.user, login.groups) == ("ann@example.net", ("a", "b"))
    assert verified(text, KEYS, TokenRules(ISSUER, (AUDIENCE,), groups_claim="scope"), time.time()).groups == (
        "mqtt", "read",
    )  # fmt: skip
    assert at_place({"https://example.net/groups": 1, "a": {"b": 2}}, "https://example.net/groups") == 1


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", ""])
def test_an_unsigned_token_never_counts(algorithm: str) -> None:
    assert "algorithm" in refused(unsigned(algorithm))
    assert "algorithm" in refused(unsigned(algorithm, encoded(b"x" * 256)))


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize("form", ["pem", "der", "jwk"])
def test_the_public_key_is_no_secret_of_an_hmac(algorithm: str, form: str) -> None:
    assert "algorithm" in refused(with_public_key_as_secret(algorithm, form))


def test_a_set_with_a_shared_secret_gives_no_key() -> None:
    """A JWK of type `oct` in a set that everybody can read would let everybody sign."""
    secret = {"kty": "oct", "k": encoded(b"s" * 32), "kid": "a", "alg": "HS256"}
    with pytest.raises(KeySetError):
        KeySet.parse(key_set(secret))
    keys = KeySet.parse(key_set(secret, jwk(rsa_key(), "b")))
    assert len(keys) == 1
    refused(jwt.encode({"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": 9e9}, b"s" * 32, "HS256",
                       headers={"kid": "a"}), keys)  # fmt: skip


def test_an_algorithm_of_another_type_of_key() -> None:
    """A curve's token that names the RSA key, and the reverse."""
    keys = KeySet.parse(key_set(jwk(rsa_key(), "rsa"), jwk(curve_key(), "ec")))
    assert "not for the algorithm" in refused(token(curve_key(), "ES256", {"kid": "rsa"}), keys)
    assert "not for the algorithm" in refused(token(header={"kid": "ec"}), keys)
    only = KeySet.parse(key_set(jwk(rsa_key(), alg="PS256")))  # the provider says what the key is for
    assert "not for the algorithm" in refused(token(), only)


def test_another_key_of_the_same_name() -> None:
    assert refused(token(rsa_key("mallory"))) == "the signature is wrong"


def test_changed_claims() -> None:
    head, claims, signature = token().split(".")
    _, others, _ = token(sub="root").split(".")
    assert refused(f"{head}.{others}.{signature}") == "the signature is wrong"
    assert refused(f"{head}.{claims}.") == "the signature is wrong"
    assert refused(f"{head}.{claims}.{signature[:-4]}") in ("the signature is wrong", "the token is damaged")


@pytest.mark.parametrize(
    "kid",
    [
        "../../../../dev/null", "/etc/passwd", "file:///dev/null", "http://127.0.0.1:1/jwks", "a' OR '1'='1", "",
        "a\0", "A", "|id",
    ],
)  # fmt: skip
def test_a_key_id_is_a_name_and_nothing_else(kid: str) -> None:
    """/dev/null as a key once made the secret of an HMAC empty."""
    with pytest.raises(UnknownProviderKey):
        verified(token(header={"kid": kid}), KEYS, RULES, time.time())
    signed = f"{encoded({'alg': 'HS256', 'kid': kid})}.{encoded(claims_of(token()))}"
    refused(f"{signed}.{encoded(hmac.new(b'', signed.encode(), 'sha256').digest())}")


def test_keys_that_a_token_brings_are_not_looked_at() -> None:
    """`jwk`, `jku`, `x5u`, `x5c`: a token would name its own judge."""
    mallory = rsa_key("mallory")
    for brought in (
        {"jwk": jwk(mallory)}, {"jku": "http://127.0.0.1:1/jwks"}, {"x5u": "http://127.0.0.1:1/x"}, {"x5c": ["AAAA"]},
    ):  # fmt: skip
        assert refused(token(mallory, header=brought)) == "the signature is wrong"
        assert verified(token(header=brought), KEYS, RULES, time.time()).user == "ann"  # ignored, not obeyed


@pytest.mark.parametrize("header", [{"crit": ["exp"], "exp": 1}, {"b64": False}, {"zip": "DEF"}, {"typ": "logout+jwt"},
                                    {"typ": "JOSE"}, {"typ": "secevent+jwt"}])  # fmt: skip
def test_headers_that_change_the_meaning(header: dict[str, Any]) -> None:
    # PyJWT signs `b64: False` itself only on request: the header is what is refused
    refused(token(header=header) if "b64" not in header else _headed(header))


def _headed(header: dict[str, Any]) -> str:
    _, claims, signature = token().split(".")
    return f"{encoded({'alg': 'RS256', 'kid': 'a', **header})}.{claims}.{signature}"


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"aud": "other"}, "another audience"), ({"aud": None}, "another audience"), ({"aud": []}, "another audience"),
        ({"aud": "veilmq-other"}, "another audience"), ({"aud": ["x", "VEILMQ"]}, "another audience"),
        ({"iss": "https://evil.example"}, "another issuer"), ({"iss": None}, "another issuer"),
        ({"iss": ISSUER + "/"}, "another issuer"),
        ({"exp": 1_000}, "expired"), ({"exp": None}, "no end"), ({"exp": True}, "no time"),
        ({"exp": "9999999999"}, "no time"), ({"exp": 10**400}, "no time"),
        ({"nbf": 9_000_000_000}, "not valid yet"), ({"iat": 9_000_000_000}, "not valid yet"),
        ({"sub": None}, "no user name"), ({"sub": ""}, "no user name"), ({"sub": "a\nb"}, "no user name"),
        ({"sub": "a b"}, "no user name"), ({"sub": "x" * 256}, "no user name"),
    ],
)  # fmt: skip
def test_claims_that_do_not_count(claims: dict[str, Any], said: str) -> None:
    assert said in refused(_raw(claims))


def _raw(claims: dict[str, Any]) -> str:
    """A signed token with claims that PyJWT would not sign as they are."""
    now = int(time.time())
    content = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 300, **claims}
    data = json.dumps({name: value for name, value in content.items() if value is not None}).encode()
    return jwt.PyJWS().encode(data, rsa_key(), "RS256", headers={"kid": "a"})


def test_numbers_that_json_has_not() -> None:
    data = b'{"iss": "%s", "aud": "veilmq", "sub": "ann", "exp": NaN}' % ISSUER.encode()
    assert "no time" in refused(jwt.PyJWS().encode(data, rsa_key(), "RS256", headers={"kid": "a"}))
    infinite = data.replace(b"NaN", b"Infinity")
    assert "no time" in refused(jwt.PyJWS().encode(infinite, rsa_key(), "RS256", headers={"kid": "a"}))
    deep = b'{"a":' * 100_000
    assert len(refused(jwt.PyJWS().encode(deep, rsa_key(), "RS256", headers={"kid": "a"}))) < 80


def test_clocks_may_differ_a_little() -> None:
    text = token(exp=2_000, nbf=1_000, iat=1_000)
    assert verified(text, KEYS, RULES, 971.0).user == "ann"
    assert "not valid yet" in refused(text, now=969.0)
    assert verified(text, KEYS, RULES, 2_029.0).user == "ann"
    assert "expired" in refused(text, now=2_030.0)


def test_a_huge_token_is_not_even_decoded() -> None:
    assert str(TOKEN_BYTES_MAX) in refused(token(padding="x" * TOKEN_BYTES_MAX))
    assert str(TOKEN_BYTES_MAX) in refused("eyJ" + "x" * 10_000_000)


def test_a_token_without_key_id_needs_a_single_key_that_fits() -> None:
    nameless = jwt.encode({"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": 9e9}, rsa_key(), "RS256")
    assert verified(nameless, KEYS, RULES, time.time()).user == "ann"
    with pytest.raises(UnknownProviderKey):
        verified(nameless, KeySet.parse(key_set(jwk(rsa_key()), jwk(rsa_key("b"), "b"))), RULES, time.time())
    alone = KeySet.parse(key_set(jwk(rsa_key(), None), jwk(curve_key(), "c")))
    assert verified(nameless, alone, RULES, time.time()).user == "ann"


def test_keys_that_are_left_out() -> None:
    weak = jwk(rsa_key("weak", 1024), "weak")
    wrong = (jwk(rsa_key(), "enc", use="enc"), jwk(rsa_key(), "wrap", key_ops=["wrapKey"]), {"kty": "RSA", "kid": "x"},
             {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "y"}, weak, {"kty": "AKP", "kid": "z"},
             jwk(curve_key(ec.SECP256K1), "k"))  # fmt: skip
    assert len(KeySet.parse(key_set(*wrong, jwk(rsa_key())))) == 1
    many = [jwk(rsa_key(), str(number)) for number in range(KEYS_MAX + 5)]
    assert len(KeySet.parse(key_set(*many))) == KEYS_MAX
    for damaged in (b"", b"[]", b'{"keys": 3}', b'{"keys": []}', b"\xff", b'{"keys": [3]}', b"[" * 100_000):
        with pytest.raises(KeySetError):
            KeySet.parse(damaged)


@given(st.text(max_size=200) | st.binary(max_size=60).map(lambda data: "eyJ" + encoded(data) + ".eyJ9.x"))
def test_whatever_comes_is_refused_with_one_line(text: str) -> None:
    assert "\n" not in refused(text)


@pytest.mark.parametrize("text", [None, "", "secret", "a.b.c", "eyJ.x", "eyJhbGciOiJ9.e30", "eyJhbGciOiJ9.e30.x.y.z"])
def test_a_password_is_no_token(text: str | None) -> None:
    assert not is_token(text)
