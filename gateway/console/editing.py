"""Changes the API makes to users, groups, rights and tokens: in turn, each from the files as they are.

The files have other writers, too: `veilmq users`, `veilmq tokens`. A change is therefore made under the lock of the
directory, in a thread, and from the file's present content (`security.changing`). A request that waited meanwhile,
for a password hash or the lock, counts only if both users, the changed one and the asker, stand as when it came.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any, TypeVar

from gateway.auth.api_tokens import ApiTokenError, ApiTokens
from gateway.auth.dynamic import DynamicPlugin
from gateway.auth.password_hashes import make_hash
from gateway.auth.security import Security, SecurityError, User, UserGroup, changing
from gateway.base import PrivateFileError, StartError
from gateway.base.config_console import Console
from gateway.base.log_events import LogEvent
from gateway.console.asking import ApiError, ApiRequest
from gateway.console.logins import Logins

log = logging.getLogger("veilmq.console")

Made = TypeVar("Made")


class Editing:
    """Only writer of a broker's console. `dynamic`: the plugin whose users may be changed, if it is configured."""

    def __init__(self, settings: Console, logins: Logins, tokens: ApiTokens, dynamic: DynamicPlugin | None) -> None:
        self._settings, self._logins, self._tokens, self._dynamic = settings, logins, tokens, dynamic
        self._writing = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def knows_users(self) -> bool:
        """True if there are users to change."""
        return self._dynamic is not None

    async def _alone(self, asked: ApiRequest, change: Callable[[], Made]) -> Made:
        """Makes a change in a thread when all others are made. Raises ApiError."""
        async with self._writing:
            if not asked.goes_on():
                raise ApiError(401, "the login is over; log in again")
            try:
                return await asyncio.to_thread(change)
            except (SecurityError, PrivateFileError, ApiTokenError) as error:
                raise ApiError(400, str(error)) from None

    def users_changed(self, users: frozenset[str]) -> None:
        """Ends logins and tokens of users who were removed, disabled, or have another password, after a change from any
        source.
        """
        if users:
            self._logins.end_all(users)
            task = asyncio.get_running_loop().create_task(self._end_tokens(users))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _end_tokens(self, users: frozenset[str]) -> None:
        """Removes tokens from the file; `ApiTokens` already refuses them."""
        async with self._writing:
            try:
                await asyncio.to_thread(self._tokens.revoke_all, users)
            except PrivateFileError as error:
                LogEvent.TOKENS_NOT_ENDED.say(log, error)

    # -------------------------------------------------------------------------------------------- tokens

    async def tokens(self, asked: ApiRequest) -> Any:
        found = self._tokens.tokens_of(self._whose(asked), time.time())
        return {"tokens": [{"id": t.id, "user": t.user, "ends": t.ends, "note": t.note} for t in found]}

    def _whose(self, asked: ApiRequest) -> str | None:
        """Returns the user whose tokens the asker sees; None: those of all."""
        return None if self._settings.has_admin(asked.user, asked.groups) else asked.user

    async def issue_token(self, asked: ApiRequest) -> Any:
        if asked.groups is not None:
            raise ApiError(400, "a login at the provider ends with its token; programs show its access tokens")
        most = self._settings.token_days
        days, note = int(asked.body.get("days", most)), str(asked.body.get("note", ""))
        mark = self._tokens.standing(asked.user)  # now, not in the thread: the login may be over then
        secret, token = await self._alone(
            asked, lambda: self._tokens.issue(asked.user, days, most, note, time.time(), mark)
        )
        return {"token": secret, "id": token.id, "ends": token.ends}

    async def revoke_token(self, asked: ApiRequest) -> Any:
        if not await self._alone(asked, lambda: self._tokens.revoke(asked.id, self._whose(asked))):
            raise ApiError(404, "there is no such token")
        return {}

    # --------------------------------------------------------------------------------------------- users

    async def users(self, asked: ApiRequest) -> Any:
        security = self._known().security
        users = {
            name: {"groups": user.groups, "acl": user.acl, "enabled": user.enabled}
            for name, user in security.users.items()
        }
        groups = {name: {"acl": group.acl} for name, group in security.groups.items()}
        everybody = {"acl": security.everybody.acl}
        return {"version": security.version, "users": users, "groups": groups, "everybody": everybody}

    async def put_user(self, asked: ApiRequest) -> Any:
        body, name = asked.body, asked.id
        before = self._known().security.users.get(name)
        hashed = ""
        if password := body.get("password"):
            hashed = await asyncio.to_thread(make_hash, password.encode(), secrets.token_bytes)

        def put(security: Security) -> None:
            known = security.users.get(name)
            if known != before:
                raise ApiError(409, f"{name} was changed meanwhile; look again")
            if known is None and not hashed:
                raise ApiError(400, "a new user needs a password")
            security.users[name] = User(
                hash=hashed or (known.hash if known else ""),
                groups=body.get("groups", known.groups if known else []),
                acl=body.get("acl", known.acl if known else []),
                enabled=body.get("enabled", known.enabled if known else True),
            )

        return await self._change(asked, put)

    async def remove_user(self, asked: ApiRequest) -> Any:
        def remove(security: Security) -> None:
            if security.users.pop(asked.id, None) is None:
                raise ApiError(404, "there is no such user")

        return await self._change(asked, remove)

    async def put_group(self, asked: ApiRequest) -> Any:
        def put(security: Security) -> None:
            security.groups[asked.id] = UserGroup(acl=asked.body.get("acl", []))

        return await self._change(asked, put)

    async def remove_group(self, asked: ApiRequest) -> Any:
        def remove(security: Security) -> None:
            if security.groups.pop(asked.id, None) is None:
                raise ApiError(404, "there is no such group")

        return await self._change(asked, remove)

    async def put_everybody(self, asked: ApiRequest) -> Any:
        def put(security: Security) -> None:
            security.everybody = UserGroup(acl=asked.body.get("acl", []))

        return await self._change(asked, put)

    def _known(self) -> DynamicPlugin:
        if self._dynamic is None:
            raise ApiError(404, "users are in files here; configure gateway.auth.dynamic.DynamicPlugin to change them")
        return self._dynamic

    async def _change(self, asked: ApiRequest, change: Callable[[Security], None]) -> Any:
        """Changes the document and has the broker follow it. Answers with its version. Raises ApiError."""
        dynamic, wanted = self._known(), asked.query.get("version")
        stood = dynamic.security.hash_of(asked.user)  # now: a change may be in force when it is our turn to write

        def write() -> int:
            with changing(dynamic.path) as security:
                if security.hash_of(asked.user) != stood:
                    raise ApiError(401, "your user was changed meanwhile; log in again")
                if wanted is not None and wanted != str(security.version):
                    raise ApiError(409, f"this is version {security.version} of the users, not {wanted}; look again")
                change(security)
            return security.version

        version = await self._alone(asked, write)
        try:
            await dynamic.follow_file()
        except StartError as error:  # the file was damaged since
            raise ApiError(500, str(error)) from None
        return {"version": version}
