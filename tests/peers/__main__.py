"""`make peers`: installs software of others, asks each peer its questions, writes `docs/reference/peers.md`.

Prints what changed since the page was written. `python -m tests.peers aedes` asks one peer and writes nothing.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from bridge.traces.kinds import TraceKind
from gateway.tracing.client import Tracker
from tests.conftest import ROOT
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.test_traced_devices import DeviceSite
from tests.interop.test_bridge_pairs import Client, Place, crosses, ours, toward
from tests.peers.asking import Answers, Kind, Table, answered, differences, page
from tests.peers.brokers import BROKERS, running
from tests.peers.hosting import hosted_answer
from tests.peers.installing import Debian, Npm, Pypi, Source

PAGE = ROOT / "docs" / "reference" / "peers.md"
PROGRAMS = Path(__file__).parent / "programs"
CLIENT_S = 120.0
"""Seconds after which a client that hangs is ended."""
CLIENTS: dict[str, tuple[Source, str]] = {
    "paho-mqtt 1.6": (Pypi(("paho-mqtt==1.6.1",)), "paho"),
    "paho-mqtt": (Pypi(("paho-mqtt==2.2.0",)), "paho"),
    "aiomqtt": (Pypi(("aiomqtt==2.5.1",)), "aiomqtt"),
    "gmqtt": (Pypi(("gmqtt==0.8.0",)), "gmqtt"),
    "zmqtt": (Pypi(("zmqtt==0.2.5",)), "zmqtt"),
    "awscrt": (Pypi(("awscrt==0.38.0",)), "awscrt"),
    "minimqtt": (Pypi(("adafruit-circuitpython-minimqtt==8.1.0",)), "minimqtt"),
    "MQTT.js": (Npm(("mqtt@5.14.1",)), "mqttjs"),
    "Node-RED": (Npm(("node-red@4.1.1",)), "nodered"),
    "collectd": (Debian("collectd-core"), "collectd"),
    "Telegraf": (Debian("telegraf"), "telegraf"),
}


def clients(overlay: OverlayProcesses) -> Kind:
    """Returns the kind of client libraries, asked over a sealed overlay of three replicas and two gateways."""

    def ask(name: str) -> Answers:
        source, library = CLIENTS[name]
        ports = [str(overlay.ports[gateway]) for gateway in ("site", "control")]
        if library == "collectd":
            return _collectd(overlay)
        of_npm = "nodered.cjs" if library == "nodered" else "exchange.cjs"
        program = PROGRAMS / (of_npm if isinstance(source, Npm) else "exchange.py")
        run = "node" if isinstance(source, Npm) else sys.executable
        done = subprocess.run(
            [run, str(program), library, *ports], capture_output=True, text=True, timeout=CLIENT_S,
            env=source.environment(), check=False,
        )  # fmt: skip
        lines = done.stdout.strip().splitlines()
        return json.loads(lines[-1]) if lines else {"connects": f"broke off: {done.stderr.strip()[-100:]}"}

    return Kind(
        "Clients at a gateway",
        "Two clients of a library, one at each of two gateways of a sealed overlay of three replicas.",
        {
            "connects": "both connect and subscribe",
            "QoS": "which of QoS 0, 1, 2 arrives, under which QoS",
            "100 kB": "a payload of 100,000 bytes arrives",
            "retained": "a later subscriber at the other gateway gets the retained value",
            "queue": "a session that was away gets what was published meanwhile",
        },
        list(CLIENTS), ask, lambda name: CLIENTS[name][0].version, lambda name: CLIENTS[name][0].install(),
    )  # fmt: skip


def _collectd(overlay: OverlayProcesses) -> Answers:
    """collectd's plugin publishes one's uptime each second."""
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder) / "collectd.conf"
        conf.write_text(
            f'Interval 1\nBaseDir "{folder}"\nPIDFile "{folder}/pid"\nTypesDB "/usr/share/collectd/types.db"\n'
            f'LoadPlugin uptime\nLoadPlugin mqtt\n<Plugin mqtt>\n<Publish "p">\nHost "127.0.0.1"\n'
            f'Port {overlay.ports["site"]}\nPrefix "plant/collectd"\nQoS 1\n</Publish>\n</Plugin>\n'
        )
        reader = Client(Place(overlay.ports["control"], "5")).subscribe("plant/collectd/#")
        process = subprocess.Popen(
            ["collectd", "-f", "-C", str(conf)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            came = reader.first(30)
        finally:
            process.kill()
            process.wait()
            reader.close()
    return {
        "connects": "yes" if came else "no",
        "QoS": f"1 as {came.qos}" if came and came.qos != 1 else "1" if came else "",
    }


def brokers(directory: Path) -> Kind:
    """Returns the kind of brokers, asked over a bridge of ours."""
    by_name = {peer.name: peer for peer in BROKERS}

    def ask(name: str) -> Answers:
        peer, answers = by_name[name], dict[str, str]()
        with running(peer, directory / peer.folder) as other:
            best = peer.versions[0]
            there = Place(other.port(best), best, peer.login)
            answers["starts"] = "yes"
            for version in ("5", "3.1.1"):
                way = toward(other.port(version), version, "both", peer.login)
                with ours(directory / f"{peer.folder}-{version}", m=way) as here:
                    ends = Client(here).subscribe("x/#"), Client(there).subscribe("x/#")
                    out, back = (crosses(*pair, word, 10) for pair, word in ((ends, b"out"), (ends[::-1], b"in")))
                    both = "out, in" if out and back else "out" if out else "in" if back else "nothing"
                    answers[f"bridge {version}"] = both
                    for each in ends:
                        each.close()
            if "Mosquitto" in name:
                answers["import"] = _imported(other.directory)
        answers["hosted region"] = hosted_answer(peer, directory / f"{peer.folder}-hosted")
        return answers

    return Kind(
        "Brokers",
        "A broker of others, and ours with a bridge to it. [The details](../how-to/mosquitto.md#what-crosses-how).",
        {
            "starts": "the broker starts and listens",
            "bridge 5": "what crosses a bridge of MQTT 5",
            "bridge 3.1.1": "what crosses a bridge of MQTT 3.1.1",
            "import": "`veilmq import` takes the configuration",
            "hosted region": "three of them carry what two gateways of ours seal, also when one of them is stopped",
        },
        list(by_name), ask,
        lambda name: by_name[name].title.removeprefix(name).strip(),
        lambda name: "" if (source := by_name[name].source) is None else source.install(),
    )  # fmt: skip


DEVICES: dict[str, tuple[Source, str, str]] = {
    "pysparkplug": (Pypi(("pysparkplug==0.6.1",)), "pysparkplug", "plant:node"),
    "mqtt-spb-wrapper": (Pypi(("mqtt-spb-wrapper==2.1.2",)), "wrapper", "plant:node"),
    "sparkplug-client": (Npm(("sparkplug-client@3.2.4", "sparkplug-payload@1.0.3")), "sparkplug", "plant:node"),
    "ebus-sdk": (Pypi(("ebus-sdk==0.27.0",)), "ebus", "ebus:pump"),
    "ha-mqtt-discoverable": (Pypi(("ha-mqtt-discoverable==0.26.0",)), "ha", "pump"),
}
"""By name: where it comes from, its program, and its device as our gateway names it."""
ALIVE_S, DEAD_S = 15.0, 15.0


def devices(directory: Path) -> Kind:
    """Returns the kind of device libraries, asked of a gateway that traces unchanged devices."""
    directory.mkdir()
    site = DeviceSite(directory)

    def ask(name: str) -> Answers:
        source, library, device = DEVICES[name]
        program = PROGRAMS / ("device.cjs" if isinstance(source, Npm) else "device.py")
        run = "node" if isinstance(source, Npm) else sys.executable
        with (
            site.running_devices(directory / f"data-{name}", grace_s=1.0) as port,
            Tracker(site.credentials("desk"), "127.0.0.1", port) as desk,
        ):
            desk.follow(f"site:{device}")
            process = subprocess.Popen(
                [run, str(program), library, str(port)], env=source.environment(), stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                alive = _kinds(desk, TraceKind.READY, ALIVE_S)
                process.kill()
                dead = _kinds(desk, TraceKind.FAILED, DEAD_S)
            finally:
                process.kill()
                process.wait()
        return {"alive": alive, "killed": dead}

    return Kind(
        "Devices at a gateway that traces",
        "A program of a few lines over a library, at a gateway that traces unchanged devices. It ends by SIGKILL.",
        {"alive": "what a tracker hears of the device once it runs", "killed": "what it hears after SIGKILL"},
        list(DEVICES), ask, lambda name: DEVICES[name][0].version, lambda name: DEVICES[name][0].install(),
    )  # fmt: skip


def _kinds(desk: Tracker, last: TraceKind, seconds: float) -> str:
    """Kinds of traces until the one asked for came, or the time is over."""
    found, end = list[str](), time.monotonic() + seconds
    while (left_s := end - time.monotonic()) > 0 and last.name not in found:
        seen = desk.next(left_s)
        if seen is not None and seen.kind.name not in found:
            found.append(seen.kind.name)
    return ", ".join(found) or "nothing"


def _imported(directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gateway.cli", "import", "m.conf", "--out", "ours"], cwd=directory,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return "yes" if not done.returncode else f"refused: {done.stderr.strip()[:80]}"


def main(only: str = "") -> None:
    """Asks all peers, or those whose name has `only` in it."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        overlay = OverlayProcesses(Path(folder))
        overlay.make({"r": 3}, [], {"site": "r", "control": "r"})
        stack.callback(overlay.stop)
        overlay.start(*overlay.ports)
        kinds = [brokers(Path(folder) / "brokers"), clients(overlay), devices(Path(folder) / "devices")]
        tables = list[Table]()
        for kind in kinds:
            chosen = [name for name in kind.peers if only in name]
            tables.append(answered(Kind(**{**vars(kind), "peers": chosen}), lambda line: print(line, flush=True)))
    if only:
        return
    made = page(tables, datetime.now(UTC).date().isoformat())
    before = PAGE.read_text("utf-8") if PAGE.exists() else ""
    PAGE.write_text(made, "utf-8")
    print("\n".join(differences(before, made) or ["nothing changed"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
