"""Logins by a password file: every form of hash, no time that tells who exists, and nobody else waits for them."""

from __future__ import annotations

import asyncio
import secrets
import threading
from pathlib import Path
from typing import Any

import pytest
from pwdlib.hashers.argon2 import Argon2Hasher

from gateway.auth import passwords
from gateway.auth.password_hashes import make_hash
from gateway.auth.passwords import Users
from gateway.base.config import StartError, parse
from gateway.base.limits import Limits
from gateway.broker.running import make_broker
from gateway.clients import Reached
from gateway.mqtt5.packets import Version
from gateway.mqtt5.types import ReasonCode
from gateway.plugins import EdgeSession
from gateway.sockets.door import Failures
from tests.gateway.harness import Wire, on_loop, serving
from tests.waits import until

AMQTT = "amqtt.plugins.authentication.FileAuthPlugin"
OURS = "gateway.auth.passwords.PasswordPlugin"
#: Of the password `secret`.
MOSQUITTO_2 = make_hash(b"secret", secrets.token_bytes, 101)
ARGON2 = Argon2Hasher(time_cost=1, memory_cost=64, parallelism=1).hash("secret")


def _mosquitto_1(password: bytes) -> str:
    import base64
    import hashlib

    salt = b"0123456789ab"
    return f"$6${base64.b64encode(salt).decode()}${base64.b64encode(hashlib.sha512(password + salt).digest()).decode()}"


def _config(path: Path, lines: dict[str, str], plugin: str = AMQTT, **more: Any) -> dict[str, Any]:
    (path / "passwords").write_text("".join(f"{user}:{hashed}\n" for user, hashed in lines.items()))
    return {"allow_anonymous": False, "plugins": {plugin: {"password_file": str(path / "passwords")}}, **more}


def _login(user: str, password: bytes = b"secret") -> dict[str, Any]:
    return {"username": user, "password": password}


@pytest.mark.parametrize("plugin", [AMQTT, OURS])
@pytest.mark.parametrize("hashed", [MOSQUITTO_2, _mosquitto_1(b"secret"), ARGON2], ids=["$7$", "$6$", "argon2"])
def test_every_form_of_hash_lets_in_who_knows_the_password_and_nobody_else(
    plugin: str, hashed: str, tmp_path: Path
) -> None:
    @on_loop
    async def check() -> None:
        async with serving(_config(tmp_path, {"nurse": hashed}, plugin)) as broker:
            for login, code in [
                (_login("nurse"), 0),
                (_login("nurse", b"wrong"), ReasonCode.BAD_USER_NAME_OR_PASSWORD),
                (_login("nurse", b""), ReasonCode.BAD_USER_NAME_OR_PASSWORD),
                (_login("stranger"), ReasonCode.BAD_USER_NAME_OR_PASSWORD),
                ({}, ReasonCode.NOT_AUTHORIZED),
            ]:
                wire = await Wire.connect(broker, "c", **login)
                assert wire.connack is not None
                assert wire.connack.code == code, login

    check()


@pytest.mark.parametrize("hashed", ["", "plain", "$2b$12$abc", "$6$", "$7$0$a$b", "$6$rounds=999999999$s$" + "a" * 86])
def test_a_hash_of_another_kind_is_named_and_lets_nobody_in(
    hashed: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @on_loop
    async def check() -> None:
        async with serving(_config(tmp_path, {"nurse": hashed, "door": MOSQUITTO_2})) as broker:
            assert "nurse" in caplog.text
            wire = await Wire.connect(broker, "c", **_login("nurse"))
            assert wire.connack is not None
            assert wire.connack.code == ReasonCode.BAD_USER_NAME_OR_PASSWORD
            assert "Traceback" not in caplog.text

    check()


@on_loop
async def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no such file"):
        make_broker(parse({"plugins": {AMQTT: {"password_file": str(tmp_path / "none")}}}))


def test_an_unknown_user_costs_a_hash_of_the_usual_kind() -> None:
    users = Users({"a": MOSQUITTO_2, "b": ARGON2, "c": ARGON2})
    seen: list[bytes] = []
    users._dummy = lambda password: bool(seen.append(password))
    assert not users.check_password("stranger", b"guess")
    assert seen == [b"guess"]
    assert Users({"a": MOSQUITTO_2, "b": ARGON2, "c": ARGON2})._dummy is not None
    assert not Users({}).check_password("stranger", b"guess")


@on_loop
async def test_nobody_waits_for_the_logins_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(Users, "check_password", lambda self, user, password: release.wait(30) and user == "nurse")
    async with serving(_config(tmp_path, {"nurse": MOSQUITTO_2}, allow_anonymous=True)) as broker:
        waiting = [asyncio.create_task(Wire.connect(broker, f"w{n}", **_login("nurse"))) for n in range(8)]
        plugin: Any = next(one for one in broker.host.plugins if hasattr(one, "_pending"))
        await until(lambda: plugin._pending == 8)
        calm = await Wire.connect(broker, "calm")
        await calm.barrier()
        release.set()
        for wire in await asyncio.gather(*waiting):
            assert wire.connack is not None
            assert wire.connack.code == 0


@pytest.mark.parametrize(("version", "code"), [(Version.V5, ReasonCode.SERVER_BUSY), (Version.V311, 3)])
def test_more_logins_than_can_wait_are_told_that_the_server_is_busy(
    version: Version, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "PENDING_MAX", 0)

    @on_loop
    async def check() -> None:
        async with serving(_config(tmp_path, {"nurse": MOSQUITTO_2})) as broker:
            wire = await Wire.connect(broker, "c", version, **_login("nurse"))
            assert wire.connack is not None
            assert wire.connack.code == code

    check()


@on_loop
async def test_a_password_that_was_right_is_not_hashed_again_and_a_wrong_one_always_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[bytes] = []
    real = Users.check_password

    def check(self: Users, user: str, password: bytes) -> bool:
        hashed.append(password)
        return real(self, user, password)

    monkeypatch.setattr(Users, "check_password", check)
    async with serving(_config(tmp_path, {"nurse": MOSQUITTO_2})) as broker:
        for _ in range(3):
            await Wire.connect(broker, "c", **_login("nurse"))
            await Wire.connect(broker, "c", **_login("nurse", b"wrong"))
        assert hashed.count(b"secret") == 1
        assert hashed.count(b"wrong") == 3
        plugin: Any = next(one for one in broker.host.plugins if hasattr(one, "_right"))
        assert b"secret" not in b"".join(plugin._right)
        (tmp_path / "passwords").write_text(f"nurse:{make_hash(b'other', secrets.token_bytes, 101)}\n")
        plugin.reread({})()
        wire = await Wire.connect(broker, "c", **_login("nurse"))
        assert wire.connack is not None
        assert wire.connack.code == ReasonCode.BAD_USER_NAME_OR_PASSWORD


def test_an_address_that_fails_too_often_waits_and_others_do_not() -> None:
    now = 1_000.0
    limits = Limits(login_failures=6)
    reached = Reached(lambda: now)
    failures = Failures(limits, reached, lambda: now)
    for _ in range(6):
        assert failures.may_try("192.0.2.1")
        failures.failed("192.0.2.1")
    assert not failures.may_try("192.0.2.1")
    assert reached.counts["login_failures"] == 1
    assert failures.may_try("192.0.2.2")
    now += 10.5
    assert failures.may_try("192.0.2.1"), "one of six in a minute is forgotten after ten seconds"
    for _ in range(50):
        failures.failed("127.0.0.1")
        failures.failed("2001:db8:1:2::1")
    assert failures.may_try("127.0.0.1")
    assert failures.may_try(None)
    assert not failures.may_try("2001:db8:1:2::ffff"), "a /64 is one"


@on_loop
async def test_who_failed_too_often_is_refused_before_anything_is_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.sockets.door.origin_of", lambda host: host)
    config = _config(tmp_path, {"nurse": MOSQUITTO_2}, limits={"login_failures": 2})
    async with serving(config) as broker:
        for code in (
            ReasonCode.BAD_USER_NAME_OR_PASSWORD,
            ReasonCode.BAD_USER_NAME_OR_PASSWORD,
            ReasonCode.QUOTA_EXCEEDED,
        ):
            wire = await Wire.connect(broker, "c", **_login("nurse", b"wrong"))
            assert wire.connack is not None
            assert wire.connack.code == code
        assert broker.operation.observe().reached["login_failures"] == 1


def test_a_login_over_mqtt_does_not_wait_for_the_consoles_passwords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for one that takes for ever, nor for as many as come."""
    go_on, check_all = threading.Event(), Users.check_password

    def check(users: Users, user: str, password: bytes) -> bool:
        return go_on.wait(20) if user == "guessed" else check_all(users, user, password)

    monkeypatch.setattr(Users, "check_password", check)

    @on_loop
    async def scenario() -> None:
        async with serving(_config(tmp_path, {"nurse": MOSQUITTO_2}, OURS)) as broker:

            def guess(number: int) -> EdgeSession:
                session = EdgeSession()
                session.username, session.password, session.from_console = "guessed", f"{number}", True
                return session

            guesses = [asyncio.ensure_future(broker.host.proves(guess(number))) for number in range(600)]
            try:
                wire = await Wire.connect(broker, "c", **_login("nurse"))
                assert wire.connack is not None
                assert wire.connack.code == 0
            finally:
                go_on.set()
            assert all(await asyncio.gather(*guesses))

    scenario()
