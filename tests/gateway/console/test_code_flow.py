"""The authorization code flow without HTTP: what comes back counts once it belongs to what was begun here."""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gateway.auth.access_tokens import TokenLogin
from gateway.console.code_flow import BACK, FLOW_S, BegunFlow, CodeFlow, FlowError
from tests.gateway.auth.tokens import ISSUER

URL = "https://console.plant.example"


def flow() -> CodeFlow:
    return CodeFlow(ISSUER, "console", URL + BACK, "openid groups", os.urandom)


def asked(begun: BegunFlow) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(begun.address).query).items()}


def login(**claims: Any) -> TokenLogin:
    return TokenLogin("ann", (), 9e9, 0.0, {"aud": "console", **claims})


def test_a_flow_from_begin_to_end() -> None:
    one = flow()
    begun = one.begin_flow("https://login.example.net/auth?x=1", 0.0)
    sent = asked(begun)
    assert begun.address.startswith("https://login.example.net/auth?x=1&")
    assert (sent["response_type"], sent["redirect_uri"], sent["code_challenge_method"]) == ("code", URL + BACK, "S256")
    assert sent["scope"] == "openid groups"
    code = one.code_of({"code": "abc", "state": sent["state"], "iss": ISSUER}, begun.cookie, 10.0)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(code.form["code_verifier"].encode()).digest()).rstrip(b"=")
    assert challenge.decode() == sent["code_challenge"]
    assert code.form["code_verifier"] not in begun.address
    one.check_login(code, login(nonce=sent["nonce"]))
    assert "abc" not in repr(code)
    assert begun.cookie not in repr(begun)


@pytest.mark.parametrize(
    "query",
    [{"code": "abc"}, {"code": "abc", "state": "other"}, {"code": "abc", "state": ""}, {"state": "{state}"},
     {"code": "", "state": "{state}"}, {"code": "x" * 5_000, "state": "{state}"},
     {"code": "abc", "state": "{state}", "iss": "https://evil.example"},
     {"error": "access_denied", "error_description": "<script>", "state": "{state}"}],
)  # fmt: skip
def test_an_answer_that_does_not_fit(query: dict[str, str]) -> None:
    one = flow()
    begun = one.begin_flow("https://login.example.net/auth", 0.0)
    filled = {name: value.replace("{state}", asked(begun)["state"]) for name, value in query.items()}
    with pytest.raises(FlowError) as caught:
        one.code_of(filled, begun.cookie, 1.0)
    assert "<" not in str(caught.value)


def test_an_answer_to_another_browser() -> None:
    """Login by the attacker's own answer: state and code are the attacker's, the cookie is not."""
    one = flow()
    attackers, victims = (one.begin_flow("https://login.example.net/auth", 0.0) for _ in range(2))
    answer = {"code": "abc", "state": asked(attackers)["state"]}
    for cookie in ("", victims.cookie, "x.y", attackers.cookie[:-3] + "abc", attackers.cookie + "a", "é.é",
                   attackers.cookie.partition(".")[0] + "."):  # fmt: skip
        with pytest.raises(FlowError):
            one.code_of(answer, cookie, 1.0)
    with pytest.raises(FlowError):
        flow().code_of(answer, attackers.cookie, 1.0)  # another console's, or before a restart


def test_a_flow_that_took_too_long() -> None:
    one = flow()
    begun = one.begin_flow("https://login.example.net/auth", 100.0)
    answer = {"code": "abc", "state": asked(begun)["state"]}
    one.code_of(answer, begun.cookie, 100.0 + FLOW_S - 1)
    for now in (100.0 + FLOW_S, 99.0):
        with pytest.raises(FlowError):
            one.code_of(answer, begun.cookie, now)


@pytest.mark.parametrize(
    "claims",
    [{}, {"nonce": "other"}, {"nonce": None}, {"nonce": 3}, {"nonce": "{nonce}", "azp": "other"},
     {"nonce": "{nonce}", "aud": ["console", "other"]}],
)  # fmt: skip
def test_an_id_token_of_another_flow_or_program(claims: dict[str, Any]) -> None:
    one = flow()
    begun = one.begin_flow("https://login.example.net/auth", 0.0)
    code = one.code_of({"code": "abc", "state": asked(begun)["state"]}, begun.cookie, 1.0)
    nonce = asked(begun)["nonce"]
    filled = {name: nonce if value == "{nonce}" else value for name, value in claims.items()}
    with pytest.raises(FlowError):
        one.check_login(code, login(**filled))
    one.check_login(code, login(nonce=nonce, aud=["console", "other"], azp="console"))
