"""Logins with tokens of an identity provider, on the wire: as password, by AUTH, to their end, and by attackers.

The file of users who are shut out.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.auth import oidc, provider_keys
from gateway.auth.oidc import METHOD, OidcPlugin, RevokedError, RevokedUsers
from gateway.auth.password_hashes import make_hash
from gateway.auth.security import Security, User, UserGroup
from gateway.base.config import StartError, parse
from gateway.broker.edge_broker import EdgeBroker
from gateway.broker.running import make_broker
from gateway.checking.check import check
from gateway.mqtt5.packets import Auth, ConnAck, Connect, Disconnect, Properties, Publish, Version
from gateway.mqtt5.types import ReasonCode
from tests.gateway.auth.test_provider_fetch import OK, server
from tests.gateway.auth.tokens import (
    AUDIENCE,
    ISSUER,
    jwk,
    key_set,
    rsa_key,
    token,
    unsigned,
    with_public_key_as_secret,
)
from tests.gateway.harness import Wire, on_loop, serving
from tests.waits import until

TEXT = """
# whom the provider has let go
ann
pump-7 2026-11-29T10:00:00Z   # the token was stolen
"""


def test_who_is_shut_out_and_for_how_long() -> None:
    revoked = RevokedUsers.parse(TEXT)
    at = 1_795_946_400.0
    assert not revoked.counts("ann", at * 2)
    assert not revoked.counts("pump-7", at - 1)
    assert not revoked.counts("pump-7", 0.0)
    assert revoked.counts("pump-7", at)
    assert revoked.counts("bob", 0.0)
    assert revoked.more_than(RevokedUsers()) == {"ann", "pump-7"}
    assert RevokedUsers.parse("ann\n").more_than(revoked) == frozenset()
    assert RevokedUsers.parse("pump-7").more_than(revoked) == {"pump-7"}


@pytest.mark.parametrize("line", ["ann yesterday", "ann 2026-11-29T10:00:00", "a b c"])
def test_a_line_that_says_something_else(line: str) -> None:
    with pytest.raises(RevokedError, match="line 2"):
        RevokedUsers.parse(f"\n{line}\n")


OIDC, DYNAMIC = "gateway.auth.oidc.OidcPlugin", "gateway.auth.dynamic.DynamicPlugin"
BAD = ReasonCode.BAD_USER_NAME_OR_PASSWORD
BY_GROUP = {"plant": ["topic readwrite plant/#", "pattern readwrite own/%u"], "guests": ["topic read public/#"]}


def config(directory: Path, **options: Any) -> dict[str, Any]:
    """A broker with a provider's keys in a file, groups with rights, and bob, who has a password."""
    keys = directory / "jwks.json"
    if not keys.exists():
        keys.write_bytes(key_set(jwk(rsa_key())))
    Security(
        users={"bob": User(hash=make_hash(b"bob-pw", os.urandom, 1), acl=["topic readwrite plant/#"])},
        groups={name: UserGroup(acl=rules) for name, rules in BY_GROUP.items()},
    ).save(directory / "security.json")
    given = {"issuer": ISSUER, "audience": [AUDIENCE], "jwks_file": str(keys), **options}
    return {"plugins": {OIDC: given, DYNAMIC: {"file": str(directory / "security.json")}}, "allow_anonymous": False}


async def by_password(broker: Any, text: str, client_id: str = "c", **fields: Any) -> Wire:
    return await Wire.connect(broker, client_id, password=text.encode(), **fields)


async def by_auth(broker: Any, text: str, client_id: str = "c", **fields: Any) -> Wire:
    method = Properties(authentication_method=METHOD, authentication_data=text.encode(), **fields.pop("properties", {}))
    wire = await Wire.open(broker)
    wire.send(Connect(client_id, properties=method, **fields))
    wire.connack = await wire.expect(ConnAck)
    return wire


def code(wire: Wire) -> int:
    assert wire.connack is not None
    return wire.connack.code


async def again(wire: Wire, text: str) -> Any:
    method = Properties(authentication_method=METHOD, authentication_data=text.encode())
    wire.send(Auth(ReasonCode.RE_AUTHENTICATE, method))
    return await wire.next()


WAYS: tuple[Callable[..., Any], ...] = (by_password, by_auth)


@pytest.mark.parametrize("way", WAYS)
@on_loop
async def test_a_token_lets_in_under_its_name_with_the_rights_of_its_groups(tmp_path: Path, way: Any) -> None:
    async with serving(config(tmp_path)) as broker:
        wire = await way(broker, token())
        assert code(wire) == 0
        view = broker.sessions["c"][0]
        assert (view.username, view.groups, view.is_anonymous) == ("ann", ("plant",), False)
        assert view.password is None or "eyJ" not in view.password
        assert await wire.subscribe("plant/1") == 0
        assert await wire.subscribe("own/ann") == 0
        assert await wire.subscribe("own/bob") == 0x87
        assert await wire.subscribe("public/1") == 0x87
        wire.publish("plant/1", b"mine")
        wire.publish("public/1", b"not mine")
        assert await wire.published() == [("plant/1", b"mine")]


@on_loop
async def test_a_name_in_connect_is_that_of_the_token_or_empty(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker:
        assert code(await by_password(broker, token(), username="ann")) == 0
        assert code(await by_password(broker, token(), username="")) == 0
        assert code(await by_password(broker, token(), version=Version.V311, username="")) == 0
        assert code(await by_password(broker, token(), username="root")) == BAD
        assert code(await by_auth(broker, token(), username="root")) == BAD


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "make",
    [
        unsigned, with_public_key_as_secret, lambda: token(aud="other"), lambda: token(iss="https://evil.example"),
        lambda: token(exp=1_000), lambda: token(nbf=9_000_000_000), lambda: token(rsa_key("mallory")),
        lambda: token(header={"kid": "../../../dev/null"}), lambda: token(padding="x" * 20_000), lambda: token()[:-9],
        lambda: token(rsa_key("mallory"), header={"jwk": jwk(rsa_key("mallory")), "jku": "http://127.0.0.1:1/"}),
    ],
)  # fmt: skip
@on_loop
async def test_attacks_are_refused_and_leave_nothing_in_the_log(
    tmp_path: Path, way: Any, make: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    text = make()
    async with serving(config(tmp_path)) as broker:
        wire = await way(broker, text)
        assert code(wire) in (BAD, ReasonCode.NOT_AUTHORIZED)
        assert await wire.next() is None
        assert list(broker.clients()) == []
    assert not any(part in caplog.text for part in text.split(".") if len(part) > 40)


@on_loop
async def test_who_shows_a_token_is_nobody_else(tmp_path: Path) -> None:
    """Neither let in without a name where anybody is, nor by another plugin, nor as a user with a password."""
    async with serving({**config(tmp_path), "allow_anonymous": True}) as broker:
        assert code(await by_password(broker, token(exp=1_000))) == ReasonCode.NOT_AUTHORIZED
        assert code(await by_password(broker, token(sub="bob"), "d")) == ReasonCode.NOT_AUTHORIZED
        assert code(await by_auth(broker, token(sub="bob"), "d")) == ReasonCode.NOT_AUTHORIZED
        bob = await Wire.connect(broker, "bob", username="bob", password=b"bob-pw")
        assert code(bob) == 0  # passwords go on beside
        assert broker.sessions["bob"][0].groups is None
        assert code(await Wire.connect(broker, "x", username="bob", password=b"wrong")) == BAD
        assert code(await Wire.connect(broker, "y")) == 0


@on_loop
async def test_a_client_id_stays_its_users(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as broker:
        keeps = {"session_expiry_s": 600}
        await by_password(broker, token(), "shared", properties=keeps)
        other = await by_password(broker, token(sub="eve"), "shared")
        assert code(other) == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


@pytest.mark.parametrize("way", WAYS)
@on_loop
async def test_the_connection_ends_with_the_token_and_the_session_stays(tmp_path: Path, way: Any) -> None:
    async with serving(config(tmp_path, leeway_s=0)) as broker:
        wire = await way(broker, token(exp=int(time.time()) + 600), properties={"session_expiry_s": 3_600})
        assert await wire.subscribe("plant/1", 1) == 1
        broker.lifecycle.do_due_work(broker.now() + 590)
        assert await wire.barrier() == []
        broker.lifecycle.do_due_work(broker.now() + 601)
        assert (await wire.expect(Disconnect)).code == ReasonCode.MAXIMUM_CONNECT_TIME
        assert await wire.next() is None
        sender = await by_password(broker, token(), "d")
        sender.publish("plant/1", b"kept", 1)
        await sender.barrier()
        wire = await by_password(broker, token(groups=["guests"]), clean_start=False)
        assert code(wire) == 0
        assert await wire.published() == []  # what the new token may not read is not sent
        del wire


@on_loop
async def test_a_new_token_by_auth_extends_and_changes_rights(tmp_path: Path) -> None:
    now = int(time.time())
    async with serving(config(tmp_path, leeway_s=0)) as broker:
        wire = await by_auth(broker, token(exp=now + 100))
        answer = await again(wire, token(exp=now + 1_000, groups=["guests"]))
        assert isinstance(answer, Auth)
        assert answer.code == ReasonCode.SUCCESS
        broker.lifecycle.do_due_work(broker.now() + 101)
        assert await wire.barrier() == []
        assert await wire.subscribe("public/1") == 0
        assert await wire.subscribe("plant/1") == 0x87
        wire.publish("plant/1")
        answer = await again(wire, token(exp=now + 200, groups=["guests"]))  # shorter counts, too
        assert isinstance(answer, Auth)
        broker.lifecycle.do_due_work(broker.now() + 201)
        assert (await wire.expect(Disconnect)).code == ReasonCode.MAXIMUM_CONNECT_TIME


@pytest.mark.parametrize("text", [token(sub="root"), token(exp=1_000), unsigned(), "", "nonsense"])
@on_loop
async def test_a_wrong_token_by_auth_ends_the_connection(tmp_path: Path, text: str) -> None:
    async with serving(config(tmp_path)) as broker:
        wire = await by_auth(broker, token())
        answer = await again(wire, text)
        assert isinstance(answer, Disconnect)
        assert answer.code == ReasonCode.NOT_AUTHORIZED
        assert await wire.next() is None


@on_loop
async def test_a_restart_keeps_the_groups_of_those_who_are_away(tmp_path: Path) -> None:
    settings = {**config(tmp_path), "data": str(tmp_path / "data")}
    async with serving(settings) as broker:
        wire = await by_password(broker, token(), properties={"session_expiry_s": 3_600})
        assert await wire.subscribe("plant/#", 1) == 1
        wire.cut()
    async with serving(settings) as broker:
        sender = await by_password(broker, token(sub="dan"), "d")
        sender.publish("plant/1", b"while away", 1)
        await sender.barrier()
        wire = await by_password(broker, token(), clean_start=False)
        assert wire.connack is not None
        assert wire.connack.session_present
        assert (await wire.expect(Publish)).payload == b"while away"


@on_loop
async def test_who_is_shut_out_goes_at_once_and_a_repetition_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(oidc, "LOOK_S", 0.01)
    revoked = tmp_path / "revoked"
    revoked.write_text("")
    async with serving(config(tmp_path, revoked_file=str(revoked))) as broker:
        text, other = token(), token(sub="dan")
        wire = await by_password(broker, text, properties={"session_expiry_s": 3_600})
        stays = await by_password(broker, other, "d")
        revoked.write_text("ann  # let go\n")
        assert (await wire.expect(Disconnect)).code == ReasonCode.ADMINISTRATIVE_ACTION
        await until(lambda: "c" not in broker.sessions)
        assert code(await by_password(broker, text)) == ReasonCode.NOT_AUTHORIZED
        assert await stays.barrier() == []
        revoked.write_text("dan never\n")  # damaged: what was before counts
        await until(lambda: "never is no time" in caplog.text)
        assert code(await by_password(broker, text)) == ReasonCode.NOT_AUTHORIZED


@on_loop
async def test_keys_in_a_file_change_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "LOOK_S", 0.01)
    async with serving(config(tmp_path)) as broker:
        assert code(await by_password(broker, token())) == 0
        new = token(rsa_key("new"), header={"kid": "new"})
        assert code(await by_password(broker, new)) == ReasonCode.NOT_AUTHORIZED
        (tmp_path / "jwks.json").write_bytes(key_set(jwk(rsa_key("new"), "new")))
        plugin = plugin_of(broker)
        await until(lambda: plugin._of_file is not None and "new" in plugin._of_file.named)
        assert code(await by_password(broker, new)) == 0
        assert code(await by_password(broker, token())) == ReasonCode.NOT_AUTHORIZED


@pytest.mark.attack(195)
@on_loop
async def test_what_sighup_took_away_does_not_come_back_with_the_next_change_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: SIGHUP names a narrower audience and another file of users who are shut out; as soon as the keys were
    renewed in their file, the options of the start counted again.
    """
    monkeypatch.setattr(oidc, "LOOK_S", 0.01)
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("")
    new.write_text("ann\n")
    begun = config(tmp_path, revoked_file=str(old), audience=[AUDIENCE, "everything"])
    async with serving(begun) as broker:
        plugin = plugin_of(broker)
        assert code(await by_password(broker, token())) == 0
        plugin.reread({**begun["plugins"][OIDC], "audience": [AUDIENCE], "revoked_file": str(new)})()
        refused = (token(), token(sub="dan", aud="everything"))
        for text in refused:
            assert code(await by_password(broker, text, "e")) == ReasonCode.NOT_AUTHORIZED
        keys = key_set(jwk(rsa_key()), jwk(rsa_key("new"), "new"))
        (tmp_path / "jwks.json").write_bytes(keys)
        await until(lambda: plugin._of_file is not None and "new" in plugin._of_file.named)
        for text in refused:
            assert code(await by_password(broker, text, "e")) == ReasonCode.NOT_AUTHORIZED
        stays = await by_password(broker, token(sub="dan"), "d")
        new.write_text("ann\ndan\n")
        assert (await stays.expect(Disconnect)).code == ReasonCode.ADMINISTRATIVE_ACTION


@on_loop
async def test_sighup_takes_no_other_provider(tmp_path: Path) -> None:
    """Its name would count with the keys of the former one, who could sign as it."""
    begun = config(tmp_path, jwks_file=None, jwks_url="http://127.0.0.1:9/keys")
    async with serving(begun) as broker:
        given = begun["plugins"][OIDC]
        for other in ({"issuer": "https://other.example.net"}, {"jwks_file": str(tmp_path / "jwks.json")}):
            with pytest.raises(StartError, match="after a restart"):
                plugin_of(broker).reread({**given, **other})
        plugin_of(broker).reread({**given, "audience": ["other"]})()
        assert plugin_of(broker).rules.audience == ("other",)


def plugin_of(broker: EdgeBroker) -> OidcPlugin:
    return next(plugin for plugin in broker.host.plugins if isinstance(plugin, OidcPlugin))


@pytest.mark.long
@on_loop
async def test_a_provider_that_hangs_delays_nobody_whose_key_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_keys, "PAUSE_S", 0.0)
    hangs = asyncio.Event()
    asked: list[bool] = []

    async def answer(writer: asyncio.StreamWriter) -> None:
        asked.append(True)
        if hangs.is_set():
            await asyncio.Event().wait()
        keys = key_set(jwk(rsa_key()), *([jwk(rsa_key("new"), "new")] if len(asked) > 1 else []))
        writer.write(OK + b"Content-Length: %d\r\n\r\n" % len(keys) + keys)

    async with server(answer) as url:
        settings = config(tmp_path, jwks_file=None, jwks_url=url)
        async with serving(settings) as broker:
            await until(lambda: plugin_of(broker).provider.keys is not None)  # type: ignore[union-attr]
            rotated = await by_password(broker, token(rsa_key("new"), header={"kid": "new"}))
            assert code(rotated) == 0  # a new key is fetched when the first token names it
            assert len(asked) == 2
            hangs.set()
            waiting = [asyncio.create_task(by_password(broker, token(header={"kid": f"no{n}"}), f"w{n}"))
                       for n in range(5)]  # fmt: skip
            await until(lambda: len(asked) == 3)
            assert code(await by_auth(broker, token(), "known")) == 0
            assert len(asked) == 3
            assert not any(one.done() for one in waiting)
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


@on_loop
async def test_before_the_keys_are_known_clients_are_told_to_come_again(tmp_path: Path) -> None:
    settings = config(tmp_path, jwks_file=None, jwks_url="http://127.0.0.1:9/keys")
    async with serving(settings) as broker:
        await until(lambda: plugin_of(broker).provider.fetches)  # type: ignore[union-attr]
        assert code(await by_password(broker, token())) == ReasonCode.SERVER_BUSY
        assert code(await Wire.connect(broker, "bob", username="bob", password=b"bob-pw")) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"issuer": ""}, "issuer is missing"), ({"audience": []}, "audience is missing"),
        ({"algorithms": ["HS256"]}, "algorithms: HS256: only public keys count"),
        ({"algorithms": ["none"]}, "algorithms: none: only public keys count"),
        ({"jwks_file": "/nowhere"}, "/nowhere: No such file"), ({"revoked_file": "/nowhere"}, "/nowhere: No such file"),
        ({"jwks_file": None, "jwks_url": "http://login.example.net/keys"}, "cross the network in clear"),
        ({"jwks_file": None, "cafile": "/nowhere"}, "cafile /nowhere"),
        ({"jwks_file": None, "issuer": "plant"}, "plant is no address"),
    ],
)  # fmt: skip
def test_mistakes_of_the_operator_are_one_line(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    settings = parse({"listeners": {"default": {"bind": "127.0.0.1:0"}}, **config(tmp_path, **options)})
    findings = [one.text for one in check(settings, ()).findings if one.level == "error"]
    assert len(findings) == 1
    assert said in findings[0]
    assert "\n" not in findings[0]

    async def start() -> None:
        make_broker(settings)

    with pytest.raises(StartError):
        asyncio.run(start())


def test_groups_that_count_nowhere_are_said(tmp_path: Path) -> None:
    settings = config(tmp_path)
    del settings["plugins"][DYNAMIC]
    found = check(parse({"listeners": {"default": {"bind": "127.0.0.1:0"}}, **settings}), ()).findings
    assert any("groups of tokens count nowhere" in one.text for one in found if one.level == "warning")
