#!/bin/bash
# Two Python clients of MQTT 5 do not tell their program that a broker refused a publication:
# - aiomqtt 2.3.0: `await client.publish(..., qos=1)` returns as after success when PUBACK says 0x97 (quota exceeded),
#   though paho below it knows the code. A program cannot tell that the message is lost.
# - paho-mqtt 2.2.0, QoS 2: on PUBREC with 0x97 it goes on with PUBREL, as if the message had been taken, and gives
#   on_publish the code of the PUBCOMP. MQTT 5 ends the exchange there (section 4.3.3: the sender must treat a PUBREC of
#   0x80 or more as an acknowledgement). A broker that answers the stray PUBREL with 0x92 makes the quota look like
#   "Packet identifier not found"; one that answers 0x00 makes the refusal look like success.
#
# Installs both from PyPI into a temporary folder; the server is a socket that refuses all publications.
# Exits 0 while they behave so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip -q install --disable-pip-version-check aiomqtt==2.3.0 paho-mqtt==2.2.0 2>pip.log || { cat pip.log; exit 1; }
cat >look.py <<'PY'
import asyncio
import socket
import threading

import aiomqtt
import paho.mqtt.client as mqtt

PUBACK, PUBREC, PUBCOMP = 0x40, 0x50, 0x70


def serve(listening: socket.socket, came: list[str]) -> None:
    """Refuses each publication with 0x97, and answers PUBREL with PUBCOMP of success."""
    peer, _ = listening.accept()
    stream = peer.makefile("rb")
    while head := stream.read(2):
        body = stream.read(head[1])
        if head[0] >> 4 == 1:
            peer.sendall(b"\x20\x03\x00\x00\x00")
        elif head[0] >> 4 == 3:
            at = 2 + int.from_bytes(body[:2], "big")
            answer = PUBACK if head[0] & 0x06 == 2 else PUBREC
            peer.sendall(bytes((answer, 3)) + body[at : at + 2] + b"\x97")
        elif head[0] >> 4 == 6:
            came.append("PUBREL")
            peer.sendall(bytes((PUBCOMP, 2)) + body[:2])


def listening_server() -> tuple[int, list[str]]:
    listening, came = socket.create_server(("127.0.0.1", 0)), []
    threading.Thread(target=serve, args=(listening, came), daemon=True).start()
    return listening.getsockname()[1], came


async def with_aiomqtt() -> str:
    port, _ = listening_server()
    async with aiomqtt.Client("127.0.0.1", port, protocol=aiomqtt.ProtocolVersion.V5) as client:
        try:
            await client.publish("t", "1", 1, timeout=5)
        except aiomqtt.MqttError as error:
            return f"raised {error}"
    return "returned"


def with_paho(qos: int) -> str:
    (port, came), said, done = listening_server(), [], threading.Event()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.on_publish = lambda c, u, mid, reason, properties: (said.append(str(reason)), done.set())
    client.connect("127.0.0.1", port)
    client.publish("t", "1", qos)
    client.loop_start()
    done.wait(5)
    client.loop_stop()
    return " ".join(("on_publish:", *said, *came))


found = [asyncio.run(with_aiomqtt()), with_paho(1), with_paho(2)]
for which, what in zip(("aiomqtt 2.3.0, QoS 1", "paho-mqtt 2.2.0, QoS 1", "paho-mqtt 2.2.0, QoS 2"), found, strict=True):
    print(f"{which}, refused with 0x97: {what}")
as_seen = ["returned", "on_publish: Quota exceeded", "on_publish: Success PUBREL"]
raise SystemExit(0 if found == as_seen else 1)
PY
env/bin/python look.py
