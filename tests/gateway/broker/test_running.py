"""Starting and ending: what cannot start says so in one line.

SIGHUP: what is read again counts at once for everybody, connections stay, and a mistake changes nothing.

A certificate that somebody replaces is shown to the next handshake without a signal and without a restart.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.auth.password_hashes import make_hash
from gateway.base.config import Settings, StartError, load, parse
from gateway.broker.edge_broker import EdgeBroker
from gateway.broker.running import RenewedCertificates, make_broker, reload, run_broker
from gateway.mqtt5.packets import (
    Disconnect,
    PubAck,
    Publish,
    Version,
)
from gateway.mqtt5.types import ReasonCode
from gateway.sockets.gone import tell_unless_gone
from tests.gateway.certificates import Authority
from tests.gateway.harness import LOOPBACK, Wire, cut_all, on_loop, serving
from tests.waits import until


def listener(directory: Path, authority: Authority) -> dict[str, Any]:
    certfile, keyfile = authority.issue("localhost")
    certfile.rename(directory / "cert.pem")
    keyfile.rename(directory / "key.pem")
    files = {"certfile": str(directory / "cert.pem"), "keyfile": str(directory / "key.pem")}
    return {"default": {"bind": "127.0.0.1:0", "ssl": True, **files}, "plain": {"bind": "127.0.0.1:0", "ssl": False}}


@on_loop
async def test_the_next_handshake_sees_it_and_half_a_pair_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for name in "ab":
        (tmp_path / name).mkdir()
    first, second = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    site = ConfiguredBroker(tmp_path, listeners=listener(tmp_path, first))
    async with site as broker:
        renewed = RenewedCertificates(broker, lambda: site.settings)
        stays = await Wire.connect(broker, "stays", context=first.client())
        renewed.take_over_replaced()
        assert "shows" not in caplog.text
        certfile, keyfile = second.issue("localhost")
        certfile.rename(tmp_path / "cert.pem")
        renewed.take_over_replaced()
        assert "the certificate of before goes on" in caplog.text
        await (await Wire.connect(broker, "between", context=first.client())).barrier()
        keyfile.rename(tmp_path / "key.pem")
        renewed.take_over_replaced()
        await (await Wire.connect(broker, "later", context=second.client())).barrier()
        await stays.barrier()
        with pytest.raises(ssl.SSLError):
            await Wire.open(broker, context=first.client())
        assert caplog.text.count("shows the certificate in") == 1


PASSWORDS = "gateway.auth.passwords.PasswordPlugin"
ACL_FILE = "gateway.auth.acl_file.AclFilePlugin"
ACL = "gateway.auth.acl_file.AclPlugin"


def _hash(password: str) -> str:
    return make_hash(password.encode(), secrets.token_bytes, 10)


class ConfiguredBroker:
    """A configuration on disk and a broker that runs by it."""

    def __init__(self, path: Path, **content: Any) -> None:
        self.path, self.file = path, path / "broker.yaml"
        self.content: dict[str, Any] = {"listeners": {"default": {"bind": "127.0.0.1:0"}}, "allow_anonymous": True}
        self.write(**content)
        self.settings = load(self.file)
        self.broker: EdgeBroker | None = None

    def write(self, **content: Any) -> None:
        self.content |= content
        self.file.write_text(yaml.safe_dump(self.content))

    async def __aenter__(self) -> EdgeBroker:
        from gateway.broker.running import make_broker

        self.broker = make_broker(self.settings)
        await self.broker.start()
        return self.broker

    async def __aexit__(self, *_: object) -> None:
        assert self.broker is not None
        await self.broker.shutdown()
        cut_all()

    def again(self) -> Settings:
        assert self.broker is not None
        self.settings = reload(self.broker, self.settings, lambda: load(self.file))
        return self.settings


@on_loop
async def test_a_new_password_file_counts_and_other_users_connections_stay(tmp_path: Path) -> None:
    others = f"doctor:{_hash('same')}\n"
    (tmp_path / "passwords").write_text(f"nurse:{_hash('old')}\n{others}")
    site = ConfiguredBroker(tmp_path, allow_anonymous=False, plugins={PASSWORDS: {"password_file": "passwords"}})
    async with site as broker:
        stays = await Wire.connect(broker, "stays", username="doctor", password=b"same")
        goes = await Wire.connect(broker, "goes", username="nurse", password=b"old")
        for one in (stays, goes):
            assert one.connack is not None
            assert one.connack.code == 0
        (tmp_path / "passwords").write_text(f"nurse:{_hash('new')}\n{others}")
        site.again()
        assert (await goes.expect(Disconnect)).code == ReasonCode.ADMINISTRATIVE_ACTION
        for password, code in ((b"old", ReasonCode.BAD_USER_NAME_OR_PASSWORD), (b"new", 0)):
            wire = await Wire.connect(broker, "c", username="nurse", password=password)
            assert wire.connack is not None
            assert wire.connack.code == code
        await stays.barrier()


@pytest.mark.parametrize("plugin", [ACL_FILE, ACL])
def test_new_rules_count_for_those_who_are_connected_and_subscribed(plugin: str, tmp_path: Path) -> None:
    def rules(topic: str) -> dict[str, Any]:
        (tmp_path / "acl").write_text(f"topic readwrite {topic}\n")
        table = {"anonymous": [topic]}
        return {plugin: {"acl_file": "acl"} if plugin == ACL_FILE else {"publish_acl": table, "subscribe_acl": table}}

    @on_loop
    async def check() -> None:
        site = ConfiguredBroker(tmp_path, plugins=rules("ward/#"))
        async with site as broker:
            sub, pub = await Wire.connect(broker, "sub"), await Wire.connect(broker, "pub")
            assert await sub.subscribe("ward/#") == 0
            pub.send(Publish("ward/1", b"before", 1, packet_id=1))
            assert (await pub.expect(PubAck)).code == 0
            assert await sub.published() == [("ward/1", b"before")]
            site.write(plugins=rules("hall/#"))
            site.again()
            pub.send(Publish("ward/1", b"after", 1, packet_id=2))
            assert (await pub.expect(PubAck)).code == ReasonCode.NOT_AUTHORIZED
            assert await sub.published() == []
            assert await sub.subscribe("hall/#") == 0
            await broker.internal_message_broadcast("ward/1", b"of a plugin")
            assert await sub.published() == [], "a right that was taken away ends deliveries"

    check()


@on_loop
async def test_a_new_certificate_is_shown_to_the_next_handshake_and_its_ca_counts(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    first, second = Authority(tmp_path / "a"), Authority(tmp_path / "b")

    def listener(authority: Authority) -> dict[str, Any]:
        certfile, keyfile = authority.issue("localhost")
        files = {"certfile": str(certfile), "keyfile": str(keyfile), "cafile": str(authority.cafile)}
        return {"default": {"bind": "127.0.0.1:0", "ssl": True, "require_client_certificate": True, **files}}

    site = ConfiguredBroker(tmp_path, listeners=listener(first))
    async with site as broker:
        stays = await Wire.connect(broker, "stays", context=first.client("client"))
        site.write(listeners=listener(second))
        site.again()
        later = await Wire.connect(broker, "later", context=second.client("client"))
        await later.barrier()
        await stays.barrier()
        with pytest.raises(ssl.SSLError):
            await Wire.open(broker, context=first.client("client"))


@on_loop
async def test_new_limits_count_for_sessions_that_are_there(tmp_path: Path) -> None:
    site = ConfiguredBroker(tmp_path, limits={"topic_levels": 4})
    async with site as broker:
        wire = await Wire.connect(broker, "c")
        wire.send(Publish("a/b/c", b"", 1, packet_id=1))
        assert (await wire.expect(PubAck)).code in (0, ReasonCode.NO_MATCHING_SUBSCRIBERS)
        site.write(limits={"topic_levels": 2, "subscriptions": 1, "queue_messages": 7, "connections": 1})
        site.again()
        wire.send(Publish("a/b/c", b"", 1, packet_id=2))
        assert (await wire.expect(PubAck)).code == ReasonCode.TOPIC_NAME_INVALID
        assert await wire.subscribe("a") == 0
        assert await wire.subscribe("b") == ReasonCode.QUOTA_EXCEEDED
        assert broker.lifecycle.clients["c"].session.limits.queue_messages == 7
        assert broker.operation.limits.queue_messages == 7
        assert await (await Wire.open(broker)).closed() == []


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ({"limits": {"connections": 0}}, "limits.connections"),
        ({"plugins": {PASSWORDS: {"password_file": "gone"}}}, "gone"),
        ({"listeners": {"default": {"bind": "127.0.0.1:0", "ssl": True, "certfile": "no", "keyfile": "no"}}}, "no"),
    ],
)
def test_a_mistake_is_said_and_changes_nothing(
    mistake: dict[str, Any], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @on_loop
    async def check() -> None:
        (tmp_path / "passwords").write_text(f"nurse:{_hash('old')}\n")
        site = ConfiguredBroker(
            tmp_path, limits={"queue_messages": 9}, plugins={PASSWORDS: {"password_file": "passwords"}}
        )
        async with site as broker:
            before = site.settings
            (tmp_path / "passwords").write_text(f"nurse:{_hash('new')}\n")
            site.write(**{"limits": {"queue_messages": 5}, **mistake})
            assert site.again() is before
            assert broker.limits.queue_messages == 9
            record = next(one for one in caplog.records if one.message.startswith("not reloaded"))
            assert said in vars(record)["reason"]
            wire = await Wire.connect(broker, "c", username="nurse", password=b"old")
            assert wire.connack is not None
            assert wire.connack.code == 0

    check()


@on_loop
async def test_what_needs_a_restart_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = ConfiguredBroker(tmp_path)
    async with site:
        caplog.set_level("INFO", "veilmq")
        site.write(
            listeners={"default": {"bind": "127.0.0.1:1"}, "more": {"bind": "127.0.0.1:2"}},
            data="elsewhere",
            log_level="warning",
        )
        caplog.clear()
        site.again()
        (record,) = [one for one in caplog.records if one.message == "reloaded"] or [None]
        if record is not None:
            assert vars(record)["needs_restart"] == "data, listeners.default, listeners.more"


@on_loop
async def test_the_signal_reads_the_configuration_again(tmp_path: Path) -> None:
    site = ConfiguredBroker(tmp_path)
    reads: list[int] = []
    seen: list[EdgeBroker] = []

    def read() -> Settings:
        reads.append(1)
        return load(site.file)

    stop = asyncio.Event()
    running = asyncio.create_task(run_broker(site.settings, started=seen.append, stop=stop, read=read))
    await until(lambda: bool(seen) and seen[0].transitions.state == "started")
    await asyncio.sleep(0)
    wire = await Wire.connect(seen[0], "c")
    site.write(limits={"queue_messages": 5})
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: bool(reads) and seen[0].limits.queue_messages == 5)
    await wire.barrier()
    stop.set()
    await running
    cut_all()


def test_the_signal_kills_no_broker(tmp_path: Path) -> None:
    """A process of its own, from the command line to its end."""
    site = ConfiguredBroker(tmp_path, log_level="info")
    command = [sys.executable, "-m", "gateway.cli", "broker", "-c", str(site.file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if "listener default" in line:
                    break
            site.write(limits={"queue_messages": 5})
            process.send_signal(signal.SIGHUP)
            for line in process.stderr:
                if "reloaded" in line:
                    break
            assert process.poll() is None
        finally:
            process.terminate()
        assert process.wait(20) == 0


@on_loop
async def test_proxies_that_are_named_anew_count_after_a_restart_and_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = ConfiguredBroker(tmp_path)
    async with site:
        caplog.set_level("INFO", "veilmq")
        site.write(listeners={"default": {"bind": "127.0.0.1:0", "proxy": ["192.0.2.7"]}})
        caplog.clear()
        site.again()
        (record,) = [one for one in caplog.records if one.message == "reloaded"]
        assert vars(record)["needs_restart"] == "listeners.default"


V3, V5 = Version.V311, Version.V5


def test_a_port_in_use_is_one_clear_line() -> None:
    async def check() -> None:
        async with serving() as broker:
            second = make_broker(parse({"listeners": {"default": {"bind": f"127.0.0.1:{broker.port()}"}}}))
            with pytest.raises(StartError, match=r"listener default: .*the port is in use") as caught:
                await second.start()
            assert "\n" not in str(caught.value)

    asyncio.run(check())


@pytest.mark.parametrize("bind", ["no.such.host.invalid:1", "8.8.8.8:1883"])
def test_an_address_that_cannot_be_bound_is_one_clear_line(bind: str) -> None:
    async def check() -> None:
        with pytest.raises(StartError, match=r"listener default: .*correct bind"):
            await make_broker(parse({"listeners": {"default": {"bind": bind}}})).start()

    asyncio.run(check())


def test_a_plugin_that_does_not_exist_is_one_clear_line() -> None:
    async def check() -> None:
        with pytest.raises(StartError, match=r"no\.such\.Plugin"):
            make_broker(parse({"listeners": LOOPBACK, "plugins": {"no.such.Plugin": {}}}))

    asyncio.run(check())


def test_a_broker_serves_until_it_is_told_to_stop_and_says_when_it_begins() -> None:
    async def check() -> None:
        begun: list[EdgeBroker] = []
        stop = asyncio.Event()
        settings = parse({"listeners": LOOPBACK, "allow_anonymous": True})
        running = asyncio.create_task(run_broker(settings, started=begun.append, stop=stop))
        await until(lambda: bool(begun) and begun[0].transitions.state == "started")
        assert asyncio.get_running_loop().get_exception_handler() is tell_unless_gone
        wire = await Wire.connect(begun[0], "c")
        stop.set()
        await running
        (bye,) = await wire.closed()
        wire.cut()
        assert isinstance(bye, Disconnect)
        assert bye.code == ReasonCode.SERVER_SHUTTING_DOWN
        assert begun[0].transitions.state == "stopped"

    asyncio.run(check())


def test_what_does_not_finish_in_time_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        begun: list[EdgeBroker] = []
        stop = asyncio.Event()
        settings = parse({"listeners": LOOPBACK, "limits": {"shutdown_s": 0.05}})
        running = asyncio.create_task(run_broker(settings, started=begun.append, stop=stop))
        await until(lambda: bool(begun) and begun[0].transitions.state == "started")
        ends = begun[0].shutdown
        monkeypatch.setattr(begun[0], "shutdown", asyncio.Event().wait)
        stop.set()
        await running
        await ends()
        assert "limits.shutdown_s is over" in caplog.text

    asyncio.run(check())


def test_a_broker_that_cannot_start_ends_without_being_stopped() -> None:
    async def check() -> None:
        async with serving() as broker:
            taken = parse({"listeners": {"default": {"bind": f"127.0.0.1:{broker.port()}"}}})
            with pytest.raises(StartError, match="in use"):
                await run_broker(taken)

    asyncio.run(check())
