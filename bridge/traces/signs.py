"""Signs of life of one entity in its session: answers to pings, what it says unasked, and any other word.

A ping tells the entity how often to say by itself that it lives (ALIVE); while it does, hardly a ping goes down to it,
and a fleet costs its broker one packet an interval and entity in place of two. ALIVE names the last ping and how long
that is ago, so it proves as an answer does that the entity lived at that time, whoever held it back. Not here: when it
is asked and judged (`pings`), who may say something in a session (`keys.tracesession`), what else is told (`tracer`).
"""

from __future__ import annotations

from struct import Struct

from bridge.traces.kinds import TraceKind
from bridge.traces.pings import Health, Ping
from bridge.traces.registered import Traced
from bridge.traces.telling import Told
from keys.errors import BadFrame
from keys.tracesession import Word

ECHO = Struct(">QQ")  # what an answer repeats of its ping: number, sent_ms
PING = Struct(">QQI")  # ... and every_ms
LIVED = Struct(">Q")
SPEAKS_S = 5.0  # an entity that registered listens before it speaks; if it never does, it is pinged after so long
METRICS_EVERY_S = 10.0
ASKED_WITHIN_S = 300.0  # who says by itself that it lives is asked so often: clocks differ by little in that time


def ping_of(ping: Ping, every_s: float) -> bytes:
    """A ping's body. `every_s`: how often the entity should say by itself that it lives, 0 for never."""
    return PING.pack(*ping, min(int(every_s * 1000), 0xFFFF_FFFF))


def every_of(body: bytes) -> tuple[int, float]:
    """At the entity, of a ping: sent_ms and every_s. Raises BadFrame."""
    if len(body) == ECHO.size:  # of a broker that knows nothing of it, or through another one
        return ECHO.unpack(body)[1], 0.0
    if len(body) != PING.size:
        raise BadFrame("a ping has a number, a time, and an interval")
    _, sent_ms, every_ms = PING.unpack(body)
    return sent_ms, every_ms / 1000


def lived(sent_ms: int, ago_s: float) -> bytes:
    """ALIVE's body, so long after that ping came."""
    return LIVED.pack(sent_ms + max(int(ago_s * 1000), 0))


def sign(traced: Traced, word: Word, body: bytes, now: float) -> tuple[Health | None, dict[str, object]]:
    """Its health, if that changed, and what ALLS_WELL says. Raises BadFrame."""
    pulse = traced.pulse
    assert pulse is not None, "nobody speaks in a session of before"
    if word is Word.ALIVE:
        if len(body) != LIVED.size:
            raise BadFrame("who says that it lives says when")
        asked_within_s = METRICS_EVERY_S if traced.voice.is_heard else ASKED_WITHIN_S
        return pulse.announced(LIVED.unpack(body)[0] / 1000, now, asked_within_s), {}
    if word is Word.ANSWER:
        if len(body) not in (ECHO.size, PING.size):
            raise BadFrame("an answer echoes a ping's number and time")
        number, sent_ms = ECHO.unpack_from(body)
        return pulse.answered(number, sent_ms, now), {"ping": number, "latency_ms": int(now * 1000) - sent_ms}
    if not traced.spoke:
        traced.spoke = True
        pulse.begin(now)
    return pulse.lives(now), {}


def metrics(traced: Traced, now: float) -> list[Told]:
    """NETWORK_METRICS, if it is time."""
    if now < traced.metrics_at or traced.pulse is None:
        return []
    traced.metrics_at = now + METRICS_EVERY_S
    found = traced.pulse.metrics
    measured = {
        "loss_rate": round(found.loss_rate, 4), "reordered_rate": round(found.reordered_rate, 4),
        "latency_ms": _ms(found.latency_s), "jitter_ms": _ms(found.jitter_s),
    }  # fmt: skip
    return traced.voice.tell(TraceKind.NETWORK_METRICS, measured, now)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
