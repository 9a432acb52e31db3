"""Public keys of an identity provider, kept up to date, and its discovery document. No HTTP here: `get` is passed in.

Clients never wait for the provider while its keys are known: they are fetched again each `EVERY_S`, and a failure
leaves those of before, for `STALE_S`. A token with a key that is not known makes one fetch for all who wait, and the
next one not before `PAUSE_S`: clients that invent key ids make no more requests than that. Source: OpenID Connect
Discovery 1.0 §4; RFC 8414.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.auth.access_tokens import KeySet
from gateway.base.log_events import LogEvent

log = logging.getLogger("veilmq.auth")

EVERY_S = 300.0
"""Seconds between two fetches."""
PAUSE_S = 10.0
"""Seconds from a fetch to the next one that a client can cause: stops clients that invent key ids."""
STALE_S = 86_400.0
"""Seconds for which keys count without a fetch: stops whoever keeps us from hearing that a key was withdrawn."""
WELL_KNOWN = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True)
class Discovered:
    """The addresses of a provider; empty if it does not tell one."""

    jwks: str
    authorization: str = ""
    token: str = ""


class ProviderError(Exception):
    """An error of a provider's answer, in a line."""


class ProviderKeys:
    """The keys of a provider at `issuer`. `jwks_url`: their address; empty: as discovered. `now`: seconds, of a clock
    that does not jump. `check(url)`: raises for an address that must not be asked.
    """

    def __init__(
        self, issuer: str, jwks_url: str, get: Callable[[str], Awaitable[bytes]], now: Callable[[], float],
        check: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._issuer, self._jwks_url, self._get, self._now, self._check = issuer, jwks_url, get, now, check
        self._keys: KeySet | None = None
        self._fetched_at = 0.0
        self._ended_at: float | None = None
        self._running: asyncio.Task[None] | None = None
        self._failed = False
        self.fetches = 0

    @property
    def keys(self) -> KeySet | None:
        """The keys that count now; None while none are known."""
        return self._keys if self._keys is not None and self._now() - self._fetched_at < STALE_S else None

    async def renew_keys(self) -> bool:
        """Fetches because a client needs a key that is not known; returns False if that was done just now."""
        if self._running is None and self._ended_at is not None and self._now() - self._ended_at < PAUSE_S:
            return False
        await self.fetch()
        return True

    async def fetch(self) -> None:
        """Fetches, or waits for the fetch that is under way. A failure is a line in the log."""
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._fetch(), name="keys of the provider")
        await asyncio.shield(self._running)

    async def _fetch(self) -> None:
        self.fetches += 1
        try:
            url = self._jwks_url or (await self.discover()).jwks
            self._check(url)
            keys = KeySet.parse(await self._get(url))
        except Exception as error:  # noqa: BLE001  whatever a provider does is a line here
            if not self._failed:
                LogEvent.PROVIDER_KEYS_NOT_FETCHED.say(log, self._issuer, error)
            self._failed = True
        else:
            if self._failed or self._keys is None:
                LogEvent.PROVIDER_KEYS_FETCHED.say(log, self._issuer, len(keys))
            self._keys, self._fetched_at, self._failed = keys, self._now(), False
        finally:
            self._ended_at = self._now()
            self._running = None

    async def discover(self) -> Discovered:
        """Asks the provider for its addresses. Raises ProviderError, and errors of `get`."""
        try:
            said = json.loads(await self._get(self._issuer.rstrip("/") + WELL_KNOWN))
            found = [said.get(name, "") for name in ("jwks_uri", "authorization_endpoint", "token_endpoint")]
            issuer = said.get("issuer")
        except (ValueError, AttributeError, RecursionError):
            raise ProviderError("its discovery document is no JSON object") from None
        if issuer != self._issuer:  # OpenID Connect Discovery 1.0 §4.3
            raise ProviderError("its discovery document names another issuer; correct issuer, to the letter")
        if not found[0] or not all(isinstance(one, str) for one in found):
            raise ProviderError("its discovery document names no jwks_uri")
        return Discovered(*found)

    async def follow_keys(self) -> None:
        """Fetches again and again until it is cancelled."""
        while True:
            await self.fetch()
            await asyncio.sleep(EVERY_S if self._keys is not None and not self._failed else PAUSE_S)

    def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
