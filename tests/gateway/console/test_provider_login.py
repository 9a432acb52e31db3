"""Login of the page at a provider: the code's exchange, ID tokens of attackers, and a provider that is away."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.auth.oidc import OidcPlugin
from gateway.auth.provider_fetch import FetchError
from gateway.auth.provider_keys import WELL_KNOWN
from gateway.base import StartError
from gateway.base.config import parse
from gateway.base.config_console import ConsoleProvider
from gateway.broker.running import make_broker
from gateway.console import provider_login
from gateway.console.code_flow import FlowError
from gateway.console.provider_login import ProviderLogin
from tests.gateway.auth.test_oidc import config, plugin_of
from tests.gateway.auth.tokens import ISSUER, jwk, key_set, rsa_key, token, unsigned, with_public_key_as_secret
from tests.gateway.console.test_code_flow import URL, asked
from tests.gateway.harness import on_loop

SAID = {
    "issuer": ISSUER,
    "jwks_uri": "https://login.example.net/keys",
    "authorization_endpoint": "https://login.example.net/auth",
    "token_endpoint": "https://login.example.net/token",
}


class Provider:
    """The provider of a plugin. `answer`: of the token endpoint. `posted`: forms with the console's login."""

    def __init__(self, plugin: OidcPlugin) -> None:
        self.said: Any = SAID
        self.answer: Any = {}
        self.posted: list[tuple[dict[str, str], Any]] = []
        self.asked = 0
        assert plugin.provider is not None
        plugin.provider._get = self.get
        plugin.fetching = self  # type: ignore[assignment]

    async def get(self, url: str) -> bytes:
        self.asked += url.endswith(WELL_KNOWN)
        if self.said is None:
            raise FetchError("away")
        return json.dumps(self.said).encode() if url.endswith(WELL_KNOWN) else key_set(jwk(rsa_key()))

    async def post(self, url: str, form: dict[str, str], login: Any = None) -> bytes:
        assert url == SAID["token_endpoint"]
        self.posted.append((form, login))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if isinstance(self.answer, bytes) else json.dumps(self.answer).encode()


def made(tmp_path: Path, **more: Any) -> tuple[ProviderLogin, Provider]:
    """A login at a provider that answers as the test says; needs a running loop."""
    listeners = {"default": {"bind": "127.0.0.1:0"}}
    broker = make_broker(parse({"listeners": listeners, **config(tmp_path, jwks_file=None)}))
    plugin = plugin_of(broker)
    provider = Provider(plugin)
    return ProviderLogin(ConsoleProvider(client_id="con sole", url=URL, **more), plugin, os.urandom), provider


async def back(login: ProviderLogin, provider: Provider, make: Any) -> Any:
    begun = await login.begin_login()
    sent = asked(begun)
    provider.answer = make(sent["nonce"])
    return await login.finish({"code": "abc", "state": sent["state"]}, begun.cookie)


def id_token(nonce: str, **claims: Any) -> dict[str, Any]:
    return {"id_token": token(aud="con sole", nonce=nonce, **claims), "access_token": "opaque"}


@on_loop
async def test_who_comes_back_is_the_user_of_the_id_token(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s:3 &\n")
    secret.chmod(0o600)
    login, provider = made(tmp_path, client_secret_file=secret)
    user = await back(login, provider, id_token)
    assert (user.name, user.groups) == ("ann", ("plant",))
    assert user.ends is not None
    form, shown = provider.posted[0]
    assert (form["code"], form["grant_type"]) == ("abc", "authorization_code")
    assert shown == ("con+sole", "s%3A3+%26")  # RFC 6749 §2.3.1
    public, other = made(tmp_path)
    await back(public, other, id_token)
    assert other.posted[0][1] is None
    assert other.posted[0][0]["client_id"] == "con sole"


@pytest.mark.parametrize(
    "make",
    [
        lambda nonce: {"id_token": token(aud="veilmq", nonce=nonce)},  # an access token for MQTT is no ID token
        lambda nonce: {"id_token": token(aud="con sole")}, lambda nonce: id_token("another"),
        lambda nonce: {"id_token": unsigned()}, lambda nonce: {"id_token": with_public_key_as_secret(aud="con sole")},
        lambda nonce: id_token(nonce, exp=1_000), lambda nonce: id_token(nonce, iss="https://evil.example"),
        lambda nonce: {"id_token": token(rsa_key("mallory"), aud="con sole", nonce=nonce)},
        lambda nonce: {"id_token": None}, lambda nonce: {}, lambda nonce: [], lambda nonce: b"<html>",
        lambda nonce: FetchError("HTTP status 400"), lambda nonce: id_token(nonce, sub="bob"),
    ],
)  # fmt: skip
@on_loop
async def test_what_is_no_id_token_of_this_login_is_refused(tmp_path: Path, make: Any) -> None:
    login, provider = made(tmp_path)
    with pytest.raises(FlowError) as caught:
        await back(login, provider, make)
    assert "eyJ" not in str(caught.value)


@on_loop
async def test_a_wrong_state_asks_the_provider_nothing(tmp_path: Path) -> None:
    login, provider = made(tmp_path)
    begun = await login.begin_login()
    with pytest.raises(FlowError):
        await login.finish({"code": "abc", "state": "x"}, begun.cookie)
    assert provider.posted == []


@on_loop
async def test_a_provider_that_is_away_is_not_asked_by_every_browser(tmp_path: Path) -> None:
    login, provider = made(tmp_path)
    provider.said = None
    answers = await asyncio.gather(*(login.begin_login() for _ in range(50)), return_exceptions=True)
    assert all(isinstance(one, FlowError) for one in answers)
    assert provider.asked == 1


@on_loop
async def test_addresses_in_clear_are_not_used(tmp_path: Path) -> None:
    login, provider = made(tmp_path)
    provider.said = {**SAID, "token_endpoint": "http://login.example.net/token"}
    with pytest.raises(FlowError):
        await login.begin_login()


@on_loop
async def test_no_more_codes_at_a_time_than_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_login, "EXCHANGES_MAX", 0)
    login, provider = made(tmp_path)
    with pytest.raises(FlowError, match="many log in"):
        await back(login, provider, id_token)
    assert provider.posted == []


@on_loop
async def test_mistakes_of_the_operator(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="/nowhere"):
        made(tmp_path, client_secret_file=Path("/nowhere"))
    listeners = {"default": {"bind": "127.0.0.1:0"}}
    plugin = plugin_of(make_broker(parse({"listeners": listeners, **config(tmp_path)})))
    with pytest.raises(StartError, match="leave jwks_file out"):
        ProviderLogin(ConsoleProvider(client_id="c", url=URL), plugin, os.urandom)
    for url in ("http://console.plant.example", "console", "https://", "https://a@b", "https://a?b"):
        with pytest.raises(ValueError, match=r"url|address"):
            ConsoleProvider(client_id="c", url=url)
