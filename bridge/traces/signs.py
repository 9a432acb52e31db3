"""Signs of life of an entity in its session: answers to pings, unasked signs (ALIVE), and any other word.

A ping tells the entity the period of unasked signs. While the entity keeps the period, hardly a ping goes down to it,
and a fleet costs its broker a single packet an interval and entity in place of two. ALIVE names the last ping and the
time since, so it proves, as an answer does, that the entity lived at that time, even if a party held it back. Not
here: the times of pings and verdicts (`pings`), the right to speak in a session (`keys.tracesession`), other traces
(`tracer`).
"""

from __future__ import annotations

from struct import Struct

from bridge.traces.kinds import TraceKind
from bridge.traces.pings import Health, Ping
from bridge.traces.registered import Traced
from bridge.traces.telling import Told
from keys.errors import BadFrame
from keys.tracesession import Word

ECHO = Struct(">QQ")  # the part of a ping that its answer repeats: number, sent_ms
PING = Struct(">QQI")  # ... and every_ms
LIVED = Struct(">Q")
SPEAKS_S = 5.0  # a registered entity listens before it speaks; a silent one is pinged after this time
METRICS_EVERY_S = 10.0
ASKED_WITHIN_S = 300.0  # the longest time between pings with unasked signs: clocks drift little in this time


def ping_of(ping: Ping, every_s: float) -> bytes:
    """Returns a ping's body. `every_s`: the period in which the entity should give signs of life unasked, 0 for
    never.
    """
    return PING.pack(*ping, min(int(every_s * 1000), 0xFFFF_FFFF))


def every_of(body: bytes) -> tuple[int, float]:
    """Returns (sent_ms, every_s) of a ping, at the entity. Raises BadFrame."""
    if len(body) == ECHO.size:  # from a broker that does not know the period, or through another one
        return ECHO.unpack(body)[1], 0.0
    if len(body) != PING.size:
        raise BadFrame("a ping has a number, a time, and an interval")
    _, sent_ms, every_ms = PING.unpack(body)
    return sent_ms, every_ms / 1000


def lived(sent_ms: int, ago_s: float) -> bytes:
    """Returns ALIVE's body, `ago_s` after the ping of `sent_ms` came."""
    return LIVED.pack(sent_ms + max(int(ago_s * 1000), 0))


def sign(traced: Traced, word: Word, body: bytes, now: float) -> tuple[Health | None, dict[str, object]]:
    """Takes a sign of life. Returns the entity's health, if it changed, and the fields of ALLS_WELL. Raises
    BadFrame.
    """
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
        return pulse.take_echo(number, sent_ms, now), {"ping": number, "latency_ms": int(now * 1000) - sent_ms}
    if not traced.spoke:
        traced.spoke = True
        pulse.ask_at_once(now)
    return pulse.lives(now), {}


def metrics(traced: Traced, now: float) -> list[Told]:
    """Returns NETWORK_METRICS, if they are due."""
    if now < traced.metrics_at or traced.pulse is None:
        return []
    traced.metrics_at = now + METRICS_EVERY_S
    found = traced.pulse.metrics
    measured = {
        "loss_rate": round(found.loss_rate, 4), "reordered_rate": round(found.reordered_rate, 4),
        "latency_ms": _ms(found.latency_s), "jitter_ms": _ms(found.jitter_s),
    }  # fmt: skip
    return traced.voice.tell_trace(TraceKind.NETWORK_METRICS, measured, now)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
