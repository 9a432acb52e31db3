"""Marks in an offset of a checkpoint beside positions: its owner, its spool and its devices.

    {"@": {"owner": TOKEN, "parts": {RECEIVER: TEXT}, "held": [KEY...], "redriven": n, "redriven_us": n},
     RECEIVER: {"segment": n, "byte": n, "shard": PARTS}}

The token is drawn when a query begins without a checkpoint, and goes from offset to offset; it tells consumers apart
(`spool.consumers`). `parts`: the spool of the positions, for another spool may have groups ending at equal bytes.
`shard`: the devices, for rows of others were passed by. `held`: names of keys that were missing when the micro-batch
ending there was planned, whose rows it passes over; `redriven`: the number up to which such rows were read again
(`spool.ledger`); `redriven_us`: `progress_at` of the rows that the micro-batch ending there reads again. Not here: the
meaning of positions (`spool.view`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from spark_ingest.errors import BadOption, SpoolGap
from spark_ingest.spool import Offset, SpoolView

MARK = "@"
"""No receiver has this name."""
_log = logging.getLogger(__name__)


class OffsetMarks:
    """Marks of a query's offsets. `shard`: the devices as options say, None for all."""

    def __init__(self, view: SpoolView, shard: str | None, *, lossy: bool = False) -> None:
        self._view, self._shard, self._lossy = view, shard, lossy
        self._parts: dict[str, str] = {}

    def stamped(
        self, positions: Offset, owner: str, held: Sequence[str] = (), redriven: int = 0, redriven_us: int = 0
    ) -> Offset:
        """An offset for the checkpoint."""
        for name in positions:
            if name not in self._parts and (part := self._view.part(name)):
                self._parts[name] = part
        shard = {} if self._shard is None else {"shard": self._shard}
        mark: dict[str, Any] = {
            "owner": owner,
            "parts": {name: self._parts[name] for name in sorted(positions) if name in self._parts},
        }
        mark |= ({"held": list(held)} if held else {}) | ({"redriven": redriven} if redriven else {})
        mark |= {"redriven_us": redriven_us} if redriven_us else {}
        stamped = {name: {"segment": at["segment"], "byte": at["byte"], **shard} for name, at in positions.items()}
        return ({MARK: mark} if owner or held or redriven else {}) | stamped

    def positions(self, offset: Offset) -> Offset:
        """Returns the positions of an offset, without marks.

        Raises BadOption when the offset is of other devices, and SpoolGap when it is of another spool; with
        `failOnDataLoss=false`, rows of that receiver begin anew.
        """
        parts = _mark(offset).get("parts", {})
        found = {name: at for name, at in offset.items() if name != MARK}
        for name, at in list(found.items()):
            self._continues(at.get("shard") if isinstance(at, Mapping) else None)
            now = self._view.part(name) if name in parts else ""
            if now and now != parts[name]:
                told = f"the checkpoint is of another spool than the one that is now where receiver {name} writes"
                if not self._lossy:
                    raise SpoolGap(f"{told}; bring that one back, take a new checkpoint, or failOnDataLoss=false")
                _log.warning("veilmq: %s; reading it from its beginning, as failOnDataLoss=false says", told)
                del found[name]
        return found

    def _continues(self, theirs: str | None) -> None:
        ours = self._shard
        if theirs == ours:
            return
        if ours is not None and ours.startswith(f"{theirs or '1/1'}@"):
            return
        raise BadOption(
            f"the checkpoint is of shard {theirs or '1/1'}, options say {ours or '1/1'}: rows would "
            "be lost or repeated; say the same again, or shard_before=PART@TIME with a time to come in every query "
            "of these shards, or take other checkpoints"
        )


def new_owner() -> str:
    """A token for a query that begins."""
    return os.urandom(8).hex()


def owner_of(offset: Offset) -> str:
    """The token in an offset; empty in one of an earlier version."""
    return str(_mark(offset).get("owner", ""))


def held_of(offset: Offset) -> list[str]:
    """Names of keys whose rows the micro-batch ending there passes over."""
    return list(_mark(offset).get("held", []))


def redriven_of(offset: Offset) -> int:
    """The number of the last redrive that was read."""
    return int(_mark(offset).get("redriven", 0))


def redriven_us_of(offset: Offset) -> int:
    """Returns `progress_at` of the redriven rows of the micro-batch ending there, UNIX time in microseconds; 0 without
    such rows.
    """
    return int(_mark(offset).get("redriven_us", 0))


def _mark(offset: Offset) -> Mapping[str, Any]:
    mark = offset.get(MARK, {})
    return mark if isinstance(mark, Mapping) else {}
