"""Pings through the other witnesses before an entity is told failed: is the entity dead, or our link broken? (B9)

As in SWIM's indirect probe, but nobody has to be believed: ping and answer are sealed in our session with the entity.
Another witness can hold both back, as it could without this module, and can forge neither; so it keeps no dead entity
alive. An entity that answers only there is suspected here, and not failed. Source: A. Das, I. Gupta, A. Motivala,
SWIM: scalable weakly-consistent infection-style process group membership protocol (2002). Not here: the time of such
pings (`pings`), connections to the other witnesses.
"""

from __future__ import annotations

from bridge.contract import Count, FairBudget
from bridge.traces.events import AskThere
from bridge.traces.kinds import relayed_from, relayed_to
from bridge.traces.pings import Health, Ping
from bridge.traces.registered import Traced
from bridge.traces.self_health import SelfHealth
from bridge.traces.signs import ECHO
from keys.errors import BadFrame
from keys.tracesession import Word

ASKED_THERE_PER_S = 1_000.0
"""Pings through other witnesses a second, fair by the holder of the entities' certificate. If more are silent at once,
the fault is rather ours.
"""


class Elsewhere:
    """The indirect pings of a tracing broker. `ours.others`: the number of other witnesses through which it can ask
    now.
    """

    def __init__(self, ours: SelfHealth) -> None:
        self._ours = ours
        self._budget = FairBudget(ASKED_THERE_PER_S, 2 * ASKED_THERE_PER_S, 0.0)  # one holder alone has half

    def ask_others(self, traced: Traced, ping: Ping, now: float) -> list[AskThere | Count]:
        """Asks an entity that is silent here through its other witnesses; nothing if it has none."""
        token = traced.voice.token
        if not self._ours.others or token is None or token.seat is None:
            return []
        holder = traced.advertisement.certificate.name
        if not self._budget.spend_one(holder.encode(), now):
            return []
        traced.aside = traced.aside or traced.session.aside()
        of = holder, traced.voice.topic, traced.session.session
        said = traced.aside.say_word(Word.PING, ECHO.pack(*ping))
        asks = AskThere(traced.session.session, relayed_to(*of), said, relayed_from(*of), holder)
        return [asks, Count("entities_asked_there")]

    def take_other_answer(self, traced: Traced, data: bytes, now: float) -> Health | None:
        """Takes an answer another witness passed on. Returns the entity's health if that is news. Raises keys
        errors.
        """
        if traced.aside is None or traced.pulse is None:
            return None
        word, body = traced.aside.hear(data)
        if word is not Word.ANSWER or len(body) != ECHO.size:
            raise BadFrame("other witnesses pass on answers, and nothing else")
        number, sent_ms = ECHO.unpack(body)
        return traced.pulse.vouched(number, sent_ms, now)
