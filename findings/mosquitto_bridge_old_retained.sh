#!/bin/bash
# A bridge of Mosquitto 2.0.11 (Debian 12) leaves an old retained value at the other broker, for good. The other broker is
# away at first, and then accepts the connection and answers some seconds later, as over a slow link. The bridge's local
# session subscribes anew at each attempt, which puts the retained message into the queue once more. When CONNACK comes, a
# copy that was made before the last two publications is sent behind them, with the retain flag. So the other broker keeps
# value 2, while the bridge's own broker has value 4.
# MQTT 3.1.1 section 4.6: messages of one topic and QoS are sent in order; section 3.3.1.3: the last retained one is kept.
#
# Installs Debian's packages into a temporary folder. Exits 0 while Mosquitto behaves so.
set -euo pipefail
work=$(mktemp -d); started=
# shellcheck disable=SC2086 # process ids
trap '[ -z "$started" ] || kill $started 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
apt-get -qq download mosquitto=2.0.11-1.2+deb12u2 mosquitto-clients=2.0.11-1.2+deb12u2 libmosquitto1=2.0.11-1.2+deb12u2 \
    libcjson1 libdlt2 libwebsockets17 libwrap0 libev4 libuv1 libnsl2 libtirpc3
for package in *.deb; do dpkg -x "$package" root; done
export LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu:$work/root/lib/x86_64-linux-gnu
own=$((20000 + RANDOM % 9000)); slow=$((own + 1)); other=$((own + 2))
printf '%s\n' "listener $own 127.0.0.1" "allow_anonymous true" "user $(id -un)" "connection cloud" "address 127.0.0.1:$slow" \
    "remote_clientid edge" "restart_timeout 1 1" "topic tank/# out 1" >own.conf
printf '%s\n' "listener $other 127.0.0.1" "allow_anonymous true" "user $(id -un)" >other.conf

cat >slow.py <<'PY'
import asyncio, sys

async def pass_on(source, target):
    while data := await source.read(65536):
        target.write(data)
    target.close()

async def link(reader, writer):
    await asyncio.sleep(4)
    other_reader, other_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    await asyncio.gather(pass_on(reader, other_writer), pass_on(other_reader, writer))

async def main():
    await asyncio.start_server(link, "127.0.0.1", int(sys.argv[1]))
    await asyncio.sleep(60)

asyncio.run(main())
PY

until_open() { for _ in $(seq 100); do (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return; sleep 0.1; done; exit 2; }
value() { root/usr/bin/mosquitto_pub -p "$own" -t tank/level -r -q 1 -m "$1"; }
kept() { timeout 5 root/usr/bin/mosquitto_sub -p "$1" -t tank/level -C 1; }

root/usr/sbin/mosquitto -c other.conf >other.log 2>&1 & started=$!
root/usr/sbin/mosquitto -c own.conf >own.log 2>&1 & started="$started $!"
until_open "$other"; until_open "$own"
sleep 1.5; value 1; value 2
sleep 1.2
python3 slow.py "$slow" "$other" & started="$started $!"
sleep 3; value 3; value 4
sleep 8
at_own=$(kept "$own"); at_other=$(kept "$other")
root/usr/sbin/mosquitto -h | head -n 1 || true
echo "kept at the bridge's own broker: $at_own; at the other one: $at_other"
[ "$at_own" = 4 ]
[ "$at_other" = 2 ]
