"""What a broker's shell does for replicas of scopes with planes: tells them the loads of their links."""

from __future__ import annotations

from bridge.contract.loads import Loads
from bridge.contract.machine import Acked, Effect, Event, Received, Send
from bridge.topology.congestion import WINDOW_S
from papers.sim.kernel import EventTrace, Kernel


class Shell:
    """Tells replicas the loads of their links, as the broker does; plays a replica that is stopped: it neither hears
    nor answers, and then does all that it missed, as between SIGSTOP and SIGCONT."""

    def __init__(self, kernel: Kernel, says_loads: bool = True) -> None:
        self.kernel, self.says_loads = kernel, says_loads
        self.stopped: dict[str, tuple[float, float]] = {}
        self.slow: dict[tuple[str, str], float] = {}
        """By link, from one to another, by how many seconds later what takes it comes."""
        self._slowed: dict[int, Event] = {}
        self.sent: dict[tuple[str, str], int] = {}
        self.acked: dict[tuple[str, str], int] = {}
        self._told: dict[tuple[str, str], tuple[int, int]] = {}
        self._effect, self._passes = kernel._effect, kernel._passes
        kernel._effect = self._watch  # type: ignore[method-assign]
        kernel._passes = self._through  # type: ignore[method-assign]

    def _watch(self, name: str, effect: Effect) -> None:
        if isinstance(effect, Send) and effect.wire.topic[0] != "$":
            self.sent[name, effect.peer] = self.sent.get((name, effect.peer), 0) + 1
        self._effect(name, effect)

    def _through(self, name: str, event: Event) -> bool:
        begin, end = self.stopped.get(name, (0.0, 0.0))
        if begin <= self.kernel.now < end:
            if isinstance(event, Received | Acked):
                self.kernel.plan_event(end + 0.001, name, event)
            return False
        begin, end = self.stopped.get(event.peer, (0.0, 0.0)) if isinstance(event, Acked) else (0.0, 0.0)
        if begin <= self.kernel.now < end:
            self.kernel.plan_event(end + 0.002, name, event)
            return False
        late_s = self.slow.get((event.peer, name), 0.0) if isinstance(event, Received) else 0.0
        if late_s and id(event) not in self._slowed:
            self._slowed[id(event)] = event
            self.kernel.plan_event(self.kernel.now + late_s, name, event)
            return False
        if isinstance(event, Received) and event.wire.topic[0] != "$":
            self.acked[event.peer, name] = self.acked.get((event.peer, name), 0) + 1
        return self._passes(name, event)

    def run(self, until: float) -> EventTrace:
        replicas = [name for name in self.kernel.nodes if name.startswith("r")]
        while self.kernel.now < until:
            for name in replicas if self.says_loads else ():
                begin, end = self.stopped.get(name, (0.0, 0.0))
                if begin <= self.kernel.now < end:
                    continue
                self.kernel.plan_event(self.kernel.now, name, Loads(tuple(self._loads(name))))
            self.kernel.run(self.kernel.now + WINDOW_S)
        return self.kernel.trace

    def _loads(self, name: str) -> list[tuple[str, int, int, int]]:
        loads = []
        for (sender, peer), sent in self.sent.items():
            if sender == name and peer.startswith("r"):
                acked = self.acked.get((name, peer), 0)
                came, went = self._told.get((name, peer), (0, 0))
                self._told[name, peer] = sent, acked
                loads.append((peer, sent - came, acked - went, max(0, sent - acked)))
        return loads
