"""How far the histories of replicas were read into a part of the spool: a file beside the segments.

The receiver writes the record, and goes on there after a restart. Another file, which a command writes, asks the
receiver of the part, running or to come, for more. Not here: reading (`receiving.backfill`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gateway.files import write_durably
from spark_ingest.errors import SpoolDamaged

RECORD, ASKED = "backfill.json", "backfill.asked"


@dataclass(slots=True)
class ScopeRecord:
    """The state of the reading of one scope. `from_ms`, `until_ms`: the span; `upto_ms`: all until then is written."""

    from_ms: int
    until_ms: int
    upto_ms: int
    is_over: bool = False
    is_refused: bool = False

    @property
    def share(self) -> float:
        """The part of the span that is done, from 0 to 1."""
        span = max(1, self.until_ms - self.from_ms)
        return 1.0 if self.is_over else min(1.0, max(0.0, (self.upto_ms - self.from_ms) / span))


@dataclass(slots=True)
class BackfillRecord:
    """The record of a backfill: since when, how far each scope is, by number, and rows written."""

    since_ms: int
    scopes: dict[int, ScopeRecord] = field(default_factory=dict)
    rows: int = 0
    is_over: bool = False

    def store(self, directory: Path) -> None:
        """Writes the record beside the segments. Raises OSError."""
        write_durably(directory / RECORD, json.dumps(asdict(self)).encode())

    @classmethod
    def load(cls, directory: Path) -> BackfillRecord | None:
        """Returns the record; None if nothing was asked for. Raises SpoolDamaged, OSError."""
        try:
            told = json.loads((directory / RECORD).read_bytes())
            scopes = {int(number): ScopeRecord(**each) for number, each in told["scopes"].items()}
            return cls(int(told["since_ms"]), scopes, int(told["rows"]), bool(told["is_over"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SpoolDamaged(
                f"{directory / RECORD} is unreadable; remove it, and ask for the backfill again"
            ) from None

    @property
    def told(self) -> str:
        """The record in words, for people."""
        scopes = [
            f"scope {number} {'refused' if each.is_refused else f'{each.share:.0%}'}"
            for number, each in sorted(self.scopes.items())
        ]
        return f"{self.rows:,} sealed batches of history written; {', '.join(scopes) or 'waits for replicas'}"


def combined(records: Sequence[BackfillRecord]) -> BackfillRecord | None:
    """Returns the record of a receiver of several parts, each of which reads the same span; None for no parts."""
    if not records:
        return None
    scopes = {}
    for number in sorted({number for each in records for number in each.scopes}):
        of_parts = [each.scopes[number] for each in records if number in each.scopes]
        share = sum(each.share for each in of_parts) / len(records)
        from_ms, until_ms = min(each.from_ms for each in of_parts), max(each.until_ms for each in of_parts)
        is_over = len(of_parts) == len(records) and all(each.is_over for each in of_parts)
        upto_ms = from_ms + int(share * (until_ms - from_ms))
        refused = any(each.is_refused for each in of_parts)
        scopes[number] = ScopeRecord(from_ms, until_ms, upto_ms, is_over, refused)
    since_ms, rows = min(each.since_ms for each in records), sum(each.rows for each in records)
    return BackfillRecord(since_ms, scopes, rows, all(each.is_over for each in records))


def forget(directory: Path) -> None:
    """Erases the record: another part goes on with what it asked for. Raises OSError."""
    (directory / RECORD).unlink(missing_ok=True)


def ask(directory: Path, since_ms: int) -> None:
    """Asks the receiver of a part, running or to come, for everything since then. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_durably(directory / ASKED, str(since_ms).encode())


def is_asked(directory: Path) -> bool:
    """Returns True while no receiver has taken the last `ask`."""
    return (directory / ASKED).exists()


def take_asked(directory: Path) -> int | None:
    """Returns UNIX time in ms from which somebody asked for everything, once; None if nobody did. Raises OSError."""
    try:
        since_ms = int((directory / ASKED).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        raise SpoolDamaged(f"{directory / ASKED} is unreadable; remove it, and ask for the backfill again") from None
    return since_ms


def answered(directory: Path) -> None:
    """Notes that the record has what was asked for. Raises OSError."""
    (directory / ASKED).unlink(missing_ok=True)
