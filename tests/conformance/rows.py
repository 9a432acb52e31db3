"""The form of the conformance table: rows of steps between named peers and one broker, as data.

A row says which statements it proves in which version, and runs once per version against a broker of its own.
Peers are clients over TCP; a peer speaks the version of the row unless it has one of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.conformance.hearing import Expected, connack
from tests.conformance.packets import PINGREQ, PINGRESP, Given, Says, connect, disconnect

V311, V5 = 4, 5
VERSION_NAMES = {"3.1.1": V311, "5": V5}


@dataclass(frozen=True)
class Open:
    peer: str
    version: int | None
    listener: str = "default"


@dataclass(frozen=True)
class Say:
    """All in one write, or in pieces of `size` bytes that the broker reads one by one."""

    peer: str
    packets: tuple[Says, ...]
    size: int = 0


@dataclass(frozen=True)
class Hear:
    """Exactly these packets, in this order. `any_order`: each of them once."""

    peer: str
    expected: tuple[Expected, ...]
    any_order: bool = False


@dataclass(frozen=True)
class Upgrade:
    """A WebSocket handshake whose answer contains `inside` (in lower case); from then on frames are heard."""

    peer: str
    request: bytes
    inside: tuple[bytes, ...]


@dataclass(frozen=True)
class Ended:
    """The broker has closed the connection and sent nothing more; `code`: after a DISCONNECT in MQTT 5, `refusal`:
    after a CONNACK in MQTT 5."""

    peer: str
    code: int | None = None
    refusal: int | None = None


@dataclass(frozen=True)
class Cut:
    """The peer's connection breaks, and the broker has noticed."""

    peer: str


@dataclass(frozen=True)
class Pass:
    """Time passes for the broker, and what is due happens."""

    seconds: float


Step: TypeAlias = Open | Say | Hear | Upgrade | Ended | Cut | Pass
Steps: TypeAlias = Iterable[Step]


@dataclass(frozen=True)
class Peer:
    """Makes the steps of one client; its name is its client identifier."""

    name: str
    version: int | None = None

    def opens(self) -> Steps:
        yield Open(self.name, self.version)

    def says(self, *packets: Says) -> Steps:
        yield Say(self.name, packets)

    def dribbles(self, *packets: Says, size: int = 1) -> Steps:
        yield Say(self.name, packets, size)

    def hears(self, *expected: Expected) -> Steps:
        yield Hear(self.name, expected)

    def hears_in_any_order(self, *expected: Expected) -> Steps:
        yield Hear(self.name, expected, any_order=True)

    def hears_nothing(self) -> Steps:
        """Nothing has come before the answer to a PINGREQ; so whatever it said before has been served."""
        yield Say(self.name, (PINGREQ,))
        yield Hear(self.name, (PINGRESP,))

    def upgrades(self, request: bytes, inside: tuple[bytes, ...]) -> Steps:
        yield Open(self.name, self.version, "ws")
        yield Upgrade(self.name, request, inside)

    def connects(self, *, present: int = 0, answer: Expected | None = None, **fields: Any) -> Steps:
        yield Open(self.name, self.version)
        yield Say(self.name, (connect(**fields),))
        yield Hear(self.name, (answer or connack(0, present),))

    def persists(self, *, clean: int = 0, present: int = 0, given: Given = (), **fields: Any) -> Steps:
        """Connects with a session that outlives the connection by 100 s at least."""
        yield from self.connects(clean=clean, present=present, given=((0x11, 100), *given), **fields)

    def is_closed(self) -> Steps:
        yield Ended(self.name)

    def is_told(self, code: int) -> Steps:
        """DISCONNECT with the code where the version has it, and the end of the connection."""
        yield Ended(self.name, code)

    def is_refused(self, code: int) -> Steps:
        """CONNACK with the code in MQTT 5, nothing below it, and the end of the connection."""
        yield Ended(self.name, refusal=code)

    def leaves(self, code: int = 0, given: Given = ()) -> Steps:
        yield Say(self.name, (disconnect(code, given),))
        yield Ended(self.name)

    def cuts(self) -> Steps:
        yield Cut(self.name)


def passes(seconds: float) -> Steps:
    yield Pass(seconds)


@dataclass(frozen=True)
class Row:
    """`proves`: protocol level -> numbers of statements. `config` goes into the broker's configuration."""

    name: str
    proves: dict[int, tuple[str, ...]]
    steps: tuple[Step, ...]
    config: dict[str, Any] = field(default_factory=dict)


def row(name: str, proves: str, *steps: Steps, config: dict[str, Any] | None = None) -> Row:
    """`proves`: "5: 3.8.4-1 3.8.4-2; 3.1.1: 3.8.4-1"."""
    table: dict[int, tuple[str, ...]] = {}
    for part in proves.split(";"):
        version, _, numbers = part.strip().partition(":")
        table[VERSION_NAMES[version]] = tuple(numbers.split())
    return Row(name, table, tuple(step for group in steps for step in group), config or {})
