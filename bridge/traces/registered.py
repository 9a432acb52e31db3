"""An entity that is registered at a broker: its voice, its session, its pulse, and the times of its next check."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.traces.kinds import to_entity
from bridge.traces.pings import Pulse
from bridge.traces.sweep import NEVER
from bridge.traces.telling import Voice
from keys.delegation import Advertisement
from keys.tracesession import TraceSession


@dataclass(slots=True)
class Traced:
    """A registered entity. `client`: the connection through which it spoke last."""

    voice: Voice
    client: str
    session: TraceSession
    pulse: Pulse | None
    """The pings; None for an entity registered before our restart that is not back."""
    speaks_at: str = field(repr=False)
    place: int
    """The place in the broker's sweep."""
    rejoin_by: float = NEVER
    """The time at which an entity missing since our restart is told failed, or checked again."""
    spoke: bool = False
    joined: bool = False
    metrics_at: float = 0.0
    coming: TraceSession | None = None
    """The continued session, once the entity speaks in it (`resuming`)."""
    knocked_ms: int = 0
    """The time of the last knock, by the entity's clock."""
    aside: TraceSession | None = None
    """Our end of the session for answers through other witnesses, once any were asked."""

    @property
    def advertisement(self) -> Advertisement:
        return self.voice.advertisement

    @property
    def is_missing(self) -> bool:
        """True for an entity registered before our restart, not back, and not told failed."""
        return self.pulse is None and self.rejoin_by < NEVER

    @property
    def listens_at(self) -> str:
        """The topic on which we ask the entity; computed, since an entity with unasked signs of life is seldom
        asked.
        """
        known = self.advertisement
        return to_entity(known.certificate.name, known.topic, self.session.session)

    @property
    def wants_attention_at(self) -> float:
        due, voice = self.rejoin_by if self.pulse is None else self.pulse.next_deadline, self.voice
        return due if voice.token is None else min(due, voice.audience.gauge_at)
