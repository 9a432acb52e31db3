#!/bin/bash
# paho-mqtt 2.2.0 disconnects itself from a server whose CONNACK has a Maximum Packet Size above 268,435,455, with
# "Protocol error" and before on_connect is called. MQTT 5.0 section 3.2.2.3.6 forbids only zero and a second one: the
# property is a four byte integer, and a server may announce 4,294,967,295 to say that it bounds nothing.
# A broker that writes its limit plus some room into this property is thus closed to every client of paho over MQTT 5.
#
# Installs paho-mqtt from PyPI into a temporary folder; the server is a socket that answers one CONNECT with a CONNACK.
# Exits 0 while paho behaves so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip -q install --disable-pip-version-check paho-mqtt==2.2.0
cat >look.py <<'PY'
import socket
import threading

import paho.mqtt.client as mqtt


def answer(listening: socket.socket, size: int) -> None:
    """Reads one CONNECT and answers with CONNACK: success, Maximum Packet Size `size`."""
    peer, _ = listening.accept()
    peer.recv(1000)
    properties = b"\x27" + size.to_bytes(4, "big")
    body = b"\x00\x00" + bytes([len(properties)]) + properties
    peer.sendall(b"\x20" + bytes([len(body)]) + body)
    peer.settimeout(5)
    try:
        peer.recv(1000)
    except OSError:
        pass
    peer.close()


def seen(size: int) -> list[str]:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    threading.Thread(target=answer, args=(listening, size), daemon=True).start()
    said: list[str] = []
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.on_connect = lambda c, u, flags, reason, properties: said.append(f"connected: {reason}")
    client.on_disconnect = lambda c, u, flags, reason, properties: said.append(f"disconnected: {reason}")
    client.connect("127.0.0.1", listening.getsockname()[1])
    for _ in range(50):
        if client.loop(0.1) or said:
            break
    return said


found = {size: seen(size) for size in (268_435_455, 268_435_456, 4_294_967_295)}
for size, said in found.items():
    print(f"paho-mqtt 2.2.0, Maximum Packet Size {size:,}: {', '.join(said)}")
refused = ["disconnected: Protocol error"]
as_seen = [["connected: Success"], refused, refused]
raise SystemExit(0 if list(found.values()) == as_seen else 1)
PY
env/bin/python look.py
