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


TracingEvent: TypeAlias = Registering | Spoke | Interested | ClientGone | Tick


@dataclass(frozen=True, slots=True)
class Registered:
    """An entity is traced from now on; what it brought is verified."""

    registration: Registration
    advertisement: Advertisement
    client: str = ""


TracingEffect: TypeAlias = Say | Stood | SendAway | Complain | Registered | TraceReport | Count
