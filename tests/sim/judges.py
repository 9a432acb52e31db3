"""Replica, gateway and ingest job of one overlay before the same wires, and what each says of every one of them.

A *verdict* is the set of reasons for which something of a wire was refused; empty: it holds. Not here: which wires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from bridge.contract.machine import Blame, Count, Deliver, Effect, Publication, Received, Wire
from bridge.reader.collector import Collector
from bridge.replica.forwarder import Forwarder
from keys.derivation import Derivation
from keys.envelope import PROPERTY_SHARES
from spark_ingest.opening.decode import Opened, Opener
from spark_ingest.receiving.collector import EARLY_S
from spark_ingest.receiving.collector import SpoolCollector as JobCollector
from spark_ingest.secrets.grants import GrantedScope, encode_grants
from spark_ingest.spool.writer import as_batch
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
    """Fresh ones. `reader`: a gateway of the region of both readers; `replica`: of any region; `executor`: opens what
    the job spools."""

    def __init__(
        self, world: World, reader: str = "control", replica: str = "r2a", executor: Opener | None = None
    ) -> None:
        overlay = world.overlay
        self.home = overlay.certificate(reader).region
        self.overlay = overlay
        self.gateway = Collector(overlay, reader, world.secrets, world.keys)
        self.job = JobCollector(overlay, self.home)
        self.job.learn({name: Derivation(key).check_value for name, key in world.keys})
        self.replica = Forwarder(overlay, replica, lambda epoch: bytes([epoch % 256] * 32))
        self.blamed: dict[str, set[tuple[str, bool]]] = {"gateway": set(), "job": set()}
        self.delivered: set[tuple[str, int]] = set()
        self.rows: set[tuple[str, int]] = set()
        self.executor = executor
        self.given: dict[int, Publication] = {}
        """What the gateway's clients got, by number."""
        self.opened: dict[int, Publication] = {}
        """What the executor made of the same."""

    def judge(self, peer: str, wire: Wire, now: float, to_replica: Received) -> Verdicts:
        """What all three say of a wire from `peer`. `to_replica`: the same as it comes to the replica."""
        return Verdicts(
            self._gateway(self.gateway.take_wire(Received(peer, wire), now)),
            self._job(peer, wire, now),
            refused(self.replica.take_wire(to_replica, now)),
        )

    def tick(self, now: float) -> None:
        """What waited is given up; everything that is whole is out."""
        self._gateway(self.gateway.tick(now))
        self.job.do_due_work(now)
        self._write()

    def _gateway(self, effects: Iterable[Effect]) -> Verdict:
        effects = list(effects)
        for effect in effects:
            if isinstance(effect, Blame):
                self.blamed["gateway"].add((effect.member, effect.named))
            elif isinstance(effect, Deliver):
                self.delivered.add((effect.publisher, effect.sequence))
                self.given[effect.sequence] = replace(effect.publication, expiry_s=None)  # of which rows say nothing
        return refused(effects)

    def _job(self, peer: str, wire: Wire, now: float) -> Verdict:
        before = Counter(self.job.figures)
        self.job.receive(peer, wire, lambda: None, now)
        self.job.judge_early(now + EARLY_S)  # it waits for a moment with what may be early
        self._write()
        news = self.job.figures - before
        return frozenset(name.removeprefix("refused_") for name, _ in news if name.startswith("refused_"))

    def _write(self) -> None:
        while group := self.job.take_group(500):
            for record in group.records:
                if record.reason is None:
                    self.rows.add((self.overlay.by_party[record.publisher].name, record.sequence))
            if self.executor is not None:
                self._open(self.executor.open(as_batch(group.records, group.keys)))
            self.job.note_written(group)
        for (name, member), count in self.job.figures.items():
            if name in ("suspected", "named") and count:
                self.blamed["job"].add((member, name == "named"))

    def _open(self, opened: Opened) -> None:
        columns, sealed = opened.content, opened.content.sealed
        for at, number in enumerate(opened.numbers.tolist()):
            self.opened[number] = Publication(
                columns.topic[at].as_py(),
                columns.payload[at].as_py(),
                int(opened.qos[at]),
                bool(opened.retain[at]),
                properties=tuple((pair["name"], pair["value"]) for pair in columns.properties[at].as_py()),
                time_ms=int(columns.time_ms[at]),
                **{name: values[at].as_py() for name, values in sealed.items()},
            )


def executor_of(world: World, path: Path) -> Opener:
    """With all epoch keys of the world, which it writes to a file."""
    keys = dict(world.keys)
    path.touch(mode=0o600)
    path.write_bytes(
        encode_grants(
            GrantedScope(
                secret.scope.filter,
                secret.scope.keyed,
                secret.token_key,
                {name: key for name, key in keys.items() if name.scope == secret.scope.filter},
            )
            for secret in world.secrets
        )
    )
    opener = Opener(path)
    opener.refresh()
    return opener


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
