"""Debian's HAProxy in front of a listener, with both versions of its header, with and without TLS behind it."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest

from gateway.base.config import parse
from tests.conftest import ThreadedBroker, tool
from tests.gateway.certificates import Authority
from tests.ports import free_ports
from tests.waits import wait_until

pytestmark = pytest.mark.skipif(tool("haproxy") is None, reason="no haproxy here; make tools")
WAIT_S = 30.0
CONF = """
global
  log stdout format raw local0 warning
defaults
  mode tcp
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen mqtt
  bind 127.0.0.1:{front}
  source 127.0.0.3
  server broker 127.0.0.1:{back} {how}
"""


@contextmanager
def haproxy(directory: Path, front: int, back: int, how: str) -> Iterator[None]:
    conf = directory / f"{front}.cfg"
    conf.write_text(CONF.format(front=front, back=back, how=how))
    process = subprocess.Popen([str(tool("haproxy")), "-db", "-f", str(conf)])
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.parametrize("is_tls", [False, True])
@pytest.mark.parametrize(
    "how", ["send-proxy", "send-proxy-v2 check", "send-proxy-v2 proxy-v2-options unique-id,crc32c"]
)
def test_clients_behind_haproxy_have_their_own_address(tmp_path: Path, how: str, is_tls: bool) -> None:
    authority = Authority(tmp_path)
    certfile, keyfile = authority.issue("localhost")
    tls = {"ssl": True, "certfile": str(certfile), "keyfile": str(keyfile)} if is_tls else {}
    listener = {"bind": "127.0.0.1:0", "proxy": ["127.0.0.3"], **tls}
    broker = ThreadedBroker(parse({"listeners": {"default": listener}, "allow_anonymous": True})).start()
    (front,) = free_ports(1)
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "c", protocol=mqtt.MQTTv5)
    if is_tls:
        client.tls_set_context(ssl.create_default_context(cafile=str(authority.cafile)))
    got: list[bytes] = []
    client.on_message = lambda _c, _u, message: got.append(message.payload)
    client.on_connect = lambda *_: client.subscribe("t", 1)
    client.on_subscribe = lambda *_: client.publish("t", b"x" * 100_000, 1)
    client.connect_timeout = 5
    try:
        with haproxy(tmp_path, front, broker.port(), how):

            def is_connected() -> bool:
                try:
                    return client.connect("localhost", front) == mqtt.MQTT_ERR_SUCCESS
                except OSError:
                    return False  # HAProxy is not up yet

            assert wait_until(is_connected, WAIT_S, every_s=0.1)
            client.loop_start()
            assert wait_until(lambda: got == [b"x" * 100_000], WAIT_S)
            peer = broker.broker.lifecycle.clients["c"].connection.peer
            sock = client.socket()
            assert sock is not None
            assert peer == ("127.0.0.1", sock.getsockname()[1]), "the client's own, not 127.0.0.3 of HAProxy"
    finally:
        client.disconnect()
        client.loop_stop()
        broker.stop()


def test_a_client_that_passes_haproxy_by_is_closed(tmp_path: Path) -> None:
    listener = {"bind": "127.0.0.1:0", "proxy": ["127.0.0.3"]}
    broker = ThreadedBroker(parse({"listeners": {"default": listener}, "allow_anonymous": True})).start()
    try:
        command = ["mosquitto_pub", "-p", str(broker.port()), "-t", "t", "-m", "x"]
        if shutil.which("mosquitto_pub") is None:
            pytest.skip("no mosquitto_pub here; make tools")
        assert subprocess.run(command, capture_output=True, timeout=30, check=False).returncode != 0
    finally:
        broker.stop()
