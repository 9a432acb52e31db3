"""Sparkplug B 3.0 as a host application hears it: births and deaths belonging together, gaps, requests for rebirth.

A node's NDEATH carries the `bdSeq` of the NBIRTH that it ends, for a broker may publish the will of an old connection
after the birth of the next one. Every message of a session carries `seq`, another than the one before, 255 before 0. A
number staying missing for `REORDER_S`, data before any birth, and an *alias* that no birth gave to a metric each ask
the node for a rebirth. A birth of the node begins a new session: a device behind the node is stale until the device is
born in it. What is read of a payload is these numbers; it is a protobuf message of which everything else is skipped.
Source: Eclipse Sparkplug Specification 3.0.0, chapters 4 to 6 (ISO/IEC 20237). Not here: whose word counts
(`speaking`), values of metrics, which Spark joins with births.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

NAMESPACE = "spBv1.0"
CERTIFICATES = "$sparkplug/certificates/"
BD_SEQ = b"bdSeq"
REBIRTH = b"Node Control/Rebirth"
PAYLOAD_BYTES_MAX = 1 << 20  # of which these numbers are looked for
FIELDS_MAX = 8_192  # of a payload and its metrics that are looked at: four of a metric, of 2,000 metrics
ALIASES_MAX = 20_000  # of a node with its devices; of one with more none is held against it
REORDER_S = 2.0  # how long a number may be missing: two connections of one program are read in any order
BORN_AGAIN_S = 5.0  # how long behind its node's birth a device may be born
REBIRTH_EVERY_S = 10.0  # a node is asked to be born again no more often
ASKED_MAX = 4_096  # nodes of which that is remembered
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class SequenceNumbers(NamedTuple):
    """The sequence numbers of a payload; None for those that it lacks."""

    bd_seq: int | None = None
    seq: int | None = None
    named: frozenset[int] = frozenset()
    """Aliases that stand beside the name of their metric."""
    used: frozenset[int] = frozenset()
    """Aliases that stand for it."""
    is_whole: bool = True
    """Whether all of the payload was looked at."""


NOTHING = SequenceNumbers()


_SEQ_COUNT = 256


@dataclass(slots=True)
class Session:
    """The messages of a node since its birth. `bd_seq` None: the birth was not heard, or had none.

    `missing`, `elsewhere`: sets of `seq`, a bit for each: numbers that were passed over, and numbers of messages
    another connection sent, which is not believed.
    """

    born: bool = False
    births: int = 0
    """How often the node was born; of a device: the birth of its node in whose session it was born."""
    born_at: float = 0.0
    bd_seq: int | None = None
    seq: int | None = None
    missing: int = 0
    missed_at: float = 0.0
    """When the first of the missing numbers was passed over."""
    elsewhere: int = 0
    aliases: set[int] = field(default_factory=set)
    knows_all: bool = True
    """Whether every alias that a birth explained is among them."""

    def born_now(self, numbers: SequenceNumbers, now: float = 0.0) -> None:
        self.born, self.born_at, self.bd_seq, self.seq = True, now, numbers.bd_seq, numbers.seq
        self.births += 1
        self.missing = self.elsewhere = 0
        self.aliases, self.knows_all = set(numbers.named), numbers.is_whole

    def resolves(self, numbers: SequenceNumbers, is_birth: bool) -> bool:
        """Returns True if a birth of this session explained every alias of a message. `is_birth`: of a device."""
        if is_birth:
            self.knows_all = self.knows_all and numbers.is_whole and len(self.aliases) < ALIASES_MAX
            if self.knows_all:
                self.aliases |= numbers.named
        return not self.knows_all or numbers.used <= self.aliases or len(self.aliases) >= ALIASES_MAX

    def ends(self, numbers: SequenceNumbers) -> bool:
        """Returns True if this death is of this session, and not of an earlier one."""
        is_other = None not in (self.bd_seq, numbers.bd_seq) and self.bd_seq != numbers.bd_seq
        if self.born and is_other:
            return False
        self.born, self.missing = False, 0
        return True

    def follows(self, numbers: SequenceNumbers, now: float = 0.0) -> bool:
        """Counts a message; returns False if no birth stands before it. After a gap the received number is counted
        from."""
        before, self.seq = self.seq, numbers.seq
        if not self.born:
            return False
        if before is None or numbers.seq is None:
            return True
        if numbers.seq < _SEQ_COUNT and self.missing >> numbers.seq & 1:
            self.missing ^= 1 << numbers.seq
            if (before - numbers.seq) % _SEQ_COUNT < _SEQ_COUNT // 2:  # it is late
                self.seq = before
                return True
        passed = _between(before, numbers.seq)
        if passed & ~self.elsewhere and not self.missing:
            self.missed_at = now
        self.missing |= passed & ~self.elsewhere
        self.elsewhere &= ~passed
        return True

    def heard_elsewhere(self, numbers: SequenceNumbers) -> None:
        """Notes the number of a message that is not believed: the node, which counts it, has sent it by another
        connection."""
        if self.born and numbers.seq is not None and numbers.seq < _SEQ_COUNT:
            number = 1 << numbers.seq
            if self.missing & number:
                self.missing ^= number
            else:
                self.elsewhere |= number

    @property
    def overdue_at(self) -> float:
        """The time at which missing numbers are waited for no more."""
        return self.missed_at + REORDER_S


def _between(before: int, seq: int) -> int:
    """Returns the set of numbers that are passed over by a step; a number that is none passes over all others."""
    skipped = (seq - before - 1) % _SEQ_COUNT if seq < _SEQ_COUNT else _SEQ_COUNT - 1
    return sum(1 << (before + 1 + place) % _SEQ_COUNT for place in range(skipped))


class Rebirths:
    """The nodes that were asked for a rebirth lately."""

    def __init__(self) -> None:
        self._asked: OrderedDict[str, float] = OrderedDict()

    def may_ask(self, node: str, now: float) -> bool:
        """Returns True if a node may be asked now, and notes the request."""
        if now - self._asked.get(node, float("-inf")) < REBIRTH_EVERY_S:
            return False
        self._asked.pop(node, None)
        self._asked[node] = now
        if len(self._asked) > ASKED_MAX:
            self._asked.popitem(last=False)
        return True


# ------------------------------------------------------------------------------------------------- payloads


def numbers_of(payload: bytes) -> SequenceNumbers:
    """Returns `seq` (field 3), the metric `bdSeq` and aliases (field 2: name 1, alias 2, long_value 11, int_value 10).

    What is no such message, or is damaged, says nothing. At most `FIELDS_MAX` fields are looked at; of a longer
    message the numbers standing among them count.
    """
    found = _Numbers()
    budget = [FIELDS_MAX]
    try:
        for place, value in _fields(payload[:PAYLOAD_BYTES_MAX], budget):
            if place == 3 and isinstance(value, int):
                found.seq = value
            elif place == 2 and isinstance(value, bytes):
                found.metric(value, budget)
    except ValueError:
        return NOTHING
    is_whole = budget[0] > 0 and len(payload) <= PAYLOAD_BYTES_MAX
    return SequenceNumbers(found.bd_seq, found.seq, frozenset(found.named), frozenset(found.used), is_whole)


def rebirth(group: str, node: str, now_ms: int) -> tuple[str, bytes]:
    """Topic and payload of the command by which a node is asked to be born again (QoS 0, not retained)."""
    metric = _sized(1, REBIRTH) + _tagged(3, now_ms) + _tagged(4, 11) + _tagged(14, 1)  # 11: Boolean
    return f"{NAMESPACE}/{group}/NCMD/{node}", _tagged(1, now_ms) + _sized(2, metric)


def state(host: str, online: bool, now_ms: int) -> tuple[str, bytes]:
    """Topic and payload saying whether a host application is there (QoS 1, retained)."""
    body = json.dumps({"online": online, "timestamp": now_ms}, separators=(",", ":"))
    return f"{NAMESPACE}/STATE/{host}", body.encode()


class _Numbers:
    """The numbers found in a single payload."""

    __slots__ = ("bd_seq", "named", "seq", "used")

    def __init__(self) -> None:
        self.bd_seq: int | None = None
        self.seq: int | None = None
        self.named, self.used = set[int](), set[int]()

    def metric(self, metric: bytes, budget: list[int]) -> None:
        """Looks at name and alias, which come first; only of `bdSeq` at more. Raises ValueError."""
        name, alias, value = b"", None, None
        for number, found in _fields(metric, budget):
            if number == 1 and isinstance(found, bytes):
                name = found
            elif number == 2 and isinstance(found, int):
                alias = found
            elif number in (10, 11) and isinstance(found, int):
                value = found
            elif number > 2 and name != BD_SEQ and (name or alias is not None):
                break
        if name == BD_SEQ and self.bd_seq is None:
            self.bd_seq = value
        if alias is not None:
            (self.named if name else self.used).add(alias)


def _fields(data: bytes, budget: list[int]) -> Iterator[tuple[int, int | bytes]]:
    """Gives number and value of each field, as long as there is a budget, which they share. Raises ValueError."""
    at, size = 0, len(data)
    while at < size and budget[0] > 0:
        budget[0] -= 1
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            length, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError("a group, or no field")
        if at + length > size:
            raise ValueError("a field that is cut")
        yield tag >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    if at < len(data) and (byte := data[at]) < 0x80:  # almost all
        return byte, at + 1
    value = 0
    for place in range(10):
        if at + place >= len(data):
            raise ValueError("a number that is cut")
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("a number of more than 64 bits")


def _tagged(field: int, value: int) -> bytes:
    return _written(field << 3 | _VARINT) + _written(value)


def _sized(field: int, value: bytes) -> bytes:
    return _written(field << 3 | _BYTES) + _written(len(value)) + value


def _written(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
