#!/bin/bash
# libmosquitto 2.0.11 (Debian 12, here in mosquitto_sub) drops its connection when a PUBLISH has two Subscription
# Identifiers, says nothing of it, connects again, and so on with each such message: the message is never delivered.
# MQTT 5.0 section 3.3.2.3.8: "Multiple Subscription Identifiers will be included if the publication is the result of a
# match to more than one subscription". So a client with overlapping subscriptions and an identifier for each hears
# nothing where they overlap, from a broker that sends one copy with both. One identifier is taken.
#
# Installs Debian's packages into a temporary folder; the server is a socket that answers CONNECT and SUBSCRIBE and sends
# one PUBLISH. Exits 0 while libmosquitto behaves so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get -qq download mosquitto-clients=2.0.11-1.2+deb12u2 libmosquitto1=2.0.11-1.2+deb12u2 libcjson1
for package in *.deb; do dpkg -x "$package" root; done
export LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu
cat >look.py <<'PY'
import socket
import subprocess
import threading


def serve(listening: socket.socket, identifiers: list[int], met: list[int]) -> None:
    """Accepts whoever comes; each gets a message on its topic with these identifiers."""
    while True:
        try:
            peer, _ = listening.accept()
        except OSError:
            return
        met.append(1)
        peer.settimeout(5)
        try:
            peer.recv(1000)
            peer.sendall(bytes.fromhex("2003000000"))
            packet_id = peer.recv(1000)[2:4]
            peer.sendall(b"\x90\x04" + packet_id + b"\x00\x00")
            properties = b"".join(bytes([0x0B, each]) for each in identifiers)
            body = b"\x00\x01t" + bytes([len(properties)]) + properties + b"hello"
            peer.sendall(b"\x30" + bytes([len(body)]) + body)
            while peer.recv(1000):
                pass
        except OSError:
            pass
        peer.close()


def seen(identifiers: list[int]) -> tuple[str, int]:
    """What mosquitto_sub prints within 4 s, and how often it connected."""
    listening, met = socket.create_server(("127.0.0.1", 0)), []
    threading.Thread(target=serve, args=(listening, identifiers, met), daemon=True).start()
    port = str(listening.getsockname()[1])
    command = ["root/usr/bin/mosquitto_sub", "-V", "mqttv5", "-h", "127.0.0.1", "-p", port, "-t", "t", "-C", "1", "-W", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    listening.close()
    return done.stdout.strip(), len(met)


version = subprocess.run(["root/usr/bin/mosquitto_sub", "--help"], capture_output=True, text=True).stdout.splitlines()[1]
print(version)
one, two = seen([1]), seen([1, 2])
print(f"one identifier: printed {one[0]!r}, connected {one[1]} time(s)")
print(f"two identifiers: printed {two[0]!r}, connected {two[1]} time(s)")
assert one == ("hello", 1), "one identifier is taken no more"
assert two[0] == "" and two[1] > 1, "two identifiers are taken now"
PY
python3 look.py
