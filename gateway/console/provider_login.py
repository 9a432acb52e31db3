"""Login of the page at an identity provider, over HTTP: to the provider, back with a code, and the code's exchange.

The flow itself is in `code_flow`, the provider in `gateway.auth.oidc`. Not here: what a login may do, and its cookie.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote_plus

from gateway.auth.enhanced_auth import AuthRefused
from gateway.auth.oidc import OidcPlugin
from gateway.auth.provider_fetch import FetchError, check_address
from gateway.auth.provider_keys import PAUSE_S, ProviderError
from gateway.base import PrivateFileError, StartError, read_private
from gateway.base.config_console import ConsoleProvider
from gateway.base.log_events import LogEvent
from gateway.console.code_flow import BACK, BegunFlow, CodeFlow, FlowError
from gateway.console.logins import ConsoleUser
from gateway.plugins import BusyError

log = logging.getLogger("veilmq.console")

EXCHANGES_MAX = 16
"""Codes that are exchanged at a time; more browsers are told to come again. Stops those that come back with codes that
they invent from keeping connections to the provider open; guesses of an address are counted besides.
"""
REDISCOVER_S = 300.0  # between two looks at the provider's addresses


class ProviderLogin:
    """Logins at a provider. `random(n)`: n bytes. Raises StartError."""

    def __init__(self, settings: ConsoleProvider, plugin: OidcPlugin, random: Callable[[int], bytes]) -> None:
        if plugin.provider is None or plugin.fetching is None:
            raise StartError("console: provider needs the provider's addresses; leave jwks_file out of OidcPlugin")
        self._provider, self._fetching, self._plugin = plugin.provider, plugin.fetching, plugin
        self.name = settings.name
        scopes = " ".join(dict.fromkeys(["openid", *settings.scopes]))
        redirect = settings.url.rstrip("/") + BACK
        self._flow = CodeFlow(plugin.rules.issuer, settings.client_id, redirect, scopes, random)
        self._secret = _secret(settings.client_secret_file)
        self._authorization = self._token = ""
        self._tried_at = float("-inf")
        self._discovering = asyncio.Lock()
        self._exchanging = 0

    async def begin_login(self) -> BegunFlow:
        """Returns the way to the provider. Raises FlowError."""
        await self._discover()
        return self._flow.begin_flow(self._authorization, time.time())

    async def finish(self, query: dict[str, str], cookie: str) -> ConsoleUser:
        """Returns the user with whose code a browser comes back. Raises FlowError."""
        code = self._flow.code_of(query, cookie, time.time())
        if self._exchanging >= EXCHANGES_MAX:
            raise FlowError("many log in just now; try again")
        self._exchanging += 1
        try:
            await self._discover()
            client = self._flow.client_id
            secret = None if self._secret is None else (quote_plus(client), quote_plus(self._secret))
            answer = json.loads(await self._fetching.post(self._token, code.form, secret))
            token = answer["id_token"] if isinstance(answer, dict) else None
            if not isinstance(token, str):
                raise KeyError
            login = await self._plugin.login(token, audience=client)
            self._flow.check_login(code, login)
        except (FetchError, ProviderError):
            raise FlowError("the provider does not take the code; log in again") from None
        except (ValueError, KeyError, RecursionError):
            raise FlowError("the provider answers without an ID token") from None
        except AuthRefused as error:
            raise FlowError(f"the ID token is refused: {error}") from None
        except BusyError:
            raise FlowError("keys of the provider are not known yet; try again") from None
        finally:
            self._exchanging -= 1
        return ConsoleUser(login.user, login.groups, login.ends)

    async def _discover(self) -> None:
        """Asks the provider for its endpoints, seldom. Raises FlowError."""
        async with self._discovering:
            now = time.monotonic()
            if now - self._tried_at < (REDISCOVER_S if self._token else PAUSE_S):
                if not self._token:
                    raise FlowError("the provider cannot be reached; try again")
                return
            await self._ask_provider()
            self._tried_at = time.monotonic()
            if not self._token:
                raise FlowError("the provider cannot be reached; try again")

    async def _ask_provider(self) -> None:
        try:
            found = await self._provider.discover()
            check_address(found.authorization, "authorization_endpoint")
            check_address(found.token, "token_endpoint")
        except (FetchError, ProviderError, StartError) as error:
            LogEvent.CONSOLE_PROVIDER_AWAY.say(log, error)
            return  # addresses of before go on
        self._authorization, self._token = found.authorization, found.token


def _secret(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return read_private(path).decode("utf-8").strip()
    except (PrivateFileError, UnicodeDecodeError) as error:
        raise StartError(f"console: {error}") from None
