"""Our broker beside Mosquitto and amqtt, in one run on one machine: `python -m tests.bench.broker [--json]`.

QoS 0 from one publisher to one and to fifty subscribers, QoS 1 from one to one with 100 unacknowledged; 64-byte
payloads, MQTT 3.1.1, loopback. The broker has a core of its own where there are two or more, the load clients
share the others; each figure is the median of three runs. Ratios say more than figures: the machine is yours.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.bench import load

RUNS = 3
SECONDS = 1.0
WINDOW = 100
FAN_OUT = 50


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def cores() -> tuple[int, tuple[int, int]]:
    """(the broker's core, (publisher's, subscribers')) of those that this process may use."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    last = usable[-1]
    others = usable[:-1] or usable
    return last, (others[0], others[-1])


def _serve_ours(port: int, core: int) -> None:
    load.pin(core)
    from gateway.broker import run_broker
    from gateway.config import parse

    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    listeners = {"default": {"bind": f"127.0.0.1:{port}"}}
    asyncio.run(run_broker(parse({"listeners": listeners, "allow_anonymous": True})))


def _serve_amqtt(port: int, core: int) -> None:
    load.pin(core)
    import logging

    from amqtt.broker import Broker

    logging.disable(logging.CRITICAL)

    async def serve() -> None:
        broker = Broker(
            {
                "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
                "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
            }
        )
        await broker.start()
        await asyncio.Event().wait()

    asyncio.run(serve())


@contextlib.contextmanager
def in_python(serve: Callable[[int, int], None], core: int) -> Iterator[int]:
    port = free_port()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(port, core), daemon=True)
    process.start()
    try:
        _wait_for(port)
        yield port
    finally:
        process.kill()
        process.join()


@contextlib.contextmanager
def mosquitto(core: int) -> Iterator[int]:
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise FileNotFoundError("mosquitto is not installed; run `make tools` as root")
    port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "mosquitto.conf"
        config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n")
        process = subprocess.Popen([program, "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(process.pid, {core})
            _wait_for(port)
            yield port
        finally:
            process.kill()
            process.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 15
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def measure(seconds: float = SECONDS, runs: int = RUNS) -> dict[str, dict[str, float]]:
    """Broker -> measure -> messages (fan-out: deliveries) a second, medians."""
    core, clients = cores()
    brokers = {
        "veilmq": lambda: in_python(_serve_ours, core),
        "mosquitto": lambda: mosquitto(core),
        "amqtt": lambda: in_python(_serve_amqtt, core),
    }
    found: dict[str, dict[str, float]] = {}
    for name, start in brokers.items():
        # amqtt reads far ahead of what it delivers: little keeps it busy for as long as the others.
        is_slow = name == "amqtt"
        pace = {"seconds": seconds / 10 if is_slow else seconds, "cores": clients}
        ahead = 1 if is_slow else load.BATCHES_AHEAD
        measures: dict[str, Callable[[int], float]] = {
            "qos0_1_to_1": partial(load.fan_out, number=1, **pace),
            "qos0_1_to_50": partial(load.fan_out, number=FAN_OUT, batches_ahead=ahead, **pace),
            "qos1_1_to_1": partial(load.windowed_in_process, seconds=seconds, window=WINDOW, core=clients[0]),
        }
        found[name] = {}
        for what, run in measures.items():
            figures: list[float] = []
            for _ in range(runs):
                with start() as port:  # a fresh one each time: no run pays for the queues of the last
                    figures.append(run(port))
            found[name][what] = statistics.median(figures)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of one run")
    arguments = parser.parse_args()
    found = measure(arguments.seconds)
    if arguments.json:
        for broker, figures in found.items():
            print(json.dumps({"broker": broker, **{what: round(rate) for what, rate in figures.items()}}))
        return 0
    print(f"{'':16}{'veilmq':>14}{'mosquitto':>14}{'amqtt':>14}   messages or deliveries a second")
    for what in found["veilmq"]:
        line = "".join(f"{figures[what]:>14,.0f}" for figures in found.values())
        ours = found["veilmq"][what]
        ratios = ", ".join(
            f"{ours / found[other][what]:.1f} x {other}" for other in ("mosquitto", "amqtt") if found[other][what]
        )
        print(f"{what:16}{line}   veilmq is {ratios}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
