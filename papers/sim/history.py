"""A replica's history in the simulator: records on a disk, and pages."""

from __future__ import annotations

from bisect import bisect_right, insort

from bridge.contract import HistoryKey, HistoryPosition, HistoryRecord, Recall, Recalled, Record, RecordEra


class SimulatedHistory:
    """Records by position, keys and eras, as a disk keeps them over a crash."""

    def __init__(self) -> None:
        self._records: dict[int, dict[HistoryPosition, tuple[int, HistoryRecord]]] = {}  # by scope: with their rows
        self._order: dict[int, list[HistoryPosition]] = {}
        self._keys: dict[tuple[int, bytes], HistoryKey] = {}
        self._eras: list[tuple[int, bytes]] = []
        self._documents: dict[bytes, bytes] = {}
        self._row = 0

    def append_records(self, effect: Record) -> None:
        """Appends records and keys. Of two records of a position, or keys of an id, the longer stays."""
        for record in effect.records:
            of = self._records.setdefault(record.scope, {})
            known = of.get(record.position)
            if known is None:
                insort(self._order.setdefault(record.scope, []), record.position)
            if known is None or len(known[1].body) < len(record.body):
                self._row += 1
                of[record.position] = self._row, record
        for key in effect.keys:
            before = self._keys.get((key.scope, key.key_id))
            if before is None or len(before.shares) < len(key.shares):
                self._keys[key.scope, key.key_id] = key

    def record_era(self, effect: RecordEra) -> None:
        """Keeps an era, unless in force already."""
        if not self._eras or self._eras[-1][1] != effect.digest:
            self._eras.append((effect.time_ms, effect.digest))
        self._documents[effect.digest] = effect.document

    def recall(self, effect: Recall) -> Recalled:
        """Returns the page that was asked for."""
        peer, request = effect.peer, effect.request
        if request.eras:
            return Recalled(peer, request, eras=tuple(sorted(self._eras)))
        if request.digest:
            return Recalled(peer, request, document=self._documents.get(request.digest))
        of, order = self._records.get(request.scope, {}), self._order.get(request.scope, [])
        found: list[HistoryRecord] = []
        size, upto = 0, None
        first = max(request.from_ms, effect.oldest_ms)
        for position in order[bisect_right(order, request.after) :]:
            row, record = of[position]
            if not first <= position.time_ms < request.until_ms or row <= request.row:
                continue
            if request.publishers and position.publisher not in request.publishers:
                continue
            size += len(record.body)
            if found and size > request.most_bytes:
                upto = found[-1].position
                break
            found.append(record)
        named = {record.key_id for record in found}
        keys = [key for (scope, key_id), key in self._keys.items() if scope == request.scope and key_id in named]
        since_ms = order[0].time_ms if order else 0
        return Recalled(peer, request, tuple(found), tuple(keys), upto, self._row, since_ms)
