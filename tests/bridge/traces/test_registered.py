"""When one registered entity wants attention."""

from __future__ import annotations

from bridge.traces.pings import Pulse
from bridge.traces.presets import LAN
from bridge.traces.registered import Traced
from bridge.traces.telling import Voice
from keys.delegation import Delegated, Token
from keys.tracesession import TraceSession
from tests.bridge.traces.test_tracer import HOLDER, NOW, NOW_MS, advertised


def test_it_wants_attention_for_its_pulse_its_return_or_its_audience() -> None:
    advertisement = advertised()
    voice = Voice(advertisement, bytes, NOW)
    traced = Traced(voice, "client", TraceSession(bytes(16), bytes(32), 1), Pulse(LAN, NOW + 5), "here", "there", 0)
    assert traced.advertisement is advertisement
    assert not any((traced.spoke, traced.joined, traced.rejoin_by, traced.metrics_at, traced.aside))
    assert traced.wants_attention_at == NOW + 5, "without a token nobody is asked"
    token = Token(advertisement.topic, HOLDER.public_bytes, Delegated.PUBLISH, NOW_MS, NOW_MS + 1_000)
    voice.authorise(token, HOLDER)
    assert traced.wants_attention_at == NOW
    voice.audience.gauged(NOW)
    traced.pulse, traced.rejoin_by = None, NOW + 7
    assert traced.wants_attention_at == NOW + 7
