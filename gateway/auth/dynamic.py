"""Plugin with users and rights changing while the broker runs: a file, edited by API and `veilmq users`.

    plugins:
      gateway.auth.dynamic.DynamicPlugin: {file: data/security.json}

The file is checked for changes twice a second, so that a command on the broker's host is enough. Every change counts
from the next login, publication and delivery on; connections and sessions of users who were disabled, removed or
given another password end (`gateway/broker/changed_users.py`). A damaged file is logged and changes nothing. A user
whose groups an identity provider says (`oidc.py`) has the rules of these groups and of everybody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from amqtt.broker import BrokerContext
from amqtt.contexts import Action
from amqtt.plugins.base import BaseTopicPlugin
from amqtt.session import Session

from gateway.auth.passwords import PasswordPlugin, Users
from gateway.auth.security import Security, SecurityError
from gateway.base import Stamps, StartError
from gateway.base.log_events import LogEvent

log = logging.getLogger("veilmq.auth")

LOOK_S = 0.5


class DynamicUsers(Users):
    """The users of a version of the document at `path`, with their rights. Raises SecurityError."""

    def __init__(self, path: Path) -> None:
        self.path, self.security = path, Security.load(path)
        super().__init__(self.security.hashes)
        self.rules = self.security.checked_rules()


class DynamicPlugin(PasswordPlugin, BaseTopicPlugin):  # type: ignore[misc]
    """A plugin of changeable users and rights. Raises StartError."""

    def __init__(self, context: BrokerContext) -> None:
        self._watching: asyncio.Task[None] | None = None
        self._following = asyncio.Lock()
        super().__init__(context)
        self._adopt_users(self._users)

    def _read_users(self, path: str | Path | None) -> DynamicUsers:  # type: ignore[override]
        try:
            return DynamicUsers(Path(path or self.config.file))
        except SecurityError as error:
            raise StartError(str(error)) from None

    def _adopt_users(self, users: Users) -> None:
        assert isinstance(users, DynamicUsers)
        self.path, self.security, self._rules = users.path, users.security, users.rules

    def _take_users(self, users: Users) -> None:
        self._adopt_users(users)
        super()._take_users(users)

    def reread(self, options: dict[str, Any]) -> Callable[[], None]:
        """Reads the file anew; returns a function putting it into force. Raises StartError."""
        return partial(self._take_users, self._read_users(options.get("file")))

    async def on_broker_post_start(self) -> None:
        """Starts to follow the file; amqtt calls this when the broker serves."""
        self._watching = asyncio.get_running_loop().create_task(self._watch(), name="users")

    async def _watch(self) -> None:
        path, stamps = self.path, Stamps([self.path])
        await self._follow_file()  # for a change between the start and the first check
        while True:
            await asyncio.sleep(LOOK_S)
            if self.path != path:  # SIGHUP named another file
                path, stamps = self.path, Stamps([self.path])
                await self._follow_file()
            elif stamps.have_changed():
                await self._follow_file()

    async def _follow_file(self) -> None:
        try:
            await self.follow_file()
        except StartError as error:
            LogEvent.USERS_NOT_REREAD.say(log, error)

    async def follow_file(self) -> None:
        """Reads the file in a thread, since a hundred thousand users take seconds, and puts it into force.

        Raises StartError for a damaged file.
        """
        async with self._following:
            while True:
                before = self._users
                users = await asyncio.to_thread(self._read_users, self.path)
                if self._users is before:  # otherwise SIGHUP came between and may have read a newer file
                    self._take_users(users)
                    return

    def decides(self, session: Session, topic: str, action: Action) -> bool:
        """Returns the verdict, without waiting (`plugins/host.py`)."""
        user, groups = session.username, getattr(session, "groups", None)
        if user is not None and groups is None and not self.security.hash_of(user):
            return False
        return self._rules.permits(user, session.client_id or "", topic, action, groups)

    def covers(self, session: Session, topic_filter: str) -> bool:
        """Returns True if the client may receive all topics the filter matches."""
        user, groups = session.username, getattr(session, "groups", None)
        if user is not None and groups is None and not self.security.hash_of(user):
            return False
        return self._rules.covers(user, session.client_id or "", topic_filter, groups)

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        if session is None or topic is None or action is None:
            return False
        return self.decides(session, topic, action)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await super().close()

    @dataclass
    class Config:
        file: str | Path
        password_file: str | Path | None = None  # not used: users are in `file`
