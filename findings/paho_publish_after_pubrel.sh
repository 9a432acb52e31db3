#!/bin/bash
# paho-mqtt (1.6.1 and 2.2.0) sends a QoS 2 publication again from its start after it has sent PUBREL, if two attempts
# to connect come in a row: a broker or proxy that closes the first new connection before CONNACK is enough, or a port
# that nobody listens on yet. MQTT 3.1.1 and 5 forbid PUBLISH after PUBREL (MQTT-4.3.3-1); the broker has released the
# packet identifier, takes the PUBLISH for a new one, and every receiver gets the message twice. The message is
# delivered once only if the first attempt succeeds: then paho repeats PUBREL.
#
# Installs paho-mqtt from PyPI into a temporary folder; the server is a socket that withholds PUBCOMP.
# Exits 0 while paho behaves so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >look.py <<'PY'
import socket
import sys
import threading

import paho.mqtt.client as mqtt

NAMES = {1: "CONNECT", 3: "PUBLISH", 6: "PUBREL"}
seen: list[str] = []


def packets(peer: socket.socket):
    """Yields type and body of each packet; all are shorter than 128 bytes."""
    stream = peer.makefile("rb")
    while head := stream.read(2):
        yield head[0] >> 4, stream.read(head[1])


def close(peer: socket.socket) -> None:
    peer.shutdown(socket.SHUT_RDWR)
    peer.close()
    seen.append("closed")


def serve(listening: socket.socket, failures: int) -> None:
    """Closes when PUBREL has come, closes so many connections after CONNECT, and notes what the next one brings."""
    peer, _ = listening.accept()
    for kind, body in packets(peer):
        seen.append(NAMES[kind])
        if kind == 1:
            peer.sendall(b"\x20\x02\x00\x00")
        elif kind == 3:
            peer.sendall(b"\x50\x02\x00\x01")
        else:
            break
    close(peer)
    for _ in range(failures):
        peer, _ = listening.accept()
        next(packets(peer))
        close(peer)
    peer, _ = listening.accept()
    for kind, body in packets(peer):
        if kind != 1:
            seen.append(NAMES[kind])
            return
        peer.sendall(b"\x20\x02\x01\x00")  # session present


listening = socket.create_server(("127.0.0.1", 0))
server = threading.Thread(target=serve, args=(listening, int(sys.argv[1])), daemon=True)
server.start()
said = (mqtt.CallbackAPIVersion.VERSION2,) if hasattr(mqtt, "CallbackAPIVersion") else ()
client = mqtt.Client(*said, client_id="one", clean_session=False)
client.reconnect_delay_set(1, 1)
client.connect("127.0.0.1", listening.getsockname()[1])
client.publish("t", "1", 2)
client.loop_start()
server.join(15)
print(" ".join(seen))
PY
for version in 1.6.1 2.2.0; do
    python3 -m venv "env-$version"
    "env-$version/bin/pip" -q install --disable-pip-version-check "paho-mqtt==$version" 2>pip.log || { cat pip.log; exit 1; }
    for failures in 0 1; do
        seen=$("env-$version/bin/python" look.py "$failures")
        echo "paho-mqtt $version, $failures failed attempts: $seen"
        case "$failures $seen" in
        "0 CONNECT PUBLISH PUBREL closed PUBREL" | "1 CONNECT PUBLISH PUBREL closed closed PUBLISH") ;;
        *) exit 1 ;;
        esac
    done
done
