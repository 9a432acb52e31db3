"""One entity that is registered at a broker: its voice, its session, its pulse, and when it wants attention."""

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
    """`client`: the connection through which it spoke last."""

    voice: Voice
    client: str
    session: TraceSession
    pulse: Pulse | None
    """None: of before a restart of ours, and not back."""
    speaks_at: str = field(repr=False)
    place: int
    """In the broker's sweep."""
    rejoin_by: float = NEVER
    """When it is told failed, or looked at again, if it is of before a restart and missing."""
    spoke: bool = False
    joined: bool = False
    metrics_at: float = 0.0
    coming: TraceSession | None = None
    """How its session goes on, once it speaks in it (`resuming`)."""
    knocked_ms: int = 0
    """Its clock when it knocked last."""
    aside: TraceSession | None = None
    """Our end of what other witnesses pass on, once they had to."""

    @property
    def advertisement(self) -> Advertisement:
        return self.voice.advertisement

    @property
    def is_missing(self) -> bool:
        """Of before a restart, not back, and not told failed."""
        return self.pulse is None and self.rejoin_by < NEVER

    @property
    def listens_at(self) -> str:
        """Where we ask it; seldom, for it says by itself that it lives."""
        known = self.advertisement
        return to_entity(known.certificate.name, known.topic, self.session.session)

    @property
    def wants_attention_at(self) -> float:
        due, voice = self.rejoin_by if self.pulse is None else self.pulse.next_deadline, self.voice
        return due if voice.token is None else min(due, voice.audience.gauge_at)
