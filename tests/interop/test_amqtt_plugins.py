"""amqtt's packaged and contrib plugins, unchanged, in our broker, with paho as the client.

LDAP is left out: there is no wheel of its library. Plugins that need a service get one on loopback.
"""

from __future__ import annotations

import http.server
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import jwt
import paho.mqtt.client as paho
import pytest
from argon2 import PasswordHasher
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.gateway.certificates import Authority

WAIT_S = 10.0
VERSIONS = pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])
FILE_AUTH = "amqtt.plugins.authentication.FileAuthPlugin"
ACL = "amqtt.plugins.topic_checking.TopicAccessControlListPlugin"
SYS = "amqtt.plugins.sys.broker.BrokerSysPlugin"
SESSIONS = "amqtt.contrib.persistence.SessionDBPlugin"


class Client:
    """A paho client that has tried to log in: `reason` says how that went."""

    def __init__(
        self,
        port: int,
        client_id: str,
        user: str | None = None,
        password: str | None = None,
        version: int = paho.MQTTv5,
        context: ssl.SSLContext | None = None,
        keep: bool = False,
    ) -> None:
        more: dict[str, Any] = {} if version == paho.MQTTv5 else {"clean_session": not keep}
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=version, **more)
        if context is not None:
            self.client.tls_set_context(context)
            self.client.tls_insecure_set(True)
        if user is not None:
            self.client.username_pw_set(user, password)
        self.reason: Any = None
        self.session_present = False
        self.messages: list[tuple[str, bytes]] = []
        self._codes: list[Any] = []
        self._changed = threading.Condition()
        self.client.on_connect = self._on_connect
        self.client.on_message = lambda _, __, message: self._add(self.messages, (message.topic, message.payload))
        self.client.on_subscribe = lambda _, __, ___, codes, ____: self._add(self._codes, codes)
        properties = Properties(PacketTypes.CONNECT)
        if keep:
            properties.SessionExpiryInterval = 1_000
        start: dict[str, Any] = {"clean_start": not keep, "properties": properties} if version == paho.MQTTv5 else {}
        self.client.connect("127.0.0.1", port, **start)
        self.client.loop_start()
        with self._changed:
            assert self._changed.wait_for(lambda: self.reason is not None, WAIT_S)

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        client._reconnect_on_failure = False
        with self._changed:
            self.reason, self.session_present = reason, flags.session_present
            self._changed.notify_all()

    def _add(self, kept: list[Any], what: Any) -> None:
        with self._changed:
            kept.append(what)
            self._changed.notify_all()

    @property
    def is_in(self) -> bool:
        return not self.reason.is_failure

    def subscribe(self, topic_filter: str) -> bool:
        """Whether the broker granted it."""
        number = len(self._codes)
        self.client.subscribe(topic_filter, 1)
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._codes) > number, WAIT_S)
        return not self._codes[-1][0].is_failure

    def publish(self, topic: str, payload: str, retain: bool = False) -> None:
        self.client.publish(topic, payload, 1, retain=retain).wait_for_publish(WAIT_S)

    def wait(self, number: int) -> list[tuple[str, bytes]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.messages) >= number, WAIT_S), self.messages
            return list(self.messages)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def client() -> Iterator[Callable[..., Client]]:
    opened: list[Client] = []

    def connect(*arguments: Any, **more: Any) -> Client:
        opened.append(Client(*arguments, **more))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


def closed(**plugins: Any) -> dict[str, Any]:
    """A configuration in which the plugins alone say who gets in."""
    return {"allow_anonymous": False, **plugins}


@VERSIONS
def test_password_file(threaded_broker: Any, client: Any, tmp_path: Path, version: int) -> None:
    path = tmp_path / "passwords"
    hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    path.write_text(f"# users\nnurse:{hasher.hash('secret')}\n")
    port = threaded_broker(closed(plugins={FILE_AUTH: {"password_file": str(path)}})).port()
    assert client(port, "a", "nurse", "secret", version).is_in
    for number, (user, password) in enumerate((("nurse", "wrong"), ("doctor", "secret"), ("nurse", ""), (None, None))):
        assert not client(port, f"b{number}", user, password, version).is_in


@VERSIONS
def test_topic_acl(threaded_broker: Any, client: Any, version: int) -> None:
    rules = {
        "acl": {"nurse": ["ward/#"], "monitor": []},
        "publish_acl": {"monitor": ["ward/+/pulse"], "nurse": []},
    }
    config = {"plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": False}, ACL: rules}}
    port = threaded_broker(config).port()
    nurse, monitor = client(port, "n", "nurse", "", version), client(port, "m", "monitor", "", version)
    assert nurse.subscribe("ward/+/pulse")
    assert not nurse.subscribe("staff/#")
    assert not monitor.subscribe("ward/#")
    monitor.publish("staff/door", "not permitted to publish")
    nurse.publish("ward/7/pulse", "not permitted to publish")
    monitor.publish("ward/7/pulse", "60")
    assert nurse.wait(1) == [("ward/7/pulse", b"60")]


JWT_KEY = "0123456789abcdef0123456789abcdef"


@VERSIONS
def test_jwt(threaded_broker: Any, client: Any, version: int) -> None:
    claims = {"publish_claim": "pub", "subscribe_claim": "sub_", "receive_claim": "rec"}
    plugins = {
        "amqtt.contrib.jwt.UserAuthJwtPlugin": {"secret_key": JWT_KEY, "user_claim": "user"},
        "amqtt.contrib.jwt.TopicAuthJwtPlugin": {"secret_key": JWT_KEY, **claims},
    }
    port = threaded_broker(closed(plugins=plugins)).port()

    def token(user: str, key: str = JWT_KEY, expires_s: int = 100) -> str:
        rights = {"pub": ["ward/+/pulse"], "sub_": ["ward/#"], "rec": ["ward/7/#"]}
        return jwt.encode({"user": user, "exp": int(time.time()) + expires_s, **rights}, key, "HS256")

    device = client(port, "d", "device", token("device"), version)
    assert device.is_in
    assert device.subscribe("ward/#")
    assert not device.subscribe("staff/#")
    device.publish("ward/7/door", "may not be published")
    device.publish("ward/8/pulse", "may not be received")
    device.publish("ward/7/pulse", "60")
    assert device.wait(1) == [("ward/7/pulse", b"60")]
    for number, bad in enumerate((token("other"), token("device", JWT_KEY[::-1]), token("device", expires_s=-1), "x")):
        assert not client(port, f"b{number}", "device", bad, version).is_in


class _Service(http.server.BaseHTTPRequestHandler):
    """The web service that the HTTP plugins ask, as amqtt's manual describes it."""

    asked: ClassVar[list[tuple[str, dict[str, Any]]]] = []
    closed_topics: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        self.asked.append((self.path, asked))
        if self.path == "/user":
            is_good = asked["username"] == "nurse" and asked["password"] == "secret"
        else:
            is_good = asked["topic"] not in self.closed_topics
        body = json.dumps({"ok": is_good}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@VERSIONS
def test_http(threaded_broker: Any, client: Any, version: int) -> None:
    _Service.asked.clear()
    _Service.closed_topics.clear()
    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Service)
    thread = threading.Thread(target=service.serve_forever, daemon=True)
    thread.start()
    where = {"host": "127.0.0.1", "port": service.server_port}
    plugins = {
        "amqtt.contrib.http.UserAuthHttpPlugin": {**where, "user_uri": "/user"},
        "amqtt.contrib.http.TopicAuthHttpPlugin": {**where, "topic_uri": "/acl"},
    }
    port = threaded_broker(closed(plugins=plugins)).port()
    nurse = client(port, "n", "nurse", "secret", version)
    assert nurse.is_in
    assert not client(port, "x", "nurse", "wrong", version).is_in
    assert nurse.subscribe("ward/7")
    nurse.publish("ward/7", "one")
    assert nurse.wait(1) == [("ward/7", b"one")]
    # A right that the service takes away is gone at once: the verdict is not remembered.
    _Service.closed_topics.add("ward/7")
    nurse.publish("ward/7", "two")
    assert not nurse.subscribe("ward/7")
    _Service.closed_topics.clear()
    nurse.publish("ward/7", "three")
    assert nurse.wait(2)[1] == ("ward/7", b"three")
    rights = {question["acc"] for path, question in _Service.asked if path == "/acl"}
    assert rights == {1, 2, 4}
    service.shutdown()
    service.server_close()
    thread.join()
    # Without the service nobody gets in and nothing passes.
    assert not client(port, "late", "nurse", "secret", version).is_in


@VERSIONS
def test_certificate(threaded_broker: Any, client: Any, tmp_path: Path, version: int) -> None:
    authority = Authority(tmp_path)
    certfile, keyfile = authority.issue("127.0.0.1")
    listener = {
        "bind": "127.0.0.1:0",
        "ssl": True,
        "certfile": str(certfile),
        "keyfile": str(keyfile),
        "cafile": str(authority.cafile),
    }
    plugins = {"amqtt.contrib.cert.UserAuthCertPlugin": {"uri_domain": "ward.example"}}
    port = threaded_broker(closed(plugins=plugins, listeners={"default": listener})).port()

    def context(name: str, uri: str | None) -> ssl.SSLContext:
        made = authority.client()
        made.load_cert_chain(*authority.issue(name, uri))
        return made

    device = context("pump", "spiffe://ward.example/device/pump-1")
    assert client(port, "pump-1", None, None, version, device).is_in
    assert not client(port, "pump-2", None, None, version, device).is_in
    other = context("other", "spiffe://evil.example/device/pump-1")
    assert not client(port, "pump-1", None, None, version, other).is_in
    assert not client(port, "pump-1", None, None, version, context("none", None)).is_in
    assert not client(port, "pump-1", None, None, version, authority.client()).is_in


def sessions(database: Path, **more: Any) -> dict[str, Any]:
    """amqtt keeps nothing of anonymous clients, so its own rule lets any named one in."""
    plugins = {
        "amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": False},
        SESSIONS: {"connection": f"sqlite+aiosqlite:///{database}", "clear_on_shutdown": False},
    }
    return closed(plugins=plugins, **more)


@VERSIONS
def test_session_persistence(threaded_broker: Any, client: Any, tmp_path: Path, version: int) -> None:
    config = sessions(tmp_path / "amqtt.db")
    first = threaded_broker(config)
    nurse = client(first.port(), "n", "nurse", "", version, keep=True)
    assert nurse.subscribe("ward/#")
    nurse.publish("notice", "kept", retain=True)
    nurse.close()
    monitor = client(first.port(), "m", "monitor", "", version)
    monitor.publish("ward/7", "while away")
    monitor.close()
    first.stop()
    second = threaded_broker(config)
    nurse = client(second.port(), "n", "nurse", "", version, keep=True)
    assert nurse.session_present
    assert nurse.wait(1) == [("ward/7", b"while away")]
    assert nurse.subscribe("notice")
    assert nurse.wait(2)[1] == ("notice", b"kept")


@VERSIONS
def test_session_persistence_observes_where_the_broker_has_a_store(
    threaded_broker: Any, client: Any, tmp_path: Path, version: int
) -> None:
    """What amqtt's plugin remembers differently (it never forgets a subscription) does not come back."""
    config = sessions(tmp_path / "amqtt.db", data=str(tmp_path / "data"))
    first = threaded_broker(config)
    nurse = client(first.port(), "n", "nurse", "", version, keep=True)
    assert nurse.subscribe("ward/#")
    assert nurse.subscribe("gone/#")
    nurse.client.unsubscribe("gone/#")
    nurse.publish("notice", "old", retain=True)
    nurse.publish("notice", "new", retain=True)
    nurse.close()
    monitor = client(first.port(), "m", "monitor", "", version)
    monitor.publish("ward/7", "once")
    monitor.close()
    first.stop()
    second = threaded_broker(config)
    nurse = client(second.port(), "n", "nurse", "", version, keep=True)
    assert nurse.session_present
    monitor = client(second.port(), "m", "monitor", "", version)
    monitor.publish("gone/1", "unsubscribed")
    monitor.publish("ward/8", "last")
    assert nurse.wait(2) == [("ward/7", b"once"), ("ward/8", b"last")]
    assert nurse.subscribe("notice")
    assert nurse.wait(3)[2] == ("notice", b"new")


@VERSIONS
@pytest.mark.filterwarnings("ignore:`BrokerSysPlugin`:DeprecationWarning")
@pytest.mark.parametrize("beside", [None, 1], ids=["alone", "beside our own"])
def test_sys_topics(threaded_broker: Any, client: Any, version: int, beside: int | None) -> None:
    config: dict[str, Any] = {"plugins": {SYS: {"sys_interval": 1}}}
    if beside is not None:
        config["sys_interval"] = beside
    port = threaded_broker(config).port()
    watch = client(port, "w", version=version)
    assert watch.subscribe("$SYS/broker/#")
    deadline = time.monotonic() + WAIT_S
    # Our own topics lack the processor's share, so that one is the plugin's; both count one client in the end.
    wanted = {"$SYS/broker/version", "$SYS/broker/cpu/percent"}
    while not (
        wanted <= dict(watch.messages).keys() and dict(watch.messages).get("$SYS/broker/clients/connected") == b"1"
    ):
        assert time.monotonic() < deadline, sorted(dict(watch.messages))
        watch.wait(len(watch.messages) + 1)
    assert (b"aMQTT" in dict(watch.messages)["$SYS/broker/version"]) is (beside is None)
