"""Keys of a provider: how often it is asked, by whom, and what it does to clients when it is slow, wrong or away."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway.auth.provider_keys import PAUSE_S, STALE_S, WELL_KNOWN, ProviderError, ProviderKeys
from tests.gateway.auth.tokens import ISSUER, jwk, key_set, rsa_key
from tests.gateway.harness import on_loop

URL = "https://login.example.net/keys"


class Provider:
    """Answers by address; what is no bytes is raised. `asked`: addresses in turn."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {URL: key_set(jwk(rsa_key())), **answers}
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.now = 1_000.0

    async def get(self, url: str) -> bytes:
        self.asked.append(url)
        await self.gate.wait()
        found = self.answers[url]
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, bytes)
        return found

    def keys(self, url: str = URL, check: Any = lambda url: None) -> ProviderKeys:
        return ProviderKeys(ISSUER, url, self.get, lambda: self.now, check)


@on_loop
async def test_a_hundred_clients_with_keys_that_they_invent_cause_one_fetch() -> None:
    provider = Provider()
    keys = provider.keys()
    provider.gate.clear()
    waiting = [asyncio.create_task(keys.renew_keys()) for _ in range(100)]
    await asyncio.sleep(0)
    provider.gate.set()
    assert all(await asyncio.gather(*waiting))
    assert len(provider.asked) == 1
    for _ in range(100):
        assert not await keys.renew_keys()
    assert len(provider.asked) == 1
    provider.now += PAUSE_S
    assert await keys.renew_keys()
    assert len(provider.asked) == 2


@on_loop
async def test_a_client_that_leaves_does_not_end_the_fetch_of_others() -> None:
    provider = Provider()
    keys = provider.keys()
    provider.gate.clear()
    one, other = (asyncio.create_task(keys.renew_keys()) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.sleep(0)
    provider.gate.set()
    assert await other
    assert keys.keys is not None


@on_loop
async def test_keys_of_before_count_while_the_provider_is_away_but_not_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider = Provider()
    keys = provider.keys()
    await keys.fetch()
    for wrong in (OSError("away"), b"<html>", key_set(), RuntimeError("odd"), b"[" * 100_000):
        provider.answers[URL] = wrong
        await keys.fetch()
        assert keys.keys is not None
    assert caplog.text.count("cannot be fetched") == 1  # a provider that is away does not fill the log
    provider.now += STALE_S
    assert keys.keys is None
    provider.answers[URL] = key_set(jwk(rsa_key("new"), "new"))
    await keys.fetch()
    assert keys.keys is not None
    assert "new" in keys.keys.named


@on_loop
async def test_a_key_that_was_withdrawn_counts_no_more_after_the_next_fetch() -> None:
    provider = Provider()
    keys = provider.keys()
    await keys.fetch()
    provider.answers[URL] = key_set(jwk(rsa_key("new"), "new"))
    await keys.fetch()
    assert keys.keys is not None
    assert set(keys.keys.named) == {"new"}


@on_loop
async def test_the_discovery_document_must_be_the_issuers_own() -> None:
    said = {"issuer": ISSUER, "jwks_uri": URL, "authorization_endpoint": "https://login.example.net/auth"}
    provider = Provider(**{ISSUER + WELL_KNOWN: json.dumps(said).encode()})
    keys = provider.keys("")
    await keys.fetch()
    assert keys.keys is not None
    assert provider.asked == [ISSUER + WELL_KNOWN, URL]
    for wrong in ({**said, "issuer": "https://evil.example"}, {**said, "jwks_uri": 3}, {**said, "jwks_uri": ""}, []):
        provider.answers[ISSUER + WELL_KNOWN] = json.dumps(wrong).encode()
        with pytest.raises(ProviderError):
            await keys.discover()


@on_loop
async def test_an_address_that_must_not_be_asked_is_not() -> None:
    def check(url: str) -> None:
        raise ValueError("in clear")

    provider = Provider()
    keys = provider.keys(check=check)
    await keys.fetch()
    assert keys.keys is None
    assert provider.asked == []
