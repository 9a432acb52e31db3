"""`mosquitto.db`: what a real Mosquitto wrote is served by ours, and a file that was cut or altered is one line."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.importing.loading import load_db
from gateway.importing.mosquitto_db import MAGIC, DbError, parse_db
from gateway.mqtt5.packets import Publish, Version
from tests.gateway.harness import Wire, serving
from tests.ports import free_ports

DAY_S = 86_400


def chunk(kind: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return struct.pack(">II", kind, len(content)) + content


def message(id_: int, topic: str, payload: bytes, qos: int = 1, expires: int = 0, retain: int = 0) -> bytes:
    fixed = struct.pack("<Qq", id_, expires)
    fixed += struct.pack(">IHHHHHBB", len(payload), 0, 3, 0, len(topic), 1883, qos, retain)
    return chunk(2, fixed, b"pub", topic.encode(), payload)


def client(name: str, expiry_s: int = 0xFFFFFFFF, ends: int = 0) -> bytes:
    return chunk(6, struct.pack("<q", ends), struct.pack(">IHHHH", expiry_s, 0, len(name), 1883, 0), bytes(4),
                 name.encode())  # fmt: skip


def queued(id_: int, name: str, qos: int = 1, state: int = 11, direction: int = 1, flags: int = 0) -> bytes:
    fixed = struct.pack("<Q", id_) + struct.pack(">HHBBBB", 1, len(name), qos, state, flags, direction)
    return chunk(3, fixed, name.encode())


def subscription(name: str, topic_filter: str, qos: int = 1, options: int = 0, identifier: int = 0) -> bytes:
    fixed = struct.pack(">IHHBB", identifier, len(name), len(topic_filter), qos, options) + bytes(2)
    return chunk(5, fixed, name.encode(), topic_filter.encode())


def retained(id_: int) -> bytes:
    return chunk(4, struct.pack("<Q", id_))


def file(*chunks: bytes, version: int = 6) -> bytes:
    return MAGIC + bytes(4) + struct.pack(">I", version) + b"".join(chunks)


WHOLE = file(
    message(1, "a/b", b"kept", retain=1), message(2, "x/y", b"later"), message(3, "$SYS/broker/uptime", b"9"),
    client("keeper"), queued(2, "keeper"), retained(1), retained(3), subscription("keeper", "x/+"),
)  # fmt: skip


@pytest.mark.parametrize("data", [b"", b"SQLite format 3", MAGIC, file(version=4), file(version=7)])
def test_another_file_is_refused(data: bytes) -> None:
    with pytest.raises(DbError):
        parse_db(data)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(WHOLE)), st.integers(0, 2**32))
def test_a_file_that_was_cut_or_altered_is_parsed_or_refused(at: int, seed: int) -> None:
    draw = random.Random(seed)
    altered = bytearray(WHOLE)
    for _ in range(3):
        altered[draw.randrange(23, len(altered))] = draw.randrange(256)
    for data in (WHOLE[:at], bytes(altered)):
        with contextlib.suppress(DbError):
            parse_db(data)


# ------------------------------------------------------------------------------------- a real Mosquitto's file


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Mosquitto with two sessions, retained and queued messages, stopped again."""
    if shutil.which("mosquitto") is None:
        pytest.skip("no mosquitto here; make tools")
    (port,) = free_ports(1)
    conf = tmp_path / "m.conf"
    conf.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
        f"persistence_location {tmp_path}/\nuser root\n"
    )
    process = subprocess.Popen(["mosquitto", "-c", str(conf)], stderr=subprocess.DEVNULL)

    def client(kind: str, *arguments: str) -> None:
        command = [f"mosquitto_{kind}", "-p", str(port), *arguments]
        for _ in range(100):
            if subprocess.run(command, timeout=20, check=False, capture_output=True).returncode == 0:
                return
            time.sleep(0.1)
        raise AssertionError(command)

    try:
        client("sub", "-i", "keeper", "-c", "-q", "1", "-t", "plant/#", "-E", "-V", "311")
        client("sub", "-i", "five", "-c", "-q", "2", "-t", "plant/+/t", "-V", "5", "-E", "-x", "3600",
               "-D", "subscribe", "subscription-identifier", "7")  # fmt: skip
        client("pub", "-t", "plant/1/t", "-m", "first", "-q", "1", "-V", "5",
               "-D", "publish", "user-property", "unit", "kelvin")  # fmt: skip
        client("pub", "-t", "plant/1/t", "-m", "kept", "-q", "2", "-r")
    finally:
        process.terminate()
        process.wait(20)
    return tmp_path / "mosquitto.db"


def test_ours_serves_what_mosquitto_kept(written: Path, tmp_path: Path) -> None:
    loaded = load_db(written, tmp_path / "data", time.time(), DAY_S)
    assert (loaded.retained, loaded.sessions, loaded.subscriptions, loaded.queued) == (1, 2, 2, 4)
    assert loaded.notes == ()

    async def go() -> None:
        async with serving({"data": str(tmp_path / "data")}) as broker:
            old = await Wire.connect(broker, "keeper", Version.V311, clean_start=False)
            assert old.connack is not None
            assert old.connack.session_present
            for payload in (b"first", b"kept"):
                publish = await old.expect(Publish)
                assert (publish.topic, publish.payload, publish.qos, publish.retain) == ("plant/1/t", payload, 1, False)
            five = await Wire.connect(broker, "five", clean_start=False, properties={"session_expiry_s": 3600})
            assert five.connack is not None
            assert five.connack.session_present
            publish = await five.expect(Publish)
            assert publish.properties.user == (("unit", "kelvin"),)
            assert publish.properties.subscription_ids == (7,)
            fresh = await Wire.connect(broker, "fresh")
            await fresh.subscribe("plant/#", 1)
            publish = await fresh.expect(Publish)
            assert (publish.payload, publish.retain) == (b"kept", True)

    asyncio.run(go())
