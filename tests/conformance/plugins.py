"""Plugins of amqtt that rows configure."""

from __future__ import annotations

from amqtt.plugins.base import BaseAuthPlugin
from amqtt.session import Session


class AnyName(BaseAuthPlugin):  # type: ignore[misc]
    """Lets in who gives the user name `name` with the password that the rows use."""

    async def authenticate(self, *, session: Session) -> bool | None:
        return session.username == "name" and session.password == "secret"
