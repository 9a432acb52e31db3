"""A region that takes nothing slows its publishers and makes nothing grow: real processes, stopped with SIGSTOP."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from bridge.document.policy import REFRESH
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.test_region import Subscriber, accepted
from tests.waits import wait_until

NORTH, SOUTH = ("north1", "north2", "north3"), ("south1", "south2", "south3")
MESSAGES, PAYLOAD_BYTES = 3_000, 8_000
"""Several times what the queues towards one region take before it counts as full."""
GROWTH_BYTES = 60 << 20


def resident_bytes(process_id: int) -> int:
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def across(overlay: OverlayProcesses) -> Subscriber:
    """Two regions, a device's gateway in one, a reader's in the other, whose wish is known everywhere."""
    overlay.make({"north": 3, "south": 3}, [("north", "south")], {"site": "north", "control": "south"})
    limits = {"queue_messages": 2 * MESSAGES, "queue_bytes": 256 << 20}
    overlay.configure("control", limits=limits)  # the reader here is slow, too, and that is not what is tested
    overlay.start(*NORTH, *SOUTH, "site", "control")
    reader = Subscriber(overlay, "control", ["plant/#"])
    assert accepted(overlay, "control")
    probe = overlay.client("site", "probe")

    def arrives() -> bool:
        probe.publish("plant/probe", b"", qos=1).wait_for_publish(10)
        return wait_until(lambda: bool(reader.payloads("plant/probe")), 0.5)

    assert wait_until(arrives)
    return reader


def stop(overlay: OverlayProcesses, *names: str) -> None:
    for name in names:
        overlay.running[name].send_signal(signal.SIGSTOP)


def go_on(overlay: OverlayProcesses, *names: str) -> None:
    for name in names:
        overlay.running[name].send_signal(signal.SIGCONT)


def test_a_region_that_takes_nothing_slows_its_publishers_and_nothing_is_lost(overlay: OverlayProcesses):
    reader = across(overlay)
    before = {name: resident_bytes(overlay.running[name].pid) for name in NORTH}
    stop(overlay, *SOUTH)
    device = overlay.client("site", "device")
    payload = bytes(PAYLOAD_BYTES - 8)
    sent = [device.publish(f"plant/{n % 4}", n.to_bytes(8, "big") + payload, qos=1) for n in range(MESSAGES)]
    # The devices notice nothing: the gateway has their publications on disk.
    assert wait_until(lambda: all(one.is_published() for one in sent), 60)
    figures = overlay.figures("site")
    assert figures["outbox_bytes"] > MESSAGES * PAYLOAD_BYTES // 2
    assert len(reader.messages) < MESSAGES
    for name in NORTH:
        assert resident_bytes(overlay.running[name].pid) - before[name] < GROWTH_BYTES
    go_on(overlay, *SOUTH)

    def got() -> int:
        return sum(len(reader.payloads(f"plant/{topic}")) for topic in range(4))

    wait_until(lambda: got() >= MESSAGES, 90)
    for topic in range(4):
        numbers = [int.from_bytes(payload[:8], "big") for payload in reader.payloads(f"plant/{topic}")]
        assert numbers == list(range(topic, MESSAGES, 4))


@pytest.mark.slow
def test_one_replica_that_takes_nothing_holds_up_nobody(overlay: OverlayProcesses):
    reader = across(overlay)
    stop(overlay, "south2")
    device = overlay.client("site", "device")
    began = time.monotonic()
    for number in range(2_000):  # twice what a lane takes before it counts as full
        # What is retained is a batch of one: batches of so little would not fill a lane.
        device.publish("plant/a", number.to_bytes(8, "big"), qos=1, retain=True)
    assert wait_until(lambda: len(reader.payloads("plant/a")) >= 2_000, 60), time.monotonic() - began
    assert reader.payloads("plant/a") == [number.to_bytes(8, "big") for number in range(2_000)]
    assert wait_until(lambda: overlay.figures("site")["counts"].get("sealed", 0) >= 2_000)


@pytest.mark.attack(137)
@pytest.mark.slow
def test_a_reader_that_had_no_room_for_a_key_opens_what_comes_once_it_reads_again(overlay: OverlayProcesses):
    """Its queues at all replicas are full while the publisher goes on with another key: the key is lost to it."""
    overlay.make({"north": 3}, [], {"site": "north", "control": "north"})
    for name in NORTH:
        limits = {"member_queue_messages": 16, "member_in_flight": 16}
        overlay.configure(name, limits=limits)
    overlay.start(*NORTH, "site", "control")
    reader = Subscriber(overlay, "control", ["plant/#"])
    assert accepted(overlay, "control")
    device = overlay.client("site", "device")

    def publish(number: int) -> None:
        device.publish("plant/a", str(number).encode(), qos=1).wait_for_publish(10)  # each is a batch

    publish(0)
    assert wait_until(lambda: reader.payloads("plant/a") == [b"0"])
    stop(overlay, "control")
    away = REFRESH.messages + 16  # into the next key, and no further than that
    for number in range(1, away):
        publish(number)
    go_on(overlay, "control")
    assert wait_until(lambda: len(reader.payloads("plant/a")) > 16)
    then = list(range(away, away + 8))  # room for all of them
    for number in then:
        publish(number)

    def got() -> list[int]:
        return [number for number in map(int, reader.payloads("plant/a")) if number >= away]

    assert wait_until(lambda: len(got()) >= len(then), 60), got()
    assert got() == then
