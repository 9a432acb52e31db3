"""A gateway as a host application of Sparkplug's, and as a server that is aware of it: what it does about messages.

It takes no death for one of the present session that is of another one, asks nodes to be born again behind a gap,
before any birth, or where they use an alias that no birth explained, and keeps the last births for whoever comes later
(`$sparkplug/certificates/…`). Asking and keeping need a name as a host (`Rules.sparkplug_host`): who has none only
listens. Not here: reading (`sparkplug`).
"""

from __future__ import annotations

from bridge.base import Wall
from bridge.contract import Count
from bridge.devices.conventions import SPARKPLUG, ConventionWord, Said, Statement
from bridge.devices.dashboards import Show
from bridge.devices.events import Command
from bridge.devices.sparkplug import CERTIFICATES, Rebirths, Session, rebirth


class Host:
    """`name`: as a host application; empty for none."""

    def __init__(self, name: str, wall: Wall) -> None:
        self.name, self._wall = name, wall
        self._rebirths = Rebirths()

    def take(
        self, word: ConventionWord, session: Session, is_node: bool, now: float
    ) -> tuple[bool, list[Command | Count]]:
        """Returns True if a message counts, and the effects of it.

        `session`: of its node; `is_node`: the message is of the node itself, not of a device behind it.
        """
        if is_node and word.said is Said.LOST:
            ends = session.ends(word.numbers)
            return ends, [] if ends else [Count("devices_deaths_of_before")]
        if is_node and word.said is Said.READY:
            session.born_now(word.numbers)
            return True, []
        is_next, is_known = session.follows(word.numbers), session.resolves(word.numbers, word.said is Said.READY)
        return True, [] if is_next and is_known else self.unborn(word.device, now)

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
