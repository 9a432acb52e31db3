"""A plugin whose users and rights change while the broker runs: `data/security.json`, edited by API and `veilmq users`.

    plugins:
      gateway.auth.dynamic.DynamicPlugin: {file: data/security.json}

Every change counts from the next login, publication and delivery on; whoever was disabled or removed and is connected
is sent away by whoever made the change (`gateway/console`). The file is looked at once a second, so that a command on
the same host is enough. A file that is damaged keeps what was before, and is said.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from amqtt.contexts import Action
from amqtt.plugins.base import BaseTopicPlugin
from amqtt.session import Session

from gateway.auth.acl_rules import FileRules
from gateway.auth.passwords import PasswordPlugin, Users
from gateway.auth.security import Security, SecurityError
from gateway.base import StartError
from gateway.base.log_events import LogEvent

log = logging.getLogger("veilmq.auth")

LOOK_S = 1.0


class DynamicPlugin(PasswordPlugin, BaseTopicPlugin):  # type: ignore[misc]
    """See the module. Raises StartError."""

    def _read(self, path: str | Path | None) -> Users:  # type: ignore[override]
        self.path = Path(path or self.config.file)
        self._looked_at, self._stamp = time.monotonic(), self._stamped()
        try:
            security = Security.load(self.path)
            self._rules: FileRules = security.check()
        except SecurityError as error:
            raise StartError(str(error)) from None
        self.security = security
        return Users(security.hashes)

    def reread(self, options: dict[str, Any]) -> Callable[[], None]:
        """Read the file anew; what takes it over. Raises StartError."""
        return partial(self._take, self._read(options.get("file")))

    def _stamped(self) -> tuple[int, int]:
        try:
            status = self.path.stat()
        except OSError:
            return (0, 0)
        return status.st_mtime_ns, status.st_ino

    def look(self) -> None:
        """Take up what somebody else changed."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        if self._stamped() == self._stamp:
            return
        try:
            self.reread({})()
        except StartError as error:
            self._stamp = self._stamped()
            LogEvent.USERS_NOT_REREAD.say(log, error)

    async def authenticate(self, *, session: Session) -> bool | None:
        self.look()
        return await super().authenticate(session=session)

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        if session is None or topic is None or action is None:
            return False
        self.look()
        user = self.security.users.get(session.username or "")
        if session.username is not None and (user is None or not user.enabled):
            return False
        return self._rules.permits(session.username, session.client_id or "", topic, action)

    @dataclass
    class Config:
        file: str | Path
        password_file: str | Path | None = None  # not used: users are in `file`
