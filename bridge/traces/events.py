"""What happens to a tracing broker and what it wants done, beside what it says (`telling`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.contract import Count, Tick
from bridge.traces.fleet import Stood
from bridge.traces.offenders import Complain, SendAway
from bridge.traces.reporting import TraceReport
from bridge.traces.telling import Say
from keys.delegation import Advertisement
from keys.tracesession import Registration


@dataclass(frozen=True, slots=True)
class Registering:
    """A client published on `REGISTRATION_TOPIC`."""

    client: str
    data: bytes = field(repr=False)


@dataclass(slots=True)  # not frozen: there is one for each answer, and freezing doubles what it costs
class Spoke:
    """A client published where the entity of `session` speaks to us."""

    client: str
    session: bytes = field(repr=False)
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Interested:
    """Somebody published on the interest topic of `topic`."""

    client: str
    topic: bytes = field(repr=False)
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientGone:
    """A client's connection ended. `clean`: by DISCONNECT with code 0."""

    client: str
    clean: bool


@dataclass(frozen=True, slots=True)
class Relayed:
    """An entity's answer came through another witness."""

    session: bytes = field(repr=False)
    data: bytes = field(repr=False)


TracingEvent: TypeAlias = Registering | Spoke | Interested | Relayed | ClientGone | Tick


@dataclass(frozen=True, slots=True)
class Registered:
    """An entity is traced from now on; what it brought is verified."""

    registration: Registration
    advertisement: Advertisement
    client: str = ""


@dataclass(frozen=True, slots=True)
class Resumed:
    """An entity's session goes on, on this connection."""

    client: str


@dataclass(frozen=True, slots=True)
class AskThere:
    """Ask an entity that is silent here through the other witnesses: publish there, and hear what it answers."""

    session: bytes = field(repr=False)
    topic: str = field(repr=False)
    payload: bytes = field(repr=False)
    answers_at: str = field(repr=False)


TracingEffect: TypeAlias = Say | AskThere | Stood | SendAway | Complain | Registered | Resumed | TraceReport | Count
