"""Unchanged clients of others against our broker: paho in 3.1.1 and 5, mosquitto_pub and _sub, MQTT.js."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.conftest import ROOT, tool

WAIT_S = 10.0
HERE = Path(__file__).parent


class PahoClient:
    """A connected paho client that collects its messages."""

    def __init__(self, port: int, client_id: str, version: int, **connect: Any) -> None:
        self.messages: list[paho.MQTTMessage] = []
        self._changed = threading.Condition()
        clean = {} if version == paho.MQTTv5 else {"clean_session": connect.pop("clean_session", True)}
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=version, **clean)
        if (will := connect.pop("will", None)) is not None:
            self.client.will_set(**will)
        self.subscribed = threading.Event()
        self.connected = threading.Event()
        self.flags: Any = None
        self.client.on_message = self._on_message
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        self.client.on_connect = self._on_connect
        self.client.connect("127.0.0.1", port, **connect)
        self.client.loop_start()
        assert self.connected.wait(WAIT_S)

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        assert not reason.is_failure, reason
        self.flags = flags
        self.connected.set()

    def _on_message(self, client: Any, userdata: Any, message: paho.MQTTMessage) -> None:
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    def subscribe(self, *arguments: Any, **more: Any) -> None:
        self.subscribed.clear()
        self.client.subscribe(*arguments, **more)
        assert self.subscribed.wait(WAIT_S)

    def wait(self, number: int) -> list[paho.MQTTMessage]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.messages) >= number, WAIT_S), self.messages
            return list(self.messages)

    def publish(self, *arguments: Any, **more: Any) -> None:
        self.client.publish(*arguments, **more).wait_for_publish(WAIT_S)

    def drop(self) -> None:
        """Lose the connection without DISCONNECT."""
        socket = self.client.socket()
        assert socket is not None
        self.client.on_connect = None
        self.client._reconnect_on_failure = False
        socket.shutdown(2)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def port(threaded_broker: Callable[..., Any]) -> int:
    return int(threaded_broker().port())


@pytest.fixture
def connect(port: int) -> Iterator[Callable[..., PahoClient]]:
    clients: list[PahoClient] = []

    def open_one(client_id: str, version: int = paho.MQTTv5, **more: Any) -> PahoClient:
        clients.append(PahoClient(port, client_id, version, **more))
        return clients[-1]

    yield open_one
    for client in clients:
        client.close()


@pytest.mark.parametrize("version", [paho.MQTTv31, paho.MQTTv311, paho.MQTTv5])
def test_paho_exchanges_every_qos_in_order(connect: Callable[..., PahoClient], version: int) -> None:
    sub, pub = connect("sub", version), connect("pub", version)
    sub.subscribe("t/#", 2)
    for number in range(60):
        pub.publish(f"t/{number % 3}", str(number), number % 3)
    messages = sub.wait(60)
    for qos in range(3):
        numbers = [int(message.payload) for message in messages if message.qos == qos]
        assert numbers == list(range(qos, 60, 3))


@pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])
def test_paho_gets_large_retained_and_offline_messages(connect: Callable[..., PahoClient], version: int) -> None:
    pub = connect("pub", version)
    large = bytes(range(256)) * 2_000
    pub.publish("r/large", large, 1, retain=True)
    keep: dict[str, Any] = {"clean_session": False}
    if version == paho.MQTTv5:
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 100
        keep = {"clean_start": False, "properties": properties}
    sub = connect("sub", version, **keep)
    sub.subscribe([("r/+", SubscribeOptions(1))] if version == paho.MQTTv5 else [("r/+", 1)])
    (first,) = sub.wait(1)
    assert (first.payload, first.retain) == (large, True)
    sub.close()
    for number in range(5):
        pub.publish(f"r/{number}", str(number), 1)
    again = connect("sub", version, **keep)
    assert again.flags.session_present
    assert [message.payload for message in again.wait(5)] == [b"0", b"1", b"2", b"3", b"4"]


def test_paho_5_properties_shared_subscriptions_and_no_local(connect: Callable[..., PahoClient]) -> None:
    one, two, pub = connect("one"), connect("two"), connect("pub")
    one.subscribe("$share/g/jobs", 1)
    two.subscribe("$share/g/jobs", 1)
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = ("k", "v")
    properties.ResponseTopic = "answers"
    properties.CorrelationData = b"7"
    properties.TopicAlias = 1
    for number in range(10):
        pub.publish("jobs", str(number), 1, properties=properties)
    assert len(one.wait(5)) == len(two.wait(5)) == 5
    message = one.messages[0]
    assert message.properties is not None
    assert message.properties.UserProperty == [("k", "v")]
    assert (message.properties.ResponseTopic, message.properties.CorrelationData) == ("answers", b"7")
    pub.subscribe("echo", options=SubscribeOptions(1, noLocal=True))
    pub.publish("echo", "mine", 1)
    one.publish("echo", "yours", 1)
    assert [echo.payload for echo in pub.wait(1)] == [b"yours"]


def test_paho_will_is_published_when_its_connection_breaks(connect: Callable[..., PahoClient]) -> None:
    watch = connect("watch")
    watch.subscribe("wills", 1)
    broken = connect("broken", will={"topic": "wills", "payload": "gone", "qos": 1})
    broken.drop()
    assert [message.payload for message in watch.wait(1)] == [b"gone"]


def test_paho_is_pinged_and_stays(connect: Callable[..., PahoClient]) -> None:
    client = connect("ping", keepalive=1)
    client.subscribe("t", 0)
    time.sleep(2.5)  # paho's clock cannot be passed in: two keep-alives of real time
    client.publish("t", "still here", 0)
    assert [message.payload for message in client.wait(1)] == [b"still here"]


# -------------------------------------------------------------------------------------- programs of others


def run(*command: str, **more: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, **more)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.tools
@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_mosquitto_pub_and_sub(port: int, version: str, qos: str) -> None:
    common = ["-h", "127.0.0.1", "-p", str(port), "-V", version, "-q", qos]
    pub, sub = tool("mosquitto_pub"), tool("mosquitto_sub")
    assert pub is not None
    assert sub is not None
    run(pub, *common, "-t", "m/kept", "-m", "retained", "-r")
    listener = subprocess.Popen(
        [sub, *common, "-t", "m/#", "-C", "21", "-W", "20", "-F", "%t %q %r %p"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert listener.stdout is not None
    first = listener.stdout.readline()  # subscribed, since the retained message is here
    assert first == f"m/kept {qos} 1 retained\n"
    lines = "".join(f"line {number}\n" for number in range(20))
    run(pub, *common, "-t", "m/lines", "-l", input=lines)
    output, _ = listener.communicate(timeout=25)
    assert listener.returncode == 0
    assert output == "".join(f"m/lines {qos} 0 line {number}\n" for number in range(20))


@pytest.mark.tools
def test_mosquitto_sub_sees_mqtt_5_properties(port: int) -> None:
    common = ["-h", "127.0.0.1", "-p", str(port), "-V", "mqttv5"]
    pub, sub = tool("mosquitto_pub"), tool("mosquitto_sub")
    assert pub is not None
    assert sub is not None
    run(
        *(pub, *common, "-t", "p", "-m", "x", "-r"),
        *("-D", "publish", "user-property", "k", "v"),
        *("-D", "publish", "content-type", "text/plain"),
        *("-D", "publish", "message-expiry-interval", "100"),
    )
    output = run(sub, *common, "-t", "p", "-C", "1", "-W", "10", "-F", "%C %P %E").stdout.split()
    assert output[:2] == ["text/plain", "k:v"]
    assert 90 <= int(output[2]) <= 100


@pytest.mark.tools
def test_mosquitto_sub_on_a_shared_subscription_and_will(port: int) -> None:
    sub, pub = tool("mosquitto_sub"), tool("mosquitto_pub")
    assert sub is not None
    assert pub is not None
    common = ["-h", "127.0.0.1", "-p", str(port), "-V", "mqttv5"]
    will = ["--will-topic", "w", "--will-payload", "gone", "--will-retain"]
    first = subprocess.Popen([sub, *common, "-t", "$share/g/jobs", "-i", "first", *will])
    watch = subprocess.Popen([sub, *common, "-t", "w", "-C", "1", "-W", "20"], stdout=subprocess.PIPE, text=True)
    time.sleep(0.3)  # mosquitto_sub says nowhere that it is connected
    first.kill()
    first.wait()
    assert watch.communicate(timeout=25)[0] == "gone\n"


EXTREMES: list[dict[str, Any]] = [
    {"packet_bytes": 268_435_460, "receive_maximum": 65_535, "topic_aliases": 65_535, "keep_alive_max_s": 65_535,
     "session_expiry_s": 0xFFFF_FFFF},
    {"packet_bytes": 256, "receive_maximum": 1, "topic_aliases": 0, "keep_alive_max_s": 1, "session_expiry_s": 0},
    {"receive_maximum": 65_534, "session_expiry_s": 0xFFFF_FFFE},
]  # fmt: skip
"""Of every limit that CONNACK announces, the largest and the smallest that a configuration may have."""


@pytest.mark.parametrize("limits", EXTREMES)
def test_whatever_is_configured_paho_takes_what_connack_announces(
    threaded_broker: Callable[..., Any], limits: dict[str, Any]
) -> None:
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval, properties.RequestResponseInformation = 100, 1
    port = threaded_broker({"limits": limits}).port()
    client = PahoClient(port, "", paho.MQTTv5, properties=properties)
    client.subscribe("t", 1)
    client.publish("t", b"x", 1)
    client.wait(1)
    client.close()


@pytest.mark.tools
@pytest.mark.parametrize("limits", EXTREMES)
def test_whatever_is_configured_mosquitto_and_mqtt_js_take_what_connack_announces(
    threaded_broker: Callable[..., Any], limits: dict[str, Any]
) -> None:
    pub, node = tool("mosquitto_pub"), tool("node")
    assert pub is not None
    assert node is not None
    port = threaded_broker({"limits": limits}).port()
    lasting = ["-c", "-i", "m"]
    run(pub, "-h", "127.0.0.1", "-p", str(port), "-V", "mqttv5", *lasting, "-t", "t", "-m", "x", "-q", "1", "-r")
    script = """
        const mqtt = require("module").createRequire(process.cwd() + "/")("mqtt");
        const client = mqtt.connect(`mqtt://127.0.0.1:${process.argv[1]}`, {
          protocolVersion: 5, clientId: "", reconnectPeriod: 0,
          properties: { sessionExpiryInterval: 100, requestResponseInformation: true } });
        client.on("message", (topic) => { console.log(topic); client.end(true); });
        client.subscribe("t", { qos: 1 });
    """
    assert run(node, "-e", script, str(port), cwd=ROOT / ".tools").stdout == "t\n"


SMALL, LARGE = b"small", b"x" * 2_000
MOST_BYTES = 1_000


def test_paho_gets_nothing_that_is_longer_than_it_says_it_takes(connect: Callable[..., PahoClient]) -> None:
    properties = Properties(PacketTypes.CONNECT)
    properties.MaximumPacketSize = MOST_BYTES
    narrow, wide = connect("narrow", properties=properties), connect("wide")
    for client in (narrow, wide):
        client.subscribe("size/#", 1)
    for payload in (LARGE, SMALL):
        wide.publish("size/live", payload, 1)
    assert [message.payload for message in wide.wait(2)] == [LARGE, SMALL]
    assert [message.payload for message in narrow.wait(1)] == [SMALL]


@pytest.mark.tools
def test_mosquitto_sub_and_mqtt_js_get_nothing_that_is_longer_than_they_say_they_take(
    port: int, connect: Callable[..., PahoClient]
) -> None:
    sub, node = tool("mosquitto_sub"), tool("node")
    assert sub is not None
    assert node is not None
    sender = connect("sender")
    for topic, payload in (("size/a", LARGE), ("size/b", SMALL)):
        sender.publish(topic, payload, 1, retain=True)
    most = ["-D", "connect", "maximum-packet-size", str(MOST_BYTES)]
    common = ["-h", "127.0.0.1", "-p", str(port), "-V", "mqttv5", "-t", "size/#", "-q", "1", "-W", "10"]
    assert run(sub, *common, *most, "-C", "1", "-F", "%t").stdout == "size/b\n"
    assert sorted(run(sub, *common, "-C", "2", "-F", "%t").stdout.split()) == ["size/a", "size/b"]
    script = """
        const mqtt = require("module").createRequire(process.cwd() + "/")("mqtt");
        const [port, most] = process.argv.slice(1).map(Number);
        const client = mqtt.connect(`mqtt://127.0.0.1:${port}`, {
          protocolVersion: 5, clientId: "narrow", properties: { maximumPacketSize: most } });
        client.on("message", (topic) => { console.log(topic); client.end(true); });
        client.subscribe("size/#", { qos: 1 });
    """
    done = run(node, "-e", script, str(port), str(MOST_BYTES), cwd=ROOT / ".tools")
    assert done.stdout == "size/b\n"


@pytest.mark.tools
@pytest.mark.parametrize("version", [3, 4, 5])
def test_mqtt_js(port: int, version: int) -> None:
    node = tool("node")
    assert node is not None
    done = run(node, str(HERE / "mqttjs.cjs"), str(port), str(version), cwd=ROOT / ".tools")
    seen = json.loads(done.stdout)
    assert seen["order"] == list(range(30))
    assert seen["retained"] == "kept"
    assert seen["will"] == "gone"
    if version == 5:
        assert seen["properties"]["userProperties"] == {"k": ["v", "w"]}
        assert seen["properties"]["contentType"] == "text/plain"
        assert seen["shared"] == [5, 5]
