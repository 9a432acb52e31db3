#!/bin/bash
# Mosquitto 2.0.11 (Debian 12) with `persistence true` keeps a session over a restart, with its queue, but not its shared
# subscriptions ($share/GROUP/FILTER). The client that comes back is told Session Present 1, so it does not subscribe
# again, and gets nothing from then on. An ordinary subscription of the same session goes on.
# MQTT 5.0 section 4.1: the Session State includes the client's subscriptions; shared ones are not excepted.
#
# Installs Debian's packages and paho-mqtt from PyPI into a temporary folder. Exits 0 while Mosquitto behaves so.
set -euo pipefail
work=$(mktemp -d); broker=
trap '[ -z "$broker" ] || kill "$broker" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
apt-get -qq download mosquitto=2.0.11-1.2+deb12u2 libcjson1 libdlt2 libwebsockets17 libwrap0 libev4 libuv1 libnsl2 libtirpc3
for package in *.deb; do dpkg -x "$package" root; done
export LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu:$work/root/lib/x86_64-linux-gnu
python3 -m venv env
env/bin/pip -q install --disable-pip-version-check paho-mqtt==2.1.0
port=$((20000 + RANDOM % 9000))
printf '%s\n' "listener $port 127.0.0.1" "allow_anonymous true" "persistence true" "persistence_location $work/" \
    "user $(id -un)" >mosquitto.conf

start() {
    root/usr/sbin/mosquitto -c mosquitto.conf >>log 2>&1 &
    broker=$!
    for _ in $(seq 100); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return; sleep 0.1; done
    cat log; exit 2
}

cat >client.py <<'PY'
import sys, time
import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

port, first, got, up = int(sys.argv[1]), sys.argv[2] == "first", [], []

def client(name, clean):
    one = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv5)
    keep = Properties(PacketTypes.CONNECT)
    keep.SessionExpiryInterval = 3600
    one.on_connect = lambda c, u, flags, code, p: up.append(flags.session_present)
    one.on_message = lambda c, u, m: got.append((c._client_id.decode(), m.payload.decode()))
    one.connect("127.0.0.1", port, clean_start=clean, properties=keep)
    one.loop_start()
    while not up:
        time.sleep(0.02)
    return one, up.pop()

shared, was_shared = client("shared", False)
plain, was_plain = client("plain", False)
if first:
    shared.subscribe("$share/group/jobs/#", 1)
    plain.subscribe("jobs/#", 1)
    time.sleep(0.5)
plain.publish("jobs/1", "before" if first else "after", 1).wait_for_publish(10)
time.sleep(1.0)
print(f"session present: shared {was_shared}, plain {was_plain}; received: {sorted(got)}")
PY

start
before=$(env/bin/python client.py "$port" first); kill "$broker"; wait "$broker" || true
start
after=$(env/bin/python client.py "$port" again)
root/usr/sbin/mosquitto -h | head -n 1 || true
echo "before the restart: $before"
echo "after the restart:  $after"
[ "$before" = "session present: shared False, plain False; received: [('plain', 'before'), ('shared', 'before')]" ]
[ "$after" = "session present: shared True, plain True; received: [('plain', 'after')]" ]
