"""A device that publishes at a rate, each payload with its time, while the Spark process of `ingest_delay` measures."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from typing import Any

from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Publish
from tests.bench.load import READ_BYTES, V3, open_client

TOPIC = "plant/line/speed"
PAYLOAD_BYTES = 64


def publish_beside(port: int, spark: subprocess.Popen[str], rate: int) -> dict[str, Any]:
    """Publishes until Spark's process ends; returns what that one told, the last line of it."""
    told: list[str] = []
    listener = threading.Thread(target=lambda: told.extend(spark.stdout or ()))
    listener.start()
    with open_client(port, "device") as sock:
        sock.settimeout(None)
        threading.Thread(target=_drain, args=(sock,), daemon=True).start()
        began, number = time.perf_counter(), 0
        while listener.is_alive():
            time.sleep(max(0.0, began + number / rate - time.perf_counter()))
            payload = (b"%.6f" % time.time()).ljust(PAYLOAD_BYTES)
            sock.sendall(encode(Publish(TOPIC, payload, 1, packet_id=number % 65_535 + 1), V3))
            number += 1
    assert told, "Spark's process ended without a word"
    figures: dict[str, Any] = json.loads(told[-1])
    return figures


def _drain(sock: Any) -> None:
    with contextlib.suppress(OSError):  # closed here
        while sock.recv(READ_BYTES):
            pass
