"""Python calls of one lone publication: five bytes at QoS 1 across two regions of three, without a process or a clock.

The simulator drives nine nodes: six replicas, a gateway that publishes, a gateway that subscribes, and an idle one. As
between brokers, both ends of a link are up before either names its version of the overlay. One publication follows the
last after 0.2 s, so that each travels alone. Counted are all calls of Python functions in the
nodes, those that dataclasses generate and resumptions of generators included. The figures are the same on every
machine, and `tests/test_benches.py` holds a budget. `python -m tests.bench.lone` prints every function with its calls.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from types import CodeType, FrameType
from typing import Any

import keys
from bridge.contract.machine import Effect, Event, LinkUp, Machine
from bridge.topology import peers_of
from tests.sim.world import NOW, Traffic, make_world, subscribe

ROOT = Path(keys.__file__).parent.parent
PAUSE_S = 0.2
LINKED_AT = NOW + 2
SETTLED_AT = NOW + 15
PUBLICATIONS = 15
ROLES = {"site": "publisher", "control": "reader", "idle": "idle gateway"}
BEFORE = {"publisher": 845, "replica": 2_132, "reader": 627}  # at commit 79934b97; replica: all six
MODULES_BEFORE = 100
CALLS_MAX = 1_038
"""The budget that the tests hold. Lower it with each step that makes a lone publication cheaper."""


@dataclass(frozen=True)
class Lone:
    """The cost of one publication: calls in all, by role of the node, by module and by function."""

    calls: int
    roles: Counter[str]
    modules: Counter[str]
    functions: Counter[str]


class Counted:
    """A machine whose calls are counted in `calls`, by code."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.calls: Counter[CodeType] = Counter()

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        sys.setprofile(self._profile)
        try:
            return self._machine.handle(event, now)
        finally:
            sys.setprofile(None)

    @property
    def next_deadline(self) -> float | None:
        sys.setprofile(self._profile)
        try:
            return self._machine.next_deadline
        finally:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, what: str, _: Any) -> None:
        if what == "call":
            self.calls[frame.f_code] += 1


_OWN = {Counted.handle.__code__}


def measured() -> list[Lone]:
    """Returns the cost of each of some publications in a steady run."""
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2, "idle": 2})
    kernel = world.kernel(random.Random(1), (0.001, 0.002))
    for name in world.identities:
        for peer in peers_of(world.overlay, name):
            kernel.plan_event(LINKED_AT, name, LinkUp(peer))
    subscribe(kernel, "control", "plant/#")
    traffic, found = Traffic("site"), list[Lone]()
    at, nodes = NOW + 5, dict(kernel.nodes)
    while len(found) < PUBLICATIONS:
        counted = {name: Counted(node) for name, node in nodes.items()} if at >= SETTLED_AT else {}
        kernel.nodes.update(counted)
        traffic.publish(kernel, at, "plant/line1/temp", b"21.50", properties=())
        at += PAUSE_S
        kernel.run(at - 0.001)
        if counted:
            found.append(_lone(counted))
    assert len(kernel.trace.delivered["control"]) == len(traffic.published), "a publication did not come"
    return found


def typical(found: Sequence[Lone]) -> Lone:
    """Returns the median publication."""
    middle = median_low(lone.calls for lone in found)
    return next(lone for lone in found if lone.calls == middle)


def _lone(counted: dict[str, Counted]) -> Lone:
    roles, modules, functions = Counter[str](), Counter[str](), Counter[str]()
    for name, machine in counted.items():
        role = ROLES.get(name, "replica")
        for code, count in machine.calls.items():
            path = Path(code.co_filename)
            is_ours = path.is_relative_to(ROOT) and code not in _OWN
            module = str(path.relative_to(ROOT)) if is_ours else path.name
            roles[role] += count if code not in _OWN else 0
            modules[module] += count if is_ours else 0
            functions[f"{role:<13}{module}:{code.co_firstlineno} {code.co_qualname}"] += count
    return Lone(roles.total(), roles, +modules, functions)


def main() -> int:
    found = measured()
    lone = typical(found)
    print("calls of each:", *(each.calls for each in found))
    print(f"median: {lone.calls} calls in {len(lone.modules)} modules;", dict(lone.roles))
    for name, count in lone.functions.most_common():
        print(f"{count:>5} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
