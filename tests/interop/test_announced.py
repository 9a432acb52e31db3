"""Every property that our CONNACK and PUBLISH announce, at its extremes, before real client libraries.

MQTT 5.0 §3.2.2.3 and §3.3.2.3 allow more than some libraries take: paho refuses a Maximum Packet Size above
268,435,455. A small server with our encoder accepts each client by `acceptance`, as the broker does, with limits at
their extremes. It then sends a PUBLISH for each property at an extreme. A client that takes them prints each topic.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.mqtt5.actions import ServerOffer
from gateway.mqtt5.codec import Decoder
from gateway.mqtt5.encoding import encode
from gateway.mqtt5.endings import acceptance, tellings
from gateway.mqtt5.packets import NO_PROPERTIES, ConnAck, Connect, Properties, Publish, SubAck, Subscribe, Version
from gateway.mqtt5.properties import TABLE, Carrier
from tests.conftest import ROOT, tool

MOST = 268_435_455
"""The largest Maximum Packet Size and Subscription Identifier that libraries take."""
LOW = ServerOffer(
    receive_maximum=1, maximum_packet_size=256, topic_alias_maximum=1, maximum_qos=0, retain_available=False,
    session_expiry_max_s=0, keep_alive_max_s=1,
)  # fmt: skip
HIGH = ServerOffer(
    receive_maximum=65_534, maximum_packet_size=0xFFFF_FFFF, topic_alias_maximum=65_535, maximum_qos=1,
    session_expiry_max_s=50, keep_alive_max_s=65_535,
)  # fmt: skip
"""Of each limit the least and the most that CONNACK states."""
OFFERED = {"session_expiry_s", "server_keep_alive_s", "receive_maximum", "topic_alias_maximum", "maximum_qos",
           "retain_available", "maximum_packet_size"}  # fmt: skip
"""Properties that follow from the offer."""
TOLD = Properties(response_information="replies/" + "r" * 1000, user=(("k", "v"), ("k", "w")))
"""Properties that CONNACK has beside the offer, and beside the client id that it assigns."""
UNSAID = {
    "authentication_method": "enhanced authentication, which tests/interop/test_scram.py does",
    "authentication_data": "the same",
    "reason": "of a refusal alone",
    "server_reference": "no broker of ours sends a client elsewhere",
    "wildcard_subscription_available": "it is available, which is the default",
    "subscription_ids_available": "the same",
    "shared_subscription_available": "the same",
}
"""Properties that an accepting CONNACK of ours lacks, and why."""
PUBLISHED: dict[str, tuple[Any, ...]] = {
    "payload_format": (0, 1),
    "message_expiry_s": (1, 0xFFFF_FFFF),
    "content_type": ("", "t" * 65_535),
    "response_topic": ("r", "r/" * 32_000 + "r"),
    "correlation_data": (b"", b"\xff" * 65_535),
    "subscription_ids": ((1,), (MOST,), (1, 2)),
    "user": ((("", ""),), (("k" * 65_535, "v" * 65_535),) * 2),
    "topic_alias": (1, 10),
}
UNTAKEN = {"mosquitto_sub": [("subscription_ids", (1, 2))]}
"""Properties that a library does not take. libmosquitto 2.0 takes the second Subscription Identifier of a message, as
§3.3.2.3.8 allows, for a property that may come once.
"""
ALIASES = 10
"""The Topic Alias Maximum of a client here, where its library lets it say one."""


class Speaking:
    """A server for one client at a time: it accepts with an offer, and answers SUBSCRIBE with messages."""

    def __init__(self, offer: ServerOffer, beside: Properties, messages: Sequence[Properties]) -> None:
        self._offer, self._beside, self._messages = offer, beside, messages
        self.connack: Properties | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    self._speak(connection)

    def _speak(self, connection: socket.socket) -> None:
        decoder, aliases = Decoder(None), 0
        while data := connection.recv(65_536):
            for packet in decoder.feed(data):
                if isinstance(packet, Connect):
                    aliases = packet.properties.topic_alias_maximum or 0
                    beside = tellings(packet, "assigned", self._beside, None)
                    answer = acceptance(packet, self._offer, False, beside)
                    (accepted,) = Decoder(Version.V5, role="client").feed(answer)
                    assert isinstance(accepted, ConnAck)
                    self.connack = accepted.properties
                    connection.sendall(answer)
                elif isinstance(packet, Subscribe):
                    codes = tuple(0 for _ in packet.subscriptions)
                    connection.sendall(encode(SubAck(packet.packet_id, codes), Version.V5))
                    for message in self._messages:
                        alias = message.topic_alias
                        fitting = replace(message, topic_alias=alias if alias and alias <= aliases else None)
                        connection.sendall(encode(Publish("t", b"x", properties=fitting), Version.V5))

    def close(self) -> None:
        self._listener.close()


PAHO = f"""
import sys, paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
first = () if not hasattr(mqtt, "CallbackAPIVersion") else (mqtt.CallbackAPIVersion.VERSION2,)
client = mqtt.Client(*first, client_id="", protocol=mqtt.MQTTv5)
asked = Properties(PacketTypes.CONNECT)
asked.TopicAliasMaximum, asked.SessionExpiryInterval = {ALIASES}, 100
left = int(sys.argv[2])
def heard(client, userdata, message):
    global left
    print(message.topic, flush=True)
    left -= 1
    if not left:
        client.disconnect()
client.on_connect = lambda client, *_: client.subscribe("t", 1)
client.on_message = heard
client.connect("127.0.0.1", int(sys.argv[1]), properties=asked)
client.loop_forever(retry_first_connection=False)
"""
MQTTJS = f"""
const mqtt = require("module").createRequire(process.cwd() + "/")("mqtt");
const client = mqtt.connect(`mqtt://127.0.0.1:${{process.argv[1]}}`, {{ protocolVersion: 5, clientId: "",
  reconnectPeriod: 0, properties: {{ topicAliasMaximum: {ALIASES}, sessionExpiryInterval: 100 }} }});
let left = Number(process.argv[2]);
client.on("message", (topic) => {{ console.log(topic); if (!--left) client.end(true); }});
client.on("error", (error) => {{ console.error(error); process.exit(1); }});
client.subscribe("t", {{ qos: 1 }});
"""


def _client(library: str, port: int, messages: int) -> tuple[list[str], dict[str, Any]]:
    """The command of a client library that prints the topics of so many messages."""
    if library.startswith("paho"):
        folder = {"env": {**os.environ, "PYTHONPATH": str(ROOT / ".tools" / "paho1")}}
        return [sys.executable, "-c", PAHO, str(port), str(messages)], folder if library == "paho 1.6" else {}
    if library == "MQTT.js":
        return [tool("node") or "", "-e", MQTTJS, str(port), str(messages)], {"cwd": ROOT / ".tools"}
    common = ["-V", "mqttv5", "-h", "127.0.0.1", "-p", str(port), "-t", "t", "-C", str(messages), "-W", "20"]
    lasting = ["-D", "connect", "topic-alias-maximum", str(ALIASES), "-x", "100", "-F", "%t"]
    return [tool("mosquitto_sub") or "", *common, *lasting], {}


LIBRARIES = [
    "paho 2",
    *(pytest.param(one, marks=pytest.mark.tools) for one in ("paho 1.6", "mosquitto_sub", "MQTT.js")),
]


def said_to(
    library: str,
    offer: ServerOffer,
    beside: Properties = NO_PROPERTIES,
    messages: Sequence[Properties] = (NO_PROPERTIES,),
) -> Properties:
    """Asserts that a library connects and gets all messages; returns what CONNACK said to it."""
    server = Speaking(offer, beside, messages)
    command, more = _client(library, server.port, len(messages))
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, **more)
    server.close()
    assert done.stdout.splitlines() == ["t"] * len(messages), (library, done.stdout, done.stderr[-500:])
    assert server.connack is not None
    return server.connack


def said_in(carrier: Carrier) -> set[str]:
    return {row.field for row in TABLE if carrier in row.carriers}


def test_the_walk_leaves_no_property_out() -> None:
    assert OFFERED | {"assigned_client_id", "response_information", "user"} | {*UNSAID} == said_in(Carrier.CONNACK)
    assert {*PUBLISHED} == said_in(Carrier.PUBLISH)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("most", [256, MOST, MOST + 5])
def test_announced_packet_size_is_one_that_clients_take(library: str, most: int) -> None:
    assert said_to(library, ServerOffer(maximum_packet_size=most)).maximum_packet_size == min(most, MOST)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("offer", [LOW, HIGH], ids=["least", "most"])
def test_every_property_of_connack_is_one_that_clients_take(library: str, offer: ServerOffer) -> None:
    said = said_to(library, offer, TOLD)
    lacking = {name for name in OFFERED if getattr(said, name) is None}
    assert lacking <= ({"retain_available", "server_keep_alive_s"} if offer is HIGH else {"assigned_client_id"}), said
    assert said.response_information
    assert said.user
    assert not any(getattr(said, name) is not None for name in UNSAID), said


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_property_of_publish_is_one_that_clients_take(library: str) -> None:
    cases = [(name, value) for name, values in PUBLISHED.items() for value in values]
    taken = [case for case in cases if case not in UNTAKEN.get(library, [])]
    said_to(library, ServerOffer(), messages=[Properties(**{name: value}) for name, value in taken])
