#!/bin/bash
# rumqttd, the broker of iotcore 0.4.0 (PyPI), answers no PUBREL that a client repeats after a lost connection. The client
# sent a QoS 2 message, got PUBREC, sent PUBREL, and lost the connection before PUBCOMP came. It comes back with the same
# session, is told Session Present 1, and repeats PUBREL, as MQTT 3.1.1 sections 4.3.3 and 4.4 demand. The broker closes
# the connection without PUBCOMP. It does so each time, so that a client that keeps to the standard never gets further.
# MQTT 3.1.1 section 4.3.3 (MQTT-4.3.3-2): the receiver MUST respond to a PUBREL packet by sending a PUBCOMP packet.
#
# Installs iotcore from PyPI into a temporary folder; the client is a socket. Exits 0 while the broker behaves so.
set -euo pipefail
work=$(mktemp -d); broker=
trap '[ -z "$broker" ] || kill "$broker" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip -q install --disable-pip-version-check iotcore==0.4.0
port=$((20000 + RANDOM % 9000))
env/bin/python -c "import sys, iotcore.broker as b; b.IotCoreBroker(listen='127.0.0.1', port=int(sys.argv[1])).run_forever()" \
    "$port" >log 2>&1 &
broker=$!
for _ in $(seq 100); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.1; done
cat >client.py <<'PY'
import socket, sys

CONNECT = b"\x10\x0f\x00\x04MQTT\x04\x00\x00\x3c\x00\x03dev"  # Clean Session 0, client id "dev"
PUBLISH = b"\x34\x08\x00\x03t/1\x00\x07x"  # QoS 2, identifier 7
PUBREL = b"\x62\x02\x00\x07"


def connected():
    one = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    one.settimeout(5)
    one.sendall(CONNECT)
    return one, one.recv(4)


def answer(one, packet):
    one.sendall(packet)
    try:
        return one.recv(4).hex() or "connection closed"
    except TimeoutError:
        return "nothing within 5 s"
    except ConnectionError:
        return "connection closed"


one, connack = connected()
found = [("first connection", connack.hex(), "PUBREC " + answer(one, PUBLISH))]
one.sendall(PUBREL)
one.recv(4)  # PUBCOMP, which the client never takes to its session: the connection is lost before
one.close()
for _ in range(3):
    one, connack = connected()
    found.append(("again", connack.hex(), "PUBREL repeated: " + answer(one, PUBREL)))
    one.close()
for line in found:
    print(*line)
seen = [line[1:] for line in found]
again = ("20020100", "PUBREL repeated: connection closed")
raise SystemExit(0 if seen == [("20020000", "PUBREC 50020007"), again, again, again] else 1)
PY
env/bin/python -c "import importlib.metadata as m; print('iotcore', m.version('iotcore'))"
env/bin/python client.py "$port"
