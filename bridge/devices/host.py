"""A gateway as a host application of Sparkplug's, and as a server that is aware of it: what it does about messages.

The host never takes the death of a former session for a death of the present session. The host asks a node for a
rebirth behind a gap that nothing fills in time, before any birth, or after an alias without a birth. The last births
are kept for later subscribers (`$sparkplug/certificates/…`). Asking and keeping need a name as a host
(`Rules.sparkplug_host`); a gateway without a name only listens. Not here: reading (`sparkplug`).
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.base import Wall
from bridge.contract import Count
from bridge.devices.conventions import SPARKPLUG, ConventionWord, Said, Statement
from bridge.devices.dashboards import Show
from bridge.devices.events import Command
from bridge.devices.sparkplug import CERTIFICATES, Rebirths, Session, rebirth

GAPS_MAX = 4_096  # nodes whose missing numbers are waited for; a node beyond them is asked at once
OVERDUE_AT_ONCE = 100  # nodes that one tick asks for a rebirth; the next tick, which is due at once, asks others


class Host:
    """`name`: as a host application; empty for none."""

    def __init__(self, name: str, wall: Wall) -> None:
        self.name, self._wall = name, wall
        self._rebirths = Rebirths()
        self._gaps: dict[str, tuple[float, Session]] = {}  # by node, in the order of their ends

    @property
    def next_deadline(self) -> float | None:
        return next((due for due, _ in self._gaps.values()), None)

    def take_word(
        self, word: ConventionWord, session: Session, is_node: bool, now: float
    ) -> tuple[bool, list[Command | Count]]:
        """Returns True if a message counts, and the effects of it.

        `session`: of its node; `is_node`: the message is of the node itself, not of a device behind it.
        """
        if is_node and word.said is Said.LOST:
            ends = session.ends(word.numbers)
            return ends, [] if ends else [Count("devices_deaths_of_before")]
        if is_node and word.said is Said.READY:
            session.born_now(word.numbers, now)
            return True, []
        is_born = session.follows(word.numbers, now)
        is_known = session.resolves(word.numbers, word.said is Said.READY)
        is_waited_for = not session.missing or self._awaits(_node_of(word.device), session)
        return True, [] if is_born and is_known and is_waited_for else self.unborn(word.device, now)

    def _awaits(self, node: str, session: Session) -> bool:
        """Returns True if the missing numbers of a node are waited for; without a place for it they are not."""
        if self.name and node not in self._gaps:
            if len(self._gaps) >= GAPS_MAX:
                session.missing = 0
                return False
            self._gaps[node] = session.overdue_at, session
        return True

    def overdue(self, now: float) -> Iterator[Command | Count]:
        """Asks nodes for a rebirth whose gap was not filled in time."""
        for _ in range(OVERDUE_AT_ONCE):
            node = next(iter(self._gaps), None)
            if node is None or self._gaps[node][0] > now:
                return
            _, session = self._gaps.pop(node)
            if session.missing and session.overdue_at > now:  # a later gap than that which was filled
                self._gaps[node] = session.overdue_at, session
            elif session.missing:
                session.missing = 0
                yield from self.unborn(node, now)

    def unborn(self, device: str, now: float) -> list[Command | Count]:
        """Something was missed of a node, its birth maybe: it is asked to be born again."""
        group, node = device.split("/")[:2]
        if not self.name or not self._rebirths.may_ask(f"{group}/{node}", now):
            return []
        return [Command(*rebirth(group, node, self._wall.ms(now))), Count("sparkplug_rebirths")]

    def certified(self, statement: Statement, topic: str, payload: bytes) -> list[Show]:
        """The birth that is kept of what was believed."""
        is_birth = (
            isinstance(statement, ConventionWord) and statement.convention == SPARKPLUG and statement.said is Said.READY
        )
        return [Show(CERTIFICATES + topic, payload)] if is_birth and self.name else []


def _node_of(device: str) -> str:
    return "/".join(device.split("/")[:2])
