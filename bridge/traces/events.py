"""Events of a tracing broker and its effects, beside the traces that it says (`telling`)."""

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
    """A client's publication on `REGISTRATION_TOPIC`."""

    client: str
    data: bytes = field(repr=False)


@dataclass(slots=True)  # not frozen: one for each answer, and freezing doubles the cost
class Spoke:
    """A client's publication where the entity of `session` speaks to us."""

    client: str
    session: bytes = field(repr=False)
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Interested:
    """A client's publication on the interest topic of `topic`."""

    client: str
    topic: bytes = field(repr=False)
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientGone:
    """The end of a client's connection. `clean`: by DISCONNECT with code 0."""

    client: str
    clean: bool


@dataclass(frozen=True, slots=True)
class Relayed:
    """An entity's answer that came through another witness."""

    session: bytes = field(repr=False)
    data: bytes = field(repr=False)


TracingEvent: TypeAlias = Registering | Spoke | Interested | Relayed | ClientGone | Tick


@dataclass(frozen=True, slots=True)
class Registered:
    """An entity that is traced from now on; its registration and advertisement are verified."""

    registration: Registration
    advertisement: Advertisement
    client: str = ""


@dataclass(frozen=True, slots=True)
class Resumed:
    """An entity's session going on, on this connection."""

    client: str


@dataclass(frozen=True, slots=True)
class AskThere:
    """An effect: ask an entity that is silent here through the other witnesses: publish there, and listen for the
    answer. `holder`: the name of the entity's certificate.
    """

    session: bytes = field(repr=False)
    topic: str = field(repr=False)
    payload: bytes = field(repr=False)
    answers_at: str = field(repr=False)
    holder: str = ""


TracingEffect: TypeAlias = Say | AskThere | Stood | SendAway | Complain | Registered | Resumed | TraceReport | Count
