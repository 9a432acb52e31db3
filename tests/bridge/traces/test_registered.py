"""When one registered entity wants attention."""

from __future__ import annotations

from bridge.traces.pings import Pulse
from bridge.traces.presets import LAN
from bridge.traces.registered import Traced
from bridge.traces.sweep import NEVER
from bridge.traces.telling import Voice
from keys.delegation import Delegated, Token
from keys.tracesession import TraceSession
from tests.bridge.traces.test_tracer import HOLDER, NOW, NOW_MS, advertised


def test_it_wants_attention_for_its_pulse_its_return_or_its_audience() -> None:
    advertisement = advertised()
    voice = Voice(advertisement, bytes, NOW)
    traced = Traced(voice, "client", TraceSession(bytes(16), bytes(32), 1), Pulse(LAN, NOW + 5), "here", 0)
    assert traced.advertisement is advertisement
    assert not any((traced.spoke, traced.joined, traced.metrics_at, traced.aside))
    assert traced.rejoin_by == NEVER
    assert traced.wants_attention_at == NOW + 5, "without a token nobody is asked"
    token = Token(advertisement.topic, HOLDER.public_bytes, Delegated.PUBLISH, NOW_MS, NOW_MS + 1_000)
    voice.authorise(token, HOLDER)
    assert traced.wants_attention_at == NOW
    voice.audience.gauged(NOW)
    traced.pulse, traced.rejoin_by = None, NOW + 7
    assert traced.wants_attention_at == NOW + 7


def test_who_is_of_before_a_restart_is_missing_until_it_is_back_or_told_failed() -> None:
    session = TraceSession(bytes(16), bytes(32), 1)
    traced = Traced(Voice(advertised(), bytes, NOW), "client", session, None, "here", 0)
    assert traced.knocked_ms == 0
    assert not traced.is_missing, "told failed: nobody waits for it"
    traced.rejoin_by = NOW
    assert traced.is_missing
    traced.pulse = Pulse(LAN, NOW + 5)
    assert not traced.is_missing
    traced.rejoin_by = NEVER
    assert not traced.is_missing


def test_it_shows_not_where_it_speaks() -> None:
    session = TraceSession(bytes(16), bytes(32), 1)
    assert "nowhere-else" not in repr(Traced(Voice(advertised(), bytes, NOW), "c", session, None, "nowhere-else", 0))
