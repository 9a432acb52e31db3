"""Replica, gateway and ingest job of one overlay before the same wires, and what each says of every one of them.

A *verdict* is the set of reasons for which something of a wire was refused; empty: it holds. Not here: which wires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from bridge.contract.machine import Blame, Count, Deliver, Effect, Received, Wire
from bridge.reader.collector import Collector
from bridge.replica.forwarder import Forwarder
from keys.envelope import PROPERTY_SHARES
from spark_ingest.receiving.collector import SpoolCollector as JobCollector
from tests.sim.world import World

Verdict: TypeAlias = frozenset[str]

NOTHING: Verdict = frozenset()
LATE = frozenset({"Expired", "WrongEpochKey"})
"""What a replica says of what cannot be fresh: a reader, who may have been away, asks others instead."""


@dataclass(frozen=True)
class Verdicts:
    gateway: Verdict
    job: Verdict
    replica: Verdict


class Judges:
    """Fresh ones. `reader`: a gateway of the region of both readers; `replica`: of any region."""

    def __init__(self, world: World, reader: str = "control", replica: str = "r2a") -> None:
        overlay = world.overlay
        self.home = overlay.certificate(reader).region
        self.overlay = overlay
        self.gateway = Collector(overlay, reader, world.secrets, world.keys)
        self.job = JobCollector(overlay, self.home)
        self.job.learn({name for name, _ in world.keys})
        self.replica = Forwarder(overlay, replica, lambda epoch: bytes([epoch % 256] * 32))
        self.blamed: dict[str, set[tuple[str, bool]]] = {"gateway": set(), "job": set()}
        self.delivered: set[tuple[str, int]] = set()
        self.rows: set[tuple[str, int]] = set()

    def judge(self, peer: str, wire: Wire, now: float, to_replica: Received) -> Verdicts:
        """What all three say of a wire from `peer`. `to_replica`: the same as it comes to the replica."""
        return Verdicts(
            self._gateway(self.gateway.received(Received(peer, wire), now)),
            self._job(peer, wire, now),
            refused(self.replica.received(to_replica, now)),
        )

    def tick(self, now: float) -> None:
        """What waited is given up; everything that is whole is out."""
        self._gateway(self.gateway.tick(now))
        self.job.tick(now)
        self._write()

    def _gateway(self, effects: Iterable[Effect]) -> Verdict:
        effects = list(effects)
        for effect in effects:
            if isinstance(effect, Blame):
                self.blamed["gateway"].add((effect.member, effect.named))
            elif isinstance(effect, Deliver):
                self.delivered.add((effect.publisher, effect.sequence))
        return refused(effects)

    def _job(self, peer: str, wire: Wire, now: float) -> Verdict:
        before = Counter(self.job.figures)
        self.job.receive(peer, wire, lambda: None, now)
        self._write()
        news = self.job.figures - before
        return frozenset(name.removeprefix("refused_") for name, _ in news if name.startswith("refused_"))

    def _write(self) -> None:
        while group := self.job.take(500):
            for record in group.records:
                if record.reason is None:
                    self.rows.add((self.overlay.by_party[record.publisher].name, record.sequence))
            self.job.written(group)
        for (name, member), count in self.job.figures.items():
            if name in ("suspected", "named") and count:
                self.blamed["job"].add((member, name == "named"))


def refused(effects: Iterable[Effect]) -> Verdict:
    """The reasons among a machine's effects."""
    return frozenset(e.label for e in effects if isinstance(e, Count) and e.name == "refused")


def without_shares(wire: Wire) -> Wire:
    """Shares are stamped for who receives them; all else of a wire is the same for everybody."""
    return replace(wire, properties=tuple(p for p in wire.properties if p[0] != PROPERTY_SHARES))


def disagreements(found: Sequence[tuple[str, Verdicts]], apart: Verdict = NOTHING) -> list[str]:
    """One line for each wire of which they do not say the same. `apart`: what else only the replica says."""
    told = []
    for name, verdicts in found:
        differ = (verdicts.replica ^ verdicts.gateway) - apart
        if verdicts.gateway != verdicts.job or (differ and not verdicts.replica & (LATE | apart)):
            told.append(f"{name}: gateway {[*verdicts.gateway]}, job {[*verdicts.job]}, replica {[*verdicts.replica]}")
    return told
