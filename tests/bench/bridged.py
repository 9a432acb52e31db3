"""A chain of Mosquitto brokers joined by TLS bridges: what a site without VeilMQ would run.

Each broker has a plain listener on loopback for clients and, behind the first, one for the bridge before it: mutual TLS
1.3 with certificates of one authority, bridge protocol MQTT 5, QoS 1. Nothing is pinned to a core.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from keys.identity import Identity, make_ca, make_leaf
from tests.bench.across import wait_through
from tests.bench.peers import Running, mosquitto, wait_for
from tests.ports import free_ports


@contextlib.contextmanager
def chain(length: int, topic: str, in_flight: int) -> Iterator[list[Running]]:
    """`length` running brokers, site first; what is published on `topic` at the first arrives at the last."""
    program = mosquitto()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="veilmq-bench-")))
        _certificates(directory)
        ports = [(free_ports(1)[0], free_ports(1)[0]) for _ in range(length)]
        running: list[Running] = []
        for place in reversed(range(length)):  # a bridge finds the next broker there
            lines = _settings(directory, ports, place, topic, in_flight)
            config = directory / f"{place}.conf"
            config.write_text("\n".join(lines) + "\n")
            log = stack.enter_context((directory / f"{place}.log").open("wb"))
            process = subprocess.Popen([program, "-c", str(config)], stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
            wait_for(ports[place][0])
            running.insert(0, Running(ports[place][0], process.pid))
        wait_through(ports[0][0], ports[-1][0], topic)
        yield running


def _certificates(directory: Path) -> None:
    now = time.time()
    authority, broker = Identity.generate(os.urandom(32)), Identity.generate(os.urandom(32))
    ca = make_ca(authority, "bench", now)
    (directory / "ca.pem").write_bytes(ca)
    (directory / "cert.pem").write_bytes(make_leaf(authority, ca, broker, "broker", "bench", ["127.0.0.1"], now, 2))
    (directory / "key.pem").write_bytes(broker.private_pem())


def _settings(directory: Path, ports: list[tuple[int, int]], place: int, topic: str, in_flight: int) -> list[str]:
    clients, bridges = ports[place]
    tls = [("cafile", "ca.pem"), ("certfile", "cert.pem"), ("keyfile", "key.pem")]
    lines = ["per_listener_settings false", "allow_anonymous true", "set_tcp_nodelay true", "persistence false"]
    lines += [f"max_inflight_messages {in_flight}", "max_queued_messages 1000000", f"listener {clients} 127.0.0.1"]
    if os.getuid() == 0:
        lines.append("user root")
    if place:
        lines += [f"listener {bridges} 127.0.0.1", "require_certificate true", "tls_version tlsv1.3"]
        lines += [f"{name} {directory / file}" for name, file in tls]
    if place + 1 < len(ports):
        lines += [f"connection hop{place}", f"address 127.0.0.1:{ports[place + 1][1]}", f"topic {topic} out 1"]
        lines += ["bridge_protocol_version mqttv50", "bridge_insecure false"]
        lines += ["notifications false", "try_private false"]
        lines += [f"bridge_{name} {directory / file}" for name, file in tls]
    return lines
