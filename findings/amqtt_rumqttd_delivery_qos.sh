#!/bin/bash
# amqtt 0.12.1 and rumqttd (the broker of iotcore 0.4.0), both from PyPI, deliver a message of QoS 0 or 1 at the QoS of the
# subscription, not at the smaller of the two: a subscriber with QoS 2 gets each of them by the handshake of QoS 2. What a
# sensor sent at QoS 0 then counts against the in-flight window and waits in the session of a subscriber that is away.
# MQTT 3.1.1 section 3.8.4 (MQTT-3.8.4-6): the QoS of Payload Messages sent in response to a Subscription MUST be the
# minimum of the QoS of the originally published message and the maximum QoS granted by the Server.
#
# Installs both and paho-mqtt from PyPI into a temporary folder. Exits 0 while the two brokers behave so.
set -euo pipefail
work=$(mktemp -d); pids=
trap '[ -z "$pids" ] || kill $pids 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip -q install --disable-pip-version-check amqtt==0.12.1 iotcore==0.4.0 paho-mqtt==2.1.0
first=$((20000 + RANDOM % 9000)); second=$((first + 1))
cat >amqtt.yaml <<YAML
listeners: {default: {type: tcp, bind: "127.0.0.1:$first"}}
plugins: {amqtt.plugins.authentication.AnonymousAuthPlugin: {allow_anonymous: true}}
YAML
env/bin/amqtt -c amqtt.yaml >amqtt.log 2>&1 & pids="$pids $!"
env/bin/python -c "import sys, iotcore.broker as b; b.IotCoreBroker(listen='127.0.0.1', port=int(sys.argv[1])).run_forever()" \
    "$second" >iotcore.log 2>&1 & pids="$pids $!"
for port in $first $second; do
    for _ in $(seq 200); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.1; done
done
cat >client.py <<'PY'
import sys, time
import paho.mqtt.client as mqtt


def seen(port):
    got, granted = {}, []
    one = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "reader", protocol=mqtt.MQTTv311)
    one.on_message = lambda c, u, m: got.__setitem__(m.payload.decode(), m.qos)
    one.on_subscribe = lambda c, u, i, codes, p: granted.append(codes[0].value)
    one.connect("127.0.0.1", int(port))
    one.loop_start()
    one.subscribe("t", 2)
    while not granted:
        time.sleep(0.02)
    for qos in (0, 1, 2):
        one.publish("t", f"published at QoS {qos}", qos).wait_for_publish(10)
    end = time.monotonic() + 10
    while len(got) < 3 and time.monotonic() < end:
        time.sleep(0.02)
    one.disconnect()
    one.loop_stop()
    return granted, got


found = {name: seen(port) for name, port in zip(("amqtt 0.12.1", "iotcore 0.4.0"), sys.argv[1:])}
for name, (granted, got) in found.items():
    print(f"{name}: subscription granted QoS {granted[0]};", ", ".join(f"{what} came at QoS {qos}" for what, qos in got.items()))
raised = ([2], {f"published at QoS {qos}": 2 for qos in (0, 1, 2)})
raise SystemExit(0 if all(one == raised for one in found.values()) else 1)
PY
env/bin/python client.py "$first" "$second"
