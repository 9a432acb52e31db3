"""Wire topics: they name a scope by its number, and never a topic.

    veilmq/batch/N                batches of scope N
    veilmq/retained/N/ID/MEMBER   retained batches of one record, of one member on one topic

ID is the topic's name as readers of the scope know it (`keys.topictokens.retained_id`), MEMBER the publisher's party
id, both in base64url: so values of two members never mix. Nobody on the way sees topics. So a member may publish in a
scope if it may publish on some topic of it, and readers judge each record alone (`record_rights`). Not here: the
content of a batch (`bridge.contract`), who checks it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from keys.errors import BadFrame
from keys.frames import from_property, to_property

BATCH_ROOT = "veilmq/batch/"
RETAINED_ROOT = "veilmq/retained/"
SCOPE_NUMBER_MAX = (1 << 32) - 1  # 32 bits in wire topics
ID_BYTES = 16
TOPICS_KEPT = 4_096
"""Number of wire topics whose parts are kept, about 100 bytes each; only valid topics are kept."""


class WireTopic(NamedTuple):
    """The parts of a wire topic. `id`, `publisher`: empty for batches."""

    scope: int
    id: bytes = b""
    publisher: bytes = b""


@lru_cache(maxsize=1024)
def batch_topic(number: int) -> str:
    """Returns the wire topic of batches of the scope with this number."""
    return f"{BATCH_ROOT}{number}"


def retained_topic(number: int, id_: bytes, publisher: bytes) -> str:
    """Returns the wire topic of a member's retained publications on a topic of the scope with this number."""
    return f"{RETAINED_ROOT}{number}/{to_property(id_)}/{to_property(publisher)}"


def retained_filter(number: int) -> str:
    """Returns the filter of all retained wire topics of a scope."""
    return f"{RETAINED_ROOT}{number}/#"


@lru_cache(maxsize=TOPICS_KEPT)
def read_wire_topic(wire_topic: str) -> WireTopic:
    """Parses a wire topic, each of which has a single spelling. Raises BadFrame."""
    if wire_topic.startswith(BATCH_ROOT):
        return WireTopic(_number(wire_topic[len(BATCH_ROOT) :]))
    parts = wire_topic[len(RETAINED_ROOT) :].split("/")
    if not is_retained_topic(wire_topic) or len(parts) != 3:
        raise BadFrame("a wire topic that names no scope")
    found = WireTopic(_number(parts[0]), from_property(parts[1]), from_property(parts[2]))
    if (len(found.id), len(found.publisher)) != (ID_BYTES, ID_BYTES):
        raise BadFrame("a wire topic with ids of another size")
    return found


def slot_of(wire_topic: str) -> str:
    """Returns the common part of all members' retained topics about a topic."""
    return wire_topic.rpartition("/")[0]


def is_retained_topic(wire_topic: str) -> bool:
    """Returns True if a wire topic is for retained publications, also if it is misspelt behind its root."""
    return wire_topic.startswith(RETAINED_ROOT)


def _number(told: str) -> int:
    if not (told.isascii() and told.isdigit() and len(told) <= 10) or told.startswith("0"):
        raise BadFrame("a wire topic that names no scope")
    if (number := int(told)) > SCOPE_NUMBER_MAX:
        raise BadFrame("a wire topic with a number that no scope has")
    return number
