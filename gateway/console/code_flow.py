"""Login of the page at an identity provider: the authorization code flow with PKCE, state and nonce. No HTTP here.

    begun = flow.begin(now)                    # send the browser to `begun.address`, with `begun.cookie`
    code = flow.code_of(query, cookie, now)    # it comes back; then `code.form` is for the provider's token endpoint
    flow.check(code, login)                    # the ID token belongs to this flow

What a flow has to remember travels in a cookie with a code over it, so that nobody can fill a table here. The state
ties the answer to the browser that asked; the nonce ties the ID token to the flow; the verifier makes a stolen code
worthless (RFC 7636). A code counts once at the provider. Source: OpenID Connect Core 1.0 §3.1; RFC 6749, 9207, 9700.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from gateway.auth.access_tokens import TokenLogin

BEGIN, BACK = "/login/provider", "/login/callback"
"""Paths of the console: to the provider, and back."""
FLOW_S = 600.0
"""Seconds from the begin of a flow to its end: a person types a password, and a second factor, meanwhile."""
CODE_CHARS_MAX, COOKIE_CHARS_MAX = 4_096, 1_024  # of what a browser brings back
RANDOM_BYTES = 32


class FlowError(Exception):
    """A refusal of a flow, in a line that holds nothing of its secrets."""


@dataclass(frozen=True, slots=True)
class BegunFlow:
    """The begin of a flow: the address at the provider, and the cookie for the way back."""

    address: str = field(repr=False)
    cookie: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class FlowCode:
    """The code that came back. `form`: for the token endpoint. `nonce`: must be in the ID token."""

    form: Mapping[str, str] = field(repr=False)
    nonce: str = field(repr=False)


class CodeFlow:
    """Flows of a console. `client_id`: its name at the provider. `redirect`: its address to come back to.
    `random(n)`: n bytes.
    """

    def __init__(self, issuer: str, client_id: str, redirect: str, scopes: str, random: Callable[[int], bytes]) -> None:
        self._issuer, self.client_id, self._redirect, self._scopes = issuer, client_id, redirect, scopes
        self._random, self._key = random, random(RANDOM_BYTES)

    def begin_flow(self, authorization: str, now: float) -> BegunFlow:
        """Begins a flow. `authorization`: the provider's authorization endpoint."""
        state, nonce, verifier = (_text(self._random(RANDOM_BYTES)) for _ in range(3))
        asked = {
            "response_type": "code", "client_id": self.client_id, "redirect_uri": self._redirect,
            "scope": self._scopes, "state": state, "nonce": nonce, "code_challenge_method": "S256",
            "code_challenge": _text(hashlib.sha256(verifier.encode()).digest()),
        }  # fmt: skip
        memory = _text(json.dumps([state, nonce, verifier, now]).encode())
        separator = "&" if "?" in authorization else "?"
        return BegunFlow(f"{authorization}{separator}{urlencode(asked)}", f"{memory}.{self._code_over(memory)}")

    def code_of(self, query: Mapping[str, str], cookie: str, now: float) -> FlowCode:
        """Returns the code with which the browser came back. Raises FlowError."""
        memory, _, code_over = cookie.partition(".")
        if len(cookie) > COOKIE_CHARS_MAX or not hmac.compare_digest(
            code_over.encode("utf-8", "replace"), self._code_over(memory).encode()
        ):
            raise FlowError("this browser has begun no login here, or the broker was restarted; log in again")
        state, nonce, verifier, begun = json.loads(base64.urlsafe_b64decode(memory + "=" * (-len(memory) % 4)))
        if not 0 <= now - begun < FLOW_S:
            raise FlowError("the login took too long; log in again")
        if not hmac.compare_digest(query.get("state", "").encode("utf-8", "replace"), state.encode()):
            raise FlowError("the answer belongs to another login; log in again")
        if query.get("iss", self._issuer) != self._issuer:  # RFC 9207 §2.4
            raise FlowError("the answer comes from another provider; log in again")
        if "error" in query:
            raise FlowError("the provider did not let you in")
        code = query.get("code", "")
        if not 0 < len(code) <= CODE_CHARS_MAX:
            raise FlowError("the provider answered without a code; log in again")
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self._redirect,
                "client_id": self.client_id, "code_verifier": verifier}  # fmt: skip
        return FlowCode(form, nonce)

    def check_login(self, code: FlowCode, login: TokenLogin) -> None:
        """Raises FlowError if a verified ID token is not that of this flow (OpenID Connect Core §3.1.3.7)."""
        nonce = login.claims.get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode("utf-8", "replace"), code.nonce.encode()):
            raise FlowError("the ID token belongs to another login; log in again")
        party = login.claims.get("azp")
        if party != self.client_id and (party is not None or (isinstance(login.claims.get("aud"), list)
                                        and len(login.claims["aud"]) > 1)):  # fmt: skip
            raise FlowError("the ID token was given to another program; log in again")

    def _code_over(self, memory: str) -> str:
        return _text(hmac.new(self._key, memory.encode("utf-8", "replace"), hashlib.sha256).digest())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
