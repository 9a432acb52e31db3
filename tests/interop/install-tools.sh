#!/bin/sh
# Installs what the interop tests drive: mosquitto and its clients, iproute2, node with npm, chromium, systemd's tools, Buildah,
# PostgreSQL, HAProxy, SoftHSM with the tool of OpenSC (Debian packages); below .tools/ MQTT.js, a collector of
# OpenTelemetry, and libraries of device makers, each in an environment of its own. Run as root, needs no terminal, does
# nothing where all is there already.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
tools=$root/.tools
mqttjs=5.14.1

missing=
have() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ]; }
have mosquitto || missing="$missing mosquitto"
have mosquitto_pub || missing="$missing mosquitto-clients"
have haproxy || missing="$missing haproxy"
have ip || missing="$missing iproute2"
have node || missing="$missing nodejs"
have npm || missing="$missing npm"
have chromium || missing="$missing chromium"
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$missing postgresql"
have softhsm2-util || missing="$missing softhsm2"
have pkcs11-tool || missing="$missing opensc"
have systemd-analyze || missing="$missing systemd"
have systemd-nspawn || missing="$missing systemd-container"
have buildah || missing="$missing buildah"

if [ -n "$missing" ]; then
    if [ "$(id -u)" -ne 0 ]; then
        echo "install-tools: needs root to install$missing; run it with sudo" >&2
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    # Exit status 101 keeps Debian's maintainer scripts from starting the mosquitto service.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        trap 'rm -f "$policy"' EXIT
    fi
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of package names
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

installed=$(sed -n 's/.*"version": *"\([^"]*\)".*/\1/p' "$tools/node_modules/mqtt/package.json" 2>/dev/null | head -n 1)
if [ "$installed" != "$mqttjs" ]; then
    mkdir -p "$tools"
    npm install --prefix "$tools" --no-save --no-audit --no-fund --silent "mqtt@$mqttjs"
fi
if [ ! -d "$tools/node_modules/oidc-provider" ]; then
    npm install --prefix "$tools" --no-save --no-audit --no-fund --silent "mqtt@$mqttjs" oidc-provider@9.13.3
fi
for library in ebus-sdk==0.27.0 ha-mqtt-discoverable==0.26.0 mqtt-spb-wrapper==2.1.2 pysparkplug==0.6.1; do
    place=$tools/python/${library%%==*}
    if [ "$(cat "$place/version" 2>/dev/null)" != "$library" ]; then
        python=$root/.venv/bin/python
        [ -x "$python" ] || python=python3
        rm -rf "$place"
        "$python" -m venv "$place"
        "$place/bin/python" -m pip install --quiet --disable-pip-version-check "$library"
        echo "$library" >"$place/version"
    fi
done
python=$root/.venv/bin/python
[ -x "$python" ] || python=python3
target() {
    folder=$tools/$1
    shift
    [ -d "$folder" ] || "$python" -m pip install --quiet --disable-pip-version-check --target "$folder" "$@"
}
target paho1 paho-mqtt==1.6.1 # no environment can have this beside paho 2
# A collector of OpenTelemetry, a program of its own; its wheel is for this Python, and the program for any.
target rotel --no-deps --only-binary=:all: --python-version 3.11 rotel==0.0.1a15
target aiomqtt aiomqtt==2.3.0 paho-mqtt==2.2.0
echo "tools are in place"
