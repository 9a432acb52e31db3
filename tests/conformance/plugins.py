"""Plugins that rows configure."""

from __future__ import annotations

from typing import ClassVar

from amqtt.plugins.base import BaseAuthPlugin
from amqtt.session import Session

from gateway.auth.enhanced_auth import AuthExchange, AuthRefused, EnhancedAuthPlugin, Proven


class AnyName(BaseAuthPlugin):  # type: ignore[misc]
    """Lets in who gives the user name `name` with the password that the rows use."""

    async def authenticate(self, *, session: Session) -> bool | None:
        return bool(session.username == "name" and session.password == "secret")


class _TwoWords:
    """`first` is answered by `challenge`, `second` by admission, all else by refusal."""

    def __init__(self) -> None:
        self._expected = b"first"

    async def step(self, data: bytes) -> bytes | Proven:
        if data != self._expected:
            raise AuthRefused("not the word")
        if data == b"second":
            return Proven("name", b"welcome")
        self._expected = b"second"
        return b"challenge"


class TwoWords(EnhancedAuthPlugin):
    """A method whose exchange is the same bytes each time."""

    method: ClassVar[str] = "TWO-WORDS"

    def begin(self, session: Session) -> AuthExchange:
        return _TwoWords()
