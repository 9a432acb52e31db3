"""Plugin of logins by an identity provider: a client shows an access token that the provider signed.

    plugins:
      gateway.auth.oidc.OidcPlugin:
        issuer: https://login.example.net/realms/plant     # to the letter as in the tokens
        audience: [veilmq]
        groups_claim: realm_access.roles                   # rights: groups of gateway.auth.dynamic.DynamicPlugin

The token is the password of CONNECT, or the data of the MQTT 5 method `OAUTH2-JWT`, which can show a new one while
connected. The user's name is that of the token: a name in CONNECT must be the same, or empty. A login by a token is
judged by this plugin alone. The connection ends with the token. Groups of the token count wherever rights are asked
(`dynamic.py`). Not here: verification (`access_tokens.py`), the fetching of keys (`provider_keys.py`).

Users of an identity provider who are shut out here before their tokens end: a file, a line each.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amqtt.broker import BrokerContext
from amqtt.plugins.base import BaseAuthPlugin
from amqtt.session import Session

from gateway.auth.enhanced_auth import AuthRefused, EnhancedAuthPlugin, Proven
from gateway.base import Stamps, StartError
from gateway.base.log_events import LogEvent
from gateway.plugins import BusyError

if TYPE_CHECKING:
    from gateway.auth.access_tokens import KeySet, TokenLogin
    from gateway.auth.provider_fetch import ProviderFetch
    from gateway.auth.provider_keys import ProviderKeys
import math
from collections.abc import Mapping
from datetime import datetime

from bridge.base import text_lines

REVOKED_MAX = 100_000  # users of a file


class RevokedError(ValueError):
    """An error of a line: number and cause."""


@dataclass(frozen=True, slots=True)
class RevokedUsers:
    """Users who are shut out. `before`: by name, the Unix time from which on tokens must be issued to count."""

    before: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> RevokedUsers:
        """Raises RevokedError."""
        before: dict[str, float] = {}
        for number, line in enumerate(text_lines(text), 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            if len(words) > 2 or len(before) >= REVOKED_MAX:
                raise RevokedError(f"line {number}: more than a user and a time, or more than {REVOKED_MAX} users")
            until = math.inf if len(words) == 1 else _time(words[1], number)
            before[words[0]] = max(until, before.get(words[0], 0.0))
        return cls(before)

    def counts(self, user: str, issued: float) -> bool:
        """Returns True if a token of the user counts. `issued`: Unix time; 0 if the token does not tell."""
        return issued >= self.before.get(user, 0.0)

    def more_than(self, earlier: RevokedUsers) -> frozenset[str]:
        """Returns the users of whom more is shut out than in `earlier`."""
        return frozenset(user for user, until in self.before.items() if until > earlier.before.get(user, 0.0))


def _time(text: str, number: int) -> float:
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.timestamp()
    except ValueError:
        pass
    raise RevokedError(f"line {number}: {text} is no time; write e.g. 2026-11-29T10:00:00Z")


log = logging.getLogger("veilmq.auth")

METHOD = "OAUTH2-JWT"
LOOK_S = 0.5
WAITING_MAX = 512
"""Logins that may wait for a fetch of keys; further ones are answered that the server is busy. No more of one address
wait than may still fail (`limits.login_failures`).
"""
FILE_BYTES_MAX = 16 << 20
"""Stops a wrong path from being read as a file of keys or users."""


class _Exchange:
    """An exchange of one step: the token."""

    def __init__(self, plugin: OidcPlugin) -> None:
        self._plugin = plugin

    async def step(self, data: bytes) -> bytes | Proven:
        login = await self._plugin.login(data.decode("utf-8", "replace"))
        return Proven(login.user, groups=login.groups, lasts_s=login.ends - self._plugin.clock())


class OidcPlugin(BaseAuthPlugin, EnhancedAuthPlugin):  # type: ignore[misc]
    """A plugin of logins by tokens of an identity provider. Raises StartError."""

    method = METHOD

    def __init__(self, context: BrokerContext, clock: Callable[[], float] = time.time) -> None:
        super().__init__(context)
        self.clock = clock
        # Called with the users whose standing changed; set by the host of plugins.
        self.when_changed: Callable[[frozenset[str]], None] = lambda users: None
        # Returns True for a name that another plugin gives; set by the host of plugins.
        self.is_given: Callable[[str], bool] = lambda user: False
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting = 0
        self.provider: ProviderKeys | None = None
        self.fetching: ProviderFetch | None = None
        try:
            from gateway.auth import access_tokens  # noqa: PLC0415  only who has a provider needs its library
        except ImportError:
            raise StartError("plugins: PyJWT is missing; pip install 'veilmq[oidc]'") from None
        self._tokens = access_tokens
        self.rules = self._rules(dict(vars(self.config)))
        self._of_file: KeySet | None = None
        if self.config.jwks_file:
            self._of_file = self._read_keys(self.config.jwks_file)
        else:
            self._reach_provider()
        self._revoked = self._read_revoked(self.config.revoked_file)

    # ---------------------------------------------------------------------------------------- configuration

    def _rules(self, options: dict[str, Any]) -> Any:
        for name in ("issuer", "audience"):
            if not options.get(name):
                raise StartError(f"plugins: OidcPlugin: {name} is missing; name the provider's issuer and our audience")
        known = self._tokens.ALGORITHMS
        algorithms = tuple(options.get("algorithms") or known)
        if wrong := [one for one in algorithms if one not in known]:
            cure = f"only public keys count; known are {', '.join(known)}"
            raise StartError(f"plugins: OidcPlugin: algorithms: {wrong[0]}: {cure}")
        return self._tokens.TokenRules(
            options["issuer"], tuple(options["audience"]), algorithms, options.get("user_claim") or "sub",
            options.get("groups_claim") or "groups", float(options.get("leeway_s", 30)),
        )  # fmt: skip

    def _reach_provider(self) -> None:
        try:
            from gateway.auth.provider_fetch import ProviderFetch, check_address  # noqa: PLC0415
        except ImportError:
            raise StartError("plugins: aiohttp is missing; pip install 'veilmq[oidc]'") from None
        from gateway.auth.provider_keys import ProviderKeys  # noqa: PLC0415

        check_address(self.config.jwks_url or self.config.issuer, "plugins: OidcPlugin")
        cafile = self.config.cafile
        self.fetching = ProviderFetch(None if cafile is None else Path(cafile))
        check = partial(check_address, what="keys")
        self.provider = ProviderKeys(
            self.config.issuer, self.config.jwks_url, self.fetching.get_content, time.monotonic, check
        )

    def _read_keys(self, path: str | Path) -> KeySet:
        try:
            return self._tokens.KeySet.parse(_content(path))
        except self._tokens.KeySetError as error:
            raise StartError(f"{path}: {error}; name a file with the provider's JWK Set") from None

    @staticmethod
    def _read_revoked(path: str | Path | None) -> RevokedUsers:
        try:
            return RevokedUsers.parse(_content(path).decode("utf-8", "replace")) if path else RevokedUsers()
        except RevokedError as error:
            raise StartError(f"{path}: {error}; correct the line") from None

    def reread(self, options: dict[str, Any]) -> Callable[[], None]:
        """Reads rules and files anew; returns a function putting them into force. Raises StartError."""
        known = {each.name for each in fields(self.Config)}
        given = self.Config(**{name: value for name, value in options.items() if name in known})
        if given.origin != self.config.origin:
            raise StartError("plugins: OidcPlugin: keys come from elsewhere only after a restart; restart the broker")
        return self._reread(given)

    def _reread(self, given: Config) -> Callable[[], None]:
        rules, revoked = self._rules(vars(given)), self._read_revoked(given.revoked_file)
        keys = self._read_keys(given.jwks_file) if given.jwks_file else None

        def take() -> None:
            self.config, self.rules, self._of_file = given, rules, keys
            self._take_revoked(revoked)

        return take

    # --------------------------------------------------------------------------------------- while it runs

    async def on_broker_post_start(self) -> None:
        """Starts to follow provider and files; amqtt calls this when the broker serves."""
        loop = asyncio.get_running_loop()
        if self.provider is not None:
            self._tasks.append(loop.create_task(self.provider.follow_keys(), name="identity provider"))
        self._tasks.append(loop.create_task(self._watch(), name="files of the identity provider"))

    async def _watch(self) -> None:
        """Follows the files of the present options, which SIGHUP may have changed."""
        followed: OidcPlugin.Config | None = None
        stamps = Stamps([])
        while True:
            config = self.config
            is_new = config is not followed  # a change between the start, or SIGHUP, and this look counts, too
            if is_new:
                followed, stamps = config, Stamps([path for path in (config.jwks_file, config.revoked_file) if path])
            if is_new or stamps.have_changed():
                try:
                    self._reread(config)()
                except StartError as error:
                    LogEvent.USERS_NOT_REREAD.say(log, error)
            await asyncio.sleep(LOOK_S)

    def _take_revoked(self, revoked: RevokedUsers) -> None:
        more, self._revoked = revoked.more_than(self._revoked), revoked
        if more:
            self.when_changed(more)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self.provider is not None:
            self.provider.stop()
        await super().close()

    # --------------------------------------------------------------------------------------------- logins

    @staticmethod
    def mark(user: str) -> None:
        """Returns None: no user is known here but by a token."""
        return

    def is_token(self, text: str | None) -> bool:
        """Returns True if the text has the form of a token."""
        return self._tokens.is_token(text)

    def takes_login(self, session: Session) -> bool:
        """Returns True if a client shows a token instead of a password (`plugins/host.py`)."""
        return self.is_token(session.password)

    def begin(self, session: Session) -> _Exchange:
        return _Exchange(self)

    async def authenticate(self, *, session: Session) -> bool | None:
        """Names the session's user and groups after its token; None for a login without one. Raises BusyError."""
        if not self.takes_login(session):
            return None
        try:
            login = await self.login(session.password)
        except AuthRefused as error:
            LogEvent.TOKEN_REFUSED.say(log, error, client=session.client_id)
            return False
        if session.username and session.username != login.user:
            LogEvent.TOKEN_REFUSED.say(log, "the token has another user name", client=session.client_id)
            return False
        session.username, session.groups = login.user, login.groups
        session.lasts_s = login.ends - self.clock()
        session.password = None  # nobody needs the token any more
        return True

    async def login(self, token: str, audience: str | None = None) -> TokenLogin:
        """Returns the login of a token, after a fetch if the token names a new key. `audience`: instead of ours.

        Raises AuthRefused, BusyError.
        """
        try:
            return self.login_now(token, audience)
        except self._tokens.UnknownProviderKey as error:
            provider = self.provider
            if provider is None:
                raise AuthRefused(str(error)) from None
            had = provider.keys
            if self._waiting >= WAITING_MAX:
                raise BusyError(f"{WAITING_MAX} logins wait for keys of the provider") from None
            self._waiting += 1
            try:
                fetched = await provider.renew_keys()
            finally:
                self._waiting -= 1
            if provider.keys is None or not (fetched or had):
                raise BusyError("keys of the provider are not known yet") from None
            try:
                return self.login_now(token, audience)
            except self._tokens.UnknownProviderKey as unknown:
                raise AuthRefused(str(unknown)) from None

    def login_of_token(self, token: str) -> TokenLogin | None:
        """Returns the login of a token by the keys that are known; None if it does not count."""
        try:
            return self.login_now(token)
        except (AuthRefused, self._tokens.UnknownProviderKey):
            return None

    def login_now(self, token: str, audience: str | None = None) -> TokenLogin:
        """Returns the login of a token by the keys that are known. Raises AuthRefused, UnknownProviderKey."""
        keys = self._of_file if self.provider is None else self.provider.keys
        if keys is None:
            raise self._tokens.UnknownProviderKey("keys of the provider are not known yet")
        rules = self.rules if audience is None else replace(self.rules, audience=(audience,))
        try:
            login: TokenLogin = self._tokens.verified(token, keys, rules, self.clock())
        except self._tokens.UnknownProviderKey:
            raise
        except self._tokens.TokenRefused as error:
            raise AuthRefused(str(error)) from None
        if not self._revoked.counts(login.user, login.issued):
            raise AuthRefused("the user is shut out by revoked_file")
        if self.is_given(login.user):
            raise AuthRefused("a user with a password has the name of the token's user")
        return login

    @dataclass
    class Config:
        """The options of the plugin. A relative path is taken from the directory of the configuration.

        `issuer`: the provider. `audience`: names by which tokens call this broker. `jwks_file`, `jwks_url`: keys of
        the provider; without either, as its discovery document says. `cafile`: the authority of its certificate.
        `user_claim`, `groups_claim`: where a token has its user and groups, levels joined by dots. `algorithms`: those
        that count; all of public keys, if none is named. `leeway_s`: by how much the clocks may differ.
        `revoked_file`: users who are shut out.
        """

        issuer: str = ""
        audience: list[str] = field(default_factory=list)
        jwks_file: str | Path | None = None
        jwks_url: str = ""
        cafile: str | Path | None = None
        user_claim: str = "sub"
        groups_claim: str = "groups"
        algorithms: list[str] = field(default_factory=list)
        leeway_s: int = 30
        revoked_file: str | Path | None = None

        @property
        def origin(self) -> tuple[object, ...]:
            """Source of the provider's keys."""
            return (True,) if self.jwks_file else (False, self.issuer, self.jwks_url, str(self.cafile or ""))


def _content(path: str | Path) -> bytes:
    """Returns the content of a file of the operator. Raises StartError."""
    try:
        if Path(path).stat().st_size > FILE_BYTES_MAX:
            raise StartError(f"{path}: larger than {FILE_BYTES_MAX} bytes; is this the right file?")
        return Path(path).read_bytes()
    except OSError as error:
        raise StartError(f"{path}: {error.strerror}; name a file that can be read") from None


__all__ = ["METHOD", "OidcPlugin"]
