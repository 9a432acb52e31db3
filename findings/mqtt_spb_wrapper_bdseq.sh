#!/bin/bash
# mqtt-spb-wrapper 2.1.2 (PyPI): the `bdSeq` of a node's NBIRTH is never that of the NDEATH that the node leaves as its will. A
# count is read for the will, and raised; the birth then has the raised one (`--bdSeq` lowers nothing in Python). The NDEATH
# that the node publishes when it leaves does have the birth's number, as long as no device of the process connected.
# Sparkplug 3.0.0, tck-id-topics-nbirth-bdseq-matching: the birth's number must match that of the will. A host application
# that follows the specification takes the will for the death of another session, and the node, which is dead, for alive.
#
# Installs the library and a broker from PyPI into a temporary folder. Exits 0 while the library behaves so.
set -euo pipefail
work=$(mktemp -d); broker=
trap '[ -z "$broker" ] || kill "$broker" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
python3 -m venv node; node/bin/pip -q install --disable-pip-version-check mqtt-spb-wrapper==2.1.2
python3 -m venv host; host/bin/pip -q install --disable-pip-version-check amqtt==0.11.3
port=$((20000 + RANDOM % 9000))
printf '%s\n' "listeners:" "  default:" "    type: tcp" "    bind: 127.0.0.1:$port" "plugins:" \
    "  amqtt.plugins.authentication.AnonymousAuthPlugin:" "    allow_anonymous: true" >broker.yaml
host/bin/amqtt -c broker.yaml >broker.log 2>&1 &
broker=$!
for _ in $(seq 300); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.1; done

cat >node.py <<'PY'
import logging, sys, time
import paho.mqtt.client as mqtt
from mqtt_spb_wrapper import MqttSpbEntityEdgeNode
from mqtt_spb_wrapper.spb_protobuf import Payload

logging.disable(logging.CRITICAL)
seen = []
def note(name, data):
    payload = Payload()
    payload.ParseFromString(bytes(data))
    seen.append((name, next(m.long_value for m in payload.metrics if m.name == "bdSeq")))

will_set = mqtt.Client.will_set
def noting(self, topic, payload=None, *more, **named):
    note("will " + topic.split("/")[2], payload)
    return will_set(self, topic, payload, *more, **named)
mqtt.Client.will_set = noting

host = mqtt.Client("host")
host.on_message = lambda c, u, m: note(m.topic.split("/")[2], m.payload)
host.connect("127.0.0.1", int(sys.argv[1]))
host.subscribe("spBv1.0/plant/+/edge")
host.loop_start()
time.sleep(1)
node = MqttSpbEntityEdgeNode("plant", "edge")
node.data.set_value("rpm", 1.0)
node.connect("127.0.0.1", int(sys.argv[1]))
node.publish_birth()
time.sleep(1)
node.disconnect()
time.sleep(1)
host.disconnect()
print("; ".join(f"{name} {number}" for name, number in seen))
PY
found=$(node/bin/python node.py "$port")
echo "mqtt-spb-wrapper 2.1.2, bdSeq: $found"
[ "$found" = "will NDEATH 0; NBIRTH 1; NDEATH 1" ]
