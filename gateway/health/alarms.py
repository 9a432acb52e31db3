"""History of findings: what `veilmq status` found, since when, and when it was over. Pure: the time is passed in.

A finding that ends is remembered; of too many the oldest that are over go, then the oldest that last. One that comes
and goes is one alarm each time. The history is kept by `gateway.day`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gateway.health.findings import LEVELS, Finding

ALARMS_MAX = 300  # remembered, over or not
TEXT_MAX = 400  # characters of an alarm's text


@dataclass(slots=True)
class PastFinding:
    """Finding with its times. `since`, `over`: UNIX seconds; `over` None: it lasts."""

    key: str
    level: str
    text: str
    since: float
    over: float | None = None


class Alarms:
    """History of one process's findings, the oldest first."""

    def __init__(self) -> None:
        self._all: list[PastFinding] = []
        self.is_changed = False
        """True until the history is kept again."""

    def __len__(self) -> int:
        return len(self._all)

    def take_findings(self, findings: Sequence[Finding], now: float) -> None:
        """Takes the findings of a moment: new ones begin, those that are gone are over."""
        present = {finding.key: finding for finding in findings}
        for alarm in self._all:
            if alarm.over is not None:
                continue
            finding = present.pop(alarm.key, None)
            if finding is None:
                alarm.over, self.is_changed = now, True
            elif alarm.level != finding.level:
                alarm.level, alarm.text, self.is_changed = finding.level, finding.text[:TEXT_MAX], True
            else:
                alarm.text = finding.text[:TEXT_MAX]  # ages and counts in it change at each look
        for finding in present.values():
            self._all.append(PastFinding(finding.key, finding.level, finding.text[:TEXT_MAX], now))
            self.is_changed = True
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._all) > ALARMS_MAX:
            gone = next((alarm for alarm in self._all if alarm.over is not None), self._all[0])
            self._all.remove(gone)

    def shown_alarms(self) -> list[dict[str, Any]]:
        """Returns all alarms as JSON, those that last first, then the newest first."""
        newest = sorted(self._all, key=lambda alarm: (alarm.over is not None, -(alarm.over or alarm.since)))
        return [asdict(alarm) for alarm in newest]

    def encode(self) -> bytes:
        """Returns the content of the file."""
        return json.dumps([asdict(alarm) for alarm in self._all]).encode()

    def restore_alarms(self, content: bytes) -> bool:
        """Takes the alarms of a former process; returns False for content that is not ours."""
        try:
            rows = [PastFinding(**row) for row in json.loads(content)]
        except (ValueError, TypeError):
            return False
        if not all(_is_sound(row) for row in rows):
            return False
        self._all = [*rows, *self._all]
        self._drop_oldest()
        return True


def _is_sound(row: PastFinding) -> bool:
    texts = isinstance(row.key, str) and isinstance(row.text, str) and row.level in LEVELS
    over = row.over is None or isinstance(row.over, int | float)
    return texts and over and isinstance(row.since, int | float)
