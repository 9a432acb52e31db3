#!/bin/bash
# paho-mqtt (1.6.1 and 2.2.0) sends a new publication ahead of older unacknowledged ones when it connects again. What a
# program publishes while paho waits for CONNACK goes out at once, behind CONNECT; the older ones follow after CONNACK.
# So receivers get a newer message before older ones of the same topic, at QoS 1 and 2, whatever the broker, though the
# program publishes in order from one thread over one session. For the broker the newer one came first (MQTT 3.1.1 and
# 5, section 4.6), so that no broker can mend this: a program has to publish only while is_connected() is true.
#
# Installs paho-mqtt from PyPI into a temporary folder; the server is a socket that answers the second CONNECT only
# when another packet has come. Exits 0 while paho behaves so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >look.py <<'PY'
import socket
import threading
import time

import paho.mqtt.client as mqtt

seen: list[str] = []


def packets(peer: socket.socket):
    """Yields type and body of each packet; all are shorter than 128 bytes."""
    stream = peer.makefile("rb")
    while head := stream.read(2):
        yield head[0] >> 4, stream.read(head[1])


def serve(listening: socket.socket) -> None:
    """Takes 1 and 2 without an answer and closes; on the second connection notes three publications."""
    peer, _ = listening.accept()
    for kind, body in packets(peer):
        if kind == 1:
            peer.sendall(b"\x20\x02\x00\x00")
        elif kind == 3 and body.endswith(b"2"):
            break
    peer.shutdown(socket.SHUT_RDWR)
    peer.close()
    seen.append("closed")
    peer, _ = listening.accept()
    for kind, body in packets(peer):
        if kind == 3:
            seen.append(body[-1:].decode())
            if len(seen) == 2:
                peer.sendall(b"\x20\x02\x01\x00")
                seen.append("CONNACK")
            elif len(seen) == 5:
                return


listening = socket.create_server(("127.0.0.1", 0))
server = threading.Thread(target=serve, args=(listening,), daemon=True)
server.start()
said = (mqtt.CallbackAPIVersion.VERSION2,) if hasattr(mqtt, "CallbackAPIVersion") else ()
connected = threading.Event()
client = mqtt.Client(*said, client_id="one", clean_session=False)
client.on_connect = lambda *_: connected.set()
client.reconnect_delay_set(1, 1)
client.connect("127.0.0.1", listening.getsockname()[1])
client.loop_start()
connected.wait(10)
client.publish("t", "1", 1)
client.publish("t", "2", 1)
end = time.monotonic() + 10
while "closed" not in seen and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(2)  # paho has connected again and waits for CONNACK
client.publish("t", "3", 1)
server.join(10)
print(" ".join(seen[1:]))
raise SystemExit(0 if seen == ["closed", "3", "CONNACK", "1", "2"] else 1)
PY
for version in 1.6.1 2.2.0; do
    python3 -m venv "env-$version"
    "env-$version/bin/pip" -q install --disable-pip-version-check "paho-mqtt==$version" 2>pip.log || { cat pip.log; exit 1; }
    echo "paho-mqtt $version sent after it connected again: $("env-$version/bin/python" look.py)"
done
