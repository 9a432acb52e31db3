"""Two regions whose links are cut and healed at random under load, each member in a network namespace of its own.

Cuts take out more than f replicas of a region at once, too: delivery then waits, and goes on where it stopped.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest

from tests.conftest import tool
from tests.gateway.namespaces import DividedProcesses, Network
from tests.gateway.test_region import Subscriber, accepted
from tests.support.processes import ending
from tests.waits import wait_until

pytestmark = pytest.mark.skipif(
    tool("ip") is None or os.geteuid() != 0, reason="needs root and iproute2; run `make tools` as root"
)

NORTH, SOUTH = ("north1", "north2", "north3"), ("south1", "south2", "south3")
PAIRS = [
    *(("site", replica) for replica in NORTH),
    *((one, other) for one in NORTH for other in SOUTH),
    *(("control", replica) for replica in SOUTH),
]
TOPICS, RATE = 4, 100
HEALED_S = 80.0
"""What may pass after the last heal of a short run: the longest pause between two attempts to connect, and the work."""


overlay = ending(kind=DividedProcesses)


class Cuts:
    """Cuts at random moments, each healed after a while. `step` does what is due."""

    def __init__(self, network: Network, seed: int) -> None:
        self._network, self._random = network, random.Random(seed)
        self._heals: list[tuple[float, Callable[[], None]]] = []
        self._next = 0.0
        self.made = 0

    def step(self, now: float) -> None:
        for at, heal in [due for due in self._heals if due[0] <= now]:
            heal()
            self._heals.remove((at, heal))
        if now >= self._next:
            self._next = now + self._random.uniform(0.5, 2.5)
            self._heals.append((now + self._random.uniform(1.0, 8.0), self._cut()))
            self.made += 1

    def _cut(self) -> Callable[[], None]:
        network, choice = self._network, self._random.random()
        if choice < 0.2:
            name = self._random.choice([*NORTH, *SOUTH, "site", "control"])
            network.set_link(name, False)
            return lambda: network.set_link(name, True)
        a, b = self._random.choice(PAIRS)
        ways = [(a, b), (b, a)] if choice < 0.6 else [self._random.choice([(a, b), (b, a)])]
        for one, other in ways:
            network.cut(one, other)
        return lambda: [network.heal(one, other) for one, other in ways] and None


def run(overlay: DividedProcesses, seconds: float, seed: int, healed_s: float = HEALED_S) -> None:
    overlay.divide({"north": 3, "south": 3}, [("north", "south")], {"site": "north", "control": "south"})
    overlay.start(*NORTH, *SOUTH, "site", "control")
    reader = Subscriber(overlay, "control", ["plant/#"])
    assert accepted(overlay, "control")
    device = overlay.client("site", "device")

    def arrives() -> bool:
        device.publish("plant/probe", b"", qos=1).wait_for_publish(10)
        return wait_until(lambda: bool(reader.payloads("plant/probe")), 0.5)

    assert wait_until(arrives)
    cuts, sent = Cuts(overlay.network, seed), []
    began = time.monotonic()
    while (now := time.monotonic() - began) < seconds:
        cuts.step(now)
        while len(sent) < now * RATE:
            sent.append(device.publish(f"plant/{len(sent) % TOPICS}", b"%d" % len(sent), qos=1))
        time.sleep(0.005)
    overlay.network.heal_all()
    assert cuts.made > seconds / 4
    assert wait_until(lambda: all(one.is_published() for one in sent), 10)

    def missing() -> int:
        return len(sent) - sum(len(reader.payloads(f"plant/{topic}")) for topic in range(TOPICS))

    healed = time.monotonic()
    wait_until(lambda: missing() <= 0, healed_s)
    print(
        f"{len(sent)} messages, {cuts.made} cuts, the last came {time.monotonic() - healed:.1f} s after all had healed"
    )
    for topic in range(TOPICS):
        got = [int(payload) for payload in reader.payloads(f"plant/{topic}")]
        lost = sorted(set(range(topic, len(sent), TOPICS)) - set(got))
        assert not lost, f"{len(lost)} lost on topic {topic}, the first {lost[:5]}"
        assert len(got) == len(set(got)), "something came twice"
        assert got == sorted(got), "out of order"


@pytest.mark.slow
def test_cuts_at_random_lose_repeat_and_reorder_nothing(overlay: DividedProcesses):
    run(overlay, 20.0, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_five_minutes_of_cuts_at_random(overlay: DividedProcesses):
    run(overlay, 300.0, seed=2, healed_s=230.0)
