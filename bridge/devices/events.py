"""Events of unchanged devices, and the effects following from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.contract import Count, Tick
from bridge.devices.dashboards import Show
from bridge.traces import EntityEvent, TraceKind


@dataclass(frozen=True, slots=True)
class Published:
    """A client's publication was accepted; `will`: the broker made it, for the client is gone."""

    client: str
    topic: str
    payload: bytes = field(repr=False)
    will: bool = False


@dataclass(frozen=True, slots=True)
class Knows:
    """A client used a constrained topic: it knows VeilMQ."""

    client: str


@dataclass(frozen=True, slots=True)
class Remembered:
    """Before a restart there was this device."""

    device: str


@dataclass(frozen=True, slots=True)
class RetainedBefore:
    """A publication the broker has retained: nobody knows since when, and by whom. `device`: the one of which a
    document names the topic since; empty: it was read when the broker started.
    """

    topic: str
    payload: bytes = field(repr=False)
    device: str = ""


Retained: TypeAlias = Callable[[str], Iterable[tuple[str, bytes]]]
"""Topics and payloads of what a broker has retained that a filter matches."""

DeviceEvent: TypeAlias = EntityEvent | Published | Knows | Remembered | RetainedBefore | Tick


@dataclass(frozen=True, slots=True)
class Tell:
    """Something is so from now on, or still. `change`: ALLS_WELL after something else, for those who want changes."""

    device: str
    kind: TraceKind
    fields: Mapping[str, object]
    change: bool = False


@dataclass(frozen=True, slots=True)
class Removed:
    """Nothing will be said of it any more."""

    device: str


@dataclass(frozen=True, slots=True)
class Command:
    """Publish to local clients, QoS 0: a device is asked to do something."""

    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Consult:
    """Read what is retained on these topics: a document of this device names them since now."""

    device: str
    topics: tuple[str, ...]


DeviceEffect: TypeAlias = Consult | Tell | Removed | Command | Show | Count
