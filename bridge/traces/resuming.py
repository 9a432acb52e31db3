"""Resumption of an entity's session after a lost connection or a restart of ours, in place of a registration (B3).

An entity that knocks is answered, and counts as back when it speaks under the key that both then have; until then the
former state stands. So an attacker that repeats an old knock gains nothing and stops nobody. Not here: frames
(`keys.resumption`), the consequences for the entity's traces (`tracer`).
"""

from __future__ import annotations

from collections.abc import Callable

from bridge.contract import Count
from bridge.traces.events import Spoke
from bridge.traces.kinds import answers_to
from bridge.traces.registered import Traced
from bridge.traces.telling import Say
from keys.errors import BadContent, KeysError, NotAuthorised
from keys.resumption import NONCE_BYTES, Knock, unknown
from keys.tracesession import TraceSession, Word


def knock_of(event: Spoke) -> Knock:
    """Decodes a knock and checks its sender. Raises BadFrame, NotAuthorised."""
    knock = Knock.decode(event.data)
    only_own(knock.name, event.client)
    return knock


def only_own(name: str, client: str) -> None:
    """Raises NotAuthorised unless the client has the entity's name: no other client hears the answers for an
    entity.
    """
    if client != name:
        raise NotAuthorised("a registration or knock that somebody else passes on")


def not_known(knock: Knock) -> list[Say | Count]:
    """Tells an entity that its session is unknown here; the entity may register."""
    return [Say(answers_to(knock.name), unknown(knock.session), 0), Count("sessions_unknown")]


def answer(traced: Traced, knock: Knock, random: Callable[[int], bytes], now_ms: int) -> list[Say | Count]:
    """Answers a knock; the entity is told to register if we have no right to speak of it. Raises keys errors."""
    certificate, (session, key) = traced.advertisement.certificate, traced.session.session_and_key
    if knock.name != certificate.name:
        raise BadContent("a knock in another entity's name")
    knock.verify(key, traced.knocked_ms, now_ms)
    traced.advertisement.check_time(now_ms)
    token = traced.voice.token
    if token is None or token.not_after_ms < now_ms:  # the token was lost on its way: nobody would hear of a death
        return not_known(knock)
    said, next_key = knock.resumed_session(key, random(NONCE_BYTES))
    traced.knocked_ms, traced.coming = knock.time_ms, TraceSession(session, next_key, 1, certificate.public_key)
    return [Say(answers_to(certificate.name), said, 0)]


def hear(traced: Traced, data: bytes) -> tuple[Word, bytes, bool]:
    """Returns word and body of a message in an entity's session, and True if the entity is back with it. Raises keys
    errors.
    """
    if traced.coming is None:
        if traced.pulse is None:
            raise BadContent("a session of before our restart, that nobody has knocked for")
        return (*traced.session.hear(data), False)
    try:
        word, body = traced.coming.hear(data)
    except KeysError:
        if traced.pulse is None:
            raise
        return (*traced.session.hear(data), False)  # sent before the knock, or the knock was another client's
    traced.session, traced.coming, traced.aside = traced.coming, None, None
    return word, body, True
