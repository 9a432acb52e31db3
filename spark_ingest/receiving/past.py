"""The judge of past publications in a receiver: what a reading of a history brings becomes rows, each once.

A collector of its own, whose clock is the time of sealing, shares the memory of what is in the spool with the live
collector. So a publication that comes both ways is one row. Pages hold everything that a replica has, so nothing is
asked for, and nothing waits long. Not here: pages and eras (`bridge.reader.replay`), what is read when
(`receiver.backfill`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bridge.contract import Effect, Received, Wanted
from bridge.document import Overlay
from keys.envelope import KeyName
from spark_ingest.receiving.collector import SpoolCollector
from spark_ingest.receiving.division import Part
from spark_ingest.receiving.sealings import Ack, Group

PATIENCE_S = 10.0  # of the reading's clock, with publications that are not whole


class PastPublications:
    """A `bridge.reader.Judge` for the spool of `live`. `part`: the publications for this receiver; None: all; `region`:
    whose replicas are asked.
    """

    def __init__(self, live: SpoolCollector, part: Part | None, region: int) -> None:
        self._live, self._part, self._region = live, part, region
        self._collector: SpoolCollector | None = None
        self._check_values: Mapping[KeyName, bytes] = {}
        self._asked: set[KeyName] = set()

    def learn(self, check_values: Mapping[KeyName, bytes]) -> None:
        """Replaces the epoch keys that executors have."""
        self._check_values = check_values
        if self._collector is not None:
            self._collector.learn(check_values)

    def adopt_era(self, overlay: Overlay, now: float) -> list[Effect]:
        """Takes the next era."""
        if self._collector is not None:
            self._collector.adopt_overlay(overlay, now)
            return self._wanted()
        made = SpoolCollector(
            overlay, self._region, incomplete_s=PATIENCE_S, part=self._part, acknowledge=_no_ack, live=self._live
        )
        made.learn(self._check_values)
        self._collector = made
        return []

    def take_copy(self, event: Received, now: float) -> list[Effect]:
        """Takes a copy of a publication."""
        assert self._collector is not None
        self._collector.receive(event.peer, event.wire, None, now)
        return self._wanted()

    def keys_changed(self, now: float) -> list[Effect]:
        """Returns what is wanted still; `learn` brought the keys."""
        return self._wanted()

    def tick(self, now: float) -> list[Effect]:
        """Gives up what is not whole."""
        assert self._collector is not None
        self._collector.do_due_work(now)
        return self._wanted()

    @property
    def next_deadline(self) -> float | None:
        return None if self._collector is None else self._collector.next_deadline

    def _wanted(self) -> list[Effect]:
        """Returns a wish for each missing epoch key, once: the reading waits a moment for it."""
        assert self._collector is not None
        self._collector.take_asks()
        names = [name for name in self._collector.granted.take_wanted() if name not in self._asked]
        self._asked.update(names)
        return [Wanted(name) for name in names]

    # ------------------------------------------------------------------------------------------- writing

    @property
    def ready(self) -> int:
        """The number of publications waiting to be written."""
        return 0 if self._collector is None else self._collector.ready

    def take_group(self, max_rows: int, max_bytes: int | None, now: float) -> Group | None:
        """Returns the next publications to write, as received now; None if there are none."""
        group = None if self._collector is None else self._collector.take_group(max_rows, max_bytes)
        if group is None:
            return None
        received_us = int(now * 1_000_000)
        return replace(group, records=tuple(record._replace(received_us=received_us) for record in group.records))

    def note_written(self, group: Group) -> None:
        """Notes that the group is on disk."""
        assert self._collector is not None
        self._collector.note_written(group)


def _no_ack(acks: Sequence[Ack]) -> None:
    """Does nothing: a page is acknowledged when it comes."""
