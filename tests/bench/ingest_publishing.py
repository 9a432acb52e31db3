"""A device that publishes at a rate while the Spark process of `ingest_delay` takes its rows, each with its time."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Publish
from tests.bench.load import READ_BYTES, V3, open_client

READY_S = 300.0
TOPIC = "plant/line/speed"
PAYLOAD_BYTES = 64


def delays(port: int, spark: subprocess.Popen[str], count: int, rate: int) -> dict[str, Any]:
    """Publish until rows come, then `count` at the rate, and on while peers are measured; what Spark's process tells at
    its end."""
    assert spark.stdin is not None
    assert spark.stdout is not None
    ready, last = threading.Event(), {"count": 0, "event": ""}

    def listen() -> None:
        for line in spark.stdout or ():
            last.update(json.loads(line))
            ready.set()

    listener = threading.Thread(target=listen)
    listener.start()
    with open_client(port, "device") as sock:
        drain = threading.Thread(target=_drain, args=(sock,), daemon=True)
        sock.settimeout(None)
        drain.start()
        give_up, probes = time.monotonic() + READY_S, 0
        while not ready.wait(0.2):
            assert time.monotonic() < give_up, "no row comes"
            _publish(sock, probes, 0.0)
            probes += 1
        _publish_steadily(sock, rate, probes, lambda number: number < count, time.time)
        give_up = time.monotonic() + READY_S
        while last.get("count", 0) < count and time.monotonic() < give_up:
            time.sleep(0.1)
        print("peers", file=spark.stdin, flush=True)
        _publish_steadily(sock, rate, probes + count, lambda _: listener.is_alive(), lambda: 0.0)
    listener.join()
    return last


def _drain(sock: Any) -> None:
    with contextlib.suppress(OSError):  # closed here
        while sock.recv(READ_BYTES):
            pass


def _publish_steadily(
    sock: Any, rate: int, first: int, goes_on: Callable[[int], bool], stamp: Callable[[], float]
) -> None:
    began, number = time.perf_counter(), 0
    while goes_on(number):
        time.sleep(max(0.0, began + number / rate - time.perf_counter()))
        _publish(sock, first + number, stamp())
        number += 1


def _publish(sock: Any, number: int, stamp: float) -> None:
    payload = (b"%.6f" % stamp).ljust(PAYLOAD_BYTES)
    sock.sendall(encode(Publish(TOPIC, payload, 1, packet_id=number % 65_535 + 1), V3))
